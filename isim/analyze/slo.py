"""What became of the promises: limits for each request, targets for figures of all, and the goodput.

A request is good when it completed and kept every limit. Whether it kept one on the time between tokens follows from
counting the steps that took too long: between its first and its last token a request gets one from every step, but for
its late tokens, whose gap is the sum of the steps it waited for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate

import msgspec

from isim.analyze.collect import Collector, Status
from isim.analyze.exact import per_second, rounded, share
from isim.analyze.schema import Distribution, Goodput, Latency, SloLimit, SloOutcome, SloTarget
from isim.scenario.types import Slo

FIGURES = ("mean", "p50", "p90", "p95", "p99", "max")

Keeps = Callable[[int], bool]
"""Whether a completed request keeps the limit."""


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """Which requests are looked at: those of status completed in `statuses`, of `arrived` after the warm-up."""

    statuses: Sequence[int]
    output_tokens: Sequence[int]
    first_measured: int
    arrived: int
    duration_ns: int


def slo_outcome(slo: Slo, collector: Collector, measured: Measured, latency: Latency) -> SloOutcome:
    """The outcome over the measured requests, whose latencies are `latency`."""
    targets = _targets(slo, latency)
    requests = [
        request
        for request in range(measured.first_measured, len(measured.statuses))
        if measured.statuses[request] == Status.COMPLETED
    ]
    good = requests
    limits = []
    for name in slo.__struct_fields__:
        limit_ns = getattr(slo, name).each_ns
        if limit_ns is None:
            continue
        keeps = _KEEPS[name](collector, measured, limit_ns)
        kept = [request for request in requests if keeps(request)]
        limits.append(SloLimit(latency=f"{name}_ns", limit_ns=limit_ns, kept=len(kept)))
        good = [request for request in good if keeps(request)]
    verdicts = [target.met for target in targets]
    return SloOutcome(
        limits=limits,
        targets=targets,
        goodput=_goodput(good, measured) if limits else None,
        met=None if not verdicts or None in verdicts else all(verdicts),
    )


def _goodput(good: list[int], measured: Measured) -> Goodput:
    tokens = sum([measured.output_tokens[request] for request in good])
    return Goodput(
        requests=len(good),
        arrived=measured.arrived,
        share=share(len(good), measured.arrived),
        requests_per_s=per_second(len(good), measured.duration_ns),
        output_tokens_per_s=per_second(tokens, measured.duration_ns),
    )


def _targets(slo: Slo, latency: Latency) -> list[SloTarget]:
    targets = []
    for name in slo.__struct_fields__:
        values: Distribution = getattr(latency, f"{name}_ns")
        for figure in FIGURES:
            limit_ns: int | None = getattr(getattr(slo, name), f"{figure}_ns")
            if limit_ns is not None:
                actual_ns: int | None = getattr(values, figure)
                met = None if actual_ns is None else actual_ns <= limit_ns
                target = SloTarget(latency=f"{name}_ns", figure=figure, limit_ns=limit_ns, actual_ns=actual_ns, met=met)
                targets.append(target)
    return targets


def _keeps_ttft(collector: Collector, measured: Measured, limit_ns: int) -> Keeps:
    first_ns, sent_ns = collector.requests.first_ns, collector.requests.sent_ns
    return lambda request: first_ns[request] - sent_ns[request] <= limit_ns


def _keeps_e2e(collector: Collector, measured: Measured, limit_ns: int) -> Keeps:
    finish_ns, sent_ns = collector.requests.finish_ns, collector.requests.sent_ns
    return lambda request: finish_ns[request] - sent_ns[request] <= limit_ns


def _keeps_tpot(collector: Collector, measured: Measured, limit_ns: int) -> Keeps:
    requests, tokens = collector.requests, measured.output_tokens

    def keeps(request: int) -> bool:
        gaps = tokens[request] - 1
        return gaps < 1 or rounded(requests.finish_ns[request] - requests.first_ns[request], gaps) <= limit_ns

    return keeps


def _keeps_itl(collector: Collector, measured: Measured, limit_ns: int) -> Keeps:
    requests = collector.requests
    too_long = [
        list(accumulate((span_ns > limit_ns for span_ns in steps.spans_ns), initial=0)) for steps in collector.engines
    ]
    late: dict[int, int] = {}
    for request, step, previous in requests.late():
        engine = requests.engine[request]
        sums = too_long[engine]
        gap_ns = sum(collector.engines[engine].spans_ns[previous + 1 : step + 1])
        more = (gap_ns > limit_ns) - (sums[step + 1] - sums[previous + 1])
        late[request] = late.get(request, 0) + more

    def keeps(request: int) -> bool:
        sums = too_long[requests.engine[request]]
        first, last = requests.first_step[request], requests.last_step[request]
        return sums[last + 1] - sums[first + 1] + late.get(request, 0) == 0

    return keeps


_KEEPS: dict[str, Callable[[Collector, Measured, int], Keeps]] = {
    "ttft": _keeps_ttft,
    "tpot": _keeps_tpot,
    "itl": _keeps_itl,
    "e2e": _keeps_e2e,
}
