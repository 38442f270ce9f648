"""The models isim knows by name, each figure as its publisher gives it.

Every figure is that of the `config.json` published beside the weights, except the ones listed with a source of their
own: a head size that the config leaves to hidden_size / num_attention_heads, and what only the architecture's public
implementation says (biases, query and key norms). `sorted_sampling` is what the published `generation_config.json`
makes a server do by default.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from isim.model.spec import Dtype, ModelSpec, Source

_HEAD_DIM = Source(figure="head_dim", text="not in the config; hidden_size / num_attention_heads, as the code has it")
_QWEN2_BIAS = Source(figure="qkv_bias", text="Qwen2 implementation in Hugging Face transformers: bias on q, k, v only")
_QWEN3_NORM = Source(figure="qk_norm", text="Qwen3 implementation in Hugging Face transformers: q_norm and k_norm")
_TOP_P = "generation_config.json of the same repository: top_p below 1 or top_k above 0"
_PLAIN = "generation_config.json of the same repository names neither top_p nor top_k"


def _sources(repository: str, *more: Source, cut: bool) -> tuple[Source, ...]:
    sampling = Source(figure="sorted_sampling", text=_TOP_P if cut else _PLAIN)
    return (Source(figure="*", text=f"config.json of {repository} on Hugging Face"), *more, sampling)


_TABLE: tuple[ModelSpec, ...] = (
    ModelSpec(
        name="llama-2-7b",
        num_hidden_layers=32,
        hidden_size=4096,
        intermediate_size=11008,
        num_attention_heads=32,
        num_key_value_heads=32,
        head_dim=128,
        vocab_size=32000,
        max_position_embeddings=4096,
        weight_dtype=Dtype.FLOAT16,
        sorted_sampling=True,
        sources=_sources("meta-llama/Llama-2-7b-hf", _HEAD_DIM, cut=True),
    ),
    ModelSpec(
        name="llama-2-70b",
        num_hidden_layers=80,
        hidden_size=8192,
        intermediate_size=28672,
        num_attention_heads=64,
        num_key_value_heads=8,
        head_dim=128,
        vocab_size=32000,
        max_position_embeddings=4096,
        weight_dtype=Dtype.FLOAT16,
        sorted_sampling=True,
        sources=_sources("meta-llama/Llama-2-70b-hf", _HEAD_DIM, cut=True),
    ),
    ModelSpec(
        name="llama-3.1-8b",
        num_hidden_layers=32,
        hidden_size=4096,
        intermediate_size=14336,
        num_attention_heads=32,
        num_key_value_heads=8,
        head_dim=128,
        vocab_size=128256,
        max_position_embeddings=131072,
        sorted_sampling=True,
        sources=_sources("meta-llama/Llama-3.1-8B", _HEAD_DIM, cut=True),
    ),
    ModelSpec(
        name="llama-3.1-70b",
        num_hidden_layers=80,
        hidden_size=8192,
        intermediate_size=28672,
        num_attention_heads=64,
        num_key_value_heads=8,
        head_dim=128,
        vocab_size=128256,
        max_position_embeddings=131072,
        sorted_sampling=True,
        sources=_sources("meta-llama/Llama-3.1-70B", _HEAD_DIM, cut=True),
    ),
    ModelSpec(
        name="llama-3.3-70b",
        num_hidden_layers=80,
        hidden_size=8192,
        intermediate_size=28672,
        num_attention_heads=64,
        num_key_value_heads=8,
        head_dim=128,
        vocab_size=128256,
        max_position_embeddings=131072,
        sorted_sampling=True,
        sources=_sources("meta-llama/Llama-3.3-70B-Instruct", cut=True),
    ),
    ModelSpec(
        name="codellama-34b",
        num_hidden_layers=48,
        hidden_size=8192,
        intermediate_size=22016,
        num_attention_heads=64,
        num_key_value_heads=8,
        head_dim=128,
        vocab_size=32000,
        max_position_embeddings=16384,
        sources=_sources("codellama/CodeLlama-34b-Instruct-hf", _HEAD_DIM, cut=False),
    ),
    ModelSpec(
        name="mistral-nemo-12b",
        num_hidden_layers=40,
        hidden_size=5120,
        intermediate_size=14336,
        num_attention_heads=32,
        num_key_value_heads=8,
        head_dim=128,
        vocab_size=131072,
        max_position_embeddings=131072,
        sources=_sources("mistralai/Mistral-Nemo-Instruct-2407", cut=False),
    ),
    ModelSpec(
        name="yi-34b",
        num_hidden_layers=60,
        hidden_size=7168,
        intermediate_size=20480,
        num_attention_heads=56,
        num_key_value_heads=8,
        head_dim=128,
        vocab_size=64000,
        max_position_embeddings=4096,
        sources=_sources("01-ai/Yi-34B", _HEAD_DIM, cut=False),
    ),
    ModelSpec(
        name="qwen2.5-7b",
        num_hidden_layers=28,
        hidden_size=3584,
        intermediate_size=18944,
        num_attention_heads=28,
        num_key_value_heads=4,
        head_dim=128,
        vocab_size=152064,
        max_position_embeddings=32768,
        qkv_bias=True,
        sorted_sampling=True,
        sources=_sources("Qwen/Qwen2.5-7B-Instruct", _HEAD_DIM, _QWEN2_BIAS, cut=True),
    ),
    ModelSpec(
        name="qwen3-8b",
        num_hidden_layers=36,
        hidden_size=4096,
        intermediate_size=12288,
        num_attention_heads=32,
        num_key_value_heads=8,
        head_dim=128,
        vocab_size=151936,
        max_position_embeddings=40960,
        qk_norm=True,
        sorted_sampling=True,
        sources=_sources("Qwen/Qwen3-8B", _QWEN3_NORM, cut=True),
    ),
    ModelSpec(
        name="qwen3-14b",
        num_hidden_layers=40,
        hidden_size=5120,
        intermediate_size=17408,
        num_attention_heads=40,
        num_key_value_heads=8,
        head_dim=128,
        vocab_size=151936,
        max_position_embeddings=40960,
        qk_norm=True,
        sorted_sampling=True,
        sources=_sources("Qwen/Qwen3-14B", _QWEN3_NORM, cut=True),
    ),
    ModelSpec(
        name="qwen3-32b",
        num_hidden_layers=64,
        hidden_size=5120,
        intermediate_size=25600,
        num_attention_heads=64,
        num_key_value_heads=8,
        head_dim=128,
        vocab_size=151936,
        max_position_embeddings=40960,
        qk_norm=True,
        sorted_sampling=True,
        sources=_sources("Qwen/Qwen3-32B", _QWEN3_NORM, cut=True),
    ),
)

LAYERED = (
    "llama-4-scout",
    "mixtral-8x7b",
    "mixtral-8x22b",
    "qwen3-30b-a3b",
    "qwen3-235b-a22b",
    "qwen3.5-27b",
    "qwen3.6-27b",
    "deepseek-v2-lite",
    "deepseek-v3",
    "deepseek-r1",
    "gpt-oss-20b",
    "gpt-oss-120b",
)
"""Names of `isim.model.catalogue_layers`, which is imported when one of them is looked up."""


class Catalogue(Mapping[str, ModelSpec]):
    """All models by name, the plain ones first."""

    def __init__(self) -> None:
        self._known = {model.name: model for model in _TABLE}
        self._names = (*self._known, *LAYERED)

    def __getitem__(self, name: str) -> ModelSpec:
        if name in LAYERED and name not in self._known:
            from isim.model.catalogue_layers import LAYERED_MODELS

            self._known |= LAYERED_MODELS
        return self._known[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


MODELS = Catalogue()
