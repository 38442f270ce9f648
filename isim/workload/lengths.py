"""How many tokens generated requests have.

uniform      every whole number from low to high, both included, equally likely
lognormal    exp(ln(median) + sigma z), z the normal quantile of a uniform number, rounded to whole tokens; a length
             outside min to max is drawn again with the request's next number, so lengths follow the distribution
             cut off at both ends, and do not pile up there
empirical    one of the given lengths, each as likely as its share of the weights
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from itertools import accumulate, repeat

from isim.draw.fixed import MAX_EXP, exp, normal_quantile
from isim.draw.streams import Stream
from isim.record.errors import CausalityError
from isim.scenario.types import Constant, Empirical, LengthSpec, LogNormal, Uniform
from isim.workload.errors import WorkloadError, complain
from isim.workload.fields import whole
from isim.workload.request import MAX_TOKENS

MAX_TRIES = 10_000
"""How often a length outside its limits is drawn again before the limits are called impossible."""

MAX_LENGTHS = 1_000_000
_MILLION = 1_000_000


def lengths_of(spec: LengthSpec, stream: Stream, count: int) -> Iterator[int]:
    """The tokens of the first `count` requests."""
    return repeat(spec.tokens, count) if isinstance(spec, Constant) else map(length_of(spec, stream), range(count))


def length_of(spec: LengthSpec, stream: Stream) -> Callable[[int], int]:
    """The function from a request's index to its tokens."""
    if isinstance(spec, Constant):
        tokens = spec.tokens
        return lambda index: tokens
    if isinstance(spec, Uniform):
        low, span = spec.low_tokens, spec.high_tokens - spec.low_tokens + 1
        return lambda index: low + stream.below(span, index)
    if isinstance(spec, LogNormal):
        return lambda index: _lognormal(spec, stream, index)
    if not isinstance(spec, Empirical):
        raise CausalityError(f"{stream.name}: lengths of a file are asked for before it was read")
    values = spec.tokens
    if not spec.weights:
        return lambda index: values[stream.below(len(values), index)]
    sums = list(accumulate(spec.weights))
    return lambda index: values[bisect_right(sums, stream.below(sums[-1], index))]


def read_lengths(lines: Iterable[tuple[int, str]], where: str) -> Empirical:
    """The lengths of a file: on each line a number of tokens, perhaps a comma and how often it was seen."""
    seen: dict[int, int] = {}
    for line, text in lines:
        tokens_text, comma, times_text = text.partition(",")
        tokens, times = whole(tokens_text.strip()), whole(times_text.strip()) if comma else 1
        if tokens is None or not 1 <= tokens <= MAX_TOKENS or not times:
            expected = f"tokens from 1 to {MAX_TOKENS}, or tokens and how often they were seen, like 512,3"
            complain(where, line, "", expected, text)
        seen[tokens] = seen.get(tokens, 0) + times
        if len(seen) > MAX_LENGTHS:
            raise WorkloadError(f"{where}:{line}: expected at most {MAX_LENGTHS} different lengths, found more")
    if not seen or sum(seen.values()) >> 63:
        raise WorkloadError(f"{where}: expected at least one length, seen fewer than 2^63 times, found {len(seen)}")
    tokens_in_order = tuple(sorted(seen))
    return Empirical(tokens=tokens_in_order, weights=tuple([seen[tokens] for tokens in tokens_in_order]))


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
