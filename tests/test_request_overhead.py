"""What every request spends outside the engine: the closed forms of its place before the queue.

In an open loop the engine does the same, later by the overhead; who waits for answers sends later too; and whatever a
client counts it counts from when it sent. The slow engine has an account of its own of all that.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import pytest
from expand import tell
from product import Played, as_requests, play
from slow_engine import EndlessRun, run_timed
from test_reacting import PRICE, limits, traffic
from workload_fuzz import GRID_NS, Case, linear_step_ns, quoted_ids, random_case, random_groups_case

from isim.kernel.clock import SAFE_MAX_NS
from isim.kernel.errors import BudgetExceeded
from isim.record.records import (
    Abort,
    AnyRecord,
    Arrive,
    End,
    Header,
    RouterFacts,
    RoutingPolicy,
    Stretch,
)
from isim.replay import Replay, ReplayViolation, Rule
from isim.scenario.types import ClosedLoop, Constant, ExponentialThink, FixedThink, Poisson, Ratio, Sessions, Uniform
from isim.serve.trouble import NoHeadway, TooLate
from isim.workload.feedback import open_feedback
from isim.workload.request import Request

WAYS: tuple[dict[str, Any], ...] = (
    {"max_stretch": 1},
    {"foresight": False},
    {"shuffle_seed": 1},
    {"shuffle_seed": 2},
)


def replayed(played: Played) -> Played:
    replay = Replay()
    replay.read(played.records)
    replay.finish()
    return played


def case_of(case: Case, **how: Any) -> Played:
    engine, requests, coefficients = case
    sent = as_requests(requests, quoted_ids(requests))
    return play(engine, sent, coefficients, max_events=100_000, **how)


def later(records: Sequence[AnyRecord], overhead_ns: int) -> Iterator[AnyRecord]:
    """The log of the same run, all of it later, with the header that says why."""
    for record in records:
        if isinstance(record, Header):
            yield msgspec.structs.replace(record, request_overhead_ns=overhead_ns)
            continue
        moved = msgspec.structs.replace(record, time_ns=record.time_ns + overhead_ns)
        if isinstance(moved, Stretch):
            moved.schedule_ns += overhead_ns
        yield moved


@pytest.mark.parametrize("make", [random_case, random_groups_case])
@pytest.mark.parametrize("engines", [1, 3])
def test_in_an_open_loop_the_engine_does_the_same_later(make: Any, engines: int) -> None:
    """To the byte, at any load, on one engine and behind every router: whatever ties, ties as before."""
    policies = list(RoutingPolicy) if engines > 1 else [None]
    compared = 0
    for seed in range(40):
        case = make(seed)
        policy = policies[seed % len(policies)]
        more = {"engines": engines, "router": None if policy is None else RouterFacts(policy=policy)}
        try:
            plain = case_of(case, **more)
        except (NoHeadway, BudgetExceeded):
            continue
        for overhead_ns in (1, 7 * GRID_NS):
            delayed = replayed(case_of(case, overhead_ns=overhead_ns, **more))
            assert delayed.records == list(later(plain.records, overhead_ns)), (seed, overhead_ns)
            for how in WAYS:
                assert case_of(case, overhead_ns=overhead_ns, **more, **how).digest == delayed.digest, (seed, how)
        compared += 1
    assert compared > 30


@pytest.mark.parametrize("overhead", [1, 7, 20, 21, 40])
def test_the_slow_engine_lets_go_of_the_same_requests_at_the_same_times(overhead: int) -> None:
    """Patience of 20 grid units: with more of it on the way than is left, with none left, and with less than none."""
    timeout_ns, overhead_ns = 20 * GRID_NS, overhead * GRID_NS
    cancelled = served = 0
    for seed in range(60):
        case = random_case(seed)
        engine, requests, coefficients = case
        step_ns = linear_step_ns(coefficients)
        try:
            slow = run_timed(engine, requests, step_ns, timeout_ns=timeout_ns, overhead_ns=overhead_ns)
            played = replayed(case_of(case, timeout_ns=timeout_ns, overhead_ns=overhead_ns))
        except (EndlessRun, NoHeadway, BudgetExceeded):
            continue
        told = tell(played.records)
        aborted = {record.request: record.time_ns for record in played.records if isinstance(record, Abort)}
        for index, request in enumerate(requests):
            outcome = slow.requests[request.id]
            assert told.arrivals[index] == request.arrival_ns + overhead_ns
            assert aborted.get(index) == outcome.aborted_ns, (seed, request.id)
            assert told.first.get(index) == outcome.first_token_ns, (seed, request.id)
            assert told.finish.get(index) == outcome.finish_ns, (seed, request.id)
        assert [step.decided_ns for step in told.steps] == [step.decided_ns for step in slow.steps]
        assert played.block_order() == slow.free_block_order, seed
        for how in WAYS:
            again = case_of(case, timeout_ns=timeout_ns, overhead_ns=overhead_ns, **how)
            assert again.digest == played.digest, (seed, how)
        cancelled += len(aborted)
        served += len(slow.steps)
    assert cancelled > 50
    assert (served > 0) == (overhead < 20), "who gives up on the way is never served"


def one(arrival_ns: int, output_tokens: int) -> Iterator[Request]:
    return iter([Request(index=0, id="a", arrival_ns=arrival_ns, input_tokens=3, output_tokens=output_tokens)])


@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize(
    ("timeout_ns", "aborted_ns", "first_ns"),
    [
        (1, 705, None),
        (700, 705, None),
        (701, 1705, 1705),
        (1700, 1705, 1705),
        (1701, 2705, 1705),
        (2700, 2705, 1705),
        (2701, None, 1705),
    ],
)
def test_patience_counts_from_sending(
    asynchronous: bool, timeout_ns: int, aborted_ns: int | None, first_ns: int | None
) -> None:
    """Sent at 5 ns, there at 705; steps of 1000 ns end at 1705, 2705 and 3705, and the engine looks only then.

    Patience of up to 700 ns is over by then: let go of at once, before anything is scheduled. Of what ends a step the
    output comes first: of 2701 ns the last token, and nobody gives up any more.
    """
    played = replayed(
        play(limits(async_scheduling=asynchronous), one(5, 3), PRICE, timeout_ns=timeout_ns, overhead_ns=700)
    )
    told, end = tell(played.records), played.records[-1]
    assert isinstance(end, End)
    assert told.arrivals == {0: 705}
    assert told.first.get(0) == first_ns
    assert [record.time_ns for record in played.records if isinstance(record, Abort)] == (
        [] if aborted_ns is None else [aborted_ns]
    )
    assert (end.arrived, end.aborted, end.completed) == (1, int(aborted_ns is not None), int(aborted_ns is None))
    assert (end.steps == 0) == (first_ns is None)


@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize(("think_ns", "waits_ns"), [(3000, 3000), (1, 1), (0, 1)])
def test_a_client_alone_has_a_period_of_overhead_service_and_think_time(
    asynchronous: bool, think_ns: int, waits_ns: int
) -> None:
    """Five steps of a microsecond; without think time a client reacts a nanosecond after its answer, then sends."""
    workload = ClosedLoop(
        clients=1,
        requests=6,
        think=FixedThink(duration_ns=think_ns),
        traffic=traffic(Constant(tokens=20), Constant(tokens=5)),
    )
    for overhead_ns in (1, 700, 123_456):
        played = play(limits(async_scheduling=asynchronous), open_feedback(workload, 3), PRICE, overhead_ns=overhead_ns)
        told = tell(replayed(played).records)
        period_ns = overhead_ns + 5000 + waits_ns
        assert told.arrivals == {turn: turn * period_ns + overhead_ns for turn in range(6)}
        assert told.finish == {turn: turn * period_ns + overhead_ns + 5000 for turn in range(6)}


@pytest.mark.parametrize(("timeout_ns", "ends_ns"), [(500, 700), (700, 700), (1500, 1700), (6000, 5700)])
def test_a_client_that_gives_up_thinks_and_sends_again(timeout_ns: int, ends_ns: int) -> None:
    """Its request ends at the engine: where it is let go of, on arrival or at the end of a step, or with its answer."""
    workload = ClosedLoop(
        clients=1,
        requests=5,
        think=FixedThink(duration_ns=40),
        traffic=traffic(Constant(tokens=20), Constant(tokens=5)),
    )
    played = replayed(play(limits(), open_feedback(workload, 3), PRICE, overhead_ns=700, timeout_ns=timeout_ns))
    assert tell(played.records).arrivals == {turn: turn * (ends_ns + 40) + 700 for turn in range(5)}
    assert played.system.census.aborted == (0 if ends_ns == 5700 else 5)
    assert played.system.census.present == 0


def test_every_client_sends_after_its_own_answer() -> None:
    """Of each request but a client's first: sent the think time after the end of the one before, in crowds too."""
    said = traffic(Uniform(low_tokens=1, high_tokens=30), Uniform(low_tokens=1, high_tokens=20))
    talks = Sessions(
        sessions=12,
        arrivals=Poisson(rate_per_s=Ratio(numerator=200_000)),
        turns=Uniform(low_tokens=1, high_tokens=4),
        think=FixedThink(duration_ns=3000),
        traffic=said,
    )
    loop = ClosedLoop(clients=6, requests=40, think=FixedThink(duration_ns=0), traffic=said)
    drawn = ClosedLoop(clients=9, requests=90, think=ExponentialThink(mean_ns=3000), traffic=said)
    for workload in (talks, loop, drawn):
        for overhead_ns in (1, 2500):
            engine = limits(max_num_seqs=4, max_num_batched_tokens=24, block_size=4, num_blocks=100, max_model_len=256)
            played = replayed(play(engine, open_feedback(workload, 3), PRICE, overhead_ns=overhead_ns))
            told = tell(played.records)
            ids = {record.id: record for record in played.records if isinstance(record, Arrive)}
            turns = 0
            for name, record in ids.items():
                client, _, turn = name.partition(".")
                before = ids.get(f"{client}.{int(turn) - 1}")
                if before is not None:
                    waited_ns = record.time_ns - overhead_ns - told.finish[before.request]
                    assert waited_ns == 3000 if workload is talks else waited_ns >= 1
                    assert workload is not loop or waited_ns == 1
                    turns += 1
            assert turns > 10
            for how in ({"max_stretch": 1}, {"shuffle_seed": 1}, {"shuffle_seed": 2}):
                again = play(engine, open_feedback(workload, 3), PRICE, overhead_ns=overhead_ns, **how)
                assert again.digest == played.digest, how


def test_an_arrival_beyond_the_clock_is_told() -> None:
    """Of a request that is sent in time, in an open loop and as an answer to an answer."""
    assert replayed(play(limits(), one(0, 1), PRICE, overhead_ns=SAFE_MAX_NS - 1000)).system.census.completed == 1
    with pytest.raises(TooLate, match=f"request a would come to {SAFE_MAX_NS + 1} ns"):
        play(limits(), one(1, 1), PRICE, overhead_ns=SAFE_MAX_NS)
    said = traffic(Constant(tokens=4), Constant(tokens=1))
    loop = ClosedLoop(clients=1, requests=2, think=FixedThink(duration_ns=0), traffic=said)
    half_ns = SAFE_MAX_NS // 2
    with pytest.raises(TooLate, match=f"request c0.1 would come to {2 * half_ns + 1001} ns"):
        play(limits(), open_feedback(loop, 3), PRICE, overhead_ns=half_ns)


def test_the_replay_refuses_what_was_sent_before_the_start() -> None:
    """A header whose overhead is longer than the first arrival; any shorter one might be so."""
    case = random_case(3)
    records = case_of(case, overhead_ns=7 * GRID_NS).records
    first = next(record for record in records if isinstance(record, Arrive))
    for overhead_ns, legal in ((0, True), (first.time_ns, True), (first.time_ns + 1, False)):
        replay = Replay()
        changed = [msgspec.structs.replace(records[0], request_overhead_ns=overhead_ns), *records[1:]]
        if legal:
            replay.read(changed)
            continue
        with pytest.raises(ReplayViolation) as raised:
            replay.read(changed)
        assert (raised.value.rule, raised.value.sequence) == (Rule.ARRIVAL, first.seq)
