"""The block ledger: how many blocks are free and, where that can matter, what the free ones still hold.

Blocks are lent from the head of the free queue; lending a block ends what was cached in it. Only a block some later
request could ask for is an object here (`Block`); all others lie in the queue as extents of so many blocks. A block
with a key stays findable while it is lent and while it waits in the queue. Of equal blocks the oldest is found.

0.21 puts freed blocks at the end of the queue, the tail of the request first. 0.33 puts those without a key in front.
Without prefix caching order means nothing and only the count is kept.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

import msgspec


class Block(msgspec.Struct, eq=False):
    """A full block with a key; `users` is 0 while it waits in the free queue."""

    key: int
    serial: int
    users: int = 1


class _Extent(msgspec.Struct, eq=False):
    """So many free blocks in a row that nobody can ask for."""

    count: int


class Pool:
    """`free` is the number of free blocks."""

    def __init__(self, usable_blocks: int, *, caching: bool, unkeyed_first: bool) -> None:
        self.free = usable_blocks
        self._caching = caching
        self._unkeyed_first = unkeyed_first
        self._serial = 0
        self._queue: OrderedDict[int, Block | _Extent] = OrderedDict()
        self._cached: dict[int, list[Block]] = {}
        if caching:
            self._put_unkeyed(usable_blocks, in_front=False)

    @property
    def cached_keys(self) -> int:
        """How many different keys can be found now."""
        return len(self._cached)

    def take(self, count: int) -> None:
        """Lend `count` blocks from the head of the queue; the caller knows that there are enough."""
        self.free -= count
        if not self._caching:
            return
        queue = self._queue
        while count:
            serial, head = next(iter(queue.items()))
            if isinstance(head, Block):
                del queue[serial]
                self._forget(head)
                count -= 1
            elif head.count > count:
                head.count -= count
                return
            else:
                del queue[serial]
                count -= head.count

    def give_unnamed(self, keyed: int, unkeyed: int) -> None:
        """Take back the blocks of a request whose content nobody can ask for: `keyed` full ones, then the rest."""
        self.free += keyed + unkeyed
        if self._caching:
            self._put_unkeyed(unkeyed, in_front=self._unkeyed_first)
            self._put_unkeyed(keyed, in_front=False)

    def give(self, blocks: Sequence[Block], unkeyed: int) -> None:
        """Take back a request's table: `blocks` in the order of its tokens, then `unkeyed` more."""
        self.free += unkeyed
        self._put_unkeyed(unkeyed, in_front=self._unkeyed_first)
        queue = self._queue
        for block in reversed(blocks):
            block.users -= 1
            if block.users == 0:
                queue[block.serial] = block
                self.free += 1

    def find(self, keys: Sequence[int], limit: int) -> list[Block]:
        """The longest run of cached blocks for the first `limit` keys."""
        cached = self._cached
        found: list[Block] = []
        for key in keys[:limit]:
            equal = cached.get(key)
            if equal is None:
                break
            found.append(equal[0])
        return found

    def oldest(self, key: int) -> Block | None:
        """The block that is found under this key."""
        equal = self._cached.get(key)
        return equal[0] if equal else None

    def touch(self, blocks: Sequence[Block]) -> None:
        """Lend blocks that were found: they leave the queue, if they wait there, and keep their keys."""
        for block in blocks:
            if block.users == 0:
                del self._queue[block.serial]
                self.free -= 1
            block.users += 1

    def name(self, key: int) -> Block:
        """A block that is lent out becomes findable under its key."""
        self._serial += 1
        block = Block(key, self._serial)
        self._cached.setdefault(key, []).append(block)
        return block

    def _forget(self, block: Block) -> None:
        equal = self._cached[block.key]
        equal.remove(block)
        if not equal:
            del self._cached[block.key]

    def _put_unkeyed(self, count: int, *, in_front: bool) -> None:
        if not count:
            return
        queue = self._queue
        if queue:
            edge = queue[next(iter(queue) if in_front else reversed(queue))]
            if isinstance(edge, _Extent):
                edge.count += count
                return
        self._serial += 1
        queue[self._serial] = _Extent(count)
        if in_front:
            queue.move_to_end(self._serial, last=False)
