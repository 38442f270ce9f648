"""Judges a log from the log alone: every record is derived again from those before it, and compared.

What was asked of the engine is taken from the log (`Header`, `Arrive`, `Abort`), and so is how long steps took where
no formula is stated. Everything else must follow. This room shares no code with the engine that wrote the log: it has
its own account of requests, queue and blocks, and its own telling of the scheduler's rules.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from isim.record.codec import read_log
from isim.record.digest import LogDigest
from isim.record.records import (
    REVISION,
    SCHEMA,
    Abort,
    AnyRecord,
    Arrive,
    End,
    EngineLimits,
    Header,
    Reject,
    RejectReason,
    Stretch,
    Turn,
)
from isim.replay.engine import Engine
from isim.replay.entry import check_limits, check_request, refusal
from isim.replay.member import Member
from isim.replay.routing import Routes
from isim.replay.rules import Mismatch, ReplayViolation, Rule
from isim.replay.tables import Terms, terms


class ReplaySummary(msgspec.Struct, frozen=True, kw_only=True):
    """What was checked. Requests that neither left nor were rejected are `unfinished`."""

    records: int
    steps: int
    arrived: int
    completed: int
    rejected: int
    aborted: int
    unfinished: int
    preemptions: int
    log_digest: str | None = None


class Replay:
    """A reader of a log. `read` takes its records in order, in any portions; `finish` says what was checked.

    Raises ReplayViolation at the first wrong record; a replay that raised is of no further use.
    """

    def __init__(self) -> None:
        self._records = 0
        self._time_ns = 0
        self._previous_ns = 0
        self._order = (-1, 0, 0)
        self._engines: list[Engine] = []
        self._live: dict[int, Member] = {}
        self._ids: dict[str, bool] = {}
        self._refused: deque[tuple[int, int, RejectReason]] = deque()
        self._limits: EngineLimits | None = None
        self._terms: list[Terms] = []
        self._max_events = 0
        self._overhead_ns = 0
        self._steps = 0
        self._rejected = 0
        self._aborted = 0
        self._ended = False
        self._checks: dict[type[AnyRecord], Callable[..., None]] = {
            Header: self._header,
            Arrive: self._arrive,
            Reject: self._reject,
            Abort: self._abort,
            Turn: self._turn,
            Stretch: self._stretch,
            End: self._end,
        }

    def read(self, records: Sequence[AnyRecord]) -> None:
        """Check the next records of the log."""
        try:
            for record in records:
                self._envelope(record)
                self._checks[type(record)](record)
                self._records += 1
        except Mismatch as wrong:
            raise ReplayViolation(self._records, wrong.rule, wrong.expected, wrong.found) from None

    def finish(self, *, truncated: bool = False) -> ReplaySummary:
        """Summary of what was read. Without `truncated`, a log that has no end is a violation."""
        if not self._ended and not truncated:
            raise ReplayViolation(self._records, Rule.END, "an end record", "no more records")
        arrived, completed = len(self._ids), sum(engine.completed for engine in self._engines)
        return ReplaySummary(
            records=self._records,
            steps=self._steps,
            arrived=arrived,
            completed=completed,
            rejected=self._rejected,
            aborted=self._aborted,
            unfinished=arrived - completed - self._rejected - self._aborted,
            preemptions=sum(engine.preemptions for engine in self._engines),
        )

    def _envelope(self, record: AnyRecord) -> None:
        if record.seq != self._records:
            raise Mismatch(Rule.ENVELOPE, f"sequence {self._records}", record.seq)
        if (self._records == 0) != (type(record) is Header):
            raise Mismatch(Rule.ENVELOPE, "a header first and nowhere else", f"a record {type(record).__name__}")
        if self._ended:
            raise Mismatch(Rule.ENVELOPE, "nothing after the end", f"a record {type(record).__name__}")
        self._previous_ns = self._time_ns
        engine = 0 if isinstance(record, Header | End) else record.engine
        cancelled = record.request if isinstance(record, Abort) else 0
        order = (record.RANK, engine if record.RANK >= Abort.RANK else 0, cancelled)
        if record.time_ns != self._time_ns:
            if record.time_ns < self._time_ns:
                raise Mismatch(Rule.ENVELOPE, f"a time from {self._time_ns} ns", f"{record.time_ns} ns")
            self._close_arrivals()
            self._time_ns = record.time_ns
        elif order < self._order:
            raise Mismatch(Rule.ENVELOPE, f"(rank, engine, request) from {self._order}", order)
        if self._refused and record.RANK > Reject.RANK:
            self._close_arrivals()
        self._order = order
        if self._records and not 0 <= engine < len(self._engines):
            raise Mismatch(Rule.ENVELOPE, f"one of {len(self._engines)} engines", f"engine {engine}")

    def _close_arrivals(self) -> None:
        """No more arrivals at this instant: who had to be refused was."""
        if self._refused:
            request, _, reason = self._refused[0]
            raise Mismatch(Rule.REJECTION, f"request {request} rejected: {reason}", "no such record at its arrival")

    def _settle(self) -> None:
        for engine in self._engines:
            engine.settle(self._time_ns)

    def _header(self, header: Header) -> None:
        found = (header.schema, header.revision)
        if found != (SCHEMA, REVISION):
            raise Mismatch(Rule.HEADER, f"{SCHEMA} revision {REVISION}", f"{found[0]} revision {found[1]}")
        if header.time_ns != 0:
            raise Mismatch(Rule.HEADER, "a header at 0 ns", f"{header.time_ns} ns")
        check_limits(header)
        self._limits = header.engine
        self._terms = terms(header.engine)
        self._max_events = header.max_events
        self._overhead_ns = header.request_overhead_ns
        self._engines = [Engine(number, header, self._live) for number in range(header.engines)]
        self._routes = Routes(header)

    def _arrive(self, record: Arrive) -> None:
        self._settle()
        index, limits = record.request, self._limits
        assert limits is not None
        engine = self._engines[record.engine]
        if index != len(self._ids):
            raise Mismatch(Rule.ARRIVAL, f"request {len(self._ids)}", f"request {index}")
        if record.time_ns < self._overhead_ns:
            raise Mismatch(
                Rule.ARRIVAL,
                f"an arrival from {self._overhead_ns} ns on, sent as long before",
                f"one at {record.time_ns} ns",
            )
        check_request(record, self._ids)
        if len(self._engines) > 1 and record.engine != (due := self._routes.expected(record)):
            raise Mismatch(Rule.ROUTING, f"request {index} sent to engine {due}", f"to engine {record.engine}")
        self._ids[record.id] = record.quotable
        reason = refusal(record, limits, self._terms)
        if reason is not None:
            self._refused.append((index, record.engine, reason))
            return
        self._routes.taken(record)
        member = Member(
            index=index,
            id=record.id,
            engine=record.engine,
            prompt_tokens=record.prompt_tokens,
            output_tokens=min(record.output_tokens, limits.max_model_len - record.prompt_tokens),
            priority=record.priority,
            order=record.time_ns if record.order_time is None else record.order_time,
            chain=engine.scheduler.chain(record.id, record.prompt_tokens, record.prompt),
            quotable=record.quotable,
        )
        self._live[index] = member
        engine.arrive(record.time_ns, member)

    def _reject(self, record: Reject) -> None:
        found = (record.request, record.engine, record.reason)
        due = self._refused[0] if self._refused else None
        if due != found:
            told = [
                f"request {request} of engine {engine}: {reason}" for request, engine, reason in (due or found, found)
            ]
            raise Mismatch(Rule.REJECTION, told[0] if due else "no rejection", told[1])
        self._refused.popleft()
        self._rejected += 1

    def _abort(self, record: Abort) -> None:
        self._settle()
        member = self._live.get(record.request)
        if member is None or member.engine != record.engine:
            expected = f"a request of engine {record.engine} that is there"
            raise Mismatch(Rule.LIFECYCLE, expected, f"request {record.request} aborted")
        del self._live[record.request]
        self._aborted += 1
        self._engines[record.engine].abort(record.time_ns, member)
        self._routes.gone(record.engine, 1)

    def _turn(self, record: Turn) -> None:
        if len(self._engines) > 1:
            self._settle()
        self._engines[record.engine].turn(record)
        self._routes.gone(record.engine, len(record.finished))
        if record.step is not None:
            self._count(1)

    def _stretch(self, record: Stretch) -> None:
        if len(self._engines) > 1:
            self._settle()
        self._engines[record.engine].stretch(record)
        self._count(record.steps)

    def _count(self, steps: int) -> None:
        self._steps += steps
        if self._steps > self._max_events:
            raise Mismatch(Rule.EVENT_BUDGET, f"at most {self._max_events} steps", f"{self._steps} steps")

    def _end(self, record: End) -> None:
        self._close_arrivals()
        for engine in self._engines:
            engine.finish(record.time_ns)
        over_ns = max(self._previous_ns, max(engine.last_end_ns for engine in self._engines))
        if record.time_ns != over_ns:
            raise Mismatch(Rule.END, f"an end at {over_ns} ns, when all is done", f"{record.time_ns} ns")
        self._ended = True
        summary = self.finish()
        for field in ("arrived", "completed", "rejected", "aborted", "unfinished", "steps"):
            due, said = getattr(summary, field), getattr(record, field)
            if due != said:
                raise Mismatch(Rule.END, f"{field} {due}", f"{field} {said}")


def replay_log(path: Path | str) -> ReplaySummary:
    """Check a log file. Raises ReplayViolation at the first wrong record and LogError where it cannot be read.

    A log that is cut is checked up to the cut; then TruncatedLog is raised, which names the last good sequence.
    """
    replay, digest = Replay(), LogDigest()
    for records in read_log(path):
        replay.read(records)
        digest.read(records)
    return msgspec.structs.replace(replay.finish(), log_digest=digest.hexdigest())
