"""Draws depend on nothing but their name, and look random by tests that know nothing of the generator."""

from collections import Counter
from math import comb, sqrt

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isim.draw.streams import Stream
from isim.record.errors import CausalityError

WORDS = st.integers(0, 2**64 - 1)


def chi_square_is_plausible(counts: list[int], expected: float) -> bool:
    """Within 4 standard deviations of its mean on either side (mean k, variance 2k)."""
    degrees = len(counts) - 1
    statistic = sum((count - expected) ** 2 for count in counts) / expected
    return abs(statistic - degrees) < 4 * sqrt(2 * degrees)


def test_vectors_are_frozen() -> None:
    """Recorded once: a change of these is a change of every seeded result."""
    arrivals = Stream(42, "arrivals")
    assert [arrivals.bits(index) for index in (0, 1, 2**63)] == FROZEN_BITS
    assert [Stream(0, "").bits(0), arrivals.bits(1, 1), Stream(43, "arrivals").bits(0)] == FROZEN_OTHERS
    assert [arrivals.below(1000, index) for index in range(8)] == FROZEN_BELOW
    assert arrivals.unit(7) == FROZEN_UNIT


def test_agrees_with_the_published_finalizer() -> None:
    """Independent computation: splitmix64's output function, word by word, modulo 2^64 by hand."""
    from hashlib import blake2b

    def splitmix(state: int) -> int:
        z = (state ^ state // 2**30) * 0xBF58476D1CE4E5B9 % 2**64
        z = (z ^ z // 2**27) * 0x94D049BB133111EB % 2**64
        return z ^ z // 2**31

    assert splitmix(0x9E3779B97F4A7C15) == 0xE220A8397B1DCDAF  # first output of splitmix64 seeded with 0
    digest = blake2b(bytes([7, 0, 0, 0, 0, 0, 0, 0]) + b"x", digest_size=16, person=b"isim stream 1").digest()
    first, second = int.from_bytes(digest[:8], "little"), int.from_bytes(digest[8:], "little")
    for index, position in ((0, 0), (5, 0), (5, 9), (2**64 - 1, 2**64 - 1)):
        inner = splitmix((first + index * 0x9E3779B97F4A7C15) % 2**64)
        outer = splitmix((inner + second + position * 0xD1342543DE82EF95) % 2**64)
        assert Stream(7, "x").bits(index, position) == outer


@given(seed=WORDS, index=WORDS, position=WORDS, n=st.integers(1, 2**64))
@settings(derandomize=True, deadline=None, max_examples=300)
def test_a_draw_is_a_function_of_its_place(seed: int, index: int, position: int, n: int) -> None:
    stream = Stream(seed, "a")
    bits = stream.bits(index, position)
    stream.bits(index ^ 1, position)
    assert stream.bits(index, position) == bits == Stream(seed, "a").bits(index, position)
    assert 0 <= bits < 2**64
    assert 0.0 < stream.unit(index, position) < 1.0
    assert 0 <= stream.below(n, index, position) < n


@pytest.mark.parametrize("shift", range(0, 64, 8))
@pytest.mark.parametrize("along", ["index", "position", "seed", "name"])
def test_every_byte_is_uniform_along_every_axis(shift: int, along: str) -> None:
    stream = Stream(3, "bytes")
    draws = {
        "index": lambda i: stream.bits(i),
        "position": lambda i: stream.bits(1, i),
        "seed": lambda i: Stream(i, "bytes").bits(0),
        "name": lambda i: Stream(3, f"s{i}").bits(0),
    }[along]
    counts = [0] * 256
    for i in range(12_800):
        counts[(draws(i) >> shift) & 255] += 1
    assert chi_square_is_plausible(counts, 50)


def test_neighbours_differ_in_half_of_their_bits() -> None:
    """Over 2,000 pairs the number of differing bits is binomial(64, 1/2): compare its histogram."""
    one, other = Stream(11, "one"), Stream(11, "other")
    pairs = {
        "index": lambda i: one.bits(i) ^ one.bits(i + 1),
        "position": lambda i: one.bits(5, i) ^ one.bits(5, i + 1),
        "crosswise": lambda i: one.bits(i, i + 1) ^ one.bits(i + 1, i),
        "stream": lambda i: one.bits(i) ^ other.bits(i),
        "seed": lambda i: Stream(i, "one").bits(0) ^ Stream(i + 1, "one").bits(0),
    }
    for name, pair in pairs.items():
        differing = Counter(pair(i).bit_count() for i in range(2_000))
        middle = range(24, 41)
        statistic = sum(
            (differing[k] - 2_000 * comb(64, k) / 2**64) ** 2 / (2_000 * comb(64, k) / 2**64) for k in middle
        )
        assert statistic < 17 + 4 * sqrt(2 * 17), name


def test_no_linear_correlation_between_streams_and_lags() -> None:
    n = 20_000
    one = [Stream(5, "input_tokens").unit(i) - 0.5 for i in range(n)]
    other = [Stream(5, "output_tokens").unit(i) - 0.5 for i in range(n)]
    bound = 4 / 12 / sqrt(n)  # 4 standard errors: the products have variance 1/144
    assert abs(sum(a * b for a, b in zip(one, other, strict=True)) / n) < bound
    for lag in (1, 2, 3, 16):
        assert abs(sum(a * b for a, b in zip(one, one[lag:], strict=False)) / n) < bound


def test_no_draw_repeats() -> None:
    stream = Stream(0, "repeat")
    draws = {stream.bits(index, position) for index in range(300) for position in range(300)}
    assert len(draws) == 90_000


def test_unit_is_uniform_and_never_an_end() -> None:
    stream = Stream(9, "unit")
    units = sorted(stream.unit(i) for i in range(20_000))
    distance = max(abs(unit - (i + 0.5) / 20_000) for i, unit in enumerate(units))
    assert distance < 1.95 / sqrt(20_000)  # Kolmogorov-Smirnov at 0.1 %
    assert all((unit * 2**53) % 2 == 1 for unit in units)


@pytest.mark.parametrize("n", [2, 3, 7, 10, 1000])
def test_below_is_uniform(n: int) -> None:
    stream = Stream(1, "below")
    counts = [0] * n
    for i in range(20 * n + 20_000):
        counts[stream.below(n, i)] += 1
    assert chi_square_is_plausible(counts, (20 * n + 20_000) / n)


def test_below_refuses_what_would_be_uneven() -> None:
    """For n = 3 * 2^62 a quarter of all words must be drawn again; without that, thirds would be 2 : 1 : 1."""
    stream = Stream(1, "below")
    counts = [0, 0, 0]
    for i in range(30_000):
        counts[stream.below(3 << 62, i) % 3] += 1
    assert chi_square_is_plausible(counts, 10_000)
    thirds = [0, 0, 0]
    for i in range(30_000):
        thirds[stream.below(3 << 62, i) >> 62] += 1
    assert chi_square_is_plausible(thirds, 10_000)


def test_places_that_do_not_exist_are_our_bug() -> None:
    stream = Stream(1, "a")
    for index, position in ((-1, 0), (0, -1), (2**64, 0), (0, 2**64)):
        with pytest.raises(CausalityError):
            stream.bits(index, position)
    for n in (0, -1, 2**64 + 1):
        with pytest.raises(CausalityError):
            stream.below(n, 0)
    for seed in (-1, 2**64, True, 1.0):
        with pytest.raises(CausalityError):
            Stream(seed, "a")  # type: ignore[arg-type]  # what the check is for


FROZEN_BITS = [11104578996582771811, 8396251178035376141, 15920369514405417977]
FROZEN_OTHERS = [8813294830693542933, 11722154207568643869, 11286685513161802670]
FROZEN_BELOW = [601, 455, 367, 527, 195, 667, 898, 67]
FROZEN_UNIT = 0.06794306027675001
