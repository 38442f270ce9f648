"""A case of the reference, where cases come from, and what it means that one agrees.

A folder of cases has `index.json` beside `cases/NAME/`, with the inputs and, where there was output,
`expected.json.gz`. A pack is one gzipped file of JSON lines with the same in it; the tests of the project read that.

A checker gives two values of the same shape: what the reference found, as far as it is covered, and what isim finds.
They agree if they are equal: numbers as numbers, keys in any order, lists in theirs.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from isim.record.errors import IsimError

_ABSENT = "nothing"


class CaseError(IsimError):
    """No cases, or some that cannot be read."""


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """`inputs` are texts by file name; `expected` is None where the reference printed nothing."""

    name: str
    category: str
    command: str
    exit: int
    inputs: dict[str, str]
    expected: Any = None

    def words(self) -> list[str]:
        return self.command.split()

    def input_json(self) -> Any:
        return json.loads(self.inputs["input.json"])


class Compared(msgspec.Struct, frozen=True):
    """What the reference found and what isim finds, in the same shape."""

    expected: Any
    found: Any


class NotCovered(msgspec.Struct, frozen=True):
    """Why a case is not compared."""

    reason: str


Verdict = Compared | NotCovered


class Check(msgspec.Struct, frozen=True):
    """A checker for the cases of a category whose command begins so."""

    category: str
    command: str
    judge: Callable[[Case], Verdict]


class Difference(msgspec.Struct, frozen=True):
    """One value that differs, `path` as in `$.scenario.links[3]`."""

    path: str
    expected: Any
    found: Any

    def __str__(self) -> str:
        return f"{self.path}: expected {_short(self.expected)}, found {_short(self.found)}"


def differences(compared: Compared) -> list[Difference]:
    """Every innermost value that differs."""
    return list(_differences("$", compared.expected, compared.found))


def _differences(path: str, expected: Any, found: Any) -> Iterator[Difference]:
    if isinstance(expected, dict) and isinstance(found, dict):
        for key in dict.fromkeys((*expected, *found)):
            yield from _differences(f"{path}.{key}", expected.get(key, _ABSENT), found.get(key, _ABSENT))
    elif isinstance(expected, list) and isinstance(found, list) and len(expected) == len(found):
        for index, (one, other) in enumerate(zip(expected, found, strict=True)):
            yield from _differences(f"{path}[{index}]", one, other)
    elif isinstance(expected, bool) is not isinstance(found, bool) or expected != found:
        yield Difference(path, expected, found)


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 120 else f"{text[:117]}..."


def load_cases(place: Path) -> list[Case]:
    """The cases of a folder or a pack, in the order of the index. Raises CaseError."""
    try:
        if place.is_dir():
            return [_of_folder(place, entry) for entry in json.loads((place / "index.json").read_text())]
        with gzip.open(place, "rt", encoding="utf-8") as lines:
            return [msgspec.json.decode(line, type=Case) for line in lines]
    except (OSError, ValueError, KeyError, EOFError, zlib.error) as error:
        message = f"{place}: expected cases, as a folder with index.json or a pack: {type(error).__name__}: {error}"
        raise CaseError(message) from None


def _of_folder(place: Path, entry: dict[str, Any]) -> Case:
    folder = place / "cases" / entry["name"]
    inputs: dict[str, str] = {}
    expected = None
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        if path.name == "expected.json.gz":
            expected = json.loads(gzip.decompress(path.read_bytes()))
        elif path.is_file():
            inputs[path.name] = path.read_bytes().decode("utf-8", "replace")
    return Case(
        name=entry["name"],
        category=entry["category"],
        command=entry["command"],
        exit=entry["exit"],
        inputs=inputs,
        expected=expected,
    )


def pack(cases: Sequence[Case], place: Path) -> None:
    """Write the cases as a pack; the same cases give the same bytes."""
    lines = b"".join(msgspec.json.encode(case, order="sorted") + b"\n" for case in cases)
    place.write_bytes(gzip.compress(lines, 9, mtime=0))
