"""The semantics of the executor told once more, as slowly and plainly as possible: no heap, no calendar, no counters.

At each moment everything is asked anew: which steps have ended, which are ready, who has the turn of a communicator,
when a lane was last promised to end, whether anybody who was ever submitted would overlap. Moments are (ns, round).
"""

from __future__ import annotations

import msgspec
from msgspec import UNSET

from isim.machine.requests import ExecutionRequest
from isim.plan.types import Collective, Compute, FrozenPlan, PlanStep, Transfer
from isim.topology.index import Topology

Moment = tuple[int, int]


class Slow(msgspec.Struct):
    """A step that was submitted."""

    admission: int
    place: int
    submitted: Moment
    start: Moment
    end: Moment
    lanes: tuple[tuple[str, int], ...]
    reads: frozenset[str]
    writes: frozenset[str]


def slow_execution(topology: Topology, plans: dict[str, FrozenPlan], requests: list[ExecutionRequest]) -> list[Slow]:
    """All steps in the order of their submission; `plans` by the name of the execution."""
    return _Slow(topology, plans, requests).run()


class _Slow:
    def __init__(self, topology: Topology, plans: dict[str, FrozenPlan], requests: list[ExecutionRequest]) -> None:
        self.topology = topology
        self.requests = requests
        self.plans = [plans[request.execution] for request in requests]
        self.done: list[Slow] = []

    def run(self) -> list[Slow]:
        now: Moment = (0, 0)
        while True:
            while (ready := self.ready(now)) is not None:
                self.submit(now, *ready)
            later = [it.end for it in self.done if it.end > now]
            later += [(request.arrival_ns, 0) for request in self.requests if (request.arrival_ns, 0) > now]
            later += [(at, 0) for request in self.requests for _, at in request.not_before if (at, 0) > now]
            if not later:
                return self.done
            now = min(later)

    def ready(self, now: Moment) -> tuple[int, int] | None:
        """The first by order of admission and plan of those that nothing holds back."""
        for admission, (request, plan) in enumerate(zip(self.requests, self.plans, strict=True)):
            if (request.arrival_ns, 0) > now:
                continue
            for place, step in enumerate(plan.steps):
                if self.find(admission, place) is None and self.may_go(now, admission, step):
                    return admission, place
        return None

    def may_go(self, now: Moment, admission: int, step: PlanStep) -> bool:
        plan = self.plans[admission]
        held_until = dict(self.requests[admission].not_before).get(step.id, 0)
        if (held_until, 0) > now:
            return False
        ids = [other.id for other in plan.steps]
        for dependency in step.dependencies:
            before = self.find(admission, ids.index(dependency))
            if before is None or before.end > now:
                return False
        return not isinstance(step.operation, Collective) or self.has_turn(now, admission, step.operation.group_id)

    def has_turn(self, now: Moment, admission: int, group: str) -> bool:
        """Nobody admitted before has anything left to submit to the group."""
        return not any(
            isinstance(step.operation, Collective)
            and step.operation.group_id == group
            and self.find(earlier, place) is None
            for earlier in range(admission)
            for place, step in enumerate(self.plans[earlier].steps)
        )

    def find(self, admission: int, place: int) -> Slow | None:
        return next((it for it in self.done if (it.admission, it.place) == (admission, place)), None)

    def submit(self, now: Moment, admission: int, place: int) -> None:
        step = self.plans[admission].steps[place]
        lanes = tuple((name, self.lane(name, count)[1]) for name, count in self.resources(step.operation))
        frees = [self.lane(name, count)[0] for name, count in self.resources(step.operation)]
        reads = frozenset(self.root(name) for name in step.reads)
        writes = frozenset(self.root(name) for name in step.writes)
        conflicts = [it for it in self.done if it.writes & (reads | writes) or it.reads & writes]
        earliest = max([now, *frees])
        tries = sorted({earliest, *(it.end for it in conflicts if it.end > earliest)})
        duration_ns = step.operation.duration_ns
        start = next(at for at in tries if all(it.end <= at or it.start >= end(at, duration_ns) for it in conflicts))
        self.done.append(Slow(admission, place, now, start, end(start, duration_ns), lanes, reads, writes))

    def lane(self, resource: str, count: int) -> tuple[Moment, int]:
        """The lane whose last user ends first, and when."""
        ends = dict.fromkeys(range(count), (0, 0))
        for it in self.done:
            for name, lane in it.lanes:
                if name == resource:
                    ends[lane] = max(ends[lane], it.end)
        return min((at, lane) for lane, at in ends.items())

    def resources(self, operation: Compute | Transfer | Collective) -> list[tuple[str, int]]:
        if isinstance(operation, Compute):
            device = self.topology.devices[operation.device_id]
            return [(f"compute:{device.id}", device.max_concurrent_compute)]
        used: list[tuple[str, int]] = []
        if isinstance(operation, Collective):
            used.append((f"collective:{operation.group_id}", 1))
        for name in operation.link_ids if isinstance(operation, Collective) else (operation.link_id,):
            link = self.topology.links[name]
            used.append((f"link:{name}", link.concurrency_lanes))
            for network in () if link.network_resource_ids is UNSET else link.network_resource_ids:
                used.append((f"network:{network}", self.topology.resources[network].concurrency_lanes))
        return list(dict.fromkeys(used))

    def root(self, name: str) -> str:
        allocation = self.topology.allocations[name].allocation
        return name if allocation.alias_of is UNSET else self.root(allocation.alias_of)


def end(start: Moment, duration_ns: int) -> Moment:
    return (start[0] + duration_ns, 0) if duration_ns else (start[0], start[1] + 1)
