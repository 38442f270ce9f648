"""The file of a frozen plan: written, read, and refused stage by stage."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from io import StringIO
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ruamel.yaml import YAML
from toy_machine import ring

from isim.cli.execution import Wishes, executed
from isim.plan.artifact import load_artifact, plan_artifact, read_artifact
from isim.plan.compile import compile_plan
from isim.plan.profile import target_only_profile
from isim.record.canonical import canonical_json, fingerprint
from isim.record.errors import IsimError
from isim.scenario.errors import ScenarioError
from isim.topology.index import Topology
from isim.topology.load import load_target

TOPOLOGY = Topology(ring(2))
PLAN = compile_plan(TOPOLOGY, target_only_profile(2)).plan
ARTIFACT, TEXT = plan_artifact(TOPOLOGY, PLAN)


def content() -> dict[str, Any]:
    return dict(json.loads(TEXT))


def signed(value: dict[str, Any]) -> dict[str, Any]:
    """With the fingerprints that the contents have."""
    rest = {key: part for key, part in value.items() if key != "artifactFingerprint"}
    rest["scenarioFingerprint"] = fingerprint(rest["scenario"])
    rest["planFingerprint"] = fingerprint(rest["plan"])
    return {**rest, "artifactFingerprint": fingerprint(rest)}


def said(value: Any, *, indent: int | None = None) -> list[tuple[str, str]]:
    """Path and code of each complaint about a file with this value."""
    with pytest.raises(ScenarioError) as refusal:
        read_artifact(json.dumps(value, indent=indent).encode(), "plan.json")
    assert refusal.value.exit_code == 2
    return [(complaint.path, complaint.code) for complaint in refusal.value.complaints]


def test_what_is_written_is_canonical_and_is_read_back() -> None:
    assert canonical_json(content()) + "\n" == TEXT
    assert signed(content()) == content()
    again = read_artifact(TEXT.encode(), "plan.json")
    assert (again.plan, again.topology.scenario) == (PLAN, TOPOLOGY.scenario)
    assert again.artifact_fingerprint == ARTIFACT.artifact_fingerprint == content()["artifactFingerprint"]


@pytest.mark.parametrize("name", ["cpu-only", "unified-memory", "multi-gpu-ring-3", "small-lan-2-advanced-gpudirect"])
def test_presets_go_to_a_file_and_back(name: str, tmp_path: Path) -> None:
    topology = load_target(name)
    plan = compile_plan(topology, target_only_profile(3)).plan
    (tmp_path / "plan.json").write_text(plan_artifact(topology, plan)[1])
    assert load_artifact(tmp_path / "plan.json").plan == plan


def test_yaml_is_read_as_strictly() -> None:
    def as_yaml(value: dict[str, Any]) -> bytes:
        buffer = StringIO()
        YAML(typ="safe", pure=True).dump(value, buffer)
        return buffer.getvalue().encode()

    assert read_artifact(as_yaml(content()), "plan.yaml").plan == PLAN
    late = signed(changed(lambda value: value["plan"].update(topologyEpoch=9)))
    with pytest.raises(ScenarioError, match=r"plan.yaml:\d+:\d+: plan.topologyEpoch: .* \[topology_epoch\]"):
        read_artifact(as_yaml(late), "plan.yaml")
    infinite = changed(
        lambda value: value["scenario"]["calibration"]["coefficients"].append(
            {
                "id": "c",
                "value": float("inf"),
                "measuredAt": "2026-01-01",
                "softwareStack": "s",
                "provenance": {"confidence": "calibrated", "source": "s"},
            }
        )
    )
    with pytest.raises(ScenarioError, match="expected finite numbers"):
        read_artifact(as_yaml(infinite), "plan.yaml")


def changed(change: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
    value = content()
    change(value)
    return value


def test_a_fault_of_an_early_stage_is_told_alone() -> None:
    """Each of these has the fault of every later stage as well."""

    def spoil(value: dict[str, Any], *stages: str) -> dict[str, Any]:
        if "meaning" in stages:
            value["plan"]["topologyEpoch"] = 9
        if "fingerprint" in stages:
            value["planFingerprint"] = "fnv1a32:00000000"
            value["scenarioFingerprint"] = "fnv1a32:00000000"
        if "structure" in stages:
            value["plan"]["steps"][0]["id"] = "0"
            value["scenario"]["family"] = "zoo"
        if "form" in stages:
            value["artifactFingerprint"] = "fnv1a32:XYZ"
        if "revision" in stages:
            value["revision"] = 2
            value["planContractRevision"] = 4
        if "keys" in stages:
            value["more"] = value.pop("kind")
        return value

    stages = ["meaning", "fingerprint", "structure", "form", "revision", "keys"]
    assert said(spoil(content(), *stages)) == [("kind", ""), ("more", "")]
    assert said(spoil(content(), *stages[:5])) == [("planContractRevision", ""), ("revision", "")]
    assert said(spoil(content(), *stages[:4])) == [("artifactFingerprint", "")]
    assert sorted(said(spoil(content(), *stages[:3]))) == [
        ("plan.steps[0].id", ""),
        ("scenario.family", "enum_value"),
    ]
    assert said(spoil(content(), *stages[:2])) == [("scenarioFingerprint", "")]
    assert said(spoil(content(), "meaning")) == [("planFingerprint", "")]
    assert said(signed(spoil(content(), "meaning"))) == [("plan.topologyEpoch", "topology_epoch")]


def test_the_envelope_has_a_fingerprint_of_its_own() -> None:
    value = content()
    value["artifactFingerprint"] = "fnv1a32:00000000"
    assert said(value) == [("artifactFingerprint", "")]


def test_a_scenario_that_does_not_hold_is_told_before_the_plan() -> None:
    def change(value: dict[str, Any]) -> None:
        value["scenario"]["memoryDomains"][0]["resourceLimitBytes"] = 1
        value["plan"]["topologyEpoch"] = 9

    codes = [code for _, code in said(signed(changed(change)))]
    assert codes and all(code.startswith("scenario.") for code in codes)


def test_kinds_that_do_not_exist_have_the_codes_of_the_contract() -> None:
    def change(value: dict[str, Any]) -> None:
        value["plan"]["steps"][4]["operation"]["algorithm"] = "tree"
        value["plan"]["steps"][0]["operation"]["capability"] = "thinking"

    assert said(changed(change)) == [
        ("plan.steps[0].operation.capability", "missing_capability"),
        ("plan.steps[4].operation.algorithm", "collective_algorithm"),
    ]


def test_complaints_have_lines() -> None:
    value = signed(changed(lambda value: value["plan"]["steps"][3].update(dependencies=[])))
    text = json.dumps(value, indent=1)
    with pytest.raises(ScenarioError) as refusal:
        read_artifact(text.encode(), "plan.json")
    (complaint,) = refusal.value.complaints
    assert complaint.path == "plan.steps[2],steps[3]" and complaint.code == "unordered_lease_conflict"
    begin = sum(len(line) + 1 for line in text.splitlines()[: complaint.place.line - 1]) + complaint.place.column - 1
    assert json.JSONDecoder().raw_decode(text, begin)[0] == value["plan"]["steps"][3]


def leaves(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    if isinstance(value, dict):
        return [leaf for key, part in value.items() for leaf in leaves(part, (*path, key))]
    if isinstance(value, list):
        return [leaf for index, part in enumerate(value) for leaf in leaves(part, (*path, index))]
    return [path]


def test_no_value_can_be_changed_unnoticed() -> None:
    """A fifth of them, which meets every kind."""
    for path in leaves(content())[::5]:
        value = content()
        inner = value
        for step in path[:-1]:
            inner = inner[step]
        old = inner[path[-1]]
        inner[path[-1]] = old + 1 if isinstance(old, int) else f"{old}x"
        assert said(value)


@settings(derandomize=True, deadline=None, max_examples=60)
@given(name=st.text(min_size=1), rank=st.text())
def test_any_name_is_canonical(name: str, rank: str) -> None:
    """Names may hold whatever JSON can: the plan's text is canonical all the same."""
    steps = (msgspec.structs.replace(PLAN.steps[0], participants=(rank,)), *PLAN.steps[1:])
    odd = msgspec.structs.replace(PLAN, id=name, steps=steps)
    value = json.loads(plan_artifact(TOPOLOGY, odd)[1])
    assert canonical_json(value) + "\n" == plan_artifact(TOPOLOGY, odd)[1]
    assert signed(value) == value


BYTES = st.tuples(st.integers(0, len(TEXT)), st.binary(max_size=4), st.integers(0, 40))


@settings(derandomize=True, deadline=None, max_examples=80)
@given(edits=st.lists(BYTES, min_size=1, max_size=3))
def test_any_damage_is_refused_as_the_input_s(edits: list[tuple[int, bytes, int]]) -> None:
    data = TEXT.encode()
    for at, new, cut in edits:
        data = data[:at] + new + data[at + cut :]
    try:
        assert read_artifact(data, "plan.json").plan == PLAN
    except IsimError as error:
        assert error.exit_code == 2 and str(error).startswith("plan.json:")


WORDS = ("r-g0", "r-g1", "w-g0", "kv-g1", "ws-g0", "ws-g1", "g0", "g1", "g0>g1", "tp", "ffn", "all_to_all_v", "", "\n")
NUMBERS = (-1, 0, 1, 2, 5, 9, 10, 99, 1 << 53, 1 << 60, 1.5, True, None)


@st.composite
def edits(draw: st.DrawFn) -> tuple[tuple[Any, ...], Any]:
    """A place in the plan, and what to put there: another value of any kind, or of the same."""
    path = draw(st.sampled_from(leaves(content()["plan"])))
    up = draw(st.integers(0, 1))
    value = st.sampled_from([*WORDS, *NUMBERS])
    return path[: len(path) - up], draw(value | st.lists(value, max_size=3))


@settings(derandomize=True, deadline=None, max_examples=80)
@given(changes=st.lists(edits(), min_size=1, max_size=2))
def test_whatever_is_accepted_is_executed_and_replayed(changes: list[tuple[tuple[Any, ...], Any]]) -> None:
    """Any signed plan is refused with places, or runs to its end legally."""
    value = content()
    for path, new in changes:
        with suppress(IndexError, KeyError, TypeError):  # an earlier change may have taken the place away
            inner: Any = value["plan"]
            for step in path[:-1]:
                inner = inner[step]
            inner[path[-1]] = new
    try:
        artifact = read_artifact(json.dumps(signed(value)).encode(), "plan.json")
    except ScenarioError as error:
        assert error.complaints
        return
    done = executed(artifact.topology, artifact.plan, Wishes())
    assert len(done.collector.operations) == len(artifact.plan.steps)


def test_a_file_that_is_not_there() -> None:
    with pytest.raises(ScenarioError, match="expected a frozen plan, found none"):
        load_artifact("/nowhere/plan.json")
