"""Large JSON files: read at the speed of the standard library, and with places only once something is wrong.

Run files and scenarios are read node by node, each with its place (`isim.scenario.nodes`). A file of a hundred
thousand values is read by `read_json`, whose values have none; where a complaint is to be made, `json_nodes` reads the
text again as the same kind of nodes. Refused: what is not JSON, keys that come twice in an object, numbers that are not
finite or have more digits than can be read, halves of surrogate pairs, and nesting deeper than can be followed.
"""

from __future__ import annotations

import json
import re
from math import isfinite
from typing import Any

from isim.scenario.errors import Complaint, Place
from isim.scenario.nodes import Node, NodeKind

DIGITS_MAX = 40

_TOKEN = re.compile(r'[\[\]{},:]|"(?:[^"\\]|\\.)*"|[^\s\[\]{},:"]+')
_HALVES = re.compile("\\\\u[dD][89a-fA-F]")
_WORDS = {"null": NodeKind.NOTHING, "true": NodeKind.BOOLEAN, "false": NodeKind.BOOLEAN}


class _Refused(Exception):  # noqa: N818 - internal marker
    """Well-formed, but not to be read."""


def read_json(text: str, complaints: list[Complaint]) -> Any:
    """The value of a JSON text, objects as dicts; None, after a complaint with its place, where it is refused."""
    try:
        value = json.loads(
            text, object_pairs_hook=_once, parse_int=_integer, parse_float=_float, parse_constant=_constant
        )
    except json.JSONDecodeError as error:
        message = f"expected JSON, found a fault: {error.msg.lower()}"
        complaints.append(Complaint(Place(0, error.lineno, error.colno), "", message))
    except _Refused:
        json_nodes(text, complaints)
    except RecursionError:
        message = "expected levels of nesting that can be followed, found more"
        complaints.append(Complaint(Place(0, 1, 1), "", message))
    else:
        if _HALVES.search(text):
            json_nodes(text, complaints)
        return value
    return None


def json_nodes(text: str, complaints: list[Complaint]) -> Node:
    """The nodes of a text that is JSON, with a complaint about each value and key that `read_json` refuses."""
    builder = _Nodes(text, complaints)
    return builder.build()


class _Nodes:
    def __init__(self, text: str, complaints: list[Complaint]) -> None:
        self._text = text
        self._complaints = complaints
        self._line, self._line_at, self._seen = 1, 0, 0
        self._open: list[tuple[Node, str]] = []
        self._root: Node | None = None
        self._key: tuple[str, Place] | None = None

    def build(self) -> Node:
        for token in _TOKEN.finditer(self._text):
            sign = token[0]
            if sign in "]}":
                self._open.pop()
            elif sign not in ",:":
                self._take(sign, self._place(token.start()))
        return self._root or Node(NodeKind.BROKEN, Place(0, 1, 1))

    def _place(self, offset: int) -> Place:
        """Of an offset that is not before the last one asked for."""
        lines = self._text.count("\n", self._seen, offset)
        self._seen = offset
        if lines:
            self._line += lines
            self._line_at = self._text.rfind("\n", 0, offset) + 1
        return Place(0, self._line, offset - self._line_at + 1)

    def _take(self, sign: str, place: Place) -> None:
        parent = self._open[-1][0] if self._open else None
        if parent is not None and parent.kind is NodeKind.BLOCK and self._key is None:
            self._key = (json.loads(sign), place)
            return
        path = self._path()
        node = self._node(sign, place, path)
        if parent is None:
            self._root = node
        elif self._key is None:
            parent.items.append(node)
        elif self._key[0] in parent.entries:
            message = f"expected each key once, found it again; first at {parent.entries[self._key[0]][0].text('')[1:]}"
            self._complaints.append(Complaint(self._key[1], path, message))
        else:
            parent.entries[self._key[0]] = (self._key[1], node)
        self._key = None
        if node.kind in (NodeKind.BLOCK, NodeKind.LIST):
            self._open.append((node, path))

    def _path(self) -> str:
        if not self._open:
            return ""
        parent, path = self._open[-1]
        if self._key is None:
            return f"{path}[{len(parent.items)}]"
        return f"{path}.{self._key[0]}" if path else self._key[0]

    def _node(self, sign: str, place: Place, path: str) -> Node:
        if sign in "[{":
            return Node(NodeKind.BLOCK if sign == "{" else NodeKind.LIST, place)
        if sign in _WORDS:
            return Node(_WORDS[sign], place, sign)
        try:
            value = json.loads(sign, parse_int=_integer, parse_float=_float, parse_constant=_constant)
            if isinstance(value, str):
                value.encode()
                return Node(NodeKind.TEXT, place, value)
        except _Refused as refused:
            self._complaints.append(Complaint(place, path, str(refused)))
            return Node(NodeKind.BROKEN, place)
        except UnicodeEncodeError:
            self._complaints.append(Complaint(place, path, "expected text, found half of a surrogate pair"))
            return Node(NodeKind.BROKEN, place)
        return Node(NodeKind.INTEGER if isinstance(value, int) else NodeKind.NUMBER, place, sign)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise _Refused
    return found


def _integer(text: str) -> int:
    if len(text) > DIGITS_MAX:
        raise _Refused(f"expected a number of at most {DIGITS_MAX} digits, found {len(text)}")
    return int(text)


def _float(text: str) -> float:
    value = float(text)
    if not isfinite(value):
        raise _Refused(f"expected a finite number, found {text[:40]}")
    return value


def _constant(text: str) -> float:
    raise _Refused(f"expected a finite number, found {text}")
