"""How long the steps of a stretch take, and when each of them starts."""

from __future__ import annotations

from bisect import bisect_left
from itertools import accumulate

from isim.record.records import LinearCoefficients, Stretch, Turn
from isim.replay.rules import Mismatch, Rule

_PS_PER_NS = 1000


class Span:
    """The steps of one stretch in time; it starts with `step` at `start_ns`, and each step follows at once."""

    def __init__(self, step: int, start_ns: int, record: Stretch) -> None:
        self._step = step
        self._start_ns = start_ns
        self._durations = record.durations_ns
        self._each_ns = record.durations_ns[0] if len(record.durations_ns) == 1 else 0
        self._starts: list[int] = []

    def start_ns(self, step: int) -> int:
        """When a step starts; of the one after the last, when the last ends."""
        if self._each_ns:
            return self._start_ns + (step - self._step) * self._each_ns
        return self._all_starts()[step - self._step]

    def first_start_from(self, time_ns: int) -> int:
        """The first step that starts at or after an instant."""
        if self._each_ns:
            return self._step + max(0, -((self._start_ns - time_ns) // self._each_ns))
        return self._step + bisect_left(self._all_starts(), time_ns)

    def _all_starts(self) -> list[int]:
        if not self._starts:
            self._starts = list(accumulate(self._durations, initial=self._start_ns))
        return self._starts


def linear_ns(cost: LinearCoefficients, tokens: int, requests: int, context: int) -> int:
    """Duration of a step under the linear cost: the picoseconds of all parts, rounded up to whole nanoseconds."""
    total_ps = cost.base_ps + cost.per_token_ps * tokens + cost.per_request_ps * requests
    return -(-(total_ps + cost.per_context_token_ps * context) // _PS_PER_NS)


def check_duration(turn: Turn, cost: LinearCoefficients | None) -> None:
    """Duration of the step that a turn decides: at least 1 ns, and what the linear cost says; without a step 0."""
    found_ns = turn.duration_ns
    if turn.step is None:
        if found_ns:
            raise Mismatch(Rule.DURATION, "0 ns, as no step was decided", f"{found_ns} ns")
        return
    if found_ns < 1:
        raise Mismatch(Rule.DURATION, "a step of 1 ns or more", f"{found_ns} ns")
    if cost is not None:
        due_ns = linear_ns(cost, turn.tokens, turn.scheduled, turn.context)
        if found_ns != due_ns:
            raise Mismatch(Rule.DURATION, f"{due_ns} ns by the linear cost", f"{found_ns} ns")


def check_durations(record: Stretch, cost: LinearCoefficients | None) -> None:
    """Durations of a stretch: their number, their least value, and the linear cost where the log states it."""
    durations, steps = record.durations_ns, record.steps
    if len(durations) not in (1, steps):
        raise Mismatch(Rule.STRETCH_FORM, f"1 or {steps} durations", f"{len(durations)} durations")
    if steps > 1 and len(durations) == steps and durations.count(durations[0]) == steps:
        raise Mismatch(Rule.STRETCH_FORM, "1 duration, as all are equal", f"{steps} durations")
    if min(durations) < 1:
        raise Mismatch(Rule.DURATION, "steps of 1 ns or more", f"{min(durations)} ns")
    if cost is None:
        return
    growth_ps = cost.per_context_token_ps * record.batch
    first_ps = cost.base_ps + (cost.per_token_ps + cost.per_request_ps) * record.batch
    first_ps += cost.per_context_token_ps * record.context
    due = [-(-(first_ps + growth_ps * passed) // _PS_PER_NS) for passed in range(steps)]
    if due != (durations if len(durations) == steps else durations * steps):
        raise Mismatch(Rule.DURATION, f"{due} ns by the linear cost", f"{durations} ns")
