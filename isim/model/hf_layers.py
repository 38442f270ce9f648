"""The kinds of layers that a Hugging Face config describes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from isim.model.hf_config import Config
from isim.model.hf_keys import Family
from isim.model.layers import (
    ChunkedAttention,
    DenseMlp,
    Experts,
    FeedForward,
    FullAttention,
    GatedDelta,
    LatentAttention,
    LayerRun,
    Mamba2,
    Mixer,
    QkNorm,
    SlidingAttention,
)
from isim.model.spec import DTYPE_ALIASES, Dtype

_LLAMA4_FULL_EVERY = 4

MIXER_NAMES = {
    "full_attention": "full",
    "attention": "full",
    "global_attention": "full",
    "sliding_attention": "sliding",
    "sliding_window": "sliding",
    "local_attention": "sliding",
    "chunked_attention": "chunked",
    "linear_attention": "delta",
    "mamba": "mamba",
    "mamba2": "mamba",
}
"""What `layer_types` may say, and the kind it means."""


def read_layers(config: Config, family: Family, layers: int) -> tuple[LayerRun, ...]:
    """The layers, gathered by kind in the order in which the kinds appear. Raises ConfigError."""
    kinds = _mixer_kinds(config, family, layers)
    makers: dict[str, Callable[[Config, Family], Mixer]] = {
        "full": _full,
        "sliding": _sliding,
        "chunked": _chunked,
        "latent": _latent,
        "delta": _delta,
        "mamba": _mamba,
    }
    mixers = {kind: makers[kind](config, family) for kind in dict.fromkeys(kinds)}
    ffns = _ffns(config, family, layers)
    counts: dict[tuple[Mixer, FeedForward], int] = {}
    for kind, ffn in zip(kinds, ffns, strict=True):
        both = (mixers[kind], ffn)
        counts[both] = counts.get(both, 0) + 1
    return tuple(
        LayerRun(count=count, mixer=mixer, ffn=ffn, norms=family.norms) for (mixer, ffn), count in counts.items()
    )


def _mixer_kinds(config: Config, family: Family, layers: int) -> list[str]:
    """The kind of every layer."""
    listed = config.per_layer("layer_types", layers)
    if config.raw("kv_lora_rank") is not None:
        return ["latent"] * layers
    window = _window(config)
    if listed is not None:
        kinds = [MIXER_NAMES.get(name, "") if type(name) is str else "" for name in listed]
        if "" in kinds:
            names = ", ".join(MIXER_NAMES)
            raise config.error("layer_types", listed[kinds.index("")], f"one of {names} for each layer")
        return ["full" if kind == "sliding" and not window else kind for kind in kinds]
    if config.raw("linear_num_value_heads") is not None:
        every = config.count("full_attention_interval", default=4)
        return ["delta" if (layer + 1) % every else "full" for layer in range(layers)]
    if config.raw("attention_chunk_size") is not None:
        return _chunked_kinds(config, layers)
    if not window:
        return ["full"] * layers
    every = config.count("sliding_window_pattern", default=max(1, family.windows_alternate))
    if every > 1:
        return ["sliding" if (layer + 1) % every else "full" for layer in range(layers)]
    full = config.count("max_window_layers", default=0, least=0) if config.flag("use_sliding_window") else 0
    return ["full" if layer < full else "sliding" for layer in range(layers)]


def _chunked_kinds(config: Config, layers: int) -> list[str]:
    """Llama 4: layers without rotary positions attend to everything, the others within chunks."""
    rotary = config.per_layer("no_rope_layers", layers) if config.raw("no_rope_layers") else None
    every = config.count("no_rope_layer_interval", default=_LLAMA4_FULL_EVERY)
    if rotary is not None:
        return ["chunked" if each else "full" for each in rotary]
    return ["chunked" if (layer + 1) % every else "full" for layer in range(layers)]


def _window(config: Config) -> int:
    """The sliding window in tokens; 0 where there is none, or none that a sequence could outgrow."""
    if not config.flag("use_sliding_window", default=True) or config.raw("sliding_window") in (None, 0):
        return 0
    window = config.count("sliding_window")
    longest = config.count("max_position_embeddings", "max_sequence_length", "seq_length", default=window + 1)
    return window if window < longest else 0


def head_dim(config: Config, heads: int) -> int:
    """The width of a head; hidden_size / num_attention_heads where it is not given."""
    width = config.count("head_dim", default=config.count("hidden_size") // heads)
    if width < 1:
        raise config.error("num_attention_heads", heads, "at most hidden_size where no head_dim is given")
    return width


def _attention_figures(config: Config, family: Family) -> dict[str, Any]:
    heads = config.count("num_attention_heads")
    biased = config.flag("attention_bias") or config.flag("use_bias")
    biased = biased or config.flag("qkv_bias")
    norm = family.qk_norm
    if config.raw("use_qk_norm") is not None:
        norm = (norm if norm is not QkNorm.NONE else QkNorm.HEAD) if config.flag("use_qk_norm") else QkNorm.NONE
    gated = config.flag("attn_output_gate", default=family.gated)
    return {
        "heads": heads,
        "kv_heads": config.count("num_key_value_heads", default=heads),
        "head_dim": head_dim(config, heads),
        "qkv_bias": biased if family.qkv_bias is None else family.qkv_bias,
        "o_bias": biased if family.o_bias is None else family.o_bias,
        "qk_norm": norm,
        "gated": gated,
        "sinks": family.sinks,
    }


def _full(config: Config, family: Family) -> Mixer:
    figures = _attention_figures(config, family)
    figures["head_dim"] = config.count("global_head_dim", default=figures["head_dim"])
    figures["kv_heads"] = config.count("num_global_key_value_heads", default=figures["kv_heads"])
    if figures["heads"] % figures["kv_heads"]:
        raise config.error("num_key_value_heads", figures["kv_heads"], f"a divisor of {figures['heads']} heads")
    return FullAttention(**figures, key_is_value=config.flag("attention_k_eq_v"))


def _sliding(config: Config, family: Family) -> Mixer:
    return SlidingAttention(**_attention_figures(config, family), window_tokens=_window(config))


def _chunked(config: Config, family: Family) -> Mixer:
    return ChunkedAttention(**_attention_figures(config, family), chunk_tokens=config.count("attention_chunk_size"))


def _latent(config: Config, family: Family) -> Mixer:
    if config.flag("attention_bias"):
        raise config.error("attention_bias", True, "false for latent attention")
    for key in ("num_key_value_heads", "head_dim", "qk_head_dim"):
        config.raw(key)
    return LatentAttention(
        heads=config.count("num_attention_heads"),
        q_lora_rank=config.count("q_lora_rank", default=0),
        kv_lora_rank=config.count("kv_lora_rank"),
        nope_dim=config.count("qk_nope_head_dim"),
        rope_dim=config.count("qk_rope_head_dim"),
        value_dim=config.count("v_head_dim"),
    )


def _state_dtype(config: Config) -> Dtype | None:
    name = config.raw("mamba_ssm_dtype")
    if name is None:
        return None
    found = DTYPE_ALIASES.get(name) if type(name) is str else None
    if found is None and name in tuple(Dtype):
        found = Dtype(name)
    if found is None or found.bits < 16:
        raise config.error("mamba_ssm_dtype", name, "float32, bfloat16 or float16")
    return found


def _delta(config: Config, family: Family) -> Mixer:
    return GatedDelta(
        key_heads=config.count("linear_num_key_heads"),
        value_heads=config.count("linear_num_value_heads"),
        key_dim=config.count("linear_key_head_dim"),
        value_dim=config.count("linear_value_head_dim"),
        conv_kernel=config.count("linear_conv_kernel_dim"),
        state_dtype=_state_dtype(config),
    )


def _mamba(config: Config, family: Family) -> Mixer:
    return Mamba2(
        heads=config.count("mamba_n_heads", "mamba_num_heads"),
        head_dim=config.count("mamba_d_head", "mamba_head_dim"),
        groups=config.count("mamba_n_groups", "n_groups", default=1),
        state_dim=config.count("mamba_d_state", "ssm_state_size"),
        conv_kernel=config.count("mamba_d_conv", "conv_kernel", default=4),
        conv_bias=config.flag("mamba_conv_bias", default=True),
        state_dtype=_state_dtype(config),
    )


def _ffns(config: Config, family: Family, layers: int) -> list[FeedForward]:
    """The feed-forward part of every layer."""
    experts = config.count("num_experts", "num_local_experts", "n_routed_experts", default=0, least=0)
    if experts < 1:
        return [_dense(config)] * layers
    routed = _experts(config, family, experts)
    sparse = _sparse(config, layers)
    dense = None if all(sparse) else _dense(config)
    return [routed if each or dense is None else dense for each in sparse]


def _sparse(config: Config, layers: int) -> list[bool]:
    """Which layers have experts."""
    first = config.count("first_k_dense_replace", default=0, least=0)
    every = config.count("decoder_sparse_step", "interleave_moe_layer_step", default=1)
    frequency = config.raw("moe_layer_freq")
    only_dense, only_sparse = config.raw("mlp_only_layers") or [], config.raw("moe_layers")
    for key, value in (("mlp_only_layers", only_dense), ("moe_layers", only_sparse or [])):
        if type(value) is not list or not all(type(each) is int for each in value):
            raise config.error(key, value, "a list of layers")
    found = []
    for layer in range(layers):
        if only_sparse is not None:
            found.append(layer in only_sparse)
            continue
        sparse = layer >= first and layer not in only_dense and (layer + 1) % every == 0
        if type(frequency) is int and frequency > 0:
            sparse = sparse and layer % frequency == 0
        elif type(frequency) is list and len(frequency) == layers:
            sparse = sparse and frequency[layer] == 1
        elif frequency is not None:
            raise config.error("moe_layer_freq", frequency, "a whole number, or a list with 0 or 1 for each layer")
        found.append(sparse)
    return found


def _dense(config: Config) -> DenseMlp:
    width = config.count("shared_intermediate_size", default=0, least=0)
    width = width or config.count("intermediate_size_mlp", "intermediate_size", "ffn_hidden_size")
    return DenseMlp(intermediate=width, bias=config.flag("mlp_bias"))


def _experts(config: Config, family: Family, experts: int) -> Experts:
    width_keys = ("moe_intermediate_size", "expert_ffn_hidden_size", "intermediate_size")
    width = config.count(*width_keys)
    if config.raw(*width_keys[:2]) is None and not family.wide_experts:
        config.assume("intermediate_size", f"no width of the experts is given: intermediate_size {width} is theirs")
    chosen = config.count("num_experts_per_tok", "experts_per_token", "top_k_experts", "moe_topk", "moe_k")
    if chosen > experts:
        raise config.error("num_experts_per_tok", chosen, f"at most the {experts} experts")
    shared = config.count("n_shared_experts", "num_shared_experts", default=int(family.shared_expert), least=0) * width
    key = "shared_expert_intermediate_size"
    shared = config.count(key, "shared_intermediate_size", default=shared, least=0)
    if family.parallel_mlp:
        shared += config.count("intermediate_size")
    return Experts(
        experts=experts,
        experts_per_token=chosen,
        intermediate=width,
        shared_intermediate=shared,
        shared_gate=family.shared_gate and shared > 0,
        router_bias=family.router_bias,
        expert_bias=family.expert_bias,
    )
