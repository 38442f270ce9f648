"""What a plan may refer to, looked up once: the ids of a topology scenario and what each stands for."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
from msgspec import UNSET

from isim.scenario.topology.types import Allocation, Device, Group, Link, TopologyScenario


class PlanFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Tables by id. `physical` is the allocation whose bytes an allocation has: itself, or what it is an alias of.

    `rank_device` is the device of each rank, `device_rank` the first rank of each device in the order of the groups.
    """

    topology_epoch: int
    devices: dict[str, Device]
    links: dict[str, Link]
    groups: dict[str, Group]
    allocations: dict[str, Allocation]
    physical: dict[str, str]
    rank_device: dict[str, str]
    device_rank: dict[str, str]

    @classmethod
    def of(cls, scenario: TopologyScenario) -> PlanFacts:
        """The tables of a scenario, which is taken to be valid."""
        allocations = {
            allocation.physical_allocation_id: allocation
            for placement in scenario.placements
            for allocation in placement.allocations
        }
        ranks = [rank for group in scenario.groups for rank in group.ordered_ranks]
        device_rank: dict[str, str] = {}
        for rank in ranks:
            device_rank.setdefault(rank.device_id, rank.rank_id)
        return cls(
            topology_epoch=scenario.execution.topology_epoch,
            devices={device.id: device for device in scenario.devices},
            links={link.id: link for link in scenario.links},
            groups={group.id: group for group in scenario.groups},
            allocations=allocations,
            physical={name: _root(allocations, name) for name in allocations},
            rank_device={rank.rank_id: rank.device_id for rank in ranks},
            device_rank=device_rank,
        )

    def domain(self, allocation: str) -> str:
        """The memory domain in which an allocation lies."""
        return self.allocations[allocation].domain_id

    def roots(self, names: Iterable[str]) -> tuple[str, ...]:
        """The physical allocations behind the names, each once, in the order of first use."""
        return tuple(dict.fromkeys(self.physical[name] for name in names))


def _root(allocations: dict[str, Allocation], name: str) -> str:
    """What a chain of aliases ends in. It has no loop in a valid scenario; in another it is followed once round."""
    for _ in allocations:
        behind = allocations[name].alias_of
        if behind is UNSET or behind not in allocations:
            break
        name = behind
    return name
