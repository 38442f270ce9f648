"""Runs of steady decisions against the slow scheduler, which makes them one by one.

Whatever a scheduler answers to "how many are sure to be steady", so many must be: of decoders alone, with nobody left
out, preempted or admitted, and nobody's first or last token but the last step's. The state after them, the outcome on
the way and the fewest free blocks must be those of the single decisions. Where there is one KV group the answer is as
long as it can be: to the next last token, or as far as the blocks last. Where there are several it is at least half as
long as the blocks last if every table opens an entry as early and as often as any can, and nothing is given back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from random import Random

import msgspec
import pytest
from block_numbers import NumberedPool
from slow_blocks import Live, SlowRequest
from slow_engine import SlowStep, allowed_output
from test_scheduler_few import DECISIONS, RARE, RARE_OF_GROUPS, Both, crowded
from workload_fuzz import Case, random_case, random_groups_case

from isim.policy.vllm.plan import Outcome
from isim.policy.vllm.pool import BlockPool
from isim.policy.vllm.scheduler import Scheduler
from isim.record.records import EngineLimits, EngineVersion


class InRuns(Both):
    """Makes runs as long as allowed, or cuts them; the slow one makes the same decisions."""

    def __init__(
        self,
        limits: EngineLimits,
        requests: Sequence[SlowRequest],
        dice: Random,
        make_pool: type[BlockPool] = NumberedPool,
    ) -> None:
        super().__init__(limits, requests, make_pool)
        self.dice = dice
        self.depth = 1 + limits.async_scheduling
        self.runs = self.outcomes_within = self.shortened = 0
        self.aborted = False

    def abort(self, name: str) -> None:
        """After one has gone a step may bring nothing although something was due."""
        super().abort(name)
        self.aborted = True

    def go_on(self) -> bool:
        if not self.slow.has_requests():
            if self.under_way:
                self.update()
                return True
            return False
        fast = self.fast
        steady = fast.steady_steps()
        self.long_enough(steady, self.certain())
        if steady:
            self.run(steady, 0)
        else:
            self.decide()
            if self.plan.steady:
                more = fast.horizon(self.plan)
                self.long_enough(more, self.further())
                self.run(1 + more, 1)
        had_tokens = bool(self.under_way[-1][0].scheduled)
        more_to_decide = self.limits.version is EngineVersion.V033 and self.slow.has_requests()
        if len(self.under_way) == self.depth or not (had_tokens or more_to_decide):
            self.update()
        return True

    def run(self, most: int, made: int) -> None:
        """A run of at most so many steps, of which the first may be made."""
        fast, steps = self.fast, self.dice.choice([most, most, self.dice.randint(1, most)])
        self.runs += steps > 1
        outcome_due = fast.outcome_due()
        assert self.depth > 1 or not outcome_due
        free_blocks, outcomes = [self.slow.free_blocks()] * made, []
        free_then = None
        for place in range(made, steps):
            if len(self.under_way) == self.depth:
                outcome = self.output()
                if outcome is not None:
                    assert outcome_due and place == 1
                    outcomes.append(outcome)
                if place == 1:
                    free_then = self.slow.free_blocks()
            free_blocks.append(self.steady_decision())
        found: Outcome | None = None
        if outcome_due and steps > 1:
            assert outcomes or self.aborted
            found, then, least = fast.advance_past_output(steps, made)
            assert then == free_then
            self.outcomes_within += 1
        else:
            before = fast.ledger.free
            least = fast.advance(steps - made, made) if steps > made else before
            least = min(least, before) if made else least
        assert [found] * (found is not None) == outcomes
        assert least == min(free_blocks)
        if steps > 1 and len(self.under_way) == self.depth > 1:
            assert self.output() is None
        assert fast.steps == self.steps
        self.agree()

    def steady_decision(self) -> int:
        due = self.slow.schedule()
        assert due.scheduled and len(due.decodes) == len(due.scheduled)
        assert not (due.skipped or due.preempted)
        self.under_way.append((due, self.steps))
        self.steps += 1
        return self.slow.free_blocks()

    # ---- how long a run can be, told from the slow one

    def left(self, live: Live) -> int:
        """Tokens that are still to be sampled for it."""
        under_way = sum(live.id in step.sampled for step, _ in self.under_way)
        return allowed_output(self.limits, live.request) - live.outputs - under_way

    def certain(self) -> int:
        """Nobody waits or has a prompt to compute, nobody was left out, and all under way is of use."""
        slow = self.slow
        if slow.wait_list or any(live.prefill for live in slow.run_list) or len(self.under_way) != self.depth - 1:
            return 0
        decoders = [live for live in slow.run_list if self.left(live)]
        if not decoders or len(decoders) > self.limits.max_num_batched_tokens:
            return 0
        late = [live for live in decoders if self.last_sample.get(live.id, -1) < self.steps - self.depth]
        if self.under_way:
            step = self.under_way[0][0]
            late = [live for live in decoders if live.id not in step.sampled]
        return 0 if late else self.lasting(decoders)

    def further(self) -> int:
        """As above after a steady step, with the waiting ones kept out by what keeps them out now."""
        under_way, slow = self.under_way, self.slow
        if len(under_way) < self.depth:
            return 0
        step, number = under_way[-1]
        decoders = [live for live in slow.run_list if self.left(live)]
        before = [self.sampled_before(name, number) for name in step.sampled]
        if not decoders or not all(before) or any(self.ending(step)):
            return 0
        if slow.wait_list:
            quoted = self.limits.enable_prefix_caching and any(name in self.quotable for name in slow.lives)
            if step.lookups and (quoted or self.limits.groups):
                return 0
            if self.depth > 1 and any(self.ending(under_way[0][0])):
                return 0
        return self.lasting(decoders) if self.depth == 1 or under_way[0][0].scheduled else 0

    def sampled_before(self, name: str, number: int) -> bool:
        return self.last_sample.get(name) == number - 1 or any(
            name in step.sampled for step, other in self.under_way if other == number - 1
        )

    def ending(self, step: SlowStep) -> list[bool]:
        lives = [self.slow.lives[name] for name in step.sampled if name in self.slow.lives]
        return [not self.left(live) for live in lives]

    def long_enough(self, steps: int, most: int) -> None:
        """`steps` steady ones of at most so many."""
        if not self.limits.groups:
            assert steps == most
            return
        decoders = sum(self.left(live) > 0 for live in self.slow.run_list)
        free, blocks = self.slow.free_blocks(), [group.block_size for group in self.limits.groups]
        sure = most
        while decoders * sum(-(-sure // block) for block in blocks) > free:
            sure -= 1
        assert sure <= 2 * steps <= 2 * most
        assert sure < most or steps == most
        self.shortened += sure < most

    def lasting(self, decoders: list[Live]) -> int:
        block, free = self.limits.block_size, self.slow.free_blocks()
        steps, most = 0, min(map(self.left, decoders))
        while steps < most:
            opened = [-(-(it.computed + steps + 1) // block) - -(-it.computed // block) for it in decoders]
            if sum(opened) > free and not self.limits.groups:
                break
            steps += 1
        return steps


def decoders_enough(seed: int) -> Case:
    """Room for everybody and a step under way: who leaves gives back while others open a block, and few wait."""
    dice = Random(seed)
    limits, _, coefficients = random_case(seed)
    limits = msgspec.structs.replace(
        limits,
        version=dice.choice([*EngineVersion]),
        block_size=dice.choice([1, 2, 4]),
        num_blocks=140,
        max_model_len=64,
        max_num_seqs=dice.choice([6, 16]),
        max_num_batched_tokens=64,
        long_prefill_token_threshold=0,
        enable_prefix_caching=dice.random() < 0.7,
        async_scheduling=True,
    )
    requests: list[SlowRequest] = []
    for index in range(dice.randrange(3, 11)):
        prompt = [(f"u:{index}", 0, dice.randrange(1, 6))]
        if requests and dice.random() < 0.2:
            said = dice.choice(requests)
            prompt = [*said.prompt[-1:], (f"o:{said.id}", 0, dice.randrange(1, 12)), *prompt]
        elif dice.random() < 0.2:
            prompt = [("a", 0, dice.randrange(1, 9)), *prompt]
        requests.append(SlowRequest(id=f"r{index}", prompt=prompt, output_tokens=dice.randrange(1, 24)))
    return limits, requests, coefficients


def run(
    seed: int, make: Callable[[int], Case], make_pool: type[BlockPool] = NumberedPool, aborts: float = 0.03
) -> InRuns:
    dice = Random(seed)
    limits, requests, _ = make(seed)
    if seed % 4 and make is not decoders_enough:
        limits = crowded(limits, requests)
    both = InRuns(limits, requests, dice, make_pool)
    to_come = list(requests)
    for _ in range(DECISIONS):
        while to_come and dice.random() < 0.6:
            both.add(to_come.pop(0))
        if dice.random() < aborts:
            both.abort(dice.choice(requests).id)
        if not both.go_on() and not to_come:
            break
    return both


def check(make: Callable[[int], Case], seeds: Iterable[int]) -> list[InRuns]:
    played = [run(seed, make) for seed in seeds]
    assert sum(both.runs for both in played) > 100
    assert sum(both.outcomes_within for both in played) > 20
    return played


def test_a_run_is_as_its_decisions_one_by_one() -> None:
    check(random_case, (*RARE, *range(60)))


@pytest.mark.parametrize("make_pool", [NumberedPool, BlockPool])
def test_so_is_one_in_which_some_leave_and_others_open_blocks(make_pool: type[BlockPool]) -> None:
    played = [run(seed, decoders_enough, make_pool, aborts=0.1) for seed in range(60)]
    assert sum(both.outcomes_within for both in played) > 100


def test_so_is_one_with_several_groups() -> None:
    played = check(random_groups_case, (*RARE_OF_GROUPS, *range(60)))
    assert sum(both.shortened for both in played) > 20


@pytest.mark.parametrize("version", EngineVersion)
@pytest.mark.parametrize("ahead", [False, True])
def test_who_finds_no_budget_is_admitted_once_what_it_quotes_can_be_found(version: EngineVersion, ahead: bool) -> None:
    """Nothing is cut into chunks, and two decoders leave 38 tokens for one that has 39, until it finds 4 of them.

    The other computes its fourth token in step 2. It is known then, or with a step under way one step later.
    """
    limits = msgspec.structs.replace(
        random_case(0)[0],
        version=version,
        block_size=4,
        num_blocks=100,
        max_model_len=40,
        max_num_batched_tokens=40,
        max_num_seqs=8,
        long_prefill_token_threshold=0,
        enable_prefix_caching=True,
        enable_chunked_prefill=False,
        async_scheduling=ahead,
    )
    requests = [
        SlowRequest(id="said", prompt=[("p", 0, 2)], output_tokens=20),
        SlowRequest(id="other", prompt=[("u", 0, 2)], output_tokens=20),
        SlowRequest(id="quoting", prompt=[("p", 0, 2), ("o:said", 0, 20), ("q", 0, 17)], output_tokens=1),
    ]
    both = InRuns(limits, requests, Random(0))
    for request in requests:
        both.add(request)
    admissions = []
    for _ in range(60):
        both.go_on()
        admissions += [(both.plan.step, *it) for it in both.plan.admitted if (both.plan.step, *it) not in admissions]
    assert admissions == [(0, 0, 0, 2), (0, 1, 0, 2), (2 + ahead, 2, 4, 35)]


def test_blocks_that_nobody_can_look_for_are_all_alike() -> None:
    """Without a shared prompt only who was preempted looks for its own, and it is the only one to find them."""
    limits = msgspec.structs.replace(
        random_case(0)[0],
        num_blocks=60,
        block_size=4,
        max_model_len=64,
        max_num_batched_tokens=64,
        max_num_seqs=16,
        long_prefill_token_threshold=0,
        enable_prefix_caching=True,
    )
    scheduler = Scheduler(limits)
    for index in range(6):
        scheduler.add(index, f"r{index}", 3 * index + 1, 9 - index, 0, 0, None, False)
    for _ in range(9):
        assert not scheduler.schedule().preempted
        while len(scheduler.flights) == scheduler.depth:
            scheduler.update()
        assert scheduler.pool.alike
    while scheduler.flights:
        scheduler.update()
    assert scheduler.steps == 9 and not scheduler.live and scheduler.pool.alike


@pytest.mark.parametrize("gone_after", range(6))
def test_of_two_that_end_together_the_first_may_have_gone(gone_after: int) -> None:
    """The output of decision 3 is under way when decision 4 is made."""
    limits, _, _ = decoders_enough(0)
    requests = [SlowRequest(id=f"r{at}", prompt=[(f"u:{at}", 0, 3)], output_tokens=4) for at in range(2)]
    both = InRuns(limits, requests, Random(0))
    for request in requests:
        both.add(request)
    for turn in range(12):
        if turn == gone_after:
            both.abort("r0")
        if both.slow.has_requests():
            both.decide()
        while len(both.under_way) > (both.depth - 1 if both.slow.has_requests() else 0):
            both.update()
    assert both.finishes == (1 if gone_after < 5 else 2)


def test_a_first_token_of_step_0_is_not_a_first_one_again_after_preemption() -> None:
    """Of three blocks two hold the prompts, and the first to decode takes the third."""
    limits, _, _ = decoders_enough(0)
    limits = msgspec.structs.replace(limits, block_size=4, num_blocks=4, async_scheduling=False)
    limits = msgspec.structs.replace(limits, scheduler_reserve_full_isl=False)
    requests = [SlowRequest(id=f"r{at}", prompt=[(f"u:{at}", 0, 4)], output_tokens=5 - at) for at in range(2)]
    both = InRuns(limits, requests, Random(0))
    for request in requests:
        both.add(request)
    for _ in range(30):
        both.go_on()
    assert both.preemptions == 1 and both.finishes == 2
