"""Which of several equal engines a request goes to: a small table and a rule, no clock and no random number.

The table counts, for each engine, the requests that were sent there and have not left, and remembers where the prompts
of each shared beginning went last. A seeded tie is broken by 64 random bits that the caller hands in.
"""

from __future__ import annotations

from isim.record.records import RouterFacts, RoutingPolicy, TieBreak


class Routing:
    def __init__(self, facts: RouterFacts, engines: int) -> None:
        self._facts = facts
        self._outstanding = [0] * engines
        self._homes: dict[str, int] = {}

    @property
    def blind(self) -> bool:
        """Whether the choice never looks at the table."""
        return self._facts.policy is RoutingPolicy.ROUND_ROBIN

    def choose(self, request: int, beginning: str | None, bits: int) -> int:
        """The engine for request `request`, whose prompt begins with the shared run `beginning`, if with any.

        `bits` are uniform in 0 to 2^64 - 1 and used for nothing but a seeded tie.
        """
        policy = self._facts.policy
        if policy is RoutingPolicy.ROUND_ROBIN:
            return request % len(self._outstanding)
        if policy is RoutingPolicy.PREFIX_AFFINITY and beginning is not None:
            home = self._homes.get(beginning)
            if home is not None:
                return home
        return self._least_loaded(bits)

    def sent(self, engine: int, beginning: str | None) -> None:
        """The request was taken there."""
        self._outstanding[engine] += 1
        if beginning is not None:
            self._homes[beginning] = engine

    def left(self, engine: int, requests: int) -> None:
        """So many requests finished there, or were cancelled."""
        self._outstanding[engine] -= requests

    def _least_loaded(self, bits: int) -> int:
        least = min(self._outstanding)
        tied = [engine for engine, count in enumerate(self._outstanding) if count == least]
        if self._facts.ties is TieBreak.SEEDED:
            return tied[bits * len(tied) >> 64]
        return tied[0]
