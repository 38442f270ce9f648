"""What happened in a stretch of time: completions and tokens per second, requests on the device, waiting.

A window holds what happened after its start, up to and including its end.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from itertools import accumulate, compress, pairwise, repeat
from operator import and_, eq, gt, le, ne, not_, sub

import msgspec

from isim.analyze.collect import NEVER, Collector, Status
from isim.analyze.exact import mean, per_second, rounded, share
from isim.analyze.schema import BatchOverTime, Load, LoadReason, LoadState, Rates
from isim.scenario.types import Warmup, WarmupDuration, WarmupRequests

BUCKETS = 60
_QUEUEING_STEPS = 3
_GROWING_STEPS = 10
_FULL_SHARE = 0.9


class WarmUpCut(msgspec.Struct, frozen=True, kw_only=True):
    """Requests below `first_measured` are warm-up; it ended at `end_ns`."""

    first_measured: int
    end_ns: int


def warm_up_cut(warmup: Warmup | None, arrival_ns: Sequence[int], overhead_ns: int = 0) -> WarmUpCut:
    """Which requests are warm-up. Arrivals are in order, so the warm-up is always the first few of them.

    With a duration it is those sent before that time, and ends when one sent then would arrive; otherwise it ends when
    the first measured request arrives, or at the last arrival when none is left.
    """
    arrived = len(arrival_ns)
    if isinstance(warmup, WarmupDuration):
        end_ns = warmup.duration_ns + overhead_ns
        return WarmUpCut(first_measured=bisect_left(arrival_ns, end_ns), end_ns=end_ns)
    if warmup is None:
        first = 0
    elif isinstance(warmup, WarmupRequests):
        first = min(warmup.requests, arrived)
    else:
        first = warmup.share_ppm * arrived // 1_000_000
    return WarmUpCut(first_measured=first, end_ns=arrival_ns[min(first, arrived - 1)] if arrived else 0)


def rates(collector: Collector, start_ns: int, end_ns: int) -> Rates:
    """Completed requests and tokens of the window, and their rates."""
    requests = collector.requests
    bounds = [(steps.ended_by(start_ns), steps.ended_by(end_ns) - 1) for steps in collector.engines]
    first_step, last_step = requests.first_step, requests.last_step
    from_steps = map([from_step for from_step, _ in bounds].__getitem__, requests.engine)
    to_steps = map([to_step for _, to_step in bounds].__getitem__, requests.engine)
    # Most requests lie within the window and are done: they are counted without a look at each.
    within = list(map(and_, map(le, from_steps, first_step), map(le, last_step, to_steps)))
    within = list(map(and_, within, map(eq, requests.status, repeat(Status.COMPLETED.value))))
    completed = within.count(True)
    input_tokens = sum(compress(requests.input_tokens, within))
    output_tokens = sum(compress(map(sub, last_step, first_step), within)) + completed
    others = zip(requests.engine, first_step, last_step, requests.status, requests.input_tokens, strict=True)
    for engine, first, last, status, prompt_tokens in compress(others, map(not_, within)):
        from_step, to_step = bounds[engine]
        if first < 0 or last < from_step or first > to_step:
            continue
        if first >= from_step:
            input_tokens += prompt_tokens
        else:
            first = from_step
        if last > to_step:
            last = to_step
        elif status == Status.COMPLETED:
            completed += 1
        output_tokens += last - first + 1
    for request, step, previous in requests.late():
        from_step, to_step = bounds[requests.engine[request]]
        output_tokens -= max(0, min(step - 1, to_step) - max(previous + 1, from_step) + 1)
    return _rates(start_ns, end_ns, completed, input_tokens, output_tokens)


def whole_rates(collector: Collector, tokens: Sequence[int], start_ns: int, end_ns: int) -> Rates:
    """The rates of a window that holds the whole run; `tokens` is the output of each request."""
    requests = collector.requests
    input_tokens = sum(compress(requests.input_tokens, map(ne, requests.first_step, repeat(NEVER))))
    return _rates(start_ns, end_ns, requests.status.count(Status.COMPLETED), input_tokens, sum(tokens))


def _rates(start_ns: int, end_ns: int, completed: int, input_tokens: int, output_tokens: int) -> Rates:
    duration_ns = end_ns - start_ns
    return Rates(
        start_ns=start_ns,
        end_ns=end_ns,
        requests=completed,
        input_tokens=input_tokens,
        output_tokens=output_tokens,
        requests_per_s=per_second(completed, duration_ns),
        output_tokens_per_s=per_second(output_tokens, duration_ns),
        total_tokens_per_s=per_second(input_tokens + output_tokens, duration_ns),
    )


def batch_over_time(collector: Collector, start_ns: int, end_ns: int) -> BatchOverTime:
    """Mean number of requests on the device in BUCKETS equal parts of the window, the last digit a thousandth."""
    span_ns = end_ns - start_ns
    if span_ns < BUCKETS:
        return BatchOverTime(start_ns=start_ns, end_ns=end_ns, mean_batch_milli=[])
    cuts = [start_ns + span_ns * part // BUCKETS for part in range(BUCKETS + 1)]
    areas = [sum(steps.area_by(cut) for steps in collector.engines) for cut in cuts]
    means = [rounded(1000 * (areas[part + 1] - areas[part]), cuts[part + 1] - cuts[part]) for part in range(BUCKETS)]
    return BatchOverTime(start_ns=start_ns, end_ns=end_ns, mean_batch_milli=means)


def load(collector: Collector, cut: WarmUpCut, last_arrival_ns: int, usable_blocks: int) -> Load:
    """Whether the configuration keeps up with what arrives; see the descriptions in `isim.analyze.schema.Load`."""
    requests = collector.requests
    measured = requests.status[cut.first_measured :]
    served = len(measured) - measured.count(Status.REJECTED)
    span_ns = last_arrival_ns - cut.end_ns
    quarters = _queue_by_quarter(collector, cut.first_measured)
    never_started = requests.start_ns.count(NEVER) - requests.status.count(Status.REJECTED)
    waiting = never_started + sum(map(gt, requests.start_ns, repeat(last_arrival_ns)))
    area = sum(steps.area_by(last_arrival_ns) - steps.area_by(cut.end_ns) for steps in collector.engines)
    seats = collector.header.engine.max_num_seqs * len(collector.engines)
    seat_share = share(area, span_ns * seats) if span_ns > 0 else None
    system = _system_by_quarter(collector, cut.end_ns, span_ns)
    kv_share = share(high_water_blocks(collector), usable_blocks)
    state: LoadState | None = None
    reasons: list[LoadReason] = []
    if span_ns > 0 and served >= 4:
        tests = {
            LoadReason.QUEUE_GROWS: _grows(quarters, _mean_step_ns(collector)),
            LoadReason.REQUESTS_QUEUE: _queues(quarters, _mean_step_ns(collector)),
            LoadReason.SEATS: seat_share is not None and seat_share >= _FULL_SHARE,
            LoadReason.KV_BLOCKS: kv_share is not None and kv_share >= _FULL_SHARE,
            LoadReason.PREEMPTION: any(requests.preemptions),
            LoadReason.SYSTEM_GROWS: _system_grows(system),
        }
        reasons = [reason for reason, holds in tests.items() if holds]
        state = LoadState.STABLE if not reasons else LoadState.NEAR_SATURATION
        if LoadReason.QUEUE_GROWS in reasons:
            state = LoadState.OVERLOADED
    return Load(
        state=state,
        reasons=reasons,
        waiting_at_last_arrival=waiting,
        queue_mean_ns_by_quarter=quarters,
        system_mean_milli_by_quarter=system,
        seat_share=seat_share,
        kv_share=kv_share,
    )


def time_since(times_ns: Iterable[int], cuts: Sequence[int]) -> list[int]:
    """For each cut the sum over all times before it of how long ago they are, in ns."""
    ordered = sorted(times_ns)
    sums = list(accumulate(ordered, initial=0))
    counts = [bisect_right(ordered, cut) for cut in cuts]
    return [count * cut - sums[count] for count, cut in zip(counts, cuts, strict=True)]


def high_water_blocks(collector: Collector) -> int:
    """The most KV blocks in use after any decision, of any one engine."""
    return max((steps.usable_blocks - steps.least_free_blocks for steps in collector.engines), default=0)


def busy_ns(collector: Collector) -> int:
    """Sum of the durations of all steps of all engines."""
    return sum(steps.last_end_ns - steps.idle_ns for steps in collector.engines)


def _mean_step_ns(collector: Collector) -> int:
    steps = sum(len(steps.spans_ns) for steps in collector.engines)
    return busy_ns(collector) // max(1, steps)


def _queue_by_quarter(collector: Collector, first_measured: int) -> list[int | None]:
    requests = collector.requests
    measured = len(requests) - first_measured
    means: list[int | None] = []
    for quarter in range(4):
        part = slice(first_measured + measured * quarter // 4, first_measured + measured * (quarter + 1) // 4)
        starts_ns = requests.start_ns[part]
        started = list(map(ne, starts_ns, repeat(NEVER)))
        waits = compress(map(sub, starts_ns, requests.arrival_ns[part]), started)
        means.append(mean(sum(waits), started.count(True)))
    return means


def _system_by_quarter(collector: Collector, start_ns: int, span_ns: int) -> list[int]:
    """Mean number of requests in the system in each quarter of the time, in thousandths; who is rejected never is."""
    if span_ns < 4:
        return []
    requests = collector.requests
    left_ns: Iterable[int] = requests.finish_ns
    if requests.status.count(Status.COMPLETED) < len(requests):
        gone_ns = collector.gone_ns
        rows = zip(requests.status, requests.finish_ns, requests.arrival_ns, strict=True)
        left_ns = [
            finish_ns if status == Status.COMPLETED else arrival_ns if status == Status.REJECTED else gone_ns(request)
            for request, (status, finish_ns, arrival_ns) in enumerate(rows)
        ]
    cuts = [start_ns + span_ns * quarter // 4 for quarter in range(5)]
    came, left = time_since(requests.arrival_ns, cuts), time_since(left_ns, cuts)
    areas = [before - after for before, after in zip(came, left, strict=True)]
    quarters = zip(pairwise(areas), pairwise(cuts), strict=True)
    return [rounded(1000 * (after - before), end - start) for (before, after), (start, end) in quarters]


def _system_grows(quarters: Sequence[int]) -> bool:
    """Compared with the spread of a Poisson number, so that a few requests more or less are no growth."""
    if not quarters:
        return False
    second, last = quarters[1], quarters[3]
    return 2 * last > 3 * second and last > second and (last - second) ** 2 > 16 * 1000 * second


def _queues(quarters: Sequence[int | None], step_ns: int) -> bool:
    return max(quarters[2] or 0, quarters[3] or 0) > _QUEUEING_STEPS * step_ns


def _grows(quarters: Sequence[int | None], step_ns: int) -> bool:
    second, last = quarters[1], quarters[3]
    if second is None or last is None:
        return False
    return last > 2 * second and last - second > _GROWING_STEPS * step_ns
