"""The values the scheduler answers with."""

from __future__ import annotations

import msgspec


class Plan(msgspec.Struct, gc=False):
    """One decision: who gets how many tokens in the next step.

    steady                    every request it schedules is a decoder, none is left out, nothing else was decided
    decodes, decode_context   decoders that get their token, and the sum of their computed tokens
    shapes                    (tokens, computed before) of each other request scheduled, in order
    chunks, admitted          who those are: (index, tokens) of the running, (index, hit, tokens) of the admitted
    sampled                   requests that will get a token from the step
    lookups                   (index, tokens found) for each look-up of the waiting pass, admitted or not
    """

    step: int
    decodes: int = 0
    decode_context: int = 0
    steady: bool = False
    shapes: list[tuple[int, int]] = []
    chunks: list[tuple[int, int]] = []
    admitted: list[tuple[int, int, int]] = []
    skipped: list[int] = []
    preempted: list[int] = []
    lookups: list[tuple[int, int]] = []
    sampled: int = 0
    tokens: int = 0
    context: int = 0


class Outcome(msgspec.Struct, gc=False):
    """What the output of one step brought besides one more token for those that had one the step before."""

    step: int
    first: tuple[int, ...] = ()
    late: tuple[tuple[int, int], ...] = ()
    finished: tuple[int, ...] = ()
