"""One request as the scheduler holds it."""

from __future__ import annotations

from enum import IntEnum

import msgspec

from isim.policy.vllm.group_pool import Tables
from isim.policy.vllm.keys import Chain
from isim.policy.vllm.pool import Block


class Status(IntEnum):
    WAITING = 0
    PREFILL = 1
    """Running, with more to compute than the one token of a decoder."""
    DECODE = 2
    """Running among the decoders: `computed` and `issued` are stale, see Decoders.settle."""
    ENDING = 3
    """Running, every token it will ever get is in flight."""
    GONE = 4


class Sequence(msgspec.Struct, eq=False, gc=False):
    """`issued` counts tokens sampled for it, in flight or processed: known tokens are prompt + issued.

    order          place among the running; admissions count up
    hashed         leading tokens whose full blocks have a hash
    findable       its leading blocks that somebody may look for; it has just the blocks its computed tokens need
    last_sample    step that sampled its newest token, -1 before the first
    offset         while decoding: computed tokens minus the decoders' tick
    end_tick       while decoding: the tick at which its last token is sampled
    overlap_tick   while decoding: from this tick on its newest token was scheduled with the one before in flight
    tables         its block tables where there are several KV groups
    """

    index: int
    id: str
    prompt: int
    output: int
    priority: int = 0
    order_time: int = 0
    chain: Chain | None = None
    status: Status = Status.WAITING
    order: int = 0
    computed: int = 0
    issued: int = 0
    hashed: int = 0
    last_sample: int = -1
    findable: list[Block] = []
    offset: int = 0
    end_tick: int = 0
    overlap_tick: int = 0
    tables: Tables | None = None

    @property
    def rank(self) -> tuple[int, int]:
        """What `priority` compares: smaller is more urgent."""
        return (self.priority, self.order_time)
