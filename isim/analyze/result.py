"""From the columns of a run to its `Result`, and that as canonical JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import compress, repeat
from operator import add, and_, gt, ne

import msgspec

from isim.analyze.beyond_fit import beyond_fit, largest_batch
from isim.analyze.collect import Collector, RequestColumns, Status
from isim.analyze.describe import warm_up_rule
from isim.analyze.exact import share
from isim.analyze.latency import latency, token_counts
from isim.analyze.schema import (
    REVISION,
    SCHEMA,
    Busy,
    Confidences,
    Counts,
    Digests,
    Distribution,
    Kv,
    KvDerivation,
    ReplayState,
    RequestClass,
    Result,
    Simulated,
    SloOutcome,
    Steps,
    Throughput,
    WarmUp,
)
from isim.analyze.windows import (
    WarmUpCut,
    batch_over_time,
    busy_ns,
    high_water_blocks,
    load,
    rates,
    warm_up_cut,
    whole_rates,
)
from isim.cost.memory import KvCapacity
from isim.model.spec import Confidence
from isim.record.records import RejectReason
from isim.scenario.types import Scenario, Slo, Warmup
from isim.workload.open import Label


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a run besides its log. `log_digest` and `workload_sha256` None: not computed, or no trace.

    `confidence` is that of latencies and throughput; that of the KV pool is in `capacity`. `scenario` is what was run,
    None where only a log is known.
    """

    name: str
    simulated: Simulated
    warmup: Warmup | None
    capacity: KvCapacity
    confidence: Confidence
    assumptions: Sequence[str]
    provenance: Sequence[str]
    log_digest: str | None
    workload_sha256: str | None
    replay: ReplayState
    slo: Slo | None = None
    labels: Mapping[int, Label] = {}
    scenario: Scenario | None = None


class Analysis(msgspec.Struct, frozen=True, kw_only=True):
    """A result, and the columns it is of, for the table of requests."""

    result: Result
    collector: Collector
    output_tokens: Sequence[int]
    first_measured: int
    labels: Mapping[int, Label]
    visible_ns: Mapping[int, int]


def analyze(collector: Collector, facts: Facts) -> Analysis:
    """All numbers of a run whose whole log `collector` has read; finishes the collector."""
    collector.finish()
    header = collector.header
    requests = collector.requests
    counts = token_counts(requests)
    cut = warm_up_cut(facts.warmup, requests.arrival_ns, header.request_overhead_ns)
    first_ns, last_ns = (requests.arrival_ns[0], requests.arrival_ns[-1]) if len(requests) else (0, 0)
    end_ns = max((steps.last_end_ns for steps in collector.engines), default=0)
    end_ns = max(first_ns, end_ns)
    steady_ns = first_ns if facts.warmup is None else cut.end_ns
    found = latency(collector, counts, cut.first_measured)
    labels = facts.labels
    slo: SloOutcome | None = None
    classes: list[RequestClass] = []
    if facts.slo is not None or labels:
        from isim.analyze.classes import outcomes  # only who promises something, or tells classes apart, pays for it

        slo, classes = outcomes(collector, facts.slo, labels, found, (counts, cut.first_measured, end_ns - steady_ns))
    reasoning = {who: tokens for who, (_, _, _, tokens) in labels.items() if tokens is not None}
    visible_ns: dict[int, int] = {}
    visible: Distribution | None = None
    if reasoning:
        from isim.analyze.visible import first_visible_ns, visible_distribution

        visible_ns = first_visible_ns(collector, reasoning, counts)
        visible = visible_distribution(collector, visible_ns, cut.first_measured)
    result = Result(
        schema=SCHEMA,
        revision=REVISION,
        isim_version=header.isim_version,
        name=facts.name,
        digests=Digests(scenario=header.scenario_digest, log=facts.log_digest, workload=facts.workload_sha256),
        seed=header.seed,
        replay=facts.replay,
        confidence=Confidences(kv_capacity=facts.capacity.confidence, latency=facts.confidence),
        assumptions=list(facts.assumptions),
        provenance=list(facts.provenance),
        simulated=facts.simulated,
        warm_up=WarmUp(
            rule=warm_up_rule(facts.warmup),
            requests_left_out=cut.first_measured,
            end_ns=0 if facts.warmup is None else cut.end_ns,
        ),
        counts=_counts(collector, counts, cut, labels),
        latency=found,
        throughput=Throughput(
            whole_run=whole_rates(collector, counts, first_ns, end_ns),
            steady_state=rates(collector, steady_ns, last_ns) if steady_ns < last_ns else None,
        ),
        kv=_kv(collector, facts.capacity),
        steps=_steps(collector),
        busy=_busy(collector, end_ns - first_ns),
        batch_over_time=batch_over_time(collector, first_ns, end_ns),
        load=load(collector, cut, last_ns, facts.capacity.usable_blocks),
        slo=slo,
        classes=classes,
        first_visible_ns=visible,
        beyond_fit=[] if facts.scenario is None else beyond_fit(facts.scenario, collector),
    )
    return Analysis(
        result=result,
        collector=collector,
        output_tokens=counts,
        first_measured=cut.first_measured,
        labels=labels,
        visible_ns=visible_ns,
    )


def encode(result: Result) -> bytes:
    """Canonical `result.json`: fields in declared order, two spaces of indent, a newline at the end."""
    return msgspec.json.format(msgspec.json.encode(result), indent=2) + b"\n"


def _counts(collector: Collector, tokens: Sequence[int], cut: WarmUpCut, labels: Mapping[int, Label]) -> Counts:
    requests = collector.requests
    status = requests.status
    reasons = list(requests.reasons.values())
    served = map(ne, status, repeat(Status.REJECTED.value))
    input_tokens = sum(compress(requests.input_tokens, served))
    return Counts(
        arrived=len(requests),
        completed=status.count(Status.COMPLETED),
        rejected=status.count(Status.REJECTED),
        unfinished=status.count(Status.UNFINISHED),
        aborted=status.count(Status.ABORTED),
        rejected_by_reason={reason: reasons.count(reason) for reason in RejectReason},
        measured=status[cut.first_measured :].count(Status.COMPLETED),
        preemptions=sum(requests.preemptions),
        preempted_requests=len(requests) - requests.preemptions.count(0),
        input_tokens=input_tokens,
        output_tokens=sum(tokens),
        hit_tokens=sum(requests.hit_tokens),
        hit_requests=len(requests) - requests.hit_tokens.count(0),
        hit_share=share(sum(requests.hit_tokens), input_tokens),
        resumed_hit_tokens=collector.resumed_hit_tokens,
        truncated_outputs=_truncated(requests, collector.header.engine.max_model_len),
        client_input_tokens=_client_tokens(requests, labels),
    )


def _client_tokens(requests: RequestColumns, labels: Mapping[int, Label]) -> int | None:
    clients = {request: client for request, (_, _, client, _) in labels.items() if client is not None}
    if not clients:
        return None
    counted = zip(requests.input_tokens, requests.status, strict=True)
    return sum(clients.get(request, tokens) for request, (tokens, how) in enumerate(counted) if how != Status.REJECTED)


def _truncated(requests: RequestColumns, max_model_len: int) -> int:
    asked = map(add, requests.input_tokens, requests.asked_tokens)
    served = map(ne, requests.status, repeat(Status.REJECTED.value))
    return sum(map(and_, map(gt, asked, repeat(max_model_len)), served))


def _kv(collector: Collector, capacity: KvCapacity) -> Kv:
    return Kv(
        num_blocks=capacity.num_blocks,
        usable_blocks=capacity.usable_blocks,
        high_water_blocks=high_water_blocks(collector),
        block_size_tokens=collector.header.engine.block_size,
        block_bytes=capacity.block_bytes,
        kv_bytes=capacity.kv_bytes,
        source=capacity.source,
        derived_blocks=capacity.derived_blocks,
        override_blocks=capacity.override_blocks,
        derivation=[KvDerivation(label=label, bytes=amount) for label, amount in capacity.derivation],
        notes=list(capacity.notes),
    )


def _steps(collector: Collector) -> Steps:
    total = sum(len(steps.spans_ns) for steps in collector.engines)
    with_prefill = sum(steps.prefill_steps for steps in collector.engines)
    return Steps(
        total=total,
        decode_only=total - with_prefill,
        with_prefill=with_prefill,
        max_running=largest_batch(collector),
    )


def _busy(collector: Collector, duration_ns: int) -> Busy:
    return Busy(
        duration_ns=duration_ns,
        busy_ns=busy_ns(collector),
        utilisation=share(busy_ns(collector), duration_ns * len(collector.engines)),
    )
