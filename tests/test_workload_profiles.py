"""Gamma gaps, rate profiles, empirical lengths, shared prefixes, prompt pools, mixtures: against closed forms."""

from __future__ import annotations

import gzip
import hashlib
from itertools import pairwise
from math import exp
from pathlib import Path
from statistics import fmean, pstdev
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isim.draw.fixed import ln
from isim.draw.streams import Stream
from isim.scenario.types import (
    Arrivals,
    Burst,
    Constant,
    Diurnal,
    Empirical,
    EmpiricalFile,
    FixedRate,
    Gamma,
    Generated,
    Mixture,
    Poisson,
    Ramp,
    Ratio,
    SharedPrefix,
    Traffic,
    Uniform,
)
from isim.workload.errors import WorkloadError
from isim.workload.open import open_workload
from isim.workload.request import Request

HERE = Path()
S = 10**9
TEN = Constant(tokens=10)


def rate(numerator: int, denominator: int = 1) -> Ratio:
    return Ratio(numerator=numerator, denominator=denominator)


def times(arrivals: Arrivals, count: int, seed: int = 1) -> list[int]:
    workload = Generated(arrivals=arrivals, requests=count, input_tokens=TEN, output_tokens=TEN)
    return [request.arrival_ns for request in open_workload(workload, seed, HERE).requests()]


@pytest.mark.parametrize("cv_ppm", [100_000, 500_000, 1_000_000, 2_000_000, 3_500_000])
def test_gamma_gaps_have_their_mean_and_cv(cv_ppm: int) -> None:
    """The mean within 4 standard errors; the deviation within 4 of its own, sqrt((kurtosis - 1) / 4n) for a gamma."""
    n, cv = 20_000, cv_ppm / 10**6
    gaps = [(late - early) / S for early, late in pairwise(times(Gamma(rate_per_s=rate(4), cv_ppm=cv_ppm), n))]
    assert fmean(gaps) == pytest.approx(0.25, rel=4 * cv / n**0.5)
    kurtosis = 3 + 6 * cv**2
    assert pstdev(gaps) / 0.25 == pytest.approx(cv, rel=4 * ((kurtosis - 1) / (4 * n)) ** 0.5)


def test_gamma_gaps_of_cv_1_are_exponential() -> None:
    gaps = sorted(late - early for early, late in pairwise(times(Gamma(rate_per_s=rate(1), cv_ppm=10**6), 20_001)))
    distance = max(abs((place + 0.5) / 20_000 - (1 - exp(-gap / S))) for place, gap in enumerate(gaps))
    assert distance < 1.95 / 20_000**0.5  # Kolmogorov-Smirnov at 0.1 %


def expected_until(arrivals: Arrivals, time_s: float) -> float:
    """The integral of the rate, written down for the profiles of the tests below."""
    match arrivals:
        case Ramp():  # 2 to 10 per second over 100 s
            inside = min(time_s, 100.0)
            return 2 * inside + 0.04 * inside**2 + 10 * (time_s - inside)
        case Diurnal():  # 1 to 9 per second and back in 60 s: 300 each period
            periods, left = divmod(time_s, 60.0)
            up, down = min(left, 30.0), max(left - 30.0, 0.0)
            return 300 * periods + up + 8 / 60 * up**2 + 9 * down - 8 / 60 * down**2
        case Burst():  # 1 per second for 45 s, then 20 for 15 s
            periods, left = divmod(time_s, 60.0)
            return 345 * periods + min(left, 45.0) + 20 * max(left - 45.0, 0.0)
    raise AssertionError


PROFILES: list[Arrivals] = [
    Ramp(from_per_s=rate(2), to_per_s=rate(10), over_ns=100 * S),
    Diurnal(low_per_s=rate(1), high_per_s=rate(9), period_ns=60 * S),
    Burst(base_per_s=rate(1), burst_per_s=rate(20), period_ns=60 * S, burst_ns=15 * S),
]


@pytest.mark.parametrize("arrivals", PROFILES)
@pytest.mark.parametrize("seed", [1, 2])
def test_profiles_follow_the_integral_of_their_rate(arrivals: Arrivals, seed: int) -> None:
    """The integral up to arrival i is the sum of i + 1 unit gaps of the stream, to the nanosecond."""
    unit = Stream(seed, "arrivals").unit
    total = 0.0
    for index, time_ns in enumerate(times(arrivals, 3000, seed)):
        total -= ln(unit(index))
        assert expected_until(arrivals, (time_ns - 1) / S) - 1e-7 <= total
        assert total <= expected_until(arrivals, (time_ns + 1) / S) + 1e-7


def test_a_profile_that_stays_level_is_the_poisson_process() -> None:
    level = times(Poisson(rate_per_s=rate(5)), 2000)
    for flat in (
        Ramp(from_per_s=rate(5), to_per_s=rate(5), over_ns=3 * S),
        Diurnal(low_per_s=rate(5), high_per_s=rate(5), period_ns=7 * S + 1),
        Burst(base_per_s=rate(5), burst_per_s=rate(5), period_ns=9 * S, burst_ns=S),
    ):
        assert all(abs(a - b) <= 1000 for a, b in zip(times(flat, 2000), level, strict=True))


def test_a_profile_beyond_the_clock_is_told() -> None:
    slow = Burst(base_per_s=rate(1, 10**9), burst_per_s=rate(1, 10**9), period_ns=86_400 * S, burst_ns=S)
    with pytest.raises(WorkloadError, match="104 days"):
        times(slow, 5)


def generate(seed: int = 1, folder: Path = HERE, **fields: object) -> list[Request]:
    given: dict[str, Any] = {"input_tokens": TEN, "output_tokens": TEN, "requests": 1000} | fields
    workload = Generated(arrivals=FixedRate(rate_per_s=rate(1)), **given)
    return list(open_workload(workload, seed, folder).requests())


def test_empirical_lengths_come_as_often_as_they_were_seen() -> None:
    spec = Empirical(tokens=(5, 90, 7), weights=(1, 2, 7))
    seen = [request.input_tokens for request in generate(requests=20_000, input_tokens=spec)]
    for tokens, share in ((5, 0.1), (90, 0.2), (7, 0.7)):
        assert seen.count(tokens) / 20_000 == pytest.approx(share, abs=4 * (share * (1 - share) / 20_000) ** 0.5)
    equal = [request.output_tokens for request in generate(requests=20_000, output_tokens=Empirical(tokens=(1, 2)))]
    assert equal.count(1) / 20_000 == pytest.approx(0.5, abs=0.015)


def test_lengths_of_a_file(tmp_path: Path) -> None:
    content = b"7,5\n90,2\n5\n7, 2\n"
    (tmp_path / "plain").write_bytes(content)
    (tmp_path / "packed").write_bytes(gzip.compress(content))
    inline = generate(input_tokens=Empirical(tokens=(5, 7, 90), weights=(1, 7, 2)))
    for name in ("plain", "packed"):
        assert generate(folder=tmp_path, input_tokens=EmpiricalFile(path=name)) == inline
    arrivals = FixedRate(rate_per_s=rate(1))
    workload = Generated(arrivals=arrivals, requests=1, input_tokens=EmpiricalFile(path="packed"), output_tokens=TEN)
    assert open_workload(workload, 1, tmp_path).sha256 == hashlib.sha256(content).hexdigest()


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("", "lengths: expected at least one length"),
        ("5\n0\n", "lengths:2: expected tokens from 1"),
        ("5,0\n", "lengths:1: expected tokens from 1"),
        ("5,1,1\n", "lengths:1: expected tokens from 1"),
        ("a\n", "lengths:1: expected tokens from 1"),
        ("-5\n", "lengths:1: expected tokens from 1"),
        ("5.5\n", "lengths:1: expected tokens from 1"),
    ],
)
def test_hostile_lengths_are_located(tmp_path: Path, content: str, complaint: str) -> None:
    (tmp_path / "lengths").write_text(content)
    with pytest.raises(WorkloadError, match=complaint):
        generate(folder=tmp_path, output_tokens=EmpiricalFile(path="lengths"))


def test_a_shared_prefix_is_shared_within_its_group_and_nowhere_else() -> None:
    spec = Uniform(low_tokens=50, high_tokens=200)
    requests = generate(requests=400, input_tokens=spec, shared_prefix=SharedPrefix(groups=3, tokens=100))
    groups = [request.prompt[0][0] for request in requests if request.prompt]
    assert sorted(set(groups)) == ["prefix 0", "prefix 1", "prefix 2"]
    assert min(groups.count(group) for group in set(groups)) > 90
    for request in requests:
        assert request.prompt is not None
        shared = min(100, request.input_tokens)
        rest = request.input_tokens - shared
        own = ((f"p:{request.id}", 0, rest),) if rest else ()
        assert request.prompt[1:] == own
        assert request.prompt[0][1:] == (0, shared)
    plain = generate(requests=400, input_tokens=spec)
    assert [r.input_tokens for r in plain] == [r.input_tokens for r in requests]


@given(pool=st.integers(1, 60), tokens=st.integers(1, 300))
@settings(derandomize=True, deadline=None, max_examples=30)
def test_a_prompt_pool_repeats_with_its_period_and_not_before(pool: int, tokens: int) -> None:
    """As in real load generators: prompts come back after exactly `pool` requests, whole."""
    requests = generate(
        requests=150,
        input_tokens=Uniform(low_tokens=1, high_tokens=300),
        output_tokens=Uniform(low_tokens=1, high_tokens=10**6),
        prompt_pool=pool,
        shared_prefix=SharedPrefix(groups=2, tokens=tokens),
    )
    prompts = [request.prompt for request in requests]
    assert prompts[pool:] == prompts[:-pool] if pool < 150 else True
    whole = [prompt for prompt in prompts[:pool] if prompt and len(prompt) == 2]
    assert len(set(whole)) == len(whole)
    assert len({request.output_tokens for request in requests}) > 140  # answers are drawn for each request


CHAT = Traffic(input_tokens=Uniform(low_tokens=1, high_tokens=1000), output_tokens=TEN, weight=3)
BATCH = Traffic(input_tokens=Constant(tokens=5000), output_tokens=Constant(tokens=1), priority=9, weight=1)


def mix(*classes: tuple[str, Traffic], count: int = 8000) -> list[Request]:
    workload = Mixture(arrivals=Poisson(rate_per_s=rate(5)), requests=count, classes=classes)
    return list(open_workload(workload, 1, HERE).requests())


def test_a_mixture_has_its_shares_and_each_class_its_own_requests() -> None:
    requests = mix(("chat", CHAT), ("batch", BATCH))
    chat = [request for request in requests if request.request_class == "chat"]
    batch = [request for request in requests if request.request_class == "batch"]
    assert len(chat) + len(batch) == 8000
    assert len(chat) / 8000 == pytest.approx(0.75, abs=4 * (0.75 * 0.25 / 8000) ** 0.5)
    assert {(r.priority, r.input_tokens, r.output_tokens) for r in batch} == {(9, 5000, 1)}
    assert {r.priority for r in chat} == {0}
    assert [r.arrival_ns for r in requests] == times(Poisson(rate_per_s=rate(5)), 8000)


def test_classes_do_not_disturb_each_other() -> None:
    """Chat draws the same lengths, in its own order, whatever the other class is and however much of it there is."""
    alone = [r.input_tokens for r in mix(("chat", CHAT))]
    mixed = [r.input_tokens for r in mix(("chat", CHAT), ("batch", BATCH)) if r.request_class == "chat"]
    assert mixed == alone[: len(mixed)]


def test_the_shares_of_a_fixed_rate_mixture_are_drawn_apart_from_lengths() -> None:
    longer = Traffic(input_tokens=Constant(tokens=9), output_tokens=TEN, weight=3)
    assert [r.request_class for r in mix(("chat", CHAT), ("batch", BATCH))] == [
        r.request_class for r in mix(("chat", longer), ("batch", BATCH))
    ]
