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
from isim.scenario.load import load_scenario
from isim.scenario.types import Scenario

OnRun = Callable[[int], None]
"""Called with how many runs there were, as each begins."""


class NothingCompleted(IsimError):  # noqa: N818 - it names a state of the run, as a person would say it
    """The run to be calibrated ended and nothing completed."""

    exit_code = 4


class Bench:
    """`given` is the run file's scenario with all its factors written out. `runs` counts simulations."""

    def __init__(self, file: str, sets: Sequence[str], on_run: OnRun) -> None:
        self.file = file
        self.runs = 0
        self.given = settled(load_scenario(file, sets))
        self._on_run = on_run

    @property
    def base_dir(self) -> Path:
        return Path(self.file).parent

    def run(self, scenario: Scenario) -> Analysis:
        """One simulation, which may take more events than the run file allows: with other factors steps are more.

        Raises NothingCompleted.
        """
        limits = msgspec.structs.replace(scenario.simulation, max_events=2 * scenario.simulation.max_events)
        return self._run(msgspec.structs.replace(scenario, simulation=limits))[0]

    def look(self, scenario: Scenario) -> tuple[Analysis, LoadState | None]:
        """One simulation, and the state of its load: if it is stable by itself, two further ones are asked as well."""
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
        collector = Collector()
        finished = simulate(
            scenario,
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
