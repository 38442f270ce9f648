"""From the values read to a Scenario: presets looked up, defaults applied, and whatever must agree compared.

Each part is built where its own values are sound, so that a fault in one block hides nothing in another. A check
that compares two values names both, with the place of each.
"""

from __future__ import annotations

from typing import Any

from msgspec import UNSET, UnsetType

from isim.model.arithmetic import check_tensor_parallel
from isim.model.spec import ModelError, precision_of
from isim.record.records import LinearCoefficients, RouterFacts
from isim.scenario.build_workload import build_slo, build_workload
from isim.scenario.defaults import default_batch, default_prefix_caching
from isim.scenario.factors import BY_PATH
from isim.scenario.fields import Reading, Values, read_block
from isim.scenario.figures import build_gpu, build_model, legal_splits, with_rates
from isim.scenario.fitted import Fitted
from isim.scenario.nodes import Node, NodeKind
from isim.scenario.presets.gpus import GpuSpec, LinkSpec
from isim.scenario.reserved import ReservedMemory
from isim.scenario.schema import CLIENTS, ENGINE, ROUTER, RUN_FILE, SCHEMA_VERSION, SIMULATION
from isim.scenario.types import (
    Clients,
    Cost,
    Engine,
    Hardware,
    Linear,
    Model,
    Roofline,
    Scenario,
    Simulation,
    UnpublishedRate,
)


def build_scenario(reading: Reading, root: Node, name: str) -> Scenario | None:
    """The scenario of a tree; None exactly when there are complaints. `name` serves where the file gives none."""
    values = read_block(reading, RUN_FILE, root, "")
    if values is None:
        return None
    get = values.values.get
    engine_values = _given(reading, values, "engine", ENGINE)
    simulation = _simulation(_given(reading, values, "simulation", SIMULATION))
    router = _given(reading, values, "router", ROUTER)
    clients = _given(reading, values, "clients", CLIENTS)
    replicas = get("replicas")
    model = build_model(reading, block) if (block := _inner(values, "model")) else None
    gpu = _gpu(reading, block) if (block := _inner(values, "hardware")) else None
    model = with_rates(model, gpu, _inner(values, "model"))
    workload = build_workload(reading, block) if (block := _inner(values, "workload")) else None
    slo = build_slo(reading, block) if (block := _inner(values, "slo")) else None
    cost = _cost(reading, block) if (block := _inner(values, "cost")) else None
    engine = _engine(reading, engine_values, gpu, model) if engine_values else None
    count = None
    if cost and gpu and model:
        _check_rates(reading, values, gpu, (cost, model))
    if engine_values:
        count = _count(reading, values, engine_values, gpu)
        _check_split(reading, values, engine_values, model)
    if reading.complaints or not (
        gpu and count and model and engine and replicas and router and clients and workload and cost and simulation
    ):
        return None
    return Scenario(
        schema_version=SCHEMA_VERSION,
        name=get("name") or name,
        hardware=Hardware(gpu=gpu, count=count),
        model=model,
        engine=engine,
        replicas=replicas,
        clients=Clients(timeout_ns=clients.values["timeout"]),
        router=RouterFacts(policy=router.values["policy"], ties=router.values["ties"]),
        workload=workload,
        cost=cost,
        simulation=simulation,
        slo=slo,
    )


def _given(reading: Reading, values: Values, key: str, block: Any) -> Values | None:
    """An optional block: as read, or with nothing but its defaults where it was left out."""
    if key in values.places or key in values.broken:
        return _inner(values, key)
    return read_block(reading, block, Node(NodeKind.BLOCK, values.place), key)


def _inner(values: Values, key: str) -> Values | None:
    """What was read of the block at `key`, if anything was."""
    found: Values | None = values.values.get(key)
    return found


def _gpu(reading: Reading, hardware: Values) -> GpuSpec | None:
    interconnect = _inner(hardware, "interconnect")
    link = None
    if interconnect is not None and not interconnect.broken:
        read = interconnect.values
        link = LinkSpec(kind=read["kind"], bandwidth_bytes_per_s=read["bandwidth"])
    gpu = _inner(hardware, "gpu")
    return build_gpu(reading, gpu, link) if gpu else None


def _count(reading: Reading, values: Values, engine: Values, gpu: GpuSpec | None) -> int | None:
    ranks: int | None = engine.values.get("tensor_parallel_size")
    hardware = _inner(values, "hardware")
    if hardware is None or ranks is None:
        return None
    place, path = engine.where("tensor_parallel_size"), engine.at("tensor_parallel_size")
    count: int | None = hardware.values.get("count")
    needed = ranks * (values.values.get("replicas") or 1)
    if count is not None and needed > count:
        cited = reading.cite(hardware, "count", count)
        for_all = "" if needed == ranks else f" x {needed // ranks} replicas"
        reading.complain(place, path, f"expected at most the number of GPUs, found {ranks}{for_all}; {cited}")
    broken = "interconnect" in hardware.broken
    if ranks > 1 and gpu is not None and gpu.link is None and not broken:
        message = f"expected 1, as nothing joins GPUs of the kind {gpu.name}, found {ranks}; give hardware.interconnect"
        reading.complain(place, path, message)
    return needed if count is None else count


def _check_rates(reading: Reading, values: Values, gpu: GpuSpec, chosen: tuple[Cost, Model]) -> None:
    """A roofline needs the compute rate of each number type that the model multiplies in."""
    cost, model = chosen
    if not isinstance(cost, Roofline) or cost.unpublished_rate is UnpublishedRate.NONE:
        return
    precision = precision_of(model.spec, weights=model.weight_dtype, activations=model.activation_dtype)
    hardware = _inner(values, "hardware")
    if hardware is None:
        return
    for dtype in dict.fromkeys((precision.gemm, precision.model)):
        if dtype not in gpu.dense_flops:
            message = (
                f"expected a published dense rate of {dtype.value}, found none for {gpu.name}; give "
                f"hardware.gpu.dense_flops.{dtype.value}, or cost.unpublished_rate: none for no compute ceiling"
            )
            reading.complain(hardware.where("gpu"), hardware.at("gpu"), message)


def _check_split(reading: Reading, values: Values, engine: Values, model: Model | None) -> None:
    ranks = engine.values.get("tensor_parallel_size")
    if ranks is None or model is None:
        return
    whole_experts = engine.values.get("enable_expert_parallel") is True
    if whole_experts and not model.spec.has_experts:
        message = f"expected false, as {model.spec.name} has no experts, found true"
        reading.complain(engine.where("enable_expert_parallel"), engine.at("enable_expert_parallel"), message)
    try:
        check_tensor_parallel(model.spec, ranks, whole_experts)
    except ModelError as error:
        spec = model.spec
        cited = reading.cite(values.values["model"], "name", spec.name)
        heads = f"{spec.num_attention_heads} attention and {spec.num_key_value_heads} key-value heads"
        message = f"expected one of {legal_splits(spec)}, into which {heads} can be split, found {ranks}; {cited}"
        if not spec.plain:
            message = f"{str(error).partition(': ')[2]}; {cited}"
        reading.complain(engine.where("tensor_parallel_size"), engine.at("tensor_parallel_size"), message)


def _engine(reading: Reading, values: Values, gpu: GpuSpec | None, model: Model | None) -> Engine | None:
    found = dict(values.values)
    if found.get("max_model_len") is None and model and "max_model_len" not in values.broken:
        found["max_model_len"] = model.spec.max_position_embeddings
    if gpu and found.get("max_model_len") and not values.broken:
        found["max_num_seqs"], found["max_num_batched_tokens"] = default_batch(
            gpu,
            found["version"],
            sequences=found["max_num_seqs"],
            tokens=found["max_num_batched_tokens"],
            model_len=found["max_model_len"],
            chunked=found["enable_chunked_prefill"],
        )
    if found.get("enable_prefix_caching") is None and model and "version" not in values.broken:
        found["enable_prefix_caching"] = default_prefix_caching(model.spec, found["version"])
    _check_engine(reading, values, found, model)
    if values.broken or gpu is None or model is None:
        return None
    if found["kv_cache_dtype"] is None:
        auto = precision_of(model.spec, weights=model.weight_dtype, activations=model.activation_dtype)
        found["kv_cache_dtype"] = auto.kv_cache
    found["gpu_memory_utilization_ppm"] = found.pop("gpu_memory_utilization")
    found["enable_expert_parallel"] = found["enable_expert_parallel"] or UNSET
    found["reserved_memory"] = _reserved(found["reserved_memory"])
    found["request_overhead_ns"] = found.pop("request_overhead") or UNSET
    return Engine(**found)


def _reserved(values: Values | None) -> ReservedMemory | UnsetType:
    """What was read of the block; UNSET where it gives nothing."""
    given = {f"{key}_bytes": size for key, size in (values.values if values else {}).items() if size is not None}
    return ReservedMemory(**given) if given else UNSET


def _check_engine(reading: Reading, values: Values, found: dict[str, Any], model: Model | None) -> None:
    budget, sequences = found.get("max_num_batched_tokens"), found.get("max_num_seqs")
    length = found.get("max_model_len")
    limit = model.spec.max_position_embeddings if model else None
    if length and limit and length > limit:
        message = f"expected at most the model's max_position_embeddings, {limit}, found {length}"
        reading.complain(values.where("max_model_len"), values.at("max_model_len"), message)
    at = "max_num_batched_tokens" if "max_num_batched_tokens" in values.places else "max_num_seqs"
    if budget and sequences and budget < sequences:
        cited = reading.cite(values, "max_num_seqs", sequences)
        message = f"expected max_num_batched_tokens to be at least max_num_seqs, found {budget}; {cited}"
        reading.complain(values.where(at), values.at(at), message)
    if found.get("enable_chunked_prefill") is False and budget and length and budget < length:
        cited = reading.cite(values, "max_model_len", length)
        chunked = reading.cite(values, "enable_chunked_prefill", "false")
        message = f"expected at least max_model_len without chunked prefill, found {budget}; {cited}, {chunked}"
        reading.complain(values.where(at), values.at("max_num_batched_tokens"), message)


def _cost(reading: Reading, values: Values) -> Cost | None:
    if values.broken:
        return None
    read = dict(values.values)
    told: Values | None = read.pop("fitted")
    if told and told.broken:
        return None
    fitted = Fitted(**told.values) if told else UNSET
    if told and fitted is not UNSET:
        for path in (path for path, value in fitted.settings if path not in BY_PATH or not value):
            message = f"expected path=value of factors that can be fitted, found {ascii(path)[1:-1][:60]}"
            reading.complain(told.where("factors"), told.at("factors"), message + reading.nearest(path, list(BY_PATH)))
    if values.tag == "roofline":
        return Roofline(
            unpublished_rate=read["unpublished_rate"],
            compute_efficiency_ppm=read["compute_efficiency"],
            memory_efficiency_ppm=read["memory_efficiency"],
            kernel_gap_ns=read["kernel_gap"],
            host_step_ns=read["host_step"],
            allreduce_latency_ns=read["allreduce_latency"],
            fitted=fitted,
        )
    if not any(read[key] for key in ("base", "per_token", "per_request")):
        message = "expected base, per_token or per_request above 0, so that every step takes time, found all of them 0"
        reading.complain(values.where("base"), values.at("base"), message)
    coefficients = LinearCoefficients(**{f"{key}_ps": value for key, value in read.items()})
    return Linear(coefficients=coefficients, fitted=fitted)


def _simulation(values: Values | None) -> Simulation | None:
    if values is None or values.broken:
        return None
    return Simulation(**values.values)
