"""`isim replay LOG`: is this log legal, judged from itself alone?"""

from __future__ import annotations

from isim.cli.output import emit
from isim.replay import replay_log


def replay(log: str) -> int:
    """Check every record; raises ReplayViolation at the first wrong one, LogError or TruncatedLog for a bad file."""
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
    emit("\n".join(lines) + "\n")
    return 0
