"""The scheduler of several KV groups: what hardly ever happens in random cases, and how seldom it looks.

A decoder is looked at when one more token opens an entry of a table or passes one, and the running pass is made word
by word when blocks or budget do not suffice for everybody. Both are told here from the slow scheduler and from sums.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from random import Random
from typing import Any

import msgspec
import pytest
from slow_blocks import SlowRequest, most_held
from test_scheduler_few import DECISIONS, RARE_OF_GROUPS, Both, crowded, short_of_budget
from test_scheduler_runs import InRuns
from workload_fuzz import Case, random_case, random_groups_case

from isim.policy.vllm import group_scheduler
from isim.policy.vllm.group_pool import Tables
from isim.policy.vllm.group_scheduler import GroupScheduler
from isim.policy.vllm.sequence import Sequence as Member
from isim.record.records import EngineLimits, EngineVersion, GroupKind, GroupLimits

FULL, SLIDING, ALIGNED = GroupKind.FULL, GroupKind.SLIDING, GroupKind.ALIGNED_STATE


class Counted(Both):
    """Counts the decisions whose running pass was made word by word; none without a reason."""

    def __init__(self, limits: EngineLimits, requests: Sequence[SlowRequest]) -> None:
        super().__init__(limits, requests)
        self.walks = self.smooth = 0
        self.order: dict[str, int] = {}
        self.newest_decoder = -1

    def decide(self) -> bool:
        before, hindered = self.walks, self.hindered()
        decided = super().decide()
        assert hindered or self.walks == before
        self.smooth += bool(self.slow.running()) and self.walks == before
        step = self.under_way[-1][0]
        for name, _, _, kind in step.scheduled:
            if kind != "running":
                self.order[name] = max(self.order.values(), default=0) + 1
        self.newest_decoder = max([self.newest_decoder, *[self.order[name] for name in step.sampled]])
        return decided

    def hindered(self) -> bool:
        """Whether blocks or budget do not suffice for all of the running, or a prefill came before who decodes."""
        slow = self.slow
        slow.alone = len(slow.lives) == 1
        budget, wanted = self.limits.max_num_batched_tokens, 0
        for live in slow.run_list:
            due = slow._due(live)
            tokens = slow._whole_blocks(live, live.computed, min(due, budget))
            if (due and not tokens) or (live.prefill and self.order[live.id] < self.newest_decoder):
                return True
            budget -= tokens
            for number in range(len(self.limits.groups)):
                wanted += slow.pool._wants(live, number, live.computed + tokens, None, False)
        return wanted > slow.free_blocks()


def play(both: Both, dice: Random) -> None:
    to_come = list(both.requests)
    for _ in range(DECISIONS):
        while to_come and dice.random() < 0.6:
            both.add(to_come.pop(0))
        if dice.random() < 0.03:
            both.abort(dice.choice(both.requests).id)
        if not both.go_on() and not to_come:
            break


def windows_short_of_budget(seed: int) -> Case:
    """As `short_of_budget`, with windows, and states of single tokens: what is passed differs by a token of a step."""
    dice = Random(seed)
    limits, requests, coefficients = short_of_budget(seed)
    block = dice.choice([1, 1, 2])
    full, state = (GroupLimits(kind=kind, block_size=block) for kind in (FULL, ALIGNED))
    window = GroupLimits(kind=SLIDING, block_size=block, window_tokens=dice.randrange(2, 6))
    limits = msgspec.structs.replace(
        limits,
        block_size=block,
        groups=dice.choice([(full, state), (full, state, window), (full, window, state)]),
        async_scheduling=True,
        max_num_batched_tokens=dice.randrange(3, 9),
    )
    return limits, requests, coefficients


def uneven(seed: int) -> Case:
    """Blocks of different lengths and prompts that part anywhere: their last entries are named as they decode."""
    dice = Random(seed)
    limits, _, coefficients = random_case(seed)
    one, two = dice.choice([(1, 2), (2, 3), (3, 2), (2, 4), (1, 3), (4, 2)])
    full = GroupLimits(kind=FULL, block_size=one)
    window = GroupLimits(kind=SLIDING, block_size=two, window_tokens=dice.randrange(2, 20))
    limits = msgspec.structs.replace(
        limits,
        version=dice.choice([EngineVersion.V033, EngineVersion.V033, EngineVersion.V021]),
        block_size=one,
        groups=dice.choice([(full, window), (window, full)]),
        max_num_seqs=dice.choice([4, 8]),
        max_num_batched_tokens=dice.choice([8, 40]),
        max_model_len=40,
        long_prefill_token_threshold=0,
        enable_prefix_caching=True,
        enable_chunked_prefill=True,
    )
    requests: list[SlowRequest] = []
    for index in range(dice.randrange(6, 14)):
        prompt = [("a", 0, dice.randrange(1, 14))]
        if dice.random() < 0.7:
            name = dice.choice("bc")
            prompt.append((f"{name}{prompt[0][2]}", 0, dice.randrange(1, 8)))
        if dice.random() < 0.3:
            prompt.append((f"u:{index}", 0, dice.randrange(1, 8)))
        requests.append(SlowRequest(id=f"r{index}", prompt=prompt, output_tokens=dice.randrange(1, 16)))
    most = sum(most_held(limits, group, 39) for group in limits.groups)
    return msgspec.structs.replace(limits, num_blocks=1 + most + dice.choice([0, 4, 20])), requests, coefficients


@pytest.mark.parametrize(
    ("make", "seeds"),
    [
        (random_groups_case, (*RARE_OF_GROUPS, *range(30))),
        (short_of_budget, range(25)),
        (windows_short_of_budget, (57, 58, 63, 70, 73, *range(20))),
        (uneven, (29, 41, 113, 147, 164, *range(20))),
    ],
)
def test_they_decide_alike_and_word_by_word_only_where_the_order_matters(
    monkeypatch: pytest.MonkeyPatch, make: Callable[[int], Case], seeds: Iterable[int]
) -> None:
    walk = group_scheduler.walk

    def counted(*args: Any) -> None:
        both.walks += 1
        walk(*args)

    monkeypatch.setattr(group_scheduler, "walk", counted)
    walks = smooth = 0
    for seed in seeds:
        limits, requests, _ = make(seed)
        both = Counted(crowded(limits, requests) if make is random_groups_case and seed % 4 else limits, requests)
        play(both, Random(seed))
        walks, smooth = walks + both.walks, smooth + both.smooth
    assert walks > 50 and smooth > 400


def test_who_is_left_out_at_the_first_token_of_all_is_looked_at_again() -> None:
    """The one before decodes nothing; then a chunk that ends where its shared prefix does lets two others in.

    The next chunk takes the whole budget, so these wait. Then its request goes, and both open a block with their token.
    """
    limits, _, _ = short_of_budget(0)
    groups = tuple(GroupLimits(kind=kind, block_size=2) for kind in (FULL, ALIGNED))
    limits = msgspec.structs.replace(
        limits, block_size=2, groups=groups, async_scheduling=True, max_num_batched_tokens=6, num_blocks=40
    )
    requests = [
        SlowRequest(id="before", prompt=[("a", 0, 4), ("u", 0, 1)], output_tokens=1),
        SlowRequest(id="long", prompt=[("a", 0, 2), ("l", 0, 7)], output_tokens=4, priority=-1),
        SlowRequest(id="first", prompt=[("f", 0, 2)], output_tokens=5),
        SlowRequest(id="second", prompt=[("s", 0, 2)], output_tokens=5),
    ]
    both = Both(limits, requests)
    both.add(requests[0])
    while both.go_on():
        pass
    for request in requests[1:]:
        both.add(request)
    while not both.skipped:
        both.go_on()
    both.abort("long")
    while both.go_on():
        pass
    assert both.skipped == 1 and both.finishes == 3


@pytest.mark.parametrize("version", EngineVersion)
@pytest.mark.parametrize("ahead", [False, True])
def test_a_decoder_is_looked_at_where_one_more_token_opens_or_passes_an_entry(
    monkeypatch: pytest.MonkeyPatch, version: EngineVersion, ahead: bool
) -> None:
    """And when it begins, once, or twice where only processed tokens count for what is passed."""
    prompt, output, block, reach = 5, 90, 8, 13
    looks: list[int] = []
    look = GroupScheduler.give_back

    def noted(scheduler: GroupScheduler, sequence: Member, computed: int, settled: int) -> Tables:
        looks.append(computed)
        return look(scheduler, sequence, computed, settled)

    monkeypatch.setattr(GroupScheduler, "give_back", noted)
    limits, _, _ = random_groups_case(0)
    limits = msgspec.structs.replace(
        limits,
        version=version,
        groups=(
            GroupLimits(kind=FULL, block_size=block),
            GroupLimits(kind=SLIDING, block_size=block, window_tokens=reach),
        ),
        block_size=block,
        num_blocks=60,
        max_model_len=128,
        max_num_batched_tokens=128,
        long_prefill_token_threshold=0,
        async_scheduling=ahead,
    )
    both = InRuns(limits, [SlowRequest(id="r", prompt=[("u:0", 0, prompt)], output_tokens=output)], Random(0))
    both.add(both.requests[0])
    while both.go_on():
        pass
    decoding = range(prompt, prompt + output - 1)
    opening = {computed for computed in decoding if computed % block == 0}
    passing = {computed for computed in decoding if (computed - reach + 1) % block == 0}
    late = ahead and version is EngineVersion.V033
    if not late:
        assert looks == sorted({prompt} | opening | passing)
        return
    passing_late = {computed + 1 for computed in passing}
    needed = {prompt, prompt + 1} | opening | passing_late
    assert looks == sorted(looks) and needed <= set(looks) <= needed | passing


@pytest.mark.parametrize("ahead", [False, True])
@pytest.mark.parametrize("output", range(1, 7))
def test_the_last_token_may_name_the_end_of_a_prompt(ahead: bool, output: int) -> None:
    """Blocks of 2 and 3 tokens get their names six tokens at a time: those of tokens 6 to 8 with the twelfth.

    Whoever computes it, if only as its last token, has its blocks found by the third, and not those of the second.
    """
    groups = (
        GroupLimits(kind=FULL, block_size=2),
        GroupLimits(kind=SLIDING, block_size=3, window_tokens=30),
    )
    limits = msgspec.structs.replace(
        uneven(0)[0],
        version=EngineVersion.V033,
        block_size=2,
        groups=groups,
        num_blocks=80,
        max_num_batched_tokens=40,
        async_scheduling=ahead,
    )
    shared, more = ("t", 0, 9), ("b", 0, 7)
    requests = [
        SlowRequest(id="r0", prompt=[shared], output_tokens=output),
        SlowRequest(id="r1", prompt=[shared, more], output_tokens=20),
        SlowRequest(id="r2", prompt=[shared, more], output_tokens=5),
    ]
    both = Both(limits, requests)
    both.add(requests[0])
    while both.go_on():
        pass
    both.add(requests[1])
    both.go_on()
    free_blocks = both.fast.ledger.free
    both.add(requests[2])
    both.go_on()
    assert both.plan.admitted == [(2, 12, 4)]
    new, found, of_the_second = 2 + 2, 1 + 1, 1
    assert free_blocks - both.fast.ledger.free == new + of_the_second + (found if output >= 4 else 0)
