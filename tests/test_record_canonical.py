"""Canonical JSON: JavaScript's number texts and key order, its vectors, and what has no canonical text."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import UNSET

from isim.record.canonical import DEPTH_MAX, CanonicalError, canonical_json, fingerprint, text_fingerprint

SAFE = (1 << 53) - 1
LEAVES = st.none() | st.booleans() | st.integers(-SAFE, SAFE) | st.floats(allow_nan=False, allow_infinity=False)
JSON = st.recursive(
    LEAVES | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=4),
    max_leaves=12,
)


def number(text: str) -> int | float:
    """A whole number as JavaScript reads it: a double where it is beyond 2^53."""
    return int(text) if abs(int(text)) <= SAFE else float(text)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1e21, "1e+21"),
        (1e20, "100000000000000000000"),
        (123456789012345680000, "123456789012345680000"),
        (1e-6, "0.000001"),
        (1e-7, "1e-7"),
        (1.5e-9, "1.5e-9"),
        (5e-324, "5e-324"),
        (1.7976931348623157e308, "1.7976931348623157e+308"),
        (-0.0, "0"),
        (-1.25, "-1.25"),
        (2000.0, "2000"),
        (0.1, "0.1"),
        ((1 << 53) - 1, "9007199254740991"),
        (1 << 63, "9223372036854776000"),
        ('\x1f\n"\\\x7f\u2028é\ud800', '"\\u001f\\n\\"\\\\\x7f\u2028é\\ud800"'),
        ({"b": 1, "10": 2, "9": 3, "01": 4, "a": UNSET, "": 5}, '{"9":3,"10":2,"":5,"01":4,"b":1}'),
        ({"\uffff": 1, "\U0001f600": 2}, '{"\U0001f600":2,"\uffff":1}'),
        (("x", (None, True)), '["x",[null,true]]'),
    ],
)
def test_texts(value: Any, text: str) -> None:
    assert canonical_json(value) == text


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({}, "5465b825"),
        ([], "741638a5"),
        (0, "350ca8af"),
        ("é", "6dd86cf9"),
        ({"a": 2, "b": 1}, "af62f0e3"),
        ({"b": 1, "a": 2}, "af62f0e3"),
    ],
)
def test_published_fingerprints(value: Any, expected: str) -> None:
    assert fingerprint(value) == f"fnv1a32:{expected}" == text_fingerprint(canonical_json(value))


def test_fnv_of_published_texts() -> None:
    """Vectors of the FNV page: the empty text, `a`, `foobar`."""
    assert [text_fingerprint(text) for text in ("", "a", "foobar")] == [
        *("fnv1a32:811c9dc5", "fnv1a32:e40c292c", "fnv1a32:bf9cf968"),
    ]


@given(JSON)
@settings(max_examples=150, derandomize=True, deadline=None)
def test_the_text_is_the_value_and_is_its_own_text(value: Any) -> None:
    text = canonical_json(value)
    again = json.loads(text, parse_int=number)
    assert again == value
    assert canonical_json(again) == text


@given(st.dictionaries(st.text(max_size=2), st.integers(0, 1), max_size=8), st.randoms(use_true_random=False))
@settings(max_examples=50, derandomize=True, deadline=None)
def test_the_order_of_keys_is_not_in_it(value: dict[str, int], random: Any) -> None:
    items = list(value.items())
    random.shuffle(items)
    assert canonical_json(dict(items)) == canonical_json(value)


def deep(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("value", "place"),
    [
        (float("nan"), "$"),
        ([1, float("-inf")], "$[1]"),
        ({"a": {"b": object()}}, "$.a.b"),
        ({"a": [b"x"]}, "$.a[0]"),
        ([UNSET], "$[0]"),
        ({1: 2}, "$"),
        ({"a": {1, 2}}, "$.a"),
        (10**400, "$"),
    ],
)
def test_what_has_no_text_is_refused_at_its_place(value: Any, place: str) -> None:
    with pytest.raises(CanonicalError) as caught:
        canonical_json(value)
    assert str(caught.value).startswith(f"{place}: expected ")


def test_nesting_ends_somewhere() -> None:
    assert canonical_json(deep(DEPTH_MAX)).count("[") == DEPTH_MAX
    with pytest.raises(CanonicalError):
        canonical_json(deep(DEPTH_MAX + 1))
    cycle: dict[str, Any] = {}
    cycle["a"] = cycle
    with pytest.raises(CanonicalError, match="cycle"):
        canonical_json(cycle)
