"""Running cases in the tests: the records of executions, by either executor."""

from __future__ import annotations

from random_machines import Case

from isim.machine.execute import execute
from isim.machine.requests import ExecutionRequest
from isim.machine.resources import Resources
from isim.plan.types import FrozenPlan
from isim.record.execution import AnyExecutionRecord


def records_of(
    machine: Resources, requests: list[ExecutionRequest], *, processes: bool = False, shuffle_seed: int | None = None
) -> list[AnyExecutionRecord]:
    """The whole log."""
    records: list[AnyExecutionRecord] = []
    execute(machine, requests, readers=[records.extend], processes=processes, shuffle_seed=shuffle_seed)
    return records


def plans_by_execution(case: Case) -> dict[str, FrozenPlan]:
    plans = {plan.id: plan for plan in case.plans}
    return {request.execution: plans[request.program.records[0].id] for request in case.requests}
