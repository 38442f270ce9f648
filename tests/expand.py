"""A log told step by step: what tests compare with, made from records alone."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

import msgspec

from isim.record.records import AnyRecord, Arrive, Header, Reject, Stretch, Turn


class ToldStep(msgspec.Struct, frozen=True, kw_only=True):
    decided_ns: int
    start_ns: int
    duration_ns: int
    scheduled: int
    context: int

    @property
    def end_ns(self) -> int:
        return self.start_ns + self.duration_ns


class Told(msgspec.Struct, kw_only=True):
    """`first`, `finish` by request; `admissions` (time, request, hit, tokens); `preempted` (time, request)."""

    steps: list[ToldStep] = []
    first: dict[int, int] = {}
    finish: dict[int, int] = {}
    late: list[tuple[int, int, int]] = []
    admissions: list[tuple[int, int, int, int]] = []
    chunks: list[tuple[int, int, int]] = []
    preempted: list[tuple[int, int]] = []
    rejected: dict[int, str] = {}
    arrivals: dict[int, int] = {}
    free_blocks: dict[int, int] = {}


def tell(records: Sequence[AnyRecord]) -> Told:
    """Expand the log of one engine."""
    told = Told()
    header = records[0]
    assert isinstance(header, Header)
    asynchronous = header.engine.async_scheduling
    busy_ns = 0
    for record in records:
        if isinstance(record, Arrive):
            told.arrivals[record.request] = record.time_ns
        elif isinstance(record, Reject):
            told.rejected[record.request] = record.reason.value
        elif isinstance(record, Turn):
            busy_ns = _turn(told, record, busy_ns)
        elif isinstance(record, Stretch):
            busy_ns = _stretch(told, record, busy_ns, asynchronous)
    return told


def _turn(told: Told, turn: Turn, busy_ns: int) -> int:
    if turn.ended is not None:
        end_ns = told.steps[turn.ended].end_ns
        assert end_ns <= turn.time_ns
        for request in turn.first:
            told.first[request] = end_ns
        for request in turn.finished:
            told.finish[request] = end_ns
        told.late += [(end_ns, request, step) for request, step in turn.late]
    told.preempted += [(turn.time_ns, request) for request in turn.preempted]
    told.admissions += [(turn.time_ns, *admitted) for admitted in turn.admitted]
    told.chunks += [(turn.time_ns, *chunk) for chunk in turn.chunks]
    if turn.step is None:
        return busy_ns
    assert turn.step == len(told.steps)
    start_ns = max(turn.time_ns, busy_ns)
    told.free_blocks[turn.step] = turn.free_blocks
    told.steps.append(
        ToldStep(
            decided_ns=turn.time_ns,
            start_ns=start_ns,
            duration_ns=turn.duration_ns,
            scheduled=turn.scheduled,
            context=turn.context,
        )
    )
    return start_ns + turn.duration_ns


def _stretch(told: Told, stretch: Stretch, busy_ns: int, asynchronous: bool) -> int:
    assert stretch.step == len(told.steps)
    durations = stretch.durations_ns
    if len(durations) == 1:
        durations = durations * stretch.steps
    starts = list(accumulate(durations, initial=max(stretch.schedule_ns, busy_ns)))
    for place, duration_ns in enumerate(durations):
        decided_ns = starts[place]
        if asynchronous:
            decided_ns = starts[place - 1] if place else stretch.schedule_ns
        told.steps.append(
            ToldStep(
                decided_ns=decided_ns,
                start_ns=starts[place],
                duration_ns=duration_ns,
                scheduled=stretch.batch,
                context=stretch.context + place * stretch.batch,
            )
        )
    told.free_blocks[len(told.steps) - 1] = stretch.free_blocks
    return starts[-1]
