"""What is known of a finished run besides its log."""

from __future__ import annotations

from isim.analyze.describe import simulated
from isim.analyze.result import Facts
from isim.analyze.schema import ReplayState
from isim.run import FinishedRun
from isim.scenario.types import Scenario


def facts_of(scenario: Scenario, finished: FinishedRun, replay: ReplayState) -> Facts:
    """What the scenario asks for and the simulation says of itself."""
    return Facts(
        name=scenario.name,
        simulated=simulated(scenario),
        warmup=scenario.simulation.warmup,
        capacity=finished.capacity,
        confidence=finished.confidence,
        assumptions=finished.assumptions,
        provenance=finished.provenance,
        log_digest=finished.digest,
        workload_sha256=finished.workload_sha256,
        replay=replay,
        slo=scenario.slo,
        labels=finished.labels,
        scenario=scenario,
    )
