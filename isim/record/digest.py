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
from collections.abc import Iterable, Sequence
from itertools import accumulate

import msgspec

from isim.record.records import AnyRecord, Arrive, Header, Stretch, Turn

_STEP_COLUMNS = 5


def _pack(values: Sequence[int]) -> bytes:
    return struct.pack(f"<{len(values)}q", *values)


class _Steps:
    """The five step columns of one engine, with the times at which asynchronous steps were decided.

    Rows are gathered in lists and hashed together: hashing small pieces costs more than the bytes are worth.
    """

    def __init__(self, *, asynchronous: bool) -> None:
        self._hashes = [hashlib.sha256() for _ in range(_STEP_COLUMNS)]
        self._columns: tuple[list[int], ...] = tuple([] for _ in range(_STEP_COLUMNS))
        self._asynchronous = asynchronous
        self._last_end_ns = 0

    def one(self, turn: Turn) -> None:
        decided_ns, duration_ns, scheduled, tokens, context = self._columns
        decided_ns.append(turn.time_ns)
        duration_ns.append(turn.duration_ns)
        scheduled.append(turn.scheduled)
        tokens.append(turn.tokens)
        context.append(turn.context)
        self._last_end_ns = max(turn.time_ns, self._last_end_ns) + turn.duration_ns

    def many(self, record: Stretch) -> None:
        decided_ns, duration_ns, scheduled, tokens, context = self._columns
        steps, batch = record.steps, record.batch
        durations = record.durations_ns
        if len(durations) != steps:
            durations = durations * steps
        duration_ns += durations
        starts = list(accumulate(durations, initial=max(record.schedule_ns, self._last_end_ns)))
        self._last_end_ns = starts.pop()
        if self._asynchronous:
            decided_ns.append(record.schedule_ns)
            starts.pop()
        decided_ns += starts
        batches = [batch] * steps
        scheduled += batches
        tokens += batches
        context += range(record.context, record.context + batch * steps, batch)

    def hash(self) -> None:
        """Take the rows gathered so far into account."""
        for running_hash, column in zip(self._hashes, self._columns, strict=True):
            running_hash.update(_pack(column))
            column.clear()

    def digests(self) -> list[bytes]:
        return [running_hash.digest() for running_hash in self._hashes]


class LogDigest:
    """Fed with the records of a log in order; `hexdigest()` at the end."""

    def __init__(self) -> None:
        self._events = hashlib.sha256()
        self._steps: dict[int, _Steps] = {}
        self._asynchronous = False

    def read(self, records: Sequence[AnyRecord]) -> None:
        rows = _Rows()
        for record in records:
            if type(record) is Stretch:
                self._engine(record.engine).many(record)
            elif type(record) is Turn:
                if record.step is not None:
                    self._engine(record.engine).one(record)
                rows.numbers += _turn_row(record)
            else:
                self._event(record, rows)
        for engine in self._steps.values():
            engine.hash()
        self._events.update(rows.joined())

    def _engine(self, engine: int) -> _Steps:
        steps = self._steps.get(engine)
        if steps is None:
            steps = self._steps[engine] = _Steps(asynchronous=self._asynchronous)
        return steps

    def hexdigest(self) -> str:
        whole = hashlib.sha256(self._events.digest())
        for engine in sorted(self._steps):
            whole.update(struct.pack("<q", engine))
            for digest in self._steps[engine].digests():
                whole.update(digest)
        return whole.hexdigest()

    def _event(self, record: AnyRecord, rows: _Rows) -> None:
        if isinstance(record, Arrive) and record.prompt is None and record.order_time is None:
            name = record.id.encode()
            numbers = (2, record.time_ns, record.engine, record.request, record.prompt_tokens, record.output_tokens)
            rows.numbers += (*numbers, record.priority, int(record.quotable), len(name))
            rows.add(name)
            return
        if isinstance(record, Header):
            self._asynchronous = record.engine.async_scheduling
        plain = msgspec.to_builtins(record)
        plain.pop("seq", None)
        plain.pop("max_events", None)
        data = msgspec.json.encode(plain, order="deterministic")
        rows.numbers += (9, len(data))
        rows.add(data)


class _Rows:
    """Numbers and strings of some rows, one after another; numbers that follow one another are packed together."""

    def __init__(self) -> None:
        self.numbers: list[int] = []
        self._parts: list[bytes] = []

    def add(self, data: bytes) -> None:
        self._parts.append(_pack(self.numbers))
        self._parts.append(data)
        self.numbers.clear()

    def joined(self) -> bytes:
        self.add(b"")
        return b"".join(self._parts)


def _turn_row(turn: Turn) -> list[int]:
    step, ended = turn.step, turn.ended
    row = [5, turn.time_ns, turn.engine, -1 if ended is None else ended, -1 if step is None else step]
    row += (turn.sampled, turn.running, turn.waiting, turn.free_blocks)
    for members in (turn.first, turn.finished, turn.skipped, turn.preempted):
        row.append(len(members))
        row += members
    for tuples in (turn.late, turn.admitted, turn.chunks):
        row.append(len(tuples))
        for member in tuples:
            row += member
    return row


def log_digest(records: Iterable[AnyRecord]) -> str:
    """Digest of a whole log at once."""
    digest = LogDigest()
    digest.read(list(records))
    return digest.hexdigest()
