"""A comparison as text: one column for each run, the first being what the others are compared with."""

from __future__ import annotations

from collections.abc import Sequence
from string import ascii_uppercase

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from isim.analyze.compare import ComparedMetric, Comparison, Verdict
from isim.analyze.metrics import METRICS
from isim.report.details import value_text
from isim.report.terminal import bullets, empty_table, print_text
from isim.report.text import change_text, plain

_MARKS = {
    Verdict.EQUAL: "=",
    Verdict.TIE: "=",
    Verdict.STEP_TIME: "?",
    Verdict.DIFFERS: "*",
    Verdict.UNKNOWN: "-",
}
_LEGEND = (
    "= tie, within 2 % (TTFT and its parts 5 %); ? no more than step times 10 % off would move one of the two; "
    "* beyond both; - not defined"
)
_LABEL_WIDTH = 22
_FIRST_WIDTH = 11
_RUN_WIDTH = 23
_LABELS = {metric.name: metric.label for metric in METRICS}


def letter(run: int) -> str:
    """A, B, ... Z, then R26, R27, ..."""
    return ascii_uppercase[run] if run < len(ascii_uppercase) else f"R{run}"


def render_comparison(comparison: Comparison, *, width: int, color: bool = False, unicode: bool = True) -> str:
    """At most `width` columns wide; runs that do not fit beside one another come in tables below."""
    return print_text(lambda columns: _whole(comparison, columns, unicode), width=width, color=color)


def _whole(comparison: Comparison, width: int, unicode: bool) -> Group:
    parts: list[RenderableType] = [_runs(comparison), Text()]
    others = range(1, len(comparison.runs))
    fit = max(1, (width - _LABEL_WIDTH - _FIRST_WIDTH) // _RUN_WIDTH)
    for start in range(0, len(others), fit):
        parts += [_table(comparison, others[start : start + fit], unicode), Text()]
    parts.append(Text(_LEGEND))
    if comparison.notes:
        parts += [Text(), bullets("Notes", comparison.notes, "bold yellow")]
    return Group(*parts)


def _runs(comparison: Comparison) -> Table:
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(style="bold", no_wrap=True)
    grid.add_column(overflow="fold")
    for number, run in enumerate(comparison.runs):
        load = (run.load or "unknown").replace("_", " ")
        grid.add_row(letter(number), Text(plain(f"{run.path}: {run.name}, seed {run.seed}, load {load}")))
        for name, words in run.changed.items():
            grid.add_row("", Text(plain(f"{name}: {words}")))
    return grid


def _table(comparison: Comparison, others: Sequence[int], unicode: bool) -> Table:
    heads = [word for other in others for word in (letter(other), f"{letter(other)} / A")]
    table = empty_table("Side by side", ("", "A", *heads), unicode)
    for metric in comparison.metrics:
        shown = [metric.values[run] for run in (0, *others)]
        if any(shown):
            cells = [cell for other in others for cell in _cells(metric, other)]
            label = Text(_LABELS[metric.metric], style="bold")
            table.add_row(label, value_text(metric.unit, metric.values[0]), *cells)
    return table


def _cells(metric: ComparedMetric, run: int) -> tuple[str, Text]:
    verdict = metric.verdicts[run]
    text = f"{change_text(metric.changes[run])} {_MARKS[verdict]}"
    return value_text(metric.unit, metric.values[run]), Text(text, style="bold" if verdict is Verdict.DIFFERS else "")
