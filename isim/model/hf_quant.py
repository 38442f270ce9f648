"""How a Hugging Face config says that its weights are quantised.

Sources: the `quantization_config` of published checkpoints by AutoAWQ, AutoGPTQ, compressed-tensors, FP8, MXFP4
(gpt-oss), ModelOpt and bitsandbytes, and the layers in vLLM that load them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from isim.model.hf_config import Config
from isim.model.hf_modules import Modules, ModulesError
from isim.model.layers import LINEAR_PARTS, DenseMlp, Experts, GatedDelta, LayerRun, Mamba2, Part, Quantization
from isim.model.spec import Dtype

KEY = "quantization_config"
_FP16_BITS, _FP32_BITS, _FP8_BITS = 16, 32, 8
_INTEGERS = {4: Dtype.INT4, 8: Dtype.INT8}
_FLOATS = {4: Dtype.FLOAT4_E2M1, 8: Dtype.FLOAT8_E4M3}

Figures = dict[str, Any]


def read_quantization(config: Config, runs: tuple[LayerRun, ...], layers: int) -> Quantization | None:
    """The quantisation of the checkpoint; None without one. Raises ConfigError for a method that is not known."""
    block = config.block(KEY) or config.block("compression_config")
    if not block:
        return None
    method = block.get("quant_method")
    if method is None and "quant_algo" in block:
        method = "modelopt"
    reader = READERS.get(method) if isinstance(method, str) else None
    if not isinstance(method, str) or reader is None:
        raise config.error("quant_method", method, "one of " + ", ".join(READERS))
    figures = reader(config, block)
    head = bool(block.get("lm_head")) or method == "compressed-tensors"
    parts = _parts(config, block, runs, layers, head)
    if method == "mxfp4":
        parts = tuple(part for part in parts if part is Part.EXPERTS)
    return Quantization(method=method, parts=parts, **figures) if parts else None


def _whole(config: Config, block: dict[str, Any], key: str, default: int) -> int:
    value = block.get(key)
    value = default if value is None else value
    if type(value) is not int:
        raise config.error(key, value, "a whole number")
    return value


def _integers(config: Config, block: dict[str, Any]) -> Figures:
    """AWQ and GPTQ: 4 or 8 bits, a 16-bit scale and a zero point for each group; inputs stay as they are."""
    bits = _whole(config, block, "w_bit" if "w_bit" in block else "bits", 4)
    group = _whole(config, block, "q_group_size" if "q_group_size" in block else "group_size", 128)
    if bits not in _INTEGERS:
        raise config.error("bits", bits, "4 or 8")
    grouped = max(0, group)
    return {"weights": _INTEGERS[bits], "group_elements": grouped, "group_bits": (_FP16_BITS + bits) * (grouped > 0)}


def _fp8(config: Config, block: dict[str, Any]) -> Figures:
    size = block.get("weight_block_size")
    found: Figures = {"weights": Dtype.FLOAT8_E4M3, "activations": Dtype.FLOAT8_E4M3}
    if size is not None:
        if type(size) is not list or len(size) != 2 or not all(type(each) is int and each > 0 for each in size):
            raise config.error("weight_block_size", size, "two whole numbers")
        found |= {"group_elements": size[0] * size[1], "group_bits": _FP32_BITS, "block_columns": size[0]}
    return found


def _mxfp4(config: Config, block: dict[str, Any]) -> Figures:
    return {"weights": Dtype.FLOAT4_E2M1, "group_elements": 32, "group_bits": _FP8_BITS}


def _nvfp4() -> Figures:
    found: Figures = {"weights": Dtype.FLOAT4_E2M1, "activations": Dtype.FLOAT4_E2M1}
    return found | {"group_elements": 16, "group_bits": _FP8_BITS}


def _modelopt(config: Config, block: dict[str, Any]) -> Figures:
    inner = block.get("quantization")
    inner = inner if type(inner) is dict else block
    cache = inner.get("kv_cache_quant_algo") or block.get("kv_cache_scheme")
    if cache:
        config.assume(KEY, "the checkpoint has scales for a quantised KV cache; engine.kv_cache_dtype says if it is")
    algorithm = inner.get("quant_algo")
    if algorithm in ("NVFP4", "FP4"):
        return _nvfp4()
    if algorithm == "FP8":
        return _fp8(config, {})
    raise config.error("quant_algo", algorithm, "NVFP4 or FP8")


def _compressed(config: Config, block: dict[str, Any]) -> Figures:
    groups = block.get("config_groups")
    schemes = list(groups.values()) if type(groups) is dict else []
    if not schemes or not all(type(each) is dict and type(each.get("weights")) is dict for each in schemes):
        raise config.error("config_groups", groups, "an object of groups that have weights")
    found = [_scheme(config, each) for each in schemes]
    if any(each != found[0] for each in found):
        raise config.error("config_groups", list(groups or ()), "groups that quantise alike")
    if block.get("kv_cache_scheme"):
        config.assume(KEY, "the checkpoint has scales for a quantised KV cache; engine.kv_cache_dtype says if it is")
    return found[0]


def _scheme(config: Config, group: dict[str, Any]) -> Figures:
    weights, inputs = group["weights"], group.get("input_activations")
    bits, floats = weights.get("num_bits"), weights.get("type") == "float"
    size = _whole(config, weights, "group_size", 0)
    table = _FLOATS if floats else _INTEGERS
    if bits not in table:
        raise config.error("num_bits", bits, "4 or 8")
    if floats and bits == 4:
        found = _nvfp4()
    else:
        bits_of_zero = 0 if weights.get("symmetric", True) else bits
        found = {"weights": table[bits]}
        if size > 0:
            found |= {"group_elements": size, "group_bits": _FP16_BITS + bits_of_zero}
        if weights.get("strategy") == "block":
            found |= _fp8(config, {"weight_block_size": weights.get("block_structure") or [128, 128]})
    found["activations"] = None
    if type(inputs) is dict:
        inner = _FLOATS if inputs.get("type") == "float" else _INTEGERS
        if inputs.get("num_bits") not in inner:
            raise config.error("input_activations", inputs.get("num_bits"), "4 or 8 bits")
        found["activations"] = inner[inputs["num_bits"]]
    return found


def _bitsandbytes(config: Config, block: dict[str, Any]) -> Figures:
    if block.get("load_in_8bit") or block.get("_load_in_8bit"):
        return {"weights": Dtype.INT8}
    return {"weights": Dtype.INT4, "group_elements": 64, "group_bits": _FP32_BITS}


READERS: dict[str, Callable[[Config, dict[str, Any]], Figures]] = {
    "awq": _integers,
    "awq_marlin": _integers,
    "gptq": _integers,
    "gptq_marlin": _integers,
    "fp8": _fp8,
    "fbgemm_fp8": _fp8,
    "mxfp4": _mxfp4,
    "modelopt": _modelopt,
    "modelopt_fp4": _modelopt,
    "compressed-tensors": _compressed,
    "bitsandbytes": _bitsandbytes,
}

_EXCLUSIONS = ("modules_to_not_convert", "ignore", "ignored_layers", "exclude_modules", "llm_int8_skip_modules")
_PROBES: dict[Part, tuple[str, ...]] = {
    Part.ATTENTION: ("self_attn.q_proj", "self_attn.qkv_proj", "self_attn.q_a_proj", "self_attn.o_proj"),
    Part.STATE: ("linear_attn.in_proj_qkv", "linear_attn.in_proj_qkvz", "mamba.in_proj"),
    Part.MLP: ("mlp.gate_proj", "mlp.gate_up_proj", "feed_forward.gate_proj"),
    Part.SHARED: (
        "mlp.shared_experts.gate_proj",
        "mlp.shared_expert.gate_proj",
        "feed_forward.shared_expert.gate_proj",
    ),
    Part.EXPERTS: ("mlp.experts.0.gate_proj", "block_sparse_moe.experts.0.w1", "feed_forward.experts.gate_up_proj"),
}
"""Names of modules that stand for a part in lists of what is left alone."""
_PREFIXES = ("model.layers.", "model.language_model.layers.", "language_model.model.layers.")


def _parts(
    config: Config, block: dict[str, Any], runs: tuple[LayerRun, ...], layers: int, head: bool
) -> tuple[Part, ...]:
    """The parts that are quantised: those the model has, less those that are left alone in most layers."""
    patterns: list[str] = []
    for key in _EXCLUSIONS:
        listed = block.get(key) or []
        if type(listed) is not list or not all(type(each) is str for each in listed):
            raise config.error(key, listed, "a list of module names")
        patterns += listed
    present = [part for part in LINEAR_PARTS if part in _present(runs)]
    try:
        left_alone = Modules(patterns, layers * len(_PREFIXES) * sum(len(_PROBES[part]) for part in present))
    except ModulesError as error:
        raise config.error(KEY, error.pattern, str(error)) from None
    found = []
    for part in present:
        left = sum(_any_left_alone(part, layer, left_alone) for layer in range(layers))
        if 0 < left < layers:
            kept = "they count as quantised too" if 2 * left < layers else "all count as such"
            config.assume(KEY, f"the {part} matrices of {left} of {layers} layers are not quantised; {kept}")
        if 2 * left < layers:
            found.append(part)
    if head and "lm_head" not in left_alone:
        found.append(Part.LM_HEAD)
    return tuple(found)


def _any_left_alone(part: Part, layer: int, left_alone: Modules) -> bool:
    return any(f"{prefix}{layer}.{probe}" in left_alone for prefix in _PREFIXES for probe in _PROBES[part])


def _present(runs: tuple[LayerRun, ...]) -> tuple[Part, ...]:
    found: list[Part] = []
    for run in runs:
        found.append(Part.STATE if isinstance(run.mixer, GatedDelta | Mamba2) else Part.ATTENTION)
        found.append(Part.MLP if isinstance(run.ffn, DenseMlp) else Part.EXPERTS)
        if isinstance(run.ffn, Experts) and run.ffn.shared_intermediate:
            found.append(Part.SHARED)
    return tuple(dict.fromkeys(found))
