"""What `result.json` holds, as values; the descriptions are the definitions and go into `isim schema result`.

Times are integer nanoseconds of simulated time. Rates and shares are the doubles nearest to exact quotients of
integers. What is not defined (the mean of nothing, a rate over no time) is null, never 0.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import msgspec
from msgspec import Meta

from isim.analyze.schema_details import Details, DetailState
from isim.model.spec import Confidence
from isim.record.records import RejectReason

SCHEMA = "isim/result"
REVISION = 3


class ReplayState(StrEnum):
    PASSED = "passed"
    NOT_RUN = "not_run"


class LoadState(StrEnum):
    STABLE = "stable"
    NEAR_SATURATION = "near_saturation"
    OVERLOADED = "overloaded"


class LoadReason(StrEnum):
    QUEUE_GROWS = "queue_grows"
    REQUESTS_QUEUE = "requests_queue"
    SEATS = "seats"
    KV_BLOCKS = "kv_blocks"
    PREEMPTION = "preemption"
    SYSTEM_GROWS = "system_grows"
    STEP_TIME = "step_time"


class Digests(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """SHA-256 of what went in and of what happened."""

    scenario: Annotated[str, Meta(description="Of the resolved scenario, without what cannot change a result.")]
    log: Annotated[
        str | None, Meta(description="Of the log, expanded to single steps; null when neither log nor replay was on.")
    ]
    workload: Annotated[
        str | None, Meta(description="Of the decompressed bytes read of the trace; null for a generated workload.")
    ]


class Simulated(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What was simulated, every default applied, in words."""

    model: str
    hardware: str
    engine: str
    workload: str
    cost: str


class Confidences(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How far numbers can be trusted: each has the weakest class of the inputs it rests on."""

    kv_capacity: Annotated[
        Confidence,
        Meta(description="Of the size of the KV pool; exact where it was measured (num_gpu_blocks_override)."),
    ]
    latency: Annotated[
        Confidence,
        Meta(description="Of latencies, throughput, and all else that rests on step times as well; never exact."),
    ]


class WarmUp(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Requests that are sent in the warm-up are left out of every latency and of the load, not of the counts."""

    rule: Annotated[str, Meta(description="As asked for: `none`, a duration, a number or a share of the requests.")]
    requests_left_out: int
    end_ns: Annotated[
        int,
        Meta(
            description="The duration asked for and the overhead of requests, or the arrival of the first request that "
            "is not warm-up."
        ),
    ]


class Counts(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """arrived = completed + rejected + unfinished + aborted."""

    arrived: int
    completed: int
    rejected: Annotated[int, Meta(description="Refused by the engine at arrival.")]
    unfinished: int
    aborted: Annotated[int, Meta(description="Cancelled from outside.")]
    rejected_by_reason: dict[RejectReason, int]
    measured: Annotated[int, Meta(description="Completed and not warm-up: the requests that the latencies are of.")]
    preemptions: int
    preempted_requests: Annotated[int, Meta(description="Requests preempted at least once.")]
    input_tokens: Annotated[int, Meta(description="Prompt tokens of the requests that were not rejected.")]
    output_tokens: Annotated[int, Meta(description="Tokens delivered, those of aborted requests included.")]
    hit_tokens: Annotated[int, Meta(description="Prompt tokens found in the prefix cache at first admissions.")]
    hit_requests: Annotated[int, Meta(description="Requests that found any there.")]
    hit_share: Annotated[float | None, Meta(description="hit_tokens / input_tokens.")]
    resumed_hit_tokens: Annotated[
        int, Meta(description="Tokens found in the prefix cache when preempted requests were admitted again.")
    ]
    truncated_outputs: Annotated[
        int, Meta(description="Requests whose output was cut because prompt + output exceeds max_model_len.")
    ]
    client_input_tokens: Annotated[
        int | None,
        Meta(description="`input_tokens` as the clients counted them; null where the workload tells no count but one."),
    ] = None


class Distribution(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Nearest-rank percentiles: the value at rank max(1, ceil(p / 100 x count)) of the ascending values.

    The mean is the sum divided by the count, rounded half to even. All null when the count is 0.
    """

    count: int
    mean: int | None
    p50: int | None
    p90: int | None
    p95: int | None
    p99: int | None
    max: int | None


class Latency(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Over the measured requests. A client's times count from when it sent the request."""

    ttft_ns: Annotated[
        Distribution, Meta(description="Time to first token: from sending to the end of the step it is from.")
    ]
    tpot_ns: Annotated[
        Distribution,
        Meta(
            description="Time per output token of a request of n tokens: (E2E - TTFT) / (n - 1), rounded half to even. "
            "Not defined for n = 1; such requests are not among the values."
        ),
    ]
    itl_ns: Annotated[
        Distribution,
        Meta(
            description="Inter-token latency: every gap between two successive tokens of a request, n - 1 for a "
            "request of n tokens, all requests pooled. The wait for the first token is not among them."
        ),
    ]
    e2e_ns: Annotated[Distribution, Meta(description="From sending to the end of the step that gave the last token.")]
    overhead_ns: Annotated[
        Distribution,
        Meta(
            description="From sending to arrival: `engine.request_overhead` of the run file, the same for every "
            "request. TTFT is overhead + queue + prefill."
        ),
    ]
    queue_ns: Annotated[
        Distribution, Meta(description="Arrival at the engine to the start of the first step that schedules it.")
    ]
    prefill_ns: Annotated[Distribution, Meta(description="From there to the first token, preemptions included.")]


class Rates(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What happened after `start_ns`, up to and including `end_ns`; the rates are null for a window of no length."""

    start_ns: int
    end_ns: int
    requests: Annotated[int, Meta(description="Requests that completed in the window.")]
    input_tokens: Annotated[int, Meta(description="Prompt tokens of requests whose first token lies in the window.")]
    output_tokens: Annotated[int, Meta(description="Tokens delivered in the window.")]
    requests_per_s: float | None
    output_tokens_per_s: float | None
    total_tokens_per_s: Annotated[float | None, Meta(description="Input and output tokens.")]


class Throughput(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    whole_run: Annotated[Rates, Meta(description="From the first arrival to the end of the last step.")]
    steady_state: Annotated[
        Rates | None,
        Meta(description="From the end of the warm-up (none: the first arrival) to the last arrival; null if empty."),
    ]


class KvDerivation(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    label: str
    bytes: int


class Kv(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The pool of KV blocks."""

    num_blocks: Annotated[int, Meta(description="All blocks, the null block included.")]
    usable_blocks: int
    high_water_blocks: Annotated[int, Meta(description="The most blocks in use after any decision.")]
    block_size_tokens: int
    block_bytes: Annotated[int, Meta(description="Of one block, all layers, on one rank.")]
    kv_bytes: int
    source: Annotated[str, Meta(description="`derived` from memory and model, or an `override` of the run file.")]
    derived_blocks: Annotated[int | None, Meta(description="What the derivation gives; null when it leaves no room.")]
    override_blocks: Annotated[int | None, Meta(description="num_gpu_blocks_override of the run file.")]
    derivation: list[KvDerivation]
    notes: list[str]


class Steps(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    total: int
    decode_only: int
    with_prefill: Annotated[int, Meta(description="Steps that compute prompt tokens, or recompute after a preemption.")]
    max_running: Annotated[int, Meta(description="The most requests running at once, of one engine.")]


class Busy(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The device's time. The whole lasts from the first arrival to the end of the last step."""

    duration_ns: int
    busy_ns: Annotated[int, Meta(description="Sum of step durations over all engines.")]
    utilisation: Annotated[float | None, Meta(description="busy_ns / (engines x duration_ns).")]


class BatchOverTime(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Time-weighted mean number of requests on the device, idle time counting 0.

    Part k of K lasts from start + span x k // K to start + span x (k + 1) // K; empty for a window shorter than K ns.
    """

    start_ns: int
    end_ns: int
    mean_batch_milli: Annotated[list[int], Meta(description="In thousandths of a request, rounded half to even.")]


class Load(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Whether the configuration keeps up with what arrives: a simple flag, from the end of the warm-up on.

    `overloaded` when `queue_grows`; otherwise `near_saturation` when there is any reason; otherwise `stable`. Near
    saturation a small error of the step times changes latencies a lot. Null when fewer than four requests arrive after
    the warm-up and are not rejected, or when all arrive at once.

    queue_grows      the mean queue time of the last quarter of the requests is more than twice that of the second
                     quarter, and more than 10 mean steps above it
    requests_queue   the mean queue time of the third or last quarter exceeds 3 mean steps
    seats            on average at least 90 % of max_num_seqs were on the device
    kv_blocks        the high water of the KV blocks is at least 90 % of the usable ones
    preemption       requests were preempted
    system_grows     the mean number of requests in the system over the last quarter of the time is more than one and a
                     half times that of the second quarter, and more than four times its square root above it
    step_time        only where `details.sensitivity` is given: with steps 10 % longer the load is overloaded, or the
                     mean TTFT or E2E is more than 20 % greater
    """

    state: LoadState | None
    reasons: list[LoadReason]
    waiting_at_last_arrival: Annotated[int, Meta(description="Requests not yet started when the last one arrived.")]
    queue_mean_ns_by_quarter: Annotated[
        list[int | None], Meta(description="Mean queue time of each quarter of the requests, in order of arrival.")
    ]
    system_mean_milli_by_quarter: Annotated[
        list[int],
        Meta(
            description="Time-weighted mean number of requests that arrived and have not left, in thousandths, in each "
            "quarter of the time from the end of the warm-up to the last arrival; empty where that is no time."
        ),
    ]
    seat_share: Annotated[float | None, Meta(description="Mean requests on the device in the steady state / seats.")]
    kv_share: Annotated[float | None, Meta(description="High water / usable blocks.")]


class SloLimit(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What every request has to keep. A request of one token keeps any limit on TPOT and ITL."""

    latency: Annotated[str, Meta(description="The name of the latency: ttft_ns, tpot_ns, itl_ns, e2e_ns.")]
    limit_ns: int
    kept: Annotated[int, Meta(description="Measured requests that kept it; for ITL with every gap.")]


class SloTarget(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a figure of the latencies has to keep."""

    latency: str
    figure: Annotated[str, Meta(description="mean, p50, p90, p95, p99 or max of the measured requests.")]
    limit_ns: int
    actual_ns: int | None
    met: Annotated[bool | None, Meta(description="Whether actual <= limit; null where nothing was measured.")]


class Goodput(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Requests that completed and kept every limit, of those that arrived after the warm-up.

    The rates are over the time from the end of the warm-up (none: the first arrival) to the end of the last step.
    """

    requests: int
    arrived: Annotated[int, Meta(description="Those rejected, aborted or unfinished included.")]
    share: float | None
    requests_per_s: float | None
    output_tokens_per_s: Annotated[float | None, Meta(description="Output tokens of the good requests.")]


class SloOutcome(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What became of the `slo` block of the run file."""

    limits: list[SloLimit]
    targets: list[SloTarget]
    goodput: Annotated[Goodput | None, Meta(description="Null where no limit is for each request.")]
    met: Annotated[bool | None, Meta(description="Whether all targets are met; null without targets or measurements.")]


class RequestClass(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The requests of one class of the workload, counted and measured as all of them are."""

    name: str
    arrived: int
    completed: int
    measured: int
    preemptions: int
    input_tokens: int
    output_tokens: int
    hit_tokens: int
    latency: Latency
    slo: SloOutcome | None


class Result(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The numbers of one run. Equal scenario, seed and version give equal bytes.

    Token times are ends of steps. Every token is delivered at the end of the step that computed it. An arrival is that
    at the engine, `overhead_ns` after the client sent the request.
    """

    schema: str
    revision: int
    isim_version: str
    name: str
    digests: Digests
    seed: int
    replay: Annotated[ReplayState, Meta(description="Whether an independent checker verified the log of this run.")]
    confidence: Confidences
    assumptions: list[str]
    provenance: list[str]
    simulated: Simulated
    warm_up: WarmUp
    counts: Counts
    latency: Latency
    throughput: Throughput
    kv: Kv
    steps: Steps
    busy: Busy
    batch_over_time: BatchOverTime
    load: Load
    slo: Annotated[SloOutcome | None, Meta(description="Null where nothing was promised.")] = None
    classes: Annotated[list[RequestClass], Meta(description="By name; empty where no request has a class.")] = []
    first_visible_ns: Annotated[
        Distribution | None,
        Meta(
            description="Sending to the first token after the reasoning ones, of measured requests that have one; null "
            "where no request says how much of its output is reasoning."
        ),
    ] = None
    details: Details = Details(state=DetailState.OFF)
    beyond_fit: Annotated[
        list[str],
        Meta(description="How the run leaves the range in which its cost factors were fitted; empty if none is told."),
    ] = []
