"""`isim validate FILE`: whether a file holds, whatever it is, and what it comes to."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from isim.cli.kinds import FileKind, kind_of
from isim.cli.output import emit
from isim.record.canonical import fingerprint
from isim.record.errors import IsimError
from isim.report.text import count_text
from isim.topology.index import Topology


class UsageError(IsimError):
    """Options that do not go together with this file."""


def validate(file: str, sets: Sequence[str]) -> int:
    """Check the file as its format asks; overrides are for run files only."""
    kind = kind_of(file)
    if kind is FileKind.RUN:
        from isim.cli.validate_run import validate_run

        return validate_run(file, sets)
    if sets:
        raise UsageError(f"{file}: expected a run file for --set, found a file of another kind")
    lines = _CHECKS[kind](file)
    emit("\n".join([f"{file}: valid", *lines]) + "\n")
    return 0


def _topology(file: str) -> list[str]:
    from isim.topology.load import load_topology

    return _described(load_topology(file))


def _described(topology: Topology) -> list[str]:
    scenario = topology.scenario
    nodes = dict.fromkeys(device.node_id for device in scenario.devices)
    reserved = sum(owned.allocation.bytes for owned in topology.allocations.values() if not owned.allocation.alias_of)
    parts = [
        count_text(len(nodes), "node"),
        count_text(len(scenario.devices), "device"),
        count_text(len(scenario.memory_domains), "memory", "memories"),
        count_text(len(scenario.links), "directed link"),
        count_text(len(scenario.placements), "placement"),
    ]
    return [
        f"topology     {scenario.id}, {scenario.family.value}",
        f"parts        {', '.join(parts)}",
        f"reserved     {reserved:,} bytes",
        f"fingerprint  {fingerprint(msgspec.to_builtins(scenario))}",
    ]


def _workload(file: str) -> list[str]:
    from isim.plan.workload import load_workload

    workload = load_workload(file)
    campaign = workload.campaign
    lines = [f"workload     {workload.token_count} tokens of the target model"]
    if campaign is not None:
        seed = "the scenario's" if campaign.seed is None else campaign.seed
        lines.append(f"campaign     {campaign.executions} executions in {campaign.window_ns} ns, seed {seed}")
    return lines


def _plan(file: str) -> list[str]:
    from isim.plan.artifact import load_artifact

    artifact = load_artifact(file)
    plan = artifact.plan
    return [
        f"plan         {plan.id}, execution {plan.execution_id}, {len(plan.steps)} steps",
        *_described(artifact.topology),
        f"plan         {artifact.plan_fingerprint}",
        f"artifact     {artifact.artifact_fingerprint}",
    ]


_CHECKS: dict[FileKind, Callable[[str], list[str]]] = {
    FileKind.TOPOLOGY: _topology,
    FileKind.WORKLOAD: _workload,
    FileKind.PLAN: _plan,
}
