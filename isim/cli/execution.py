"""Executing plans for the commands that do: the log's readers, its replay, and its file."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import msgspec

from isim.analyze.execution import ExecutionCollector
from isim.cli.folder import OutputError
from isim.machine.execute import execute
from isim.machine.program import program_of
from isim.machine.requests import ExecutionRequest
from isim.machine.resources import Resources, resources_of
from isim.plan.types import FrozenPlan
from isim.record.execution_log import ExecutionReader
from isim.topology.index import Topology

PASSED, NOT_RUN = "passed", "not_run"


class Wishes(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked for besides the execution: a log file, and that a replay reads along."""

    log: str | None = None
    replay: bool = True


class Finished(msgspec.Struct, frozen=True, kw_only=True):
    """What was collected, and what became of the log."""

    collector: ExecutionCollector
    replay: str
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
        done = execute(machine, requests, readers=[*readers, *writers], digest=True)
        finish()
    return Finished(collector=collector, replay=PASSED if wishes.replay else NOT_RUN, log_digest=done.digest)


@contextmanager
def new_file(path: str) -> Iterator[str]:
    """The name to write a new file under: it gets its own once it is whole, and is gone if something goes wrong."""
    if os.path.lexists(path):
        raise OutputError(f"{path}: expected a new file, found one; remove it or name another")
    unfinished = f"{path}.unfinished"
    try:
        with open(unfinished, "xb"):
            pass
        try:
            yield unfinished
        except BaseException:
            os.unlink(unfinished)
            raise
        os.rename(unfinished, path)
    except OSError as error:
        raise OutputError(f"{error.filename or path}: cannot be written: {error.strerror}") from None


@contextmanager
def _log_file(path: str | None) -> Iterator[list[ExecutionReader]]:
    if path is None:
        yield []
        return
    from isim.record.codec import LogWriter

    with new_file(path) as unfinished, open(unfinished, "wb") as stream:
        yield [LogWriter(stream).write]
