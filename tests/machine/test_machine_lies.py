"""Bookings that lie are found out: by the processes, which have to live up to them, or by the replay."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest
from executions import records_of
from random_machines import random_case

from isim.machine.bookings import Booking, Bookings
from isim.machine.moment import ROUND_BITS
from isim.machine.sequencer import Sequencer
from isim.record.errors import CausalityError
from isim.replay.execution import ExecutionReplay, ExecutionRule, ExecutionViolation

SEED = 326
"""A case in which many steps wait for lanes and for leases."""

honest = Bookings.book


def _shifted(by_ns: int, which: int) -> object:
    """Every so many bookings one step is told to start earlier or later than it can."""
    count = 0

    def book(
        self: Bookings,
        now: int,
        duration_ns: int,
        resources: Sequence[int],
        reads: Sequence[str],
        writes: Sequence[str],
    ) -> Booking:
        nonlocal count
        booking = honest(self, now, duration_ns, resources, reads, writes)
        count += 1
        moved = booking.start + (by_ns << ROUND_BITS)
        if count % which or not duration_ns or moved < now:
            return booking
        return msgspec.structs.replace(booking, start=moved, finish=booking.finish + (by_ns << ROUND_BITS))

    return book


def _replayed() -> ExecutionViolation | None:
    case = random_case(SEED)
    replay = ExecutionReplay()
    try:
        replay.read(records_of(case.machine, case.requests))
        replay.finish()
    except ExecutionViolation as violation:
        return violation
    return None


def test_a_start_before_the_lanes_are_free(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Bookings, "book", _shifted(-10, 3))
    case = random_case(SEED)
    with pytest.raises(CausalityError, match=r"was to start at|would end at"):
        records_of(case.machine, case.requests, processes=True)
    found = _replayed()
    assert found is not None and found.rule is ExecutionRule.START


def test_a_start_later_than_anything_explains(monkeypatch: pytest.MonkeyPatch) -> None:
    """The processes wait, as they are told; the replay asks for what."""
    monkeypatch.setattr(Bookings, "book", _shifted(10, 5))
    found = _replayed()
    assert found is not None and found.rule is ExecutionRule.START


def test_leases_that_nobody_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Bookings, "_leased", lambda self, start, duration_ns, reads, writes: start)
    case = random_case(SEED)
    with pytest.raises(CausalityError, match="leases are taken"):
        records_of(case.machine, case.requests, processes=True)
    found = _replayed()
    assert found is not None and found.rule is ExecutionRule.START


def test_a_communicator_that_serves_whoever_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Sequencer, "ready", lambda self, admission, place: True)
    case = random_case(SEED)
    with pytest.raises(CausalityError, match="out of turn"):
        records_of(case.machine, case.requests)
