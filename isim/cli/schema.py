"""`isim schema WHAT`: the JSON Schema of one line of a log, of a run file, of result.json, of a comparison."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from isim.cli.output import emit

_DRAFT = "https://json-schema.org/draft/2020-12/schema"


def schema(what: str) -> int:
    """Print the schema, as JSON."""
    emit(schema_text(what))
    return 0


def schema_text(what: str) -> str:
    """The schema as indented JSON with sorted keys."""
    tree = {"$schema": _DRAFT, **_SCHEMAS[what]()}
    return msgspec.json.format(msgspec.json.encode(tree, order="sorted"), indent=2).decode() + "\n"


def _log() -> dict[str, Any]:
    from isim.record.records import REVISION, SCHEMA, AnyRecord

    tree = msgspec.json.schema(AnyRecord)
    return {"title": f"{SCHEMA} revision {REVISION}", "description": "One line of a log.", **tree}


def _run() -> dict[str, Any]:
    from isim.scenario.json_schema import run_file_schema

    return run_file_schema()


def _result() -> dict[str, Any]:
    from isim.analyze.schema import REVISION, SCHEMA, Result

    return {"title": f"{SCHEMA} revision {REVISION}", **msgspec.json.schema(Result)}


def _comparison() -> dict[str, Any]:
    from isim.analyze.compare import REVISION, SCHEMA, Comparison

    return {"title": f"{SCHEMA} revision {REVISION}", **msgspec.json.schema(Comparison)}


_SCHEMAS: dict[str, Callable[[], dict[str, Any]]] = {
    "log": _log,
    "run": _run,
    "result": _result,
    "comparison": _comparison,
}
