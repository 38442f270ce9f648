"""Executing plans for the commands that do: the log's readers, its replay, and its file."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import msgspec

from isim.analyze.execution import ExecutionCollector
from isim.analyze.schema import ReplayState
from isim.cli.folder import new_file
from isim.machine.execute import execute
from isim.machine.program import program_of
from isim.machine.requests import ExecutionRequest
from isim.machine.resources import Resources, resources_of
from isim.plan.types import FrozenPlan
from isim.record.execution_log import ExecutionReader
from isim.topology.index import Topology


class Wishes(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked for besides the execution: a log file, a replay that reads along, processes in place of the closed
    form."""

    log: str | None = None
    replay: bool = True
    detailed: bool = False


class Finished(msgspec.Struct, frozen=True, kw_only=True):
    """What was collected, and what became of the log."""

    collector: ExecutionCollector
    replay: ReplayState
    log_digest: str | None


def executed(topology: Topology, plan: FrozenPlan, wishes: Wishes) -> Finished:
    """Execute a valid plan from time 0. Raises ExecutionViolation if the replay finds what cannot be."""
    machine = resources_of(topology)
    request = ExecutionRequest(program=program_of(plan, machine), execution=plan.execution_id)
    return executed_together(machine, [request], wishes)


def executed_together(machine: Resources, requests: Sequence[ExecutionRequest], wishes: Wishes) -> Finished:
    """Execute several on one machine. Raises ExecutionViolation if the replay finds what cannot be."""
    # An execution makes no garbage that reference counts do not free.
    gc.disable()
    collector = ExecutionCollector()
    readers: list[ExecutionReader] = [collector.read]
    finish: Callable[[], object] = int
    if wishes.replay:
        from isim.replay.execution import ExecutionReplay

        replay = ExecutionReplay()
        readers.append(replay.read)
        finish = replay.finish
    with _log_file(wishes.log) as writers:
        done = execute(machine, requests, readers=[*readers, *writers], digest=True, processes=wishes.detailed)
        finish()
    state = ReplayState.PASSED if wishes.replay else ReplayState.NOT_RUN
    return Finished(collector=collector, replay=state, log_digest=done.digest)


@contextmanager
def _log_file(path: str | None) -> Iterator[list[ExecutionReader]]:
    if path is None:
        yield []
        return
    from isim.record.codec import LogWriter

    with new_file(path) as unfinished, open(unfinished, "wb") as stream:
        yield [LogWriter(stream).write]
