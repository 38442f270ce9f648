"""`isim calibrate RUN MEASURED`: the declared factors with which a run tells what was measured."""

from __future__ import annotations

import argparse
import gc
import sys
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from isim.calibrate.bench import Bench, OnRun
from isim.calibrate.measured import load_measured
from isim.calibrate.outcome import calibration, with_fitted
from isim.calibrate.search import Search
from isim.cli.folder import check_new_file, new_file
from isim.cli.output import emit, emit_json, say, style
from isim.scenario.factors import chosen, fittable
from isim.scenario.resolve import relocated, resolved_yaml
from isim.scenario.types import Scenario

NOT_IDENTIFIED = 1


def calibrate(arguments: argparse.Namespace) -> int:
    """Fit, report, write; 1 where the measurements identify no factor."""
    out: str | None = arguments.out
    if out is not None:
        check_new_file(out)
    measured = load_measured(arguments.measured)
    gc.disable()
    with _progress(quiet=arguments.quiet) as progress:
        bench = Bench(arguments.file, arguments.set, progress)
        if out is not None:
            relocated(bench.given, bench.base_dir, Path(out).parent)
        paths: list[str] = arguments.fit or []
        factors = chosen(bench.given, paths) if paths else fittable(bench.given)
        found = Search(bench, measured, factors).find(arguments.metric or [], explicit=bool(paths))
    told = calibration(bench, measured, factors, found)
    if out is not None and told.settings:
        _write(with_fitted(bench.given, factors, found, told), bench.base_dir, out)
    if arguments.json:
        emit_json(told)
    elif not arguments.quiet:
        from isim.report.calibration import render_calibration

        emit(render_calibration(told, **style()))
    if told.settings:
        return 0
    say("isim: no factor is identified by what was measured; nothing was fitted" + (", nor written" if out else ""))
    return NOT_IDENTIFIED


def _write(scenario: Scenario, base_dir: Path, out: str) -> None:
    moved = relocated(scenario, base_dir, Path(out).parent)
    with new_file(out) as unfinished, open(unfinished, "w", encoding="utf-8") as stream:
        stream.write(resolved_yaml(moved))


def _progress(*, quiet: bool) -> AbstractContextManager[OnRun]:
    """How many simulations there were, on standard error, where that is a terminal and somebody wants it."""
    if quiet or not sys.stderr.isatty():
        return nullcontext(lambda _: None)
    from isim.cli.progress import runs_counted

    return runs_counted()
