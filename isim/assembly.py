"""From a scenario to a wired system: the only place that constructs processes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import msgspec
from msgspec import UNSET

from isim.cost.base import CostModel
from isim.cost.factors import ALLREDUCE_LATENCY_NS, RooflineFactors
from isim.cost.fits import default_factors
from isim.cost.linear import LinearCost
from isim.cost.memory import KvCapacity, MemoryLimits, kv_capacity
from isim.cost.roofline import RooflineInputs, roofline
from isim.kernel.kernel import Kernel
from isim.model.spec import Precision, precision_of
from isim.policy.vllm.pool import BlockPool
from isim.policy.vllm.scheduler import Scheduler
from isim.record.log import Log
from isim.record.records import EngineLimits, GroupLimits, RouterFacts
from isim.scenario.presets.gpus import GpuSpec
from isim.scenario.reserved import ReservedMemory
from isim.scenario.types import Cost, Linear, Roofline, Scenario, UnpublishedRate
from isim.serve.arrivals import send
from isim.serve.census import Census
from isim.serve.clients import Clients
from isim.serve.engine import Engine
from isim.serve.router import Router
from isim.workload.request import Request

if TYPE_CHECKING:
    from isim.workload.feedback import Feedback

_PPM = 1_000_000


class System(msgspec.Struct):
    """What runs: the kernel with its actors in it, and who counts the requests."""

    kernel: Kernel
    census: Census
    engines: list[Engine]


class Parts(msgspec.Struct):
    """What a scenario comes to before anything runs. `router` is None where there is one engine."""

    capacity: KvCapacity
    limits: EngineLimits
    cost: CostModel
    engines: int = 1
    router: RouterFacts | None = None
    seed: int = 0
    client_timeout_ns: int | None = None
    request_overhead_ns: int = 0


def parts_of(scenario: Scenario) -> Parts:
    """Memory, limits and cost of a scenario. Raises CapacityError or CostError where they cannot hold."""
    capacity = _capacity(scenario)
    return Parts(
        capacity=capacity,
        limits=_limits(scenario, capacity.num_blocks),
        cost=_cost(scenario),
        engines=scenario.replicas,
        router=scenario.router if scenario.replicas > 1 else None,
        seed=scenario.simulation.seed,
        client_timeout_ns=scenario.clients.timeout_ns,
        request_overhead_ns=scenario.engine.request_overhead_ns or 0,
    )


def settled(scenario: Scenario) -> Scenario:
    """The scenario with the factors of its roofline written out, so that another version's defaults do not move it."""
    cost = scenario.cost
    if not isinstance(cost, Roofline):
        return scenario
    factors = _factors(cost, scenario.hardware.gpu)
    latency_ns = factors.allreduce_latency_ns
    link = scenario.hardware.gpu.link
    if latency_ns is None and link is not None and scenario.engine.tensor_parallel_size > 1:
        latency_ns = ALLREDUCE_LATENCY_NS[link.kind]
    written = Roofline(
        unpublished_rate=cost.unpublished_rate,
        compute_efficiency_ppm=round(factors.compute_efficiency * _PPM),
        memory_efficiency_ppm=round(factors.memory_efficiency * _PPM),
        kernel_gap_ns=factors.kernel_gap_ns,
        host_step_ns=factors.host_step_ns,
        allreduce_latency_ns=latency_ns,
        fitted=cost.fitted,
    )
    return msgspec.structs.replace(scenario, cost=written)


def wire(
    parts: Parts,
    requests: Iterator[Request] | Feedback,
    log: Log,
    *,
    kernel: Kernel,
    max_stretch: int | None = None,
    make_pool: type[BlockPool] = BlockPool,
    foresight: bool = True,
) -> System:
    """Arrivals, router, engine and its device, ready to run.

    No result depends on `max_stretch` and `foresight`, and `make_pool` is for tests that want more of the same.
    """
    census = Census(kernel)
    engines = [
        Engine(kernel, number, _scheduler(parts.limits, make_pool), parts.cost, log, census, max_stretch)
        for number in range(parts.engines)
    ]
    router = Router(kernel, parts.limits, engines, log, census)
    if parts.router is not None:
        router.choose_by(parts.router, parts.seed)
    overhead_ns = parts.request_overhead_ns
    if parts.client_timeout_ns is not None:
        router.clients = Clients(kernel, engines, census, parts.client_timeout_ns - overhead_ns)
    if overhead_ns:
        from isim.serve.frontend import through  # only who has an overhead pays for its import

        requests = through(requests, overhead_ns)
    if isinstance(requests, Iterator):
        send(kernel, requests, router, census, foresight)
    else:
        from isim.serve.reacting import Reacting  # only a workload that reacts pays for its import

        Reacting(kernel, requests, router.mailbox, census, parts.limits)
    return System(kernel=kernel, census=census, engines=engines)


def _scheduler(limits: EngineLimits, make_pool: type[BlockPool]) -> Scheduler:
    if not limits.groups:
        return Scheduler(limits, make_pool)
    from isim.policy.vllm.group_scheduler import GroupScheduler  # only models that need it pay for its import

    return GroupScheduler(limits)


def _precision(scenario: Scenario) -> Precision:
    model = scenario.model
    return precision_of(
        model.spec,
        weights=model.weight_dtype,
        activations=model.activation_dtype,
        kv_cache=scenario.engine.kv_cache_dtype,
    )


def _capacity(scenario: Scenario) -> KvCapacity:
    engine = scenario.engine
    limits = MemoryLimits(
        tensor_parallel_size=engine.tensor_parallel_size,
        gpu_memory_utilization=engine.gpu_memory_utilization_ppm / _PPM,
        block_size=engine.block_size,
        max_num_seqs=engine.max_num_seqs,
        max_num_batched_tokens=engine.max_num_batched_tokens,
        max_model_len=engine.max_model_len,
        num_gpu_blocks_override=engine.num_gpu_blocks_override,
        expert_parallel=engine.enable_expert_parallel is True,
        reserved=engine.reserved_memory or ReservedMemory(),
    )
    return kv_capacity(scenario.model.spec, scenario.hardware.gpu, _precision(scenario), limits)


def _groups(scenario: Scenario) -> tuple[GroupLimits, ...]:
    engine = scenario.engine
    if not scenario.model.spec.layers:
        return ()
    from isim.cost.groups import check_chunks, engine_groups  # only models that need it pay for its import

    groups = engine_groups(
        scenario.model.spec,
        _precision(scenario),
        engine.tensor_parallel_size,
        engine.block_size,
        state_tokens=None if engine.enable_prefix_caching else engine.max_model_len,
    )
    check_chunks(groups, engine.max_num_batched_tokens, engine.long_prefill_token_threshold)
    return groups


def _limits(scenario: Scenario, num_blocks: int) -> EngineLimits:
    engine, groups = scenario.engine, _groups(scenario)
    return EngineLimits(
        version=engine.version,
        max_num_seqs=engine.max_num_seqs,
        max_num_batched_tokens=engine.max_num_batched_tokens,
        block_size=min([group.block_size for group in groups], default=engine.block_size),
        num_blocks=num_blocks,
        max_model_len=engine.max_model_len,
        enable_prefix_caching=engine.enable_prefix_caching,
        enable_chunked_prefill=engine.enable_chunked_prefill,
        long_prefill_token_threshold=engine.long_prefill_token_threshold,
        scheduler_reserve_full_isl=engine.scheduler_reserve_full_isl,
        async_scheduling=engine.async_scheduling,
        policy=engine.scheduling_policy,
        groups=groups,
    )


def _cost(scenario: Scenario) -> CostModel:
    cost = scenario.cost
    if isinstance(cost, Linear):
        return LinearCost(cost.coefficients, source=_source(cost))
    engine = scenario.engine
    inputs = RooflineInputs(
        model=scenario.model.spec,
        gpu=scenario.hardware.gpu,
        precision=_precision(scenario),
        tensor_parallel_size=engine.tensor_parallel_size,
        max_num_seqs=engine.max_num_seqs,
        max_num_batched_tokens=engine.max_num_batched_tokens,
        async_scheduling=engine.async_scheduling,
        allow_unpublished_rate=cost.unpublished_rate is UnpublishedRate.NONE,
        expert_parallel=engine.enable_expert_parallel is True,
        factors=_factors(cost, scenario.hardware.gpu),
        source=_source(cost),
    )
    return roofline(inputs)


def _source(cost: Cost) -> str | None:
    """What the factors were fitted to, if anything is told of it."""
    return None if cost.fitted is UNSET else cost.fitted.source


def _factors(cost: Roofline, gpu: GpuSpec) -> RooflineFactors:
    """The run file's factors over the documented defaults for this GPU."""
    given: dict[str, float | int] = {}
    for name in ("compute_efficiency", "memory_efficiency"):
        share_ppm = getattr(cost, f"{name}_ppm")
        if share_ppm is not None:
            given[name] = share_ppm / _PPM
    for name in ("kernel_gap_ns", "host_step_ns", "allreduce_latency_ns"):
        value = getattr(cost, name)
        if value is not None:
            given[name] = value
    return msgspec.structs.replace(default_factors(gpu), **given)
