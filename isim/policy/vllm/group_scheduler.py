"""The scheduler where there are several KV groups: windows, states, blocks of different lengths.

It decides as `Scheduler` does; only what blocks a request wants, gets and gives back is told by tables. Between two
blocks nothing happens to a table, so a decoder is looked at only at its *beats*: the ticks at which one more token
opens an entry or passes one. They are kept by tick, and those of one tick are taken in running order, since what one
request gives back another may take. Where blocks run short every running request is visited, as in `walk.py`.

A state that others may start from must be kept at the ends of blocks, so chunks of prefills are cut to end there.
"""

from __future__ import annotations

from collections.abc import Sequence as Listing

from isim.policy.vllm.decoders import Decoders
from isim.policy.vllm.flight import Flight
from isim.policy.vllm.group_pool import GroupPool, Tables
from isim.policy.vllm.group_rules import beats_of, groups_of, unprocessed_steps
from isim.policy.vllm.keys import Chain, KeyTable, Run
from isim.policy.vllm.plan import Outcome, Plan
from isim.policy.vllm.scheduler import Scheduler
from isim.policy.vllm.sequence import Sequence, Status
from isim.policy.vllm.walk import RunningPass, walk
from isim.record.records import EngineLimits, GroupKind


class BeatingDecoders(Decoders):
    """Decoders, and the ticks at which each of them has to be looked at."""

    def __init__(self, limits: EngineLimits) -> None:
        super().__init__(limits.block_size)
        self._beats = beats_of(limits)
        self._forced = unprocessed_steps(limits) - 1
        self._calendar: dict[int, list[Sequence]] = {}
        self._blocks = [group.block_size for group in groups_of(limits)]

    def opened(self, ticks: int) -> int:
        """None: what tables want is told beat by beat."""
        return 0

    def run_length(self, free_blocks: int) -> int:
        """Fewer than to the next end if blocks might not last, should every table open all it can and pass nothing."""
        ticks = super().run_length(free_blocks)
        while ticks and self.count * sum(-(-ticks // block) for block in self._blocks) > free_blocks:
            ticks //= 2
        return ticks

    def join(self, sequence: Sequence, overlap_after: int) -> None:
        super().join(sequence, overlap_after)
        tables_of(sequence).forced = self._forced
        self._note(sequence, self.tick)

    def beating(self, tick: int) -> list[Sequence]:
        """Who has to be looked at before this tick, in running order; each must be told to go on, or leave."""
        found = []
        for sequence in self._calendar.pop(tick, ()):
            tables = tables_of(sequence)
            if sequence.status is Status.DECODE and tables.beat == tick:
                tables.beat = -1
                found.append(sequence)
        found.sort(key=_order)
        return found

    def go_on(self, sequence: Sequence, tick: int) -> None:
        """It has been looked at before this tick: note when next."""
        tables = tables_of(sequence)
        after = 1
        if tables.forced:
            tables.forced -= 1
        else:
            beyond = sequence.offset + tick + 1
            after += min((residue - beyond) % block for block, residue in self._beats)
        self._note(sequence, tick + after)

    def _note(self, sequence: Sequence, tick: int) -> None:
        tables_of(sequence).beat = tick
        self._calendar.setdefault(tick, []).append(sequence)


class GroupScheduler(Scheduler):
    def __init__(self, limits: EngineLimits) -> None:
        super().__init__(limits)
        self.ledger = self.groups = GroupPool(limits, self.rules)
        self.decoders: BeatingDecoders = BeatingDecoders(limits)
        self._lags = unprocessed_steps(limits) > 1
        self._aligned = any(group.kind is GroupKind.ALIGNED_STATE for group in self.groups.groups)
        self._key_tables = {group.block_size: KeyTable() for group in self.groups.groups}

    def add(
        self,
        index: int,
        name: str,
        prompt_tokens: int,
        output_tokens: int,
        priority: int,
        order_time: int,
        prompt: Listing[Run] | None,
        quotable: bool,
    ) -> None:
        super().add(index, name, prompt_tokens, output_tokens, priority, order_time, prompt, quotable)
        sequence = self.live[index]
        chains = None
        if sequence.chain is not None:
            of_size = {
                size: sequence.chain.in_blocks_of(table, index, size) for size, table in self._key_tables.items()
            }
            chains = tuple(of_size[group.block_size] for group in self.groups.groups)
        sequence.tables = self.groups.tables(index, chains)

    def horizon(self, plan: Plan) -> int:
        return 0 if plan.lookups else super().horizon(plan)

    def advance(self, steps: int, made: int = 0) -> int:
        least = self._open_ahead(steps)
        super().advance(steps, made)
        if self._quotable:
            self.publish()
        return least

    def advance_past_output(self, steps: int, made: int) -> tuple[Outcome | None, int, int]:
        if made:
            return super().advance_past_output(steps, made)
        least = self.advance(1)
        outcome, free_blocks, later = super().advance_past_output(steps, 1)
        return outcome, free_blocks, min(least, later)

    def extend(self, sequence: Sequence, tokens: int, plan: Plan, flight: Flight) -> None:
        tables = tables_of(sequence)
        tables.step, tables.given = plan.step, tokens
        super().extend(sequence, tokens, plan, flight)

    def free(self, sequence: Sequence, granted: int = 0) -> None:
        tables, hashed = tables_of(sequence), sequence.hashed
        self.groups.name(tables, hashed, shared_only=sequence.issued == sequence.output)
        self.groups.release(tables, hashed)

    def settled(self, sequence: Sequence, computed: int, *, deciding: int) -> int:
        """Its tokens that count for what is passed; the last `deciding` flights are those being decided."""
        if not self._lags or self.flights[-1 - deciding].step < 0:
            return computed
        tables = tables_of(sequence)
        if tables.step == self.steps - 1:
            return computed - tables.given
        decoding = sequence.status is Status.DECODE and sequence not in self.skipped
        return computed - 1 if decoding else computed

    def whole_blocks(self, sequence: Sequence, computed: int, tokens: int) -> int:
        """A chunk cut so that its state is kept where it can be found again; 0 if there is nothing left of it."""
        if not self._aligned:
            return tokens
        block, end = self.limits.block_size, computed + tokens
        shared = tables_of(sequence).shared_end
        if self.rules.split_shared and computed < shared:
            end = min(end, shared)
        last = (sequence.prompt + sequence.issued - self.rules.recompute_last) // block * block
        if computed < last:
            end = min(end, last) // block * block
        return end - computed

    def give_back(self, sequence: Sequence, computed: int, settled: int) -> Tables:
        """Give back what its groups have passed."""
        tables = tables_of(sequence)
        self.groups.drop(tables, settled, self._hashed(sequence, computed))
        return tables

    def lend(self, sequence: Sequence, computed: int, tokens: int) -> None:
        """Blocks for `tokens` more tokens, which are free."""
        tables = tables_of(sequence)
        self.groups.allot(tables, computed + tokens)
        if sequence.status is Status.DECODE:
            self.groups.name(tables, self._hashed(sequence, computed + 1), shared_only=True)

    def _hashed(self, sequence: Sequence, computed: int) -> int:
        """Its leading tokens that have a hash with so many computed: all, but the newest may not be known yet."""
        if sequence.status is not Status.DECODE:
            return sequence.hashed
        unknown = self.depth > 1 and computed - sequence.offset >= sequence.overlap_tick
        return max(sequence.hashed, computed - unknown)

    def register(self, sequence: Sequence, chain: Chain) -> None:
        self.groups.name(tables_of(sequence), sequence.hashed, shared_only=True)

    def _open_ahead(self, ticks: int) -> int:
        """Returns how many blocks were free after the tick that left the fewest."""
        decoders, groups = self.decoders, self.groups
        least = self.limits.num_blocks
        for tick in range(decoders.tick, decoders.tick + ticks):
            for sequence in decoders.beating(tick):
                computed = sequence.offset + tick
                if tick == decoders.tick:
                    settled = self.settled(sequence, computed, deciding=0)
                else:
                    settled = computed - self._lags
                self.give_back(sequence, computed, settled)
                self.lend(sequence, computed, 1)
                decoders.go_on(sequence, tick)
            least = min(least, groups.free)
        return least

    def _smooth_pass(self, plan: Plan, flight: Flight) -> bool:
        """The whole running pass: names must be given in the very step, since a state of this step is not there yet."""
        self._running_pass(plan, flight)
        if self._quotable:
            self.publish()
        return True

    def _running_pass(self, plan: Plan, flight: Flight) -> None:
        decoders = self.decoders
        tick = decoders.tick
        beating = decoders.beating(tick)
        chunks = self._unhindered(beating, tick)
        if chunks is None:
            walk(self, plan, flight, GroupPass)
            for sequence in beating:
                if sequence.status is Status.DECODE and tables_of(sequence).beat < 0:
                    decoders.go_on(sequence, tick)
            return
        turns = [(sequence, 1) for sequence in beating] + chunks
        for sequence, tokens in sorted(turns, key=lambda turn: turn[0].order):
            decoding = sequence.status is Status.DECODE
            computed = sequence.offset + tick if decoding else sequence.computed
            settled = self.settled(sequence, computed, deciding=1)
            self.give_back(sequence, computed, settled)
            self.lend(sequence, computed, tokens)
            if decoding:
                decoders.go_on(sequence, tick)
        if decoders.count:
            self.decode(plan, flight)
        for sequence, tokens in chunks:
            plan.chunks.append((sequence.index, tokens))
            self.extend(sequence, tokens, plan, flight)
        if chunks:
            self.prefills = [sequence for sequence in self.prefills if sequence.status is Status.PREFILL]

    def _unhindered(self, beating: list[Sequence], tick: int) -> list[tuple[Sequence, int]] | None:
        """(request, tokens) of everybody in prefill if budget and blocks suffice whoever comes first, else None."""
        groups, decoders = self.groups, self.decoders
        budget = self.limits.max_num_batched_tokens - decoders.count
        if budget < 0 or (self.prefills and self.prefills[0].order < decoders.newest_order):
            return None
        wanted = sum(groups.wants(tables_of(sequence), sequence.offset + tick + 1) for sequence in beating)
        chunks = []
        for sequence in self.prefills:
            tokens = self.whole_blocks(sequence, sequence.computed, min(self.due(sequence), budget))
            if tokens <= 0:
                return None
            budget -= tokens
            wanted += groups.wants(tables_of(sequence), sequence.computed + tokens)
            chunks.append((sequence, tokens))
        return chunks if wanted <= groups.free else None

    def _waiting_pass(self, plan: Plan, flight: Flight) -> None:
        limits, groups, waiting, running = self.limits, self.groups, self.waiting, self.running
        budget = limits.max_num_batched_tokens - plan.tokens
        while waiting and budget > 0 and len(running) < limits.max_num_seqs:
            sequence = waiting.first()
            tables = tables_of(sequence)
            known = sequence.prompt + sequence.issued
            found = groups.find(tables, known)
            plan.lookups.append((sequence.index, found.tokens))
            tokens = self.cut(known - found.tokens)
            if tokens > budget and not limits.enable_chunked_prefill:
                return
            tables.shared_end = found.shared
            tokens = self.whole_blocks(sequence, found.tokens, min(tokens, budget))
            if tokens == 0 or (limits.scheduler_reserve_full_isl and groups.lacks(known, found, whole=True)):
                return
            if groups.lacks(found.tokens + tokens, found):
                return
            waiting.take()
            groups.start(tables, found.tokens + tokens, found)
            sequence.computed = found.tokens
            sequence.status = Status.PREFILL
            sequence.order = self.orders
            self.orders += 1
            running[sequence.index] = sequence
            plan.admitted.append((sequence.index, found.tokens, tokens))
            self.extend(sequence, tokens, plan, flight)
            if sequence.status is Status.PREFILL:
                self.prefills.append(sequence)
            budget -= tokens

    def schedule(self) -> Plan:
        self.groups.step_starts()
        return super().schedule()


class GroupPass(RunningPass):
    table: GroupScheduler

    def wish(self, sequence: Sequence) -> int:
        tokens = super().wish(sequence)
        if sequence.status is not Status.PREFILL:
            return tokens
        return self.table.whole_blocks(sequence, sequence.computed, tokens)

    def make_room(self, sequence: Sequence, tokens: int) -> bool:
        table, computed = self.table, self.computed(sequence)
        settled = table.settled(sequence, computed, deciding=1)
        tables = table.give_back(sequence, computed, settled)
        if not self.evict_for(sequence, table.groups.wants(tables, computed + tokens)):
            return False
        table.lend(sequence, computed, tokens)
        return True


def tables_of(sequence: Sequence) -> Tables:
    assert sequence.tables is not None
    return sequence.tables


def _order(sequence: Sequence) -> int:
    return sequence.order
