"""Requests by rule: arrivals at a fixed rate or at random, lengths fixed or drawn.

Arrivals, input lengths and output lengths draw from streams of their own, a draw for each request by its index: to
change one of the three leaves the other two as they were.

fixed rate  request i arrives at floor(i / rate), in whole nanoseconds; the first at t = 0
Poisson     gaps of -ln(u) / rate, each rounded to whole nanoseconds and then summed; the first is before request 0
uniform     every whole number from low to high, both included, equally likely
lognormal   exp(ln(median) + sigma z), z the normal quantile of a uniform number, rounded to whole tokens; a length
            outside min to max is drawn again with the request's next number, so lengths follow the distribution
            cut off at both ends, and do not pile up there
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import repeat

from isim.draw.fixed import MAX_EXP, exp, ln, normal_quantile
from isim.draw.streams import Stream
from isim.scenario.types import Constant, FixedRate, Generated, LengthSpec, LogNormal, Poisson, Ratio, Uniform
from isim.workload.errors import WorkloadError
from isim.workload.request import MAX_TIME_NS, Request

MAX_TRIES = 10_000
"""How often a length outside its limits is drawn again before the limits are called impossible."""

_NS = 1_000_000_000
_MILLION = 1_000_000


def generated_requests(workload: Generated, seed: int) -> Iterator[Request]:
    """All requests of a generator; WorkloadError for arrivals beyond the clock and limits nothing falls into."""
    count = workload.requests
    arrivals = workload.arrivals
    times = _fixed_ns(arrivals, count) if isinstance(arrivals, FixedRate) else _poisson_ns(arrivals, count, seed)
    input_tokens = _lengths(workload.input_tokens, count, Stream(seed, "input_tokens"))
    output_tokens = _lengths(workload.output_tokens, count, Stream(seed, "output_tokens"))
    return map(Request, range(count), map("r{}".format, range(count)), times, input_tokens, output_tokens)


def generated_notes(workload: Generated) -> list[str]:
    """What is assumed in generating these requests."""
    notes = ["generated requests: no request shares its prompt with another"]
    if isinstance(workload.arrivals, Poisson):
        notes.append("Poisson arrivals: the first request arrives after the first gap, not at t = 0")
    for name, spec in (("input_tokens", workload.input_tokens), ("output_tokens", workload.output_tokens)):
        if isinstance(spec, LogNormal):
            limits = f"{spec.min_tokens} to {spec.max_tokens}"
            notes.append(f"{name}: lognormal lengths outside {limits} are drawn again, which moves their median")
    return notes


def _refuse_beyond(last_ns: int) -> None:
    if last_ns > MAX_TIME_NS:
        expected = f"all requests to arrive by {MAX_TIME_NS} ns (104 days)"
        raise WorkloadError(f"workload: expected {expected}, found one at {last_ns} ns; raise the rate")


def _fixed_ns(arrivals: FixedRate, count: int) -> Iterator[int]:
    rate = arrivals.rate_per_s
    gap, per = rate.denominator * _NS, rate.numerator
    _refuse_beyond((count - 1) * gap // per)
    return (number // per for number in range(0, count * gap, gap))


def _poisson_ns(arrivals: Poisson, count: int, seed: int) -> Iterator[int]:
    mean_ns = _mean_ns(arrivals.rate_per_s)
    unit = Stream(seed, "arrivals").unit
    time_ns = 0
    for index in range(count):
        time_ns += int(mean_ns * -ln(unit(index)) + 0.5)
        _refuse_beyond(time_ns)
        yield time_ns


def _mean_ns(rate: Ratio) -> float:
    """The mean gap, the one correctly rounded quotient of two integers."""
    _refuse_beyond(rate.denominator * _NS // rate.numerator)
    return rate.denominator * _NS / rate.numerator


def _lengths(spec: LengthSpec, count: int, stream: Stream) -> Iterator[int]:
    if isinstance(spec, Constant):
        return repeat(spec.tokens, count)
    if isinstance(spec, Uniform):
        low, span = spec.low_tokens, spec.high_tokens - spec.low_tokens + 1
        return (low + stream.below(span, index) for index in range(count))
    return (_lognormal(spec, stream, index) for index in range(count))


def _lognormal(spec: LogNormal, stream: Stream, index: int) -> int:
    sigma = spec.sigma_ppm / _MILLION
    low, high = spec.min_tokens - 0.5, spec.max_tokens + 0.5
    for attempt in range(MAX_TRIES):
        power = sigma * normal_quantile(stream.unit(index, attempt))
        if power < MAX_EXP:
            tokens = spec.median_tokens * exp(power)
            if low <= tokens < high:
                return int(tokens + 0.5)
    raise WorkloadError(
        f"workload: expected {stream.name} limits that lengths of median {spec.median_tokens} and sigma {sigma} fall "
        f"into, found {spec.min_tokens} to {spec.max_tokens}: {MAX_TRIES} lengths drawn for request {index}, none kept"
    )
