"""Tables of requests against a plain account: one mark for each entry, looked at anew for every answer."""

from __future__ import annotations

from random import Random

import msgspec
import pytest
from replay_examples import LIMITS

from isim.record.records import EngineVersion, GroupKind, GroupLimits
from isim.replay.pool import Block
from isim.replay.tables import Sparse, Table, terms

FULL, SLIDING, STATE, ALIGNED = GroupKind.FULL, GroupKind.SLIDING, GroupKind.STATE, GroupKind.ALIGNED_STATE
NULL, UNNAMED = None, -1


class Plain:
    """An entry is null, has a block without a name, or the key of its block."""

    def __init__(self, *, sparse: bool) -> None:
        self.sparse = sparse
        self.entries: list[int | None] = []

    def with_block(self) -> list[int]:
        return [place for place, entry in enumerate(self.entries) if entry is not NULL]

    def grown(self, entries: int) -> list[int | None]:
        new = max(0, entries - len(self.entries))
        blocks = min(new, 1) if self.sparse else new
        return self.entries + [NULL] * (new - blocks) + [UNNAMED] * blocks

    def wants(self, entries: int) -> int:
        return sum(entry is UNNAMED for entry in self.grown(entries)[len(self.entries) :])

    def unnamed(self, entries: int) -> list[int]:
        return [place for place in self.with_block() if place < entries and self.entries[place] == UNNAMED]

    def drop(self, entries: int) -> tuple[list[int], int]:
        gone = [entry for entry in self.entries[:entries] if entry is not NULL]
        self.entries[:entries] = [NULL] * entries
        return [key for key in gone if key != UNNAMED], gone.count(UNNAMED)


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("seed", range(20))
def test_a_table_is_what_a_list_of_its_entries_is(seed: int, sparse: bool) -> None:
    dice = Random(seed)
    table, plain = Sparse() if sparse else Table(), Plain(sparse=sparse)
    key = 0
    if dice.random() < 0.7:
        entries = dice.randrange(1, 6)
        blocks = [Block(key := key + 1) for _ in range(dice.randrange(1, entries + 1))]
        table.start(entries, blocks)
        plain.entries = [NULL] * (entries - len(blocks)) + [block.key for block in blocks]
    for _ in range(60):
        entries = len(plain.entries) + dice.choice((-1, 0, 1, 1, 2, 3))
        assert table.wants(entries) == plain.wants(entries)
        if dice.random() < 0.6:
            assert table.grow(entries) == plain.wants(entries)
            plain.entries = plain.grown(entries)
        if dice.random() < 0.4:
            until = dice.randrange(len(plain.entries) + 1)
            places = plain.unnamed(until)
            assert list(table.unnamed(until)) == places
            for place in places:
                plain.entries[place] = key = key + 1
                table.blocks.append(Block(key))
        there = plain.with_block()
        if len(there) > 1 and dice.random() < 0.4:
            until = dice.randrange(there[0] + 1, there[-1] + 1)
            blocks, more = table.drop(until)
            assert ([block.key for block in blocks], more) == plain.drop(until)
        there = plain.with_block()
        keys = [entry for entry in plain.entries if entry not in (NULL, UNNAMED)]
        assert (table.length, table.held) == (len(plain.entries), len(there))
        assert [block.key for block in table.blocks] == keys
        assert not there or table.first == there[0]


@pytest.mark.parametrize(
    ("kind", "block", "window", "at_once", "most"),
    [
        # all of it; a budget of 8 behind a window of 3, from anywhere in a block; one; one, and a second until it goes
        (FULL, 2, 0, 10, 10),
        (SLIDING, 2, 3, 6, 6),
        (SLIDING, 4, 3, 4, 4),
        (STATE, 64, 0, 1, 1),
        (ALIGNED, 2, 0, 10, 2),
    ],
)
def test_what_20_tokens_need_at_once_and_hold_at_most(
    kind: GroupKind, block: int, window: int, at_once: int, most: int
) -> None:
    one = GroupLimits(kind=kind, block_size=block, window_tokens=window)
    told = terms(msgspec.structs.replace(LIMITS, version=EngineVersion.V033, groups=(one,)))[0]
    assert (told.at_once(20), told.most_held(20)) == (at_once, most)
    assert isinstance(told.table(), Sparse) == (kind is ALIGNED)
