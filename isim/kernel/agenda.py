"""The agenda: the clock, the heap of what is still to come, and the loop that runs it.

An entry is `(time, rank, key, tie, stamp, item)`. The order of an instant is (rank, key); `tie` decides only between
entries nobody may tell apart (see `ties`). Entries are never removed or moved. An entry is *live* as long as it
carries its item's present stamp; whoever re-arms, shortens or cancels changes the stamp, and the dead entry is
skipped when it is reached, before the clock moves to it. So a disturbance needs no interrupt, and a time that was
given up can not drag the clock along. When dead entries outnumber live ones they are swept out.

The instant ends when the next entry is later, or at this time but of a rank after GRANT: then the arbiters that were
asked for something, or had a lane freed, settle. What they grant may end at once (a hold of 0); the instant then goes
on with those completions and ends again.

`spent` counts each live entry run as one event, besides what callers `spend`; more than `max_events` is an error.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from typing import Protocol

from isim.kernel.clock import SAFE_MAX_NS, Rank, check_time_ns
from isim.kernel.errors import BudgetExceeded
from isim.kernel.ties import ties
from isim.kernel.trace import Trace
from isim.record.errors import CausalityError

Key = tuple[int | str, ...]
"""A stable place in an order. Keys that meet must compare: the same type at the same position."""

NO_KEY: Key = ()
_GRANT = int(Rank.GRANT)
_SWEEP_AT = 1024


class Item(Protocol):
    """Something that can be due. `stamp` tells its live entries from its dead ones."""

    stamp: int

    def ring(self) -> None:
        """Do what was due. The clock stands at the entry's time."""

    def describe(self) -> str:
        """A few words for traces and errors."""


class Settles(Protocol):
    """Something that decides at the end of the instant."""

    def settle(self) -> None: ...


Entry = tuple[int, int, Key, int, int, Item]


class Agenda:
    """The heap and the loop. `now_ns` is the simulated time, for everybody to read and only the loop to write."""

    def __init__(self, *, max_events: int, shuffle_seed: int | None, trace: Trace | None) -> None:
        self.now_ns = 0
        self.spent = 0
        self.max_events = max_events
        self.heap: list[Entry] = []
        self.ties: Iterator[int] = ties(shuffle_seed)
        self.unsettled: list[Settles] = []
        self.choices = trace
        self.until_ns = SAFE_MAX_NS
        self._retired = 0
        self._running = False

    def push(self, time_ns: int, rank: int, item: Item, key: Key = NO_KEY) -> None:
        """Enter a checked time for this item, under its present stamp."""
        check_time_ns(time_ns, self.now_ns)
        heappush(self.heap, (time_ns, rank, key, next(self.ties), item.stamp, item))

    def retire(self, item: Item) -> None:
        """Make all entries of this item dead."""
        item.stamp += 1
        self._retired += 1
        if self._retired > _SWEEP_AT and 2 * self._retired > len(self.heap):
            self._retired = 0
            self.heap[:] = [entry for entry in self.heap if entry[5].stamp == entry[4]]
            heapify(self.heap)

    def spend(self, count: int, where: str) -> None:
        """Count `count` events, usually expanded steps; BudgetExceeded naming `where` when there are too many."""
        self.spent += count
        if self.spent > self.max_events:
            raise BudgetExceeded(limit=self.max_events, time_ns=self.now_ns, where=where)

    def run_agenda(self) -> bool:
        """Run what is due up to and including `until_ns`; True if nothing is left after that.

        The clock stays at the last instant at which anything happened. An exception of an item comes out unchanged.
        """
        if self._running:
            raise CausalityError(f"the kernel is already running (at {self.now_ns} ns): run() was called from inside")
        self._running = True
        try:
            return self._loop()
        finally:
            self._running = False

    def _loop(self) -> bool:
        heap, unsettled, choices, max_events = self.heap, self.unsettled, self.choices, self.max_events
        while True:
            if unsettled:
                if not heap or heap[0][0] > self.now_ns or heap[0][1] > _GRANT:
                    for arbiter in unsettled:
                        arbiter.settle()
                    unsettled.clear()
                    continue
            elif not heap:
                return True
            entry = heappop(heap)
            time_ns, _, _, _, stamp, item = entry
            if item.stamp != stamp:
                continue
            if time_ns > self.now_ns:
                if time_ns > self.until_ns:
                    heappush(heap, entry)
                    return False
                self.now_ns = time_ns
            self.spent += 1
            if self.spent > max_events:
                self.spend(0, item.describe())
            if choices is not None:
                self._note_tie(entry, choices)
            item.ring()

    def _note_tie(self, entry: Entry, choices: Trace) -> None:
        equals = [other for other in self.heap if other[:3] == entry[:3] and other[5].stamp == other[4]]
        if equals:
            others = ", ".join(other[5].describe() for other in sorted(equals, key=lambda other: other[3]))
            choices.add(entry[0], f"{Rank(entry[1]).name}: {entry[5].describe()} before {others}")
