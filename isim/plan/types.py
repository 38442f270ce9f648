"""A frozen plan, contract revision 5: an immutable graph of steps, of which each happens once.

A plan names what it uses by the stable ids of a topology scenario: ranks, devices, links, communicator groups and
physical allocations. A step names the steps it waits for, and every allocation that it reads or writes; whatever it
writes it holds alone, so that work in place is a write without a read. Steps stand in source order: `id` is a
name, the position in `steps` is the order.

The names on the wire are the contract's, in camel case: `contractRevision`, `durationNs`. These types hold any value
of the right form; what a value may be is said by `isim.plan.validate`, which has a code for each refusal.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TypeAlias

import msgspec
from msgspec import UNSET, UnsetType

from isim.scenario.topology.types import Capability

PLAN_CONTRACT_REVISION = 5


class CollectiveAlgorithm(StrEnum):
    """How a collective moves its bytes; `isim.plan.collective` says what each costs."""

    ALL_REDUCE_RING = "all_reduce_ring"
    ALL_TO_ALL_V = "all_to_all_v"


class PipelinePhase(StrEnum):
    """When a component of a pipeline runs: before the first token, for every step, or after the last token."""

    PROMPT_ONLY = "prompt_only"
    EVERY_STEP = "every_step"
    FINAL_ONLY = "final_only"


class _Operation(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    forbid_unknown_fields=True,
    rename="camel",
    tag_field="kind",
    tag=str.lower,
    gc=False,
):
    """What a step does; its kind is the name of the class in lower case."""


class Compute(_Operation, frozen=True, kw_only=True):
    """Work of one device, for which it must have `capability`. Holds one compute lane of the device."""

    device_id: str
    capability: Capability
    duration_ns: int
    component_id: str | UnsetType = UNSET
    pipeline_phase: PipelinePhase | UnsetType = UNSET


class Transfer(_Operation, frozen=True, kw_only=True):
    """A copy over one directed link. Holds one lane of the link and of each network resource on its path."""

    link_id: str
    duration_ns: int


class Collective(_Operation, frozen=True, kw_only=True):
    """One communicator group's operation, the `comm_sequence_id`-th of the plan in that group, counted from 0.

    Holds the group's submit lane and one lane of every link in `link_ids`, and of every network resource of these
    links, for its whole duration. `link_ids` is the union over all phases, in the order of first use.
    """

    group_id: str
    comm_sequence_id: int
    algorithm: CollectiveAlgorithm
    link_ids: tuple[str, ...]
    duration_ns: int


Operation: TypeAlias = Compute | Transfer | Collective


class PlanStep(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, gc=False):
    """`participants` are ranks, for a collective all of its group in the group's order; `dependencies` are step ids.

    `reads` and `writes` are physical allocations, and no allocation is in both.
    """

    id: int
    participants: tuple[str, ...]
    dependencies: tuple[int, ...]
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    operation: Operation


class FrozenPlan(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """`id` names the plan, `execution_id` the one execution that it is for; `topology_epoch` is the scenario's."""

    contract_revision: int
    id: str
    execution_id: str
    topology_epoch: int
    steps: tuple[PlanStep, ...]
