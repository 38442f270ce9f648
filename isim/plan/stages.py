"""Where the target model lies: its partitions, the pipeline stages they form, and the communicator of each stage.

A partition is a placement that is to do attention or FFN for the target, not for a draft model. With pipeline degree P
and tensor degree T there are P * T of them in the scenario's order, T to a stage. A stage of several partitions has a
communicator: the one group whose devices are exactly theirs, whose order is the ring. Under the overlap composition the
stage is one, and the same group does the exchange of routed tokens.
"""

from __future__ import annotations

import msgspec

from isim.plan.buffers import Buffers
from isim.plan.errors import CompileError
from isim.scenario.topology.types import (
    Capability,
    Composition,
    Device,
    Parallelism,
    Placement,
    Purpose,
    TopologyScenario,
)
from isim.topology.index import Topology

_TARGET = (Capability.ATTENTION, Capability.FFN)
_WRITTEN = (Purpose.KV, Purpose.WORKSPACE, Purpose.SIDECAR)


class Partition(msgspec.Struct, frozen=True, kw_only=True):
    """A placement as the compiler needs it. `weights`, `written` and `hot` are allocations, by what they are for."""

    id: str
    device: Device
    rank: str
    work: tuple[Capability, ...]
    weights: tuple[str, ...]
    written: tuple[str, ...]
    hot: tuple[str, ...]
    workspace: str
    domain: str


class Stage(msgspec.Struct, frozen=True, kw_only=True):
    """Partitions that work in parallel, in the scenario's order, and the same as their communicator orders them.

    `ranks` and `ring` are that order. One partition alone needs no communicator, and `group_id` is empty.
    """

    partitions: tuple[Partition, ...]
    group_id: str
    ranks: tuple[str, ...]
    ring: tuple[Partition, ...]


def stages_of(topology: Topology, buffers: Buffers) -> tuple[Stage, ...]:
    """The stages of the target in pipeline order; CompileError where the placements are not what the degrees say."""
    scenario = topology.scenario
    degrees = scenario.execution.parallelism
    _supported(degrees)
    placed = [
        placement
        for placement in scenario.placements
        if any(capability in placement.required_capabilities for capability in _TARGET)
        and Capability.DRAFT not in placement.required_capabilities
    ]
    expected = degrees.tensor * degrees.pipeline
    if len(placed) != expected:
        raise CompileError(
            f"scenario {scenario.id}: expected {expected} placements that do attention or FFN, one for each of "
            f"tensor {degrees.tensor} x pipeline {degrees.pipeline}, found {len(placed)}"
        )
    partitions = [_partition(placement, topology, buffers) for placement in placed]
    width = degrees.tensor
    return tuple(_stage(scenario, partitions[first : first + width]) for first in range(0, expected, width))


def _supported(degrees: Parallelism) -> None:
    if degrees.data > 1:
        raise CompileError(
            f"data parallelism of {degrees.data}: expected 1, since one stream of tokens runs on one replica; "
            "plan each replica as a scenario of its own"
        )
    if degrees.expert > 1 and degrees.composition is Composition.CARTESIAN:
        raise CompileError(
            f"expert parallelism of {degrees.expert} as an axis of its own: expected 1, or the composition "
            f"{Composition.OVERLAP.value}, in which the ranks of the tensor group own the experts"
        )


def _partition(placement: Placement, topology: Topology, buffers: Buffers) -> Partition:
    allocations = placement.allocations
    ranks = [rank.rank_id for rank in topology.ranks.values() if rank.device_id == placement.device_id]
    if not ranks:
        raise CompileError(f"placement {placement.partition_id}: expected a rank on {placement.device_id}, found none")
    workspaces = [each for each in allocations if each.purpose is Purpose.WORKSPACE]
    if not workspaces:
        raise CompileError(f"placement {placement.partition_id}: expected an allocation for workspace, found none")
    device = topology.devices[placement.device_id]
    written = buffers.first_names([each.physical_allocation_id for each in allocations if each.purpose in _WRITTEN])
    held = buffers.roots(written)
    domain = workspaces[0].domain_id

    def read(purpose: Purpose) -> list[str]:
        names = [each.physical_allocation_id for each in allocations if each.purpose is purpose]
        return [name for name in names if buffers.physical[name] not in held]

    return Partition(
        id=placement.partition_id,
        device=device,
        rank=ranks[0],
        work=tuple(capability for capability in _TARGET if capability in placement.required_capabilities),
        weights=buffers.first_names(read(Purpose.WEIGHTS)),
        written=written,
        hot=buffers.first_names(name for name in read(Purpose.CACHE) if buffers.domain[name] == domain),
        workspace=workspaces[0].physical_allocation_id,
        domain=domain,
    )


def _stage(scenario: TopologyScenario, partitions: list[Partition]) -> Stage:
    if len(partitions) == 1:
        return Stage(partitions=tuple(partitions), group_id="", ranks=(partitions[0].rank,), ring=tuple(partitions))
    by_device = {partition.device.id: partition for partition in partitions}
    names = ", ".join(by_device)
    if len(by_device) < len(partitions):
        raise CompileError(
            f"expected each partition of a tensor group on a device of its own, found several on {names}"
        )
    groups = [
        group
        for group in scenario.groups
        if len(group.ordered_ranks) == len(by_device)
        and all(rank.device_id in by_device for rank in group.ordered_ranks)
    ]
    if len(groups) != 1:
        found = " and ".join(group.id for group in groups) or "none"
        raise CompileError(f"scenario {scenario.id}: expected one group of exactly {names}, found {found}")
    members = {rank.device_id: rank.rank_id for rank in groups[0].ordered_ranks}
    named = {
        device: msgspec.structs.replace(partition, rank=members[device]) for device, partition in by_device.items()
    }
    return Stage(
        partitions=tuple(named.values()),
        group_id=groups[0].id,
        ranks=tuple(members.values()),
        ring=tuple(named[device] for device in members),
    )
