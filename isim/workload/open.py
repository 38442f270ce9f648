"""From the workload that a scenario asks for to the requests it stands for."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from isim.scenario.types import AzureTrace, Generated, MooncakeTrace, Trace, Workload
from isim.workload.azure import azure_rows
from isim.workload.generate import generated_notes, generated_requests
from isim.workload.lines import Lines
from isim.workload.mooncake import PLACE, mooncake_rows
from isim.workload.own import own_rows
from isim.workload.request import Request
from isim.workload.rows import Part, Row, place_requests


class OpenWorkload:
    """A workload that is ready to be read, once or more often.

    `assumptions` are sentences for the report; those that depend on the trace are there once reading got to them, all
    of them after its end.
    """

    def __init__(self, workload: Workload, seed: int, base_dir: Path) -> None:
        self._workload = workload
        self._seed = seed
        self._base_dir = base_dir
        self._lines: Lines | None = None
        self.assumptions: list[str] = []

    @property
    def sha256(self) -> str | None:
        """SHA-256 of the decompressed trace up to the last row that was read; None where there is no trace.

        With `limit` or `window` reading stops early, and the digest covers what came until then.
        """
        return None if self._lines is None else self._lines.sha256

    def requests(self) -> Iterator[Request]:
        """Every request from the first on, arrival times never going back. Raises WorkloadError at a bad row."""
        workload = self._workload
        if isinstance(workload, Generated):
            self.assumptions = generated_notes(workload)
            return generated_requests(workload, self._seed)
        self.assumptions = notes = _notes(workload)
        place, rows = self._rows(workload, notes)
        part = Part(
            where=self._where(workload),
            place=place,
            limit=workload.limit,
            time_scale=workload.time_scale,
            window=workload.window,
        )
        return place_requests(rows, part, notes)

    def check(self) -> None:
        """Read the beginning: a trace that cannot be opened or whose first row is bad is told before anything runs."""
        if not isinstance(self._workload, Generated):
            next(self._rows(self._workload, [])[1], None)
            self._lines = None

    def _where(self, workload: Trace) -> str:
        return str(self._base_dir / workload.path)

    def _rows(self, workload: Trace, notes: list[str]) -> tuple[str, Iterator[Row]]:
        where = self._where(workload)
        self._lines = lines = Lines(Path(where), where)
        if isinstance(workload, AzureTrace):
            return "column TIMESTAMP", azure_rows(lines, where)
        if isinstance(workload, MooncakeTrace):
            return PLACE, mooncake_rows(lines, where, notes)
        place, rows = own_rows(lines, where, workload.format, notes)
        return f"{place} arrival", rows


def open_workload(workload: Workload, seed: int, base_dir: Path) -> OpenWorkload:
    """The workload of a scenario; paths in it are relative to `base_dir`. WorkloadError if it cannot begin."""
    opened = OpenWorkload(workload, seed, base_dir)
    opened.check()
    return opened


def _notes(workload: Trace) -> list[str]:
    notes = []
    if isinstance(workload, AzureTrace):
        notes.append("the trace does not say which prompts share a prefix: none do")
    if isinstance(workload, MooncakeTrace):
        notes.append("hash_ids are the identity of 512 tokens each; the session is the second one of a prompt")
    if workload.window is not None:
        window = workload.window
        notes.append(f"window: arrivals from {window.start_ns} up to {window.end_ns} ns; its start is t = 0")
    if workload.limit is not None:
        notes.append(f"limit: the first {workload.limit} requests")
    scale = workload.time_scale
    if scale.numerator != scale.denominator:
        factor = f"{scale.numerator}/{scale.denominator}"
        notes.append(f"time_scale: arrival times are multiplied by {factor}, rounded half to even")
    return notes
