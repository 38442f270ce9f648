"""Quotients and percentiles against fractions and sorted lists."""

from array import array
from fractions import Fraction
from math import ceil

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isim.analyze.exact import PERCENTS, mean, per_second, percentiles, pooled_percentiles, rank, rounded, share

FUZZ = settings(derandomize=True, deadline=None, max_examples=300)


@pytest.mark.parametrize(
    ("numerator", "denominator", "expected"),
    [(1, 2, 0), (3, 2, 2), (5, 2, 2), (7, 2, 4), (-1, 2, 0), (-3, 2, -2), (10, 3, 3), (11, 3, 4), (0, 7, 0)],
)
def test_a_tie_goes_to_the_even_integer(numerator: int, denominator: int, expected: int) -> None:
    assert rounded(numerator, denominator) == expected


@FUZZ
@given(st.integers(-(10**30), 10**30), st.integers(1, 10**20))
def test_rounding_is_that_of_fractions(numerator: int, denominator: int) -> None:
    assert rounded(numerator, denominator) == round(Fraction(numerator, denominator))


def test_what_is_not_defined_is_none() -> None:
    assert mean(0, 0) is None
    assert per_second(5, 0) is None
    assert share(0, 0) is None
    assert per_second(0, 10) == 0.0


def test_a_rate_is_the_nearest_double() -> None:
    assert per_second(1, 3_000_000_000) == 1 / 3
    assert per_second(10, 2_500_000_000) == 4.0


def test_nearest_rank_by_hand() -> None:
    """Of 5 values the 50th percentile is the 3rd, of 4 the 2nd; the 90th, 95th and 99th are the last."""
    assert percentiles([15, 20, 35, 40, 50]) == [35, 50, 50, 50, 50]
    assert percentiles([1, 2, 3, 4]) == [2, 4, 4, 4, 4]
    assert percentiles([7]) == [7] * 5
    assert percentiles(list(range(1, 101))) == [50, 90, 95, 99, 100]
    assert rank(50, 0) == 1


@FUZZ
@given(
    st.lists(
        st.tuples(st.integers(0, 9), st.one_of(st.integers(0, 40), st.integers(0, 10**12))), min_size=0, max_size=60
    )
)
def test_a_weighted_pool_is_the_list_it_stands_for(entries: list[tuple[int, int]]) -> None:
    pool: dict[int, array[int]] = {}
    for weight, value in entries:
        pool.setdefault(weight, array("q")).append(value)
    written_out = sorted(value for weight, value in entries for _ in range(weight))
    found = pooled_percentiles(pool)
    if not written_out:
        assert found is None
        return
    count = len(written_out)
    expected = [written_out[max(0, ceil(Fraction(percent, 100) * count) - 1)] for percent in PERCENTS]
    assert found == [*expected, written_out[-1]]
