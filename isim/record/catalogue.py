"""What sets one kind of log apart from another: its schema, its records, and which of them come first and last."""

from __future__ import annotations

from typing import Generic, TypeVar

import msgspec

from isim.record.records import Head, Record

R = TypeVar("R")


class Catalogue(msgspec.Struct, Generic[R], frozen=True, kw_only=True):
    """`decoder` knows every kind of record of `schema` at `revision`, and no other."""

    schema: str
    revision: int
    decoder: msgspec.json.Decoder[R]
    header: type[Head]
    end: type[Record]
