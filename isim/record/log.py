"""The log while a run writes it: orders records, numbers them, hands them on in batches.

Whoever emits does so in the order of its own time, but one may be ahead of another: an engine that knows that nothing
can disturb it tells what it will do before the clock gets there. So records wait until the clock has passed them. What
is handed on is ordered by (time, rank, key), where the key is the engine and then the order in which the one owner of
such records emitted them; the order in which processes happened to run is in no log. Whoever wants the records (the
codec, the analysis) is a reader that takes them in batches.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from operator import attrgetter

from isim.record.errors import CausalityError
from isim.record.records import Abort, AnyRecord, Arrive, End, Header, Reject, Stretch, Turn

Reader = Callable[[Sequence[AnyRecord]], None]
Event = Arrive | Reject | Abort | Turn | Stretch
BATCH = 4096

_order = attrgetter("time_ns", "RANK", "engine")
_time_ns = attrgetter("time_ns")


class Log:
    """Gives each reader all records, in order and numbered. `emit` takes those between the header and the end."""

    def __init__(self, header: Header, readers: Sequence[Reader]) -> None:
        self._readers = tuple(readers)
        self._waiting: list[Event] = []
        self._reached_ns = 0
        self._enough = BATCH
        self._next = 0
        self.emit: Callable[[Event], None] = self._waiting.append
        self._hand_on([header])

    @property
    def count(self) -> int:
        """How many records have been numbered so far."""
        return self._next

    def reach(self, time_ns: int) -> None:
        """Nobody will emit a record before this time any more."""
        if len(self._waiting) >= self._enough:
            self._flush(time_ns)
            self._enough = BATCH + len(self._waiting)

    def close(self, end: End) -> None:
        """Hand on what is left, then the end. A log that is not closed reads as truncated."""
        self._flush(end.time_ns + 1)
        self._hand_on([end])

    def _flush(self, time_ns: int) -> None:
        waiting = self._waiting
        waiting.sort(key=_order)
        due = bisect_left(waiting, time_ns, key=_time_ns)
        if not due:
            return
        if waiting[0].time_ns < self._reached_ns:
            raise CausalityError(f"the log has reached {self._reached_ns} ns, a record came after that: {waiting[0]}")
        self._reached_ns = time_ns
        records: list[AnyRecord] = list(waiting[:due])
        del waiting[:due]
        self._hand_on(records)

    def _hand_on(self, records: list[AnyRecord]) -> None:
        number = self._next
        for record in records:
            record.seq = number
            number += 1
        self._next = number
        for reader in self._readers:
            reader(records)
