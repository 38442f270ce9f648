"""What is asked of a run, as frozen values with every default resolved.

A `Scenario` holds nothing that still has to be looked up or decided: presets are figures, `auto` is a type, the
engine's defaults are numbers. Times are nanoseconds, sizes bytes, shares parts per million, and what needs a
fraction is a `Ratio` of two integers, so that no figure of a run file is ever rounded.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from isim.model.spec import Dtype, ModelSpec
from isim.record.records import EngineVersion, LinearCoefficients, SchedulingPolicy
from isim.scenario.presets.gpus import GpuSpec, LinkSpec


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
    spec: ModelSpec
    weight_dtype: Dtype
    activation_dtype: Dtype


class Engine(msgspec.Struct, frozen=True, kw_only=True):
    """One vLLM engine in its own names, every default applied.

    `num_gpu_blocks_override` counts the null block, as vLLM's does; None: the pool is derived from the memory.
    `long_prefill_token_threshold` 0 is off.
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


LengthSpec = Constant | Uniform | LogNormal


class FixedRate(msgspec.Struct, frozen=True, kw_only=True, tag="fixed_rate"):
    """Request i arrives at i / rate seconds."""

    rate_per_s: Ratio


class Poisson(msgspec.Struct, frozen=True, kw_only=True, tag="poisson"):
    """Independent exponential gaps of mean 1 / rate seconds."""

    rate_per_s: Ratio


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


class RequestFile(msgspec.Struct, frozen=True, kw_only=True, tag="request_file"):
    """Requests in isim's own format; the other fields as in AzureTrace."""

    path: str
    format: RequestFormat
    limit: int | None
    time_scale: Ratio
    window: Window | None


class Generated(msgspec.Struct, frozen=True, kw_only=True, tag="generated"):
    arrivals: FixedRate | Poisson
    requests: int
    input_tokens: LengthSpec
    output_tokens: LengthSpec


Workload = AzureTrace | RequestFile | Generated


class Linear(msgspec.Struct, frozen=True, kw_only=True, tag="linear"):
    coefficients: LinearCoefficients


class UnpublishedRate(StrEnum):
    """What to do about a compute rate that the GPU's maker does not publish for a number type."""

    ERROR = "error"
    NONE = "none"
    """No compute ceiling for it; the limit is then reported as unproven."""


class Roofline(msgspec.Struct, frozen=True, kw_only=True, tag="roofline"):
    """Factors of the roofline; None is the documented default of `isim.cost`."""

    unpublished_rate: UnpublishedRate
    compute_efficiency_ppm: int | None = None
    memory_efficiency_ppm: int | None = None
    kernel_gap_ns: int | None = None
    host_step_ns: int | None = None
    allreduce_latency_ns: int | None = None


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


class Scenario(msgspec.Struct, frozen=True, kw_only=True):
    schema_version: int
    name: str
    hardware: Hardware
    model: Model
    engine: Engine
    workload: Workload
    cost: Cost
    simulation: Simulation
