"""`isim compare DIR DIR...`: results side by side."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from isim.analyze.compare import compare as compared
from isim.analyze.compare import encode
from isim.cli.output import columns, emit, supports_color, supports_unicode
from isim.cli.report import read_result
from isim.scenario.nodes import printable


def compare(directories: Sequence[str], *, json: bool) -> int:
    """Print the comparison. Raises ResultError for the first folder without a result."""
    comparison = compared([(printable(directory), read_result(Path(directory))) for directory in directories])
    if json:
        emit(encode(comparison).decode())
        return 0
    from isim.report.compare import render_comparison

    stream = sys.stdout
    width, color, unicode = columns(stream), supports_color(stream), supports_unicode(stream)
    emit(render_comparison(comparison, width=width, color=color, unicode=unicode))
    return 0
