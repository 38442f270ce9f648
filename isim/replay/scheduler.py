"""One engine's scheduler: who runs, who waits, which blocks are lent, and what each change does to all of them.

What is decided is in `decide`; here is what a decision changes. The recorded schedules of the real scheduler say
what is right; the rules are told in the documents beside them.
"""

from __future__ import annotations

from collections.abc import Mapping

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


class Scheduler:
    """State of one engine's scheduler. `updated` counts the steps whose output is processed."""

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

    def chain(self, request_id: str, prompt: list[Run] | None) -> Chain | None:
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

    def admit(self, member: Member, found: list[Block], tokens: int, decision: Decision) -> None:
        """The head of the queue runs: with the blocks found for it, and new ones for what it computes now."""
        hit_tokens = len(found) * self.limits.block_size
        decision.admitted.append((member.index, hit_tokens, tokens))
        self.queue.discard(member)
        self.pool.touch(found)
        member.blocks = found
        member.target = member.known
        member.computed = hit_tokens
        self.pool.take(self.blocks_for(hit_tokens + tokens) - len(found))
        self.roster.seat(member)
        self.name_prefill(member, hit_tokens + tokens)
        self._compute(member, tokens, decision)

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

    def find(self, member: Member) -> list[Block]:
        """Cached blocks the waiting member could start with."""
        chain = member.chain
        if chain is None:
            return []
        self._name_quoted(chain)
        limit = (member.known - 1) // self.limits.block_size
        return self.pool.find(self.keys.extend(chain, limit), limit)

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
            fed_blindly = self.overlapped[self._step] and last == self._step - 1 and member.run < self._step
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
            for key in self.keys.extend(chain, full)[len(member.blocks) : full]:
                member.blocks.append(self.pool.name(key))

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
                self._name_blocks(other, other.chain, self.hashed_tokens(other, got))
