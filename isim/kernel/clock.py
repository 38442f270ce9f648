"""What the clock takes for a time: `int` nanoseconds, from now on, up to 2^53 - 1, and nothing that resembles them.

One float delay turns SimPy's clock into a float for the rest of the run; one `numpy.int64` overflows silently; a
`bool` is a forgotten comparison. All three are refused by type, so are subclasses of `int`.
"""

from __future__ import annotations

from enum import IntEnum

from isim.record.errors import CausalityError

SAFE_MAX_NS = (1 << 53) - 1
"""The last nanosecond: the largest integer every reader of the log holds exactly, about 104 days."""


class Rank(IntEnum):
    """The phase of an instant at which something happens; lower ranks first."""

    FAULT = 0
    COMPLETION = 1
    ARRIVAL = 2
    RELEASE = 3
    GOVERNOR = 4
    ENGINE = 5
    GRANT = 6
    REPORT = 7


def check_time_ns(time_ns: int, now_ns: int) -> None:
    """Raise CausalityError unless `time_ns` is a time the clock, now at `now_ns`, can still reach."""
    if type(time_ns) is not int or not now_ns <= time_ns <= SAFE_MAX_NS:
        raise CausalityError(_complaint("a time", time_ns, now_ns))


def check_span_ns(span_ns: int, what: str) -> None:
    """Raise CausalityError unless `span_ns` is a duration: an int from 0 to 2^53 - 1. `what` names it."""
    if type(span_ns) is not int or not 0 <= span_ns <= SAFE_MAX_NS:
        raise CausalityError(_complaint(what, span_ns, 0))


def _complaint(what: str, value: object, now_ns: int) -> str:
    if type(value) is not int:
        kind = type(value)
        found = f"{value!r} ({kind.__module__}.{kind.__qualname__})"
        return f"{what} is a whole number of nanoseconds of type int, found {found}"
    if value < 0:
        return f"{what} is never negative, found {value} ns"
    if value > SAFE_MAX_NS:
        return f"{what} is at most 2^53 - 1 = {SAFE_MAX_NS} ns, found {value} ns"
    return f"{what} lies at or after the present, {now_ns} ns, found {value} ns"
