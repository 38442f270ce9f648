"""Runs of one run file with other factors: nothing but the factors differs between them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from isim.analyze.collect import Collector
from isim.analyze.facts import facts_of
from isim.analyze.result import Analysis, Facts, analyze
from isim.analyze.schema import LoadState, ReplayState
from isim.analyze.sensitivity import sensitivity, with_sensitivity
from isim.assembly import settled
from isim.record.errors import IsimError
from isim.run import simulate
from isim.scenario.files import read_bytes
from isim.scenario.load import read_scenario
from isim.scenario.nodes import RUN_FILE_LIMITS
from isim.scenario.types import Scenario

OnRun = Callable[[int], None]
"""Called with how many runs there were, as each begins."""


class NothingCompleted(IsimError):  # noqa: N818 - it names a state of the run, as a person would say it
    """The run to be calibrated ended and nothing completed."""

    exit_code = 4


class Bench:
    """The run file is read once. `runs` counts simulations."""

    def __init__(self, file: str, sets: Sequence[str], on_run: OnRun) -> None:
        self.file = file
        self.runs = 0
        self._data = read_bytes(file, RUN_FILE_LIMITS)
        self._sets = list(sets)
        self._on_run = on_run

    @property
    def base_dir(self) -> Path:
        return Path(self.file).parent

    def scenario(self, settings: Sequence[str] = ()) -> Scenario:
        """The run file's scenario with these factors, and all others written out."""
        return settled(read_scenario(self._data, self.file, [*self._sets, *settings]))

    def run(self, settings: Sequence[str] = ()) -> Analysis:
        """One simulation. Raises NothingCompleted."""
        return self._run(self.scenario(settings))[0]

    def look(self, settings: Sequence[str] = ()) -> tuple[Analysis, LoadState | None]:
        """One simulation, and the state of its load: if it is stable by itself, two further ones are asked as well."""
        scenario = self.scenario(settings)
        analysis, facts = self._run(scenario)
        load = analysis.result.load
        if load.state is not LoadState.STABLE:
            return analysis, load.state
        for _ in range(2):
            self._count()
        found = sensitivity(scenario, self.base_dir, facts, analysis.result)
        return analysis, (load if isinstance(found, str) else with_sensitivity(load, found)).state

    def _run(self, scenario: Scenario) -> tuple[Analysis, Facts]:
        self._count()
        limits = msgspec.structs.replace(scenario.simulation, max_events=2 * scenario.simulation.max_events)
        collector = Collector()
        finished = simulate(
            msgspec.structs.replace(scenario, simulation=limits),
            base_dir=self.base_dir,
            lane_readers=[collector.read_lanes],
            digest=False,
        )
        facts = facts_of(scenario, finished, ReplayState.NOT_RUN)
        analysis = analyze(collector, facts)
        if not analysis.result.counts.measured:
            raise NothingCompleted(f"{self.file}: nothing completed that could be compared with what was measured")
        return analysis, facts

    def _count(self) -> None:
        self.runs += 1
        self._on_run(self.runs)
