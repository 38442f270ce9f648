"""Checks of memories and chips: classes, governors, who reaches what, compute profiles."""

from __future__ import annotations

from msgspec import UNSET

from isim.scenario.topology.profiles import PROFILE_KINDS
from isim.scenario.topology.types import (
    AllocationClass,
    Device,
    DeviceGovernor,
    DeviceKind,
    DomainKind,
    HostGovernor,
    MemoryDomain,
    NoGovernor,
)
from isim.topology.index import Topology
from isim.topology.issues import Findings, IssueCode

DOMAIN_IDS = "memoryDomains[*].id"
DEVICE_IDS = "devices[*].id"
_OWN_CLASS = {
    DomainKind.UNIFIED: (AllocationClass.UNIFIED, IssueCode.UNIFIED_CLASS),
    DomainKind.STORAGE: (AllocationClass.STORAGE, IssueCode.STORAGE_CLASS),
}


def check_memory(topology: Topology, found: Findings) -> None:
    for index, domain in enumerate(topology.scenario.memory_domains):
        at = f"memoryDomains[{index}]"
        _sizes(found, domain, at)
        _classes(found, domain, at)
        _governor(found, topology, domain, at)
        _access(found, topology, domain, at)
    for index, device in enumerate(topology.scenario.devices):
        at = f"devices[{index}]"
        _memories(found, topology, device, at)
        _compute(found, device, at)


def _sizes(found: Findings, domain: MemoryDomain, at: str) -> None:
    if domain.resource_limit_bytes > domain.capacity_bytes > 0:
        message = f"expected at most the capacity of {domain.capacity_bytes} bytes, found {domain.resource_limit_bytes}"
        found.add(IssueCode.RESOURCE_LIMIT, f"{at}.resourceLimitBytes", message, f"{at}.capacityBytes")


def _classes(found: Findings, domain: MemoryDomain, at: str) -> None:
    path = f"{at}.allocationClasses"
    if not domain.allocation_classes:
        found.add(IssueCode.EMPTY_CLASSES, path, "expected at least one allocation class, found none")
        return
    for kind, (own, code) in _OWN_CLASS.items():
        if domain.kind is kind and domain.allocation_classes != (own,):
            listed = ", ".join(domain.allocation_classes)
            found.add(code, path, f"expected {own} alone in {kind} memory, found {listed}", f"{at}.kind")
        elif domain.kind is not kind and own in domain.allocation_classes:
            found.add(code, path, f"expected {own} in {kind} memory only, found it in {domain.kind}", f"{at}.kind")


def _governor(found: Findings, topology: Topology, domain: MemoryDomain, at: str) -> None:
    """Host and unified memory belong to the host governor of the node, device memory to that of an accelerator."""
    governor, path, depends = domain.governor, f"{at}.governor", (at, DEVICE_IDS)
    if domain.kind is DomainKind.STORAGE:
        if not isinstance(governor, NoGovernor):
            found.add(IssueCode.STORAGE_GOVERNOR, path, "expected no governor of storage, found one", at)
    elif domain.kind is DomainKind.DEVICE:
        if not isinstance(governor, DeviceGovernor):
            what = "the host's" if isinstance(governor, HostGovernor) else "none"
            message = f"expected the governor of a device with this memory, found {what}"
            found.add(IssueCode.GOVERNOR_DEVICE, path, message, at)
            return
        device = topology.devices.get(governor.device_id)
        if device is None:
            message = f"expected the id of a device, found {governor.device_id}"
            found.add(IssueCode.UNKNOWN_DEVICE, f"{path}.deviceId", message, *depends)
        elif device.kind is DeviceKind.CPU or domain.id not in device.memory_domain_ids:
            message = f"expected an accelerator with access to {domain.id}, found {device.id}"
            found.add(IssueCode.GOVERNOR_DEVICE, f"{path}.deviceId", message, at, "devices")
    elif not isinstance(governor, HostGovernor):
        what = "a device's" if isinstance(governor, DeviceGovernor) else "none"
        found.add(IssueCode.GOVERNOR_NODE, path, f"expected the host governor of {domain.node_id}, found {what}", at)
    elif governor.node_id != domain.node_id:
        message = f"expected the governor of the memory's node {domain.node_id}, found that of {governor.node_id}"
        found.add(IssueCode.GOVERNOR_NODE, f"{path}.nodeId", message, f"{at}.nodeId", f"{at}.kind")


def _access(found: Findings, topology: Topology, domain: MemoryDomain, at: str) -> None:
    for index, name in enumerate(domain.accessible_by):
        path = f"{at}.accessibleBy[{index}]"
        device = topology.devices.get(name)
        if device is None:
            found.add(IssueCode.UNKNOWN_DEVICE, path, f"expected the id of a device, found {name}", DEVICE_IDS)
            continue
        if domain.id not in device.memory_domain_ids:
            message = f"expected a device that names {domain.id} among its memories, found {name}, which does not"
            found.add(IssueCode.ASYMMETRIC_ACCESS, path, message, f"{at}.id", "devices[*].memoryDomainIds")
        if domain.kind is DomainKind.STORAGE and device.kind is not DeviceKind.CPU:
            message = f"expected CPUs to reach storage, found the {device.kind} {name}"
            found.add(IssueCode.STORAGE_ACCESS, path, message, f"{at}.kind", "devices[*].kind")


def _memories(found: Findings, topology: Topology, device: Device, at: str) -> None:
    path = f"{at}.memoryDomainIds"
    if not device.memory_domain_ids:
        found.add(IssueCode.NO_MEMORY, path, "expected at least one memory, found none")
    for index, name in enumerate(device.memory_domain_ids):
        domain = topology.domains.get(name)
        if domain is None:
            message = f"expected the id of a memory domain, found {name}"
            found.add(IssueCode.UNKNOWN_DOMAIN, f"{path}[{index}]", message, DOMAIN_IDS)
        elif device.id not in domain.accessible_by:
            message = f"expected a memory that is accessible by {device.id}, found {name}, which is not"
            found.add(
                IssueCode.ASYMMETRIC_ACCESS, f"{path}[{index}]", message, f"{at}.id", "memoryDomains[*].accessibleBy"
            )


def _compute(found: Findings, device: Device, at: str) -> None:
    profile, peaks = device.compute_profile_id, device.custom_compute_peaks
    if profile is not UNSET:
        path = f"{at}.computeProfileId"
        kind = PROFILE_KINDS.get(profile)
        if kind is None:
            found.add(IssueCode.UNKNOWN_COMPUTE_PROFILE, path, f"expected a profile of the registry, found {profile}")
        elif kind is not device.kind:
            message = f"expected the profile of a {device.kind}, found that of a {kind}"
            found.add(IssueCode.COMPUTE_PROFILE_KIND_MISMATCH, path, message, f"{at}.kind")
    if peaks is not UNSET:
        path = f"{at}.customComputePeaks"
        if profile is not UNSET:
            message = f"expected a profile or custom peaks, found both, with the profile {profile}"
            found.add(IssueCode.MULTIPLE_COMPUTE_PROFILES, path, message, f"{at}.computeProfileId")
        if not peaks:
            found.add(IssueCode.EMPTY_CUSTOM_COMPUTE_PEAKS, path, "expected at least one peak, found none")
        first: dict[str, int] = {}
        for index, peak in enumerate(peaks):
            before = first.setdefault(peak.dtype, index)
            if before != index:
                message = f"expected one peak for each number format, found {peak.dtype} again"
                found.add(IssueCode.DUPLICATE_VALUE, f"{path}[{index}].dtype", message, f"{path}[{before}].dtype")
