"""A recorded run of an independent event loop, repeated on `call_at` and `cancel`.

The other loop orders events by (time, sequence), numbers them from 1, counts a cancelled event as skipped when it is
reached and as pending until then, and leaves its clock at the last event when it runs until a time. Its handler, as
the record shows, schedules `f` at 5 ns and `g` at the present when it meets `d`.
"""

from __future__ import annotations

import gzip
import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from isim.kernel import SAFE_MAX_NS, Kernel, Rank
from isim.record.errors import CausalityError

CASE = Path(__file__).parents[2].parent / "shared" / "reference" / "cases" / "core-event-loop-order"

SCHEDULE = [(5, "a"), (5, "b"), (0, "c"), (3, "d"), (5, "e")]
CANCEL = [2]
LOG = [(3, 0, 2, "c"), (4, 3, 3, "d"), (7, 3, 6, "g"), (1, 5, 0, "a"), (5, 5, 4, "e"), (6, 5, 5, "f")]
UNTIL_4 = {"processedEvents": 3, "skippedCancelledEvents": 0, "nowNs": 3, "pendingEvents": 4}
TO_THE_END = {"processedEvents": 3, "skippedCancelledEvents": 1, "nowNs": 5, "pendingEvents": 0}


class Loop:
    """The other loop's interface over the kernel: it only numbers and counts."""

    def __init__(self, shuffle_seed: int | None) -> None:
        self.kernel = Kernel(shuffle_seed=shuffle_seed)
        self.log: list[tuple[int, int, int, str]] = []
        self._sequence = 0
        self._waiting: dict[int, int] = {}
        self._cancelled: list[int] = []

    def schedule_at(self, time_ns: int, payload: str) -> int:
        sequence = self._sequence
        event_id = self.kernel.call_at(time_ns, Rank.ARRIVAL, partial(self._handle, sequence, payload), key=(sequence,))
        self._sequence += 1
        self._waiting[event_id] = time_ns
        assert event_id == sequence + 1
        return event_id

    def cancel(self, event_id: int) -> bool:
        if not self.kernel.cancel(event_id):
            return False
        self._cancelled.append(event_id)
        return True

    def _handle(self, sequence: int, payload: str) -> None:
        event_id = sequence + 1
        assert self.kernel.now_ns == self._waiting.pop(event_id)
        self.log.append((event_id, self.kernel.now_ns, sequence, payload))
        if payload == "d":
            self.schedule_at(5, "f")
            self.schedule_at(self.kernel.now_ns, "g")

    def run(self, until_ns: int | None = None) -> dict[str, int]:
        before = len(self.log)
        self.kernel.run(until_ns)
        end_ns = SAFE_MAX_NS if until_ns is None else until_ns
        reached = [event_id for event_id in self._cancelled if self._waiting.get(event_id, end_ns + 1) <= end_ns]
        for event_id in reached:
            del self._waiting[event_id]
        return {
            "processedEvents": len(self.log) - before,
            "skippedCancelledEvents": len(reached),
            "nowNs": self.kernel.now_ns,
            "pendingEvents": len(self._waiting),
        }


@pytest.mark.parametrize("shuffle_seed", [None, 0, 1, 2])
def test_the_recorded_run(shuffle_seed: int | None) -> None:
    loop = Loop(shuffle_seed)
    assert [loop.schedule_at(time_ns, payload) for time_ns, payload in SCHEDULE] == [1, 2, 3, 4, 5]
    assert [loop.cancel(event_id) for event_id in CANCEL] == [True]
    assert loop.run(until_ns=4) == UNTIL_4
    assert loop.run() == TO_THE_END
    assert loop.log == LOG
    refused: list[tuple[Any, str]] = [
        (1, "present, 5 ns, found 1 ns"),
        (-1, "found -1 ns"),
        (1.5, "1.5"),
        (2**53, "2^53"),
    ]
    for time_ns, named in refused:
        with pytest.raises(CausalityError) as caught:
            loop.kernel.call_at(time_ns, Rank.ARRIVAL, lambda: None)
        assert named in str(caught.value)
    with pytest.raises(CausalityError, match="found 0"):
        loop.cancel(0)


@pytest.mark.skipif(not CASE.is_dir(), reason=f"no recorded case at {CASE}")
def test_the_figures_here_are_those_of_the_record() -> None:
    asked = json.loads((CASE / "input.json").read_text())
    answered = json.loads(gzip.decompress((CASE / "expected.json.gz").read_bytes()))
    assert [tuple(entry) for entry in asked["schedule"]] == SCHEDULE
    assert asked["cancel"] == CANCEL
    assert [(entry["id"], entry["t"], entry["seq"], entry["p"]) for entry in answered["log"]] == LOG
    assert (answered["r1"], answered["r2"]) == (UNTIL_4, TO_THE_END)
    assert answered["ids"] == [1, 2, 3, 4, 5] and answered["cancels"] == [True]
    assert len(answered["errs"]) == 5
