"""The machinery of the run file's schema: kinds of values, fields, blocks, and reading a node by them.

A `Block` is a table of `Field`s, and a field's `Kind` reads one node. From the same tables come the loader, the
JSON Schema and the documentation. Reading never stops at the first fault: each is added to the `Reading`, and the
value counts as broken, so that checks which need it stay silent while all others speak.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from isim.scenario.errors import Complaint, Place
from isim.scenario.nodes import Node, NodeKind, printable
from isim.scenario.units import (
    COUNT_MAX,
    Dimension,
    QuantityError,
    read_quantity,
    read_rate,
    read_ratio,
    read_share_ppm,
)

TEXT_MAX = 1000
NAME = re.compile("[A-Za-z][A-Za-z0-9_-]{0,63}")
_GUESSES_MAX = 20


class Kind(msgspec.Struct, frozen=True):
    """A scalar: `read` gives its value or raises QuantityError with what was expected; `schema` is its JSON Schema."""

    read: Callable[[Node], Any]
    schema: dict[str, Any]


class Field(msgspec.Struct, frozen=True):
    """One key of a block. `default` is used as it is; `rule` says in words what decides when there is none.

    A `nullable` field may be written as `null` or `none`, which means the same as leaving it out.
    """

    kind: Kind | Block | OneOf | Named
    doc: str
    required: bool = False
    default: Any = None
    rule: str = ""
    nullable: bool = False


class Block(msgspec.Struct, frozen=True):
    """Keys in their order. A text in its place is short for a block with that text at the key `short`."""

    fields: Mapping[str, Field]
    doc: str = ""
    short: str = ""


class OneOf(msgspec.Struct, frozen=True):
    """One of several blocks; the key `tag` says which.

    A scalar in its place is short for the key `short`: of the block `plain`, or the tag itself where `plain` is empty.
    """

    tag: str
    blocks: Mapping[str, Block]
    doc: str = ""
    short: str = ""
    plain: str = ""


class Named(msgspec.Struct, frozen=True):
    """At least one block of the same form, each under a name of the writer's choice."""

    block: Block
    doc: str = ""


class Values:
    """What was read of a block: values by key, their places, and the keys whose value is broken."""

    __slots__ = ("broken", "path", "place", "places", "tag", "values")

    def __init__(self, path: str, place: Place) -> None:
        self.path = path
        self.place = place
        self.tag = ""
        self.values: dict[str, Any] = {}
        self.places: dict[str, Place] = {}
        self.broken: list[str] = []

    def at(self, key: str) -> str:
        return f"{self.path}.{key}" if self.path else key

    def where(self, key: str) -> Place:
        """The place of the value, or of the block where the key was left out."""
        return self.places.get(key, self.place)


class Reading:
    """One reading of one file: its name and the complaints so far."""

    __slots__ = ("_guesses", "complaints", "file")

    def __init__(self, file: str) -> None:
        self.file = file
        self.complaints: list[Complaint] = []
        self._guesses = 0

    def complain(self, place: Place, path: str, message: str, code: str = "") -> None:
        self.complaints.append(Complaint(place, path, message, code))

    def nearest(self, word: str, known: list[str]) -> str:
        """`; did you mean "x"?` for the known words that begin with this one, or the nearest one, or nothing."""
        if len(word) > 60 or self._guesses >= _GUESSES_MAX:
            return ""
        self._guesses += 1
        from difflib import get_close_matches  # only a faulty file pays for it

        lower = {name.lower(): name for name in known}
        near = [name for name in lower if len(word) > 2 and name.startswith(word.lower())][:3]
        near = near or get_close_matches(word.lower(), lower, n=1, cutoff=0.5)
        return "; did you mean " + " or ".join(f'"{lower[name]}"' for name in near) + "?" if near else ""

    def cite(self, values: Values, key: str, value: object) -> str:
        """A value that another one clashes with, and where it was written."""
        place = values.places.get(key)
        where = "by default" if place is None else place.text(self.file)
        return f"{values.at(key)} is {value} ({where})"


def read_block(reading: Reading, block: Block, node: Node, path: str) -> Values | None:
    """The values of a block; None, after a complaint, where the node is none."""
    values = Values(path, node.place)
    entries = node.entries
    if block.short and node.kind is NodeKind.TEXT:
        entries = {block.short: (node.place, node)}
    elif node.kind is not NodeKind.BLOCK:
        message = f"expected a block of keys{_or_text(block)}, found {node.found()}"
        reading.complain(node.place, path, message)
        return None
    for key, (place, child) in entries.items():
        field = block.fields.get(key)
        if field is None:
            known = list(block.fields)
            message = f"expected one of the keys {', '.join(known)}, found an unknown key{reading.nearest(key, known)}"
            reading.complain(place, values.at(printable(key[:60])), message)
            continue
        _read_field(reading, values, key, field, child)
    for key, field in block.fields.items():
        if key not in entries and field.required:
            reading.complain(node.place, values.at(key), f"expected {_described(field)}, found nothing; it is required")
            values.broken.append(key)
        elif key not in entries:
            values.values[key] = field.default
    return values


def _read_field(reading: Reading, values: Values, key: str, field: Field, node: Node) -> None:
    path = values.at(printable(key[:60]))
    values.places[key] = node.place
    if field.nullable and (node.kind is NodeKind.NOTHING or node.raw == "none"):
        del values.places[key]
        values.values[key] = field.default
        return
    kind = field.kind
    if node.kind is NodeKind.BROKEN:
        values.broken.append(key)
        return
    before = len(reading.complaints)
    value: Any = None
    if isinstance(kind, Block):
        value = read_block(reading, kind, node, path)
    elif isinstance(kind, OneOf):
        value = read_union(reading, kind, node, path)
    elif isinstance(kind, Named):
        value = read_named(reading, kind, node, path)
    else:
        try:
            value = kind.read(node)
        except QuantityError as error:
            message = f"expected {error}, found {node.found()}"
            near = kind.schema.get("enum")
            if near and node.kind is NodeKind.TEXT:
                message += reading.nearest(node.raw, near)
            reading.complain(node.place, path, message)
    if len(reading.complaints) > before and value is None:
        values.broken.append(key)
    else:
        values.values[key] = value


def read_union(reading: Reading, union: OneOf, node: Node, path: str) -> Values | None:
    """The values of the block that the tag names, `tag` set; None, after a complaint, where none is named."""
    names = list(union.blocks)
    listed = "one of " + ", ".join(names)
    if union.plain and node.kind not in (NodeKind.BLOCK, NodeKind.LIST, NodeKind.NOTHING):
        inner = Node(NodeKind.BLOCK, node.place)
        inner.entries = {union.short: (node.place, node)}
        values = read_block(reading, union.blocks[union.plain], inner, path)
        if values is not None:
            values.tag = union.plain
        return values
    if union.short and node.kind is NodeKind.TEXT:
        inner = Node(NodeKind.BLOCK, node.place)
        inner.entries = {union.tag: (node.place, node)}
        node = inner
    if node.kind is not NodeKind.BLOCK:
        reading.complain(
            node.place, path, f"expected a block with the key {union.tag} ({listed}), found {node.found()}"
        )
        return None
    if union.tag not in node.entries:
        reading.complain(node.place, f"{path}.{union.tag}", f"expected {listed}, found nothing; it is required")
        return None
    _, tag = node.entries[union.tag]
    if tag.kind is NodeKind.BROKEN:
        return None
    if tag.kind is not NodeKind.TEXT or tag.raw not in union.blocks:
        near = reading.nearest(tag.raw, names) if tag.kind is NodeKind.TEXT else ""
        reading.complain(tag.place, f"{path}.{union.tag}", f"expected {listed}, found {tag.found()}{near}")
        return None
    rest = Node(NodeKind.BLOCK, node.place)
    rest.entries = {key: entry for key, entry in node.entries.items() if key != union.tag}
    values = read_block(reading, union.blocks[tag.raw], rest, path)
    if values is not None:
        values.tag = tag.raw
        values.places[union.tag] = tag.place
    return values


def read_named(reading: Reading, named: Named, node: Node, path: str) -> Values | None:
    """Values whose values are those of the blocks, by name; None, after a complaint, where there is none."""
    values = Values(path, node.place)
    if node.kind is not NodeKind.BLOCK or not node.entries:
        found = "no name" if node.kind is NodeKind.BLOCK else node.found()
        reading.complain(node.place, path, f"expected a block of names, each with a block of keys, found {found}")
        return None
    field = Field(named.block, named.doc)
    for name, (place, child) in node.entries.items():
        if not NAME.fullmatch(name):
            shown = printable(name[:60])
            message = f'expected a name of letters, digits, "_" and "-" that begins with a letter, found "{shown}"'
            reading.complain(place, values.at(shown), message)
            values.broken.append(name)
            continue
        _read_field(reading, values, name, field, child)
    return values


def _or_text(block: Block) -> str:
    if not block.short:
        return ""
    kind = block.fields[block.short].kind
    said = kind.schema.get("description") if isinstance(kind, Kind) else None
    return f", or {said}" if said else f" or a text, the {block.short}"


def _described(field: Field) -> str:
    """What a field would hold: one of its words where it has a few, else what it says of itself."""
    if isinstance(field.kind, Kind) and "enum" in field.kind.schema:
        return f"one of {', '.join(map(str, field.kind.schema['enum']))}"
    doc = field.doc.split(". ")[0].rstrip(".")
    return doc[:1].lower() + doc[1:]


def is_text(node: Node) -> bool:
    """Whether the node is a text; in an override, whose quotes the shell took, any plain scalar is one."""
    return node.kind is NodeKind.TEXT or bool(node.place.override and node.plain and node.kind is not NodeKind.NOTHING)


def whole(minimum: int, maximum: int = COUNT_MAX) -> Kind:
    """A whole number from `minimum` to `maximum`, written as one."""
    expected = f"a whole number from {minimum} to {maximum}"
    if maximum in (COUNT_MAX, minimum):
        expected = str(minimum) if maximum == minimum else f"a whole number of at least {minimum}"

    def read(node: Node) -> int:
        raw = node.raw
        if node.kind is not NodeKind.INTEGER or len(raw) > 40:
            raise QuantityError(expected)
        value = int(raw, 0) if raw[:2] in ("0x", "0o") else int(raw)
        if not minimum <= value <= maximum:
            raise QuantityError(expected)
        return value

    return Kind(read, {"type": "integer", "minimum": minimum, "maximum": maximum})


def wholes(minimum: int, maximum: int) -> Kind:
    """A list of at least one whole number, as a tuple."""
    one = whole(minimum, maximum)

    def read(node: Node) -> tuple[int, ...]:
        if node.kind is not NodeKind.LIST or not node.items:
            raise QuantityError(f"a list of whole numbers from {minimum} to {maximum}")
        return tuple([one.read(item) for item in node.items])

    return Kind(read, {"type": "array", "items": dict(one.schema), "minItems": 1})


def quantity(dimension: Dimension, minimum: int = 0, maximum: int | None = None) -> Kind:
    """A text with a unit, from `minimum` to `maximum` of the dimension's canonical unit."""
    top = dimension.limit if maximum is None else maximum

    def read(node: Node) -> int:
        value = read_quantity(_unit_text(node, dimension.expected), dimension)
        if value < minimum:
            raise QuantityError(f"{dimension.noun} of at least {minimum} {dimension.canonical}")
        if value > top:
            raise QuantityError(f"{dimension.noun} of at most {top} {dimension.canonical}")
        return value

    return Kind(read, {"type": "string", "description": dimension.expected, "examples": [dimension.example]})


def _unit_text(node: Node, expected: str) -> str:
    if node.kind is not NodeKind.TEXT or len(node.raw) > 80:
        raise QuantityError(expected)
    return node.raw


def choice(names: Mapping[str, Any]) -> Kind:
    """One of the names; the value is what the name stands for."""
    listed = list(names)
    expected = "one of " + ", ".join(f'"{name}"' if name[:1].isdigit() else name for name in listed)

    def read(node: Node) -> Any:
        if not is_text(node) or node.raw not in names:
            hint = f'{expected} (in quotes: "{node.raw}")' if node.plain and node.raw in names else expected
            raise QuantityError(hint)
        return names[node.raw]

    return Kind(read, {"type": "string", "enum": listed})


def _read_boolean(node: Node) -> bool:
    if node.kind is not NodeKind.BOOLEAN:
        raise QuantityError("true or false")
    return node.raw[0] in "tT"


def _read_text(node: Node) -> str:
    if not is_text(node) or not node.raw or len(node.raw) > TEXT_MAX or not node.raw.isprintable():
        raise QuantityError(f"a text on one line, of 1 to {TEXT_MAX} characters")
    return node.raw


def _numeric(node: Node, expected: str) -> str:
    if node.kind not in (NodeKind.INTEGER, NodeKind.NUMBER, NodeKind.TEXT) or len(node.raw) > 80:
        raise QuantityError(expected)
    return node.raw


def share(minimum_ppm: int, maximum_ppm: int, noun: str) -> Kind:
    """A plain decimal or a percentage, as parts per million."""
    expected = f'{noun}, such as 0.9 or "90%"'

    def read(node: Node) -> int:
        value = read_share_ppm(_numeric(node, expected))
        if not minimum_ppm <= value <= maximum_ppm:
            raise QuantityError(expected)
        return value

    return Kind(read, {"type": ["number", "string"], "description": expected})


def _read_ratio(node: Node) -> Any:
    value = read_ratio(_numeric(node, 'a number such as 0.5 or "1/3"'))
    if value.numerator == 0:
        raise QuantityError("a number above 0")
    return value


def _read_rate(node: Node) -> Any:
    expected = 'a rate with its unit, such as "4 /s" or "240 per minute"'
    value = read_rate(_unit_text(node, expected))
    if value.numerator == 0:
        raise QuantityError("a rate above 0")
    return value


BOOLEAN = Kind(_read_boolean, {"type": "boolean"})
TEXT = Kind(_read_text, {"type": "string", "minLength": 1, "maxLength": TEXT_MAX})
RATIO = Kind(_read_ratio, {"type": ["number", "string"], "examples": [0.5, "1/3"]})
RATE = Kind(_read_rate, {"type": "string", "examples": ["4 /s", "240 per minute"]})
