"""What is submitted next: the state of all executions, and the one order in which ready steps book.

A step is ready when its dependencies have finished, its not-before time has come and its execution has the turn of its
communicator. All that are ready at one moment are submitted at that moment, by order of admission and place in the
plan; a step whose turn comes by one of these submissions takes its place among those that are left.

Pure: it knows moments but no clock. The closed form and the processes both ask it.
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heappop, heappush

import msgspec

from isim.machine.bookings import Booking, Bookings
from isim.machine.moment import time_of
from isim.machine.program import Program, Work
from isim.machine.resources import Resources
from isim.machine.sequencer import Sequencer
from isim.record.execution import ExecutionStatus, RankTerminal, Submit, Terminal


class Execution:
    """One execution of a program. `waits` counts, for each step, what it still waits for."""

    __slots__ = ("admission", "finish_ns", "id", "left", "program", "submitted", "waits")

    def __init__(self, name: str, admission: int, program: Program) -> None:
        self.id = name
        self.admission = admission
        self.program = program
        self.waits = [work.waits for work in program.steps]
        self.finish_ns = [0] * len(program.steps)
        self.left = len(program.steps)
        self.submitted = 0


class Submission(msgspec.Struct, frozen=True):
    """A step that was submitted. `sequence` counts over all executions, `source_sequence` in its own."""

    sequence: int
    source_sequence: int
    moment: int
    execution: Execution
    place: int
    booking: Booking

    @property
    def start_ns(self) -> int:
        """When it starts, as booked."""
        return time_of(self.booking.start)

    @property
    def work(self) -> Work:
        """The step itself."""
        return self.execution.program.steps[self.place]

    def record(self) -> Submit:
        """What the log says of it."""
        work = self.work
        return Submit(
            time_ns=time_of(self.moment),
            execution=self.execution.id,
            step=work.fact.id,
            sequence=self.sequence,
            source_sequence=self.source_sequence,
            lanes=tuple(zip(work.names, self.booking.lanes, strict=True)),
            reads=work.fact.reads,
            writes=work.fact.writes,
            collective=work.evidence,
        )


class Dispatcher:
    """Owns the executions, the bookings and the order of submission."""

    def __init__(self, machine: Resources) -> None:
        self._bookings = Bookings([resource.lanes for resource in machine.resources])
        self.sequencers = {group.id: Sequencer(group.id) for group in machine.header.groups}
        self._executions: dict[int, Execution] = {}
        self._ready: list[tuple[int, int]] = []
        self._submitted = 0

    def admit(self, execution: Execution, held: Iterable[int]) -> None:
        """Take an execution in. `held` are the places of steps that also wait for `release`."""
        self._executions[execution.admission] = execution
        program = execution.program
        for group, operations in program.collectives.items():
            self.sequencers[group].register(execution.admission, operations)
        for place in held:
            execution.waits[place] += 1
        for place, waits in enumerate(execution.waits):
            if not waits:
                self._is_ready(execution, place)

    def release(self, execution: Execution, place: int) -> None:
        """The not-before time of a step has come."""
        self._one_less(execution, place)

    def finish(self, submission: Submission) -> Terminal | None:
        """A step has finished; the execution's terminal if it was the last."""
        execution, place = submission.execution, submission.place
        execution.finish_ns[place] = time_of(submission.booking.finish)
        execution.left -= 1
        for follower in execution.program.steps[place].after:
            self._one_less(execution, follower)
        if execution.left:
            return None
        del self._executions[execution.admission]
        return _terminal(execution)

    def select(self, moment: int) -> list[Submission]:
        """Submit all that is ready."""
        submissions = []
        ready = self._ready
        while ready:
            admission, place = heappop(ready)
            execution = self._executions[admission]
            work = execution.program.steps[place]
            booking = self._bookings.book(moment, work.duration_ns, work.resources, work.read_roots, work.write_roots)
            submissions.append(Submission(self._submitted, execution.submitted, moment, execution, place, booking))
            self._submitted += 1
            execution.submitted += 1
            if work.evidence is not None:
                for turn in self.sequencers[work.group].submitted(admission, work.evidence.comm_sequence):
                    heappush(ready, turn)
        return submissions

    def _one_less(self, execution: Execution, place: int) -> None:
        execution.waits[place] -= 1
        if not execution.waits[place]:
            self._is_ready(execution, place)

    def _is_ready(self, execution: Execution, place: int) -> None:
        group = execution.program.steps[place].group
        if not group or self.sequencers[group].ready(execution.admission, place):
            heappush(self._ready, (execution.admission, place))


def _terminal(execution: Execution) -> Terminal:
    last_ns = dict.fromkeys(execution.program.ranks, 0)
    for work, finish_ns in zip(execution.program.steps, execution.finish_ns, strict=True):
        for rank in work.fact.participants:
            if finish_ns > last_ns[rank]:
                last_ns[rank] = finish_ns
    return Terminal(
        time_ns=max(execution.finish_ns),
        execution=execution.id,
        status=ExecutionStatus.SUCCEEDED,
        operations=len(execution.program.steps),
        ranks=tuple(
            RankTerminal(rank=rank, status=ExecutionStatus.SUCCEEDED, time_ns=time_ns)
            for rank, time_ns in last_ns.items()
        ),
    )
