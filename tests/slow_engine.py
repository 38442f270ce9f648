"""A slow, plain engine: every request is visited in every step, every block has its number.

It is a second implementation of the scheduler rules, written from their description and the recorded schedules
and not from isim's own policy, so that the two can disagree. Nothing here is fast and nothing is clever: the free
queue is a list, a cached block is found under the tokens it holds, the waiting queue is sorted when asked for.
Its blocks are in `slow_blocks`.

`SlowScheduler` is the scheduler without time; `run_timed` plays requests with arrival times through it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec
from slow_blocks import Live, SlowPool, SlowRequest, groups_of, most_held

from isim.record.errors import IsimError
from isim.record.records import EngineLimits, EngineVersion, GroupKind, RejectReason, SchedulingPolicy

Scheduled = tuple[str, int, int, str]
Chunk = tuple[int, int]
StepNs = Callable[[int, int, list[Chunk]], int]


class SlowStep(msgspec.Struct, kw_only=True):
    """One schedule() call. `scheduled` has (id, tokens, computed before, new | running | resumed).

    `skipped` are running requests that had a token due and got none. `decodes` are the scheduled requests that
    were past their prefill, which a preemption starts afresh; each of them has one token.
    """

    scheduled: list[Scheduled] = []
    preempted: list[str] = []
    lookups: list[tuple[str, int]] = []
    sampled: list[str] = []
    skipped: list[str] = []
    decodes: list[str] = []


class SlowScheduler:
    """The scheduler without time: add, abort, schedule, update of the oldest scheduled step.

    A block is keyed at the first of two moments: when its request is allotted blocks, as far as its tokens are known
    and will be computed by then; and, asynchronously, when an output is processed, as far as is not in flight.
    """

    def __init__(self, limits: EngineLimits) -> None:
        self.limits = limits
        self.pool = SlowPool(limits)
        self.lives: dict[str, Live] = {}
        self.run_list: list[Live] = []
        self.wait_list: list[Live] = []
        self.untold = False
        self.in_flight: list[SlowStep] = []

    def add(self, request: SlowRequest) -> None:
        tokens = [(group, start + k) for group, start, count in request.prompt for k in range(count)]
        groups = len(self.pool.groups)
        live = Live(request=request, tokens=tokens, tables=[[] for _ in range(groups)], hashed=[0] * groups)
        self.lives[request.id] = live
        self.wait_list.append(live)

    def abort(self, request_id: str) -> None:
        if request_id in self.lives:
            self._leave(self.lives[request_id])

    def has_requests(self) -> bool:
        return bool(self.lives) or self.untold

    def running(self) -> list[str]:
        return [live.id for live in self.run_list]

    def waiting(self) -> list[str]:
        return [live.id for live in self._queue()]

    def free_blocks(self) -> int:
        return len(self.pool.free)

    def free_block_order(self) -> list[int]:
        return list(self.pool.free)

    def schedule(self) -> SlowStep:
        self.untold = False
        self.budget = self.limits.max_num_batched_tokens
        self.alone = len(self.lives) == 1
        self.step = SlowStep()
        self.pool.step_starts()
        self.taken: dict[str, Scheduled] = {}
        self._running_pass()
        if not self.step.preempted:
            self._waiting_pass()
        self._advance()
        self.in_flight.append(self.step)
        return self.step

    def _queue(self) -> list[Live]:
        if self.limits.policy is SchedulingPolicy.FCFS:
            return list(self.wait_list)
        return sorted(self.wait_list, key=lambda live: (live.urgency, live.id))

    def _threshold_cut(self, tokens: int) -> int:
        threshold = self.limits.long_prefill_token_threshold
        lifted = self.alone and self.limits.version is EngineVersion.V033
        return min(tokens, threshold) if threshold and not lifted else tokens

    def _due(self, live: Live) -> int:
        """Tokens the running pass would give with budget without end."""
        known_end = live.request.prompt_tokens + live.request.output_tokens
        if live.placeholders and live.computed + 2 - live.placeholders >= known_end:
            return 0
        return min(self._threshold_cut(live.due), self.limits.max_model_len - 1 - live.computed)

    def _running_pass(self) -> None:
        self.place = 0
        while self.place < len(self.run_list) and self.budget > 0:
            live = self.run_list[self.place]
            tokens = self._whole_blocks(live, live.computed, min(self._due(live), self.budget))
            if tokens == 0:
                self.place += 1
                continue
            self.pool.drop_passed(live, self._settled(live))
            while live in self.run_list and self.pool.lacks(live, live.computed + tokens):
                self._preempt()
            if live not in self.run_list:
                if self.limits.version is EngineVersion.V021:
                    break
                continue
            self.pool.allot(live, live.computed + tokens)
            self._take(live, tokens, "running")
            self.place += 1
        self.step.skipped = [live.id for live in self.run_list if live.id not in self.taken and self._due(live) > 0]

    def _preempt(self) -> None:
        """Take one victim out of the running list; keep `place` where the request being served stands."""
        if self.limits.policy is SchedulingPolicy.FCFS:
            victim = self.run_list[-1]
        else:
            victim = max(self.run_list, key=lambda live: live.urgency)
        position = self.run_list.index(victim)
        self.run_list.remove(victim)
        had = self.taken.pop(victim.id, None)
        if had is not None:
            self.budget += had[1]
        if position < self.place and (had is not None or self.limits.version is EngineVersion.V033):
            self.place -= 1
        self.pool.release(victim)
        victim.computed, victim.preempted, victim.prefill = 0, True, True
        self.wait_list.insert(0, victim)
        self.step.preempted.append(victim.id)

    def _waiting_pass(self) -> None:
        for live in self._queue():
            if self.budget == 0 or len(self.run_list) == self.limits.max_num_seqs:
                return
            hits = self.pool.hits(live)
            known, computed = len(live.tokens), hits.tokens
            self.step.lookups.append((live.id, computed))
            tokens = self._threshold_cut(known - computed)
            if tokens > self.budget and not self.limits.enable_chunked_prefill:
                return
            live.shared = hits.shared
            tokens = self._whole_blocks(live, computed, min(tokens, self.budget))
            if tokens == 0:
                return
            if self.limits.scheduler_reserve_full_isl and self.pool.lacks(live, known, hits, whole=True):
                return
            if self.pool.lacks(live, computed + tokens, hits):
                return
            self.pool.admit(live, computed + tokens, hits)
            live.computed = computed
            self.wait_list.remove(live)
            self.run_list.append(live)
            self._take(live, tokens, "resumed" if live.preempted else "new")

    def _settled(self, live: Live) -> int:
        """Computed tokens that count for what is left behind."""
        if self.limits.version is EngineVersion.V021:
            return live.computed
        under_way = [entry[1] for step in self.in_flight for entry in step.scheduled if entry[0] == live.id]
        return max(0, live.computed - sum(under_way))

    def _whole_blocks(self, live: Live, computed: int, tokens: int) -> int:
        """Chunks of a prefill end where a block does if states are to be found there."""
        if all(group.kind is not GroupKind.ALIGNED_STATE for group in self.pool.groups):
            return tokens
        known = len(live.tokens)
        if computed >= max(live.request.prompt_tokens, known - 1):
            return tokens
        block = self.limits.block_size
        newer = self.limits.version is EngineVersion.V033
        last = (known - newer) // block * block
        if newer and computed < live.shared < computed + tokens:
            return live.shared - computed
        if computed + tokens < last:
            return tokens // block * block
        return last - computed if computed < last < computed + tokens else tokens

    def _take(self, live: Live, tokens: int, kind: str) -> None:
        self.taken[live.id] = (live.id, tokens, live.computed, kind)
        self.budget -= tokens

    def _advance(self) -> None:
        """Count the scheduled tokens as computed; whoever has none left to compute will get a token."""
        assert self.budget >= 0
        self.step.scheduled = list(self.taken.values())
        for name, tokens, _, _ in self.step.scheduled:
            live = self.lives[name]
            if not live.prefill:
                self.step.decodes.append(name)
            live.computed += tokens
            if live.due == 0:
                self.step.sampled.append(name)
                live.prefill = False
                live.placeholders += self.limits.async_scheduling

    def update(self) -> tuple[list[str], list[str]]:
        """Process the output of the oldest step in flight: who got a token, and who is finished by it."""
        emitted, finished = [], []
        for name in self.in_flight.pop(0).sampled:
            live = self.lives.get(name)
            if live is None:
                continue
            live.tokens.append((f"o:{name}", live.outputs))
            live.outputs += 1
            emitted.append(name)
            if self.limits.async_scheduling:
                live.placeholders -= 1
                if live in self.run_list:
                    self.pool.publish(live, live.computed - live.placeholders)
            if live.outputs == live.request.output_tokens or len(live.tokens) == self.limits.max_model_len:
                finished.append(name)
                self._leave(live)
        return emitted, finished

    def _leave(self, live: Live) -> None:
        self.pool.release(live)
        self.run_list = [other for other in self.run_list if other is not live]
        self.wait_list = [other for other in self.wait_list if other is not live]
        del self.lives[live.id]
        self.untold = True


class EndlessRun(IsimError):  # noqa: N818 - it names what the run is
    """The rules make no headway: requests that tie evict one another in turn, or nothing can be scheduled."""


class SlowAdmission(msgspec.Struct, frozen=True, kw_only=True):
    """`time_ns` is when the step was decided."""

    time_ns: int
    hit_tokens: int
    tokens: int


class SlowOutcome(msgspec.Struct, kw_only=True):
    """What became of one request; None is "never"."""

    rejected: RejectReason | None = None
    aborted_ns: int | None = None
    first_token_ns: int | None = None
    finish_ns: int | None = None
    token_ns: list[int] = []
    admissions: list[SlowAdmission] = []
    preemptions: int = 0


class SlowTimedStep(msgspec.Struct, kw_only=True):
    """A step with tokens. `context` sums the tokens its requests had computed before it, hits included."""

    decided_ns: int
    start_ns: int
    duration_ns: int
    context: int
    decision: SlowStep
    free_blocks: int

    @property
    def scheduled(self) -> list[Scheduled]:
        return self.decision.scheduled


class SlowRun(msgspec.Struct, kw_only=True):
    """`preempted` has (time, id) of every preemption, also by a decision that scheduled nothing."""

    requests: dict[str, SlowOutcome] = {}
    steps: list[SlowTimedStep] = []
    preempted: list[tuple[int, str]] = []
    max_blocks_used: int = 0
    free_block_order: list[int] = []


def reject_reason(limits: EngineLimits, request: SlowRequest) -> RejectReason | None:
    """Why the engine refuses the request at its arrival, if it does."""
    if request.prompt_tokens >= limits.max_model_len:
        return RejectReason.PROMPT_TOO_LONG
    peak = request.prompt_tokens + allowed_output(limits, request) - 1
    most = sum(most_held(limits, group, peak) for group in groups_of(limits))
    return RejectReason.NEVER_FITS if most > limits.num_blocks - 1 else None


def allowed_output(limits: EngineLimits, request: SlowRequest) -> int:
    return min(request.output_tokens, limits.max_model_len - request.prompt_tokens)


class _Clock:
    """The loop of `run_timed`: `queue` holds the end of each step in flight, `busy_ns` when the device is free."""

    def __init__(
        self,
        limits: EngineLimits,
        requests: Sequence[SlowRequest],
        step_ns: StepNs,
        max_decisions: int,
        timeout_ns: int | None,
        overhead_ns: int = 0,
    ) -> None:
        self.limits, self.step_ns, self.decisions_left = limits, step_ns, max_decisions
        self.timeout_ns = timeout_ns
        self.overhead_ns = overhead_ns
        self.requests = {request.id: request for request in requests}
        self.scheduler = SlowScheduler(limits)
        self.arrivals = sorted(requests, key=lambda request: request.arrival_ns)
        self.run = SlowRun(requests={request.id: SlowOutcome() for request in requests})
        self.queue: list[int] = []
        self.busy_ns = 0
        self.now_ns = 0

    def play(self) -> None:
        depth = 2 if self.limits.async_scheduling else 1
        while True:
            self._arrive()
            if self.scheduler.has_requests():
                had_tokens = self._decide()
                more = self.limits.version is EngineVersion.V033 and self.scheduler.has_requests()
                if len(self.queue) == depth or not (had_tokens or more):
                    self._output()
            elif self.queue:
                self._output()
            elif self.arrivals:
                self.now_ns = self.arrivals[0].arrival_ns + self.overhead_ns
            else:
                return

    def _arrive(self) -> None:
        while self.arrivals and self.arrivals[0].arrival_ns + self.overhead_ns <= self.now_ns:
            request = self.arrivals.pop(0)
            reason = reject_reason(self.limits, request)
            if reason is None:
                self.scheduler.add(request)
            self.run.requests[request.id].rejected = reason
        if self.timeout_ns is not None:
            for name in list(self.scheduler.lives):
                if self.requests[name].arrival_ns + self.timeout_ns <= self.now_ns:
                    self.scheduler.abort(name)
                    self.run.requests[name].aborted_ns = self.now_ns

    def _decide(self) -> bool:
        """Schedule a step now; it starts when the device is free, and an empty one takes no time."""
        step = self.scheduler.schedule()
        for name in step.preempted:
            self.run.requests[name].preemptions += 1
            self.run.preempted.append((self.now_ns, name))
        self.decisions_left -= 1
        if self.decisions_left < 0:
            raise EndlessRun(f"at {self.now_ns} ns: no end in sight, {self.scheduler.waiting()} wait")
        if not step.scheduled:
            self.queue.append(self.now_ns)
            return False
        hits = dict(step.lookups)
        for name, tokens, _, kind in step.scheduled:
            if kind != "running":
                admission = SlowAdmission(time_ns=self.now_ns, hit_tokens=hits[name], tokens=tokens)
                self.run.requests[name].admissions.append(admission)
        decode_contexts = [before for name, _, before, _ in step.scheduled if name in step.decodes]
        chunks = [(tokens, before) for name, tokens, before, _ in step.scheduled if name not in step.decodes]
        duration_ns = self.step_ns(len(decode_contexts), sum(decode_contexts), chunks)
        start_ns = max(self.now_ns, self.busy_ns)
        self.busy_ns = start_ns + duration_ns
        self.queue.append(self.busy_ns)
        free_blocks = self.scheduler.free_blocks()
        self.run.max_blocks_used = max(self.run.max_blocks_used, self.limits.num_blocks - 1 - free_blocks)
        self.run.steps.append(
            SlowTimedStep(
                decided_ns=self.now_ns,
                start_ns=start_ns,
                duration_ns=duration_ns,
                context=sum(before for _, _, before, _ in step.scheduled),
                decision=step,
                free_blocks=free_blocks,
            )
        )
        return True

    def _output(self) -> None:
        """Wait for the end of the oldest step in flight and hand out its tokens."""
        self.now_ns = max(self.now_ns, self.queue.pop(0))
        emitted, finished = self.scheduler.update()
        for name in emitted:
            self.run.requests[name].token_ns.append(self.now_ns)
        for name in finished:
            self.run.requests[name].finish_ns = self.now_ns


def run_timed(
    limits: EngineLimits,
    requests: Sequence[SlowRequest],
    step_ns: StepNs,
    max_decisions: int = 20_000,
    timeout_ns: int | None = None,
    overhead_ns: int = 0,
) -> SlowRun:
    """Play requests through the scheduler in time.

    `step_ns(decodes, decode_context, chunks)` prices a step: how many requests decode, the sum of tokens they had
    computed, and (new tokens, computed before) of each other scheduled request. Synchronous: a step is decided at
    the end of the one before, after its output and the arrivals up to that instant. Asynchronous: one step ahead,
    at the start of the one before. From idle, at the arrival. Raises `EndlessRun` beyond `max_decisions`.
    Requests are sent at their times and reach the engine `overhead_ns` later. One that is still there `timeout_ns`
    after it was sent is cancelled where arrivals are taken in, after them.
    """
    clock = _Clock(limits, requests, step_ns, max_decisions, timeout_ns, overhead_ns)
    clock.play()
    for request in requests:
        outcome = clock.run.requests[request.id]
        if outcome.token_ns:
            outcome.first_token_ns = outcome.token_ns[0]
        if outcome.rejected is None and outcome.aborted_ns is None:
            assert len(outcome.token_ns) == allowed_output(limits, request), request.id
            assert outcome.finish_ns == outcome.token_ns[-1], request.id
    pool = clock.scheduler.pool
    assert sorted(pool.free) == list(range(1, limits.num_blocks)), "a block was lost or given twice"
    assert not any(pool.references.values()), "a free block is still referred to"
    clock.run.free_block_order = list(pool.free)
    return clock.run
