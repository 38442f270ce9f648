"""The number each KV block has in the real engine, which isim's own pool does not track.

A pool that does the same operations and, beside them, keeps the free queue and every request's table as the real
engine does: number by number. It exists so that the order of the free queue can be compared with recorded schedules,
and that the counting pool is held to the explicit one: whenever a findable block is taken, both must agree which.
"""

from __future__ import annotations

from collections.abc import Iterable

from isim.policy.vllm.decoders import Decoders
from isim.policy.vllm.keys import Chain
from isim.policy.vllm.pool import Block, BlockPool, Owner
from isim.policy.vllm.sequence import Sequence, Status


class NumberedPool(BlockPool):
    def __init__(self, num_blocks: int, *, unhashed_first: bool) -> None:
        super().__init__(num_blocks, unhashed_first=unhashed_first)
        self.numbers = list(range(1, num_blocks))
        self.tables: dict[int, list[int]] = {}
        self._forgotten: list[int] = []
        self._taken: list[int] = []

    @property
    def alike(self) -> bool:
        return False

    def order(self) -> list[int]:
        """The free queue, head first."""
        return list(self.numbers)

    def take(self, owner: Owner, count: int) -> None:
        super().take(owner, count)
        self._number(owner, count)
        self._settle()

    def open(self, count: int, decoders: Decoders, running: Iterable[Sequence], ticks: int) -> None:
        """Blocks are taken tick by tick, and within a tick in running order."""
        members = [sequence for sequence in running if sequence.status is Status.DECODE]
        block = decoders.block_size
        line = [
            sequence
            for tick in range(decoders.tick, decoders.tick + ticks)
            for sequence in members
            if (sequence.offset + tick) % block == 0
        ]
        assert len(line) == count
        super().open(count, decoders, running, ticks)
        for sequence in line:
            self._number(sequence, 1)
        self._settle()

    def give_back(self, owner: Owner, count: int, hashed: int) -> None:
        table = self.tables.pop(owner.index, [])
        assert len(table) == count, f"request {owner.index} holds {len(table)} blocks, {count} are freed"
        assert [block.number for block in owner.findable] == table[: len(owner.findable)]
        shared = {block.number for block in owner.findable if block.holders > 1}
        plain = [number for number in reversed(table[hashed:]) if number not in shared]
        kept = [number for number in reversed(table[:hashed]) if number not in shared]
        super().give_back(owner, count, hashed)
        self.numbers = plain + self.numbers + kept if self._unhashed_first else self.numbers + plain + kept
        assert len(self.numbers) == self.free

    def touch(self, owner: Owner, blocks: list[Block]) -> None:
        for block in blocks:
            if block.queued:
                self.numbers.remove(block.number)
        super().touch(owner, blocks)
        self.tables[owner.index] = [block.number for block in blocks]

    def register(self, owner: Owner, chain: Chain, stop: int) -> None:
        before = len(owner.findable)
        super().register(owner, chain, stop)
        for place in range(before, stop):
            owner.findable[place].number = self.tables[owner.index][place]

    def _number(self, owner: Owner, count: int) -> None:
        taken, self.numbers = self.numbers[:count], self.numbers[count:]
        self.tables.setdefault(owner.index, []).extend(taken)
        self._taken += taken

    def _settle(self) -> None:
        """Every findable block that the counting pool took is among the numbers just taken."""
        taken, self._taken = self._taken, []
        assert set(self._forgotten) <= set(taken), f"took {taken}, forgot {self._forgotten}"
        self._forgotten = []
        assert len(self.numbers) == self.free

    def _forget(self, block: Block) -> None:
        super()._forget(block)
        self._forgotten.append(block.number)
