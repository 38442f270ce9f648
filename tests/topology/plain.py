"""Topologies as plain values that a test may change, as text with one value on a line, and what is said of them."""

from __future__ import annotations

import json
import re
from typing import Any

import msgspec

from isim.scenario.errors import Complaint, ScenarioError
from isim.scenario.topology.presets.catalogue import topology_preset
from isim.topology.load import read_topology


def plain(name: str) -> dict[str, Any]:
    """The preset as JSON gives it back."""
    found: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(topology_preset(name)))
    return found


def text_of(value: Any) -> str:
    return json.dumps(value, indent=2)


def at(value: Any, path: str) -> Any:
    """What stands at a path such as `links[3].kind`."""
    for name, index in re.findall(r"([^.\[\]]+)|\[(\d+)\]", path):
        value = value[int(index)] if index else value[name]
    return value


def change(value: Any, path: str, new: Any) -> None:
    """Put a value at a path; the key before it may be new."""
    head, _, last = path.rpartition("." if "." in path and not path.endswith("]") else "[")
    parent = at(value, head) if head else value
    parent[int(last[:-1]) if last.endswith("]") else last] = new


def complaints(value: Any) -> list[Complaint]:
    """Everything that is wrong with the topology, in the order of the file."""
    try:
        read_topology(text_of(value).encode(), "t.json")
    except ScenarioError as error:
        return error.complaints
    return []
