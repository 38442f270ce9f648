"""The kinds of layers a decoder is made of, as tagged unions of published figures, and how weights are quantised.

A layer is a mixer (it passes information between positions) and a feed-forward part. A model is a tuple of
`LayerRun`s: so many layers of one kind. In which order the kinds follow each other changes no cost and is not kept.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from isim.model.spec import Dtype


class QkNorm(StrEnum):
    """How queries and keys are normalised: with one weight vector of head_dim, one over all heads, or without any."""

    NONE = "none"
    HEAD = "head"
    ALL_HEADS = "all_heads"
    UNWEIGHTED = "unweighted"


class FullAttention(msgspec.Struct, frozen=True, kw_only=True, tag="full"):
    """Grouped-query attention over all tokens before.

    gated        the query projection also gives a gate for the output (Qwen3.5)
    key_is_value there is no value projection; keys are cached as values too (Gemma 4)
    sinks        one learned logit a head (gpt-oss)
    """

    heads: int
    kv_heads: int
    head_dim: int
    qkv_bias: bool = False
    o_bias: bool = False
    qk_norm: QkNorm = QkNorm.NONE
    gated: bool = False
    key_is_value: bool = False
    sinks: bool = False


class SlidingAttention(FullAttention, frozen=True, kw_only=True, tag="sliding"):
    """Attention to the `window_tokens` last tokens, the token itself among them."""

    window_tokens: int


class ChunkedAttention(FullAttention, frozen=True, kw_only=True, tag="chunked"):
    """Attention within chunks of `chunk_tokens` tokens; keys of all tokens are kept."""

    chunk_tokens: int


class LatentAttention(msgspec.Struct, frozen=True, kw_only=True, tag="latent"):
    """Multi-head latent attention: kv_lora_rank + rope_dim numbers a token are kept, once, whatever the heads.

    `q_lora_rank` 0: queries are projected directly.
    """

    heads: int
    q_lora_rank: int
    kv_lora_rank: int
    nope_dim: int
    rope_dim: int
    value_dim: int


class GatedDelta(msgspec.Struct, frozen=True, kw_only=True, tag="gated_delta"):
    """Gated delta-net: a convolution and a recurrent state of key_dim x value_dim for each value head."""

    key_heads: int
    value_heads: int
    key_dim: int
    value_dim: int
    conv_kernel: int
    state_dtype: Dtype | None = None
    """Format of the recurrent state; None is the model's own."""


class Mamba2(msgspec.Struct, frozen=True, kw_only=True, tag="mamba2"):
    """Mamba-2: a convolution and a recurrent state of head_dim x state_dim for each head."""

    heads: int
    head_dim: int
    groups: int
    state_dim: int
    conv_kernel: int
    conv_bias: bool = True
    state_dtype: Dtype | None = None


Attention = FullAttention | SlidingAttention | ChunkedAttention
State = GatedDelta | Mamba2
Mixer = FullAttention | SlidingAttention | ChunkedAttention | LatentAttention | GatedDelta | Mamba2


class DenseMlp(msgspec.Struct, frozen=True, kw_only=True, tag="dense"):
    """A gated MLP: two matrices up, one down."""

    intermediate: int
    bias: bool = False


class Experts(msgspec.Struct, frozen=True, kw_only=True, tag="experts"):
    """Routed gated MLPs, `experts_per_token` of them for each token, beside shared ones that every token passes.

    `shared_intermediate` is the width of all shared experts together, or of a dense MLP in parallel; 0 is none.
    """

    experts: int
    experts_per_token: int
    intermediate: int
    shared_intermediate: int = 0
    shared_gate: bool = False
    router_bias: bool = False
    expert_bias: bool = False


FeedForward = DenseMlp | Experts


class LayerRun(msgspec.Struct, frozen=True, kw_only=True):
    """`count` layers of one kind; `norms` weight vectors of hidden_size in each."""

    count: int
    mixer: Mixer
    ffn: FeedForward
    norms: int = 2


class Part(StrEnum):
    """What a quantisation may include or leave alone. Embedding, router, norms and biases are never quantised."""

    ATTENTION = "attention"
    STATE = "state"
    MLP = "mlp"
    SHARED = "shared"
    EXPERTS = "experts"
    LM_HEAD = "lm_head"


class Quantization(msgspec.Struct, frozen=True, kw_only=True):
    """How a checkpoint's matrices are stored, and what their inputs are quantised to when multiplied.

    weights         format of an element
    activations     None: left as they are, so that weights are widened and products run at the model's own rate
    group_elements  elements that share a scale (and zero point); 0: a scale a row or matrix, which is not counted
    group_bits      bits of that scale and zero point
    block_columns   columns a rank must get whole multiples of; 1 where any number will do
    parts           what is quantised; all else is stored as the model's own format
    """

    method: str
    weights: Dtype
    activations: Dtype | None = None
    group_elements: int = 0
    group_bits: int = 0
    block_columns: int = 1
    parts: tuple[Part, ...]

    def stored_bits(self, elements: int) -> int:
        """Bits of so many elements with their scales."""
        groups = -(-elements // self.group_elements) if self.group_elements else 0
        return elements * self.weights.bits + groups * self.group_bits


LINEAR_PARTS = (Part.ATTENTION, Part.STATE, Part.MLP, Part.SHARED, Part.EXPERTS)
"""Every matrix of the layers but the router: what engines quantise unless a checkpoint says otherwise."""
