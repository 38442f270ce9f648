"""Progress of a run on a terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn


@contextmanager
def progress_bar(requests: int | None) -> Iterator[Callable[[int, int], None]]:
    """A bar that goes away when the run is over; `requests` None: how many there will be is not known."""
    columns = (
        SpinnerColumn(),
        BarColumn(),
        TextColumn("{task.completed:,.0f} requests, {task.fields[seconds]:,} s simulated"),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=requests, seconds=0)

        def update(finished: int, time_ns: int) -> None:
            bar.update(task, completed=finished, seconds=time_ns // 1_000_000_000)

        yield update


@contextmanager
def runs_counted() -> Iterator[Callable[[int], None]]:
    """A line that says which of an unknown number of simulations is on, and goes away in the end."""
    with Progress(
        SpinnerColumn(), TextColumn("simulation {task.completed}"), console=Console(stderr=True), transient=True
    ) as bar:
        task = bar.add_task("", total=None)
        yield lambda runs: bar.update(task, completed=runs)
