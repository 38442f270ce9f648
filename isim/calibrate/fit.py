"""Least squares with bounds for a handful of unknowns and a function that is dear: damped Gauss-Newton.

Unknowns are logarithms of factors, residuals are logarithms of ratios, so a slope is an elasticity: by how many percent
a metric moves when a factor moves by one. Slopes come from one further run for each factor, a tenth apart, and closer
where that leads nowhere: metrics of a simulation have small steps, and what is taken closer sees those. Whatever does
not make the sum of squares smaller is halved a few times, then given up. All arithmetic is `+ - * /` and `sqrt` in a
fixed order.

How well a factor is told from the others: `leverage` is by how many percent it moves when the measurements are 1 % off
in the worst direction, everything else being fitted again. Without bound where it does nothing, or nothing of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf, sqrt

import msgspec

Vector = list[float]
Residuals = Callable[[Sequence[float]], Vector]

STEPS = (0.1, 0.02)
LONGEST_STEP = 0.7
CLOSE = 0.0005
EXACT = 0.0005
MOST_ROUNDS = 12
HALVINGS = 2


class Box(msgspec.Struct, frozen=True):
    """Where the unknowns may be."""

    low: Sequence[float]
    high: Sequence[float]

    def clamp(self, point: Sequence[float]) -> Vector:
        return [max(low, min(high, x)) for x, low, high in zip(point, self.low, self.high, strict=True)]


def slopes(residuals: Residuals, point: Sequence[float], at: Sequence[float], box: Box, step: float) -> list[Vector]:
    """One column for each unknown: the change of every residual by its own, taken towards the farther bound."""
    columns = []
    for place, x in enumerate(point):
        up = box.high[place] - x >= x - box.low[place]
        other = min(x + step, box.high[place]) if up else max(x - step, box.low[place])
        moved = residuals([*point[:place], other, *point[place + 1 :]])
        columns.append([(new - old) / (other - x) for new, old in zip(moved, at, strict=True)])
    return columns


def leverages(columns: Sequence[Vector]) -> Vector:
    """Of each unknown; infinite where it cannot be told at all."""
    found = []
    for place, column in enumerate(columns):
        others = [*columns[:place], *columns[place + 1 :]]
        own = sqrt(dot(rest := without(column, others), rest))
        found.append(1 / own if own > 1e-9 else inf)
    return found


def fit(residuals: Residuals, start: Sequence[float], box: Box) -> Vector:
    """The point in the box at which the sum of squares of the residuals is least, as far as plain descent finds it."""
    point = box.clamp(start)
    at = residuals(point)
    for _ in range(MOST_ROUNDS):
        if dot(at, at) < len(at) * EXACT * EXACT:
            return point
        for step in STEPS:
            move = _bounded_move(residuals, point, at, (box, step))
            if max(map(abs, move), default=0.0) < CLOSE:
                return point
            reached = _better(residuals, point, at, (box, move))
            if reached is not None:
                break
        else:
            return point
        point, at = reached, residuals(reached)
    return point


def _bounded_move(residuals: Residuals, point: Vector, at: Vector, how: tuple[Box, float]) -> Vector:
    """The step of Gauss-Newton, from slopes taken this far apart; no longer than LONGEST_STEP."""
    box, step = how
    move = _move(slopes(residuals, point, at, box, step), at, point, box)
    longest = max(map(abs, move), default=0.0)
    return [part * LONGEST_STEP / longest for part in move] if longest > LONGEST_STEP else move


def _better(residuals: Residuals, point: Vector, at: Vector, how: tuple[Box, Vector]) -> Vector | None:
    """Where the move, or the part of it that is left after a few halvings, leads to less; None where it does not."""
    box, move = how
    for _ in range(HALVINGS + 1):
        reached = box.clamp([x + part for x, part in zip(point, move, strict=True)])
        there = residuals(reached)
        if dot(there, there) < dot(at, at):
            return reached
        move = [part / 2 for part in move]
    return None


def _move(columns: list[Vector], at: Vector, point: Vector, box: Box) -> Vector:
    """Where the linear model has its least within the box: who would leave it stays at the bound, the others again."""
    move = [0.0] * len(point)
    free = list(range(len(point)))
    target = [-r for r in at]
    while free:
        found = _solve([columns[place] for place in free], target)
        out = [
            (place, bound)
            for place, part in zip(free, found, strict=True)
            if (bound := min(max(point[place] + part, box.low[place]), box.high[place])) != point[place] + part
        ]
        if not out:
            for place, part in zip(free, found, strict=True):
                move[place] = part
            break
        for place, bound in out:
            move[place] = bound - point[place]
            target = [r - slope * move[place] for r, slope in zip(target, columns[place], strict=True)]
            free.remove(place)
    return move


def _solve(columns: list[Vector], target: Vector) -> Vector:
    """Least squares by Gram-Schmidt, in the order of the columns; a column with nothing of its own gets 0."""
    basis: list[Vector | None] = []
    shares: list[Vector] = []
    for column in columns:
        rest, own = list(column), []
        for unit in basis:
            share = 0.0 if unit is None else dot(rest, unit)
            own.append(share)
            if unit is not None:
                rest = [x - share * y for x, y in zip(rest, unit, strict=True)]
        size = sqrt(dot(rest, rest))
        own.append(size)
        basis.append([x / size for x in rest] if size > 1e-9 else None)
        shares.append(own)
    left, found = target, [0.0] * len(columns)
    projected = []
    for unit in basis:
        projected.append(0.0 if unit is None else dot(left, unit))
        if unit is not None:
            left = [x - projected[-1] * y for x, y in zip(left, unit, strict=True)]
    for place in reversed(range(len(columns))):
        if basis[place] is not None:
            known = sum([shares[after][place] * found[after] for after in range(place + 1, len(columns))], 0.0)
            found[place] = (projected[place] - known) / shares[place][place]
    return found


def without(column: Vector, others: Sequence[Vector]) -> Vector:
    """What of a column no combination of the others makes."""
    rest, basis = list(column), list[Vector]()
    for other in others:
        left = list(other)
        for unit in basis:
            left = _less(left, unit)
        size = sqrt(dot(left, left))
        if size > 1e-9:
            basis.append([x / size for x in left])
            rest = _less(rest, basis[-1])
    return rest


def _less(vector: Vector, unit: Vector) -> Vector:
    share = dot(vector, unit)
    return [x - share * y for x, y in zip(vector, unit, strict=True)]


def dot(one: Sequence[float], other: Sequence[float]) -> float:
    total = 0.0
    for x, y in zip(one, other, strict=True):
        total += x * y
    return total
