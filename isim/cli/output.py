"""Printing: results to standard output, everything else to standard error, and nothing breaks when nobody reads."""

from __future__ import annotations

import os
import sys
from typing import Any, TextIO, TypedDict

from isim.record.errors import IsimError


class PrintError(IsimError):
    """A result that cannot be printed."""


def emit(text: str) -> None:
    """Print a result. A reader that has gone away (`| head`) is no error; a full disk is a PrintError."""
    try:
        _write(sys.stdout, text)
    except OSError as error:
        _discard(sys.stdout)
        raise PrintError(f"standard output: cannot be written: {error.strerror}") from None


def emit_json(value: Any) -> None:
    """Print a result as indented JSON."""
    import msgspec

    emit(msgspec.json.format(msgspec.json.encode(value), indent=2).decode() + "\n")


def say(text: str) -> None:
    """Print a diagnostic line, if that is possible."""
    try:
        _write(sys.stderr, text + "\n")
    except OSError:
        _discard(sys.stderr)


def open_streams() -> None:
    """Give standard output and error somewhere to go where they are closed (`>&-`), so that printing is no error."""
    if sys.stdout is None:
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115 - it stays open as long as the process lives
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115


def supports_unicode(stream: TextIO) -> bool:
    """Whether bars and boxes can be printed there."""
    return (stream.encoding or "").lower().replace("-", "").startswith("utf")


def supports_color(stream: TextIO) -> bool:
    """Whether to print colours there: a terminal that nobody asked to be plain (https://no-color.org)."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


class Style(TypedDict):
    """How a report is drawn."""

    width: int
    color: bool
    unicode: bool


def style() -> Style:
    """What standard output takes."""
    stream = sys.stdout
    return Style(width=columns(stream), color=supports_color(stream), unicode=supports_unicode(stream))


def columns(stream: TextIO) -> int:
    """Width to print at: COLUMNS if set, that of the terminal, or 80."""
    asked = os.environ.get("COLUMNS", "")
    if asked.isdecimal() and int(asked) > 0:
        return int(asked)
    try:
        return os.get_terminal_size(stream.fileno()).columns or 80
    except (OSError, ValueError):
        return 80


def _write(stream: TextIO, text: str) -> None:
    encoding = stream.encoding or "utf-8"
    try:
        stream.write(text.encode(encoding, "backslashreplace").decode(encoding))
        stream.flush()
    except BrokenPipeError:
        _discard(stream)


def _discard(stream: TextIO) -> None:
    """Let what is buffered, which would fail again at exit, go where it harms nobody."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
