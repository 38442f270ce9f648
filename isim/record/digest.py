"""The digest of a log: over what happened step by step, not over how it was written down.

A stretch of k steps and k stretches of one step tell the same story, so they must have the same digest. The
digest is therefore taken over the *expanded* log, every step a row of its own, ordered by (time, rank, key)
and renumbered. It is kept in columns, one running hash for each kind of row: a row's place in its column is
its number, and every row carries its time, so the columns hold exactly what one interleaved sequence would.

Rows, all of 8-byte little-endian integers (strings as length and UTF-8 bytes):

    steps     decided at, duration, scheduled, tokens, context       one for each step of each engine, five columns
    events    kind, time and the lists of a turn; arrivals, rejections, aborts; the header's facts and the end

What cannot change a result is in no row: sequence numbers, how steps were gathered into stretches (their numbers are
their places), and the totals of a stretch that follow from the rest (`running`, `free_blocks` after its last step).
"""

from __future__ import annotations

import hashlib
import struct
import sys
from array import array
from collections.abc import Iterable, Sequence
from itertools import accumulate

import msgspec

from isim.record.records import Abort, AnyRecord, Arrive, End, Header, Reject, Stretch, Turn

_LITTLE = sys.byteorder == "little"
_STEP_COLUMNS = ("decided_ns", "duration_ns", "scheduled", "tokens", "context")


def _pack(values: Iterable[int]) -> bytes:
    column = array("q", values)
    if not _LITTLE:
        column.byteswap()
    return column.tobytes()


class _Column:
    """A running hash fed in large pieces; hashing small ones costs more than the bytes are worth."""

    __slots__ = ("_hash", "_parts", "_size")

    def __init__(self) -> None:
        self._hash = hashlib.sha256()
        self._parts: list[bytes] = []
        self._size = 0

    def add(self, data: bytes) -> None:
        self._parts.append(data)
        self._size += len(data)
        if self._size > 1 << 16:
            self._drain()

    def _drain(self) -> None:
        self._hash.update(b"".join(self._parts))
        self._parts.clear()
        self._size = 0

    def digest(self) -> bytes:
        self._drain()
        return self._hash.digest()


class _Steps:
    """The five step columns of one engine, with the times at which asynchronous steps were decided."""

    def __init__(self, *, asynchronous: bool) -> None:
        self.columns = {name: _Column() for name in _STEP_COLUMNS}
        self._asynchronous = asynchronous
        self._last_start_ns = 0
        self._last_end_ns = 0

    def one(self, decided_ns: int, duration_ns: int, scheduled: int, tokens: int, context: int) -> None:
        columns = self.columns
        columns["decided_ns"].add(_pack((decided_ns,)))
        columns["duration_ns"].add(_pack((duration_ns,)))
        columns["scheduled"].add(_pack((scheduled,)))
        columns["tokens"].add(_pack((tokens,)))
        columns["context"].add(_pack((context,)))
        self._last_start_ns = max(decided_ns, self._last_end_ns)
        self._last_end_ns = self._last_start_ns + duration_ns

    def many(self, record: Stretch) -> None:
        steps, batch = record.steps, record.batch
        durations = record.durations_ns
        if len(durations) != steps:
            durations = durations * steps
        first_start_ns = max(record.schedule_ns, self._last_end_ns)
        starts = list(accumulate(durations, initial=first_start_ns))
        end_ns = starts.pop()
        decided = starts
        if self._asynchronous:
            decided = [record.schedule_ns, *starts[:-1]]
        columns = self.columns
        columns["decided_ns"].add(_pack(decided))
        columns["duration_ns"].add(_pack(durations))
        counts = struct.pack("<q", batch) * steps
        columns["scheduled"].add(counts)
        columns["tokens"].add(counts)
        columns["context"].add(_pack(range(record.context, record.context + batch * steps, batch)))
        self._last_start_ns = starts[-1]
        self._last_end_ns = end_ns


class LogDigest:
    """Fed with the records of a log in order; `hexdigest()` at the end."""

    def __init__(self) -> None:
        self._events = _Column()
        self._steps: dict[int, _Steps] = {}
        self._asynchronous = False

    def read(self, records: Sequence[AnyRecord]) -> None:
        for record in records:
            if isinstance(record, Stretch):
                self._engine(record.engine).many(record)
            elif isinstance(record, Turn):
                self._turn(record)
            else:
                self._event(record)

    def hexdigest(self) -> str:
        whole = hashlib.sha256(self._events.digest())
        for engine in sorted(self._steps):
            whole.update(struct.pack("<q", engine))
            for name in _STEP_COLUMNS:
                whole.update(self._steps[engine].columns[name].digest())
        return whole.hexdigest()

    def _engine(self, engine: int) -> _Steps:
        steps = self._steps.get(engine)
        if steps is None:
            steps = self._steps[engine] = _Steps(asynchronous=self._asynchronous)
        return steps

    def _turn(self, turn: Turn) -> None:
        if turn.step is not None:
            self._engine(turn.engine).one(turn.time_ns, turn.duration_ns, turn.scheduled, turn.tokens, turn.context)
        row = [5, turn.time_ns, turn.engine, -1 if turn.ended is None else turn.ended]
        row += (-1 if turn.step is None else turn.step, turn.sampled, turn.running, turn.waiting, turn.free_blocks)
        for members in (turn.first, turn.finished, turn.skipped, turn.preempted):
            row.append(len(members))
            row += members
        for tuples in (turn.late, turn.admitted, turn.chunks):
            row.append(len(tuples))
            for member in tuples:
                row += member
        self._events.add(_pack(row))

    def _event(self, record: Header | Arrive | Reject | Abort | End) -> None:
        if isinstance(record, Arrive) and record.prompt is None and record.order_time is None:
            name = record.id.encode()
            numbers = (2, record.time_ns, record.engine, record.request, record.prompt_tokens, record.output_tokens)
            self._events.add(_pack((*numbers, record.priority, int(record.quotable), len(name))) + name)
            return
        if isinstance(record, Header):
            self._asynchronous = record.engine.async_scheduling
        plain = msgspec.to_builtins(record)
        plain.pop("seq", None)
        plain.pop("max_events", None)
        data = msgspec.json.encode(plain, order="deterministic")
        self._events.add(_pack((9, len(data))) + data)


def log_digest(records: Iterable[AnyRecord]) -> str:
    """Digest of a whole log at once."""
    digest = LogDigest()
    digest.read(list(records))
    return digest.hexdigest()
