"""The log that an engine with the slow engine's decisions would write: for what the product does not do, or does wrong.

Everything told comes from `SlowScheduler`; added is the way of telling: turns, stretches of steady steps, the end.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from slow_blocks import SlowRequest
from slow_engine import SlowStep, _Clock
from workload_fuzz import MAX_DECISIONS, linear_step_ns, quoted_ids

from isim.record.records import (
    REVISION,
    SCHEMA,
    Abort,
    AnyRecord,
    Arrive,
    End,
    EngineLimits,
    Header,
    LinearCoefficients,
    Reject,
    Stretch,
    Turn,
)


class _Teller(_Clock):
    """The slow engine's clock, which says what happens at each of its moments."""

    def __init__(
        self,
        limits: EngineLimits,
        requests: Sequence[SlowRequest],
        coefficients: LinearCoefficients,
        max_stretch: int,
        across: bool,
        timeout_ns: int | None,
    ) -> None:
        super().__init__(limits, requests, linear_step_ns(coefficients), MAX_DECISIONS, timeout_ns)
        self.index = {request.id: index for index, request in enumerate(requests)}
        self.max_stretch = max_stretch
        self.across = across
        self.records: list[AnyRecord] = []
        self.under_way: list[int | None] = []
        self.token_step: dict[str, int] = {}
        self.stretch: Stretch | None = None
        self.least = 0
        self.outcome: Turn | None = None

    def _decide(self) -> bool:
        outcome, self.outcome = self.outcome, None
        before = self._moment(outcome)
        had_tokens = super()._decide()
        decision = self.scheduler.step
        self.under_way.append(len(self.run.steps) - 1 if had_tokens else None)
        plain = not (decision.skipped or decision.preempted)
        if had_tokens and plain and len(decision.decodes) == len(decision.scheduled):
            if outcome:
                if not self._goes_on_across(outcome, len(decision.scheduled)):
                    self._flush()
                self.records.append(before)
            self._steady()
            return True
        self._flush()
        if outcome or had_tokens or decision.preempted:
            self._tell(self._decided(self._moment(outcome), decision, had_tokens))
        return had_tokens

    def _moment(self, outcome: Turn | None) -> Turn:
        """A turn with what came of a step and how things stand now."""
        scheduler = self.scheduler
        turn = Turn(
            time_ns=self.now_ns,
            running=len(scheduler.run_list),
            waiting=len(scheduler.wait_list),
            free_blocks=scheduler.free_blocks(),
        )
        if outcome:
            turn.ended, turn.first = outcome.ended, outcome.first
            turn.late, turn.finished = outcome.late, outcome.finished
        return turn

    def _decided(self, turn: Turn, decision: SlowStep, had_tokens: bool) -> Turn:
        index, hits = self.index, dict(decision.lookups)
        turn.preempted = tuple(index[name] for name in decision.preempted)
        if not (had_tokens or decision.preempted):
            return turn
        turn.skipped = tuple(index[name] for name in decision.skipped)
        for name, tokens, _, kind in decision.scheduled:
            if kind != "running":
                turn.admitted += ((index[name], hits[name], tokens),)
            elif name not in decision.decodes:
                turn.chunks += ((index[name], tokens),)
        if had_tokens:
            step = self.run.steps[-1]
            turn.step, turn.duration_ns = len(self.run.steps) - 1, step.duration_ns
            turn.scheduled, turn.sampled = len(decision.scheduled), len(decision.sampled)
            turn.tokens, turn.context = sum(tokens for _, tokens, _, _ in decision.scheduled), step.context
        return turn

    def _goes_on_across(self, outcome: Turn, batch: int) -> bool:
        """Whether the stretch of one step that is not told yet may go on although something came of the step before."""
        stretch = self.stretch
        if stretch is None or not self.across or self.max_stretch == 1:
            return False
        return stretch.steps == 1 and stretch.batch == batch and outcome.ended == stretch.step - 1

    def _steady(self) -> None:
        step, stretch = self.run.steps[-1], self.stretch
        batch = len(step.scheduled)
        if stretch and stretch.batch == batch and stretch.steps < self.max_stretch:
            stretch.steps += 1
            stretch.durations_ns.append(step.duration_ns)
            stretch.free_blocks = step.free_blocks
            stretch.running = len(self.scheduler.run_list)
            self.least = min(self.least, step.free_blocks)
            return
        self._flush()
        self.least = step.free_blocks
        self.stretch = Stretch(
            time_ns=0,
            step=len(self.run.steps) - 1,
            steps=1,
            schedule_ns=self.now_ns,
            durations_ns=[step.duration_ns],
            batch=batch,
            context=step.context,
            running=len(self.scheduler.run_list),
            free_blocks=step.free_blocks,
        )

    def _output(self) -> None:
        self.now_ns = max(self.now_ns, self.queue.pop(0))
        step = self.under_way.pop(0)
        emitted, finished = self.scheduler.update()
        if step is None:
            return
        turn = Turn(time_ns=self.now_ns, ended=step, running=0, waiting=0, free_blocks=0)
        for name in emitted:
            before = self.token_step.get(name)
            if before is None:
                turn.first += (self.index[name],)
            elif before != step - 1:
                turn.late += ((self.index[name], before),)
            self.token_step[name] = step
        turn.finished = tuple(self.index[name] for name in finished)
        if turn.first or turn.late or turn.finished:
            self.outcome = turn

    def _tell(self, turn: Turn) -> None:
        self._flush()
        self.records.append(turn)

    def _flush(self) -> None:
        if self.stretch is not None:
            if len(set(self.stretch.durations_ns)) == 1:
                self.stretch.durations_ns = self.stretch.durations_ns[:1]
            self.stretch.time_ns = self.now_ns
            if self.least < self.stretch.free_blocks:
                self.stretch.least_free_blocks = self.least
            self.records.append(self.stretch)
            self.stretch = None


def slow_log(
    limits: EngineLimits,
    requests: Sequence[SlowRequest],
    coefficients: LinearCoefficients,
    *,
    max_stretch: int = 1_000_000,
    across: bool = False,
    timeout_ns: int | None = None,
) -> list[AnyRecord]:
    """The whole log, numbered; `across` lets a stretch go on across an output, where the rules of logs allow it.

    Whoever is still there `timeout_ns` after arriving is cancelled. Raises EndlessRun when the rules go in circles.
    """
    teller = _Teller(limits, requests, coefficients, max_stretch, across, timeout_ns)
    teller.play()
    rejected = {name: outcome.rejected for name, outcome in teller.run.requests.items()}
    quotable = quoted_ids(requests)
    records: list[AnyRecord] = list(teller.records)
    for index, request in enumerate(requests):
        records.append(
            Arrive(
                time_ns=request.arrival_ns,
                request=index,
                id=request.id,
                prompt_tokens=request.prompt_tokens,
                output_tokens=request.output_tokens,
                priority=request.priority,
                prompt=list(request.prompt),
                quotable=request.id in quotable,
            )
        )
        reason = rejected[request.id]
        if reason is not None:
            records.append(Reject(time_ns=request.arrival_ns, request=index, reason=reason))
        aborted_ns = teller.run.requests[request.id].aborted_ns
        if aborted_ns is not None:
            records.append(Abort(time_ns=aborted_ns, request=index))
    records.sort(key=lambda record: (record.time_ns, record.RANK))
    refused = sum(reason is not None for reason in rejected.values())
    aborted = sum(isinstance(record, Abort) for record in records)
    header = Header(
        time_ns=0,
        schema=SCHEMA,
        revision=REVISION,
        isim_version="test",
        scenario_digest="",
        seed=0,
        max_events=100_000,
        engines=1,
        engine=limits,
        linear_cost=coefficients,
    )
    end = End(
        time_ns=teller.now_ns,
        arrived=len(requests),
        completed=len(requests) - refused - aborted,
        rejected=refused,
        aborted=aborted,
        unfinished=0,
        steps=len(teller.run.steps),
    )
    return [msgspec.structs.replace(record, seq=number) for number, record in enumerate([header, *records, end])]
