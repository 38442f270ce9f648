"""A few logs of the slow engine, accepted as they are and rejected with a field spoilt: most faults in a second.

The many are in test_replay_groups.py and test_replay_schedules.py; `make mutants` runs these for every mutant.
"""

from __future__ import annotations

import random
from collections import Counter
from functools import cache

import msgspec
import pytest
from replay_examples import LIMITS, changed, numbered, violation
from slow_blocks import SlowRequest
from slow_engine import EndlessRun
from slow_log import slow_log
from test_replay_groups import TELLINGS
from test_replay_schedules import spoilt
from workload_fuzz import GRID_NS, crowded_case, quoting_case, random_case, random_groups_case

from isim.record.records import Abort, AnyRecord, Header, LinearCoefficients, SchedulingPolicy, Stretch, Turn
from isim.replay import Rule

MAKERS = {
    "one group": random_case,
    "several groups": random_groups_case,
    "crowds": crowded_case,
    "quotes": quoting_case,
}
TIMEOUTS = (None, None, 6 * GRID_NS, 30 * GRID_NS)
SEEDS = {
    "one group": (*range(60), 121, 453, 1481),
    "several groups": (*range(60), 94, 106, 444, 2341),
    "crowds": range(48),
    "quotes": (*range(48), 122, 202, 256, 364),
}
"""The first, and some in which something rare happens."""


@cache
def logs(maker: str) -> list[tuple[int, list[AnyRecord]]]:
    """Told in stretches, step by step and across outputs, of clients that wait and that give up, in turn."""
    told = []
    for seed in SEEDS[maker]:
        how, timeout_ns = TELLINGS[seed % 3], TIMEOUTS[seed // 3 % 4]
        try:
            told.append((seed, slow_log(*MAKERS[maker](seed), timeout_ns=timeout_ns, **how)))
        except EndlessRun:
            continue
    return told


@pytest.mark.parametrize("maker", MAKERS)
def test_what_the_slow_engine_tells_is_legal(maker: str) -> None:
    seen: Counter[str] = Counter()
    for seed, records in logs(maker):
        error = violation(records)
        assert error is None, (seed, str(error))
        seen["preempted"] += sum(len(record.preempted) for record in records if isinstance(record, Turn))
        seen["aborted"] += sum(isinstance(record, Abort) for record in records)
    assert min(seen[what] for what in ("preempted", "aborted")) > 20, seen


@pytest.mark.parametrize("maker", MAKERS)
def test_a_field_told_otherwise_is_noticed_where_it_is(maker: str) -> None:
    dice = random.Random(7)
    for seed, records in logs(maker):
        place = dice.choice([place for place, it in enumerate(records) if place and not isinstance(it, Abort)])
        error = violation(changed(records, place, **spoilt(dice, records[place])))
        assert error is not None and error.sequence == place, (seed, records[place], str(error))


def longer(header: Header, record: Stretch, more: int) -> Stretch:
    """The stretch with so many steps more, told when its end would be known, at the price the header states."""
    cost, steps = header.linear_cost, record.steps + more
    assert cost is not None
    durations = linear_durations(cost, record, steps)
    depth = 2 if header.engine.async_scheduling else 1
    told_ns = record.schedule_ns + sum(durations[: steps + 1 - depth])
    if len(set(durations)) == 1:
        durations = durations[:1]
    return msgspec.structs.replace(record, steps=steps, durations_ns=durations, time_ns=max(told_ns, record.time_ns))


def linear_durations(cost: LinearCoefficients, record: Stretch, steps: int) -> list[int]:
    contexts = [record.context + record.batch * passed for passed in range(steps)]
    each_ps = cost.base_ps + (cost.per_token_ps + cost.per_request_ps) * record.batch
    return [-(-(each_ps + cost.per_context_token_ps * context) // 1000) for context in contexts]


@pytest.mark.parametrize("maker", MAKERS)
def test_a_stretch_ends_where_it_ends(maker: str) -> None:
    """Each goes on as long as it may: with a step more, or many, it hides what ended it."""
    dice = random.Random(8)
    tried = 0
    stretched = [(seed, records) for seed, records in logs(maker) if "max_stretch" not in TELLINGS[seed % 3]]
    for seed, records in stretched:
        stretches = [place for place, it in enumerate(records) if isinstance(it, Stretch)]
        header = records[0]
        assert isinstance(header, Header)
        for place in dice.sample(stretches, min(4, len(stretches))):
            record = records[place]
            assert isinstance(record, Stretch)
            told = [*records[:place], longer(header, record, dice.choice((1, 1, 2, 9)))]
            error = violation(told)
            assert error is not None and error.sequence == place, (seed, record, str(error))
            end = f"a stretch that ends before step {record.step + record.steps}: "
            assert error.rule is Rule.STRETCH and error.expected.startswith(end), (seed, record, str(error))
            tried += 1
    assert tried > len(stretched)


@pytest.mark.parametrize("maker", MAKERS)
def test_a_turn_left_out_is_missed_at_the_next_record(maker: str) -> None:
    dice = random.Random(9)
    for seed, records in logs(maker):
        place = dice.choice([place for place, it in enumerate(records) if isinstance(it, Turn)])
        error = violation(numbered([*records[:place], *records[place + 1 :]]))
        assert error is not None and error.sequence == place, (seed, records[place], str(error))


EMPTIED: dict[str, tuple[dict[str, int], tuple[tuple[int, int, int], ...], tuple[int, int, int, int]]] = {
    "at 0 the first gives way; at 1 steps 1 and 2 of the others are decided at once": (
        {"block_size": 4, "num_blocks": 4},
        ((0, 4, 7), (0, 3, 7), (0, 2, 7), (4, 2, 6)),
        (1, 2, 1, 2),
    ),
    "at 2 the first gives way and the other goes without; at 3 it gets its last, and nothing is left": (
        {"block_size": 2, "num_blocks": 6},
        ((0, 2, 7), (0, 4, 4)),
        (3, 1, 3, 3),
    ),
}
"""Limits; when requests come, prompts and outputs; and of a stretch its step, steps, first decision and telling."""


@pytest.mark.parametrize("name", EMPTIED)
def test_a_stretch_may_begin_with_no_step_under_way(name: str) -> None:
    """Two steps may be under way, but for want of blocks there was none."""
    small, told, due = EMPTIED[name]
    limits = msgspec.structs.replace(LIMITS, max_num_seqs=4, max_num_batched_tokens=32, **small)
    limits = msgspec.structs.replace(limits, async_scheduling=True, policy=SchedulingPolicy.PRIORITY)
    price = LinearCoefficients(base_ps=GRID_NS * 1000, per_token_ps=0, per_request_ps=0, per_context_token_ps=0)
    requests = [
        SlowRequest(
            id=f"r{index}",
            prompt=[(f"u:{index}", 0, prompt_tokens)],
            output_tokens=output_tokens,
            priority=1,
            arrival_ns=time * GRID_NS,
        )
        for index, (time, prompt_tokens, output_tokens) in enumerate(told)
    ]
    records = slow_log(limits, requests, price)
    assert violation(records) is None
    stretches = [it for it in records if isinstance(it, Stretch)]
    assert due in [(it.step, it.steps, it.schedule_ns // GRID_NS, it.time_ns // GRID_NS) for it in stretches]
