"""Values with units, made exact integers of one canonical unit, and written back.

A quantity is a plain decimal and a unit: `80 GiB`, `3.35 TB/s`, `200 ms`. It is read digit by digit, never as a
float; one that is not a whole number of its canonical unit is refused. A rate is a fraction and may be written as
one: `7/9 per second`.
"""

from __future__ import annotations

import re
from enum import Enum
from math import gcd

from isim.scenario.types import Ratio

TIME_MAX_NS = (1 << 53) - 1
COUNT_MAX = (1 << 53) - 1
SIZE_MAX = (1 << 63) - 1

_QUANTITY = re.compile(r"([0-9]{1,30})(?:\.([0-9]{1,30}))?\s*([^0-9.\s].*)", re.DOTALL)
_DECIMAL = re.compile(r"([0-9]{1,30})(?:\.([0-9]{1,30}))?")
_FRACTION = re.compile(r"([0-9]{1,30})\s*/\s*([0-9]{1,30})")
_RATE = re.compile(r"([0-9][0-9./]*)\s*(?:(?:requests?|req)\s*)?(?:/|per\s)\s*([a-z]+)")

_SIZES = {
    "B": 1,
    "kB": 10**3,
    "KB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
    "KiB": 1 << 10,
    "MiB": 1 << 20,
    "GiB": 1 << 30,
    "TiB": 1 << 40,
}
_TIMES_PS = {
    "ps": 1,
    "ns": 10**3,
    "us": 10**6,
    "µs": 10**6,
    "μs": 10**6,
    "ms": 10**9,
    "s": 10**12,
    "min": 60 * 10**12,
    "h": 3600 * 10**12,
}
_RATE_SECONDS = {
    **dict.fromkeys(("s", "sec", "second"), 1),
    **dict.fromkeys(("min", "minute"), 60),
    **dict.fromkeys(("h", "hour"), 3600),
}


class Dimension(Enum):
    """What is measured, with all its units as multiples of the canonical one (times: of a thousandth of it)."""

    BYTES = ("a size", "80 GiB", "B", _SIZES, 1, SIZE_MAX)
    BANDWIDTH = ("a bandwidth", "3.35 TB/s", "B/s", {f"{unit}/s": n for unit, n in _SIZES.items()}, 1, SIZE_MAX)
    DURATION = ("a duration", "200 ms", "ns", _TIMES_PS, 1000, TIME_MAX_NS)
    PRICE = ("a duration", "39 ps", "ps", _TIMES_PS, 1, TIME_MAX_NS)
    FLOPS = (
        "a compute rate",
        "989 TFLOPS",
        "FLOPS",
        {f"{prefix}{name}": 10**power for name in ("FLOPS", "FLOP/s")
         for prefix, power in (("", 0), ("M", 6), ("G", 9), ("T", 12), ("P", 15))},
        1,
        SIZE_MAX,
    )  # fmt: skip

    def __init__(self, noun: str, example: str, canonical: str, units: dict[str, int], per: int, limit: int) -> None:
        self.noun = noun
        self.example = example
        self.canonical = canonical
        self.units = units
        self.per = per
        self.limit = limit

    @property
    def expected(self) -> str:
        return f'{self.noun} with its unit, such as "{self.example}"'


def _power(exponent: int) -> int:
    return int("1" + "0" * exponent)


class QuantityError(ValueError):
    """What was expected instead; the caller says where and what was found."""


def read_quantity(text: str, dimension: Dimension) -> int:
    """The quantity in the canonical unit. Raises QuantityError if it is none, or not whole, or beyond the limit."""
    match = _QUANTITY.fullmatch(text.strip())
    if not match:
        raise QuantityError(dimension.expected)
    whole, decimals, unit = match[1], match[2] or "", match[3]
    factor = dimension.units.get(unit)
    if factor is None:
        units = ", ".join(dimension.units)
        raise QuantityError(f"{dimension.noun} in one of the units {units}")
    value, rest = divmod(int(whole + decimals) * factor, _power(len(decimals)) * dimension.per)
    if rest:
        raise QuantityError(f"{dimension.noun} of a whole number of {dimension.canonical}")
    if value > dimension.limit:
        raise QuantityError(f"{dimension.noun} of at most {dimension.limit} {dimension.canonical}")
    return value


def write_quantity(value: int, dimension: Dimension) -> str:
    """The shortest whole number of a unit that is exactly this many canonical ones."""
    scaled = value * dimension.per
    best = f"{value} {dimension.canonical}"
    if value == 0:
        return best
    for unit, factor in dimension.units.items():
        if scaled % factor == 0 and unit.isascii() and len(text := f"{scaled // factor} {unit}") < len(best):
            best = text
    return best


def ratio(numerator: int, denominator: int) -> Ratio:
    """The fraction in lowest terms. Raises ZeroDivisionError for a denominator of 0."""
    if denominator == 0:
        raise ZeroDivisionError
    divisor = gcd(numerator, denominator)
    return Ratio(numerator=numerator // divisor, denominator=denominator // divisor)


def read_ratio(text: str) -> Ratio:
    """A plain decimal, `0.5`, or a fraction, `7/9`, of numbers up to 2^53 - 1. Raises QuantityError."""
    expected = 'a number such as 0.5 or "1/3"'
    text = text.strip()
    if match := _DECIMAL.fullmatch(text):
        decimals = match[2] or ""
        value = ratio(int(match[1] + decimals), _power(len(decimals)))
    elif (match := _FRACTION.fullmatch(text)) and int(match[2]):
        value = ratio(int(match[1]), int(match[2]))
    else:
        raise QuantityError(expected)
    if max(value.numerator, value.denominator) > COUNT_MAX:
        raise QuantityError(f"{expected}, a fraction of integers up to {COUNT_MAX}")
    return value


def read_rate(text: str) -> Ratio:
    """A rate, `4 /s` or `240 per minute`, as requests per second. Raises QuantityError."""
    expected = 'a rate with its unit, such as "4 /s" or "240 per minute"'
    match = _RATE.fullmatch(text.strip())
    seconds = _RATE_SECONDS.get(match[2]) if match else None
    if not match or seconds is None:
        raise QuantityError(expected)
    try:
        value = read_ratio(match[1])
    except QuantityError:
        raise QuantityError(expected) from None
    rate = ratio(value.numerator, value.denominator * seconds)
    if rate.denominator > COUNT_MAX:
        raise QuantityError(f"{expected}, in requests per second a fraction of integers up to {COUNT_MAX}")
    return rate


def write_ratio(value: Ratio) -> str:
    return str(value.numerator) if value.denominator == 1 else f"{value.numerator}/{value.denominator}"


def read_share_ppm(text: str) -> int:
    """A share from 0 to 1, `0.92`, or a percentage, `92%`, as parts per million. Raises QuantityError."""
    text = text.strip()
    percent = text.endswith("%")
    match = _DECIMAL.fullmatch(text.rstrip("%").rstrip() if percent else text)
    if not match:
        raise QuantityError('a share such as 0.92 or "92%"')
    decimals = match[2] or ""
    value, rest = divmod(int(match[1] + decimals) * (10**4 if percent else 10**6), _power(len(decimals)))
    if rest:
        raise QuantityError("a share of at most six decimals (four of a percentage)")
    return value


def write_share(ppm: int) -> str:
    """The share as a plain decimal."""
    whole, rest = divmod(ppm, 10**6)
    return f"{whole}.{rest:06d}".rstrip("0").rstrip(".")
