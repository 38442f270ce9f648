"""The scheduler against the slow one, decision by decision and without time: arrivals and cancellations in between.

Where `test_engine_against_slow` plays a workload through the whole engine in seven ways, this asks two tables the same
things in the same order, so that a second is enough for many crowded pools. `make mutants` runs it for every mutant.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from random import Random

import msgspec
import pytest
from block_numbers import NumberedPool
from slow_blocks import SlowRequest, groups_of, most_held
from slow_engine import SlowScheduler, SlowStep, reject_reason
from workload_fuzz import Case, quoted_ids, random_case, random_groups_case

from isim.policy.vllm.group_pool import GroupPool
from isim.policy.vllm.group_scheduler import GroupScheduler
from isim.policy.vllm.plan import Outcome, Plan
from isim.policy.vllm.pool import BlockPool
from isim.policy.vllm.scheduler import Scheduler
from isim.record.records import EngineLimits, EngineVersion, GroupKind, GroupLimits, SchedulingPolicy

DECISIONS = 400


class Both:
    """Two schedulers that are told the same; requests by their place in the list. `BlockPool` has no numbers."""

    def __init__(
        self, limits: EngineLimits, requests: Sequence[SlowRequest], make_pool: type[BlockPool] = NumberedPool
    ) -> None:
        self.limits = limits
        self.requests = requests
        self.index = {request.id: index for index, request in enumerate(requests)}
        self.quotable = quoted_ids(requests)
        groups = Counter(group for request in requests for group in {group for group, _, _ in request.prompt})
        self.own = {group for group, count in groups.items() if count == 1 and group.startswith("u:")}
        """Of tokens that no two have: who may not be quoted has nothing to share from there on."""
        self.fast = GroupScheduler(limits) if limits.groups else Scheduler(limits, make_pool)
        self.slow = SlowScheduler(limits)
        self.under_way: list[tuple[SlowStep, int]] = []
        self.steps = self.preemptions = self.finishes = self.skipped = 0
        self.last_sample: dict[str, int] = {}
        self.plan = Plan(0)
        """The last one that was told."""

    def add(self, request: SlowRequest) -> None:
        if reject_reason(self.limits, request) is not None:
            return
        self.slow.add(request)
        index, prompt = self.index[request.id], request.prompt
        if request.id not in self.quotable and prompt[-1][0] in self.own:
            prompt = prompt[:-1]
        self.fast.add(
            index,
            request.id,
            request.prompt_tokens,
            request.output_tokens,
            priority=request.priority,
            order_time=request.arrival_ns,
            prompt=prompt,
            quotable=request.id in self.quotable,
        )

    def abort(self, name: str) -> None:
        assert self.fast.abort(self.index[name]) is (name in self.slow.lives)
        self.slow.abort(name)
        self.agree()

    def agree(self) -> None:
        fast, slow = self.fast, self.slow
        assert fast.has_requests is slow.has_requests()
        assert list(fast.running) == [self.index[name] for name in slow.running()]
        assert [sequence.id for sequence in fast.waiting.in_order()] == slow.waiting()
        if isinstance(fast.ledger, NumberedPool | GroupPool):
            assert fast.ledger.order() == slow.free_block_order()
        assert fast.ledger.free == slow.free_blocks()

    def decide(self) -> bool:
        """Whether anything was scheduled."""
        due = self.slow.schedule()
        plan = self.plan = self.fast.schedule()
        told = Told(plan, self.requests)
        assert told.preempted == due.preempted
        assert told.skipped == due.skipped
        assert told.lookups == due.lookups
        admitted = [(name, before, tokens) for name, tokens, before, kind in due.scheduled if kind != "running"]
        assert told.admitted == admitted
        running = [it for it in due.scheduled if it[3] == "running"]
        assert told.chunks == [(name, tokens) for name, tokens, _, _ in running if name not in due.decodes]
        decoding = [before for name, _, before, _ in running if name in due.decodes]
        assert (plan.decodes, plan.decode_context) == (len(decoding), sum(decoding))
        assert plan.tokens == sum(tokens for _, tokens, _, _ in due.scheduled)
        assert plan.context == sum(before for _, _, before, _ in due.scheduled)
        assert sorted(plan.shapes) == sorted(
            (tokens, before) for name, tokens, before, _ in due.scheduled if name not in due.decodes
        )
        assert plan.sampled == len(due.sampled)
        only_decodes = bool(due.scheduled) and len(decoding) == len(due.scheduled)
        assert plan.steady is (only_decodes and not (due.preempted or due.skipped))
        assert plan.step == self.steps
        self.under_way.append((due, self.steps))
        self.steps += bool(due.scheduled)
        self.preemptions += len(due.preempted)
        self.skipped += bool(due.skipped and not due.preempted)
        self.agree()
        return bool(due.scheduled)

    def update(self) -> None:
        due = self.output()
        assert self.fast.update() == due
        self.agree()

    def output(self) -> Outcome | None:
        """What the slow one's oldest step under way brings.

        First tokens, tokens after a pause with the step of the one before, and who is through, in running order.
        """
        step, number = self.under_way.pop(0)
        first, late = [], []
        emitted, finished = self.slow.update()
        for name in step.sampled:
            before = self.last_sample.get(name)
            if name in emitted:
                if before is None:
                    first.append(name)
                elif before != number - 1:
                    late.append((name, before))
            self.last_sample[name] = number
        self.finishes += len(finished)
        if not (first or late or finished):
            return None
        index = self.index
        return Outcome(
            number,
            tuple(index[name] for name in first),
            tuple((index[name], before) for name, before in late),
            tuple(index[name] for name in finished),
        )

    def go_on(self) -> bool:
        """What an engine does next; False if there is nothing to do."""
        if self.slow.has_requests():
            had_tokens = self.decide()
            more = self.limits.version is EngineVersion.V033 and self.slow.has_requests()
            if len(self.under_way) == 1 + self.limits.async_scheduling or not (had_tokens or more):
                self.update()
            return True
        if self.under_way:
            self.update()
            return True
        return False


class Told:
    """A plan in the names of the requests."""

    def __init__(self, plan: Plan, requests: Sequence[SlowRequest]) -> None:
        names = [request.id for request in requests]
        self.preempted = [names[index] for index in plan.preempted]
        self.skipped = [names[index] for index in plan.skipped]
        self.lookups = [(names[index], tokens) for index, tokens in plan.lookups]
        self.admitted = [(names[index], hit, tokens) for index, hit, tokens in plan.admitted]
        self.chunks = [(names[index], tokens) for index, tokens in plan.chunks]


def crowded(limits: EngineLimits, requests: Sequence[SlowRequest]) -> EngineLimits:
    """With a pool that just holds the largest request that is not too long."""
    peaks = [min(it.prompt_tokens + it.output_tokens, limits.max_model_len) - 1 for it in requests]
    blocks = [sum(most_held(limits, group, peak) for group in groups_of(limits)) for peak in peaks]
    return msgspec.structs.replace(limits, num_blocks=1 + max(blocks))


def run(seed: int, make: Callable[[int], Case]) -> Both:
    """Play a case to its end, or for so many decisions where its rules go in circles."""
    dice = Random(seed)
    limits, requests, _ = make(seed)
    if seed % 4:
        limits = crowded(limits, requests)
    both = Both(limits, requests)
    to_come = list(requests)
    for _ in range(DECISIONS):
        while to_come and dice.random() < 0.6:
            both.add(to_come.pop(0))
        if dice.random() < 0.03:
            both.abort(dice.choice(requests).id)
        if not both.go_on() and not to_come:
            break
    return both


def short_of_budget(seed: int) -> Case:
    """Prompts that begin alike, so that a chunk ends where the prefix does, and little ones admitted behind them.

    The next chunk is longer, and the budget ends among decoders.
    """
    dice = Random(seed)
    limits, _, coefficients = random_groups_case(seed)
    block = dice.choice([2, 4])
    state = GroupLimits(kind=GroupKind.ALIGNED_STATE, block_size=block)
    limits = msgspec.structs.replace(
        limits,
        version=EngineVersion.V033,
        block_size=block,
        groups=(GroupLimits(kind=GroupKind.FULL, block_size=block), *[state] * dice.choice([1, 2])),
        policy=SchedulingPolicy.PRIORITY,
        max_num_seqs=16,
        max_num_batched_tokens=dice.randrange(2 * block, 4 * block + 3),
        max_model_len=64,
        long_prefill_token_threshold=0,
        enable_prefix_caching=True,
        enable_chunked_prefill=True,
        scheduler_reserve_full_isl=False,
    )
    requests = []
    for index in range(dice.randrange(4, 14)):
        own = (f"u:{index}", 0, dice.randrange(1, 3))
        prompt = [own] if dice.random() < 0.5 else [("a", 0, dice.randrange(1, 14)), (*own[:2], dice.randrange(1, 14))]
        output, priority = dice.randrange(1, 24), dice.randrange(3)
        requests.append(SlowRequest(id=f"r{index}", prompt=prompt, output_tokens=output, priority=priority))
    return limits, requests, coefficients


RARE, RARE_OF_GROUPS = (116, 123, 294), (106, 158, 165, 282, 344, 451)
"""Cases that nothing among the first is like: victims that had tokens, or stood ahead without; somebody left out behind
others who are not."""


@pytest.mark.parametrize(
    ("make", "seeds"),
    [
        (random_case, (*RARE, *range(60))),
        (random_groups_case, (*RARE_OF_GROUPS, *range(60))),
        (short_of_budget, range(25)),
    ],
)
def test_two_schedulers_decide_alike(make: Callable[[int], Case], seeds: Iterable[int]) -> None:
    played = [run(seed, make) for seed in seeds]
    assert sum(both.preemptions for both in played) > 100
    assert sum(both.finishes for both in played) > 150
    assert make is not short_of_budget or sum(both.skipped for both in played) > 10


def test_who_was_left_out_for_want_of_budget_may_be_preempted_when_its_turn_has_come() -> None:
    """Its newest token is known by then: the step before did not compute it. So the block that it fills has a hash."""
    limits, _, _ = short_of_budget(0)
    groups = tuple(GroupLimits(kind=kind, block_size=2) for kind in (GroupKind.FULL, GroupKind.ALIGNED_STATE))
    limits = msgspec.structs.replace(
        limits, block_size=2, groups=groups, async_scheduling=True, max_num_batched_tokens=6, num_blocks=15
    )
    before, *requests = [
        SlowRequest(id="before", prompt=[("a", 0, 4), ("u", 0, 1)], output_tokens=1),
        SlowRequest(id="long", prompt=[("a", 0, 2), ("l", 0, 7)], output_tokens=4),
        SlowRequest(id="first", prompt=[("f", 0, 1)], output_tokens=11, priority=5),
        SlowRequest(id="second", prompt=[("s", 0, 1)], output_tokens=13),
        SlowRequest(id="third", prompt=[("t", 0, 4)], output_tokens=17, priority=5),
    ]
    both = Both(limits, [before, *requests])
    both.add(before)
    while both.go_on():
        pass
    for request in requests:
        both.add(request)
    for _ in range(120):
        both.go_on()
    assert both.skipped > 0 and both.preemptions > 0


@pytest.mark.parametrize("kinds", [(), (GroupKind.FULL, GroupKind.ALIGNED_STATE)])
def test_a_prompt_that_is_not_cut_may_take_the_last_of_the_budget(kinds: Sequence[GroupKind]) -> None:
    limits = msgspec.structs.replace(
        random_case(0)[0],
        groups=tuple(GroupLimits(kind=kind, block_size=40) for kind in kinds),
        block_size=40,
        num_blocks=100,
        max_model_len=40,
        max_num_batched_tokens=40,
        max_num_seqs=8,
        long_prefill_token_threshold=0,
        enable_chunked_prefill=False,
    )
    prompts = [17, 23, 1]
    requests = [SlowRequest(id=f"r{at}", prompt=[(f"u:{at}", 0, n)], output_tokens=2) for at, n in enumerate(prompts)]
    both = Both(limits, requests)
    for request in requests:
        both.add(request)
    both.decide()
    assert both.plan.admitted == [(0, 0, 17), (1, 0, 23)]


@pytest.mark.parametrize("version", EngineVersion)
@pytest.mark.parametrize("groups", [0, 2])
@pytest.mark.parametrize(("ahead", "first", "idle"), [(0, "q", 0), (0, "d", 2), (1, "q", 0), (1, "d", 1)])
def test_of_equal_blocks_that_of_the_first_to_name_it_is_found(
    version: EngineVersion, groups: int, ahead: int, first: str, idle: int
) -> None:
    """One computes its prompt a token a step, as another beside it gives the answer that is quoted there.

    In the same steps they fill a block of the prompt and one of the answer, whoever stands first before the other. With
    a step under way the answer is known later to who gives it than to who quotes it. Then the one who gave it goes, so
    that what is found of its blocks lies in the free queue; and the third gets one new block for each group.
    """
    size = 2
    window = GroupLimits(kind=GroupKind.SLIDING, block_size=size, window_tokens=30)
    limits = msgspec.structs.replace(
        random_case(0)[0],
        version=version,
        groups=(GroupLimits(kind=GroupKind.FULL, block_size=size), window)[:groups],
        block_size=size,
        num_blocks=60,
        max_model_len=30,
        max_num_batched_tokens=30,
        max_num_seqs=8,
        long_prefill_token_threshold=1,
        enable_prefix_caching=True,
        enable_chunked_prefill=True,
        async_scheduling=bool(ahead),
        policy=SchedulingPolicy.FCFS,
    )
    giving = SlowRequest(id="d", prompt=[("p", 0, 2)], output_tokens=9)
    quoting = SlowRequest(id="q", prompt=[("p", 0, 2), ("o:d", 0, 9)], output_tokens=9)
    third = SlowRequest(id="third", prompt=[("p", 0, 2), ("o:d", 0, 2), ("u", 0, 2)], output_tokens=9)
    both = Both(limits, [*([quoting, giving] if first == "q" else [giving, quoting]), third])
    for request in both.requests[:2]:
        both.add(request)
    for _ in range(5):
        both.go_on()
    both.abort("d")
    both.add(third)
    free_blocks = both.fast.ledger.free
    both.decide()
    assert both.plan.admitted == [(2, 4, 1)]
    assert free_blocks - both.fast.ledger.free == (groups or 1) * (1 + idle)
