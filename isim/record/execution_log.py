"""The execution log while it is written: numbers records, which are emitted in order, and hands them on in batches."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from isim.record.execution import Admit, AnyExecutionRecord, ExecutionEnd, Machine, PlanRecords

ExecutionReader = Callable[[Sequence[AnyExecutionRecord]], None]
BATCH = 4096


class ExecutionLog:
    """Gives each reader all records, in order and numbered. A plan is told once, before its first admission."""

    def __init__(self, header: Machine, readers: Sequence[ExecutionReader]) -> None:
        self._readers = tuple(readers)
        self._batch: list[AnyExecutionRecord] = []
        self._next = 0
        self._plans: set[str] = set()
        self.emit(msgspec.structs.replace(header))

    def emit(self, record: AnyExecutionRecord) -> None:
        """The next record; it is numbered here."""
        record.seq = self._next
        self._next += 1
        self._batch.append(record)
        if len(self._batch) >= BATCH:
            self._hand_on()

    def admit(self, plan: PlanRecords, admit: Admit) -> None:
        """An admission, and before it its plan if that was not told yet."""
        if admit.plan not in self._plans:
            self._plans.add(admit.plan)
            for record in plan:
                self.emit(msgspec.structs.replace(record, time_ns=admit.time_ns))
        self.emit(admit)

    def close(self, end: ExecutionEnd) -> None:
        """The last record. A log that is not closed reads as truncated."""
        self.emit(end)
        self._hand_on()

    def _hand_on(self) -> None:
        batch, self._batch = self._batch, []
        for reader in self._readers:
            reader(batch)
