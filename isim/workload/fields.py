"""Numbers and times as they stand in a trace, read exactly: no float comes between the text and the integer."""

from __future__ import annotations

UNITS_NS = {"s": 1_000_000_000, "ms": 1_000_000, "us": 1_000, "µs": 1_000, "ns": 1}
"""Nanoseconds per unit of time, by its name."""

_MAX_DIGITS = 40
_MAX_EXPONENT = 30


def whole(text: str) -> int | None:
    """The value of a plain run of at most 18 decimal digits; None for anything else."""
    if text.isdigit() and text.isascii() and len(text) <= 18:
        return int(text)
    return None


def time_ns(number: str, unit_ns: int) -> tuple[int, bool] | None:
    """(nanoseconds, was it exact) of a decimal number of units, rounded half to even; None for anything else.

    The number is digits, perhaps a fraction, perhaps an exponent as in 1.5e-3; a sign of the whole is none of it.
    """
    value = whole(number)
    if value is not None:
        return value * unit_ns, True
    if len(number) > _MAX_DIGITS or not number.isascii():
        return None
    mantissa, mark, exponent_text = number.replace("E", "e").partition("e")
    digits, point, fraction = mantissa.partition(".")
    if not digits.isdigit() or (point and not fraction.isdigit()):
        return None
    exponent = 0
    if mark:
        if not exponent_text.lstrip("+-").isdigit() or len(exponent_text.lstrip("+-")) < len(exponent_text) - 1:
            return None
        exponent = int(exponent_text)
        if abs(exponent) > _MAX_EXPONENT:
            return None
    scaled = int(digits + fraction) * unit_ns
    power = exponent - len(fraction)
    if power >= 0:
        return scaled * pow(10, power), True
    return half_even(scaled, pow(10, -power)), scaled % pow(10, -power) == 0


def time_with_unit_ns(text: str) -> tuple[int, bool] | None:
    """As `time_ns`, for text that carries its unit: "1.25 s", "20ms"."""
    number = text.rstrip("smunµ")
    unit_ns = UNITS_NS.get(text[len(number) :])
    return None if unit_ns is None else time_ns(number.removesuffix(" "), unit_ns)


def half_even(numerator: int, denominator: int) -> int:
    """The whole number nearest to the quotient of two integers, the even one of two that are equally near."""
    quotient, remainder = divmod(numerator, denominator)
    twice = remainder + remainder
    return quotient + (twice > denominator or (twice == denominator and quotient & 1))
