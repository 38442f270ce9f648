"""Who is in the system: every request is counted in once and out once, and the run ends when nobody is left.

It also holds the outlook: the time before which nobody new comes and nobody gives up. An engine that knows it need not
be woken by what it could do nothing about yet. It is a promise of whoever makes arrivals and cancellations; 0 promises
nothing.
"""

from __future__ import annotations

import msgspec

from isim.kernel.clock import SAFE_MAX_NS
from isim.kernel.kernel import Kernel
from isim.kernel.mailbox import Mailbox


class Ending(msgspec.Struct, frozen=True):
    """A request is over: refused, cancelled, or completed."""

    request: int
    time_ns: int
    completed: bool


class Census:
    """`close()` when no more will come; the kernel is told to finish once all that came have left."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._closed = False
        self.quiet_until_ns = 0
        """No engine has news before this time."""
        self._arrival_due_ns = 0
        self._patient_until_ns = SAFE_MAX_NS
        self.endings: Mailbox[Ending] | None = None
        """Who wants to know when requests end, if anybody does."""
        self.arrived = 0
        self.completed = 0
        self.rejected = 0
        self.aborted = 0

    def expect_arrival(self, time_ns: int) -> None:
        """Nobody new comes before this time."""
        self._arrival_due_ns = time_ns
        self.quiet_until_ns = min(time_ns, self._patient_until_ns)

    def expect_patience(self, until_ns: int) -> None:
        """Nobody gives up before this time."""
        self._patient_until_ns = until_ns
        self.quiet_until_ns = min(until_ns, self._arrival_due_ns)

    def tell(self, request: int, time_ns: int, *, completed: bool) -> None:
        """Tell whoever wants to know that a request is over."""
        if self.endings is not None:
            self.endings.put((request,), Ending(request, time_ns, completed))

    @property
    def present(self) -> int:
        return self.arrived - self.completed - self.rejected - self.aborted

    def close(self, foresight: bool = True) -> None:
        """No request will come any more."""
        self._closed = True
        if foresight:
            self.expect_arrival(SAFE_MAX_NS)
        self.settle()

    def settle(self) -> None:
        """Call after anybody left."""
        if self._closed and not self.present:
            self._kernel.finish()
