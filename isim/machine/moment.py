"""Moments: a nanosecond and a round within it, as one integer that compares.

A step that takes time finishes in round 0 of a later nanosecond; one that takes none finishes in the next round of its
own. So whatever takes place takes a positive span of moments, two steps that exclude each other never share a moment,
and no rule needs a case for steps of 0 ns.
"""

from __future__ import annotations

from isim.record.errors import CausalityError, IsimError

ROUND_BITS = 24
_LAST_ROUND = (1 << ROUND_BITS) - 1
SAFE_MAX_NS = (1 << 53) - 1


class TimeOverflow(IsimError):  # noqa: N818 - it names what happened
    """An execution goes on beyond the last nanosecond that every reader of a log holds exactly."""

    def __init__(self, time_ns: int) -> None:
        super().__init__(
            f"a step would end at {time_ns} ns, beyond 2^53 - 1 = {SAFE_MAX_NS} ns: expected shorter steps"
        )


def moment_of(time_ns: int) -> int:
    """The first moment of a nanosecond."""
    return time_ns << ROUND_BITS


def time_of(moment: int) -> int:
    """The nanosecond of a moment."""
    return moment >> ROUND_BITS


def after(moment: int, duration_ns: int) -> int:
    """When a step that starts at `moment` finishes."""
    if duration_ns:
        return ((moment >> ROUND_BITS) + duration_ns) << ROUND_BITS
    return moment + 1


def checked(moment: int) -> int:
    """The moment, if a log can tell it. Raises TimeOverflow."""
    if moment >> ROUND_BITS > SAFE_MAX_NS:
        raise TimeOverflow(moment >> ROUND_BITS)
    if moment & _LAST_ROUND == _LAST_ROUND:
        raise CausalityError(f"more than {_LAST_ROUND} rounds at {moment >> ROUND_BITS} ns")
    return moment
