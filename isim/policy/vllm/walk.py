"""The running pass word by word, for steps in which blocks or budget run short.

Requests are taken in running order while budget is left. One whose blocks do not fit preempts: the last of the
running (first come, first served), or the greatest (priority, order time), the first such in running order. A victim
that already had tokens in this step loses them again and the budget has them back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from isim.policy.vllm.plan import Plan
from isim.policy.vllm.sequence import Sequence, Status
from isim.record.records import SchedulingPolicy

if TYPE_CHECKING:
    from isim.policy.vllm.flight import Flight
    from isim.policy.vllm.scheduler import Scheduler


class RunningPass:
    def __init__(self, table: Scheduler, plan: Plan) -> None:
        self.table = table
        self.plan = plan
        self.line = list(table.running.values())
        self.granted: dict[int, int] = {}
        self.budget = table.limits.max_num_batched_tokens
        self.place = 0
        self._by_priority = table.limits.policy is SchedulingPolicy.PRIORITY

    def run(self) -> None:
        while self.place < len(self.line) and self.budget > 0:
            sequence = self.line[self.place]
            tokens = self.wish(sequence)
            if tokens and not self.make_room(sequence, tokens):
                if self._by_priority and not self.table.rules.self_victim_ends:
                    continue
                return
            if tokens:
                self._grant(sequence, tokens)
                self._name(sequence)
            self.place += 1

    def wish(self, sequence: Sequence) -> int:
        """Tokens it would get now."""
        if sequence.status is Status.DECODE:
            return 1
        return min(self.table.due(sequence), self.budget) if sequence.status is Status.PREFILL else 0

    def computed(self, sequence: Sequence) -> int:
        if sequence.status is Status.DECODE:
            self.table.decoders.settle(sequence)
        return sequence.computed

    def make_room(self, sequence: Sequence, tokens: int) -> bool:
        """Preempt until the blocks of `tokens` more tokens fit; False when it had to preempt itself."""
        pool = self.table.pool
        computed, block = self.computed(sequence), self.table.limits.block_size
        needed = -(-(computed + tokens) // block) - -(-computed // block)
        if not self.evict_for(sequence, needed):
            return False
        pool.take(sequence, needed)
        return True

    def evict_for(self, sequence: Sequence, needed: int) -> bool:
        """Preempt until so many blocks are free; False when it had to preempt itself."""
        ledger = self.table.ledger
        while needed > ledger.free:
            victim, granted = self._victim()
            self.table.preempt(victim, self.plan, granted)
            if victim is sequence:
                return False
        return True

    def _victim(self) -> tuple[Sequence, int]:
        """Who must go, taken out of the line, and the tokens it had been granted in this step."""
        line = self.line
        if not self._by_priority:
            return line.pop(), 0
        place = max(range(len(line)), key=lambda at: (line[at].rank, -at))
        victim = line.pop(place)
        tokens = self.granted.pop(victim.index, 0)
        self.budget += tokens
        if tokens or (place < self.place and not self.table.rules.skip_after_victim):
            self.place -= 1
        return victim, tokens

    def _grant(self, sequence: Sequence, tokens: int) -> None:
        self.granted[sequence.index] = tokens
        self.budget -= tokens
        newest_unknown = 0
        if sequence.status is Status.DECODE and self.table.depth > 1:
            newest_unknown = int(self.table.decoders.tick + 1 >= sequence.overlap_tick)
        sequence.hashed = max(sequence.hashed, sequence.computed + tokens - newest_unknown)

    def _name(self, sequence: Sequence) -> None:
        """Make a chunk's blocks findable at its turn: of equal ones that which had its name first is found."""
        if sequence.status is Status.PREFILL and sequence.chain is not None:
            self.table.publish()
            self.table.register(sequence, sequence.chain)


def walk(table: Scheduler, plan: Plan, flight: Flight, make: type[RunningPass] = RunningPass) -> None:
    """The running pass of one step, with preemption; moves the state as the smooth pass does."""
    turn = make(table, plan)
    turn.run()
    decoders = table.decoders
    left_out: list[Sequence] = []
    for sequence in turn.line:
        if sequence.index in turn.granted:
            continue
        if sequence.status is Status.DECODE:
            decoders.leave(sequence)
            left_out.append(sequence)
        if sequence.status is not Status.ENDING:
            plan.skipped.append(sequence.index)
    still_late = [sequence for sequence in left_out if sequence in table.skipped]
    table.skipped = [sequence for sequence in table.skipped if sequence not in left_out]
    for sequence in left_out:
        if sequence not in still_late:
            sequence.last_sample = plan.step - 1
    if decoders.count:
        table.decode(plan, flight)
    for sequence in left_out:
        decoders.join(sequence, 2)
    table.skipped += left_out
    for sequence in turn.line:
        tokens = turn.granted.get(sequence.index)
        if tokens is not None and sequence.status is Status.PREFILL:
            plan.chunks.append((sequence.index, tokens))
            table.extend(sequence, tokens, plan, flight)
    table.prefills = [sequence for sequence in table.prefills if sequence.status is Status.PREFILL]
