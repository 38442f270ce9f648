"""A closer look at a run of moderate size: what its steps went to, queue and memory over time, and how sure it is.

`Watcher` is one more reader of the log, and gives up, forgetting everything, as soon as the run proves too large; so a
large run pays for its first requests only, and whether there are details depends on nothing but the run. It follows
how many prompt tokens each request has computed, as that is what tells the shape of a step; every shape is then put to
the cost model once more, which says what the time went to.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Sequence
from itertools import pairwise

from isim.analyze.collect import NEVER, Collector, Status
from isim.analyze.exact import rounded, share
from isim.analyze.schema import BatchOverTime, Result
from isim.analyze.schema_details import MOST_REQUESTS, MOST_STEPS, OperationTime, OverTime
from isim.analyze.windows import BUCKETS, time_since
from isim.cost.base import CostModel
from isim.record.records import AnyRecord, Arrive, Header, Stretch, Turn

Shape = tuple[int, int, tuple[tuple[int, int], ...], int]
"""Decodes, their context, the chunks, and how many steps follow one another so: arguments of `CostModel.parts`."""


class Watcher:
    """Give `read` all records. `whole` is False once the run was found too large; nothing else is kept then."""

    def __init__(self, *, always: bool = False) -> None:
        self.whole = True
        self.shapes: list[Shape] = []
        self.turn_ns: list[array[int]] = []
        self.free_blocks: list[array[int]] = []
        self._always = always
        self._arrived = 0
        self._steps = 0
        self._computed: dict[int, int] = {}

    def read(self, records: Sequence[AnyRecord]) -> None:
        if not self.whole:
            return
        for record in records:
            if type(record) is Turn:
                self._turn(record)
            elif type(record) is Stretch:
                self._steps += record.steps
                self.shapes.append((record.batch, record.context, (), record.steps))
            elif type(record) is Arrive:
                self._arrived += 1
            elif isinstance(record, Header):
                self.turn_ns = [array("q") for _ in range(record.engines)]
                self.free_blocks = [array("q") for _ in range(record.engines)]
            if not self._always and (self._arrived > MOST_REQUESTS or self._steps > MOST_STEPS):
                self.whole = False
                self.shapes, self.turn_ns, self.free_blocks, self._computed = [], [], [], {}
                return

    def _turn(self, turn: Turn) -> None:
        self.turn_ns[turn.engine].append(turn.time_ns)
        self.free_blocks[turn.engine].append(turn.free_blocks)
        if turn.step is None:
            return
        self._steps += 1
        computed = self._computed
        chunks = []
        for request, hit_tokens, tokens in turn.admitted:
            chunks.append((tokens, hit_tokens))
            computed[request] = hit_tokens + tokens
        for request, tokens in turn.chunks:
            before = computed.get(request, 0)
            chunks.append((tokens, before))
            computed[request] = before + tokens
        decodes = turn.scheduled - len(chunks)
        context = turn.context - sum([before for _, before in chunks])
        self.shapes.append((decodes, context, tuple(chunks), 1))


def step_time(watcher: Watcher, cost: CostModel, busy_ns: int) -> list[OperationTime]:
    """What the time of all steps went to; what longest first, what is left over under the name of the cost model."""
    totals: dict[str, int] = {}
    for decodes, context, chunks, steps in watcher.shapes:
        for name, parts in cost.parts(decodes, context, chunks, steps).items():
            totals[name] = totals.get(name, 0) + parts
    found = {name: parts // cost.parts_per_ns for name, parts in totals.items()}
    found[cost.rest] = found.get(cost.rest, 0) + busy_ns - sum(found.values())
    ordered = sorted(found.items(), key=lambda item: (-item[1], item[0]))
    return [
        OperationTime(operation=name, total_ns=total_ns, share=share(total_ns, busy_ns)) for name, total_ns in ordered
    ]


def over_time(watcher: Watcher, collector: Collector, result: Result) -> OverTime:
    """Queue and KV memory in the parts of the batch over time."""
    cuts = _cuts(result.batch_over_time)
    return OverTime(
        mean_queue_milli=_queue(collector, cuts) if cuts else [],
        most_kv_blocks=_blocks(watcher, result.kv.usable_blocks, cuts) if cuts else [],
    )


def _cuts(window: BatchOverTime) -> list[int]:
    """The BUCKETS + 1 bounds of the parts; none where there are no parts."""
    if not window.mean_batch_milli:
        return []
    span_ns = window.end_ns - window.start_ns
    return [window.start_ns + span_ns * part // BUCKETS for part in range(BUCKETS + 1)]


def _queue(collector: Collector, cuts: list[int]) -> list[int]:
    """Who waits counts from its arrival to the start of its first step, or until it is let go of."""
    requests = collector.requests
    came, went = [], []
    for request, (arrival_ns, start_ns) in enumerate(zip(requests.arrival_ns, requests.start_ns, strict=True)):
        if requests.status[request] != Status.REJECTED:
            came.append(arrival_ns)
            went.append(start_ns if start_ns != NEVER else collector.gone_ns(request))
    waiting = [before - after for before, after in zip(time_since(came, cuts), time_since(went, cuts), strict=True)]
    parts = zip(pairwise(waiting), pairwise(cuts), strict=True)
    return [rounded(1000 * (after - before), end_ns - start_ns) for (before, after), (start_ns, end_ns) in parts]


def _blocks(watcher: Watcher, usable: int, cuts: list[int]) -> list[int]:
    most = [0] * (len(cuts) - 1)
    for times_ns, free_blocks in zip(watcher.turn_ns, watcher.free_blocks, strict=True):
        bounds = [bisect_right(times_ns, cut) for cut in cuts]
        for part, (first, last) in enumerate(pairwise(bounds)):
            seen = free_blocks[first:last] or free_blocks[max(0, first - 1) : first]
            if seen:
                most[part] = max(most[part], usable - min(seen))
    return most
