"""`isim replay LOG`: is this log legal, judged from itself alone?"""

from __future__ import annotations

from isim.cli.output import emit
from isim.record.codec import schema_of
from isim.replay import replay_log


def replay(log: str) -> int:
    """Check every record; raises ReplayViolation at the first wrong one, LogError or TruncatedLog for a bad file."""
    if schema_of(log) == "isim/execution-log":
        emit(_execution_log(log))
    else:
        emit(_serving_log(log))
    return 0


def _serving_log(log: str) -> str:
    summary = replay_log(log)
    left = {
        "completed": summary.completed,
        "rejected": summary.rejected,
        "aborted": summary.aborted,
        "unfinished": summary.unfinished,
    }
    lines = [
        f"{log}: legal",
        f"records      {summary.records:,}",
        f"steps        {summary.steps:,}",
        f"requests     {summary.arrived:,} arrived, " + ", ".join(f"{count:,} {name}" for name, count in left.items()),
        f"preemptions  {summary.preemptions:,}",
        f"log digest   {summary.log_digest}",
    ]
    return "\n".join(lines) + "\n"


def _execution_log(log: str) -> str:
    from isim.replay.execution import replay_execution_log

    summary = replay_execution_log(log)
    lines = [
        f"{log}: legal",
        f"records      {summary.records:,}",
        f"executions   {summary.executions:,} admitted, {summary.unfinished:,} unfinished",
        f"operations   {summary.operations:,}",
        f"completed    {summary.completed_ns:,} ns",
        f"log digest   {summary.log_digest}",
    ]
    return "\n".join(lines) + "\n"
