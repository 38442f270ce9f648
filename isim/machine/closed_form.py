"""The executor without processes: one heap of moments. For long runs; equal to the processes to the nanosecond.

It streams: executions may be admitted while it runs, as long as they do not arrive before what was already told.
"""

from __future__ import annotations

from heapq import heappop, heappush

from isim.machine.dispatcher import Dispatcher, Execution, Submission
from isim.machine.moment import moment_of, time_of
from isim.machine.requests import ExecutionRequest
from isim.machine.resources import Resources
from isim.record.errors import CausalityError
from isim.record.execution import Admit, Finish, Release, Start, Submit, Terminal
from isim.record.execution_log import ExecutionLog

_FINISH, _ADMIT, _RELEASE, _SUBMIT, _START = (kind.RANK for kind in (Finish, Admit, Release, Submit, Start))
_PLACES = 1 << 32

Due = tuple[Execution, int] | Submission | tuple[ExecutionRequest, int]


class ClosedForm:
    """Entries of the heap are (moment, rank, key, what is due); no two have the same first three."""

    def __init__(self, machine: Resources, log: ExecutionLog) -> None:
        self._log = log
        self._dispatcher = Dispatcher(machine)
        self._heap: list[tuple[int, int, int, Due]] = []
        self._admitted = 0
        self._now = 0
        self._terminals: list[tuple[int, Terminal]] = []

    @property
    def now_ns(self) -> int:
        """The time of the last thing that happened."""
        return time_of(self._now)

    def admit(self, request: ExecutionRequest) -> None:
        """Admit an execution at its arrival; in the order of arrival, and not in the past."""
        moment = moment_of(request.arrival_ns)
        if moment < self._now:
            raise CausalityError(f"an admission at {request.arrival_ns} ns, after {self.now_ns} ns was told")
        heappush(self._heap, (moment, _ADMIT, self._admitted, (request, self._admitted)))
        self._admitted += 1

    def advance(self, until_ns: int) -> None:
        """Run everything that happens before `until_ns`."""
        heap, limit = self._heap, moment_of(until_ns)
        while heap and heap[0][0] < limit:
            self._run(heap[0][0])

    def drain(self) -> None:
        """Run to the end."""
        while self._heap:
            self._run(self._heap[0][0])

    def _run(self, moment: int) -> None:
        heap, emit = self._heap, self._log.emit
        self._now = moment
        while heap and heap[0][0] == moment and heap[0][1] < _SUBMIT:
            _, rank, _, due = heappop(heap)
            self._due(rank, due)
        started = []
        for submission in self._dispatcher.select(moment):
            emit(submission.record())
            booking = submission.booking
            heappush(heap, (booking.finish, _FINISH, submission.sequence, submission))
            if booking.start > moment:
                heappush(heap, (booking.start, _START, submission.sequence, submission))
            else:
                started.append(submission)
        time_ns = time_of(moment)
        while heap and heap[0][0] == moment:
            emit(Start(time_ns=time_ns, sequence=heappop(heap)[2]))
        for submission in started:
            emit(Start(time_ns=time_ns, sequence=submission.sequence))
        if self._terminals:
            for _, terminal in sorted(self._terminals, key=lambda pair: pair[0]):
                emit(terminal)
            self._terminals.clear()

    def _due(self, rank: int, due: Due) -> None:
        time_ns = self.now_ns
        if isinstance(due, Submission):
            self._log.emit(Finish(time_ns=time_ns, sequence=due.sequence))
            terminal = self._dispatcher.finish(due)
            if terminal is not None:
                self._terminals.append((due.execution.admission, terminal))
            return
        subject, number = due
        if isinstance(subject, Execution):
            step = subject.program.steps[number].fact.id
            self._log.emit(Release(time_ns=time_ns, execution=subject.id, step=step))
            self._dispatcher.release(subject, number)
        else:
            self._admission(subject, number)

    def _admission(self, request: ExecutionRequest, number: int) -> None:
        self._log.admit(request.program.records, request.admit(number))
        execution = Execution(request.execution, number, request.program)
        releases = request.releases()
        for place, time_ns in releases:
            heappush(self._heap, (moment_of(time_ns), _RELEASE, number * _PLACES + place, (execution, place)))
        self._dispatcher.admit(execution, [place for place, _ in releases])
