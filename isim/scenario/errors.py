"""What is wrong with a run file, said all at once and with places."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from isim.record.errors import IsimError

SHOWN = 100


class Place(msgspec.Struct, frozen=True, order=True):
    """Where a value was written: override 0 is the file, n the n-th `--set`. Lines and columns count from 1."""

    override: int
    line: int
    column: int

    def text(self, file: str) -> str:
        """`file:line:column`, or `--set[n]` for an override."""
        return f"--set[{self.override}]" if self.override else f"{file}:{self.line}:{self.column}"


class Complaint(msgspec.Struct, frozen=True, order=True):
    """One thing that is wrong. `path` is dotted, and empty where the whole file is meant.

    `code` is the contract's name for what is wrong, in formats that have such names.
    """

    place: Place
    path: str
    message: str
    code: str = ""

    def text(self, file: str) -> str:
        path = f"{self.path}: " if self.path else ""
        code = f" [{self.code}]" if self.code else ""
        return f"{self.place.text(file)}: {path}{self.message}{code}"


class ScenarioError(IsimError):
    """The run file, or an override of it, cannot be followed. `complaints` holds all there is to say, in order.

    `str()` has one line for each complaint, the first hundred of them.
    """

    exit_code = 2

    def __init__(self, file: str, complaints: Iterable[Complaint]) -> None:
        self.file = file
        self.complaints = sorted(complaints)
        lines = [complaint.text(file) for complaint in self.complaints[:SHOWN]]
        if len(self.complaints) > SHOWN:
            lines.append(f"and {len(self.complaints) - SHOWN} more complaints")
        super().__init__("\n".join(lines))
