"""isim's own scheduler and engine as players of the recorded schedules.

`PolicyDriver` is the pure policy, asked what it decided. `run_actor_case` lets the engine actor run in its own loop,
with steps of one nanosecond and arrivals given by the number of the schedule() call, writes down every call it made,
and plays that back through the recorder's loop. It runs twice, step by step and in stretches; both must tell one story.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import msgspec
from block_numbers import NumberedPool
from schedule_cases import Case, CaseRequest, Difference, play

from isim.cost.linear import LinearCost
from isim.kernel.clock import SAFE_MAX_NS
from isim.kernel.kernel import Kernel
from isim.policy.vllm.group_pool import GroupPool
from isim.policy.vllm.group_scheduler import GroupScheduler
from isim.policy.vllm.plan import Outcome, Plan
from isim.policy.vllm.scheduler import Scheduler
from isim.policy.vllm.sequence import Status
from isim.record.digest import LogDigest
from isim.record.log import Log
from isim.record.records import REVISION, SCHEMA, Abort, Arrive, End, EngineLimits, Header, LinearCoefficients
from isim.serve.census import Census
from isim.serve.engine import Engine
from isim.serve.told import Run

UNIT = LinearCoefficients(base_ps=1000, per_token_ps=0, per_request_ps=0, per_context_token_ps=0)


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    scheduled: list[tuple[str, int, int, str]]
    preempted: list[str]
    lookups: list[tuple[str, int]]
    sampled: list[str]


class View(msgspec.Struct, frozen=True, kw_only=True):
    """The scheduler after a call; `decision` after schedule(), `emitted` and `finished` after update()."""

    has_requests: bool
    running: list[str]
    waiting: list[str]
    free_blocks: int
    decision: Decision | None = None
    emitted: list[str] = []
    finished: list[str] = []


class Counted(Scheduler):
    """A scheduler that counts its decisions; requests come as the cases tell them."""

    def __init__(self, limits: EngineLimits) -> None:
        if limits.groups:
            super().__init__(limits)
        else:
            super().__init__(limits, NumberedPool)
        self.names: dict[int, str] = {}
        self.calls = 0

    def block_order(self) -> list[int]:
        """The free queue in the numbers of the real engine, head first."""
        assert isinstance(self.ledger, NumberedPool | GroupPool)
        return self.ledger.order()

    def schedule(self) -> Plan:
        self.calls += 1
        return super().schedule()

    def advance(self, steps: int, made: int = 0) -> int:
        self.calls += steps
        return super().advance(steps, made)

    def queue(self, request: CaseRequest) -> int:
        index = len(self.names)
        self.names[index] = request.id
        self.add(
            index,
            request.id,
            request.prompt_len,
            request.output_len,
            priority=request.priority,
            order_time=request.arrival_time,
            prompt=request.prompt_segments,
            quotable=True,
        )
        return index


class Watched(Counted):
    """Writes down after each call what the recorder would have seen."""

    def __init__(self, limits: EngineLimits) -> None:
        super().__init__(limits)
        self.views: list[View] = []
        self._preempted: dict[int, bool] = {}
        self._sampled: deque[list[int]] = deque()

    def steady_steps(self) -> int:
        """Every decision is to be made by itself, so that it is seen."""
        return 0

    def schedule(self) -> Plan:
        before = self._progress()
        plan = super().schedule()
        after = self._progress()
        hits = {index: hit for index, hit, _ in plan.admitted}
        scheduled: list[tuple[str, int, int, str]] = []
        sampled: list[int] = []
        for index, (computed, issued) in after.items():
            start, had = (hits[index], self.issued_before(index, issued)) if index in hits else before[index]
            if computed == start:
                continue
            kind = "running" if index not in hits else "resumed" if index in self._preempted else "new"
            scheduled.append((self.names[index], computed - start, start, kind))
            if issued > had:
                sampled.append(index)
        self.flights[-1].quiet = False  # so that the engine asks for every output
        self._preempted |= dict.fromkeys(plan.preempted, True)
        self._sampled.append(sampled)
        decision = Decision(
            scheduled=scheduled,
            preempted=[self.names[index] for index in plan.preempted],
            lookups=[(self.names[index], hit) for index, hit in plan.lookups],
            sampled=[self.names[index] for index in sampled],
        )
        self.views.append(self._view(decision=decision))
        return plan

    def issued_before(self, index: int, issued: int) -> int:
        """Tokens an admitted request had been given before this decision."""
        sequence = self.running[index]
        done = sequence.status is not Status.PREFILL
        return issued - done

    def update(self) -> Outcome | None:
        sampled = [index for index in self._sampled.popleft() if index in self.live]
        outcome = super().update()
        finished = [] if outcome is None else outcome.finished
        names = self.names
        self.views.append(
            self._view(emitted=[names[index] for index in sampled], finished=[names[index] for index in finished])
        )
        return outcome

    def _progress(self) -> dict[int, tuple[int, int]]:
        """Computed and sampled tokens of everybody running."""
        found = {}
        for index, sequence in self.running.items():
            if sequence.status is Status.DECODE:
                self.decoders.settle(sequence)
            found[index] = (sequence.computed, sequence.issued)
        return found

    def _view(
        self, *, decision: Decision | None = None, emitted: Sequence[str] = (), finished: Sequence[str] = ()
    ) -> View:
        return View(
            has_requests=self.has_requests,
            running=[sequence.id for sequence in self.running.values()],
            waiting=[sequence.id for sequence in self.waiting.in_order()],
            free_blocks=self.ledger.free,
            decision=decision,
            emitted=list(emitted),
            finished=list(finished),
        )


class CountedGroups(Counted, GroupScheduler):
    pass


class WatchedGroups(Watched, GroupScheduler):
    pass


def counted(limits: EngineLimits) -> Counted:
    return CountedGroups(limits) if limits.groups else Counted(limits)


def watched(limits: EngineLimits) -> Watched:
    return WatchedGroups(limits) if limits.groups else Watched(limits)


class PolicyDriver:
    """The pure policy as a `Driver`."""

    def __init__(self, limits: EngineLimits) -> None:
        self._scheduler = watched(limits)
        self._index: dict[str, int] = {}

    def add(self, request: CaseRequest) -> None:
        self._index[request.id] = self._scheduler.queue(request)

    def abort(self, request_id: str) -> None:
        self._scheduler.abort(self._index.get(request_id, -1))

    def has_requests(self) -> bool:
        return self._scheduler.has_requests

    def schedule(self) -> Decision:
        self._scheduler.schedule()
        decision = self._scheduler.views[-1].decision
        assert decision is not None
        return decision

    def update(self) -> tuple[Sequence[str], Sequence[str]]:
        self._scheduler.update()
        view = self._scheduler.views[-1]
        return view.emitted, view.finished

    def running(self) -> Sequence[str]:
        return [sequence.id for sequence in self._scheduler.running.values()]

    def waiting(self) -> Sequence[str]:
        return [sequence.id for sequence in self._scheduler.waiting.in_order()]

    def free_blocks(self) -> int:
        return self._scheduler.ledger.free

    def free_block_order(self) -> Sequence[int]:
        return self._scheduler.block_order()


class Playback:
    """A `Driver` that repeats what an engine actor did; asked for another call than came next, it has nothing."""

    NOTHING = Decision(scheduled=[], preempted=["(the actor made no schedule() call here)"], lookups=[], sampled=[])

    def __init__(self, views: Sequence[View], order: Sequence[int]) -> None:
        self._views = deque(views)
        self._order = order
        self._last = View(has_requests=False, running=[], waiting=[], free_blocks=-1)
        self._added = False

    def add(self, request: CaseRequest) -> None:
        self._added = True

    def abort(self, request_id: str) -> None:
        self._added = True

    def has_requests(self) -> bool:
        return self._last.has_requests or self._added

    def schedule(self) -> Decision:
        self._added = False
        if not self._views or self._views[0].decision is None:
            return self.NOTHING
        self._last = self._views.popleft()
        assert self._last.decision is not None
        return self._last.decision

    def update(self) -> tuple[Sequence[str], Sequence[str]]:
        if not self._views or self._views[0].decision is not None:
            return ["(the actor made no update() call here)"], []
        self._last = self._views.popleft()
        return self._last.emitted, self._last.finished

    def running(self) -> Sequence[str]:
        return self._last.running

    def waiting(self) -> Sequence[str]:
        return self._last.waiting

    def free_blocks(self) -> int:
        return self._last.free_blocks

    def free_block_order(self) -> Sequence[int]:
        return self._order


class CaseEngine(Engine):
    """The engine actor, taking in the requests of a case by the number of its decisions instead of from a mailbox."""

    def __init__(self, kernel: Kernel, case: Case, log: Log, census: Census, max_stretch: int) -> None:
        self.table = watched(case.limits) if max_stretch == 1 else counted(case.limits)
        super().__init__(kernel, 0, self.table, LinearCost(UNIT), log, census, max_stretch)
        self._arrivals = deque(sorted(case.requests, key=lambda request: request.arrival_step))
        self._aborts = deque(sorted(case.aborts, key=lambda abort: abort.step))
        self._numbers: dict[str, int] = {}
        self._jumped = 0
        self._arrive = log.lane(Arrive)
        self._leave = log.lane(Abort)
        census.expect_arrival(SAFE_MAX_NS)

    @property
    def calls(self) -> int:
        return self.table.calls + self._jumped

    def take_in(self) -> None:
        now_ns = self.now_ns
        while self._arrivals and self._arrivals[0].arrival_step <= self.calls:
            request = self._arrivals.popleft()
            index = self._numbers[request.id] = self.table.queue(request)
            self.census.arrived += 1
            self._arrive(
                Arrive(
                    time_ns=now_ns,
                    request=index,
                    id=request.id,
                    prompt_tokens=request.prompt_len,
                    output_tokens=request.output_len,
                    priority=request.priority,
                    order_time=request.arrival_time,
                    prompt=request.prompt_segments,
                    quotable=True,
                )
            )
        while self._aborts and self._aborts[0].step <= self.calls:
            index = self._numbers.get(self._aborts.popleft().id, -1)
            if self.table.abort(index):
                self.census.aborted += 1
                self._leave(Abort(time_ns=now_ns, request=index))
        if not self._arrivals:
            self.census.close()

    def has_news(self) -> bool:
        """From idle, the count of decisions jumps to the next arrival."""
        if not self._arrivals or self.table.has_requests or self.table.flights:
            return False
        self._jumped = self._arrivals[0].arrival_step - self.table.calls
        return True

    def steady_run(self, most: int, made: int, batch: int, context: int) -> Run:
        coming = [entry.arrival_step for entry in self._arrivals] + [abort.step for abort in self._aborts]
        if coming:
            most = min(most, max(1, made + min(coming) - self.calls))
        return super().steady_run(most, made, batch, context)


def run_actor_case(case: Case) -> Difference | None:
    """Both runs of the engine actor on a case; the first difference from the recording or between the two."""
    single, single_digest = _run(case, 1)
    assert isinstance(single, Watched)
    order = single.block_order()
    difference = play(case, Playback(single.views, order))
    if difference is not None:
        return difference
    whole, whole_digest = _run(case, 1 << 20)
    if (whole_digest, whole.block_order()) != (single_digest, order):
        return Difference(case=case.name, step=-1, field="stretched digest", expected=single_digest, found=whole_digest)
    return None


def _run(case: Case, max_stretch: int) -> tuple[Counted, str]:
    digest = LogDigest()
    header = Header(
        time_ns=0,
        schema=SCHEMA,
        revision=REVISION,
        isim_version="",
        scenario_digest="",
        seed=0,
        max_events=0,
        engines=1,
        engine=case.limits,
    )
    log = Log(header, [digest.read])
    kernel = Kernel()
    census = Census(kernel)
    engine = CaseEngine(kernel, case, log, census, max_stretch)
    kernel.run()
    log.close(
        End(
            time_ns=kernel.now_ns,
            arrived=census.arrived,
            completed=census.completed,
            rejected=0,
            aborted=census.aborted,
            unfinished=census.present,
            steps=engine.table.steps,
        )
    )
    return engine.table, digest.hexdigest()
