"""A turn as it must be against the turn that the log has: which field is the first to differ, and what it means."""

from __future__ import annotations

from isim.record.records import EngineLimits, Turn
from isim.replay.rules import Mismatch, Rule

_FIELDS: tuple[tuple[str, Rule], ...] = (
    ("ended", Rule.OUTCOME),
    ("first", Rule.OUTCOME),
    ("late", Rule.OUTCOME),
    ("finished", Rule.FINISH),
    ("preempted", Rule.PREEMPTION),
    ("chunks", Rule.CHUNKS),
    ("skipped", Rule.SKIPPED),
    ("admitted", Rule.ADMISSION),
    ("step", Rule.STEP_NUMBER),
    ("scheduled", Rule.STEP_TOTALS),
    ("tokens", Rule.STEP_TOTALS),
    ("sampled", Rule.STEP_TOTALS),
    ("context", Rule.STEP_TOTALS),
    ("running", Rule.QUEUES),
    ("waiting", Rule.QUEUES),
    ("free_blocks", Rule.BLOCK_LEDGER),
)


def compare_turn(expected: Turn, found: Turn, limits: EngineLimits) -> None:
    """Raise Mismatch where the turns differ. `expected` lacks what the log alone knows: number and duration."""
    expected.seq = found.seq
    expected.duration_ns = found.duration_ns
    if expected == found:
        return
    if found.tokens > limits.max_num_batched_tokens:
        raise Mismatch(Rule.TOKEN_BUDGET, f"at most {limits.max_num_batched_tokens} tokens", f"{found.tokens} tokens")
    if found.running > limits.max_num_seqs:
        raise Mismatch(Rule.MAX_NUM_SEQS, f"at most {limits.max_num_seqs} running", f"{found.running} running")
    for field, rule in _FIELDS:
        due, said = getattr(expected, field), getattr(found, field)
        if due != said:
            if rule is Rule.ADMISSION and _hits_differ(due, said):
                rule = Rule.PREFIX_HIT
            raise Mismatch(rule, f"{field} {due}", f"{field} {said}")


def _hits_differ(due: tuple[tuple[int, int, int], ...], said: tuple[tuple[int, int, int], ...]) -> bool:
    """Whether the same requests are admitted, with other hits."""
    same = [request for request, _, _ in due] == [request for request, _, _ in said]
    return same and [hit for _, hit, _ in due] != [hit for _, hit, _ in said]
