"""Judges an execution log from the log alone: what must happen is derived from what was recorded before, and compared.

The machine, the plans, and when executions were admitted are taken from the log; all else must follow. At each moment
there is exactly one legal continuation: what is due (finishes, releases, starts that follow from submissions and
admissions), then what is ready. A record that is not it is wrong, and so is the first record after one that is missing.
This room shares no code with the executor: it keeps gaps where that keeps bookings.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from heapq import heappop, heappush
from pathlib import Path

import msgspec

from isim.record.codec import read_records
from isim.record.execution import (
    EXECUTION_LOG,
    Admit,
    AnyExecutionRecord,
    CollectiveEvidence,
    CollectiveFact,
    ExecutionDigest,
    ExecutionEnd,
    ExecutionStatus,
    Finish,
    Machine,
    Plan,
    RankTerminal,
    Release,
    Start,
    StepFact,
    Steps,
    Submit,
    Terminal,
)
from isim.replay.execution.future import Future, Moment
from isim.replay.execution.line import Line, Run
from isim.replay.execution.machine import Facts
from isim.replay.execution.plan import Checked
from isim.replay.execution.rules import ExecutionRule, ExecutionViolation
from isim.replay.rules import Mismatch

_Due = tuple[int, int, int, int, int]
"""Time, round, rank, then the number of a submission or (admission, place): what must be recorded then."""

_MISSED = {
    Finish.RANK: (ExecutionRule.FINISH, "finish"),
    Release.RANK: (ExecutionRule.RELEASE, "release"),
    Start.RANK: (ExecutionRule.START, "start"),
}
_AFTER_ALL = 9


class ExecutionSummary(msgspec.Struct, frozen=True, kw_only=True):
    """What was checked. Executions without a terminal are `unfinished`."""

    records: int
    executions: int
    operations: int
    unfinished: int
    completed_ns: int
    log_digest: str | None = None


class ExecutionReplay:
    """A reader of an execution log. `read` takes its records in order, in any portions; `finish` says what was checked.

    Raises ExecutionViolation at the first wrong record; a replay that raised is of no further use.
    """

    def __init__(self) -> None:
        self._records = 0
        self._moment: Moment = (0, 0)
        self._rank = -1
        self._due: list[_Due] = []
        self._line = Line()
        self._plans: dict[str, Checked] = {}
        self._runs: dict[str, Run] = {}
        self._by_admission: dict[int, Run] = {}
        self._flying: dict[int, tuple[Run, int]] = {}
        self._over: list[tuple[int, Run]] = []
        self._untold = ""
        self._told_plan: Plan | None = None
        self._told_steps: list[StepFact] = []
        self._steps_left = 0
        self._submitted = 0
        self._events = 0
        self._completed_ns = 0
        self._ended = False
        self._checks: dict[type[AnyExecutionRecord], Callable[..., None]] = {
            Plan: self._plan,
            Steps: self._steps,
            Admit: self._admit,
            Release: self._release,
            Submit: self._submit,
            Start: self._start,
            Finish: self._finish,
            Terminal: self._terminal,
            ExecutionEnd: self._end,
        }

    def read(self, records: Sequence[AnyExecutionRecord]) -> None:
        """Check the next records of the log."""
        try:
            for record in records:
                if record.seq != self._records:
                    raise Mismatch(ExecutionRule.ENVELOPE, f"sequence {self._records}", record.seq)
                if (self._records == 0) != isinstance(record, Machine) or self._ended:
                    expected = "nothing after the end" if self._ended else "a machine first and nowhere else"
                    raise Mismatch(ExecutionRule.ENVELOPE, expected, f"a record {type(record).__name__}")
                if isinstance(record, Machine):
                    self._facts = Facts(record)
                    self._future = Future(self._facts.lanes())
                else:
                    self._go_to(record)
                    self._checks[type(record)](record)
                self._records += 1
        except Mismatch as wrong:
            raise ExecutionViolation(self._records, wrong.rule, wrong.expected, wrong.found) from None

    def finish(self, *, truncated: bool = False) -> ExecutionSummary:
        """Summary of what was read. Without `truncated`, a log that has no end is a violation."""
        if not self._ended and not truncated:
            raise ExecutionViolation(self._records, ExecutionRule.END, "an end record", "no more records")
        return ExecutionSummary(
            records=self._records,
            executions=len(self._runs),
            operations=self._submitted,
            unfinished=len(self._by_admission),
            completed_ns=self._completed_ns,
        )

    # ---- the order of an instant, and what must not be left out

    def _go_to(self, record: AnyExecutionRecord) -> None:
        time_ns, rank = record.time_ns, record.RANK
        now_ns, now_round = self._moment
        if time_ns < now_ns:
            raise Mismatch(ExecutionRule.ENVELOPE, f"a time from {now_ns} ns", f"{time_ns} ns")
        same = time_ns == now_ns and rank >= self._rank
        next_round = now_round + 1 if time_ns == now_ns and not same else 0
        if self._untold and not (same and isinstance(record, Steps if self._steps_left else Admit)):
            expected = "the rest of its steps" if self._steps_left else "an execution of it"
            raise Mismatch(ExecutionRule.PLAN_DIGEST, f"{expected} after plan {self._untold}", "another record")
        self._nothing_left(rank if same else _AFTER_ALL)
        if same:
            self._rank = rank
            return
        moment = (time_ns, next_round)
        if next_round and not (self._due and self._due[0][:3] == (*moment, Finish.RANK)):
            raise Mismatch(ExecutionRule.ENVELOPE, f"records of rank {self._rank} or later", f"rank {rank}")
        self._moment, self._rank = moment, rank
        self._nothing_left(rank)

    def _nothing_left(self, rank: int) -> None:
        """All that comes before this rank of the present moment was recorded."""
        if self._due and self._due[0][:3] < (*self._moment, rank):
            time_ns, _, kind, number, place = self._due[0]
            rule, what = _MISSED[kind]
            told = f"{what} of " + (f"submission {number}" if place < 0 else self._told(number, place))
            raise Mismatch(rule, f"{told} at {time_ns} ns", "another record")
        first = self._line.first()
        if first is not None and rank > Submit.RANK:
            raise Mismatch(ExecutionRule.DELAY, f"{self._told(*first)} submitted at {self._moment[0]} ns", "not yet")
        if self._over and rank > Terminal.RANK:
            raise Mismatch(ExecutionRule.TERMINAL, f"terminal of execution {self._over[0][1].name}", "another record")

    def _told(self, admission: int, place: int) -> str:
        return _step_of(self._by_admission[admission], place)

    def _take(self, rank: int, number: int, place: int, found: str) -> None:
        """What is recorded must be the next that is due."""
        due = self._due[0] if self._due else None
        if due is None or due != (*self._moment, rank, number, place):
            rule, what = _MISSED[rank]
            expected = (
                f"the {what} that is due" if due is not None and due[:3] == (*self._moment, rank) else f"no {what}"
            )
            raise Mismatch(rule, f"{expected} at {self._moment[0]} ns", found)
        heappop(self._due)

    def _count(self) -> None:
        self._events += 1
        if self._events > self._facts.max_events:
            raise Mismatch(ExecutionRule.EVENT_BUDGET, f"at most {self._facts.max_events} events", self._events)

    # ---- one kind of record each

    def _plan(self, plan: Plan) -> None:
        if plan.digest in self._plans:
            raise Mismatch(ExecutionRule.PLAN_DIGEST, "a plan that was not told yet", plan.digest)
        self._told_plan, self._told_steps, self._steps_left = plan, list(plan.steps), plan.more
        self._untold = plan.digest
        self._check_plan()

    def _steps(self, steps: Steps) -> None:
        told = (steps.first, len(steps.steps))
        if told[0] != len(self._told_steps) or not 1 <= told[1] <= self._steps_left:
            left, place = self._steps_left, len(self._told_steps)
            expected = f"1 to {left} steps from place {place} on" if left else "a plan that has more steps"
            raise Mismatch(ExecutionRule.PLAN_DIGEST, expected, f"{told[1]} steps from place {told[0]} on")
        self._told_steps += steps.steps
        self._steps_left -= told[1]
        self._check_plan()

    def _check_plan(self) -> None:
        """Once all of its steps were told."""
        plan = self._told_plan
        if plan is not None and not self._steps_left:
            self._plans[plan.digest] = Checked(plan, tuple(self._told_steps), self._facts)
            self._told_steps.clear()

    def _admit(self, admit: Admit) -> None:
        if self._untold and admit.plan != self._untold:
            raise Mismatch(ExecutionRule.PLAN_DIGEST, f"an execution of plan {self._untold}", f"of {admit.plan}")
        self._untold = ""
        steps = self._plans.get(admit.plan)
        if steps is None:
            raise Mismatch(ExecutionRule.ADMISSION, "a plan that was told", admit.plan)
        number = len(self._runs)
        if admit.admission != number:
            raise Mismatch(ExecutionRule.ADMISSION, f"admission {number}", f"admission {admit.admission}")
        if admit.execution in self._runs or not admit.execution:
            raise Mismatch(ExecutionRule.ADMISSION, "an execution with an id of its own", repr(admit.execution))
        self._count()
        run = self._runs[admit.execution] = self._by_admission[number] = Run(admit.execution, number, steps)
        self._line.join(run)
        seen: set[int] = set()
        for step, time_ns in admit.not_before:
            place = steps.place.get(step)
            if place is None or step in seen:
                raise Mismatch(ExecutionRule.ADMISSION, "not-before times of steps of the plan, each once", step)
            seen.add(step)
            if time_ns > admit.time_ns:
                run.needs[place] += 1
                heappush(self._due, (time_ns, 0, Release.RANK, number, place))
        for place, needs in enumerate(run.needs):
            if not needs:
                self._line.ready(run, place)

    def _release(self, release: Release) -> None:
        run = self._run(release.execution, ExecutionRule.RELEASE)
        place = run.steps.place.get(release.step, -1)
        self._take(Release.RANK, run.admission, place, f"step {release.step} of execution {run.name}")
        self._count()
        self._less(run, place)

    def _submit(self, submit: Submit) -> None:
        run = self._run(submit.execution, ExecutionRule.READINESS)
        steps = run.steps
        place = steps.place.get(submit.step, -1)
        if place < 0:
            raise Mismatch(ExecutionRule.READINESS, "a step of the plan", f"step {submit.step}")
        self._check_turn(run, place)
        counts = (submit.sequence, submit.source_sequence)
        if counts != (self._submitted, run.submitted):
            raise Mismatch(ExecutionRule.SEQUENCE, (self._submitted, run.submitted), counts)
        self._check_evidence(submit, run, place)
        self._count()
        fact = steps.facts[place]
        start, end = self._future.take(
            self._moment, fact.operation.duration_ns, steps.holds[place], steps.reads[place], steps.writes[place]
        )
        heappush(self._due, (*start, Start.RANK, self._submitted, -1))
        heappush(self._due, (*end, Finish.RANK, self._submitted, -1))
        self._flying[self._submitted] = (run, place)
        self._submitted += 1
        run.submitted += 1
        run.needs[place] = -1
        self._line.submit_first(fact.operation)

    def _check_turn(self, run: Run, place: int) -> None:
        if run.needs[place]:
            expected = (
                "a step whose dependencies have finished, once" if run.needs[place] < 0 else "a step that is ready"
            )
            raise Mismatch(ExecutionRule.READINESS, expected, _step_of(run, place))
        operation = run.steps.facts[place].operation
        if isinstance(operation, CollectiveFact):
            due = (self._line.owner(operation.group), self._line.due(operation.group))
            found = (run.admission, operation.comm_sequence)
            if due != found:
                expected = f"group {operation.group}: (admission, operation) {due}"
                raise Mismatch(ExecutionRule.COMMUNICATOR, expected, found)
        first = self._line.first()
        if first != (run.admission, place):
            expected = "nothing" if first is None else self._told(*first)
            raise Mismatch(ExecutionRule.ARBITRATION, expected, _step_of(run, place))

    def _check_evidence(self, submit: Submit, run: Run, place: int) -> None:
        fact = run.steps.facts[place]
        lanes = self._future.lanes(run.steps.holds[place])
        if submit.lanes != lanes:
            raise Mismatch(ExecutionRule.LANES, lanes, submit.lanes)
        if (submit.reads, submit.writes) != (fact.reads, fact.writes):
            expected = f"reads {fact.reads}, writes {fact.writes}"
            raise Mismatch(ExecutionRule.LEASES, expected, f"reads {submit.reads}, writes {submit.writes}")
        operation, evidence = fact.operation, None
        if isinstance(operation, CollectiveFact):
            evidence = CollectiveEvidence(
                group=operation.group, comm_sequence=operation.comm_sequence, algorithm=operation.algorithm
            )
        if submit.collective != evidence:
            raise Mismatch(ExecutionRule.EVIDENCE, evidence, submit.collective)

    def _start(self, start: Start) -> None:
        self._take(Start.RANK, start.sequence, -1, f"start of submission {start.sequence}")

    def _finish(self, finish: Finish) -> None:
        self._take(Finish.RANK, finish.sequence, -1, f"finish of submission {finish.sequence}")
        run, place = self._flying.pop(finish.sequence)
        run.ends_ns[place] = finish.time_ns
        run.left -= 1
        for follower in run.steps.followers[place]:
            self._less(run, follower)
        if not run.left:
            heappush(self._over, (run.admission, run))

    def _terminal(self, terminal: Terminal) -> None:
        due = self._over[0][1] if self._over else None
        if due is None or due.name != terminal.execution:
            expected = "no terminal" if due is None else f"terminal of execution {due.name}"
            raise Mismatch(ExecutionRule.TERMINAL, expected, f"terminal of execution {terminal.execution}")
        expected_ranks = _ranks(due)
        said = (terminal.status, terminal.operations, terminal.ranks)
        if said != (ExecutionStatus.SUCCEEDED, due.submitted, expected_ranks):
            raise Mismatch(ExecutionRule.TERMINAL, (ExecutionStatus.SUCCEEDED, due.submitted, expected_ranks), said)
        self._count()
        heappop(self._over)
        del self._by_admission[due.admission]
        self._completed_ns = terminal.time_ns

    def _end(self, end: ExecutionEnd) -> None:
        if self._by_admission:
            raise Mismatch(ExecutionRule.END, "every execution terminal", f"{len(self._by_admission)} still going on")
        said = (end.time_ns, end.executions, end.operations)
        due = (self._completed_ns, len(self._runs), self._submitted)
        if said != due:
            raise Mismatch(ExecutionRule.END, f"(time, executions, operations) {due}", said)
        self._ended = True

    def _less(self, run: Run, place: int) -> None:
        run.needs[place] -= 1
        if not run.needs[place]:
            self._line.ready(run, place)

    def _run(self, name: str, rule: ExecutionRule) -> Run:
        run = self._runs.get(name)
        if run is None:
            raise Mismatch(rule, "an execution that was admitted", repr(name))
        return run


def _step_of(run: Run, place: int) -> str:
    return f"step {run.steps.facts[place].id} of execution {run.name}"


def _ranks(run: Run) -> tuple[RankTerminal, ...]:
    steps = run.steps
    ends: dict[str, int] = {}
    for fact, end_ns in zip(steps.facts, run.ends_ns, strict=True):
        assert end_ns is not None
        for rank in fact.participants:
            ends[rank] = max(ends.get(rank, 0), end_ns)
    return tuple(RankTerminal(rank=rank, status=ExecutionStatus.SUCCEEDED, time_ns=ends[rank]) for rank in steps.ranks)


def replay_execution_log(path: Path | str) -> ExecutionSummary:
    """Check an execution log. Raises ExecutionViolation at the first wrong record and LogError where it cannot be read.

    A log that is cut is checked up to the cut; then TruncatedLog is raised, which names the last good sequence.
    """
    replay, digest = ExecutionReplay(), ExecutionDigest()
    for records in read_records(path, EXECUTION_LOG):
        replay.read(records)
        digest.read(records)
    return msgspec.structs.replace(replay.finish(), log_digest=digest.hexdigest())
