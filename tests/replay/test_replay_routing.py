"""Where requests must have gone, against the router's rule applied anew to all that happened before."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import msgspec
import pytest
from replay_examples import arrive, header

from isim.draw.streams import Stream
from isim.record.records import Arrive, RouterFacts, RoutingPolicy, TieBreak
from isim.replay.routing import Routes

ROUTERS = [RouterFacts(policy=policy, ties=ties) for policy in RoutingPolicy for ties in TieBreak]


def arrivals(dice: Random) -> Iterator[tuple[Arrive, str]]:
    """Each with the shared run that its prompt begins with, if any."""
    for index in range(60):
        shared = dice.choice(["", "", "a", "b", "o:r0", f"p:r{index - 1}"])
        private = f"p:r{index}"
        prompt = [(shared, 0, 2), (private, 0, 1)] if shared else dice.choice([None, [(private, 0, 2), ("a", 0, 1)]])
        yield arrive(0, index, 3, 1, prompt=prompt), shared


@pytest.mark.parametrize("facts", ROUTERS, ids=lambda facts: f"{facts.policy}-{facts.ties}")
@pytest.mark.parametrize("seed", [0, 1, 2**40 + 5, 2**63 + 9])
def test_a_request_goes_where_the_rule_sends_it(seed: int, facts: RouterFacts) -> None:
    dice = Random(seed)
    engines = dice.randint(2, 5)
    routes = Routes(msgspec.structs.replace(header(), engines=engines, router=facts, seed=seed))
    there: list[tuple[int, str]] = []
    gone = [0] * engines
    for arrival, shared in arrivals(dice):
        counts = [sum(engine == at for at, _ in there) - gone[engine] for engine in range(engines)]
        fewest = [engine for engine in range(engines) if counts[engine] == min(counts)]
        homes = [at for at, other in there if shared and other == shared]
        due = fewest[0]
        if facts.ties is TieBreak.SEEDED:
            due = fewest[Stream(seed, "router").bits(arrival.request) * len(fewest) >> 64]
        if facts.policy is RoutingPolicy.ROUND_ROBIN:
            due = arrival.request % engines
        if facts.policy is RoutingPolicy.PREFIX_AFFINITY and homes:
            due = homes[-1]
        assert routes.expected(arrival) == due, arrival.request
        if dice.random() < 0.8:
            sent = due if dice.random() < 0.8 else dice.randrange(engines)
            routes.taken(msgspec.structs.replace(arrival, engine=sent))
            there.append((sent, shared))
        leaver = dice.randrange(engines)
        left = dice.randint(0, max(0, min(2, counts[leaver])))
        routes.gone(leaver, left)
        gone[leaver] += left
