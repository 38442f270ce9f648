"""Who holds what, and when: the future of every lane and every allocation, as far as it is decided.

A submitted step books. For each of its resources it takes the lane that is free first, the lowest numbered of equals.
It cannot start before all of them are free, and starts at the first moment from which on its leases hold for its whole
duration: a writer's against everybody's, a reader's against writers'. Nobody books a lane before the end of its last
booking, so lanes are never filled in behind; a lease may be taken before one that is booked for later if it is given
back by then.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from heapq import heappush, heapreplace

import msgspec

from isim.machine.moment import after, checked


class Calendar:
    """Spans of moments in order, apart from each other: what overlaps or touches is one span."""

    __slots__ = ("_ends", "_starts")

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []

    def fit(self, moment: int, duration_ns: int) -> int:
        """The first moment from `moment` on at which so long a step meets none of the spans."""
        starts, ends = self._starts, self._ends
        place = bisect_right(ends, moment)
        while place < len(starts) and starts[place] < after(moment, duration_ns):
            moment = ends[place]
            place += 1
        return moment

    def add(self, start: int, end: int, now: int) -> None:
        """Book a span; spans that are over by `now` are forgotten."""
        starts, ends = self._starts, self._ends
        if ends and ends[0] <= now:
            over = bisect_right(ends, now)
            del starts[:over], ends[:over]
        first = bisect_left(ends, start)
        last = bisect_right(starts, end)
        if first < last:
            start = min(start, starts[first])
            end = max(end, ends[last - 1])
        starts[first:last] = [start]
        ends[first:last] = [end]


class Booking(msgspec.Struct, frozen=True):
    """Moments of start and finish, and a lane of each resource."""

    start: int
    finish: int
    lanes: tuple[int, ...]


class Bookings:
    """The one owner of free moments of lanes and of calendars of leases."""

    def __init__(self, lanes: Sequence[int]) -> None:
        self._lanes = tuple(lanes)
        self._used: list[list[tuple[int, int]]] = [[] for _ in lanes]
        """Of each resource a heap of (free from, lane). Lanes that were never used are not in it: they come first."""
        self._written: dict[str, Calendar] = {}
        self._held: dict[str, Calendar] = {}

    def book(
        self, now: int, duration_ns: int, resources: Sequence[int], reads: Sequence[str], writes: Sequence[str]
    ) -> Booking:
        """Book one lane of each resource and all leases. `now` never goes back from one booking to the next."""
        start = now
        chosen = []
        for resource in resources:
            used = self._used[resource]
            if len(used) < self._lanes[resource]:
                chosen.append(len(used))
                continue
            free, lane = used[0]
            chosen.append(lane)
            if free > start:
                start = free
        start = self._leased(start, duration_ns, reads, writes)
        finish = checked(after(start, duration_ns))
        for resource, lane in zip(resources, chosen, strict=True):
            used = self._used[resource]
            if lane == len(used):
                heappush(used, (finish, lane))
            else:
                heapreplace(used, (finish, lane))
        for name in writes:
            self._calendar(self._written, name).add(start, finish, now)
            self._calendar(self._held, name).add(start, finish, now)
        for name in reads:
            self._calendar(self._held, name).add(start, finish, now)
        return Booking(start, finish, tuple(chosen))

    def _leased(self, start: int, duration_ns: int, reads: Sequence[str], writes: Sequence[str]) -> int:
        against = [self._held[name] for name in writes if name in self._held]
        against += [self._written[name] for name in reads if name in self._written]
        while True:
            before = start
            for calendar in against:
                start = calendar.fit(start, duration_ns)
            if start == before:
                return start

    @staticmethod
    def _calendar(calendars: dict[str, Calendar], name: str) -> Calendar:
        calendar = calendars.get(name)
        if calendar is None:
            calendar = calendars[name] = Calendar()
        return calendar
