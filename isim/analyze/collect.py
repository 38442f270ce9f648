"""The one reader of the log that all numbers come from: records in, columns of integers out.

Nothing is computed here that is not needed to read on; what the columns mean for a person is worked out
afterwards (`isim.analyze.latency`, `isim.analyze.windows`). There is no object for a token or a step:

    requests   one row each; first and last token are named by the *step* that gave them
    steps      one entry each: the time from the end of the step before to its own end. Where the engine did not
               idle in between, that is the step's duration; summed up they are the ends of all steps
    runs       one row for each record that schedules: start, first step, requests on the device, and the *area*
               before it, which is the sum of requests x nanoseconds on the device

A step starts when it was decided, or when the step before ends, whichever is later (see isim.record.records).
From its first to its last token a request gets one from every step, but for the *holes*: steps between a token
that the log calls late and the token before.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Sequence
from enum import IntEnum
from itertools import accumulate

from isim.record.errors import CausalityError
from isim.record.records import Abort, AnyRecord, Arrive, End, Header, Reject, RejectReason, Stretch, Turn

NEVER = -1
"""In a column of times or steps: it did not happen."""


class Status(IntEnum):
    UNFINISHED = 0
    COMPLETED = 1
    REJECTED = 2
    ABORTED = 3


class RequestColumns:
    """One row for each request, in order of arrival; `late_*` has one row for each late token."""

    def __init__(self) -> None:
        self.ids: list[str] = []
        self.engine = array("i")
        self.arrival_ns = array("q")
        self.input_tokens = array("q")
        self.asked_tokens = array("q")
        self.start_ns = array("q")
        self.first_step = array("q")
        self.last_step = array("q")
        self.hit_tokens = array("q")
        self.preemptions = array("q")
        self.status = array("b")
        self.reasons: dict[int, RejectReason] = {}
        self.late_request = array("q")
        self.late_step = array("q")
        self.late_previous = array("q")

    def __len__(self) -> int:
        return len(self.ids)

    def add(self, record: Arrive) -> None:
        self.ids.append(record.id)
        self.engine.append(record.engine)
        self.arrival_ns.append(record.time_ns)
        self.input_tokens.append(record.prompt_tokens)
        self.asked_tokens.append(record.output_tokens)
        self.start_ns.append(NEVER)
        self.first_step.append(NEVER)
        self.last_step.append(NEVER)
        self.hit_tokens.append(0)
        self.preemptions.append(0)
        self.status.append(Status.UNFINISHED)


class StepColumns:
    """The steps of one engine, and the runs of steps the log told them in."""

    def __init__(self) -> None:
        self.spans_ns = array("q")
        self.ends_ns = array("q")
        self.last_end_ns = 0
        self.run_start_ns = array("q")
        self.run_step = array("q")
        self.run_batch = array("q")
        self.run_area = array("q")
        self.area = 0
        self.busy_ns = 0
        self.decode_steps = 0
        self.computed_tokens = 0
        self.high_water_blocks = 0
        self.high_water_running = 0

    def settle(self) -> None:
        """Work out the end of every step; called once, when all records were read."""
        self.ends_ns = array("q", accumulate(self.spans_ns))


class Collector:
    """Give `read` the records of one run in order, then call `finish`; the columns are whole after that."""

    def __init__(self) -> None:
        self.requests = RequestColumns()
        self.engines: list[StepColumns] = []
        self.resumed_hit_tokens = 0
        self.end_ns = 0
        self._header: Header | None = None
        self._usable_blocks = 0
        self._held: dict[int, list[int]] = {}
        self._aborted: dict[int, int] = {}
        self._readers = {
            Header: self._begin,
            Arrive: self._arrive,
            Reject: self._reject,
            Abort: self._abort,
            Turn: self._turn,
            Stretch: self._stretch,
            End: self._end,
        }

    @property
    def header(self) -> Header:
        """The first record of the log; a bug of ours when nothing was read yet."""
        if self._header is None:
            raise CausalityError("the analysis was asked before it had read the header of the log")
        return self._header

    def read(self, records: Sequence[AnyRecord]) -> None:
        readers = self._readers
        for record in records:
            readers[type(record)](record)  # type: ignore[operator] # the table pairs each kind with its own reader

    def finish(self) -> None:
        """All records were read: settle the ends of steps, and the last tokens of requests that did not complete."""
        for steps in self.engines:
            steps.settle()
        status = self.requests.status
        if status.count(Status.COMPLETED) + status.count(Status.REJECTED) == len(status):
            return
        for request, first_step in enumerate(self.requests.first_step):
            if first_step != NEVER and status[request] != Status.COMPLETED:
                self._cut(request)

    def _begin(self, header: Header) -> None:
        self._header = header
        self._usable_blocks = header.engine.num_blocks - 1
        self.engines = [StepColumns() for _ in range(header.engines)]

    def _arrive(self, record: Arrive) -> None:
        requests = self.requests
        if record.request != len(requests.ids):
            raise CausalityError(f"expected the arrival of request {len(requests.ids)}, the log has {record.request}")
        requests.add(record)

    def _reject(self, record: Reject) -> None:
        self.requests.status[record.request] = Status.REJECTED
        self.requests.reasons[record.request] = record.reason

    def _abort(self, record: Abort) -> None:
        request = record.request
        self.requests.status[request] = Status.ABORTED
        self._aborted[request] = record.time_ns

    def _end(self, record: End) -> None:
        self.end_ns = record.time_ns

    def _turn(self, turn: Turn) -> None:
        requests = self.requests
        steps = self.engines[turn.engine]
        if turn.ended is not None:
            self._output(turn, turn.ended)
        if turn.step is not None:
            start_ns = turn.time_ns
            last_end_ns = steps.last_end_ns
            if start_ns < last_end_ns:
                start_ns = last_end_ns
            steps.run_start_ns.append(start_ns)
            steps.run_step.append(turn.step)
            steps.run_batch.append(turn.scheduled)
            steps.run_area.append(steps.area)
            steps.area += turn.scheduled * turn.duration_ns
            end_ns = start_ns + turn.duration_ns
            steps.spans_ns.append(end_ns - last_end_ns)
            steps.last_end_ns = end_ns
            steps.busy_ns += turn.duration_ns
            steps.computed_tokens += turn.tokens
            if turn.tokens == turn.scheduled and not turn.admitted and not turn.chunks:
                steps.decode_steps += 1
            for request, hit_tokens, _ in turn.admitted:
                if requests.start_ns[request] < 0:
                    requests.start_ns[request] = start_ns
                    requests.hit_tokens[request] = hit_tokens
                else:
                    self.resumed_hit_tokens += hit_tokens
        if turn.preempted or turn.skipped:
            self._hold(turn, len(steps.spans_ns) - (1 if turn.step is None else 2))
        self._level(steps, turn)

    def _output(self, turn: Turn, ended: int) -> None:
        requests = self.requests
        for request in turn.first:
            requests.first_step[request] = ended
            if self._held:
                self._resume(request, ended)
        for request, previous in turn.late:
            requests.late_request.append(request)
            requests.late_step.append(ended)
            requests.late_previous.append(previous)
            self._resume(request, ended)
        for request in turn.finished:
            requests.last_step[request] = ended
            requests.status[request] = Status.COMPLETED
            self._held.pop(request, None)

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

    def _stretch(self, stretch: Stretch) -> None:
        steps = self.engines[stretch.engine]
        durations_ns = stretch.durations_ns
        count = stretch.steps
        if len(durations_ns) != count:
            durations_ns = durations_ns * count
        last_end_ns = steps.last_end_ns
        start_ns = stretch.schedule_ns
        if start_ns < last_end_ns:
            start_ns = last_end_ns
        spans_ns = steps.spans_ns
        first = len(spans_ns)
        spans_ns.fromlist(durations_ns)
        spans_ns[first] += start_ns - last_end_ns
        total_ns = sum(durations_ns)
        steps.last_end_ns = start_ns + total_ns
        steps.run_start_ns.append(start_ns)
        steps.run_step.append(stretch.step)
        steps.run_batch.append(stretch.batch)
        steps.run_area.append(steps.area)
        steps.area += stretch.batch * total_ns
        steps.busy_ns += total_ns
        steps.decode_steps += count
        steps.computed_tokens += stretch.batch * count
        self._level(steps, stretch)

    def _level(self, steps: StepColumns, record: Turn | Stretch) -> None:
        used_blocks = self._usable_blocks - record.free_blocks
        if used_blocks > steps.high_water_blocks:
            steps.high_water_blocks = used_blocks
        if record.running > steps.high_water_running:
            steps.high_water_running = record.running

    def _cut(self, request: int) -> None:
        """The last token of a request that left without finishing: output of a step still running is dropped.

        A step that ends at the very instant of the abort is processed after it, so its output is dropped too.
        """
        requests = self.requests
        ends_ns = self.engines[requests.engine[request]].ends_ns
        time_ns = self._aborted.get(request, self.end_ns + 1)
        last = bisect_left(ends_ns, time_ns) - 1
        requests.last_step[request] = min([last, *self._held.get(request, ())])
