"""What makes two KV blocks equal: the same tokens after the same tokens.

A token is a pair (group, offset). A block's content is the shortest list of runs (group, start, count) that
spells it; its key stands for its parent's key and its content, so equal keys mean equal prefixes. Keys are small
integers handed out in order of first sight. Tokens no other request can have need no content: such a block is
named by its request and its place.
"""

from __future__ import annotations

from collections.abc import Sequence

Run = tuple[str, int, int]
PRIVATE_BLOCKS = 1 << 32


class KeyTable:
    """Hands out one integer for each (parent key, content)."""

    def __init__(self) -> None:
        self._keys: dict[tuple[int, tuple[Run, ...]], int] = {}

    def key(self, parent: int, content: tuple[Run, ...]) -> int:
        keys = self._keys
        return keys.setdefault((parent, content), len(keys) + 1)


def merge(runs: Sequence[Run]) -> list[Run]:
    """The same tokens in the fewest runs."""
    merged: list[Run] = []
    for group, start, count in runs:
        if count and merged and merged[-1][0] == group and merged[-1][1] + merged[-1][2] == start:
            merged[-1] = (group, merged[-1][1], merged[-1][2] + count)
        elif count:
            merged.append((group, start, count))
    return merged


class Chain:
    """The keys of one request's blocks, made when asked for.

    The first `shared_tokens` tokens are spelt by `runs`; everything after them is the request's own.
    """

    __slots__ = ("_block", "_keys", "_next_run", "_offset", "_private", "_runs", "_table", "shared_blocks")

    def __init__(self, table: KeyTable, index: int, block_size: int, runs: Sequence[Run], shared_tokens: int) -> None:
        self._table = table
        self._block = block_size
        self._runs = merge(runs)
        self._keys: list[int] = []
        self._next_run = 0
        self._offset = 0
        self._private = -(index + 1) * PRIVATE_BLOCKS
        self.shared_blocks = shared_tokens // block_size

    def key(self, place: int) -> int:
        """Key of the block at `place`, counted from 0."""
        if place >= self.shared_blocks:
            return self._private + place
        while len(self._keys) <= place:
            parent = self._keys[-1] if self._keys else 0
            self._keys.append(self._table.key(parent, self._content()))
        return self._keys[place]

    def _content(self) -> tuple[Run, ...]:
        left = self._block
        content: list[Run] = []
        while left:
            group, start, count = self._runs[self._next_run]
            part = min(left, count - self._offset)
            content.append((group, start + self._offset, part))
            left -= part
            self._offset += part
            if self._offset == count:
                self._next_run += 1
                self._offset = 0
        return tuple(content)
