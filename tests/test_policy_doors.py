"""Whom to send where, whom to refuse, and what two prompts have in common: each against its tokens one by one."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from random import Random

import pytest
from slow_blocks import SlowRequest
from slow_engine import reject_reason
from workload_fuzz import Case, random_case, random_groups_case

from isim.policy.prompt import Runs, shareable, shared_beginning
from isim.policy.routing import Routing
from isim.policy.vllm.group_pool import Tables
from isim.policy.vllm.keys import PRIVATE_BLOCKS, SPAN, Chain, KeyTable, Run, merge
from isim.policy.vllm.refusal import refusal
from isim.record.records import RejectReason, RouterFacts, RoutingPolicy, TieBreak

Token = tuple[str, int]
ROUND_ROBIN, LEAST, AFFINITY = RoutingPolicy.ROUND_ROBIN, RoutingPolicy.LEAST_OUTSTANDING, RoutingPolicy.PREFIX_AFFINITY


def spelt(runs: Runs | list[Run]) -> list[Token]:
    return [(group, start + k) for group, start, count in runs for k in range(count)]


# ---- prompts


def test_what_others_can_have_ends_where_the_request_begins() -> None:
    runs = (("a", 0, 4), ("p:r1", 0, 3), ("b", 0, 2))
    assert shareable(runs, "r1") == (("a", 0, 4),)
    assert shareable(runs, "r2") == shareable(runs, "1") == runs
    assert shareable(runs[1:], "r1") == ()
    assert shared_beginning(runs, "r1") == "a"
    assert shared_beginning(runs[1:], "r1") is None
    assert shared_beginning(runs[1:], "r2") == "p:r1"
    assert shared_beginning((), "r1") is shared_beginning(None, "r1") is None


def test_tokens_are_told_in_the_fewest_runs() -> None:
    dice = Random(1)
    for _ in range(300):
        runs = [(dice.choice("ab"), dice.randrange(3), dice.randrange(4)) for _ in range(dice.randrange(6))]
        told, tokens = merge(runs), spelt(runs)
        assert spelt(told) == tokens
        breaks = sum(group != before or offset != last + 1 for (before, last), (group, offset) in pairwise(tokens))
        assert len(told) == (breaks + 1 if tokens else 0), runs


# ---- keys


def drawn_runs(dice: Random, earlier: list[Token]) -> list[Run]:
    """Of few groups, often from their beginning, so that prompts agree for a while; or an earlier one with a twist."""
    runs = [(dice.choice("abc"), dice.choice([0, 0, 2, 4]), dice.randrange(1, 14)) for _ in range(dice.randrange(4))]
    if earlier and dice.random() < 0.6:
        kept = dice.randrange(1, len(earlier) + 1)
        group, offset = earlier[kept - 1]
        twist = (group, max(0, offset + dice.randrange(-6, 4)), dice.randrange(1, 4))
        rest = earlier[kept + twist[2] :]
        runs = [(name, at, 1) for name, at in earlier[:kept]]
        runs += [twist, *((name, at, 1) for name, at in rest)]
    return runs


@pytest.mark.parametrize("seed", range(12))
def test_two_blocks_have_one_key_when_all_tokens_up_to_their_ends_are_the_same(seed: int) -> None:
    """And a block that is not filled by shared tokens has one that nobody else has, also where there is no chain."""
    dice = Random(seed)
    block = dice.choice([1, 2, 3, 4])
    table = KeyTable()
    owners: dict[int, object] = {}
    holders: dict[object, int] = {}
    tokens: list[Token] = []
    for index in range(80):
        if index % 4 == 2:
            alone = Tables(index=index, chains=None, entries=[], passed=[], named=[])
            for place in (0, 1, 2, PRIVATE_BLOCKS // 2, PRIVATE_BLOCKS - 1):
                assert owners.setdefault(alone.key(0, place), (index, place)) == (index, place)
            continue
        runs = drawn_runs(dice, tokens)
        tokens = spelt(runs)
        chain = Chain(table, index, block, runs, len(tokens))
        if dice.random() < 0.5:
            chain = Chain(KeyTable(), index, block + 1, runs, len(tokens)).in_blocks_of(table, index, block)
        assert chain.shared_blocks == len(tokens) // block
        stop = dice.randrange(chain.shared_blocks + 1)
        beforehand = chain.shared_keys(stop)[:stop] if dice.random() < 0.5 else None
        places = [*range(chain.shared_blocks + 3), PRIVATE_BLOCKS - 1]
        if dice.random() < 0.5:
            dice.shuffle(places)
        keys = {place: chain.key(place) for place in places}
        assert beforehand is None or beforehand == [keys[place] for place in range(stop)]
        assert chain.shared_keys(chain.shared_blocks) == [keys[place] for place in range(chain.shared_blocks)]
        for place, key in keys.items():
            shared = (place + 1) * block <= len(tokens)
            identity = tuple(tokens[: (place + 1) * block]) if shared else (index, place)
            assert owners.setdefault(key, identity) == identity
            assert holders.setdefault(identity, key) == key


@pytest.mark.parametrize(
    ("one", "other"),
    [
        # x0 a4, a5 a6, a7 a8 and x0 a4, a3 a4, a5 a6
        ([("x", 0, 1), ("a", 4, 5)], [("x", 0, 1), ("a", 4, 1), ("a", 3, 4)]),
        # a2 a3, a4 b0 and a2 a3, a0 b0
        ([("a", 2, 3), ("b", 0, 1)], [("a", 2, 2), ("a", 0, 1), ("b", 0, 1)]),
    ],
)
def test_a_run_that_goes_on_is_told_from_one_that_goes_back(one: list[Run], other: list[Run]) -> None:
    table = KeyTable()
    keys = [
        [chain.key(place) for place in range(chain.shared_blocks)]
        for chain in (Chain(table, index, 2, runs, len(spelt(runs))) for index, runs in enumerate((one, other)))
    ]
    assert keys[0][0] == keys[1][0]
    assert not {*keys[0][1:]} & {*keys[1][1:]}


def test_keys_are_only_made_as_far_as_they_are_asked_for() -> None:
    """A long prompt that shares nothing else costs one entry for each of its runs."""
    table = KeyTable()
    chain = Chain(table, 0, 4, [("a", 0, 400), ("b", 0, 400)], 800)
    assert chain.key(99) - chain.key(0) == 99 and chain.shared_keys(5) == [chain.key(place) for place in range(100)]
    assert len(chain.shared_keys(101)) == 200


def test_runs_of_any_length_have_room_for_their_keys() -> None:
    table = KeyTable()
    bases = [table.base(0, "a", 0), table.base(0, "b", 0), table.key(0, (("c", 0, 4),)), table.base(5, "a", 0)]
    assert all(later - base >= SPAN for base, later in pairwise(bases))
    assert table.base(0, "b", 0) == bases[1] and bases[0] > 0
    first, second = (Chain(table, index, 4, (), 0) for index in (0, 1))
    assert first.key(PRIVATE_BLOCKS - 1) < 0 and first.key(0) - second.key(0) >= PRIVATE_BLOCKS


# ---- routing


class PlainRouter:
    """Remembers everybody who was sent and has not left."""

    def __init__(self, facts: RouterFacts, engines: int) -> None:
        self.facts = facts
        self.engines = engines
        self.there: list[int] = []
        self.sent: list[tuple[str | None, int]] = []

    def choose(self, request: int, beginning: str | None, bits: int) -> int:
        if self.facts.policy is ROUND_ROBIN:
            return request % self.engines
        homes = [engine for told, engine in self.sent if told is not None and told == beginning]
        if self.facts.policy is AFFINITY and homes:
            return homes[-1]
        loads = [self.there.count(engine) for engine in range(self.engines)]
        equals = [engine for engine in range(self.engines) if loads[engine] == min(loads)]
        if self.facts.ties is TieBreak.POSITIONAL:
            return equals[0]
        # Each of them has an equal part of all bits.
        return next(engine for place, engine in enumerate(equals) if bits * len(equals) < (place + 1) << 64)


@pytest.mark.parametrize("policy", RoutingPolicy)
@pytest.mark.parametrize("ties", TieBreak)
def test_a_router_sends_by_who_is_there_and_who_went_before(policy: RoutingPolicy, ties: TieBreak) -> None:
    for seed in range(8):
        dice = Random(seed)
        engines = dice.randrange(1, 5)
        facts = RouterFacts(policy=policy, ties=ties)
        routing, plain = Routing(facts, engines), PlainRouter(facts, engines)
        assert routing.blind is (policy is ROUND_ROBIN)
        for request in range(60):
            beginning = dice.choice([None, None, "a", "b", f"of {request}"])
            for bits in (0, (1 << 64) - 1, dice.getrandbits(64)):
                assert routing.choose(request, beginning, bits) == plain.choose(request, beginning, bits)
            # Wherever it is taken: somebody else may have decided.
            engine = dice.randrange(engines)
            routing.sent(engine, beginning)
            plain.there.append(engine)
            plain.sent.append((beginning, engine))
            who = dice.choice(plain.there)
            leaving = dice.randrange(plain.there.count(who) + 1)
            routing.left(who, leaving)
            for _ in range(leaving):
                plain.there.remove(who)


# ---- the door


@pytest.mark.parametrize("make", [random_case, random_groups_case])
def test_who_is_refused_is_told_from_the_most_that_can_come_to_be_held(make: Callable[[int], Case]) -> None:
    seen = set()
    for seed in range(60):
        limits, requests, _ = make(seed)
        lengths = [(request.prompt_tokens, request.output_tokens) for request in requests]
        usable = (limits.num_blocks - 1) * limits.block_size
        lengths += [(prompt, output) for prompt in range(usable - 1, usable + 3) for output in (1, 2, 3) if prompt > 0]
        lengths += [(limits.max_model_len - 1, 9), (limits.max_model_len, 1), (limits.max_model_len + 1, 1)]
        for prompt, output in lengths:
            told = SlowRequest(id="r", prompt=[("a", 0, prompt)], output_tokens=output)
            found = refusal(limits, prompt, output)
            assert found == reject_reason(limits, told), (seed, prompt, output)
            seen.add(found)
    assert seen == {None, *RejectReason}
