"""The rows of a table with named columns: CSV with a header, or JSON Lines with an object for each row.

Cells are text: a number of JSON is handed on as it is written, so that no float comes between. CSV cells are as they
are (no spaces around them), a cell with a comma or a double quote is quoted as RFC 4180 says, and an empty cell is an
absent one. In JSON Lines numbers are numbers, and null is absent.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from isim.workload.errors import WorkloadError, complain

Cells = tuple[int, dict[str, str], Any]
"""Line, fields, and what JSON Lines say under the name `raw`; absent fields are left out or empty."""


class Columns(msgspec.Struct, frozen=True, kw_only=True):
    """What a table may hold. Values are numbers but for `texts` and, true or false, `flags`.

    `units` are texts that need a unit. `raw` is any value of JSON, which CSV cannot hold.
    """

    names: tuple[str, ...]
    texts: tuple[str, ...] = ()
    units: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()
    raw: str = ""


def csv_header(lines: Iterator[tuple[int, str]], where: str, columns: Columns) -> tuple[int, str, list[str]]:
    """The first line, its number, and the names of the columns in it."""
    line, header = next(lines, (1, None))
    if header is None:
        complain(where, line, "header", "the names of the columns", None)
    names = _split(header, where, line)
    for place, name in enumerate(names):
        if name not in columns.names or name == columns.raw:
            raise _unknown(where, line, f"column {ascii(name)[:64]}", (name, columns))
        if name in names[:place]:
            raise WorkloadError(f"{where}:{line}: column {name}: expected once, found twice")
    return line, header, names


def csv_cells(lines: Iterator[tuple[int, str]], where: str, names: list[str]) -> Iterator[Cells]:
    """The rows below a header with these names."""
    for line, text in lines:
        cells = _split(text, where, line) if '"' in text else text.split(",")
        if len(cells) != len(names):
            raise WorkloadError(f"{where}:{line}: expected {len(names)} cells, as in the header, found {len(cells)}")
        yield line, dict(zip(names, cells, strict=True)), None


def _unknown(where: str, line: int, place: str, found: tuple[str, Columns]) -> WorkloadError:
    from difflib import get_close_matches  # only a complaint pays for its import

    name, columns = found
    near = get_close_matches(name, columns.names, 1)
    hint = f" (did you mean {near[0]}?)" if near else f": there are {', '.join(columns.names)}"
    return WorkloadError(f"{where}:{line}: {place}: expected a known name, found another{hint}")


def _split(text: str, where: str, line: int) -> list[str]:
    import csv  # only a file with quotes pays for its import

    try:
        return next(csv.reader([text], strict=True))
    except csv.Error:
        complain(where, line, "", "quotes as RFC 4180 has them, closed on the same line", text)


class Number(str):
    """A JSON number as its text, so that no float comes between."""

    __slots__ = ()


class _Twice(ValueError):  # noqa: N818 - internal marker
    """A key that is there twice; the text is the key."""


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) != len(pairs):
        seen: dict[str, Any] = {}
        for name, value in pairs:
            if name in seen:
                raise _Twice(name)
            seen[name] = value
    return fields


def json_cells(lines: Iterable[tuple[int, str]], where: str, columns: Columns) -> Iterator[Cells]:
    """The objects, a line each."""
    import json  # only JSON Lines pay for its import

    decoder = json.JSONDecoder(object_pairs_hook=_once, parse_int=Number, parse_float=Number, parse_constant=Number)
    for line, text in lines:
        try:
            fields = decoder.decode(text)
        except _Twice as twice:
            raise WorkloadError(f"{where}:{line}: key {ascii(str(twice))[:64]}: expected once, found twice") from None
        except json.JSONDecodeError as error:
            raise WorkloadError(f"{where}:{line}:{error.colno}: expected a JSON object: {error.msg}") from None
        except RecursionError:
            raise WorkloadError(f"{where}:{line}: expected a JSON object of plain fields, found deep nesting") from None
        if type(fields) is not dict:
            complain(where, line, "", "a JSON object", text)
        raw = fields.pop(columns.raw, None)
        texts = {
            name: _text(where, line, (name, columns), value) for name, value in fields.items() if value is not None
        }
        yield line, texts, raw


def _text(where: str, line: int, named: tuple[str, Columns], value: object) -> str:
    name, columns = named
    if name not in columns.names:
        raise _unknown(where, line, f"key {ascii(name)[:64]}", named)
    if name in columns.texts or name in columns.units:
        if type(value) is not str:
            expected = 'text with a unit, like "1.25 s"' if name in columns.units else "text"
            complain(where, line, f"key {name}", expected, as_json(value))
        return value
    if name in columns.flags:
        if type(value) is not bool:
            complain(where, line, f"key {name}", "true or false", as_json(value))
        return "true" if value else ""
    if not isinstance(value, Number):
        complain(where, line, f"key {name}", "a number", as_json(value))
    return value


def as_json(value: object) -> str:
    """How a complaint shows what was found."""
    return f'"{value}"' if type(value) is str else str(value)
