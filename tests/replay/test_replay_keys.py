"""Names of blocks against the tokens in them, and what is found of a prompt against a look at every length."""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd, lcm
from random import Random

import msgspec
import pytest
from replay_examples import LIMITS

from isim.record.records import GroupKind, GroupLimits
from isim.replay.chain import Keys, quoted_outputs
from isim.replay.lookup import Lookup
from isim.replay.pool import Block, Pool
from isim.replay.tables import Terms, terms

FULL, SLIDING, ALIGNED = GroupKind.FULL, GroupKind.SLIDING, GroupKind.ALIGNED_STATE
Run = tuple[str, int, int]


# ---- chains


def split(dice: Random, runs: Sequence[Run]) -> list[Run]:
    """The same tokens in other runs."""
    told = []
    for group, start, count in runs:
        first = dice.randint(1, count)
        told += [(group, start, first)] + [(group, start + first, count - first)] * (first < count)
    return told


def prompt(dice: Random) -> list[Run]:
    return [(dice.choice("ab"), dice.randrange(3), dice.randint(1, 7)) for _ in range(dice.randrange(1, 5))]


@pytest.mark.parametrize("seed", range(8))
def test_blocks_have_one_key_exactly_when_their_tokens_and_those_before_are_the_same(seed: int) -> None:
    """Of prompts told in other runs, asked in other portions, and of answers that are quoted."""
    dice = Random(seed)
    size, stride = dice.randint(1, 5), dice.randint(1, 4)
    keys = Keys(size, stride)
    told: dict[tuple[tuple[str, int], ...], int] = {}
    runs: dict[str, list[Run]] = {}
    for number in range(30):
        one = prompt(dice)
        quoted = dice.choice(list(runs)) if runs and dice.random() < 0.5 else None
        if quoted is not None:
            one = runs[quoted] + [(f"o:{quoted}", 0, dice.randint(1, 9))] + one
        name = f"r{number}"
        runs[name] = split(dice, one)
        chain = keys.chain(name, runs[name])
        tokens = [(group, start + k) for group, start, count in one for k in range(count)]
        tokens += [(f"o:{name}", k) for k in range(40)]
        blocks = len(tokens) // size
        for portion in sorted(dice.randrange(blocks + 1) for _ in range(3)):
            assert len(keys.extend(chain, portion)) >= portion
        for place, key in enumerate(keys.extend(chain, blocks)[:blocks]):
            assert told.setdefault(tuple(tokens[: (place + 1) * size]), key) == key
    marks = [key + number for key in told.values() for number in range(stride)]
    assert len(set(marks)) == len(marks)


def test_a_chain_is_made_no_further_than_asked_and_its_answer_follows_without_end() -> None:
    keys = Keys(2)
    chain = keys.chain("r", [("a", 0, 10)])
    assert [len(keys.extend(chain, blocks)) for blocks in (0, 2, 1, 5, 5000)] == [0, 2, 2, 5, 5000]


def test_a_prompt_quotes_each_answer_that_it_names_once() -> None:
    told = [("o:r2", 0, 4), ("a", 0, 1), ("o:r1", 0, 2), ("o:r2", 4, 4), ("xo:r3", 0, 1)]
    assert quoted_outputs(told) == Keys(2).chain("r4", told).quoted == ["r2", "r1"]
    assert quoted_outputs([("a", 0, 1)]) == []


# ---- look-ups


def needs(one: GroupLimits, tokens: int) -> list[int]:
    """Entries that whoever goes on behind so many tokens needs, position by position."""
    needed = set()
    for position in range(tokens):
        behind = tokens - position
        if one.kind is FULL or behind == 1 or (one.kind is SLIDING and behind < one.window_tokens):
            needed.add(position // one.block_size)
    return sorted(needed)


def some_groups(dice: Random) -> tuple[GroupLimits, ...]:
    size = dice.choice([1, 2, 4])

    def a_group(kind: GroupKind) -> GroupLimits:
        window = dice.randint(2, 20) if kind is SLIDING else 0
        length = size if kind is ALIGNED else size * dice.choice([1, 1, 2, 3])
        return GroupLimits(kind=kind, block_size=length, window_tokens=window)

    listed = [a_group(dice.choice([FULL, SLIDING, SLIDING, ALIGNED])) for _ in range(dice.randint(1, 3))]
    listed += dice.choices(listed, k=dice.randrange(2))
    dice.shuffle(listed)
    return tuple(listed)


def a_lookup(dice: Random) -> tuple[tuple[GroupLimits, ...], list[Terms], Lookup, Pool]:
    groups = some_groups(dice)
    limits = msgspec.structs.replace(LIMITS, groups=groups, enable_prefix_caching=True)
    told = terms(limits)
    pool = Pool(1000, caching=True, unkeyed_first=False)
    return groups, told, Lookup(told, groups, pool), pool


@pytest.mark.parametrize("seed", range(60))
def test_what_is_found_is_the_longest_prefix_of_which_every_group_has_what_it_needs(seed: int) -> None:
    dice = Random(seed)
    groups, told, lookup, pool = a_lookup(dice)
    whole = lcm(*(one.block_size for one in groups))
    assert (lookup.unit, lookup.whole) == (gcd(*(one.block_size for one in groups)), whole)
    keys = [1000 + 10 * place for place in range(96 // lookup.unit)]
    cached: dict[tuple[int, int], Block] = {}
    density = dice.choice([0.6, 0.9, 0.97])
    pool.take(900)
    for number, one in enumerate(groups):
        for place in range(96 // one.block_size):
            if dice.random() < density:
                key = 1000 + 10 * ((place + 1) * one.block_size // lookup.unit - 1) + number
                (cached[number, place],) = pool.name([key])
                for places in ([place], range(place, place + 1)):
                    assert lookup.keys(keys, told[number], places) == [key]
    for tokens in range(0, 97, 5):
        lengths = range(0, tokens + 1, whole)
        full = [
            length
            for length in lengths
            if all((n, e) in cached for n, it in enumerate(groups) if it.kind is FULL for e in needs(it, length))
        ]
        due = max(
            length for length in full if all((n, e) in cached for n, it in enumerate(groups) for e in needs(it, length))
        )
        found = lookup.find(keys[: tokens // lookup.unit], tokens)
        assert found.tokens == due, tokens
        assert found.shared == (max(full) if any(it.kind is FULL for it in groups) else 0)
        assert found.blocks == [[cached[n, e] for e in needs(it, due)] for n, it in enumerate(groups)]


def test_what_shortens_a_prefix_is_asked_again_until_all_agree() -> None:
    """Blocks of a token. A window of 3 has 2 in a row before 6, one of 2 has none before 6 but one before 5; there the
    first has but one, and two before 2, where the second has its one. Full attention has all.
    """
    groups = (GroupLimits(kind=FULL, block_size=1), window(3), window(2))
    pool = Pool(100, caching=True, unkeyed_first=False)
    lookup = Lookup(terms(msgspec.structs.replace(LIMITS, groups=groups)), groups, pool)
    pool.take(100)
    keys = [10 * place for place in range(6)]
    there = ([0, 1, 2, 3, 4, 5], [0, 1, 4, 5], [1, 4])
    for number, places in enumerate(there):
        pool.name([10 * place + number for place in places])
    found = [lookup.find(keys, tokens) for tokens in range(7)]
    assert [it.tokens for it in found] == [0, 0, 2, 2, 2, 2, 2]
    assert [it.shared for it in found] == list(range(7))


def window(tokens: int) -> GroupLimits:
    return GroupLimits(kind=SLIDING, block_size=1, window_tokens=tokens)
