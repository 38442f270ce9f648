"""The arithmetic of `isim.model.arithmetic` for models whose layers are not all plain, or whose weights are quantised.

Parameters, active parameters, legal splits, and bytes of weights on a rank, each summed over the kinds of layers. On a
plain model it gives what the plain arithmetic gives; a test holds that.
"""

from __future__ import annotations

import msgspec

from isim.model.layers import (
    LINEAR_PARTS,
    ChunkedAttention,
    DenseMlp,
    Experts,
    GatedDelta,
    LatentAttention,
    LayerRun,
    Mamba2,
    Part,
    Quantization,
    SlidingAttention,
)
from isim.model.matrices import (
    Matrix,
    ffn_matrices,
    ffn_vectors,
    layer_runs,
    mixer_matrices,
    mixer_vectors,
    state_elements,
)
from isim.model.spec import Dtype, ModelSpec, Precision


class LayeredParameters(msgspec.Struct, frozen=True, kw_only=True):
    """Parameters by part; `mixers`, `ffn` and `norms` of all layers together. `active` is what one token passes."""

    embedding: int
    mixers: int
    ffn: int
    norms: int
    lm_head: int
    active: int

    @property
    def total(self) -> int:
        return self.embedding + self.mixers + self.ffn + self.norms + self.lm_head


def layered_parameters(model: ModelSpec) -> LayeredParameters:
    """Parameters as published checkpoints count them, unpadded; a tied LM head is counted once.

    `active` leaves out the experts a token is not sent to, and the embedding, of which it reads one row. Source of the
    shapes: the implementations of each architecture in Hugging Face transformers and vLLM.
    """
    hidden = model.hidden_size
    mixers = ffn = idle = 0
    norms = hidden
    for run in layer_runs(model):
        mixers += run.count * (_elements(mixer_matrices(run.mixer, hidden, 1)) + mixer_vectors(run.mixer, hidden, 1))
        matrices = ffn_matrices(run.ffn, hidden, 1)
        ffn += run.count * (_elements(matrices) + ffn_vectors(run.ffn, hidden, 1))
        norms += run.count * run.norms * hidden
        if isinstance(run.ffn, Experts):
            routed = _elements(tuple(each for each in matrices if each.routed)) // run.ffn.experts
            idle += run.count * routed * (run.ffn.experts - run.ffn.experts_per_token)
    vocabulary = model.vocab_size * hidden
    return LayeredParameters(
        embedding=vocabulary,
        mixers=mixers,
        ffn=ffn,
        norms=norms,
        lm_head=0 if model.tie_word_embeddings else vocabulary,
        active=mixers + ffn - idle + norms + vocabulary,
    )


def _elements(matrices: tuple[Matrix, ...]) -> int:
    return sum(each.elements for each in matrices)


STATE_FLOPS = 7
"""Operations for each number of a state and token: decay 1, reading by the key 2, update 2, reading by the query 2."""


def layered_token_flops(model: ModelSpec, context_tokens: int) -> int:
    """Operations of the whole model to decode one token after `context_tokens` computed ones.

    Twice the elements of the matrices it passes; attention over the keys it sees, absorbed where latent; states in
    their recurrent form.
    """
    hidden, keys = model.hidden_size, context_tokens + 1
    found = 2 * model.vocab_size * hidden
    for run in layer_runs(model):
        mixer, ffn = run.mixer, run.ffn
        matrices = (*mixer_matrices(mixer, hidden, 1), *ffn_matrices(ffn, hidden, 1))
        layer = 2 * _elements(tuple(each for each in matrices if not each.routed))
        if isinstance(ffn, Experts):
            routed = _elements(tuple(each for each in matrices if each.routed))
            layer += 2 * routed // ffn.experts * ffn.experts_per_token
        if isinstance(mixer, LatentAttention):
            layer += 2 * mixer.heads * (2 * mixer.kv_lora_rank + mixer.rope_dim) * keys
        elif isinstance(mixer, GatedDelta | Mamba2):
            layer += STATE_FLOPS * state_elements(mixer, 1)
        elif isinstance(mixer, SlidingAttention):
            layer += 4 * mixer.heads * mixer.head_dim * min(keys, mixer.window_tokens)
        elif isinstance(mixer, ChunkedAttention):
            layer += 4 * mixer.heads * mixer.head_dim * (context_tokens % mixer.chunk_tokens + 1)
        else:
            layer += 4 * mixer.heads * mixer.head_dim * keys
        found += run.count * layer
    return found


def split_complaints(model: ModelSpec, ranks: int, padded_vocab: int, expert_parallel: bool) -> list[str]:
    """Why `ranks` ranks cannot share the model; each reason once."""
    found: list[str] = []
    for run in layer_runs(model):
        found += _mixer_complaints(run, ranks) + _ffn_complaints(model, run, ranks, expert_parallel)
    if padded_vocab % ranks:
        found.append(f"it does not divide the padded vocabulary of {padded_vocab} rows")
    return list(dict.fromkeys(found))


def _mixer_complaints(run: LayerRun, ranks: int) -> list[str]:
    mixer = run.mixer
    if isinstance(mixer, LatentAttention):
        return _undivided(ranks, (mixer.heads, "attention heads"))
    if isinstance(mixer, GatedDelta):
        return _undivided(ranks, (mixer.key_heads, "state key heads"), (mixer.value_heads, "state value heads"))
    if isinstance(mixer, Mamba2):
        return _undivided(ranks, (mixer.heads, "state heads")) + _unshared(ranks, mixer.groups, "state groups")
    return _undivided(ranks, (mixer.heads, "attention heads")) + _unshared(ranks, mixer.kv_heads, "key-value heads")


def _ffn_complaints(model: ModelSpec, run: LayerRun, ranks: int, expert_parallel: bool) -> list[str]:
    ffn, own = run.ffn, model.quantization or None
    widths = []
    if isinstance(ffn, DenseMlp):
        widths.append((ffn.intermediate, "intermediate_size", Part.MLP))
    else:
        widths.append((ffn.shared_intermediate, "shared experts' width", Part.SHARED))
        if not expert_parallel:
            widths.append((ffn.intermediate, "experts' width", Part.EXPERTS))
    found = []
    for width, noun, part in widths:
        block = own.block_columns if own and part in own.parts else 1
        if width % ranks:
            found.append(f"it does not divide {noun} {width}")
        elif ranks > 1 and width // ranks % block:
            found.append(f"{noun} {width} over it is {width // ranks}, no multiple of the quantisation block {block}")
    return found


def _undivided(ranks: int, *counts: tuple[int, str]) -> list[str]:
    return [f"it does not divide {count} {noun}" for count, noun in counts if count % ranks]


def _unshared(ranks: int, heads: int, noun: str) -> list[str]:
    if heads % ranks and ranks % heads:
        return [f"{heads} {noun} neither divide over it nor replicate evenly"]
    return []


def quantization_in_force(model: ModelSpec, precision: Precision) -> Quantization | None:
    """How the matrices of this deployment are stored: as the checkpoint says, as the run file says, or not quantised.

    The run file's narrower format quantises every matrix of the layers, and its scales are not counted.
    """
    own = model.quantization or None
    if own is not None and precision.weights is own.weights:
        return own
    if precision.weights is precision.model:
        return None
    return Quantization(method="run file", weights=precision.weights, parts=LINEAR_PARTS)


def stored_bits(matrix: Matrix, quantization: Quantization | None, whole: Dtype) -> int:
    """Bits of a matrix, all copies, as it is stored."""
    if quantization is None or matrix.part not in quantization.parts:
        return matrix.elements * whole.bits
    return quantization.stored_bits(matrix.elements)


class LayeredWeights(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes of weights on the fullest rank, by part."""

    embedding_bytes: int
    matrices_bytes: int
    vectors_bytes: int
    lm_head_bytes: int

    @property
    def total_bytes(self) -> int:
        return self.embedding_bytes + self.matrices_bytes + self.vectors_bytes + self.lm_head_bytes


def layered_rank_weights(
    model: ModelSpec, ranks: int, precision: Precision, vocab_rows: int, expert_parallel: bool = False
) -> LayeredWeights:
    """Bytes of weights on the fullest of `ranks` ranks, which have `vocab_rows` rows of the vocabulary each.

    The scales of a checkpoint's own quantisation are counted. The split must be legal.
    """
    hidden, whole = model.hidden_size, precision.model
    quantization = quantization_in_force(model, precision)
    bits = 0
    vectors = hidden
    for run in layer_runs(model):
        matrices = (
            *mixer_matrices(run.mixer, hidden, ranks),
            *ffn_matrices(run.ffn, hidden, ranks, expert_parallel),
        )
        bits += run.count * sum(stored_bits(each, quantization, whole) for each in matrices)
        small = mixer_vectors(run.mixer, hidden, ranks) + ffn_vectors(run.ffn, hidden, ranks, expert_parallel)
        vectors += run.count * (small + run.norms * hidden)
    vocabulary = vocab_rows * hidden * whole.bits // 8
    head = Matrix(name="lm_head", part=Part.LM_HEAD, inner=hidden, outer=vocab_rows)
    head_bytes = -(-stored_bits(head, quantization, whole) // 8)
    return LayeredWeights(
        embedding_bytes=vocabulary,
        matrices_bytes=-(-bits // 8),
        vectors_bytes=vectors * whole.bits // 8,
        lm_head_bytes=0 if model.tie_word_embeddings else head_bytes,
    )
