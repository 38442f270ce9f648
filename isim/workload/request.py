"""A request as the world sends it: when, how much, and which of its prompt others share."""

from __future__ import annotations

import msgspec

MAX_TIME_NS = (1 << 53) - 1
"""No arrival is later: the clock ends there, after 104 days."""

MAX_TOKENS = 1_000_000_000
"""No request has more of either kind: more is a wrong column, and sums of it stay far from any limit."""


class Request(msgspec.Struct, frozen=True, gc=False):
    """`index` counts arrivals from 0; ids are unique. Token counts are at least 1.

    `output_tokens` is what will be asked for, before any limit of an engine. `prompt` lists runs (group, start,
    count) that add up to `input_tokens`: two tokens are equal exactly when group and offset are. None means that
    no other request shares any of it. `quotable` says that later prompts may repeat its output, as the group `o:<id>`.

    `session` names the conversation it belongs to, `request_class` the kind of traffic. `client_input_tokens` is what
    the client counted, where that is known and the server's own count is `input_tokens`. `reasoning_tokens` are the
    first so many of the output, which its reader does not see.
    """

    index: int
    id: str
    arrival_ns: int
    input_tokens: int
    output_tokens: int
    priority: int = 0
    prompt: tuple[tuple[str, int, int], ...] | None = None
    quotable: bool = False
    session: str | None = None
    request_class: str | None = None
    client_input_tokens: int | None = None
    reasoning_tokens: int | None = None
