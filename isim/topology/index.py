"""A topology scenario made searchable: by id, by what leaves a domain, by owner; and what a message costs on one link.

An index is built from a scenario that may still be wrong: of things with equal ids the first one counts, and what
refers to nothing is not there. Durations follow the reference's arithmetic exactly: bytes are divided by the bandwidth
first, then made nanoseconds, in IEEE doubles, then rounded up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import ceil
from typing import TypeVar

import msgspec
from msgspec import UNSET

from isim.scenario.topology.types import (
    Allocation,
    BandwidthPoint,
    Device,
    Group,
    LatencyPoint,
    Link,
    MemoryDomain,
    NetworkResource,
    Placement,
    Purpose,
    Rank,
    TopologyScenario,
)
from isim.scenario.units import COUNT_MAX, TIME_MAX_NS

_T = TypeVar("_T")


class Owned(msgspec.Struct, frozen=True):
    """An allocation and the placement that lists it."""

    allocation: Allocation
    placement: Placement


def transfer_ns(size_bytes: int, bandwidth_bytes_per_sec: int) -> int | None:
    """Time of so many bytes at so many bytes per second, without any latency; None beyond 2^53 - 1 ns."""
    duration = size_bytes / bandwidth_bytes_per_sec * 1_000_000_000
    return None if duration > TIME_MAX_NS else ceil(duration)


class Topology:
    """The index of one scenario; what it says never changes."""

    __slots__ = (
        *("_physical", "allocations", "devices", "domains", "groups", "leaving", "links", "placements_on"),
        *("ranks", "resources", "scenario"),
    )

    def __init__(self, scenario: TopologyScenario) -> None:
        self.scenario = scenario
        self.domains: dict[str, MemoryDomain] = _first(scenario.memory_domains, lambda it: it.id)
        self.devices: dict[str, Device] = _first(scenario.devices, lambda it: it.id)
        self.links: dict[str, Link] = _first(scenario.links, lambda it: it.id)
        self.resources: dict[str, NetworkResource] = _first(scenario.network_resources or (), lambda it: it.id)
        self.groups: dict[str, Group] = _first(scenario.groups, lambda it: it.id)
        ranks = [rank for group in scenario.groups for rank in group.ordered_ranks]
        self.ranks: dict[str, Rank] = _first(ranks, lambda it: it.rank_id)
        owned = [Owned(each, placement) for placement in scenario.placements for each in placement.allocations]
        self.allocations: dict[str, Owned] = _first(owned, lambda it: it.allocation.physical_allocation_id)
        self._physical: dict[str, Owned | None] = {}
        self.leaving: dict[str, list[Link]] = {domain: [] for domain in self.domains}
        for link in self.links.values():
            if link.source_domain_id in self.domains and link.target_domain_id in self.domains:
                self.leaving[link.source_domain_id].append(link)
        self.placements_on: dict[str, list[Placement]] = {device: [] for device in self.devices}
        for placement in scenario.placements:
            self.placements_on.setdefault(placement.device_id, []).append(placement)

    def physical(self, allocation_id: str) -> Owned | None:
        """The allocation that is charged for this id: itself, or what it is an alias of in the end; None if unknown."""
        chain: dict[str, None] = {}
        name, found = allocation_id, None
        while name not in chain and name not in self._physical:
            chain[name] = None
            found = self.allocations.get(name)
            if found is None or found.allocation.alias_of is UNSET:
                break
            name, found = found.allocation.alias_of, None
        found = self._physical.get(name, found)
        self._physical.update(dict.fromkeys(chain, found))
        return found

    def resources_of(self, link: Link) -> tuple[NetworkResource, ...]:
        """The network resources on the link's path, in its order; without those that do not exist."""
        return tuple(self.resources[name] for name in link.network_resource_ids or () if name in self.resources)

    def exchange_domain(self, device_id: str) -> str | None:
        """Where a rank on this device keeps what it exchanges: the workspace of its first placement that has one.

        Without one it is the first memory that the device names; None where there is none.
        """
        for placement in self.placements_on.get(device_id, ()):
            for each in placement.allocations:
                if each.purpose is Purpose.WORKSPACE and each.domain_id in self.domains:
                    return each.domain_id
        device = self.devices.get(device_id)
        named = [name for name in device.memory_domain_ids if name in self.domains] if device else []
        return named[0] if named else None

    def link_latency_ns(self, link: Link, size_bytes: int) -> int | None:
        """Latency of the link with the network resources on its path; None outside of the link's curve."""
        own = link.latency_ns if link.latency_curve is UNSET else _latency_at(link.latency_curve, size_bytes)
        if own is None:
            return None
        return own + sum(resource.latency_ns for resource in self.resources_of(link))

    def link_bandwidth(self, link: Link, size_bytes: int) -> int | None:
        """Bytes per second of the narrowest of the link and its network resources; None outside of the curve."""
        own: int | None = link.bandwidth_bytes_per_sec
        if link.bandwidth_curve is not UNSET:
            own = _bandwidth_at(link.bandwidth_curve, size_bytes)
        if own is None:
            return None
        return min([own, *(resource.bandwidth_bytes_per_sec for resource in self.resources_of(link))])

    def link_duration_ns(self, link: Link, size_bytes: int) -> int | None:
        """What a message of this size takes on the link; None where it cannot be carried.

        That is: no bytes, no bandwidth, a size outside of the link's curves, or more than 2^53 - 1 ns.
        """
        latency = self.link_latency_ns(link, size_bytes)
        bandwidth = self.link_bandwidth(link, size_bytes)
        if latency is None or latency < 0 or bandwidth is None or bandwidth < 1 or not 0 < size_bytes <= COUNT_MAX:
            return None
        service = transfer_ns(size_bytes, bandwidth)
        if service is None or latency + service > TIME_MAX_NS:
            return None
        return latency + service


def _first(things: Iterable[_T], key: Callable[[_T], str]) -> dict[str, _T]:
    found: dict[str, _T] = {}
    for thing in things:
        found.setdefault(key(thing), thing)
    return found


def _bandwidth_at(curve: tuple[BandwidthPoint, ...], size_bytes: int) -> int | None:
    points = [(point.message_bytes, point.bandwidth_bytes_per_sec) for point in curve]
    return _between(points, size_bytes, up=False)


def _latency_at(curve: tuple[LatencyPoint, ...], size_bytes: int) -> int | None:
    points = [(point.message_bytes, point.latency_ns) for point in curve]
    return _between(points, size_bytes, up=True)


def _between(points: list[tuple[int, int]], at: int, *, up: bool) -> int | None:
    """The straight line between the two points around `at`, rounded up or down; None before the first, after the last.

    Rounding makes a message slower, never faster.
    """
    for index, (x, y) in enumerate(points):
        if at == x:
            return y
        if at < x:
            if index == 0:
                return None
            x0, y0 = points[index - 1]
            product = (y - y0) * (at - x0)
            return y0 - (-product // (x - x0)) if up else y0 + product // (x - x0)
    return None
