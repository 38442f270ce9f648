"""Lanes: one process for each compute lane, directed link lane, NIC, switch fabric, and communicator sequencer.

A lane is lent by an arbiter of its own, in the order of submission. Whoever has it keeps it idle until it has all of
its lanes; that is what reserving from the submission on means. The lane that a step names first leads it: the device
computes, the link copies, the sequencer carries out the collective. It waits for the desk to let the step start, for
the step's duration, and then tells the other lanes to give themselves back. Nobody is lent a lane for a time fixed
beforehand: when a step starts and ends comes out of who waits for whom.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator
from typing import Protocol

from isim.kernel import SAFE_MAX_NS, Actor, Alarm, Arbiter, Kernel, Lease, Rank
from isim.machine.dispatcher import Submission


class Flight:
    """A step between submission and finish. `end_ns` is None until it started."""

    __slots__ = ("end_ns", "held", "lanes", "over", "submission")

    def __init__(self, submission: Submission, lanes: tuple[Lane, ...]) -> None:
        self.submission = submission
        self.lanes = lanes
        self.held = 0
        self.end_ns: int | None = None
        self.over = False


class Ground(Protocol):
    """Whom a lane deals with."""

    def ask(self, flight: Flight) -> None:
        """All lanes are held; the step wants to start."""

    def land(self, flight: Flight) -> None:
        """The step has finished."""


class Lane:
    """One lane and its process."""

    def __init__(self, kernel: Kernel, name: str, ground: Ground) -> None:
        self._kernel = kernel
        self._ground = ground
        self._arbiter = Arbiter(kernel, name)
        self._line: deque[tuple[Flight, Lease]] = deque()
        self._counted = False
        self.actor: Actor = kernel.spawn(name, Rank.COMPLETION, self._body)

    def reserve(self, flight: Flight) -> None:
        """Get in line. It is lent for as long as the clock can go, and given back when the step ends."""
        hold_ns = SAFE_MAX_NS - flight.submission.start_ns
        lease = self._arbiter.submit((flight.submission.sequence,), hold_ns, self.actor.alarm, 0)
        self._line.append((flight, lease))

    def _body(self, actor: Actor) -> Generator[Alarm, None, None]:
        actor.waits_for = "steps, their lanes, their time"
        while True:
            self._look()
            yield actor.alarm.wait()

    def _look(self) -> None:
        if not self._line or not self._line[0][1].granted:
            return
        flight, lease = self._line[0]
        if not self._counted:
            self._counted = True
            flight.held += 1
            if flight.held == len(flight.lanes):
                self._ground.ask(flight)
        if flight.lanes[0] is self and flight.end_ns == self._kernel.now_ns:
            flight.over = True
            for other in flight.lanes[1:]:
                other.actor.alarm.fire()
            self._ground.land(flight)
        if flight.over:
            self._give_back(lease)

    def _give_back(self, lease: Lease) -> None:
        assert lease.start_ns is not None
        lease.mute()
        lease.shorten(self._kernel.now_ns - lease.start_ns)
        self._line.popleft()
        self._counted = False
