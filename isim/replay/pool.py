"""The block ledger: how many blocks are free and, where that can matter, what the free ones still hold.

Blocks are lent from the head of the free queue; lending a block ends what was cached in it. Only a block some later
request could ask for is an object here (`Block`); all others lie in the queue as extents of so many blocks. A block
with a key stays findable while it is lent and while it waits in the queue. Of equal blocks the oldest is found.

0.21 puts freed blocks at the end of the queue, the tail of the request first. 0.33 puts those without a key in front.
Without prefix caching order means nothing and only the count is kept.

A block that is lent out of the middle of the queue leaves its place there behind, a stale one. Its newer places come
after it, so of its places the first are stale, as many as it counts. When they are too many the queue is made anew.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence

import msgspec

_LEAST_KEPT = 1024


class Block(msgspec.Struct, eq=False, gc=False):
    """A full block with a key; `users` is 0 while it waits in the free queue, where it has `stale` places too."""

    key: int
    users: int = 1
    stale: int = 0


class _Extent(msgspec.Struct, eq=False):
    """So many free blocks in a row that nobody can ask for."""

    count: int


class Pool:
    """`free` is the number of free blocks."""

    def __init__(self, usable_blocks: int, *, caching: bool, unkeyed_first: bool) -> None:
        self.free = usable_blocks
        self._caching = caching
        self._unkeyed_first = unkeyed_first
        self._most_places = 2 * usable_blocks + _LEAST_KEPT
        self._queue: deque[Block | _Extent] = deque([_Extent(usable_blocks)])
        self._oldest: dict[int, Block] = {}
        self._younger: dict[int, list[Block]] = {}

    @property
    def cached_keys(self) -> int:
        """How many different keys can be found now."""
        return len(self._oldest)

    def take(self, count: int) -> None:
        """Lend `count` blocks from the head of the queue; the caller knows that there are enough."""
        self.free -= count
        if not self._caching:
            return
        queue, oldest, younger = self._queue, self._oldest, self._younger
        while count:
            head = queue.popleft()
            if isinstance(head, Block):
                if head.stale:
                    head.stale -= 1
                    continue
                if head.key in younger:
                    self._forget_one(head)
                else:
                    del oldest[head.key]
                count -= 1
            elif head.count > count:
                head.count -= count
                queue.appendleft(head)
                return
            else:
                count -= head.count

    def give_unnamed(self, keyed: int, unkeyed: int) -> None:
        """Take back the blocks of a request whose content nobody can ask for: `keyed` full ones, then the rest."""
        self.free += keyed + unkeyed
        if self._caching:
            self._put_unkeyed(unkeyed, in_front=self._unkeyed_first)
            self._put_unkeyed(keyed, in_front=False)

    def give(self, blocks: Sequence[Block], unkeyed: int) -> None:
        """Take back a request's table: `blocks` in the order of its tokens, then `unkeyed` more."""
        self._put_unkeyed(unkeyed, in_front=self._unkeyed_first)
        queue = self._queue
        freed = unkeyed
        for block in reversed(blocks):
            block.users -= 1
            if block.users == 0:
                queue.append(block)
                freed += 1
        self.free += freed
        if len(queue) > self._most_places:
            self._drop_stale()

    def find(self, keys: Sequence[int], limit: int) -> list[Block]:
        """The longest run of cached blocks for the first `limit` keys."""
        oldest = self._oldest
        found: list[Block] = []
        for key in keys[:limit]:
            block = oldest.get(key)
            if block is None:
                break
            found.append(block)
        return found

    def oldest(self, key: int) -> Block | None:
        """The block that is found under this key."""
        return self._oldest.get(key)

    def touch(self, blocks: Sequence[Block]) -> None:
        """Lend blocks that were found: they leave the queue, if they wait there, and keep their keys."""
        for block in blocks:
            if block.users == 0:
                block.stale += 1
                self.free -= 1
            block.users += 1

    def name(self, keys: Iterable[int]) -> list[Block]:
        """Blocks that are lent out become findable under these keys."""
        oldest = self._oldest
        named = []
        for key in keys:
            block = Block(key)
            if oldest.setdefault(key, block) is not block:
                self._younger.setdefault(key, []).append(block)
            named.append(block)
        return named

    def _forget_one(self, block: Block) -> None:
        """One of several blocks of a key is found no more."""
        key = block.key
        younger = self._younger[key]
        if self._oldest[key] is block:
            self._oldest[key] = younger.pop(0)
        else:
            younger.remove(block)
        if not younger:
            del self._younger[key]

    def _put_unkeyed(self, count: int, *, in_front: bool) -> None:
        if not count:
            return
        queue = self._queue
        if queue:
            edge = queue[0 if in_front else -1]
            if isinstance(edge, _Extent):
                edge.count += count
                return
        if in_front:
            queue.appendleft(_Extent(count))
        else:
            queue.append(_Extent(count))

    def _drop_stale(self) -> None:
        kept: deque[Block | _Extent] = deque()
        for place in self._queue:
            if isinstance(place, Block) and place.stale:
                place.stale -= 1
            else:
                kept.append(place)
        self._queue = kept
