"""The reference pages, made from what reads the input: docs/run-file.md from the schema, docs/cli.md from the parser.

    python tools/pages.py [--check]

run-file.md is written whole; of cli.md only what stands between the two marks. `--check` writes nothing, and exits with
1 where a page is not what would be written.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import Any

from isim.cli.main import _parser
from isim.scenario.fields import Block, Field, Kind, Named, OneOf
from isim.scenario.schema import RUN_FILE
from isim.scenario.units import COUNT_MAX

DOCS = Path(__file__).resolve().parents[1] / "docs"
RUN_FILE_PAGE = DOCS / "run-file.md"
CLI_PAGE = DOCS / "cli.md"
BEGIN = "<!-- made by tools/pages.py from the parser: do not edit -->\n"
END = "<!-- end of what is made -->\n"

_HEAD = """\
# The run file, key by key

Made by `make pages` from the tables that read the file; do not edit. What the blocks are for is in
[the README](../README.md), [workloads](workloads.md), [models](models.md) and [the engine](engine.md).

A run file is YAML or JSON. Quantities carry their units, shares are decimals or percentages, an unknown key is an
error, and so is a key that is there twice. Where a key may be left out, the last column says what decides then; `null`
and `none` mean the same as leaving a key out where that column says "or `null`". Any value can be overridden on the
command line: `--set engine.max_num_seqs=64`.
"""
_TABLE = "| key | value | meaning | left out |\n|---|---|---|---|\n"

Group = Block | OneOf | Named


class Page:
    """Sections in the order in which their keys are met; a group that comes again is described once."""

    def __init__(self, titles: dict[int, str]) -> None:
        self.sections: list[str] = []
        self.titles: dict[int, str] = {}
        self._known = titles

    def group(self, group: Group, path: str) -> None:
        """Describe a group and, after it, all that are in it."""
        if id(group) in self.titles:
            return
        self.titles[id(group)] = path
        title = f"`{path}`" if path else "The file"
        parts = [f"## {title}\n"] + ([f"{group.doc}\n"] if group.doc else [])
        if isinstance(group, Named):
            self.sections.append("\n".join([*parts, "At least one, each under a name of your choice.\n"]))
            self.group(group.block, f"{path}.NAME")
            return
        if isinstance(group, Block):
            if group.short:
                parts.append(f"A text or value in its place is short for `{group.short}`.\n")
            self.sections.append("\n".join([*parts, self._table(group, path, ())]))
        else:
            parts.append(_short(group) + "\n")
            self.sections.append("\n".join(parts))
            for tag, block in group.blocks.items():
                text = f"### {title} with `{group.tag}: {tag}`\n\n{block.doc}\n\n"
                self.sections.append(text + self._table(block, path, (f"`{group.tag}`", f"`{tag}`")))
        blocks = [group] if isinstance(group, Block) else group.blocks.values()
        for block in blocks:
            for key, field in block.fields.items():
                if not isinstance(field.kind, Kind):
                    self.group(field.kind, f"{path}.{key}" if path else key)

    def _table(self, block: Block, path: str, tag: tuple[str, ...]) -> str:
        rows = [f"| {tag[0]} | {tag[1]} | | required |\n"] if tag else []
        for key, field in block.fields.items():
            where = f"{path}.{key}" if path else key
            cells = (f"`{key}`", self._value(field, where), field.doc, _left_out(field))
            rows.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n")
        return _TABLE + "".join(rows)

    def _value(self, field: Field, path: str) -> str:
        if isinstance(field.kind, Kind):
            return _scalar(field.kind.schema)
        path = self._known.get(id(field.kind), path)
        return f"[`{path}`](#{slug(f'`{path}`')})"


def slug(heading: str) -> str:
    """The anchor of a heading: lower case, blanks as hyphens, no other marks."""
    kept = "".join(letter for letter in heading.lower() if letter.isalnum() or letter in " -_")
    return kept.strip().replace(" ", "-")


def _short(union: OneOf) -> str:
    listed = ", ".join(f"`{tag}`" for tag in union.blocks)
    text = f"The key `{union.tag}` says which it is: {listed}."
    if union.plain:
        return f"{text} A bare value in its place is short for `{union.plain}` with that as `{union.short}`."
    if not union.short:
        return text
    return f"{text} A name in its place is short for the block with that `{union.tag}` and nothing else."


def _scalar(schema: dict[str, Any]) -> str:
    if "description" in schema:
        return str(schema["description"]).replace('"', "`")
    if "enum" in schema:
        return ", ".join(f"`{name}`" for name in schema["enum"])
    kind = schema["type"]
    if kind == "integer":
        least, most = schema["minimum"], schema["maximum"]
        if least == most:
            return f"`{least}`"
        return f"whole number, {least:,} or more" if most == COUNT_MAX else f"whole number, {least:,} to {most:,}"
    if kind == "array":
        return f"list of: {_scalar(schema['items'])}"
    if kind == "boolean":
        return "`true` or `false`"
    if "examples" in schema:
        return "such as " + ", ".join(f"`{example}`" for example in schema["examples"])
    return "text"


def _left_out(field: Field) -> str:
    if field.required:
        return "required"
    default = field.default.value if isinstance(field.default, Enum) else field.default
    text = field.rule or ("" if default is None else f"`{str(default).lower()}`")
    if not text:
        text = "that of the named preset" if isinstance(field.kind, Kind) else "all of it by default"
    return " ".join(filter(None, [text, "(or `null`)" if field.nullable else ""]))


def run_file_page() -> str:
    """docs/run-file.md."""
    first = Page({})
    first.group(RUN_FILE, "")
    page = Page(first.titles)
    page.group(RUN_FILE, "")
    return "\n".join([_HEAD, *page.sections])


def verbs() -> dict[str, argparse.ArgumentParser]:
    """The parser of each verb; one that has verbs of its own stands as each of these."""
    return dict(_verbs("", _parser()))


def _verbs(path: str, parser: argparse.ArgumentParser) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    (action,) = (each for each in parser._actions if isinstance(each, argparse._SubParsersAction))
    for name, verb in action.choices.items():
        if any(isinstance(each, argparse._SubParsersAction) for each in verb._actions):
            yield from _verbs(f"{path}{name} ", verb)
        else:
            yield f"{path}{name}", verb


def _options(verb: argparse.ArgumentParser) -> bool:
    return any(each.option_strings and not isinstance(each, argparse._HelpAction) for each in verb._actions)


def _positionals(verb: argparse.ArgumentParser) -> list[str]:
    forms: dict[object, str] = {None: "{}", "?": "[{}]", "+": "{}...", "*": "[{}...]"}
    names = [
        (each.nargs, "|".join(map(str, each.choices or ())) or each.metavar)
        for each in verb._actions
        if not each.option_strings
    ]
    return [forms[nargs].format(name) for nargs, name in names]


def _arguments(verb: argparse.ArgumentParser) -> Iterator[tuple[str, str]]:
    for action in verb._actions:
        if isinstance(action, argparse._HelpAction):
            continue
        choices = "\\|".join(map(str, action.choices or ()))
        name = ", ".join(action.option_strings)
        value = choices or (str(action.metavar or action.dest) if action.nargs != 0 else "")
        text = action.help or ""
        if action.option_strings and action.nargs != 0 and isinstance(action.default, str):
            text += f" (default: `{action.default}`)"
        yield f"`{' '.join(filter(None, [name, value]))}`", text


def cli_reference() -> str:
    """What stands between the marks of docs/cli.md."""
    parts = []
    for name, verb in verbs().items():
        usage = " ".join([f"isim {name}", *_positionals(verb), "[options]" if _options(verb) else ""]).strip()
        rows = "".join(f"| {argument} | {text} |\n" for argument, text in _arguments(verb))
        parts.append(f"### `{usage}`\n\n{verb.description}\n\n| argument | meaning |\n|---|---|\n{rows}")
    return "\n".join(parts)


def cli_page(current: str) -> str:
    """docs/cli.md with what is between the marks made anew."""
    before, _, rest = current.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{cli_reference()}\n{END}{after}"


def pages() -> dict[Path, str]:
    """What each page should be."""
    return {RUN_FILE_PAGE: run_file_page(), CLI_PAGE: cli_page(CLI_PAGE.read_text(encoding="utf-8"))}


def stale() -> list[Path]:
    """The pages that are not what they should be."""
    return [page for page, text in pages().items() if not page.exists() or page.read_text(encoding="utf-8") != text]


def main() -> int:
    arguments = argparse.ArgumentParser(description="Write the reference pages, or check them.")
    arguments.add_argument("--check", action="store_true", help="write nothing; exit with 1 where a page is stale")
    if arguments.parse_args().check:
        for page in stale():
            print(f"{page.name}: not what the parser and the schema say; `make pages` writes it", file=sys.stderr)
        return 1 if stale() else 0
    for page, text in pages().items():
        page.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
