"""Mean waits of textbook queues, and services to feed them with: for tools/validation.py.

Service is drawn in whole units, 1,000 on average; rates are arrivals per unit. Theories return the least and the
greatest mean wait in units, which are the same where there is a closed form.
"""

from __future__ import annotations

from collections.abc import Callable
from math import ceil

import msgspec

from isim.draw.fixed import exp, ln
from isim.draw.streams import Stream

MEAN = 1_000
SERVERS = 4

Draw = Callable[[Stream, int], int]
"""Units of service of request i."""

Theory = Callable[[float], tuple[float, float]]


class Moments(msgspec.Struct, frozen=True):
    """Of the service in units: mean and mean square."""

    mean: float
    square: float


def exponential(stream: Stream, index: int) -> int:
    """Rounded up to whole units, which makes it geometric: a thousandth of the mean is not seen."""
    return max(1, ceil(-MEAN * ln(stream.unit(index))))


_P = 1 - exp(-1 / MEAN)
GEOMETRIC = Moments(1 / _P, (2 - _P) / _P**2)


def constant(_: Stream, __: int) -> int:
    return MEAN


CONSTANT = Moments(MEAN, MEAN**2)


def uniform(stream: Stream, index: int) -> int:
    return 1 + stream.below(2 * MEAN - 1, index)


UNIFORM = Moments(MEAN, MEAN**2 + ((2 * MEAN - 1) ** 2 - 1) / 12)


def mostly_short(stream: Stream, index: int) -> int:
    """Nine of ten take 500 units, the tenth 5,500."""
    return 5_500 if stream.below(10, index) == 0 else 500


MOSTLY_SHORT = Moments(MEAN, 0.9 * 500**2 + 0.1 * 5_500**2)


def pollaczek_khinchine(service: Moments) -> Theory:
    """W = rate E[S^2] / (2 (1 - rate E[S])). Pollaczek 1930, Khinchine 1932."""

    def wait(rate: float) -> tuple[float, float]:
        exact = rate * service.square / (2 * (1 - rate * service.mean))
        return exact, exact

    return wait


def markov(rate: float) -> tuple[float, float]:
    """M/M/1: W = rho E[S] / (1 - rho)."""
    rho = rate * GEOMETRIC.mean
    exact = rho * GEOMETRIC.mean / (1 - rho)
    return exact, exact


def erlang(rate: float) -> tuple[float, float]:
    """M/M/k: W = C(k, a) E[S] / (k - a), a = rate E[S]; C from the recursion of Erlang's B formula (1917)."""
    offered, blocked = rate * GEOMETRIC.mean, 1.0
    for servers in range(1, SERVERS + 1):
        blocked = offered * blocked / (servers + offered * blocked)
    waits = blocked / (1 - offered / SERVERS * (1 - blocked))
    exact = waits * GEOMETRIC.mean / (SERVERS - offered)
    return exact, exact


def in_turns(rate: float) -> tuple[float, float]:
    """E_k/M/1, each of k servers getting every k-th arrival: W = sigma E[S] / (1 - sigma), where
    sigma = (rate / (rate + (1 - sigma) / E[S]))^k. Kleinrock, Queueing Systems, 1975, section 6.4."""
    sigma = 0.5
    for _ in range(10_000):
        share = rate / (rate + (1 - sigma) / GEOMETRIC.mean)
        sigma = share * share * share * share
    exact = sigma * GEOMETRIC.mean / (1 - sigma)
    return exact, exact


def shortest(rate: float) -> tuple[float, float]:
    """Joining the shortest of k queues: no better than one queue for all, no worse than taking turns. Winston 1977."""
    return erlang(rate)[0], in_turns(rate)[1]
