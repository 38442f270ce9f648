"""What makes two KV blocks equal: the same tokens after the same tokens.

A token is a pair (group, offset). A block's content is the shortest list of runs (group, start, count) that
spells it; its key stands for its parent's key and its content, so equal keys mean equal prefixes. Keys are integers
handed out in order of first sight: one for each block in which a run begins or ends, and a range of them for the
blocks that one run fills, which needs no work for each (runs are as long as can be, so equal prefixes agree on them).
Tokens no other request can have need no content: such a block is named by its request and its place.
"""

from __future__ import annotations

from collections.abc import Sequence

Run = tuple[str, int, int]
PRIVATE_BLOCKS = 1 << 32
SPAN = 1 << 32
"""No run has as many blocks."""


class KeyTable:
    """Hands out one integer for each (parent key, content), a range of them for each (parent key, start of a run)."""

    def __init__(self) -> None:
        self._keys: dict[tuple[object, ...], int] = {}

    def key(self, parent: int, content: tuple[Run, ...]) -> int:
        keys = self._keys
        return keys.setdefault((parent, content), len(keys) * SPAN + SPAN)

    def base(self, parent: int, group: str, start: int) -> int:
        """The first of the keys of the blocks that a run fills one after another, from its token `start` on."""
        keys = self._keys
        return keys.setdefault((parent, group, start), len(keys) * SPAN + SPAN)


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

    __slots__ = (
        "_block",
        "_keys",
        "_next_run",
        "_offset",
        "_private",
        "_runs",
        "_shared_tokens",
        "_table",
        "shared_blocks",
    )

    def __init__(self, table: KeyTable, index: int, block_size: int, runs: Sequence[Run], shared_tokens: int) -> None:
        self._table = table
        self._block = block_size
        self._runs = merge(runs)
        self._keys: list[int] = []
        self._next_run = 0
        self._offset = 0
        self._private = -(index + 1) * PRIVATE_BLOCKS
        self._shared_tokens = shared_tokens
        self.shared_blocks = shared_tokens // block_size

    def in_blocks_of(self, table: KeyTable, index: int, block_size: int) -> Chain:
        """The same tokens in blocks of another length."""
        return Chain(table, index, block_size, self._runs, self._shared_tokens)

    def key(self, place: int) -> int:
        """Key of the block at `place`, counted from 0."""
        if place >= self.shared_blocks:
            return self._private + place
        while len(self._keys) <= place:
            self._more()
        return self._keys[place]

    def shared_keys(self, stop: int) -> list[int]:
        """At least the keys of the first `stop` blocks, which are shared ones."""
        while len(self._keys) < stop:
            self._more()
        return self._keys

    def _more(self) -> None:
        """The keys of all whole blocks that the next run fills, or of the one block that it begins or ends."""
        keys, block = self._keys, self._block
        parent = keys[-1] if keys else 0
        group, start, count = self._runs[self._next_run]
        whole = (count - self._offset) // block
        if not whole:
            keys.append(self._table.key(parent, self._content()))
            return
        base = self._table.base(parent, group, start + self._offset)
        keys.extend(range(base, base + whole))
        self._offset += whole * block
        if self._offset == count:
            self._next_run += 1
            self._offset = 0

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
