"""Spoiling records: values of the same kind that are not the one that is there, for whatever a record holds."""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from typing import Any

import msgspec

from isim.record.records import Record


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
