"""A recorded run of an independent event loop, repeated on `call_at` and `cancel`.

The other loop orders events by (time, sequence), numbers them from 1, counts a cancelled event as skipped when it is
reached and as pending until then, and leaves its clock at the last event when it runs until a time. Its handler, as
the record shows, schedules `f` at 5 ns and `g` at the present when it meets `d`.
"""

from __future__ import annotations

from typing import Any

import pytest
from reference_checks.core import EventLoop

from isim.kernel import Rank
from isim.record.errors import CausalityError

SCHEDULE = [(5, "a"), (5, "b"), (0, "c"), (3, "d"), (5, "e")]
CANCEL = [2]
LOG = [(3, 0, 2, "c"), (4, 3, 3, "d"), (7, 3, 6, "g"), (1, 5, 0, "a"), (5, 5, 4, "e"), (6, 5, 5, "f")]
UNTIL_4 = {"processedEvents": 3, "skippedCancelledEvents": 0, "nowNs": 3, "pendingEvents": 4}
TO_THE_END = {"processedEvents": 3, "skippedCancelledEvents": 1, "nowNs": 5, "pendingEvents": 0}


@pytest.mark.parametrize("shuffle_seed", [None, 0, 1, 2])
def test_the_recorded_run(shuffle_seed: int | None) -> None:
    loop = EventLoop(shuffle_seed)
    assert [loop.schedule_at(time_ns, payload) for time_ns, payload in SCHEDULE] == [1, 2, 3, 4, 5]
    assert [loop.cancel(event_id) for event_id in CANCEL] == [True]
    assert loop.run(until_ns=4) == UNTIL_4
    assert loop.run() == TO_THE_END
    assert [(entry["id"], entry["t"], entry["seq"], entry["p"]) for entry in loop.log] == LOG
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
