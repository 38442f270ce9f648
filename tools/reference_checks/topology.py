"""Scenarios, ledgers, small LANs, routes, validation and the list of presets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from isim.cli.scenario import materialised
from isim.record.errors import IsimError
from isim.scenario.errors import ScenarioError
from isim.scenario.topology.presets.catalogue import FAMILIES, NAMES, RING, small_lan_topology, topology_preset
from isim.scenario.topology.presets.lan import LanOptions, configure_small_lan
from isim.topology.index import Topology
from isim.topology.load import load_target, read_topology
from isim.topology.routes import Router
from reference_checks.case import Case, Check, Compared, Verdict

REFUSED = {"accepted": False, "class": "invalid input"}


def plain(value: Any) -> Any:
    """As JSON would give it back."""
    return msgspec.json.decode(msgspec.json.encode(value))


def refused(attempt: Callable[[], object]) -> dict[str, Any]:
    """Whether the attempt was accepted, and which class of error met it if not."""
    try:
        attempt()
    except IsimError as error:
        return {"accepted": False, "class": {2: "invalid input"}.get(error.exit_code, "another")}
    return {"accepted": True}


def target_of(case: Case, word: str) -> Topology:
    """The topology that a word of the command names: one of the case's files, or a preset."""
    if word in case.inputs:
        return read_topology(case.inputs[word].encode(), word)
    return load_target(word)


def _scenario(case: Case) -> Verdict:
    """The scenario with its ledger; the codes of the issues where it is refused and should not be."""
    target = case.words()[1]
    if case.exit:
        return Compared(REFUSED, refused(lambda: target_of(case, target)))
    try:
        return Compared(case.expected, plain(materialised(target_of(case, target))))
    except ScenarioError as error:
        return Compared(case.expected, {"issues": _issues(error)})


def _lan(case: Case) -> Verdict:
    asked = case.input_json()
    options = msgspec.convert(asked["options"], LanOptions)
    return Compared(case.expected, plain(materialised(Topology(small_lan_topology(asked["n"], options)))))


def _configured_lan(case: Case) -> Verdict:
    options = msgspec.convert(case.input_json()["options"], LanOptions)
    base = topology_preset("multi-node")
    assert base is not None
    return Compared(case.expected, plain(configure_small_lan(base, options)))


def _routes(case: Case) -> Verdict:
    """Every ordered pair of domains, in the order of the scenario, each size with and without pinned staging."""
    asked = case.input_json()
    topology = load_target(asked["scenario"])
    router = Router(topology)
    found = [
        {"a": a, "b": b, "bytes": size, "pinned": pinned, "route": plain(router.route(a, b, size, pinned=pinned))}
        for a in topology.domains
        for b in topology.domains
        for size in asked["bytes"]
        for pinned in (False, True)
    ]
    return Compared(case.expected, found)


def _validate(case: Case) -> Verdict:
    try:
        read_topology(case.inputs["input.yaml"].encode(), "input.yaml")
    except ScenarioError as error:
        return Compared(case.expected, {"valid": False, "issues": _issues(error)})
    return Compared(case.expected, {"valid": True, "issues": []})


def _issues(error: ScenarioError) -> list[dict[str, str]]:
    return [{"code": each.code, "path": each.path} for each in error.complaints]


def _presets(case: Case) -> Verdict:
    """The topologies among all that is listed; which are computers and which families shows in the order."""
    assert NAMES[-len(FAMILIES) :] == tuple(FAMILIES)
    keys = ("scenarios", "parameterizedScenario")
    found = {"scenarios": list(NAMES), "parameterizedScenario": RING}
    return Compared({key: case.expected[key] for key in keys}, found)


CHECKS = (
    Check("scenario+ledger", "scenario ", _scenario),
    Check("error", "scenario ", _scenario),
    Check("core-lan", "buildMultiNodeLanScenario", _lan),
    Check("core-lan", "configureSmallLanNetwork", _configured_lan),
    Check("core-route", "findTransferRoute", _routes),
    Check("validate", "validate ", _validate),
    Check("misc", "presets", _presets),
)
