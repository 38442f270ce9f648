"""Actors: a SimPy process over a generator, with a name, a rank, an alarm, and a word on what it waits for."""

from __future__ import annotations

from collections.abc import Callable, Generator

from isim.kernel.agenda import Agenda
from isim.kernel.alarm import Alarm
from isim.kernel.clock import Rank
from isim.kernel.simpy_core import Environment, Event, EventPriority, Initialize, Process
from isim.record.errors import CausalityError

Body = Callable[["Actor"], Generator[Alarm, None, None]]
"""What an actor does: a generator function that yields `actor.alarm.wait()` and nothing else."""


class ActorEnvironment(Environment):
    """SimPy's environment without a queue of its own: actors start and wake through the agenda.

    What SimPy itself wants to schedule is the start of a process, which the actor does, and its end, at which an
    exception is raised as it is: SimPy would raise a copy, `type(e)(*e.args)`, which fails for keyword-only arguments.
    """

    def schedule(self, event: Event, priority: EventPriority | int = 1, delay: int | float = 0) -> None:
        if isinstance(event, Initialize):
            return
        if not isinstance(event, Process):
            found = f"{event!r} (priority {priority}, delay {delay})"
            raise CausalityError(f"actors wait for their alarm only, found SimPy's {found}")
        if not event.ok:
            raise event._value


class Actor:
    """A named process. `waits_for` is free text for the deadlock report; the body keeps it up to date."""

    __slots__ = ("_process", "_steps", "alarm", "name", "stamp", "waits_for")

    def __init__(self, agenda: Agenda, env: ActorEnvironment, name: str, rank: Rank, body: Body) -> None:
        self.name = name
        self.alarm = Alarm(agenda, env, name, rank)
        self.waits_for = "its alarm"
        self.stamp = 0
        self._steps = body(self)
        self._process = Process(env, self._steps)

    @property
    def alive(self) -> bool:
        """True until the body returns."""
        return self._process.is_alive

    def ring(self) -> None:
        """Called by the agenda, once: start."""
        start = self._process.target
        for resume in start.callbacks:
            resume(start)

    def describe(self) -> str:
        return f"start of {self.name}"

    def close(self) -> None:
        """End the body where it waits; its `finally` blocks run."""
        self._steps.close()
