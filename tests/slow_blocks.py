"""The blocks of the slow engine, and what a request looks like to it. See `slow_engine`."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from isim.record.records import EngineLimits, EngineVersion

Token = tuple[str, int]


class SlowRequest(msgspec.Struct, frozen=True, kw_only=True):
    """`prompt` lists runs (group, start, count); `order_time` is what priority ties compare (None: the arrival)."""

    id: str
    prompt: list[tuple[str, int, int]]
    output_tokens: int
    priority: int = 0
    arrival_ns: int = 0
    order_time: int | None = None

    @property
    def prompt_tokens(self) -> int:
        return sum(count for _, _, count in self.prompt)


class Live(msgspec.Struct, kw_only=True, eq=False):
    """A request inside the engine. `placeholders` counts tokens in flight, `hashed` the blocks given a key."""

    request: SlowRequest
    tokens: list[Token]
    computed: int = 0
    placeholders: int = 0
    outputs: int = 0
    blocks: list[int] = []
    hashed: int = 0
    preempted: bool = False
    prefill: bool = True
    keys: list[int] = []

    @property
    def id(self) -> str:
        return self.request.id

    @property
    def due(self) -> int:
        return len(self.tokens) + self.placeholders - self.computed

    @property
    def urgency(self) -> tuple[int, int]:
        order_time = self.request.order_time
        return self.request.priority, self.request.arrival_ns if order_time is None else order_time


class SlowPool:
    """The blocks: `free` is the free queue, head first; a block in it may still be found under its key."""

    def __init__(self, limits: EngineLimits) -> None:
        self.limits = limits
        self.free = list(range(1, limits.num_blocks))
        self.references = dict.fromkeys(self.free, 0)
        self.key_of: dict[int, int] = {}
        self.holders: dict[int, list[int]] = {}
        self.numbers: dict[tuple[int, tuple[Token, ...]], int] = {}

    def keys(self, live: Live) -> list[int]:
        """A number for each full block of known tokens, the same for two blocks whose prefixes are equal."""
        size = self.limits.block_size
        while (len(live.keys) + 1) * size <= len(live.tokens):
            start = len(live.keys) * size
            identity = (live.keys[-1] if live.keys else -1, tuple(live.tokens[start : start + size]))
            live.keys.append(self.numbers.setdefault(identity, len(self.numbers)))
        return live.keys

    def hits(self, live: Live) -> list[int]:
        """The longest run of cached blocks over at most all known tokens but the last."""
        found: list[int] = []
        if self.limits.enable_prefix_caching:
            for key in self.keys(live)[: (len(live.tokens) - 1) // self.limits.block_size]:
                if not self.holders.get(key):
                    break
                found.append(self.holders[key][0])
        return found

    def lacks(self, live: Live, tokens: int, hits: Sequence[int] = ()) -> bool:
        """Whether the free queue cannot give what `tokens` positions need beyond the blocks held and hit."""
        needed = -(-tokens // self.limits.block_size) - len(live.blocks) - len(hits)
        return needed + sum(block in self.free for block in hits) > len(self.free)

    def allot(self, live: Live, tokens: int, hits: Sequence[int] = ()) -> None:
        """Give `live` its hits and enough new blocks for `tokens` positions, and key what is full."""
        for block in hits:
            if self.references[block] == 0:
                self.free.remove(block)
            self.references[block] += 1
            live.blocks.append(block)
            live.hashed += 1
        while len(live.blocks) * self.limits.block_size < tokens:
            block = self.free.pop(0)
            if block in self.key_of:
                self.holders[self.key_of.pop(block)].remove(block)
            self.references[block] = 1
            live.blocks.append(block)
        self.publish(live, min(tokens, len(live.tokens)))

    def publish(self, live: Live, tokens: int) -> None:
        """Make the full blocks within the first `tokens` positions findable."""
        if not self.limits.enable_prefix_caching:
            return
        for index in range(live.hashed, tokens // self.limits.block_size):
            key = self.keys(live)[index]
            self.key_of[live.blocks[index]] = key
            self.holders.setdefault(key, []).append(live.blocks[index])
            live.hashed = index + 1

    def release(self, live: Live) -> None:
        """Take all blocks away, tail first."""
        freed = []
        for block in reversed(live.blocks):
            self.references[block] -= 1
            if self.references[block] == 0:
                freed.append(block)
        if self.limits.version is EngineVersion.V021:
            self.free = self.free + freed
        else:
            plain = [block for block in freed if block not in self.key_of]
            self.free = plain + self.free + [block for block in freed if block in self.key_of]
        live.blocks, live.hashed = [], 0
