"""A topology from a file or by name: read, validated, indexed; or a ScenarioError with everything that is wrong.

Files are YAML 1.2 or JSON, up to 1 MiB. What is not of the form is complained about by the reader, what does not mean
anything by the checks; both at once, each with its place and its code.
"""

from __future__ import annotations

import os

import msgspec

from isim.scenario.errors import Complaint, Place, ScenarioError
from isim.scenario.fields import Reading
from isim.scenario.files import read_bytes
from isim.scenario.json_text import json_nodes, read_json
from isim.scenario.nodes import Limits, Node, NodeKind, decode, parse
from isim.scenario.structs import StructReader, node_at
from isim.scenario.topology.presets.catalogue import LAN, NAMES, RING, topology_preset
from isim.scenario.topology.types import SCHEMA_VERSION, TopologyScenario
from isim.topology.index import Topology
from isim.topology.issues import IssueCode, known
from isim.topology.validate import validate_topology

LIMITS = Limits(file_bytes=1 << 20, nodes=60_000, noun="a topology scenario")
_CODES = {
    "execution.features.": IssueCode.INVALID_FEATURE,
    "calibration.": IssueCode.INVALID_CALIBRATION,
    "schemaVersion": IssueCode.SCHEMA_VERSION,
}


def load_target(target: str) -> Topology:
    """The topology that a command names: a preset, `multi-gpu-ring-N`, `small-lan-N`, or a file.

    Raises ScenarioError if it is none of them, or a file that cannot be followed; PresetError for a size out of range.
    """
    scenario = topology_preset(target)
    if scenario is not None:
        return Topology(scenario)
    if not os.path.exists(target):
        reading = Reading(target)
        near = reading.nearest(target, list(NAMES))
        message = f"expected the name of a preset ({', '.join(NAMES)}, {RING}, {LAN}) or a file, found neither{near}"
        raise ScenarioError(target, [_whole(message)])
    return load_topology(target)


def load_topology(path: str | os.PathLike[str]) -> Topology:
    """The topology of the file at `path`. Raises ScenarioError with all complaints."""
    file = os.fspath(path)
    return read_topology(read_bytes(file, LIMITS), file)


def read_topology(data: bytes, file: str) -> Topology:
    """The topology of a file's bytes; `file` is its name in complaints. Raises ScenarioError with all of them."""
    reading = Reading(file)
    text = decode(data, reading.complaints, LIMITS)
    root = None if text is None else _nodes(text, reading)
    topology = None if root is None else topology_of(reading, root)
    if topology is None:
        raise ScenarioError(file, [_coded(each) for each in reading.complaints])
    return topology


def _nodes(text: str, reading: Reading) -> Node | None:
    """The tree of the text: read as JSON, which is several times faster, where it is nothing else."""
    if text.lstrip().startswith("{"):
        faults: list[Complaint] = []
        if read_json(text, faults) is not None and not faults:
            return json_nodes(text, faults)
    return parse(text, reading.complaints, limits=LIMITS)


def topology_of(reading: Reading, root: Node) -> Topology | None:
    """The topology of a tree; None exactly when there are complaints."""
    if not _is_version(reading, root):
        return None
    reader = StructReader(reading)
    scenario = reader.read(TopologyScenario, root)
    for issue in known(validate_topology(scenario), reader.broken):
        reading.complain(node_at(root, issue.path).place, issue.path, issue.message, issue.code)
    return None if reading.complaints else Topology(scenario)


def _is_version(reading: Reading, root: Node) -> bool:
    """Whether the tree says that it is of our schema; if it is of another, nothing more can be said of it."""
    if root.kind is not NodeKind.BLOCK:
        message = f"expected a block of keys, found {root.found()}"
        reading.complain(root.place, "", message, IssueCode.SCENARIO_BOUNDARY)
        return False
    _, version = root.entries.get("schemaVersion", (root.place, None))
    if version is None or version.raw != str(SCHEMA_VERSION) or version.kind is not NodeKind.INTEGER:
        found = "nothing" if version is None else version.found()
        place = root.place if version is None else version.place
        message = f"expected schemaVersion {SCHEMA_VERSION}, found {found}"
        reading.complain(place, "schemaVersion", message, IssueCode.SCHEMA_VERSION)
        return False
    return True


def _whole(message: str) -> Complaint:
    """A complaint about the file as a whole."""
    return Complaint(Place(0, 1, 1), "", message, IssueCode.SCENARIO_BOUNDARY)


def _coded(complaint: Complaint) -> Complaint:
    """The complaint with the code that its place implies, where the reader gave none."""
    if complaint.code:
        return complaint
    codes = [code for start, code in _CODES.items() if complaint.path.startswith(start)]
    return msgspec.structs.replace(complaint, code=codes[0] if codes else IssueCode.SCENARIO_BOUNDARY)
