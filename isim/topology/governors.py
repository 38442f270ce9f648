"""Who owns which memory: a host governor for each node, a device governor for each accelerator with own memory.

A governor is known by what it governs, so two memories of one node, or of one accelerator, have the same one. On a
machine of CPUs alone there is no device governor, and nobody governs storage.
"""

from __future__ import annotations

import msgspec

from isim.scenario.topology.types import DeviceGovernor, HostGovernor
from isim.topology.index import Topology


class Ownership(msgspec.Struct, frozen=True):
    """A governor and the memories it owns, in the scenario's order."""

    governor: HostGovernor | DeviceGovernor
    domain_ids: tuple[str, ...]


def governors_of(topology: Topology) -> tuple[Ownership, ...]:
    """All governors of a topology, host governors first, in the order in which the scenario names them."""
    owned: dict[HostGovernor | DeviceGovernor, list[str]] = {}
    for domain in topology.scenario.memory_domains:
        if isinstance(domain.governor, HostGovernor | DeviceGovernor):
            owned.setdefault(domain.governor, []).append(domain.id)
    hosts_first = sorted(owned, key=lambda governor: isinstance(governor, DeviceGovernor))
    return tuple(Ownership(governor, tuple(owned[governor])) for governor in hosts_first)
