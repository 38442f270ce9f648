"""The arithmetic of a calibration against numpy, and against problems whose answer is known."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, log

import numpy
import pytest

from isim.calibrate.effects import Effect, effect, own_part, why_not
from isim.calibrate.fit import Box, Residuals, fit, leverages, slopes
from isim.scenario.factors import significant


def wide(count: int) -> Box:
    return Box(low=[-9.0] * count, high=[9.0] * count)


def linear(columns: numpy.ndarray, target: numpy.ndarray) -> Residuals:
    return lambda point: [float(each) for each in columns @ numpy.array(point) - target]


@pytest.mark.parametrize("seed", range(20))
def test_a_linear_problem_comes_to_its_least_squares(seed: int) -> None:
    dice = numpy.random.default_rng(seed)
    unknowns = int(dice.integers(1, 5))
    columns = dice.normal(size=(unknowns + int(dice.integers(0, 4)), unknowns))
    target = dice.normal(size=len(columns)) / 4
    expected, *_ = numpy.linalg.lstsq(columns, target, rcond=None)
    found = fit(linear(columns, target), [0.0] * unknowns, Box(low=[-99.0] * unknowns, high=[99.0] * unknowns))
    assert found == pytest.approx([float(each) for each in expected], abs=2e-3)


@pytest.mark.parametrize("seed", range(10))
def test_leverage_is_what_the_normal_equations_say(seed: int) -> None:
    dice = numpy.random.default_rng(100 + seed)
    columns = dice.normal(size=(5, int(dice.integers(1, 5))))
    expected = numpy.sqrt(numpy.diag(numpy.linalg.inv(columns.T @ columns)))
    assert leverages([list(map(float, column)) for column in columns.T]) == pytest.approx(list(map(float, expected)))


def test_what_cannot_be_told_has_no_leverage() -> None:
    assert leverages([[0.0, 0.0]]) == [inf]
    assert leverages([[1.0, 2.0], [2.0, 4.0]]) == [inf, inf]
    assert leverages([[1.0, 0.0], [0.0, 0.5]]) == [1.0, 2.0]
    assert leverages([[1.0], [0.5]]) == [inf, inf], "more factors than metrics"


def test_a_bound_holds_and_the_others_are_fitted_beside_it() -> None:
    """(x - 4)^2 + (x + y - 5)^2 with x at most 2: there y is 3."""
    found = fit(lambda p: [p[0] - 4, p[0] + p[1] - 5], [0.0, 0.0], Box(low=[-9.0, -9.0], high=[2.0, 9.0]))
    assert found == pytest.approx([2.0, 3.0], abs=1e-3)
    assert found[0] == 2.0


def test_a_bent_problem_is_followed() -> None:
    """Metrics that are a floor, a sum and a product of the factors, as those of a server are."""

    def metrics(point: Sequence[float]) -> list[float]:
        one, other = numpy.exp(point[0]), numpy.exp(point[1])
        return [float(3 * one + other), float(one * 0.2 + 5 * other), float(max(one, 0.1) * other)]

    truth = [log(0.7), log(1.9)]
    measured = metrics(truth)

    def residuals(point: Sequence[float]) -> list[float]:
        return [log(one / other) for one, other in zip(metrics(point), measured, strict=True)]

    for start in ([0.0, 0.0], [1.5, -1.5], [-2.0, 2.0]):
        assert fit(residuals, start, wide(2)) == pytest.approx(truth, abs=1e-3)


def test_steps_of_the_metrics_do_not_lead_astray() -> None:
    """A metric that moves by a fifth of a percent at a time, as counts of requests make it."""
    found = fit(lambda p: [round((p[0] - 0.8) / 0.002) * 0.002], [0.0], wide(1))
    assert found == pytest.approx([0.8], abs=2e-3)


def test_slopes_are_taken_inside_the_bounds() -> None:
    asked = []

    def residuals(point: Sequence[float]) -> list[float]:
        asked.append(point[0])
        return [3 * point[0]]

    box = Box(low=[0.0], high=[1.0])
    for x in (0.0, 0.95, 1.0):
        assert slopes(residuals, [x], [3 * x], box, 0.1)[0] == pytest.approx([3.0])
    assert all(0 <= x <= 1 for x in asked)


def test_an_effect_that_two_distances_tell_differently_is_in_doubt() -> None:
    sure, unsure = effect([1.0, 0.5], [1.0, 0.5]), effect([0.3, 0.0], [0.1, 0.0])
    assert (sure.doubt, unsure.doubt) == (0.0, pytest.approx(0.1))
    assert unsure.slopes == pytest.approx([0.2, 0.0])
    effects = {"a": sure, "b": Effect([2.0, 1.0], 0.0), "c": Effect([0.0, 0.0], 0.0), "d": Effect([0.01, 0.0], 0.0)}
    assert own_part(effects, ["a"], "b") == pytest.approx(0, abs=1e-12)
    assert why_not(effects, ["a"], "b") == "it changes the metrics as a does"
    assert why_not(effects, ["a"], "c") == "the metrics do not change with it"
    assert why_not(effects, [], "d") == "the metrics hardly change with it: 1 % off in them would move it by 100 %"


def test_three_significant_digits() -> None:
    assert [significant(value, 3) for value in (1, 999, 1004, 1005, 99_949, 99_950, 123_456)] == [
        1, 999, 1000, 1010, 99_900, 100_000, 123_000,
    ]  # fmt: skip
