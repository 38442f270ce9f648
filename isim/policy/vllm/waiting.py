"""The waiting queue: in order of arrival, or by (priority, order time, id as a string)."""

from __future__ import annotations

from collections import deque
from heapq import heapify, heappop, heappush
from typing import Protocol

from isim.policy.vllm.sequence import Sequence


class Waiting(Protocol):
    def __len__(self) -> int: ...
    def add(self, sequence: Sequence) -> None:
        """A new request."""
        ...

    def put_back(self, sequence: Sequence) -> None:
        """A preempted request."""
        ...

    def first(self) -> Sequence: ...
    def take(self) -> Sequence: ...
    def remove(self, sequence: Sequence) -> None: ...
    def in_order(self) -> list[Sequence]: ...


class FirstComeQueue(deque[Sequence]):
    """New requests at the end, preempted ones at the front."""

    add = deque.append
    put_back = deque.appendleft
    take = deque.popleft

    def first(self) -> Sequence:
        return self[0]

    def in_order(self) -> list[Sequence]:
        return list(self)


class PriorityQueue:
    """The most urgent first; a preempted request goes back to its place."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, str, int, Sequence]] = []

    def __len__(self) -> int:
        return len(self._heap)

    def add(self, sequence: Sequence) -> None:
        heappush(self._heap, (sequence.priority, sequence.order_time, sequence.id, sequence.index, sequence))

    put_back = add

    def first(self) -> Sequence:
        return self._heap[0][4]

    def take(self) -> Sequence:
        return heappop(self._heap)[4]

    def remove(self, sequence: Sequence) -> None:
        self._heap = [entry for entry in self._heap if entry[4] is not sequence]
        heapify(self._heap)

    def in_order(self) -> list[Sequence]:
        return [entry[4] for entry in sorted(self._heap)]
