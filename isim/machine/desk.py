"""The lease desk: who reads and who writes which allocation, right now. The one owner of that.

A step that holds all of its lanes asks here to start. It may when the time has come that its booking says, and nobody
holds what it wants; who asks at an instant is served when all that ends at the instant has ended, in the order of
bookings. A step that could not start when its booking says would be our bug, and so would one that has to share what it
writes.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from heapq import heappop, heappush

from isim.kernel import Actor, Alarm, Kernel, Rank
from isim.machine.lane import Flight
from isim.record.errors import CausalityError


class Desk:
    """Holds leases from the start of a step to its finish. `on_start` is told of each step that starts."""

    def __init__(self, kernel: Kernel, on_start: Callable[[Flight], None]) -> None:
        self._kernel = kernel
        self._on_start = on_start
        self._waiting: list[tuple[int, int, Flight]] = []
        self._readers: dict[str, int] = {}
        self._writers: dict[str, int] = {}
        self._actor = kernel.spawn("lease desk", Rank.REPORT, self._body)

    def ask(self, flight: Flight) -> None:
        """This step holds its lanes and wants to start."""
        submission = flight.submission
        heappush(self._waiting, (submission.booking.start, submission.sequence, flight))
        self._actor.alarm.fire()

    def give_back(self, flight: Flight) -> None:
        """This step has finished."""
        work = flight.submission.work
        for name in work.write_roots:
            del self._writers[name]
        for name in work.read_roots:
            self._readers[name] -= 1
        if self._waiting:
            self._actor.alarm.fire()

    def _body(self, actor: Actor) -> Generator[Alarm, None, None]:
        actor.waits_for = "steps that hold their lanes"
        while True:
            yield actor.alarm.wait()
            self._serve(actor.alarm)

    def _serve(self, alarm: Alarm) -> None:
        now_ns = self._kernel.now_ns
        blocked = []
        while self._waiting and self._waiting[0][2].submission.start_ns <= now_ns:
            entry = heappop(self._waiting)
            flight = entry[2]
            if flight.submission.start_ns < now_ns:
                raise CausalityError(f"submission {entry[1]} was to start at {flight.submission.start_ns} ns")
            if self._free(flight):
                self._start(flight)
            else:
                blocked.append(entry)
        for entry in blocked:
            heappush(self._waiting, entry)
        later = [entry for entry in self._waiting[:1] if entry[2].submission.start_ns > now_ns]
        if later:
            alarm.set_at(later[0][2].submission.start_ns)

    def _free(self, flight: Flight) -> bool:
        work = flight.submission.work
        if any(name in self._writers for name in (*work.read_roots, *work.write_roots)):
            return False
        return not any(self._readers.get(name) for name in work.write_roots)

    def _start(self, flight: Flight) -> None:
        work = flight.submission.work
        for name in work.write_roots:
            self._writers[name] = flight.submission.sequence
        for name in work.read_roots:
            self._readers[name] = self._readers.get(name, 0) + 1
        flight.end_ns = self._kernel.now_ns + work.duration_ns
        flight.lanes[0].actor.alarm.set_at(flight.end_ns)
        self._on_start(flight)
