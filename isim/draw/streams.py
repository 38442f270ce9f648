"""Counter-based random draws: a draw is a function of (seed, stream, index, position) and of nothing else.

A stream has no state. Whoever needs a number names what it is for: the stream (`arrivals`, `input_tokens`), the
index within it (mostly the request) and the position (which draw of that request). So one part of a system never
hands its randomness to another: with other lengths the arrivals stay where they were, and a request draws the same
numbers whether or not the one before it drew any.

The generator is two rounds of the finalizer of splitmix64 (Steele, Lea, Flood 2014; constants of Stafford's
variant 13), over an index and then a position that are each spread by an odd constant and offset by 64 key bits.
The keys are the BLAKE2b digest of the seed and the name. All of it is integer arithmetic modulo 2^64, hence the
same on every machine.
"""

from __future__ import annotations

from hashlib import blake2b

from isim.record.errors import CausalityError

_MASK = (1 << 64) - 1
_INDEX_STEP = 0x9E3779B97F4A7C15  # 2^64 divided by the golden ratio, made odd
_POSITION_STEP = 0xD1342543DE82EF95  # a multiplier with a good spectrum (Steele, Vigna 2021)
_RETRY_STEP = 0xAF251AF3B0F025B5  # of the same table
_UNIT = 2.0**-53


def _mix(word: int) -> int:
    word = ((word ^ (word >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    word = ((word ^ (word >> 27)) * 0x94D049BB133111EB) & _MASK
    return word ^ (word >> 31)


class Stream:
    """The random numbers of one purpose. `seed` is at least 0 and below 2^64, `name` says what they are for.

    Index and position are at least 0 and below 2^64; anything else is a bug of ours (CausalityError).
    """

    __slots__ = ("_index_key", "_position_key", "name", "seed")

    def __init__(self, seed: int, name: str) -> None:
        if type(seed) is not int or seed >> 64:
            raise CausalityError(f"stream {name!r}: expected an integer seed from 0 to 2^64 - 1, found {seed!r}")
        self.seed = seed
        self.name = name
        digest = blake2b(seed.to_bytes(8, "little") + name.encode(), digest_size=16, person=b"isim stream 1").digest()
        self._index_key = int.from_bytes(digest[:8], "little")
        self._position_key = int.from_bytes(digest[8:], "little")

    def bits(self, index: int, position: int = 0) -> int:
        """64 uniform bits, as an integer from 0 to 2^64 - 1."""
        if (index | position) >> 64:
            raise CausalityError(f"stream {self.name!r}: no draw has index {index} and position {position}")
        # Both rounds are written out: two calls would cost as much as the arithmetic.
        word = (self._index_key + index * _INDEX_STEP) & _MASK
        word = ((word ^ (word >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        word = ((word ^ (word >> 27)) * 0x94D049BB133111EB) & _MASK
        word = ((word ^ (word >> 31)) + self._position_key + position * _POSITION_STEP) & _MASK
        word = ((word ^ (word >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        word = ((word ^ (word >> 27)) * 0x94D049BB133111EB) & _MASK
        return word ^ (word >> 31)

    def unit(self, index: int, position: int = 0) -> float:
        """A float strictly inside (0, 1): an odd multiple of 2^-53, so that u and 1 - u are equally likely."""
        return ((self.bits(index, position) >> 11) | 1) * _UNIT

    def below(self, n: int, index: int, position: int = 0) -> int:
        """An integer from 0 to n - 1, each exactly as likely as any other (Lemire 2019). 1 <= n <= 2^64."""
        if not 1 <= n <= 1 << 64:
            raise CausalityError(f"stream {self.name!r}: no draw is below {n}")
        product = self.bits(index, position) * n
        if product & _MASK < n:
            refused = (1 << 64) % n
            retry = 0
            while product & _MASK < refused:
                retry += 1
                product = self._again(index, position, retry) * n
        return product >> 64

    def _again(self, index: int, position: int, retry: int) -> int:
        word = _mix((self._index_key + index * _INDEX_STEP + retry * _RETRY_STEP) & _MASK)
        return _mix((word + self._position_key + position * _POSITION_STEP) & _MASK)
