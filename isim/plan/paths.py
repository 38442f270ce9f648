"""How a plan's messages travel: the route of each, as execution takes it, and what each part of it takes.

A transfer that the scenario declares between two domains with pinned staging holds for all that a plan moves between
them.
"""

from __future__ import annotations

from isim.plan.errors import CompileError
from isim.scenario.topology.types import Link, NetworkResource
from isim.topology.index import Topology, transfer_ns
from isim.topology.routes import Router


class Paths:
    """Routes of one topology."""

    __slots__ = ("_pinned", "_router", "_topology")

    def __init__(self, topology: Topology) -> None:
        self._topology = topology
        self._router = Router(topology)
        self._pinned = {
            (transfer.source_domain_id, transfer.target_domain_id): None
            for transfer in topology.scenario.transfers
            if transfer.requires_pinned_staging
        }

    def links(self, source: str, target: str, size_bytes: int) -> tuple[Link, ...]:
        """The links of the best route for a message, in order; CompileError if there is none."""
        pinned = (source, target) in self._pinned
        route = self._router.route(source, target, size_bytes, pinned=pinned)
        if route is None:
            staged = " through pinned staging" if pinned else ""
            raise CompileError(f"expected a path from {source} to {target} for {size_bytes} bytes{staged}, found none")
        return tuple(self._topology.links[name] for name in route.link_ids)

    def hop_ns(self, link: Link, size_bytes: int) -> int:
        """How long a message takes over one link of its route, network resources included."""
        duration_ns = self._topology.link_duration_ns(link, size_bytes)
        if duration_ns is None:
            raise CompileError(f"expected link {link.id} to carry {size_bytes} bytes, found that it cannot")
        return duration_ns

    def resources(self, link: Link) -> tuple[NetworkResource, ...]:
        """The NICs and switches that a link goes through, in order."""
        return self._topology.resources_of(link)

    def resource_ns(self, resource: NetworkResource, size_bytes: int) -> int:
        """How long a message keeps a NIC or a switch busy: its latency, and the bytes at its own bandwidth."""
        service_ns = transfer_ns(size_bytes, resource.bandwidth_bytes_per_sec)
        if service_ns is None:
            raise CompileError(f"expected {resource.id} to carry {size_bytes} bytes in time, found that it cannot")
        return resource.latency_ns + service_ns
