"""The main numbers of a result by name: what is varied, compared, and looked at together.

`band_percent` is the relative difference within which two configurations are a tie: what real servers that were
configured alike differ by between runs, and what a simulator has not been able to rank. Source: a study of published
vLLM runs of several configurations on equal arrivals (`docs/metrics.md`).
"""

from __future__ import annotations

from enum import StrEnum
from functools import reduce

import msgspec

from isim.analyze.schema import Result

TIE_PERCENT = 2
TTFT_TIE_PERCENT = 5


class Unit(StrEnum):
    TIME_NS = "ns"
    PER_SECOND = "per_s"
    SHARE = "share"
    COUNT = "count"


class Metric(msgspec.Struct, frozen=True):
    """`name` is where the number stands in the result; `label` is what a report calls it."""

    name: str
    label: str
    unit: Unit
    band_percent: int = TIE_PERCENT

    def of(self, result: Result) -> int | float | None:
        """The number; None where it, or the block it stands in, is null."""
        found = reduce(lambda block, key: None if block is None else getattr(block, key), self.name.split("."), result)
        assert found is None or isinstance(found, int | float)
        return found


def _latencies() -> list[Metric]:
    figures = {
        "ttft": ("TTFT", ("mean", "p50", "p90", "p99"), TTFT_TIE_PERCENT),
        "tpot": ("TPOT", ("mean", "p50", "p99"), TIE_PERCENT),
        "itl": ("ITL", ("p50", "p99"), TIE_PERCENT),
        "e2e": ("E2E", ("mean", "p50", "p90", "p99"), TIE_PERCENT),
        "overhead": ("overhead", ("mean",), TTFT_TIE_PERCENT),
        "queue": ("queue", ("mean", "p99"), TTFT_TIE_PERCENT),
        "prefill": ("prefill", ("mean", "p99"), TTFT_TIE_PERCENT),
    }
    return [
        Metric(f"latency.{name}_ns.{figure}", f"{label} {figure}", Unit.TIME_NS, band)
        for name, (label, chosen, band) in figures.items()
        for figure in chosen
    ]


METRICS: tuple[Metric, ...] = (
    *_latencies(),
    Metric("throughput.whole_run.requests_per_s", "requests/s", Unit.PER_SECOND),
    Metric("throughput.whole_run.output_tokens_per_s", "output tok/s", Unit.PER_SECOND),
    Metric("throughput.steady_state.output_tokens_per_s", "output tok/s, steady", Unit.PER_SECOND),
    Metric("slo.goodput.share", "goodput", Unit.SHARE),
    Metric("busy.utilisation", "busy", Unit.SHARE),
    Metric("load.seat_share", "seats taken", Unit.SHARE),
    Metric("load.kv_share", "KV high water", Unit.SHARE),
    Metric("kv.usable_blocks", "KV blocks", Unit.COUNT),
    Metric("counts.preemptions", "preemptions", Unit.COUNT),
    Metric("counts.completed", "completed", Unit.COUNT),
    Metric("counts.rejected", "rejected", Unit.COUNT),
    Metric("counts.hit_tokens", "prefix hit tokens", Unit.COUNT),
)
"""Everything that `isim compare` sets side by side."""

_UNMOVED = "latency.overhead_ns.mean"
VARIED: tuple[Metric, ...] = tuple(
    metric
    for metric in METRICS
    if metric.name != _UNMOVED and (metric.unit is not Unit.COUNT or metric.name == "counts.preemptions")
)
"""What the sensitivity tells the change of. The overhead of requests has nothing to do with step times."""


def change(value: int | float | None, other: int | float | None) -> float | None:
    """other / value - 1, from the exact difference; None where there is nothing to relate."""
    if value is None or other is None or value == 0:
        return None
    return (other - value) / value


def beyond(value: int | float, other: int | float, percent: int) -> bool:
    """Whether two values differ by more than so many percent of the first."""
    return abs(other - value) * 100 > percent * abs(value)
