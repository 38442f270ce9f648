"""The details of a run of moderate size, put into its result."""

from __future__ import annotations

from pathlib import Path

import msgspec

from isim.analyze.closer import Watcher, over_time, step_time
from isim.analyze.result import Analysis, Facts
from isim.analyze.schema import Result
from isim.analyze.schema_details import Details, DetailState
from isim.analyze.sensitivity import sensitivity, with_sensitivity
from isim.cost.base import CostModel
from isim.scenario.types import Scenario


def closer(watcher: Watcher, analysis: Analysis, facts: Facts, run: tuple[Scenario, Path, CostModel]) -> Result:
    """The result with its details. `run` is what was run: the scenario, where its paths start, and its cost model."""
    scenario, base_dir, cost = run
    result = analysis.result
    found = sensitivity(scenario, base_dir, facts, result)
    told = None if isinstance(found, str) else found
    return msgspec.structs.replace(
        result,
        load=result.load if told is None else with_sensitivity(result.load, told),
        details=Details(
            state=DetailState.GIVEN,
            step_time=step_time(watcher, cost, result.busy.busy_ns),
            over_time=over_time(watcher, analysis.collector, result),
            sensitivity=told,
            no_sensitivity=found if isinstance(found, str) else None,
        ),
    )
