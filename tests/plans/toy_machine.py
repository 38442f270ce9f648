"""Small topologies and plans of any shape, built by hand: accelerators, links each way, buffers of one device each."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec import UNSET

from isim.model.spec import Confidence
from isim.plan.types import PLAN_CONTRACT_REVISION, Collective, CollectiveAlgorithm, Compute, FrozenPlan, PlanStep
from isim.scenario.topology.types import (
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
    Group,
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
    WorkloadShape,
)

GUESS = Provenance(confidence=Confidence.HEURISTIC, source="a test")
GIB = 1 << 30


def memory(device: str) -> MemoryDomain:
    return MemoryDomain(
        id=f"{device}:memory",
        node_id="n",
        kind=DomainKind.DEVICE,
        capacity_bytes=64 * GIB,
        resource_limit_bytes=64 * GIB,
        bandwidth_bytes_per_sec=10**12,
        latency_ns=80,
        coherent=False,
        allocation_classes=(AllocationClass.DEVICE,),
        accessible_by=(device,),
        governor=DeviceGovernor(device_id=device),
        provenance=GUESS,
    )


def accelerator(name: str, kind: DeviceKind = DeviceKind.GPU) -> Device:
    return Device(
        id=name,
        node_id="n",
        kind=kind,
        execution_provider="ep",
        memory_domain_ids=(f"{name}:memory",),
        capabilities=(Capability.ATTENTION, Capability.FFN, Capability.COLLECTIVE, Capability.COPY),
        supported_dtypes=(NumberFormat.FP16,),
        max_concurrent_compute=1,
        provenance=GUESS,
    )


def link(source: str, target: str, *, bandwidth: int = 10**11, latency_ns: int = 100) -> Link:
    return Link(
        id=f"{source}>{target}",
        source_domain_id=f"{source}:memory",
        target_domain_id=f"{target}:memory",
        kind=LinkKind.NVLINK,
        bandwidth_bytes_per_sec=bandwidth,
        latency_ns=latency_ns,
        concurrency_lanes=1,
        provenance=GUESS,
    )


def allocation(name: str, device: str, purpose: Purpose, alias_of: str | None = None) -> Allocation:
    return Allocation(
        physical_allocation_id=name,
        domain_id=f"{device}:memory",
        bytes=GIB,
        allocation_class=AllocationClass.DEVICE,
        purpose=purpose,
        alias_of=UNSET if alias_of is None else alias_of,
    )


def placement(device: str, *work: Capability) -> Placement:
    purposes = {"w": Purpose.WEIGHTS, "kv": Purpose.KV, "ws": Purpose.WORKSPACE}
    return Placement(
        partition_id=f"part-{device}",
        device_id=device,
        required_capabilities=work or (Capability.ATTENTION, Capability.FFN),
        allocations=tuple(allocation(f"{short}-{device}", device, purpose) for short, purpose in purposes.items()),
    )


def degrees(
    *, tensor: int = 1, pipeline: int = 1, expert: int = 1, data: int = 1, overlap: bool = False
) -> Parallelism:
    composition = Composition.OVERLAP if overlap else Composition.CARTESIAN
    return Parallelism(composition=composition, tensor=tensor, pipeline=pipeline, expert=expert, data=data)


def machine(
    devices: Sequence[Device],
    links: Sequence[Link],
    groups: dict[str, Sequence[str]],
    parallelism: Parallelism,
    placements: Sequence[Placement] | None = None,
    *,
    max_events: int = 10**6,
) -> TopologyScenario:
    """Ranks are called `r-<device>`; groups are lists of devices in their order."""
    return TopologyScenario(
        schema_version=5,
        id="toy",
        family=Family.CUSTOM,
        memory_domains=tuple(memory(device.id) for device in devices),
        devices=tuple(devices),
        links=tuple(links),
        placements=tuple(placement(device.id) for device in devices) if placements is None else tuple(placements),
        transfers=(),
        groups=tuple(
            Group(id=name, ordered_ranks=tuple(Rank(rank_id=f"r-{each}", device_id=each) for each in members))
            for name, members in groups.items()
        ),
        workload=WorkloadShape(batch_size=1, input_sequence_length=1, output_sequence_length=1),
        execution=Execution(
            topology_epoch=3,
            seed=1,
            max_events=max_events,
            features=Features(ssd_streaming=True),
            parallelism=parallelism,
        ),
        calibration=Calibration(coefficients=()),
    )


def ring(count: int) -> TopologyScenario:
    """`count` GPUs g0, g1, ..., each linked to the next and back, one tensor group in their order."""
    names = [f"g{index}" for index in range(count)]
    pairs = [(a, b) for a, b in zip(names, [*names[1:], names[0]], strict=True) if a != b]
    ways = dict.fromkeys([*pairs, *((b, a) for a, b in pairs)])
    return machine(
        [accelerator(name) for name in names],
        [link(a, b) for a, b in ways],
        {"tp": names},
        degrees(tensor=count, expert=count, overlap=True) if count > 1 else degrees(),
    )


def compute(number: int, device: str, waits: Sequence[int] = (), **changes: object) -> PlanStep:
    """A step that reads the device's weights and writes its KV and workspace."""
    step = PlanStep(
        id=number,
        participants=(f"r-{device}",),
        dependencies=tuple(waits),
        reads=(f"w-{device}",),
        writes=(f"kv-{device}", f"ws-{device}"),
        operation=Compute(device_id=device, capability=Capability.FFN, duration_ns=10),
    )
    return msgspec.structs.replace(step, **changes)


def all_reduce(
    number: int, devices: Sequence[str], waits: Sequence[int], sequence: int = 0, **changes: object
) -> PlanStep:
    step = PlanStep(
        id=number,
        participants=tuple(f"r-{device}" for device in devices),
        dependencies=tuple(waits),
        reads=tuple(f"ws-{device}" for device in devices),
        writes=(),
        operation=Collective(
            group_id="tp",
            comm_sequence_id=sequence,
            algorithm=CollectiveAlgorithm.ALL_REDUCE_RING,
            link_ids=tuple(f"{a}>{b}" for a, b in zip(devices, [*devices[1:], devices[0]], strict=True)),
            duration_ns=5,
        ),
    )
    return msgspec.structs.replace(step, **changes)


def plan(*steps: PlanStep, **changes: object) -> FrozenPlan:
    whole = FrozenPlan(
        contract_revision=PLAN_CONTRACT_REVISION, id="p", execution_id="e", topology_epoch=3, steps=tuple(steps)
    )
    return msgspec.structs.replace(whole, **changes)
