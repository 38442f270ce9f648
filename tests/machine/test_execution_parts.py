"""What the replay of executions keeps, by itself: bookings and turns, each against all that ever happened."""

from __future__ import annotations

from random import Random
from types import SimpleNamespace
from typing import cast

import msgspec
import pytest
from execution_examples import violation
from executions import records_of
from random_machines import random_case

from isim.record.execution import CollectiveFact, CollectiveKind, ComputeFact, OperationFact
from isim.replay.execution.future import Future, Moment, end_of
from isim.replay.execution.line import Line, Run
from isim.replay.execution.plan import Checked


class Booking(msgspec.Struct):
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    start: Moment
    end: Moment


class PlainFuture:
    """Everybody who ever booked, and when the last of each lane ends."""

    def __init__(self, lanes: dict[str, int]) -> None:
        self.counts = lanes
        self.ends = {(name, lane): (0, 0) for name, count in lanes.items() for lane in range(count)}
        self.bookings: list[Booking] = []

    def lane(self, resource: str) -> tuple[Moment, int]:
        """The lane whose last user ends first, and when; of equals the lowest."""
        return min((self.ends[resource, lane], lane) for lane in range(self.counts[resource]))

    def take(
        self, now: Moment, duration_ns: int, resources: list[str], reads: tuple[str, ...], writes: tuple[str, ...]
    ) -> tuple[Moment, Moment]:
        lanes = [self.lane(name) for name in resources]
        earliest = max([now, *(free for free, _ in lanes)])
        others = [it for it in self.bookings if {*it.writes} & {*reads, *writes} or {*it.reads} & {*writes}]
        for start in sorted({earliest, *(it.end for it in others if it.end > earliest)}):
            end = (start[0] + duration_ns, 0) if duration_ns > 0 else (start[0], start[1] + 1)
            if all(it.end <= start or it.start >= end for it in others):
                break
        self.ends.update({(name, lane): end for name, (_, lane) in zip(resources, lanes, strict=True)})
        self.bookings.append(Booking(reads, writes, start, end))
        return start, end


def test_a_step_of_some_duration_ends_at_a_later_time_and_one_of_none_in_the_next_round() -> None:
    assert [end_of((5, 2), duration_ns) for duration_ns in (0, 1, 7)] == [(5, 3), (6, 0), (12, 0)]


@pytest.mark.parametrize("seed", range(16))
def test_lanes_and_leases_are_had_as_early_as_all_bookings_allow(seed: int) -> None:
    """Crowded and sparse, with few allocations and with many, over more gaps than are kept."""
    dice = Random(seed)
    counts = {name: dice.choice([1, 2, 3, 40]) for name in "wxyz"}
    allocations = "abcdefgh"[: dice.choice([1, 2, 3, 8])]
    pace = dice.choice([1, 3, 9])
    future, plain = Future(counts), PlainFuture(counts)
    now = (0, 0)
    for _ in range(220):
        resources = dice.sample(list(counts), dice.randrange(1, 4))
        names = dice.sample(allocations, dice.randrange(min(3, len(allocations)) + 1))
        written = dice.randrange(len(names) + 1)
        reads, writes = tuple(names[written:]), tuple(names[:written])
        duration_ns = dice.choice([0, 0, 1, 2, 5, 12])
        assert future.lanes(resources) == tuple((name, plain.lane(name)[1]) for name in resources)
        told = future.take(now, duration_ns, resources, reads, writes)
        assert told == plain.take(now, duration_ns, resources, reads, writes)
        if dice.random() < 0.6:
            now = (now[0] + dice.randrange(2 * pace), 0) if dice.random() < 0.7 else (now[0], now[1] + 1)
            now = max(now, (now[0], 0))


def test_what_long_ago_was_written_and_read_keeps_nobody_waiting() -> None:
    """Nor what is written long after; in between are more gaps than are kept."""
    future, plain = Future({"w": 400}), PlainFuture({"w": 400})
    for number in range(200):
        reads, writes = (("a",), ()) if number % 2 else ((), ("a",))
        now = (20 * number, 0)
        assert future.take(now, 5, ["w"], reads, writes) == (now, (now[0] + 5, 0))
        plain.take(now, 5, ["w"], reads, writes)
    for number in range(100):
        now = (4000 + number, 0)
        assert future.take(now, 7, ["w"], (), ("a",)) == plain.take(now, 7, ["w"], (), ("a",))


# ---- turns


def steps_of(groups: list[str | None]) -> Checked:
    """Steps by the communicators that they use."""
    facts = [SimpleNamespace(operation=operation(group)) for group in groups]
    operations = {group: groups.count(group) for group in groups if group is not None}
    return cast("Checked", SimpleNamespace(facts=facts, needs=[1] * len(facts), operations=operations))


def operation(group: str | None) -> OperationFact:
    if group is None:
        return ComputeFact(device="d", capability="ffn", duration_ns=1)
    ring = CollectiveKind.ALL_REDUCE_RING
    return CollectiveFact(group=group, comm_sequence=0, algorithm=ring, links=(), duration_ns=1)


class PlainLine:
    """Who is ready, who has been submitted; whose turn it is follows."""

    def __init__(self) -> None:
        self.groups: list[list[str | None]] = []
        self.ready: set[tuple[int, int]] = set()
        self.submitted: set[tuple[int, int]] = set()

    def of(self, admission: int, group: str) -> list[tuple[int, int]]:
        return [(admission, place) for place, other in enumerate(self.groups[admission]) if other == group]

    def owner(self, group: str) -> int | None:
        """The first admitted of whose operations one is to come."""
        owing = [who for who in range(len(self.groups)) if {*self.of(who, group)} - self.submitted]
        return owing[0] if owing else None

    def due(self, group: str) -> int:
        owner = self.owner(group)
        return 0 if owner is None else len({*self.of(owner, group)} & self.submitted)

    def first(self) -> tuple[int, int] | None:
        waiting = self.ready - self.submitted
        may = [it for it in waiting if (group := self.groups[it[0]][it[1]]) is None or self.owner(group) == it[0]]
        return min(may, default=None)


@pytest.mark.parametrize("seed", range(30))
def test_turns_go_round_by_admission_and_what_is_ready_goes_by_admission_and_place(seed: int) -> None:
    dice = Random(seed)
    line, plain, runs = Line(), PlainLine(), list[Run]()
    seen: set[str] = set()
    assert line.first() is None and line.owner("g") is None
    for _ in range(160):
        to_come = [(who, place) for who, groups in enumerate(plain.groups) for place in range(len(groups))]
        to_come = [it for it in to_come if it not in plain.ready]
        if len(runs) < 8 and dice.random() < 0.15:
            groups = [dice.choice([None, None, "g", "h"]) for _ in range(dice.randrange(1, 8))]
            run = Run(f"e{len(runs)}", len(runs), steps_of(groups))
            assert (run.left, run.submitted, run.needs) == (len(groups), 0, [1] * len(groups))
            assert run.ends_ns == [None] * len(groups)
            runs.append(run)
            plain.groups.append(groups)
            seen |= {group for group in groups if group is not None}
            line.join(run)
        elif to_come and dice.random() < 0.5:
            who, place = dice.choice(to_come)
            plain.ready.add((who, place))
            line.ready(runs[who], place)
        elif (first := plain.first()) is not None:
            line.submit_first(operation(plain.groups[first[0]][first[1]]))
            plain.submitted.add(first)
        assert line.first() == plain.first()
        for group in seen:
            assert (line.owner(group), line.due(group)) == (plain.owner(group), plain.due(group))


def test_what_an_execution_still_waits_for_is_its_own_and_not_the_plan_s() -> None:
    steps = steps_of([None, None])
    one, other = Run("one", 0, steps), Run("other", 1, steps)
    one.needs[0] -= 1
    assert (steps.needs, other.needs) == ([1, 1], [1, 1])
    assert (other.name, other.admission) == ("other", 1)


def test_logs_of_random_machines_are_accepted() -> None:
    """What an executor wrote, which the tests hold to a slow one; with second names, and steps held back."""
    for seed in range(60):
        case = random_case(seed)
        error = violation(records_of(case.machine, case.requests))
        assert error is None, (seed, str(error))
