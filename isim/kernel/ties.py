"""The last word of the heap's order: a number for each entry, in order of creation or deliberately not.

Entries of one instant, one rank and one key are equal: nobody may rely on which of them runs first. Unshuffled they
run in order of creation. Under a shuffle seed the number is a hash of (seed, entry number), so a run of the same seed
repeats exactly, and a result that moves with the seed has relied on what it may not.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

_MASK = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15
_NUMBER_BITS = 40


def ties(shuffle_seed: int | None) -> Iterator[int]:
    """Endless distinct numbers: 0, 1, 2, … without a seed, hashes of (seed, 0), (seed, 1), … with one."""
    return count() if shuffle_seed is None else _shuffled(shuffle_seed)


def _shuffled(seed: int) -> Iterator[int]:
    start = mix64(seed & _MASK)
    for number in count():
        yield mix64(start + number * _GOLDEN) << _NUMBER_BITS | number


def mix64(value: int) -> int:
    """The finaliser of SplitMix64 (Steele, Lea, Flood 2014): a bijection of 64 bits that scatters neighbours."""
    value &= _MASK
    value = (value ^ value >> 30) * 0xBF58476D1CE4E5B9 & _MASK
    value = (value ^ value >> 27) * 0x94D049BB133111EB & _MASK
    return value ^ value >> 31
