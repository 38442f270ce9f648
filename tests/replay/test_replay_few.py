"""A few logs of the slow engine, accepted as they are and rejected with a field spoilt: most faults in a second.

The many are in test_replay_groups.py and test_replay_schedules.py; `make mutants` runs these for every mutant.
"""

from __future__ import annotations

import random
from collections import Counter
from functools import cache

import pytest
from replay_examples import changed, violation
from slow_engine import EndlessRun
from slow_log import slow_log
from test_replay_groups import TELLINGS
from test_replay_schedules import spoilt
from workload_fuzz import GRID_NS, crowded_case, quoting_case, random_case, random_groups_case

from isim.record.records import Abort, AnyRecord, Turn

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
