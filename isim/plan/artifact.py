"""A frozen plan as a file: `inference-sim/frozen-plan`, revision 1. The scenario travels with the plan.

The file is canonical JSON and ends in a line feed; any JSON is read, and YAML. It has three fingerprints: of the
scenario, of the plan, and of the envelope, which is everything but the last one. They find accidents and do not prove
who wrote the file.

Reading checks in a strict order, and what is wrong at one stage is said before any later one is looked at: the keys;
kind and revisions; the form of the fingerprints; the form of scenario and plan; the fingerprint of the scenario, of the
plan, of the envelope; whether the scenario holds, and the plan on it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, TypeVar

import msgspec

from isim.plan.issues import PlanCode
from isim.plan.types import PLAN_CONTRACT_REVISION, FrozenPlan
from isim.plan.validate import validate_plan
from isim.record.canonical import FINGERPRINT, CanonicalError, canonical_json, text_fingerprint
from isim.scenario.errors import Complaint, ScenarioError
from isim.scenario.fields import Reading
from isim.scenario.files import read_bytes
from isim.scenario.json_text import json_nodes, read_json
from isim.scenario.nodes import Limits, Node, decode, parse, plain_value
from isim.scenario.structs import StructReader, node_at
from isim.scenario.topology.types import SCHEMA_VERSION, TopologyScenario
from isim.topology.index import Topology
from isim.topology.validate import validate_topology

ARTIFACT_KIND = "inference-sim/frozen-plan"
ARTIFACT_REVISION = 1
LIMITS = Limits(file_bytes=256 << 20, nodes=500_000, noun="a frozen plan")

_T = TypeVar("_T")
_KEYS = (
    *("kind", "revision", "scenarioSchemaVersion", "planContractRevision", "scenarioFingerprint", "planFingerprint"),
    *("artifactFingerprint", "scenario", "plan"),
)
_CONSTANTS: dict[str, str | int] = {
    "kind": ARTIFACT_KIND,
    "revision": ARTIFACT_REVISION,
    "scenarioSchemaVersion": SCHEMA_VERSION,
    "planContractRevision": PLAN_CONTRACT_REVISION,
}
_FINGERPRINTS = ("scenarioFingerprint", "planFingerprint", "artifactFingerprint")
_CODES = {"operation.algorithm": PlanCode.COLLECTIVE_ALGORITHM, "operation.capability": PlanCode.MISSING_CAPABILITY}
"""Codes for values that are of no known kind, by the end of their path: the form of a plan has no room for them."""


class PlanArtifact(msgspec.Struct, frozen=True, kw_only=True):
    """A scenario, a plan for it, and their fingerprints. `topology` is the scenario's index."""

    topology: Topology
    plan: FrozenPlan
    scenario_fingerprint: str
    plan_fingerprint: str
    artifact_fingerprint: str


def plan_artifact(topology: Topology, plan: FrozenPlan) -> tuple[PlanArtifact, str]:
    """The artifact of a valid plan, and the text of its file."""
    scenario_json = canonical_json(msgspec.to_builtins(topology.scenario))
    plan_json = _plan_json(plan)
    parts = {name: canonical_json(value) for name, value in _CONSTANTS.items()}
    marks = {"scenarioFingerprint": text_fingerprint(scenario_json), "planFingerprint": text_fingerprint(plan_json)}
    parts |= {name: canonical_json(value) for name, value in marks.items()}
    parts |= {"scenario": scenario_json, "plan": plan_json}
    whole = text_fingerprint(_object(parts))
    artifact = PlanArtifact(
        topology=topology,
        plan=plan,
        scenario_fingerprint=marks["scenarioFingerprint"],
        plan_fingerprint=marks["planFingerprint"],
        artifact_fingerprint=whole,
    )
    return artifact, _object({**parts, "artifactFingerprint": canonical_json(whole)}) + "\n"


def load_artifact(path: str | os.PathLike[str]) -> PlanArtifact:
    """The plan of a file. Raises ScenarioError with all complaints of the first stage that has any."""
    file = os.fspath(path)
    return read_artifact(read_bytes(file, LIMITS), file)


def read_artifact(data: bytes, file: str) -> PlanArtifact:
    """The plan of a file's bytes; `file` is what complaints call it."""
    complaints: list[Complaint] = []
    text = decode(data, complaints, LIMITS)
    value, nodes = None, None
    if text is not None and text.lstrip().startswith("{"):
        value = read_json(text, complaints)
    elif text is not None:
        nodes = parse(text, complaints, limits=LIMITS)
    if text is None or complaints:
        raise ScenarioError(file, complaints)
    return _ArtifactReader(file, text, value if nodes is None else plain_value(nodes), nodes).read()


class _ArtifactReader:
    """One reading; each stage raises if it has complaints."""

    def __init__(self, file: str, text: str, value: Any, nodes: Node | None) -> None:
        self._text = text
        self._value = value
        self._reading = Reading(file)
        self._nodes = nodes
        # An escape in a text may hide what a text must not have, and YAML is read node by node anyway.
        self._quick = nodes is None and "\\" not in text

    def read(self) -> PlanArtifact:
        for stage in (self._keys, self._constants, self._forms_of_fingerprints):
            stage()
            self._stop()
        scenario = self._form("scenario", TopologyScenario)
        plan = self._form("plan", FrozenPlan)
        self._stop()
        for name, stated in zip(_FINGERPRINTS, self._computed(plan), strict=False):
            if self._value[name] != stated:
                self._say(name, f"expected {stated}, which the contents have, found {self._value[name]}")
            self._stop()
        self._stop()
        for wrong in validate_topology(scenario):
            self._say(f"scenario.{wrong.path}", wrong.message, f"scenario.{wrong.code.value}")
        self._stop()
        topology = Topology(scenario)
        for issue in validate_plan(plan, topology):
            self._say(f"plan.{issue.path}", issue.message, issue.code.value)
        self._stop()
        return PlanArtifact(
            topology=topology,
            plan=plan,
            scenario_fingerprint=self._value["scenarioFingerprint"],
            plan_fingerprint=self._value["planFingerprint"],
            artifact_fingerprint=self._value["artifactFingerprint"],
        )

    def _keys(self) -> None:
        if not isinstance(self._value, dict):
            self._say("", f"expected {LIMITS.noun}, an object with the keys {', '.join(_KEYS)}, found another value")
            return
        for key in self._value:
            if key not in _KEYS:
                self._say(key, f"expected one of the keys {', '.join(_KEYS)}, found an unknown key")
        for key in _KEYS:
            if key not in self._value:
                self._say(key, "expected a value, found nothing; it is required")

    def _constants(self) -> None:
        for key, constant in _CONSTANTS.items():
            if self._value[key] != constant or isinstance(self._value[key], bool | float):
                self._say(key, f"expected {constant}, found {self._node(key).found()}")

    def _forms_of_fingerprints(self) -> None:
        for key in _FINGERPRINTS:
            value = self._value[key]
            if not isinstance(value, str) or not FINGERPRINT.fullmatch(value):
                self._say(key, f"expected fnv1a32: and eight hexadecimal digits, found {self._node(key).found()}")

    def _form(self, key: str, form: type[_T]) -> _T:
        """The value as that struct; where it is none, with complaints, some value of the struct.

        Node by node is the strict way, and says all that is wrong with its place.
        """
        if self._quick:
            with suppress(msgspec.ValidationError):
                return msgspec.convert(self._value[key], form)
        return StructReader(self._reading).read(form, self._node(key), key)

    def _computed(self, plan: FrozenPlan) -> Iterator[str]:
        """What the fingerprints should be, in the order of checking them; made one at a time."""
        keys = [key for key in _KEYS if key not in ("artifactFingerprint", "plan")]
        try:
            parts = {key: canonical_json(self._value[key]) for key in keys}
        except CanonicalError as error:
            self._say("scenario", str(error))
            return
        yield text_fingerprint(parts["scenario"])
        parts["plan"] = _plan_json(plan)
        yield text_fingerprint(parts["plan"])
        yield text_fingerprint(_object(parts))

    def _node(self, path: str) -> Node:
        if self._nodes is None:
            self._nodes = json_nodes(self._text, self._reading.complaints)
        return node_at(self._nodes, path)

    def _say(self, path: str, message: str, code: str = "") -> None:
        """Complain at a path; where it names two steps, at the second."""
        first, _, second = path.partition(",")
        place = self._node(f"plan.{second}" if second else first).place
        self._reading.complain(place, path, message, code)

    def _stop(self) -> None:
        if self._reading.complaints:
            for index, complaint in enumerate(self._reading.complaints):
                code = next((code for end, code in _CODES.items() if complaint.path.endswith(end)), complaint.code)
                self._reading.complaints[index] = msgspec.structs.replace(complaint, code=str(code))
            raise ScenarioError(self._reading.file, self._reading.complaints)


def _plan_json(plan: FrozenPlan) -> str:
    """Canonical JSON of a plan: it has nothing but texts, whole numbers and ASCII keys, so that sorting them will do.

    A number beyond 2^53 - 1, which no valid plan has, stands there with all its digits.
    """
    return msgspec.json.encode(plan, order="sorted").decode()


def _object(parts: dict[str, str]) -> str:
    """Canonical JSON of an object whose values are canonical JSON already; the keys are ASCII letters."""
    return "{" + ",".join(f'"{key}":{parts[key]}' for key in sorted(parts)) + "}"
