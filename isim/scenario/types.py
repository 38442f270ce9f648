"""What is asked of a run, as frozen values with every default resolved.

A `Scenario` holds nothing that still has to be looked up or decided: presets are figures, `auto` is a type, the
engine's defaults are numbers. Times are nanoseconds, sizes bytes, shares parts per million, and what needs a
fraction is a `Ratio` of two integers, so that no figure of a run file is ever rounded.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec
from msgspec import UNSET, UnsetType

from isim.model.spec import Dtype, ModelSpec
from isim.record.records import EngineVersion, LinearCoefficients, RouterFacts, SchedulingPolicy
from isim.scenario.fitted import Fitted
from isim.scenario.presets.gpus import GpuSpec, LinkSpec
from isim.scenario.reserved import ReservedMemory


class Ratio(msgspec.Struct, frozen=True, kw_only=True):
    """The exact fraction numerator / denominator in lowest terms, denominator > 0."""

    numerator: int
    denominator: int = 1


class Hardware(msgspec.Struct, frozen=True, kw_only=True):
    """`count` equal GPUs, joined by `gpu.link`: the run file's `interconnect`, or the preset's link."""

    gpu: GpuSpec
    count: int

    @property
    def interconnect(self) -> LinkSpec | None:
        """What joins the GPUs; None where several cannot be joined."""
        return self.gpu.link


class Model(msgspec.Struct, frozen=True, kw_only=True):
    """`path` is that of the config.json the spec was read from, relative to the run file; left out without one."""

    spec: ModelSpec
    weight_dtype: Dtype
    activation_dtype: Dtype
    path: str | UnsetType = UNSET


class Engine(msgspec.Struct, frozen=True, kw_only=True):
    """One vLLM engine in its own names, every default applied.

    `num_gpu_blocks_override` counts the null block, as vLLM's does; None: the pool is derived from the memory.
    `long_prefill_token_threshold` 0 is off. `enable_expert_parallel` is True or left out, `reserved_memory` too.
    `request_overhead_ns` is what lies between a client's sending and the queue; above 0 or left out.
    """

    version: EngineVersion
    tensor_parallel_size: int
    max_num_seqs: int
    max_num_batched_tokens: int
    block_size: int
    enable_prefix_caching: bool
    enable_chunked_prefill: bool
    long_prefill_token_threshold: int
    scheduler_reserve_full_isl: bool
    async_scheduling: bool
    gpu_memory_utilization_ppm: int
    kv_cache_dtype: Dtype
    num_gpu_blocks_override: int | None
    max_model_len: int
    scheduling_policy: SchedulingPolicy
    enable_expert_parallel: bool | UnsetType = UNSET
    reserved_memory: ReservedMemory | UnsetType = UNSET
    request_overhead_ns: int | UnsetType = UNSET


class Constant(msgspec.Struct, frozen=True, kw_only=True, tag="constant"):
    tokens: int


class Uniform(msgspec.Struct, frozen=True, kw_only=True, tag="uniform"):
    """Every whole number from `low_tokens` to `high_tokens`, both included, equally likely."""

    low_tokens: int
    high_tokens: int


class LogNormal(msgspec.Struct, frozen=True, kw_only=True, tag="lognormal"):
    """exp(ln(median) + sigma x normal), confined to `min_tokens` to `max_tokens`; sigma in parts per million."""

    median_tokens: int
    sigma_ppm: int
    min_tokens: int
    max_tokens: int


class Empirical(msgspec.Struct, frozen=True, kw_only=True, tag="empirical"):
    """One of `tokens`, as likely as its share of the `weights`; without weights all are equally likely."""

    tokens: tuple[int, ...]
    weights: tuple[int, ...] = ()


class EmpiricalFile(msgspec.Struct, frozen=True, kw_only=True, tag="empirical_file"):
    """Lengths as often as a file has them. `path` is relative to the run file."""

    path: str


LengthSpec = Constant | Uniform | LogNormal | Empirical | EmpiricalFile


class FixedRate(msgspec.Struct, frozen=True, kw_only=True, tag="fixed_rate"):
    """Request i arrives at i / rate seconds."""

    rate_per_s: Ratio


class Poisson(msgspec.Struct, frozen=True, kw_only=True, tag="poisson"):
    """Independent exponential gaps of mean 1 / rate seconds."""

    rate_per_s: Ratio


class Gamma(msgspec.Struct, frozen=True, kw_only=True, tag="gamma"):
    """Independent gamma gaps of mean 1 / rate seconds; `cv_ppm` is their coefficient of variation."""

    rate_per_s: Ratio
    cv_ppm: int


class Ramp(msgspec.Struct, frozen=True, kw_only=True, tag="ramp"):
    """A Poisson process whose rate goes in a straight line from one to the other, then stays."""

    from_per_s: Ratio
    to_per_s: Ratio
    over_ns: int


class Diurnal(msgspec.Struct, frozen=True, kw_only=True, tag="diurnal"):
    """A Poisson process whose rate goes in straight lines from low up to high and down again, over and over."""

    low_per_s: Ratio
    high_per_s: Ratio
    period_ns: int


class Burst(msgspec.Struct, frozen=True, kw_only=True, tag="burst"):
    """A Poisson process of the base rate, but for the last `burst_ns` of every period."""

    base_per_s: Ratio
    burst_per_s: Ratio
    period_ns: int
    burst_ns: int


Arrivals = FixedRate | Poisson | Gamma | Ramp | Diurnal | Burst


class RequestFormat(StrEnum):
    CSV = "csv"
    JSONL = "jsonl"


class Window(msgspec.Struct, frozen=True, kw_only=True):
    """Arrivals from `start_ns` up to but without `end_ns`, in the trace's own time since its first request."""

    start_ns: int
    end_ns: int


class AzureTrace(msgspec.Struct, frozen=True, kw_only=True, tag="azure_trace"):
    """An Azure LLM inference trace (CSV, gzip or not). `path` is relative to the run file.

    `limit` is the number of requests kept, None all; `time_scale` multiplies the time between arrivals.
    """

    path: str
    limit: int | None
    time_scale: Ratio
    window: Window | None


class MooncakeTrace(msgspec.Struct, frozen=True, kw_only=True, tag="mooncake_trace"):
    """A Mooncake trace (JSON Lines, gzip or not); the fields as in AzureTrace."""

    path: str
    limit: int | None
    time_scale: Ratio
    window: Window | None


class RequestFile(msgspec.Struct, frozen=True, kw_only=True, tag="request_file"):
    """Requests in isim's own format; the other fields as in AzureTrace."""

    path: str
    format: RequestFormat
    limit: int | None
    time_scale: Ratio
    window: Window | None


class SharedPrefix(msgspec.Struct, frozen=True, kw_only=True):
    """The first `tokens` tokens of a prompt are those of one of `groups` groups, all equally likely."""

    groups: int
    tokens: int


class Traffic(msgspec.Struct, frozen=True, kw_only=True):
    """What requests of one kind are like. `prompt_pool` None: no prompt comes again. `weight` counts in a mixture."""

    input_tokens: LengthSpec
    output_tokens: LengthSpec
    priority: int = 0
    shared_prefix: SharedPrefix | None = None
    prompt_pool: int | None = None
    weight: int = 1


class Generated(msgspec.Struct, frozen=True, kw_only=True, tag="generated"):
    arrivals: Arrivals
    requests: int
    input_tokens: LengthSpec
    output_tokens: LengthSpec
    priority: int = 0
    shared_prefix: SharedPrefix | None = None
    prompt_pool: int | None = None

    @property
    def traffic(self) -> Traffic:
        """The requests without their arrivals."""
        return Traffic(
            input_tokens=self.input_tokens,
            output_tokens=self.output_tokens,
            priority=self.priority,
            shared_prefix=self.shared_prefix,
            prompt_pool=self.prompt_pool,
        )


class Mixture(msgspec.Struct, frozen=True, kw_only=True, tag="mixture"):
    """Requests of several classes, by name, in proportion to their weights."""

    arrivals: Arrivals
    requests: int
    classes: tuple[tuple[str, Traffic], ...]


Trace = AzureTrace | MooncakeTrace | RequestFile
"""Requests that are read from a file."""


class FixedThink(msgspec.Struct, frozen=True, kw_only=True, tag="fixed"):
    """A client waits this long after each answer."""

    duration_ns: int


class ExponentialThink(msgspec.Struct, frozen=True, kw_only=True, tag="exponential"):
    """A client waits for an exponential time of this mean after each answer."""

    mean_ns: int


Think = FixedThink | ExponentialThink


class ClosedLoop(msgspec.Struct, frozen=True, kw_only=True, tag="closed_loop"):
    """`clients` clients, each with one request at a time, until `requests` were sent; all start at t = 0."""

    clients: int
    requests: int
    think: Think
    traffic: Traffic


class Sessions(msgspec.Struct, frozen=True, kw_only=True, tag="sessions"):
    """Conversations: each prompt is all that was said before, real answers included, and `traffic.input_tokens` more.

    `arrivals` says when conversations begin, `turns` how many requests one has.
    """

    arrivals: Arrivals
    sessions: int
    turns: LengthSpec
    think: Think
    traffic: Traffic


Reacting = ClosedLoop | Sessions
"""Clients that wait for answers."""

Workload = Trace | Generated | Mixture | Reacting


class Linear(msgspec.Struct, frozen=True, kw_only=True, tag="linear"):
    """UNSET `fitted`: nobody says where the coefficients come from."""

    coefficients: LinearCoefficients
    fitted: Fitted | UnsetType = UNSET


class UnpublishedRate(StrEnum):
    """What to do about a compute rate that the GPU's maker does not publish for a number type."""

    ERROR = "error"
    NONE = "none"
    """No compute ceiling for it; the limit is then reported as unproven."""


class Roofline(msgspec.Struct, frozen=True, kw_only=True, tag="roofline"):
    """Factors of the roofline; None is the documented default of `isim.cost`. UNSET `fitted`: they are declared."""

    unpublished_rate: UnpublishedRate
    compute_efficiency_ppm: int | None = None
    memory_efficiency_ppm: int | None = None
    kernel_gap_ns: int | None = None
    host_step_ns: int | None = None
    allreduce_latency_ns: int | None = None
    fitted: Fitted | UnsetType = UNSET


Cost = Linear | Roofline


class WarmupDuration(msgspec.Struct, frozen=True, kw_only=True, tag="duration"):
    """Requests that arrive before this time are warm-up."""

    duration_ns: int


class WarmupRequests(msgspec.Struct, frozen=True, kw_only=True, tag="requests"):
    """The first so many requests, in order of arrival, are warm-up."""

    requests: int


class WarmupShare(msgspec.Struct, frozen=True, kw_only=True, tag="share"):
    """The first floor(share x requests that arrived) requests, in order of arrival, are warm-up."""

    share_ppm: int


Warmup = WarmupDuration | WarmupRequests | WarmupShare


class Simulation(msgspec.Struct, frozen=True, kw_only=True):
    """`max_stretch` None is no limit on how many equal steps run as one event. It cannot change a result."""

    seed: int
    max_events: int
    max_stretch: int | None
    warmup: Warmup | None


class Targets(msgspec.Struct, frozen=True, kw_only=True):
    """Longest times of one latency; None is no target. `each_ns` is for every request apart."""

    each_ns: int | None = None
    mean_ns: int | None = None
    p50_ns: int | None = None
    p90_ns: int | None = None
    p95_ns: int | None = None
    p99_ns: int | None = None
    max_ns: int | None = None


class Slo(msgspec.Struct, frozen=True, kw_only=True):
    """What is promised to the users, by latency."""

    ttft: Targets = Targets()
    tpot: Targets = Targets()
    itl: Targets = Targets()
    e2e: Targets = Targets()


class Clients(msgspec.Struct, frozen=True, kw_only=True):
    """A client gives up `timeout_ns` after it sent its request; None: it waits for ever."""

    timeout_ns: int | None


class Scenario(msgspec.Struct, frozen=True, kw_only=True):
    """`replicas` equal engines, each on GPUs of its own; the router decides only where there are several."""

    schema_version: int
    name: str
    hardware: Hardware
    model: Model
    engine: Engine
    replicas: int
    router: RouterFacts
    clients: Clients
    workload: Workload
    cost: Cost
    simulation: Simulation
    slo: Slo | None = None
