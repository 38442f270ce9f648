"""What each rank did when, as one line of letters for each rank: a picture of the first steps of an execution.

A column is a span of time and shows what the rank did for most of it, or `·` where it did nothing at all. A step too
short to fill a column still gets the one in which it began, so that whatever takes time is seen. The picture ends where
the busiest rank has ended its first steps, so that single steps can be told apart.
"""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from isim.analyze.execution import ExecutionCollector, Operation
from isim.record.execution import CollectiveFact, ComputeFact
from isim.report.text import count_text, plain, time_text

_FIRST_STEPS = 16
_RANKS_MOST = 16
_NAME_MOST = 24
_LETTERS = {"attention": "A", "ffn": "F", "transfer": "T", "collective": "C", "other compute": "o"}
_STYLES = {"A": "cyan", "F": "green", "T": "yellow", "C": "magenta", "o": "blue"}


def timeline(collector: ExecutionCollector, *, width: int, unicode: bool = True) -> RenderableType:
    """The ranks of an execution whose log was read to its end, in the order in which they first take part."""
    by_rank = _by_rank(collector)
    until_ns = _window_ns(by_rank, collector.completed_ns())
    shown = list(by_rank.items())[:_RANKS_MOST]
    name_width = min(_NAME_MOST, max((len(plain(rank)) for rank, _ in shown), default=0))
    columns = max(20, width - name_width - 2)
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(no_wrap=True, max_width=name_width, overflow="ellipsis" if unicode else "crop")
    grid.add_column(no_wrap=True)
    idle = "·" if unicode else "."
    for rank, operations in shown:
        grid.add_row(plain(rank), _line(_cells(operations, until_ns, columns, idle)))
    grid.add_row("", _axis(until_ns, columns))
    used = {_letter(operation): None for _, operations in shown for operation in operations}
    words = [f"{letter} {word}" for word, letter in _LETTERS.items() if letter in used]
    legend = Text(", ".join([*words, f"{idle} idle"]), style="dim")
    rest = len(by_rank) - len(shown)
    return Group(grid, legend, *([Text(f"and {count_text(rest, 'more rank', 'more ranks')}")] if rest else []))


def span_text(collector: ExecutionCollector) -> str:
    """How much of the whole the timeline shows."""
    total_ns = collector.completed_ns()
    until_ns = _window_ns(_by_rank(collector), total_ns)
    return "all of it" if until_ns >= total_ns else f"the first {time_text(until_ns)} of {time_text(total_ns)}"


def _by_rank(collector: ExecutionCollector) -> dict[str, list[Operation]]:
    by_rank: dict[str, list[Operation]] = {}
    for operation in collector.operations:
        for rank in operation.step.participants:
            by_rank.setdefault(rank, []).append(operation)
    return by_rank


def _window_ns(by_rank: dict[str, list[Operation]], total_ns: int) -> int:
    """When the rank with the most steps has ended its first ones; the whole where there are no more."""
    busiest: Sequence[Operation] = max(by_rank.values(), key=len, default=())
    if len(busiest) <= _FIRST_STEPS:
        return total_ns
    return max((operation.finish_ns or 0 for operation in busiest[:_FIRST_STEPS]), default=0)


def _letter(operation: Operation) -> str:
    fact = operation.step.operation
    if isinstance(fact, ComputeFact):
        return _LETTERS.get(fact.capability, _LETTERS["other compute"])
    return _LETTERS["collective" if isinstance(fact, CollectiveFact) else "transfer"]


def _cells(operations: Sequence[Operation], until_ns: int, columns: int, idle: str) -> list[str]:
    """The letter of each column: who fills most of it, of equals the first; or who is too short to fill any."""
    short: dict[int, str] = {}
    filled: list[dict[str, int]] = [{} for _ in range(columns)]
    for operation in operations:
        start_ns, end_ns = operation.start_ns or 0, min(operation.finish_ns or 0, until_ns)
        if end_ns <= start_ns:
            continue
        letter = _letter(operation)
        if (end_ns - start_ns) * columns < until_ns:
            short.setdefault(start_ns * columns // until_ns, letter)
            continue
        for column in range(start_ns * columns // until_ns, -(-end_ns * columns // until_ns)):
            left_ns, right_ns = column * until_ns // columns, (column + 1) * until_ns // columns
            overlap_ns = min(end_ns, right_ns) - max(start_ns, left_ns)
            cell = filled[column]
            cell[letter] = cell.get(letter, 0) + max(0, overlap_ns)
    letters = [max(cell, key=lambda letter: cell[letter]) if cell else idle for cell in filled]
    return [short.get(column, letter) for column, letter in enumerate(letters)]


def _line(cells: Sequence[str]) -> Text:
    line = Text()
    for cell in cells:
        line.append(cell, style=_STYLES.get(cell, "dim"))
    return line


def _axis(until_ns: int, columns: int) -> Text:
    right = time_text(until_ns)
    return Text(f"0{right.rjust(columns - 1)}", style="dim")
