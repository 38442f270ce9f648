"""The running requests that have exactly one token due, advanced together.

A tick is one step in which every decoder gets its token. A decoder's computed tokens are its offset plus the tick,
so a tick changes one counter. Who opens a block at a tick is the bucket `tick mod block size`; who gets a last
token at a tick is in the calendar. Buckets are kept in running order, since blocks are taken in that order.
"""

from __future__ import annotations

from heapq import heappop, heappush

from isim.policy.vllm.sequence import Sequence, Status

_NEVER = 1 << 62


class Decoders:
    def __init__(self, block_size: int) -> None:
        self.tick = 0
        self.count = 0
        self.context = 0
        """Computed tokens of all decoders, summed."""
        self.newest_order = -1
        """No decoder was admitted later than this."""
        self._block = block_size
        self._buckets: list[list[Sequence]] = [[] for _ in range(block_size)]
        self._ends: dict[int, list[Sequence]] = {}
        self._end_ticks: list[int] = []

    def join(self, sequence: Sequence, overlap_after: int) -> None:
        """`overlap_after` ticks from now its newest token is scheduled with the one before still in flight."""
        tick = self.tick
        computed = sequence.computed
        sequence.status = Status.DECODE
        sequence.offset = computed - tick
        sequence.end_tick = end_tick = tick + sequence.output - sequence.issued
        sequence.overlap_tick = tick + overlap_after
        self.count += 1
        self.context += computed
        bucket = self._buckets[-sequence.offset % self._block]
        bucket.append(sequence)
        if sequence.order > self.newest_order:
            self.newest_order = sequence.order
        elif len(bucket) > 1 and bucket[-2].order > sequence.order:
            bucket.sort(key=_order)
        ending = self._ends.get(end_tick)
        if ending is None:
            self._ends[end_tick] = [sequence]
            heappush(self._end_ticks, end_tick)
        else:
            ending.append(sequence)

    def leave(self, sequence: Sequence) -> None:
        """Take one out; its `computed` and `issued` are its own again."""
        ending = self._ends[sequence.end_tick]
        ending.remove(sequence)
        if not ending:
            del self._ends[sequence.end_tick]
        self._drop(sequence)

    def settle(self, sequence: Sequence) -> None:
        """Bring `computed` and `issued` of a decoder up to date, leaving it where it is."""
        sequence.computed = sequence.offset + self.tick
        sequence.issued = sequence.output - (sequence.end_tick - self.tick)

    def opening(self, ahead: int = 0) -> list[Sequence]:
        """Those that need one more block for the tick that is `ahead` ticks from the next one."""
        return self._buckets[(self.tick + ahead) % self._block]

    def openings(self, ticks: int) -> list[Sequence]:
        """Those that need one more block, in the order of the next `ticks` ticks, and of running in each."""
        line: list[Sequence] = []
        for place in range(ticks):
            line += self.opening(place)
        return line

    def opened(self, ticks: int) -> int:
        """How many blocks the next `ticks` ticks need."""
        block, tick = self._block, self.tick
        rounds, rest = divmod(ticks, block)
        count = rounds * self.count
        buckets = self._buckets
        for place in range(tick, tick + rest):
            count += len(buckets[place % block])
        return count

    def advance(self, ticks: int = 1) -> tuple[Sequence, ...]:
        """Some ticks of which only the last samples anybody's last token; returns those, who are decoders no more."""
        self.tick = tick = self.tick + ticks
        self.context += self.count * ticks
        ending = self._ends.pop(tick, None)
        if ending is None:
            return ()
        for sequence in ending:
            self._drop(sequence)
            sequence.status = Status.ENDING
            if tick < sequence.overlap_tick:
                sequence.overlap_tick = _NEVER
        if len(ending) > 1:
            ending.sort(key=_order)
        return tuple(ending)

    def ticks_to_end(self) -> int:
        """Ticks until the next one ends. There is at least one decoder."""
        ticks = self._end_ticks
        while ticks[0] not in self._ends:
            heappop(ticks)
        return ticks[0] - self.tick

    def ticks_within(self, free_blocks: int, limit: int) -> int:
        """How many ticks, up to `limit`, open no more than `free_blocks` blocks in all."""
        rounds = limit // self._block + 1
        if self.count * rounds <= free_blocks:
            return limit
        whole = min(free_blocks // self.count, limit // self._block)
        left = free_blocks - whole * self.count
        ticks = whole * self._block
        while ticks < limit:
            left -= len(self.opening(ticks))
            if left < 0:
                break
            ticks += 1
        return ticks

    def _drop(self, sequence: Sequence) -> None:
        self.settle(sequence)
        self._buckets[-sequence.offset % self._block].remove(sequence)
        self.count -= 1
        self.context -= sequence.computed


def _order(sequence: Sequence) -> int:
    return sequence.order
