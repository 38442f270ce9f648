"""A topology as the executor sees it: resources with lanes, what each link uses, and what each alias is.

Resources have the names of the contract: `compute:<device>`, `link:<link>`, `network:<NIC or switch>` and
`collective:<group>`. A step that uses a link uses, right after it, every network resource of the link.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
from msgspec import UNSET

from isim import __version__
from isim.record.canonical import fingerprint
from isim.record.errors import CausalityError
from isim.record.execution import (
    REVISION,
    SCHEMA,
    DeviceFact,
    GroupFact,
    LinkFact,
    Machine,
    NetworkFact,
)
from isim.topology.index import Topology


class Resource(msgspec.Struct, frozen=True):
    """Something with interchangeable lanes that steps hold."""

    id: str
    lanes: int


class Resources(msgspec.Struct, frozen=True, kw_only=True):
    """`by_id` gives a resource's place in `resources`; `roots` the physical allocation that an alias names."""

    header: Machine
    resources: tuple[Resource, ...]
    by_id: dict[str, int]
    paths: dict[str, tuple[int, ...]]
    roots: dict[str, str]

    def compute(self, device: str) -> int:
        """The resource of a device."""
        return self._resource(f"compute:{device}")

    def collective(self, group: str) -> int:
        """The resource of a communicator."""
        return self._resource(f"collective:{group}")

    def path(self, links: Iterable[str]) -> list[int]:
        """Each link, then its network resources; a resource that comes again is held once."""
        seen: dict[int, None] = {}
        for link in links:
            if link not in self.paths:
                raise CausalityError(f"a plan that was not validated: expected a known link, found {link!r}")
            seen.update(dict.fromkeys(self.paths[link]))
        return list(seen)

    def _resource(self, name: str) -> int:
        if name not in self.by_id:
            raise CausalityError(f"a plan that was not validated: expected a known resource, found {name!r}")
        return self.by_id[name]


def resources_of(topology: Topology) -> Resources:
    """The executor's view of a valid scenario."""
    header = _header(topology)
    resources = [Resource(f"compute:{device.id}", device.lanes) for device in header.devices]
    resources += [Resource(f"link:{link.id}", link.lanes) for link in header.links]
    resources += [Resource(f"network:{network.id}", network.lanes) for network in header.network]
    resources += [Resource(f"collective:{group.id}", 1) for group in header.groups]
    by_id = {resource.id: place for place, resource in enumerate(resources)}
    paths = {
        link.id: (by_id[f"link:{link.id}"], *(by_id[f"network:{network}"] for network in link.network))
        for link in header.links
    }
    return Resources(header=header, resources=tuple(resources), by_id=by_id, paths=paths, roots=dict(header.aliases))


def _header(topology: Topology) -> Machine:
    scenario = topology.scenario
    network = () if scenario.network_resources is UNSET else scenario.network_resources
    return Machine(
        time_ns=0,
        schema=SCHEMA,
        revision=REVISION,
        isim_version=__version__,
        scenario=scenario.id,
        scenario_fingerprint=fingerprint(msgspec.to_builtins(scenario)),
        topology_epoch=scenario.execution.topology_epoch,
        max_events=scenario.execution.max_events,
        devices=tuple(DeviceFact(id=device.id, lanes=device.max_concurrent_compute) for device in scenario.devices),
        network=tuple(NetworkFact(id=resource.id, lanes=resource.concurrency_lanes) for resource in network),
        links=tuple(
            LinkFact(
                id=link.id,
                lanes=link.concurrency_lanes,
                network=() if link.network_resource_ids is UNSET else link.network_resource_ids,
            )
            for link in scenario.links
        ),
        groups=tuple(
            GroupFact(id=group.id, ranks=tuple((rank.rank_id, rank.device_id) for rank in group.ordered_ranks))
            for group in scenario.groups
        ),
        aliases=_aliases(topology),
    )


def _aliases(topology: Topology) -> tuple[tuple[str, str], ...]:
    """Each alias with the allocation that is charged for it in the end."""
    aliases = []
    for name, owned in topology.allocations.items():
        physical = topology.physical(name)
        if owned.allocation.alias_of is not UNSET and physical is not None:
            aliases.append((name, physical.allocation.physical_allocation_id))
    return tuple(aliases)
