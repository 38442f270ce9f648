"""What a person is told of a broken log: what was expected at its first wrong record, and what was found there.

The logs of `test_replay_rules` in their order, and then those that are wrong in a way that only its words tell from
another, or that no field alone makes wrong.
"""

from __future__ import annotations

import pytest
from replay_examples import (
    aborted,
    across,
    arrive,
    asynchronous,
    changed,
    end,
    header,
    numbered,
    preempting,
    routed,
    stretch,
    synchronous,
    turn,
    violation,
)
from test_replay_moments import two_engines
from test_replay_rules import BROKEN

from isim.record.records import Abort, AnyRecord, Reject, RejectReason
from isim.replay import Rule

WORDS: list[tuple[str, str]] = [
    ("sequence 4", "5"),  # envelope
    ("sequence 0", "1"),  # envelope
    ("a header first and nowhere else", "a record Arrive"),  # envelope
    ("a header first and nowhere else", "a record Header"),  # envelope
    ("a time from 3 ns", "2 ns"),  # envelope
    ("nothing after the end", "a record End"),  # envelope
    ("(rank, engine, request) from (5, 0, 0)", "(2, 0, 0)"),  # envelope
    ("one of 1 engines", "engine 1"),  # envelope
    ("isim/log revision 1", "isim/log revision 2"),  # header
    ("isim/log revision 1", "isim/other revision 1"),  # header
    ("engines from 1", "0"),  # header
    ("an arrival from 1 ns on, sent as long before", "one at 0 ns"),  # arrival
    ("an id of its own", "id 'r0'"),  # arrival
    ("request 1", "request 2"),  # arrival
    ("request 1", "request 2"),  # arrival
    ("prompt_tokens from 1", "0"),  # arrival
    ("output_tokens from 1", "0"),  # arrival
    ("a prompt of 5 tokens", "runs of 4 tokens"),  # arrival
    ("prompt runs that start at 0 or later and have a token", "[('a', -1, 5)]"),  # arrival
    ("quotes of quotable outputs only", "a quote of the output of 'r0'"),  # arrival
    ("request 1 sent to engine 1", "to engine 0"),  # routing
    ("request 2 sent to engine 0", "to engine 1"),  # routing
    ("request 3 sent to engine 1", "to engine 0"),  # routing
    ("a router exactly where there are several engines", "None"),  # header
    ("request 2 rejected: prompt_too_long", "no such record at its arrival"),  # rejection
    ("request 2 of engine 0: prompt_too_long", "request 2 of engine 0: never_fits"),  # rejection
    ("request 2 of engine 0: prompt_too_long", "request 1 of engine 0: prompt_too_long"),  # rejection
    ("a request of engine 0 that is there", "request 0 aborted"),  # lifecycle
    ("a request of engine 0 that is there", "request 1 aborted"),  # lifecycle
    ("first a turn of engine 0 at 0 ns with step 0", "no such record"),  # causality
    ("first a turn of engine 0 at 16 ns with the output of step 1", "no such record"),  # causality
    ("first a turn of engine 0 at 5 ns with the output of step 0", "no such record"),  # causality
    ("decided at 16 ns", "17 ns"),  # causality
    ("step 1", "step 2"),  # step_number
    ("step 2", "step 3"),  # step_number
    ("first (1,)", "first (0,)"),  # outcome
    ("late ((1, 2),)", "late ()"),  # outcome
    ("first (0, 1)", "first (1, 0)"),  # outcome
    ("finished (0, 1)", "finished (0,)"),  # finish
    ("preempted (1,)", "preempted (0,)"),  # preemption
    ("chunks ((0, 2),)", "chunks ((0, 1),)"),  # chunks
    ("skipped (1,)", "skipped ()"),  # skipped
    ("at most 4 tokens", "5 tokens"),  # token_budget
    ("at most 2 running", "3 running"),  # max_num_seqs
    ("admitted ((0, 0, 6),)", "admitted ()"),  # admission
    ("admitted ((0, 0, 5), (1, 4, 2))", "admitted ((1, 0, 6), (0, 0, 2))"),  # admission
    ("admitted ((2, 4, 1),)", "admitted ((2, 2, 3),)"),  # prefix_hit
    ("context 6", "context 7"),  # step_totals
    ("a batch of 2", "1"),  # step_totals
    ("waiting 1", "waiting 0"),  # queues
    ("2 running", "1"),  # queues
    ("free_blocks 2", "free_blocks 1"),  # block_ledger
    ("1 free blocks", "2"),  # block_ledger
    ("8 ns by the linear cost", "9 ns"),  # duration
    ("[4] ns by the linear cost", "[3] ns"),  # duration
    ("0 ns, as no step was decided", "1 ns"),  # duration
    ("a step of 1 ns or more", "0 ns"),  # duration
    ("steps of 1 ns or more", "0 ns"),  # duration
    ("a stretch that ends before step 3: a turn of engine 0 at 15 ns with step 3", "3 steps"),  # stretch
    ("a stretch that ends before step 6: a turn of engine 0 at 30 ns with step 6", "3 steps"),  # stretch
    ("the stretch told at 15 ns", "16 ns"),  # stretch
    ("a stretch from step 1", "a turn at 15 ns"),  # causality
    ("a stretch that goes on to step 2, since a turn told what came before it", "1 steps"),  # stretch
    ("a stretch that goes on to step 2, since a turn told what came before it", "1 steps"),  # stretch
    ("a stretch from step 1 first", "a turn"),  # stretch
    ("a stretch that goes on to step 3, since a turn told what came before it", "1 steps"),  # stretch
    ("a stretch that ends before step 5: nothing is scheduled", "4 steps"),  # stretch
    ("a stretch that ends before step 3: a turn of engine 0 at 30 ns with step 3", "3 steps"),  # stretch
    ("1 running", "2"),  # queues
    ("5 as the fewest free blocks", "None"),  # block_ledger
    ("5 as the fewest free blocks", "4"),  # block_ledger
    ("None as the fewest free blocks", "0"),  # block_ledger
    ("a stretch that ends before step 2: a turn of engine 0 at 10 ns with the output of step 0", "2 steps"),  # stretch
    ("1 duration, as all are equal", "2 durations"),  # stretch_form
    ("1 or 2 durations", "3 durations"),  # stretch_form
    ("at most 2 steps", "3 steps"),  # event_budget
    ("arrived 3", "arrived 4"),  # end
    ("an end at 20 ns, when all is done", "21 ns"),  # end
    ("an end record", "no more records"),  # end
]


def cancelled(*requests: int, engine: int = 0) -> list[AnyRecord]:
    """Two requests of 3 tokens that are cancelled at 5 ns, during their first step, in this order.

    Request 1 is on this engine, which cancels after engine 0 does.
    """
    both = turn(0, (2, 0, 6), admitted=((0, 0, 3), (1, 0, 3)), decided=(0, 10, 2, 6, 2, 0))
    told = [header(), arrive(0, 0, 3, 9), arrive(0, 1, 3, 9), both]
    if engine:
        alone = [turn(0, (1, 0, 7), admitted=((it, 0, 3),), decided=(0, 10, 1, 3, 1, 0), engine=it) for it in (0, 1)]
        told = [two_engines(), arrive(0, 0, 3, 9), arrive(0, 1, 3, 9, engine=1), *alone]
    aborts = [Abort(time_ns=5, request=it, engine=engine if it else 0) for it in requests]
    return numbered([*told, *aborts, end(10, 1 + engine, completed=0, aborted=2)])


def before_end(records: list[AnyRecord], places: int, *told: AnyRecord) -> list[AnyRecord]:
    """So many records of a log, and then others."""
    return numbered([*records[:places], *told])


def dropped(*told: AnyRecord, at_ns: int = 5) -> list[AnyRecord]:
    """A request of 3 tokens that is cancelled while its prompt is computed, from 0 to 10 ns: nobody is left."""
    first = turn(0, (1, 0, 7), admitted=((0, 0, 3),), decided=(0, 10, 1, 3, 1, 0))
    return numbered([header(), arrive(0, 0, 3, 9), first, Abort(time_ns=at_ns, request=0), *told])


def thinned(*told: AnyRecord) -> list[AnyRecord]:
    """Two requests of 3 tokens that give 9, in steps of 10 ns; the second is cancelled at 25 ns, during step 2.

    They have a block each, and a second one from step 2 on, which computes token 5: 4 of 8 are free, then 6.
    """
    both = turn(0, (2, 0, 6), admitted=((0, 0, 3), (1, 0, 3)), decided=(0, 10, 2, 6, 2, 0))
    firsts = turn(10, (2, 0, 6), ended=0, first=(0, 1))
    return numbered(
        [header(), arrive(0, 0, 3, 9), arrive(0, 1, 3, 9), both, firsts, Abort(time_ns=25, request=1), *told]
    )


def told_late(output_tokens: int) -> list[AnyRecord]:
    """As `asynchronous`; what step 2 is known by at 20 ns is told at 30 only, with an arrival in between."""
    late = stretch(30, 2, 1, 10, 10, (1, 4, 1, 6))
    return numbered(
        [header(async_scheduling=True), arrive(0, 0, 3, output_tokens), *asynchronous()[2:5], arrive(25, 1, 3, 1), late]
    )


def end_with(**fields: int) -> list[AnyRecord]:
    return changed(synchronous(), 10, **fields)


IDLE = "nothing until an arrival: the engine is idle"
ONE = stretch(20, 2, 1, 16, 4, (2, 12, 2, 4))
NOBODY = turn(10, (0, 0, 8))
LATE = Reject(time_ns=8, request=0, reason=RejectReason.PROMPT_TOO_LONG)

MORE: list[tuple[Rule, int, list[AnyRecord], str, str]] = [
    (Rule.HEADER, 0, changed(synchronous(), 0, time_ns=1), "a header at 0 ns", "1 ns"),
    (Rule.ENVELOPE, 3, changed(routed(), 3, engine=2), "one of 2 engines", "engine 2"),
    (Rule.ENVELOPE, 3, changed(routed(), 3, engine=-1), "one of 2 engines", "engine -1"),
    (
        Rule.ENVELOPE,
        4,
        numbered([*routed()[:3], *routed()[4:2:-1]]),
        "(rank, engine, request) from (5, 1, 0)",
        "(5, 0, 0)",
    ),
    (Rule.ENVELOPE, 5, cancelled(1, 0), "(rank, engine, request) from (4, 0, 1)", "(4, 0, 0)"),
    (Rule.ENVELOPE, 6, cancelled(1, 0, engine=1), "(rank, engine, request) from (4, 1, 1)", "(4, 0, 0)"),
    (Rule.REJECTION, 6, before_end(synchronous(), 6, LATE), "no rejection", "request 0 of engine 0: prompt_too_long"),
    (
        Rule.REJECTION,
        5,
        before_end(synchronous(), 5, Abort(time_ns=3, request=0)),
        "request 2 rejected: prompt_too_long",
        "no such record at its arrival",
    ),
    (
        Rule.REJECTION,
        5,
        before_end(synchronous(), 5, end(3, 1, completed=0)),
        "request 2 rejected: prompt_too_long",
        "no such record at its arrival",
    ),
    (
        Rule.LIFECYCLE,
        5,
        before_end(routed(), 5, Abort(time_ns=5, request=0, engine=1)),
        "a request of engine 1 that is there",
        "request 0 aborted",
    ),
    (
        Rule.LIFECYCLE,
        10,
        numbered([*synchronous()[:8], Abort(time_ns=20, request=1), *synchronous()[8:]]),
        "a request leaves once",
        "request 1 finished and aborted",
    ),
    (
        Rule.LIFECYCLE,
        10,
        before_end(synchronous(), 10, Abort(time_ns=21, request=1)),
        "a request of engine 0 that is there",
        "request 1 aborted",
    ),
    (Rule.CAUSALITY, 10, before_end(synchronous(), 10, turn(21, (0, 0, 8))), IDLE, "a turn at 21 ns"),
    (
        Rule.CAUSALITY,
        7,
        changed(synchronous(), 7, time_ns=15),
        "a record of engine 0 at 16 ns",
        "a turn at 15 ns",
    ),
    (
        Rule.CAUSALITY,
        8,
        changed(routed(), 8, time_ns=11),
        "first a turn of engine 1 at 10 ns with step 1",
        "no such record",
    ),
    (Rule.CAUSALITY, 4, dropped(NOBODY), "no turn: nothing to tell at 10 ns", "a turn"),
    (
        Rule.CAUSALITY,
        9,
        before_end(routed(), 9, end(21, 4, completed=2)),
        "first a turn of engine 0 at 20 ns with the output of step 1",
        "no such record",
    ),
    (Rule.STRETCH, 10, before_end(synchronous(), 10, ONE), f"no stretch; {IDLE}", "a stretch"),
    (
        Rule.STRETCH,
        3,
        before_end(synchronous(), 3, stretch(4, 1, 1, 3, 1, (1, 6, 1, 6))),
        "no stretch; a record of engine 0 at 8 ns",
        "a stretch",
    ),
    (
        Rule.STRETCH,
        6,
        thinned(stretch(40, 1, 3, 10, 10, (2, 6, 2, 4))),
        "a stretch that ends before step 3: 1 requests are served",
        "3 steps of 2",
    ),
    (Rule.STEP_TOTALS, 8, changed(synchronous(), 8, context=13), "a context of 12 tokens", "13"),
    (Rule.STRETCH_FORM, 8, changed(synchronous(), 8, steps=0), "1 step or more", "0"),
    (Rule.STRETCH_FORM, 8, changed(synchronous(), 8, steps=-1), "1 step or more", "-1"),
    (Rule.BLOCK_LEDGER, 5, changed(preempting(), 5, free_blocks=0), "1 free blocks", "0"),
    (Rule.STRETCH, 5, changed(preempting(), 5, time_ns=14), "the stretch told at 15 ns", "14 ns"),
    (Rule.STRETCH, 7, changed(across(), 7, time_ns=41), "the stretch told at 40 ns", "41 ns"),
    (Rule.STRETCH, 5, changed(asynchronous(), 5, time_ns=21), "the stretch told at 20 ns", "21 ns"),
    (Rule.STRETCH, 6, told_late(3), "the stretch told at 20 ns", "30 ns"),
    (Rule.STRETCH, 6, told_late(5), "the stretch told at 20 ns", "30 ns"),
    (
        Rule.END,
        7,
        before_end(synchronous(), 7, end(15, 2, completed=0)),
        "the engine to go on: a record of engine 0 at 16 ns",
        "an end at 15 ns",
    ),
    (
        Rule.END,
        4,
        before_end(aborted(), 4, end(10, 1, completed=0)),
        "the engine to go on: a stretch from step 1",
        "an end at 10 ns",
    ),
    (Rule.END, 4, dropped(end(7, 1, completed=0, aborted=1)), "an end at 10 ns, when all is done", "7 ns"),
    (Rule.END, 4, dropped(end(11, 1, completed=0, aborted=1)), "an end at 10 ns, when all is done", "11 ns"),
    (Rule.END, 10, end_with(completed=1), "completed 2", "completed 1"),
    (Rule.END, 10, end_with(rejected=2), "rejected 1", "rejected 2"),
    (Rule.END, 10, end_with(aborted=1), "aborted 0", "aborted 1"),
    (Rule.END, 10, end_with(unfinished=1), "unfinished 0", "unfinished 1"),
    (Rule.END, 10, end_with(steps=4), "steps 3", "steps 4"),
    (Rule.EVENT_BUDGET, 6, changed(synchronous(), 0, max_events=1), "at most 1 steps", "2 steps"),
]


@pytest.mark.parametrize(("case", "words"), list(zip(BROKEN, WORDS, strict=True)))
def test_a_broken_log_is_answered_in_these_words(
    case: tuple[Rule, int, list[AnyRecord]], words: tuple[str, str]
) -> None:
    error = violation(case[2])
    assert error is not None and (error.expected, error.found) == words


@pytest.mark.parametrize(("rule", "sequence", "records", "expected", "found"), MORE)
def test_and_so_are_these(rule: Rule, sequence: int, records: list[AnyRecord], expected: str, found: str) -> None:
    error = violation(records)
    assert error is not None
    assert (error.rule, error.sequence, error.expected, error.found) == (rule, sequence, expected, found)


LEGAL: dict[str, list[AnyRecord]] = {
    "dropped": dropped(end(10, 1, completed=0, aborted=1)),
    "both dropped": cancelled(0, 1),
    "both dropped, on an engine each": cancelled(0, 1, engine=1),
    "dropped in the last nanosecond": dropped(end(10, 1, completed=0, aborted=1), at_ns=9),
}


@pytest.mark.parametrize("name", LEGAL)
def test_these_have_nothing_wrong(name: str) -> None:
    assert violation(LEGAL[name]) is None
