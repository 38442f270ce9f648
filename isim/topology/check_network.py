"""Checks of links and network resources: ends, transports, the path over NICs and switches, direct access, curves."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import UNSET

from isim.scenario.topology.types import (
    AllocationClass,
    DomainKind,
    Link,
    LinkKind,
    MemoryDomain,
    NetworkResource,
    ResourceKind,
    Transport,
)
from isim.topology.check_memory import DOMAIN_IDS
from isim.topology.index import Topology
from isim.topology.issues import Findings, IssueCode

RESOURCE_IDS = "networkResources[*].id"
_KINDS = {
    Transport.TCP: (LinkKind.ETHERNET, LinkKind.INFINIBAND, LinkKind.THUNDERBOLT),
    Transport.RDMA_HOST: (LinkKind.ETHERNET, LinkKind.INFINIBAND),
    Transport.GPUDIRECT_RDMA: (LinkKind.ETHERNET, LinkKind.INFINIBAND),
}


def check_network(topology: Topology, found: Findings) -> None:
    nodes = dict.fromkeys(device.node_id for device in topology.scenario.devices)
    for index, resource in enumerate(topology.scenario.network_resources or ()):
        at = f"networkResources[{index}]"
        _resource_node(found, resource, nodes, at)
        _direct_access(found, topology, resource, at)
    for index, link in enumerate(topology.scenario.links):
        at = f"links[{index}]"
        ends = _ends(found, topology, link, at)
        _transport(found, link, ends, at)
        _path(found, topology, link, ends, at)
        _curves(found, link, at)


def _resource_node(found: Findings, resource: NetworkResource, nodes: dict[str, None], at: str) -> None:
    path = f"{at}.nodeId"
    if resource.kind is ResourceKind.SWITCH:
        if resource.node_id is not UNSET:
            message = f"expected a switch to be on no node, found {resource.node_id}"
            found.add(IssueCode.INVALID_NETWORK_NODE, path, message, f"{at}.kind")
    elif resource.node_id is UNSET:
        found.add(IssueCode.INVALID_NETWORK_NODE, path, "expected the node of the NIC, found nothing", at)
    elif resource.node_id not in nodes:
        message = f"expected the node of a device, found {resource.node_id}"
        found.add(IssueCode.INVALID_NETWORK_NODE, path, message, f"{at}.kind", "devices[*].nodeId")


def _direct_access(found: Findings, topology: Topology, resource: NetworkResource, at: str) -> None:
    for index, name in enumerate(resource.direct_memory_domain_ids):
        path = f"{at}.directMemoryDomainIds[{index}]"
        domain = topology.domains.get(name)
        if domain is None:
            found.add(IssueCode.UNKNOWN_DOMAIN, path, f"expected the id of a memory domain, found {name}", DOMAIN_IDS)
        elif (
            resource.kind is ResourceKind.SWITCH
            or domain.node_id != resource.node_id
            or domain.kind is not DomainKind.DEVICE
        ):
            message = (
                f"expected device memory of the NIC's node, found {name}, {domain.kind} memory of {domain.node_id}"
            )
            found.add(IssueCode.INVALID_DIRECT_MEMORY, path, message, at, "memoryDomains")


def _ends(found: Findings, topology: Topology, link: Link, at: str) -> Sequence[MemoryDomain]:
    """Source and target where both exist and differ, or nothing."""
    names = {"sourceDomainId": link.source_domain_id, "targetDomainId": link.target_domain_id}
    for key, name in names.items():
        if name not in topology.domains:
            message = f"expected the id of a memory domain, found {name}"
            found.add(IssueCode.UNKNOWN_DOMAIN, f"{at}.{key}", message, DOMAIN_IDS)
    if link.source_domain_id == link.target_domain_id:
        message = f"expected another memory than the source, found {link.target_domain_id}"
        found.add(IssueCode.SELF_LINK, f"{at}.targetDomainId", message, f"{at}.sourceDomainId")
        return ()
    ends = [topology.domains[name] for name in names.values() if name in topology.domains]
    return ends if len(ends) == 2 else ()


def _transport(found: Findings, link: Link, ends: Sequence[MemoryDomain], at: str) -> None:
    transport = link.transport
    if transport is UNSET:
        return
    path, depends = f"{at}.transport", (at, "memoryDomains")
    kinds = _KINDS[transport]
    if link.kind not in kinds:
        message = f"expected {transport} on a link of kind {', '.join(kinds)}, found it on {link.kind}"
        found.add(IssueCode.INVALID_TRANSPORT_LINK, path, message, f"{at}.kind")
    if not ends:
        return
    if ends[0].node_id == ends[1].node_id:
        message = f"expected {transport} between two nodes, found both ends on {ends[0].node_id}"
        found.add(IssueCode.INVALID_TRANSPORT_LINK, path, message, *depends)
    for end in ends:
        if not _carries(end, transport):
            message = f"expected {_NEEDS[transport]} at both ends of {transport}, found {end.id}, {end.kind} memory"
            found.add(IssueCode.INVALID_TRANSPORT_LINK, path, message, *depends)


_NEEDS = {
    Transport.TCP: "host or unified memory",
    Transport.RDMA_HOST: "host memory of the class pinned",
    Transport.GPUDIRECT_RDMA: "device memory",
}


def _carries(end: MemoryDomain, transport: Transport) -> bool:
    if transport is Transport.TCP:
        return end.kind in (DomainKind.HOST, DomainKind.UNIFIED)
    if transport is Transport.RDMA_HOST:
        return end.kind is DomainKind.HOST and AllocationClass.PINNED in end.allocation_classes
    return end.kind is DomainKind.DEVICE


def _path(found: Findings, topology: Topology, link: Link, ends: Sequence[MemoryDomain], at: str) -> None:
    path, names = f"{at}.networkResourceIds", link.network_resource_ids
    direct = link.transport is Transport.GPUDIRECT_RDMA
    if names is UNSET:
        if direct:
            message = "expected NICs with direct access to both ends of gpudirect_rdma, found no network resources"
            found.add(IssueCode.INVALID_DIRECT_MEMORY, at, message, path, f"{at}.transport")
        return
    if link.transport is UNSET:
        found.add(IssueCode.INVALID_NETWORK_PATH, path, "expected a transport of this path, found none", at)
    resources = []
    for index, name in enumerate(names):
        resource = topology.resources.get(name)
        if resource is None:
            message = f"expected the id of a network resource, found {name}"
            found.add(IssueCode.UNKNOWN_NETWORK_RESOURCE, f"{path}[{index}]", message, RESOURCE_IDS)
            continue
        resources.append(resource)
        if link.transport is not UNSET and link.transport not in resource.supported_transports:
            message = f"expected a network resource that supports {link.transport}, found {name}, which does not"
            depends = (f"{at}.transport", "networkResources[*].supportedTransports")
            found.add(IssueCode.UNSUPPORTED_NETWORK_TRANSPORT, f"{path}[{index}]", message, *depends)
    if len(resources) < len(names):
        return
    kinds = [resource.kind for resource in resources]
    inner = [ResourceKind.SWITCH] * (len(kinds) - 2)
    if len(kinds) < 2 or kinds != [ResourceKind.NIC, *inner, ResourceKind.NIC]:
        message = f"expected a NIC, any switches, and a NIC, found {', '.join(kinds) or 'nothing'}"
        found.add(IssueCode.INVALID_NETWORK_PATH, path, message, at, "networkResources[*].kind")
    elif ends:
        _nics(found, (resources[0], resources[-1]), ends, (path, direct))


def _nics(
    found: Findings, nics: Sequence[NetworkResource], ends: Sequence[MemoryDomain], link: tuple[str, bool]
) -> None:
    """The first NIC is on the source's node, the last on the target's; with GPUDirect each reaches its end."""
    path, direct = link
    for nic, end in zip(nics, ends, strict=True):
        if nic.node_id != end.node_id:
            where = "no node" if nic.node_id is UNSET else nic.node_id
            message = f"expected a NIC on {end.node_id}, the node of {end.id}, found {nic.id} on {where}"
            found.add(IssueCode.INVALID_NETWORK_NODE, path, message, "networkResources", "memoryDomains")
        elif direct and end.id not in nic.direct_memory_domain_ids:
            message = f"expected a NIC with direct access to {end.id}, found {nic.id} without"
            found.add(IssueCode.INVALID_DIRECT_MEMORY, path, message, "networkResources", "memoryDomains")


def _curves(found: Findings, link: Link, at: str) -> None:
    for key, curve in (("bandwidthCurve", link.bandwidth_curve), ("latencyCurve", link.latency_curve)):
        if curve is UNSET:
            continue
        sizes = [point.message_bytes for point in curve]
        if len(sizes) < 2:
            message = f"expected at least two points, found {len(sizes)}"
            found.add(IssueCode.INVALID_CURVE, f"{at}.{key}", message)
        for index in range(1, len(sizes)):
            if sizes[index] <= sizes[index - 1]:
                message = f"expected more than the {sizes[index - 1]} bytes of the point before, found {sizes[index]}"
                before = f"{at}.{key}[{index - 1}].messageBytes"
                found.add(IssueCode.INVALID_CURVE, f"{at}.{key}[{index}].messageBytes", message, before)
