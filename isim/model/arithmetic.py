"""Exact integer arithmetic on a model's figures: parameters, bytes and floating-point operations.

The shapes are those of a Llama-like decoder as vLLM lays it out on each of `tensor_parallel_size` ranks: q, k and v as
one matrix, gate and up as one, columns of the first and rows of the second matrix of each pair split over the ranks.
Names follow the published configs: H hidden_size, I intermediate_size, a attention heads, g key-value heads, d
head_dim, V vocab_size, L layers. One multiply and one add are two operations. Models that are not plain go to
`isim.model.layered`, which is imported when the first of them is met.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from isim.model.spec import Dtype, ModelError, ModelSpec, Precision

if TYPE_CHECKING:
    from isim.model.layered import LayeredParameters, LayeredWeights

VOCAB_PADDING = 64
"""Rows of the embedding and the LM head are padded to a multiple of this (vLLM, DEFAULT_VOCAB_PADDING_SIZE)."""


class Parameters(msgspec.Struct, frozen=True, kw_only=True):
    """How many parameters a model has, by part; `attention`, `mlp` and `norms` of one layer."""

    embedding: int
    attention: int
    mlp: int
    norms: int
    layers: int
    final_norm: int
    lm_head: int

    @property
    def total(self) -> int:
        layer = self.attention + self.mlp + self.norms
        return self.embedding + self.layers * layer + self.final_norm + self.lm_head


def parameters(model: ModelSpec) -> Parameters | LayeredParameters:
    """Parameters as published checkpoints count them: unpadded, a tied LM head counted once. `Parameters` if plain.

    embedding V*H; attention H*(a + 2g)*d + a*d*H, biases (a + 2g)*d and H, query and key norms 2*d; gated MLP 3*H*I;
    norms 2*H a layer and H at the end; LM head V*H. Source: the Llama, Qwen2 and Qwen3 implementations in Hugging
    Face transformers.
    """
    if not model.plain:
        from isim.model.layered import layered_parameters

        return layered_parameters(model)
    hidden = model.hidden_size
    query = model.num_attention_heads * model.head_dim
    qkv = query + 2 * model.num_key_value_heads * model.head_dim
    attention = hidden * qkv + query * hidden
    if model.qkv_bias:
        attention += qkv
    if model.o_bias:
        attention += hidden
    if model.qk_norm:
        attention += 2 * model.head_dim
    return Parameters(
        embedding=model.vocab_size * hidden,
        attention=attention,
        mlp=3 * hidden * model.intermediate_size,
        norms=2 * hidden,
        layers=model.num_hidden_layers,
        final_norm=hidden,
        lm_head=0 if model.tie_word_embeddings else model.vocab_size * hidden,
    )


def padded_vocab(model: ModelSpec) -> int:
    """Vocabulary rows as stored and multiplied."""
    return -(-model.vocab_size // VOCAB_PADDING) * VOCAB_PADDING


def _split_complaints(model: ModelSpec, ranks: int, expert_parallel: bool = False) -> list[str]:
    """Why `ranks` ranks cannot share the model, in the engine's own order of complaint."""
    if not model.plain:
        from isim.model.layered import split_complaints

        return split_complaints(model, ranks, padded_vocab(model), expert_parallel)
    heads, kv_heads = model.num_attention_heads, model.num_key_value_heads
    found = []
    if heads % ranks:
        found.append(f"it does not divide {heads} attention heads")
    if kv_heads % ranks and ranks % kv_heads:
        found.append(f"{kv_heads} key-value heads neither divide over it nor replicate evenly")
    if model.intermediate_size % ranks:
        found.append(f"it does not divide intermediate_size {model.intermediate_size}")
    if padded_vocab(model) % ranks:
        found.append(f"it does not divide the padded vocabulary of {padded_vocab(model)} rows")
    return found


def legal_tensor_parallel(model: ModelSpec, expert_parallel: bool = False) -> tuple[int, ...]:
    """Every tensor_parallel_size the model can be split over, ascending.

    It divides the attention heads, the padded vocabulary and intermediate_size, and divides the key-value heads or is
    a multiple of their number (they replicate then); so with state heads, shared experts and, unless whole experts are
    shared out (`expert_parallel`), the experts' width. Source: the divisions vLLM asserts when it builds the layers.
    """
    heads = range(1, model.num_attention_heads + 1)
    return tuple(ranks for ranks in heads if not _split_complaints(model, ranks, expert_parallel))


def check_tensor_parallel(model: ModelSpec, tensor_parallel_size: int, expert_parallel: bool = False) -> None:
    """Raises ModelError, listing the legal values, when the model cannot be split over so many ranks."""
    sound = type(tensor_parallel_size) is int and tensor_parallel_size >= 1
    reasons = ["it is not a positive integer"]
    if sound:
        reasons = _split_complaints(model, tensor_parallel_size, expert_parallel)
    if reasons:
        legal = ", ".join(str(ranks) for ranks in legal_tensor_parallel(model, expert_parallel))
        why = "; ".join(reasons)
        raise ModelError(
            f"engine.tensor_parallel_size: {tensor_parallel_size!r} cannot be used with {model.name}: {why}. "
            f"Legal values: {legal}"
        )


class RankShape(msgspec.Struct, frozen=True, kw_only=True):
    """What one tensor-parallel rank holds of a model: heads, MLP columns and vocabulary rows of its own."""

    ranks: int
    layers: int
    hidden: int
    query: int
    """Columns of its queries: its heads times head_dim."""
    key_value: int
    """Columns of its keys; as many again for its values."""
    intermediate: int
    vocab: int


def rank_shape(model: ModelSpec, tensor_parallel_size: int, expert_parallel: bool = False) -> RankShape:
    """The part of each rank; key-value heads per rank are max(1, g // ranks). Raises ModelError for an illegal split.

    Of a model that is not plain only layers, hidden and vocab say what is there. Source: vLLM QKVParallelLinear,
    MergedColumnParallelLinear, VocabParallelEmbedding.
    """
    check_tensor_parallel(model, tensor_parallel_size, expert_parallel)
    ranks = tensor_parallel_size
    return RankShape(
        ranks=ranks,
        layers=model.num_hidden_layers,
        hidden=model.hidden_size,
        query=model.num_attention_heads // ranks * model.head_dim,
        key_value=max(1, model.num_key_value_heads // ranks) * model.head_dim,
        intermediate=model.intermediate_size // ranks,
        vocab=padded_vocab(model) // ranks,
    )


class Gemm(msgspec.Struct, frozen=True, kw_only=True):
    """A matrix product of one layer or of the head: [m, inner] times [inner, outer]."""

    name: str
    inner: int
    outer: int

    def flops(self, rows: int) -> int:
        """Operations for `rows` rows: 2 * rows * inner * outer."""
        return 2 * rows * self.inner * self.outer

    def moved_bytes(self, rows: int, weights: Dtype, inputs: Dtype, outputs: Dtype) -> int:
        """Bytes for `rows` rows when weights, inputs and outputs each cross memory once; whole bytes, rounded up."""
        bits = self.inner * self.outer * weights.bits
        bits += rows * (self.inner * inputs.bits + self.outer * outputs.bits)
        return -(-bits // 8)


def layer_gemms(shape: RankShape) -> tuple[Gemm, ...]:
    """The four products of a layer on one rank, in the order they run."""
    return (
        Gemm(name="qkv", inner=shape.hidden, outer=shape.query + 2 * shape.key_value),
        Gemm(name="o", inner=shape.query, outer=shape.hidden),
        Gemm(name="gate_up", inner=shape.hidden, outer=2 * shape.intermediate),
        Gemm(name="down", inner=shape.intermediate, outer=shape.hidden),
    )


def head_gemm(shape: RankShape) -> Gemm:
    """The LM head on one rank: one row per scheduled request, over the rank's padded share of the vocabulary."""
    return Gemm(name="lm_head", inner=shape.hidden, outer=shape.vocab)


class RankWeights(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes of weights on one rank, by part; `linear`, `biases` and `norms` of all layers together."""

    embedding_bytes: int
    linear_bytes: int
    biases_bytes: int
    norms_bytes: int
    lm_head_bytes: int

    @property
    def total_bytes(self) -> int:
        return self.embedding_bytes + self.linear_bytes + self.biases_bytes + self.norms_bytes + self.lm_head_bytes


def rank_weights(
    model: ModelSpec, tensor_parallel_size: int, precision: Precision, expert_parallel: bool = False
) -> RankWeights | LayeredWeights:
    """Bytes of weights on each rank, the fullest if they differ. Raises ModelError for an illegal split.

    Norms and the bias of the o projection replicate, the vocabulary pads to 64 rows before it is split, key-value
    heads replicate when there are fewer of them than ranks. Linear layers are in `precision.weights`, all else in
    `precision.model`; only the scales that a checkpoint brings are counted. Source: as `rank_shape`.
    """
    if not model.plain:
        from isim.model.layered import layered_rank_weights

        check_tensor_parallel(model, tensor_parallel_size, expert_parallel)
        rows = padded_vocab(model) // tensor_parallel_size
        return layered_rank_weights(model, tensor_parallel_size, precision, rows, expert_parallel)
    shape = rank_shape(model, tensor_parallel_size)
    whole = precision.model.bits
    elements = sum(gemm.inner * gemm.outer for gemm in layer_gemms(shape))
    biases = (shape.query + 2 * shape.key_value) * model.qkv_bias + shape.hidden * model.o_bias
    norms = 2 * shape.hidden + 2 * model.head_dim * model.qk_norm
    vocabulary = shape.vocab * shape.hidden * whole // 8
    return RankWeights(
        embedding_bytes=vocabulary,
        linear_bytes=-(-shape.layers * elements * precision.weights.bits // 8),
        biases_bytes=shape.layers * biases * whole // 8,
        norms_bytes=(shape.layers * norms + shape.hidden) * whole // 8,
        lm_head_bytes=0 if model.tie_word_embeddings else vocabulary,
    )


def kv_bytes_per_token(model: ModelSpec, kv_cache: Dtype) -> int:
    """Bytes of keys and values one token keeps over all layers and heads, unsplit: 2 * L * g * d * bits / 8.

    Of a model that is not plain: the sum over its layers, windows not counted, states left out.
    """
    if model.layers:
        return _layered_token_bytes(model, 1, kv_cache)
    return 2 * model.num_hidden_layers * model.num_key_value_heads * model.head_dim * kv_cache.bits // 8


def rank_kv_bytes_per_token(model: ModelSpec, tensor_parallel_size: int, kv_cache: Dtype) -> int:
    """Bytes of keys and values one token keeps on one rank: 2 * L * max(1, g // ranks) * d * bits / 8.

    Heads that replicate are counted on every rank that holds them. Raises ModelError for an illegal split.
    """
    if model.layers:
        check_tensor_parallel(model, tensor_parallel_size)
        return _layered_token_bytes(model, tensor_parallel_size, kv_cache)
    shape = rank_shape(model, tensor_parallel_size)
    return 2 * shape.layers * shape.key_value * kv_cache.bits // 8


def _layered_token_bytes(model: ModelSpec, ranks: int, kv_cache: Dtype) -> int:
    from isim.model.groups import mixer_token_bits
    from isim.model.matrices import layer_runs

    return sum(run.count * mixer_token_bits(run.mixer, ranks, kv_cache) for run in layer_runs(model)) // 8


def state_bytes_per_sequence(model: ModelSpec, tensor_parallel_size: int, whole: Dtype) -> int:
    """Bytes of recurrent and convolution states one sequence keeps on one rank over all layers; 0 without such layers.

    `whole` is the model's own number format. Raises ModelError for an illegal split.
    """
    check_tensor_parallel(model, tensor_parallel_size)
    if not model.layers:
        return 0
    from isim.model.groups import mixer_state_bytes

    return sum(run.count * mixer_state_bytes(run.mixer, tensor_parallel_size, whole) for run in model.layers)


def attended_pairs(new_tokens: int, computed_tokens: int) -> int:
    """Query-key pairs of a causal chunk: each new token sees all computed before, itself and the new ones before it.

    n*c + n*(n + 1)/2; a decode token with context c sees c + 1 keys.
    """
    return new_tokens * computed_tokens + new_tokens * (new_tokens + 1) // 2


def attention_flops_per_pair(shape: RankShape) -> int:
    """Operations of one layer on one rank for each query-key pair: 2*d for q.k and 2*d for p.v, for each query head."""
    return 4 * shape.query


def token_flops(model: ModelSpec, context_tokens: int) -> int:
    """Operations of the whole, unsplit model to decode one token with `context_tokens` computed before it.

    Twice the matrix elements of the layers and the LM head, plus attention over context_tokens + 1 keys; norms,
    rotation and activation functions are not matrix products and are left out.
    """
    if not model.plain:
        from isim.model.layered import layered_token_flops

        return layered_token_flops(model, context_tokens)
    shape = rank_shape(model, 1)
    layer = sum(gemm.flops(1) for gemm in layer_gemms(shape))
    layer += attended_pairs(1, context_tokens) * attention_flops_per_pair(shape)
    return shape.layers * layer + 2 * model.vocab_size * model.hidden_size
