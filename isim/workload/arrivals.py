"""When generated requests arrive: a time in nanoseconds for each, in order.

fixed rate   request i arrives at floor(i / rate); the first at t = 0
Poisson      gaps of -ln(u) / rate, each rounded to whole nanoseconds and then summed; the first is before request 0
gamma        the same with gaps of a gamma distribution of mean 1 / rate and coefficient of variation cv, shape
             1 / cv^2; drawn by the method of Marsaglia and Tsang (ACM Transactions on Mathematical Software 26, 2000)
profiles     a Poisson process whose rate changes in time. Its arrivals are where the integral of the rate reaches the
             sums of gaps -ln(u) (the time-change theorem); rates are linear in pieces, so the place within a piece is
             the root of a quadratic, taken in the form that loses no digits

    ramp     from one rate to another, then that for ever
    diurnal  from `low` up to `high` in half a period, and down again, over and over
    burst    the base rate, and at the end of every period the burst's
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import repeat
from math import sqrt
from operator import floordiv

from isim.draw.fixed import exp, ln, normal_quantile
from isim.draw.streams import Stream
from isim.scenario.types import Arrivals, Burst, Diurnal, FixedRate, Gamma, Poisson, Ramp, Ratio
from isim.workload.errors import WorkloadError
from isim.workload.request import MAX_TIME_NS

_NS = 1_000_000_000
_MILLION = 1_000_000
_FOREVER = float("inf")

Piece = tuple[float, float, float]
"""(length in ns, rate at its start, rate at its end), the rates in requests per ns."""


def arrival_times(arrivals: Arrivals, count: int, seed: int) -> Iterator[int]:
    """The times of `count` requests, never going back; WorkloadError for one beyond the clock."""
    make: Callable[..., Iterator[int]] = _MAKERS[type(arrivals)]
    return make(arrivals, count, seed)


def _refuse_beyond(last_ns: int) -> None:
    if last_ns > MAX_TIME_NS:
        expected = f"all requests to arrive by {MAX_TIME_NS} ns (104 days)"
        raise WorkloadError(f"workload: expected {expected}, found one at {last_ns} ns; raise the rate")


def _fixed_ns(arrivals: FixedRate, count: int, seed: int) -> Iterator[int]:
    rate = arrivals.rate_per_s
    gap, per = rate.denominator * _NS, rate.numerator
    _refuse_beyond((count - 1) * gap // per)
    return map(floordiv, range(0, count * gap, gap), repeat(per))


def _poisson_ns(arrivals: Poisson, count: int, seed: int) -> Iterator[int]:
    mean_ns = _mean_ns(arrivals.rate_per_s)
    unit = Stream(seed, "arrivals").unit
    time_ns = 0
    for index in range(count):
        time_ns += int(mean_ns * -ln(unit(index)) + 0.5)
        _refuse_beyond(time_ns)
        yield time_ns


def _gamma_ns(arrivals: Gamma, count: int, seed: int) -> Iterator[int]:
    cv = arrivals.cv_ppm / _MILLION
    shape = 1.0 / (cv * cv)
    scale_ns = _mean_ns(arrivals.rate_per_s) / shape
    stream = Stream(seed, "arrivals")
    time_ns = 0
    for index in range(count):
        time_ns += int(scale_ns * _gamma(shape, stream, index) + 0.5)
        _refuse_beyond(time_ns)
        yield time_ns


def _gamma(shape: float, stream: Stream, index: int) -> float:
    """A gamma variable of scale 1. Position 0 is the draw that a shape below 1 needs besides."""
    boost = 1.0
    if shape < 1.0:
        boost = exp(ln(stream.unit(index)) / shape)
        shape += 1.0
    d = shape - 1.0 / 3.0
    c = 1.0 / sqrt(9.0 * d)
    position = 1
    while True:
        x = normal_quantile(stream.unit(index, position))
        v = 1.0 + c * x
        v = v * v * v
        if v > 0.0 and ln(stream.unit(index, position + 1)) < 0.5 * x * x + d - d * v + d * ln(v):
            return boost * d * v
        position += 2


def _profile_ns(arrivals: Ramp | Diurnal | Burst, count: int, seed: int) -> Iterator[int]:
    pieces, lengths_ns = _pieces(arrivals)
    unit = Stream(seed, "arrivals").unit
    place, start_ns, at = 0, 0, 0.0
    for index in range(count):
        gap = -ln(unit(index))
        while True:
            length, first, last = pieces[place]
            slope = (last - first) / length
            rate = first + slope * at
            area = 0.5 * (rate + last) * (length - at)
            if gap < area:
                break
            gap -= area
            start_ns += lengths_ns[place]
            place = (place + 1) % len(pieces) if isinstance(arrivals, Diurnal | Burst) else place + 1
            at = 0.0
            _refuse_beyond(start_ns)
        square = rate * rate + 2.0 * slope * gap
        at = min(length, at + 2.0 * gap / (rate + (sqrt(square) if square > 0.0 else 0.0)))
        time_ns = start_ns + int(at + 0.5)
        _refuse_beyond(time_ns)
        yield time_ns


def _pieces(arrivals: Ramp | Diurnal | Burst) -> tuple[list[Piece], list[int]]:
    if isinstance(arrivals, Ramp):
        first, last = _per_ns(arrivals.from_per_s), _per_ns(arrivals.to_per_s)
        return [(float(arrivals.over_ns), first, last), (_FOREVER, last, last)], [arrivals.over_ns, 0]
    if isinstance(arrivals, Diurnal):
        low, high = _per_ns(arrivals.low_per_s), _per_ns(arrivals.high_per_s)
        half_ns = arrivals.period_ns // 2
        rest_ns = arrivals.period_ns - half_ns
        return [(float(half_ns), low, high), (float(rest_ns), high, low)], [half_ns, rest_ns]
    base, burst = _per_ns(arrivals.base_per_s), _per_ns(arrivals.burst_per_s)
    quiet_ns = arrivals.period_ns - arrivals.burst_ns
    return [(float(quiet_ns), base, base), (float(arrivals.burst_ns), burst, burst)], [quiet_ns, arrivals.burst_ns]


def _per_ns(rate: Ratio) -> float:
    return rate.numerator / (rate.denominator * _NS)


def _mean_ns(rate: Ratio) -> float:
    """The mean gap, the one correctly rounded quotient of two integers."""
    _refuse_beyond(rate.denominator * _NS // rate.numerator)
    return rate.denominator * _NS / rate.numerator


_MAKERS: dict[type, Callable[..., Iterator[int]]] = {
    FixedRate: _fixed_ns,
    Poisson: _poisson_ns,
    Gamma: _gamma_ns,
    Ramp: _profile_ns,
    Diurnal: _profile_ns,
    Burst: _profile_ns,
}
