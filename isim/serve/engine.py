"""The engine: one actor that turns the scheduler's decisions into time on a device, and writes down what it did.

Its loop is that of vLLM's engine core. Decide a step; if another may be under way, decide on at once; else wait for
the output of the oldest, take it in, take in who arrived up to and including this instant, and decide again. With one
step under way (synchronous) a step is decided when the one before has ended. With two (asynchronous) a step is decided
when the one before it starts. A step without tokens takes no time, but it takes a place among those under way.

A steady decision is taken many times at once: a *stretch* holds the device for as many equal steps as the scheduler's
horizon allows, and no longer than to the first moment of decision at or after the next arrival, where that is known to
come and might be admitted. Where it is not known, whoever arrives wakes the engine and the stretch is cut. Only when it
ends is the scheduler advanced, by the steps that really were.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Generator
from itertools import accumulate

import msgspec

from isim.cost.base import CostModel
from isim.kernel.actor import Actor
from isim.kernel.alarm import Alarm
from isim.kernel.arbiter import Arbiter, Lease
from isim.kernel.clock import Rank
from isim.kernel.kernel import Kernel
from isim.kernel.mailbox import Mailbox
from isim.policy.vllm.plan import Outcome, Plan
from isim.policy.vllm.scheduler import Scheduler
from isim.record.errors import IsimError
from isim.record.log import Log
from isim.record.records import Stretch, Turn
from isim.serve.census import Census
from isim.workload.request import Request

LONGEST_STRETCH = 1 << 12
MOST_IDLE_TURNS = 10_000
_FIRST_REACH = 16


class NoHeadway(IsimError):  # noqa: N818 - it names what the engine does
    """The scheduler's rules go in circles without any time passing."""


class _Span(msgspec.Struct):
    """The part of a stretch that is written down next: from which step, decided when, on what batch."""

    step: int
    decided_ns: int
    batch: int
    context: int
    running: int


class Engine:
    """`number` tells engines apart; `max_stretch` bounds how many steps run as one event and changes no result."""

    def __init__(
        self,
        kernel: Kernel,
        number: int,
        scheduler: Scheduler,
        cost: CostModel,
        log: Log,
        census: Census,
        max_stretch: int | None = None,
    ) -> None:
        self.number = number
        self.scheduler = scheduler
        self.max_stretch = min(max_stretch or LONGEST_STRETCH, LONGEST_STRETCH)
        self.census = census
        self._kernel = kernel
        self._cost = cost
        self._log = log
        self._name = f"engine {number}"
        self._device = Arbiter(kernel, f"device {number}")
        self._under_way: deque[tuple[Lease | None, int]] = deque()
        """For each step of the scheduler's flights: its lease, and when it ends after the start of that."""
        self._outcome: Outcome | None = None
        self._reach = _FIRST_REACH
        self._leases = 0
        self._idle = (-1, 0)
        self._alarm = kernel.spawn(self._name, Rank.ENGINE, self._body).alarm
        self.mailbox: Mailbox[Request] = Mailbox(self._alarm)

    # ---- what a test may replace

    def take_in(self) -> None:
        """Queue everybody who has arrived by now."""
        add = self.scheduler.add
        for request in self.mailbox.take():
            add(
                request.index,
                request.id,
                request.input_tokens,
                request.output_tokens,
                priority=request.priority,
                order_time=request.arrival_ns,
                prompt=request.prompt and shareable(request.prompt, request.id),
                quotable=request.quotable,
            )

    def has_news(self) -> bool:
        """Whether somebody arrived who is not queued yet."""
        return len(self.mailbox) > 0

    def stretch_limit(self, made: int) -> int:
        """The most steps that the next stretch may have, those included that are already `made`."""
        return self.max_stretch

    # ---- the loop

    def _body(self, actor: Actor) -> Generator[Alarm, None, None]:
        scheduler = self.scheduler
        again = scheduler.rules.schedule_on_empty
        depth = scheduler.depth
        flights = scheduler.flights
        while True:
            self.take_in()
            if scheduler.has_requests:
                steady = scheduler.steady_steps()
                if steady:
                    self._say(None)
                    decoders = scheduler.decoders
                    yield from self._stretch(actor, steady, 0, decoders.count, decoders.context)
                else:
                    plan = self._decide()
                    if plan.steady:
                        most = 1 + scheduler.horizon(plan)
                        yield from self._stretch(actor, most, 1, plan.decodes, plan.decode_context)
                    if len(flights) < depth and (plan.tokens or (again and scheduler.has_requests)):
                        continue
            elif not flights:
                self._say(None)
                if not self.has_news():
                    actor.waits_for = "requests"
                    self.mailbox.wakes = True
                    yield self._alarm.wait()
                    self.mailbox.wakes = False
                continue
            else:
                self._say(None)
            lease, offset_ns = self._under_way[0]
            if lease is not None:
                actor.waits_for = "the end of a step"
                while not self._reached(lease, offset_ns):
                    yield self._alarm.wait()
            self._under_way.popleft()
            self._take_output()

    def _take_output(self) -> None:
        outcome = self.scheduler.update()
        if outcome is None:
            return
        self._outcome = outcome
        if outcome.finished:
            self.census.completed += len(outcome.finished)
            self.census.settle()

    def _reached(self, lease: Lease, offset_ns: int) -> bool:
        start_ns = lease.start_ns
        return start_ns is not None and self._kernel.now_ns >= start_ns + offset_ns

    def _decide(self) -> Plan:
        """One decision. Unless it is steady, it is written down and its step asks for the device."""
        scheduler = self.scheduler
        free_blocks = scheduler.pool.free
        plan = scheduler.schedule()
        if plan.steady:
            self._say(None, free_blocks)
        elif plan.tokens:
            self._kernel.spend(1, self._name)
            duration_ns = self._cost.step_ns(plan.decodes, plan.decode_context, plan.shapes)
            self._say(plan, duration_ns=duration_ns)
            self._under_way.append((self._hold(duration_ns), duration_ns))
        else:
            self._say(plan if plan.preempted else None)
            self._under_way.append((None, 0))
            self._idle_turn()
        return plan

    def _idle_turn(self) -> None:
        """Count decisions of one instant that schedule nothing: they end, unless the rules go in circles."""
        now_ns = self._kernel.now_ns
        if self._idle[0] != now_ns:
            self._idle = (now_ns, 0)
        self._idle = (now_ns, self._idle[1] + 1)
        if self._idle[1] > MOST_IDLE_TURNS:
            waiting = ", ".join(sequence.id for sequence in self.scheduler.waiting.in_order()[:4])
            raise NoHeadway(
                f"at {now_ns} ns {self._name} decided {MOST_IDLE_TURNS} times in a row to schedule nothing: its "
                "requests preempt one another in turn, and the real engine would spin here for ever. "
                f"First in line: {waiting}. "
                "Give it more KV blocks, a larger max_num_batched_tokens, or distinct priorities"
            )

    def _hold(self, hold_ns: int, wake_ns: int | None = None) -> Lease:
        self._leases += 1
        return self._device.submit((self._kernel.now_ns, self.number, self._leases), hold_ns, self._alarm, wake_ns)

    # ---- stretches

    def _stretch(self, actor: Actor, most: int, made: int, batch: int, context: int) -> Generator[Alarm, None, None]:
        """Run up to `most` steady steps; returns when the next one has to be decided. `made` of them are decided.

        `ends_ns` are the ends of the steps after the start of the lease, from 0 on. The engine decides again at
        `ends_ns[turn]`: with one step under way when the last of the stretch has ended, with two when it starts.
        """
        scheduler, under_way, mailbox = self.scheduler, self._under_way, self.mailbox
        ahead = scheduler.depth - 1
        steps = min(most, self.stretch_limit(made), self._reach)
        span = _Span(scheduler.steps - made, self._kernel.now_ns, batch, context, len(scheduler.running))
        durations_ns = self._cost.decode_series_ns(batch, context, steps)
        ends_ns = list(accumulate(durations_ns, initial=0))
        if len(under_way) < ahead:
            # From idle the pipeline is not full yet: the next decision follows at once.
            under_way.append((self._hold(ends_ns[-1]), ends_ns[-1]))
            self._tell(span, durations_ns)
            return
        turn = steps - ahead
        if steps > 1 and scheduler.open_to_newcomers():
            turn, mailbox.wakes = self._foresee(ends_ns, turn)
        outcome_due = turn > 0 and scheduler.outcome_due()
        if turn and ahead:
            lease = self._hold(ends_ns[turn + 1], ends_ns[turn])
            before = under_way[0][0]
            if before is not None and not outcome_due:
                before.mute()
        else:
            lease = self._hold(ends_ns[turn + ahead])
        told = 0
        actor.waits_for = "the end of a stretch"
        while not self._decides_now(lease, ends_ns, turn):
            yield self._alarm.wait()
            if mailbox.wakes and self.has_news():
                self.take_in()
                turn = self._cut(lease, ends_ns, turn)
            if outcome_due and turn and self._decides_now(lease, ends_ns, 0):
                outcome_due = False
                if not made:
                    scheduler.advance(1)
                    made = 1
                self._tell(span, durations_ns[:1])
                told = 1
                span = _Span(span.step + 1, self._kernel.now_ns, batch, context + batch, 0)
                self._take_output()
                self.take_in()
                self._say(None)
        mailbox.wakes = False
        done = turn + ahead
        self._reach = max(_FIRST_REACH, 2 * done)
        if done > made:
            scheduler.advance(done - made)
        if ahead and turn:
            under_way[0] = (lease, ends_ns[turn])
        under_way.append((lease, ends_ns[done]))
        span.running = len(scheduler.running)
        self._tell(span, durations_ns[told:done])

    def _foresee(self, ends_ns: list[int], turn: int) -> tuple[int, bool]:
        """Where a stretch must end for the next arrival there can be, and whether earlier ones may come after all.

        The device is this engine's own, so the start of the stretch is known: now, or the end of the step under way.
        """
        now_ns = self._kernel.now_ns
        quiet_until_ns = self.census.quiet_until_ns
        if quiet_until_ns <= now_ns:
            return turn, True
        ahead = self.scheduler.depth - 1
        start_ns = now_ns
        if ahead:
            lease, offset_ns = self._under_way[0]
            if lease is not None:
                if lease.start_ns is None:
                    return turn, True
                start_ns = lease.start_ns + offset_ns
        return min(turn, max(1 - ahead, bisect_left(ends_ns, quiet_until_ns - start_ns))), False

    def _decides_now(self, lease: Lease, ends_ns: list[int], turn: int) -> bool:
        if turn:
            return self._reached(lease, ends_ns[turn])
        before, offset_ns = self._under_way[0]
        return before is None or self._reached(before, offset_ns)

    def _cut(self, lease: Lease, ends_ns: list[int], turn: int) -> int:
        """Let the stretch end at the first moment of decision from now on; returns which that is."""
        ahead = self.scheduler.depth - 1
        start_ns = lease.start_ns
        since_ns = 0 if start_ns is None else self._kernel.now_ns - start_ns
        sooner = max(1 - ahead, bisect_left(ends_ns, since_ns))
        if sooner >= turn:
            return turn
        lease.shorten(ends_ns[sooner + ahead], ends_ns[sooner] if ahead else None)
        return sooner

    def _tell(self, span: _Span, durations_ns: list[int]) -> None:
        """Write down the part of a stretch that is over."""
        steps = len(durations_ns)
        self._kernel.spend(steps, self._name)
        if steps > 1 and durations_ns.count(durations_ns[0]) == steps:
            durations_ns = durations_ns[:1]
        self._log.emit(
            Stretch(
                time_ns=self._kernel.now_ns,
                engine=self.number,
                step=span.step,
                steps=steps,
                schedule_ns=span.decided_ns,
                durations_ns=durations_ns,
                batch=span.batch,
                context=span.context,
                running=span.running,
                free_blocks=self.scheduler.pool.free,
            )
        )

    # ---- the log

    def _say(self, plan: Plan | None, free_blocks: int | None = None, duration_ns: int = 0) -> None:
        """Write down the outcome that waits to be told, together with a decision of the same moment, if any."""
        outcome = self._outcome
        if outcome is None and plan is None:
            return
        scheduler = self.scheduler
        turn = Turn(
            time_ns=self._kernel.now_ns,
            engine=self.number,
            running=len(scheduler.running),
            waiting=len(scheduler.waiting),
            free_blocks=scheduler.pool.free if free_blocks is None else free_blocks,
        )
        if outcome is not None:
            turn.ended = outcome.step
            turn.first = outcome.first
            turn.late = outcome.late
            turn.finished = outcome.finished
            self._outcome = None
        if plan is not None:
            turn.admitted = plan.admitted
            turn.chunks = plan.chunks
            turn.skipped = plan.skipped
            turn.preempted = plan.preempted
            if plan.tokens:
                turn.step = plan.step
                turn.duration_ns = duration_ns
                turn.scheduled = plan.scheduled
                turn.tokens = plan.tokens
                turn.sampled = plan.sampled
                turn.context = plan.context
        self._log.emit(turn)


def shareable(prompt: tuple[tuple[str, int, int], ...], name: str) -> tuple[tuple[str, int, int], ...]:
    """The runs of a prompt that another request could have too: all before its own group `p:<id>`."""
    own = f"p:{name}"
    for place, (group, _, _) in enumerate(prompt):
        if group == own:
            return prompt[:place]
    return prompt
