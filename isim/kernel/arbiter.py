"""The arbiter: lanes that are lent for a time, and who gets them does not depend on who asked first.

A priority key alone does not make contention deterministic: whoever asks first finds the lane free and has it. So
nothing is granted when it is asked for. The arbiter settles at the end of the instant, when everybody who wants
something at this time has asked, and grants in the order of keys. A lane freed at an instant is lent again at the end
of the same instant, so nothing is lost by waiting for it.

A lease has no process of its own. Its end is one entry in the agenda, at rank COMPLETION; it frees the lane and fires
the holder's alarm. A holder that dies or forgets blocks nobody: the lane comes back at the time that was asked for.
"""

from __future__ import annotations

from heapq import heappop, heappush

from isim.kernel.agenda import NO_KEY, Key
from isim.kernel.alarm import Alarm
from isim.kernel.clock import SAFE_MAX_NS, Rank, check_span_ns
from isim.kernel.kernel import Kernel
from isim.record.errors import CausalityError

_COMPLETION = int(Rank.COMPLETION)


class _Wake:
    """The entry of a lease's wake-up before its end, at rank COMPLETION like the end itself."""

    __slots__ = ("_alarm", "stamp")

    def __init__(self, alarm: Alarm) -> None:
        self._alarm = alarm
        self.stamp = 0

    def ring(self) -> None:
        self._alarm.fire()

    def describe(self) -> str:
        return f"wake-up of {self._alarm.name} by its lease"


class Lease:
    """A lane asked for, held, and given back. Its fields are for reading.

    `start_ns` and `end_ns` are None until the grant; `end_ns` is the planned end until `ended`, then the actual one.
    """

    __slots__ = (
        "_alarm",
        "_arbiter",
        "_muted",
        "_wake",
        "cancelled",
        "end_ns",
        "ended",
        "hold_ns",
        "key",
        "stamp",
        "start_ns",
        "wake_ns",
    )

    def __init__(self, arbiter: Arbiter, key: Key, hold_ns: int, alarm: Alarm, wake_ns: int | None) -> None:
        self._arbiter = arbiter
        self._alarm = alarm
        self._muted = False
        self._wake: _Wake | None = None
        self.key = key
        self.hold_ns = hold_ns
        self.wake_ns = wake_ns
        self.start_ns: int | None = None
        self.end_ns: int | None = None
        self.ended = False
        self.cancelled = False
        self.stamp = 0

    @property
    def granted(self) -> bool:
        """True from the grant on, also after the end."""
        return self.start_ns is not None

    def mute(self) -> None:
        """No alarm at the end. A wake-up that was asked for by `wake_ns` still comes."""
        self._muted = True

    def cancel(self) -> None:
        """Ask no longer. Raises CausalityError after the grant: a granted lease is shortened."""
        if self.start_ns is not None:
            raise CausalityError(f"{self.describe()} was granted at {self.start_ns} ns and can not be cancelled")
        self.cancelled = True

    def shorten(self, hold_ns: int, wake_ns: int | None = None) -> None:
        """Hold for `hold_ns` from the grant instead, at most as long as before; wake at `wake_ns` from it, or not.

        A lease may be shortened to end at this very instant: the lane then frees at once, and is lent again at the end
        of the instant. Raises CausalityError for a lease that is over, a longer hold, or an end or wake-up in the past.
        """
        _check(hold_ns, wake_ns)
        if self.ended or self.cancelled:
            raise CausalityError(f"{self.describe()} is over and can not be shortened")
        if hold_ns > self.hold_ns:
            raise CausalityError(f"{self.describe()} holds {self.hold_ns} ns and can not be shortened to {hold_ns} ns")
        if self.start_ns is not None:
            self._reschedule(self.start_ns, hold_ns, wake_ns)
        self.hold_ns = hold_ns
        self.wake_ns = wake_ns

    def _reschedule(self, start_ns: int, hold_ns: int, wake_ns: int | None) -> None:
        kernel = self._arbiter.kernel
        earliest_ns = kernel.now_ns - start_ns
        if hold_ns < earliest_ns:
            raise CausalityError(f"{self.describe()} has held {earliest_ns} ns, too late to end it after {hold_ns} ns")
        if wake_ns != self.wake_ns:
            if wake_ns is not None and wake_ns < earliest_ns:
                raise CausalityError(
                    f"{self.describe()} has held {earliest_ns} ns, too late to wake after {wake_ns} ns"
                )
            if self._wake is not None:
                kernel.retire(self._wake)
                self._wake = None
            if wake_ns is not None:
                self._set_wake(start_ns + wake_ns)
        if hold_ns != self.hold_ns:
            kernel.retire(self)
            self.end_ns = start_ns + hold_ns
            kernel.push(self.end_ns, _COMPLETION, self)

    def grant(self, now_ns: int) -> None:
        """Called by the arbiter."""
        end_ns = now_ns + self.hold_ns
        if end_ns > SAFE_MAX_NS:
            raise CausalityError(f"{self.describe()} would end at {end_ns} ns, beyond 2^53 - 1 = {SAFE_MAX_NS} ns")
        self.start_ns = now_ns
        self.end_ns = end_ns
        kernel = self._arbiter.kernel
        heappush(kernel.heap, (end_ns, _COMPLETION, NO_KEY, next(kernel.ties), self.stamp, self))
        if self.wake_ns is not None:
            self._set_wake(now_ns + self.wake_ns)

    def _set_wake(self, time_ns: int) -> None:
        self._wake = _Wake(self._alarm)
        self._arbiter.kernel.push(time_ns, _COMPLETION, self._wake)

    def ring(self) -> None:
        """Called by the agenda: the end."""
        self.ended = True
        arbiter = self._arbiter
        arbiter.free_lanes += 1
        if arbiter.queue and not arbiter.unsettled:
            arbiter.unsettled = True
            arbiter.kernel.unsettled.append(arbiter)
        if not self._muted:
            self._alarm.fire()

    def describe(self) -> str:
        return f"lease {self.key} of {self._arbiter.name} for {self._alarm.name}"


class Arbiter:
    """Lends `lanes` interchangeable lanes at the end of each instant, in the order of keys.

    Keys are tuples of integers and strings, by custom (ready_ns, admission order, step order, actor name, sequence).
    Two requests that wait at the same time must differ in key: equal ones are a CausalityError, for nothing would
    then say who is first.
    """

    __slots__ = ("_submitted", "free_lanes", "kernel", "lanes", "name", "queue", "unsettled")

    def __init__(self, kernel: Kernel, name: str, lanes: int = 1) -> None:
        if type(lanes) is not int or lanes < 1:
            raise CausalityError(f"arbiter {name!r} needs a positive whole number of lanes, found {lanes!r}")
        self.kernel = kernel
        self.name = name
        self.lanes = lanes
        self.free_lanes = lanes
        self.queue: list[tuple[Key, int, Lease]] = []
        self.unsettled = False
        self._submitted = 0

    def submit(self, key: Key, hold_ns: int, alarm: Alarm, wake_ns: int | None = None) -> Lease:
        """Ask for a lane for `hold_ns` from its grant, at the end of this instant at the earliest.

        At the end of the hold the lane is free and `alarm` fires; it also fires at `wake_ns` from the grant, if that is
        given (0 <= wake_ns <= hold_ns). Raises CausalityError for a bad duration.
        """
        if type(hold_ns) is not int or not 0 <= hold_ns <= SAFE_MAX_NS or wake_ns is not None:
            _check(hold_ns, wake_ns)
        lease = Lease(self, key, hold_ns, alarm, wake_ns)
        self._submitted = number = self._submitted + 1
        heappush(self.queue, (key, number, lease))
        if self.free_lanes and not self.unsettled:
            self.unsettled = True
            self.kernel.unsettled.append(self)
        return lease

    def settle(self) -> None:
        """Called by the agenda at the end of the instant."""
        self.unsettled = False
        queue = self.queue
        now_ns = self.kernel.now_ns
        while queue and self.free_lanes:
            lease = heappop(queue)[2]
            if lease.cancelled:
                continue
            if queue:
                self._check_choice(lease)
            self.free_lanes -= 1
            lease.grant(now_ns)

    def _check_choice(self, lease: Lease) -> None:
        queue = self.queue
        while queue and queue[0][2].cancelled:
            heappop(queue)
        if queue and queue[0][0] == lease.key:
            other = queue[0][2]
            raise CausalityError(
                f"two requests of one key at {self.kernel.now_ns} ns: {lease.describe()}, and {other.describe()}"
            )
        if queue and self.kernel.choices is not None:
            others = ", ".join(str(key) for key, _, other in sorted(queue) if not other.cancelled)
            self.kernel.choices.add(self.kernel.now_ns, f"GRANT: {lease.describe()} before {others}")


def _check(hold_ns: int, wake_ns: int | None) -> None:
    check_span_ns(hold_ns, "the hold of a lease")
    if wake_ns is not None:
        check_span_ns(wake_ns, "the wake-up of a lease")
        if wake_ns > hold_ns:
            raise CausalityError(f"a lease of {hold_ns} ns can not wake its owner after {wake_ns} ns")
