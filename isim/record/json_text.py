"""JSON that means one thing: strict decoding of a whole text, and the place of whatever is wrong with it.

msgspec refuses what JSON does not have (NaN, Infinity, numbers no double holds, half surrogate pairs, bytes that are
not UTF-8), but takes the last of two equal keys. Which of them was meant nobody can know, so they are refused here.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

_BYTE = re.compile(r" \(byte ([0-9]+)\)")
_TOKENS = re.compile(r'"((?:[^"\\]++|\\.)*+)"(\s*+:)?|[{}]|(?<![0-9.])[0-9]{20,}+(?![.eE])')
"""Texts, the braces of objects, and whole numbers beyond 64 bits."""


class JsonError(ValueError):
    """Text that is no JSON, or JSON that could mean two things. Line and column count from 1."""

    def __init__(self, message: str, line: int, column: int) -> None:
        super().__init__(message)
        self.line = line
        self.column = column


def decode_json(data: bytes) -> tuple[str, Any]:
    """The text of these bytes, UTF-8 with or without a byte order mark, and what it holds. Raises JsonError."""
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = data[: error.start].decode("utf-8", "replace")
        raise JsonError(f"found the byte 0x{data[error.start]:02x}, no UTF-8", *place_in(before, len(before))) from None
    try:
        found = msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        said = str(error)
        at = _BYTE.search(said)
        before = text.encode()[: int(at[1])].decode("utf-8", "ignore") if at else text
        raise JsonError(_BYTE.sub("", said), *place_in(before, len(before))) from None
    except RecursionError:
        raise JsonError("nested too deeply", 1, 1) from None
    refuse_ambiguities(text)
    return text, found


def refuse_ambiguities(text: str) -> None:
    """Raises JsonError at a key that an object of this JSON text has a second time, and at endless whole numbers."""
    objects: list[set[str]] = []
    for match in _TOKENS.finditer(text):
        if match[0] == "{":
            objects.append(set())
        elif match[0] == "}":
            objects.pop()
        elif match[0][0] != '"':
            message = f"expected a whole number of at most 19 digits, found one of {len(match[0])}"
            raise JsonError(message, *place_in(text, match.start()))
        elif match[2] is not None:
            key = msgspec.json.decode(f'"{match[1]}"') if "\\" in match[1] else match[1]
            if key in objects[-1]:
                message = f"expected each key once, found {ascii(key)[:64]} again"
                raise JsonError(message, *place_in(text, match.start()))
            objects[-1].add(key)


def place_in(text: str, at: int) -> tuple[int, int]:
    """(line, column), from 1, of the character number `at` of the text."""
    before = text[:at]
    return before.count("\n") + 1, at - before.rfind("\n")
