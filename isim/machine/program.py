"""A plan made ready for execution on one topology: places instead of names, resolved once for all executions of it."""

from __future__ import annotations

import msgspec
from msgspec import UNSET

from isim.machine.resources import Resources
from isim.plan.types import Collective, Compute, FrozenPlan, PlanStep, Transfer
from isim.record.execution import (
    CollectiveEvidence,
    CollectiveFact,
    CollectiveKind,
    ComputeFact,
    OperationFact,
    PlanRecords,
    StepFact,
    TransferFact,
    plan_records,
)


class Work(msgspec.Struct, frozen=True, kw_only=True):
    """A step. `resources` are places in the topology's list, `names` their ids, `after` the places of the steps that
    wait for it; `read_roots` and `write_roots` are physical allocations. `group` is empty but for collectives."""

    fact: StepFact
    duration_ns: int
    resources: tuple[int, ...]
    names: tuple[str, ...]
    read_roots: tuple[str, ...]
    write_roots: tuple[str, ...]
    group: str
    evidence: CollectiveEvidence | None
    after: tuple[int, ...]
    waits: int


class Program(msgspec.Struct, frozen=True, kw_only=True):
    """`records` is what a log says of the plan. `collectives` counts the operations of each group; `places` gives the
    place of a step by its id."""

    records: PlanRecords
    steps: tuple[Work, ...]
    places: dict[int, int]
    collectives: dict[str, int]
    ranks: tuple[str, ...]

    @property
    def digest(self) -> str:
        """The name of the plan's content."""
        return self.records[0].digest


def program_of(plan: FrozenPlan, machine: Resources) -> Program:
    """Resolve a validated plan."""
    places = {step.id: place for place, step in enumerate(plan.steps)}
    followers: list[list[int]] = [[] for _ in plan.steps]
    waits: list[int] = []
    for place, step in enumerate(plan.steps):
        dependencies = dict.fromkeys(step.dependencies)
        waits.append(len(dependencies))
        for dependency in dependencies:
            followers[places[dependency]].append(place)
    steps = tuple(_work(step, machine, tuple(followers[place]), waits[place]) for place, step in enumerate(plan.steps))
    collectives: dict[str, int] = {}
    for work in steps:
        if work.group:
            collectives[work.group] = collectives.get(work.group, 0) + 1
    facts = tuple(work.fact for work in steps)
    records = plan_records(plan.id, plan.contract_revision, plan.topology_epoch, facts)
    ranks = tuple(sorted({rank for step in plan.steps for rank in step.participants}))
    return Program(records=records, steps=steps, places=places, collectives=collectives, ranks=ranks)


def _work(step: PlanStep, machine: Resources, after: tuple[int, ...], waits: int) -> Work:
    roots = machine.roots
    writes = dict.fromkeys(roots.get(name, name) for name in step.writes)
    reads = dict.fromkeys(roots.get(name, name) for name in step.reads)
    operation = _fact(step.operation)
    resources = tuple(_resources(operation, machine))
    evidence = _evidence(operation) if isinstance(operation, CollectiveFact) else None
    return Work(
        fact=StepFact(
            id=step.id,
            participants=step.participants,
            dependencies=step.dependencies,
            reads=step.reads,
            writes=step.writes,
            operation=operation,
        ),
        duration_ns=operation.duration_ns,
        resources=resources,
        names=tuple(machine.resources[place].id for place in resources),
        read_roots=tuple(name for name in reads if name not in writes),
        write_roots=tuple(writes),
        group="" if evidence is None else evidence.group,
        evidence=evidence,
        after=after,
        waits=waits,
    )


def _evidence(operation: CollectiveFact) -> CollectiveEvidence:
    return CollectiveEvidence(
        group=operation.group, comm_sequence=operation.comm_sequence, algorithm=operation.algorithm
    )


def _resources(operation: OperationFact, machine: Resources) -> list[int]:
    match operation:
        case ComputeFact():
            return [machine.compute(operation.device)]
        case TransferFact():
            return machine.path((operation.link,))
        case CollectiveFact():
            return [machine.collective(operation.group), *machine.path(operation.links)]


def _fact(operation: Compute | Transfer | Collective) -> OperationFact:
    match operation:
        case Compute():
            return ComputeFact(
                device=operation.device_id,
                capability=operation.capability.value,
                duration_ns=operation.duration_ns,
                component=None if operation.component_id is UNSET else operation.component_id,
                phase=None if operation.pipeline_phase is UNSET else operation.pipeline_phase.value,
            )
        case Transfer():
            return TransferFact(link=operation.link_id, duration_ns=operation.duration_ns)
        case Collective():
            return CollectiveFact(
                group=operation.group_id,
                comm_sequence=operation.comm_sequence_id,
                algorithm=CollectiveKind(operation.algorithm.value),
                links=operation.link_ids,
                duration_ns=operation.duration_ns,
            )
