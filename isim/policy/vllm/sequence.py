"""One request as the scheduler holds it."""

from __future__ import annotations

from enum import IntEnum

from isim.policy.vllm.keys import Chain


class Status(IntEnum):
    WAITING = 0
    PREFILL = 1
    """Running, with more to compute than the one token of a decoder."""
    DECODE = 2
    """Running among the decoders: `computed` and `issued` are stale, see Decoders.settle."""
    ENDING = 3
    """Running, every token it will ever get is in flight."""
    GONE = 4


class Sequence:
    """`issued` counts tokens sampled for it, in flight or processed: known tokens are prompt + issued.

    order          place among the running; admissions count up
    hashed         leading tokens whose full blocks have a hash
    last_sample    step that sampled its newest token, -1 before the first
    offset         while decoding: computed tokens minus the decoders' tick
    end_tick       while decoding: the tick at which its last token is sampled
    overlap_tick   while decoding: from this tick on its newest token was scheduled with the one before in flight
    """

    __slots__ = (
        "blocks",
        "chain",
        "computed",
        "end_tick",
        "hashed",
        "id",
        "index",
        "issued",
        "last_sample",
        "offset",
        "order",
        "order_time",
        "output",
        "overlap_tick",
        "priority",
        "prompt",
        "registered",
        "status",
    )

    def __init__(self, index: int, name: str, prompt: int, output: int) -> None:
        self.index = index
        self.id = name
        self.prompt = prompt
        self.output = output
        self.priority = 0
        self.order_time = 0
        self.chain: Chain | None = None
        self.status = Status.WAITING
        self.order = 0
        self.computed = 0
        self.issued = 0
        self.hashed = 0
        self.last_sample = -1
        self.blocks: list[int] = []
        self.registered = 0
        self.offset = 0
        self.end_tick = 0
        self.overlap_tick = 0

    @property
    def rank(self) -> tuple[int, int]:
        """What `priority` compares: smaller is more urgent."""
        return (self.priority, self.order_time)
