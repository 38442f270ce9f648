"""One run of a scenario: builds the system, lets it run, closes the log. No analysis happens here."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec

from isim import __version__
from isim.assembly import Parts, parts_of, settled, wire
from isim.cost.base import CostModel
from isim.cost.linear import LinearCost
from isim.cost.memory import KvCapacity
from isim.kernel.kernel import Kernel
from isim.model.spec import Confidence, weakest
from isim.record.digest import LogDigest
from isim.record.log import LaneReader, Log, Reader
from isim.record.records import REVISION, SCHEMA, AnyRecord, End, Header, Turn
from isim.scenario.defaults import scenario_assumptions
from isim.scenario.digest import scenario_digest
from isim.scenario.types import Linear, Scenario
from isim.workload.open import Label, open_workload

Progress = Callable[[int, int], None]
"""Called now and then with (requests finished, simulated time in ns)."""


class FinishedRun(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a run besides its log.

    `events` counts what `max_events` limits; it depends on `max_stretch` and is in no result. `digest` is that of the
    expanded log, None when nobody asked for it. `workload_sha256` is that of the trace, None without one. `labels` are
    those of the requests that have any, by index. `confidence` is that of latencies and throughput: the weakest of step
    times, KV capacity and, where there is one, the overhead of requests.
    """

    header: Header
    steps: int
    events: int
    digest: str | None
    capacity: KvCapacity
    assumptions: tuple[str, ...]
    provenance: tuple[str, ...]
    confidence: Confidence
    cost: CostModel
    workload_sha256: str | None
    labels: Mapping[int, Label]


def simulate(
    scenario: Scenario,
    *,
    base_dir: Path,
    readers: Sequence[Reader] = (),
    lane_readers: Sequence[LaneReader] = (),
    shuffle_seed: int | None = None,
    digest: bool = True,
    progress: Progress | None = None,
    step_time_percent: int = 100,
) -> FinishedRun:
    """Run a scenario to its end; every reader is given all records in batches, in order or lane by lane.

    `base_dir` is what paths in the scenario are relative to. `shuffle_seed` perturbs ties that may not matter.
    `step_time_percent` scales every step: how the run would look if the cost model were that wrong.
    Raises IsimError: a capacity that cannot hold, a bad trace row, more events than `max_events`.
    """
    scenario = settled(scenario)
    parts = parts_of(scenario)
    if step_time_percent != 100:
        from isim.cost.scaled import ScaledCost  # an ordinary run scales nothing

        parts.cost = ScaledCost(parts.cost, step_time_percent)
    simulation = scenario.simulation
    workload = open_workload(scenario.workload, simulation.seed, base_dir)
    log_digest = LogDigest() if digest else None
    all_readers = list(readers)
    if log_digest is not None:
        all_readers.append(log_digest.read)
    if progress is not None:
        all_readers.append(_watch(progress))
    header = _header(scenario, parts)
    log = Log(header, all_readers, lane_readers)
    kernel = Kernel(max_events=simulation.max_events, shuffle_seed=shuffle_seed, seed=simulation.seed)
    system = wire(parts, workload.source(), log, kernel=kernel, max_stretch=simulation.max_stretch)
    kernel.run()
    census = system.census
    steps = sum(engine.scheduler.steps for engine in system.engines)
    log.close(
        End(
            time_ns=kernel.now_ns,
            arrived=census.arrived,
            completed=census.completed,
            rejected=census.rejected,
            aborted=census.aborted,
            unfinished=census.present,
            steps=steps,
        )
    )
    cost = parts.cost
    return FinishedRun(
        header=header,
        steps=steps,
        events=kernel.spent,
        digest=None if log_digest is None else log_digest.hexdigest(),
        capacity=parts.capacity,
        assumptions=(
            *scenario_assumptions(scenario),
            *cost.assumptions,
            *parts.capacity.notes,
            *workload.assumptions,
        ),
        provenance=_sources(scenario, parts),
        confidence=weakest((cost.confidence, parts.capacity.confidence, *_of_overhead(parts))),
        cost=cost,
        workload_sha256=workload.sha256,
        labels=workload.labels,
    )


def _header(scenario: Scenario, parts: Parts) -> Header:
    """The first record of the log."""
    return Header(
        time_ns=0,
        schema=SCHEMA,
        revision=REVISION,
        isim_version=__version__,
        scenario_digest=scenario_digest(scenario),
        seed=scenario.simulation.seed,
        max_events=scenario.simulation.max_events,
        engines=parts.engines,
        engine=parts.limits,
        router=parts.router,
        linear_cost=parts.cost.coefficients if isinstance(parts.cost, LinearCost) else None,
        request_overhead_ns=parts.request_overhead_ns,
    )


def _of_overhead(parts: Parts) -> tuple[Confidence, ...]:
    """The class of the overhead of requests: that of a guess, unless there is none."""
    return (Confidence.HEURISTIC,) if parts.request_overhead_ns else ()


def _sources(scenario: Scenario, parts: Parts) -> tuple[str, ...]:
    """Where the figures come from that the step times and, unless it was given, the size of the KV pool rest on."""
    model, gpu = scenario.model.spec, scenario.hardware.gpu
    found = list(parts.cost.provenance)
    if parts.capacity.override_blocks is None:
        if isinstance(scenario.cost, Linear):
            found.append(f"model {model.name}: {model.source_of('*')}")
        found.append(f"memory of {gpu.name}: {gpu.source_of('memory_bytes')}")
    return tuple(found)


def _watch(progress: Progress) -> Reader:
    finished = 0

    def read(records: Sequence[AnyRecord]) -> None:
        nonlocal finished
        finished += sum(len(record.finished) for record in records if isinstance(record, Turn))
        progress(finished, records[-1].time_ns)

    return read
