"""The random generators of the independent reference implementation, so that its recorded runs can be reproduced.

Nothing of isim's own draws from these: they exist to agree with recorded figures. They are small 32-bit generators
written for JavaScript numbers; seeds that are equal modulo 2^32 give the same numbers there, and so they do here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from isim.record.errors import CausalityError

_MASK = 0xFFFFFFFF
_UNIT = 2.0**-32
_XORSHIFT_ZERO_SEED = 0x9E3779B9


def mulberry32(seed: int) -> Iterator[float]:
    """Uniform numbers in [0, 1), multiples of 2^-32, without end."""
    state = seed & _MASK
    while True:
        state = (state + 0x6D2B79F5) & _MASK
        word = ((state ^ (state >> 15)) * (state | 1)) & _MASK
        word ^= (word + (word ^ (word >> 7)) * (word | 61)) & _MASK
        yield (word ^ (word >> 14)) * _UNIT


def campaign_arrivals(count: int, window_ns: int, seed: int) -> list[tuple[int, int]]:
    """Arrivals of a seeded campaign of `count` executions: (index, arrival_ns) in order of admission.

    First a Fisher-Yates shuffle from the top, whose inverse ranks executions that arrive together; then one draw
    per execution, floor(u (window_ns + 1)), less the smallest of them.
    """
    uniform = mulberry32(seed)
    shuffled = list(range(count))
    for last in range(count - 1, 0, -1):
        other = int(next(uniform) * (last + 1))
        shuffled[last], shuffled[other] = shuffled[other], shuffled[last]
    rank = [0] * count
    for place, index in enumerate(shuffled):
        rank[index] = place
    offsets_ns = [int(next(uniform) * (window_ns + 1)) for _ in range(count)]
    first_ns = min(offsets_ns, default=0)
    order = sorted(range(count), key=lambda index: (offsets_ns[index], rank[index], index))
    return [(index, offsets_ns[index] - first_ns) for index in order]


class XorShift32:
    """Marsaglia's xorshift with shifts 13, 17, 5. `state` may be kept and put back."""

    __slots__ = ("state",)

    def __init__(self, seed: int) -> None:
        self.state = (seed & _MASK) or _XORSHIFT_ZERO_SEED

    def unit(self) -> float:
        """The next uniform number in (0, 1), a multiple of 2^-32."""
        state = self.state
        state ^= (state << 13) & _MASK
        state ^= state >> 17
        state ^= (state << 5) & _MASK
        self.state = state
        return state * _UNIT


def route_experts(generator: XorShift32, experts: Sequence[tuple[str, float]], top_k: int) -> list[str]:
    """Draw `top_k` different experts of (id, weight), one number each; `experts` come in the order of their ids."""
    if not 0 <= top_k <= len(experts):
        raise CausalityError(f"route_experts: cannot draw {top_k} of {len(experts)} experts")
    remaining = list(experts)
    chosen = []
    for _ in range(top_k):
        total = 0.0
        for _, weight in remaining:
            total += weight
        draw = generator.unit() * total
        cumulative = 0.0
        place = len(remaining) - 1  # where rounding leaves the draw at or above the whole sum
        for candidate, (_, weight) in enumerate(remaining):
            cumulative += weight
            if draw < cumulative:
                place = candidate
                break
        chosen.append(remaining.pop(place)[0])
    return chosen


def acceptance_unit(seed: int, stream: str, coordinate: int, position: int) -> float:
    """The number in [0, 1) that is compared with the acceptance probability of a drafted token at `position`.

    FNV-1a over the UTF-16 code units of the stream's id, mixed with seed, coordinate and position; no state.
    """
    units = stream.encode("utf-16-le", "surrogatepass")
    word = 0x811C9DC5
    for place in range(0, len(units), 2):
        word = ((word ^ (units[place] | units[place + 1] << 8)) * 0x01000193) & _MASK
    word ^= seed & _MASK
    word = ((word ^ (coordinate & _MASK)) * 0x85EBCA6B) & _MASK
    word = ((word ^ (position & _MASK)) * 0xC2B2AE35) & _MASK
    word = ((word ^ (word >> 16)) * 0x7FEB352D) & _MASK
    word = ((word ^ (word >> 15)) * 0x846CA68B) & _MASK
    return (word ^ (word >> 16)) * _UNIT
