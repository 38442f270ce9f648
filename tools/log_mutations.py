"""Spoiling records: every way in which one field of a record, or one record of a log, can be told otherwise.

It knows no kind of record: what can be changed is read off the record. `others` are values of the same type as the one
that is there. `mutations` are lines of the log with one field changed: another value, another type, another order,
something left out, something said twice. A line that says the same as before is none.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from enum import Enum, StrEnum
from typing import Any

import msgspec

from isim.record.records import Record


class Mutation(StrEnum):
    """What was done to a field; `TWICE` gives the same key of an object twice, `DUPLICATION` doubles an entry."""

    VALUE = "value"
    TYPE = "type"
    ORDER = "order"
    DELETION = "deletion"
    DUPLICATION = "duplication"
    TWICE = "twice"


def others(value: Any) -> Iterator[Any]:
    """Values of the same kind that are not this one."""
    if isinstance(value, Enum):
        yield from (other for other in type(value) if other is not value)
    elif isinstance(value, bool):
        yield not value
    elif isinstance(value, int):
        yield from (value + 1, value - 1)
    elif value is None:
        yield from (0, 1)
    elif isinstance(value, str):
        yield value + "x"
    elif isinstance(value, list):
        if value:
            yield value[:-1]
            yield [*value, value[-1]]
            yield from ([*value[:-1], other] for other in others(value[-1]))
        else:
            yield from ([0], [(0, 1)], [(0, 0, 1)])
    elif isinstance(value, tuple):
        for place, part in enumerate(value):
            yield from ((*value[:place], other, *value[place + 1 :]) for other in others(part))
    elif isinstance(value, msgspec.Struct):
        for field in value.__struct_fields__:
            yield from (msgspec.structs.replace(value, **{field: it}) for it in others(getattr(value, field)))


def kind_of(record: type[Record] | Record) -> str:
    """The tag under which the record is written."""
    tag = record.__struct_config__.tag
    assert isinstance(tag, str)
    return tag


def could_be_read(record: Record, field: str, value: Any) -> bool:
    """Whether a log with this value would get past the codec."""
    told = {**msgspec.to_builtins(record), field: msgspec.to_builtins(value)}
    try:
        msgspec.convert(told, type(record))
    except msgspec.ValidationError:
        return False
    return True


def mutations(record: Record, field: str) -> Iterator[tuple[Mutation, bytes]]:
    """Lines that tell this record with one field, or its kind, changed, and how it was."""
    line = msgspec.json.encode(record)
    told: dict[str, Any] = msgspec.json.decode(line)
    for mutation, value in _told_otherwise(record, field, told):
        changed = {key: value if key == field else it for key, it in told.items()} | {field: value}
        yield mutation, msgspec.json.encode(changed)
    if field in told:
        yield Mutation.DELETION, msgspec.json.encode({key: it for key, it in told.items() if key != field})
        again = msgspec.json.encode({field: told[field]})
        yield Mutation.TWICE, again[:-1] + b"," + line[1:]
        yield Mutation.TWICE, line[:-1] + b',"' + field.encode() + b'":0}'
    for value in ([], {}, "", True, 0.5, -1, 1 << 60):
        yield Mutation.TYPE, msgspec.json.encode({**told, field: value})


def _told_otherwise(record: Record, field: str, told: dict[str, Any]) -> Iterator[tuple[Mutation, Any]]:
    if field == "kind":
        yield from ((Mutation.VALUE, tag) for tag in _tags(Record) if tag != told["kind"])
    else:
        yield from ((Mutation.VALUE, msgspec.to_builtins(other)) for other in others(getattr(record, field)))
    if field in told:
        yield from _within(told[field])


def _tags(kind: type[Record]) -> Iterator[str]:
    """Under what all kinds of records are written."""
    for other in kind.__subclasses__():
        yield from _tags(other)
        if isinstance(other.__struct_config__.tag, str):
            yield other.__struct_config__.tag


def _within(value: Any) -> Iterator[tuple[Mutation, Any]]:
    """The value with one part of it changed, at any depth."""
    if isinstance(value, list):
        for place, part in enumerate(value):
            before, after = value[:place], value[place + 1 :]
            yield Mutation.DELETION, before + after
            yield Mutation.DUPLICATION, [*before, part, part, *after]
            if after and after[0] != part:
                yield Mutation.ORDER, [*before, after[0], part, *after[1:]]
            yield from ((mutation, [*before, other, *after]) for mutation, other in _within(part))
        yield Mutation.TYPE, {str(place): part for place, part in enumerate(value)}
    elif isinstance(value, dict):
        for key, part in value.items():
            yield Mutation.DELETION, {name: it for name, it in value.items() if name != key}
            yield from ((mutation, {**value, key: other}) for mutation, other in _within(part))
        yield Mutation.TYPE, {**value, "unheard_of": 0}
        yield Mutation.TYPE, list(value.values())
    else:
        yield from ((Mutation.TYPE, other) for other in _other_types(value))
        yield from ((Mutation.VALUE, other) for other in _far(value))


def _other_types(value: Any) -> Iterator[Any]:
    yield from ([value], {"value": value}, None if value is not None else 0)
    if isinstance(value, bool):
        yield from (int(value), json.dumps(value))
    elif isinstance(value, int):
        yield from (str(value), value + 0.5, bool(value))
    elif isinstance(value, str):
        yield from (0, False)


def _far(value: Any) -> Iterator[Any]:
    """Values of the same type that are far off."""
    if isinstance(value, int) and not isinstance(value, bool):
        yield from (0, 1, 2 * value + 1, 1 << 52)
    elif isinstance(value, str):
        yield from ("", value.upper(), value + value)


def moved(lines: list[bytes], place: int, mutation: Mutation) -> list[bytes]:
    """The log with the record at this place left out, told twice, or after its neighbour; numbered anew."""
    if mutation is Mutation.DELETION:
        lines = lines[:place] + lines[place + 1 :]
    elif mutation is Mutation.DUPLICATION:
        lines = lines[: place + 1] + lines[place:]
    else:
        lines = [*lines[:place], *reversed(lines[place : place + 2]), *lines[place + 2 :]]
    return [msgspec.json.encode({**msgspec.json.decode(line), "seq": at}) for at, line in enumerate(lines)]
