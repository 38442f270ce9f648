"""The alarm: the one thing an actor waits for.

Everything that may concern an actor (a time it set itself, a message, a lease that ended, a disturbance) fires its
alarm, and the actor, once awake, looks at its state to see what happened. A wake-up therefore says *look*, never
*what*, and one too many does no harm. Nothing is ever interrupted.

Whoever fires only enters the owner in the agenda; the owner runs at this instant *at its own rank*, after everything
of an earlier rank. When that rank has already passed it runs next. An owner woken inside its waker's rank would see
half of the instant.
"""

from __future__ import annotations

from heapq import heappush

from isim.kernel.agenda import NO_KEY, Agenda
from isim.kernel.clock import Rank, check_time_ns
from isim.kernel.simpy_core import Environment, Event
from isim.record.errors import CausalityError


class _Timer:
    """The alarm's entry at a time that was set; apart, because it lives and dies apart from firings."""

    __slots__ = ("_alarm", "stamp")

    def __init__(self, alarm: Alarm) -> None:
        self._alarm = alarm
        self.stamp = 0

    def ring(self) -> None:
        self._alarm.armed_ns = None
        self._alarm.wake()

    def describe(self) -> str:
        return f"timer of {self._alarm.name}"


class Alarm(Event):
    """Wakes one actor. It is a SimPy event that is used again and again instead of being made anew for each wait.

    `armed_ns` is the time set, or None: read it, do not write it.
    """

    def __init__(self, agenda: Agenda, env: Environment, name: str, rank: Rank) -> None:
        super().__init__(env)
        self._ok = True
        self._value = None
        self.name = name
        self.rank = int(rank)
        self.stamp = 0
        self.armed_ns: int | None = None
        self._agenda = agenda
        self._timer = _Timer(self)
        self._pending = False
        self._missed = False

    def wait(self) -> Alarm:
        """What the owner yields: `yield actor.alarm.wait()`. A firing that came before the first wait is not lost."""
        if self.callbacks:
            raise CausalityError(f"somebody else waits for the alarm of {self.name}: an alarm has one owner")
        if self._missed:
            self._missed = False
            self.fire()
        return self

    def fire(self) -> None:
        """Wake the owner at this instant, at its own rank; once, however often this is called until it wakes."""
        if not self._pending:
            self._pending = True
            agenda = self._agenda
            heappush(agenda.heap, (agenda.now_ns, self.rank, NO_KEY, next(agenda.ties), self.stamp, self))

    def set_at(self, time_ns: int) -> None:
        """Wake the owner at `time_ns`, instead of at the time set before. Raises CausalityError for a bad time."""
        check_time_ns(time_ns, self._agenda.now_ns)
        if time_ns != self.armed_ns:
            self.clear()
            self.armed_ns = time_ns
            self._agenda.push(time_ns, self.rank, self._timer)

    def clear(self) -> None:
        """Forget the time set. A firing of this instant still wakes the owner."""
        if self.armed_ns is not None:
            self.armed_ns = None
            self._agenda.retire(self._timer)

    def ring(self) -> None:
        """Called by the agenda."""
        self.wake()

    def wake(self) -> None:
        """Resume the owner now: for entries at its rank. What else was to wake it at this instant is used up."""
        if self.armed_ns is not None and self.armed_ns == self._agenda.now_ns:
            self.clear()
        if self._pending:
            self._pending = False
            self.stamp += 1
        if self.callbacks:
            self.callbacks.pop()(self)
        else:
            self._missed = True

    def describe(self) -> str:
        return f"wake-up of {self.name}"
