"""One engine's time: when it must act, what must come of it, and whether the log says so.

The engine acts at *moments*. At one it processes the output of an ended step, takes in everything that arrived up to
and including that instant, and asks the scheduler. Synchronously one step is under way at most: the next moment is
its end. Asynchronously two may be: after a step that leaves room for another the engine asks again at once, otherwise
the next moment is the end of the older step. A decision without tokens leaves it waiting for the step under way; with
none under way it asks again if it preempted somebody, and else sleeps until an arrival or an abort.

What happens at a moment follows from the log so far, except how long a step takes. So moments are worked out as soon
as their time and every arrival up to it are known. One with something to tell must be the next turn. One that decides
a steady step opens a stretch, or goes on with the open one: its record, told later, says how long its steps took.
Silent ones pass. Steps of a stretch whose decisions cannot differ are taken in one go; all others go through moments
as everywhere.

A cancellation counts from its own instant: before the output of a step that ends later, after that of one that ends
just then.
"""

from __future__ import annotations

from collections import deque

import msgspec

from isim.record.records import Header, LinearCoefficients, Stretch, Turn
from isim.replay.compare import compare_turn
from isim.replay.decide import decide
from isim.replay.groups import GroupScheduler
from isim.replay.member import Member, Stage
from isim.replay.rules import Mismatch, Rule
from isim.replay.scheduler import Decision, Scheduler
from isim.replay.span import Span, check_duration, check_durations


class Step(msgspec.Struct, eq=False):
    """A step under way, and the outcome it will have apart from last tokens. When it ends may not be known yet."""

    index: int
    end_ns: int | None = None
    firsts: list[Member] = []  # msgspec copies empty literal defaults for each step
    lates: list[tuple[Member, int]] = []


class _Steady(msgspec.Struct, eq=False):
    """A steady step that is decided while its stretch is not told yet, with the totals after its decision.

    `joined` when a turn told what came just before it, so that it can only be one of the stretch of the step before.
    """

    at: Step
    decided_ns: int
    batch: int
    context: int
    running: int
    free_blocks: int
    joined: bool = False


class Engine:
    """Derives what one engine does. Raises Mismatch at the first record that tells otherwise."""

    def __init__(self, number: int, header: Header, live: dict[int, Member]) -> None:
        self.scheduler = (GroupScheduler if header.engine.groups else Scheduler)(header.engine)
        self.completed = 0
        self.preemptions = 0
        self.last_end_ns = 0
        self._number = number
        self._cost: LinearCoefficients | None = header.linear_cost
        self._depth = 2 if header.engine.async_scheduling else 1
        self._live = live
        self._inbox: deque[tuple[int, Member, bool]] = deque()
        self._flight: list[Step] = []
        self._next_ns: int | None = None
        self._output_due = False
        self._open: list[_Steady] = []
        self._quiet_since_ns: int | None = None

    @property
    def steps(self) -> int:
        """Steps decided so far."""
        return self.scheduler.roster.steps

    @property
    def busy(self) -> bool:
        """A step is under way, or a moment is due."""
        return self._next_ns is not None or bool(self._flight)

    def arrive(self, time_ns: int, member: Member) -> None:
        """A request that can run came."""
        self._take(time_ns, member, leaves=False)

    def abort(self, time_ns: int, member: Member) -> None:
        """A request is cancelled."""
        self._take(time_ns, member, leaves=True)

    def settle(self, before_ns: int) -> None:
        """Pass the moments before an instant that has been reached; none may have something to tell."""
        while self._next_ns is not None and self._next_ns < before_ns:
            self._pass_moment()

    def turn(self, record: Turn) -> None:
        """Check a turn."""
        self.settle(record.time_ns)
        if self._next_ns != record.time_ns:
            raise Mismatch(Rule.CAUSALITY, self._when(), f"a turn at {record.time_ns} ns")
        untold = len(self._open)
        expected = self._moment()
        if untold:
            if len(self._open) == untold:
                raise Mismatch(Rule.STRETCH, f"a stretch from step {self._open[0].at.index} first", "a turn")
            self._open[-1].joined = True
        if expected is None:
            raise Mismatch(Rule.CAUSALITY, f"no turn: nothing to tell at {record.time_ns} ns", "a turn")
        compare_turn(expected, record, self.scheduler.limits)
        self.preemptions += len(record.preempted)
        check_duration(record, self._cost)
        if record.step is not None:
            self._ends(self._flight[-1], max(record.time_ns, self.last_end_ns) + record.duration_ns)

    def stretch(self, record: Stretch) -> None:
        """Check a stretch: its first steps as they were decided, then that nothing else lies within it."""
        while not self._open and self._next_ns is not None and self._next_ns <= record.time_ns:
            self._pass_moment()
        if not self._open:
            raise Mismatch(Rule.STRETCH, f"no stretch; {self._when()}", "a stretch")
        first = self._open[0]
        _compare_start(first, record)
        check_durations(record, self._cost)
        span = Span(record.step, max(first.decided_ns, self.last_end_ns), record)
        last = record.step + record.steps - 1
        told, self._open = self._open[: record.steps], self._open[record.steps :]
        if self._open and self._open[0].joined:
            what = f"a stretch that goes on to step {self._open[0].at.index}, since a turn told what came before it"
            raise Mismatch(Rule.STRETCH, what, f"{record.steps} steps")
        for steady in told:
            self._goes_on(steady, record, span)
        if record.running != told[-1].running:
            raise Mismatch(Rule.QUEUES, f"{told[-1].running} running", record.running)
        free_blocks = told[-1].free_blocks
        least = min(steady.free_blocks for steady in told)
        while self.steps <= last:
            self._within(record, span, last)
            free_blocks = self.scheduler.pool.free
            least = min(least, free_blocks)
        if record.free_blocks != free_blocks:
            raise Mismatch(Rule.BLOCK_LEDGER, f"{free_blocks} free blocks", record.free_blocks)
        least_told = least if least < free_blocks else None
        if record.least_free_blocks != least_told:
            raise Mismatch(Rule.BLOCK_LEDGER, f"{least_told} as the fewest free blocks", record.least_free_blocks)
        self._check_told(record.time_ns)

    def finish(self, time_ns: int) -> None:
        """The log ends: nothing may be left to do for requests that are still here."""
        self.settle(time_ns + 1)
        left = any(member.engine == self._number for member in self._live.values()) if self.busy else False
        if left:
            raise Mismatch(Rule.END, f"the engine to go on: {self._when()}", f"an end at {time_ns} ns")

    def _take(self, time_ns: int, member: Member, *, leaves: bool) -> None:
        self._inbox.append((time_ns, member, leaves))
        if not self.busy:
            self._next_ns = time_ns
            self._output_due = False

    def _when(self) -> str:
        if self._next_ns is not None:
            return f"a record of engine {self._number} at {self._next_ns} ns"
        if self._open:
            return f"a stretch from step {self._open[0].at.index}"
        return "nothing until an arrival: the engine is idle"

    def _pass_moment(self) -> None:
        turn = self._moment()
        if turn is not None:
            raise Mismatch(Rule.CAUSALITY, f"first {_in_words(turn)}", "no such record")

    def _moment(self) -> Turn | None:
        """What happens at the next moment, as the turn to tell; None when there is nothing to tell."""
        now_ns = self._next_ns
        assert now_ns is not None
        scheduler, roster = self.scheduler, self.scheduler.roster
        turn = Turn(time_ns=now_ns, engine=self._number, running=0, waiting=0, free_blocks=0)
        if self._inbox:
            self._take_in(now_ns - 1)
        if self._output_due:
            self._output(self._flight.pop(0), turn)
        if self._inbox:
            self._take_in(now_ns)
        turn.running, turn.waiting = len(roster.running), len(scheduler.queue)
        turn.free_blocks = scheduler.pool.free
        decision = decide(scheduler, in_flight=len(self._flight))
        steady = decision.steady
        if decision.scheduled:
            self._schedule(decision, now_ns)
            if not steady:
                turn.step, turn.scheduled, turn.tokens = roster.steps - 1, decision.scheduled, decision.tokens
                turn.sampled, turn.context = decision.sampled, decision.context
        else:
            self._wait(now_ns, again=bool(decision.preempted))
        if steady or not (decision.scheduled or decision.preempted):
            return turn if turn.ended is not None else None
        turn.admitted, turn.chunks = tuple(decision.admitted), tuple(decision.chunks)
        turn.skipped, turn.preempted = tuple(decision.skipped), tuple(decision.preempted)
        turn.running, turn.waiting = len(roster.running), len(scheduler.queue)
        turn.free_blocks = scheduler.pool.free
        return turn

    def _schedule(self, decision: Decision, now_ns: int) -> None:
        """A step is decided; when it ends is not known yet."""
        step = Step(self.steps - 1, firsts=decision.firsts, lates=decision.lates)
        self._flight.append(step)
        self._output_due = len(self._flight) == self._depth
        self._next_ns = now_ns
        if self._output_due:
            self._await_output()
        self._quiet_since_ns = None
        if decision.steady:
            running, free_blocks = len(self.scheduler.roster.running), self.scheduler.pool.free
            steady = _Steady(step, now_ns, decision.scheduled, decision.context, running, free_blocks)
            self._open.append(steady)

    def _output(self, step: Step, turn: Turn) -> None:
        """The output of a step that ended is processed."""
        scheduler, roster = self.scheduler, self.scheduler.roster
        scheduler.updated = step.index + 1
        del scheduler.overlapped[step.index]
        finished = roster.finals(step.index)
        roster.forget_finals(step.index)
        if not (finished or step.firsts or step.lates):
            return
        firsts = [member for member in step.firsts if member.stage is not Stage.GONE]
        lates = [(member, before) for member, before in step.lates if member.stage is not Stage.GONE]
        if not (finished or firsts or lates):
            return
        finished.sort(key=_seq)
        turn.ended = step.index
        turn.first = tuple(member.index for member in sorted(firsts, key=_seq))
        turn.late = tuple((member.index, before) for member, before in sorted(lates, key=lambda late: late[0].seq))
        turn.finished = tuple(member.index for member in finished)
        for member in finished:
            scheduler.leave(member)
            self._live.pop(member.index, None)
        self.completed += len(finished)

    def _take_in(self, until_ns: int) -> None:
        """Arrivals and cancellations up to an instant."""
        inbox, scheduler = self._inbox, self.scheduler
        while inbox and inbox[0][0] <= until_ns:
            _, member, leaves = inbox.popleft()
            if not leaves:
                scheduler.enter(member)
            elif member.stage is Stage.GONE:
                raise Mismatch(Rule.LIFECYCLE, "a request leaves once", f"request {member.index} finished and aborted")
            else:
                scheduler.leave(member)

    def _ends(self, step: Step, end_ns: int) -> None:
        """The end of a step under way becomes known."""
        step.end_ns = self.last_end_ns = end_ns
        if self._output_due:
            self._await_output()

    def _await_output(self) -> None:
        """The next moment is the end of the oldest step under way, once that is known."""
        self._next_ns = self._flight[0].end_ns

    def _wait(self, now_ns: int, *, again: bool) -> None:
        """Nothing was scheduled."""
        if self._quiet_since_ns is None:
            self._quiet_since_ns = now_ns
        self._output_due = bool(self._flight)
        if self._flight:
            self._await_output()
        else:
            self._next_ns = now_ns if again else None

    def _goes_on(self, steady: _Steady, record: Stretch, span: Span) -> None:
        """A steady step is one of this stretch."""
        step = steady.at.index
        if steady.batch != record.batch:
            what = f"a stretch that ends before step {step}: {steady.batch} requests are served"
            raise Mismatch(Rule.STRETCH, what, f"{record.steps} steps of {record.batch}")
        self._ends(steady.at, span.start_ns(step + 1))

    def _within(self, record: Stretch, span: Span, last: int) -> None:
        """Go on within a stretch: many steps that cannot differ, or the next moment as anywhere."""
        count = self._alike(record, span, last)
        if count:
            self._pass(span, count)
            return
        step = self.steps
        told = self._moment()
        if told is None and self._open:
            self._goes_on(self._open.pop(), record, span)
            return
        what = "nothing is scheduled" if told is None else _in_words(told)
        raise Mismatch(Rule.STRETCH, f"a stretch that ends before step {step}: {what}", f"{record.steps} steps")

    def _alike(self, record: Stretch, span: Span, last: int) -> int:
        """How many of the coming steps are decided just like the one before."""
        scheduler, roster = self.scheduler, self.scheduler.roster
        step = roster.steps
        if roster.decoders != record.batch or not self._output_due:
            return 0
        if any(s.firsts or s.lates or roster.finals(s.index) for s in self._flight):
            return 0
        count = last + 1 - step
        final = roster.next_final()
        if final is not None:
            count = min(count, final + 1 - step)
        limits = scheduler.limits
        room = len(roster.running) < limits.max_num_seqs and record.batch < limits.max_num_batched_tokens
        if room and scheduler.queue and scheduler.head_may_change:
            return 0
        heads_change = room and (scheduler.by_priority or not scheduler.queue)
        for time_ns, _, leaves in self._inbox:
            if leaves or heads_change:
                count = min(count, max(0, span.first_start_from(time_ns) + self._depth - 1 - step))
                break
        return scheduler.alike(count)

    def _pass(self, span: Span, count: int) -> None:
        """Take so many steps, each decided like the one before, in one go."""
        scheduler, roster, depth = self.scheduler, self.scheduler.roster, self._depth
        scheduler.take_steps(count)
        roster.steps += count
        steps = roster.steps
        roster.retire(steps - 1)
        new = range(max(steps - depth, steps - count), steps)
        self._flight = (self._flight + [Step(step, span.start_ns(step + 1)) for step in new])[-depth:]
        scheduler.updated = self._flight[0].index
        scheduler.overlapped = dict.fromkeys((step.index for step in self._flight), depth > 1)
        self.last_end_ns = span.start_ns(steps)
        self._next_ns = self._flight[0].end_ns

    def _check_told(self, time_ns: int) -> None:
        """A stretch is told at the first moment after its last decision."""
        due_ns = self._open[0].decided_ns if self._open else self._next_ns
        if self._quiet_since_ns is not None:
            due_ns = self._quiet_since_ns
        if time_ns != due_ns:
            raise Mismatch(Rule.STRETCH, f"the stretch told at {due_ns} ns", f"{time_ns} ns")


def _seq(member: Member) -> int:
    return member.seq


def _compare_start(first: _Steady, record: Stretch) -> None:
    """The first step of a stretch against what was decided."""
    if record.step != first.at.index:
        raise Mismatch(Rule.STEP_NUMBER, f"step {first.at.index}", f"step {record.step}")
    if record.schedule_ns != first.decided_ns:
        raise Mismatch(Rule.CAUSALITY, f"decided at {first.decided_ns} ns", f"{record.schedule_ns} ns")
    if record.batch != first.batch:
        raise Mismatch(Rule.STEP_TOTALS, f"a batch of {first.batch}", record.batch)
    if record.context != first.context:
        raise Mismatch(Rule.STEP_TOTALS, f"a context of {first.context} tokens", record.context)
    if record.steps < 1:
        raise Mismatch(Rule.STRETCH_FORM, "1 step or more", record.steps)


def _in_words(turn: Turn) -> str:
    """A turn that should be there, in words."""
    return f"a turn of engine {turn.engine} at {turn.time_ns} ns" + (
        f" with step {turn.step}" if turn.step is not None else f" with the output of step {turn.ended}"
    )
