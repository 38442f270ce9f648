"""What queueing theory says without any simulation, on the product's own draws."""

from __future__ import annotations

from itertools import pairwise

import pytest
import validation
from expand import Told, tell
from product import Played, play

from isim.record.records import EngineLimits, EngineVersion, LinearCoefficients, SchedulingPolicy, Stretch, Turn
from isim.scenario.types import Constant, FixedRate, Generated, LogNormal, Poisson, Ratio
from isim.workload.generate import generated_requests
from isim.workload.request import Request

PRICE = LinearCoefficients(base_ps=7_000_300, per_token_ps=11_700, per_request_ps=90_001, per_context_token_ps=39)


def one_seat(*, async_scheduling: bool) -> EngineLimits:
    return EngineLimits(
        version=EngineVersion.V021,
        max_num_seqs=1,
        max_num_batched_tokens=64,
        block_size=16,
        num_blocks=10_000,
        max_model_len=8192,
        enable_prefix_caching=True,
        enable_chunked_prefill=True,
        long_prefill_token_threshold=0,
        scheduler_reserve_full_isl=True,
        async_scheduling=async_scheduling,
        policy=SchedulingPolicy.FCFS,
    )


def service_ns(request: Request) -> int:
    """Chunks of 64 prompt tokens, then one step for each further token; each step rounded up to nanoseconds."""
    total, computed = 0, 0
    while computed < request.input_tokens:
        tokens = min(64, request.input_tokens - computed)
        total += price_ns(tokens, computed)
        computed += tokens
    for _ in range(request.output_tokens - 1):
        total += price_ns(1, computed)
        computed += 1
    return total


def price_ns(tokens: int, context: int) -> int:
    picoseconds = (
        PRICE.base_ps + PRICE.per_token_ps * tokens + PRICE.per_request_ps + PRICE.per_context_token_ps * context
    )
    return -(-picoseconds // 1000)


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize(
    "arrivals", [Poisson(rate_per_s=Ratio(numerator=900)), FixedRate(rate_per_s=Ratio(numerator=1000))]
)
def test_waits_of_a_single_server_are_those_of_lindley(seed: int, arrivals: Poisson | FixedRate) -> None:
    """W' = max(0, W + S - A): exact, request by request. Source: D. V. Lindley, 1952."""
    workload = Generated(
        arrivals=arrivals,
        requests=400,
        input_tokens=LogNormal(median_tokens=80, sigma_ppm=800_000, min_tokens=1, max_tokens=1000),
        output_tokens=LogNormal(median_tokens=90, sigma_ppm=900_000, min_tokens=1, max_tokens=1000),
    )
    requests = list(generated_requests(workload, seed))
    told = tell(play(one_seat(async_scheduling=False), iter(requests), PRICE).records)
    started = {request: time_ns for time_ns, request, _, _ in told.admissions}
    wait_ns = 0
    busy = 0
    for before, request in zip([None, *requests], requests, strict=False):
        if before is not None:
            wait_ns = max(0, wait_ns + service_ns(before) - (request.arrival_ns - before.arrival_ns))
        assert started[request.index] - request.arrival_ns == wait_ns, request
        assert told.finish[request.index] == request.arrival_ns + wait_ns + service_ns(request), request
        busy += wait_ns > 0
    assert busy > 100, "the load is too light to show anything"


def test_one_request_alone_takes_its_service_time_whatever_the_scheduling() -> None:
    request = Request(index=0, id="alone", arrival_ns=5_000, input_tokens=200, output_tokens=50)
    for async_scheduling in (False, True):
        told = tell(play(one_seat(async_scheduling=async_scheduling), iter([request]), PRICE).records)
        assert told.finish[0] - 5_000 == service_ns(request)


def test_an_arrival_at_the_nanosecond_a_step_ends_is_in_the_next_step() -> None:
    """Synchronously the step decided at that instant has it; asynchronously that step is already under way."""
    price = LinearCoefficients(base_ps=1_000_000, per_token_ps=0, per_request_ps=0, per_context_token_ps=0)
    limits = one_seat(async_scheduling=False)
    requests = [
        Request(index=0, id="a", arrival_ns=0, input_tokens=1, output_tokens=9),
        Request(index=1, id="b", arrival_ns=3_000, input_tokens=1, output_tokens=1),
        Request(index=2, id="c", arrival_ns=3_001, input_tokens=1, output_tokens=1),
    ]
    for async_scheduling, starts_ns in ((False, [3_000, 4_000]), (True, [4_000, 5_000])):
        seats = {"max_num_seqs": 4, "async_scheduling": async_scheduling}
        several = EngineLimits(**{field: getattr(limits, field) for field in limits.__struct_fields__} | seats)
        told = tell(play(several, iter(requests), price).records)
        decided = {request: time_ns for time_ns, request, _, _ in told.admissions}
        ends = {step.decided_ns: step.start_ns for step in told.steps}
        assert [ends[decided[1]], ends[decided[2]]] == starts_ns


def test_littles_law_holds_exactly_on_the_log() -> None:
    """The integral over time of the number in the system is the sum of the times in it."""
    workload = Generated(
        arrivals=Poisson(rate_per_s=Ratio(numerator=300)),
        requests=300,
        input_tokens=Constant(tokens=100),
        output_tokens=LogNormal(median_tokens=40, sigma_ppm=700_000, min_tokens=1, max_tokens=400),
    )
    requests = list(generated_requests(workload, 5))
    limits = one_seat(async_scheduling=True)
    seats = EngineLimits(**{field: getattr(limits, field) for field in limits.__struct_fields__} | {"max_num_seqs": 16})
    told = tell(play(seats, iter(requests), PRICE).records)
    changes = sorted(
        [(time_ns, 1) for time_ns in told.arrivals.values()] + [(time_ns, -1) for time_ns in told.finish.values()]
    )
    area, present, before_ns = 0, 0, 0
    for time_ns, change in changes:
        area += present * (time_ns - before_ns)
        present, before_ns = present + change, time_ns
    assert area == sum(told.finish[request] - told.arrivals[request] for request in told.finish)
    assert present == 0


# ---- conservation, on the whole log


def crowd(*, async_scheduling: bool) -> tuple[EngineLimits, list[Request], Played]:
    """More requests than seats, in a pool that is large enough for all that sit; prompts in chunks; step by step."""
    workload = Generated(
        arrivals=Poisson(rate_per_s=Ratio(numerator=2_000)),
        requests=200,
        input_tokens=LogNormal(median_tokens=60, sigma_ppm=700_000, min_tokens=1, max_tokens=400),
        output_tokens=LogNormal(median_tokens=40, sigma_ppm=700_000, min_tokens=1, max_tokens=400),
    )
    requests = list(generated_requests(workload, 11))
    limits = one_seat(async_scheduling=async_scheduling)
    several = {"max_num_seqs": 12, "max_num_batched_tokens": 128, "enable_prefix_caching": False}
    limits = EngineLimits(**{field: getattr(limits, field) for field in limits.__struct_fields__} | several)
    return limits, requests, play(limits, iter(requests), PRICE, max_stretch=1)


def test_work_is_what_requests_ask_for() -> None:
    """Every token but the last is computed once; so tokens, batch and context of all steps, and their time, add up."""
    for async_scheduling in (False, True):
        _, requests, played = crowd(async_scheduling=async_scheduling)
        told = tell(played.records)
        assert not told.preempted and not told.late
        decoded = sum(request.output_tokens - 1 for request in requests)
        chunks = [tokens for _, _, _, tokens in told.admissions] + [tokens for _, _, tokens in told.chunks]
        assert sum(chunks) == sum(request.input_tokens for request in requests)
        assert sum(step.scheduled for step in told.steps) == decoded + len(chunks)
        # The context of a request with p prompt tokens is 0, ..., p + n - 2 before its single tokens, and what chunks
        # before had computed before each chunk.
        context = sum(
            sum(range(request.input_tokens, request.input_tokens + request.output_tokens - 1)) for request in requests
        )
        context += sum(before_each_chunk(told))
        assert sum(step.context for step in told.steps) == context
        work_ps = PRICE.base_ps * len(told.steps) + PRICE.per_token_ps * (decoded + sum(chunks))
        work_ps += PRICE.per_request_ps * (decoded + len(chunks)) + PRICE.per_context_token_ps * context
        busy_ns = sum(step.duration_ns for step in told.steps)
        assert 0 <= busy_ns * 1000 - work_ps < 1000 * len(told.steps), "each step is rounded up by less than 1 ns"


def before_each_chunk(told: Told) -> list[int]:
    computed: dict[int, int] = {}
    before = []
    parts = [(time_ns, request, tokens) for time_ns, request, _, tokens in told.admissions] + told.chunks
    for _, request, tokens in sorted(parts, key=lambda part: part[0]):
        before.append(computed.get(request, 0))
        computed[request] = before[-1] + tokens
    return before


def test_block_seconds_are_those_of_the_requests() -> None:
    """The integral of the blocks in use is the sum over requests of what each holds for how long, to the nanosecond.

    From the decision of a step on a request holds the blocks of what is computed when that step ends, and it gives all
    of them back when its last token comes out.
    """
    for async_scheduling in (False, True):
        limits, requests, played = crowd(async_scheduling=async_scheduling)
        told = tell(played.records)
        decided: dict[int, list[tuple[int, int]]] = {request.index: [] for request in requests}
        for time_ns, request, _, tokens in told.admissions:
            decided[request].append((time_ns, tokens))
        for time_ns, request, tokens in told.chunks:
            decided[request].append((time_ns, tokens))
        steps = {step.end_ns: place for place, step in enumerate(told.steps)}
        expected = 0
        for request in requests:
            first, last = steps[told.first[request.index]], steps[told.finish[request.index]]
            events = sorted(decided[request.index])
            events += [(step.decided_ns, 1) for step in told.steps[first + 1 : last + 1]]
            computed = 0
            for (time_ns, tokens), (until_ns, _) in pairwise([*events, (told.finish[request.index], 0)]):
                computed += tokens
                expected += -(-computed // limits.block_size) * (until_ns - time_ns)
            assert computed == request.input_tokens + request.output_tokens - 1
        usable = limits.num_blocks - 1
        records = [record for record in played.records if isinstance(record, Turn | Stretch)]
        moments = [
            (record.schedule_ns if isinstance(record, Stretch) else record.time_ns, usable - record.free_blocks)
            for record in records
        ]
        held = sum(used * (after_ns - time_ns) for (time_ns, used), (after_ns, _) in pairwise(moments))
        assert held == expected > 0
        assert moments[-1][1] == 0


# ---- the page of waits


def test_the_page_of_waits_is_whole_and_agrees() -> None:
    page = validation.PAGE.read_text(encoding="utf-8")
    assert page.startswith(validation.HEAD)
    rows = [line.split(" | ") for line in page.removeprefix(validation.HEAD).splitlines()]
    assert [(row[0].removeprefix("| "), row[2]) for row in rows] == [
        (system.name, load) for system in validation.SYSTEMS for load in validation.REQUESTS
    ]
    assert "disagrees" not in page
    assert max(float(row[-1].removesuffix(" |")) for row in rows) <= 3


@pytest.mark.parametrize("name", ["M/M/1", "4 replicas, least outstanding"])
def test_the_page_of_waits_is_what_the_target_writes(name: str) -> None:
    """Its cheapest rows; `make slow` computes all of them."""
    (system,) = (system for system in validation.SYSTEMS if system.name == name)
    assert validation.line(validation.row(system, "0.3")) in validation.PAGE.read_text(encoding="utf-8").splitlines()


@pytest.mark.slow
def test_the_whole_page_of_waits_is_what_the_target_writes() -> None:
    written = validation.PAGE.read_text(encoding="utf-8").removeprefix(validation.HEAD).splitlines()
    assert [validation.line(row) for row in validation.rows(list(validation.REQUESTS))] == written
