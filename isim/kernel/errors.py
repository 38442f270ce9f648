"""What can go wrong in a run as a whole: it costs more than it may, or everybody waits for somebody."""

from __future__ import annotations

from collections.abc import Sequence

from isim.record.errors import CausalityError, IsimError


class BudgetExceeded(IsimError):  # noqa: N818 - it names what happened, as a person would say it
    """The run needs more than `max_events` events (expanded steps and kernel events together)."""

    exit_code = 2

    def __init__(self, *, limit: int, time_ns: int, where: str) -> None:
        super().__init__(
            f"the run needs more than max_events = {limit} events: stopped at {time_ns} ns simulated, in {where}. "
            "Raise max_events if the workload is meant to be this long"
        )
        self.limit = limit
        self.time_ns = time_ns
        self.where = where


class DeadlockError(CausalityError):
    """Nothing is scheduled any more, nobody called `finish()`, and these actors still wait."""

    def __init__(self, *, time_ns: int, waiting: Sequence[tuple[str, str]]) -> None:
        lines = "".join(f"\n  {name} waits for {what}" for name, what in waiting)
        super().__init__(f"deadlock at {time_ns} ns: nothing is scheduled, and still{lines}")
