"""The coordinator: the process that takes in what finished, arrived and was released, and submits what is ready.

It wakes once in each round of an instant, after completions, arrivals and releases of that round, asks the dispatcher,
and puts what that decides in the lines of the lanes.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence

from isim.kernel import Actor, Alarm, Kernel, Mailbox, Rank
from isim.machine.desk import Desk
from isim.machine.dispatcher import Dispatcher, Execution
from isim.machine.journal import Journal
from isim.machine.lane import Flight, Lane
from isim.machine.moment import moment_of
from isim.machine.requests import ExecutionRequest
from isim.machine.resources import Resources
from isim.record.execution import Admit, Finish, Release, Start

_PLACES = 1 << 32

Item = Flight | tuple[ExecutionRequest, int] | tuple[Execution, int]


class Coordinator:
    """Owns the executions; lanes and the desk own theirs. `left` counts executions that are not terminal."""

    def __init__(
        self, kernel: Kernel, machine: Resources, journal: Journal, requests: Sequence[ExecutionRequest]
    ) -> None:
        self._kernel = kernel
        self._journal = journal
        self._requests = requests
        self._left = len(requests)
        self._dispatcher = Dispatcher(machine)
        self._desk = Desk(kernel, self)
        self._machine = machine
        self._lanes = [[Lane(kernel, f"{resource.id}/0", self)] for resource in machine.resources]
        self._round = -1
        self._round_ns = 0
        self._mailbox: Mailbox[Item] = Mailbox(kernel.spawn("coordinator", Rank.ENGINE, self._body).alarm)
        kernel.spawn("arrivals", Rank.ARRIVAL, self._arrivals)

    # ---- called by lanes and desk

    def moment(self) -> int:
        """The present moment: where nothing of this instant was taken in yet, its first."""
        now_ns = self._kernel.now_ns
        return moment_of(now_ns) + (self._round if now_ns == self._round_ns else 0)

    def started(self, flight: Flight) -> None:
        """A step has started."""
        sequence, now_ns = flight.submission.sequence, self._kernel.now_ns
        self._journal.tell(self.moment() - moment_of(now_ns), sequence, Start(time_ns=now_ns, sequence=sequence))

    def ask(self, flight: Flight) -> None:
        """All lanes of a step are held."""
        self._desk.ask(flight)

    def land(self, flight: Flight) -> None:
        """A step has finished."""
        self._desk.give_back(flight)
        self._mailbox.put((Finish.RANK, flight.submission.sequence), flight)

    # ---- processes

    def _arrivals(self, actor: Actor) -> Generator[Alarm, None, None]:
        actor.waits_for = "the next arrival"
        for number, request in enumerate(self._requests):
            if request.arrival_ns > self._kernel.now_ns:
                actor.alarm.set_at(request.arrival_ns)
                yield actor.alarm.wait()
            self._mailbox.put((Admit.RANK, number), (request, number))

    def _body(self, actor: Actor) -> Generator[Alarm, None, None]:
        actor.waits_for = "finishes, arrivals, releases"
        while self._left:
            yield actor.alarm.wait()
            self._wake()
        self._kernel.finish()

    def _wake(self) -> None:
        now_ns = self._kernel.now_ns
        self._round = self._round + 1 if now_ns == self._round_ns else 0
        self._round_ns = now_ns
        for item in self._mailbox.take():
            if isinstance(item, Flight):
                self._finish(item)
            elif isinstance(item[0], Execution):
                self._release(item[0], item[1])
            else:
                self._admit(item[0], item[1])
        for submission in self._dispatcher.select(moment_of(now_ns) + self._round):
            self._journal.tell(self._round, submission.sequence, submission.record())
            booked = zip(submission.work.resources, submission.booking.lanes, strict=True)
            flight = Flight(submission, tuple(self._lane(resource, lane) for resource, lane in booked))
            for lane in flight.lanes:
                lane.reserve(flight)

    def _lane(self, resource: int, lane: int) -> Lane:
        """Every resource has its first lane from the start, others from their first use, which is in their order."""
        lanes = self._lanes[resource]
        if lane == len(lanes):
            lanes.append(Lane(self._kernel, f"{self._machine.resources[resource].id}/{lane}", self))
        return lanes[lane]

    def _finish(self, flight: Flight) -> None:
        submission = flight.submission
        finish = Finish(time_ns=self._kernel.now_ns, sequence=submission.sequence)
        self._journal.tell(self._round, submission.sequence, finish)
        terminal = self._dispatcher.finish(submission)
        if terminal is not None:
            self._journal.tell(self._round, submission.execution.admission, terminal)
            self._left -= 1

    def _admit(self, request: ExecutionRequest, number: int) -> None:
        self._journal.admit(self._round, number, request.program.records, request.admit(number))
        execution = Execution(request.execution, number, request.program)
        releases = request.releases()
        for place, time_ns in releases:
            self._hold(execution, place, time_ns)
        self._dispatcher.admit(execution, [place for place, _ in releases])

    def _hold(self, execution: Execution, place: int, time_ns: int) -> None:
        key = (Release.RANK, execution.admission * _PLACES + place)
        self._kernel.call_at(time_ns, Rank.RELEASE, lambda: self._mailbox.put(key, (execution, place)), key)

    def _release(self, execution: Execution, place: int) -> None:
        step = execution.program.steps[place].fact.id
        record = Release(time_ns=self._kernel.now_ns, execution=execution.id, step=step)
        self._journal.tell(self._round, execution.admission * _PLACES + place, record)
        self._dispatcher.release(execution, place)
