"""A workload compiled for a topology: units of work become steps, in source order, with all that each waits for.

Units are serial: what begins a unit waits for what ended the one before (`isim.plan.moves` says what a unit consists
of). Beyond what a step waits for by the order of the work it waits for what its buffers demand (`isim.plan.hazards`),
so that the plan holds on whatever machine it shares with others.
"""

from __future__ import annotations

import msgspec

from isim.model.spec import Confidence
from isim.plan.buffers import Buffers
from isim.plan.costs import NORMALIZED, CostModel, plan_confidence
from isim.plan.errors import CompileError
from isim.plan.hazards import Hazards
from isim.plan.moves import START, UnitMoves
from isim.plan.profile import Profile
from isim.plan.types import PLAN_CONTRACT_REVISION, Collective, FrozenPlan, PlanStep
from isim.plan.validate import validate_plan
from isim.topology.index import Topology

STEPS_MAX = 2_000_000
"""Some 2 GB of memory."""
ISSUES_SHOWN = 10


class CompiledPlan(msgspec.Struct, frozen=True, kw_only=True):
    """A plan and what is known of it before it runs. `terminal_step` is the id of the step that ends the last unit."""

    plan: FrozenPlan
    profile: Profile
    terminal_step: int
    confidence: Confidence


def compile_plan(topology: Topology, profile: Profile, costs: CostModel = NORMALIZED) -> CompiledPlan:
    """The plan of a profile on a valid scenario. Raises CompileError where it cannot be placed, moved or counted."""
    scenario = topology.scenario
    buffers = Buffers(topology)
    units = UnitMoves(topology, buffers, profile, costs)
    _check_size(profile, units, scenario.execution.max_events)
    steps: list[PlanStep] = []
    hazards = Hazards(buffers.physical)
    sequence = dict.fromkeys(topology.groups, 0)
    terminal: tuple[int, ...] = ()
    for unit in profile.units:
        first = len(steps)
        for move in units.of(unit):
            number = len(steps)
            waits = [first + wait for wait in move.waits if wait != START]
            if START in move.waits:
                waits[:0] = terminal
            operation = move.operation
            if isinstance(operation, Collective):
                group = operation.group_id
                operation = msgspec.structs.replace(operation, comm_sequence_id=sequence[group])
                sequence[group] += 1
            steps.append(
                PlanStep(
                    id=number,
                    participants=move.participants,
                    dependencies=hazards.take(number, waits, move.reads, move.writes),
                    reads=move.reads,
                    writes=move.writes,
                    operation=operation,
                )
            )
        terminal = (len(steps) - 1,)
    plan = FrozenPlan(
        contract_revision=PLAN_CONTRACT_REVISION,
        id=f"topology-workload:{profile.id}",
        execution_id=f"{scenario.id}:{profile.id}",
        topology_epoch=scenario.execution.topology_epoch,
        steps=tuple(steps),
    )
    return CompiledPlan(
        plan=plan, profile=profile, terminal_step=steps[-1].id, confidence=plan_confidence(scenario, costs)
    )


def compile_checked(topology: Topology, profile: Profile, costs: CostModel = NORMALIZED) -> CompiledPlan:
    """A plan that may be executed. Raises CompileError also for one that the scenario leads to but cannot hold.

    Such as one whose group has a member that can do no collective: no single part of that scenario is wrong.
    """
    compiled = compile_plan(topology, profile, costs)
    issues = validate_plan(compiled.plan, topology)
    if issues:
        lines = [f"  {issue.path}: {issue.message} [{issue.code}]" for issue in issues[:ISSUES_SHOWN]]
        if len(issues) > ISSUES_SHOWN:
            lines.append(f"  and {len(issues) - ISSUES_SHOWN} more")
        head = f"scenario {topology.scenario.id}: expected a plan that holds, found one that does not"
        raise CompileError("\n".join([f"{head}:", *lines]))
    return compiled


def _check_size(profile: Profile, units: UnitMoves, max_events: int) -> None:
    """Raises CompileError for a plan of no step, of more than the scenario's events, or of more than can be held."""
    count = sum(len(units.of(unit)) for unit in profile.units)
    if not count:
        raise CompileError(f"profile {profile.id}: expected at least one unit of work, found none")
    if count > max_events:
        raise CompileError(
            f"profile {profile.id}: expected at most maxEvents {max_events} steps, found {count}; raise "
            "execution.maxEvents or plan fewer tokens"
        )
    if count > STEPS_MAX:
        raise CompileError(
            f"profile {profile.id}: expected at most {STEPS_MAX} steps, found {count}; plan fewer tokens"
        )
