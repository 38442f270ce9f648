"""Checks of every figure and id by itself: bounds of numbers, empty and repeated ids, repeated values, sources.

They walk the scenario by its types, so that a new field is checked like the others: a number is to be positive unless
it is listed as one that may be 0, a text that names something is to be there.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import msgspec

from isim.scenario.topology.types import SCHEMA_VERSION, TopologyScenario
from isim.scenario.units import COUNT_MAX
from isim.topology.issues import Findings, IssueCode

MAY_BE_ZERO = ("latencyNs", "topologyEpoch", "seed")
_IDS = {
    "memoryDomains": "id",
    "devices": "id",
    "networkResources": "id",
    "links": "id",
    "placements": "partitionId",
    "transfers": "id",
    "groups": "id",
}
_TEXT_CODES = {
    "source": IssueCode.EMPTY_PROVENANCE,
    "executionProvider": IssueCode.EMPTY_EP,
    "regime": IssueCode.INVALID_CALIBRATION,
    "algorithm": IssueCode.INVALID_CALIBRATION,
    "measuredAt": IssueCode.INVALID_CALIBRATION,
    "softwareStack": IssueCode.INVALID_CALIBRATION,
}
_NUMBER_CODES = {"operationsPerSecond": IssueCode.POSITIVE_COMPUTE_PEAK}


def check_basics(scenario: TopologyScenario, found: Findings) -> None:
    if scenario.schema_version != SCHEMA_VERSION:
        message = f"expected schema version {SCHEMA_VERSION}, found {scenario.schema_version}"
        found.add(IssueCode.SCHEMA_VERSION, "schemaVersion", message)
    for path, key, value in leaves(scenario, ""):
        if isinstance(value, int):
            if key != "schemaVersion":
                _number(found, path, key, value)
        elif isinstance(value, str):
            if not value:
                code = _TEXT_CODES.get(key, IssueCode.EMPTY_ID)
                found.add(code, path, "expected a text that is not empty, found an empty one")
        else:
            _repeated(found, path, value)
    for section, key in _IDS.items():
        _unique(found, scenario, section, key)


def leaves(value: msgspec.Struct, path: str) -> Iterator[tuple[str, str, Any]]:
    """(path, key, value) of all numbers and texts that are no words of an enum, and of all lists of texts."""
    for name, key in _fields(type(value)):
        inner = getattr(value, name)
        at = f"{path}.{key}" if path else key
        if isinstance(inner, msgspec.Struct):
            yield from leaves(inner, at)
        elif isinstance(inner, tuple):
            if inner and isinstance(inner[0], msgspec.Struct):
                for index, item in enumerate(inner):
                    yield from leaves(item, f"{at}[{index}]")
            else:
                yield at, key, inner
                plain = [(index, item) for index, item in enumerate(inner) if type(item) is str]
                yield from ((f"{at}[{index}]", key, item) for index, item in plain)
        elif type(inner) in (int, str):
            yield at, key, inner


@cache
def _fields(form: type[msgspec.Struct]) -> tuple[tuple[str, str], ...]:
    """Name and key of each field."""
    return tuple((field.name, field.encode_name) for field in msgspec.structs.fields(form))


def _number(found: Findings, path: str, key: str, value: int) -> None:
    least = 0 if key in MAY_BE_ZERO else 1
    if least <= value <= COUNT_MAX:
        return
    usual = IssueCode.POSITIVE_INTEGER if least else IssueCode.NON_NEGATIVE_INTEGER
    shown = value if abs(value) < 1 << 64 else "a longer one"
    message = f"expected a whole number from {least} to {COUNT_MAX}, found {shown}"
    found.add(_NUMBER_CODES.get(key, usual), path, message)


def _repeated(found: Findings, path: str, values: tuple[str, ...]) -> None:
    first: dict[str, int] = {}
    for index, value in enumerate(values):
        if first.setdefault(value, index) != index:
            message = f"expected each value once, found {value} again, first at [{first[value]}]"
            found.add(IssueCode.DUPLICATE_VALUE, f"{path}[{index}]", message, f"{path}[{first[value]}]")


def _unique(found: Findings, scenario: TopologyScenario, section: str, key: str) -> None:
    name = next(name for name, each in _fields(TopologyScenario) if each == section)
    first: dict[str, int] = {}
    for index, item in enumerate(getattr(scenario, name) or ()):
        own = item.partition_id if key == "partitionId" else item.id
        if first.setdefault(own, index) != index:
            before = f"{section}[{first[own]}].{key}"
            message = f"expected an id of its own, found {own} again, first at {before}"
            found.add(IssueCode.DUPLICATE_ID, f"{section}[{index}].{key}", message, before)
