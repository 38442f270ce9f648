"""`isim report DIR`: the report of a finished run, from its result.json."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import msgspec

from isim.analyze.result import encode
from isim.analyze.schema import REVISION, SCHEMA, Result
from isim.cli.folder import RESULT, UNFINISHED
from isim.cli.output import columns, emit, supports_color, supports_unicode
from isim.record.errors import IsimError
from isim.record.files import open_input, reason_of
from isim.record.json_text import JsonError, decode_json

MAX_BYTES = 16 << 20


class ResultError(IsimError):
    """A result that cannot be read."""


class _Kind(msgspec.Struct):
    schema: str | None = None
    revision: int | None = None


def report(directory: str, *, json: bool) -> int:
    """Print the report, or the result itself. Raises ResultError saying which file is not what was expected."""
    result = read_result(Path(directory))
    if json:
        emit(encode(result).decode())
    else:
        print_report(result)
    return 0


def print_report(result: Result) -> None:
    """Print the report for the terminal, or plain text where there is none."""
    from isim.report.terminal import render

    stream = sys.stdout
    emit(render(result, width=columns(stream), color=supports_color(stream), unicode=supports_unicode(stream)))


def read_result(directory: Path) -> Result:
    """The result in this folder of a run, or in this file."""
    path = directory / RESULT if os.path.isdir(directory) else directory
    where = str(path) if str(path).isprintable() else ascii(str(path))
    try:
        with open_input(path) as stream:
            data = stream.read(MAX_BYTES + 1)
    except OSError as error:
        raise ResultError(
            f"{where}: expected a {RESULT} as `isim run --out` writes it: {reason_of(error)}{_hint(directory)}"
        ) from None
    if len(data) > MAX_BYTES:
        raise ResultError(f"{where}: expected a {RESULT} of at most {MAX_BYTES} bytes, found more")
    try:
        text, _ = decode_json(data)
    except JsonError as error:
        raise ResultError(f"{where}:{error.line}:{error.column}: not a result of isim: {error}") from None
    try:
        kind = msgspec.json.decode(text, type=_Kind)
        if (kind.schema, kind.revision) != (SCHEMA, REVISION):
            raise ResultError(
                f"{where}: expected schema {SCHEMA} revision {REVISION}, found {kind.schema} {kind.revision}"
            )
        return msgspec.json.decode(text, type=Result)
    except msgspec.DecodeError as error:
        raise ResultError(f"{where}: not a result of isim: {error}") from None


def _hint(directory: Path) -> str:
    unfinished = directory.with_name(directory.name + UNFINISHED) if directory.name else directory
    found = unfinished != directory and os.path.isdir(unfinished)
    return f"; {unfinished} is of a run that did not end" if found else ""
