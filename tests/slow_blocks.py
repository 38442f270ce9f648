"""The blocks of the slow engine, and what a request looks like to it. See `slow_engine`.

Every KV group has a block table of its own, all draw from one free queue. A table has an entry for each block of
positions from the start of the sequence; 0, the null block, stands where nothing is kept. What a group keeps, how many
blocks it wants and what it can be found by is told by its kind.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import lcm

import msgspec

from isim.record.records import EngineLimits, EngineVersion, GroupKind, GroupLimits

Token = tuple[str, int]
NULL = 0


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
    """A request inside the engine. `placeholders` counts tokens in flight.

    `tables` has a list of blocks for each KV group, `hashed` the number of entries of it that were looked at for keys.
    `shared` is where a prefix ends that full attention has in the cache, found when it was admitted.
    """

    request: SlowRequest
    tokens: list[Token]
    computed: int = 0
    placeholders: int = 0
    outputs: int = 0
    tables: list[list[int]]
    hashed: list[int]
    shared: int = 0
    preempted: bool = False
    prefill: bool = True
    keys: dict[int, list[int]] = {}

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


def groups_of(limits: EngineLimits) -> tuple[GroupLimits, ...]:
    """The KV groups, the usual single one written out."""
    return limits.groups or (GroupLimits(kind=GroupKind.FULL, block_size=limits.block_size),)


def most_held(limits: EngineLimits, group: GroupLimits, tokens: int) -> int:
    """The most entries that a group's table may come to hold for a sequence of so many tokens."""
    entries = -(-tokens // group.block_size)
    unprocessed = 2 if limits.version is EngineVersion.V033 and limits.async_scheduling else 1
    if group.kind is GroupKind.FULL:
        return entries
    if group.kind is GroupKind.SLIDING:
        span = group.window_tokens - 1 + unprocessed * limits.max_num_batched_tokens
        return min(entries, -(-min(span, limits.max_model_len) // group.block_size) + 1)
    return min(entries, 1 if group.kind is GroupKind.STATE else 1 + unprocessed)


class Found(msgspec.Struct, kw_only=True):
    """What a look-up found: `tokens` of the prompt, and for each group the table that stands for them."""

    tokens: int = 0
    tables: list[list[int]]
    shared: int = 0


class SlowPool:
    """The blocks: `free` is the free queue, head first; a block in it may still be found under its key.

    A key is a number for (group, tokens from the start of the sequence to the end of the block).
    """

    def __init__(self, limits: EngineLimits) -> None:
        self.limits = limits
        self.groups = groups_of(limits)
        self.whole = lcm(*(group.block_size for group in self.groups))
        self.free = list(range(1, limits.num_blocks))
        self.references = dict.fromkeys(self.free, 0)
        self.key_of: dict[int, tuple[int, int]] = {}
        self.holders: dict[tuple[int, int], list[int]] = {}
        self.numbers: dict[tuple[int, int, tuple[Token, ...]], int] = {}
        self.states_of_this_step: list[int] = []

    def step_starts(self) -> None:
        self.states_of_this_step = []

    # ---- keys and look-ups

    def keys(self, live: Live, size: int) -> list[int]:
        """A number for each full block of known tokens, the same for two blocks whose prefixes are equal."""
        keys = live.keys.setdefault(size, [])
        while (len(keys) + 1) * size <= len(live.tokens):
            start = len(keys) * size
            identity = (size, keys[-1] if keys else -1, tuple(live.tokens[start : start + size]))
            keys.append(self.numbers.setdefault(identity, len(self.numbers)))
        return keys

    def hits(self, live: Live) -> Found:
        """The longest cached prefix over at most all known tokens but the last, the same for every group."""
        nothing = Found(tables=[[] for _ in self.groups])
        if not self.limits.enable_prefix_caching:
            return nothing
        kinds = sorted(dict.fromkeys(self.groups), key=lambda group: group.kind is not GroupKind.FULL)
        length = len(live.tokens) - 1
        found: dict[GroupLimits, list[list[int]]] = {}
        shared = 0
        while True:
            before = length
            for group in kinds:
                members = [number for number, other in enumerate(self.groups) if other == group]
                if group.kind is GroupKind.FULL and group in found:
                    length = length // group.block_size * group.block_size
                    continue
                found[group] = self._longest(live, group, members, length)
                length = len(found[group][0]) * group.block_size
                if group.kind is GroupKind.FULL:
                    shared = length
            if length >= before or (len(kinds) == 2 and kinds[0].kind is GroupKind.FULL):
                break
        tables = []
        taken = {group: iter(lists) for group, lists in found.items()}
        for group in self.groups:
            tables.append(next(taken[group])[: length // group.block_size])
        return Found(tokens=length, tables=tables, shared=shared)

    def _longest(self, live: Live, group: GroupLimits, members: list[int], length: int) -> list[list[int]]:
        """For each of these like groups a table of at most `length` tokens that a request may start with."""
        keys = self.keys(live, group.block_size)[: length // group.block_size]
        places = [[self.holders.get((number, key), [NULL])[0] for number in members] for key in keys]
        cached = [NULL not in place for place in places]
        ends = [end for end in range(len(keys) + 1) if end * group.block_size % self.whole == 0]
        best, first = 0, 0
        for end in ends:
            start = end - self._wanted_run(group)
            if all(cached[max(0, start) : end]):
                best, first = end, max(0, start)
        return [[NULL] * first + [place[at] for place in places[first:best]] for at in range(len(members))]

    def _wanted_run(self, group: GroupLimits) -> int:
        """How many cached blocks in a row let a sequence go on behind them."""
        if group.kind is GroupKind.FULL:
            return 1 << 60
        return 1 if group.kind is GroupKind.ALIGNED_STATE else -(-(group.window_tokens - 1) // group.block_size)

    # ---- what a request wants and gets

    def lacks(self, live: Live, tokens: int, found: Found | None = None, *, whole: bool = False) -> bool:
        """Whether the free queue cannot give what `tokens` positions need beyond the blocks held and found.

        `whole` asks for a whole sequence at once, of which a window never holds all.
        """
        return sum(self._wants(live, number, tokens, found, whole) for number in range(len(self.groups))) > len(
            self.free
        )

    def _wants(self, live: Live, number: int, tokens: int, found: Found | None, whole: bool) -> int:
        group, table = self.groups[number], live.tables[number]
        required = -(-tokens // group.block_size)
        if whole and group.kind is GroupKind.SLIDING:
            required = most_held(self.limits, group, tokens)
        if found is None:
            missing = max(0, required - len(table))
            return min(missing, 1) if group.kind is GroupKind.ALIGNED_STATE else missing
        hits = found.tables[number]
        if group.kind is GroupKind.ALIGNED_STATE:
            if hits and hits[-1] in self.states_of_this_step:
                return 1 << 60
            return min(1, max(0, required - len(hits))) + self._idle(hits)
        passed = self._passed(group, found.tokens) // group.block_size
        return max(0, required - max(passed, len(hits))) + self._idle(hits[passed:])

    def _passed(self, group: GroupLimits, computed: int) -> int:
        """How many leading tokens the group needs no more once so many are computed."""
        if group.kind is GroupKind.SLIDING:
            return max(0, computed - group.window_tokens + 1)
        return max(0, computed - 1) if group.kind is GroupKind.ALIGNED_STATE else 0

    def _idle(self, blocks: Sequence[int]) -> int:
        return sum(block in self.free for block in blocks)

    def admit(self, live: Live, tokens: int, found: Found) -> None:
        """Give a request that starts what was found, and enough new blocks for `tokens` positions."""
        for number, group in enumerate(self.groups):
            passed = self._passed(group, found.tokens) // group.block_size
            hits = found.tables[number][passed:]
            for block in hits:
                if block == NULL:
                    continue
                if self.references[block] == 0:
                    self.free.remove(block)
                self.references[block] += 1
            live.tables[number] = [NULL] * min(passed, len(found.tables[number])) + hits
            live.hashed[number] = len(live.tables[number])
        self.allot(live, tokens)

    def allot(self, live: Live, tokens: int) -> None:
        """Give enough new blocks for `tokens` positions, and key what is full and known."""
        for number, group in enumerate(self.groups):
            table = live.tables[number]
            required = -(-tokens // group.block_size)
            if required <= len(table):
                continue
            if group.kind is GroupKind.ALIGNED_STATE:
                table += [NULL] * (required - 1 - len(table))
            while len(table) < required:
                table.append(self._new_block())
        self.publish(live, min(tokens, len(live.tokens)))

    def _new_block(self) -> int:
        block = self.free.pop(0)
        if block in self.key_of:
            self.holders[self.key_of[block]].remove(block)
            if not self.holders[self.key_of[block]]:
                del self.holders[self.key_of[block]]
            del self.key_of[block]
        self.references[block] = 1
        return block

    def publish(self, live: Live, tokens: int) -> None:
        """Make the full blocks within the first `tokens` positions findable."""
        if not self.limits.enable_prefix_caching:
            return
        if self.limits.version is EngineVersion.V033:
            tokens = tokens // self.whole * self.whole
        for number, group in enumerate(self.groups):
            for place in range(live.hashed[number], tokens // group.block_size):
                block = live.tables[number][place]
                live.hashed[number] = place + 1
                if block == NULL:
                    continue
                key = (number, self.keys(live, group.block_size)[place])
                self.key_of[block] = key
                self.holders.setdefault(key, []).append(block)
                if group.kind is GroupKind.ALIGNED_STATE:
                    self.states_of_this_step.append(block)

    # ---- what a request gives back

    def drop_passed(self, live: Live, computed: int) -> None:
        """Free what windows and states have left behind once so many tokens are computed."""
        for number, group in enumerate(self.groups):
            table = live.tables[number]
            freed = []
            for place in reversed(range(min(self._passed(group, computed) // group.block_size, len(table)))):
                if table[place] == NULL:
                    continue
                freed.append(table[place])
                table[place] = NULL
            self._release(freed)

    def release(self, live: Live) -> None:
        """Take all blocks away, tail first."""
        for table in live.tables:
            self._release([block for block in reversed(table) if block != NULL])
        live.tables, live.hashed = [[] for _ in self.groups], [0] * len(self.groups)

    def _release(self, blocks: Sequence[int]) -> None:
        freed = []
        for block in blocks:
            self.references[block] -= 1
            if self.references[block] == 0:
                freed.append(block)
        if self.limits.version is EngineVersion.V021:
            self.free = self.free + freed
        else:
            plain = [block for block in freed if block not in self.key_of]
            self.free = plain + self.free + [block for block in freed if block in self.key_of]
