"""Printing: results to standard output, everything else to standard error, and nothing breaks when nobody reads."""

from __future__ import annotations

import os
import sys
from typing import TextIO


def emit(text: str) -> None:
    """Print a result. A reader that has gone away (`| head`) is no error."""
    _write(sys.stdout, text)


def say(text: str) -> None:
    """Print a diagnostic line."""
    _write(sys.stderr, text + "\n")


def supports_unicode(stream: TextIO) -> bool:
    """Whether bars and boxes can be printed there."""
    return (stream.encoding or "").lower().replace("-", "").startswith("utf")


def supports_color(stream: TextIO) -> bool:
    """Whether to print colours there: a terminal that nobody asked to be plain (https://no-color.org)."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


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
        # What is buffered would fail again at exit; let it go where it harms nobody.
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
