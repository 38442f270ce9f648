"""Closed loops and conversations, played against servers that a few lines of a test can be."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from heapq import heapify, heappop, heappush
from statistics import fmean

import pytest

from isim.scenario.types import (
    ClosedLoop,
    Constant,
    ExponentialThink,
    FixedRate,
    FixedThink,
    Ratio,
    Sessions,
    SharedPrefix,
    Think,
    Traffic,
    Uniform,
)
from isim.workload.feedback import Ended, open_feedback
from isim.workload.request import Request

LENGTHS = Uniform(low_tokens=1, high_tokens=1000)
TRAFFIC = Traffic(input_tokens=LENGTHS, output_tokens=LENGTHS)
S = 10**9


def played(
    workload: ClosedLoop | Sessions,
    service_ns: Callable[[Request], int],
    *,
    seed: int = 1,
    outcome: Callable[[Request], tuple[int, bool]] = lambda request: (request.output_tokens, True),
) -> dict[int, list[tuple[Request, int]]]:
    """Every client's requests and when they ended, where a request takes `service_ns` whatever else is served."""
    source = open_feedback(workload, seed)
    waiting = [(request.arrival_ns, client, request) for client, request in source.first()]
    assert [arrival_ns for arrival_ns, _, _ in waiting] == sorted(arrival_ns for arrival_ns, _, _ in waiting)
    served: dict[int, list[tuple[Request, int]]] = {}
    ends = [(arrival_ns + service_ns(request), client, request) for arrival_ns, client, request in waiting]
    heapify(ends)
    while ends:
        ended_ns, client, request = heappop(ends)
        served.setdefault(client, []).append((request, ended_ns))
        tokens, completed = outcome(request)
        ended = Ended(client=client, ended_ns=ended_ns, output_tokens=tokens, completed=completed)
        request_after = source.next(ended)
        if request_after is not None:
            assert request_after.arrival_ns >= ended_ns
            heappush(ends, (request_after.arrival_ns + service_ns(request_after), client, request_after))
    return served


@pytest.mark.parametrize("clients", [1, 3, 7])
def test_a_closed_loop_of_constant_service_is_a_clockwork(clients: int) -> None:
    """Service 2 s and thinking 3 s: request k of every client is sent at 5 k seconds."""
    think = FixedThink(duration_ns=3 * S)
    workload = ClosedLoop(clients=clients, requests=5 * clients, think=think, traffic=TRAFFIC)
    served = played(workload, lambda request: 2 * S)
    assert sorted(served) == list(range(clients))
    for requests in served.values():
        assert [request.arrival_ns for request, _ in requests] == [5 * S * turn for turn in range(5)]


@pytest.mark.parametrize(("clients", "requests"), [(4, 2), (4, 4), (4, 11), (1, 1)])
def test_as_many_requests_are_sent_as_were_asked_for(clients: int, requests: int) -> None:
    think = ExponentialThink(mean_ns=S)
    workload = ClosedLoop(clients=clients, requests=requests, think=think, traffic=TRAFFIC)
    served = played(workload, lambda request: request.output_tokens * 10**6)
    everything = [request for one in served.values() for request, _ in one]
    assert len(everything) == requests
    assert len({request.id for request in everything}) == requests
    assert len([request for request in everything if request.arrival_ns == 0]) == min(clients, requests)


@pytest.mark.parametrize("think", [FixedThink(duration_ns=S), ExponentialThink(mean_ns=S)])
def test_a_client_has_one_request_at_a_time_and_draws_what_it_draws(think: Think) -> None:
    """A slower server moves arrivals, and nothing else: turn k of client c asks for the same, thinks as long."""
    workload = ClosedLoop(clients=3, requests=60, think=think, traffic=TRAFFIC)
    runs = [played(workload, lambda request, pace=pace: request.output_tokens * pace) for pace in (10**5, 10**7)]
    thinks = []
    for served in runs:
        for requests in served.values():
            thinks.append([after.arrival_ns - ended for (_, ended), (after, _) in itertools.pairwise(requests)])
            assert min(thinks[-1]) >= 0
    for fast, slow in zip(thinks[:3], thinks[3:], strict=True):
        shorter = min(len(fast), len(slow))
        assert fast[:shorter] == slow[:shorter]
    asked = [{r.id: (r.input_tokens, r.output_tokens) for one in run.values() for r, _ in one} for run in runs]
    for name in asked[0].keys() & asked[1].keys():
        assert asked[0][name] == asked[1][name]


def test_exponential_thinking_has_its_mean() -> None:
    workload = ClosedLoop(clients=10, requests=5000, think=ExponentialThink(mean_ns=S), traffic=TRAFFIC)
    served = played(workload, lambda request: 0)
    thinks = [
        after.arrival_ns - ended
        for requests in served.values()
        for (_, ended), (after, _) in itertools.pairwise(requests)
    ]
    assert fmean(thinks) / S == pytest.approx(1.0, abs=4 / len(thinks) ** 0.5)


def conversations(turns: int = 4, prefix: SharedPrefix | None = None) -> Sessions:
    return Sessions(
        arrivals=FixedRate(rate_per_s=Ratio(numerator=1, denominator=2)),
        sessions=5,
        turns=Constant(tokens=turns),
        think=FixedThink(duration_ns=7 * S),
        traffic=Traffic(input_tokens=LENGTHS, output_tokens=LENGTHS, shared_prefix=prefix, priority=2),
    )


@pytest.mark.parametrize("prefix", [None, SharedPrefix(groups=2, tokens=64)])
def test_every_turn_repeats_the_conversation_with_its_real_answers(prefix: SharedPrefix | None) -> None:
    """An answer of half the tokens asked for is quoted with the tokens that came."""
    served = played(conversations(prefix=prefix), lambda request: S, outcome=lambda r: (-(-r.output_tokens // 2), True))
    for client, requests in served.items():
        assert [request.id for request, _ in requests] == [f"c{client}.{turn}" for turn in range(4)]
        assert [request.arrival_ns for request, _ in requests] == [2 * S * client + 8 * S * turn for turn in range(4)]
        assert [request.quotable for request, _ in requests] == [True, True, True, False]
        assert {request.session for request, _ in requests} == {f"c{client}"}
        known = 64 if prefix else 0
        before: tuple[tuple[str, int, int], ...] = ()
        said = 0
        for request, _ in requests:
            assert request.prompt is not None
            assert request.prompt[: len(before)] == before
            assert request.input_tokens == sum(count for _, _, count in request.prompt)
            group, start, count = request.prompt[-1]
            assert (group, start) == (f"session {client}", said)
            assert request.input_tokens == known + count
            said += count
            answer = -(-request.output_tokens // 2)
            before = (*request.prompt, (f"o:{request.id}", 0, answer))
            known = request.input_tokens + answer


def test_a_conversation_that_was_refused_is_over_and_others_go_on() -> None:
    served = played(
        conversations(), lambda request: S, outcome=lambda r: (0, False) if r.id == "c1.1" else (r.output_tokens, True)
    )
    assert {client: len(requests) for client, requests in served.items()} == {0: 4, 1: 2, 2: 4, 3: 4, 4: 4}
