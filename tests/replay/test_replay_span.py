"""How long steps take and what a wrong turn is called: step by step, field by field, with the words that are said."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from math import ceil
from random import Random
from typing import Any

import msgspec
import pytest
from replay_examples import LIMITS, stretch, turn

from isim.record.records import LinearCoefficients, Stretch
from isim.replay.compare import compare_turn
from isim.replay.rules import Mismatch, Rule
from isim.replay.span import Span, check_duration, check_durations, linear_ns

COST = LinearCoefficients(base_ps=1500, per_token_ps=700, per_request_ps=310, per_context_token_ps=90)


def by_fractions(tokens: int, requests: int, context: int) -> int:
    """2 ns and a half, and so on; a started nanosecond is a whole one."""
    return ceil(Fraction(1500 + 700 * tokens + 310 * requests + 90 * context, 1000))


def lasting(durations_ns: list[int], steps: int, **more: int) -> Stretch:
    told = stretch(0, 4, steps, 0, 1, (3, 20, 3, 5))
    return msgspec.structs.replace(told, durations_ns=durations_ns, **more)


@pytest.mark.parametrize("seed", range(10))
def test_a_stretch_is_its_steps_one_after_the_other(seed: int) -> None:
    dice = Random(seed)
    steps, start_ns = dice.randint(1, 7), dice.randrange(50)
    each = dice.choice([True, False])
    durations = [dice.randint(1, 6)] * steps if each else [dice.randint(1, 6) for _ in range(steps)]
    span = Span(4, start_ns, lasting(durations[:1] if each else durations, steps))
    starts = [start_ns + sum(durations[:step]) for step in range(steps + 1)]
    assert [span.start_ns(4 + step) for step in range(steps + 1)] == starts
    for time_ns in range(starts[-1] + 1):
        due = next(step for step, at_ns in enumerate(starts) if at_ns >= time_ns)
        assert span.first_start_from(time_ns) == 4 + due, time_ns


def test_the_linear_cost_is_rounded_up() -> None:
    dice = Random(3)
    for _ in range(100):
        tokens, requests, context = (dice.randrange(40) for _ in range(3))
        assert linear_ns(COST, tokens, requests, context) == by_fractions(tokens, requests, context)
    whole = LinearCoefficients(base_ps=1000, per_token_ps=1000, per_request_ps=0, per_context_token_ps=0)
    assert linear_ns(whole, 2, 1, 9) == 3


def test_a_turn_takes_what_its_step_costs() -> None:
    """1.5 ns and 7 times 0.7, 3 times 0.31 and 11 times 0.09 more are 8.32 ns."""
    check_duration(turn(0, (1, 0, 4)), COST)
    check_duration(turn(0, (1, 0, 4), decided=(0, 1, 3, 7, 1, 11)), None)
    check_duration(turn(0, (1, 0, 4), decided=(0, 9, 3, 7, 1, 11)), COST)


def test_a_stretch_takes_what_its_steps_cost() -> None:
    """3 requests at 20 tokens of context, each a token more at every step; the same time when none of it costs."""
    due = [by_fractions(3, 3, 20 + 3 * step) for step in range(4)]
    assert due == [7, 7, 7, 8]
    check_durations(lasting(due, 4), COST)
    check_durations(lasting([7], 3), COST)
    check_durations(lasting([7], 1), COST)
    flat = msgspec.structs.replace(COST, per_context_token_ps=0)
    check_durations(lasting([5], 4), flat)
    check_durations(lasting([5, 6, 1], 3), None)
    check_durations(lasting([1], 9), None)


def said(check: Callable[[], None]) -> tuple[Rule, str, str]:
    with pytest.raises(Mismatch) as raised:
        check()
    rule = raised.value.rule
    assert isinstance(rule, Rule)
    return rule, raised.value.expected, raised.value.found


def test_what_is_said_of_a_turn_that_takes_another_time() -> None:
    idle = msgspec.structs.replace(turn(0, (1, 0, 4)), duration_ns=3)
    assert said(lambda: check_duration(idle, None)) == (Rule.DURATION, "0 ns, as no step was decided", "3 ns")
    none = turn(0, (1, 0, 4), decided=(0, 0, 3, 7, 1, 11))
    assert said(lambda: check_duration(none, None)) == (Rule.DURATION, "a step of 1 ns or more", "0 ns")
    for other_ns in (8, 10):
        other = turn(0, (1, 0, 4), decided=(0, other_ns, 3, 7, 1, 11))
        expected = (Rule.DURATION, "9 ns by the linear cost", f"{other_ns} ns")
        assert said(lambda told=other: check_duration(told, COST)) == expected


FORM, DURATION = Rule.STRETCH_FORM, Rule.DURATION


@pytest.mark.parametrize(
    ("durations", "steps", "rule", "expected", "found"),
    [
        ([7, 8], 4, FORM, "1 or 4 durations", "2 durations"),
        ([], 4, FORM, "1 or 4 durations", "0 durations"),
        ([7, 7], 2, FORM, "1 duration, as all are equal", "2 durations"),
        ([7, 0], 2, DURATION, "steps of 1 ns or more", "0 ns"),
        ([0], 2, DURATION, "steps of 1 ns or more", "0 ns"),
        ([7], 4, DURATION, "[7, 7, 7, 8] ns by the linear cost", "[7] ns"),
        ([7, 7, 8, 8], 4, DURATION, "[7, 7, 7, 8] ns by the linear cost", "[7, 7, 8, 8] ns"),
    ],
)
def test_what_is_said_of_a_stretch_that_takes_another_time(
    durations: list[int], steps: int, rule: Rule, expected: str, found: str
) -> None:
    assert said(lambda: check_durations(lasting(durations, steps), COST)) == (rule, expected, found)


TURN = turn(
    10,
    (2, 1, 4),
    decided=(3, 9, 4, 8, 2, 30),
    ended=2,
    first=(1,),
    late=((2, 0),),
    finished=(5,),
    preempted=(6,),
    chunks=((3, 4),),
    skipped=(4,),
    admitted=((7, 4, 2),),
)


@pytest.mark.parametrize(
    ("rule", "fields"),
    [
        (Rule.OUTCOME, {"ended": 1}),
        (Rule.OUTCOME, {"first": (1, 2)}),
        (Rule.OUTCOME, {"late": ((2, 1),)}),
        (Rule.FINISH, {"finished": ()}),
        (Rule.PREEMPTION, {"preempted": (5,)}),
        (Rule.CHUNKS, {"chunks": ((3, 5),)}),
        (Rule.SKIPPED, {"skipped": ()}),
        (Rule.ADMISSION, {"admitted": ()}),
        (Rule.ADMISSION, {"admitted": ((8, 0, 2),)}),
        (Rule.ADMISSION, {"admitted": ((7, 4, 3),)}),
        (Rule.PREFIX_HIT, {"admitted": ((7, 0, 6),)}),
        (Rule.STEP_NUMBER, {"step": 4}),
        (Rule.STEP_TOTALS, {"scheduled": 5}),
        (Rule.STEP_TOTALS, {"tokens": 7}),
        (Rule.STEP_TOTALS, {"sampled": 1}),
        (Rule.STEP_TOTALS, {"context": 31}),
        (Rule.QUEUES, {"running": 1}),
        (Rule.QUEUES, {"waiting": 0}),
        (Rule.BLOCK_LEDGER, {"free_blocks": 5}),
    ],
)
def test_a_turn_is_named_after_the_first_field_that_differs(rule: Rule, fields: dict[str, Any]) -> None:
    """Budget and seats are full: one token or one request more is the breach of a limit."""
    ((field, value),) = fields.items()
    told = msgspec.structs.replace(TURN, seq=8, duration_ns=5, **fields)
    due = f"{field} {getattr(TURN, field)}"
    expected = msgspec.structs.replace(TURN, duration_ns=0)
    assert said(lambda: compare_turn(expected, told, LIMITS)) == (rule, due, f"{field} {value}")


def test_a_turn_beyond_the_limits_is_named_after_them() -> None:
    def compare(**fields: Any) -> None:
        compare_turn(msgspec.structs.replace(TURN), msgspec.structs.replace(TURN, **fields), LIMITS)

    compare(seq=5, duration_ns=1)
    assert said(lambda: compare(tokens=9, first=())) == (Rule.TOKEN_BUDGET, "at most 8 tokens", "9 tokens")
    assert said(lambda: compare(running=3, first=())) == (Rule.MAX_NUM_SEQS, "at most 2 running", "3 running")
