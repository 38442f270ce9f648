"""The numbers of a real log against the token times of the slow engine, which writes no log."""

from __future__ import annotations

import msgspec
import pytest
from product import as_requests, play
from test_analyze_collect import naive
from toy_facts import analysis_of
from workload_fuzz import finite_runs, quoted_ids

from isim.analyze.collect import Collector
from isim.analyze.latency import token_counts
from isim.analyze.visible import first_visible_ns

BATCHES = 4
CASES = 100


@pytest.mark.parametrize("batch", range(BATCHES))
def test_every_latency_and_count(batch: int) -> None:
    for seed, (limits, asked, coefficients), slow in finite_runs(range(batch * CASES, (batch + 1) * CASES)):
        quoted = quoted_ids(asked)
        result = analysis_of(play(limits, as_requests(asked, quoted), coefficients).records).result
        single = analysis_of(play(limits, as_requests(asked, quoted), coefficients, max_stretch=1).records).result
        # An outcome inside a stretch frees blocks between two of its decisions; single steps show the level before.
        assert msgspec.structs.replace(result, kv=single.kv, load=single.load) == single, seed
        done = [(request, slow.requests[request.id]) for request in asked if slow.requests[request.id].token_ns]
        assert [slow.requests[request.id].token_ns for request in asked if not slow.requests[request.id].rejected] == [
            outcome.token_ns for _, outcome in done
        ]
        starts: dict[str, int] = {}
        for step in slow.steps:
            for name, *_ in step.scheduled:
                starts.setdefault(name, step.start_ns)
        latency = result.latency
        naive((outcome.token_ns[0] - request.arrival_ns for request, outcome in done), latency.ttft_ns)
        naive((outcome.token_ns[-1] - request.arrival_ns for request, outcome in done), latency.e2e_ns)
        naive((starts[request.id] - request.arrival_ns for request, _ in done), latency.queue_ns)
        naive(
            [
                after - before
                for _, outcome in done
                for before, after in zip(outcome.token_ns, outcome.token_ns[1:], strict=False)
            ],
            latency.itl_ns,
        )
        naive(
            (outcome.token_ns[0] - starts[request.id] for request, outcome in done),
            latency.prefill_ns,
        )
        counts = result.counts
        assert counts.completed == len(done), seed
        assert counts.preemptions == len(slow.preempted), seed
        assert counts.output_tokens == sum(len(outcome.token_ns) for _, outcome in done), seed
        assert counts.hit_tokens == sum(outcome.admissions[0].hit_tokens for _, outcome in done), seed
        assert counts.resumed_hit_tokens == sum(a.hit_tokens for _, outcome in done for a in outcome.admissions[1:])
        assert result.steps.total == len(slow.steps), seed
        assert single.kv.high_water_blocks == slow.max_blocks_used, seed


@pytest.mark.parametrize("hidden", [0, 1, 7])
def test_p46_the_first_visible_token_is_the_one_after_the_reasoning(hidden: int) -> None:
    """Wherever pauses fall: the time of token number `hidden`, counted from 0, of each request that has so many."""
    seen = late = 0
    for seed, (limits, asked, coefficients), slow in finite_runs(range(CASES)):
        collector = Collector()
        collector.read(play(limits, as_requests(asked, quoted_ids(asked)), coefficients).records)
        collector.finish()
        found = first_visible_ns(collector, dict.fromkeys(range(len(asked)), hidden), token_counts(collector.requests))
        times = {index: slow.requests[request.id].token_ns for index, request in enumerate(asked)}
        assert found == {index: given[hidden] for index, given in times.items() if len(given) > hidden}, seed
        seen += len(found)
        late += len(collector.requests.late_step)
    assert seen > 100 and late > 100
