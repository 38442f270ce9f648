"""The reference's generators: figures it recorded, by hand; the whole of its records is in `test_reference.py`."""

from itertools import islice

import pytest
from reference_checks.core import accepted

from isim.draw.reference import XorShift32, campaign_arrivals, mulberry32, route_experts
from isim.record.errors import CausalityError

# Seed: (index, arrival) of the first six of 24 executions in a window of 1,000,000 ns.
CAMPAIGNS = {
    0: [(0, 0), (6, 9617), (10, 41547), (15, 89619), (9, 116937), (12, 162680)],
    1: [(22, 0), (19, 24878), (15, 26061), (8, 65604), (4, 78259), (13, 112123)],
    24301: [(6, 0), (1, 44981), (8, 81473), (17, 83884), (16, 131536), (13, 194625)],
    4294967295: [(6, 0), (19, 8947), (2, 71523), (1, 95595), (15, 128660), (11, 190179)],
}
# Seed: the three experts of each of the first twelve tokens.
ROUTES = {
    0: "485 087 785 718 530 306 185 640 728 487 657 872",
    1: "016 162 216 653 701 726 185 837 046 137 071 632",
    17: "045 024 873 265 406 836 568 467 483 154 856 572",
    42: "062 873 856 378 735 310 756 657 517 562 248 467",
    4294967295: "084 846 417 487 576 176 835 604 657 486 326 875",
}
COORDINATES = (0, 1, 2, 7, 100, 1023)
# (seed, stream): how many of 8 drafted tokens were accepted at each coordinate.
ACCEPTED = {
    (0, "default"): "231005",
    (0, "r0001"): "352234",
    (1, "interactive-0"): "104142",
    (42, "é"): "213142",
    (4294967295, "r0001"): "021504",
    (4294967296, "r0001"): "352234",
    (9007199254740991, "interactive-0"): "223355",
}


def nine_experts() -> list[tuple[str, float]]:
    """The case's experts. Its input gives no weights; these are the ones all of its 320 routes agree with."""
    return [(f"e{i}", 1 + i / 4) for i in range(9)]


@pytest.mark.parametrize("seed", CAMPAIGNS)
def test_campaign_arrivals(seed: int) -> None:
    assert campaign_arrivals(24, 1_000_000, seed)[:6] == CAMPAIGNS[seed]


@pytest.mark.parametrize("seed", ROUTES)
def test_expert_routes(seed: int) -> None:
    generator = XorShift32(seed)
    for route in ROUTES[seed].split():
        assert route_experts(generator, nine_experts(), 3) == [f"e{digit}" for digit in route]


@pytest.mark.parametrize(("seed", "stream"), ACCEPTED)
def test_acceptance(seed: int, stream: str) -> None:
    assert "".join(str(accepted(seed, stream, c)) for c in COORDINATES) == ACCEPTED[seed, stream]


def test_published_first_numbers() -> None:
    """Marsaglia's xorshift32 from state 1 starts 270369, 67634689, 2647435461 in every table of it."""
    generator = XorShift32(1)
    assert [generator.unit() * 2**32 for _ in range(3)] == [270369, 67634689, 2647435461]
    assert XorShift32(0).state == 0x9E3779B9
    assert list(islice(mulberry32(2**32 + 5), 4)) == list(islice(mulberry32(5), 4))


def test_together_the_shuffle_decides() -> None:
    """In a window of 0 ns all arrive at once: what is left is the shuffle, n - 1 draws from the top."""
    uniform = mulberry32(7)
    pile = list(range(6))
    picked = []
    for size in range(6, 1, -1):
        place = int(next(uniform) * size)
        picked.append(pile[place])
        pile[place] = pile[size - 1]
        pile.pop()
    assert campaign_arrivals(6, 0, 7) == [(index, 0) for index in [*pile, *reversed(picked)]]
    assert campaign_arrivals(0, 5, 1) == []


def test_state_can_be_put_back_and_too_many_experts_are_refused() -> None:
    generator = XorShift32(3)
    state = generator.state
    once = route_experts(generator, nine_experts(), 9)
    generator.state = state
    assert route_experts(generator, nine_experts(), 9) == once
    assert sorted(once) == [name for name, _ in nine_experts()]
    with pytest.raises(CausalityError):
        route_experts(generator, nine_experts(), 10)
