"""Several engines behind a router: routed by a rule that anybody can apply again, and each an engine like any other."""

from __future__ import annotations

import msgspec
import pytest
from expand import tell
from product import Played, as_requests, play
from slow_blocks import SlowRequest
from slow_engine import EndlessRun, SlowRun, run_timed
from workload_fuzz import linear_step_ns, quoted_ids, random_case

from isim.draw.streams import Stream
from isim.kernel.errors import BudgetExceeded
from isim.record.digest import log_digest
from isim.record.records import (
    AnyRecord,
    Arrive,
    EngineLimits,
    EngineVersion,
    Header,
    LinearCoefficients,
    Reject,
    RouterFacts,
    RoutingPolicy,
    SchedulingPolicy,
    Stretch,
    TieBreak,
    Turn,
)
from isim.replay import Replay, ReplayViolation, Rule
from isim.serve.trouble import NoHeadway
from isim.workload.request import Request

ROUTERS = [RouterFacts(policy=policy, ties=ties) for policy in RoutingPolicy for ties in TieBreak]


def run(seed: int, facts: RouterFacts, engines: int, **how: object) -> Played:
    limits, requests, coefficients = random_case(seed)
    quotable = quoted_ids(requests)
    return play(
        limits,
        as_requests(requests, quotable),
        coefficients,
        engines=engines,
        router=facts,
        max_events=100_000,
        **how,  # type: ignore[arg-type]  # what play takes
    )


def check(records: list[AnyRecord]) -> None:
    replay = Replay()
    replay.read(records)
    replay.finish()


def of_engine(records: list[AnyRecord], engine: int) -> list[AnyRecord]:
    """What one engine did, with the requests of all."""
    return [
        record
        for record in records
        if not isinstance(record, Arrive | Reject | Turn | Stretch) or record.engine == engine
    ]


def slow_routes(
    facts: RouterFacts, engines: int, played: Played, runs: list[SlowRun], requests: list[SlowRequest]
) -> list[int]:
    """Where each request must go, request by request, by looking at everything again each time."""
    told = [record for record in played.records if isinstance(record, Arrive)]
    refused = {record.request for record in played.records if isinstance(record, Reject)}
    routes: list[int] = []
    for arrival in told:
        request = requests[arrival.request]
        if facts.policy is RoutingPolicy.ROUND_ROBIN:
            routes.append(arrival.request % engines)
            continue
        earlier = [place for place in range(arrival.request) if place not in refused]
        group = request.prompt[0][0]
        homes = [routes[place] for place in earlier if requests[place].prompt[0][0] == group]
        if facts.policy is RoutingPolicy.PREFIX_AFFINITY and homes:
            routes.append(homes[-1])
            continue
        loads = []
        for engine in range(engines):
            there = [place for place in earlier if routes[place] == engine]
            finishes = [runs[engine].requests[requests[place].id].finish_ns for place in there]
            loads.append(sum(finish is None or finish >= arrival.time_ns for finish in finishes))
        tied = [engine for engine in range(engines) if loads[engine] == min(loads)]
        place = 0
        if facts.ties is TieBreak.SEEDED:
            place = Stream(0, "router").bits(arrival.request) * len(tied) >> 64
        routes.append(tied[place])
    return routes


@pytest.mark.parametrize("facts", ROUTERS, ids=lambda facts: f"{facts.policy}-{facts.ties}")
def test_engines_and_router_agree_with_slow_ones(facts: RouterFacts) -> None:
    compared = 0
    for seed in range(60):
        engines = 2 + seed % 3
        limits, requests, coefficients = random_case(seed)
        try:
            played = run(seed, facts, engines)
        except (NoHeadway, BudgetExceeded):
            continue
        check(played.records)
        sent = {record.request: record.engine for record in played.records if isinstance(record, Arrive)}
        assert sorted(sent) == list(range(len(requests)))
        try:
            runs = [
                run_timed(
                    limits,
                    [request for index, request in enumerate(requests) if sent[index] == engine],
                    linear_step_ns(coefficients),
                )
                for engine in range(engines)
            ]
        except EndlessRun:
            continue
        for engine in range(engines):
            told = tell(of_engine(played.records, engine))
            for index, request in enumerate(requests):
                if sent[index] == engine:
                    outcome = runs[engine].requests[request.id]
                    assert told.first.get(index) == outcome.first_token_ns, (seed, request.id)
                    assert told.finish.get(index) == outcome.finish_ns, (seed, request.id)
        assert slow_routes(facts, engines, played, runs, requests) == [sent[index] for index in sorted(sent)], seed
        for how in ({"max_stretch": 1}, {"foresight": False}, {"shuffle_seed": 1}, {"shuffle_seed": 2}):
            assert run(seed, facts, engines, **how).digest == played.digest, (seed, how)
        compared += 1
    assert compared > 50


@pytest.mark.parametrize("facts", ROUTERS, ids=lambda facts: f"{facts.policy}-{facts.ties}")
def test_a_request_sent_elsewhere_is_noticed(facts: RouterFacts) -> None:
    noticed = 0
    for seed in range(12):
        try:
            records = run(seed, facts, 2).records
        except (NoHeadway, BudgetExceeded):
            continue
        for place, record in enumerate(records):
            if isinstance(record, Arrive):
                wrong = [*records]
                wrong[place] = msgspec.structs.replace(record, engine=1 - record.engine)
                with pytest.raises(ReplayViolation) as caught:
                    check(wrong)
                assert (caught.value.sequence, caught.value.rule) == (place, Rule.ROUTING)
                noticed += 1
    assert noticed > 50


def test_another_rule_or_seed_in_the_header_is_noticed_where_it_would_have_chosen_otherwise() -> None:
    noticed = {"policy": 0, "seed": 0}
    for seed in range(12):
        try:
            records = run(seed, RouterFacts(policy=RoutingPolicy.LEAST_OUTSTANDING, ties=TieBreak.SEEDED), 3).records
        except (NoHeadway, BudgetExceeded):
            continue
        header = records[0]
        assert isinstance(header, Header)
        with pytest.raises(ReplayViolation, match="header"):
            check([msgspec.structs.replace(header, router=None), *records[1:]])
        robin = msgspec.structs.replace(header, router=RouterFacts(policy=RoutingPolicy.ROUND_ROBIN))
        for name, other in {"policy": robin, "seed": msgspec.structs.replace(header, seed=5)}.items():
            try:
                check([other, *records[1:]])
            except ReplayViolation as violation:
                assert violation.rule is Rule.ROUTING
                noticed[name] += 1
    assert min(noticed.values()) >= 8, noticed


def limits() -> EngineLimits:
    return EngineLimits(
        version=EngineVersion.V021,
        max_num_seqs=8,
        max_num_batched_tokens=256,
        block_size=16,
        num_blocks=4096,
        max_model_len=4096,
        enable_prefix_caching=True,
        enable_chunked_prefill=True,
        long_prefill_token_threshold=0,
        scheduler_reserve_full_isl=True,
        async_scheduling=False,
        policy=SchedulingPolicy.FCFS,
    )


def test_p40_the_same_prompt_goes_to_the_replica_that_has_it() -> None:
    """Public case P40: prompts A, B, A with a delay; the second A finds A's replica and its blocks, every time."""
    price = LinearCoefficients(base_ps=1_000_000_000, per_token_ps=1000, per_request_ps=0, per_context_token_ps=0)
    for ties in TieBreak:
        for trial in range(100):
            requests = []
            for round_ in range(10):
                for name in "ABA":
                    index = len(requests)
                    requests.append(
                        Request(
                            index=index,
                            id=str(index),
                            arrival_ns=index * 50_000_000 + trial,
                            input_tokens=320,
                            output_tokens=4,
                            prompt=((f"{name}{round_}", 0, 320),),
                        )
                    )
            facts = RouterFacts(policy=RoutingPolicy.PREFIX_AFFINITY, ties=ties)
            records = play(limits(), iter(requests), price, engines=4, router=facts).records
            sent = [record.engine for record in records if isinstance(record, Arrive)]
            hits = {who: hit for record in records if isinstance(record, Turn) for who, hit, _ in record.admitted}
            for first in range(0, len(requests), 3):
                assert sent[first] == sent[first + 2]
                assert hits[first + 2] == 304, "all whole blocks but the last, which is computed again"


def test_a_fixed_rule_does_not_depend_on_other_draws() -> None:
    """Round robin sends the same requests to the same engines whatever their lengths are."""
    price = LinearCoefficients(base_ps=1_000_000, per_token_ps=1000, per_request_ps=0, per_context_token_ps=0)
    facts = RouterFacts(policy=RoutingPolicy.ROUND_ROBIN)
    routes = []
    for tokens in (5, 50):
        requests = [
            Request(index=i, id=str(i), arrival_ns=i * 999, input_tokens=tokens + i, output_tokens=3) for i in range(30)
        ]
        records = play(limits(), iter(requests), price, engines=3, router=facts).records
        routes.append([record.engine for record in records if isinstance(record, Arrive)])
        assert log_digest(records)
    assert routes[0] == routes[1] == [index % 3 for index in range(30)]
