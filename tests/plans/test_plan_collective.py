"""What collectives cost: closed forms, conservation of bytes, and phases worked out literally."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from toy_machine import accelerator, degrees, link, machine, ring

from isim.plan.collective import all_reduce_ring, all_to_all_v, traffic_signature, transposed
from isim.plan.owners import ExpertPlacement, PlacementStrategy, dispatch_matrix, owners
from isim.plan.paths import Paths
from isim.scenario.topology.presets.catalogue import small_lan_topology
from isim.scenario.topology.presets.lan import LanOptions
from isim.topology.index import Topology

Matrix = list[list[int]]


def memories(count: int) -> list[str]:
    return [f"g{index}:memory" for index in range(count)]


@pytest.mark.parametrize("count", [2, 3, 7, 64])
@pytest.mark.parametrize("size_bytes", [1, 1 << 19, (1 << 20) + 1])
def test_all_reduce_on_a_ring(count: int, size_bytes: int) -> None:
    """2 (N - 1) hops of a N-th of the bytes, rounded up; the links are those of the ring, in its order."""
    cost = all_reduce_ring(memories(count), size_bytes, Paths(Topology(ring(count))))
    share = -(-size_bytes // count)
    assert cost.duration_ns == 2 * (count - 1) * (100 + -(-share // 100))
    assert cost.links == tuple(f"g{index}>g{(index + 1) % count}" for index in range(count))


def test_alone_there_is_nothing_to_do() -> None:
    cost = all_reduce_ring(memories(1), 100, Paths(Topology(ring(1))))
    assert (cost.duration_ns, cost.links) == (0, ())


def test_messages_that_share_a_link_add_up_on_it() -> None:
    """Four members left of a bridge and four right of it, in turn: four messages a phase cross it in each direction.

    A path has three hops, so that the bridge with its four messages is what takes longest.
    """
    left, right = ([f"{side}{index}" for index in range(4)] for side in "lr")
    ends = [("a", "b"), *(("a", name) for name in left), *(("b", name) for name in right)]
    links = [link(*pair) for one, other in ends for pair in ((one, other), (other, one))]
    topology = Topology(machine([accelerator(name) for name in ("a", "b", *left, *right)], links, {}, degrees()))
    order = [f"{name}:memory" for pair in zip(left, right, strict=True) for name in pair]
    cost = all_reduce_ring(order, 8000, Paths(topology))
    assert cost.duration_ns == 14 * 4 * (100 + 10)
    assert cost.links[:5] == ("l0>a", "a>b", "b>r0", "r0>b", "b>a")
    assert len(cost.links) == len(links)


def test_a_slow_switch_holds_up_all_who_pass_it() -> None:
    """Four nodes behind one fabric of 1 GB/s and 500 ns: it serves all four messages of a phase one after another."""
    options = LanOptions(advanced=True, fabric_bandwidth_bytes_per_sec=10**9)
    topology = Topology(small_lan_topology(4, options))
    domains = [f"node{index}:gpu0:vram" for index in range(4)]
    cost = all_reduce_ring(domains, 1 << 19, Paths(topology))
    assert cost.duration_ns == 6 * 4 * (500 + (1 << 17))


CELLS = st.integers(0, 3).map(lambda value: value * 1000)


@st.composite
def matrices(draw: st.DrawFn) -> Matrix:
    count = draw(st.integers(2, 5))
    return [[draw(CELLS) for _ in range(count)] for _ in range(count)]


@settings(derandomize=True, deadline=None, max_examples=60)
@given(matrix=matrices())
def test_exchanges_between_all_pairs(matrix: Matrix) -> None:
    """On a full mesh nothing is shared: a phase takes its largest message, and only cells that move bytes use links."""
    count = len(matrix)
    names = [f"g{index}" for index in range(count)]
    mesh = [link(a, b) for a in names for b in names if a != b]
    topology = Topology(machine([accelerator(name) for name in names], mesh, {"tp": names}, degrees()))
    cost = all_to_all_v(memories(count), matrix, Paths(topology))
    expected_ns, used = 0, set()
    for offset in range(1, count):
        sent = {(rank, (rank + offset) % count): matrix[rank][(rank + offset) % count] for rank in range(count)}
        moved = {pair: size for pair, size in sent.items() if size}
        expected_ns += max((100 + size // 100 for size in moved.values()), default=0)
        used |= {f"g{a}>g{b}" for a, b in moved}
    assert cost.duration_ns == expected_ns
    assert set(cost.links) == used and len(cost.links) == len(used)
    back = all_to_all_v(memories(count), transposed(matrix), Paths(topology))
    assert len(back.links) == len(cost.links)


@settings(derandomize=True, deadline=None, max_examples=60)
@given(matrix=matrices(), factor=st.integers(1, 9))
def test_a_signature_is_that_of_the_shape(matrix: Matrix, factor: int) -> None:
    scaled = [[cell * factor for cell in row] for row in matrix]
    assert traffic_signature(scaled) == traffic_signature(matrix)
    kind, text = traffic_signature(matrix).split(":", 1)
    smallest = msgspec.json.decode(text)
    assert kind == "all_to_all_v_matrix_v1"
    cells = {(a, b) for a, row in enumerate(matrix) for b, cell in enumerate(row) if cell}
    assert cells == {(a, b) for a, row in enumerate(smallest) for b, cell in enumerate(row) if cell}
    assert len({matrix[a][b] // smallest[a][b] for a, b in cells}) <= 1


def test_the_signature_of_nothing() -> None:
    assert traffic_signature([[0, 0], [0, 0]]) == "all_to_all_v_matrix_v1:[[0,0],[0,0]]"


@settings(derandomize=True, deadline=None, max_examples=100)
@given(
    experts=st.integers(1, 40),
    members=st.integers(1, 9),
    strategy=st.sampled_from(PlacementStrategy),
    tokens=st.lists(st.lists(st.integers(0, 39), max_size=3), max_size=12),
)
def test_owners_and_what_is_sent_to_them(
    experts: int, members: int, strategy: PlacementStrategy, tokens: list[list[int]]
) -> None:
    names = tuple(f"e{index}" for index in range(experts))
    owner = owners(ExpertPlacement(strategy=strategy, expert_ids=names), members)
    shares = [list(owner.values()).count(member) for member in range(members)]
    assert sum(shares) == experts and max(shares) - min(shares) <= 1
    dealt = list(owner.values())
    if strategy is PlacementStrategy.CONTIGUOUS:
        assert dealt == sorted(dealt)
    else:
        assert all(member == index % members for index, member in enumerate(dealt))
    routed = [[names[index % experts] for index in those] for those in tokens]
    matrix = dispatch_matrix(routed, owner, members, 8)
    assert sum(cell for row in matrix for cell in row) == 8 * sum(len(those) for those in routed)
    for member in range(members):
        asked = sum(owner[name] == member for those in routed for name in those)
        assert sum(row[member] for row in matrix) == 8 * asked
        started = sum(len(those) for index, those in enumerate(routed) if index % members == member)
        assert sum(matrix[member]) == 8 * started
