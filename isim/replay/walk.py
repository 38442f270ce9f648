"""The running pass as the engine walks it, request by request: for decisions that leave somebody without."""

from __future__ import annotations

from isim.replay.member import Member, Stage
from isim.replay.scheduler import Decision, Scheduler


def walk(scheduler: Scheduler, decision: Decision, threshold: int) -> None:
    """Make the running pass of one decision, victims included."""
    _Walk(scheduler, decision, threshold).go()


class _Walk:
    """`order` is who runs and `at` whose turn it is; `granted` says how many tokens each request (by seq) got."""

    def __init__(self, scheduler: Scheduler, decision: Decision, threshold: int) -> None:
        self._scheduler = scheduler
        self._decision = decision
        self._threshold = threshold
        self._order = list(scheduler.roster.running.values())
        self._at = 0
        self._left = scheduler.limits.max_num_batched_tokens
        self._granted: dict[int, int] = {}

    def go(self) -> None:
        scheduler, roster, order = self._scheduler, self._scheduler.roster, self._order
        while self._at < len(order) and self._left > 0:
            member = order[self._at]
            tokens = scheduler.cut(member, min(self._due(member), self._left))
            if tokens == 0:
                self._at += 1
                continue
            if not self._make_room(member, scheduler.make_way(member, tokens)):
                if scheduler.newer and scheduler.by_priority:
                    continue
                break
            scheduler.lend(member, roster.computed(member) + tokens, self._granted)
            self._granted[member.seq] = tokens
            self._left -= tokens
            self._at += 1
        self._apply()

    def _due(self, member: Member) -> int:
        if member.stage is Stage.PREFILL:
            return min(member.target - member.computed, self._threshold)
        return 1 if member.stage is Stage.DECODE else 0

    def _make_room(self, member: Member, blocks: int) -> bool:
        """Preempt until so many blocks are free. False when the member was its own victim."""
        scheduler, order = self._scheduler, self._order
        while blocks > scheduler.pool.free:
            place = self._victim_place()
            victim = order.pop(place)
            tokens = self._granted.pop(victim.seq, 0)
            if tokens:
                self._left += tokens
                self._at -= 1
            elif place < self._at and scheduler.newer:
                # 0.21 does not step back here, so whoever follows the member is passed over
                self._at -= 1
            self._preempt(victim, tokens)
            if victim is member:
                return False
        return True

    def _victim_place(self) -> int:
        order = self._order
        if not self._scheduler.by_priority:
            return len(order) - 1
        return max(range(len(order)), key=lambda place: (order[place].priority, order[place].order))

    def _preempt(self, victim: Member, tokens: int) -> None:
        scheduler, roster = self._scheduler, self._scheduler.roster
        hashed_tokens = scheduler.hashed_tokens(victim, tokens)
        roster.unseat(victim)
        victim.computed += tokens
        scheduler.preempt(victim, hashed_tokens)
        self._decision.preempted.append(victim.index)

    def _apply(self) -> None:
        granted = self._granted
        for member in self._order:
            tokens = granted.get(member.seq, 0)
            if member.stage is Stage.DECODE:
                self._decode(member, tokens)
            elif tokens:
                self._scheduler.advance(member, tokens, self._decision)
            elif member.stage is Stage.PREFILL:
                self._decision.skipped.append(member.index)

    def _decode(self, member: Member, tokens: int) -> None:
        decision, roster = self._decision, self._scheduler.roster
        if not tokens:
            decision.skipped.append(member.index)
            if self._granted:
                roster.hold_up(member)
                self._scheduler.put_off(member)
            return
        decision.scheduled += 1
        decision.tokens += 1
        decision.sampled += 1
        decision.context += roster.computed(member)
        if member.held_up:
            decision.lates.append((member, member.last))
            roster.held_up.remove(member)
            roster.go_on(member)
