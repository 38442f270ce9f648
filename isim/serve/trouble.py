"""Runs that cannot go on, for reasons that lie in what was asked."""

from __future__ import annotations

from collections.abc import Sequence

from isim.kernel.clock import SAFE_MAX_NS
from isim.record.errors import IsimError


class NoHeadway(IsimError):  # noqa: N818 - it names what the engine does
    """The scheduler's rules go in circles: its requests take blocks from one another, and nobody gets a token."""


class TooLate(IsimError):  # noqa: N818 - it names what the run becomes
    """Simulated time would pass what the clock can tell."""


def too_late(time_ns: int, who: str) -> TooLate:
    """The error for something of `who` that would happen at `time_ns`."""
    return TooLate(
        f"{who} would come to {time_ns} ns of simulated time; the clock ends at 2^53 - 1 = {SAFE_MAX_NS} ns, after 104 "
        "days. Look for a step that costs too much (cost, hardware), an arrival or a wait that is too late (workload, "
        "engine.request_overhead), or ask for fewer requests"
    )


def no_headway(now_ns: int, who: str, turns: int, first: Sequence[str]) -> NoHeadway:
    """The error for rules that go in circles; `first` are the ids first in line."""
    return NoHeadway(
        f"at {now_ns} ns {who} has decided {turns} times without a token for anybody: its requests preempt one another "
        "in turn, and the real engine would go on so for ever. "
        f"First in line: {', '.join(first)}. Give it more KV blocks, a larger max_num_batched_tokens, or distinct "
        "priorities"
    )
