"""From the workload that a scenario asks for to the requests it stands for.

What reads a kind is imported where that kind is asked for: a run pays for one of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import msgspec

from isim.scenario.types import (
    AzureTrace,
    ClosedLoop,
    EmpiricalFile,
    Generated,
    Mixture,
    MooncakeTrace,
    Sessions,
    Trace,
    Traffic,
    Workload,
)
from isim.workload.errors import WorkloadError
from isim.workload.lines import Lines
from isim.workload.request import Request
from isim.workload.rows import Part, Row, place_requests

if TYPE_CHECKING:
    from isim.workload.feedback import Feedback

Lengths = TypeVar("Lengths", Generated, Traffic)

Label = tuple[str | None, str | None, int | None, int | None]
"""(class, session, input tokens as the client counted them, reasoning tokens) of a request."""


class OpenWorkload:
    """A workload that is ready to be read, once or more often.

    `assumptions` are sentences for the report; those that depend on the trace are there once reading got to them, all
    of them after its end. `labels` has one entry for each request read that has any label, by index.
    """

    def __init__(self, workload: Workload, seed: int, base_dir: Path) -> None:
        self._seed = seed
        self._base_dir = base_dir
        self._lines: Lines | None = None
        self._lengths_sha256: list[str] = []
        self.assumptions: list[str] = []
        self.labels: dict[int, Label] = {}
        self._workload = self._with_lengths(workload)

    @property
    def sha256(self) -> str | None:
        """SHA-256 of the decompressed trace up to the last row that was read; None where there is no trace.

        With `limit` or `window` reading stops early, and the digest covers what came until then. Of a generator it is
        that of its file of lengths, or of the digests of several, a line each.
        """
        if self._lines is not None:
            return self._lines.sha256
        digests = self._lengths_sha256
        return sha256("\n".join(digests).encode()).hexdigest() if len(digests) > 1 else "".join(digests) or None

    def source(self) -> Iterator[Request] | Feedback:
        """What a run is fed with: all requests, or clients that wait for answers."""
        workload = self._workload
        if not isinstance(workload, ClosedLoop | Sessions):
            return self.requests()
        from isim.workload.feedback import open_feedback

        self.assumptions = ["a client reacts to an answer no sooner than a nanosecond after it"]
        return open_feedback(workload, self._seed)

    def requests(self) -> Iterator[Request]:
        """Every request from the first on, arrival times never going back. Raises WorkloadError at a bad row.

        What clients that wait for answers send depends on the answers, so of them there is no such list: WorkloadError.
        """
        workload = self._workload
        if isinstance(workload, ClosedLoop | Sessions):
            raise WorkloadError("workload: what these clients send depends on when they are answered; run it first")
        self.labels = {}
        if isinstance(workload, Generated | Mixture):
            from isim.workload.generate import generated_notes, generated_requests

            self.assumptions = generated_notes(workload)
            requests = generated_requests(workload, self._seed)
            return requests if isinstance(workload, Generated) else self._labelled(requests)
        self.assumptions = notes = _notes(workload)
        place, rows = self._rows(workload, notes)
        part = Part(
            where=self._where(workload.path),
            place=place,
            limit=workload.limit,
            time_scale=workload.time_scale,
            window=workload.window,
        )
        requests = place_requests(rows, part, notes)
        return requests if isinstance(workload, AzureTrace) else self._labelled(requests)

    def check(self) -> None:
        """Read the beginning: a trace that cannot be opened or whose first row is bad is told before anything runs."""
        if not isinstance(self._workload, Generated | Mixture | ClosedLoop | Sessions):
            next(self._rows(self._workload, [])[1], None)
            self._lines = None

    def _labelled(self, requests: Iterator[Request]) -> Iterator[Request]:
        labels = self.labels
        for request in requests:
            label = (request.request_class, request.session, request.client_input_tokens, request.reasoning_tokens)
            if label != (None, None, None, None):
                labels[request.index] = label
            yield request

    def _with_lengths(self, workload: Workload) -> Workload:
        """The workload with lengths in the place of their files."""
        if isinstance(workload, Generated):
            return self._read_lengths(workload)
        if isinstance(workload, Mixture):
            classes = tuple([(name, self._read_lengths(traffic)) for name, traffic in workload.classes])
            return msgspec.structs.replace(workload, classes=classes)
        if isinstance(workload, ClosedLoop | Sessions):
            return msgspec.structs.replace(workload, traffic=self._read_lengths(workload.traffic))
        return workload

    def _read_lengths(self, traffic: Lengths) -> Lengths:
        for key in ("input_tokens", "output_tokens"):
            spec = getattr(traffic, key)
            if isinstance(spec, EmpiricalFile):
                from isim.workload.lengths import read_lengths

                where = self._where(spec.path)
                lines = Lines(Path(where), where)
                traffic = msgspec.structs.replace(traffic, **{key: read_lengths(lines, where)})
                self._lengths_sha256.append(lines.sha256)
        return traffic

    def _where(self, path: str) -> str:
        return str(self._base_dir / path)

    def _rows(self, workload: Trace, notes: list[str]) -> tuple[str, Iterator[Row]]:
        where = self._where(workload.path)
        self._lines = lines = Lines(Path(where), where)
        if isinstance(workload, AzureTrace):
            from isim.workload.azure import azure_rows

            return "column TIMESTAMP", azure_rows(lines, where)
        if isinstance(workload, MooncakeTrace):
            from isim.workload.mooncake import PLACE, mooncake_rows

            return PLACE, mooncake_rows(lines, where, notes)
        from isim.workload.own import own_rows

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
