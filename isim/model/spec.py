"""What a model is, for one who must say how big and how slow it is: its published figures and number formats.

A `ModelSpec` holds what a checkpoint's config says and what its architecture implies (biases, query and key norms),
each with its source. What follows from the figures is computed in `isim.model.arithmetic`, never stored. A spec
without `layers` is plain: full attention and a gated MLP in every layer. What else layers may be is in
`isim.model.layers`, which nothing imports for a plain model.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import TYPE_CHECKING

import msgspec
from msgspec import UNSET, UnsetType

from isim.record.errors import IsimError

if TYPE_CHECKING:
    from isim.model.layers import LayerRun, Quantization


class ModelError(IsimError):
    """The model, or a number format or split asked of it, is not one that can be served."""


class Dtype(StrEnum):
    FLOAT32 = "float32"
    BFLOAT16 = "bfloat16"
    FLOAT16 = "float16"
    FLOAT8_E4M3 = "float8_e4m3"
    INT8 = "int8"
    INT4 = "int4"
    FLOAT4_E2M1 = "float4_e2m1"

    @property
    def bits(self) -> int:
        return DTYPE_BITS[self]


DTYPE_BITS: dict[Dtype, int] = {
    Dtype.FLOAT32: 32,
    Dtype.BFLOAT16: 16,
    Dtype.FLOAT16: 16,
    Dtype.FLOAT8_E4M3: 8,
    Dtype.INT8: 8,
    Dtype.INT4: 4,
    Dtype.FLOAT4_E2M1: 4,
}

DTYPE_ALIASES: dict[str, Dtype] = {
    "fp32": Dtype.FLOAT32,
    "float": Dtype.FLOAT32,
    "bf16": Dtype.BFLOAT16,
    "fp16": Dtype.FLOAT16,
    "half": Dtype.FLOAT16,
    "fp8": Dtype.FLOAT8_E4M3,
    "fp8_e4m3": Dtype.FLOAT8_E4M3,
    "fp4": Dtype.FLOAT4_E2M1,
}


class Confidence(StrEnum):
    """How far a number can be trusted, best first. A result's class is the weakest of its inputs'."""

    EXACT = "exact"
    BOUNDED = "bounded"
    CALIBRATED = "calibrated"
    HEURISTIC = "heuristic"


_ORDER: tuple[Confidence, ...] = tuple(Confidence)


def weakest(classes: Iterable[Confidence]) -> Confidence:
    """The weakest of these classes; `exact` when there are none."""
    return _ORDER[max((_ORDER.index(each) for each in classes), default=0)]


class Source(msgspec.Struct, frozen=True, kw_only=True):
    """Where a figure comes from. `figure` is the field's name, or `*` for every figure without a source of its own."""

    figure: str
    text: str


class ModelSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A decoder by the names of its published config; without `layers`, dense with full attention in every layer.

    weight_dtype      of the published checkpoint; what is not quantised (embedding, norms, LM head) is stored in it
    qkv_bias, o_bias  whether those projections have a bias
    qk_norm           whether queries and keys are RMS-normalised, with one weight vector of head_dim each
    sorted_sampling   whether the published default sampling cuts by top-k or top-p, for which logits are sorted
    layers            the kinds of layers, where they are not all plain; `layer_runs` gives them for any model
    quantization      how the checkpoint's matrices are quantised, where they are
    assumptions       what the import of a config had to assume, sentences for the report
    """

    name: str
    num_hidden_layers: int
    hidden_size: int
    intermediate_size: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    vocab_size: int
    max_position_embeddings: int
    weight_dtype: Dtype = Dtype.BFLOAT16
    tie_word_embeddings: bool = False
    qkv_bias: bool = False
    o_bias: bool = False
    qk_norm: bool = False
    sorted_sampling: bool = False
    sources: tuple[Source, ...] = ()
    layers: tuple[LayerRun, ...] | UnsetType = UNSET
    quantization: Quantization | UnsetType = UNSET
    assumptions: tuple[str, ...] | UnsetType = UNSET

    @property
    def plain(self) -> bool:
        """Whether every layer is full attention and a gated MLP, and nothing is quantised."""
        return self.layers is UNSET and self.quantization is UNSET

    @property
    def has_experts(self) -> bool:
        """Whether any layer routes tokens to experts."""
        return any(hasattr(run.ffn, "experts") for run in self.layers or ())

    @property
    def keeps_states(self) -> bool:
        """Whether any layer keeps a recurrent state; told without importing what layers may be."""
        return any(hasattr(run.mixer, "conv_kernel") for run in self.layers or ())

    def source_of(self, figure: str) -> str:
        """Where this figure comes from; 'not stated' when nobody said."""
        texts = {source.figure: source.text for source in self.sources}
        return texts.get(figure, texts.get("*", "not stated"))


_COUNTS = (
    "num_hidden_layers",
    "hidden_size",
    "intermediate_size",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "vocab_size",
    "max_position_embeddings",
)


def spec_complaints(model: ModelSpec) -> list[tuple[str, str]]:
    """What is wrong with an explicit model: (field, expected and found), all of it; empty when it is sound."""
    found: list[tuple[str, str]] = []
    for field in _COUNTS:
        value = getattr(model, field)
        if type(value) is not int or value < 1:
            found.append((field, f"expected a positive integer, found {value!r}"))
    if not found and model.num_attention_heads % model.num_key_value_heads:
        heads = model.num_attention_heads
        text = f"expected a divisor of num_attention_heads ({heads}), found {model.num_key_value_heads}"
        found.append(("num_key_value_heads", text))
    if model.weight_dtype.bits < 16:
        text = (
            f"expected a format of 16 bits or more, found {model.weight_dtype}; quantised weights are asked for apart"
        )
        found.append(("weight_dtype", text))
    return found


class Precision(msgspec.Struct, frozen=True, kw_only=True):
    """The number formats of a deployment.

    model        embedding, norms, LM head, attention arithmetic and what passes between layers
    weights      the linear layers' weights
    activations  the linear layers' inputs as their kernels multiply them
    kv_cache     keys and values in the cache
    """

    model: Dtype
    weights: Dtype
    activations: Dtype
    kv_cache: Dtype

    @property
    def gemm(self) -> Dtype:
        """The format the linear layers compute in: the wider operand's, since the narrower one is widened for it."""
        if self.activations.bits >= self.weights.bits:
            return self.activations
        return self.weights


def precision_of(
    model: ModelSpec,
    *,
    weights: Dtype | None = None,
    activations: Dtype | None = None,
    kv_cache: Dtype | None = None,
) -> Precision:
    """The formats of a deployment of `model`, where None is the engine's default (`auto`).

    Weights of 16 bits or more set the format of everything else; narrower ones are quantised linear layers in a model
    that otherwise keeps its published format. Quantised weights alone leave activations unquantised. A quantised
    checkpoint brings both formats itself. Raises ModelError for a cache format no engine has.
    """
    own = model.quantization or None
    if own is not None and weights in (None, own.weights):
        weights, activations = own.weights, activations or own.activations
    chosen = weights or model.weight_dtype
    whole = chosen if chosen.bits >= 16 else model.weight_dtype
    cache = kv_cache or whole
    if cache.bits < 8:
        raise ModelError(f"engine.kv_cache_dtype: expected a format of 8 bits or more, found {cache}")
    return Precision(model=whole, weights=chosen, activations=activations or whole, kv_cache=cache)
