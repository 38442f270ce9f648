"""Clients that give up: the engine lets go at its next decision, and keeps nothing of them."""

from __future__ import annotations

from typing import Any

import pytest
from expand import tell
from product import Played, as_requests, play
from slow_engine import EndlessRun, run_timed
from workload_fuzz import GRID_NS, linear_step_ns, quoted_ids, random_case

from isim.kernel.errors import BudgetExceeded
from isim.record.records import (
    Abort,
    End,
    EngineLimits,
    EngineVersion,
    LinearCoefficients,
    RouterFacts,
    RoutingPolicy,
    SchedulingPolicy,
)
from isim.replay import Replay
from isim.serve.trouble import NoHeadway
from isim.workload.request import Request


def run(seed: int, timeout_ns: int, **how: Any) -> Played:
    limits, requests, coefficients = random_case(seed)
    sent = as_requests(requests, quoted_ids(requests))
    return play(limits, sent, coefficients, timeout_ns=timeout_ns, max_events=100_000, **how)


@pytest.mark.parametrize("timeout", [3, 20, 60])
def test_the_engine_agrees_with_the_slow_one(timeout: int) -> None:
    """Deadlines on the grid of everything else: ties of arrivals, step ends and clients that give up."""
    timeout_ns = timeout * GRID_NS
    cancelled = 0
    for seed in range(150):
        limits, requests, coefficients = random_case(seed)
        try:
            slow = run_timed(limits, requests, linear_step_ns(coefficients), timeout_ns=timeout_ns)
            played = run(seed, timeout_ns)
        except (EndlessRun, NoHeadway, BudgetExceeded):
            continue
        replay = Replay()
        replay.read(played.records)
        replay.finish()
        told = tell(played.records)
        aborted = {record.request: record.time_ns for record in played.records if isinstance(record, Abort)}
        for index, request in enumerate(requests):
            outcome = slow.requests[request.id]
            assert aborted.get(index) == outcome.aborted_ns, (seed, request.id)
            assert told.first.get(index) == outcome.first_token_ns, (seed, request.id)
            assert told.finish.get(index) == outcome.finish_ns, (seed, request.id)
        steps = [(s.decided_ns, s.start_ns, s.duration_ns, s.scheduled, s.context) for s in told.steps]
        assert steps == [(s.decided_ns, s.start_ns, s.duration_ns, len(s.scheduled), s.context) for s in slow.steps], (
            seed
        )
        assert played.block_order() == slow.free_block_order, seed
        for how in ({"max_stretch": 1}, {"foresight": False}, {"shuffle_seed": 1}, {"shuffle_seed": 2}):
            assert run(seed, timeout_ns, **how).digest == played.digest, (seed, how)
        cancelled += len(aborted)
    assert cancelled > 50


def test_replicas_count_a_cancelled_request_no_more() -> None:
    facts = RouterFacts(policy=RoutingPolicy.LEAST_OUTSTANDING)
    cancelled = 0
    for seed in range(60):
        try:
            played = run(seed, 20 * GRID_NS, engines=3, router=facts)
        except (NoHeadway, BudgetExceeded):
            continue
        replay = Replay()
        replay.read(played.records)
        replay.finish()
        for how in ({"foresight": False}, {"shuffle_seed": 3}):
            assert run(seed, 20 * GRID_NS, engines=3, router=facts, **how).digest == played.digest, (seed, how)
        cancelled += played.system.census.aborted
    assert cancelled > 20


def test_a_request_that_finishes_with_the_output_of_its_last_moment_is_not_cancelled() -> None:
    """Three tokens at 10 ns a step: patience of 30 ns is enough, of 29 is not, and nothing remains held."""
    limits = EngineLimits(
        version=EngineVersion.V021,
        max_num_seqs=4,
        max_num_batched_tokens=64,
        block_size=4,
        num_blocks=33,
        max_model_len=64,
        enable_prefix_caching=False,
        enable_chunked_prefill=True,
        long_prefill_token_threshold=0,
        scheduler_reserve_full_isl=True,
        async_scheduling=False,
        policy=SchedulingPolicy.FCFS,
    )
    price = LinearCoefficients(base_ps=10_000, per_token_ps=0, per_request_ps=0, per_context_token_ps=0)
    for timeout_ns, aborted in ((30, 0), (29, 1), (21, 1), (20, 1)):
        request = Request(index=0, id="a", arrival_ns=5, input_tokens=3, output_tokens=3)
        other = Request(index=1, id="b", arrival_ns=5, input_tokens=3, output_tokens=1)
        played = play(limits, iter([request, other]), price, timeout_ns=timeout_ns)
        end = played.records[-1]
        assert isinstance(end, End)
        # at 29 ns the step that brings the last token is under way: its output comes first, and finishes the request
        expected = 0 if timeout_ns in (29, 21) else aborted
        assert (end.completed, end.aborted) == (2 - expected, expected), timeout_ns
        assert len(played.block_order()) == 32
