"""The lease desk: who reads and who writes which allocation, right now. The one owner of that.

A step that holds all of its lanes asks here to start. It starts at the moment that its booking says, when all that ends
at that moment has ended. By then it must hold its lanes, and nobody else what it wants to have for itself: bookings
promise that, and a promise that was not kept is our bug.
"""

from __future__ import annotations

from collections.abc import Generator
from heapq import heappop, heappush
from typing import Protocol

from isim.kernel import Actor, Alarm, Kernel, Rank
from isim.machine.lane import Flight
from isim.machine.moment import time_of
from isim.record.errors import CausalityError


class Rounds(Protocol):
    """Whom the desk deals with."""

    def moment(self) -> int:
        """The present moment."""

    def started(self, flight: Flight) -> None:
        """A step has started."""


class Desk:
    """Holds leases from the start of a step to its finish."""

    def __init__(self, kernel: Kernel, rounds: Rounds) -> None:
        self._kernel = kernel
        self._rounds = rounds
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
        moment = self._rounds.moment()
        while self._waiting and self._waiting[0][0] <= moment:
            booked, sequence, flight = heappop(self._waiting)
            if booked < moment or not self._free(flight):
                raise CausalityError(
                    f"submission {sequence} was to start at {time_of(booked)} ns, {moment - booked} moments ago, "
                    f"and its leases are {'free' if self._free(flight) else 'taken'}"
                )
            self._start(flight)
        if self._waiting and time_of(self._waiting[0][0]) > self._kernel.now_ns:
            alarm.set_at(time_of(self._waiting[0][0]))

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
        self._rounds.started(flight)
