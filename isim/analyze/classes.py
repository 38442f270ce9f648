"""What became of the promises of a run, and the same numbers for the requests of each class apart."""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence

import msgspec

from isim.analyze.collect import Collector, Status
from isim.analyze.latency import latency
from isim.analyze.schema import Latency, RequestClass, SloOutcome
from isim.analyze.slo import Measured, slo_outcome
from isim.scenario.types import Slo
from isim.workload.open import Label


def outcomes(
    collector: Collector,
    slo: Slo | None,
    labels: Mapping[int, Label],
    found: Latency,
    run: tuple[Sequence[int], int, int],
) -> tuple[SloOutcome | None, list[RequestClass]]:
    """What became of the promises, and the numbers of each class, by name.

    `found` are the latencies of all requests; `run` are their output tokens, the first that is not warm-up, and the ns
    from the end of the warm-up to the end of the last step.
    """
    output_tokens, first_measured, duration_ns = run
    requests = collector.requests
    measured = Measured(
        statuses=requests.status,
        output_tokens=output_tokens,
        first_measured=first_measured,
        arrived=len(requests) - first_measured,
        duration_ns=max(0, duration_ns),
    )
    members: dict[str, list[int]] = {}
    for request, (name, _, _, _) in labels.items():
        if name is not None:
            members.setdefault(name, []).append(request)
    classes = [_one(collector, slo, measured, (name, members[name])) for name in sorted(members)]
    return None if slo is None else slo_outcome(slo, collector, measured, found), classes


def _one(collector: Collector, slo: Slo | None, measured: Measured, named: tuple[str, list[int]]) -> RequestClass:
    name, members = named
    requests = collector.requests
    statuses = array("q", [Status.UNFINISHED]) * len(requests)
    for request in members:
        statuses[request] = requests.status[request]
    first_measured = measured.first_measured
    found = latency(collector, measured.output_tokens, first_measured, statuses)
    arrived = sum([request >= first_measured for request in members])
    part = msgspec.structs.replace(measured, statuses=statuses, arrived=arrived)
    served = [request for request in members if statuses[request] != Status.REJECTED]
    return RequestClass(
        name=name,
        arrived=len(members),
        completed=statuses.count(Status.COMPLETED),
        measured=statuses[first_measured:].count(Status.COMPLETED),
        preemptions=_sum(requests.preemptions, members),
        input_tokens=_sum(requests.input_tokens, served),
        output_tokens=_sum(measured.output_tokens, members),
        hit_tokens=_sum(requests.hit_tokens, members),
        latency=found,
        slo=None if slo is None else slo_outcome(slo, collector, part, found),
    )


def _sum(column: Sequence[int], members: list[int]) -> int:
    return sum([column[request] for request in members])
