"""The run file, and others read by such tables, as a JSON Schema (draft 2020-12) made from the tables.

It describes form: keys, types, ranges of whole numbers, and the words for quantities. What compares two values, and
that a quantity is whole in its canonical unit, only the loader checks.
"""

from __future__ import annotations

from typing import Any

from isim.scenario.fields import NAME, Block, Field, Kind, Named, OneOf
from isim.scenario.schema import RUN_FILE

Schema = dict[str, Any]


def run_file_schema() -> Schema:
    """The schema of a run file of schema_version 1."""
    return block_schema("isim run file, schema_version 1", RUN_FILE)


def block_schema(title: str, block: Block) -> Schema:
    """The schema of a file that is one such block."""
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": title, **_block(block)}


def _of(kind: Kind | Block | OneOf | Named) -> Schema:
    if isinstance(kind, Kind):
        return dict(kind.schema)
    if isinstance(kind, OneOf):
        return _one_of(kind)
    if isinstance(kind, Named):
        names = {"propertyNames": {"pattern": f"^{NAME.pattern}$"}, "minProperties": 1}
        return {"description": kind.doc, "type": "object", **names, "additionalProperties": _block(kind.block)}
    if not kind.short:
        return _block(kind)
    return {"description": kind.doc, "anyOf": [_of(kind.fields[kind.short].kind), _block(kind)]}


def _block(block: Block, tag: tuple[str, str] | None = None) -> Schema:
    properties: Schema = {} if tag is None else {tag[0]: {"const": tag[1]}}
    properties |= {key: _field(field) for key, field in block.fields.items()}
    required = [] if tag is None else [tag[0]]
    required += [key for key, field in block.fields.items() if field.required]
    schema: Schema = {"type": "object"}
    if block.doc:
        schema["description"] = block.doc
    return {**schema, "properties": properties, "required": required, "additionalProperties": False}


def _field(field: Field) -> Schema:
    schema = _of(field.kind)
    default = f" Default: {field.rule}." if field.rule else ""
    text = field.doc + default
    if "description" in schema and isinstance(field.kind, Kind):
        text += f" Written as {schema['description']}."
    if field.default is not None and not field.rule:
        schema["default"] = field.default
    if field.nullable:
        return {"description": text, "anyOf": [{"type": "null"}, {"const": "none"}, schema]}
    return {**schema, "description": text}


def _one_of(union: OneOf) -> Schema:
    choices = [_block(block, (union.tag, name)) for name, block in union.blocks.items()]
    if union.plain:
        choices.append(_of(union.blocks[union.plain].fields[union.short].kind))
    elif union.short:
        whole = [name for name, block in union.blocks.items() if not any(f.required for f in block.fields.values())]
        choices.append({"enum": whole})
    return {"description": union.doc, "anyOf": choices}
