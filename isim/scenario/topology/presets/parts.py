"""What presets are made of: memories, chips, links and placements of one node, with the figures they share.

Figures are those of the reference implementation's presets (revision 5), all heuristic. A preset is a base, which says
what is special about it, completed by `isim.scenario.topology.presets.tiers`.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
from msgspec import UNSET, UnsetType

from isim.model.spec import Confidence
from isim.scenario.topology.types import (
    SCHEMA_VERSION,
    Allocation,
    AllocationClass,
    Calibration,
    Capability,
    Composition,
    Device,
    DeviceGovernor,
    DeviceKind,
    DomainKind,
    Execution,
    Family,
    Features,
    Governor,
    Group,
    HostGovernor,
    Link,
    LinkKind,
    MemoryDomain,
    NumberFormat,
    Parallelism,
    Placement,
    Provenance,
    Purpose,
    Rank,
    TopologyScenario,
    Transfer,
    WorkloadShape,
)

GIB = 1 << 30
MIB = 1 << 20
GIGA = 10**9
PROVENANCE = Provenance(
    confidence=Confidence.HEURISTIC, source="built-in illustrative preset; calibrate before performance use"
)
DTYPES = (NumberFormat.FP16, NumberFormat.FP8, NumberFormat.INT8)
SERIAL = Parallelism(composition=Composition.CARTESIAN, tensor=1, pipeline=1, expert=1, data=1)

ATTENTION, FFN, COLLECTIVE = Capability.ATTENTION, Capability.FFN, Capability.COLLECTIVE
COPY, SAMPLING, DRAFT, LOOKUP = Capability.COPY, Capability.SAMPLING, Capability.DRAFT, Capability.LOOKUP
HOST_CAPABILITIES = (COPY, SAMPLING)
COMPUTE_CAPABILITIES = (ATTENTION, FFN, COPY, SAMPLING, DRAFT)
GPU_CAPABILITIES = (ATTENTION, FFN, COLLECTIVE, COPY, SAMPLING, DRAFT)


class Size(msgspec.Struct, frozen=True):
    """Capacity and bandwidth of a memory; what may be reserved of it, where that is less than all."""

    capacity_bytes: int
    bandwidth_bytes_per_sec: int
    limit_bytes: int | None = None


class Chip(msgspec.Struct, frozen=True):
    """An accelerator. `memory` names its own memory under its id; a chip without shares the node's unified one."""

    name: str
    kind: DeviceKind
    provider: str
    capabilities: tuple[Capability, ...]
    memory: str = ""
    size: Size | None = None
    profile: str | UnsetType = UNSET


class Base(msgspec.Struct, frozen=True):
    """What is special about a preset; storage, tiers and host groups are added to it."""

    id: str
    family: Family
    domains: tuple[MemoryDomain, ...]
    devices: tuple[Device, ...]
    links: tuple[Link, ...]
    placements: tuple[Placement, ...]
    transfers: tuple[Transfer, ...]
    groups: tuple[Group, ...]
    parallelism: Parallelism = SERIAL


def scenario_of(base: Base) -> TopologyScenario:
    """The base as a scenario of one batch of 2,048 tokens in and 256 out."""
    return TopologyScenario(
        schema_version=SCHEMA_VERSION,
        id=base.id,
        family=base.family,
        memory_domains=base.domains,
        devices=base.devices,
        links=base.links,
        placements=base.placements,
        transfers=base.transfers,
        groups=base.groups,
        workload=WorkloadShape(batch_size=1, input_sequence_length=2048, output_sequence_length=256),
        execution=Execution(
            topology_epoch=0,
            seed=42,
            max_events=1_000_000,
            features=Features(ssd_streaming=True),
            parallelism=base.parallelism,
        ),
        calibration=Calibration(coefficients=()),
    )


_FORMS = {
    DomainKind.HOST: (100, (AllocationClass.PAGEABLE, AllocationClass.PINNED)),
    DomainKind.UNIFIED: (80, (AllocationClass.UNIFIED,)),
    DomainKind.DEVICE: (80, (AllocationClass.DEVICE,)),
    DomainKind.STORAGE: (50_000, (AllocationClass.STORAGE,)),
}
"""Latency in ns and allocation classes of the memories of each kind."""


def memory(
    place: tuple[str, str], kind: DomainKind, size: Size, owner: Governor, members: Iterable[str]
) -> MemoryDomain:
    """A memory of that kind; `place` is its id and its node, `members` are the devices that reach it."""
    latency_ns, classes = _FORMS[kind]
    return MemoryDomain(
        id=place[0],
        node_id=place[1],
        kind=kind,
        capacity_bytes=size.capacity_bytes,
        resource_limit_bytes=size.limit_bytes or size.capacity_bytes,
        bandwidth_bytes_per_sec=size.bandwidth_bytes_per_sec,
        latency_ns=latency_ns,
        coherent=kind is DomainKind.UNIFIED,
        allocation_classes=classes,
        accessible_by=tuple(members),
        governor=owner,
        provenance=PROVENANCE,
    )


def host_memory(node: str, size: Size, members: Iterable[str]) -> MemoryDomain:
    return memory((f"{node}:host", node), DomainKind.HOST, size, HostGovernor(node_id=node), members)


def unified_memory(node: str, size: Size, members: Iterable[str]) -> MemoryDomain:
    return memory((f"{node}:unified", node), DomainKind.UNIFIED, size, HostGovernor(node_id=node), members)


def device_memory(node: str, chip: Chip) -> MemoryDomain:
    """The chip's own memory; the chip has one."""
    assert chip.size is not None
    device = f"{node}:{chip.name}"
    place = (f"{device}:{chip.memory}", node)
    return memory(place, DomainKind.DEVICE, chip.size, DeviceGovernor(device_id=device), (device,))


def cpu(node: str, memory: str, capabilities: tuple[Capability, ...], name: str = "cpu0") -> Device:
    """The node's CPU; every CPU can look up prompts."""
    chip = Chip(name, DeviceKind.CPU, "CPUExecutionProvider", (*capabilities, LOOKUP))
    return device(node, chip, (memory,))


def accelerator(node: str, chip: Chip) -> Device:
    """The chip with its own memory and the host's, or with the node's unified one."""
    own = (f"{node}:{chip.name}:{chip.memory}", f"{node}:host") if chip.memory else (f"{node}:unified",)
    return device(node, chip, own)


def device(node: str, chip: Chip, memories: tuple[str, ...]) -> Device:
    return Device(
        id=f"{node}:{chip.name}",
        node_id=node,
        kind=chip.kind,
        execution_provider=chip.provider,
        memory_domain_ids=memories,
        capabilities=chip.capabilities,
        supported_dtypes=DTYPES,
        max_concurrent_compute=1,
        provenance=PROVENANCE,
        compute_profile_id=chip.profile,
    )


def link(name: str, ends: tuple[str, str], kind: LinkKind, speed: tuple[int, int]) -> Link:
    """One direction, from the first end to the second; `speed` is bytes per second and latency in ns."""
    return Link(
        id=name,
        source_domain_id=ends[0],
        target_domain_id=ends[1],
        kind=kind,
        bandwidth_bytes_per_sec=speed[0],
        latency_ns=speed[1],
        concurrency_lanes=1,
        provenance=PROVENANCE,
    )


def both_ways(name: str, ends: tuple[str, str], kind: LinkKind, speed: tuple[int, int]) -> tuple[Link, Link]:
    return (
        link(f"{name}:forward", ends, kind, speed),
        link(f"{name}:reverse", (ends[1], ends[0]), kind, speed),
    )


def pcie(name: str, host: str, memory: str, speed: tuple[int, int] = (32 * GIGA, 1500)) -> tuple[Link, Link]:
    return both_ways(name, (host, memory), LinkKind.PCIE, speed)


def allocation(name: str, domain: str, size_bytes: int, form: AllocationClass, purpose: Purpose) -> Allocation:
    return Allocation(
        physical_allocation_id=name, domain_id=domain, bytes=size_bytes, allocation_class=form, purpose=purpose
    )


def footprint(
    name: str, domain: str, form: AllocationClass, weights_kv_workspace: tuple[int, int, int]
) -> tuple[Allocation, ...]:
    """Weights, KV cache and workspace in one memory; a size of 0 leaves its allocation out. `{}` in the name: which."""
    purposes = (Purpose.WEIGHTS, Purpose.KV, Purpose.WORKSPACE)
    return tuple(
        allocation(name.format(purpose.value), domain, size, form, purpose)
        for purpose, size in zip(purposes, weights_kv_workspace, strict=True)
        if size
    )


def staging(name: str, node: str, size_bytes: int) -> Allocation:
    return allocation(name, f"{node}:host", size_bytes, AllocationClass.PINNED, Purpose.STAGING)


def placement(
    partition: str, device_id: str, needs: tuple[Capability, ...], allocations: tuple[Allocation, ...]
) -> Placement:
    return Placement(partition_id=partition, device_id=device_id, required_capabilities=needs, allocations=allocations)


def transfer(name: str, ends: tuple[str, str], size_bytes: int, through: tuple[str, ...] = ()) -> Transfer:
    """A declared transfer; through staging allocations where some are named."""
    return Transfer(
        id=name,
        source_domain_id=ends[0],
        target_domain_id=ends[1],
        bytes=size_bytes,
        requires_pinned_staging=bool(through),
        staging_allocation_ids=through,
    )


def group(name: str, devices: Iterable[str]) -> Group:
    ranks = tuple(Rank(rank_id=f"rank-{index}", device_id=device) for index, device in enumerate(devices))
    return Group(id=name, ordered_ranks=ranks)


def overlapped(degree: int) -> Parallelism:
    """`degree` ranks that serve attention in tensor parallel and experts in expert parallel, in turn."""
    return Parallelism(composition=Composition.OVERLAP, tensor=degree, pipeline=1, expert=degree, data=1)
