"""The kernel: time, order, actors, and the end of a run. The one room that knows SimPy."""

from __future__ import annotations

from collections.abc import Callable

from isim.kernel.actor import Actor, ActorEnvironment, Body
from isim.kernel.agenda import NO_KEY, Agenda, Key
from isim.kernel.clock import SAFE_MAX_NS, Rank, check_time_ns
from isim.kernel.errors import DeadlockError
from isim.kernel.trace import Trace
from isim.record.errors import CausalityError

DEFAULT_MAX_EVENTS = 100_000_000


class _Call:
    """A callback that is due once."""

    __slots__ = ("_callback", "_calls", "_number", "stamp")

    def __init__(self, number: int, callback: Callable[[], None], calls: dict[int, _Call]) -> None:
        self._number = number
        self._callback = callback
        self._calls = calls
        self.stamp = 0

    def ring(self) -> None:
        del self._calls[self._number]
        self._callback()

    def describe(self) -> str:
        return f"call {self._number}"


class Kernel(Agenda):
    """One run. `seed` is that of the run, and only named in the decision trace.

    `shuffle_seed` perturbs the order of entries that are equal in (time, rank, key); no result may depend on it.
    `max_events` bounds expanded steps (see `spend`) and kernel events together. `trace` turns on the decision trace.
    """

    def __init__(
        self,
        *,
        max_events: int = DEFAULT_MAX_EVENTS,
        shuffle_seed: int | None = None,
        seed: int = 0,
        trace: bool = False,
    ) -> None:
        super().__init__(
            max_events=max_events, shuffle_seed=shuffle_seed, trace=Trace(seed, shuffle_seed) if trace else None
        )
        self._env = ActorEnvironment()
        self._actors: dict[str, Actor] = {}
        self._calls: dict[int, _Call] = {}
        self._last_call = 0
        self._finished = False

    @property
    def trace(self) -> list[str]:
        """The seeds and every choice made among equals, one short line each; empty unless asked for."""
        return [] if self.choices is None else self.choices.lines()

    def call_at(self, time_ns: int, rank: Rank, callback: Callable[[], None], key: Key = NO_KEY) -> int:
        """Call back at a time and rank; returns an id for `cancel`, from 1 on and never used again.

        At one (time, rank) calls come in the order of their keys. Without keys the order is not promised.
        """
        check_time_ns(time_ns, self.now_ns)
        self._last_call += 1
        call = self._calls[self._last_call] = _Call(self._last_call, callback, self._calls)
        self.push(time_ns, int(rank), call, key)
        return self._last_call

    def cancel(self, call_id: int) -> bool:
        """Take a call back; False when it has been made or cancelled before."""
        if type(call_id) is not int or call_id < 1:
            raise CausalityError(f"the id of a call is a positive integer, found {call_id!r}")
        call = self._calls.pop(call_id, None)
        if call is None:
            return False
        self.retire(call)
        return True

    def spawn(self, name: str, rank: Rank, body: Body) -> Actor:
        """Make an actor; it starts at this instant, at its rank. Names are unique."""
        if name in self._actors:
            raise CausalityError(f"two actors of one name: {name!r}")
        actor = self._actors[name] = Actor(self, self._env, name, rank, body)
        self.push(self.now_ns, int(rank), actor)
        return actor

    def finish(self) -> None:
        """The run is done: it ends with the present instant, which runs to its end, and whoever waits is ended."""
        self._finished = True
        self.until_ns = self.now_ns

    def run(self, until_ns: int | None = None) -> None:
        """Run until `finish()`, until nothing is scheduled, or, if given, through the instant `until_ns`.

        An exception of an actor or a callback comes out as it is. Raises DeadlockError when nothing is scheduled and
        actors wait, BudgetExceeded when the run costs too much. The clock stays at the last instant that had an event.
        """
        if until_ns is not None:
            check_time_ns(until_ns, self.now_ns)
        if not self._finished:
            self.until_ns = SAFE_MAX_NS if until_ns is None else until_ns
        nothing_left = self.run_agenda()
        if self._finished:
            for actor in self._actors.values():
                actor.close()
        elif nothing_left:
            waiting = [(actor.name, actor.waits_for) for actor in self._actors.values() if actor.alive]
            if waiting:
                raise DeadlockError(time_ns=self.now_ns, waiting=waiting)
