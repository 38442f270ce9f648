"""A node tree read as a `msgspec.Struct`: the type is the schema, and every fault has its place.

For formats whose fields are what the type says and nothing else: texts, whole numbers, numbers, booleans, enums, lists
as tuples, structs, and unions of structs told apart by a tag; what may be UNSET may be left out. Reading never stops at
the first fault. Where something is broken a placeholder of the right type stands for it and its path is kept, so that
checks of meaning can still be made of all the rest, and can be silent about what they cannot know.

Bounds of numbers are meaning, not form: a whole number is read with its sign, up to 40 digits.
"""

from __future__ import annotations

from typing import Any, TypeVar

from msgspec import inspect

from isim.scenario.fields import TEXT_MAX, Reading, is_text
from isim.scenario.nodes import Node, NodeKind, printable

DIGITS_MAX = 40

_T = TypeVar("_T")
_NUMBERS = (NodeKind.INTEGER, NodeKind.NUMBER)


class StructReader:
    """Reads nodes of one file; `broken` are the paths whose values are placeholders."""

    __slots__ = ("_reading", "broken")

    def __init__(self, reading: Reading) -> None:
        self._reading = reading
        self.broken: list[str] = []

    def read(self, form: type[_T], node: Node, path: str = "") -> _T:
        """The node as a value of that struct, with complaints where it is none."""
        value: _T = self._value(inspect.type_info(form), node, path)
        return value

    def _value(self, form: inspect.Type, node: Node, path: str) -> Any:
        if node.kind is NodeKind.BROKEN:
            self.broken.append(path)
            return placeholder(form)
        if isinstance(form, inspect.StructType):
            return self._struct(form, node, path)
        if isinstance(form, inspect.VarTupleType):
            return self._list(form, node, path)
        if isinstance(form, inspect.UnionType):
            return self._union(form, node, path)
        return self._scalar(form, node, path)

    def _struct(self, form: inspect.StructType, node: Node, path: str, given: str = "") -> Any:
        """`given` is the key of the tag, which was read already."""
        if node.kind is not NodeKind.BLOCK:
            return self._wrong(form, node, path)
        known = {field.encode_name: field for field in form.fields}
        values: dict[str, Any] = {}
        for key, (place, child) in node.entries.items():
            field = known.get(key)
            if field is not None:
                value = self._value(field.type, child, _inside(path, key))
                if field.required or _inside(path, key) not in self.broken[-1:]:
                    values[field.name] = value
            elif key != given:
                names = [*([given] if given else []), *known]
                near = self._reading.nearest(key, names)
                message = f"expected one of the keys {', '.join(names)}, found an unknown key{near}"
                self._complain(place, _inside(path, printable(key[:60])), message)
        for key, field in known.items():
            if field.required and key not in node.entries:
                message = f"expected {expected(field.type)}, found nothing; it is required"
                self._complain(node.place, _inside(path, key), message)
                self.broken.append(_inside(path, key))
                values[field.name] = placeholder(field.type)
        return form.cls(**values)

    def _list(self, form: inspect.VarTupleType, node: Node, path: str) -> Any:
        if node.kind is not NodeKind.LIST:
            return self._wrong(form, node, path)
        return tuple([self._value(form.item_type, item, f"{path}[{index}]") for index, item in enumerate(node.items)])

    def _union(self, form: inspect.UnionType, node: Node, path: str) -> Any:
        structs = [each for each in form.types if isinstance(each, inspect.StructType)]
        tag_field = str(structs[0].tag_field)
        if node.kind is not NodeKind.BLOCK:
            return self._wrong(form, node, path)
        by_tag = {str(each.tag): each for each in structs}
        listed = "one of " + ", ".join(by_tag)
        if tag_field not in node.entries:
            message = f"expected {listed}, found nothing; it is required"
            return self._broken(form, Node(NodeKind.BROKEN, node.place), path, (tag_field, message))
        _, tag = node.entries[tag_field]
        if tag.kind is NodeKind.TEXT and tag.raw in by_tag:
            return self._struct(by_tag[tag.raw], node, path, tag_field)
        near = self._reading.nearest(tag.raw, list(by_tag)) if tag.kind is NodeKind.TEXT else ""
        return self._broken(form, tag, path, (tag_field, f"expected {listed}, found {tag.found()}{near}"))

    def _broken(self, form: inspect.Type, node: Node, path: str, what: tuple[str, str]) -> Any:
        key, message = what
        self._complain(node.place, _inside(path, key), message, "enum_value" if node.kind is NodeKind.TEXT else "")
        self.broken.append(path)
        return placeholder(form)

    def _scalar(self, form: inspect.Type, node: Node, path: str) -> Any:
        if isinstance(form, inspect.StrType):
            if is_text(node) and len(node.raw) <= TEXT_MAX and (node.raw.isprintable() or not node.raw):
                return node.raw
        elif isinstance(form, inspect.BoolType):
            if node.kind is NodeKind.BOOLEAN:
                return node.raw[0] in "tT"
        elif isinstance(form, inspect.IntType):
            if node.kind is NodeKind.INTEGER and len(node.raw) <= DIGITS_MAX:
                return int(node.raw, 0) if node.raw[:2] in ("0x", "0o") else int(node.raw)
        elif isinstance(form, inspect.FloatType):
            if node.kind in _NUMBERS and len(node.raw) <= DIGITS_MAX and node.raw[:2] not in ("0x", "0o"):
                return float(node.raw.lower().replace(".inf", "inf").replace(".nan", "nan"))
        elif isinstance(form, inspect.EnumType):
            names = [str(member.value) for member in form.cls]
            if is_text(node) and node.raw in names:
                return form.cls(node.raw)
            near = self._reading.nearest(node.raw, names) if node.kind is NodeKind.TEXT else ""
            return self._wrong(form, node, path, near)
        else:
            raise TypeError(f"no way to read {form}")
        return self._wrong(form, node, path)

    def _wrong(self, form: inspect.Type, node: Node, path: str, near: str = "") -> Any:
        code = "enum_value" if isinstance(form, inspect.EnumType) and node.kind is NodeKind.TEXT else ""
        self._complain(node.place, path, f"expected {expected(form)}, found {node.found()}{near}", code)
        self.broken.append(path)
        return placeholder(form)

    def _complain(self, place: Any, path: str, message: str, code: str = "") -> None:
        self._reading.complain(place, path, message, code)


def expected(form: inspect.Type) -> str:
    """What a complaint says should stand there."""
    if isinstance(form, inspect.UnionType):
        return expected(form.types[0])
    if isinstance(form, inspect.EnumType):
        return "one of " + ", ".join(str(member.value) for member in form.cls)
    words = {
        inspect.StrType: f"a text on one line, of at most {TEXT_MAX} characters",
        inspect.BoolType: "true or false",
        inspect.IntType: "a whole number",
        inspect.FloatType: "a number",
        inspect.VarTupleType: "a list",
        inspect.StructType: "a block of keys",
    }
    return words[type(form)]


def placeholder(form: inspect.Type) -> Any:
    """Some value of that form, for what could not be read."""
    if isinstance(form, inspect.StructType):
        required = {field.name: placeholder(field.type) for field in form.fields if field.required}
        return form.cls(**required)
    if isinstance(form, inspect.UnionType):
        return placeholder(form.types[0])
    if isinstance(form, inspect.EnumType):
        return next(iter(form.cls))
    values = {
        inspect.StrType: "",
        inspect.BoolType: False,
        inspect.IntType: 0,
        inspect.FloatType: 0.0,
        inspect.VarTupleType: (),
    }
    return values[type(form)]


def node_at(root: Node, path: str) -> Node:
    """The node at a path such as `links[3].kind`, or the innermost one on the way to it that is there."""
    node = root
    for token in path.replace("[", ".[").split("."):
        if token.startswith("["):
            index = int(token[1:-1])
            if node.kind is not NodeKind.LIST or index >= len(node.items):
                break
            node = node.items[index]
        elif token:
            if token not in node.entries:
                break
            node = node.entries[token][1]
    return node


def _inside(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key
