"""The models isim knows by name whose layers are not all plain, each figure as its publisher gives it.

Every figure is that of the `config.json` published beside the weights, but for what only the public implementation of
the architecture says; those have sources of their own under `layers`. Multi-token prediction layers and vision parts
are left out: they are not run when text is served.
"""

from __future__ import annotations

from isim.model.layers import (
    ChunkedAttention,
    DenseMlp,
    Experts,
    FullAttention,
    GatedDelta,
    LatentAttention,
    LayerRun,
    Mixer,
    Part,
    QkNorm,
    Quantization,
    SlidingAttention,
)
from isim.model.spec import Dtype, ModelSpec, Source

_CUT = "generation_config.json of the same repository: top_p below 1 or top_k above 0"
_PLAIN = "generation_config.json of the same repository names neither top_p nor top_k"
_MIXTRAL = "config.json; no biases and no query and key norms, as the Mixtral implementation in transformers has it"
_QWEN3 = "config.json; query and key norms of one weight vector, as the Qwen3-MoE implementation in transformers has it"
_QWEN35 = (
    "config.json; output gate, query and key norms and the shapes of the gated delta-net as the Qwen3.5 "
    "implementation in transformers has them"
)
_SCOUT = (
    "config.json; one shared expert of the experts' width, every fourth layer without rotary positions and chunks, "
    "norms without weights, as the Llama-4 implementation in transformers has it"
)
_DEEPSEEK = "config.json; shapes of latent attention as the DeepSeek implementation in transformers has them"
_GPT_OSS = "config.json; sinks, and biases of router and experts, as the gpt-oss implementation in transformers has it"
_SUBSTITUTE = (
    "SUBSTITUTION: the published layer figures of Qwen3.5-27B (config.json of Qwen/Qwen3.5-27B on Hugging Face), of "
    "which Qwen3.6-27B is the successor of the same size; its own config was not read"
)


def _sources(repository: str, layers: str, *, cut: bool) -> tuple[Source, ...]:
    return (
        Source(figure="*", text=f"config.json of {repository} on Hugging Face"),
        Source(figure="layers", text=layers),
        Source(figure="sorted_sampling", text=_CUT if cut else _PLAIN),
    )


def _mixtral(name: str, repository: str, layers: int, hidden: int, width: int, more: dict[str, int]) -> ModelSpec:
    mixer = FullAttention(heads=more["heads"], kv_heads=8, head_dim=128)
    ffn = Experts(experts=8, experts_per_token=2, intermediate=width)
    return ModelSpec(
        name=name,
        num_hidden_layers=layers,
        hidden_size=hidden,
        intermediate_size=width,
        num_attention_heads=more["heads"],
        num_key_value_heads=8,
        head_dim=128,
        vocab_size=more["vocab"],
        max_position_embeddings=more["longest"],
        sources=_sources(repository, _MIXTRAL, cut=False),
        layers=(LayerRun(count=layers, mixer=mixer, ffn=ffn),),
    )


def _qwen3(name: str, repository: str, layers: int, hidden: int, heads: int, widths: tuple[int, int]) -> ModelSpec:
    mixer = FullAttention(heads=heads, kv_heads=4, head_dim=128, qk_norm=QkNorm.HEAD)
    ffn = Experts(experts=128, experts_per_token=8, intermediate=widths[1])
    return ModelSpec(
        name=name,
        num_hidden_layers=layers,
        hidden_size=hidden,
        intermediate_size=widths[0],
        num_attention_heads=heads,
        num_key_value_heads=4,
        head_dim=128,
        vocab_size=151936,
        max_position_embeddings=40960,
        sorted_sampling=True,
        sources=_sources(repository, _QWEN3, cut=True),
        layers=(LayerRun(count=layers, mixer=mixer, ffn=ffn),),
    )


def _qwen35(name: str, sources: tuple[Source, ...]) -> ModelSpec:
    delta = GatedDelta(
        key_heads=16, value_heads=48, key_dim=128, value_dim=128, conv_kernel=4, state_dtype=Dtype.FLOAT32
    )
    full = FullAttention(heads=24, kv_heads=4, head_dim=256, qk_norm=QkNorm.HEAD, gated=True)
    ffn = DenseMlp(intermediate=17408)
    return ModelSpec(
        name=name,
        num_hidden_layers=64,
        hidden_size=5120,
        intermediate_size=17408,
        num_attention_heads=24,
        num_key_value_heads=4,
        head_dim=256,
        vocab_size=248320,
        max_position_embeddings=262144,
        sorted_sampling=True,
        sources=sources,
        layers=(LayerRun(count=48, mixer=delta, ffn=ffn), LayerRun(count=16, mixer=full, ffn=ffn)),
    )


_FP8_BLOCKS = Quantization(
    method="fp8",
    weights=Dtype.FLOAT8_E4M3,
    activations=Dtype.FLOAT8_E4M3,
    group_elements=128 * 128,
    group_bits=32,
    block_columns=128,
    parts=(Part.ATTENTION, Part.MLP, Part.SHARED, Part.EXPERTS),
)


def _deepseek_v3(name: str, repository: str, *, cut: bool) -> ModelSpec:
    mixer = LatentAttention(heads=128, q_lora_rank=1536, kv_lora_rank=512, nope_dim=128, rope_dim=64, value_dim=128)
    experts = Experts(experts=256, experts_per_token=8, intermediate=2048, shared_intermediate=2048, router_bias=True)
    return ModelSpec(
        name=name,
        num_hidden_layers=61,
        hidden_size=7168,
        intermediate_size=18432,
        num_attention_heads=128,
        num_key_value_heads=128,
        head_dim=192,
        vocab_size=129280,
        max_position_embeddings=163840,
        sorted_sampling=cut,
        sources=_sources(repository, _DEEPSEEK, cut=cut),
        layers=(
            LayerRun(count=3, mixer=mixer, ffn=DenseMlp(intermediate=18432)),
            LayerRun(count=58, mixer=mixer, ffn=experts),
        ),
        quantization=_FP8_BLOCKS,
    )


def _deepseek_v2_lite() -> ModelSpec:
    mixer = LatentAttention(heads=16, q_lora_rank=0, kv_lora_rank=512, nope_dim=128, rope_dim=64, value_dim=128)
    experts = Experts(experts=64, experts_per_token=6, intermediate=1408, shared_intermediate=2816)
    return ModelSpec(
        name="deepseek-v2-lite",
        num_hidden_layers=27,
        hidden_size=2048,
        intermediate_size=10944,
        num_attention_heads=16,
        num_key_value_heads=16,
        head_dim=192,
        vocab_size=102400,
        max_position_embeddings=163840,
        sorted_sampling=True,
        sources=_sources("deepseek-ai/DeepSeek-V2-Lite", _DEEPSEEK, cut=True),
        layers=(
            LayerRun(count=1, mixer=mixer, ffn=DenseMlp(intermediate=10944)),
            LayerRun(count=26, mixer=mixer, ffn=experts),
        ),
    )


def _gpt_oss(name: str, repository: str, layers: int, experts: int) -> ModelSpec:
    ffn = Experts(experts=experts, experts_per_token=4, intermediate=2880, router_bias=True, expert_bias=True)
    sliding: Mixer = SlidingAttention(
        heads=64, kv_heads=8, head_dim=64, qkv_bias=True, o_bias=True, sinks=True, window_tokens=128
    )
    full: Mixer = FullAttention(heads=64, kv_heads=8, head_dim=64, qkv_bias=True, o_bias=True, sinks=True)
    return ModelSpec(
        name=name,
        num_hidden_layers=layers,
        hidden_size=2880,
        intermediate_size=2880,
        num_attention_heads=64,
        num_key_value_heads=8,
        head_dim=64,
        vocab_size=201088,
        max_position_embeddings=131072,
        sources=_sources(repository, _GPT_OSS, cut=False),
        layers=tuple(LayerRun(count=layers // 2, mixer=mixer, ffn=ffn) for mixer in (sliding, full)),
        quantization=Quantization(
            method="mxfp4", weights=Dtype.FLOAT4_E2M1, group_elements=32, group_bits=8, parts=(Part.EXPERTS,)
        ),
    )


def _scout() -> ModelSpec:
    ffn = Experts(experts=16, experts_per_token=1, intermediate=8192, shared_intermediate=8192)
    chunked: Mixer = ChunkedAttention(heads=40, kv_heads=8, head_dim=128, qk_norm=QkNorm.UNWEIGHTED, chunk_tokens=8192)
    full: Mixer = FullAttention(heads=40, kv_heads=8, head_dim=128, qk_norm=QkNorm.UNWEIGHTED)
    return ModelSpec(
        name="llama-4-scout",
        num_hidden_layers=48,
        hidden_size=5120,
        intermediate_size=8192,
        num_attention_heads=40,
        num_key_value_heads=8,
        head_dim=128,
        vocab_size=202048,
        max_position_embeddings=10485760,
        sorted_sampling=True,
        sources=_sources("meta-llama/Llama-4-Scout-17B-16E-Instruct", _SCOUT, cut=True),
        layers=(LayerRun(count=36, mixer=chunked, ffn=ffn), LayerRun(count=12, mixer=full, ffn=ffn)),
    )


_SUBSTITUTED = tuple(
    Source(figure=figure, text=_SUBSTITUTE + (f"; {_CUT}" if figure == "sorted_sampling" else ""))
    for figure in ("*", "layers", "sorted_sampling")
)

_TABLE: tuple[ModelSpec, ...] = (
    _scout(),
    _mixtral(
        "mixtral-8x7b",
        "mistralai/Mixtral-8x7B-v0.1",
        32,
        4096,
        14336,
        {"heads": 32, "vocab": 32000, "longest": 32768},
    ),
    _mixtral(
        "mixtral-8x22b",
        "mistralai/Mixtral-8x22B-v0.1",
        56,
        6144,
        16384,
        {"heads": 48, "vocab": 32000, "longest": 65536},
    ),
    _qwen3("qwen3-30b-a3b", "Qwen/Qwen3-30B-A3B", 48, 2048, 32, (6144, 768)),
    _qwen3("qwen3-235b-a22b", "Qwen/Qwen3-235B-A22B", 94, 4096, 64, (12288, 1536)),
    _qwen35("qwen3.5-27b", _sources("Qwen/Qwen3.5-27B", _QWEN35, cut=True)),
    _qwen35("qwen3.6-27b", _SUBSTITUTED),
    _deepseek_v2_lite(),
    _deepseek_v3("deepseek-v3", "deepseek-ai/DeepSeek-V3", cut=False),
    _deepseek_v3("deepseek-r1", "deepseek-ai/DeepSeek-R1", cut=True),
    _gpt_oss("gpt-oss-20b", "openai/gpt-oss-20b", 24, 32),
    _gpt_oss("gpt-oss-120b", "openai/gpt-oss-120b", 36, 128),
)

LAYERED_MODELS: dict[str, ModelSpec] = {model.name: model for model in _TABLE}
