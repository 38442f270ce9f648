"""A calibration as text: metrics before and after, factors before and after, and what to know before believing them."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.text import Text

from isim.analyze.metrics import METRICS
from isim.calibrate.schema import Calibration
from isim.report.details import value_text
from isim.report.terminal import bullets, empty_table, print_text
from isim.report.text import change_text, count_text, plain, share_text

_LABELS = {metric.name: metric.label for metric in METRICS}
_HOLDS = (
    "Fitted factors hold for the machine and the range of loads they were fitted on; the form of the model stays an "
    "estimate, so results that rest on them stay heuristic."
)


def render_calibration(told: Calibration, *, width: int, color: bool = False, unicode: bool = True) -> str:
    """At most `width` columns wide."""
    return print_text(lambda _: _whole(told, unicode), width=width, color=color)


def _whole(told: Calibration, unicode: bool) -> Group:
    requests = "" if told.requests is None else f", {count_text(told.requests, 'request')} compared"
    loads = [
        ("unknown" if load is None else load.value.replace("_", " ")) for load in (told.load_before, told.load_after)
    ]
    head = f"{told.run_file} against {told.measured_file}{requests}; {count_text(told.runs, 'simulation')}. "
    load = f"Load: {loads[0]}" + (f", as fitted {loads[1]}." if loads[0] != loads[1] else ".")
    parts: list[RenderableType] = [Text(plain(head + load)), Text(), *_metrics(told, unicode), Text()]
    parts += [*_per_request(told), *_factors(told, unicode)]
    left = [f"{factor.path}: {factor.reason}." for factor in told.factors if not factor.identified]
    if left:
        parts += [Text(), bullets("Left as they were", left, "bold")]
    if told.settings:
        parts += [Text(), Text(" ".join(f'--set "{setting}"' for setting in told.settings)), Text(), Text(_HOLDS)]
    if told.warnings:
        parts += [Text(), bullets("Warnings", told.warnings, "bold yellow")]
    return Group(*parts)


def _metrics(told: Calibration, unicode: bool) -> list[RenderableType]:
    table = empty_table("Metrics", ("", "measured", "before", "", "after", ""), unicode)
    reasons: dict[str, list[str]] = {}
    for metric in told.metrics:
        label = _LABELS[metric.metric]
        table.add_row(
            Text(label if metric.target else f"({label})", style="bold" if metric.target else ""),
            value_text(metric.unit, metric.measured),
            value_text(metric.unit, metric.before),
            change_text(metric.before_error),
            value_text(metric.unit, metric.after),
            change_text(metric.after_error),
        )
        if metric.reason:
            reasons.setdefault(metric.reason, []).append(label)
    return [table, *(Text(f"Not fitted to {', '.join(labels)}: {reason}.") for reason, labels in reasons.items())]


def _per_request(told: Calibration) -> list[RenderableType]:
    lines = [
        f"{one.latency.removesuffix('_ns').upper()} of single requests: median error {share_text(one.before)} before, "
        f"{share_text(one.after)} after."
        for one in told.per_request
    ]
    return [*map(Text, lines), Text()] if lines else []


def _factors(told: Calibration, unicode: bool) -> list[RenderableType]:
    fitted = [factor for factor in told.factors if factor.identified]
    if not fitted:
        return [Text("No factor is identified by what was measured; nothing was fitted.", style="bold")]
    table = empty_table("Factors", ("", "before", "after", "1 % off moves it by"), unicode)
    for factor in fitted:
        label = f"{factor.path} (at its bound)" if factor.at_bound else factor.path
        leverage = "-" if factor.leverage is None else f"{factor.leverage:.1f} %"
        table.add_row(Text(label, style="bold"), factor.before, factor.after, leverage)
    return [table]
