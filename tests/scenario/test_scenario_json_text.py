"""Large JSON texts: values as the standard library reads them, nodes with the same values, and what is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isim.scenario.errors import Complaint
from isim.scenario.json_text import json_nodes, read_json
from isim.scenario.nodes import Node, NodeKind

SCALARS = st.none() | st.booleans() | st.integers(-(10**20), 10**20) | st.floats(allow_nan=False, allow_infinity=False)
VALUES = st.recursive(
    SCALARS | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=12,
)


def value_of(node: Node) -> Any:
    if node.kind is NodeKind.BLOCK:
        return {key: value_of(child) for key, (_, child) in node.entries.items()}
    if node.kind is NodeKind.LIST:
        return [value_of(child) for child in node.items]
    return node.raw if node.kind is NodeKind.TEXT else json.loads(node.raw)


def located(node: Node, text: str, starts: list[int]) -> None:
    """Every node stands where its text is."""
    offset = starts[node.place.line - 1] + node.place.column - 1
    assert json.JSONDecoder().raw_decode(text, offset)[0] == value_of(node)
    for child in (*node.items, *(child for _, child in node.entries.values())):
        located(child, text, starts)
    for key, (place, _) in node.entries.items():
        assert json.JSONDecoder().raw_decode(text, starts[place.line - 1] + place.column - 1)[0] == key


@settings(derandomize=True, deadline=None, max_examples=150)
@given(value=VALUES, indent=st.sampled_from([None, 0, 3]), escape=st.booleans())
def test_values_and_nodes_are_those_of_the_text(value: Any, indent: int | None, escape: bool) -> None:
    text = json.dumps(value, indent=indent, ensure_ascii=escape)
    complaints: list[Complaint] = []
    assert read_json(text, complaints) == value
    node = json_nodes(text, complaints)
    assert complaints == [] and value_of(node) == value
    starts = [0, *(index + 1 for index, letter in enumerate(text) if letter == "\n")]
    located(node, text, starts)


REFUSED = [
    ('{"a": 1,\n "b": {"x": 1, "x": 2}}', "f:2:16: b.x: expected each key once, found it again; first at 2:8"),
    ('{"a": [1, NaN]}', "f:1:11: a[1]: expected a finite number, found NaN"),
    ('{"a": -1e999}', "f:1:7: a: expected a finite number, found -1e999"),
    ('{"a": "\\ud800"}', "f:1:7: a: expected text, found half of a surrogate pair"),
    ('{"a": ' + "1" * 41 + "}", "f:1:7: a: expected a number of at most 40 digits, found 41"),
    ('{"a":\n}', "f:2:1: expected JSON, found a fault: expecting value"),
    ("", "f:1:1: expected JSON, found a fault: expecting value"),
    ("[" * 200_000, "f:1:1: expected levels of nesting that can be followed, found more"),
]


@pytest.mark.parametrize(("text", "said"), REFUSED, ids=[f"{number}" for number in range(len(REFUSED))])
def test_what_is_refused_is_said_with_its_place(text: str, said: str) -> None:
    complaints: list[Complaint] = []
    read_json(text, complaints)
    assert [complaint.text("f") for complaint in complaints] == [said]


def test_whole_surrogate_pairs_are_a_character() -> None:
    complaints: list[Complaint] = []
    assert read_json('["\\ud83d\\ude00"]', complaints) == ["\U0001f600"] and complaints == []
