"""The numbers of a run against token times that are known without reading its log."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from math import ceil
from random import Random
from typing import Any

import pytest
from toy_facts import analysis_of
from toy_log import POOL_BLOCKS, Toy, ToyRequest, ToyStep, header, numbered, random_toy

from isim.analyze.collect import Collector
from isim.analyze.schema import Distribution, Result
from isim.record.errors import CausalityError
from isim.record.records import Arrive, Stretch, Turn
from isim.scenario.types import WarmupDuration, WarmupRequests, WarmupShare

SEEDS = range(400)


def naive(values: Iterable[int | Fraction], what: Distribution) -> None:
    """Compare a distribution with the list it is of."""
    ordered = sorted(round(value) for value in values)
    assert what.count == len(ordered)
    if not ordered:
        assert (what.mean, what.p50, what.p90, what.p95, what.p99, what.max) == (None,) * 6
        return
    assert what.mean == round(Fraction(sum(ordered), len(ordered)))
    found = (what.p50, what.p90, what.p95, what.p99, what.max)
    shares = (Fraction(50, 100), Fraction(90, 100), Fraction(95, 100), Fraction(99, 100), Fraction(1))
    assert found == tuple(ordered[max(0, ceil(share * len(ordered)) - 1)] for share in shares)


def times(toy: Toy, request: ToyRequest) -> list[int]:
    return [toy.steps[step].end_ns for step in toy.delivered(request)]


def check_latency(toy: Toy, result: Result, measured: list[ToyRequest]) -> None:
    whole = [request for request in measured if not request.rejected and request.abort_ns is None]
    naive((times(toy, request)[0] - request.arrival_ns for request in whole), result.latency.ttft_ns)
    naive((times(toy, request)[-1] - request.arrival_ns for request in whole), result.latency.e2e_ns)
    naive((toy.steps[r.start_step].start_ns - r.arrival_ns for r in whole), result.latency.queue_ns)
    gaps = [
        after - before
        for request in whole
        for before, after in zip(times(toy, request), times(toy, request)[1:])  # noqa: B905 - pairs
    ]
    naive(gaps, result.latency.itl_ns)
    paces = [
        Fraction(times(toy, request)[-1] - times(toy, request)[0], len(request.token_steps) - 1)
        for request in whole
        if len(request.token_steps) > 1
    ]
    naive(paces, result.latency.tpot_ns)


@pytest.mark.parametrize("block", range(8))
def test_latency_counts_and_tokens_of_random_timetables(block: int) -> None:
    for seed in SEEDS[block * 50 : block * 50 + 50]:
        toy, records = random_toy(seed)
        result = analysis_of(records).result
        check_latency(toy, result, toy.requests)
        aborted = sum(request.abort_ns is not None for request in toy.requests)
        rejected = sum(request.rejected for request in toy.requests)
        counts = result.counts
        assert (counts.arrived, counts.aborted, counts.rejected) == (len(toy.requests), aborted, rejected), seed
        assert counts.arrived == counts.completed + counts.rejected + counts.unfinished + counts.aborted
        assert counts.output_tokens == sum(len(times(toy, request)) for request in toy.requests), seed
        assert result.kv.high_water_blocks <= POOL_BLOCKS
        assert result.busy.busy_ns == sum(step.duration_ns for step in toy.steps)
        assert result.steps.total == len(toy.steps)


@pytest.mark.parametrize("block", range(4))
def test_windows_of_random_timetables(block: int) -> None:
    for seed in SEEDS[block * 50 : block * 50 + 50]:
        toy, records = random_toy(seed)
        whole = analysis_of(records).result.throughput.whole_run
        assert whole.start_ns == toy.requests[0].arrival_ns
        assert whole.end_ns == max(toy.requests[0].arrival_ns, toy.steps[-1].end_ns)
        given = [request for request in toy.requests if times(toy, request)]
        assert whole.input_tokens == sum(request.input_tokens for request in given)
        assert whole.output_tokens == sum(len(times(toy, request)) for request in given)
        last_ns = toy.requests[-1].arrival_ns
        steady = analysis_of(records, warmup=WarmupDuration(duration_ns=50)).result.throughput.steady_state
        if last_ns <= 50:
            assert steady is None
            continue
        assert steady is not None
        tokens = [time for request in toy.requests for time in times(toy, request)]
        finishes = [times(toy, r)[-1] for r in toy.requests if not r.rejected and r.abort_ns is None]
        firsts = [r.input_tokens for r in toy.requests if times(toy, r) and 50 < times(toy, r)[0] <= last_ns]
        assert steady.output_tokens == sum(50 < time <= last_ns for time in tokens), seed
        assert steady.requests == sum(50 < time <= last_ns for time in finishes), seed
        assert steady.input_tokens == sum(firsts), seed
        assert steady.requests_per_s == steady.requests * 10**9 / (last_ns - 50)


@pytest.mark.parametrize("block", range(4))
def test_warm_up_leaves_out_requests_that_arrive_in_it(block: int) -> None:
    for seed in SEEDS[block * 30 : block * 30 + 30]:
        toy, records = random_toy(seed)
        forms: list[tuple[Any, list[ToyRequest]]] = [
            (WarmupDuration(duration_ns=100), [r for r in toy.requests if r.arrival_ns >= 100]),
            (WarmupRequests(requests=3), toy.requests[3:]),
            (WarmupShare(share_ppm=250_000), toy.requests[len(toy.requests) // 4 :]),
        ]
        for warmup, measured in forms:
            result = analysis_of(records, warmup=warmup).result
            check_latency(toy, result, measured)
            assert result.warm_up.requests_left_out == len(toy.requests) - len(measured)
            assert result.counts.arrived == len(toy.requests)


def test_batch_over_time_is_the_mean_of_the_timetable() -> None:
    for seed in range(60):
        toy, records = random_toy(seed)
        result = analysis_of(records).result
        over_time = result.batch_over_time
        span_ns = over_time.end_ns - over_time.start_ns
        for part, milli in enumerate(over_time.mean_batch_milli):
            start_ns = over_time.start_ns + span_ns * part // 60
            end_ns = over_time.start_ns + span_ns * (part + 1) // 60
            area = 0
            for number, step in enumerate(toy.steps):
                overlap = max(0, min(end_ns, step.end_ns) - max(start_ns, step.start_ns))
                area += overlap * len(toy._members(number))
            assert milli == round(Fraction(1000 * area, end_ns - start_ns))


def test_two_requests_worked_by_hand() -> None:
    """Steps of 10 ns end at 10, 20, 30, 40. A gets tokens from all, B (asked at 12) from the last two."""
    steps = [ToyStep(decided_ns=10 * n, start_ns=10 * n, duration_ns=10) for n in range(4)]
    a = ToyRequest(arrival_ns=0, input_tokens=8, asked_tokens=4, start_step=0, token_steps=[0, 1, 2, 3])
    b = ToyRequest(arrival_ns=12, input_tokens=4, asked_tokens=2, start_step=2, token_steps=[2, 3], hit_tokens=2)
    toy = Toy(steps=steps, requests=[a, b], asynchronous=False, free=[999, 999, 990, 990])
    result = analysis_of(toy.records(Random(0))).result
    assert (result.latency.ttft_ns.p50, result.latency.ttft_ns.max) == (10, 18)
    assert result.latency.queue_ns.mean == 4  # (0 + 8) / 2
    assert result.latency.e2e_ns.mean == 34  # (40 + 28) / 2
    assert (result.latency.itl_ns.count, result.latency.itl_ns.mean, result.latency.itl_ns.max) == (4, 10, 10)
    assert (result.counts.hit_tokens, result.counts.output_tokens, result.counts.input_tokens) == (2, 6, 12)
    assert result.kv.high_water_blocks == 10
    assert (result.steps.total, result.steps.with_prefill, result.steps.decode_only) == (4, 2, 2)
    assert (result.busy.utilisation, result.throughput.whole_run.requests_per_s) == (1.0, 2 * 10**9 / 40)


def test_five_tokens_have_four_gaps_and_the_first_wait_is_none_of_them() -> None:
    """P45: the first token takes 1000 ns, the other four 10 ns each."""
    steps = [ToyStep(decided_ns=0, start_ns=0, duration_ns=1000)]
    steps += [ToyStep(decided_ns=990 + 10 * n, start_ns=990 + 10 * n, duration_ns=10) for n in range(1, 5)]
    one = ToyRequest(arrival_ns=0, input_tokens=8, asked_tokens=5, start_step=0, token_steps=[0, 1, 2, 3, 4])
    toy = Toy(steps=steps, requests=[one], asynchronous=False, free=[0] * 5)
    latency = analysis_of(toy.records(Random(0))).result.latency
    assert latency.ttft_ns.max == 1000
    assert (latency.itl_ns.count, latency.itl_ns.max, latency.tpot_ns.mean) == (4, 10, 10)


def test_nothing_completed_is_null_everywhere() -> None:
    """P50, P51: no division by zero, no 0 that means nothing."""
    one = ToyRequest(arrival_ns=7, input_tokens=600, asked_tokens=5, rejected=True)
    toy = Toy(steps=[], requests=[one], asynchronous=False, free=[])
    result = analysis_of(toy.records(Random(0))).result
    assert result.latency.ttft_ns == result.latency.itl_ns == result.latency.tpot_ns
    assert result.latency.ttft_ns.mean is None
    assert result.throughput.whole_run.requests_per_s is None
    assert result.throughput.steady_state is None
    assert result.busy.utilisation is None
    assert result.counts.rejected_by_reason["prompt_too_long"] == 1  # type: ignore[index] # a StrEnum is its value
    assert result.load.state is None


def test_many_finishes_at_one_instant_are_one_window() -> None:
    """P48: fifty requests finish at one timestamp; the rate is over the run, not over the gaps between finishes."""
    steps = [ToyStep(decided_ns=0, start_ns=0, duration_ns=10**9)]
    requests = [
        ToyRequest(arrival_ns=0, input_tokens=1, asked_tokens=1, start_step=0, token_steps=[0]) for _ in range(50)
    ]
    toy = Toy(steps=steps, requests=requests, asynchronous=False, free=[0])
    result = analysis_of(toy.records(Random(0))).result
    assert result.throughput.whole_run.requests_per_s == 50.0
    assert (result.latency.tpot_ns.mean, result.latency.itl_ns.mean) == (None, None)


def test_how_steps_are_gathered_changes_no_number() -> None:
    """One stretch of a thousand steps, or a thousand stretches of one."""

    def log(cut: int) -> list[Any]:
        arrive = Arrive(time_ns=0, request=0, id="a", prompt_tokens=16, output_tokens=1001)
        first = Turn(
            time_ns=0, step=0, duration_ns=50, admitted=((0, 0, 16),), scheduled=1, tokens=16, sampled=1,
            running=1, waiting=0, free_blocks=999,
        )  # fmt: skip
        turn = Turn(time_ns=50, ended=0, first=(0,), running=1, waiting=0, free_blocks=999)
        end_ns = 50 + sum(100 + step for step in range(1000))
        last = Turn(time_ns=end_ns, ended=1000, finished=(0,), running=0, waiting=0, free_blocks=1000)
        stretches: list[Any] = []
        now_ns = 50
        for start in range(0, 1000, cut):
            durations = [100 + step for step in range(start, start + cut)]
            stretch = Stretch(
                time_ns=now_ns + sum(durations), step=1 + start, steps=cut, schedule_ns=now_ns,
                durations_ns=durations, batch=1, context=16 + start, running=1, free_blocks=999 - (start + cut) // 16,
            )  # fmt: skip
            stretches.append(stretch)
            now_ns += sum(durations)
        return numbered([header(), arrive, first, turn, *stretches, last])

    assert analysis_of(log(1)).result == analysis_of(log(1000)).result == analysis_of(log(8)).result


def test_preemptions_are_counted() -> None:
    for seed in range(200):
        _, records = random_toy(seed)
        result = analysis_of(records).result
        preempted = [request for turn in records if isinstance(turn, Turn) for request in turn.preempted]
        assert result.counts.preemptions == len(preempted)
        assert result.counts.preempted_requests == len(set(preempted))


def test_an_arrival_out_of_order_is_our_bug() -> None:
    collector = Collector()
    collector.read([header()])
    with pytest.raises(CausalityError, match="expected the arrival of request 0"):
        collector.read([Arrive(time_ns=0, request=1, id="b", prompt_tokens=1, output_tokens=1)])
    with pytest.raises(CausalityError, match="header"):
        _ = Collector().header
