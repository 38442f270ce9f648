"""Exact arithmetic of the numbers a person reads: quotients, percentiles, and percentiles of weighted pools.

Everything here is integers in, integers out (or a double that is the correctly rounded quotient of two
integers), so a result has the same bytes on every machine.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import repeat
from operator import rshift

PERCENTS = (50, 90, 95, 99)

_COARSE_BITS = 16
_PIECE = 1 << 17


def rounded(numerator: int, denominator: int) -> int:
    """The integer nearest to numerator / denominator; a tie goes to the even one. The denominator is positive."""
    quotient, rest = divmod(numerator, denominator)
    twice = 2 * rest
    if twice > denominator or (twice == denominator and quotient & 1):
        return quotient + 1
    return quotient


def mean(total: int, count: int) -> int | None:
    """total / count rounded half to even; None when there is nothing to average."""
    return rounded(total, count) if count else None


def per_second(amount: int, duration_ns: int) -> float | None:
    """Amount per second as the double nearest to the exact quotient; None when no time passed."""
    return amount * 1_000_000_000 / duration_ns if duration_ns > 0 else None


def share(part: int, whole: int) -> float | None:
    """part / whole as the double nearest to the exact quotient; None when the whole is nothing."""
    return part / whole if whole > 0 else None


def rank(percent: int, count: int) -> int:
    """The nearest rank of a percentile among `count` values, from 1: ceil(percent / 100 x count), at least 1."""
    return max(1, -(-percent * count // 100))


def percentiles(ordered: Sequence[int]) -> list[int]:
    """The values at the nearest ranks of PERCENTS, then the greatest. `ordered` is ascending and not empty."""
    count = len(ordered)
    return [ordered[rank(percent, count) - 1] for percent in PERCENTS] + [ordered[-1]]


def pooled_percentiles(pool: Mapping[int, array[int]]) -> list[int] | None:
    """As `percentiles`, of the multiset in which every value of `pool[weight]` counts `weight` times.

    No sorting: a histogram holds the ranks. Where it would be large, two passes: a histogram of 2^16-wide buckets finds
    the buckets that hold the ranks, an exact histogram of those buckets finds the values. None for an empty pool.
    """
    histogram = _small_histogram(pool)
    if histogram is None:
        return _percentiles_in_two_passes(pool)
    count = sum(histogram.values())
    return _place(histogram, _ranks(count))[0] if count else None


def _ranks(count: int) -> list[int]:
    return [rank(percent, count) for percent in PERCENTS] + [count]


def _small_histogram(pool: Mapping[int, array[int]]) -> dict[int, int] | None:
    """How often each value counts, or None if there are very many different ones."""
    histogram: dict[int, int] = {}
    for weight, values in pool.items():
        for start in range(0, len(values), _PIECE):
            for value, times in Counter(values[start : start + _PIECE]).items():
                histogram[value] = histogram.get(value, 0) + weight * times
            if len(histogram) > _PIECE:
                return None
    return histogram


def _percentiles_in_two_passes(pool: Mapping[int, array[int]]) -> list[int] | None:
    coarse: dict[int, int] = {}
    for weight, values in pool.items():
        for bucket, times in Counter(map(rshift, values, repeat(_COARSE_BITS))).items():
            coarse[bucket] = coarse.get(bucket, 0) + weight * times
    count = sum(coarse.values())
    if not count:
        return None
    ranks = _ranks(count)
    buckets, before = _place(coarse, ranks)
    wanted = frozenset(buckets)
    fine: dict[int, dict[int, int]] = {bucket: {} for bucket in buckets}
    for weight, values in pool.items():
        for start in range(0, len(values), _PIECE):
            piece = values[start : start + _PIECE]
            for value, times in Counter([value for value in piece if value >> _COARSE_BITS in wanted]).items():
                histogram = fine[value >> _COARSE_BITS]
                histogram[value] = histogram.get(value, 0) + weight * times
    return [
        _place(fine[bucket], [place - below])[0][0] for bucket, below, place in zip(buckets, before, ranks, strict=True)
    ]


def _place(histogram: Mapping[int, int], ranks: Iterable[int]) -> tuple[list[int], list[int]]:
    """For each of the ascending ranks: the value that holds it, and how many lie below that value."""
    found: list[int] = []
    below: list[int] = []
    values = iter(sorted(histogram))
    seen = up_to = 0
    value = 0
    for place in ranks:
        while up_to < place:
            value = next(values)
            seen, up_to = up_to, up_to + histogram[value]
        found.append(value)
        below.append(seen)
    return found, below
