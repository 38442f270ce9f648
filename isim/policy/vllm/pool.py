"""KV blocks: who may have one next, and which freed ones can still be found by their content.

Free blocks form a queue; blocks are taken from its head. A freed block keeps its content until it is taken, so it
can be found and taken back out of the middle. The queue is a list read from a moving head; a block taken from the
middle leaves a hole. Blocks whose owner alone could ever find them are not in the cache while they are held,
nor after their owner finished: nobody could tell.

Block 0 is the null block and never lent.
"""

from __future__ import annotations

from isim.policy.vllm.keys import Chain

_COMPACT = 1 << 16


class BlockPool:
    """`free` is the number of blocks that can be taken, cached ones included."""

    def __init__(self, num_blocks: int, *, unhashed_first: bool) -> None:
        self.free = num_blocks - 1
        self._queue = list(range(1, num_blocks))
        self._head = 0
        self._base = 0
        self._holes = 0
        self._front: list[int] = []
        self._unhashed_first = unhashed_first
        self._cached: dict[int, list[int]] = {}
        self._key: dict[int, int] = {}
        self._place: dict[int, int] = {}
        self._extra: dict[int, int] = {}

    def take(self, count: int) -> list[int]:
        """The next `count` blocks; the caller has made sure that so many are free."""
        if not count:
            return []
        self.free -= count
        if self._front or self._holes:
            taken = self._take_slowly(count)
        else:
            head = self._head
            self._head = head + count
            taken = self._queue[head : head + count]
        if self._place or self._key:
            for block in taken:
                if block in self._key:
                    self._forget(block)
        if self._head > _COMPACT and self._head * 2 > len(self._queue):
            del self._queue[: self._head]
            self._base += self._head
            self._head = 0
        return taken

    def give_back(self, blocks: list[int], hashed: int) -> None:
        """Free a request's blocks, its last one first; the first `hashed` of them have a hash."""
        if self._extra:
            blocks, hashed = self._keep_shared(blocks, hashed)
        self.free += len(blocks)
        if self._unhashed_first:
            self._front += blocks[hashed:]
            blocks = blocks[:hashed]
        queue = self._queue
        if self._key:
            place = self._base + len(queue) + len(blocks)
            for block in blocks:
                place -= 1
                if block in self._key:
                    self._place[block] = place
        queue += blocks[::-1]

    def find(self, chain: Chain, limit: int) -> list[int]:
        """The longest run of cached blocks from the start of `chain`, at most `limit`."""
        found: list[int] = []
        cached = self._cached
        if not cached:
            return found
        for place in range(limit):
            blocks = cached.get(chain.key(place))
            if blocks is None:
                break
            found.append(blocks[0])
        return found

    def idle(self, blocks: list[int]) -> int:
        """How many of these found blocks lie in the free queue."""
        return sum(block in self._place for block in blocks)

    def touch(self, blocks: list[int]) -> None:
        """Lend found blocks to one more request."""
        for block in blocks:
            place = self._place.pop(block, None)
            if place is None:
                self._extra[block] = self._extra.get(block, 0) + 1
            else:
                self._queue[place - self._base] = 0
                self._holes += 1
                self.free -= 1

    def register(self, chain: Chain, blocks: list[int], start: int, stop: int) -> None:
        """Make the blocks at places `start` to `stop - 1` of `chain` findable; the older of equals is found first."""
        for place in range(start, stop):
            block = blocks[place]
            if block not in self._key:
                key = chain.key(place)
                self._key[block] = key
                self._cached.setdefault(key, []).append(block)

    def order(self) -> list[int]:
        """The free queue, head first."""
        return self._front[::-1] + [block for block in self._queue[self._head :] if block]

    def _forget(self, block: int) -> None:
        key = self._key.pop(block)
        self._place.pop(block, None)
        blocks = self._cached[key]
        blocks.remove(block)
        if not blocks:
            del self._cached[key]

    def _take_slowly(self, count: int) -> list[int]:
        taken: list[int] = []
        front = self._front
        if front:
            taken = front[: -count - 1 : -1]
            del front[-count:]
        queue, head = self._queue, self._head
        while len(taken) < count:
            block = queue[head]
            head += 1
            if block:
                taken.append(block)
            else:
                self._holes -= 1
        self._head = head
        return taken

    def _keep_shared(self, blocks: list[int], hashed: int) -> tuple[list[int], int]:
        kept: list[int] = []
        still_hashed = hashed
        for place, block in enumerate(blocks):
            extra = self._extra.get(block)
            if extra is None:
                kept.append(block)
                continue
            if extra == 1:
                del self._extra[block]
            else:
                self._extra[block] = extra - 1
            if place < hashed:
                still_hashed -= 1
        return kept, still_hashed
