"""The engine: one actor that turns the scheduler's decisions into time on a device, and writes down what it did.

Its loop is that of vLLM's engine core. Decide a step; if another may be under way, decide on at once; else wait for
the output of the oldest, take it in, take in who arrived up to and including this instant, and decide again. With one
step under way (synchronous) a step is decided when the one before has ended. With two (asynchronous) a step is decided
when the one before it starts. A step without tokens takes no time, but it takes a place among those under way.

Two things keep this from costing an event for each step. A *stretch*: steady decisions that are certain to follow one
another are taken all at once. And *foresight*: the device is this engine's own, so when a step ends is known when it is
decided; as long as nobody can arrive in between (`Census.quiet_until_ns`), the engine goes through its decisions on a
time of its own, `now_ns`, ahead of the kernel's clock, and waits for the clock only at the first decision that an
arrival might change. It holds the device, through the arbiter, until then. Where arrivals cannot be foreseen, a stretch
waits for the clock, and an arrival cuts it to end at the first moment of decision from then on.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Sequence

from isim.cost.base import CostModel
from isim.kernel.actor import Actor
from isim.kernel.alarm import Alarm
from isim.kernel.arbiter import Arbiter, Lease
from isim.kernel.clock import SAFE_MAX_NS, Rank
from isim.kernel.kernel import Kernel
from isim.kernel.mailbox import Mailbox
from isim.policy.prompt import shareable
from isim.policy.vllm.plan import Outcome, Plan
from isim.policy.vllm.scheduler import Scheduler
from isim.record.log import Log
from isim.record.records import LONGEST_STRETCH, Abort, Turn
from isim.serve.census import Census
from isim.serve.message import Cancel, Message
from isim.serve.told import Run, add_decision, stretch_of, turn_of
from isim.serve.trouble import no_headway, too_late
from isim.workload.request import Request

MOST_BARREN_TURNS = 10_000
MOST_TURNS_AHEAD = 256
_FIRST_REACH = 16

Waits = Generator[Alarm, None, None]


class Engine:
    """`number` tells engines apart; `max_stretch` bounds how many steps are taken at once and changes no result."""

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
        self._most = min(max_stretch or LONGEST_STRETCH, LONGEST_STRETCH)
        self.census = census
        self.now_ns = 0
        self.log = log
        self._emit = log.lane(Turn, number)
        self._cancelled = log.lane(Abort, number)
        self._kernel = kernel
        self._cost = cost
        self._name = f"engine {number}"
        self._device = Arbiter(kernel, f"device {number}")
        self._ahead = scheduler.depth - 1
        self._ends_ns: deque[int] = deque()
        """For each step of the scheduler's flights, when it ends."""
        self._busy_until_ns = 0
        self._outcome: Outcome | None = None
        self.left = 0
        """Requests that finished or were cancelled here, as far as this engine has come."""
        self._completed = 0
        self._aborted = 0
        self._first_reach = self._reach = min(_FIRST_REACH, self._most)
        """As many steps as are taken at once; what comes in between cuts most runs, so they grow by and by."""
        self._spent_steps = 0
        self._leases = 0
        self._barren_turns = 0
        self._coming: deque[Request] = deque()
        """Who is known to come, in order; nobody else does before `Census.quiet_until_ns`."""
        self._alarm = kernel.spawn(self._name, Rank.ENGINE, self._body).alarm
        self.mailbox: Mailbox[Message] = Mailbox(self._alarm)

    # ---- what a test may replace

    def take_in(self) -> None:
        """Queue everybody who has arrived by now, then let go of whom clients have given up on."""
        coming, now_ns = self._coming, self.now_ns
        while coming and coming[0].arrival_ns <= now_ns:
            self._queue(coming.popleft())
        if not self.mailbox.items:
            return
        for message in self.mailbox.take():
            if isinstance(message, Cancel):
                self._cancel(message.request)
            else:
                self._queue(message)

    def has_news(self) -> bool:
        """Whether somebody arrived who is not queued yet."""
        return bool(self.mailbox.items)

    def steady_run(self, most: int, made: int, batch: int, context: int) -> Run:
        """Up to `most` steady steps from here on, those included that are already `made`."""
        start_ns, now_ns = self._busy_until_ns, self.now_ns
        if start_ns < now_ns:
            start_ns = now_ns
        steps = self._reach if self._reach < most else most
        durations_ns = self._cost.decode_series_ns(batch, context, steps)
        end_ns = start_ns + sum(durations_ns)
        if end_ns > SAFE_MAX_NS:
            raise too_late(end_ns, self._name)
        self._barren_turns = 0
        next_ns = end_ns - durations_ns[-1] if self._ahead else end_ns
        return Run(self.scheduler.steps - made, made, now_ns, start_ns, durations_ns, batch, context, next_ns, end_ns)

    def _queue(self, request: Request) -> None:
        prompt = request.prompt
        self.scheduler.add(
            request.index,
            request.id,
            request.input_tokens,
            request.output_tokens,
            request.priority,
            request.arrival_ns,
            prompt and shareable(prompt, request.id),
            request.quotable,
        )

    def foresee(self, requests: Sequence[Request]) -> None:
        """Requests that will come, in order of arrival, and nobody in between."""
        self._coming.extend(requests)
        if self.mailbox.wakes:
            self._alarm.fire()

    # ---- the loop

    def _body(self, actor: Actor) -> Waits:
        scheduler, census, ends_ns, coming = self.scheduler, self.census, self._ends_ns, self._coming
        again = scheduler.rules.schedule_on_empty
        depth, flights, ahead = scheduler.depth, scheduler.flights, self._ahead
        time_ns, turns_ahead, ended = 0, 0, False
        while True:
            if time_ns > self.now_ns:
                turns_ahead += 1
                if turns_ahead > MOST_TURNS_AHEAD or time_ns >= census.quiet_until_ns:
                    yield from self._wait_until(actor, time_ns)
                    turns_ahead = 0
                else:
                    self.now_ns = time_ns
            if ended:
                self._take_output()
                ended = False
            self.take_in()
            if scheduler.live or scheduler.unreported:
                run = self._decide()
                if run is not None:
                    quiet_until_ns = coming[0].arrival_ns if coming else census.quiet_until_ns
                    if run.next_ns > quiet_until_ns and len(run.durations_ns) > 1:
                        if quiet_until_ns > self.now_ns:
                            run.cut_at(quiet_until_ns, self._ahead)
                        else:
                            yield from self._watch(actor, run)
                    self._settle(run)
                    if ahead and len(run.durations_ns) > 1:
                        time_ns = run.next_ns
                        continue
                if len(flights) < depth and (flights[-1].step >= 0 or (again and scheduler.has_requests)):
                    continue
            elif flights:
                self._say_outcome()
            else:
                yield from self._rest(actor)
                continue
            time_ns, ended = ends_ns.popleft(), True

    def _take_output(self) -> None:
        """Take in the output of the oldest step under way, which has ended."""
        scheduler = self.scheduler
        if scheduler.flights[0].quiet:
            scheduler.flights.popleft()
            return
        outcome = self._outcome = scheduler.update()
        if outcome is not None and outcome.finished:
            self._finish(outcome.finished)

    def _wait_until(self, actor: Actor, time_ns: int) -> Waits:
        """Hold the device until the clock has come to `time_ns`."""
        actor.waits_for = "the end of a step"
        kernel = self._kernel
        self._hold(time_ns - kernel.now_ns)
        while kernel.now_ns < time_ns:
            yield self._alarm.wait()
        self._arrive_at(time_ns)

    def _rest(self, actor: Actor) -> Waits:
        """Nothing to do and nothing under way: wait for requests."""
        self._say_outcome()
        if self._coming:
            self.now_ns = self._coming[0].arrival_ns
            return
        kernel = self._kernel
        if self.now_ns > kernel.now_ns:
            yield from self._wait_until(actor, self.now_ns)
        else:
            self._arrive_at(kernel.now_ns)
        if not self._coming and not self.has_news():
            actor.waits_for = "requests"
            self.mailbox.wakes = True
            yield self._alarm.wait()
            self.mailbox.wakes = False
            self._arrive_at(kernel.now_ns)

    def _arrive_at(self, time_ns: int) -> None:
        """The clock has caught up with this engine: what it did is now so for everybody."""
        self.now_ns = time_ns
        self.log.reach(time_ns)
        steps = self.scheduler.steps
        self._kernel.spend(steps - self._spent_steps, self._name)
        self._spent_steps = steps
        if self._completed or self._aborted:
            self.census.completed += self._completed
            self.census.aborted += self._aborted
            self._completed = self._aborted = 0
            self.census.settle()

    def has(self, request: int) -> bool:
        """Whether a request that was sent here is still here, as far as this engine has come."""
        return request in self.scheduler.live or any(
            isinstance(message, Request) and message.index == request for _, message in self.mailbox.items
        )

    def _cancel(self, request: int) -> None:
        if self.scheduler.abort(request):
            self._cancelled(Abort(time_ns=self.now_ns, request=request, engine=self.number))
            self.left += 1
            self._aborted += 1
            self.census.tell(request, self.now_ns, completed=False)

    def _finish(self, finished: tuple[int, ...]) -> None:
        self.left += len(finished)
        self._completed += len(finished)
        if self.census.endings is not None:
            for request in finished:
                self.census.tell(request, self.now_ns, completed=True)

    def _hold(self, hold_ns: int) -> Lease:
        self._leases += 1
        return self._device.submit((self._kernel.now_ns, self.number, self._leases), hold_ns, self._alarm)

    # ---- decisions

    def _decide(self) -> Run | None:
        """The next decision: the run of steady steps it begins, or None when it was another, which is written down."""
        scheduler = self.scheduler
        steady = scheduler.steady_steps()
        if steady:
            if self._outcome is not None:
                self._say_outcome()
            decoders = scheduler.decoders
            return self.steady_run(steady, 0, decoders.count, decoders.context)
        free_blocks = scheduler.ledger.free
        plan = scheduler.schedule()
        if plan.steady:
            self._say_outcome(free_blocks)
            return self.steady_run(1 + scheduler.horizon(plan), 1, plan.decodes, plan.decode_context)
        if plan.sampled:
            self._barren_turns = 0
        elif plan.preempted or not plan.tokens:
            self._count_barren_turn()
        if plan.tokens:
            duration_ns = self._cost.step_ns(plan.decodes, plan.decode_context, plan.shapes)
            end_ns = max(self.now_ns, self._busy_until_ns) + duration_ns
            if end_ns > SAFE_MAX_NS:
                raise too_late(end_ns, self._name)
            self._say(plan, duration_ns)
            self._busy_until_ns = end_ns
            self._ends_ns.append(end_ns)
        else:
            if plan.preempted:
                self._say(plan)
            else:
                self._say_outcome()
            self._ends_ns.append(self.now_ns)
        return None

    def _count_barren_turn(self) -> None:
        """Decisions without a token for anybody that preempt, or schedule nothing, must come to an end."""
        self._barren_turns += 1
        waiting = self.scheduler.waiting
        if self._barren_turns > MOST_BARREN_TURNS and len(waiting):
            first = [sequence.id for sequence in waiting.in_order()[:4]]
            raise no_headway(self.now_ns, self._name, MOST_BARREN_TURNS, first)

    # ---- runs of steady steps: the engine decides again when the last of them ends, or starts

    def _watch(self, actor: Actor, run: Run) -> Waits:
        """Wait for the clock while a run goes on, and cut it at the first decision from somebody's arrival on."""
        kernel, mailbox = self._kernel, self.mailbox
        if self.scheduler.outcome_due():
            run.cut_at(self.now_ns, self._ahead)
            return
        began_ns = kernel.now_ns
        lease = self._hold(run.next_ns - began_ns)
        actor.waits_for = "the end of a stretch"
        mailbox.wakes = True
        while kernel.now_ns < run.next_ns:
            yield self._alarm.wait()
            if mailbox.wakes and self.has_news():
                mailbox.wakes = False
                if run.cut_at(kernel.now_ns, self._ahead):
                    lease.shorten(run.next_ns - began_ns)
        mailbox.wakes = False

    def _settle(self, run: Run) -> None:
        """Make the decisions of a run, and write them down."""
        scheduler, made, steps = self.scheduler, run.made, len(run.durations_ns)
        self._reach = min(2 * steps, self._most) if steps > _FIRST_REACH else self._first_reach
        self._busy_until_ns = end_ns = run.end_ns
        across = steps > 1 and self._ahead
        if across:
            self._ends_ns[0] = end_ns
        else:
            self._ends_ns.append(end_ns)
        if across and not scheduler.flights[0].quiet:
            self.now_ns = start_ns = run.start_ns
            outcome, free_blocks, least = scheduler.advance_past_output(steps, made)
            if outcome is not None:
                if outcome.finished:
                    self._finish(outcome.finished)
                self._emit(turn_of(outcome, start_ns, self.number, scheduler, free_blocks))
        elif not made:
            least = scheduler.advance(steps)
        else:
            least = scheduler.ledger.free
            if steps > 1:
                least = min(least, scheduler.advance(steps - 1, 1))
        self._emit(stretch_of(run, self.number, scheduler, least))

    # ---- the log

    def _say_outcome(self, free_blocks: int | None = None) -> None:
        """Write down the outcome that waits to be told, by itself."""
        if self._outcome is not None:
            table = self.scheduler
            free = table.ledger.free if free_blocks is None else free_blocks
            self._emit(turn_of(self._outcome, self.now_ns, self.number, table, free))
            self._outcome = None

    def _say(self, plan: Plan, duration_ns: int = 0) -> None:
        """Write down a decision, together with the outcome that waits to be told, if any."""
        table = self.scheduler
        turn = turn_of(self._outcome, self.now_ns, self.number, table, table.ledger.free)
        add_decision(turn, plan, duration_ns)
        self._outcome = None
        self._emit(turn)
