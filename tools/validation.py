"""What queueing theory says of waits, beside what isim simulates: writes docs/validation.md, or checks it.

    python tools/validation.py [--check] [--loads 0.3,0.5]

Each row is 20 runs with the seeds 1 to 20. Loads with many requests take minutes; `--check --loads 0.3` computes the
rows of that load alone and compares them with those of the page, exit code 1 where they differ. Every run has to keep
the conservation laws as well, exactly, or nothing is written.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from math import sqrt
from pathlib import Path

import msgspec
import queueing
from queueing import MEAN, SERVERS, Draw, Theory

from isim.analyze.collect import Collector, Status
from isim.analyze.windows import busy_ns, time_since
from isim.assembly import Parts, wire
from isim.cost.linear import LinearCost
from isim.cost.memory import KvCapacity
from isim.draw.streams import Stream
from isim.kernel.kernel import Kernel
from isim.model.spec import Confidence
from isim.record.log import Log
from isim.record.records import (
    REVISION,
    SCHEMA,
    End,
    EngineLimits,
    EngineVersion,
    Header,
    LinearCoefficients,
    RouterFacts,
    RoutingPolicy,
    SchedulingPolicy,
)
from isim.scenario.types import Poisson, Ratio
from isim.workload.arrivals import arrival_times
from isim.workload.request import Request

PAGE = Path(__file__).resolve().parents[1] / "docs" / "validation.md"
SEEDS = range(1, 21)
REQUESTS = {"0.3": 1_000, "0.5": 2_000, "0.7": 4_000, "0.8": 8_000, "0.9": 16_000}
"""Measured requests of each run; a quarter as many come before them, until the queue has forgotten its empty start."""

_UNIT_NS = 1_000
"""A unit of service is a microsecond, so services take a millisecond on average."""
_UNIT_PS = 1_000_000
_NO_CAPACITY = KvCapacity(
    num_blocks=0,
    usable_blocks=0,
    block_bytes=0,
    kv_bytes=0,
    source="override",
    confidence=Confidence.EXACT,
    derived_blocks=None,
    override_blocks=None,
    derivation=(),
)


class System(msgspec.Struct, frozen=True, kw_only=True):
    """A queue: how service is drawn, how many servers there are, and what theory says of its mean wait.

    `theory` is given the arrivals per unit of time, and returns the least and the greatest mean wait in units. Service
    is one step of as many prompt tokens, or with `by_steps` one step of a unit for each output token.
    """

    name: str
    formula: str
    draw: Draw
    theory: Theory
    seats: int = 1
    replicas: int = 1
    router: RouterFacts | None = None
    by_steps: bool = False

    @property
    def servers(self) -> int:
        return self.seats * self.replicas


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """Mean waits in units: what theory says, what 20 runs gave, and the standard error of that."""

    system: System
    load: str
    least: float
    most: float
    found: float
    error: float

    @property
    def off(self) -> float:
        """By how many standard errors the runs are beyond what theory allows."""
        beyond = max(self.least - self.found, self.found - self.most, 0.0)
        return beyond / self.error

    @property
    def agrees(self) -> bool:
        return self.off <= 3


SYSTEMS = (
    System(name="M/M/1", formula="rho / (mu - lambda)", draw=queueing.exponential, theory=queueing.markov),
    System(
        name="M/D/1",
        formula="rho / (2 (mu - lambda))",
        draw=queueing.constant,
        theory=queueing.pollaczek_khinchine(queueing.CONSTANT),
    ),
    System(
        name="M/G/1, uniform",
        formula="Pollaczek-Khinchine",
        draw=queueing.uniform,
        theory=queueing.pollaczek_khinchine(queueing.UNIFORM),
    ),
    System(
        name="M/G/1, one of ten 11 times as long",
        formula="Pollaczek-Khinchine",
        draw=queueing.mostly_short,
        theory=queueing.pollaczek_khinchine(queueing.MOSTLY_SHORT),
    ),
    System(
        name=f"M/M/{SERVERS}, one engine of {SERVERS} seats",
        formula="Erlang C",
        draw=queueing.exponential,
        theory=queueing.erlang,
        seats=SERVERS,
        by_steps=True,
    ),
    System(
        name=f"{SERVERS} replicas, round robin",
        formula=f"E{SERVERS}/M/1",
        draw=queueing.exponential,
        theory=queueing.in_turns,
        replicas=SERVERS,
        router=RouterFacts(policy=RoutingPolicy.ROUND_ROBIN),
    ),
    System(
        name=f"{SERVERS} replicas, least outstanding",
        formula=f"M/M/{SERVERS} to E{SERVERS}/M/1",
        draw=queueing.exponential,
        theory=queueing.shortest,
        replicas=SERVERS,
        router=RouterFacts(policy=RoutingPolicy.LEAST_OUTSTANDING),
    ),
)


# ---- simulation


def limits_of(system: System) -> EngineLimits:
    """An engine that serves `seats` requests at once, and a prompt of any length in one step."""
    return EngineLimits(
        version=EngineVersion.V021,
        max_num_seqs=system.seats,
        max_num_batched_tokens=1 << 20,
        block_size=1 << 10,
        num_blocks=1 << 20,
        max_model_len=1 << 20,
        enable_prefix_caching=False,
        enable_chunked_prefill=True,
        long_prefill_token_threshold=0,
        scheduler_reserve_full_isl=True,
        async_scheduling=False,
        policy=SchedulingPolicy.FCFS,
    )


def price_of(system: System) -> LinearCoefficients:
    unit = {"base_ps": _UNIT_PS, "per_token_ps": 0} if system.by_steps else {"base_ps": 0, "per_token_ps": _UNIT_PS}
    return LinearCoefficients(**unit, per_request_ps=0, per_context_token_ps=0)


def run(system: System, requests: Iterator[Request]) -> Collector:
    """The whole run of some requests, as the numbers of a result are made from it."""
    collector, limits, price = Collector(), limits_of(system), price_of(system)
    header = Header(
        time_ns=0,
        schema=SCHEMA,
        revision=REVISION,
        isim_version="",
        scenario_digest="",
        seed=0,
        max_events=1 << 40,
        engines=system.replicas,
        engine=limits,
        router=system.router,
        linear_cost=price,
    )
    log = Log(header, [collector.read])
    kernel = Kernel(max_events=1 << 40)
    parts = Parts(
        capacity=_NO_CAPACITY, limits=limits, cost=LinearCost(price), engines=system.replicas, router=system.router
    )
    census = wire(parts, requests, log, kernel=kernel).census
    kernel.run()
    counts = {"arrived": census.arrived, "completed": census.completed, "rejected": 0, "aborted": 0, "unfinished": 0}
    log.close(End(time_ns=kernel.now_ns, steps=0, **counts))
    collector.finish()
    return collector


def mean_wait(system: System, rate: Ratio, seed: int, count: int) -> float:
    """Mean wait in units of the last `count` requests of a run, whose conservation laws are checked."""
    warm_up = count // 4
    times = arrival_times(Poisson(rate_per_s=rate), warm_up + count, seed)
    stream = Stream(seed, "service")
    units = [system.draw(stream, index) for index in range(warm_up + count)]
    requests = [
        Request(index, f"r{index}", time_ns, *((1, asked) if system.by_steps else (asked, 1)))
        for index, (time_ns, asked) in enumerate(zip(times, units, strict=True))
    ]
    collector = run(system, iter(requests))
    check_conservation(system, collector, units)
    columns = collector.requests
    waits = [start - came for start, came in zip(columns.start_ns, columns.arrival_ns, strict=True)]
    return sum(waits[warm_up:]) / count / _UNIT_NS


def check_conservation(system: System, collector: Collector, units: list[int]) -> None:
    """Nobody is lost; the time servers worked is the service asked for; and Little's law, all of it exactly."""
    columns = collector.requests
    assert columns.status.count(Status.COMPLETED) == len(units)
    served_ns = sum(end - start for end, start in zip(columns.finish_ns, columns.start_ns, strict=True))
    assert served_ns == sum(units) * _UNIT_NS
    if system.seats == 1:
        assert busy_ns(collector) == served_ns
    cuts = [max(columns.finish_ns)]
    for entered, left in ((columns.arrival_ns, columns.start_ns), (columns.arrival_ns, columns.finish_ns)):
        area = time_since(entered, cuts)[0] - time_since(left, cuts)[0]
        assert area == sum(out - came for out, came in zip(left, entered, strict=True))


def row(system: System, load: str) -> Row:
    """20 runs of a system at a load, and what theory says of them."""
    tenths = int(load.partition(".")[2])
    rate = Ratio(numerator=system.servers * tenths * 10**9 // (10 * MEAN * _UNIT_NS))
    means = [mean_wait(system, rate, seed, REQUESTS[load]) for seed in SEEDS]
    found = sum(means) / len(means)
    spread = sum((mean - found) ** 2 for mean in means) / (len(means) - 1)
    least, most = system.theory(rate.numerator * _UNIT_NS / 10**9)
    return Row(system=system, load=load, least=least, most=most, found=found, error=sqrt(spread / len(means)))


# ---- the page

HEAD = f"""\
# Validation against queueing theory

Written by `make validation`; the tests hold this page to it.

Where an engine serves one request at a time, or every step takes the same time, it is one of the queues of the
textbooks, and the mean wait for the first step is known. Each row is {len(SEEDS)} runs, with the seeds from 1 on, of
{REQUESTS["0.3"]:,} (load 0.3) to {REQUESTS["0.9"]:,} (load 0.9) requests after a warm-up of a quarter as many. Arrivals
are Poisson, from the product's own generator. A service takes a millisecond on average, and waits are in milliseconds.
Theory and simulation agree when they are no more than 3 standard errors (of the {len(SEEDS)} means) apart.

A router sends requests on at once, so replicas have no queue in common. Taking turns has a closed form; joining the
shortest queue has none, and its mean has to lie between two that have: one queue for all, and taking turns.

In every one of these runs, exactly: all requests complete; the time that requests are served is the time they ask
for, and with one seat the time the devices are busy; and Little's law, the integral over time of the number waiting (in
the system) being the sum of the times waited (in it). `tests/test_theory.py` adds Lindley's recursion request by
request, token counts and block-seconds.

| queue | theory | load | wait by theory, ms | simulated, ms | standard error | off by |
|---|---|---|---|---|---|---|
"""


def line(found: Row) -> str:
    """A row of the table."""
    theory = f"{found.least / MEAN:.4f}"
    if found.most != found.least:
        theory += f" to {found.most / MEAN:.4f}"
    numbers = f"{found.found / MEAN:.4f} | {found.error / MEAN:.4f} | {found.off:.1f}"
    verdict = "" if found.agrees else " **disagrees**"
    return f"| {found.system.name} | {found.system.formula} | {found.load} | {theory} | {numbers}{verdict} |"


def rows(loads: list[str]) -> Iterator[Row]:
    for system in SYSTEMS:
        for load in loads:
            yield row(system, load)


def main() -> int:
    parser = argparse.ArgumentParser(description="Waits by theory and by simulation.")
    parser.add_argument("--check", action="store_true", help="compare with the page instead of writing it")
    parser.add_argument("--loads", default=",".join(REQUESTS), help="with --check: which, joined by commas")
    arguments = parser.parse_args()
    loads = arguments.loads.split(",") if arguments.check else list(REQUESTS)
    if not set(loads) <= set(REQUESTS):
        parser.error(f"expected loads of {', '.join(REQUESTS)}")
    written = PAGE.read_text(encoding="utf-8").splitlines() if arguments.check else []
    wrong, lines = 0, []
    for found in rows(loads):
        text = line(found)
        lines.append(text)
        wrong += not found.agrees or (arguments.check and text not in written)
        print(text, flush=True)
    if not arguments.check:
        PAGE.write_text(HEAD + "".join(f"{text}\n" for text in lines), encoding="utf-8")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
