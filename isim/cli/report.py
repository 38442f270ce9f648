"""`isim report DIR`: the report of a finished run, from its result.json."""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec

from isim.analyze.result import encode
from isim.analyze.schema import REVISION, SCHEMA, Result
from isim.cli.folder import RESULT
from isim.cli.output import columns, emit, supports_color, supports_unicode
from isim.record.errors import IsimError


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
    path = directory / RESULT if directory.is_dir() else directory
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ResultError(
            f"{path}: expected a {RESULT} as `isim run --out` writes it: {error.strerror}{_hint(directory)}"
        ) from None
    try:
        kind = msgspec.json.decode(data, type=_Kind)
        if (kind.schema, kind.revision) != (SCHEMA, REVISION):
            raise ResultError(
                f"{path}: expected schema {SCHEMA} revision {REVISION}, found {kind.schema} {kind.revision}"
            )
        return msgspec.json.decode(data, type=Result)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ResultError(f"{path}: not a result of isim: {error}") from None


def _hint(directory: Path) -> str:
    unfinished = directory.with_name(directory.name + ".unfinished") if directory.name else directory
    return f"; {unfinished} is of a run that did not end" if unfinished != directory and unfinished.is_dir() else ""
