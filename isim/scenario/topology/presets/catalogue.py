"""Topologies by name: fixed presets, `multi-gpu-ring-N`, and `small-lan-N` with how its nodes are joined."""

from __future__ import annotations

import re
from collections.abc import Callable

import msgspec

from isim.scenario.topology.presets import families
from isim.scenario.topology.presets.computers import COHERENT, DESKTOPS, coherent_computer, desktop
from isim.scenario.topology.presets.lan import NODES_MAX, NODES_MIN, LanOptions, PresetError, configure_small_lan
from isim.scenario.topology.presets.parts import Base, scenario_of
from isim.scenario.topology.presets.tiers import with_tiers
from isim.scenario.topology.types import LinkKind, TopologyScenario, Transport

FAMILIES: dict[str, Callable[[], Base]] = {
    "cpu-only": families.cpu_only,
    "single-gpu-cpu": families.single_gpu_cpu,
    "multi-gpu": lambda: families.ring(2, "multi-gpu"),
    "gpu-npu": families.gpu_npu,
    "unified-memory": families.unified,
    "multi-node": families.multi_node,
}
NAMES = (*DESKTOPS, *COHERENT, *FAMILIES)
RING = f"multi-gpu-ring-<{families.RING_MIN}..{families.RING_MAX}>"
LANS = {
    "": LanOptions(),
    "-rdma": LanOptions(link_kind=LinkKind.INFINIBAND),
    "-advanced-tcp": LanOptions(advanced=True),
    "-advanced-rdma": LanOptions(advanced=True, link_kind=LinkKind.INFINIBAND),
    "-advanced-gpudirect": LanOptions(advanced=True, link_kind=LinkKind.INFINIBAND, transport=Transport.GPUDIRECT_RDMA),
}
LAN = f"small-lan-<{NODES_MIN}..{NODES_MAX}>[{'|'.join(suffix for suffix in LANS if suffix)}]"

_RING = re.compile(r"multi-gpu-ring-([0-9]+)")
_LAN = re.compile(r"small-lan-([0-9]+)(-[a-z-]+)?")


def topology_preset(name: str) -> TopologyScenario | None:
    """The topology of that name; None where no preset is called so. Raises PresetError for a size out of range."""
    if name in DESKTOPS:
        return _completed(desktop(name), DESKTOPS[name].storage_bytes)
    if name in COHERENT:
        return _completed(coherent_computer(name), COHERENT[name].storage_bytes)
    if name in FAMILIES:
        return _completed(FAMILIES[name]())
    if match := _RING.fullmatch(name):
        return ring_topology(_size(match[1], "GPUs in a ring", families.RING_MIN, families.RING_MAX))
    if (match := _LAN.fullmatch(name)) and (match[2] or "") in LANS:
        return small_lan_topology(_size(match[1], "nodes of a small LAN", NODES_MIN, NODES_MAX), LANS[match[2] or ""])
    return None


def ring_topology(ranks: int) -> TopologyScenario:
    """`ranks` GPUs of one node on a ring. Raises PresetError for other than 2 to 64."""
    _size(str(ranks), "GPUs in a ring", families.RING_MIN, families.RING_MAX)
    return _completed(families.ring(ranks, f"multi-gpu-ring-{ranks}"))


def small_lan_topology(nodes: int, options: LanOptions) -> TopologyScenario:
    """`nodes` nodes of one GPU each on a small LAN. Raises PresetError for other than 2 to 4, or options that clash."""
    _size(str(nodes), "nodes of a small LAN", NODES_MIN, NODES_MAX)
    base = families.nodes(nodes, ())
    joined = configure_small_lan(scenario_of(base), options)
    base = msgspec.structs.replace(base, links=joined.links, transfers=joined.transfers)
    return msgspec.structs.replace(_completed(base), network_resources=joined.network_resources)


def _completed(base: Base, storage_bytes: int | None = None) -> TopologyScenario:
    sizes = {} if storage_bytes is None else {base.devices[0].node_id: storage_bytes}
    return scenario_of(with_tiers(base, sizes))


def _size(text: str, what: str, least: int, most: int) -> int:
    if len(text) > 9 or not least <= int(text) <= most:
        raise PresetError(f"expected {least} to {most} {what}, found {text[:20]}")
    return int(text)
