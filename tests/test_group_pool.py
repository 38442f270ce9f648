"""The blocks of several KV groups against the slow engine's: the same calls to both, compared after each of them.

The slow pool names a block when it is full and known and moves lists about; it was written from the rules. The product
names it when somebody may look. What both must agree on is what is found, what is wanted, and the whole free queue.
"""

from __future__ import annotations

from random import Random
from typing import Any

import msgspec
import pytest
from slow_blocks import Live, SlowPool, SlowRequest
from workload_fuzz import random_groups_case

from isim.policy.vllm.group_pool import GroupPool, Tables
from isim.policy.vllm.group_rules import whole_block
from isim.policy.vllm.keys import Chain, KeyTable
from isim.policy.vllm.rules import RULES
from isim.record.records import GroupKind, GroupLimits

Runs = list[tuple[str, int, int]]


class Member(msgspec.Struct, eq=False):
    """A request as either pool has it. `hashed` counts tokens that were full and known when it last got blocks."""

    live: Live
    tables: Tables
    quotable: bool
    settled: int = 0
    hashed: int = 0
    running: bool = False


class Pair:
    """Both pools, and who is there."""

    def __init__(self, seed: int, **fields: Any) -> None:
        """Of limits drawn; `fields` are others."""
        self.seed, self.dice = seed, Random(seed)
        limits, _, _ = random_groups_case(seed)
        drawn = {"num_blocks": self.dice.choice([12, 20, 40, limits.num_blocks]), **fields}
        self.limits = msgspec.structs.replace(limits, **drawn)
        self.fast = GroupPool(self.limits, RULES[self.limits.version])
        self.slow = SlowPool(self.limits)
        self.key_tables = {group.block_size: KeyTable() for group in self.fast.groups}
        self.members: list[Member] = []
        self.made = self.starts = self.found = self.refused = 0

    def agree(self) -> None:
        assert self.fast.order() == self.slow.free, self.seed
        assert self.fast.free == len(self.slow.free), self.seed
        for member in self.members:
            assert member.tables.entries == member.live.tables

    def new(self) -> None:
        """A request whose prompt begins as others do, or with what another has said."""
        dice, index = self.dice, self.made
        self.made += 1
        prompt: Runs = [(f"u:r{index}", 0, dice.randrange(1, 9))]
        quotable = dice.random() < 0.4
        known = dice.random() < 0.8
        if known:
            shared = [
                (dice.choice([letter, "a"]), 0, dice.choice([3, 8, 8, 13])) for letter in "abc"[: dice.randrange(4)]
            ]
            quoted = [member.live.request for member in self.members if member.quotable]
            if quoted and dice.random() < 0.6:
                said = dice.choice(quoted)
                shared = [*said.prompt, (f"o:{said.id}", 0, dice.randrange(1, 20))]
            elif dice.random() < 0.6:
                shared = [("a", 0, dice.randrange(1, self.limits.max_model_len - 10))]
            prompt = [*shared, *prompt]
        spelt = [*prompt, *([(f"o:r{index}", 0, self.limits.max_model_len)] * quotable)]
        request = SlowRequest(id=f"r{index}", prompt=prompt, output_tokens=40)
        tokens = [(group, start + k) for group, start, count in prompt for k in range(count)]
        chains = None
        if known or quotable:
            base = Chain(KeyTable(), index, 1, spelt, sum(count for _, _, count in spelt))
            of_size = {size: base.in_blocks_of(table, index, size) for size, table in self.key_tables.items()}
            chains = tuple(of_size[group.block_size] for group in self.fast.groups)
        groups = len(self.fast.groups)
        live = Live(request=request, tokens=tokens, tables=[[] for _ in range(groups)], hashed=[0] * groups)
        self.members.append(Member(live, self.fast.tables(index, chains), quotable))

    def start(self, member: Member) -> None:
        """Look up, compare what is found and wanted, and begin if there is room."""
        live, dice = member.live, self.dice
        found, due = self.fast.find(member.tables, len(live.tokens)), self.slow.hits(live)
        assert (found.tokens, found.shared) == (due.tokens, due.shared)
        self.found += found.tokens > 0
        for whole in (False, True):
            for tokens in range(found.tokens + 1, len(live.tokens) + 1, 1 + dice.randrange(3)):
                lacks = self.slow.lacks(live, tokens, due, whole=whole)
                assert self.fast.lacks(tokens, found, whole=whole) == lacks
        tokens = dice.randrange(found.tokens + 1, len(live.tokens) + 1)
        assert self.fast.lacks(tokens, found) == self.slow.lacks(live, tokens, due)
        if self.slow.lacks(live, tokens, due):
            self.refused += 1
            return
        self.starts += 1
        self.fast.start(member.tables, tokens, found)
        self.slow.admit(live, tokens, due)
        live.computed, member.settled, member.running = tokens, 0, True
        self._name(member)

    def go_on(self, member: Member) -> None:
        """Give back what is passed at some moment not before the last, then take blocks for more tokens."""
        live, dice = member.live, self.dice
        if live.computed > len(live.tokens):
            live.tokens.append((f"o:{live.id}", live.outputs))
            live.outputs += 1
            if dice.random() < 0.5:
                self.slow.publish(live, min(live.computed, len(live.tokens)))
                self._name(member)
        member.settled = max(member.settled, live.computed - dice.choice([0, 0, 1, 2]))
        self.fast.drop(member.tables, member.settled, member.hashed)
        self.slow.drop_passed(live, member.settled)
        self.agree()
        tokens = live.computed + dice.randrange(1, max(1, len(live.tokens) - live.computed) + 1)
        assert (self.fast.wants(member.tables, tokens) > self.fast.free) == self.slow.lacks(live, tokens)
        if self.slow.lacks(live, tokens) or tokens > self.limits.max_model_len:
            self.leave(member, again=tokens <= self.limits.max_model_len)
            return
        self.fast.allot(member.tables, tokens)
        self.slow.allot(live, tokens)
        live.computed = tokens
        self._name(member)

    def _name(self, member: Member) -> None:
        member.hashed = max(member.hashed, min(member.live.computed, len(member.live.tokens)))
        self.fast.name(member.tables, member.hashed, shared_only=True)

    def leave(self, member: Member, *, again: bool) -> None:
        """Who may come back has everything named; nobody could look for the rest of the others."""
        if again:
            self.fast.name(member.tables, member.hashed, shared_only=False)
        else:
            self.members.remove(member)
        self.fast.release(member.tables, member.hashed)
        self.slow.release(member.live)
        member.live.computed = member.hashed = member.settled = 0
        member.running = False
        self.step()

    def step(self) -> None:
        self.fast.step_starts()
        self.slow.step_starts()

    def act(self) -> None:
        dice = self.dice
        waiting = [member for member in self.members if not member.running]
        running = [member for member in self.members if member.running]
        if waiting and dice.random() < 0.4:
            self.start(dice.choice(waiting))
        elif running and dice.random() < 0.8:
            self.go_on(dice.choice(running))
        elif running and dice.random() < 0.3:
            self.leave(dice.choice(running), again=dice.random() < 0.7)
        elif len(self.members) < 12:
            self.new()
        if dice.random() < 0.3:
            self.step()
        self.agree()


def played(seed: int, **fields: Any) -> Pair:
    pair = Pair(seed, **fields)
    for _ in range(150):
        pair.act()
    return pair


def test_both_pools_find_want_and_keep_the_same() -> None:
    """With finds and with shortages, of blocks of one length and of several."""
    pairs = [played(seed) for seed in range(40)]
    assert all(pair.starts > 3 for pair in pairs)
    assert sum(pair.found > 2 for pair in pairs) > 15
    assert sum(pair.refused > 2 for pair in pairs) > 10
    assert {whole_block(pair.limits) > 1 for pair in pairs} == {True, False}


WINDOWS = [GroupLimits(kind=GroupKind.SLIDING, block_size=2, window_tokens=tokens) for tokens in (9, 2)]


@pytest.mark.parametrize(
    ("groups", "num_blocks", "seeds"),
    [
        ((GroupLimits(kind=GroupKind.FULL, block_size=2), *WINDOWS), 40, range(30, 36)),
        ((*WINDOWS,), 24, range(22, 28)),
        ((GroupLimits(kind=GroupKind.SLIDING, block_size=2, window_tokens=4),), 24, range(20, 23)),
    ],
)
def test_a_prefix_ends_where_every_window_has_all_of_its_blocks(
    groups: tuple[GroupLimits, ...], num_blocks: int, seeds: range
) -> None:
    """Where one shortens it another is asked again: the longer one gives blocks back before the shorter one does."""
    for seed in seeds:
        played(seed, groups=groups, block_size=2, num_blocks=num_blocks, enable_prefix_caching=True)
