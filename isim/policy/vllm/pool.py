"""KV blocks: how many are free, and which freed ones can still be found by their content.

Free blocks form a queue; blocks are taken from its head, and freed ones go to its end (or, in the later version, those
without a hash to its head). A freed block keeps its content until it is taken, so it can be found meanwhile and taken
back out of the middle.

A block matters only if somebody may look for it: then it is a `Block`, findable under its key. All others are nobody
in particular, and a run of them in the queue, or in a request's table, is a number. Blocks that only their owner could
look for become findable when it is preempted, and not before: nobody could tell. So a request leaves and enters the
queue in a step or two, however long it is. Which number a block has in the real engine follows from the order of these
operations and is told by `tools/block_numbers.py`, not here.

Block 0 is the null block and never lent.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING, Protocol

import msgspec

from isim.policy.vllm.keys import Chain

if TYPE_CHECKING:
    from isim.policy.vllm.decoders import Decoders
    from isim.policy.vllm.sequence import Sequence


class Block(msgspec.Struct, eq=False, gc=False):
    """A findable block: held by `holders` requests, or `queued` in the free queue."""

    key: int
    holders: int = 1
    queued: bool = False
    number: int = 0
    """Unused here; whoever numbers blocks keeps it in this place."""


class Owner(Protocol):
    """A request as the pool sees it: its findable blocks, which are its first ones, and where their keys come from."""

    @property
    def index(self) -> int: ...

    findable: list[Block]


class Ledger:
    """`free` is the number of blocks that can be taken."""

    free: int


class BlockPool(Ledger):
    """`free` is the number of blocks that can be taken, findable ones included."""

    def __init__(self, num_blocks: int, *, unhashed_first: bool) -> None:
        self.free = num_blocks - 1
        self._head = self.free
        """How many nobody in particular are first in the queue; `_queue` is what follows them."""
        self._queue: deque[int | Block] = deque()
        self._cached: dict[int, Block | list[Block]] = {}
        self._unhashed_first = unhashed_first

    @property
    def alike(self) -> bool:
        """Whether nobody can look for any block, so that it matters to nobody which ones are taken."""
        return not self._cached

    def take(self, owner: Owner, count: int) -> None:
        """Give a request `count` more blocks; the caller has made sure that so many are free."""
        self.free -= count
        self._head -= count
        if self._head < 0:
            self._take_behind(-self._head)

    def open(self, count: int, decoders: Decoders, running: Iterable[Sequence], ticks: int) -> None:
        """Give the decoders among the `running` the `count` blocks that they need for the next `ticks` ticks."""
        # As in `take`, spelled out: every decision comes through here.
        self.free -= count
        self._head -= count
        if self._head < 0:
            self._take_behind(-self._head)

    def give_back(self, owner: Owner, count: int, hashed: int) -> None:
        """Free a request's `count` blocks, the last one first; the first `hashed` of them have a hash."""
        findable = owner.findable
        others = count - len(findable)
        if self._unhashed_first:
            hashed_others = max(0, hashed - len(findable))
            self._add(others - hashed_others, first=True)
            others = hashed_others
        self._add(others, first=False)
        if findable:
            freed = []
            for block in reversed(findable):
                holders = block.holders = block.holders - 1
                if not holders:
                    block.queued = True
                    freed.append(block)
            self._queue.extend(freed)
            self.free += len(freed)
            owner.findable = []

    def find(self, chain: Chain, limit: int) -> list[Block]:
        """The longest run of findable blocks from the start of `chain`, at most `limit`."""
        found: list[Block] = []
        get = self._cached.get
        if not self._cached:
            return found
        for place in range(limit):
            block = get(chain.key(place))
            if block is None:
                break
            found.append(block[0] if isinstance(block, list) else block)
        return found

    def idle(self, blocks: list[Block]) -> int:
        """How many of these found blocks lie in the free queue."""
        return sum(block.queued for block in blocks)

    def touch(self, owner: Owner, blocks: list[Block]) -> None:
        """Lend found blocks to one more request; one out of the queue leaves a dead entry there."""
        for place, block in enumerate(blocks):
            if block.queued:
                block.queued = False
                self.free -= 1
                blocks[place] = block = self._unqueue(block)
            block.holders += 1
        owner.findable = blocks

    def register(self, owner: Owner, chain: Chain, stop: int) -> None:
        """Make a request's first `stop` blocks findable; of equal ones the older is found first."""
        findable = owner.findable
        cached = self._cached
        first = len(findable)
        shared = min(stop, chain.shared_blocks)
        keys = chain.shared_keys(shared)[first:shared] if first < shared else []
        keys += [chain.key(place) for place in range(max(first, shared), stop)]
        blocks = list(map(Block, keys))
        findable += blocks
        for key, block in zip(keys, blocks, strict=True):
            other = cached.setdefault(key, block)
            if other is not block:
                if isinstance(other, list):
                    other.append(block)
                else:
                    cached[key] = [other, block]

    def _unqueue(self, block: Block) -> Block:
        """The same content and age under a new name, so that the entry left in the queue stays dead."""
        fresh = Block(block.key, 0, False, block.number)
        blocks = self._cached[block.key]
        if isinstance(blocks, list):
            blocks[blocks.index(block)] = fresh
        else:
            self._cached[block.key] = fresh
        return fresh

    def _take_behind(self, count: int) -> None:
        """Take `count` blocks from the queue behind its first ones, all of which are taken.

        Those of them that were findable are not any more.
        """
        pop, cached = self._queue.popleft, self._cached
        self._head = 0
        while count:
            entry = pop()
            if isinstance(entry, int):
                if entry > count:
                    self._head = entry - count
                    return
                count -= entry
            elif entry.queued:
                key = entry.key
                if cached[key] is entry:
                    del cached[key]
                else:
                    self._forget(entry)
                count -= 1

    def _add(self, count: int, *, first: bool) -> None:
        self.free += count
        queue = self._queue
        if first or not queue:
            self._head += count
        elif type(queue[-1]) is int:
            queue[-1] += count
        else:
            queue.append(count)

    def _forget(self, block: Block) -> None:
        blocks = self._cached[block.key]
        if not isinstance(blocks, list):
            del self._cached[block.key]
            return
        blocks.remove(block)
        if len(blocks) == 1:
            self._cached[block.key] = blocks[0]
