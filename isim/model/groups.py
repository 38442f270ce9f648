"""KV groups: which layers share a block table, how big a block is, and how many of them a sequence holds.

Source: vLLM 0.21, `kv_cache_utils.get_kv_cache_groups`, and the alignment of pages of hybrid models in its model
configs. Layers of one kind form groups of equal size: the smallest count of layers of a kind, or the largest where it
is below 1.5 times that. All groups draw blocks from one pool, so their pages must be of one size: with a state, the
attention's block grows until its page holds the state; otherwise a kind with less to keep a token gets larger blocks.

A page is a block of one layer, a block of the pool a page for each layer of a group.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from isim.model.layers import GatedDelta, LatentAttention, Mamba2, Mixer, SlidingAttention
from isim.model.matrices import conv_columns, head_widths, layer_runs, state_elements
from isim.model.spec import Dtype, ModelError, ModelSpec, Precision


class KvKind(StrEnum):
    FULL = "full attention"
    SLIDING = "sliding window"
    STATE = "state"


class KvLayers(msgspec.Struct, frozen=True, kw_only=True):
    """`count` layers that keep alike on one rank: so much for each token, or so much for a whole sequence."""

    kind: KvKind
    count: int
    token_bytes: int = 0
    state_bytes: int = 0
    window_tokens: int = 0


class KvGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Layers that share a block table; `layers` of them are real, `block_tokens` tokens lie in one of its blocks."""

    kind: KvKind
    layers: int
    block_tokens: int
    window_tokens: int = 0

    def held_blocks(self, tokens: int) -> int:
        """Blocks a sequence holds with `tokens` tokens kept: one state, or what its window has not left behind."""
        if self.kind is KvKind.STATE:
            return 1 if tokens else 0
        behind = 0
        if self.kind is KvKind.SLIDING:
            behind = max(0, tokens - self.window_tokens + 1) // self.block_tokens
        return -(-tokens // self.block_tokens) - behind


class KvGroups(msgspec.Struct, frozen=True, kw_only=True):
    """The groups of a model on each rank, which all draw blocks of `block_bytes` from one pool.

    page_bytes   of one layer
    group_layers layers of a group, where a smaller one is filled up
    """

    groups: tuple[KvGroup, ...]
    page_bytes: int
    group_layers: int

    @property
    def block_bytes(self) -> int:
        return self.page_bytes * self.group_layers

    def sequence_blocks(self, tokens: int) -> int:
        """Blocks of the pool that a sequence of `tokens` kept tokens holds over all groups, without prefix caching."""
        return sum(group.held_blocks(tokens) for group in self.groups)

    def sequence_bytes(self, tokens: int) -> int:
        """Bytes of the pool that a sequence of `tokens` kept tokens holds on one rank."""
        return self.sequence_blocks(tokens) * self.block_bytes


def mixer_token_bits(mixer: Mixer, ranks: int, kv_cache: Dtype) -> int:
    """Bits one token keeps in one layer on one rank; 0 for a state. Latent attention keeps a copy on every rank."""
    if isinstance(mixer, LatentAttention):
        return (mixer.kv_lora_rank + mixer.rope_dim) * kv_cache.bits
    if isinstance(mixer, GatedDelta | Mamba2):
        return 0
    return 2 * head_widths(mixer, ranks).key * kv_cache.bits


def mixer_state_bytes(mixer: Mixer, ranks: int, whole: Dtype) -> int:
    """Bytes one sequence keeps in one layer on one rank beside its tokens: convolution and recurrent state."""
    if not isinstance(mixer, GatedDelta | Mamba2):
        return 0
    convolution = (mixer.conv_kernel - 1) * conv_columns(mixer, ranks) * whole.bits
    recurrent = state_elements(mixer, ranks) * (mixer.state_dtype or whole).bits
    return (convolution + recurrent) // 8


def kv_layers(model: ModelSpec, ranks: int, precision: Precision) -> tuple[KvLayers, ...]:
    """What layers keep on one rank, one entry for each kind that keeps alike, in the order of the model's layers."""
    found: dict[KvLayers, int] = {}
    for run in layer_runs(model):
        kind, window = KvKind.FULL, 0
        if isinstance(run.mixer, SlidingAttention):
            kind, window = KvKind.SLIDING, run.mixer.window_tokens
        elif isinstance(run.mixer, GatedDelta | Mamba2):
            kind = KvKind.STATE
        alike = KvLayers(
            kind=kind,
            count=0,
            token_bytes=mixer_token_bits(run.mixer, ranks, precision.kv_cache) // 8,
            state_bytes=mixer_state_bytes(run.mixer, ranks, precision.model),
            window_tokens=window,
        )
        found[alike] = found.get(alike, 0) + run.count
    return tuple(msgspec.structs.replace(alike, count=count) for alike, count in found.items())


def group_size(counts: tuple[int, ...]) -> int:
    """Layers of a group, from the count of layers of each kind."""
    least, most = min(counts), max(counts)
    return most if 2 * most < 3 * least else least


def kv_groups(model: ModelSpec, ranks: int, precision: Precision, block_tokens: int) -> KvGroups:
    """The KV groups on each of `ranks` ranks for a requested block of `block_tokens` tokens.

    The kernels of every attention backend take blocks of 16 tokens, so the least block of a hybrid is the greater of
    16 and what was requested. Raises ModelError where pages cannot be made equal, as vLLM does.
    """
    kinds = kv_layers(model, ranks, precision)
    if any(each.kind is KvKind.SLIDING and each.window_tokens < 2 for each in kinds):
        raise ModelError(f"model: {model.name} has a sliding window of less than 2 tokens, which keeps nothing")
    states = [each for each in kinds if each.kind is KvKind.STATE]
    attention = [each for each in kinds if each.kind is not KvKind.STATE]
    if not attention:
        raise ModelError(f"model: {model.name} has no attention layer; such models are not supported")
    if states:
        block_tokens = _hybrid_block(attention, states, block_tokens)
    page_bytes = max(block_tokens * each.token_bytes for each in attention)
    size = group_size(tuple(each.count for each in kinds))
    groups = []
    for each in kinds:
        tokens = block_tokens
        if each.kind is not KvKind.STATE:
            tokens, rest = divmod(page_bytes, each.token_bytes)
            if rest or tokens % block_tokens:
                raise ModelError(
                    f"model: the layers of {model.name} keep {each.token_bytes} and "
                    f"{page_bytes // block_tokens} bytes a token, of which one is no multiple of the other; vLLM "
                    "cannot give such layers pages of one size"
                )
        for first in range(0, each.count, size):
            layers = min(size, each.count - first)
            groups.append(KvGroup(kind=each.kind, layers=layers, block_tokens=tokens, window_tokens=each.window_tokens))
    return KvGroups(groups=tuple(groups), page_bytes=page_bytes, group_layers=size)


_KERNEL_BLOCK_TOKENS = 16


def _hybrid_block(attention: list[KvLayers], states: list[KvLayers], requested: int) -> int:
    """m * ceil(state_bytes / (m * attention_bytes_per_token)), m the greater of kernel block and request."""
    least = max(_KERNEL_BLOCK_TOKENS, requested)
    token_bytes = max(each.token_bytes for each in attention)
    state_bytes = max(each.state_bytes for each in states)
    return least * -(-state_bytes // (least * token_bytes))
