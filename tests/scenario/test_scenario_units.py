"""Quantities against a table worked out by hand, and refusals of what is not exact."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isim.scenario.types import Ratio
from isim.scenario.units import (
    Dimension,
    QuantityError,
    read_quantity,
    read_rate,
    read_ratio,
    read_share_ppm,
    write_quantity,
    write_ratio,
    write_share,
)

EXACT = [
    ("80 GiB", Dimension.BYTES, 85_899_345_920),
    ("80 GB", Dimension.BYTES, 80_000_000_000),
    ("512 MiB", Dimension.BYTES, 536_870_912),
    ("512MiB", Dimension.BYTES, 536_870_912),
    ("0.5 KiB", Dimension.BYTES, 512),
    ("1 B", Dimension.BYTES, 1),
    ("3.35 TB/s", Dimension.BANDWIDTH, 3_350_000_000_000),
    ("900 GB/s", Dimension.BANDWIDTH, 900_000_000_000),
    ("64 GiB/s", Dimension.BANDWIDTH, 68_719_476_736),
    ("200 ms", Dimension.DURATION, 200_000_000),
    ("1.5 us", Dimension.DURATION, 1_500),
    ("1.5 µs", Dimension.DURATION, 1_500),
    ("1.5 μs", Dimension.DURATION, 1_500),
    ("3 s", Dimension.DURATION, 3_000_000_000),
    ("2000 ps", Dimension.DURATION, 2),
    ("10 min", Dimension.DURATION, 600_000_000_000),
    ("1 h", Dimension.DURATION, 3_600_000_000_000),
    ("0.000000001 s", Dimension.DURATION, 1),
    ("39 ps", Dimension.PRICE, 39),
    ("7.2 ms", Dimension.PRICE, 7_200_000_000),
    ("989 TFLOPS", Dimension.FLOPS, 989_000_000_000_000),
    ("989.5 TFLOP/s", Dimension.FLOPS, 989_500_000_000_000),
    ("4.5 PFLOPS", Dimension.FLOPS, 4_500_000_000_000_000),
]
REFUSED = [
    ("200", Dimension.DURATION, "such as"),
    ("", Dimension.DURATION, "such as"),
    ("ms", Dimension.DURATION, "such as"),
    ("-1 ms", Dimension.DURATION, "such as"),
    ("1e3 ms", Dimension.DURATION, "units"),
    ("1. ms", Dimension.DURATION, "such as"),
    ("1_000 ms", Dimension.DURATION, "units"),
    ("１ ms", Dimension.DURATION, "such as"),  # noqa: RUF001 - a full-width digit, which int() would take
    ("1 fortnight", Dimension.DURATION, "units"),
    ("1 ms s", Dimension.DURATION, "units"),
    ("1 MS", Dimension.DURATION, "units"),
    ("0.5 ns", Dimension.DURATION, "whole number of ns"),
    ("1 ps", Dimension.DURATION, "whole number of ns"),
    ("0.1 ps", Dimension.PRICE, "whole number of ps"),
    ("9007200 s", Dimension.DURATION, "at most"),
    ("0.3 B", Dimension.BYTES, "whole number of B"),
    ("0.1 KiB", Dimension.BYTES, "whole number of B"),
    ("80 GiB/s", Dimension.BYTES, "units"),
    ("80 GiB", Dimension.BANDWIDTH, "units"),
    ("80 gb", Dimension.BYTES, "units"),
    ("9" * 30 + " B", Dimension.BYTES, "at most"),
    ("9" * 400 + " B", Dimension.BYTES, "such as"),
    ("80 Gbit/s", Dimension.BANDWIDTH, "units"),
]


@pytest.mark.parametrize(("text", "dimension", "value"), EXACT)
def test_quantity_is_exact(text: str, dimension: Dimension, value: int) -> None:
    assert read_quantity(text, dimension) == value


@pytest.mark.parametrize(("text", "dimension", "says"), REFUSED)
def test_quantity_is_refused(text: str, dimension: Dimension, says: str) -> None:
    with pytest.raises(QuantityError, match=says):
        read_quantity(text, dimension)


@settings(derandomize=True, deadline=None, max_examples=300)
@given(dimension=st.sampled_from(Dimension), value=st.integers(0, (1 << 53) - 1))
def test_written_quantity_reads_back(dimension: Dimension, value: int) -> None:
    assert read_quantity(write_quantity(value, dimension), dimension) == value


def test_quantity_is_written_in_its_natural_unit() -> None:
    assert write_quantity(80 << 30, Dimension.BYTES) == "80 GiB"
    assert write_quantity(200_000_000, Dimension.DURATION) == "200 ms"
    assert write_quantity(0, Dimension.DURATION) == "0 ns"
    assert write_quantity(39, Dimension.PRICE) == "39 ps"


@pytest.mark.parametrize(
    ("text", "per_second"),
    [
        ("4 /s", Fraction(4)),
        ("4/s", Fraction(4)),
        ("4 per second", Fraction(4)),
        ("4 requests per second", Fraction(4)),
        ("1 req/s", Fraction(1)),
        ("240/min", Fraction(4)),
        ("1 per hour", Fraction(1, 3600)),
        ("0.1 /s", Fraction(1, 10)),
        ("7/9 /s", Fraction(7, 9)),
        ("7/9 per minute", Fraction(7, 540)),
    ],
)
def test_rate_is_an_exact_fraction(text: str, per_second: Fraction) -> None:
    rate = read_rate(text)
    assert (rate.numerator, rate.denominator) == (per_second.numerator, per_second.denominator)


@pytest.mark.parametrize(
    "text", ["4", "4 s", "4 / fortnight", "/s", "4 Hz", "1/0 /s", "4//s", "1e3 /s", "4 per", "nan /s"]
)
def test_rate_is_refused(text: str) -> None:
    with pytest.raises(QuantityError):
        read_rate(text)


@settings(derandomize=True, deadline=None, max_examples=200)
@given(numerator=st.integers(1, (1 << 53) - 1), denominator=st.integers(1, (1 << 53) - 1))
def test_ratio_reads_back_in_lowest_terms(numerator: int, denominator: int) -> None:
    exact = Fraction(numerator, denominator)
    value = Ratio(numerator=exact.numerator, denominator=exact.denominator)
    assert read_ratio(write_ratio(value)) == value
    assert read_ratio(f"{numerator}/{denominator}") == value


@pytest.mark.parametrize(
    ("text", "ppm"),
    [("0.92", 920_000), ("92%", 920_000), ("92 %", 920_000), ("1", 1_000_000), ("0.000001", 1), ("0.5%", 5_000)],
)
def test_share_is_exact(text: str, ppm: int) -> None:
    assert read_share_ppm(text) == ppm
    assert read_share_ppm(write_share(ppm)) == ppm


@pytest.mark.parametrize("text", ["0.0000001", "0.00001%", "9.2e-1", "-0.5", ".5", "x", "", "%", "nan", "inf"])
def test_share_is_refused(text: str) -> None:
    with pytest.raises(QuantityError):
        read_share_ppm(text)
