"""The engine's defaults that depend on the GPU, the model or each other, and the words for having used them.

Source: vLLM's `EngineArgs`, read in 0.21 and 0.32, for an engine that serves (not the offline class): GPUs of 70 GiB or
more other than A100 get 8,192 batched tokens and 1,024 sequences, others 2,048 and 256; later versions 16,384 and 1,024
from 160 GiB on. The budget never exceeds sequences x max_model_len; without chunked prefill it is at least
max_model_len; the sequences never exceed the budget.
"""

from __future__ import annotations

from isim.model.spec import ModelSpec, precision_of
from isim.record.records import EngineVersion
from isim.scenario.presets.gpus import GpuSpec
from isim.scenario.types import Engine, Scenario
from isim.scenario.units import Dimension, write_quantity, write_share

_GIB = 1 << 30
DEFAULT_UTILIZATION_PPM = 920_000


def _class_limits(gpu: GpuSpec, version: EngineVersion) -> tuple[int, int, str]:
    """Sequences, batched tokens, and whose default they are."""
    if version is not EngineVersion.V021 and gpu.memory_bytes >= 160 * _GIB:
        return 1024, 16384, "GPUs of 160 GiB or more"
    if gpu.memory_bytes >= 70 * _GIB and "a100" not in gpu.name.lower():
        return 1024, 8192, "GPUs of 70 GiB or more other than A100"
    return 256, 2048, "GPUs of less than 70 GiB, and A100"


def default_batch(
    gpu: GpuSpec, version: EngineVersion, *, sequences: int | None, tokens: int | None, model_len: int, chunked: bool
) -> tuple[int, int]:
    """max_num_seqs and max_num_batched_tokens, where None is what was left out."""
    class_sequences, class_tokens, _ = _class_limits(gpu, version)
    chosen = class_sequences if sequences is None else sequences
    budget = tokens
    if budget is None:
        budget = class_tokens if chunked else max(class_tokens, model_len)
        budget = min(budget, chosen * model_len)
    return (min(chosen, budget) if sequences is None else sequences), budget


def default_prefix_caching(model: ModelSpec, version: EngineVersion) -> bool:
    """Whether prefixes are cached where nothing is said: not yet in 0.21 for models with recurrent states."""
    return version is not EngineVersion.V021 or not model.keeps_states


def scenario_assumptions(scenario: Scenario) -> tuple[str, ...]:
    """What in this scenario is a rule's answer and not obviously the writer's, a sentence each, in a fixed order.

    They are read off the values: a value written out that equals the rule's answer is told alike.
    """
    engine, gpu, model = scenario.engine, scenario.hardware.gpu, scenario.model
    found = []
    if engine.version is EngineVersion.V021:
        found.append("engine.version 0.21 stands for 0.20 too: both gave the same schedules on every recorded case")
    found += _batch_notes(engine, gpu)
    if model.spec.keeps_states and engine.enable_prefix_caching is default_prefix_caching(model.spec, engine.version):
        found.append(
            f"engine.enable_prefix_caching {str(engine.enable_prefix_caching).lower()}: "
            f"the default of {engine.version} for models with recurrent states"
        )
    if engine.max_model_len == model.spec.max_position_embeddings:
        found.append(f"engine.max_model_len {engine.max_model_len}: the model's max_position_embeddings")
    if engine.gpu_memory_utilization_ppm == DEFAULT_UTILIZATION_PPM:
        found.append(f"engine.gpu_memory_utilization {write_share(DEFAULT_UTILIZATION_PPM)}: vLLM's default")
    auto = precision_of(model.spec, weights=model.weight_dtype, activations=model.activation_dtype).kv_cache
    if engine.kv_cache_dtype is auto:
        found.append(f"engine.kv_cache_dtype {auto}: what auto means for this model")
    if engine.request_overhead_ns:
        found.append(
            f"engine.request_overhead {write_quantity(engine.request_overhead_ns, Dimension.DURATION)}: time of every "
            "request outside the engine (API server, tokenisation, HTTP), the same for all and whatever the load, put "
            "before the queue; nothing vouches for it (heuristic)"
        )
    return tuple(found)


def _batch_notes(engine: Engine, gpu: GpuSpec) -> list[str]:
    class_sequences, class_tokens, whose = _class_limits(gpu, engine.version)
    chunked, length = engine.enable_chunked_prefill, engine.max_model_len
    sequences, tokens = engine.max_num_seqs, engine.max_num_batched_tokens
    found = []
    if sequences == class_sequences:
        found.append(f"engine.max_num_seqs {sequences}: vLLM's default on {whose}")
    elif sequences == min(class_sequences, tokens):
        found.append(f"engine.max_num_seqs {sequences}: vLLM's default, no more than max_num_batched_tokens")
    _, budget = default_batch(gpu, engine.version, sequences=sequences, tokens=None, model_len=length, chunked=chunked)
    if tokens == class_tokens == budget:
        found.append(f"engine.max_num_batched_tokens {tokens}: vLLM's default for serving on {whose}")
    elif tokens == budget:
        bound = "as many as all sequences can have" if tokens == sequences * length else "one prompt without chunks"
        found.append(f"engine.max_num_batched_tokens {tokens}: vLLM's default, {bound}")
    return found
