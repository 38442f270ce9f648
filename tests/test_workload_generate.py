"""Generated requests against closed forms and textbook distributions."""

import random
from fractions import Fraction
from itertools import pairwise
from math import exp, floor, log, sqrt
from pathlib import Path
from statistics import NormalDist, fmean, median, pvariance

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isim.scenario.types import Constant, FixedRate, Generated, LengthSpec, LogNormal, Poisson, Ratio, Uniform
from isim.workload.errors import WorkloadError
from isim.workload.open import open_workload
from isim.workload.request import Request

HERE = Path()
TEN = Constant(tokens=10)


def generate(
    arrivals: FixedRate | Poisson,
    count: int,
    *,
    inputs: LengthSpec = TEN,
    outputs: LengthSpec = TEN,
    seed: int = 1,
) -> list[Request]:
    workload = Generated(arrivals=arrivals, requests=count, input_tokens=inputs, output_tokens=outputs)
    return list(open_workload(workload, seed, HERE).requests())


def per_second(numerator: int, denominator: int = 1) -> Ratio:
    return Ratio(numerator=numerator, denominator=denominator)


FOUR = FixedRate(rate_per_s=per_second(4))


@given(numerator=st.integers(1, 10**6), denominator=st.integers(1, 10**6), count=st.integers(1, 50))
@settings(derandomize=True, deadline=None, max_examples=100)
def test_fixed_rate_request_i_comes_at_i_over_rate(numerator: int, denominator: int, count: int) -> None:
    requests = generate(FixedRate(rate_per_s=per_second(numerator, denominator)), count)
    rate = Fraction(numerator, denominator)
    assert [r.arrival_ns for r in requests] == [floor(i / rate * 10**9) for i in range(count)]
    assert [(r.index, r.id) for r in requests] == [(i, f"r{i}") for i in range(count)]


def test_fixed_rate_of_a_third_does_not_drift() -> None:
    requests = generate(FixedRate(rate_per_s=per_second(3)), 300_001)
    assert [requests[i].arrival_ns for i in (1, 2, 3, 300_000)] == [333_333_333, 666_666_666, 10**9, 10**14]


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_poisson_gaps_are_exponential(seed: int) -> None:
    """Rate 5/s: mean 0.2 s, variance 0.04 s^2; within 3 standard errors, and by Kolmogorov-Smirnov at 0.1 %."""
    n = 20_000
    requests = generate(Poisson(rate_per_s=per_second(5)), n, seed=seed)
    times = [0, *(r.arrival_ns for r in requests)]
    gaps = sorted((b - a) / 1e9 for a, b in pairwise(times))
    assert abs(fmean(gaps) - 0.2) < 3 * 0.2 / sqrt(n)
    assert abs(pvariance(gaps) - 0.04) < 3 * 0.04 * sqrt(8 / n)  # the fourth central moment is 9, so 9 - 1 = 8
    assert max(abs(1 - exp(-5 * gap) - (i + 0.5) / n) for i, gap in enumerate(gaps)) < 1.95 / sqrt(n)


def test_poisson_counts_have_equal_mean_and_variance() -> None:
    requests = generate(Poisson(rate_per_s=per_second(50)), 50_000)
    counts = [0] * 1_000
    for request in requests:
        if request.arrival_ns < 1_000 * 10**9:
            counts[request.arrival_ns // 10**9] += 1
    # Whole seconds only: the last ones may lie beyond the last request.
    full = counts[:950]
    assert abs(fmean(full) - 50) < 3 * sqrt(50 / len(full))
    assert abs(pvariance(full) / 50 - 1) < 3 * sqrt(2 / len(full)) + 0.01


def test_lengths_never_move_arrivals_nor_each_other() -> None:
    arrivals = Poisson(rate_per_s=per_second(7, 3))
    plain = generate(arrivals, 500)
    uniform = Uniform(low_tokens=5, high_tokens=900)
    wide = LogNormal(median_tokens=200, sigma_ppm=1_500_000, min_tokens=150, max_tokens=250)
    one = generate(arrivals, 500, inputs=uniform, outputs=TEN)
    other = generate(arrivals, 500, inputs=uniform, outputs=wide)
    assert [r.arrival_ns for r in plain] == [r.arrival_ns for r in one] == [r.arrival_ns for r in other]
    assert [r.input_tokens for r in one] == [r.input_tokens for r in other]
    assert [r.input_tokens for r in one] == [r.input_tokens for r in generate(FOUR, 500, inputs=uniform)]
    assert [r.input_tokens for r in one] != [r.input_tokens for r in generate(FOUR, 500, inputs=uniform, seed=2)]
    both = generate(FOUR, 500, inputs=uniform, outputs=uniform)
    assert sum(r.input_tokens == r.output_tokens for r in both) < 10


def test_fewer_requests_are_a_prefix_of_more() -> None:
    arrivals = Poisson(rate_per_s=per_second(7))
    uniform = Uniform(low_tokens=1, high_tokens=100)
    assert generate(arrivals, 100, inputs=uniform) == generate(arrivals, 300, inputs=uniform)[:100]


def test_uniform_reaches_both_ends_equally() -> None:
    n = 20_000
    lengths = [r.input_tokens for r in generate(FOUR, n, inputs=Uniform(low_tokens=3, high_tokens=12))]
    counts = [lengths.count(value) for value in range(3, 13)]
    assert sum(counts) == n
    statistic = sum((count - n / 10) ** 2 for count in counts) / (n / 10)
    assert statistic < 9 + 4 * sqrt(18)
    assert {r.input_tokens for r in generate(FOUR, 9, inputs=Uniform(low_tokens=7, high_tokens=7))} == {7}


def test_lognormal_has_its_median_and_spread() -> None:
    n = 20_000
    spec = LogNormal(median_tokens=1_000, sigma_ppm=800_000, min_tokens=1, max_tokens=10**8)
    logs = sorted(log(r.output_tokens) for r in generate(FOUR, n, outputs=spec))
    assert abs(median(logs) - log(1_000)) < 3 * 0.8 * sqrt(1.5708 / n)  # the median's error is sqrt(pi/2) times
    assert abs(pvariance(logs) - 0.64) < 3 * 0.64 * sqrt(2 / n)
    normal = NormalDist(log(1_000), 0.8)
    assert max(abs(normal.cdf(value) - (i + 0.5) / n) for i, value in enumerate(logs)) < 1.95 / sqrt(n)


def test_lognormal_is_cut_off_not_piled_up() -> None:
    """Inside the limits the distribution is the truncated one; at the limits there is no more than elsewhere."""
    n = 20_000
    spec = LogNormal(median_tokens=1_000, sigma_ppm=1_000_000, min_tokens=500, max_tokens=1_500)
    lengths = [r.output_tokens for r in generate(FOUR, n, outputs=spec)]
    assert min(lengths) >= 500
    assert max(lengths) <= 1_500
    normal = NormalDist(log(1_000), 1.0)
    low, high = normal.cdf(log(499.5)), normal.cdf(log(1_500.5))
    for at in (600, 900, 1_000, 1_300):
        share = (normal.cdf(log(at + 0.5)) - low) / (high - low)
        found = sum(length <= at for length in lengths) / n
        assert abs(found - share) < 4 * sqrt(share * (1 - share) / n)
    assert lengths.count(1_500) < 50  # 0.07 % of 20,000 is 14; clipping would put thousands here


def test_limits_that_nothing_falls_into_are_an_error() -> None:
    spec = LogNormal(median_tokens=10, sigma_ppm=1_000, min_tokens=5_000, max_tokens=6_000)
    with pytest.raises(WorkloadError, match=r"output_tokens.*median 10 .*5000 to 6000"):
        generate(FOUR, 1, outputs=spec)
    nothing_but_huge = LogNormal(median_tokens=10**9, sigma_ppm=900_000_000, min_tokens=1, max_tokens=2)
    assert all(r.output_tokens <= 2 for r in generate(FOUR, 3, outputs=nothing_but_huge))


def test_arrivals_beyond_the_clock_are_an_error() -> None:
    for arrivals in (FixedRate(rate_per_s=per_second(1, 10**5)), Poisson(rate_per_s=per_second(1, 10**5))):
        with pytest.raises(WorkloadError, match=r"104 days.*raise the rate"):
            generate(arrivals, 200)


def test_assumptions_say_what_was_chosen() -> None:
    spec = LogNormal(median_tokens=10, sigma_ppm=1_000, min_tokens=5, max_tokens=60)
    workload = Generated(arrivals=Poisson(rate_per_s=per_second(1)), requests=1, input_tokens=spec, output_tokens=TEN)
    opened = open_workload(workload, 1, HERE)
    list(opened.requests())
    assert any("first gap" in note for note in opened.assumptions)
    assert any("5 to 60" in note and "drawn again" in note for note in opened.assumptions)
    assert opened.sha256 is None


def test_a_global_seed_changes_nothing() -> None:
    arrivals = Poisson(rate_per_s=per_second(3))
    random.seed(1)
    once = generate(arrivals, 50)
    random.seed(2)
    assert generate(arrivals, 50) == once


def test_vectors_are_frozen() -> None:
    """Recorded once, the same on every machine: a change of these changes every seeded result."""
    requests = generate(
        Poisson(rate_per_s=per_second(4)),
        4,
        inputs=Uniform(low_tokens=1, high_tokens=4096),
        outputs=LogNormal(median_tokens=256, sigma_ppm=700_000, min_tokens=1, max_tokens=2048),
        seed=42,
    )
    assert [(r.arrival_ns, r.input_tokens, r.output_tokens) for r in requests] == FROZEN


FROZEN = [(126882584, 1241, 457), (323658225, 3646, 265), (573841637, 104, 608), (733763285, 2690, 226)]
