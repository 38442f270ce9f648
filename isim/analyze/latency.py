"""How long requests waited for what: seven distributions over the measured requests.

A request is measured when it completed and did not arrive in the warm-up. The pool of gaps between tokens has
n - 1 members for a request of n tokens, which may be millions; so it is not listed. All requests that got a token
from a step and from the step before share the gap between the two ends, so the pool is told as "the span of this
step, as many times as there are such requests", and those counts change only where a request gets its first or
last token, or a late one.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from itertools import compress, islice
from operator import sub

from isim.analyze.collect import Collector, RequestColumns, Status
from isim.analyze.exact import mean, percentiles, pooled_percentiles, rounded
from isim.analyze.schema import Distribution, Latency

_COMPLETED = Status.COMPLETED.value


def token_counts(requests: RequestColumns) -> list[int]:
    """Output tokens each request was given, from the steps that gave them; 0 for none."""
    counts = [
        last - first + 1 if first >= 0 else 0
        for first, last in zip(requests.first_step, requests.last_step, strict=True)
    ]
    for request, step, previous in requests.late():
        counts[request] -= step - previous - 1
    return counts


def request_times(requests: RequestColumns, request: int, tokens: int) -> tuple[int | None, int | None, int | None]:
    """TTFT, TPOT and E2E of one request that was given so many tokens; None where one is not defined."""
    sent_ns = requests.sent_ns[request]
    first_ns = requests.first_ns[request] if tokens else None
    finish_ns = requests.finish_ns[request] if requests.status[request] == _COMPLETED else None
    tpot_ns = None
    if first_ns is not None and finish_ns is not None and tokens > 1:
        tpot_ns = rounded(finish_ns - first_ns, tokens - 1)
    ttft_ns = None if first_ns is None else first_ns - sent_ns
    return ttft_ns, tpot_ns, None if finish_ns is None else finish_ns - sent_ns


def latency(
    collector: Collector, counts: Sequence[int], first_measured: int, statuses: Sequence[int] | None = None
) -> Latency:
    """The seven distributions; `counts` is of `token_counts`, requests below `first_measured` are warm-up.

    `statuses` takes the place of the collected ones: who is not completed in it is not measured.
    """
    requests = collector.requests
    statuses = requests.status if statuses is None else statuses
    done = [status == _COMPLETED for status in islice(statuses, first_measured, None)]

    def waits(since_ns: Sequence[int], until_ns: Sequence[int]) -> list[int]:
        spans_ns = map(sub, islice(until_ns, first_measured, None), islice(since_ns, first_measured, None))
        return list(compress(spans_ns, done))

    queue = waits(requests.arrival_ns, requests.start_ns)
    prefill = waits(requests.start_ns, requests.first_ns)
    ttft = waits(requests.sent_ns, requests.first_ns)
    e2e = waits(requests.sent_ns, requests.finish_ns)
    decode = waits(requests.first_ns, requests.finish_ns)
    gap_counts = [tokens - 1 for tokens in compress(islice(counts, first_measured, None), done)]
    tpot = [rounded(span_ns, gaps) for span_ns, gaps in zip(decode, gap_counts, strict=True) if gaps]
    decode_ns, gaps = sum(decode), sum(gap_counts)
    whole = {
        "ttft_ns": distribution(ttft),
        "tpot_ns": distribution(tpot),
        "e2e_ns": distribution(e2e),
        "overhead_ns": _constant(collector.header.request_overhead_ns, len(ttft)),
        "queue_ns": distribution(queue),
        "prefill_ns": distribution(prefill),
    }
    del queue, prefill, ttft, tpot, e2e, decode, gap_counts  # the pool is as large again
    pool: dict[int, array[int]] = {}
    for engine in range(len(collector.engines)):
        _pool_gaps(collector, engine, first_measured, (statuses, pool))
    return Latency(itl_ns=_distribution(gaps, decode_ns, pooled_percentiles(pool)), **whole)


def distribution(values: list[int]) -> Distribution:
    """Mean and nearest-rank percentiles of the values; sorts them."""
    values.sort()
    return _distribution(len(values), sum(values), percentiles(values) if values else None)


def _constant(value: int, count: int) -> Distribution:
    """The same value, so many times."""
    return _distribution(count, value * count, [value] * 5 if count else None)


def _distribution(count: int, total: int, ranked: list[int] | None) -> Distribution:
    p50, p90, p95, p99, greatest = ranked or (None,) * 5
    return Distribution(count=count, mean=mean(total, count), p50=p50, p90=p90, p95=p95, p99=p99, max=greatest)


def _pool_gaps(
    collector: Collector, engine: int, first_measured: int, pooled: tuple[Sequence[int], dict[int, array[int]]]
) -> None:
    """Add the gaps between tokens of the measured requests of one engine to the pool: weight -> gaps."""
    statuses, pool = pooled
    steps = collector.engines[engine]
    requests = collector.requests
    rows = zip(requests.engine, statuses, strict=True)
    here = [status == _COMPLETED and where == engine for where, status in islice(rows, first_measured, None)]
    # After which step one more request has gaps: twice the step and 1. After which one fewer: twice the step.
    turns = [2 * first + 1 for first in compress(islice(requests.first_step, first_measured, None), here)]
    turns += [2 * last for last in compress(islice(requests.last_step, first_measured, None), here)]
    single = pool.setdefault(1, array("q"))
    for request, step, previous in requests.late():
        if request >= first_measured and statuses[request] == _COMPLETED and requests.engine[request] == engine:
            turns += (2 * previous, 2 * step + 1)
            single.append(sum(steps.spans_ns[previous + 1 : step + 1]))
    turns.sort()
    spans_ns, weight, start = steps.spans_ns, 0, 0
    for turn in turns:
        end = (turn >> 1) + 1
        if end > start:
            if weight:
                gaps = pool.get(weight)
                if gaps is None:
                    gaps = pool[weight] = array("q")
                gaps.extend(spans_ns[start:end])
            start = end
        weight += 1 if turn & 1 else -1
