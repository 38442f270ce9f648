"""How much the main numbers change when every step takes 10 % less or more: two further runs of the same requests.

No model of step times is better than a few percent, and near saturation a few percent of step time move a latency
several times over. So each number is told with its change, and those that change more than twice as much as the step
times are called steep: they say that the load is near the knee, not how long anybody waits.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from isim.analyze.collect import Collector
from isim.analyze.metrics import VARIED, Metric, beyond, change
from isim.analyze.result import Facts, analyze
from isim.analyze.schema import Load, LoadReason, LoadState, Result
from isim.analyze.schema_details import STEEP_TIMES, STEP_TIME_PERCENT, MetricChange, Sensitivity
from isim.record.errors import CausalityError, IsimError
from isim.run import simulate
from isim.scenario.types import Scenario

_STEEP_PERCENT = STEEP_TIMES * STEP_TIME_PERCENT
_WEIGHTY = ("latency.ttft_ns.mean", "latency.e2e_ns.mean")


def sensitivity(scenario: Scenario, base_dir: Path, facts: Facts, result: Result) -> Sensitivity | str:
    """Run twice more; or why there is no telling: with other step times the run does not come to its end."""
    found = []
    for percent in (100 - STEP_TIME_PERCENT, 100 + STEP_TIME_PERCENT):
        try:
            found.append(_run(scenario, base_dir, facts, percent))
        except CausalityError:
            raise
        except IsimError as error:
            return f"with steps of {percent} %: {error}"
    faster, slower = found
    return Sensitivity(
        metrics=[_change(metric, result, faster, slower) for metric in VARIED if metric.of(result) is not None],
        faster_load=faster.load.state,
        slower_load=slower.load.state,
    )


def with_sensitivity(load: Load, found: Sensitivity) -> Load:
    """The load, near saturation if it is so when steps take a little longer."""
    if load.state is None or not (found.slower_load == LoadState.OVERLOADED or _steep(found)):
        return load
    state = LoadState.NEAR_SATURATION if load.state is LoadState.STABLE else load.state
    return msgspec.structs.replace(load, state=state, reasons=[*load.reasons, LoadReason.STEP_TIME])


def _steep(found: Sensitivity) -> bool:
    return any(
        change.metric in _WEIGHTY and change.slower_change is not None and 100 * change.slower_change > _STEEP_PERCENT
        for change in found.metrics
    )


def _run(scenario: Scenario, base_dir: Path, facts: Facts, percent: int) -> Result:
    """One of the runs. It may cost more events than the one it is of, which came to its end within the limit."""
    simulation = scenario.simulation
    simulation = msgspec.structs.replace(simulation, max_events=2 * simulation.max_events)
    scenario = msgspec.structs.replace(scenario, simulation=simulation)
    collector = Collector()
    finished = simulate(scenario, base_dir=base_dir, readers=[collector.read], digest=False, step_time_percent=percent)
    return analyze(collector, msgspec.structs.replace(facts, labels=finished.labels)).result


def _change(metric: Metric, result: Result, faster: Result, slower: Result) -> MetricChange:
    value, less, more = (metric.of(each) for each in (result, faster, slower))
    assert value is not None
    return MetricChange(
        metric=metric.name,
        value=value,
        faster=less,
        slower=more,
        faster_change=change(value, less),
        slower_change=change(value, more),
        steep=any(value != 0 and other is not None and beyond(value, other, _STEEP_PERCENT) for other in (less, more)),
    )
