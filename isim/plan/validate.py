"""Whether a frozen plan holds on a scenario: every complaint at once, each with its code and its place.

Each step is looked at by itself first (`isim.plan.steps`), then the graph: every dependency known, no cycle. Last what
only a sound graph can say: two steps that use one allocation, one of them writing, must be ordered by dependencies, and
a group's collectives must follow one another.

Ordering is not tested pair by pair. Along a topological order each read is asked to follow the last writer, and each
write the last writer and the readers since; where that holds, every two steps that conflict are ordered, because to
wait is transitive. There are as many questions as uses of buffers, and `isim.plan.graph` answers them in near-linear
time. Where it does not hold, the complaints name the pairs that were asked for, not all that follow from them.

An alias is its physical allocation: buffers are compared by what they are, not by what they are called.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from isim.plan.buffers import Buffers
from isim.plan.graph import a_cycle, topological_order, unreached
from isim.plan.issues import PlanCode, PlanIssue, listed
from isim.plan.steps import StepChecks
from isim.plan.types import PLAN_CONTRACT_REVISION, Collective, FrozenPlan
from isim.record.records import SAFE_MAX
from isim.topology.index import Topology

_GRAPH = (PlanCode.DUPLICATE_STEP, PlanCode.UNKNOWN_DEPENDENCY, PlanCode.SELF_DEPENDENCY)


def validate_plan(plan: FrozenPlan, topology: Topology) -> list[PlanIssue]:
    """Everything that is wrong with a plan on a valid scenario, steps in plan order; empty if it may be executed."""
    issues = list(_envelope(plan, topology.scenario.execution.topology_epoch))
    buffers = Buffers(topology)
    checks = StepChecks(topology, buffers)
    positions: dict[int, int] = {}
    for position, step in enumerate(plan.steps):
        if step.id in positions:
            message = f"expected each id once, found {step.id} again; first at steps[{positions[step.id]}]"
            issues.append(PlanIssue(PlanCode.DUPLICATE_STEP, f"steps[{position}].id", message))
        elif not 0 <= step.id <= SAFE_MAX:
            message = f"expected an id from 0 to {SAFE_MAX}, found {step.id}"
            issues.append(PlanIssue(PlanCode.STEP_ID, f"steps[{position}].id", message))
        positions.setdefault(step.id, position)
    for position, step in enumerate(plan.steps):
        issues.extend(checks.check(position, step))
        issues.extend(_dependencies(position, step.id, step.dependencies, positions))
    total_ns = sum(step.operation.duration_ns for step in plan.steps)
    if total_ns > SAFE_MAX:
        message = f"expected durations of at most {SAFE_MAX} ns in all, found {total_ns}"
        issues.append(PlanIssue(PlanCode.DURATION_SUM, "steps", message))
    issues.extend(_graph(plan, buffers, positions, sound=not any(issue.code in _GRAPH for issue in issues)))
    return issues


def _envelope(plan: FrozenPlan, epoch: int) -> Iterator[PlanIssue]:
    if plan.contract_revision != PLAN_CONTRACT_REVISION:
        message = f"expected revision {PLAN_CONTRACT_REVISION}, found {plan.contract_revision}"
        yield PlanIssue(PlanCode.CONTRACT_REVISION, "contractRevision", message)
    for path, value in (("id", plan.id), ("executionId", plan.execution_id)):
        if not value:
            yield PlanIssue(PlanCode.EMPTY_ID, path, "expected a name, found none")
    if plan.topology_epoch != epoch:
        message = f"expected the scenario's epoch {epoch}, found {plan.topology_epoch}"
        yield PlanIssue(PlanCode.TOPOLOGY_EPOCH, "topologyEpoch", message)
    if not plan.steps:
        yield PlanIssue(PlanCode.EMPTY_PLAN, "steps", "expected at least one step, found none")


def _dependencies(
    position: int, own: int, dependencies: Sequence[int], positions: dict[int, int]
) -> Iterator[PlanIssue]:
    path = f"steps[{position}].dependencies"
    unknown = [other for other in dependencies if other not in positions]
    if unknown:
        message = f"expected ids of steps of the plan, found {listed(unknown)}"
        yield PlanIssue(PlanCode.UNKNOWN_DEPENDENCY, path, message)
    if own in dependencies:
        yield PlanIssue(PlanCode.SELF_DEPENDENCY, path, f"expected other steps, found the step itself, {own}")
    if len(dict.fromkeys(dependencies)) < len(dependencies):
        yield PlanIssue(PlanCode.DUPLICATE_VALUE, path, "expected each step once, found one again")


def _graph(plan: FrozenPlan, buffers: Buffers, positions: dict[int, int], *, sound: bool) -> Iterator[PlanIssue]:
    """Cycles; then, if the graph is sound and has none, the order of leases and of collectives."""
    before = [
        [position if other == step.id else positions[other] for other in step.dependencies if other in positions]
        for position, step in enumerate(plan.steps)
    ]
    order = topological_order(before)
    if order is None:
        ids = [plan.steps[position].id for position in a_cycle(before)]
        message = f"expected no cycle, found {listed([*ids, ids[0]])}, each waiting for the next"
        yield PlanIssue(PlanCode.DEPENDENCY_CYCLE, "steps", message)
        return
    chains, gaps = _chains(plan)
    yield from gaps
    if not sound:
        return
    asked = list(conflicts(plan, buffers, order))
    follows = [pair for chain in chains for pair in pairwise(chain)]
    failed = dict.fromkeys(unreached(before, order, [*[(a, b) for a, b, _ in asked], *follows]))
    shared: dict[tuple[int, int], list[str]] = {}
    for first, second, allocation in asked:
        if (first, second) in failed:
            shared.setdefault((first, second), []).append(allocation)
    for (first, second), allocations in sorted(shared.items()):
        names = listed(dict.fromkeys(allocations))
        message = f"expected one step to wait for the other, since both use {names} and one of them writes"
        path = f"steps[{min(first, second)}],steps[{max(first, second)}]"
        yield PlanIssue(PlanCode.UNORDERED_LEASE_CONFLICT, path, message)
    for first, second in follows:
        if (first, second) in failed:
            message = f"expected a wait for the group's collective before it, steps[{first}], found none"
            yield PlanIssue(PlanCode.COLLECTIVE_ORDER_DEPENDENCY, f"steps[{second}].dependencies", message)


def conflicts(plan: FrozenPlan, buffers: Buffers, order: Sequence[int]) -> Iterator[tuple[int, int, str]]:
    """Pairs (earlier, later, allocation) that must be ordered: enough of them that all others follow."""
    writer: dict[str, int] = {}
    readers: dict[str, list[int]] = {}
    physical = buffers.physical
    for position in order:
        step = plan.steps[position]
        for name in step.reads:
            root = physical.get(name, name)
            if root in writer:
                yield writer[root], position, root
            readers.setdefault(root, []).append(position)
        for name in step.writes:
            root = physical.get(name, name)
            since = [reader for reader in readers.get(root, ()) if reader != position]
            if root in writer and writer[root] != position and not since:
                yield writer[root], position, root
            for reader in since:
                yield reader, position, root
            writer[root] = position
            readers[root] = []


def _chains(plan: FrozenPlan) -> tuple[list[list[int]], list[PlanIssue]]:
    """The collectives of each group in sequence, as positions; complaints about the groups that have gaps."""
    by_group: dict[str, list[tuple[int, int]]] = {}
    for position, step in enumerate(plan.steps):
        if isinstance(step.operation, Collective):
            by_group.setdefault(step.operation.group_id, []).append((step.operation.comm_sequence_id, position))
    chains: list[list[int]] = []
    gaps: list[PlanIssue] = []
    for group, members in by_group.items():
        members.sort()
        found = [sequence for sequence, _ in members]
        if found == list(range(len(found))):
            chains.append([position for _, position in members])
            continue
        wrong = next(sequence for index, sequence in enumerate(found) if sequence != index)
        message = f"expected group {group} to number its {len(found)} collectives from 0 without gaps, found {wrong}"
        gaps.append(PlanIssue(PlanCode.COLLECTIVE_SEQUENCE_GAP, "steps", message))
    return chains, gaps
