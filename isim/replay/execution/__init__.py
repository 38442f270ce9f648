"""Judges an execution log from the log alone."""

from isim.replay.execution.replay import ExecutionReplay, ExecutionSummary, replay_execution_log
from isim.replay.execution.rules import EXECUTION_RULES, FREE_EXECUTION_FIELDS, ExecutionRule, ExecutionViolation

__all__ = [
    "EXECUTION_RULES",
    "FREE_EXECUTION_FIELDS",
    "ExecutionReplay",
    "ExecutionRule",
    "ExecutionSummary",
    "ExecutionViolation",
    "replay_execution_log",
]
