"""A run file, with overrides, as a Scenario; or a ScenarioError with everything that is wrong with it.

An override `a.b=c` replaces, or adds, the value at a dotted path. Its value is YAML, read and checked as if it
stood in the file, but for two things that a shell asks for: a plain scalar is a text where a text is
expected, and a relative path that leads to a file from the working directory is taken from there.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from isim.record.files import open_input, reason_of
from isim.scenario.build import build_scenario
from isim.scenario.errors import Place, ScenarioError
from isim.scenario.fields import Block, Field, Named, OneOf, Reading
from isim.scenario.figures import CONFIG_ENDING
from isim.scenario.nodes import MAX_DEPTH, MAX_FILE_BYTES, Node, NodeKind, decode, parse, printable
from isim.scenario.schema import RUN_FILE
from isim.scenario.types import Scenario


def load_scenario(path: str | os.PathLike[str], sets: Sequence[str] = ()) -> Scenario:
    """The scenario of the run file at `path` with the overrides `sets` applied in order, the last one winning.

    Raises ScenarioError with all complaints when file or overrides cannot be followed.
    """
    file = os.fspath(path)
    reading = Reading(file)
    try:
        with open_input(file) as stream:
            data = stream.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        reading.complain(Place(0, 1, 1), "", f"expected a run file, found none: {reason_of(error)}")
        raise ScenarioError(file, reading.complaints) from None
    return read_scenario(data, file, sets)


def read_scenario(data: bytes, file: str, sets: Sequence[str] = ()) -> Scenario:
    """The scenario of a run file's bytes; `file` is its path as complaints name it, and its name when it has none."""
    reading = Reading(file)
    text = decode(data, reading.complaints)
    root = None if text is None else parse(text, reading.complaints)
    if root is not None:
        for number, override in enumerate(sets, 1):
            _apply(reading, root, number, override)
        stem = os.path.splitext(os.path.basename(file))[0]
        scenario = build_scenario(reading, root, stem or "run")
        if scenario is not None:
            return scenario
    raise ScenarioError(file, reading.complaints)


def _apply(reading: Reading, root: Node, number: int, override: str) -> None:
    place = Place(number, 1, 1)
    path, equals, text = override.partition("=")
    keys = path.strip().split(".")
    if not equals or not all(keys) or len(keys) > MAX_DEPTH:
        message = f'expected key.key=value, found "{printable(override[:60])}"'
        reading.complain(place, "", message)
        return
    value = _value(reading, number, text)
    if value is None:
        return
    parent, kind = root, _Place(RUN_FILE)
    for depth, key in enumerate(keys[:-1]):
        kind = kind.inside(key)
        if key not in parent.entries:
            parent.entries[key] = (place, Node(NodeKind.BLOCK, place))
        name_place, child = parent.entries[key]
        block = kind.opened(child)
        if block is None:
            at = ".".join(keys[: depth + 1])
            message = f"expected a block at {at} to set a key in, found {child.found()}"
            reading.complain(place, printable(path[:60]), message)
            return
        parent.entries[key] = (name_place, block)
        parent = block
    if keys[-1] == "path" or (keys[0] == "model" and value.raw.endswith(CONFIG_ENDING)):
        value.raw = _from_here(value.raw, reading.file)
    parent.entries[keys[-1]] = (place, value)


def _value(reading: Reading, number: int, text: str) -> Node | None:
    """The node of an override's text; None, after complaints, where it is not YAML."""
    place = Place(number, 1, 1)
    complaints = reading.complaints
    if not text.strip():
        return Node(NodeKind.NOTHING, place)
    before = len(complaints)
    checked = decode(text.encode("utf-8", "surrogatepass"), complaints)
    node = None if checked is None else parse(checked, complaints, number)
    complaints[before:] = [msg.__class__(place, msg.path, msg.message) for msg in complaints[before:]]
    return node


class _Place:
    """Where in the schema an override has come to; None is nowhere."""

    __slots__ = ("_kind",)

    def __init__(self, kind: object) -> None:
        self._kind = kind

    def inside(self, key: str) -> _Place:
        if isinstance(self._kind, Named):
            return _Place(self._kind.block)
        blocks = [self._kind] if isinstance(self._kind, Block) else []
        if isinstance(self._kind, OneOf):
            blocks = list(self._kind.blocks.values())
        for block in blocks:
            field: Field | None = block.fields.get(key)
            if field is not None:
                return _Place(field.kind)
        return _Place(None)

    def opened(self, node: Node) -> Node | None:
        """The node as a block to set a key in: itself, or what it is short for, or an empty one for nothing."""
        if node.kind is NodeKind.BLOCK:
            return node
        block = Node(NodeKind.BLOCK, node.place)
        if node.kind is NodeKind.NOTHING:
            return block
        kind = self._kind
        if node.kind is NodeKind.LIST or not isinstance(kind, Block | OneOf) or not kind.short:
            return None
        block.entries[kind.short] = (node.place, node)
        if isinstance(kind, OneOf) and kind.plain:
            block.entries[kind.tag] = (node.place, Node(NodeKind.TEXT, node.place, kind.plain))
        return block


def _from_here(path: str, file: str) -> str:
    """A path given on the command line, seen from the run file's folder where it leads to a file from here."""
    try:
        if os.path.isabs(path) or not os.path.exists(path):
            return path
        return os.path.relpath(path, os.path.dirname(file) or ".")
    except ValueError:  # an embedded NUL, which the schema refuses
        return path
