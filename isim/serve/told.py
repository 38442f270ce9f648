"""What an engine did, as records: a run of steady steps while it goes on, and what of it and of turns is written."""

from __future__ import annotations

from bisect import bisect_left
from itertools import accumulate

import msgspec

from isim.policy.vllm.plan import Outcome, Plan
from isim.policy.vllm.scheduler import Scheduler
from isim.record.records import Stretch, Turn


class Run(msgspec.Struct, gc=False):
    """Steady steps that follow one another, from number `step` on, `made` of them already.

    The first was decided at `schedule_ns` and starts at `start_ns`; the last ends at `end_ns`. The engine decides again
    at `next_ns`: when the last ends, or, where another may be under way beside it, when it starts.
    """

    step: int
    made: int
    schedule_ns: int
    start_ns: int
    durations_ns: list[int]
    batch: int
    context: int
    next_ns: int
    end_ns: int

    def cut_at(self, time_ns: int, ahead: int) -> bool:
        """End it at the first decision from a time on, with a step at least; False where it ends sooner anyway.

        `ahead` is how many steps may be under way beside the last one.
        """
        durations_ns, start_ns = self.durations_ns, self.start_ns
        # Since its start: sums of numbers this small are quick.
        passed_ns = list(accumulate(durations_ns, initial=0))
        steps = bisect_left(passed_ns, time_ns - start_ns) + ahead or 1
        if steps >= len(durations_ns):
            return False
        self.next_ns, self.end_ns = start_ns + passed_ns[steps - ahead], start_ns + passed_ns[steps]
        del durations_ns[steps:]
        return True


def stretch_of(run: Run, engine: int, table: Scheduler, least: int) -> Stretch:
    """A run whose steps are decided, its table being `table` now that the engine decides again.

    `least` is how many blocks were free after the decision that left the fewest.
    """
    durations_ns, free_blocks = run.durations_ns, table.ledger.free
    steps, first_ns = len(durations_ns), durations_ns[0]
    if first_ns == durations_ns[-1] and durations_ns.count(first_ns) == steps:
        durations_ns = [first_ns]
    return Stretch(
        time_ns=run.next_ns,
        engine=engine,
        step=run.step,
        steps=steps,
        schedule_ns=run.schedule_ns,
        durations_ns=durations_ns,
        batch=run.batch,
        context=run.context,
        running=len(table.running),
        free_blocks=free_blocks,
        least_free_blocks=least if least < free_blocks else None,
    )


def turn_of(outcome: Outcome | None, time_ns: int, engine: int, table: Scheduler, free_blocks: int) -> Turn:
    """A moment of the engine, with what an output brought, if anything."""
    if outcome is None:
        return Turn(
            time_ns=time_ns,
            engine=engine,
            running=len(table.running),
            waiting=len(table.waiting),
            free_blocks=free_blocks,
        )
    return Turn(
        time_ns=time_ns,
        engine=engine,
        ended=outcome.step,
        first=outcome.first,
        late=outcome.late,
        finished=outcome.finished,
        running=len(table.running),
        waiting=len(table.waiting),
        free_blocks=free_blocks,
    )


def add_decision(turn: Turn, plan: Plan, duration_ns: int) -> None:
    """Tell of a decision too."""
    if plan.admitted:
        turn.admitted = tuple(plan.admitted)
    if plan.chunks:
        turn.chunks = tuple(plan.chunks)
    if plan.skipped:
        turn.skipped = tuple(plan.skipped)
    if plan.preempted:
        turn.preempted = tuple(plan.preempted)
    if plan.tokens:
        turn.step = plan.step
        turn.duration_ns = duration_ns
        turn.scheduled = plan.decodes + len(plan.shapes)
        turn.tokens = plan.tokens
        turn.sampled = plan.sampled
        turn.context = plan.context
