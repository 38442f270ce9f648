"""What is asked of the executor: executions of programs, with arrival times and times before which steps must wait."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from isim.machine.moment import SAFE_MAX_NS
from isim.machine.program import Program
from isim.machine.resources import Resources
from isim.record.errors import IsimError
from isim.record.execution import Admit


class ExecutionRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One execution of a program. `not_before` are (step id, absolute time in ns)."""

    program: Program
    execution: str
    arrival_ns: int = 0
    not_before: tuple[tuple[int, int], ...] = ()

    def admit(self, number: int) -> Admit:
        """What the log says of the admission, the `number`-th."""
        return Admit(
            time_ns=self.arrival_ns,
            execution=self.execution,
            plan=self.program.digest,
            admission=number,
            not_before=self.not_before,
        )

    def releases(self) -> list[tuple[int, int]]:
        """(place of the step, time) of the constraints that are not already fulfilled at the arrival, by place."""
        places = self.program.places
        return sorted((places[step], time_ns) for step, time_ns in self.not_before if time_ns > self.arrival_ns)


class RequestError(IsimError):
    """Executions were asked for that cannot be admitted."""


class EventBudget(IsimError):  # noqa: N818 - it names what ran out
    """Admissions, operations, terminals and releases together are more than the scenario's `maxEvents`."""

    def __init__(self, limit: int, needed: int) -> None:
        super().__init__(
            f"these executions need {needed} events (a step each, admission, terminal and delayed releases), "
            f"more than the scenario's maxEvents = {limit}: expected fewer executions or a higher limit"
        )


def check_requests(requests: Sequence[ExecutionRequest], machine: Resources) -> None:
    """Raises RequestError or EventBudget. Requests stand in the order of admission, which is that of arrival."""
    last_ns = 0
    names: set[str] = set()
    needed = 0
    for place, request in enumerate(requests):
        where = f"execution {place} ({request.execution})"
        if request.execution in names:
            raise RequestError(f"{where}: expected a new execution id, found one that was used before")
        names.add(request.execution)
        if not last_ns <= request.arrival_ns <= SAFE_MAX_NS:
            raise RequestError(
                f"{where}: expected an arrival from {last_ns} to {SAFE_MAX_NS} ns, found {request.arrival_ns}"
            )
        last_ns = request.arrival_ns
        _check_not_before(request, where)
        if request.program.records[0].topology_epoch != machine.header.topology_epoch:
            raise RequestError(
                f"{where}: expected topology epoch {machine.header.topology_epoch}, "
                f"found {request.program.records[0].topology_epoch}"
            )
        needed += len(request.program.steps) + 2 + len(request.releases())
    if needed > machine.header.max_events:
        raise EventBudget(machine.header.max_events, needed)


def _check_not_before(request: ExecutionRequest, where: str) -> None:
    steps: set[int] = set()
    for step, time_ns in request.not_before:
        if step not in request.program.places:
            raise RequestError(f"{where}: expected the id of a step with a not-before time, found {step}")
        if step in steps:
            raise RequestError(f"{where}: expected one not-before time for step {step}, found two")
        steps.add(step)
        if not 0 <= time_ns <= SAFE_MAX_NS:
            raise RequestError(
                f"{where}, step {step}: expected a not-before time from 0 to {SAFE_MAX_NS} ns, found {time_ns}"
            )
