"""Closed loops and conversations: clients that wait for answers, and for how long theory says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from expand import tell
from product import Played, play
from slow_blocks import SlowRequest
from slow_engine import run_timed
from workload_fuzz import linear_step_ns

from isim.cli.main import main
from isim.record.records import (
    Arrive,
    EngineLimits,
    EngineVersion,
    GroupKind,
    GroupLimits,
    LinearCoefficients,
    Reject,
    RouterFacts,
    RoutingPolicy,
    SchedulingPolicy,
    Turn,
)
from isim.replay import Replay
from isim.scenario.types import (
    ClosedLoop,
    Constant,
    ExponentialThink,
    FixedThink,
    Poisson,
    Ratio,
    Sessions,
    Traffic,
    Uniform,
)
from isim.workload.feedback import open_feedback

SCENARIOS = Path(__file__).parents[1] / "scenarios"
PRICE = LinearCoefficients(base_ps=1_000_000, per_token_ps=0, per_request_ps=0, per_context_token_ps=0)
"""Every step takes a microsecond."""


WINDOWS = (
    GroupLimits(kind=GroupKind.FULL, block_size=4),
    GroupLimits(kind=GroupKind.SLIDING, block_size=4, window_tokens=20),
)


def limits(**change: Any) -> EngineLimits:
    facts: dict[str, Any] = {
        "version": EngineVersion.V021,
        "max_num_seqs": 8,
        "max_num_batched_tokens": 256,
        "block_size": 16,
        "num_blocks": 500,
        "max_model_len": 2048,
        "enable_prefix_caching": True,
        "enable_chunked_prefill": True,
        "long_prefill_token_threshold": 0,
        "scheduler_reserve_full_isl": True,
        "async_scheduling": False,
        "policy": SchedulingPolicy.FCFS,
    }
    return EngineLimits(**facts | change)


def traffic(inputs: Any, outputs: Any) -> Traffic:
    return Traffic(input_tokens=inputs, output_tokens=outputs)


def run(workload: ClosedLoop | Sessions, engine: EngineLimits, **how: Any) -> Played:
    played = play(engine, open_feedback(workload, 3), PRICE, **how)
    replay = Replay()
    replay.read(played.records)
    replay.finish()
    return played


@pytest.mark.parametrize("async_scheduling", [False, True])
def test_one_client_alone_sends_exactly_after_each_answer(async_scheduling: bool) -> None:
    """Five tokens take five steps of a microsecond, then it thinks for 3: a request every 8."""
    workload = ClosedLoop(
        clients=1,
        requests=6,
        think=FixedThink(duration_ns=3000),
        traffic=traffic(Constant(tokens=20), Constant(tokens=5)),
    )
    told = tell(run(workload, limits(async_scheduling=async_scheduling)).records)
    assert told.arrivals == {index: index * 8000 for index in range(6)}
    assert told.finish == {index: index * 8000 + 5000 for index in range(6)}


def test_a_client_without_think_time_reacts_a_nanosecond_later() -> None:
    workload = ClosedLoop(
        clients=1, requests=3, think=FixedThink(duration_ns=0), traffic=traffic(Constant(tokens=4), Constant(tokens=2))
    )
    told = tell(run(workload, limits()).records)
    assert told.arrivals == {0: 0, 1: 2001, 2: 4002}


def test_there_are_never_more_requests_than_clients_and_always_as_many_in_all() -> None:
    workload = ClosedLoop(
        clients=5,
        requests=120,
        think=ExponentialThink(mean_ns=4000),
        traffic=traffic(Uniform(low_tokens=1, high_tokens=90), Uniform(low_tokens=1, high_tokens=40)),
    )
    for async_scheduling in (False, True):
        played = run(workload, limits(max_num_seqs=3, async_scheduling=async_scheduling))
        told = tell(played.records)
        changes = [(time_ns, 1) for time_ns in told.arrivals.values()]
        changes += [(time_ns, -1) for time_ns in told.finish.values()]
        present, most = 0, 0
        for _, change in sorted(changes):
            present += change
            most = max(most, present)
        assert (len(told.finish), present) == (120, 0)
        assert 3 <= most <= 5
        for how in ({"max_stretch": 1}, {"shuffle_seed": 1}, {"shuffle_seed": 2}):
            other = play(
                limits(max_num_seqs=3, async_scheduling=async_scheduling), open_feedback(workload, 3), PRICE, **how
            )
            assert other.digest == played.digest, how


def test_the_next_turn_of_a_conversation_finds_what_was_said_before() -> None:
    workload = Sessions(
        arrivals=Poisson(rate_per_s=Ratio(numerator=20_000)),
        sessions=12,
        turns=Constant(tokens=4),
        think=FixedThink(duration_ns=5000),
        traffic=traffic(Constant(tokens=40), Constant(tokens=24)),
    )
    for async_scheduling in (False, True):
        played = run(workload, limits(async_scheduling=async_scheduling))
        arrivals = {record.request: record for record in played.records if isinstance(record, Arrive)}
        assert len(arrivals) == 48
        hits = {who: hit for record in played.records if isinstance(record, Turn) for who, hit, _ in record.admitted}
        for request, arrival in arrivals.items():
            turn = int(arrival.id.partition(".")[2])
            assert arrival.prompt_tokens == 40 * (turn + 1) + 24 * turn
            # the last token of an answer has no KV, so the blocks of all but that one are found
            assert hits[request] == (64 * turn - 1) // 16 * 16 if turn else hits[request] == 0
        other = play(limits(async_scheduling=async_scheduling), open_feedback(workload, 3), PRICE, max_stretch=1)
        assert other.digest == played.digest


@pytest.mark.parametrize("version", list(EngineVersion))
@pytest.mark.parametrize("groups", [(), WINDOWS], ids=["one group", "windows"])
def test_the_slow_engine_gives_conversations_and_closed_loops_the_same_times(
    version: EngineVersion, groups: tuple[GroupLimits, ...]
) -> None:
    """What clients came to send, given to the slow engine as plain arrivals: the same times and hits for everybody."""
    said = traffic(Uniform(low_tokens=1, high_tokens=30), Uniform(low_tokens=1, high_tokens=20))
    talks = Sessions(
        sessions=12,
        arrivals=Poisson(rate_per_s=Ratio(numerator=200_000)),
        turns=Uniform(low_tokens=1, high_tokens=4),
        think=FixedThink(duration_ns=3000),
        traffic=said,
    )
    loop = ClosedLoop(clients=6, requests=40, think=FixedThink(duration_ns=2000), traffic=said)
    for workload in (talks, loop):
        for asynchronous in (False, True):
            engine = limits(
                version=version, async_scheduling=asynchronous, groups=groups, block_size=4, max_num_seqs=4,
                max_num_batched_tokens=24, num_blocks=100, max_model_len=256,
            )  # fmt: skip
            played = run(workload, engine)
            told = tell(played.records)
            sent = [
                SlowRequest(
                    id=record.id,
                    prompt=record.prompt or [(f"only:{record.id}", 0, record.prompt_tokens)],
                    output_tokens=record.output_tokens,
                    arrival_ns=record.time_ns,
                )
                for record in played.records
                if isinstance(record, Arrive)
            ]
            slow = run_timed(engine, sent, linear_step_ns(PRICE))
            hits = 0
            for index, request in enumerate(sent):
                outcome = slow.requests[request.id]
                assert told.first.get(index) == outcome.first_token_ns, request.id
                assert told.finish.get(index) == outcome.finish_ns, request.id
                found = [(a.time_ns, a.hit_tokens, a.tokens) for a in outcome.admissions]
                assert [(time, hit, tokens) for time, who, hit, tokens in told.admissions if who == index] == found
                hits += sum(hit for _, hit, _ in found)
            assert (hits > 0) == (workload is talks)
            assert played.block_order() == slow.free_block_order
            for how in ({"max_stretch": 1}, {"shuffle_seed": 1}, {"shuffle_seed": 2}):
                assert run(workload, engine, **how).digest == played.digest, how


def test_refused_and_cancelled_requests_end_too() -> None:
    """A client whose prompt is refused goes on with its next one; one that gives up does the same."""
    workload = ClosedLoop(
        clients=2,
        requests=40,
        think=FixedThink(duration_ns=1000),
        traffic=traffic(Uniform(low_tokens=1, high_tokens=100), Uniform(low_tokens=1, high_tokens=60)),
    )
    played = run(workload, limits(max_model_len=90), timeout_ns=30_000)
    census = played.system.census
    assert census.arrived == 40
    assert census.present == 0
    assert census.rejected == sum(isinstance(record, Reject) for record in played.records) > 0
    assert census.aborted > 0


def test_a_closed_loop_on_replicas_is_replayed() -> None:
    workload = ClosedLoop(
        clients=9,
        requests=200,
        think=ExponentialThink(mean_ns=3000),
        traffic=traffic(Uniform(low_tokens=1, high_tokens=90), Uniform(low_tokens=1, high_tokens=40)),
    )
    for policy in RoutingPolicy:
        played = run(workload, limits(max_num_seqs=2), engines=3, router=RouterFacts(policy=policy))
        assert played.system.census.completed == 200
        sent = [record.engine for record in played.records if isinstance(record, Arrive)]
        assert min(sent.count(engine) for engine in range(3)) > 20


def test_what_reacting_clients_send_cannot_be_listed_beforehand(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["export", str(SCENARIOS / "sessions.yaml"), "--out", str(tmp_path / "requests.jsonl")]) == 2
    assert "run it first" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
    assert main(["validate", str(SCENARIOS / "closed-loop.yaml")]) == 0
