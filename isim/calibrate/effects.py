"""What each factor does to the metrics, and which of them the metrics tell from one another.

An effect is measured twice, from runs a tenth and a fifth away. Half of what the two say differently is doubt: metrics
of few requests scatter, and which factor would make good for what is then chance. A factor is told by the metrics where
the part of its effect that no combination of the others makes is greater than that, and than what MOST_LEVERAGE asks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf, sqrt

import msgspec

from isim.calibrate.fit import Vector, dot, leverages, without

MOST_LEVERAGE = 25
"""A factor that a measurement 1 % off would move by more than so many percent is not identified by it."""

DOUBTS = 2
"""So many times its doubt the effect of a factor has to be."""


class Effect(msgspec.Struct, frozen=True):
    """`slopes` says by how many percent each metric moves when the factor moves by one."""

    slopes: Vector
    doubt: float


def effect(near: Sequence[float], far: Sequence[float]) -> Effect:
    """Of slopes taken at two distances."""
    halves = [(one - other) / 2 for one, other in zip(near, far, strict=True)]
    return Effect([(one + other) / 2 for one, other in zip(near, far, strict=True)], sqrt(dot(halves, halves)))


def own_part(effects: Mapping[str, Effect], others: Sequence[str], path: str) -> float:
    """The size of what a factor does and no combination of the others."""
    own = without(effects[path].slopes, [effects[other].slopes for other in others])
    return sqrt(dot(own, own))


def why_not(effects: Mapping[str, Effect], kept: Sequence[str], path: str) -> str:
    """Why the metrics do not tell this factor beside those that are fitted."""
    column = effects[path].slopes
    alone = leverages([column])[0]
    if alone == inf:
        return "the metrics do not change with it"
    if alone > MOST_LEVERAGE:
        return f"the metrics hardly change with it: 1 % off in them would move it by {alone:.0f} %"
    others = [effects[other].slopes for other in kept]
    if not kept or max(leverages([*others, column])) <= MOST_LEVERAGE:
        return "what it does is no more than the metrics scatter by"
    if len(kept) > 1:
        return f"{', '.join(kept)} together change the metrics as it does"
    return f"it changes the metrics as {kept[0]} does"
