"""The log while a run writes it: orders records, numbers them, hands them on in batches.

Whoever emits does so in the order of its own time, but one may be ahead of another: an engine that knows that nothing
can disturb it tells what it will do before the clock gets there. So records wait until the clock has passed them. What
is handed on is ordered by (time, rank, key), where the key is the engine and then the order in which the one owner of
such records emitted them; the order in which processes happened to run is in no log. Whoever wants the records (the
codec, the replay) is a reader that takes them in batches. Whoever does not care how the records of different owners lie
to one another (the analysis) takes them lane by lane, and where nobody else reads they are neither merged nor numbered.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from itertools import chain
from operator import attrgetter

from isim.record.errors import CausalityError
from isim.record.records import Abort, AnyRecord, Arrive, End, Header, Reject, Stretch, Turn

Reader = Callable[[Sequence[AnyRecord]], None]
Event = Arrive | Reject | Abort | Turn | Stretch
LaneReader = Callable[[Sequence[Sequence[AnyRecord]]], None]
"""Reads batches too, in each of them some records of each owner: arrivals first, then rejections, aborts, engines."""
Emit = Callable[[Event], None]
BATCH = 4096

_time_ns = attrgetter("time_ns")


class Log:
    """Gives each reader all records, in order and numbered. In between header and end they come through lanes."""

    def __init__(self, header: Header, readers: Sequence[Reader], lane_readers: Sequence[LaneReader] = ()) -> None:
        self._readers = tuple(readers)
        self._lane_readers = tuple(lane_readers)
        self._lanes: dict[tuple[int, int], list[Event]] = {}
        self._reached_ns = 0
        self._enough = BATCH
        self._next = 0
        self._hand_on([[header]])

    def lane(self, kind: type[Event], engine: int = 0) -> Emit:
        """How the one owner of an engine's records of this kind's rank emits them, in the order of their times."""
        lane = self._lanes.setdefault((kind.RANK, engine), [])
        self._lanes = dict(sorted(self._lanes.items()))
        return lane.append

    def reach(self, time_ns: int) -> None:
        """Nobody will emit a record before this time any more."""
        waiting = 0
        for lane in self._lanes.values():
            waiting += len(lane)
        if waiting >= self._enough:
            left = self._flush(time_ns)
            self._enough = BATCH + left

    def close(self, end: End) -> None:
        """Hand on what is left, then the end. A log that is not closed reads as truncated."""
        self._flush(end.time_ns + 1)
        self._hand_on([[end]])

    def _flush(self, time_ns: int) -> int:
        """Hand on everything before `time_ns`; returns how much is left."""
        batch: list[list[AnyRecord]] = []
        left = 0
        for lane in self._lanes.values():
            due = bisect_left(lane, time_ns, key=_time_ns)
            if due:
                if lane[0].time_ns < self._reached_ns:
                    raise CausalityError(f"the log has reached {self._reached_ns} ns, then came {lane[0]}")
                batch.append([*lane[:due]])
                del lane[:due]
            left += len(lane)
        if batch:
            self._hand_on(batch)
        self._reached_ns = time_ns
        return left

    def _hand_on(self, batch: list[list[AnyRecord]]) -> None:
        for lane_reader in self._lane_readers:
            lane_reader(batch)
        if not self._readers:
            return
        # Lanes are in the order of (rank, engine), and a stable sort by time keeps it within an instant.
        records = sorted(chain.from_iterable(batch), key=_time_ns)
        number = self._next
        for record in records:
            record.seq = number
            number += 1
        self._next = number
        for reader in self._readers:
            reader(records)
