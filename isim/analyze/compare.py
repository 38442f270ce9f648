"""Results side by side: every main number with its change against the first run, and whether that means anything.

Two configurations are ranked by a difference only where it is greater than two things: the tie band, which is what runs
of real servers that are configured alike differ by; and what step times that are 10 % off would do to either of the two
runs. The second is asked of the sensitivities that the results hold. What is common to both runs (a cost model that is
too fast for both) cancels, so the second test is on the careful side.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated

import msgspec
from msgspec import Meta

from isim.analyze.metrics import METRICS, Metric, Unit, beyond, change
from isim.analyze.schema import LoadState, Result, Simulated
from isim.analyze.schema_details import STEP_TIME_PERCENT, DetailState

SCHEMA = "isim/comparison"
REVISION = 1


class Verdict(StrEnum):
    """How a number of a run relates to that of the first."""

    EQUAL = "equal"
    TIE = "tie"
    STEP_TIME = "step_time"
    DIFFERS = "differs"
    UNKNOWN = "unknown"


class ComparedRun(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One of the runs. `changed` lists what else was simulated than in the first run, in words."""

    path: str
    name: str
    seed: int
    scenario_digest: str
    load: LoadState | None
    details: DetailState
    changed: dict[str, str]


class ComparedMetric(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One number of every run, in the order of the runs; the first is what the others are compared with."""

    metric: Annotated[str, Meta(description="Where in result.json it stands.")]
    unit: Unit
    band_percent: Annotated[int, Meta(description="Differences of at most so many percent of the first are ties.")]
    values: list[int | float | None]
    changes: Annotated[list[float | None], Meta(description="value / first - 1; null where that is not defined.")]
    verdicts: Annotated[
        list[Verdict],
        Meta(
            description="`equal`; `tie`: within the band; `step_time`: beyond it, but no more than step times 10 % off "
            "move one of the two; `differs`: beyond both; `unknown`: one of the two is null."
        ),
    ]


class Comparison(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Several results side by side."""

    schema: str
    revision: int
    runs: list[ComparedRun]
    metrics: list[ComparedMetric]
    notes: Annotated[list[str], Meta(description="What a reader should know before believing a difference.")]


def compare(results: Sequence[tuple[str, Result]]) -> Comparison:
    """At least two results, each with where it was read."""
    first = results[0][1]
    return Comparison(
        schema=SCHEMA,
        revision=REVISION,
        runs=[_run(path, result, first) for path, result in results],
        metrics=[_metric(metric, [result for _, result in results]) for metric in METRICS],
        notes=_notes(results),
    )


def encode(comparison: Comparison) -> bytes:
    """As JSON: fields in declared order, two spaces of indent, a newline at the end."""
    return msgspec.json.format(msgspec.json.encode(comparison), indent=2) + b"\n"


def _run(path: str, result: Result, first: Result) -> ComparedRun:
    return ComparedRun(
        path=path,
        name=result.name,
        seed=result.seed,
        scenario_digest=result.digests.scenario,
        load=result.load.state,
        details=result.details.state,
        changed=_changed(result.simulated, first.simulated),
    )


def _changed(mine: Simulated, theirs: Simulated) -> dict[str, str]:
    """What differs by name; of the engine, whose words are a list, only the words that do."""
    found = {
        name: getattr(mine, name) for name in mine.__struct_fields__ if getattr(mine, name) != getattr(theirs, name)
    }
    if "engine" in found:
        known = theirs.engine.split(", ")
        found["engine"] = ", ".join([word for word in mine.engine.split(", ") if word not in known])
    return found


def _metric(metric: Metric, results: Sequence[Result]) -> ComparedMetric:
    values = [metric.of(result) for result in results]
    return ComparedMetric(
        metric=metric.name,
        unit=metric.unit,
        band_percent=metric.band_percent,
        values=values,
        changes=[change(values[0], value) for value in values],
        verdicts=[_verdict(metric, results[0], result) for result in results],
    )


def _verdict(metric: Metric, first: Result, other: Result) -> Verdict:
    before, after = metric.of(first), metric.of(other)
    if before == after:
        return Verdict.EQUAL
    if before is None or after is None:
        return Verdict.UNKNOWN
    if not beyond(before, after, metric.band_percent):
        return Verdict.TIE
    if _reaches(metric, first, before, after) or _reaches(metric, other, after, before):
        return Verdict.STEP_TIME
    return Verdict.DIFFERS


def _reaches(metric: Metric, result: Result, value: int | float, other: int | float) -> bool:
    """Whether this run's own number comes as far as the other's when its step times are a little off."""
    found = result.details.sensitivity
    for varied in found.metrics if found is not None else ():
        if varied.metric == metric.name:
            near = [each for each in (varied.faster, value, varied.slower) if each is not None]
            return min(near) <= other <= max(near)
    return False


def _notes(results: Sequence[tuple[str, Result]]) -> list[str]:
    first = results[0][1]
    notes = []
    for path, result in results[1:]:
        asked = (result.simulated.workload, result.seed, result.digests.workload)
        if asked != (first.simulated.workload, first.seed, first.digests.workload):
            notes.append(f"{path} did not serve the same requests as {results[0][0]}: chance is in every difference")
    for path, result in results:
        if result.details.sensitivity is None:
            notes.append(
                f"{path} has no sensitivity ({result.details.no_sensitivity or result.details.state}): what step times "
                f"{STEP_TIME_PERCENT} % off would do to it is not known"
            )
        if result.load.state is LoadState.OVERLOADED:
            notes.append(f"{path} is overloaded: its latencies depend on how long the load lasts")
    return notes
