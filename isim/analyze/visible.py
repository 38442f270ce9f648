"""When a request that reasons first told its reader something: the end of the step that gave the token after those.

Which token that is the workload says (`reasoning_tokens`); which step gave it follows from the columns: from its first
to its last token a request gets one from every step, but for the holes that late tokens leave.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from itertools import accumulate

from isim.analyze.collect import Collector, Status
from isim.analyze.latency import distribution
from isim.analyze.schema import Distribution


def first_visible_ns(collector: Collector, reasoning: Mapping[int, int], counts: Sequence[int]) -> dict[int, int]:
    """By request, of those that got a token after their reasoning; `counts` are their output tokens."""
    requests = collector.requests
    steps = {who: requests.first_step[who] + tokens for who, tokens in reasoning.items() if counts[who] > tokens}
    for who, late, previous in requests.late():
        if who in steps and steps[who] > previous:
            steps[who] += late - previous - 1
    ends_ns = {
        engine: array("q", accumulate(collector.engines[engine].spans_ns)) for engine in _engines(collector, steps)
    }
    return {who: ends_ns[requests.engine[who]][step] for who, step in steps.items()}


def _engines(collector: Collector, requests: Mapping[int, int]) -> list[int]:
    return sorted({collector.requests.engine[who] for who in requests})


def visible_distribution(collector: Collector, visible_ns: Mapping[int, int], first_measured: int) -> Distribution:
    """From sending to the first visible token, over the measured requests that have one."""
    requests = collector.requests
    waits = [
        time_ns - requests.sent_ns[who]
        for who, time_ns in visible_ns.items()
        if who >= first_measured and requests.status[who] == Status.COMPLETED
    ]
    return distribution(waits)
