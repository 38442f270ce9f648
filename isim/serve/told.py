"""What an engine did, as records: a run of steady steps while it goes on, and what of it and of turns is written."""

from __future__ import annotations

from bisect import bisect_left
from itertools import accumulate

import msgspec

from isim.policy.vllm.plan import Outcome, Plan
from isim.policy.vllm.scheduler import Scheduler
from isim.record.records import Stretch, Turn


class Run(msgspec.Struct, gc=False):
    """Steady steps that follow one another, `made` of them already: the record that will tell them, as far as known.

    The first starts at `start_ns`, the last ends at `end_ns`. The engine decides again at `record.time_ns`, when the
    last ends, or, with `ahead` 1, when it starts.
    """

    record: Stretch
    made: int
    start_ns: int
    end_ns: int

    def cut_at(self, time_ns: int, ahead: int) -> bool:
        """End it at the first decision from a time on, with a step at least; False where it ends sooner anyway."""
        record = self.record
        durations_ns = record.durations_ns
        # Since its start: sums of numbers this small are quick.
        passed_ns = list(accumulate(durations_ns, initial=0))
        steps = bisect_left(passed_ns, time_ns - self.start_ns) + ahead or 1
        if steps >= len(durations_ns):
            return False
        self.end_ns = self.start_ns + passed_ns[steps]
        record.time_ns, record.steps = self.start_ns + passed_ns[steps - ahead], steps
        del durations_ns[steps:]
        return True


def complete(stretch: Stretch, table: Scheduler, least: int) -> None:
    """Add what is known of a stretch when the engine decides again; its table is `table` then.

    `least` is how many blocks were free after the decision that left the fewest.
    """
    stretch.running = len(table.running)
    stretch.free_blocks = free_blocks = table.ledger.free
    if least < free_blocks:
        stretch.least_free_blocks = least
    durations_ns = stretch.durations_ns
    first_ns = durations_ns[0]
    if first_ns == durations_ns[-1] and durations_ns.count(first_ns) == len(durations_ns):
        stretch.durations_ns = [first_ns]


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
