"""What a replay costs: steps of a stretch that cannot differ are taken in one go, and who is gone is forgotten.

Each log is worked out by hand with the number of steps left open. A decision is asked for at each turn, at the first
step of a stretch, where the batch changes, and when nothing is left to do; all the steps between are one.
"""

from __future__ import annotations

import gc
from collections.abc import Callable

import msgspec
import pytest
from replay_examples import arrive, end, header, numbered, stretch, turn, violation

from isim.record.records import Abort, AnyRecord, GroupKind, GroupLimits, SchedulingPolicy
from isim.replay import Replay, engine
from isim.replay.member import Member

ROOM = {"block_size": 1 << 20, "max_model_len": 1 << 19}
"""All that a request ever has fits in one block."""


def alone(steps: int) -> list[AnyRecord]:
    """0 ns: a prompt of 3 tokens. 10 ns: the first token, then the decodes, each 10 ns. Decisions: at 0, 10, the end.

    The decodes after the first are one more that is not asked for.
    """
    done_ns = 10 + 10 * steps
    return numbered(
        [
            header(**ROOM),
            arrive(0, 0, 3, steps + 1),
            turn(0, (1, 0, 7), admitted=((0, 0, 3),), decided=(0, 10, 1, 3, 1, 0)),
            turn(10, (1, 0, 7), ended=0, first=(0,)),
            stretch(done_ns, 1, steps, 10, 10, (1, 3, 1, 7)),
            turn(done_ns, (0, 0, 8), ended=steps, finished=(0,)),
            end(done_ns, steps + 1, completed=1),
        ]
    )


def overlapping(steps: int) -> list[AnyRecord]:
    """The same with two steps under way: asked at 0 ns twice, at 10, when none is left to decide, and at the end."""
    done_ns = 10 + 10 * steps
    return numbered(
        [
            header(**ROOM, async_scheduling=True),
            arrive(0, 0, 3, steps + 1),
            turn(0, (1, 0, 7), admitted=((0, 0, 3),), decided=(0, 10, 1, 3, 1, 0)),
            stretch(10, 1, 1, 0, 10, (1, 3, 1, 7)),
            turn(10, (1, 0, 7), ended=0, first=(0,)),
            stretch(done_ns - 10, 2, steps - 1, 10, 10, (1, 4, 1, 7)),
            turn(done_ns, (0, 0, 8), ended=steps, finished=(0,)),
            end(done_ns, steps + 1, completed=1),
        ]
    )


def waiting(steps: int, **limits: object) -> list[AnyRecord]:
    """The seat, or the budget, or the block is taken: the second request waits from 5 ns on, a third from 45.

    Asked at 0 ns and 10, at the end of the first, of the second and of the third.
    """
    done_ns = 10 + 10 * steps
    first, second = done_ns + 10, done_ns + 20
    blocks = 1 if "num_blocks" in limits else 8
    free = blocks - 1
    policy = limits.get("policy", SchedulingPolicy.FCFS)
    late = 45 if policy is SchedulingPolicy.FCFS or "max_num_seqs" in limits else 5
    return numbered(
        [
            header(**{**ROOM, **limits}),
            arrive(0, 0, 3, steps + 1),
            turn(0, (1, 0, free), admitted=((0, 0, 3),), decided=(0, 10, 1, 3, 1, 0)),
            arrive(5, 1, 3, 1),
            *([arrive(5, 2, 3, 1)] if late == 5 else []),
            turn(10, (1, 1 + (late == 5), free), ended=0, first=(0,)),
            *([arrive(45, 2, 3, 1)] if late == 45 else []),
            stretch(done_ns, 1, steps, 10, 10, (1, 3, 1, free)),
            turn(
                done_ns,
                (1, 1, free),
                ended=steps,
                finished=(0,),
                admitted=((1, 0, 3),),
                decided=(steps + 1, 10, 1, 3, 1, 0),
            ),
            turn(
                first,
                (1, 0, free),
                ended=steps + 1,
                first=(1,),
                finished=(1,),
                admitted=((2, 0, 3),),
                decided=(steps + 2, 10, 1, 3, 1, 0),
            ),
            turn(second, (0, 0, blocks), ended=steps + 2, first=(2,), finished=(2,)),
            end(second, steps + 3, completed=3),
        ]
    )


def no_seat(steps: int) -> list[AnyRecord]:
    return waiting(steps, max_num_seqs=1)


def no_seat_by_priority(steps: int) -> list[AnyRecord]:
    return waiting(steps, max_num_seqs=1, policy=SchedulingPolicy.PRIORITY)


def no_block(steps: int) -> list[AnyRecord]:
    """There are seats, but whoever waits waits behind a head that does not fit, and goes on not to."""
    return waiting(steps, num_blocks=2)


def no_block_by_priority(steps: int) -> list[AnyRecord]:
    return waiting(steps, num_blocks=2, policy=SchedulingPolicy.PRIORITY)


def no_budget(steps: int) -> list[AnyRecord]:
    """The one decode is all the budget; the second request comes at 45 ns. Asked at 0 ns, at 10 and at either end."""
    done_ns = 10 + 10 * steps
    last_ns = done_ns + 10
    second = (steps + 1, 10, 1, 1, 1, 0)
    return numbered(
        [
            header(**ROOM, max_num_batched_tokens=1),
            arrive(0, 0, 1, steps + 1),
            turn(0, (1, 0, 7), admitted=((0, 0, 1),), decided=(0, 10, 1, 1, 1, 0)),
            turn(10, (1, 0, 7), ended=0, first=(0,)),
            arrive(45, 1, 1, 1),
            stretch(done_ns, 1, steps, 10, 10, (1, 1, 1, 7)),
            turn(done_ns, (1, 0, 7), ended=steps, finished=(0,), admitted=((1, 0, 1),), decided=second),
            turn(last_ns, (0, 0, 8), ended=steps + 1, first=(1,), finished=(1,)),
            end(last_ns, steps + 2, completed=2),
        ]
    )


def no_seat_in_tables(steps: int) -> list[AnyRecord]:
    """Where a head that does not fit is asked again at each step: blocks that a window passes may let it in."""
    return waiting(steps, max_num_seqs=1, groups=(GroupLimits(kind=GroupKind.FULL, block_size=1 << 20),))


def given_up(steps: int) -> list[AnyRecord]:
    """Alone; cancelled during the last of the steps, and asked at 0 ns, at 10 and then."""
    done_ns = 10 + 10 * steps
    records = alone(2 * steps)
    told = stretch(done_ns, 1, steps, 10, 10, (1, 3, 1, 7))
    quit_it = Abort(time_ns=done_ns - 5, request=0)
    return numbered([*records[:4], quit_it, told, end(done_ns, steps + 1, completed=0, aborted=1)])


def two_leave(steps: int) -> list[AnyRecord]:
    """Two requests with as many decodes each: asked at 0 ns, at 10 and at the end."""
    done_ns = 10 + 10 * steps
    admitted = ((0, 0, 3), (1, 0, 3))
    return numbered(
        [
            header(**ROOM),
            arrive(0, 0, 3, steps + 1),
            arrive(0, 1, 3, steps + 1),
            turn(0, (2, 0, 6), admitted=admitted, decided=(0, 10, 2, 6, 2, 0)),
            turn(10, (2, 0, 6), ended=0, first=(0, 1)),
            stretch(done_ns, 1, steps, 10, 10, (2, 6, 2, 6)),
            turn(done_ns, (0, 0, 8), ended=steps, finished=(0, 1)),
            end(done_ns, steps + 1, completed=2),
        ]
    )


def uneven(steps: int) -> list[AnyRecord]:
    """Alone, and no step as long as the one before."""
    records = alone(steps)
    durations = [5 + step % 2 for step in range(steps)]
    done_ns = 10 + sum(durations)
    told = msgspec.structs.replace(records[4], durations_ns=durations, time_ns=done_ns)
    rest = [msgspec.structs.replace(record, time_ns=done_ns) for record in records[5:]]
    return [*records[:4], told, *rest]


DECISIONS: list[tuple[Callable[[int], list[AnyRecord]], int]] = [
    (alone, 3),
    (overlapping, 5),
    (no_seat, 5),
    (no_seat_by_priority, 5),
    (no_block, 5),
    (no_block_by_priority, 5),
    (no_budget, 4),
    (no_seat_in_tables, 5),
    (given_up, 3),
    (two_leave, 3),
    (uneven, 3),
]


@pytest.mark.parametrize("steps", [7, 8, 200])
@pytest.mark.parametrize(("make", "decisions"), DECISIONS)
def test_equal_steps_are_one_decision(
    monkeypatch: pytest.MonkeyPatch, make: Callable[[int], list[AnyRecord]], decisions: int, steps: int
) -> None:
    asked = []
    decide = engine.decide

    def counted(*told: object, **more: object) -> object:
        asked.append(1)
        return decide(*told, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(engine, "decide", counted)
    assert violation(make(steps)) is None
    assert len(asked) == decisions


def one_by_one(requests: int) -> list[AnyRecord]:
    """Each of 3 tokens, which gives 1 after 10 ns, and the next comes after 10 more."""
    records: list[AnyRecord] = [header()]
    for index in range(requests):
        time_ns = 20 * index
        served, done = (index, 10, 1, 3, 1, 0), (index,)
        records += [
            arrive(time_ns, index, 3, 1),
            turn(time_ns, (1, 0, 7), admitted=((index, 0, 3),), decided=served),
            turn(time_ns + 10, (0, 0, 8), ended=index, first=done, finished=done),
        ]
    return numbered(records)


def members() -> int:
    gc.collect()
    return sum(isinstance(it, Member) for it in gc.get_objects())


def test_who_is_gone_is_forgotten() -> None:
    before = members()
    replay = Replay()
    replay.read(one_by_one(30))
    assert members() - before <= 1
    assert replay.finish(truncated=True).completed == 30
