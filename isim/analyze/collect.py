"""The one reader of the log that all numbers come from: records in, columns of integers out.

Nothing is computed here that is not needed to read on; what the columns mean for a person is worked out
afterwards (`isim.analyze.latency`, `isim.analyze.windows`). There is no object for a token or a step:

    requests   one row each; first and last token are named by the *step* that gave them, and by its end
    steps      one entry each: the time from the end of the step before to its own end. Where the engine did not
               idle in between, that is the step's duration
    runs       one row for each record that schedules, and one for each time in between in which the device was
               idle: when it began, and how many requests were on the device until the next one

A step starts when it was decided, or when the step before ends, whichever is later (see isim.record.records).
From its first to its last token a request gets one from every step, but for the *holes*: steps between a token
that the log calls late and the token before.

This runs in every simulation, a few records for each request and one entry for each step, so the loops are plain.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from enum import IntEnum
from itertools import accumulate
from operator import attrgetter, mul, sub
from struct import pack

from isim.record.errors import CausalityError
from isim.record.records import Abort, AnyRecord, Arrive, End, Header, Reject, RejectReason, Stretch, Turn

_AREA_RUNS = 512
NEVER = -1
"""In a column of times or steps: it did not happen."""
_free_blocks = attrgetter("free_blocks")
_NEVERS = array("q", [NEVER])
_ZEROS = array("q", [0])


def _extend(column: array[int], values: list[int]) -> None:
    """All at once: appending them one by one takes several times as long."""
    column.frombytes(pack(f"{len(values)}q", *values))


class Status(IntEnum):
    UNFINISHED = 0
    COMPLETED = 1
    REJECTED = 2
    ABORTED = 3


_COMPLETED = Status.COMPLETED.value


class RequestColumns:
    """One row for each request, in order of arrival; `late_*` has one row for each late token."""

    def __init__(self) -> None:
        self.ids: list[str] = []
        self.engine = array("q")
        self.arrival_ns = array("q")
        self.sent_ns = self.arrival_ns
        """When its client sent it: the same column, unless there is something on the way to the engine."""
        self.input_tokens = array("q")
        self.asked_tokens = array("q")
        self.start_ns = array("q")
        self.first_step = array("q")
        self.last_step = array("q")
        self.first_ns = array("q")
        self.finish_ns = array("q")
        self.hit_tokens = array("q")
        self.preemptions = array("q")
        self.status = array("q")
        self.reasons: dict[int, RejectReason] = {}
        self.late_request = array("q")
        self.late_step = array("q")
        self.late_previous = array("q")

    def __len__(self) -> int:
        return len(self.ids)

    def add(self, arrivals: Sequence[Arrive]) -> None:
        for never in (self.start_ns, self.first_step, self.last_step, self.first_ns, self.finish_ns):
            never.extend(_NEVERS * len(arrivals))
        for zero in (self.hit_tokens, self.preemptions, self.status):
            zero.extend(_ZEROS * len(arrivals))
        self.ids += [record.id for record in arrivals]
        _extend(self.engine, [record.engine for record in arrivals])
        _extend(self.arrival_ns, [record.time_ns for record in arrivals])
        _extend(self.input_tokens, [record.prompt_tokens for record in arrivals])
        _extend(self.asked_tokens, [record.output_tokens for record in arrivals])

    def late(self) -> Iterator[tuple[int, int, int]]:
        """(request, step, step of its token before) of each late token."""
        return zip(self.late_request, self.late_step, self.late_previous, strict=True)


class StepColumns:
    """The steps of one engine, and the runs of steps the log told them in."""

    def __init__(self, usable_blocks: int) -> None:
        self.spans_ns = array("q")
        self.run_start_ns = array("q")
        self.run_batch = array("q")
        self._areas: list[int] = []
        """Of all runs before every _AREA_RUNS-th."""
        self.last_end_ns = 0
        self.idle_ns = 0
        self.prefill_steps = 0
        self.usable_blocks = usable_blocks
        self.least_free_blocks = usable_blocks
        self.most_running = 0
        self._chunk_steps: list[int] = []
        """Steps told by the end of each batch of records, and when the last of them ended."""
        self._chunk_end_ns: list[int] = []
        self._seen_chunk = -1
        self._seen_ends_ns: list[int] = []

    def settle(self) -> None:
        """Every step was read: prepare the areas of the runs."""
        pieces = range(0, len(self.run_start_ns), _AREA_RUNS)
        self._areas = list(accumulate((self._area(start, start + _AREA_RUNS) for start in pieces), initial=0))

    def _area(self, start: int, end: int) -> int:
        """Requests on the device times nanoseconds of some runs."""
        starts_ns = self.run_start_ns[start : end + 1]
        if end >= len(self.run_start_ns):
            starts_ns.append(self.last_end_ns)
        return sum(map(mul, self.run_batch[start:end], map(sub, starts_ns[1:], starts_ns)))

    def area_by(self, time_ns: int) -> int:
        """Requests on the device times nanoseconds, from the start up to this time."""
        run = bisect_right(self.run_start_ns, time_ns) - 1
        if run < 0:
            return 0
        piece = run // _AREA_RUNS
        before = self._areas[piece] + self._area(piece * _AREA_RUNS, run)
        end_ns = self.run_start_ns[run + 1] if run + 1 < len(self.run_start_ns) else self.last_end_ns
        return before + self.run_batch[run] * (min(time_ns, end_ns) - self.run_start_ns[run])

    def extend(self, spans_ns: list[int], starts_ns: list[int], batches: list[int], last_end_ns: int) -> None:
        """Append steps, the last of which ended at `last_end_ns`, and runs."""
        _extend(self.spans_ns, spans_ns)
        _extend(self.run_start_ns, starts_ns)
        _extend(self.run_batch, batches)
        self.last_end_ns = last_end_ns
        if spans_ns:
            self._chunk_steps.append(len(self.spans_ns))
            self._chunk_end_ns.append(last_end_ns)

    def later_ns(self, step: int, more_ns: Sequence[int]) -> int:
        """The time from the end of a step to that of the last one of `more_ns`, which follow those known so far."""
        first = step + 1 - len(self.spans_ns)
        return sum(more_ns[first:]) if first >= 0 else sum(self.spans_ns[first:]) + sum(more_ns)

    def ended_by(self, time_ns: int) -> int:
        """How many steps ended at or before this time."""
        chunk = bisect_right(self._chunk_end_ns, time_ns)
        if chunk == len(self._chunk_end_ns):
            return len(self.spans_ns)
        first, before_ns = (self._chunk_steps[chunk - 1], self._chunk_end_ns[chunk - 1]) if chunk else (0, 0)
        if chunk != self._seen_chunk:
            spans_ns = self.spans_ns[first : self._chunk_steps[chunk]]
            self._seen_chunk, self._seen_ends_ns = chunk, list(accumulate(spans_ns, initial=before_ns))
        return first + bisect_right(self._seen_ends_ns, time_ns, lo=1) - 1


class Collector:
    """Give `read` the records of one run in order, then call `finish`; the columns are whole after that."""

    def __init__(self) -> None:
        self.requests = RequestColumns()
        self.engines: list[StepColumns] = []
        self.resumed_hit_tokens = 0
        self._end_ns = 0
        self._header: Header | None = None
        self._held: dict[int, list[int]] = {}
        self._aborted: dict[int, int] = {}

    @property
    def header(self) -> Header:
        """The first record of the log; a bug of ours when nothing was read yet."""
        if self._header is None:
            raise CausalityError("the analysis was asked before it had read the header of the log")
        return self._header

    def read(self, records: Sequence[AnyRecord]) -> None:
        """Read on, everything in order."""
        lanes: dict[tuple[int, int], list[AnyRecord]] = {}
        for record in records:
            place = (record.RANK, record.engine if isinstance(record, Turn | Stretch) else 0)
            lanes.setdefault(place, []).append(record)
        self.read_lanes([lanes[place] for place in sorted(lanes)])

    def read_lanes(self, lanes: Sequence[Sequence[AnyRecord]]) -> None:
        """Read on. Arrivals first: what a record says of a request never depends on a later arrival."""
        if self._header is None and lanes:
            self._begin(lanes[0][0])
        for lane in lanes:
            first = lane[0]
            if isinstance(first, Turn | Stretch):
                self._steps(self.engines[first.engine], lane)  # type: ignore[arg-type] # one kind and owner to a lane
            elif isinstance(first, Arrive):
                self._arrivals(lane)  # type: ignore[arg-type] # as above
            else:
                self._leavings(lane)

    def finish(self) -> None:
        """All records were read: settle the columns, and the last tokens of requests that did not complete."""
        requests = self.requests
        overhead_ns = self.header.request_overhead_ns
        if overhead_ns:
            requests.sent_ns = array("q", [time_ns - overhead_ns for time_ns in requests.arrival_ns])
        for steps in self.engines:
            steps.settle()
        status = requests.status
        if status.count(Status.COMPLETED) + status.count(Status.REJECTED) == len(status):
            return
        for request, first_step in enumerate(requests.first_step):
            if first_step != NEVER and status[request] != Status.COMPLETED:
                self._cut(request)

    def gone_ns(self, request: int) -> int:
        """When a request that did not complete was let go of, or the log ended."""
        return self._aborted.get(request, self._end_ns)

    def _begin(self, header: AnyRecord) -> None:
        if not isinstance(header, Header):
            raise CausalityError(f"expected the header as the first record of a log, found {header}")
        self._header = header
        self.engines = [StepColumns(header.engine.num_blocks - 1) for _ in range(header.engines)]

    def _arrivals(self, arrivals: Sequence[Arrive]) -> None:
        arrived = len(self.requests)
        if [record.request for record in arrivals] != list(range(arrived, arrived + len(arrivals))):
            index, found = next(
                (index, record.request) for index, record in enumerate(arrivals, arrived) if record.request != index
            )
            raise CausalityError(f"expected the arrival of request {index}, the log has {found}")
        self.requests.add(arrivals)

    def _leavings(self, records: Sequence[AnyRecord]) -> None:
        for record in records:
            if isinstance(record, Reject):
                self.requests.status[record.request] = Status.REJECTED
                self.requests.reasons[record.request] = record.reason
            elif isinstance(record, Abort):
                self.requests.status[record.request] = Status.ABORTED
                self._aborted[record.request] = record.time_ns
            elif isinstance(record, End):
                self._end_ns = record.time_ns

    def _steps(self, steps: StepColumns, records: Sequence[Turn | Stretch]) -> None:
        """Records of one engine. Columns grow in one go at the end: this is the loop that costs."""
        spans_ns: list[int] = []
        starts_ns: list[int] = []
        batches: list[int] = []
        fewest = [steps.least_free_blocks, *map(_free_blocks, records)]
        last_end_ns = steps.last_end_ns
        newest = len(steps.spans_ns) - 1
        for record in records:
            if isinstance(record, Stretch):
                start_ns, batch, count = record.schedule_ns, record.batch, record.steps
                durations_ns = record.durations_ns
                if len(durations_ns) != count:
                    durations_ns = durations_ns * count
                if record.least_free_blocks is not None:
                    fewest.append(record.least_free_blocks)
                took_ns = sum(durations_ns)
                spans_ns += durations_ns
            else:
                ended = record.ended
                if ended is not None:
                    ended_ns = last_end_ns
                    if ended != newest + len(spans_ns):
                        ended_ns -= steps.later_ns(ended, spans_ns)
                    self._outcome(record, ended, ended_ns)
                if record.preempted or record.skipped:
                    self._hold(record, newest + len(spans_ns))
                if record.step is None:
                    continue
                start_ns, batch, count, took_ns = record.time_ns, record.scheduled, 1, record.duration_ns
                if record.admitted or record.chunks:
                    self._admit(steps, record, start_ns if start_ns > last_end_ns else last_end_ns)
                spans_ns.append(took_ns)
            if start_ns > last_end_ns:
                spans_ns[-count] += start_ns - last_end_ns
                steps.idle_ns += start_ns - last_end_ns
                starts_ns.append(last_end_ns)
                batches.append(0)
                last_end_ns = start_ns
            starts_ns.append(last_end_ns)
            batches.append(batch)
            last_end_ns += took_ns
        steps.extend(spans_ns, starts_ns, batches, last_end_ns)
        steps.least_free_blocks = min(fewest)

    def _outcome(self, turn: Turn, ended: int, ended_ns: int) -> None:
        """What the step `ended`, which ended at `ended_ns`, brought to requests."""
        requests = self.requests
        for request in turn.first:
            requests.first_step[request] = ended
            requests.first_ns[request] = ended_ns
            if self._held:
                self._resume(request, ended)
        for request in turn.finished:
            requests.last_step[request] = ended
            requests.finish_ns[request] = ended_ns
            requests.status[request] = _COMPLETED
        if turn.late:
            self._late(turn, ended)

    def _late(self, turn: Turn, ended: int) -> None:
        requests = self.requests
        for request, previous in turn.late:
            requests.late_request.append(request)
            requests.late_step.append(ended)
            requests.late_previous.append(previous)
            self._resume(request, ended)

    def _admit(self, steps: StepColumns, turn: Turn, start_ns: int) -> None:
        steps.prefill_steps += 1
        if turn.running > steps.most_running:
            steps.most_running = turn.running
        starts_ns = self.requests.start_ns
        for request, hit_tokens, _ in turn.admitted:
            if starts_ns[request] == NEVER:
                starts_ns[request] = start_ns
                if hit_tokens:
                    self.requests.hit_tokens[request] = hit_tokens
            else:
                self.resumed_hit_tokens += hit_tokens

    def _hold(self, turn: Turn, last_step: int) -> None:
        """Remember after which step these requests get no token for a while; only an abort will ask."""
        for request in turn.preempted:
            self.requests.preemptions[request] += 1
            self._held.setdefault(request, []).append(last_step)
        for request in turn.skipped:
            self._held.setdefault(request, []).append(last_step)

    def _resume(self, request: int, step: int) -> None:
        """This step gave it a token; what held it before is over, what held it since (decided earlier) is not."""
        holds = self._held.pop(request, None)
        later = [hold for hold in holds if hold >= step] if holds else None
        if later:
            self._held[request] = later

    def _cut(self, request: int) -> None:
        """The last token of a request that left without finishing: output of a step still running is dropped.

        A request is let go of after the output that has come by then, so a step that ends at that instant counts.
        """
        requests = self.requests
        last = self.engines[requests.engine[request]].ended_by(self.gone_ns(request)) - 1
        requests.last_step[request] = min([last, *self._held.get(request, ())])
