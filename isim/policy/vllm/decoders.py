"""The running requests that have exactly one token due, advanced together.

A tick is one step in which every decoder gets its token. A decoder's computed tokens are its offset plus the tick,
so a tick changes one counter. How many open a block at a tick is a histogram over `tick mod block size`; who gets a
last token at a tick is in the calendar.
"""

from __future__ import annotations

from heapq import heappop, heappush

from isim.policy.vllm.sequence import Sequence, Status

_NEVER = 1 << 62
_DECODE, _ENDING = Status.DECODE, Status.ENDING


class Decoders:
    def __init__(self, block_size: int) -> None:
        self.tick = 0
        self.count = 0
        self.context = 0
        """Computed tokens of all decoders, summed."""
        self.newest_order = -1
        """No decoder was admitted later than this."""
        self.block_size = block_size
        self._opening = [0] * (2 * block_size)
        """How many need one more block at each tick modulo the block size, written twice so that no slice wraps."""
        self._ends: dict[int, list[Sequence]] = {}
        self._end_ticks: list[int] = []

    def join(self, sequence: Sequence, overlap_after: int) -> None:
        """`overlap_after` ticks from now its newest token is scheduled with the one before still in flight."""
        tick = self.tick
        computed = sequence.computed
        sequence.status = _DECODE
        sequence.offset = computed - tick
        sequence.end_tick = end_tick = tick + sequence.output - sequence.issued
        sequence.overlap_tick = tick + overlap_after
        self.count += 1
        self.context += computed
        if sequence.order > self.newest_order:
            self.newest_order = sequence.order
        block, opening = self.block_size, self._opening
        place = -sequence.offset % block
        opening[place] += 1
        opening[place + block] += 1
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

    def opened(self, ticks: int) -> int:
        """How many blocks the next `ticks` ticks need."""
        if ticks == 1:
            return self._opening[self.tick % self.block_size]
        block = self.block_size
        place = self.tick % block
        if ticks < block:
            return sum(self._opening[place : place + ticks])
        rounds, rest = divmod(ticks, block)
        return rounds * self.count + sum(self._opening[place : place + rest])

    def advance(self, ticks: int = 1) -> tuple[Sequence, ...]:
        """Some ticks of which only the last samples anybody's last token; returns those, who are decoders no more."""
        self.tick = tick = self.tick + ticks
        self.context += self.count * ticks
        ending = self._ends.pop(tick, None)
        if ending is None:
            return ()
        for sequence in ending:
            self._drop(sequence)
            sequence.status = _ENDING
            if tick < sequence.overlap_tick:
                sequence.overlap_tick = _NEVER
        if len(ending) > 1:
            ending.sort(key=_order)
        return tuple(ending)

    def run_length(self, free_blocks: int) -> int:
        """Ticks until the next one ends, or fewer if they open more than `free_blocks`; of at least one decoder."""
        end_ticks = self._end_ticks
        while end_ticks[0] not in self._ends:
            heappop(end_ticks)
        limit = end_ticks[0] - self.tick
        if self.count * (limit // self.block_size + 1) <= free_blocks or self.opened(limit) <= free_blocks:
            return limit
        fits, short = 0, limit
        while short - fits > 1:
            middle = (fits + short) // 2
            if self.opened(middle) <= free_blocks:
                fits = middle
            else:
                short = middle
        return fits

    def _drop(self, sequence: Sequence) -> None:
        self.settle(sequence)
        block, opening = self.block_size, self._opening
        place = -sequence.offset % block
        opening[place] -= 1
        opening[place + block] -= 1
        self.count -= 1
        self.context -= sequence.computed


def _order(sequence: Sequence) -> int:
    return sequence.order
