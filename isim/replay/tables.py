"""What one request keeps in one KV group: a table with an entry for each block of positions, and the group's terms.

All kinds are told by two figures. `reach` is how many tokens behind the newest ones a group still needs: all of them
(full attention, and a state that is kept in one block), a window less the token that is computed next, or one (a state
that is kept where blocks end). What lies further behind is passed. A group that keeps `sparse` has a block in the last
entry of a chunk only; the entries between are null. A block of a kept-throughout state has room for any sequence, so
its table has one entry.

Entries are named from the start on and passed from the start on, so of those with a block the first have names.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from isim.record.records import EngineLimits, EngineVersion, GroupKind, GroupLimits
from isim.replay.pool import Block

ALL = 1 << 60
"""Beyond any sequence."""
_REACH = {GroupKind.FULL: ALL, GroupKind.STATE: ALL, GroupKind.ALIGNED_STATE: 1}


class Terms(msgspec.Struct, frozen=True, eq=False, kw_only=True):
    """One KV group. `run` is how many cached entries in a row let a sequence go on behind them; `most` caps a table."""

    number: int
    kind: GroupKind
    size: int
    reach: int
    run: int
    most: int

    @property
    def sparse(self) -> bool:
        return self.kind is GroupKind.ALIGNED_STATE

    def entries(self, tokens: int) -> int:
        """Entries of a table for so many positions."""
        return -(-tokens // self.size)

    def passed(self, computed: int) -> int:
        """Entries that are needed no more once so many tokens are computed."""
        return max(0, computed - self.reach) // self.size

    def most_held(self, tokens: int) -> int:
        """The most blocks that a sequence of so many positions may come to hold."""
        return min(self.entries(tokens), self.most)

    def at_once(self, tokens: int) -> int:
        """Entries that must be there for a whole sequence to fit; of a window no more than it may come to hold."""
        return self.most_held(tokens) if self.kind is GroupKind.SLIDING else self.entries(tokens)

    def table(self) -> Table:
        """An empty one."""
        return Sparse() if self.sparse else Table()


def terms(limits: EngineLimits) -> list[Terms]:
    """The terms of each group that the limits list."""
    return [_terms(limits, number, group) for number, group in enumerate(limits.groups)]


def _terms(limits: EngineLimits, number: int, group: GroupLimits) -> Terms:
    """A table may grow by one step's tokens before it gives back, by two where those in flight do not count."""
    size, reach = group.block_size, _REACH.get(group.kind, group.window_tokens - 1)
    steps = 2 if limits.version is EngineVersion.V033 and limits.async_scheduling else 1
    most = ALL
    if group.kind is GroupKind.SLIDING:
        most = -(-min(reach + steps * limits.max_num_batched_tokens, limits.max_model_len) // size) + 1
    elif group.kind is GroupKind.ALIGNED_STATE:
        most = 1 + steps
    return Terms(number=number, kind=group.kind, size=size, reach=reach, run=-(-reach // size), most=most)


class Table(msgspec.Struct, eq=False):
    """Entries without gaps: `length` of them, null before `first`; `blocks` are the named ones from there on."""

    length: int = 0
    first: int = 0
    blocks: list[Block] = []  # msgspec copies an empty literal default for each table

    @property
    def held(self) -> int:
        """Entries with a block."""
        return self.length - self.first

    def wants(self, entries: int) -> int:
        """Blocks it lacks to have so many entries."""
        return max(0, entries - self.length)

    def grow(self, entries: int) -> int:
        """Have so many entries; how many blocks went in."""
        new = self.wants(entries)
        self.length += new
        return new

    def start(self, entries: int, blocks: list[Block]) -> None:
        """Take over the blocks found; they are its last of so many entries."""
        self.length, self.first, self.blocks = entries, entries - len(blocks), blocks

    def unnamed(self, entries: int) -> Sequence[int]:
        """Which of the first entries have a block without a name."""
        return range(self.first + len(self.blocks), entries)

    def drop(self, entries: int) -> tuple[list[Block], int]:
        """Give back the first entries, never all: the named blocks among them, and how many more."""
        return self._split(entries - self.first, entries)

    def _split(self, count: int, first: int) -> tuple[list[Block], int]:
        named = self.blocks[:count]
        del self.blocks[:count]
        self.first = first
        return named, count - len(named)


class Sparse(Table):
    """Entries of which only those in `places` have a block. `first` is the first of these."""

    places: list[int] = []

    @property
    def held(self) -> int:
        return len(self.places)

    def wants(self, entries: int) -> int:
        return 1 if entries > self.length else 0

    def grow(self, entries: int) -> int:
        if entries <= self.length:
            return 0
        self.length = entries
        self.places.append(entries - 1)
        self.first = self.places[0]
        return 1

    def start(self, entries: int, blocks: list[Block]) -> None:
        super().start(entries, blocks)
        self.places = list(range(self.first, entries))

    def unnamed(self, entries: int) -> Sequence[int]:
        return [place for place in self.places[len(self.blocks) :] if place < entries]

    def drop(self, entries: int) -> tuple[list[Block], int]:
        count = sum(1 for place in self.places if place < entries)
        del self.places[:count]
        return self._split(count, self.places[0])
