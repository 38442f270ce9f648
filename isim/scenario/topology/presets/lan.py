"""Two to four nodes on a small switched network: simple links, or links over a NIC per node and one switch.

Simple is one directed link between each two hosts. Advanced adds the network resources, which all links share, and may
carry the messages from device memory to device memory (GPUDirect). No packets, retransmission or adaptive routing.
"""

from __future__ import annotations

import msgspec
from msgspec import UNSET

from isim.record.errors import IsimError
from isim.scenario.topology.presets.parts import GIGA, PROVENANCE, link, transfer
from isim.scenario.topology.types import (
    DomainKind,
    Link,
    LinkKind,
    NetworkResource,
    ResourceKind,
    TopologyScenario,
    Transport,
)

NODES_MIN, NODES_MAX = 2, 4
_USUAL = {
    LinkKind.ETHERNET: (10 * GIGA, 10_000, Transport.TCP),
    LinkKind.INFINIBAND: (50 * GIGA, 3000, Transport.RDMA_HOST),
}
FABRIC = "lan:fabric0"


class PresetError(IsimError):
    """A preset that is asked for cannot be built."""


class LanOptions(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """How the nodes are joined. What is None follows from the kind of link; the fabric's lanes from the nodes."""

    advanced: bool = False
    link_kind: LinkKind = LinkKind.ETHERNET
    transport: Transport | None = None
    link_bandwidth_bytes_per_sec: int | None = None
    link_latency_ns: int | None = None
    link_concurrency_lanes: int = 1
    nic_bandwidth_bytes_per_sec: int = 25 * GIGA
    nic_latency_ns: int = 700
    nic_concurrency_lanes: int = 2
    fabric_bandwidth_bytes_per_sec: int = 50 * GIGA
    fabric_latency_ns: int = 500
    fabric_concurrency_lanes: int | None = None


class _Node(msgspec.Struct, frozen=True):
    name: str
    host: str
    device: str


def configure_small_lan(scenario: TopologyScenario, options: LanOptions) -> TopologyScenario:
    """The scenario with its nodes joined as `options` say, in the place of whatever joined them.

    Raises PresetError for other than two to four nodes, or a node without exactly one host and one device memory.
    """
    if options.link_kind not in _USUAL:
        raise PresetError(f"expected a link of kind {' or '.join(_USUAL)}, found {options.link_kind}")
    bandwidth, latency, usual = _USUAL[options.link_kind]
    transport = options.transport or usual
    direct = transport is Transport.GPUDIRECT_RDMA
    if direct and not options.advanced:
        raise PresetError("expected an advanced network for gpudirect_rdma, found a simple one: it has no NICs")
    _check_figures(options)
    nodes = _nodes(scenario)
    speed = (_given(options.link_bandwidth_bytes_per_sec, bandwidth), _given(options.link_latency_ns, latency))
    place = {domain.id: domain.node_id for domain in scenario.memory_domains}
    local = [one for one in scenario.links if place[one.source_domain_id] == place[one.target_domain_id]]
    lan: list[Link] = []
    for source in nodes:
        for target in nodes:
            if source is target:
                continue
            ends = (source.device, target.device) if direct else (source.host, target.host)
            plain = link(f"lan:{source.name}:{target.name}", ends, options.link_kind, speed)
            path = (f"{source.name}:nic0", FABRIC, f"{target.name}:nic0") if options.advanced else UNSET
            lanes = options.link_concurrency_lanes
            lan.append(
                msgspec.structs.replace(plain, transport=transport, network_resource_ids=path, concurrency_lanes=lanes)
            )
    return msgspec.structs.replace(
        scenario,
        links=(*local, *lan),
        network_resources=_resources(nodes, options, transport) if options.advanced else UNSET,
        transfers=tuple(
            transfer(each.id, (each.source_domain_id, each.target_domain_id), each.bytes) if direct else each
            for each in scenario.transfers
        ),
    )


def _given(value: int | None, usual: int) -> int:
    return usual if value is None else value


def _check_figures(options: LanOptions) -> None:
    for field in msgspec.structs.fields(options):
        value = getattr(options, field.name)
        least = 0 if field.name.endswith("latency_ns") else 1
        if type(value) is int and value < least:
            raise PresetError(f"expected {field.encode_name} of at least {least}, found {value}")


def _nodes(scenario: TopologyScenario) -> list[_Node]:
    names = list(dict.fromkeys(device.node_id for device in scenario.devices))
    if not NODES_MIN <= len(names) <= NODES_MAX:
        raise PresetError(f"expected {NODES_MIN} to {NODES_MAX} nodes for a small LAN, found {len(names)}")
    nodes = []
    for name in names:
        mine = [domain for domain in scenario.memory_domains if domain.node_id == name]
        hosts = [domain.id for domain in mine if domain.kind is DomainKind.HOST]
        devices = [domain.id for domain in mine if domain.kind is DomainKind.DEVICE]
        if len(hosts) != 1 or len(devices) != 1:
            found = f"{len(hosts)} and {len(devices)}"
            raise PresetError(f"expected one host and one device memory on node {name} for a small LAN, found {found}")
        nodes.append(_Node(name, hosts[0], devices[0]))
    return nodes


def _resources(nodes: list[_Node], options: LanOptions, transport: Transport) -> tuple[NetworkResource, ...]:
    direct = transport is Transport.GPUDIRECT_RDMA
    nics = tuple(
        NetworkResource(
            id=f"{node.name}:nic0",
            kind=ResourceKind.NIC,
            node_id=node.name,
            bandwidth_bytes_per_sec=options.nic_bandwidth_bytes_per_sec,
            latency_ns=options.nic_latency_ns,
            concurrency_lanes=options.nic_concurrency_lanes,
            supported_transports=(transport,),
            direct_memory_domain_ids=(node.device,) if direct else (),
            provenance=PROVENANCE,
        )
        for node in nodes
    )
    fabric = NetworkResource(
        id=FABRIC,
        kind=ResourceKind.SWITCH,
        bandwidth_bytes_per_sec=options.fabric_bandwidth_bytes_per_sec,
        latency_ns=options.fabric_latency_ns,
        concurrency_lanes=_given(options.fabric_concurrency_lanes, len(nodes)),
        supported_transports=(transport,),
        direct_memory_domain_ids=(),
        provenance=PROVENANCE,
    )
    return (*nics, fabric)
