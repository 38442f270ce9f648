"""For each rule a log that breaks it, rejected at the first wrong record; for each field a value that is noticed."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from group_examples import GROUP_EXAMPLES
from log_mutations import could_be_read, kind_of, others
from replay_examples import (
    EXAMPLES,
    aborted,
    across,
    asynchronous,
    changed,
    chunked,
    joining,
    numbered,
    preempting,
    routed,
    sharing,
    skipping,
    synchronous,
    violation,
)
from waiting_examples import WAITING_EXAMPLES, past_an_admission

from isim.record.digest import log_digest
from isim.record.records import KINDS, AnyRecord, Arrive, End, Header, RejectReason, Turn
from isim.replay import FREE_FIELDS, RULES, Replay, ReplayViolation, Rule

ALL_EXAMPLES = {**EXAMPLES, **GROUP_EXAMPLES, **WAITING_EXAMPLES}


def _without(records: list[AnyRecord], place: int) -> list[AnyRecord]:
    return numbered([*records[:place], *records[place + 1 :]])


def _max_events(events: int) -> list[AnyRecord]:
    return changed(synchronous(), 0, max_events=events)


def _too_many_running() -> list[AnyRecord]:
    """At 20 ns a third request takes a seat that is not there."""
    return changed(chunked(), 6, running=3, waiting=0)


def _late_arrival() -> list[AnyRecord]:
    """The turn at 20 ns comes before the arrival at 20 ns."""
    records = changed(chunked(), 6, waiting=0)
    return numbered([*records[:5], records[6], records[5], *records[7:]])


def _whole() -> list[AnyRecord]:
    """Steps 1 and 2 told as one stretch, and the first token, which comes between their decisions, before it."""
    records = asynchronous()
    whole = msgspec.structs.replace(records[5], step=1, steps=2, schedule_ns=0, context=3)
    return numbered([*records[:3], records[4], whole, *records[6:]])


def _swapped(records: list[AnyRecord], place: int) -> list[AnyRecord]:
    return numbered([*records[:place], records[place + 1], records[place], *records[place + 2 :]])


BROKEN: list[tuple[Rule, int, list[AnyRecord]]] = [
    (Rule.ENVELOPE, 4, changed(synchronous(), 4, seq=5)),
    (Rule.ENVELOPE, 0, synchronous()[1:]),
    (Rule.ENVELOPE, 0, _without(synchronous(), 0)),
    (Rule.ENVELOPE, 3, numbered([*synchronous()[:3], synchronous()[0], *synchronous()[3:]])),
    (Rule.ENVELOPE, 6, changed(synchronous(), 6, time_ns=2)),
    (Rule.ENVELOPE, 11, numbered([*synchronous(), synchronous()[-1]])),
    (Rule.ENVELOPE, 6, _late_arrival()),
    (Rule.ENVELOPE, 2, changed(synchronous(), 2, engine=1)),
    (Rule.HEADER, 0, changed(synchronous(), 0, revision=2)),
    (Rule.HEADER, 0, changed(synchronous(), 0, schema="isim/other")),
    (Rule.HEADER, 0, changed(synchronous(), 0, engines=0)),
    (Rule.ARRIVAL, 1, changed(synchronous(), 0, request_overhead_ns=1)),
    (Rule.ARRIVAL, 3, changed(synchronous(), 3, id="r0")),
    (Rule.ARRIVAL, 3, changed(synchronous(), 3, request=2)),
    (Rule.ARRIVAL, 3, numbered([*synchronous()[:3], synchronous()[4], synchronous()[3], *synchronous()[5:]])),
    (Rule.ARRIVAL, 3, changed(synchronous(), 3, prompt_tokens=0)),
    (Rule.ARRIVAL, 3, changed(synchronous(), 3, output_tokens=0)),
    (Rule.ARRIVAL, 3, changed(synchronous(), 3, prompt=[("a", 0, 4)])),
    (Rule.ARRIVAL, 3, changed(synchronous(), 3, prompt=[("a", -1, 5)])),
    (Rule.ARRIVAL, 3, changed(synchronous(), 3, prompt=[("o:r0", 0, 5)])),
    (Rule.ROUTING, 2, changed(routed(), 2, engine=0)),
    (Rule.ROUTING, 5, changed(routed(), 5, engine=1)),
    (Rule.ROUTING, 6, changed(routed(), 6, engine=0)),
    (Rule.HEADER, 0, changed(routed(), 0, router=None)),
    (Rule.REJECTION, 5, _without(synchronous(), 5)),
    (Rule.REJECTION, 5, changed(synchronous(), 5, reason=RejectReason.NEVER_FITS)),
    (Rule.REJECTION, 5, changed(synchronous(), 5, request=1)),
    (Rule.LIFECYCLE, 5, numbered([*aborted()[:5], aborted()[4], *aborted()[5:]])),
    (Rule.LIFECYCLE, 4, changed(aborted(), 4, request=1)),
    (Rule.CAUSALITY, 2, changed(synchronous(), 2, time_ns=1)),
    (Rule.CAUSALITY, 7, _without(synchronous(), 7)),
    (Rule.CAUSALITY, 4, _without(preempting(), 4)),
    (Rule.CAUSALITY, 8, changed(synchronous(), 8, schedule_ns=17)),
    (Rule.STEP_NUMBER, 6, changed(synchronous(), 6, step=2)),
    (Rule.STEP_NUMBER, 8, changed(synchronous(), 8, step=3)),
    (Rule.OUTCOME, 7, changed(synchronous(), 7, first=(0,))),
    (Rule.OUTCOME, 9, changed(preempting(), 9, late=())),
    (
        Rule.OUTCOME,
        4,
        changed(
            preempting(),
            4,
            first=(
                1,
                0,
            ),
        ),
    ),
    (Rule.FINISH, 9, changed(synchronous(), 9, finished=(0,))),
    (Rule.PREEMPTION, 6, changed(preempting(), 6, preempted=(0,))),
    (Rule.CHUNKS, 4, changed(chunked(), 4, chunks=((0, 1),))),
    (Rule.SKIPPED, 7, changed(skipping(), 7, skipped=())),
    (Rule.TOKEN_BUDGET, 4, changed(chunked(), 4, admitted=((1, 0, 3),), tokens=5)),
    (Rule.MAX_NUM_SEQS, 6, _too_many_running()),
    (Rule.ADMISSION, 2, changed(synchronous(), 2, admitted=(), step=None)),
    (
        Rule.ADMISSION,
        3,
        changed(
            sharing(),
            3,
            admitted=(
                (1, 0, 6),
                (0, 0, 2),
            ),
        ),
    ),
    (Rule.PREFIX_HIT, 5, changed(sharing(), 5, admitted=((2, 2, 3),))),
    (Rule.STEP_TOTALS, 6, changed(synchronous(), 6, context=7)),
    (Rule.STEP_TOTALS, 8, changed(synchronous(), 8, batch=1)),
    (Rule.QUEUES, 6, changed(preempting(), 6, waiting=0)),
    (Rule.QUEUES, 8, changed(synchronous(), 8, running=1)),
    (Rule.BLOCK_LEDGER, 6, changed(preempting(), 6, free_blocks=1)),
    (Rule.BLOCK_LEDGER, 5, changed(preempting(), 5, free_blocks=2)),
    (Rule.DURATION, 6, changed(synchronous(), 6, duration_ns=9)),
    (Rule.DURATION, 8, changed(synchronous(), 8, durations_ns=[3])),
    (Rule.DURATION, 7, changed(synchronous(), 7, duration_ns=1)),
    (Rule.DURATION, 3, changed(preempting(), 3, duration_ns=0)),
    (Rule.DURATION, 5, changed(preempting(), 5, durations_ns=[0])),
    (Rule.STRETCH, 5, changed(preempting(), 5, steps=3, time_ns=20)),
    (Rule.STRETCH, 7, changed(preempting(), 7, steps=3, time_ns=35)),
    (Rule.STRETCH, 5, changed(preempting(), 5, time_ns=16)),
    (Rule.CAUSALITY, 5, _without(preempting(), 5)),
    (Rule.STRETCH, 4, _swapped(asynchronous(), 3)),
    (Rule.STRETCH, 4, changed(_whole(), 4, steps=1, time_ns=10)),
    (Rule.STRETCH, 4, _swapped(joining(), 4)),
    (Rule.STRETCH, 7, changed(across(), 7, steps=1, time_ns=20, free_blocks=5, least_free_blocks=None)),
    (Rule.STRETCH, 7, changed(across(), 7, steps=4, time_ns=50)),
    (Rule.STRETCH, 5, past_an_admission()),
    (Rule.QUEUES, 7, changed(across(), 7, running=2)),
    (Rule.BLOCK_LEDGER, 7, changed(across(), 7, least_free_blocks=None)),
    (Rule.BLOCK_LEDGER, 7, changed(across(), 7, least_free_blocks=4)),
    (Rule.BLOCK_LEDGER, 5, changed(preempting(), 5, least_free_blocks=0)),
    (Rule.STRETCH, 3, changed(asynchronous(), 3, steps=2, time_ns=20)),
    (Rule.STRETCH_FORM, 5, changed(preempting(), 5, durations_ns=[5, 5])),
    (Rule.STRETCH_FORM, 5, changed(preempting(), 5, durations_ns=[5, 6, 5])),
    (Rule.EVENT_BUDGET, 8, _max_events(2)),
    (Rule.END, 10, changed(synchronous(), 10, completed=3, arrived=4)),
    (Rule.END, 10, changed(synchronous(), 10, time_ns=21)),
    (Rule.END, 10, synchronous()[:10]),
]


@pytest.mark.parametrize(("rule", "sequence", "records"), BROKEN)
def test_broken_log_is_rejected_at_its_first_wrong_record(rule: Rule, sequence: int, records: list[AnyRecord]) -> None:
    error = violation(records)
    assert error is not None
    assert (error.rule, error.sequence) == (rule, sequence), str(error)
    assert error.exit_code == 3
    assert error.expected != error.found


def test_every_rule_has_a_meaning_and_a_log_that_breaks_it() -> None:
    assert list(RULES) == list(Rule)
    assert {rule for rule, _, _ in BROKEN} == set(Rule)


@pytest.mark.parametrize("name", ALL_EXAMPLES)
def test_hand_worked_log_is_accepted(name: str) -> None:
    records = ALL_EXAMPLES[name]()
    replay = Replay()
    for record in records:
        replay.read([record])
    summary = replay.finish()
    last = records[-1]
    assert isinstance(last, End)
    assert (summary.records, summary.steps, summary.arrived) == (len(records), last.steps, last.arrived)
    assert (summary.completed, summary.rejected, summary.aborted) == (last.completed, last.rejected, last.aborted)
    assert summary.preemptions == sum(len(record.preempted) for record in records if isinstance(record, Turn))


def test_a_stretch_may_be_cut_at_an_output_or_go_on_across_it() -> None:
    assert violation(asynchronous()) is None
    assert violation(_whole()) is None
    assert log_digest(asynchronous()) == log_digest(_whole())


def test_a_violation_survives_being_raised_again_from_its_arguments() -> None:
    error = violation(BROKEN[0][2])
    assert error is not None
    again = type(error)(*error.args)
    assert str(again) == str(error)
    assert "expected sequence 4, found 5" in str(error)


def test_a_log_without_its_end_is_fine_only_when_cut() -> None:
    replay = Replay()
    replay.read(synchronous()[:7])
    assert replay.finish(truncated=True).arrived == 3
    with pytest.raises(ReplayViolation, match="end record"):
        replay.finish()


GIVEN = {("turn", "duration_ns"), ("stretch", "durations_ns")}
"""Facts the log states: a wrong one is noticed where it collides with what follows from it, not before."""


@pytest.mark.parametrize("name", ALL_EXAMPLES)
def test_every_field_of_every_record_is_checked(name: str) -> None:
    records = ALL_EXAMPLES[name]()
    for place, record in enumerate(records):
        for field in record.__struct_fields__:
            key = (kind_of(record), field)
            if key in FREE_FIELDS:
                continue
            for value in others(getattr(record, field)):
                if not could_be_read(record, field, value):
                    continue
                error = violation(changed(records, place, **{field: value}))
                assert error is not None, (place, field, value)
                assert error.sequence == place or (key in GIVEN and error.sequence > place), (place, field, str(error))


def test_the_examples_hold_every_kind_and_the_free_fields_exist() -> None:
    kinds = {type(record) for make in ALL_EXAMPLES.values() for record in make()}
    assert kinds == set(KINDS)
    fields = {(kind_of(kind), field) for kind in KINDS for field in kind.__struct_fields__}
    assert set(FREE_FIELDS) <= fields
    assert all(reason for reason in FREE_FIELDS.values())


@pytest.mark.parametrize("name", ALL_EXAMPLES)
def test_no_record_can_be_lost_or_told_twice(name: str) -> None:
    records = ALL_EXAMPLES[name]()
    for place in range(len(records)):
        lost = violation(_without(records, place))
        assert lost is not None and lost.sequence >= min(place, 1) - 1, place
        twice = violation(numbered([*records[: place + 1], *records[place:]]))
        assert twice is not None and twice.sequence == place + 1, (place, str(twice))


@pytest.mark.parametrize("name", ALL_EXAMPLES)
def test_neighbours_cannot_change_places(name: str) -> None:
    records = ALL_EXAMPLES[name]()
    for place in range(len(records) - 1):
        swapped = numbered([*records[:place], records[place + 1], records[place], *records[place + 2 :]])
        assert violation(swapped) is not None, place


def test_an_input_that_may_be_anything_still_has_its_consequences() -> None:
    records = sharing()
    assert isinstance(records[2], Arrive)
    other = changed(records, 2, prompt=[("q", 0, 4), ("x", 0, 2)])
    error = violation(other)
    assert error is not None and (error.rule, error.sequence) == (Rule.PREFIX_HIT, 3)
    error = violation(changed(synchronous(), 3, prompt_tokens=6))
    assert error is not None and (error.rule, error.sequence) == (Rule.ADMISSION, 6)
    error = violation(changed(synchronous(), 3, output_tokens=3))
    assert error is not None and (error.rule, error.sequence) == (Rule.FINISH, 9)
    error = violation(changed(skipping(), 3, priority=2))
    assert error is not None and (error.rule, error.sequence) == (Rule.PREEMPTION, 7)
    quoting = changed(records, 2, prompt=[("o:r0", 0, 1), ("x", 0, 5)])
    error = violation(quoting)
    assert error is not None and error.rule is Rule.ARRIVAL
    error = violation(
        changed(
            changed(quoting, 1, quotable=True),
            3,
            admitted=(
                (0, 0, 5),
                (1, 0, 3),
            ),
            tokens=8,
        )
    )
    assert error is not None and error.rule is not Rule.ARRIVAL


def test_a_fact_of_the_header_decides() -> None:
    """Every limit that binds in an example is followed: with another value the log is no longer legal."""
    cases: list[tuple[list[AnyRecord], dict[str, Any]]] = [
        (synchronous(), {"max_num_seqs": 1}),
        (synchronous(), {"max_num_batched_tokens": 5}),
        (synchronous(), {"block_size": 2}),
        (synchronous(), {"num_blocks": 10}),
        (synchronous(), {"max_model_len": 41}),
        (synchronous(), {"long_prefill_token_threshold": 3}),
        (synchronous(), {"async_scheduling": True}),
        (asynchronous(), {"async_scheduling": False}),
        (sharing(), {"enable_prefix_caching": False}),
        (chunked(), {"enable_chunked_prefill": False}),
        (skipping(), {"policy": "fcfs"}),
        (skipping(), {"version": "0.33"}),
    ]
    for records, limits in cases:
        header = records[0]
        assert isinstance(header, Header)
        engine = msgspec.convert({**msgspec.to_builtins(header.engine), **limits}, type(header.engine))
        assert violation(changed(records, 0, engine=engine)) is not None, limits
