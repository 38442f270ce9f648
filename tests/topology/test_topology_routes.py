"""Routes against a search of all simple paths, on random networks where many durations tie; and closed forms."""

from __future__ import annotations

import json
from collections.abc import Iterator
from fractions import Fraction
from functools import cache
from itertools import pairwise
from math import ceil
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plain import plain

from isim.scenario.topology.presets.catalogue import ring_topology, topology_preset
from isim.scenario.topology.types import Link, TopologyScenario
from isim.topology.check_placements import check_transfers
from isim.topology.index import Topology, transfer_ns
from isim.topology.issues import Findings, IssueCode
from isim.topology.routes import RouteError, Router

SAFE_MAX = (1 << 53) - 1


def network(domains: list[dict[str, Any]], links: list[dict[str, Any]], resources: list[dict[str, Any]]) -> Topology:
    """A topology of nothing but memories and links, which need not be valid to be searched."""
    value = form()
    parts = {"memoryDomains": domains, "links": links, "networkResources": resources}
    changed = {key: [{**value[key][-1], **each} for each in given] for key, given in parts.items()}
    for link in changed["links"]:
        link.setdefault("networkResourceIds", [])
    return Topology(msgspec.convert({**value, **changed}, TopologyScenario))


@cache
def form() -> dict[str, Any]:
    value = plain("small-lan-2-advanced-tcp")
    value["memoryDomains"].append(value["memoryDomains"][0])
    return value


# ---- an independent search


def simple_paths(topology: Topology, source: str, target: str) -> Iterator[list[Link]]:
    """All paths on which no domain comes twice."""

    def further(path: list[Link], seen: list[str]) -> Iterator[list[Link]]:
        if seen[-1] == target:
            yield path
            return
        for link in topology.scenario.links:
            if link.source_domain_id == seen[-1] and link.target_domain_id not in seen:
                yield from further([*path, link], [*seen, link.target_domain_id])

    yield from further([], [source])


def slow_duration(topology: Topology, path: list[Link], size: int) -> int:
    """Latency and bytes over the narrowest bandwidth for each link, in the reference's order of operations."""
    resources = {each.id: each for each in topology.scenario.network_resources or ()}
    total = 0
    for link in path:
        through = [resources[name] for name in link.network_resource_ids or ()]
        narrowest = min([link.bandwidth_bytes_per_sec, *(each.bandwidth_bytes_per_sec for each in through)])
        latency = link.latency_ns + sum(each.latency_ns for each in through)
        total += latency + ceil(size / narrowest * 1_000_000_000)
    return total


def slow_route(topology: Topology, source: str, target: str, size: int, pinned: bool) -> tuple[int, list[str]] | None:
    classes = {domain.id: domain.allocation_classes for domain in topology.scenario.memory_domains}
    found = []
    for path in simple_paths(topology, source, target):
        between = [link.target_domain_id for link in path[:-1]]
        if not pinned or any("pinned" in classes[name] for name in between):
            ids = [link.id for link in path]
            text = json.dumps(ids, separators=(",", ":"))
            found.append((slow_duration(topology, path, size), text, ids))
    if not found:
        return None
    duration, _, ids = min(found)
    return duration, ids


@st.composite
def networks(draw: st.DrawFn) -> Topology:
    """Up to six memories, dense links of few different speeds, some over shared resources; ids that order oddly."""
    names = ["a", "b", "ab", "B", "10", "9"][: draw(st.integers(2, 6))]
    domains = [
        {"id": name, "allocationClasses": draw(st.sampled_from([["pageable"], ["pageable", "pinned"]]))}
        for name in names
    ]
    resources = [{"id": f"r{index}", "bandwidthBytesPerSec": 10**9, "latencyNs": index} for index in range(2)]
    links = []
    for index in range(draw(st.integers(1, 14))):
        ends = draw(st.lists(st.sampled_from(names), min_size=2, max_size=2, unique=True))
        over = draw(st.sampled_from([None, None, ["r0"], ["r0", "r1"]]))
        links.append(
            {
                "id": draw(st.sampled_from(["l", "L", "l,", 'l"', "k"])) + str(index),
                "sourceDomainId": ends[0],
                "targetDomainId": ends[1],
                "bandwidthBytesPerSec": draw(st.sampled_from([10**9, 2 * 10**9])),
                "latencyNs": draw(st.integers(0, 3)),
                **({} if over is None else {"networkResourceIds": over}),
            }
        )
    return network(domains, links, resources)


@given(networks(), st.sampled_from([1, 2, 1000]), st.booleans())
@settings(max_examples=100, derandomize=True, deadline=None)
def test_routes_are_those_of_the_search_of_all_paths(topology: Topology, size: int, pinned: bool) -> None:
    router = Router(topology)
    for source in topology.domains:
        for target in topology.domains:
            if source == target:
                continue
            route = router.route(source, target, size, pinned=pinned)
            expected = slow_route(topology, source, target, size, pinned)
            found = None if route is None else (route.declared_duration_ns, list(route.link_ids))
            assert found == expected
            if route is not None:
                assert route.domain_ids[0] == source and route.domain_ids[-1] == target
                assert len(set(route.domain_ids)) == len(route.domain_ids) == len(route.link_ids) + 1


# ---- rules in words


@pytest.mark.parametrize("size", [0, -1, -(1 << 60)])
def test_nothing_to_carry_has_no_route(size: int) -> None:
    router = Router(Topology(ring_topology(2)))
    assert router.route("node0:host", "node0:gpu0:vram", size) is None
    assert router.route("node0:host", "node0:host", size) is None


def test_unknown_memories_have_no_route() -> None:
    router = Router(Topology(ring_topology(2)))
    assert router.route("node0:host", "elsewhere", 1) is None
    assert router.route("elsewhere", "elsewhere", 1) is None


def test_to_itself_nothing_moves_and_nothing_can_be_staged() -> None:
    router = Router(Topology(ring_topology(2)))
    route = router.route("node0:host", "node0:host", 5)
    assert route is not None and (route.domain_ids, route.link_ids) == (("node0:host",), ())
    assert route.declared_duration_ns == 0
    assert router.route("node0:host", "node0:host", 5, pinned=True) is None


def test_ends_are_no_staging() -> None:
    """Host memory is pinned, but as source or target it stages nothing."""
    router = Router(Topology(ring_topology(2)))
    assert router.route("node0:host", "node0:gpu0:vram", 5, pinned=True) is None
    staged = router.route("node0:gpu0:vram", "node0:gpu1:vram", 5, pinned=True)
    assert staged is not None and staged.domain_ids == ("node0:gpu0:vram", "node0:host", "node0:gpu1:vram")


def test_a_message_takes_the_way_that_is_best_for_its_size() -> None:
    """Low latency for few bytes, bandwidth for many: a direct slow link, and a fast one over a third memory."""
    domains = [{"id": name} for name in "abc"]
    links = [
        {"id": "slow", "sourceDomainId": "a", "targetDomainId": "b", "bandwidthBytesPerSec": 10**9, "latencyNs": 10},
        {"id": "in", "sourceDomainId": "a", "targetDomainId": "c", "bandwidthBytesPerSec": 10**10, "latencyNs": 10},
        {"id": "out", "sourceDomainId": "c", "targetDomainId": "b", "bandwidthBytesPerSec": 10**10, "latencyNs": 10},
    ]
    router = Router(network(domains, links, []))
    small, large = router.route("a", "b", 10), router.route("a", "b", 1000)
    assert small is not None and (small.link_ids, small.declared_duration_ns) == (("slow",), 20)
    assert large is not None and (large.link_ids, large.declared_duration_ns) == (("in", "out"), 220)


@pytest.mark.parametrize("ranks", [2, 3, 5, 64])
def test_on_a_ring_of_fast_links(ranks: int) -> None:
    """Between neighbours one hop of 500 ns and the bytes at 600 GB/s; farther at least the two hops over the host."""
    router = Router(Topology(ring_topology(ranks)))
    size = 1 << 20
    hop = 500 + ceil(Fraction(size, 600))
    over_host = 2 * (1500 + ceil(Fraction(size, 32)))
    for rank in (1, ranks // 2, ranks - 1):
        hops = min(rank, ranks - rank)
        route = router.route("node0:gpu0:vram", f"node0:gpu{rank}:vram", size)
        assert route is not None and route.declared_duration_ns == min(hops * hop, over_host)


def test_network_resources_narrow_and_delay() -> None:
    """LAN of 50 GB/s and 3000 ns over two NICs of 25 GB/s and 700 ns and a fabric of 500 ns; PCIe before and after."""
    scenario = topology_preset("small-lan-2-advanced-rdma")
    assert scenario is not None
    router = Router(Topology(scenario))
    route = router.route("node0:gpu0:vram", "node1:gpu0:vram", 10**6, pinned=True)
    assert route is not None
    pcie = 1500 + 31250
    assert route.declared_duration_ns == pcie + 3000 + 2 * 700 + 500 + 40_000 + pcie


def test_the_reference_arithmetic_divides_first() -> None:
    """183 bytes at 3 GB/s take 61 ns exactly; divided first, in doubles, a little more, which the ceiling makes 62."""
    assert Fraction(183 * 10**9, 3 * 10**9) == 61
    assert transfer_ns(183, 3 * 10**9) == 62
    assert transfer_ns(3050, 50 * 10**9) == 62
    assert transfer_ns(3000, 50 * 10**9) == 60
    assert transfer_ns(SAFE_MAX, 10**9) == SAFE_MAX
    assert transfer_ns(SAFE_MAX, 10**8) is None


def test_durations_beyond_the_clock_are_no_route() -> None:
    ends = {"sourceDomainId": "a", "targetDomainId": "b"}
    for slow in ({"bandwidthBytesPerSec": 1, "latencyNs": 0}, {"bandwidthBytesPerSec": 10**9, "latencyNs": SAFE_MAX}):
        router = Router(network([{"id": "a"}, {"id": "b"}], [{"id": "l", **ends, **slow}], []))
        assert router.route("a", "b", 10**9) is None


def test_a_search_without_end_is_given_up() -> None:
    """Staging behind a labyrinth: all ways through it would have to be tried."""
    stages = 40
    names = [f"{kind}{index}" for index in range(stages) for kind in "muv"]
    domains = [{"id": name, "allocationClasses": ["pageable"]} for name in (*names, "out")]
    ends = [(f"m{index}", f"{kind}{index}") for index in range(stages) for kind in "uv"]
    ends += [(f"{kind}{index}", f"m{index + 1}") for index in range(stages - 1) for kind in "uv"]
    ends.append(("u39", "out"))
    links = [{"id": f"{one}-{other}", "sourceDomainId": one, "targetDomainId": other} for one, other in ends]
    router = Router(network(domains, links, []))
    route = router.route("m0", "out", 1)
    assert route is not None and len(route.link_ids) == 2 * stages
    with pytest.raises(RouteError, match="m0 to out"):
        router.route("m0", "out", 1, pinned=True)


def test_transfers_are_judged_by_the_route_that_execution_takes() -> None:
    """Two ways through pinned memory, the shorter one over a slow NIC: staging counts on the other way only."""
    resources = [{"id": "nic", "bandwidthBytesPerSec": 10**6, "latencyNs": 0}]
    domains = [{"id": name, "allocationClasses": ["pageable", "pinned"]} for name in ("s", "near", "far", "t")]
    ends = [("s", "near", 1, ["nic"]), ("near", "t", 1, []), ("s", "far", 50, []), ("far", "t", 50, [])]
    links = [
        {"id": f"{a}-{b}", "sourceDomainId": a, "targetDomainId": b, "latencyNs": time, "networkResourceIds": over}
        for a, b, time, over in ends
    ]
    for place, codes in (("far", []), ("near", [IssueCode.INVALID_STAGING])):
        scenario = msgspec.to_builtins(network(domains, links, resources).scenario)
        scenario["transfers"] = [
            {"id": "x", "sourceDomainId": "s", "targetDomainId": "t", "bytes": 10**6, "requiresPinnedStaging": True,
             "stagingAllocationIds": ["staging-0"]}
        ]  # fmt: skip
        (staging,) = [it for it in scenario["placements"][0]["allocations"] if it["purpose"] == "staging"]
        staging["domainId"] = place
        topology = Topology(msgspec.convert(scenario, TopologyScenario))
        found = Findings()
        check_transfers(topology, Router(topology), found)
        assert [issue.code for issue in found.issues] == codes


# ---- curves


def curved(**curves: list[dict[str, int]]) -> Topology:
    link = {"id": "l", "sourceDomainId": "a", "targetDomainId": "b", "bandwidthBytesPerSec": 10**9, "latencyNs": 7}
    return network([{"id": "a"}, {"id": "b"}], [{**link, **curves}], [])


def test_a_curve_is_a_straight_line_between_its_points() -> None:
    latency = [{"messageBytes": size, "latencyNs": time} for size, time in ((10, 100), (20, 200), (40, 200))]
    topology = curved(latencyCurve=latency)
    link = topology.links["l"]
    found = {size: topology.link_latency_ns(link, size) for size in (9, 10, 11, 15, 20, 30, 40, 41)}
    assert found == {9: None, 10: 100, 11: 110, 15: 150, 20: 200, 30: 200, 40: 200, 41: None}


@given(
    st.lists(st.tuples(st.integers(1, 50), st.integers(1, 10**6)), min_size=2, max_size=6, unique_by=lambda it: it[0]),
    st.integers(1, 60),
    st.booleans(),
)
@settings(max_examples=100, derandomize=True, deadline=None)
def test_rounding_never_makes_a_message_faster(points: list[tuple[int, int]], size: int, latency: bool) -> None:
    """The exact value of the line, rounded to the slower side by less than one."""
    points = sorted(points)
    key, name = ("latencyNs", "latencyCurve") if latency else ("bandwidthBytesPerSec", "bandwidthCurve")
    topology = curved(**{name: [{"messageBytes": x, key: y} for x, y in points]})
    link = topology.links["l"]
    found = topology.link_latency_ns(link, size) if latency else topology.link_bandwidth(link, size)
    exact = None
    for (x0, y0), (x1, y1) in pairwise(points):
        if x0 <= size <= x1:
            exact = y0 + Fraction((y1 - y0) * (size - x0), x1 - x0)
    if exact is None:
        assert found is None and topology.link_duration_ns(link, size) is None
    else:
        assert found is not None
        slower = found - exact if latency else exact - found
        assert 0 <= slower < 1


def test_outside_of_a_curve_there_is_no_route() -> None:
    points = [{"messageBytes": size, "bandwidthBytesPerSec": 10**9} for size in (100, 200)]
    router = Router(curved(bandwidthCurve=points))
    assert [router.route("a", "b", size) is None for size in (99, 100, 200, 201)] == [True, False, False, True]
