"""Who runs and who waits, against an account that visits every request at every step."""

from __future__ import annotations

from random import Random

import msgspec
import pytest

from isim.replay.member import Member, Queue, Stage
from isim.replay.roster import Roster


def member(index: int, *, prompt: int = 4, output: int = 1, priority: int = 0, order: int = 0) -> Member:
    return Member(
        index=index,
        id=f"r{index}",
        engine=0,
        prompt_tokens=prompt,
        output_tokens=output,
        priority=priority,
        order=order,
        chain=None,
        quotable=False,
    )


# ---- who runs


class Plain(msgspec.Struct, eq=False):
    """One request: `samples` are the steps that sampled for it, the first `before` of them before its last prefill
    ended; `left_out` says that the last step did not.
    """

    member: Member
    output: int
    computed: int = 0
    samples: list[int] = []
    before: int = 0
    prefills: bool = True
    left_out: bool = False

    @property
    def decodes(self) -> bool:
        return not (self.prefills or self.done)

    @property
    def done(self) -> bool:
        return len(self.samples) == self.output


class Both:
    def __init__(self, seed: int) -> None:
        self.dice = Random(seed)
        self.block = self.dice.randint(1, 5)
        self.roster = Roster(self.block)
        self.step = 0
        self.running: list[Plain] = []
        self.preempted: list[Plain] = []
        self.ended: dict[int, list[Plain]] = {}
        self.came = 0

    def take_step(self) -> None:
        """A decision: some who decode may be left out, some prefills end with it; then others come to run."""
        dice, roster, step = self.dice, self.roster, self.step
        decoding = [one for one in self.running if one.decodes]
        served = dice.sample(decoding, dice.randint(0, len(decoding))) if dice.random() < 0.3 else decoding
        for one in decoding:
            if one not in served:
                roster.hold_up(one.member)
                one.left_out = True
        for one in served:
            if one.left_out:
                roster.held_up.remove(one.member)
                roster.go_on(one.member)
                one.left_out = False
        for one in [one for one in self.running if one.prefills and dice.random() < 0.6]:
            self.compute_prefill(one)
        roster.steps += 1
        roster.retire(step)
        for one in served:
            one.computed += 1
            self.sample(one)
        if dice.random() < 0.6:
            one = self.seat()
            if dice.random() < 0.5:
                self.compute_prefill(one)
        self.step += 1

    def seat(self) -> Plain:
        """Somebody new, or who ran before."""
        if self.preempted and self.dice.random() < 0.5:
            one = self.preempted.pop()
        else:
            output = self.dice.choice([1, 2, 3, 9])
            one = Plain(member(self.came, output=output), output)
            self.came += 1
        self.roster.seat(one.member)
        self.running.append(one)
        return one

    def compute_prefill(self, one: Plain) -> None:
        one.computed = one.member.computed = self.dice.randint(1, 20)
        self.roster.caught_up(one.member, self.step)
        one.prefills, one.before = False, len(one.samples)
        self.sample(one)
        assert one.member.run == self.step

    def sample(self, one: Plain) -> None:
        one.samples.append(self.step)
        if one.done:
            self.ended.setdefault(self.step, []).append(one)

    def someone_goes(self) -> None:
        one = self.running.pop(self.dice.randrange(len(self.running)))
        gone = one.member
        self.roster.unseat(gone)
        assert (gone.computed, gone.sampled) == (one.computed, len(one.samples))
        assert not one.samples or gone.last == one.samples[-1]
        assert (gone.final >= 0) == one.done
        gone.stage = self.dice.choice([Stage.GONE, Stage.WAITING])
        if one.done and gone.stage is Stage.GONE:
            self.ended[one.samples[-1]].remove(one)
        elif gone.stage is Stage.WAITING and not one.done:
            one.prefills, one.left_out, one.computed, gone.computed = True, False, 0, 0
            self.preempted.append(one)

    def hand_out(self, step: int) -> None:
        """Whoever has the last token leaves, and is in the way no more."""
        self.roster.forget_finals(step)
        assert self.roster.finals(step) == []
        for one in self.ended.pop(step, []):
            if one in self.running:
                self.running.remove(one)
                self.roster.unseat(one.member)
            one.member.stage = Stage.GONE

    def agree(self) -> None:
        roster, running = self.roster, self.running
        decoding = [one for one in running if one.decodes]
        assert list(roster.running.values()) == [one.member for one in running]
        assert list(roster.prefilling.values()) == [one.member for one in running if one.prefills]
        assert sorted(roster.running) == [one.member.seq for one in running]
        assert sorted(it.index for it in roster.held_up) == sorted(one.member.index for one in decoding if one.left_out)
        for one in running:
            stage = Stage.DECODE if one.decodes else Stage.LAST if one.done else Stage.PREFILL
            assert one.member.stage is stage and one.member.held_up == one.left_out
            assert roster.computed(one.member) == one.computed
            if one.left_out or one.done:
                assert one.member.last == one.samples[-1]
            if one.decodes and not one.left_out:
                run = one.samples[-1]
                while run - 1 in one.samples[one.before :]:
                    run -= 1
                assert one.member.run == run
        assert roster.decoders == len(decoding)
        assert roster.decode_context() == sum(one.computed for one in decoding)
        for count in range(2 * self.block + 2):
            opened = sum((one.computed + k) % self.block == 0 for one in decoding for k in range(count))
            assert roster.opened_by(count) == opened, count
        assert roster.opened_by_next() == roster.opened_by(1)
        due = [self.step + one.output - len(one.samples) - 1 for one in decoding]
        assert roster.next_final() == min(due, default=None)
        for step in range(max(0, self.step - 3), self.step):
            told = sorted(it.index for it in roster.finals(step))
            assert told == sorted(one.member.index for one in self.ended.get(step, [])), step


@pytest.mark.parametrize("seed", range(30))
def test_the_common_counts_are_those_of_every_request_by_itself(seed: int) -> None:
    """A step's output is handed out two steps later."""
    both = Both(seed)
    for _ in range(60):
        both.take_step()
        both.agree()
        if both.running and both.dice.random() < 0.3:
            both.someone_goes()
            both.agree()
        if both.step > 2:
            both.hand_out(both.step - 3)


# ---- who waits


@pytest.mark.parametrize("by_priority", [False, True])
@pytest.mark.parametrize("seed", range(5))
def test_a_queue_is_a_list_in_order(seed: int, by_priority: bool) -> None:
    """By priority, time and name; or as they came, but for those who are put in front."""
    dice = Random(seed)
    queue, plain = Queue(by_priority=by_priority), list[Member]()
    away = [member(index, priority=dice.randrange(3), order=dice.randrange(3)) for index in range(12)]
    for _ in range(200):
        if away and (not plain or dice.random() < 0.5):
            one = away.pop(dice.randrange(len(away)))
            in_front = dice.random() < 0.3
            if in_front:
                queue.push(one, in_front=True)
            else:
                queue.push(one)
            plain.insert(0 if in_front else len(plain), one)
            if by_priority:
                plain.sort(key=lambda it: (it.priority, it.order, it.id))
        else:
            one = plain.pop(0 if dice.random() < 0.5 else dice.randrange(len(plain)))
            queue.discard(one)
            away.append(one)
        assert len(queue) == len(plain)
        assert not plain or queue.head() is plain[0]
