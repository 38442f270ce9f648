"""What a campaign comes to, in the contract's names: `isim/campaign`, revision 1.

Latency is from the admission of an execution to its terminal. The events that the replay applied are admissions,
operations and terminals.
"""

from __future__ import annotations

import msgspec

from isim.analyze.execution import ExecutionCollector
from isim.analyze.topology import Checked, CostFacts
from isim.model.spec import Confidence

SCHEMA = "isim/campaign"
REVISION = 1


class _Wire(msgspec.Struct, frozen=True, rename="camel"):
    """Immutable, with the contract's names on the wire."""


class CampaignOptions(_Wire, frozen=True, kw_only=True):
    execution_count: int
    seed: int
    arrival_window_ns: int


class LatencyNs(_Wire, frozen=True, kw_only=True):
    """`p95` is the value at the nearest rank."""

    minimum: int
    average: float
    p95: int
    maximum: int


class Admission(_Wire, frozen=True, kw_only=True):
    execution_id: str
    arrival_ns: int
    admission_order: int


class CampaignResult(_Wire, frozen=True, kw_only=True):
    """`replay` is `passed`, or `not_run` where nobody asked for it; `log_digest` is that of the execution log."""

    schema: str = SCHEMA
    revision: int = REVISION
    scenario_id: str
    profile_id: str
    confidence: Confidence
    cost_model: CostFacts
    options: CampaignOptions
    completed_at_ns: int
    execution_count: int
    maximum_concurrent_executions: int
    submitted_operations: int
    latency_ns: LatencyNs
    replay: str
    replay_applied_events: int
    log_digest: str | None
    admissions: tuple[Admission, ...]


class CampaignOf(msgspec.Struct, frozen=True, kw_only=True):
    """What the plan was made of."""

    scenario: str
    profile: str
    confidence: Confidence
    costs: CostFacts


def campaign_result(
    plan: CampaignOf, options: CampaignOptions, collector: ExecutionCollector, checked: Checked
) -> CampaignResult:
    """The result of a campaign, of which the collector has read the log to its end."""
    latency = collector.latency_ns()
    assert latency is not None, "a campaign has at least one execution"
    operations, executions = len(collector.operations), len(collector.terminals)
    return CampaignResult(
        scenario_id=plan.scenario,
        profile_id=plan.profile,
        confidence=plan.confidence,
        cost_model=plan.costs,
        options=options,
        completed_at_ns=collector.completed_ns(),
        execution_count=executions,
        maximum_concurrent_executions=collector.most_at_once(),
        submitted_operations=operations,
        latency_ns=LatencyNs(
            minimum=latency.minimum, average=latency.average, p95=latency.p95, maximum=latency.maximum
        ),
        replay=checked.replay,
        replay_applied_events=operations + 2 * executions,
        log_digest=checked.log_digest,
        admissions=tuple(
            Admission(execution_id=admit.execution, arrival_ns=admit.time_ns, admission_order=admit.admission)
            for admit in collector.admissions
        ),
    )
