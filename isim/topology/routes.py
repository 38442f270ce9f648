"""The way of a message between two memories: the least declared duration over directed links and network resources.

A label is a partial route: the domain it has reached, whether it has passed pinned memory on the way, what it visited.
Labels are settled in the order of (duration, text of their link ids), so that of equally long routes the one with the
smaller ids wins: ids are compared as the JSON array of them, by code point. A label gives way to one that is at the
same domain, no later, and has visited nothing else; durations are positive, so without pinned staging the first label
at a domain is the only one.

A domain counts as pinned staging only between source and target, and only if it has the class `pinned`; no domain is
visited twice.
"""

from __future__ import annotations

import heapq
import json

import msgspec

from isim.record.errors import IsimError
from isim.scenario.topology.types import AllocationClass
from isim.scenario.units import TIME_MAX_NS
from isim.topology.index import Topology

WORK_MAX = 2_000_000
"""Labels made and compared in one search, which only staging behind a labyrinth comes near."""


class RouteError(IsimError):
    """A route that cannot be searched for in reasonable time."""


class Route(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Domains and links in their order, source and target included, and the sum of the links' durations."""

    domain_ids: tuple[str, ...]
    link_ids: tuple[str, ...]
    declared_duration_ns: int


class _Label(msgspec.Struct, frozen=True):
    """`visited` has a bit for each domain."""

    duration_ns: int
    domains: tuple[str, ...]
    links: tuple[str, ...]
    pinned: bool
    visited: int


class Router:
    """Routes of one topology, each searched for once. After a search that was given up no staged one is begun."""

    __slots__ = ("_bits", "_found", "_given_up", "topology")

    def __init__(self, topology: Topology) -> None:
        self.topology = topology
        self._bits = {name: 1 << index for index, name in enumerate(topology.domains)}
        self._found: dict[tuple[str, str, int, bool], Route | None] = {}
        self._given_up = False

    def route(self, source: str, target: str, size_bytes: int, *, pinned: bool = False) -> Route | None:
        """The route for a message of this size, through pinned staging if asked; None where there is none.

        From a domain to itself nothing moves, so nothing can be staged. Raises RouteError if pinned staging leads to
        more partial routes than can be looked at.
        """
        key = (source, target, size_bytes, pinned)
        if key not in self._found:
            self._found[key] = self._search(source, target, size_bytes, pinned)
        return self._found[key]

    def _search(self, source: str, target: str, size_bytes: int, pinned: bool) -> Route | None:
        domains = self.topology.domains
        if size_bytes <= 0 or source not in domains or target not in domains:
            return None
        if source == target:
            return None if pinned else Route(domain_ids=(source,), link_ids=(), declared_duration_ns=0)
        heap = [(0, "[]", 0, _Label(0, (source,), (), False, self._bits[source]))]
        settled: dict[tuple[str, bool], list[_Label]] = {}
        pushed = work = 0
        while heap:
            _, _, _, label = heapq.heappop(heap)
            here = label.domains[-1]
            if here == target:
                return Route(domain_ids=label.domains, link_ids=label.links, declared_duration_ns=label.duration_ns)
            before = settled.setdefault((here, label.pinned), [])
            work += 1 + len(before)
            if work > WORK_MAX or (pinned and self._given_up):
                self._given_up = True
                raise RouteError(
                    f"expected a network in which the best staged route from {source} to {target} can be found in "
                    f"{WORK_MAX} steps, found more ways than that"
                )
            if any(not pinned or not other.visited & ~label.visited for other in before):
                continue
            before.append(label)
            for after in self._after(label, target, size_bytes, pinned):
                pushed += 1
                heapq.heappush(heap, (after.duration_ns, _text(after.links), pushed, after))
        return None

    def _after(self, label: _Label, target: str, size_bytes: int, pinned: bool) -> list[_Label]:
        """The labels one link further; at the target only with the staging that was asked for."""
        found = []
        for link in self.topology.leaving[label.domains[-1]]:
            there = link.target_domain_id
            bit = self._bits[there]
            if label.visited & bit or (there == target and pinned and not label.pinned):
                continue
            step = self.topology.link_duration_ns(link, size_bytes)
            if step is None or label.duration_ns + step > TIME_MAX_NS:
                continue
            classes = self.topology.domains[there].allocation_classes
            staged = label.pinned or (pinned and there != target and AllocationClass.PINNED in classes)
            found.append(
                _Label(
                    label.duration_ns + step,
                    (*label.domains, there),
                    (*label.links, link.id),
                    staged,
                    label.visited | bit,
                )
            )
        return found


def _text(links: tuple[str, ...]) -> str:
    return json.dumps(links, ensure_ascii=False, separators=(",", ":"))
