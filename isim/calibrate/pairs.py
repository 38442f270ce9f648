"""Measured and simulated side by side: the same metrics of the same requests, by the same definitions."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import msgspec

from isim.analyze.latency import distribution, request_times
from isim.analyze.metrics import METRICS, Metric
from isim.analyze.result import Analysis
from isim.calibrate.measured import LATENCIES, Measured, Row
from isim.workload.errors import WorkloadError, complain

BY_NAME = {metric.name: metric for metric in METRICS}


class Pair(msgspec.Struct, frozen=True):
    """`simulated` None where the run has no such number."""

    metric: Metric
    measured: int | float
    simulated: int | float | None

    @property
    def error(self) -> float | None:
        if self.simulated is None:
            return None
        return (self.simulated - self.measured) / self.measured


class Sides(msgspec.Struct, frozen=True, kw_only=True):
    """Pairs by the name of the metric; of single requests the medians of their errors, and how many there are.

    `rows` are the numbers of the measured requests that were compared; `missing` counts those of which the run has
    nothing to compare.
    """

    pairs: dict[str, Pair]
    medians: dict[str, tuple[int, float]] = {}
    requests: int | None = None
    rows: frozenset[int] = frozenset()
    missing: int = 0


def side_by_side(
    measured: Measured, analysis: Analysis, *, reacting: bool, among: Collection[int] | None = None
) -> Sides:
    """Everything that was measured beside what the run says. Raises WorkloadError for a row of no request.

    Which requests clients that wait for answers come to send depends on the answers: where the workload is `reacting`,
    a row of no request is one that is missing. Of rows, only those `among` are compared, if that is given.
    """
    if measured.rows:
        return _of_rows(measured, analysis, _requests(measured, analysis, reacting), among)
    pairs = {}
    for name, value in measured.figures.items():
        metric = BY_NAME[name]
        pairs[name] = Pair(metric, value, metric.of(analysis.result))
    return Sides(pairs=pairs)


def _of_rows(
    measured: Measured, analysis: Analysis, requests: Sequence[int | None], among: Collection[int] | None
) -> Sides:
    """Of the requests that both have and neither calls warm-up.

    A latency that the run has of none of them is there all the same, with nothing simulated.
    """
    found: dict[str, list[tuple[int, int]]] = {latency: [] for latency in LATENCIES}
    alone: dict[str, list[int]] = {latency: [] for latency in LATENCIES}
    compared = set()
    missing = 0
    for number, (row, request) in enumerate(zip(measured.rows, requests, strict=True)):
        told = (row.ttft_ns, row.tpot_ns, row.e2e_ns)
        if not any(told) or (request is not None and request < analysis.first_measured):
            continue
        simulated = _times(analysis, request)
        if simulated[2] is None or not (among is None or number in among):
            missing += 1
            continue
        compared.add(number)
        for latency, one, other in zip(LATENCIES, told, simulated, strict=True):
            if one is not None and other is not None:
                found[latency].append((one, other))
            elif one is not None:
                alone[latency].append(one)
    if not compared:
        raise WorkloadError(f"{measured.file}: expected requests that the run completes after its warm-up, found none")
    pairs: dict[str, Pair] = {}
    for latency, values in found.items():
        beside = [pair[0] for pair in values] or alone[latency]
        pairs |= _figures(latency, beside, [pair[1] for pair in values])
    medians = {f"{latency}_ns": _median(found[latency]) for latency in ("tpot", "e2e") if found[latency]}
    return Sides(pairs=pairs, medians=medians, requests=len(compared), rows=frozenset(compared), missing=missing)


def _times(analysis: Analysis, request: int | None) -> tuple[int | None, int | None, int | None]:
    """TTFT, TPOT and E2E of a request of the run."""
    if request is None:
        return None, None, None
    return request_times(analysis.collector.requests, request, analysis.output_tokens[request])


def _figures(latency: str, measured: list[int], simulated: list[int]) -> dict[str, Pair]:
    if not measured:
        return {}
    one, other = distribution(measured), distribution(simulated)
    beginning = f"latency.{latency}_ns."
    figures = [name.removeprefix(beginning) for name in BY_NAME if name.startswith(beginning)]
    return {
        beginning + figure: Pair(BY_NAME[beginning + figure], getattr(one, figure), getattr(other, figure))
        for figure in figures
    }


def _median(values: list[tuple[int, int]]) -> tuple[int, float]:
    """How many, and the median of their relative errors, the lower of two in the middle."""
    errors = sorted(abs(other - one) / one for one, other in values)
    return len(errors), errors[(len(errors) - 1) // 2]


def _requests(measured: Measured, analysis: Analysis, reacting: bool) -> Sequence[int | None]:
    """The request that each row is of, by its index in the run; None where a run that reacts has no such request."""
    ids = analysis.collector.requests.ids
    rows = measured.rows
    if rows[0].id is None:
        if len(rows) > len(ids):
            expected = f"at most {len(ids)} requests, as in the workload"
            complain(measured.file, rows[len(ids)].line, "", expected, "another")
        return range(len(rows))
    index = {name: request for request, name in enumerate(ids)}
    if reacting:
        return [index.get(row.id or "") for row in rows]
    return [_known(measured.file, row, index) for row in rows]


def _known(file: str, row: Row, index: dict[str, int]) -> int:
    assert row.id is not None
    if row.id not in index:
        complain(file, row.line, "id", "the id of a request of the workload", row.id)
    return index[row.id]
