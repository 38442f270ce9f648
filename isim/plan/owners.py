"""Which member of a communicator owns which expert, and what that makes members send to one another.

    contiguous    expert i of E belongs to member floor(i * N / E)
    round_robin   expert i belongs to member i mod N

Tokens start on members in turn: token t on member t mod N. Each assignment of a token to an expert sends the token's
activation from where it starts to the expert's owner.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

import msgspec


class PlacementStrategy(StrEnum):
    CONTIGUOUS = "contiguous"
    ROUND_ROBIN = "round_robin"


class ExpertPlacement(msgspec.Struct, frozen=True, kw_only=True):
    """All experts in their order, and how they are dealt out."""

    strategy: PlacementStrategy
    expert_ids: tuple[str, ...]


def owners(placement: ExpertPlacement, members: int) -> dict[str, int]:
    """The owner of each expert, as a position in the communicator."""
    experts = placement.expert_ids
    if placement.strategy is PlacementStrategy.CONTIGUOUS:
        return {expert: index * members // len(experts) for index, expert in enumerate(experts)}
    return {expert: index % members for index, expert in enumerate(experts)}


def dispatch_matrix(
    routed: Sequence[Sequence[str]], owner: dict[str, int], members: int, activation_bytes: int
) -> tuple[tuple[int, ...], ...]:
    """Bytes `[source][owner]` that the tokens send, token t going to the experts `routed[t]`."""
    matrix = [[0] * members for _ in range(members)]
    for token, experts in enumerate(routed):
        for expert in experts:
            matrix[token % members][owner[expert]] += activation_bytes
    return tuple(tuple(row) for row in matrix)
