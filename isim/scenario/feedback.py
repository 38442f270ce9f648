"""Workloads that react to answers: their values. `isim.workload.feedback` decides what they send."""

from __future__ import annotations

import msgspec

from isim.scenario.types import Arrivals, LengthSpec, Traffic


class FixedThink(msgspec.Struct, frozen=True, kw_only=True, tag="fixed"):
    """A client waits this long after each answer."""

    duration_ns: int


class ExponentialThink(msgspec.Struct, frozen=True, kw_only=True, tag="exponential"):
    """A client waits for an exponential time of this mean after each answer."""

    mean_ns: int


Think = FixedThink | ExponentialThink


class ClosedLoop(msgspec.Struct, frozen=True, kw_only=True, tag="closed_loop"):
    """`clients` clients, each with one request at a time, until `requests` were sent; all start at t = 0."""

    clients: int
    requests: int
    think: Think
    traffic: Traffic


class Sessions(msgspec.Struct, frozen=True, kw_only=True, tag="sessions"):
    """Conversations: each prompt is all that was said before, real answers included, and `traffic.input_tokens` more.

    `arrivals` says when conversations begin, `turns` how many requests one has.
    """

    arrivals: Arrivals
    sessions: int
    turns: LengthSpec
    think: Think
    traffic: Traffic
