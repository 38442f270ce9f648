"""What a calibration found, as the values that are printed and written, with everything a reader should know first."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePath

import msgspec
from msgspec import UNSET

from isim import __version__
from isim.analyze.beyond_fit import largest_batch, longest_request
from isim.analyze.schema import LoadState
from isim.calibrate.bench import Bench
from isim.calibrate.measured import Measured
from isim.calibrate.schema import REVISION, SCHEMA, Calibration, FittedFactor, FittedMetric, PerRequest
from isim.calibrate.search import Found
from isim.calibrate.targets import SATURATED, first_tokens, waiting
from isim.scenario.digest import scenario_digest
from isim.scenario.factors import FACTORS, Factor
from isim.scenario.fields import TEXT_MAX
from isim.scenario.fitted import Fitted
from isim.scenario.nodes import printable
from isim.scenario.types import Scenario

FAR = 0.05
"""A metric that stays farther off than this is spoken of."""

_DIGEST_CHARACTERS = 12


def calibration(bench: Bench, measured: Measured, factors: Sequence[Factor], found: Found) -> Calibration:
    """All there is to tell."""
    scenario = bench.given
    metrics = _metrics(found)
    told = [_factor(factor, scenario, found) for factor in factors]
    settings = [factor.setting(found.values[factor.path]) for factor in factors if factor.path in found.values]
    digest = scenario_digest(scenario)
    names = (_name(bench.file), _name(measured.file))
    before, after = found.before, found.after
    source = _source(names, (digest, measured.sha256), settings, metrics)
    return Calibration(
        schema=SCHEMA,
        revision=REVISION,
        isim_version=__version__,
        run_file=names[0],
        scenario_digest=digest,
        measured_file=names[1],
        measured_sha256=measured.sha256,
        requests=after.sides.requests,
        metrics=metrics,
        per_request=[
            PerRequest(latency=latency, requests=count, before=before.sides.medians[latency][1], after=median)
            for latency, (count, median) in after.sides.medians.items()
            if latency in before.sides.medians
        ],
        factors=told,
        load_before=before.load,
        load_after=after.load,
        runs=bench.runs,
        fitted=_fitted(scenario, source, found) if settings else None,
        settings=settings,
        warnings=_warnings(scenario, found, metrics, factors),
    )


def _name(file: str) -> str:
    return printable(PurePath(file).name)


def with_fitted(scenario: Scenario, factors: Sequence[Factor], found: Found, told: Calibration) -> Scenario:
    """The scenario with the fitted factors and what they were fitted to."""
    for factor in factors:
        if factor.path in found.values:
            scenario = factor.put(scenario, found.values[factor.path])
    cost = msgspec.structs.replace(scenario.cost, fitted=UNSET if told.fitted is None else told.fitted)
    return msgspec.structs.replace(scenario, cost=cost)


def _metrics(found: Found) -> list[FittedMetric]:
    rows = []
    for name, pair in found.before.sides.pairs.items():
        after = found.after.sides.pairs.get(name)
        rows.append(
            FittedMetric(
                metric=name,
                unit=pair.metric.unit,
                measured=pair.measured,
                before=pair.simulated,
                before_error=pair.error,
                after=None if after is None else after.simulated,
                after_error=None if after is None else after.error,
                target=name in found.targets.names,
                reason=found.targets.reasons.get(name, ""),
            )
        )
    return rows


def _factor(factor: Factor, scenario: Scenario, found: Found) -> FittedFactor:
    given = factor.of(scenario)
    assert given is not None
    value = found.values.get(factor.path, given)
    identified = factor.path in found.values
    return FittedFactor(
        path=factor.path,
        before=factor.text(given),
        after=factor.text(value),
        identified=identified,
        leverage=found.leverage[factor.path] if identified else None,
        at_bound=identified and not factor.low < value < factor.high,
        reason=found.left.get(factor.path, ""),
    )


def _fitted(scenario: Scenario, source: str, found: Found) -> Fitted:
    collector = found.after.analysis.collector
    batch, tokens = largest_batch(collector), longest_request(collector)
    earlier = _earlier(scenario, found)
    factors = [factor.setting(found.values[factor.path]) for factor in FACTORS if factor.path in found.values]
    if earlier is not None:
        factors += [f"{path}={value}" for path, value in earlier.settings if path not in found.values]
        source = f"{source}; before that: {earlier.source}"
        batch, tokens = min(batch, earlier.batch), min(tokens, earlier.request_tokens)
    return Fitted(
        source=source if len(source) <= TEXT_MAX else f"{source[: TEXT_MAX - 4]} ...",
        factors=", ".join(factors),
        gpu=scenario.hardware.gpu.name,
        model=scenario.model.spec.name,
        tensor_parallel_size=scenario.engine.tensor_parallel_size,
        batch=batch,
        request_tokens=tokens,
    )


def _earlier(scenario: Scenario, found: Found) -> Fitted | None:
    """What the run file says its factors were fitted to, unless all that it names are fitted anew."""
    earlier = scenario.cost.fitted
    if earlier is UNSET:
        return None
    return None if all(path in found.values for path, _ in earlier.settings) else earlier


def _source(
    names: tuple[str, str], digests: tuple[str, str], settings: Sequence[str], metrics: Sequence[FittedMetric]
) -> str:
    """One line that a run file can hold; metrics are left off its end where there are too many."""
    run, measured = (
        f"{name[:100]} ({what} {digest[:_DIGEST_CHARACTERS]})"
        for name, what, digest in zip(names, ("digest", "sha256"), digests, strict=True)
    )
    text = (
        f"isim calibrate {__version__}: {', '.join(settings)} fitted with {run} to {measured}; errors after and before:"
    )
    told = [metric for metric in metrics if metric.target or metric.metric.endswith(".mean")]
    for number, metric in enumerate(sorted(told, key=lambda metric: not metric.target)):
        how = "" if metric.target else " (not fitted to)"
        errors = f"{_percent(metric.after_error)} ({_percent(metric.before_error)})"
        more = f"{',' if number else ''} {metric.metric} {errors}{how}"
        if len(text) + len(more) > TEXT_MAX - 4:
            return f"{text} ..."
        text += more
    return text


def _percent(error: float | None) -> str:
    return "-" if error is None else f"{100 * error:+.1f} %"


def _warnings(
    scenario: Scenario, found: Found, metrics: Sequence[FittedMetric], factors: Sequence[Factor]
) -> list[str]:
    warnings = [*_of_waits(found), *_of_first_tokens(scenario, found, factors)]
    warnings += [_of_bound(factor, value) for factor in factors if (value := found.values.get(factor.path)) is not None]
    if found.values:
        warnings += [
            f"{metric.metric} stays {_percent(metric.after_error)} off: no values of the fitted factors were found "
            "that tell all metrics."
            for metric in metrics
            if metric.target and metric.after_error is not None and abs(metric.after_error) > FAR
        ]
    missing = found.after.sides.missing
    if missing:
        warnings.append(f"Measured requests that the run has not completed, and which are not compared: {missing:,}.")
    if found.values and found.before.load is not found.after.load:
        states = [_load_text(look.load) for look in (found.before, found.after)]
        warnings.append(f"The load was {states[0]} with the factors as they were, and is {states[1]} as fitted.")
    return [warning for warning in warnings if warning]


def _of_waits(found: Found) -> list[str]:
    waits = waiting(found.targets.names)
    if not waits or found.after.load not in SATURATED:
        return []
    return [
        f"Fitted to {', '.join(waits)}, as was asked for, though the load is {_load_text(found.after.load)}: a few "
        "percent of step time move them several times over, so whatever else is not modelled is now in these factors."
    ]


def _of_first_tokens(scenario: Scenario, found: Found, factors: Sequence[Factor]) -> list[str]:
    """Where time outside the engine is neither given nor fitted, other factors have taken it."""
    first = first_tokens(found.targets.names)
    told = scenario.engine.request_overhead_ns or any(each.outside for each in factors if each.path in found.values)
    if not first or not found.values or told:
        return []
    return [
        f"Fitted to {', '.join(first)} with engine.request_overhead left at 0 s: whatever they hold of time outside "
        "the engine is now in the fitted factors."
    ]


def _of_bound(factor: Factor, value: int) -> str:
    """Of a factor at the end of its range, or beyond; else nothing."""
    if value in (factor.low, factor.high):
        return (
            f"{factor.path} ends at {factor.text(value)}, where the range of plausible values does: something else "
            "than this factor makes the difference."
        )
    if factor.low < value < factor.high:
        return ""
    return (
        f"{factor.path} stays at {factor.text(value)}, as it was, outside the range of plausible values from "
        f"{factor.text(factor.low)} to {factor.text(factor.high)}: nothing in it was found to tell the metrics better."
    )


def _load_text(load: LoadState | None) -> str:
    return "unknown" if load is None else load.value.replace("_", " ")
