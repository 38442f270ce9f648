"""Order and reachability of a plan's graph, against definitions applied literally."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from isim.plan import graph
from isim.plan.graph import a_cycle, topological_order, unreached

Before = list[list[int]]


@st.composite
def graphs(draw: st.DrawFn, most: int = 24) -> Before:
    """Any graph, cycles and edges to itself included."""
    count = draw(st.integers(1, most))
    positions = st.integers(0, count - 1)
    return draw(st.lists(st.lists(positions, max_size=3, unique=True), min_size=count, max_size=count))


@st.composite
def acyclic(draw: st.DrawFn, most: int = 24) -> Before:
    """A graph whose positions were shuffled, so that plan order is not a topological one."""
    count = draw(st.integers(1, most))
    names = draw(st.permutations(range(count)))
    before: Before = [[] for _ in range(count)]
    for index in range(1, count):
        earlier = draw(st.lists(st.integers(0, index - 1), max_size=3, unique=True))
        before[names[index]] = [names[other] for other in earlier]
    return before


def everything_before(before: Before) -> list[set[int]]:
    """The transitive closure, by walking back from each position."""
    closure = []
    for position in range(len(before)):
        seen, rest = set(), [position]
        while rest:
            for earlier in before[rest.pop()]:
                if earlier not in seen:
                    seen.add(earlier)
                    rest.append(earlier)
        closure.append(seen)
    return closure


@settings(derandomize=True, deadline=None, max_examples=80)
@given(before=graphs())
def test_there_is_an_order_exactly_where_there_is_no_cycle(before: Before) -> None:
    cyclic = any(position in those for position, those in enumerate(everything_before(before)))
    order = topological_order(before)
    cycle = a_cycle(before)
    assert (order is None) == cyclic == bool(cycle)
    if order is not None:
        place = {position: index for index, position in enumerate(order)}
        assert sorted(order) == list(range(len(before)))
        assert all(place[earlier] < place[later] for later, those in enumerate(before) for earlier in those)
    for waiting, awaited in zip(cycle, [*cycle[1:], *cycle[:1]], strict=True):
        assert awaited in before[waiting]


@settings(derandomize=True, deadline=None, max_examples=80)
@given(before=acyclic(), block=st.sampled_from([1, 2, 5, 1024]))
def test_reachability_is_that_of_the_transitive_closure(before: Before, block: int) -> None:
    closure = everything_before(before)
    order = topological_order(before)
    assert order is not None
    questions = [(a, b) for a in range(len(before)) for b in range(len(before))]
    expected = [(a, b) for a, b in questions if a != b and a not in closure[b]]
    whole, graph.BLOCK = graph.BLOCK, block
    try:
        assert unreached(before, order, [*questions, *questions]) == expected
    finally:
        graph.BLOCK = whole


def test_a_graph_in_source_order_keeps_it() -> None:
    assert topological_order([[], [], [1], [0, 2]]) == [0, 1, 2, 3]


def test_long_chains_and_cycles_do_not_recurse() -> None:
    count = 50_000
    chain = [[], *([index] for index in range(count - 1))]
    order = topological_order(chain)
    assert order is not None
    assert unreached(chain, order, [(0, count - 1), (count - 1, 0)]) == [(count - 1, 0)]
    assert len(a_cycle([[count - 1], *chain[1:]])) == count
