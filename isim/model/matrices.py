"""The matrices and vectors of a layer by its kind, as one rank of several holds them.

The splits are those of vLLM: heads, MLP columns and the state's heads are divided over the ranks; the first, narrow
projections of latent attention, routers and norms are held by every rank. With expert parallelism a rank holds whole
experts instead of a slice of each. Names follow `isim.model.layers`; H is hidden_size.
"""

from __future__ import annotations

import msgspec

from isim.model.layers import (
    Attention,
    DenseMlp,
    Experts,
    FeedForward,
    FullAttention,
    GatedDelta,
    LatentAttention,
    LayerRun,
    Mamba2,
    Mixer,
    Part,
    QkNorm,
)
from isim.model.spec import ModelSpec


class Matrix(msgspec.Struct, frozen=True, kw_only=True):
    """`copies` matrices of [inner, outer] on one rank; `part` None is never quantised.

    `routed`: its rows are not the step's tokens but those that are sent to each of the copies.
    """

    name: str
    part: Part | None
    inner: int
    outer: int
    copies: int = 1
    routed: bool = False

    @property
    def elements(self) -> int:
        return self.copies * self.inner * self.outer


def layer_runs(model: ModelSpec) -> tuple[LayerRun, ...]:
    """The layers of any model; a plain one has one kind."""
    if model.layers:
        return model.layers
    mixer = FullAttention(
        heads=model.num_attention_heads,
        kv_heads=model.num_key_value_heads,
        head_dim=model.head_dim,
        qkv_bias=model.qkv_bias,
        o_bias=model.o_bias,
        qk_norm=QkNorm.HEAD if model.qk_norm else QkNorm.NONE,
    )
    mlp = DenseMlp(intermediate=model.intermediate_size)
    return (LayerRun(count=model.num_hidden_layers, mixer=mixer, ffn=mlp),)


class HeadWidths(msgspec.Struct, frozen=True):
    """Columns of one rank's queries and of its keys."""

    query: int
    key: int


def head_widths(mixer: Attention, ranks: int) -> HeadWidths:
    """Query heads divide over the ranks; key-value heads do, or replicate where there are fewer."""
    return HeadWidths(mixer.heads // ranks * mixer.head_dim, max(1, mixer.kv_heads // ranks) * mixer.head_dim)


def conv_columns(mixer: GatedDelta | Mamba2, ranks: int) -> int:
    """Channels of the convolution before a state, on one rank: queries, keys and values, or x, B and C."""
    if isinstance(mixer, GatedDelta):
        return (2 * mixer.key_heads * mixer.key_dim + mixer.value_heads * mixer.value_dim) // ranks
    groups = max(1, mixer.groups // ranks)
    return mixer.heads // ranks * mixer.head_dim + 2 * groups * mixer.state_dim


def state_elements(mixer: GatedDelta | Mamba2, ranks: int) -> int:
    """Numbers of the recurrent state of one sequence and layer on one rank."""
    if isinstance(mixer, GatedDelta):
        return mixer.value_heads // ranks * mixer.key_dim * mixer.value_dim
    return mixer.heads // ranks * mixer.head_dim * mixer.state_dim


def _attention(mixer: Attention, hidden: int, ranks: int) -> tuple[Matrix, ...]:
    widths = head_widths(mixer, ranks)
    outer = widths.query * (2 if mixer.gated else 1) + widths.key * (1 if mixer.key_is_value else 2)
    return (
        Matrix(name="qkv", part=Part.ATTENTION, inner=hidden, outer=outer),
        Matrix(name="o", part=Part.ATTENTION, inner=widths.query, outer=hidden),
    )


def _latent(mixer: LatentAttention, hidden: int, ranks: int) -> tuple[Matrix, ...]:
    heads, part = mixer.heads // ranks, Part.ATTENTION
    query, kept = heads * (mixer.nope_dim + mixer.rope_dim), mixer.kv_lora_rank + mixer.rope_dim
    if mixer.q_lora_rank:
        first = [
            Matrix(name="q_kv_a", part=part, inner=hidden, outer=mixer.q_lora_rank + kept),
            Matrix(name="q_b", part=part, inner=mixer.q_lora_rank, outer=query),
        ]
    else:
        first = [
            Matrix(name="q", part=part, inner=hidden, outer=query),
            Matrix(name="kv_a", part=part, inner=hidden, outer=kept),
        ]
    return (
        *first,
        Matrix(name="kv_b", part=part, inner=mixer.kv_lora_rank, outer=heads * (mixer.nope_dim + mixer.value_dim)),
        Matrix(name="o", part=part, inner=heads * mixer.value_dim, outer=hidden),
    )


def _state(mixer: GatedDelta | Mamba2, hidden: int, ranks: int) -> tuple[Matrix, ...]:
    if isinstance(mixer, GatedDelta):
        keys, values = mixer.key_heads * mixer.key_dim // ranks, mixer.value_heads * mixer.value_dim // ranks
        return (
            Matrix(name="state_qkvz", part=Part.STATE, inner=hidden, outer=2 * keys + 2 * values),
            Matrix(name="state_ba", part=Part.STATE, inner=hidden, outer=2 * mixer.value_heads // ranks),
            Matrix(name="state_out", part=Part.STATE, inner=values, outer=hidden),
        )
    inner = mixer.heads // ranks * mixer.head_dim
    outer = inner + conv_columns(mixer, ranks) + mixer.heads // ranks
    return (
        Matrix(name="state_in", part=Part.STATE, inner=hidden, outer=outer),
        Matrix(name="state_out", part=Part.STATE, inner=inner, outer=hidden),
    )


def mixer_matrices(mixer: Mixer, hidden: int, ranks: int) -> tuple[Matrix, ...]:
    """The matrices of a mixer on one rank, in the order they run."""
    if isinstance(mixer, LatentAttention):
        return _latent(mixer, hidden, ranks)
    if isinstance(mixer, GatedDelta | Mamba2):
        return _state(mixer, hidden, ranks)
    return _attention(mixer, hidden, ranks)


def rank_experts(ffn: Experts, ranks: int, expert_parallel: bool) -> int:
    """Experts of which the fullest rank holds weights: all, or its share of whole ones."""
    return -(-ffn.experts // ranks) if expert_parallel else ffn.experts


def ffn_matrices(ffn: FeedForward, hidden: int, ranks: int, expert_parallel: bool = False) -> tuple[Matrix, ...]:
    """The matrices of a feed-forward part on one rank, in the order they run."""
    if isinstance(ffn, DenseMlp):
        return _gated(Part.MLP, "", hidden, ffn.intermediate // ranks)
    found = [Matrix(name="router", part=None, inner=hidden, outer=ffn.experts)]
    if ffn.shared_intermediate:
        found += _gated(Part.SHARED, "shared_", hidden, ffn.shared_intermediate // ranks)
        if ffn.shared_gate:
            found.append(Matrix(name="shared_gate", part=None, inner=hidden, outer=1))
    width = ffn.intermediate if expert_parallel else ffn.intermediate // ranks
    copies = rank_experts(ffn, ranks, expert_parallel)
    for each in _gated(Part.EXPERTS, "expert_", hidden, width):
        found.append(msgspec.structs.replace(each, copies=copies, routed=True))
    return tuple(found)


def _gated(part: Part, prefix: str, hidden: int, width: int) -> tuple[Matrix, ...]:
    return (
        Matrix(name=f"{prefix}gate_up", part=part, inner=hidden, outer=2 * width),
        Matrix(name=f"{prefix}down", part=part, inner=width, outer=hidden),
    )


def mixer_vectors(mixer: Mixer, hidden: int, ranks: int) -> int:
    """Elements of biases, norms, convolutions and other small parameters of a mixer on one rank."""
    if isinstance(mixer, LatentAttention):
        return mixer.q_lora_rank + mixer.kv_lora_rank
    if isinstance(mixer, GatedDelta):
        return conv_columns(mixer, ranks) * mixer.conv_kernel + 2 * mixer.value_heads // ranks + mixer.value_dim
    if isinstance(mixer, Mamba2):
        kernel = mixer.conv_kernel + mixer.conv_bias
        inner = mixer.heads // ranks * mixer.head_dim
        return conv_columns(mixer, ranks) * kernel + 3 * mixer.heads // ranks + inner
    widths = head_widths(mixer, ranks)
    keys = widths.key * (1 if mixer.key_is_value else 2)
    found = (widths.query * (2 if mixer.gated else 1) + keys) * mixer.qkv_bias + hidden * mixer.o_bias
    if mixer.qk_norm is QkNorm.HEAD:
        found += 2 * mixer.head_dim
    elif mixer.qk_norm is QkNorm.ALL_HEADS:
        found += widths.query + widths.key
    return found + mixer.heads // ranks * mixer.sinks


def ffn_vectors(ffn: FeedForward, hidden: int, ranks: int, expert_parallel: bool = False) -> int:
    """Elements of the biases of a feed-forward part on one rank."""
    if isinstance(ffn, DenseMlp):
        return (2 * ffn.intermediate // ranks + hidden) * ffn.bias
    width = ffn.intermediate if expert_parallel else ffn.intermediate // ranks
    experts = rank_experts(ffn, ranks, expert_parallel)
    return ffn.experts * ffn.router_bias + experts * (2 * width + hidden) * ffn.expert_bias
