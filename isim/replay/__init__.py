"""Judges a log from the log alone. An island: imports the records and the standard library, nothing else of isim."""

from isim.replay.replay import Replay, ReplaySummary, replay_log
from isim.replay.rules import FREE_FIELDS, FREE_ORDERS, RULES, ReplayViolation, Rule

__all__ = [
    "FREE_FIELDS",
    "FREE_ORDERS",
    "RULES",
    "Replay",
    "ReplaySummary",
    "ReplayViolation",
    "Rule",
    "replay_log",
]
