"""What lies ahead, as the replay keeps it: lanes by when they are free, allocations by the gaps that are left."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from heapq import heappush, heapreplace

Moment = tuple[int, int]
"""A time in ns and the round within it."""

_NEVER: Moment = (1 << 62, 0)
_KEPT_GAPS = 64


def end_of(start: Moment, duration_ns: int) -> Moment:
    """A step of some duration ends in round 0, one of none in the next round."""
    return (start[0] + duration_ns, 0) if duration_ns else (start[0], start[1] + 1)


class _Gaps:
    """When nobody holds something: gaps in order, the last without an end."""

    __slots__ = ("_since", "_until")

    def __init__(self) -> None:
        self._since: list[Moment] = [(0, 0)]
        self._until: list[Moment] = [_NEVER]

    def first(self, moment: Moment, duration_ns: int) -> Moment:
        """The earliest start from `moment` on that lies with its whole duration in one gap."""
        place = bisect_right(self._until, moment)
        while True:
            start = max(moment, self._since[place])
            if end_of(start, duration_ns) <= self._until[place]:
                return start
            place += 1

    def close(self, start: Moment, end: Moment, now: Moment) -> None:
        """Nothing is free from start to end any more."""
        since, until = self._since, self._until
        place = bisect_right(until, start)
        while place < len(since) and since[place] < end:
            left, right = since[place], until[place]
            rest = [(left, start)] if left < start else []
            rest += [(end, right)] if end < right else []
            since[place : place + 1] = [gap[0] for gap in rest]
            until[place : place + 1] = [gap[1] for gap in rest]
            place += len(rest)
        if len(until) > _KEPT_GAPS:
            over = bisect_right(until, now)
            del since[:over], until[:over]


class Future:
    """Lanes and leases of the whole machine."""

    def __init__(self, lanes: Mapping[str, int]) -> None:
        self._lanes = lanes
        self._opened: dict[str, list[tuple[Moment, int]]] = {name: [] for name in lanes}
        self._unwritten: dict[str, _Gaps] = {}
        self._unheld: dict[str, _Gaps] = {}

    def lanes(self, resources: Iterable[str]) -> tuple[tuple[str, int], ...]:
        """The lane of each resource that is free first; of equals the lowest."""
        return tuple((name, self._first(name)[1]) for name in resources)

    def _first(self, name: str) -> tuple[Moment, int]:
        """Lanes are opened in their order, as long as there are any that nobody has had."""
        opened = self._opened[name]
        return opened[0] if len(opened) == self._lanes[name] else ((0, 0), len(opened))

    def take(
        self, now: Moment, duration_ns: int, resources: Sequence[str], reads: Sequence[str], writes: Sequence[str]
    ) -> tuple[Moment, Moment]:
        """Take these lanes and leases as early as they can be had together; returns start and end."""
        firsts = [self._first(name) for name in resources]
        start = max(now, *(free for free, _ in firsts))
        wanted = [self._unheld.setdefault(name, _Gaps()) for name in writes]
        wanted += [self._unwritten.setdefault(name, _Gaps()) for name in reads]
        settled = False
        while not settled:
            settled = True
            for gaps in wanted:
                later = gaps.first(start, duration_ns)
                if later != start:
                    start, settled = later, False
        end = end_of(start, duration_ns)
        for name, (_, lane) in zip(resources, firsts, strict=True):
            opened = self._opened[name]
            if lane == len(opened):
                heappush(opened, (end, lane))
            else:
                heapreplace(opened, (end, lane))
        for name in writes:
            self._unwritten.setdefault(name, _Gaps()).close(start, end, now)
        for name in (*writes, *reads):
            self._unheld.setdefault(name, _Gaps()).close(start, end, now)
        return start, end
