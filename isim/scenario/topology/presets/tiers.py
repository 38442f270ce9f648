"""What every preset gets beside its base: storage, expert tiers, and a group for each CPU that is in none.

Per node, in the order of their names: a storage memory of 2 TiB, a one-way link from it, and a placement on the CPU
with the experts' backing store and their warm cache. Each placement that computes FFNs gets a hot cache beside its
workspace. A warm cache is what the resource limit leaves where that is less than the usual size: the reference reserves
more than the limit there (the Mac mini's unified memory).
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from isim.scenario.topology.presets.parts import FFN, GIB, GIGA, Base, Size, allocation, link, memory, placement
from isim.scenario.topology.types import (
    AllocationClass,
    Device,
    DeviceKind,
    DomainKind,
    Group,
    LinkKind,
    MemoryDomain,
    NoGovernor,
    Placement,
    Purpose,
    Rank,
)

STORAGE_BYTES = 2048 * GIB
BACKING_BYTES = 512 * GIB
CACHE_BYTES = 8 * GIB
_SPEED = (7 * GIGA, 50_000)
_NEAR = (DomainKind.HOST, DomainKind.UNIFIED)


def with_tiers(base: Base, storage_bytes: Mapping[str, int] | None = None) -> Base:
    """The completed base. `storage_bytes` by node replaces the usual capacity."""
    sizes = storage_bytes or {}
    nodes = sorted({device.node_id for device in base.devices})
    cpus = {device.node_id: device for device in base.devices if device.kind is DeviceKind.CPU}
    near = {domain.node_id: domain for domain in base.domains if domain.kind in _NEAR}
    stores = tuple(_storage(cpus[node], sizes.get(node, STORAGE_BYTES)) for node in nodes)
    links = tuple(
        link(f"{node}:storage-read", (f"{node}:storage", near[node].id), LinkKind.STORAGE, _SPEED) for node in nodes
    )
    computing = tuple(_with_hot_cache(each) for each in base.placements)
    tiers = tuple(_tier(cpus[node], near[node], _room(computing, near[node])) for node in nodes)
    grouped = {rank.device_id for group in base.groups for rank in group.ordered_ranks}
    alone = [cpu.id for cpu in base.devices if cpu.kind is DeviceKind.CPU and cpu.id not in grouped]
    return msgspec.structs.replace(
        base,
        domains=(*base.domains, *stores),
        devices=tuple(_reaching_storage(device) for device in base.devices),
        links=(*base.links, *links),
        placements=(*computing, *tiers),
        groups=(*base.groups, *(_host_group(cpu) for cpu in alone)),
    )


def _storage(cpu: Device, size_bytes: int) -> MemoryDomain:
    place = (f"{cpu.node_id}:storage", cpu.node_id)
    return memory(place, DomainKind.STORAGE, Size(size_bytes, _SPEED[0]), NoGovernor(), (cpu.id,))


def _reaching_storage(device: Device) -> Device:
    if device.kind is not DeviceKind.CPU:
        return device
    return msgspec.structs.replace(device, memory_domain_ids=(*device.memory_domain_ids, f"{device.node_id}:storage"))


def _room(placements: tuple[Placement, ...], domain: MemoryDomain) -> int:
    """What the limit of the domain leaves beside the placements."""
    held = [each.bytes for one in placements for each in one.allocations if each.domain_id == domain.id]
    return domain.resource_limit_bytes - sum(held)


def _tier(cpu: Device, near: MemoryDomain, room_bytes: int) -> Placement:
    node = cpu.node_id
    form = AllocationClass.UNIFIED if near.kind is DomainKind.UNIFIED else AllocationClass.PINNED
    backing = allocation(
        f"expert-backing:{node}", f"{node}:storage", BACKING_BYTES, AllocationClass.STORAGE, Purpose.BACKING
    )
    warm = allocation(f"expert-warm-cache:{node}", near.id, min(CACHE_BYTES, room_bytes), form, Purpose.CACHE)
    return placement(f"expert-tier:{node}", cpu.id, (), (backing, warm))


def _with_hot_cache(base: Placement) -> Placement:
    if FFN not in base.required_capabilities:
        return base
    workspace = next(each for each in base.allocations if each.purpose is Purpose.WORKSPACE)
    name = f"expert-hot-cache:{base.partition_id}"
    hot = allocation(name, workspace.domain_id, CACHE_BYTES, workspace.allocation_class, Purpose.CACHE)
    return msgspec.structs.replace(base, allocations=(*base.allocations, hot))


def _host_group(cpu: str) -> Group:
    return Group(id=f"host-control:{cpu}", ordered_ranks=(Rank(rank_id=f"host-rank:{cpu}", device_id=cpu),))
