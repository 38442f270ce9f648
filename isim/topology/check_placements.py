"""Checks of what lies where: placements on able devices, allocations that fit, aliases, transfers with a way to go."""

from __future__ import annotations

from msgspec import UNSET

from isim.scenario.topology.types import Allocation, AllocationClass, Device, Placement, Purpose, Transfer
from isim.scenario.units import COUNT_MAX
from isim.topology.check_memory import DEVICE_IDS, DOMAIN_IDS
from isim.topology.index import Topology
from isim.topology.issues import Findings, IssueCode
from isim.topology.ledger import ledger_of
from isim.topology.routes import Route, RouteError, Router

ALLOCATION_IDS = "placements[*].allocations[*].physicalAllocationId"
_CHARGED = ("bytes", "domainId", "aliasOf", "physicalAllocationId")
_WAYS = ("links", "memoryDomains", "networkResources")


def check_placements(topology: Topology, found: Findings) -> None:
    first: dict[str, str] = {}
    for index, placement in enumerate(topology.scenario.placements):
        at = f"placements[{index}]"
        device = _device(found, topology, placement, at)
        for number, each in enumerate(placement.allocations):
            path = f"{at}.allocations[{number}]"
            name = each.physical_allocation_id
            if first.setdefault(name, path) != path:
                message = f"expected an allocation of its own or aliasOf, found {name} again, first at {first[name]}"
                found.add(IssueCode.DUPLICATE_ALLOCATION, f"{path}.physicalAllocationId", message, first[name])
            _allocation(found, topology, each, (path, f"{at}.deviceId"), device)
            _alias(found, topology, each, path)
    _capacity(found, topology)


def _device(found: Findings, topology: Topology, placement: Placement, at: str) -> Device | None:
    device = topology.devices.get(placement.device_id)
    if device is None:
        message = f"expected the id of a device, found {placement.device_id}"
        found.add(IssueCode.UNKNOWN_DEVICE, f"{at}.deviceId", message, DEVICE_IDS)
        return None
    for index, capability in enumerate(placement.required_capabilities):
        if capability not in device.capabilities:
            able = ", ".join(device.capabilities) or "nothing"
            message = f"expected what {device.id} can do ({able}), found {capability}"
            depends = (f"{at}.deviceId", "devices[*].capabilities")
            found.add(IssueCode.MISSING_CAPABILITY, f"{at}.requiredCapabilities[{index}]", message, *depends)
    if placement.dtype is not UNSET and placement.dtype not in device.supported_dtypes:
        message = f"expected what {device.id} supports ({', '.join(device.supported_dtypes)}), found {placement.dtype}"
        depends = (f"{at}.deviceId", "devices[*].supportedDtypes")
        found.add(IssueCode.UNSUPPORTED_DTYPE, f"{at}.dtype", message, *depends)
    return device


def _allocation(
    found: Findings, topology: Topology, each: Allocation, paths: tuple[str, str], device: Device | None
) -> None:
    path, device_path = paths
    domain = topology.domains.get(each.domain_id)
    if domain is None:
        message = f"expected the id of a memory domain, found {each.domain_id}"
        found.add(IssueCode.UNKNOWN_DOMAIN, f"{path}.domainId", message, DOMAIN_IDS)
        return
    if each.allocation_class not in domain.allocation_classes:
        message = (
            f"expected a class of {domain.id} ({', '.join(domain.allocation_classes)}), found {each.allocation_class}"
        )
        depends = (f"{path}.domainId", "memoryDomains[*].allocationClasses")
        found.add(IssueCode.UNSUPPORTED_ALLOCATION_CLASS, f"{path}.allocationClass", message, *depends)
    if device is not None and domain.id not in device.memory_domain_ids:
        message = f"expected a memory that {device.id} reaches, found {domain.id}"
        depends = (device_path, "devices[*].memoryDomainIds")
        found.add(IssueCode.INACCESSIBLE_ALLOCATION, f"{path}.domainId", message, *depends)


def _alias(found: Findings, topology: Topology, each: Allocation, path: str) -> None:
    if each.alias_of is UNSET:
        return
    at = f"{path}.aliasOf"
    if each.alias_of == each.physical_allocation_id:
        message = f"expected another allocation, found {each.alias_of} itself"
        found.add(IssueCode.SELF_ALIAS, at, message, f"{path}.physicalAllocationId")
        return
    if each.alias_of not in topology.allocations:
        message = f"expected the id of an allocation, found {each.alias_of}"
        found.add(IssueCode.UNKNOWN_ALLOCATION, at, message, ALLOCATION_IDS)
        return
    physical = topology.physical(each.physical_allocation_id)
    if physical is None:
        message = f"expected aliases that end at an allocation, found a circle or nothing from {each.alias_of} on"
        found.add(IssueCode.INVALID_ALIAS, at, message, "placements")
        return
    owner = physical.allocation
    if owner.domain_id != each.domain_id:
        message = f"expected the memory of {owner.physical_allocation_id}, {owner.domain_id}, found {each.domain_id}"
        found.add(IssueCode.INVALID_ALIAS, f"{path}.domainId", message, "placements")
    if each.bytes > owner.bytes:
        message = f"expected at most the {owner.bytes} bytes of {owner.physical_allocation_id}, found {each.bytes}"
        found.add(IssueCode.INVALID_ALIAS, f"{path}.bytes", message, "placements")


def _capacity(found: Findings, topology: Topology) -> None:
    places = {domain.id: index for index, domain in reversed(list(enumerate(topology.scenario.memory_domains)))}
    depends = tuple(f"placements[*].allocations[*].{key}" for key in _CHARGED)
    for row in ledger_of(topology).rows:
        at = f"memoryDomains[{places[row.domain_id]}]"
        reserved = row.reserved_bytes
        if reserved > COUNT_MAX:
            message = f"expected allocations of at most {COUNT_MAX} bytes together, found {reserved}"
            found.add(IssueCode.INTEGER_OVERFLOW, at, message, *depends)
        elif reserved > row.physical_capacity_bytes:
            message = (
                f"expected at least the {reserved} bytes that are allocated there, found {row.physical_capacity_bytes}"
            )
            found.add(IssueCode.DOMAIN_OVER_CAPACITY, f"{at}.capacityBytes", message, *depends)
        elif row.enabled and reserved > row.capacity_bytes:
            message = f"expected at least the {reserved} bytes that are allocated there, found {row.capacity_bytes}"
            found.add(IssueCode.DOMAIN_OVER_LIMIT, f"{at}.resourceLimitBytes", message, *depends)


def check_transfers(topology: Topology, router: Router, found: Findings) -> None:
    for index, transfer in enumerate(topology.scenario.transfers):
        at = f"transfers[{index}]"
        ends = {"sourceDomainId": transfer.source_domain_id, "targetDomainId": transfer.target_domain_id}
        missing = [key for key, name in ends.items() if name not in topology.domains]
        for key in missing:
            message = f"expected the id of a memory domain, found {ends[key]}"
            found.add(IssueCode.UNKNOWN_DOMAIN, f"{at}.{key}", message, DOMAIN_IDS)
        route = None
        if not missing and 0 < transfer.bytes <= COUNT_MAX:
            route = _route(found, router, transfer, at)
        _staging(found, topology, transfer, at, route)


def _route(found: Findings, router: Router, transfer: Transfer, at: str) -> Route | None:
    """The route that execution takes, network resources included."""
    source, target, size = transfer.source_domain_id, transfer.target_domain_id, transfer.bytes
    staged = transfer.requires_pinned_staging
    try:
        route = router.route(source, target, size, pinned=staged)
        why = "found none"
    except RouteError as error:
        route, why = None, f"found no end of searching: {error}"
    if route is None:
        through = " through pinned memory" if staged else ""
        message = f"expected a route for {size} bytes from {source} to {target}{through}, {why}"
        found.add(IssueCode.NO_TRANSFER_PATH, at, message, at, *_WAYS)
    return route


def _staging(found: Findings, topology: Topology, transfer: Transfer, at: str, route: Route | None) -> None:
    path, names = f"{at}.stagingAllocationIds", transfer.staging_allocation_ids
    switch = f"{at}.requiresPinnedStaging"
    if names and not transfer.requires_pinned_staging:
        message = f"expected none without requiresPinnedStaging, found {', '.join(names[:3])}"
        found.add(IssueCode.UNEXPECTED_STAGING, path, message, switch)
        return
    if not names and transfer.requires_pinned_staging:
        found.add(IssueCode.MISSING_STAGING, path, "expected at least one staging allocation, found none", switch)
    for index, name in enumerate(names):
        owned = topology.allocations.get(name)
        if owned is None:
            message = f"expected the id of an allocation, found {name}"
            found.add(IssueCode.UNKNOWN_ALLOCATION, f"{path}[{index}]", message, ALLOCATION_IDS)
            continue
        each = owned.allocation
        if each.allocation_class is not AllocationClass.PINNED or each.purpose is not Purpose.STAGING:
            message = f"expected pinned staging, found {name}, {each.allocation_class} {each.purpose}"
            found.add(IssueCode.INVALID_STAGING, f"{path}[{index}]", message, "placements")
        elif route is not None and each.domain_id not in route.domain_ids[1:-1]:
            between = ", ".join(route.domain_ids[1:-1])
            message = f"expected staging in memory on the way ({between}), found {name} in {each.domain_id}"
            found.add(IssueCode.INVALID_STAGING, f"{path}[{index}]", message, at, "placements", *_WAYS)
