"""One engine's scheduler: who runs, who waits, which blocks are lent, and what each change does to all of them.

What is decided is in `decide`; here is what a decision changes. The recorded schedules of the real scheduler say
what is right; the rules are told in the documents beside them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from isim.record.records import EngineLimits, EngineVersion, SchedulingPolicy
from isim.replay.chain import Chain, Keys, Run
from isim.replay.member import Member, Queue, Stage
from isim.replay.pool import Block, Pool
from isim.replay.roster import Roster


class Decision(msgspec.Struct, eq=False):
    """What was decided. `firsts` and `lates` will come of it; a late one is told with the step of its token before."""

    admitted: list[tuple[int, int, int]] = []  # msgspec copies empty literal defaults for each decision
    chunks: list[tuple[int, int]] = []
    skipped: list[int] = []
    preempted: list[int] = []
    firsts: list[Member] = []
    lates: list[tuple[Member, int]] = []
    scheduled: int = 0
    tokens: int = 0
    sampled: int = 0
    context: int = 0

    @property
    def steady(self) -> bool:
        """Nothing but one decode token each for running requests."""
        return self.scheduled > 0 and not (self.admitted or self.chunks or self.skipped or self.preempted)


class Found(msgspec.Struct, eq=False):
    """A cached prefix of `tokens` tokens, and the blocks that hold it, for each KV group.

    `shared` is where a prefix ends that full attention alone would find.
    """

    tokens: int
    blocks: list[list[Block]]
    shared: int = 0


class Scheduler:
    """State of one engine's scheduler. `updated` counts the steps whose output is processed.

    This one is for a single full-attention group, whose table is as long as its tokens, and so need not be kept.
    """

    def __init__(self, limits: EngineLimits) -> None:
        self.limits = limits
        self.newer = limits.version is EngineVersion.V033
        self.by_priority = limits.policy is SchedulingPolicy.PRIORITY
        self.caching = limits.enable_prefix_caching
        self.roster = Roster(limits.block_size)
        self.queue = Queue(by_priority=self.by_priority)
        self.pool = Pool(limits.num_blocks - 1, caching=self.caching, unkeyed_first=self.newer)
        self.keys = Keys(limits.block_size)
        self.updated = 0
        self.overlapped: dict[int, bool] = {}
        self.head_may_change = False
        self._quotable: dict[str, Member] = {}
        self._step = 0

    def begin(self, *, overlapping: bool) -> None:
        """The next decision is made; `overlapping` says that the step before it is still under way."""
        self._step = self.roster.steps
        self.overlapped[self._step] = overlapping
        self.head_may_change = False

    def chain(self, request_id: str, prompt_tokens: int, prompt: list[Run] | None) -> Chain | None:
        """Names for the blocks of a request that others could share; None when nobody can."""
        return None if prompt is None or not self.caching else self.keys.chain(request_id, prompt)

    def enter(self, member: Member) -> None:
        """A request arrived."""
        self.queue.push(member)
        if member.quotable and self.caching:
            self._quotable[member.id] = member

    def leave(self, member: Member) -> None:
        """A request finished or was aborted, wherever it was: its blocks are free."""
        if member.stage is Stage.WAITING:
            self.queue.discard(member)
        else:
            hashed_tokens = self.hashed_tokens(member)
            self.roster.unseat(member)
            self.release(member, hashed_tokens)
        member.stage = Stage.GONE
        if member.quotable and self.caching:
            del self._quotable[member.id]

    def threshold(self) -> int:
        """The most tokens a prefill gets at once, before the budget. 0.33 lifts the limit for a request on its own."""
        limits = self.limits
        alone = self.newer and len(self.roster.running) + len(self.queue) == 1
        return limits.long_prefill_token_threshold if limits.long_prefill_token_threshold and not alone else 1 << 60

    def advance(self, member: Member, tokens: int, decision: Decision) -> None:
        """A running prefill gets its chunk; its blocks are lent, and full ones named, already."""
        decision.chunks.append((member.index, tokens))
        self._compute(member, tokens, decision)

    def admit(self, member: Member, found: Found, tokens: int, decision: Decision) -> None:
        """The head of the queue runs: with the blocks found for it, and new ones for what it computes now."""
        decision.admitted.append((member.index, found.tokens, tokens))
        self.queue.discard(member)
        member.target = member.known
        member.computed = found.tokens
        for blocks in found.blocks:
            self.pool.touch(blocks)
        self.hand_over(member, found)
        self.roster.seat(member)
        self.lend(member, found.tokens + tokens)
        self._compute(member, tokens, decision)

    def hand_over(self, member: Member, found: Found) -> None:
        """What was found is the start of the member's table."""
        member.blocks = found.blocks[0]

    def _compute(self, member: Member, tokens: int, decision: Decision) -> None:
        decision.scheduled += 1
        decision.tokens += tokens
        decision.context += member.computed
        member.computed += tokens
        if member.computed == member.target:
            self._sample(member, decision)

    def _sample(self, member: Member, decision: Decision) -> None:
        step = self._step
        decision.sampled += 1
        if member.sampled == 0:
            decision.firsts.append(member)
        elif member.last != step - 1:
            decision.lates.append((member, member.last))
        self.roster.caught_up(member, step)

    def find(self, member: Member) -> Found:
        """What the waiting member could start with."""
        chain = member.chain
        if chain is None:
            return Found(0, [[]])
        self._name_quoted(chain)
        limit = (member.known - 1) // self.limits.block_size
        blocks = self.pool.find(self.keys.extend(chain, limit), limit)
        return Found(len(blocks) * self.limits.block_size, [blocks])

    def fits(self, member: Member, found: Found, tokens: int) -> bool:
        """Whether the free blocks suffice to start the waiting member with so many tokens beyond those found."""
        (blocks,) = found.blocks
        whole = member.known if self.limits.scheduler_reserve_full_isl else found.tokens + tokens
        from_queue = sum(1 for block in blocks if block.users == 0)
        return self.blocks_for(whole) - len(blocks) + from_queue <= self.pool.free

    def turn_away(self, member: Member, found: Found) -> None:
        """The head of the queue is not admitted: may that change after more steps like this one?"""
        quotes = member.chain is not None and bool(member.chain.quoted)
        self.head_may_change = bool(found.tokens) or quotes

    def cut(self, member: Member, tokens: int) -> int:
        """A running member's tokens, as far as its groups take them at once."""
        return tokens

    def cut_first(self, member: Member, found: Found, tokens: int) -> int:
        """The same of a waiting member that starts with what was found."""
        return tokens

    def make_way(self, member: Member, tokens: int) -> int:
        """A running member's turn comes for so many tokens: how many blocks it lacks for them."""
        computed = self.roster.computed(member)
        return self.blocks_for(computed + tokens) - self.blocks_for(computed)

    def lend(self, member: Member, tokens: int, granted: Mapping[int, int] | None = None) -> None:
        """The member has blocks for its first `tokens` positions; full ones of a prefill are findable.

        `granted` is as for `name_prefill`.
        """
        # whoever starts has the blocks found, which are whole; whoever runs has blocks for what it has computed
        self.pool.take(self.blocks_for(tokens) - self.blocks_for(self.roster.computed(member)))
        if member.stage is Stage.PREFILL:
            self.name_prefill(member, tokens, granted)

    def lend_all(self, grants: Sequence[tuple[Member, int]]) -> bool:
        """The same for everybody who decodes and these prefills at once. False, and nothing done, when blocks lack."""
        blocks = self.roster.opened_by_next()
        for member, tokens in grants:
            blocks += self.blocks_for(member.computed + tokens) - self.blocks_for(member.computed)
        if blocks > self.pool.free:
            return False
        self.pool.take(blocks)
        for member, tokens in grants:
            if tokens and member.chain is not None:
                ahead = self._decoding_ahead(member) if member.chain.quoted else {}
                self.name_prefill(member, member.computed + tokens, ahead)
        return True

    def _decoding_ahead(self, member: Member) -> dict[int, int]:
        """Who decodes before the member in running order: each of them got its token of this step already."""
        running = self.roster.running
        return {seq: 1 for seq, other in running.items() if seq < member.seq and other.stage is Stage.DECODE}

    def put_off(self, member: Member) -> None:
        """A decoding member is left out of the step being decided."""

    def alike(self, count: int) -> int:
        """How many of the next `count` steps, decodes only, change no more than counts of blocks, and have them."""
        return count if self.roster.opened_by(count) <= self.pool.free else 0

    def take_steps(self, count: int) -> None:
        """Blocks for so many of them."""
        self.pool.take(self.roster.opened_by(count))

    def blocks_for(self, tokens: int) -> int:
        """Blocks that hold so many tokens."""
        return -(-tokens // self.limits.block_size)

    def hashed_tokens(self, member: Member, granted: int = 0) -> int:
        """How many of its computed tokens can count for full blocks: those whose value is known.

        `granted` are tokens it gets in the step being decided, while that step is not counted yet. A token in flight
        has no value. So while a step is under way that feeds the token of another step that was still under way when
        it was decided, the last computed token does not count.
        """
        computed = self.roster.computed(member) + granted
        decoding = member.stage is Stage.DECODE
        last = self.roster.steps - 1 if decoding and not member.held_up else member.last
        if granted and decoding:
            fed_blindly = self.overlapped[self._step] and last == self._step - 1
        else:
            fed_blindly = last >= self.updated and member.run < last and self.overlapped[last]
        return computed - 1 if fed_blindly else computed

    def name_prefill(self, member: Member, tokens: int, granted: Mapping[int, int] | None = None) -> None:
        """Full blocks of the first `tokens` are findable from the decision that lends them, where anybody may ask.

        `granted` says, by seq, what the step being decided gave so far; None when that step is counted already.
        """
        if member.chain is not None:
            self._name_quoted(member.chain, granted)
            self._name_blocks(member, member.chain, tokens)

    def _name_blocks(self, member: Member, chain: Chain, tokens: int) -> None:
        full = tokens // self.limits.block_size
        if full > len(member.blocks):
            member.blocks += self.pool.name(self.keys.extend(chain, full)[len(member.blocks) : full])

    def release(self, member: Member, hashed_tokens: int) -> None:
        """The member's blocks go back; it holds those of `computed` tokens."""
        held = self.blocks_for(member.computed)
        full = hashed_tokens // self.limits.block_size
        if member.chain is None:
            self.pool.give_unnamed(full, held - full)
            return
        self._name_blocks(member, member.chain, hashed_tokens)
        self.pool.give(member.blocks, held - len(member.blocks))
        member.blocks = []

    def preempt(self, member: Member, hashed_tokens: int) -> None:
        """A victim that runs no more: blocks freed, back in the queue, to be computed anew."""
        if self.caching and member.chain is None:
            member.chain = self.keys.chain(member.id, [(f"\0{member.index}", 0, member.prompt_tokens)])
        self.release(member, hashed_tokens)
        member.computed = 0
        member.stage = Stage.WAITING
        self.queue.push(member, in_front=True)

    def _name_quoted(self, chain: Chain, granted: Mapping[int, int] | None = None) -> None:
        """Outputs that this prompt quotes, and that are being generated, are findable as far as they are."""
        for quoted in chain.quoted:
            other = self._quotable.get(quoted)
            if other is not None and other.chain is not None and other.stage is not Stage.WAITING:
                got = granted.get(other.seq, 0) if granted and other.stage is Stage.DECODE else 0
                self._name_live(other, other.chain, got, counted=granted is None)

    def _name_live(self, other: Member, chain: Chain, granted: int, *, counted: bool) -> None:
        """A running request's blocks are findable as far as its tokens are known.

        `granted` tokens come on top of what is counted; `counted` says that the step being decided is.
        """
        self._name_blocks(other, chain, self.hashed_tokens(other, granted))
