"""Requests that wait for answers: clients in a closed loop, and conversations of several turns.

A source says what comes without waiting (`first`) and, told how a request ended, what its client sends next (`next`).
It knows neither a clock nor an engine. What a client draws depends on the client and on the number of its turn alone,
not on when anything ended: think times and lengths are draws of (client, turn). So is the id, `c<client>.<turn>`.

Whoever runs a source gives requests their index, in order of (arrival, client), and tells it of ends in order of
(end, client): the last requests of a closed loop go to those who are told of first.

A closed loop of n clients begins with n requests at t = 0, and sends the next one of a client its think time after the
last one of it ended, however it ended, until all have been sent.

A turn of a conversation begins with the shared prefix, if there is one. What the user says is the group
`session <client>`, so that nobody else has it; an answer is `o:<id>`, as many tokens as really came. Every turn but the
last is quotable. A conversation whose request was refused or cancelled is over.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import msgspec

from isim.draw.fixed import ln
from isim.draw.streams import Stream
from isim.scenario.types import ClosedLoop, FixedThink, Sessions, Think, Traffic
from isim.workload.arrivals import arrival_times
from isim.workload.lengths import length_of
from isim.workload.request import MAX_TOKENS, Request
from isim.workload.rows import Run, prompt_runs

NO_INDEX = -1
"""The index of a request that did not arrive yet."""

_TURNS = 32  # bits of a draw's index that are the turn; the client is above them


class Ended(msgspec.Struct, frozen=True, kw_only=True):
    """How a request of a client ended: when, with how many output tokens, and whether with all of them."""

    client: int
    ended_ns: int
    output_tokens: int
    completed: bool


class Feedback(Protocol):
    """A workload that reacts."""

    def first(self) -> Iterator[tuple[int, Request]]:
        """(client, request) of all that come whatever happens, arrival times never going back."""
        ...

    def next(self, ended: Ended) -> Request | None:
        """What the client sends now; it arrives at or after `ended_ns`. None: nothing more."""
        ...


class _Draws:
    """Everything that is drawn for turn `turn` of client `client`."""

    def __init__(self, traffic: Traffic, think: Think, seed: int) -> None:
        self._traffic = traffic
        self._think = think
        self._input_tokens = length_of(traffic.input_tokens, Stream(seed, "input_tokens"))
        self._output_tokens = length_of(traffic.output_tokens, Stream(seed, "output_tokens"))
        self._prefixes = Stream(seed, "prefix")
        self._thinks = Stream(seed, "think")

    def input_tokens(self, client: int, turn: int) -> int:
        return self._input_tokens(client << _TURNS | turn)

    def output_tokens(self, client: int, turn: int) -> int:
        return self._output_tokens(client << _TURNS | turn)

    def think_ns(self, client: int, turn: int) -> int:
        think = self._think
        if isinstance(think, FixedThink):
            return think.duration_ns
        return int(think.mean_ns * -ln(self._thinks.unit(client << _TURNS | turn)) + 0.5)

    def prefix(self, client: int, turn: int, most: int) -> tuple[Run, ...]:
        """At most `most` tokens of the shared prefix."""
        prefix = self._traffic.shared_prefix
        if prefix is None:
            return ()
        group = self._prefixes.below(prefix.groups, client << _TURNS | turn)
        return ((f"prefix {group}", 0, min(most, prefix.tokens)),)


class ClosedLoopSource:
    """`Feedback` of a `ClosedLoop`."""

    def __init__(self, workload: ClosedLoop, seed: int) -> None:
        self._workload = workload
        self._draws = _Draws(workload.traffic, workload.think, seed)
        self._turns = [0] * min(workload.clients, workload.requests)
        self._left = workload.requests - len(self._turns)

    def first(self) -> Iterator[tuple[int, Request]]:
        return ((client, self._request(client, 0, 0)) for client in range(len(self._turns)))

    def next(self, ended: Ended) -> Request | None:
        if not self._left:
            return None
        self._left -= 1
        client = ended.client
        turn = self._turns[client] = self._turns[client] + 1
        return self._request(client, turn, ended.ended_ns + self._draws.think_ns(client, turn))

    def _request(self, client: int, turn: int, arrival_ns: int) -> Request:
        draws, traffic = self._draws, self._workload.traffic
        name = f"c{client}.{turn}"
        input_tokens = draws.input_tokens(client, turn)
        prompt = prompt_runs(name, input_tokens, draws.prefix(client, turn, input_tokens))
        output_tokens = draws.output_tokens(client, turn)
        return Request(NO_INDEX, name, arrival_ns, input_tokens, output_tokens, traffic.priority, prompt)


class _Talk(msgspec.Struct):
    """A conversation: turns it will have, the one that is under way, what was said, and how much of it by the user."""

    turns: int
    turn: int
    said: list[Run]
    user_tokens: int


class SessionsSource:
    """`Feedback` of `Sessions`; a client is a conversation."""

    def __init__(self, workload: Sessions, seed: int) -> None:
        self._workload = workload
        self._seed = seed
        self._draws = _Draws(workload.traffic, workload.think, seed)
        self._turns = length_of(workload.turns, Stream(seed, "turns"))
        self._talks: dict[int, _Talk] = {}

    def first(self) -> Iterator[tuple[int, Request]]:
        workload = self._workload
        for client, arrival_ns in enumerate(arrival_times(workload.arrivals, workload.sessions, self._seed)):
            prefix = self._draws.prefix(client, 0, MAX_TOKENS)
            self._talks[client] = talk = _Talk(self._turns(client), 0, list(prefix), 0)
            yield client, self._request(client, talk, arrival_ns)

    def next(self, ended: Ended) -> Request | None:
        client = ended.client
        talk = self._talks[client]
        talk.turn += 1
        if not ended.completed or talk.turn == talk.turns:
            del self._talks[client]
            return None
        talk.said.append((f"o:c{client}.{talk.turn - 1}", 0, ended.output_tokens))
        return self._request(client, talk, ended.ended_ns + self._draws.think_ns(client, talk.turn))

    def _request(self, client: int, talk: _Talk, arrival_ns: int) -> Request:
        turn = talk.turn
        tokens = self._draws.input_tokens(client, turn)
        talk.said.append((f"session {client}", talk.user_tokens, tokens))
        talk.user_tokens += tokens
        return Request(
            NO_INDEX,
            f"c{client}.{turn}",
            arrival_ns,
            sum([count for _, _, count in talk.said]),
            self._draws.output_tokens(client, turn),
            self._workload.traffic.priority,
            tuple(talk.said),
            turn + 1 < talk.turns,
            f"c{client}",
        )


def open_feedback(workload: ClosedLoop | Sessions, seed: int) -> Feedback:
    """The source of a workload that reacts."""
    return ClosedLoopSource(workload, seed) if isinstance(workload, ClosedLoop) else SessionsSource(workload, seed)
