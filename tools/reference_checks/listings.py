"""Differences from the reference that are meant: rules with a reason, never names of cases.

A rule looks at one difference of one case and says whether it is of its kind. A case is listed if every difference of
it is explained by some rule. `docs/reference-differences.md` has the same rules for people; a test holds the two
together.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import msgspec

from isim.topology.issues import OWN_CODES
from reference_checks.case import Case, Compared, Difference


class Listing(msgspec.Struct, frozen=True):
    """`name` and `reason` stand in the documentation; `explains` may look at all that was compared."""

    name: str
    reason: str
    explains: Callable[[Case, Compared, Difference], bool]


def _collapsed_issues(case: Case, compared: Compared, difference: Difference) -> bool:
    """The reference says one thing only of a file that cannot be parsed; we say everything, so both refuse."""
    expected, found = compared.expected, compared.found
    if case.category != "validate" or not difference.path.startswith("$.issues"):
        return False
    codes = [issue["code"] for issue in expected["issues"]]
    return codes == ["scenario_boundary"] and found["valid"] is False and bool(found["issues"])


def _over_limit(case: Case, compared: Compared, difference: Difference) -> bool:
    """A warm cache that the reference's preset reserves beyond the resource limit; ours ends at the limit."""
    if case.category != "scenario+ledger":
        return False
    over = {row["domainId"]: -row["freeBytes"] for row in compared.expected["memoryLedger"] if row["freeBytes"] < 0}
    match = re.fullmatch(
        r"\$\.(scenario\.placements|memoryLedger)\[(\d+)\](\.allocations\[(\d+)\])?\.\w+", difference.path
    )
    if match is None or not all(isinstance(it, int) for it in (difference.expected, difference.found)):
        return False
    if match[1] == "memoryLedger":
        return compared.expected["memoryLedger"][int(match[2])]["domainId"] in over
    changed: Any = compared.expected["scenario"]["placements"][int(match[2])]["allocations"][int(match[4])]
    excess = over.get(changed["domainId"])
    return bool(changed["purpose"] == "cache" and difference.expected - difference.found == excess)


def _own_rules(case: Case, compared: Compared, difference: Difference) -> bool:
    """A scenario that the reference accepts breaks rules that it lacks, and no others."""
    if case.category not in ("validate", "scenario+ledger") or not isinstance(compared.found, dict):
        return False
    issues = compared.found.get("issues", [])
    accepted = case.exit == 0 and compared.expected.get("valid", True) is True
    return accepted and bool(issues) and all(issue["code"] in OWN_CODES for issue in issues)


def _string_order(case: Case, compared: Compared, difference: Difference) -> bool:
    """The same things in a list, in the order of code points here, in that of a locale there."""
    expected, found = compared.expected, compared.found
    for name, index in re.findall(r"\.(\w+)|\[(\d+)\]", difference.path):
        if isinstance(found, list) and _same_things(expected, found):
            return True
        try:
            key = int(index) if index else name
            expected, found = expected[key], found[key]
        except (KeyError, IndexError, TypeError):
            return False
    return False


def _same_things(expected: Any, found: list[Any]) -> bool:
    if not isinstance(expected, list) or expected == found:
        return False
    ids = [_name(each) for each in found]
    texts = [sorted(json.dumps(each, sort_keys=True) for each in side) for side in (expected, found)]
    return texts[0] == texts[1] and all(isinstance(each, str) for each in ids) and ids == sorted(ids)


def _name(thing: Any) -> Any:
    """What a list of such things is ordered by."""
    if isinstance(thing, dict):
        return next((thing[key] for key in _NAMES if key in thing), None)
    return thing


_NAMES = ("domainId", "resourceId", "rankId", "executionId", "scenarioId", "id")

LISTINGS = (
    Listing(
        "issues-visible",
        "The reference's `validate` reports every file that its parser refuses as one issue `scenario_boundary`. Every "
        "issue is reported here, with its own code, path and line.",
        _collapsed_issues,
    ),
    Listing(
        "preset-over-limit",
        "The reference does not compare footprints with resource limits, and its Mac mini reserves 256 MiB more than "
        "the limit of its unified memory. The warm cache of experts is that much smaller here, and the memory just "
        "full.",
        _over_limit,
    ),
    Listing(
        "own-rules",
        "The reference accepts scenarios whose footprints exceed a resource limit, whose groups have no paths, and the "
        "like. They are refused here, with codes that the reference does not have.",
        _own_rules,
    ),
    Listing(
        "string-order",
        "The reference orders some lists of strings by the rules of a locale, in which `gpu1:` comes before `gpu10:`. "
        "Everything is ordered by code point here.",
        _string_order,
    ),
)
