"""The decision trace: which seed ran, and every choice that was made among equals. For failing tests to print."""

from __future__ import annotations

from collections import deque

_KEPT_LINES = 10_000


class Trace:
    """Keeps the last 10,000 choices as short lines."""

    def __init__(self, seed: int, shuffle_seed: int | None) -> None:
        self._head = f"seed {seed}, shuffle seed {shuffle_seed}"
        self._lines: deque[str] = deque(maxlen=_KEPT_LINES)
        self._count = 0

    def add(self, time_ns: int, choice: str) -> None:
        self._count += 1
        self._lines.append(f"{time_ns} ns: {choice}")

    def lines(self) -> list[str]:
        """The seeds, how many choices were dropped if any were, and the choices in order."""
        dropped = self._count - len(self._lines)
        return [self._head, *([f"({dropped} earlier choices dropped)"] if dropped else []), *self._lines]
