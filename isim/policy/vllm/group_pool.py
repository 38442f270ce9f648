"""KV blocks of several groups: a table for each group and request, one pool, one free queue.

Every block has its number here. A freed block keeps what it holds until it is taken, so it can be found meanwhile; the
key under which it is found belongs to its group. Blocks are named (become findable) as far as somebody may look:
the shared part of a prompt at once, the rest when its request loses them and may come back for them.

The free queue has three parts: blocks without a name that went back to its head (the later version), blocks never lent
yet, and freed ones in order. Block 0 is the null block: it stands in a table where nothing is kept.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Sequence
from math import lcm

import msgspec

from isim.policy.vllm.group_rules import groups_of, most_held, passed_entries, whole_block
from isim.policy.vllm.keys import PRIVATE_BLOCKS, Chain
from isim.policy.vllm.pool import Ledger
from isim.policy.vllm.rules import Rules
from isim.record.records import EngineLimits, GroupKind, GroupLimits

NULL = 0


class Tables(msgspec.Struct, eq=False, kw_only=True):
    """What one request holds, an entry of each list for a group.

    chains       where keys come from; None while nobody else can know its tokens
    entries      blocks by place, null where nothing is kept
    passed       leading entries that are null for good
    named        leading entries that are findable, or null
    shared_end   where the prefix ends that full attention alone had in the cache
    step, given  the last step that gave it other than a decoder's token, and how many
    beat         while decoding: the tick at which one more token may open or pass an entry, -1 while that is under way
    forced       while decoding: further ticks at which that must be looked at
    """

    index: int
    chains: tuple[Chain, ...] | None
    entries: list[list[int]]
    passed: list[int]
    named: list[int]
    shared_end: int = 0
    step: int = -1
    given: int = 0
    beat: int = -1
    forced: int = 0

    def key(self, group: int, place: int) -> int:
        chains = self.chains
        return (-(self.index + 1) * PRIVATE_BLOCKS + place) if chains is None else chains[group].key(place)


class Found(msgspec.Struct, kw_only=True):
    """A prefix of `tokens` that every group has: its tables, and how many of their blocks lie in the free queue.

    `shared` is what full attention alone has; `early` says that a state of it is computed only by this very step.
    """

    tokens: int = 0
    entries: list[list[int]]
    idle: int = 0
    shared: int = 0
    early: bool = False


class GroupPool(Ledger):
    def __init__(self, limits: EngineLimits, rules: Rules) -> None:
        self.groups = groups_of(limits)
        self.free = limits.num_blocks - 1
        self._limits = limits
        self._caching = limits.enable_prefix_caching
        self._unhashed_first = rules.unhashed_first
        self._whole = lcm(*(group.block_size for group in self.groups))
        self._step = whole_block(limits)
        self._head: deque[int] = deque()
        self._fresh = 1
        self._queue: OrderedDict[int, None] = OrderedDict()
        self._users: dict[int, int] = {}
        """Of blocks that more than one request holds or held; of the others it is one."""
        self._cached: list[dict[int, int | list[int]]] = [{} for _ in self.groups]
        self._name: dict[int, tuple[int, int]] = {}
        self._early: dict[int, None] = {}
        alike: dict[GroupLimits, list[int]] = {}
        for number, group in enumerate(self.groups):
            alike.setdefault(group, []).append(number)
        self._kinds = sorted(alike.items(), key=lambda kind: kind[0].kind is not GroupKind.FULL)

    def order(self) -> list[int]:
        """The free queue, head first."""
        return [*self._head, *range(self._fresh, self._limits.num_blocks), *self._queue]

    def tables(self, index: int, chains: tuple[Chain, ...] | None) -> Tables:
        """Those of a new request."""
        count = len(self.groups)
        empty: list[list[int]] = [[] for _ in self.groups]
        return Tables(index=index, chains=chains, entries=empty, passed=[0] * count, named=[0] * count)

    def step_starts(self) -> None:
        self._early.clear()

    # ---- running requests

    def wants(self, tables: Tables, tokens: int) -> int:
        """Blocks that a running request lacks for `tokens` computed tokens."""
        wanted = 0
        for group, entries in zip(self.groups, tables.entries, strict=True):
            missing = -(-tokens // group.block_size) - len(entries)
            if missing > 0:
                wanted += 1 if group.kind is GroupKind.ALIGNED_STATE else missing
        return wanted

    def drop(self, tables: Tables, settled: int, hashed: int) -> None:
        """Give back what is passed at `settled` tokens; entries full at `hashed` tokens have a hash."""
        for number, group in enumerate(self.groups):
            entries, first = tables.entries[number], tables.passed[number]
            stop = min(passed_entries(group, settled), len(entries))
            if stop <= first:
                continue
            full = self._full(group, hashed)
            if full:
                self._name_entries(tables, number, min(stop, full))
            self._release(entries[first:stop], stop, full)
            entries[first:stop] = [NULL] * (stop - first)
            tables.passed[number] = stop

    def allot(self, tables: Tables, tokens: int) -> None:
        """Blocks for `tokens` computed tokens; the caller has made sure that they are free."""
        for group, entries in zip(self.groups, tables.entries, strict=True):
            missing = -(-tokens // group.block_size) - len(entries)
            if missing <= 0:
                continue
            if group.kind is GroupKind.ALIGNED_STATE:
                entries.extend([NULL] * (missing - 1))
                missing = 1
            for _ in range(missing):
                entries.append(self._take())

    def name(self, tables: Tables, hashed: int, *, shared_only: bool) -> None:
        """Make entries that are full at `hashed` tokens findable: all, or those that others may look for."""
        if not self._caching or (shared_only and tables.chains is None):
            return
        for number, group in enumerate(self.groups):
            stop = self._full(group, hashed)
            if shared_only and tables.chains is not None:
                stop = min(stop, tables.chains[number].shared_blocks)
            self._name_entries(tables, number, stop)

    def release(self, tables: Tables, hashed: int) -> None:
        """Give everything back, later entries before earlier ones."""
        for number, group in enumerate(self.groups):
            entries = tables.entries[number]
            self._release(entries, len(entries), self._full(group, hashed))
            tables.entries[number] = []

    # ---- requests that start

    def find(self, tables: Tables, known: int) -> Found:
        """The longest prefix that every group has, at most all but the last of `known` tokens."""
        if not self._caching:
            return Found(entries=[[] for _ in self.groups])
        length, shared = known - 1, 0
        kinds = self._kinds
        settled = False
        while not settled:
            before = length
            for group, numbers in kinds:
                if group.kind is GroupKind.FULL and shared:
                    length = min(length, shared) // group.block_size * group.block_size
                    continue
                length = self._longest(tables, group, numbers, length) * group.block_size
                if group.kind is GroupKind.FULL:
                    shared = length
                if not length:
                    return Found(entries=[[] for _ in self.groups], shared=shared)
            settled = length == before or (len(kinds) == 2 and kinds[0][0].kind is GroupKind.FULL)
        return self._found(tables, length, shared)

    def lacks(self, tokens: int, found: Found, *, whole: bool = False) -> bool:
        """Whether what a start wants is not free; `whole` asks for a sequence at once, which no window ever holds."""
        wanted = found.idle
        for group, entries in zip(self.groups, found.entries, strict=True):
            required = -(-tokens // group.block_size)
            if whole and group.kind is GroupKind.SLIDING:
                required = most_held(self._limits, group, tokens)
            missing = required - max(passed_entries(group, found.tokens), len(entries))
            if missing > 0:
                wanted += 1 if group.kind is GroupKind.ALIGNED_STATE else missing
        return found.early or wanted > self.free

    def start(self, tables: Tables, tokens: int, found: Found) -> None:
        """Lend what was found, and new blocks for `tokens` computed tokens."""
        tables.entries = found.entries
        for number, (group, entries) in enumerate(zip(self.groups, found.entries, strict=True)):
            tables.passed[number] = passed_entries(group, found.tokens)
            tables.named[number] = len(entries)
            for block in entries:
                if block in self._queue:
                    del self._queue[block]
                    self.free -= 1
                elif block != NULL:
                    self._users[block] = self._users.get(block, 1) + 1
        self.allot(tables, tokens)

    def _longest(self, tables: Tables, group: GroupLimits, numbers: list[int], length: int) -> int:
        """Entries of the longest prefix within `length` tokens that these like groups have, in whole multiples."""
        places, block, whole = length // group.block_size, group.block_size, self._whole
        caches = [self._cached[number] for number in numbers]
        first, rest = caches[0], caches[1:]
        key = tables.key

        def cached(place: int) -> bool:
            found = key(numbers[0], place)
            return found in first and all(found in cache for cache in rest)

        if group.kind is GroupKind.FULL:
            count = 0
            while count < places and cached(count):
                count += 1
            return count - count * block % whole // block
        wanted = 1 if group.kind is GroupKind.ALIGNED_STATE else -(-(group.window_tokens - 1) // block)
        run = 0
        for place in range(places - 1, -1, -1):
            if not cached(place):
                run = 0
            elif run or (place + 1) * block % whole == 0:
                run += 1
                if run >= wanted:
                    return place + run
        return run

    def _found(self, tables: Tables, length: int, shared: int) -> Found:
        found = Found(tokens=length, entries=[], shared=shared)
        for number, group in enumerate(self.groups):
            passed = passed_entries(group, length)
            cache = self._cached[number]
            entries = [NULL] * passed
            for place in range(passed, length // group.block_size):
                holder = cache[tables.key(number, place)]
                entries.append(holder[0] if isinstance(holder, list) else holder)
            found.idle += sum(block in self._queue for block in entries)
            if group.kind is GroupKind.ALIGNED_STATE and entries and entries[-1] in self._early:
                found.early = True
            found.entries.append(entries)
        return found

    # ---- blocks

    def _full(self, group: GroupLimits, hashed: int) -> int:
        """Entries that have a hash when so many tokens are hashed."""
        return hashed // self._step * self._step // group.block_size if self._caching else 0

    def _take(self) -> int:
        self.free -= 1
        if self._head:
            return self._head.popleft()
        if self._fresh < self._limits.num_blocks:
            self._fresh += 1
            return self._fresh - 1
        block, _ = self._queue.popitem(last=False)
        named = self._name.pop(block, None)
        if named is not None:
            self._forget(block, *named)
        return block

    def _forget(self, block: int, number: int, key: int) -> None:
        cache = self._cached[number]
        holder = cache[key]
        if not isinstance(holder, list):
            del cache[key]
            return
        holder.remove(block)
        if len(holder) == 1:
            cache[key] = holder[0]

    def _name_entries(self, tables: Tables, number: int, stop: int) -> None:
        """Of equal entries the one named first is found."""
        first = tables.named[number]
        if stop <= first:
            return
        cache, entries = self._cached[number], tables.entries[number]
        state = self.groups[number].kind is GroupKind.ALIGNED_STATE
        for place in range(max(first, tables.passed[number]), stop):
            block = entries[place]
            if block == NULL:
                continue
            key = tables.key(number, place)
            self._name[block] = (number, key)
            holder = cache.setdefault(key, block)
            if isinstance(holder, list):
                holder.append(block)
            elif holder != block:
                cache[key] = [holder, block]
            if state:
                self._early[block] = None
        tables.named[number] = stop

    def _release(self, entries: Sequence[int], stop: int, full: int) -> None:
        """Free entries that end before place `stop`, the last one first; those before `full` have a hash."""
        users, plain = self._users, []
        place = stop
        for block in reversed(entries):
            place -= 1
            if block == NULL:
                continue
            others = users.get(block, 1) - 1
            if others:
                users[block] = others
                continue
            self.free += 1
            if self._unhashed_first and place >= full:
                plain.append(block)
            else:
                self._queue[block] = None
        if plain:
            self._head.extendleft(reversed(plain))
