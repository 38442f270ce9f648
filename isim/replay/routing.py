"""Where each request must have gone: the router's rule told once more, from the log alone.

Who has left an engine is read from the turns before: those of earlier instants, since a turn comes after the arrivals
of its own. The bits of a seeded tie are those of the stream `router` at the request's index; they are drawn here from
the definition of such streams: two rounds of splitmix64's finalizer over the index and a position of 0, each offset by
a half of BLAKE2b(seed, name).
"""

from __future__ import annotations

from hashlib import blake2b

from isim.record.records import Arrive, Header, RouterFacts, RoutingPolicy, TieBreak

_WORD = 1 << 64


def _finalize(word: int) -> int:
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        word = (word ^ word >> shift) * factor % _WORD
    return word ^ word >> 31


def _tie_bits(seed: int, request: int) -> int:
    keys = blake2b(seed.to_bytes(8, "little") + b"router", digest_size=16, person=b"isim stream 1").digest()
    first, second = (int.from_bytes(half, "little") for half in (keys[:8], keys[8:]))
    return _finalize((_finalize((first + request * 0x9E3779B97F4A7C15) % _WORD) + second) % _WORD)


class Routes:
    """`expected` says where an arrival must go; `taken` and `gone` keep the account."""

    def __init__(self, header: Header) -> None:
        self._facts = header.router or RouterFacts(policy=RoutingPolicy.ROUND_ROBIN)
        self._seed = header.seed
        self._there = dict.fromkeys(range(header.engines), 0)
        self._last_home: dict[str, int] = {}

    def expected(self, arrival: Arrive) -> int:
        facts, engines = self._facts, len(self._there)
        if facts.policy is RoutingPolicy.ROUND_ROBIN:
            return arrival.request % engines
        start = self._start(arrival)
        if facts.policy is RoutingPolicy.PREFIX_AFFINITY and start in self._last_home:
            return self._last_home[start]
        fewest = min(self._there.values())
        equals = [engine for engine in range(engines) if self._there[engine] == fewest]
        place = 0
        if facts.ties is TieBreak.SEEDED:
            place = _tie_bits(self._seed, arrival.request) * len(equals) // _WORD
        return equals[place]

    def taken(self, arrival: Arrive) -> None:
        """The engine took it in."""
        self._there[arrival.engine] += 1
        start = self._start(arrival)
        if start:
            self._last_home[start] = arrival.engine

    def gone(self, engine: int, requests: int) -> None:
        """So many left."""
        self._there[engine] -= requests

    def _start(self, arrival: Arrive) -> str:
        """The shared run its prompt begins with, empty without one."""
        group = arrival.prompt[0][0] if arrival.prompt else ""
        return "" if group == f"p:{arrival.id}" else group
