"""The calibration itself: which factors the metrics identify, the values they come to, and how well that tells.

Every run costs a simulation, so there are few: one as the run file is, two for the state of its load, two for each
factor that is looked at, then as many as the descent takes. A factor is fitted where it moves the metrics in a way of
its own (`isim.calibrate.effects`). It is asked again where the fit ends; who lost it there (a floor that is no longer
reached) goes back to where it was, and the others are fitted without it. Likewise metrics with waits, if the load turns
out near saturation with the factors found.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import msgspec

from isim.analyze.result import Analysis
from isim.analyze.schema import LoadState
from isim.calibrate.bench import Bench
from isim.calibrate.effects import DOUBTS, MOST_LEVERAGE, effect, own_part, why_not
from isim.calibrate.fit import STEPS, Box, Vector, fit, leverages, slopes
from isim.calibrate.measured import Measured
from isim.calibrate.pairs import Sides, side_by_side
from isim.calibrate.targets import SATURATED, CalibrationError, Targets, Wish, first_tokens, targets, values, waiting
from isim.draw.fixed import exp, ln
from isim.scenario.factors import Factor
from isim.scenario.types import ClosedLoop, Scenario, Sessions

Point = tuple[int, ...]
"""The values of all factors that are looked at."""


class Look(msgspec.Struct, frozen=True, kw_only=True):
    """A run with certain factors: what it tells, and the state of its load."""

    analysis: Analysis
    sides: Sides
    load: LoadState | None


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome. `leverage` has one entry for each fitted factor, `left` a reason for each of the others."""

    targets: Targets
    values: dict[str, int]
    leverage: dict[str, float]
    left: dict[str, str]
    before: Look
    after: Look


class Search:
    """One calibration of one run file."""

    def __init__(self, bench: Bench, measured: Measured, factors: Sequence[Factor]) -> None:
        self._bench, self._measured = bench, measured
        self._factors = {factor.path: factor for factor in factors}
        self._given = {path: factor.of(bench.given) or 0 for path, factor in self._factors.items()}
        self._sides: dict[Point, Sides] = {}

    def find(self, asked: Sequence[str], *, explicit: bool) -> Found:
        """Fit. `asked` are the metrics of the command line; `explicit` whether it names the factors.

        Raises CalibrationError, NothingCompleted, or what a simulation raises.
        """
        before = self._look({})
        outside = any(factor.outside for factor in self._factors.values())
        wish = Wish(asked=asked, all_figures=not self._measured.rows, outside=outside)
        aims = targets(before.sides, wish, before.load)
        if explicit and len(self._factors) > len(aims.names):
            raise CalibrationError(
                f"--fit: expected at most as many factors as metrics that are fitted to, {len(aims.names)} "
                f"({', '.join(aims.names)}), found {len(self._factors)}"
            )
        found = self._fitted(aims, before, explicit=explicit)
        if waiting(aims.names) and not asked and found.after.load in SATURATED:
            found = self._fitted(targets(before.sides, wish, found.after.load), before, explicit=explicit)
        return self._of_the_same(found)

    def _of_the_same(self, found: Found) -> Found:
        """Before and after told of the same requests: those that both runs have completed."""
        rows = found.before.sides.rows & found.after.sides.rows
        looks = [
            look if look.sides.rows == rows else msgspec.structs.replace(look, sides=self._beside(look.analysis, rows))
            for look in (found.before, found.after)
        ]
        return msgspec.structs.replace(found, before=looks[0], after=looks[1])

    def _fitted(self, aims: Targets, before: Look, *, explicit: bool) -> Found:
        paths, left = self._identified(aims.names, self._order(aims.names))
        point, leverage = self._fit(aims.names, paths), list[float]()
        while paths:
            leverage = leverages(self._slopes(aims.names, paths, point))
            lost = self._lost(dict(zip(paths, point, strict=True)), leverage, explicit=explicit)
            if lost is None:
                break
            left[lost[0]] = lost[1]
            paths.remove(lost[0])
            point = self._fit(aims.names, paths)
        chosen = dict(zip(paths, point, strict=True))
        if chosen and not self._better(aims.names, chosen):
            chosen = {path: self._given[path] for path in paths}
        return Found(
            targets=aims,
            values=chosen,
            leverage=dict(zip(paths, leverage, strict=True)) if paths else {},
            left={path: left[path] for path in self._factors if path not in chosen},
            before=before,
            after=self._look(chosen) if chosen else before,
        )

    def _order(self, names: Sequence[str]) -> list[str]:
        """As factors are listed; times to first token alone tell of the time outside the engine before anything."""
        outside = len(first_tokens(names)) == len(names)
        return sorted(self._factors, key=lambda path: outside and not self._factors[path].outside)

    def _lost(self, point: dict[str, int], leverage: Sequence[float], *, explicit: bool) -> tuple[str, str] | None:
        """A factor that should not have been fitted, as is seen where the fit ends, and why; None where there is none.

        One that was asked for may end at its bound: that is said.
        """
        worst, path = max(zip(leverage, point, strict=True))
        if worst > MOST_LEVERAGE:
            return (
                path,
                f"where the fit ends, at {self._factors[path].text(point[path])}, the metrics no longer tell it",
            )
        for path, value in () if explicit else reversed(point.items()):
            factor = self._factors[path]
            if value in (factor.low, factor.high):
                why = "where its range of plausible values does: something else than this factor makes the difference"
                return path, f"it would end at {factor.text(value)}, {why}"
        return None

    def _better(self, names: Sequence[str], point: dict[str, int]) -> bool:
        """Whether these factors, rounded as they are, tell the metrics better than those that were given."""
        new, old = (sum([log * log for log in self._logs(names, each)], 0.0) for each in (point, {}))
        return new < old

    def _identified(self, names: Sequence[str], paths: list[str]) -> tuple[list[str], dict[str, str]]:
        """The factors that the metrics tell from one another, the first ones first; and why not the others."""
        start = [self._start(path) for path in paths]
        near, far = (self._slopes(names, paths, start, times * STEPS[0]) for times in (1, 2))
        effects = {path: effect(*pair) for path, *pair in zip(paths, near, far, strict=True)}
        kept, left = list[str](), dict[str, str]()
        for path in paths:
            columns = [effects[each].slopes for each in (*kept, path)]
            if len(kept) == len(names):
                left[path] = "there are no more metrics than factors before it"
            elif (
                max(leverages(columns)) > MOST_LEVERAGE or own_part(effects, kept, path) < DOUBTS * effects[path].doubt
            ):
                left[path] = why_not(effects, kept, path)
            else:
                kept.append(path)
        return kept, left

    def _start(self, path: str) -> int:
        factor = self._factors[path]
        return max(factor.low, min(factor.high, self._given[path] or factor.start))

    def _box(self, paths: Sequence[str]) -> Box:
        factors = [self._factors[path] for path in paths]
        return Box(low=[ln(factor.low) for factor in factors], high=[ln(factor.high) for factor in factors])

    def _slopes(
        self, names: Sequence[str], paths: Sequence[str], point: Sequence[int], step: float = STEPS[0]
    ) -> list[Vector]:
        logs = [ln(value) for value in point]
        at = self._residuals(names, paths, logs)
        return slopes(lambda x: self._residuals(names, paths, x), logs, at, self._box(paths), step)

    def _fit(self, names: Sequence[str], paths: Sequence[str]) -> list[int]:
        if not paths:
            return []
        start = [ln(self._start(path)) for path in paths]
        logs = fit(lambda x: self._residuals(names, paths, x), start, self._box(paths))
        return [self._factors[path].rounded(self._value(path, x)) for path, x in zip(paths, logs, strict=True)]

    def _value(self, path: str, log: float) -> int:
        factor = self._factors[path]
        return max(factor.low, min(factor.high, round(exp(log))))

    def _residuals(self, names: Sequence[str], paths: Sequence[str], logs: Sequence[float]) -> Vector:
        point = {path: self._value(path, x) for path, x in zip(paths, logs, strict=True)}
        return self._logs(names, point)

    def _logs(self, names: Sequence[str], point: dict[str, int]) -> Vector:
        """Logarithms of simulated / measured."""
        key = self._key(point)
        if key not in self._sides:
            self._sides[key] = self._beside(self._bench.run(self._scenario(point)))
        pairs = values(self._sides[key].pairs, names)
        return [ln(pair.simulated / pair.measured) for pair in pairs if pair.simulated]

    def _look(self, point: dict[str, int]) -> Look:
        analysis, load = self._bench.look(self._scenario(point))
        self._sides[self._key(point)] = sides = self._beside(analysis)
        return Look(analysis=analysis, sides=sides, load=load)

    def _beside(self, analysis: Analysis, among: Collection[int] | None = None) -> Sides:
        reacting = isinstance(self._bench.given.workload, ClosedLoop | Sessions)
        return side_by_side(self._measured, analysis, reacting=reacting, among=among)

    def _scenario(self, point: dict[str, int]) -> Scenario:
        scenario = self._bench.given
        for path, value in point.items():
            scenario = self._factors[path].put(scenario, value)
        return scenario

    def _key(self, point: dict[str, int]) -> Point:
        """All factors as they are then, so that equal runs are made once."""
        return tuple((self._given | point).values())
