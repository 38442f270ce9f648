"""What was measured, in one of two forms, told by the file's name.

Figures (YAML or JSON, any ending but those below): names of metrics as `isim compare` and `result.json` have them, each
with a value and its unit, under its whole name.

    latency.ttft_ns.mean: 42.2 ms
    latency.tpot_ns.mean: 12.25 ms
    throughput.steady_state.output_tokens_per_s: 620 /s

Requests (`.csv`, `.jsonl`, gzip or not, also with `.gz` behind): one row for each request that was measured.

    ttft | ttft_s | ttft_ms | ttft_us | ttft_ns
                    time to the first token: a number of that unit, or for the first of them with its unit, "42 ms"
    tpot..., e2e... likewise; at least one of the three latencies is there, each at most once
    id              the request's id in the workload; on every row or on none. Without, rows are requests in order of
                    arrival from the first on
    measured        0 leaves the row out, as `requests.csv` does for warm-up
    status          anything but `completed` leaves the row out

All columns of `requests.csv` are allowed, so that file is read as it is; those not named here are not looked at. A cell
that is empty was not measured.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any, NoReturn

import msgspec

from isim.analyze.metrics import METRICS, Unit
from isim.analyze.table import COLUMNS as TABLE
from isim.scenario.errors import ScenarioError
from isim.scenario.fields import Block, Field, Kind, Reading, quantity, read_block
from isim.scenario.files import read_bytes
from isim.scenario.nodes import Limits, Node, NodeKind, decode, parse
from isim.scenario.units import TIME_MAX_NS, Dimension, QuantityError, read_rate
from isim.workload.cells import Cells, Columns, csv_cells, csv_header, json_cells
from isim.workload.errors import WorkloadError, complain
from isim.workload.fields import UNITS_NS, time_ns, time_with_unit_ns
from isim.workload.lines import Lines
from isim.workload.own import MAX_ID_CHARACTERS, is_name

LATENCIES = ("ttft", "tpot", "e2e")
MOST_ROWS = 1_000_000
LIMITS = Limits(noun="a file of measured figures")
_CSV = (".csv", ".csv.gz")
_JSONL = (".jsonl", ".jsonl.gz")

_TIMES: dict[str, tuple[str, int]] = {
    column: (latency, unit_ns)
    for latency in LATENCIES
    for column, unit_ns in (
        (latency, 0),
        *((f"{latency}_{unit}", UNITS_NS[unit]) for unit in ("s", "ms", "us", "ns")),
    )
}
"""The latency and the unit of each column of times; 0: the unit is in the value."""

_COLUMNS = Columns(
    names=tuple(dict.fromkeys(("id", *_TIMES, *TABLE))),
    texts=("id", "status", "reason", "class", "session"),
    units=LATENCIES,
)
_STATUSES = ("completed", "rejected", "unfinished", "aborted")


class Row(msgspec.Struct, frozen=True):
    """One measured request; None is what was not measured of it."""

    line: int
    id: str | None
    ttft_ns: int | None
    tpot_ns: int | None
    e2e_ns: int | None


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """Figures by the name of the metric, or rows. `sha256` is of the file as it is, or of the rows unpacked."""

    file: str
    sha256: str
    figures: dict[str, int | float] = {}
    rows: tuple[Row, ...] = ()


def load_measured(path: str) -> Measured:
    """What the file says. Raises ScenarioError or WorkloadError, with the place, for what cannot be followed."""
    name = path.lower()
    if name.endswith(_CSV + _JSONL):
        return _requests(path, csv=name.endswith(_CSV))
    return _figures(path)


def _read_rate(node: Node) -> float:
    expected = 'a rate above 0 with its unit, such as "620 /s"'
    if node.kind is not NodeKind.TEXT or len(node.raw) > 80:
        raise QuantityError(expected)
    try:
        rate = read_rate(node.raw)
    except QuantityError:
        raise QuantityError(expected) from None
    if rate.numerator == 0:
        raise QuantityError(expected)
    return rate.numerator / rate.denominator


_KINDS: dict[Unit, Kind] = {
    Unit.TIME_NS: quantity(Dimension.DURATION, 1),
    Unit.PER_SECOND: Kind(_read_rate, {"type": "string", "examples": ["620 /s"]}),
}

FIGURES = Block(
    {metric.name: Field(_KINDS[metric.unit], metric.label) for metric in METRICS if metric.unit in _KINDS},
    "What was measured, by the names of result.json.",
)


def _figures(path: str) -> Measured:
    file = os.fspath(path)
    data = read_bytes(file, LIMITS)
    reading = Reading(file)
    text = decode(data, reading.complaints, LIMITS)
    root = None if text is None else parse(text, reading.complaints, limits=LIMITS)
    values = None if root is None else read_block(reading, FIGURES, root, "")
    found: dict[str, Any] = {}
    if values is not None:
        found = {name: value for name, value in values.values.items() if value is not None}
        if not found and not reading.complaints:
            reading.complain(values.place, "", "expected at least one metric, found none")
    if reading.complaints:
        raise ScenarioError(file, reading.complaints)
    return Measured(file=path, sha256=sha256(data).hexdigest(), figures=found)


def _requests(path: str, *, csv: bool) -> Measured:
    lines = Lines(Path(path), path)
    numbered = iter(lines)
    if csv:
        line, header, names = csv_header(numbered, path, _COLUMNS)
        if not any(name in _TIMES for name in names):
            complain(path, line, "header", f"a column of {', '.join(LATENCIES)}, such as ttft_ns", header)
        cells = csv_cells(numbered, path, names)
    else:
        cells = json_cells(numbered, path, _COLUMNS)
    rows = tuple(_Reader(path, "column" if csv else "key").rows(cells))
    if not any(time is not None for row in rows for time in (row.ttft_ns, row.tpot_ns, row.e2e_ns)):
        raise WorkloadError(f"{path}: expected at least one request with a latency, found none")
    return Measured(file=path, sha256=lines.sha256, rows=rows)


class _Reader:
    def __init__(self, where: str, place: str) -> None:
        self._where, self._place = where, place
        self._names: dict[str, int] = {}

    def rows(self, cells: Iterator[Cells]) -> Iterator[Row]:
        """Every row, those left out with nothing measured."""
        first = True
        named = False
        for number, (line, fields, _) in enumerate(cells):
            if number == MOST_ROWS:
                complain(self._where, line, "", f"at most {MOST_ROWS} requests", "another")
            name = fields.get("id") or None
            if first:
                first, named = False, name is not None
            if (name is None) is named:
                self._complain(line, "id", "an id on every row or on none", name)
            if name is not None:
                self._name(line, name)
            yield Row(line, name, *self._times(line, fields))

    def _times(self, line: int, fields: dict[str, str]) -> list[int | None]:
        found: dict[str, int | None] = dict.fromkeys(LATENCIES)
        for column, (latency, unit_ns) in _TIMES.items():
            if text := fields.get(column):
                if found[latency] is not None:
                    self._complain(line, column, f"one column of {latency}", "another")
                found[latency] = self._time_ns(line, column, text, unit_ns)
        ttft_ns, e2e_ns = found["ttft"], found["e2e"]
        if ttft_ns is not None and e2e_ns is not None and e2e_ns < ttft_ns:
            self._complain(line, "e2e", f"no less than the time to the first token, {ttft_ns} ns", e2e_ns)
        return [None] * len(LATENCIES) if self._left_out(line, fields) else list(found.values())

    def _left_out(self, line: int, fields: dict[str, str]) -> bool:
        status, measured = fields.get("status") or "completed", fields.get("measured") or "1"
        if status not in _STATUSES:
            self._complain(line, "status", f"one of {', '.join(_STATUSES)}", status)
        if measured not in ("0", "1"):
            self._complain(line, "measured", "0 or 1", measured)
        return status != "completed" or measured == "0"

    def _time_ns(self, line: int, column: str, text: str, unit_ns: int) -> int:
        value = time_ns(text, unit_ns) if unit_ns else time_with_unit_ns(text)
        if value is None or not 0 < value[0] <= TIME_MAX_NS:
            expected = "a number above 0" if unit_ns else 'a time above 0 with its unit, like "42 ms"'
            self._complain(line, column, expected, text)
        return value[0]

    def _name(self, line: int, name: str) -> None:
        if not is_name(name):
            self._complain(line, "id", f"1 to {MAX_ID_CHARACTERS} printable characters", name)
        if name in self._names:
            self._complain(line, "id", f"an id that no row above has; first on line {self._names[name]}", name)
        self._names[name] = line

    def _complain(self, line: int, name: str, expected: str, found: str | int | None) -> NoReturn:
        complain(self._where, line, f"{self._place} {name}", expected, found)
