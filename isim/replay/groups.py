"""A scheduler whose requests keep blocks in several KV groups.

Who runs is decided as everywhere; here is what differs. A request has a table in each group (`tables`). Blocks it has
passed go back when its turn comes in the running pass, before it gets new ones, so in every step the order of the batch
matters to the free queue. A table changes rarely, though: a decoding request has a *wake*, the first step at which one
of its tables may open or pass an entry, and until then it is only counted. A step left out makes a wake too early,
which does no harm: it finds nothing to do and makes the next.

Where a state is kept at the ends of blocks, chunks are cut so that they end there. A state cannot be found in the
decision that names it.

Where blocks differ in length 0.33 gives names at common multiples only. So the last entries of a prefill may get theirs
from the tokens that follow; such a request is among the `late`. Its wakes see to that in time, and look-ups see to the
rest. All other names of decoded blocks are of interest to those who quote them, and are given when one of them asks.

Every request has a chain when prefixes are cached, private prompts too: it may come back to blocks it passed itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from isim.record.records import EngineLimits
from isim.replay.chain import Chain, Keys, Run
from isim.replay.lookup import Lookup
from isim.replay.member import Member, Stage
from isim.replay.pool import Block
from isim.replay.scheduler import Decision, Found, Scheduler
from isim.replay.tables import Table, terms

_NEVER = -1


class _Holding(msgspec.Struct, eq=False):
    """What one request holds: a table for each group, and what its changes depend on.

    shared                    where a prefix ended that full attention alone had found when it was admitted
    wake                      the step at which a table may change while it decodes
    chunk_step, chunk_tokens  the last step that computed a chunk of its prefill, and how much
    names_until               so many tokens give names to the last entries of its prefill, 0 when they have them
    """

    tables: list[Table]
    shared: int = 0
    wake: int = _NEVER
    chunk_step: int = _NEVER
    chunk_tokens: int = 0
    names_until: int = 0


class GroupScheduler(Scheduler):
    """The scheduler of an engine whose limits list KV groups."""

    def __init__(self, limits: EngineLimits) -> None:
        super().__init__(limits)
        self._groups = terms(limits)
        self._lookup = Lookup(self._groups, limits.groups, self.pool)
        self.keys = Keys(self._lookup.unit, stride=len(self._groups))
        self._named_in = self._lookup.whole if self.newer else 1
        self._aligned = any(group.sparse for group in self._groups)
        self._held: dict[int, _Holding] = {}
        self._wakes: dict[int, list[Member]] = {}
        self._new_states: list[Block] = []
        self._late: dict[int, Member] = {}

    # ---- who comes and goes

    def begin(self, *, overlapping: bool) -> None:
        super().begin(overlapping=overlapping)
        self._wakes.pop(self._step - 1, None)
        self._new_states.clear()

    def chain(self, request_id: str, prompt_tokens: int, prompt: list[Run] | None) -> Chain | None:
        if not self.caching:
            return None
        return self.keys.chain(request_id, [(f"\0{request_id}", 0, prompt_tokens)] if prompt is None else prompt)

    def enter(self, member: Member) -> None:
        super().enter(member)
        self._held[member.index] = self._nothing()

    def leave(self, member: Member) -> None:
        super().leave(member)
        del self._held[member.index]

    def release(self, member: Member, hashed_tokens: int) -> None:
        if member.chain is not None:
            self._name_blocks(member, member.chain, hashed_tokens)
        for table in self._held[member.index].tables:
            self._give(table.blocks, table.held - len(table.blocks))
        self._held[member.index] = self._nothing()
        self._late.pop(member.index, None)

    def _nothing(self) -> _Holding:
        return _Holding([group.table() for group in self._groups])

    def _give(self, blocks: Sequence[Block], unnamed: int) -> None:
        if self.caching:
            self.pool.give(blocks, unnamed)
        else:
            self.pool.give_unnamed(0, unnamed)

    # ---- the waiting pass

    def find(self, member: Member) -> Found:
        chain = member.chain
        if chain is None:
            return Found(0, [[] for _ in self._groups])
        self._name_quoted(chain)
        tokens = member.known - 1
        return self._lookup.find(self.keys.extend(chain, tokens // self._lookup.unit), tokens)

    def fits(self, member: Member, found: Found, tokens: int) -> bool:
        if any(blocks[-1] is new for blocks in found.blocks if blocks for new in self._new_states):
            return False
        idle = sum(1 for blocks in found.blocks for block in blocks if block.users == 0)
        after, whole = idle, idle
        for group in self._groups:
            start = group.table()
            start.length = found.tokens // group.size
            after += start.wants(group.entries(found.tokens + tokens))
            whole += start.wants(group.at_once(member.known))
        reserve = self.limits.scheduler_reserve_full_isl
        return (max(after, whole) if reserve else after) <= self.pool.free

    def turn_away(self, member: Member, found: Found) -> None:
        # blocks that others pass may let it in at any step
        self.head_may_change = True

    def hand_over(self, member: Member, found: Found) -> None:
        holding = self._held[member.index]
        holding.shared = found.shared
        for group, table, blocks in zip(self._groups, holding.tables, found.blocks, strict=True):
            table.start(found.tokens // group.size, blocks)

    # ---- chunks

    def cut(self, member: Member, tokens: int) -> int:
        if not self._aligned or member.stage is not Stage.PREFILL:
            return tokens
        shared = self._held[member.index].shared
        return self._to_a_state(member.computed, member.target, tokens, shared)

    def cut_first(self, member: Member, found: Found, tokens: int) -> int:
        if not self._aligned:
            return tokens
        return self._to_a_state(found.tokens, member.known, tokens, found.shared)

    def _to_a_state(self, computed: int, known: int, tokens: int, shared: int) -> int:
        """Tokens of a chunk so that its state is kept where a block ends, up to the last that others may start from."""
        size, end = self.limits.block_size, computed + tokens
        last = (known - 1 if self.newer else known) // size * size
        if self.newer and computed < shared < end:
            return shared - computed
        if end < last:
            return tokens // size * size
        return last - computed if computed < last < end else tokens

    def _compute(self, member: Member, tokens: int, decision: Decision) -> None:
        super()._compute(member, tokens, decision)
        holding = self._held[member.index]
        holding.chunk_step, holding.chunk_tokens = self._step, tokens
        if member.stage is not Stage.PREFILL:
            self._expect_names(member, holding)
        if member.stage is Stage.DECODE:
            self._wake_next(member, holding, member.since)

    # ---- blocks in the running pass

    def make_way(self, member: Member, tokens: int) -> int:
        holding = self._held[member.index]
        if self._sleeps(member, holding):
            return 0
        self._drop_passed(member, holding)
        return self._wants(holding, self.roster.computed(member) + tokens)

    def lend(self, member: Member, tokens: int, granted: Mapping[int, int] | None = None) -> None:
        holding = self._held[member.index]
        if self._sleeps(member, holding):
            return
        for group, table in zip(self._groups, holding.tables, strict=True):
            self.pool.take(table.grow(group.entries(tokens)))
        if member.stage is Stage.PREFILL:
            self.name_prefill(member, tokens, granted)
            return
        if holding.names_until and member.chain is not None:
            self._name_quoted(member.chain, granted)
            hashed_tokens = self.hashed_tokens(member, 1)
            self._name_blocks(member, member.chain, hashed_tokens)
            if hashed_tokens >= holding.names_until:
                holding.names_until = 0
                del self._late[member.index]
        self._wake_next(member, holding, self._step + 1)

    def lend_all(self, grants: Sequence[tuple[Member, int]]) -> bool:
        turns = [(member, tokens) for member, tokens in grants if tokens]
        turns += [(member, 1) for member in self._wakes.get(self._step, ()) if self._wakes_now(member)]
        blocks = 0
        for member, tokens in turns:
            blocks += self._wants(self._held[member.index], self.roster.computed(member) + tokens)
        if blocks > self.pool.free:
            return False
        turns.sort(key=lambda turn: turn[0].seq)
        for member, tokens in turns:
            ahead = {}
            if member.chain is not None and member.chain.quoted:
                ahead = self._decoding_ahead(member)
            self.make_way(member, tokens)
            self.lend(member, self.roster.computed(member) + tokens, ahead)
        return True

    def put_off(self, member: Member) -> None:
        """A decoding member is left out of the step being decided."""
        holding = self._held[member.index]
        if holding.wake == self._step:
            self._wake_at(member, holding, self._step + 1)

    def alike(self, count: int) -> int:
        step = self.roster.steps
        return next((ahead for ahead in range(count) if step + ahead in self._wakes), count)

    def take_steps(self, count: int) -> None:
        pass

    def _sleeps(self, member: Member, holding: _Holding) -> bool:
        return member.stage is Stage.DECODE and holding.wake > self._step

    def _wakes_now(self, member: Member) -> bool:
        return member.stage is Stage.DECODE and self._held[member.index].wake == self._step

    def _wants(self, holding: _Holding, tokens: int) -> int:
        return sum(
            table.wants(group.entries(tokens)) for group, table in zip(self._groups, holding.tables, strict=True)
        )

    def _drop_passed(self, member: Member, holding: _Holding) -> None:
        computed = self._settled(member, holding)
        passed = [
            (table, entries)
            for group, table in zip(self._groups, holding.tables, strict=True)
            if (entries := group.passed(computed)) > table.first
        ]
        if passed and member.chain is not None:
            hashed_tokens = self.hashed_tokens(member)
            self._name_blocks(member, member.chain, hashed_tokens, before=hashed_tokens)
        for table, entries in passed:
            self._give(*table.drop(entries))

    def _settled(self, member: Member, holding: _Holding) -> int:
        """Computed tokens that count for what is passed; in 0.33 those of a step under way do not."""
        roster = self.roster
        computed = roster.computed(member)
        if not self.newer or self.updated == roster.steps:
            return computed
        if member.stage is Stage.DECODE and member.since < roster.steps:
            return computed if member.held_up else computed - 1
        return computed - holding.chunk_tokens if holding.chunk_step == roster.steps - 1 else computed

    def _wake_next(self, member: Member, holding: _Holding, earliest: int) -> None:
        """Find the first step, from `earliest` on, at which a table opens an entry or may pass one."""
        tokens = min(
            min(table.length * group.size, (table.first + 1) * group.size + group.reach)
            for group, table in zip(self._groups, holding.tables, strict=True)
        )
        if holding.names_until:
            tokens = min(tokens, holding.names_until - 1)
        self._wake_at(member, holding, max(earliest, tokens - member.computed + member.since))

    def _wake_at(self, member: Member, holding: _Holding, step: int) -> None:
        holding.wake = step
        self._wakes.setdefault(step, []).append(member)

    # ---- names

    def _expect_names(self, member: Member, holding: _Holding) -> None:
        """The prefill is over: are there entries of it that later tokens will name?"""
        whole, rest = self._named_in, member.target % self._named_in
        if self.caching and any(rest >= group.size for group in self._groups):
            holding.names_until = member.target - rest + whole
            self._late[member.index] = member

    def _name_quoted(self, chain: Chain, granted: Mapping[int, int] | None = None) -> None:
        for member in self._late.values():
            if member.chain is not None:
                hashed_tokens = self.hashed_tokens(member)
                self._name_blocks(member, member.chain, hashed_tokens, before=hashed_tokens)
        super()._name_quoted(chain, granted)

    def _name_blocks(self, member: Member, chain: Chain, tokens: int, *, before: int = 0) -> None:
        """Blocks within the first `tokens` are findable; those beyond the first `before` since this decision."""
        whole = self._named_in
        tokens, before = tokens // whole * whole, before // whole * whole
        keys = self.keys.extend(chain, tokens // self._lookup.unit)
        for group, table in zip(self._groups, self._held[member.index].tables, strict=True):
            places = table.unnamed(tokens // group.size)
            blocks = self.pool.name(self._lookup.keys(keys, group, places))
            table.blocks += blocks
            if group.sparse:
                fresh = [
                    block for place, block in zip(places, blocks, strict=True) if (place + 1) * group.size > before
                ]
                self._new_states += fresh

    def _name_live(self, other: Member, chain: Chain, granted: int, *, counted: bool) -> None:
        hashed_tokens = self.hashed_tokens(other, granted)
        before = self._hashed_before(other) if counted else self.hashed_tokens(other)
        self._name_blocks(other, chain, hashed_tokens, before=before)

    def _hashed_before(self, other: Member) -> int:
        """`hashed_tokens` as it was before the step being decided, which is counted already."""
        step, computed = self._step, self.roster.computed(other)
        decodes = other.stage is Stage.DECODE and not other.held_up
        if not (decodes or (other.stage is Stage.LAST and other.last == step)):
            return computed
        fed_blindly = step - 1 >= self.updated and other.run < step - 1 and self.overlapped[step - 1]
        return computed - 2 if fed_blindly else computed - 1
