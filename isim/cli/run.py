"""`isim run FILE`: simulate, check, report."""

from __future__ import annotations

import argparse
import gc
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from isim.analyze.collect import Collector
from isim.analyze.facts import facts_of
from isim.analyze.result import Analysis, analyze, encode
from isim.analyze.schema import ReplayState
from isim.analyze.schema_details import Details, DetailState
from isim.cli.folder import LOG, REQUESTS, RESULT, SCENARIO, OutFolder
from isim.cli.output import emit, say
from isim.record.errors import CausalityError
from isim.record.log import Reader
from isim.run import FinishedRun, simulate
from isim.scenario.load import load_scenario
from isim.scenario.types import ClosedLoop, Generated, Mixture, Scenario, Sessions

if TYPE_CHECKING:
    from isim.analyze.closer import Watcher

NOTHING_COMPLETED = 4


class DetailWish(StrEnum):
    """Whether to take the closer look that `isim.analyze.schema_details.Details` holds."""

    AUTO = "auto"
    ALWAYS = "always"
    NEVER = "never"


class Wishes(msgspec.Struct, frozen=True, kw_only=True):
    """What the command line asks for besides the scenario. A log is written only where there is a folder for it."""

    base_dir: Path
    log: bool
    replay: bool
    quiet: bool
    details: DetailWish

    @property
    def digest(self) -> bool:
        return self.log or self.replay


def run(arguments: argparse.Namespace) -> int:
    """Run the file; 4 when the run ended and nothing completed."""
    sets = list(arguments.set)
    if arguments.seed is not None:
        sets.append(f"simulation.seed={arguments.seed}")
    scenario = load_scenario(arguments.file, sets)
    wishes = Wishes(
        base_dir=Path(arguments.file).parent,
        log=not arguments.no_log,
        replay=not arguments.no_replay,
        quiet=arguments.quiet,
        details=DetailWish(arguments.details) if arguments.out or not arguments.quiet else DetailWish.NEVER,
    )
    if arguments.out is None:
        analysis = _run_in_memory(scenario, wishes)
    else:
        analysis = _run_to_folder(scenario, wishes, OutFolder(arguments.out))
    if arguments.json:
        emit(encode(analysis.result).decode())
    elif not arguments.quiet:
        from isim.cli.report import print_report

        print_report(analysis.result)
    return 0 if analysis.result.counts.completed else NOTHING_COMPLETED


class _Eyes:
    """The readers that analyze a run: the collector, and the watcher of those who want details."""

    def __init__(self, wish: DetailWish) -> None:
        self.collector = Collector()
        self.readers: list[Reader] = []
        self.watcher: Watcher | None = None
        if wish is not DetailWish.NEVER:
            from isim.analyze.closer import Watcher

            self.watcher = Watcher(always=wish is DetailWish.ALWAYS)
            self.readers.append(self.watcher.read)


def _run_in_memory(scenario: Scenario, wishes: Wishes) -> Analysis:
    """The replay, if any, reads along."""
    eyes = _Eyes(wishes.details)
    if not wishes.replay:
        return _analysis(scenario, wishes, _simulate(scenario, wishes, eyes, []), eyes, ReplayState.NOT_RUN)
    from isim.replay import Replay

    replay = Replay()
    finished = _simulate(scenario, wishes, eyes, [replay.read])
    replay.finish()
    return _analysis(scenario, wishes, finished, eyes, ReplayState.PASSED)


def _run_to_folder(scenario: Scenario, wishes: Wishes, folder: OutFolder) -> Analysis:
    """The replay, if any, reads the log back from its file."""
    from isim.analyze.table import write_requests
    from isim.assembly import settled
    from isim.scenario.resolve import relocated, resolved_yaml

    with folder:
        moved = relocated(settled(scenario), wishes.base_dir, folder.final)
        folder.path(SCENARIO).write_text(resolved_yaml(moved), encoding="utf-8")
        if wishes.log:
            analysis = _run_with_log(scenario, wishes, folder)
        else:
            analysis = _run_in_memory(scenario, wishes)
        folder.path(RESULT).write_bytes(encode(analysis.result))
        with folder.path(REQUESTS).open("w", encoding="utf-8", newline="") as stream:
            write_requests(analysis, stream)
    if not wishes.quiet:
        say(f"written: {folder.final}")
    return analysis


def _run_with_log(scenario: Scenario, wishes: Wishes, folder: OutFolder) -> Analysis:
    from isim.record.codec import LogWriter

    eyes = _Eyes(wishes.details)
    with folder.path(LOG).open("wb") as stream:
        finished = _simulate(scenario, wishes, eyes, [LogWriter(stream).write])
    if not wishes.replay:
        return _analysis(scenario, wishes, finished, eyes, ReplayState.NOT_RUN)
    from isim.replay import replay_log

    summary = replay_log(folder.path(LOG))
    if summary.log_digest != finished.digest:
        raise CausalityError(
            f"the log was written with digest {finished.digest} and read back with {summary.log_digest}"
        )
    return _analysis(scenario, wishes, finished, eyes, ReplayState.PASSED)


def _simulate(scenario: Scenario, wishes: Wishes, eyes: _Eyes, readers: Sequence[Reader]) -> FinishedRun:
    # A run makes no garbage that reference counts do not free; looking for some costs a tenth of it.
    gc.disable()
    with _progress(scenario, quiet=wishes.quiet) as progress:
        return simulate(
            scenario,
            base_dir=wishes.base_dir,
            readers=[*eyes.readers, *readers],
            lane_readers=[eyes.collector.read_lanes],
            digest=wishes.digest,
            progress=progress,
        )


def _progress(scenario: Scenario, *, quiet: bool) -> AbstractContextManager[Callable[[int, int], None] | None]:
    """A progress bar on standard error, where that is a terminal and somebody wants it."""
    if quiet or not sys.stderr.isatty():
        return nullcontext()
    from isim.cli.progress import progress_bar

    workload = scenario.workload
    if isinstance(workload, Sessions):
        return progress_bar(None)
    return progress_bar(workload.requests if isinstance(workload, Generated | Mixture | ClosedLoop) else workload.limit)


def _analysis(scenario: Scenario, wishes: Wishes, finished: FinishedRun, eyes: _Eyes, replay: ReplayState) -> Analysis:
    facts = facts_of(scenario, finished, replay)
    analysis = analyze(eyes.collector, facts)
    watcher = eyes.watcher
    if watcher is None:
        return analysis
    if not watcher.whole:
        changed = {"details": Details(state=DetailState.TOO_LARGE)}
        return replace(analysis, result=replace(analysis.result, **changed))
    from isim.analyze.details import closer

    return replace(analysis, result=closer(watcher, analysis, facts, (scenario, wishes.base_dir, finished.cost)))
