"""Several KV groups: logs that break a rule where groups matter, and random dense-tie workloads with groups."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import msgspec
import pytest
from group_examples import GROUP_EXAMPLES, giving_way, group, stateful, trailing, windowed
from replay_examples import arrive, changed, end, header, numbered, violation
from slow_engine import EndlessRun
from slow_log import slow_log
from test_replay_schedules import spoilt
from waiting_examples import past_an_admission
from workload_fuzz import Case, random_groups_case

from isim.record.records import (
    AnyRecord,
    EngineVersion,
    GroupKind,
    GroupLimits,
    Header,
    Reject,
    RejectReason,
    Stretch,
    Turn,
)
from isim.replay import Rule

FULL, SLIDING, STATE, ALIGNED = GroupKind.FULL, GroupKind.SLIDING, GroupKind.STATE, GroupKind.ALIGNED_STATE
SEEDS = range(200)


def limited(records: Sequence[AnyRecord], **limits: Any) -> list[AnyRecord]:
    """The log under other limits."""
    first = records[0]
    assert isinstance(first, Header)
    return changed(records, 0, engine=msgspec.structs.replace(first.engine, **limits))


def grouped(records: Sequence[AnyRecord], *groups: GroupLimits) -> list[AnyRecord]:
    return limited(records, groups=groups)


BROKEN: list[tuple[Rule, int, list[AnyRecord]]] = [
    (Rule.HEADER, 0, grouped(windowed(), group(FULL, 0))),
    (Rule.HEADER, 0, grouped(windowed(), group(FULL, 2), group(SLIDING, 2))),
    (Rule.HEADER, 0, grouped(windowed(), group(FULL, 2, 3))),
    (Rule.HEADER, 0, grouped(windowed(), group(FULL, 2), group(STATE, 31))),
    (Rule.HEADER, 0, grouped(stateful(), group(FULL, 4), group(STATE, 32))),
    (Rule.HEADER, 0, grouped(stateful(), group(FULL, 4), group(ALIGNED, 8))),
    (Rule.REJECTION, 4, numbered([*windowed()[:4], *windowed()[5:]])),
    # a block that a window left behind is still held; one is given back too early; the free blocks of one group only
    (Rule.BLOCK_LEDGER, 5, changed(windowed(), 5, free_blocks=5)),
    (Rule.BLOCK_LEDGER, 6, changed(windowed(), 6, free_blocks=1)),
    (Rule.BLOCK_LEDGER, 3, changed(trailing(), 3, free_blocks=3)),
    (Rule.BLOCK_LEDGER, 2, changed(windowed(), 2, free_blocks=6)),
    # a hit that full attention alone has; a shorter one than all have; one of a state named in the same decision
    (Rule.PREFIX_HIT, 7, changed(stateful(), 7, admitted=((2, 9, 1),))),
    (Rule.PREFIX_HIT, 7, changed(stateful(), 7, admitted=((2, 4, 6),))),
    (Rule.ADMISSION, 3, changed(stateful(), 3, admitted=((0, 0, 8), (1, 8, 2)))),
    # a first chunk that does not end where a state is kept, and the rest of it
    (Rule.ADMISSION, 3, changed(stateful(), 3, admitted=((0, 0, 10),))),
    (Rule.CHUNKS, 4, changed(stateful(), 4, chunks=((0, 1),))),
    (Rule.CHUNKS, 4, changed(stateful(), 4, chunks=())),
    # another victim, and none: with one group there would be blocks enough
    (Rule.PREEMPTION, 4, changed(giving_way(), 4, preempted=(0,))),
    (Rule.PREEMPTION, 4, changed(giving_way(), 4, preempted=())),
    # admitted while it lacks blocks in the second group
    (
        Rule.CAUSALITY,
        5,
        numbered([*giving_way()[:5], msgspec.structs.replace(giving_way()[6], time_ns=20, ended=None)]),
    ),
    (Rule.STRETCH, 6, changed(windowed(), 6, steps=4)),
    (Rule.STRETCH, 5, changed(giving_way(), 5, steps=2, time_ns=40)),
    (Rule.STRETCH, 5, grouped(past_an_admission(), group(FULL, 4))),
    (Rule.QUEUES, 4, changed(giving_way(), 4, waiting=0)),
]


@pytest.mark.parametrize(("rule", "sequence", "records"), BROKEN)
def test_broken_log_is_rejected_at_its_first_wrong_record(rule: Rule, sequence: int, records: list[AnyRecord]) -> None:
    error = violation(records)
    assert error is not None
    assert (error.rule, error.sequence) == (rule, sequence), str(error)


NEW_ASYNC = {"version": EngineVersion.V033, "async_scheduling": True}


@pytest.mark.parametrize(
    ("other", "limits", "blocks"),
    [
        (group(SLIDING, 2, 3), {}, 6),  # a window of 2 tokens and a budget of 8, which may begin within a block
        (group(SLIDING, 2, 3), NEW_ASYNC, 10),  # the budget twice, and no more than all
        (group(SLIDING, 4, 3), NEW_ASYNC, 5),
        (group(ALIGNED, 2), {}, 2),
        (group(ALIGNED, 2), {"version": EngineVersion.V033}, 2),
        (group(ALIGNED, 2), NEW_ASYNC, 3),
        (group(STATE, 32), {}, 1),
    ],
)
def test_a_request_is_refused_when_its_groups_may_need_more_than_there_is(
    other: GroupLimits, limits: dict[str, Any], blocks: int
) -> None:
    """20 tokens are 10 blocks of full attention, and so many of the other group."""
    for usable, refused in ((10 + blocks - 1, True), (10 + blocks, False)):
        log = numbered(
            [
                header(num_blocks=usable + 1, block_size=2, groups=(group(FULL, 2), other), **limits),
                arrive(0, 0, 20, 1),
                Reject(time_ns=0, request=0, reason=RejectReason.NEVER_FITS),
                end(0, 0, completed=0, rejected=1),
            ]
        )
        error = violation(log)
        assert (error is None) == refused
        assert error is None or (error.rule, error.sequence) == (Rule.REJECTION, 2)


def test_what_a_group_keeps_decides() -> None:
    """With other groups none of the logs is legal."""
    others = [
        (windowed(), (group(FULL, 2), group(SLIDING, 2, 9))),
        (windowed(), (group(FULL, 2), group(SLIDING, 2, 1))),
        (windowed(), (group(FULL, 2), group(SLIDING, 4, 3))),
        (windowed(), (group(FULL, 2), group(FULL, 2))),
        (windowed(), (group(SLIDING, 2, 3),)),
        (stateful(), (group(FULL, 4), group(ALIGNED, 4), group(ALIGNED, 4))),
        (stateful(), (group(FULL, 4), group(SLIDING, 4, 9))),
        (stateful(), (group(FULL, 4),)),
        (giving_way(), (group(FULL, 2), group(STATE, 32))),
    ]
    for records, groups in others:
        assert violation(grouped(records, *groups)) is not None, groups
    assert violation(limited(trailing(), version=EngineVersion.V021)) is not None
    assert violation(limited(trailing(), async_scheduling=False)) is not None


def told(seeds: Sequence[int], **how: int) -> Iterator[tuple[int, Case, list[AnyRecord]]]:
    """The random cases that come to an end, as logs of the slow engine."""
    for seed in seeds:
        case = random_groups_case(seed)
        try:
            yield seed, case, slow_log(*case, **how)
        except EndlessRun:
            continue


TELLINGS: tuple[dict[str, int], ...] = ({}, {"max_stretch": 1}, {"across": True})


def goes_across(before: AnyRecord, record: AnyRecord) -> bool:
    """Whether a stretch goes on across the output that was told before it."""
    return isinstance(before, Turn) and isinstance(record, Stretch) and before.ended == record.step - 1


def judged(seeds: Sequence[int]) -> Counter[str]:
    """Accept the slow engine's logs, told in stretches, step by step, and across outputs; what there was in them."""
    seen: Counter[str] = Counter()
    for how in TELLINGS:
        for seed, (limits, _, _), records in told(seeds, **how):
            error = violation(records)
            assert error is None, (seed, str(error), limits)
            turns = [record for record in records if isinstance(record, Turn)]
            seen["logs"] += 1
            seen["across"] += sum(goes_across(*pair) for pair in pairwise(records))
            seen["fewer"] += sum(r.least_free_blocks is not None for r in records if isinstance(r, Stretch))
            seen[limits.version] += 1
            seen["asynchronous"] += limits.async_scheduling
            seen["lengths"] += len({each.block_size for each in limits.groups}) > 1
            seen["preemptions"] += sum(len(turn.preempted) for turn in turns)
            seen["hits"] += sum(hit for turn in turns for _, hit, _ in turn.admitted)
            for kind in dict.fromkeys(each.kind for each in limits.groups):
                seen[kind] += 1
    return seen


def test_random_logs_are_legal() -> None:
    seen = judged(SEEDS)
    assert seen["logs"] > 0.95 * len(TELLINGS) * len(SEEDS)
    assert seen["across"] > 200 and seen["fewer"] > 200, seen
    assert seen["preemptions"] > 500 and seen["hits"] > 5000, seen
    assert min(seen[kind] for kind in [*GroupKind, *EngineVersion, "asynchronous", "lengths"]) > 50, seen


def test_the_free_queue_may_be_made_anew_at_any_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its stale places are dropped at every return of blocks, instead of when they are too many."""
    monkeypatch.setattr("isim.replay.pool._LEAST_KEPT", -(1 << 60))
    assert judged(range(200, 240))["hits"] > 500


@pytest.mark.slow
@pytest.mark.parametrize("batch", range(1, 9))
def test_many_more_random_logs_are_legal(batch: int) -> None:
    judged(range(batch * 1000, (batch + 1) * 1000))


def test_a_spoilt_random_log_is_rejected_where_it_is() -> None:
    dice = random.Random(2026)
    rules: Counter[Rule] = Counter()
    for seed, _, records in told(SEEDS):
        for _ in range(2):
            place = dice.randrange(1, len(records))
            fields = spoilt(dice, records[place])
            error = violation(changed(records, place, **fields))
            assert error is not None, (seed, records[place], fields)
            assert error.sequence == place, (seed, records[place], fields, str(error))
            rules[error.rule] += 1
    assert len(rules) > 10, rules


@pytest.mark.parametrize("name", GROUP_EXAMPLES)
def test_a_step_left_out_of_a_stretch_is_noticed(name: str) -> None:
    for place, record in enumerate(records := GROUP_EXAMPLES[name]()):
        if isinstance(record, Stretch) and record.steps > 1:
            assert violation(changed(records, place, steps=record.steps - 1)) is not None
