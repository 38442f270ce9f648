"""YAML or JSON text as a tree of located nodes, and nothing else: no conversions, no aliases, no tags.

ruamel.yaml's parser gives events with line and column; the tree is built from them here, without recursion, so
that hostile files cost no more than long ones. Plain scalars are told apart by the core schema of YAML 1.2 (`yes`
is a text, `010` is ten). Refused, with the place: more than one document, anchors and aliases, tags, keys that are
not plain texts, duplicate keys, nesting beyond 24 levels, text that is not UTF-8, control characters; and, for a run
file, more than 2,000 values and files beyond 64 KiB. Other formats have other limits.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import Enum
from typing import Any

import msgspec
from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError
from ruamel.yaml.events import (
    AliasEvent,
    DocumentStartEvent,
    MappingEndEvent,
    MappingStartEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
)

from isim.scenario.errors import Complaint, Place

MAX_FILE_BYTES = 64 << 10
MAX_DEPTH = 24
MAX_NODES = 2000


class Limits(msgspec.Struct, frozen=True):
    """How much of a file is read, and what it is called where it is empty."""

    file_bytes: int = MAX_FILE_BYTES
    nodes: int = MAX_NODES
    noun: str = "a run file"


RUN_FILE_LIMITS = Limits()

_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_UNPRINTED = range(0x80, 0xA0), range(0x2028, 0x202A), range(0xD800, 0xE000), (0xFEFF, 0xFFFE, 0xFFFF)
_BRACKETS = re.compile(rf"[\[{{][\s\[{{]{{{4 * MAX_DEPTH}}}")
_INT = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")


class NodeKind(Enum):
    """What a node is; the value is how a complaint names it."""

    NOTHING = "nothing"
    BOOLEAN = "boolean"
    INTEGER = "the whole number"
    NUMBER = "the number"
    TEXT = "the text"
    LIST = "a list"
    BLOCK = "a block"
    BROKEN = "something refused before"


_WORDS = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), NodeKind.NOTHING),
    **dict.fromkeys(("true", "True", "TRUE", "false", "False", "FALSE"), NodeKind.BOOLEAN),
}


class Node:
    """A value with its place. `raw` is a scalar's text; a block has `entries`, a list `items`."""

    __slots__ = ("entries", "items", "kind", "place", "plain", "raw")

    def __init__(self, kind: NodeKind, place: Place, raw: str = "", *, plain: bool = False) -> None:
        self.kind = kind
        self.place = place
        self.raw = raw
        self.plain = plain
        self.entries: dict[str, tuple[Place, Node]] = {}
        self.items: list[Node] = []

    def found(self) -> str:
        """How a complaint names this value, at most some 60 characters long."""
        if self.kind in (NodeKind.LIST, NodeKind.BLOCK, NodeKind.NOTHING, NodeKind.BROKEN):
            return str(self.kind.value)
        if self.kind is NodeKind.BOOLEAN:
            return self.raw
        if len(self.raw) > 40:
            unit = "characters" if self.kind is NodeKind.TEXT else "digits"
            return f"{self.kind.value} {ascii(self.raw[:12])[1:-1]}… of {len(self.raw)} {unit}"
        shown = f'"{printable(self.raw)}"' if self.kind is NodeKind.TEXT else self.raw
        return f"{self.kind.value} {shown}"


def plain_value(node: Node) -> Any:
    """The node as None, a boolean, a number, a text, a list or a dict; None for what was refused before."""
    if node.kind is NodeKind.BLOCK:
        return {key: plain_value(child) for key, (_, child) in node.entries.items()}
    if node.kind is NodeKind.LIST:
        return [plain_value(child) for child in node.items]
    if node.kind is NodeKind.TEXT:
        return node.raw
    if node.kind is NodeKind.BOOLEAN:
        return node.raw[0] in "tT"
    if node.kind is NodeKind.INTEGER:
        return int(node.raw, 0) if node.raw[:2] in ("0x", "0o") else int(node.raw)
    if node.kind is NodeKind.NUMBER:
        return float(node.raw.lower().replace(".inf", "inf").replace(".nan", "nan"))
    return None


def printable(text: str) -> str:
    """The text with whatever does not print escaped, so that a complaint stays on its line."""
    return text if text.isprintable() else ascii(text)[1:-1]


def decode(data: bytes, complaints: list[Complaint], limits: Limits = RUN_FILE_LIMITS) -> str | None:
    """The text of a file: UTF-8 with or without a byte order mark; None, and a complaint, if it cannot be YAML."""
    if len(data) > limits.file_bytes:
        message = f"expected a file of at most {limits.file_bytes} bytes, found more"
        complaints.append(Complaint(Place(0, 1, 1), "", message))
        return None
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = error.object[: error.start].decode("utf-8", "replace")
        message = f"expected UTF-8 text, found the byte 0x{error.object[error.start]:02x}"
        complaints.append(Complaint(_place_after(before), "", message))
        return None
    bad = _first_unprintable(text)
    if bad is not None:
        message = f"expected printable text, found the character U+{ord(text[bad]):04X}"
        complaints.append(Complaint(_place_after(text[:bad]), "", message))
        return None
    deep = _BRACKETS.search(text)
    if deep:
        message = f"expected at most {MAX_DEPTH} levels of nesting, found more"
        complaints.append(Complaint(_place_after(text[: deep.start()]), "", message))
        return None
    return text


def parse(text: str, complaints: list[Complaint], override: int = 0, limits: Limits = RUN_FILE_LIMITS) -> Node | None:
    """The tree of the one document in `text`; None, after at least one complaint, where there is none to follow.

    A text that begins with `{` is taken as JSON, in which tabs may indent.
    """
    if text.lstrip().startswith("{"):
        text = text.replace("\t", " ")
    return _Builder(complaints, override, limits).build(text)


def _first_unprintable(text: str) -> int | None:
    """Where the first character is that YAML forbids, or that some readers take for a line break."""
    match = _CONTROL.search(text)
    first = match.start() if match else None
    if not text.isascii():
        for index, character in enumerate(text[:first]):
            if character > "\x7f" and any(ord(character) in those for those in _UNPRINTED):
                return index
    return first


def _place_after(before: str) -> Place:
    lines = re.split("\r\n|\r|\n", before)
    return Place(0, len(lines), len(lines[-1]) + 1)


class _Stop(Exception):  # noqa: N818 - internal marker
    """The rest of the text cannot be followed."""


class _Builder:
    def __init__(self, complaints: list[Complaint], override: int, limits: Limits) -> None:
        self._complaints = complaints
        self._limits = limits
        self._override = override
        self._place = Place(override, 1, 1)
        self._root: Node | None = None
        self._open: list[tuple[Node, str]] = []
        self._key: str | None = None
        self._key_place = self._place
        self._count = 0

    def build(self, text: str) -> Node | None:
        before = len(self._complaints)
        documents = 0
        try:
            for event in self._events(text):
                if isinstance(event, DocumentStartEvent):
                    documents += 1
                    if documents > 1:
                        self._complain("", "expected one document, found the start of a second one")
                        break
                    if event.version not in (None, (1, 2)) or event.tags:
                        self._stop("expected YAML 1.2 without directives, found a directive")
                else:
                    self._take(event)
        except _Stop:
            return None
        if self._root is None and len(self._complaints) == before:
            self._complain("", f"expected {self._limits.noun}, found no content")
        return self._root

    def _events(self, text: str) -> Iterator[Any]:
        try:
            for event in YAML(typ="safe", pure=True).parse(text):
                mark = event.start_mark
                self._place = Place(self._override, mark.line + 1, mark.column + 1)
                yield event
        except _Stop:
            raise
        except MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            if mark is not None:
                self._place = Place(self._override, mark.line + 1, mark.column + 1)
            problem = str(error.problem or error.context)
            if "'\\t'" in problem:
                self._stop("expected spaces, found a tab")
            self._stop(f"expected well-formed YAML, found: {printable(' '.join(problem.split()))}")
        except Exception as error:  # ruamel answers some malformed texts with ValueError, IndexError, AttributeError
            self._stop(f"expected well-formed YAML, found something that cannot be read ({type(error).__name__})")

    def _take(self, event: Any) -> None:
        if isinstance(event, MappingEndEvent | SequenceEndEvent):
            self._close()
        elif isinstance(event, AliasEvent):
            self._complain(self._path(), "expected a value, found an alias; write the value out")
            self._add(Node(NodeKind.BROKEN, self._place))
        elif isinstance(event, ScalarEvent | MappingStartEvent | SequenceStartEvent):
            if event.anchor:
                self._complain(self._path(), "expected a value, found an anchor; write the value where it is needed")
            if event.tag is not None and str(event.tag) != "!":
                self._complain(
                    self._path(), f"expected a value without a tag, found the tag {printable(str(event.tag))}"
                )
            if isinstance(event, ScalarEvent):
                self._scalar(event)
            else:
                self._start(NodeKind.BLOCK if isinstance(event, MappingStartEvent) else NodeKind.LIST)

    def _scalar(self, event: Any) -> None:
        raw = _joined(str(event.value))
        if raw is None:
            self._complain(self._path(), "expected text, found half of a surrogate pair")
            self._add(Node(NodeKind.BROKEN, self._place))
            return
        plain = bool(event.style is None or event.style == "")
        if self._open and self._open[-1][0].kind is NodeKind.BLOCK and self._key is None:
            self._key, self._key_place = raw, self._place
            return
        kind = _plain_kind(raw) if plain else NodeKind.TEXT
        self._add(Node(kind, self._place, raw, plain=plain))

    def _start(self, kind: NodeKind) -> None:
        if len(self._open) >= MAX_DEPTH:
            self._stop(f"expected at most {MAX_DEPTH} levels of nesting, found more")
        if self._open and self._open[-1][0].kind is NodeKind.BLOCK and self._key is None:
            self._stop(f"expected a text as key, found {kind.value}")
        node = Node(kind, self._place)
        path = self._path()
        self._add(node)
        self._open.append((node, path))

    def _close(self) -> None:
        self._open.pop()
        self._key = None

    def _add(self, node: Node) -> None:
        self._count += 1
        if self._count > self._limits.nodes:
            self._stop(f"expected at most {self._limits.nodes} values, found more")
        if not self._open:
            self._root = node
            return
        parent = self._open[-1][0]
        if parent.kind is NodeKind.LIST:
            parent.items.append(node)
            return
        key = self._key
        if key is None:
            self._stop("expected a text as key, found something else")
            return
        if key in parent.entries:
            first = parent.entries[key][0]
            message = f"expected each key once, found it again; first on line {first.line}, column {first.column}"
            self._complaints.append(Complaint(self._key_place, self._path(), message))
        else:
            parent.entries[key] = (self._key_place, node)
        self._key = None

    def _path(self) -> str:
        if not self._open:
            return ""
        parent, path = self._open[-1]
        name = f"[{len(parent.items)}]" if parent.kind is NodeKind.LIST else printable((self._key or "")[:60])
        return f"{path}.{name}" if path and name and not name.startswith("[") else f"{path}{name}"

    def _complain(self, path: str, message: str) -> None:
        self._complaints.append(Complaint(self._place, path, message))

    def _stop(self, message: str) -> None:
        self._complain(self._path(), message)
        raise _Stop


def _plain_kind(raw: str) -> NodeKind:
    word = _WORDS.get(raw)
    if word:
        return word
    if _INT.fullmatch(raw):
        return NodeKind.INTEGER
    return NodeKind.NUMBER if _FLOAT.fullmatch(raw) else NodeKind.TEXT


def _joined(text: str) -> str | None:
    """The text with surrogate pairs, as JSON escapes them, made characters; None if one has no partner."""
    if text.isascii():
        return text
    try:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le")
    except UnicodeDecodeError:
        return None
