"""What an execution log tells: operations with their times, how long resources were held, how executions overlapped."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from isim.analyze.exact import rank
from isim.record.execution import (
    Admit,
    AnyExecutionRecord,
    CollectiveFact,
    ComputeFact,
    Finish,
    Machine,
    Plan,
    Start,
    StepFact,
    Steps,
    Submit,
    Terminal,
)


class Operation(msgspec.Struct, kw_only=True):
    """A step of an execution. `lanes` are (resource, lane); times are None until they have come."""

    execution: str
    step: StepFact
    sequence: int
    source_sequence: int
    lanes: tuple[tuple[str, int], ...]
    submitted_ns: int
    start_ns: int | None = None
    finish_ns: int | None = None

    def service_ns(self) -> int:
        """How long it held its resources; 0 while that is not known."""
        return 0 if self.start_ns is None or self.finish_ns is None else self.finish_ns - self.start_ns


class Use(msgspec.Struct, frozen=True, kw_only=True):
    """How long the lanes of a resource were held, all lanes together."""

    resource: str
    lanes: int
    busy_ns: int

    def utilization(self, observed_ns: int) -> float:
        """The part of its lanes' time that it was held; 0 when no time passed."""
        return self.busy_ns / (observed_ns * self.lanes) if observed_ns else 0.0


class Spread(msgspec.Struct, frozen=True, kw_only=True):
    """Of a set of durations; the 95th percentile is that of the nearest rank."""

    minimum: int
    average: float
    p95: int
    maximum: int


class ExecutionCollector:
    """A reader of an execution log. `operations` are in the order of submission, `terminals` in that of the log.

    `plans` are the records by digest; a long one holds only the first of its steps."""

    def __init__(self) -> None:
        self.machine: Machine | None = None
        self.plans: dict[str, Plan] = {}
        self.admissions: list[Admit] = []
        self.operations: list[Operation] = []
        self.terminals: list[Terminal] = []
        self._steps: dict[str, dict[int, StepFact]] = {}
        self._told: dict[int, StepFact] = {}
        self._plan_of: dict[str, str] = {}

    def read(self, records: Sequence[AnyExecutionRecord]) -> None:
        """Take the next records of the log."""
        operations = self.operations
        for record in records:
            match record:
                case Start():
                    operations[record.sequence].start_ns = record.time_ns
                case Finish():
                    operations[record.sequence].finish_ns = record.time_ns
                case Submit():
                    self._submit(record)
                case Admit():
                    self.admissions.append(record)
                    self._plan_of[record.execution] = record.plan
                case Terminal():
                    self.terminals.append(record)
                case Plan():
                    self.plans[record.digest] = record
                    self._told = self._steps[record.digest] = {step.id: step for step in record.steps}
                case Steps():
                    self._told.update((step.id, step) for step in record.steps)
                case Machine():
                    self.machine = record

    def _submit(self, record: Submit) -> None:
        self.operations.append(
            Operation(
                execution=record.execution,
                step=self._steps[self._plan_of[record.execution]][record.step],
                sequence=record.sequence,
                source_sequence=record.source_sequence,
                lanes=record.lanes,
                submitted_ns=record.time_ns,
            )
        )

    def completed_ns(self) -> int:
        """When the last execution was terminal."""
        return max((terminal.time_ns for terminal in self.terminals), default=0)

    def uses(self) -> list[Use]:
        """All resources of the machine, in the header's order: devices, links, network, communicators."""
        busy: dict[str, int] = {}
        for operation in self.operations:
            service_ns = operation.service_ns()
            for resource, _ in operation.lanes:
                busy[resource] = busy.get(resource, 0) + service_ns
        return [Use(resource=name, lanes=lanes, busy_ns=busy.get(name, 0)) for name, lanes in self._resources()]

    def _resources(self) -> list[tuple[str, int]]:
        machine = self.machine
        if machine is None:
            return []
        return [
            *((f"compute:{device.id}", device.lanes) for device in machine.devices),
            *((f"link:{link.id}", link.lanes) for link in machine.links),
            *((f"network:{network.id}", network.lanes) for network in machine.network),
            *((f"collective:{group.id}", 1) for group in machine.groups),
        ]

    def service_ns(self) -> tuple[int, int, int]:
        """The sum of all durations of compute steps, of transfers and of collectives."""
        sums = [0, 0, 0]
        for operation in self.operations:
            fact = operation.step.operation
            kind = 0 if isinstance(fact, ComputeFact) else 2 if isinstance(fact, CollectiveFact) else 1
            sums[kind] += operation.service_ns()
        return sums[0], sums[1], sums[2]

    def latency_ns(self) -> Spread | None:
        """From admission to terminal; None without executions."""
        admitted_ns = {admit.execution: admit.time_ns for admit in self.admissions}
        spans = sorted(terminal.time_ns - admitted_ns[terminal.execution] for terminal in self.terminals)
        if not spans:
            return None
        return Spread(
            minimum=spans[0],
            average=sum(spans) / len(spans),
            p95=spans[rank(95, len(spans)) - 1],
            maximum=spans[-1],
        )

    def most_at_once(self) -> int:
        """How many executions were between admission and terminal at most; one that takes no time counts."""
        admitted_ns = {admit.execution: admit.time_ns for admit in self.admissions}
        changes = [(admit.time_ns, 1, 1) for admit in self.admissions]
        for terminal in self.terminals:
            instant = terminal.time_ns == admitted_ns[terminal.execution]
            changes.append((terminal.time_ns, 2 if instant else 0, -1))
        most = present = 0
        for _, _, change in sorted(changes):
            present += change
            most = max(most, present)
        return most
