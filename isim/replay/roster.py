"""Who runs, in order, and what is due when, without walking the batch.

Requests that decode advance together: each gets one token at every step. So one counter of steps tells how far all
of them are. The sum of their contexts, how many open a block at a step (by its residue modulo the block size) and
which step samples whose last token are kept up to date as requests start, stop or are held up by a step.
"""

from __future__ import annotations

from heapq import heappop, heappush

from isim.replay.member import Member, Stage


class Roster:
    """`steps` counts the steps decided, the one being decided included once its running pass is over."""

    def __init__(self, block_size: int) -> None:
        self._block_size = block_size
        self.steps = 0
        self.running: dict[int, Member] = {}
        self.prefilling: dict[int, Member] = {}
        self.held_up: list[Member] = []
        self.decoders = 0
        self._context_base = 0
        self._opening = [0] * block_size
        self._finals: dict[int, list[tuple[int, Member]]] = {}
        self._final_steps: list[int] = []
        self._admissions = 0

    def computed(self, member: Member) -> int:
        """Tokens of the member computed in the steps so far."""
        return member.computed + self.steps - member.since if member.stage is Stage.DECODE else member.computed

    def decode_context(self) -> int:
        """Sum of computed tokens over the decoding members."""
        return self._context_base + self.decoders * self.steps

    def opened_by_next(self) -> int:
        """Blocks that the decoding members need for the next step."""
        return self._opening[self.steps % self._block_size]

    def opened_by(self, count: int) -> int:
        """Blocks that the decoding members need for the next `count` steps."""
        rounds, rest = divmod(count, self._block_size)
        first = self.steps % self._block_size
        beyond = first + rest
        opening = self._opening
        total = sum(opening[first:beyond]) + sum(opening[: max(0, beyond - self._block_size)])
        return total + rounds * self.decoders

    def seat(self, member: Member) -> None:
        """The member runs, after all others, and prefills."""
        self._admissions += 1
        member.seq = self._admissions
        member.stage = Stage.PREFILL
        self.running[member.seq] = member
        self.prefilling[member.seq] = member

    def unseat(self, member: Member) -> None:
        """The member runs no more; it is as far as it was."""
        if member.stage is Stage.PREFILL:
            del self.prefilling[member.seq]
        elif member.stage is Stage.DECODE:
            self._stop(member)
            member.final = -1
        del self.running[member.seq]

    def caught_up(self, member: Member, step: int) -> None:
        """Its prefill ends with `step`, which samples for it: from the next step on one token is due at each."""
        del self.prefilling[member.seq]
        member.sampled += 1
        member.last = member.run = step
        if member.sampled == member.output_tokens:
            member.stage = Stage.LAST
            self._expect_final(member, step)
            return
        member.stage = Stage.DECODE
        member.since = step + 1
        self.decoders += 1
        self._context_base += member.computed - member.since
        self._opening[(member.since - member.computed) % self._block_size] += 1
        self._expect_final(member, step + member.output_tokens - member.sampled)

    def hold_up(self, member: Member) -> None:
        """The step being decided leaves a decoding member out."""
        if not member.held_up:
            member.held_up = True
            member.last = self.steps - 1
            self.held_up.append(member)
        opening, size = self._opening, self._block_size
        opening[(member.since - member.computed) % size] -= 1
        member.since += 1
        self._context_base -= 1
        opening[(member.since - member.computed) % size] += 1
        self._expect_final(member, member.final + 1)

    def go_on(self, member: Member) -> None:
        """A member that was held up is in the step being decided again. The caller drops it from `held_up`."""
        member.held_up = False
        member.run = self.steps

    def retire(self, step: int) -> None:
        """`step` is decided and counted: those it samples the last token for are no longer due."""
        for _, member in self._finals.get(step, ()):
            if member.final == step and member.stage is Stage.DECODE:
                self._stop(member)
                member.stage = Stage.LAST

    def finals(self, step: int) -> list[Member]:
        """Those to whom `step` gives their last token, wherever they are now."""
        members = self._finals.get(step)
        if members is None:
            return []
        return [m for seq, m in members if m.final == step and m.seq == seq and m.stage is not Stage.GONE]

    def forget_finals(self, step: int) -> None:
        """The output of `step` is processed."""
        self._finals.pop(step, None)

    def next_final(self) -> int | None:
        """The first coming step that samples somebody's last token."""
        steps = self._final_steps
        while steps and (steps[0] < self.steps or not self.finals(steps[0])):
            step = heappop(steps)
            if step >= self.steps:
                del self._finals[step]
        return steps[0] if steps else None

    def _expect_final(self, member: Member, step: int) -> None:
        member.final = step
        members = self._finals.get(step)
        if members is None:
            self._finals[step] = [(member.seq, member)]
            heappush(self._final_steps, step)
        else:
            members.append((member.seq, member))

    def _stop(self, member: Member) -> None:
        """Leave the common count; what it stood for is now written at the member."""
        self.decoders -= 1
        self._context_base -= member.computed - member.since
        self._opening[(member.since - member.computed) % self._block_size] -= 1
        gained = self.steps - member.since
        member.computed += gained
        member.sampled += gained
        member.since = self.steps
        if member.held_up:
            member.held_up = False
            self.held_up.remove(member)
        else:
            member.last = self.steps - 1
