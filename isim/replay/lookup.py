"""What a waiting request finds in the cache when it needs blocks of several KV groups, and what starting from it costs.

A prefix counts when every group has it, each in its own blocks. A chain is made in blocks of the greatest length that
divides all of them; where an entry of a group ends, one of those ends too, and its key, moved on by the group's
number, is the entry's.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd, lcm

import msgspec

from isim.record.records import GroupLimits
from isim.replay.pool import Block, Pool
from isim.replay.scheduler import Found
from isim.replay.tables import ALL, Terms


class _Alike(msgspec.Struct, frozen=True, eq=False):
    """Groups on the same terms: what one of them lacks is of no use in the others."""

    terms: Terms
    numbers: tuple[int, ...]

    @property
    def full(self) -> bool:
        """It needs every token; the other kinds that do cannot be looked up."""
        return self.terms.reach == ALL


class Lookup:
    """`unit` is the length of a chain's blocks, `whole` a length that is so many entries in every group."""

    def __init__(self, groups: Sequence[Terms], limits: Sequence[GroupLimits], pool: Pool) -> None:
        self.unit = gcd(*(group.size for group in groups))
        self.whole = lcm(*(group.size for group in groups))
        self._groups = groups
        self._pool = pool
        alike: dict[GroupLimits, list[int]] = {}
        for group, limit in zip(groups, limits, strict=True):
            alike.setdefault(limit, []).append(group.number)
        kinds = [_Alike(groups[numbers[0]], tuple(numbers)) for numbers in alike.values()]
        self._kinds = [kind for kind in kinds if kind.full] + [kind for kind in kinds if not kind.full]

    def keys(self, keys: Sequence[int], group: Terms, places: Sequence[int]) -> list[int]:
        """The keys of a group's entries, from the keys of the chain."""
        each, number = group.size // self.unit, group.number
        if isinstance(places, range):
            return [key + number for key in keys[(places.start + 1) * each - 1 : places.stop * each : each]]
        return [keys[(place + 1) * each - 1] + number for place in places]

    def find(self, keys: Sequence[int], tokens: int) -> Found:
        """The longest prefix of at most so many tokens that all groups have.

        Each kind shortens what the next may find, until all agree. Full attention is asked once: it has all of what
        is shorter too.
        """
        kinds = self._kinds
        asked = kinds
        shared = 0
        while True:
            before = tokens
            for kind in asked:
                tokens = self._end(keys, kind, tokens) * kind.terms.size
                if kind.full:
                    shared = tokens
            if tokens >= before:
                break
            asked = [kind for kind in kinds if not kind.full]
        blocks = [self._blocks(keys, group, tokens) for group in self._groups]
        return Found(tokens, blocks, shared)

    def _blocks(self, keys: Sequence[int], group: Terms, tokens: int) -> list[Block]:
        """What the group still needs of the prefix."""
        needed = range(group.passed(tokens), tokens // group.size)
        blocks = [self._pool.oldest(key) for key in self.keys(keys, group, needed)]
        return [block for block in blocks if block is not None]

    def _end(self, keys: Sequence[int], kind: _Alike, tokens: int) -> int:
        """The entries of the longest prefix that groups of this kind can go on from."""
        step = self.whole // kind.terms.size
        limit = tokens // kind.terms.size
        if kind.full:
            for number in kind.numbers:
                wanted = self.keys(keys, self._groups[number], range(limit))
                limit = len(self._pool.find(wanted, limit))
            return limit // step * step
        end = limit // step * step
        while end > 0:
            first = max(0, end - kind.terms.run)
            place = end - 1
            while place >= first and self._cached(keys, kind, place):
                place -= 1
            if place < first:
                return end
            # whatever goes on from a run with this gap ends at the gap or before
            end = place // step * step
        return 0

    def _cached(self, keys: Sequence[int], kind: _Alike, place: int) -> bool:
        key = keys[(place + 1) * kind.terms.size // self.unit - 1]
        oldest = self._pool.oldest
        return all(oldest(key + number) is not None for number in kind.numbers)
