"""`isim replay LOG`: is this log legal, judged from itself alone?"""

from __future__ import annotations

from isim.cli.output import emit
from isim.replay import replay_log


def replay(log: str) -> int:
    """Check every record; raises ReplayViolation at the first wrong one, LogError or TruncatedLog for a bad file."""
    summary = replay_log(log)
    lines = [
        f"{log}: legal",
        f"records    {summary.records:,}",
        f"steps      {summary.steps:,}",
        f"requests   {summary.requests:,}, {summary.completed:,} completed",
        f"digest     {summary.digest}",
    ]
    emit("\n".join(lines) + "\n")
    return 0
