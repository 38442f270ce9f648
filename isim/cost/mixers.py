"""Ticks of what passes information between positions, for each kind of mixer: attention in its forms, and states.

The costs of all layers of a kind are taken together, linear in the keys that are seen. A step tells of its decodes
only how many there are and the sum of their contexts; where a window limits what each of them sees, all of them
together see at most `decodes * window`, which is an upper bound, exact for contexts that are alike.
"""

from __future__ import annotations

from typing import Protocol

import msgspec

from isim.cost.factors import Pace
from isim.model.arithmetic import attended_pairs
from isim.model.groups import mixer_state_bytes, mixer_token_bits
from isim.model.layered import STATE_FLOPS
from isim.model.layers import (
    ChunkedAttention,
    GatedDelta,
    LatentAttention,
    LayerRun,
    Mamba2,
    SlidingAttention,
)
from isim.model.matrices import head_widths, state_elements
from isim.model.spec import Precision


class MixerTicks(Protocol):
    def decode(self, decodes: int, context: int) -> int:
        """Ticks of one new token for each of `decodes` requests with `context` computed tokens together."""
        ...

    def chunk(self, new: int, before: int) -> int:
        """Ticks of several new tokens of one request."""
        ...


class Paces(msgspec.Struct, frozen=True):
    """Of memory in bytes, and of arithmetic in operations of the model's own format."""

    memory: Pace
    compute: Pace


def windowed_pairs(new: int, before: int, window: int) -> int:
    """Query-key pairs of a causal chunk where each token sees at most `window` tokens, itself among them."""
    rising = min(max(window - before, 0), new)
    return attended_pairs(rising, before) + (new - rising) * window


def chunked_pairs(new: int, before: int, chunk: int) -> int:
    """Query-key pairs of a causal chunk where each token sees only those of its own `chunk` tokens."""

    def below(position: int) -> int:
        full, rest = divmod(position, chunk)
        return full * (chunk * (chunk + 1) // 2) + rest * (rest + 1) // 2

    return below(before + new) - below(before)


class HeadAttention(msgspec.Struct, frozen=True, kw_only=True):
    """Ticks for each key read, each query read and written, each pair computed. 0: no window, no chunks."""

    key: int
    query: int
    pair: int
    window: int = 0
    chunk_tokens: int = 0

    def decode(self, decodes: int, context: int) -> int:
        limit = self.window or self.chunk_tokens
        if limit and context > decodes * (limit - 1):
            context = decodes * (limit - 1)
        keys = context + decodes
        return max(keys * self.key + decodes * self.query, keys * self.pair)

    def chunk(self, new: int, before: int) -> int:
        if self.window:
            pairs, seen = windowed_pairs(new, before, self.window), min(before, self.window - 1)
        elif self.chunk_tokens:
            pairs, seen = chunked_pairs(new, before, self.chunk_tokens), before % self.chunk_tokens
        else:
            pairs, seen = attended_pairs(new, before), before
        return max((seen + new) * self.key + new * self.query, pairs * self.pair)


class Latent(msgspec.Struct, frozen=True, kw_only=True):
    """Absorbed in decodes: every head reads the same latent. Un-absorbed in chunks: the cached context is projected up.

    key, query, pair  of an absorbed token
    expanded          of each key in a chunk, whose latent is read and whose heads are read
    projected         of each cached token that is projected up: latent read again, heads written
    up                arithmetic of that
    chunk_query, chunk_pair
    """

    key: int
    query: int
    pair: int
    expanded: int
    projected: int
    up: int
    chunk_query: int
    chunk_pair: int

    def decode(self, decodes: int, context: int) -> int:
        keys = context + decodes
        return max(keys * self.key + decodes * self.query, keys * self.pair)

    def chunk(self, new: int, before: int) -> int:
        projection = max(before * self.projected, before * self.up)
        moved = (before + new) * self.expanded + new * self.chunk_query
        return projection + max(moved, attended_pairs(new, before) * self.chunk_pair)


class Recurrent(msgspec.Struct, frozen=True, kw_only=True):
    """The state is read and written once for each request in a step; arithmetic is that of the recurrent form."""

    state: int
    token: int
    computed: int

    def decode(self, decodes: int, context: int) -> int:
        return max(decodes * (self.state + self.token), decodes * self.computed)

    def chunk(self, new: int, before: int) -> int:
        return max(self.state + new * self.token, new * self.computed)


def mixer_ticks(run: LayerRun, ranks: int, precision: Precision, paces: Paces) -> MixerTicks:
    """The costs of all layers of a run on one rank."""
    mixer, count = run.mixer, run.count
    element = precision.model.bits // 8
    memory, compute = paces.memory.ticks, paces.compute.ticks
    kept_bits = mixer_token_bits(mixer, ranks, precision.kv_cache)
    if isinstance(mixer, GatedDelta | Mamba2):
        state_bytes = mixer_state_bytes(mixer, ranks, precision.model)
        return Recurrent(
            state=memory(count * 2 * state_bytes),
            token=memory(count * _state_row(mixer, ranks) * element),
            computed=compute(count * STATE_FLOPS * state_elements(mixer, ranks)),
        )
    if isinstance(mixer, LatentAttention):
        return _latent(mixer, count, ranks, precision, paces)
    query = head_widths(mixer, ranks).query
    return HeadAttention(
        key=memory(count * kept_bits // 8),
        query=memory(count * 2 * query * element),
        pair=compute(count * 4 * query),
        window=mixer.window_tokens if isinstance(mixer, SlidingAttention) else 0,
        chunk_tokens=mixer.chunk_tokens if isinstance(mixer, ChunkedAttention) else 0,
    )


def _state_row(mixer: GatedDelta | Mamba2, ranks: int) -> int:
    """Numbers one token brings to a state and takes from it on one rank."""
    if isinstance(mixer, GatedDelta):
        return 2 * (mixer.key_heads * mixer.key_dim + mixer.value_heads * mixer.value_dim) // ranks
    return 2 * (mixer.heads // ranks * mixer.head_dim + max(1, mixer.groups // ranks) * mixer.state_dim)


def _latent(mixer: LatentAttention, count: int, ranks: int, precision: Precision, paces: Paces) -> Latent:
    element, heads = precision.model.bits // 8, mixer.heads // ranks
    kept, rank = mixer.kv_lora_rank + mixer.rope_dim, mixer.kv_lora_rank
    kept_bytes = kept * precision.kv_cache.bits // 8
    wide = mixer.nope_dim + mixer.rope_dim + mixer.value_dim
    lifted = mixer.nope_dim + mixer.value_dim
    memory, compute = paces.memory.ticks, paces.compute.ticks
    return Latent(
        key=memory(count * kept_bytes),
        query=memory(count * heads * (kept + rank) * element),
        pair=compute(count * heads * 2 * (kept + rank)),
        expanded=memory(count * heads * wide * element),
        projected=memory(count * (kept_bytes + heads * lifted * element)),
        up=compute(count * 2 * rank * heads * lifted),
        chunk_query=memory(count * heads * wide * element),
        chunk_pair=compute(count * heads * 2 * wide),
    )
