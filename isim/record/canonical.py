"""One JSON text for one value, and a short fingerprint of it.

The form is that of the reference's artifacts, which is what JavaScript writes, so that equal values have equal
fingerprints there and here. Keys that are array indices come first, by number; all others follow in the order of their
UTF-16 code units. Numbers are written as JavaScript writes doubles: 2000, 0.1, 1e+21, 1e-7, and 0 for -0. No spaces;
only what JSON must escape is escaped, and halves of surrogate pairs. UNSET members of objects are left out.

The fingerprint is FNV-1a, 32 bits, over the UTF-8 of the text: it finds accidents, it proves nothing.
"""

from __future__ import annotations

import re
from math import isfinite
from typing import Any

from msgspec import UNSET

from isim.record.errors import IsimError

DEPTH_MAX = 128
PREFIX = "fnv1a32:"
FINGERPRINT = re.compile(PREFIX + "[0-9a-f]{8}")

_INTEGER_MAX = (1 << 53) - 1
_INDEX = re.compile(r"0|[1-9][0-9]{0,9}")
_INDEX_MAX = (1 << 32) - 2
_ESCAPED = re.compile('[\x00-\x1f"\\\\\ud800-\udfff]')
_SHORT = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t"}


class CanonicalError(IsimError):
    """A value that has no canonical JSON; the text begins with its place, `$` being the whole."""


def canonical_json(value: Any) -> str:
    """The canonical text of None, booleans, numbers, texts, lists, tuples and dicts with text keys.

    Raises CanonicalError for anything else, numbers that are not finite, cycles, and more than 128 levels.
    """
    parts: list[str] = []
    _write(value, "$", 0, parts)
    return "".join(parts)


def fingerprint(value: Any) -> str:
    """`fnv1a32:` and eight hexadecimal digits, of the canonical text."""
    return text_fingerprint(canonical_json(value))


def text_fingerprint(text: str) -> str:
    """The fingerprint of a text that is canonical already."""
    word = 0x811C9DC5
    for byte in text.encode("utf-8"):
        word = ((word ^ byte) * 0x01000193) & 0xFFFFFFFF
    return f"{PREFIX}{word:08x}"


def _write(value: Any, path: str, depth: int, parts: list[str]) -> None:
    if value is None:
        parts.append("null")
    elif isinstance(value, bool):
        parts.append("true" if value else "false")
    elif isinstance(value, str):
        parts.append(_text(value))
    elif isinstance(value, int | float):
        parts.append(_number(value, path))
    elif isinstance(value, dict | list | tuple):
        if depth >= DEPTH_MAX:
            raise CanonicalError(f"{path}: expected at most {DEPTH_MAX} levels of nesting, found more, or a cycle")
        if isinstance(value, dict):
            _object(value, path, depth, parts)
        else:
            _array(value, path, depth, parts)
    else:
        raise CanonicalError(f"{path}: expected a value that JSON has, found a {type(value).__name__}")


def _array(value: list[Any] | tuple[Any, ...], path: str, depth: int, parts: list[str]) -> None:
    parts.append("[")
    for index, item in enumerate(value):
        if index:
            parts.append(",")
        _write(item, f"{path}[{index}]", depth + 1, parts)
    parts.append("]")


def _object(value: dict[Any, Any], path: str, depth: int, parts: list[str]) -> None:
    for key in value:
        if not isinstance(key, str):
            raise CanonicalError(f"{path}: expected texts as keys, found a {type(key).__name__}")
    parts.append("{")
    first = True
    for key in sorted(value, key=_key_order):
        item = value[key]
        if item is UNSET:
            continue
        parts.append(("" if first else ",") + _text(key) + ":")
        first = False
        _write(item, f"{path}.{key}", depth + 1, parts)
    parts.append("}")


def _key_order(key: str) -> tuple[int, int, bytes]:
    if _INDEX.fullmatch(key) and int(key) <= _INDEX_MAX:
        return 0, int(key), b""
    return 1, 0, key.encode("utf-16-be", "surrogatepass")


def _text(value: str) -> str:
    if value.isascii():
        return '"' + _ESCAPED.sub(_escape, value) + '"'
    joined = value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
    return '"' + _ESCAPED.sub(_escape, joined) + '"'


def _escape(match: re.Match[str]) -> str:
    character = match[0]
    return _SHORT.get(character) or f"\\u{ord(character):04x}"


def _number(value: int | float, path: str) -> str:
    """The number as JavaScript writes it: the shortest digits that give the same double back."""
    if isinstance(value, int) and -_INTEGER_MAX <= value <= _INTEGER_MAX:
        return str(value)
    try:
        double = float(value)
    except OverflowError:
        double = float("inf")
    if not isfinite(double):
        raise CanonicalError(f"{path}: expected finite numbers, found {value if isinstance(value, float) else 'more'}")
    if double == 0:
        return "0"
    sign = "-" if double < 0 else ""
    mantissa, _, exponent = repr(abs(double)).partition("e")
    whole, _, fraction = mantissa.partition(".")
    fraction = fraction.rstrip("0")
    digits = (whole + fraction).lstrip("0")
    point = len(whole) + int(exponent or 0) - (len(whole + fraction) - len(digits))
    digits = digits.rstrip("0")
    return sign + _placed(digits, point)


def _placed(digits: str, point: int) -> str:
    """Digits with the decimal point after the first `point` of them."""
    if len(digits) <= point <= 21:
        return digits + "0" * (point - len(digits))
    if 0 < point <= 21:
        return f"{digits[:point]}.{digits[point:]}"
    if -6 < point <= 0:
        return "0." + "0" * -point + digits
    exponent = f"e{point - 1:+d}"
    return digits[0] + (f".{digits[1:]}" if len(digits) > 1 else "") + exponent
