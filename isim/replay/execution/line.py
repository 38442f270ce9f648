"""Who may be submitted: what is ready, who has the turn of each communicator, and what its next operation is."""

from __future__ import annotations

from heapq import heappop, heappush

from isim.record.execution import CollectiveFact
from isim.replay.execution.plan import Checked


class Run:
    """An execution. `needs` counts what each step still waits for; `ends_ns` are the ends of the steps."""

    __slots__ = ("admission", "ends_ns", "left", "name", "needs", "steps", "submitted")

    def __init__(self, name: str, admission: int, steps: Checked) -> None:
        self.name = name
        self.admission = admission
        self.steps = steps
        self.needs = list(steps.needs)
        self.left = len(steps.facts)
        self.submitted = 0
        self.ends_ns: list[int | None] = [None] * len(steps.facts)


class Line:
    """Ready steps as (admission, place), those that wait for a communicator apart from those that may go."""

    def __init__(self) -> None:
        self._open: list[tuple[int, int]] = []
        self._queued: dict[tuple[str, int], list[int]] = {}
        self._owed: dict[str, dict[int, int]] = {}
        self._next: dict[str, int] = {}

    def join(self, run: Run) -> None:
        """An execution gets in line for every communicator that it uses."""
        for group, operations in run.steps.operations.items():
            self._owed.setdefault(group, {})[run.admission] = operations
            self._next.setdefault(group, 0)

    def ready(self, run: Run, place: int) -> None:
        """Nothing but, perhaps, its communicator holds this step back."""
        operation = run.steps.facts[place].operation
        if isinstance(operation, CollectiveFact) and self.owner(operation.group) != run.admission:
            self._queued.setdefault((operation.group, run.admission), []).append(place)
        else:
            heappush(self._open, (run.admission, place))

    def owner(self, group: str) -> int | None:
        """The admission number of the execution whose turn it is."""
        return next(iter(self._owed.get(group, {})), None)

    def due(self, group: str) -> int:
        """The number of the operation that the owner must submit next."""
        return self._next[group]

    def first(self) -> tuple[int, int] | None:
        """What must be submitted next at this moment."""
        return self._open[0] if self._open else None

    def submit_first(self, operation: object) -> None:
        """It was; if that was the owner's last operation, the turn goes on."""
        admission, _ = heappop(self._open)
        if not isinstance(operation, CollectiveFact):
            return
        group = operation.group
        owed = self._owed[group]
        owed[admission] -= 1
        self._next[group] += 1
        if not owed[admission]:
            del owed[admission]
            self._next[group] = 0
            owner = self.owner(group)
            if owner is not None:
                for place in self._queued.pop((group, owner), ()):
                    heappush(self._open, (owner, place))
