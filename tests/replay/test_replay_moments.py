"""What an engine does at the moments around an end, an arrival or a cancellation: small logs worked out by hand."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from replay_examples import arrive, changed, end, header, numbered, stretch, turn, violation

from isim.record.records import (
    Abort,
    AnyRecord,
    GroupKind,
    GroupLimits,
    Reject,
    RejectReason,
    RouterFacts,
    RoutingPolicy,
    SchedulingPolicy,
)
from isim.replay import Replay, Rule

BOTH = RouterFacts(policy=RoutingPolicy.LEAST_OUTSTANDING)


def two_engines() -> AnyRecord:
    return msgspec.structs.replace(header(), engines=2, router=BOTH)


def abreast() -> list[AnyRecord]:
    """A request of 3 tokens that gives 3 on each of two engines; a step takes 10 ns on the first, 7 on the second."""
    return numbered(
        [
            two_engines(),
            arrive(0, 0, 3, 3),
            arrive(0, 1, 3, 3, engine=1),
            turn(0, (1, 0, 7), admitted=((0, 0, 3),), decided=(0, 10, 1, 3, 1, 0)),
            turn(0, (1, 0, 7), admitted=((1, 0, 3),), decided=(0, 7, 1, 3, 1, 0), engine=1),
            turn(7, (1, 0, 7), ended=0, first=(1,), engine=1),
            turn(10, (1, 0, 7), ended=0, first=(0,)),
            msgspec.structs.replace(stretch(21, 1, 2, 7, 7, (1, 3, 1, 6)), engine=1),
            turn(21, (0, 0, 8), ended=2, finished=(1,), engine=1),
            stretch(30, 1, 2, 10, 10, (1, 3, 1, 6)),
            turn(30, (0, 0, 8), ended=2, finished=(0,)),
            end(30, 6, completed=2),
        ]
    )


def given_up() -> list[AnyRecord]:
    """Two engines, steps of 90 ns. Of four requests, two on each, the second is cancelled: 2 and 1 are there.

    So the fifth goes to engine 1, and of 2 and 2 the sixth to engine 0. All the others are cancelled too.
    """
    homes = {0: 0, 1: 1, 2: 0, 3: 1, 4: 1, 5: 0}
    first, second = (
        turn(0, (2, 0, 6), admitted=((it, 0, 3), (it + 2, 0, 3)), decided=(0, 90, 2, 6, 2, 0), engine=it)
        for it in (0, 1)
    )
    return numbered(
        [
            two_engines(),
            *(arrive(0, it, 3, 5, engine=homes[it]) for it in range(4)),
            first,
            second,
            Abort(time_ns=5, request=1, engine=1),
            *(arrive(6, it, 3, 5, engine=homes[it]) for it in (4, 5)),
            *(Abort(time_ns=7, request=it, engine=homes[it]) for it in (0, 2, 5, 3, 4)),
            end(90, 2, completed=0, aborted=6),
        ]
    )


def turned_away() -> list[AnyRecord]:
    """Three prompts beyond 32 tokens, two of them at once."""
    return numbered(
        [
            header(),
            arrive(0, 0, 40, 1),
            arrive(0, 1, 41, 1),
            *(Reject(time_ns=0, request=it, reason=RejectReason.PROMPT_TOO_LONG) for it in (0, 1)),
            arrive(4, 2, 33, 1),
            Reject(time_ns=4, request=2, reason=RejectReason.PROMPT_TOO_LONG),
            end(4, 0, completed=0, rejected=3),
        ]
    )


def _quoted(prompt_tokens: int, hit: int, *, overlapping: bool) -> list[AnyRecord]:
    """A request decodes alone, in steps of 10 ns and blocks of 2; cancelled at 35, quoted by another that comes then.

    The other has all that the first could have computed, and a token of its own: 7. It gives one token.
    """
    quoted = 6 - prompt_tokens
    prompt = [("p", 0, prompt_tokens), ("o:r0", 0, quoted), ("x", 0, 1)]
    held = -(-prompt_tokens // 2)
    told = 5 if overlapping else 4
    first = turn(0, (1, 0, 8 - held), admitted=((0, 0, prompt_tokens),), decided=(0, 10, 1, prompt_tokens, 1, 0))
    decodes = stretch(40, 1, 3, 10, 10, (1, prompt_tokens, 1, 6))
    outputs: list[AnyRecord] = [turn(10, (1, 0, 8 - held), ended=0, first=(0,))]
    if overlapping:
        # step 1 is decided at 0 ns and takes a block for token 3
        outputs = [
            stretch(10, 1, 1, 0, 10, (1, 2, 1, 6)),
            turn(10, (1, 0, 6), ended=0, first=(0,)),
        ]
        decodes = stretch(40, 2, 3, 10, 10, (1, 3, 1, 5))
    end_ns = 60 if overlapping else 50
    computed = 7 - hit
    return numbered(
        [
            header(block_size=2, enable_prefix_caching=True, async_scheduling=overlapping),
            arrive(0, 0, prompt_tokens, 9, prompt=[("p", 0, prompt_tokens)], quotable=True),
            first,
            *outputs,
            Abort(time_ns=35, request=0),
            arrive(36, 1, 7, 1, prompt=prompt),
            decodes,
            turn(40, (1, 0, 4), admitted=((1, hit, computed),), decided=(told, 10, 1, computed, 1, hit)),
            turn(end_ns, (0, 0, 8), ended=told, first=(1,), finished=(1,)),
            end(end_ns, told + 1, completed=1, aborted=1),
        ]
    )


def quoted() -> list[AnyRecord]:
    """Step 3, the last before the cancellation, computes token 4, which step 2 gave: two whole blocks are found."""
    return _quoted(1, 4, overlapping=False)


def quoted_blindly() -> list[AnyRecord]:
    """Step 4, decided at 30 ns, computes token 6 while step 3, which gives it, is under way: its block has no name."""
    return _quoted(2, 4, overlapping=True)


def quoted_alive() -> list[AnyRecord]:
    """As `quoted`, but the first is there still, and has given 4 of its 5 tokens: 2 whole blocks, and one begun."""
    prompt = [("p", 0, 1), ("o:r0", 0, 5), ("x", 0, 1)]
    return numbered(
        [
            header(block_size=2, enable_prefix_caching=True),
            arrive(0, 0, 1, 5, prompt=[("p", 0, 1)], quotable=True),
            turn(0, (1, 0, 7), admitted=((0, 0, 1),), decided=(0, 10, 1, 1, 1, 0)),
            turn(10, (1, 0, 7), ended=0, first=(0,)),
            arrive(36, 1, 7, 1, prompt=prompt),
            stretch(40, 1, 3, 10, 10, (1, 1, 1, 6)),
            turn(40, (2, 0, 3), admitted=((1, 4, 3),), decided=(4, 10, 2, 4, 2, 8)),
            turn(50, (0, 0, 8), ended=4, first=(1,), finished=(0, 1)),
            end(50, 5, completed=2),
        ]
    )


def ranked() -> list[AnyRecord]:
    """One seat, prompts of 3 tokens that give 1, equal priorities: who is served by earliest order, and then by name.

    The third counts as from 0, though it came after the second; the last two came together, and "a" is before "b".
    """
    served = (0, 2, 1, 4, 3)
    turns = [
        turn(
            10 * step,
            (1, 4 - step if step else 0, 7),
            **(
                {"ended": step - 1, "first": served[step - 1 : step], "finished": served[step - 1 : step]}
                if step
                else {}
            ),
            admitted=((served[step], 0, 3),),
            decided=(step, 10, 1, 3, 1, 0),
        )
        for step in range(5)
    ]
    return numbered(
        [
            header(policy=SchedulingPolicy.PRIORITY, max_num_seqs=1),
            arrive(0, 0, 3, 1),
            turns[0],
            arrive(1, 1, 3, 1),
            arrive(2, 2, 3, 1, order_time=0),
            *(msgspec.structs.replace(arrive(3, it, 3, 1), id=name) for it, name in ((3, "b"), (4, "a"))),
            *turns[1:],
            turn(50, (0, 0, 8), ended=4, first=(3,), finished=(3,)),
            end(50, 5, completed=5),
        ]
    )


def cut_short(**limits: Any) -> list[AnyRecord]:
    """30 tokens of at most 32 (8 blocks of 4): of 9 tokens asked for 2 are given."""
    return numbered(
        [
            header(max_num_batched_tokens=30, **limits),
            arrive(0, 0, 30, 9),
            turn(0, (1, 0, 0), admitted=((0, 0, 30),), decided=(0, 10, 1, 30, 1, 0)),
            turn(10, (1, 0, 0), ended=0, first=(0,)),
            stretch(20, 1, 1, 10, 10, (1, 30, 1, 0)),
            turn(20, (0, 0, 8), ended=1, finished=(0,)),
            end(20, 2, completed=1),
        ]
    )


def private() -> list[AnyRecord]:
    """The same where the group is listed and full blocks can be found, though nobody else has this prompt."""
    groups = (GroupLimits(kind=GroupKind.FULL, block_size=4),)
    return cut_short(enable_prefix_caching=True, groups=groups)


LEGAL = {
    it.__name__: it
    for it in (abreast, given_up, turned_away, quoted, quoted_blindly, quoted_alive, ranked, cut_short, private)
}


@pytest.mark.parametrize("name", LEGAL)
def test_worked_by_hand_and_accepted(name: str) -> None:
    error = violation(LEGAL[name]())
    assert error is None, str(error)


def test_no_engine_waits_for_another_to_be_found_out() -> None:
    """What the second engine leaves out is noticed at the first's next record, whatever that is."""
    for place in (4, 5, 8):
        records = abreast()
        error = violation(numbered([*records[:place], *records[place + 1 :]]))
        assert error is not None and (error.rule, error.sequence) == (Rule.CAUSALITY, place), str(error)


def test_each_abort_counts_once_at_the_router() -> None:
    for place, other in ((8, 0), (9, 1)):
        error = violation(changed(given_up(), place, engine=other))
        assert error is not None and (error.rule, error.sequence) == (Rule.ROUTING, place)


def test_a_cut_log_says_who_is_there() -> None:
    replay = Replay()
    replay.read(given_up()[:11])
    summary = replay.finish(truncated=True)
    assert (summary.arrived, summary.aborted, summary.unfinished, summary.steps) == (6, 2, 4, 2)


def test_of_nothing_read_nothing_is_said() -> None:
    summary = Replay().finish(truncated=True)
    assert set(msgspec.structs.astuple(summary)) == {0, None}
