"""The submit order of one communicator: execution by execution in the order of admission, each from its first operation
to its last. Whoever is ready before its turn waits, and holds nothing meanwhile."""

from __future__ import annotations

from collections import deque

from isim.record.errors import CausalityError


class Sequencer:
    """Executions in line for a group; the first owns it until it has submitted all of its operations."""

    __slots__ = ("_group", "_line", "_next", "_waiting")

    def __init__(self, group: str) -> None:
        self._group = group
        self._line: deque[tuple[int, int]] = deque()
        self._next = 0
        self._waiting: dict[int, list[int]] = {}

    def register(self, admission: int, operations: int) -> None:
        """An execution of this admission number will submit so many operations."""
        self._line.append((admission, operations))

    def ready(self, admission: int, place: int) -> bool:
        """Whether a step that is ready may be submitted now; if not, it is handed out by `submitted` in its turn."""
        if self._line and self._line[0][0] == admission:
            return True
        self._waiting.setdefault(admission, []).append(place)
        return False

    def submitted(self, admission: int, comm_sequence: int) -> list[tuple[int, int]]:
        """Note a submission. Returns (admission, place) of the steps whose turn it is now."""
        if not self._line or self._line[0][0] != admission or comm_sequence != self._next:
            raise CausalityError(
                f"communicator {self._group}: operation {comm_sequence} of execution {admission} out of turn"
            )
        self._next += 1
        if self._next < self._line[0][1]:
            return []
        self._next = 0
        self._line.popleft()
        if not self._line:
            return []
        owner = self._line[0][0]
        return [(owner, place) for place in self._waiting.pop(owner, ())]
