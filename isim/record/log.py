"""The log while a run writes it: orders the records of an instant, numbers them, hands them on in batches.

Processes emit in whatever order the instant ran; what is handed on is ordered by (time, rank, key), where the key is
the engine and then the order in which the one owner of such records emitted them. Whoever wants the records (the codec,
the analysis) is a reader that takes them in batches.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from isim.record.errors import CausalityError
from isim.record.records import AnyRecord

Reader = Callable[[Sequence[AnyRecord]], None]
BATCH = 4096


def _order(entry: AnyRecord) -> tuple[int, int]:
    return (entry.RANK, getattr(entry, "engine", 0))


def _in_order(instant: list[AnyRecord]) -> bool:
    """Whether ranks and engines only rise; most instants are like that, and telling so is cheaper than sorting."""
    before = instant[0]
    for entry in instant:
        rank = entry.RANK
        if rank <= before.RANK and (rank < before.RANK or _order(entry) < _order(before)):
            return False
        before = entry
    return True


class Log:
    """Takes records whose time never goes back; gives each reader all of them, in order and numbered."""

    def __init__(self, readers: Sequence[Reader]) -> None:
        self._readers = tuple(readers)
        self._instant: list[AnyRecord] = []
        self._time_ns = -1
        self._ready: list[AnyRecord] = []
        self._next = 0

    @property
    def count(self) -> int:
        """How many records have been numbered so far."""
        return self._next

    def emit(self, record: AnyRecord) -> None:
        """Add a record at its own time. Time that goes back is a bug of ours."""
        time_ns = record.time_ns
        instant = self._instant
        if time_ns == self._time_ns:
            instant.append(record)
            return
        if time_ns < self._time_ns:
            raise CausalityError(f"the log is at {self._time_ns} ns, a record came for {time_ns} ns: {record}")
        self._time_ns = time_ns
        if instant:
            self._settle()
        instant.append(record)

    def close(self) -> None:
        """Hand on what is left. A log that is not closed has no `end` and reads as truncated."""
        if self._instant:
            self._settle()
        self._flush()

    def _settle(self) -> None:
        instant = self._instant
        ready = self._ready
        if len(instant) == 1:
            record = instant.pop()
            record.seq = self._next
            self._next += 1
            ready.append(record)
        else:
            if not _in_order(instant):
                instant.sort(key=_order)
            for number, record in enumerate(instant, self._next):
                record.seq = number
            self._next += len(instant)
            ready += instant
            instant.clear()
        if len(ready) >= BATCH:
            self._flush()

    def _flush(self) -> None:
        if self._ready:
            for reader in self._readers:
                reader(self._ready)
            self._ready = []
