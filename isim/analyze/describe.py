"""A resolved scenario in words: one line for each of model, hardware, engine, workload and cost.

Of a trace it says the name, not where it lies: a result does not depend on that.
"""

from __future__ import annotations

from pathlib import PurePath

from isim.analyze.schema import Simulated
from isim.scenario.types import (
    Arrivals,
    AzureTrace,
    Burst,
    ClosedLoop,
    Constant,
    Diurnal,
    Empirical,
    EmpiricalFile,
    FixedRate,
    FixedThink,
    Gamma,
    Generated,
    LengthSpec,
    Linear,
    LogNormal,
    Mixture,
    MooncakeTrace,
    Ramp,
    Ratio,
    RequestFile,
    Scenario,
    Sessions,
    Traffic,
    Uniform,
    Warmup,
    WarmupDuration,
    WarmupRequests,
    Workload,
)

_TRACES: dict[type, str] = {AzureTrace: "Azure trace", MooncakeTrace: "Mooncake trace"}


def simulated(scenario: Scenario) -> Simulated:
    """The scenario in words."""
    return Simulated(
        model=_model(scenario),
        hardware=_hardware(scenario),
        engine=_engine(scenario),
        workload=_workload(scenario.workload),
        cost=_cost(scenario),
    )


def warm_up_rule(warmup: Warmup | None) -> str:
    """The warm-up as it was asked for; `none` for none."""
    if warmup is None:
        return "none"
    if isinstance(warmup, WarmupDuration):
        return f"{decimal(warmup.duration_ns, 1_000_000_000)} s"
    if isinstance(warmup, WarmupRequests):
        return _requests(warmup.requests)
    return f"{decimal(warmup.share_ppm, 10_000)} % of the requests"


def decimal(numerator: int, denominator: int) -> str:
    """The fraction as a short decimal, exact when it ends within nine digits and marked with ~ when not."""
    whole, rest = divmod(numerator, denominator)
    scaled, left = divmod(rest * 1_000_000_000, denominator)
    digits = f"{scaled:09d}".rstrip("0")
    text = f"{whole}.{digits}" if digits else f"{whole}"
    return f"~{text}" if left else text


def _requests(count: int) -> str:
    return "1 request" if count == 1 else f"{count} requests"


def _model(scenario: Scenario) -> str:
    model = scenario.model
    return f"{model.spec.name}, weights {model.weight_dtype.value}, activations {model.activation_dtype.value}"


def _hardware(scenario: Scenario) -> str:
    hardware = scenario.hardware
    text = f"{hardware.count} x {hardware.gpu.name}"
    link = hardware.interconnect
    if link is None or hardware.count == 1:
        return text
    return f"{text}, joined by {link.kind.value} at {decimal(link.bandwidth_bytes_per_s, 10**9)} GB/s"


def _engine(scenario: Scenario) -> str:
    engine = scenario.engine
    switches = {
        "prefix caching": engine.enable_prefix_caching,
        "chunked prefill": engine.enable_chunked_prefill,
        "asynchronous scheduling": engine.async_scheduling,
    }
    parts = [
        f"vLLM {engine.version.value}",
        f"TP {engine.tensor_parallel_size}",
        f"{engine.max_num_seqs} sequences",
        f"{engine.max_num_batched_tokens} tokens a step",
        f"blocks of {engine.block_size}",
        f"KV {engine.kv_cache_dtype.value}",
        f"max length {engine.max_model_len}",
        engine.scheduling_policy.value,
        *(f"{name} {'on' if on else 'off'}" for name, on in switches.items()),
    ]
    if engine.request_overhead_ns:
        parts.append(f"{decimal(engine.request_overhead_ns, 10**6)} ms overhead a request")
    return ", ".join(parts)


def _reacting(workload: ClosedLoop | Sessions) -> str:
    think = workload.think
    wait = think.duration_ns if isinstance(think, FixedThink) else think.mean_ns
    kind = "fixed" if isinstance(think, FixedThink) else "exponential, mean"
    waits = f"think time {kind} {decimal(wait, 10**9)} s; {_traffic(workload.traffic)}"
    if isinstance(workload, ClosedLoop):
        return f"{workload.requests} requests of {workload.clients} clients in a closed loop, {waits}"
    turns = _length(workload.turns)
    return f"{workload.sessions} conversations, {_arrivals(workload.arrivals)}, turns {turns}; {waits}"


def _workload(workload: Workload) -> str:
    if isinstance(workload, Generated):
        return f"{_requests(workload.requests)}, {_arrivals(workload.arrivals)}; {_traffic(workload.traffic)}"
    if isinstance(workload, Mixture):
        total = sum([traffic.weight for _, traffic in workload.classes])
        parts = [f"{name} {traffic.weight}/{total}, {_traffic(traffic)}" for name, traffic in workload.classes]
        return "; ".join([f"{_requests(workload.requests)}, {_arrivals(workload.arrivals)}", *parts])
    if isinstance(workload, ClosedLoop | Sessions):
        return _reacting(workload)
    kind = f"requests ({workload.format.value})" if isinstance(workload, RequestFile) else _TRACES[type(workload)]
    parts = [f"{kind} {PurePath(workload.path).name}"]
    if workload.limit is not None:
        parts.append(f"first {_requests(workload.limit)}")
    if workload.window is not None:
        start, end = (decimal(time_ns, 10**9) for time_ns in (workload.window.start_ns, workload.window.end_ns))
        parts.append(f"from {start} s to {end} s")
    if workload.time_scale != Ratio(numerator=1):
        parts.append(f"time x {decimal(workload.time_scale.numerator, workload.time_scale.denominator)}")
    return ", ".join(parts)


def _arrivals(arrivals: Arrivals) -> str:
    match arrivals:
        case Ramp():
            over = decimal(arrivals.over_ns, 10**9)
            return f"Poisson from {_rate(arrivals.from_per_s)} to {_rate(arrivals.to_per_s)} per second in {over} s"
        case Diurnal():
            period = decimal(arrivals.period_ns, 10**9)
            rates = f"{_rate(arrivals.low_per_s)} and {_rate(arrivals.high_per_s)}"
            return f"Poisson, up and down between {rates} per second every {period} s"
        case Burst():
            burst = f"{_rate(arrivals.burst_per_s)} for {decimal(arrivals.burst_ns, 10**9)} s"
            every = decimal(arrivals.period_ns, 10**9)
            return f"Poisson with {_rate(arrivals.base_per_s)} per second, {burst} of every {every} s"
        case Gamma():
            return f"gamma gaps (cv {decimal(arrivals.cv_ppm, 10**6)}) with {_rate(arrivals.rate_per_s)} per second"
    kind = "at a fixed rate of" if isinstance(arrivals, FixedRate) else "Poisson with"
    return f"{kind} {_rate(arrivals.rate_per_s)} per second"


def _rate(rate: Ratio) -> str:
    return decimal(rate.numerator, rate.denominator)


def _traffic(traffic: Traffic) -> str:
    parts = [f"tokens: {_length(traffic.input_tokens)} in, {_length(traffic.output_tokens)} out"]
    if traffic.shared_prefix is not None:
        prefix = traffic.shared_prefix
        parts.append(
            f"the first {prefix.tokens} shared in {prefix.groups} {'group' if prefix.groups == 1 else 'groups'}"
        )
    if traffic.prompt_pool is not None:
        parts.append(f"prompts repeat after {traffic.prompt_pool}")
    if traffic.priority:
        parts.append(f"priority {traffic.priority}")
    return ", ".join(parts)


def _length(length: LengthSpec) -> str:
    match length:
        case Constant():
            return f"{length.tokens}"
        case Uniform():
            return f"uniform {length.low_tokens} to {length.high_tokens}"
        case Empirical():
            return f"empirical ({len(length.tokens)} lengths, {min(length.tokens)} to {max(length.tokens)})"
        case EmpiricalFile():
            return f"empirical ({PurePath(length.path).name})"
        case LogNormal():
            bounds = f"{length.min_tokens} to {length.max_tokens}"
            return f"lognormal (median {length.median_tokens}, sigma {decimal(length.sigma_ppm, 10**6)}, {bounds})"


def _cost(scenario: Scenario) -> str:
    cost = scenario.cost
    if not isinstance(cost, Linear):
        return "roofline"
    terms = cost.coefficients
    prices = {
        "step": terms.base_ps,
        "new token": terms.per_token_ps,
        "request": terms.per_request_ps,
        "context token": terms.per_context_token_ps,
    }
    return "linear: " + ", ".join(f"{decimal(ps, 1000)} ns a {name}" for name, ps in prices.items() if ps)
