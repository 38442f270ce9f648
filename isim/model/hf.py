"""A Hugging Face config.json as a `ModelSpec`.

Everything that changes cost is read, refused with its place in the file, or assumed in a sentence that the report
prints; keys known not to change it are listed in `isim.model.hf_keys`. What lies beside the file is read too: the
default sampling from `generation_config.json`, and the quantisation from `hf_quant_config.json` where the config has
none. Vision and audio parts are not modelled: isim serves text.
"""

from __future__ import annotations

import os
from typing import Any

from msgspec import UNSET

from isim.model.hf_config import Config, ConfigError, open_config, read_object, short_path
from isim.model.hf_keys import FAMILIES, MTP_KEYS, NO_COST, NOT_SUPPORTED_TYPES, ONLY, STATE_PREFIXES, Family
from isim.model.hf_layers import read_layers
from isim.model.hf_quant import KEY, read_quantization
from isim.model.layers import DenseMlp, FullAttention, LatentAttention, LayerRun, QkNorm
from isim.model.spec import DTYPE_ALIASES, Dtype, ModelSpec, Source

MAX_LAYERS = 10_000
MAX_HEADS = 100_000
_PENALTIES = {"repetition_penalty": 1, "min_p": 0, "typical_p": 1}
_SAMPLING_MOST = {"top_k": 10**9, "repetition_penalty": 10**9}
_STRETCHED = ("linear", "dynamic", "yarn")
"""Kinds of rotary scaling for which vLLM takes another longest sequence than max_position_embeddings."""


def model_name(path: str | os.PathLike[str]) -> str:
    """What to call a model of this path: its folder for a `config.json`, else the file's name without its ending."""
    short = short_path(os.fspath(path))
    return os.path.dirname(short) or os.path.splitext(short)[0]


def import_config(path: str | os.PathLike[str], name: str = "") -> ModelSpec:
    """The model that the config.json at `path` describes. Raises ConfigError for what is not there or not supported.

    `name` is what the report calls it; else it is named after the file or its folder.
    """
    config = open_config(path)
    family = _family(config)
    _defaults(config, family)
    layers = config.count("num_hidden_layers", "n_layer", "num_layers")
    if layers > MAX_LAYERS:
        raise config.error("num_hidden_layers", layers, f"at most {MAX_LAYERS}")
    if config.count("num_attention_heads", default=1) > MAX_HEADS:
        raise config.error("num_attention_heads", config.raw("num_attention_heads"), f"at most {MAX_HEADS}")
    config.count("hidden_size")
    for key in ("sliding_window", "intermediate_size_mlp"):
        config.raw(key)
    _beside_quantization(config)
    runs = read_layers(config, family, layers)
    quantization = read_quantization(config, runs, layers)
    sampling, sampling_source = _sampling(config)
    name = name or model_name(path)
    figures = _figures(config, family, runs, layers)
    _check_rest(config)
    sources = [Source(figure="*", text=f"the config.json of {name}, as the run file names it")]
    sources.append(Source(figure="sorted_sampling", text=sampling_source))
    return ModelSpec(
        name=name,
        **figures,
        sorted_sampling=sampling,
        sources=tuple(sources),
        layers=UNSET if _is_plain(runs) else runs,
        quantization=quantization or UNSET,
        assumptions=tuple(config.assumptions) or UNSET,
    )


def _family(config: Config) -> Family:
    kind = config.raw("model_type")
    inner = config.values.get("model_type", kind)
    for each in (inner, f"{inner}_text", kind):
        if type(each) is not str:
            continue
        if each in NOT_SUPPORTED_TYPES:
            raise ConfigError(
                f"{config.place('model_type')}: model_type: found {each!r}, which has {NOT_SUPPORTED_TYPES[each]}; "
                "supported are grouped-query, sliding-window, chunked, latent, gated delta-net and Mamba-2 layers with "
                "gated MLPs or routed experts"
            )
        if each in FAMILIES:
            return FAMILIES[each]
    config.assume(
        "model_type",
        f"model_type {inner!r} is not known: taken for a Llama-like decoder with two norms a layer, gated MLPs, and "
        "biases as attention_bias says",
    )
    return Family()


def _defaults(config: Config, family: Family) -> None:
    """What the configuration class of the family stands in with."""
    for key, value in family.defaults:
        if config.raw(key) is None:
            config.assume("", f"{key} is not given: {value}, the default of this model_type's configuration class")
            config.values[key] = value


def _figures(config: Config, family: Family, runs: tuple[LayerRun, ...], layers: int) -> dict[str, Any]:
    """The flat figures; of a model with several kinds of layers those of its first attention."""
    hidden = config.count("hidden_size")
    heads = config.count("num_attention_heads", default=1)
    mixer = next((run.mixer for run in runs if isinstance(run.mixer, FullAttention | LatentAttention)), None)
    width, kv_heads = config.count("head_dim", default=max(1, hidden // heads)), heads
    if isinstance(mixer, LatentAttention):
        width = mixer.nope_dim + mixer.rope_dim
    elif mixer is not None:
        width, kv_heads = mixer.head_dim, mixer.kv_heads
        if mixer.heads % mixer.kv_heads:
            raise config.error("num_key_value_heads", mixer.kv_heads, f"a divisor of {mixer.heads} attention heads")
    plain = _is_plain(runs)
    return {
        "num_hidden_layers": layers,
        "hidden_size": hidden,
        "intermediate_size": config.count("intermediate_size", "moe_intermediate_size"),
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "head_dim": width,
        "vocab_size": config.count("vocab_size"),
        "max_position_embeddings": _longest(config, family),
        "weight_dtype": _dtype(config),
        "tie_word_embeddings": _tied(config, family),
        "qkv_bias": plain and isinstance(mixer, FullAttention) and mixer.qkv_bias,
        "o_bias": plain and isinstance(mixer, FullAttention) and mixer.o_bias,
        "qk_norm": plain and isinstance(mixer, FullAttention) and mixer.qk_norm is QkNorm.HEAD,
    }


def _is_plain(runs: tuple[LayerRun, ...]) -> bool:
    """Whether a flat spec says the same."""
    if len(runs) != 1 or runs[0].norms != 2:
        return False
    mixer, ffn = runs[0].mixer, runs[0].ffn
    if type(mixer) is not FullAttention or not isinstance(ffn, DenseMlp) or ffn.bias:
        return False
    same_norm = mixer.qk_norm in (QkNorm.NONE, QkNorm.HEAD)
    return same_norm and not (mixer.gated or mixer.sinks or mixer.key_is_value)


def _tied(config: Config, family: Family) -> bool:
    return config.flag("tie_word_embeddings", default=family.tied)


def _dtype(config: Config) -> Dtype:
    name = config.raw("torch_dtype", "dtype")
    if name is None:
        config.assume("torch_dtype", "no torch_dtype is given: what is not quantised is stored in bfloat16")
        return Dtype.BFLOAT16
    bare = name.removeprefix("torch.") if type(name) is str else ""
    found = DTYPE_ALIASES.get(bare) or (Dtype(bare) if bare in tuple(Dtype) else None)
    if found is None or found.bits < 16:
        raise config.error("torch_dtype", name, "bfloat16, float16 or float32")
    return found


def _longest(config: Config, family: Family) -> int:
    """The longest sequence as vLLM derives it: some rotary scalings stretch it."""
    keys = ("max_position_embeddings", "max_sequence_length", "seq_length", "model_max_length")
    longest = config.count(*keys)
    scaling = config.block("rope_scaling") or config.block("rope_parameters")
    kind = scaling.get("rope_type", scaling.get("type"))
    factor = scaling.get("factor")
    if not family.stretched or kind not in _STRETCHED:
        return longest
    if not isinstance(factor, int | float) or not 1 <= factor <= 10**6:
        return longest
    base = longest
    if kind == "yarn":
        original = scaling.get("original_max_position_embeddings")
        base = original if type(original) is int and original > 0 else longest
    stretched = int(base * factor)
    if stretched != longest:
        config.assume(
            "rope_scaling", f"{kind} scaling by {factor} makes the longest sequence {stretched}, as vLLM derives it"
        )
    return stretched


def _beside(config: Config, file: str) -> Config | None:
    """The JSON object in a file beside the config; None where there is no such file."""
    path = os.path.join(os.path.dirname(config.path), file)
    if not os.path.lexists(path):
        return None
    text, values = read_object(path)
    return Config(path, text, values, values, "")


def _beside_quantization(config: Config) -> None:
    """ModelOpt writes the quantisation into a file of its own."""
    if config.raw(KEY, "compression_config") is not None:
        return
    found = _beside(config, "hf_quant_config.json")
    if found is not None:
        config.values[KEY] = {"quant_method": "modelopt", **found.values}
        config.raw(KEY)


def _sampling(config: Config) -> tuple[bool, str]:
    """Whether default sampling sorts, and who says so. vLLM takes its defaults from generation_config.json."""
    file = "generation_config.json"
    found = _beside(config, file)
    if found is None:
        config.assume("", f"there is no {file} beside it: default sampling sorts nothing")
        return False, f"no {file} beside the config"
    numbers = {}
    for key, neutral in (("top_p", 1), ("top_k", 0), *_PENALTIES.items()):
        value = found.raw(key)
        value = neutral if value is None else value
        least, most = -1 if key == "top_k" else 0, _SAMPLING_MOST.get(key, 1)
        if type(value) not in (int, float) or not least <= value <= most:
            raise found.error(key, value, f"a number from {least} to {most}")
        numbers[key] = value
    for key, neutral in _PENALTIES.items():
        if numbers[key] != neutral:
            config.assume("", f"{file} sets {key} to {numbers[key]}, which costs nothing here")
    if found.raw("max_new_tokens") is not None:
        longest = str(found.raw("max_new_tokens"))[:20]
        config.assume("", f"{file} sets max_new_tokens to {longest}; the workload's lengths are used")
    return numbers["top_p"] < 1 or numbers["top_k"] > 0, f"{file} beside the config"


def _check_rest(config: Config) -> None:
    """Keys that nobody read: known to cost nothing, supported at some values, or assumed to cost nothing."""
    for key in config.unseen():
        value = config.values[key]
        only = ONLY.get(key)
        if only is not None:
            if value is not None and value not in only.values:
                supported = " or ".join(str(each) for each in only.values) or "no such key"
                raise config.error(key, value, f"{supported} ({only.meaning} are not modelled)")
        elif key.startswith(STATE_PREFIXES) and config.raw("layer_types") is None and value is not None:
            raise config.error(key, value, "no such key unless layer_types says which layers have a state")
        elif key in MTP_KEYS:
            if value:
                config.assume(key, "multi-token prediction is not loaded and not run")
        elif key.startswith(("vision", "audio", "video", "image", "boa_", "eoa_", "boi_", "eoi_")):
            continue
        elif key not in NO_COST and value is not None:
            config.assume(key, f"{key} is not a key that isim knows; it is taken to change no cost")
    if config.outer is not config.values:
        vision = [key for key in ("vision_config", "audio_config") if config.outer.get(key)]
        if vision:
            config.assume(vision[0], "only the text model is loaded and run: no vision, no audio")
