"""What a prompt would find, asked of the replay and of the slow engine alike, after each decision of the same log.

Logs tell only what those find that wait, at the head of the queue, when there is room. Here others ask too, who quote
answers as far as they are given and further: how long a prefix each would find, of which blocks somebody has each, and
whether there would be enough to start. The replay gives names when somebody asks for them; in the slow engine a block
has its name as soon as it may. So whom nobody asked before is asked about at once and later, now and then.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec
import pytest
from rare_cases import tails_case, uneven_case
from replay_examples import LIMITS, violation
from slow_blocks import Live, SlowRequest
from slow_engine import EndlessRun, SlowScheduler, SlowStep
from slow_log import slow_log
from test_replay_groups import TELLINGS
from workload_fuzz import GRID_NS, GRID_PS, Case, Dice, quoting_case, random_groups_case

from isim.record.records import (
    AnyRecord,
    Arrive,
    EngineVersion,
    GroupKind,
    GroupLimits,
    LinearCoefficients,
    SchedulingPolicy,
)
from isim.replay.decide import decide
from isim.replay.groups import GroupScheduler
from isim.replay.member import Member
from isim.replay.scheduler import Decision

Runs = list[tuple[str, int, int]]
Asking = Callable[[int], list[Runs]]


class Answer(msgspec.Struct, frozen=True):
    """`starts` says whether there is enough for one token more, and for the rest.

    `idle` says, for each block of the prompt and each group, whether the one that is found is free; None where none is.
    """

    tokens: int
    starts: tuple[bool, ...]
    idle: list[list[bool | None]]
    free_blocks: int


def asked_of_slow(scheduler: SlowScheduler, prompt: Runs) -> Answer:
    pool = scheduler.pool
    tokens = [(group, start + k) for group, start, count in prompt for k in range(count)]
    probe = SlowRequest(id="probe", prompt=prompt, output_tokens=1)
    live = Live(request=probe, tokens=tokens, tables=[[] for _ in pool.groups], hashed=[0] * len(pool.groups))
    found = pool.hits(live)
    short = scheduler.limits.scheduler_reserve_full_isl and pool.lacks(live, len(tokens), found, whole=True)
    starts = (not short and not pool.lacks(live, end, found) for end in (found.tokens + 1, len(tokens)))
    idle: list[list[bool | None]] = []
    for number, group in enumerate(pool.groups):
        holders = [pool.holders.get((number, key)) for key in pool.keys(live, group.block_size)]
        idle.append([blocks[0] in pool.free if blocks else None for blocks in holders])
    return Answer(found.tokens, tuple(starts), idle, len(pool.free))


def asked_of_replay(scheduler: GroupScheduler, prompt: Runs) -> Answer:
    tokens = sum(count for _, _, count in prompt)
    chain = scheduler.chain("probe", tokens, prompt)
    assert chain is not None
    probe = Member(
        index=-1,
        id="probe",
        engine=0,
        prompt_tokens=tokens,
        output_tokens=1,
        priority=0,
        order=0,
        chain=chain,
        quotable=False,
    )
    found = scheduler.find(probe)
    starts = (scheduler.fits(probe, found, more) for more in (1, tokens - found.tokens))
    lookup, pool = scheduler._lookup, scheduler.pool
    keys = scheduler.keys.extend(chain, tokens // lookup.unit)
    idle: list[list[bool | None]] = []
    for group in scheduler._groups:
        blocks = [pool.oldest(key) for key in lookup.keys(keys, group, range(tokens // group.size))]
        idle.append([None if block is None else block.users == 0 for block in blocks])
    return Answer(found.tokens, tuple(starts), idle, pool.free)


class Asked(msgspec.Struct):
    """One log, told and judged: what the slow engine answers after each step, and where the replay says otherwise.

    A decision that takes blocks away lets nobody in, so nobody asks then.
    """

    asking: Asking
    schedule: Callable[[SlowScheduler], SlowStep] = SlowScheduler.schedule
    answers: list[list[Answer]] = []
    compared: int = 0
    differing: list[tuple[int, Runs, Answer, Answer]] = []

    def of_slow(self, scheduler: SlowScheduler) -> SlowStep:
        decision = self.schedule(scheduler)
        if decision.scheduled:
            self.answers.append([asked_of_slow(scheduler, prompt) for prompt in self.asking(len(self.answers))])
        return decision

    def of_replay(self, scheduler: GroupScheduler, *, in_flight: int) -> Decision:
        decision = decide(scheduler, in_flight=in_flight)
        if decision.scheduled and not decision.preempted:
            step = scheduler.roster.steps - 1
            for prompt, due in zip(self.asking(step), self.answers[step], strict=True):
                self.compared += 1
                answer = asked_of_replay(scheduler, prompt)
                if answer != due:
                    self.differing.append((step, prompt, due, answer))
        return decision


def asked(
    monkeypatch: pytest.MonkeyPatch, asking: Asking, case: Case, *, timeout_ns: int | None = None, **how: int
) -> Asked:
    """Whatever is asked, the log is legal."""
    both = Asked(asking)
    monkeypatch.setattr(SlowScheduler, "schedule", lambda scheduler: both.of_slow(scheduler))
    monkeypatch.setattr("isim.replay.engine.decide", both.of_replay)
    records: list[AnyRecord] = slow_log(*case, timeout_ns=timeout_ns, **how)
    told = [msgspec.structs.replace(it, quotable=True) if isinstance(it, Arrive) else it for it in records]
    monkeypatch.undo()
    monkeypatch.setattr("isim.replay.engine.decide", both.of_replay)
    error = violation(told)
    monkeypatch.undo()
    assert error is None, str(error)
    return both


MAKERS = {"several groups": random_groups_case, "quotes": quoting_case, "uneven": uneven_case, "tails": tails_case}
SEEDS = {
    "several groups": (*range(8), 106),
    "quotes": range(12),
    "uneven": (*range(6), 76, 91),
    "tails": (*range(6), 136, 435),
}
"""The first, and some in which something rare happens."""


def now_and_then(seed: int, requests: Sequence[SlowRequest]) -> Asking:
    """After many a step somebody asks with a prompt, others with answers to it, given or to come."""

    def asking(step: int) -> list[Runs]:
        dice = Dice(seed << 20 ^ step)
        prompts = []
        for number in range(dice.pick(0, 0, 1, 1, 3)):
            said = dice.pick(*requests)
            quoted = [(f"o:{said.id}", 0, dice.between(1, 20))] if dice.chance(70) else []
            prompts.append([*said.prompt, *quoted, (f"p:{step}:{number}", 0, 1)])
        return prompts

    return asking


@pytest.mark.parametrize("maker", MAKERS)
def test_who_asks_now_and_then_finds_the_same(maker: str, monkeypatch: pytest.MonkeyPatch) -> None:
    compared = 0
    for seed in SEEDS[maker]:
        limits, requests, _ = case = MAKERS[maker](seed)
        if not (limits.groups and limits.enable_prefix_caching):
            continue
        try:
            both = asked(monkeypatch, now_and_then(seed, requests), case, **TELLINGS[seed % 3])
        except EndlessRun:
            continue
        assert not both.differing, (seed, both.differing[0])
        compared += both.compared
    assert compared > 100


def full(size: int) -> GroupLimits:
    return GroupLimits(kind=GroupKind.FULL, block_size=size)


def states(size: int) -> GroupLimits:
    return GroupLimits(kind=GroupKind.ALIGNED_STATE, block_size=size)


def told(*requests: tuple[float, Runs, int, int]) -> list[SlowRequest]:
    """Requests that come after so many steps' time, with prompts, output tokens and priorities."""
    return [
        SlowRequest(
            id=f"r{index}", prompt=prompt, output_tokens=tokens, priority=priority, arrival_ns=int(time * GRID_NS)
        )
        for index, (time, prompt, tokens, priority) in enumerate(requests)
    ]


NEWER = msgspec.structs.replace(
    LIMITS,
    version=EngineVersion.V033,
    async_scheduling=True,
    max_num_seqs=8,
    max_num_batched_tokens=9,
    num_blocks=200,
    max_model_len=64,
    enable_prefix_caching=True,
)
STEP = LinearCoefficients(base_ps=GRID_PS, per_token_ps=0, per_request_ps=0, per_context_token_ps=0)


def left_out(prompt_tokens: int) -> list[SlowRequest]:
    """Of 9 tokens the fourth takes 4 in steps 2 to 4, where two have one each before it, and 8 in steps 5 to 7.

    Then one is left for the fifth, and none for the last.
    """
    return told(
        (0, [("t", 0, 9)], 1, 0),
        (9, [("u1", 0, 1)], 3, 0),
        (9, [("u2", 0, 1)], 3, 0),
        (9, [("u3", 0, 40)], 3, 0),
        (9, [("t", 0, 9)], 6, 0),
        (9, [("t", 0, prompt_tokens)], 20, 0),
    )


class Narrow(msgspec.Struct, kw_only=True):
    """One log; who asks after which steps, for how many tokens of the answer to `quoted`; how many it finds there."""

    requests: list[SlowRequest]
    groups: tuple[GroupLimits, GroupLimits]
    steps: range
    prompt: Runs
    found: int
    limits: dict[str, int | bool | SchedulingPolicy] = {}
    timeout_ns: int | None = None


NARROW = {
    # the last computed token 12 in step 4; it is known before step 6, where the fifth gets as far in its turn
    "of two equal blocks that of the one left out has its name first": Narrow(
        requests=left_out(10), groups=(full(1), states(4)), steps=range(6, 12), prompt=[("t", 0, 14)], found=8
    ),
    # it goes on in step 8; the state at token 12 had its name before
    "a state computed before its request was left out is not a new one": Narrow(
        requests=left_out(10),
        groups=(full(4), states(4)),
        steps=range(8, 9),
        prompt=[("t", 0, 10), ("o:r5", 0, 6)],
        found=12,
    ),
    "a state named in the step in which its request went on is not new in the next": Narrow(
        requests=left_out(9),
        groups=(full(4), states(4)),
        steps=range(9, 10),
        prompt=[("t", 0, 9), ("o:r5", 0, 6)],
        found=12,
    ),
    # both compute token 12 in step 5, though the last one's prompt was over a step before the other's
    "of two equal blocks that of who runs first has its name first": Narrow(
        requests=told((0, [("u", 0, 1)], 40, 0), (0, [("t", 0, 11)], 12, 0), (2, [("t", 0, 10)], 5, 0)),
        groups=(full(2), full(4)),
        steps=range(7, 9),
        prompt=[("t", 0, 14)],
        found=8,
        limits={"async_scheduling": False, "max_num_batched_tokens": 60, "long_prefill_token_threshold": 3},
    ),
    # the first quotes it, in chunks, and runs before it: what it names in step 6 had its name from step 5 on
    "a state that a quoting prefill names may have had its name before": Narrow(
        requests=told((0, [("u", 0, 4), ("o:r1", 0, 30)], 2, 0), (0, [("t", 0, 4)], 12, 0)),
        groups=(full(4), states(4)),
        steps=range(6, 7),
        prompt=[("t", 0, 4), ("o:r1", 0, 6)],
        found=8,
        limits={"max_num_batched_tokens": 60, "long_prefill_token_threshold": 4},
    ),
    # left out of step 8 for the third one's chunk, which is cancelled before step 9; token 12 was known by then
    "a state that was known before its request goes on is not a new one": Narrow(
        requests=told(
            (0, [("t", 0, 9)], 1, 0),
            (7, [("u1", 0, 1)], 6, 0),
            (8.1, [("u2", 0, 40)], 3, 1),
            (8.5, [("u3", 0, 1)], 3, 0),
            (8.9, [("t", 0, 10)], 20, 2),
        ),
        groups=(full(1), states(4)),
        steps=range(9, 10),
        prompt=[("t", 0, 10), ("o:r4", 0, 6)],
        found=12,
        limits={"max_num_batched_tokens": 8, "policy": SchedulingPolicy.PRIORITY},
        timeout_ns=int(4.5 * GRID_NS),
    ),
}


@pytest.mark.parametrize("name", NARROW)
def test_who_asks_just_then_finds_the_same(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    it = NARROW[name]
    limits = msgspec.structs.replace(NEWER, groups=it.groups, block_size=it.groups[1].block_size, **it.limits)
    if it.groups[1].kind is GroupKind.FULL:
        limits = msgspec.structs.replace(limits, block_size=it.groups[0].block_size)
    case = limits, it.requests, STEP
    both = asked(monkeypatch, lambda step: [it.prompt] if step in it.steps else [], case, timeout_ns=it.timeout_ns)
    assert not both.differing, both.differing[0]
    assert [answer.tokens for answers in both.answers for answer in answers] == [it.found] * len(it.steps)
