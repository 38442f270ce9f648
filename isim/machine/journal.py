"""What the processes tell, put in order: the records of an instant wait until it is over.

Processes of one rank run in an order that nobody may rely on, so each record is told with its round, rank and number,
by which the execution log is ordered. The order in which processes happened to run is in no log.
"""

from __future__ import annotations

from isim.record.errors import CausalityError
from isim.record.execution import Admit, AnyExecutionRecord, PlanRecords
from isim.record.execution_log import ExecutionLog


class Journal:
    """Stands between the processes and the log."""

    def __init__(self, log: ExecutionLog) -> None:
        self._log = log
        self._time_ns = 0
        self._instant: list[tuple[int, int, int, AnyExecutionRecord]] = []
        self._plans: dict[str, PlanRecords] = {}

    def tell(self, round_: int, number: int, record: AnyExecutionRecord) -> None:
        """A record of the present instant; two records of one instant differ in round, rank or number."""
        if record.time_ns != self._time_ns:
            if record.time_ns < self._time_ns:
                raise CausalityError(f"at {self._time_ns} ns somebody tells of {record.time_ns} ns")
            self.flush()
            self._time_ns = record.time_ns
        self._instant.append((round_, record.RANK, number, record))

    def admit(self, round_: int, number: int, plan: PlanRecords, admit: Admit) -> None:
        """An admission, with its plan in case that was not told yet."""
        self._plans[admit.plan] = plan
        self.tell(round_, number, admit)

    def flush(self) -> None:
        """The instant is over."""
        self._instant.sort(key=lambda told: told[:3])
        for _, _, _, record in self._instant:
            if isinstance(record, Admit):
                self._log.admit(self._plans[record.plan], record)
            else:
                self._log.emit(record)
        self._instant.clear()
