"""How much work the routed experts of a layer get from a step's tokens.

Under uniform routing the tokens of a step are expected to meet E * (1 - (1 - k/E)^T) of E experts, k for each of T
tokens; real routing is more skewed and meets fewer, so this is an upper bound of the weights that are read. The rows of
an expert are padded to the tile of the kernel: half a tile each on average, and a whole tile at least. With expert
parallelism the slowest rank counts: the expected load of the fullest of R ranks is taken as
mean + sqrt(2 * ln R * mean), the usual bound of the greatest of R Poisson counts, and the experts it meets are those
that so many rows would meet.

All of it is integers: counts of experts are in units of 2^-20, rounded up.
"""

from __future__ import annotations

import math

import msgspec

from isim.model.layers import Experts
from isim.model.matrices import rank_experts

EXPERT_UNIT = 1 << 20
_SURE = 64
_TWICE_LN_2_PERMILLE = 1387


class ExpertLoad(msgspec.Struct, frozen=True):
    """What one rank, the slowest, has to do.

    rows         pairs of token and expert
    padded_rows  rows that are multiplied
    experts      expected experts that are read, in units of 1 / EXPERT_UNIT
    """

    rows: int
    padded_rows: int
    experts: int


def distinct_experts(experts: int, chosen: int, tokens: int, among: int | None = None) -> int:
    """Expected experts that so many tokens meet, `chosen` of `experts` each, in units of 1 / EXPERT_UNIT, rounded up.

    `among` counts only those of so many experts. Beyond 64 rows an expert, all are met up to 2^-92 of them.
    """
    whole = (experts if among is None else among) * EXPERT_UNIT
    if tokens * chosen >= _SURE * experts:
        return whole
    missed: int = whole * (experts - chosen) ** tokens // experts**tokens
    return whole - missed


def expert_load(ffn: Experts, tokens: int, ranks: int, expert_parallel: bool, tile_rows: int) -> ExpertLoad:
    """The load of one rank from `tokens` tokens; with expert parallelism of the rank that has most of it."""
    rows = tokens * ffn.experts_per_token
    held = rank_experts(ffn, ranks, expert_parallel)
    met = tokens
    if expert_parallel and ranks > 1:
        mean = -(-rows // ranks)
        spread = math.isqrt(_TWICE_LN_2_PERMILLE * (ranks - 1).bit_length() * mean // 1000) + 1
        rows = min(mean + spread, tokens * min(ffn.experts_per_token, held))
        met = -(-rows * ffn.experts // (ffn.experts_per_token * held))
    distinct = distinct_experts(ffn.experts, ffn.experts_per_token, met, held)
    distinct = max(1, min(distinct, rows * EXPERT_UNIT))
    tiles = -(-distinct * tile_rows // EXPERT_UNIT)
    padded = max(tiles, rows + -(-distinct * (tile_rows - 1) // (2 * EXPERT_UNIT)))
    return ExpertLoad(rows, padded, distinct)
