"""The closer look at a run, as a person reads it: what steps spend time on, and what a small error would change."""

from __future__ import annotations

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from isim.analyze.metrics import VARIED, Metric, Unit
from isim.analyze.schema import Result
from isim.analyze.schema_details import STEEP_TIMES, STEP_TIME_PERCENT, DetailState, MetricChange
from isim.report.text import bar, change_text, count_text, rate_text, share_text, time_text

MOST_OPERATIONS = 8
_BAR_WIDTH = 20
_SHOWN = (
    "latency.ttft_ns.mean",
    "latency.ttft_ns.p99",
    "latency.queue_ns.mean",
    "latency.prefill_ns.mean",
    "latency.tpot_ns.mean",
    "latency.itl_ns.p99",
    "latency.e2e_ns.mean",
    "latency.e2e_ns.p99",
    "throughput.whole_run.output_tokens_per_s",
    "slo.goodput.share",
)
_WHY_NOT = {
    DetailState.TOO_LARGE: "not looked at, as the run is large; `isim run --details always` does",
    DetailState.OFF: "not looked at, as asked; `isim run --details always` does",
}
_LABELS: dict[str, Metric] = {metric.name: metric for metric in VARIED}


def value_text(unit: Unit, value: int | float | None) -> str:
    """A number of this unit, with three digits; a dash for none."""
    if value is None:
        return "-"
    if unit is Unit.TIME_NS:
        return time_text(int(value))
    if unit is Unit.COUNT:
        return f"{value:,}"
    return share_text(value) if unit is Unit.SHARE else rate_text(value)


def steep(result: Result, latency: str) -> bool:
    """Whether any figure of this latency changes far more than step times do."""
    found = result.details.sensitivity
    return found is not None and any(
        change.steep and change.metric.startswith(f"latency.{latency}.") for change in found.metrics
    )


def steep_note() -> str:
    least = STEEP_TIMES * STEP_TIME_PERCENT
    return f"~ changes by more than {least} % when steps take {STEP_TIME_PERCENT} % more or less: not to be quoted."


def step_time(result: Result, table: Table, unicode: bool) -> list[RenderableType]:
    """The split of the device's time, filled into an empty table of three columns."""
    operations = result.details.step_time
    if not operations:
        return []
    for one in operations[:MOST_OPERATIONS]:
        meter = Text(bar(one.share, _BAR_WIDTH, unicode=unicode), style="cyan")
        table.add_row(Text(one.operation, style="bold"), meter, share_text(one.share), time_text(one.total_ns))
    more = len(operations) - MOST_OPERATIONS
    rest = [Text(f"and {count_text(more, 'smaller operation')} in the result.")] if more > 0 else []
    return [table, *rest, Text()]


def sensitivity(result: Result, table: Table) -> list[RenderableType]:
    """The changes, filled into an empty table of five columns; or why there are none."""
    details = result.details
    found = details.sensitivity
    if found is None:
        why = _WHY_NOT.get(details.state) or f"none: {details.no_sensitivity}"
        return [Text.assemble(("Sensitivity: ", "bold"), f"{why}."), Text()]
    changes: dict[str, MetricChange] = {change.metric: change for change in found.metrics}
    for name in _SHOWN:
        change, metric = changes.get(name), _LABELS[name]
        if change is not None:
            table.add_row(
                Text(f"{metric.label} ~" if change.steep else metric.label, style="bold"),
                value_text(metric.unit, change.value),
                value_text(metric.unit, change.faster),
                change_text(change.faster_change),
                value_text(metric.unit, change.slower),
                change_text(change.slower_change),
            )
    shorter, longer = ((load or "unknown").replace("_", " ") for load in (found.faster_load, found.slower_load))
    loads = Text(f"Load with steps {STEP_TIME_PERCENT} % shorter: {shorter}; longer: {longer}.")
    return [table, loads, Text()]
