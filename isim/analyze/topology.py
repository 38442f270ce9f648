"""What the execution of one plan on a topology comes to, in the contract's names: `isim/topology-run`, revision 1.

The foreground ends with the step that ends the last unit of work; what goes on after it is background drain. Service
is the time that steps held their resources, all added up, so that overlapping steps count in full. A utilization is
busy time over the whole duration and all lanes; resources that no step used are left out. Tokens per second are
committed tokens over the whole duration.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from isim.analyze.execution import ExecutionCollector, Operation
from isim.analyze.schema import ReplayState
from isim.model.spec import Confidence
from isim.plan.compile import CompiledPlan
from isim.plan.costs import CostModel
from isim.record.execution import CollectiveFact, CollectiveKind, ComputeFact, ExecutionStatus, TransferFact

SCHEMA = "isim/topology-run"
COMPARISON_SCHEMA = "isim/topology-comparison"
REVISION = 1
SECOND_NS = 10**9


class _Wire(msgspec.Struct, frozen=True, rename="camel"):
    """Immutable, with the contract's names on the wire."""


class ResourceUse(_Wire, frozen=True, kw_only=True):
    resource_id: str
    busy_ns: int
    capacity_lanes: int
    utilization: float


class OperationCounts(_Wire, frozen=True, kw_only=True):
    """Steps by kind; all-reduces and all-to-alls are among the collectives."""

    compute: int
    transfer: int
    collective: int
    all_reduce: int
    all_to_all: int


class RunMetrics(_Wire, frozen=True, kw_only=True):
    """`tokens_per_second` is None where the whole took no time."""

    total_duration_ns: int
    foreground_duration_ns: int
    background_drain_ns: int
    committed_tokens: int
    tokens_per_second: float | None
    compute_service_ns: int
    transfer_service_ns: int
    collective_service_ns: int
    compute_utilization: tuple[ResourceUse, ...]
    link_utilization: tuple[ResourceUse, ...]
    network_utilization: tuple[ResourceUse, ...]


class CostFacts(_Wire, frozen=True, kw_only=True):
    """The cost model that gave the steps their durations."""

    revision: int
    confidence: Confidence
    source: str
    transport_curve_count: int


class TopologyRun(_Wire, frozen=True, kw_only=True):
    """`log_digest` is that of the execution log."""

    schema: str = SCHEMA
    revision: int = REVISION
    scenario_id: str
    profile_id: str
    confidence: Confidence
    cost_model: CostFacts
    status: str
    plan_steps: int
    operation_counts: OperationCounts
    metrics: RunMetrics
    replay: ReplayState
    log_digest: str | None


class ComparisonRow(_Wire, frozen=True, kw_only=True):
    """One topology; `relative_to_fastest` is its duration over the shortest one, None where that is 0."""

    rank: int
    scenario_id: str
    duration_ns: int
    tokens_per_second: float | None
    relative_to_fastest: float | None
    confidence: Confidence


class TopologyComparison(_Wire, frozen=True, kw_only=True):
    """The same work on several topologies, the fastest first; equals by id, by code point."""

    schema: str = COMPARISON_SCHEMA
    revision: int = REVISION
    profile_id: str
    cost_model: CostFacts
    comparison: tuple[ComparisonRow, ...]


def topology_run(
    compiled: CompiledPlan, scenario_id: str, collector: ExecutionCollector, costs: CostModel, checked: Checked
) -> TopologyRun:
    """The result of a plan's execution, of which the collector has read the log to its end."""
    return TopologyRun(
        scenario_id=scenario_id,
        profile_id=compiled.profile.id,
        confidence=compiled.confidence,
        cost_model=cost_facts(costs),
        status=collector.terminals[0].status.value,
        plan_steps=len(compiled.plan.steps),
        operation_counts=_counts(collector.operations),
        metrics=_metrics(compiled, collector),
        replay=checked.replay,
        log_digest=checked.log_digest,
    )


class Checked(msgspec.Struct, frozen=True):
    """What became of the log."""

    replay: ReplayState
    log_digest: str | None


def uses_of(collector: ExecutionCollector) -> list[ResourceUse]:
    """All resources that some operation held, by name, over the whole duration."""
    total_ns = collector.completed_ns()
    used = dict.fromkeys(resource for operation in collector.operations for resource, _ in operation.lanes)
    return [
        ResourceUse(
            resource_id=use.resource,
            busy_ns=use.busy_ns,
            capacity_lanes=use.lanes,
            utilization=use.utilization(total_ns),
        )
        for use in sorted(collector.uses(), key=lambda use: use.resource)
        if use.resource in used
    ]


def cost_facts(costs: CostModel) -> CostFacts:
    """What a result says of its cost model."""
    return CostFacts(
        revision=costs.revision,
        confidence=costs.provenance.confidence,
        source=costs.provenance.source,
        transport_curve_count=0,
    )


def compare_runs(runs: Sequence[TopologyRun]) -> TopologyComparison:
    """Runs of the same work, ranked by duration."""
    ranked = sorted(runs, key=lambda run: (run.metrics.total_duration_ns, run.scenario_id))
    fastest_ns = ranked[0].metrics.total_duration_ns
    rows = [
        ComparisonRow(
            rank=place,
            scenario_id=run.scenario_id,
            duration_ns=run.metrics.total_duration_ns,
            tokens_per_second=run.metrics.tokens_per_second,
            relative_to_fastest=run.metrics.total_duration_ns / fastest_ns if fastest_ns else None,
            confidence=run.confidence,
        )
        for place, run in enumerate(ranked, 1)
    ]
    return TopologyComparison(profile_id=runs[0].profile_id, cost_model=runs[0].cost_model, comparison=tuple(rows))


def _metrics(compiled: CompiledPlan, collector: ExecutionCollector) -> RunMetrics:
    total_ns = collector.completed_ns()
    ends = {operation.step.id: operation.finish_ns for operation in collector.operations}
    foreground_ns = ends[compiled.terminal_step] or 0
    committed = compiled.profile.committed_tokens
    compute_ns, transfer_ns, collective_ns = collector.service_ns()
    uses = uses_of(collector)
    return RunMetrics(
        total_duration_ns=total_ns,
        foreground_duration_ns=foreground_ns,
        background_drain_ns=total_ns - foreground_ns,
        committed_tokens=committed,
        tokens_per_second=committed * SECOND_NS / total_ns if total_ns else None,
        compute_service_ns=compute_ns,
        transfer_service_ns=transfer_ns,
        collective_service_ns=collective_ns,
        compute_utilization=_of_kind(uses, "compute"),
        link_utilization=_of_kind(uses, "link"),
        network_utilization=_of_kind(uses, "network"),
    )


def _of_kind(uses: Sequence[ResourceUse], kind: str) -> tuple[ResourceUse, ...]:
    return tuple(use for use in uses if use.resource_id.startswith(f"{kind}:"))


def _counts(operations: Sequence[Operation]) -> OperationCounts:
    facts = [operation.step.operation for operation in operations]
    collectives = [fact.algorithm for fact in facts if isinstance(fact, CollectiveFact)]
    return OperationCounts(
        compute=sum(isinstance(fact, ComputeFact) for fact in facts),
        transfer=sum(isinstance(fact, TransferFact) for fact in facts),
        collective=len(collectives),
        all_reduce=collectives.count(CollectiveKind.ALL_REDUCE_RING),
        all_to_all=collectives.count(CollectiveKind.ALL_TO_ALL_V),
    )


def contract_execution(collector: ExecutionCollector) -> dict[str, Any]:
    """The one execution of a plan as the contract writes it: operations, terminal, and when each rank was through."""
    (plan,), (terminal,) = collector.plans.values(), collector.terminals
    envelope = {
        "contractRevision": plan.contract_revision,
        "executionId": terminal.execution,
        "topologyEpoch": plan.topology_epoch,
    }
    succeeded = [rank for rank in terminal.ranks if rank.status is ExecutionStatus.SUCCEEDED]
    states = [
        {"rankId": rank.rank, "status": rank.status.value, "terminalAtNs": rank.time_ns} for rank in terminal.ranks
    ]
    ending = {
        **envelope,
        "sourceSequence": terminal.operations,
        "kind": "execution_terminal",
        "status": terminal.status.value,
        "timestampNs": terminal.time_ns,
        "rankStates": states,
    }
    operations = [{**envelope, **_operation(operation)} for operation in collector.operations]
    return {
        "status": terminal.status.value,
        "executionId": terminal.execution,
        "completedAtNs": terminal.time_ns,
        "trace": {"operations": operations, "terminal": ending},
        "rankCompletions": [{"rankId": rank.rank, "completedAtNs": rank.time_ns} for rank in succeeded],
        "rankStates": states,
    }


def _operation(operation: Operation) -> dict[str, Any]:
    step, fact = operation.step, operation.step.operation
    kinds = {ComputeFact: "compute", TransferFact: "transfer", CollectiveFact: "collective"}
    told: dict[str, Any] = {
        "sourceSequence": operation.source_sequence,
        "stepId": step.id,
        "kind": kinds[type(fact)],
        "submittedAtNs": operation.submitted_ns,
        "startNs": operation.start_ns,
        "finishNs": operation.finish_ns,
        "resources": [{"resourceId": name, "resourceLane": lane} for name, lane in operation.lanes],
        "participants": step.participants,
        "reads": step.reads,
        "writes": step.writes,
    }
    if isinstance(fact, CollectiveFact):
        told["groupId"] = fact.group
        told["commSequenceId"] = fact.comm_sequence
        told["collectiveAlgorithm"] = fact.algorithm.value
    return told
