"""Executes plans: the entry of the room, for callers that do not care how."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from isim.machine.closed_form import ClosedForm
from isim.machine.program import program_of
from isim.machine.requests import ExecutionRequest, check_requests
from isim.machine.resources import Resources, resources_of
from isim.plan.types import FrozenPlan
from isim.record.execution import ExecutionDigest, ExecutionEnd
from isim.record.execution_log import ExecutionLog, ExecutionReader
from isim.topology.index import Topology


class Executed(msgspec.Struct, frozen=True, kw_only=True):
    """All executions are over. `digest` is that of the log, None when nobody asked for it."""

    completed_ns: int
    executions: int
    operations: int
    digest: str | None


def execute(
    machine: Resources,
    requests: Sequence[ExecutionRequest],
    *,
    readers: Sequence[ExecutionReader] = (),
    digest: bool = False,
    processes: bool = False,
    shuffle_seed: int | None = None,
) -> Executed:
    """Execute validated plans; every reader is given all records in order, in batches.

    `requests` stand in the order of admission. The closed form executes, or the `processes`: the log is the same.
    `shuffle_seed` perturbs the order of processes. Raises RequestError, EventBudget or TimeOverflow: the input's fault.
    """
    check_requests(requests, machine)
    told = ExecutionDigest() if digest else None
    log = ExecutionLog(machine.header, [*readers, *(() if told is None else (told.read,))])
    if processes:
        from isim.machine.processes import run_processes

        completed_ns = run_processes(machine, requests, log, shuffle_seed)
    else:
        completed_ns = _closed_form(machine, requests, log)
    operations = sum(len(request.program.steps) for request in requests)
    log.close(ExecutionEnd(time_ns=completed_ns, executions=len(requests), operations=operations))
    return Executed(
        completed_ns=completed_ns,
        executions=len(requests),
        operations=operations,
        digest=None if told is None else told.hexdigest(),
    )


def _closed_form(machine: Resources, requests: Sequence[ExecutionRequest], log: ExecutionLog) -> int:
    run = ClosedForm(machine, log)
    for request in requests:
        run.admit(request)
    run.drain()
    return run.now_ns


def execute_plan(
    topology: Topology,
    plan: FrozenPlan,
    *,
    readers: Sequence[ExecutionReader] = (),
    digest: bool = False,
) -> Executed:
    """Execute one validated plan of a valid scenario, alone and from time 0."""
    machine = resources_of(topology)
    request = ExecutionRequest(program=program_of(plan, machine), execution=plan.execution_id)
    return execute(machine, [request], readers=readers, digest=digest)
