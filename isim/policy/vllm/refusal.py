"""Whom the engine refuses at the door."""

from __future__ import annotations

from isim.policy.vllm.group_rules import most_held
from isim.record.records import EngineLimits, RejectReason


def refusal(limits: EngineLimits, prompt_tokens: int, output_tokens: int) -> RejectReason | None:
    """Why the engine refuses a request at its arrival, if it does.

    It stops generating where prompt and output reach `max_model_len`, and the last token has no KV.
    """
    most = limits.max_model_len
    if prompt_tokens >= most:
        return RejectReason.PROMPT_TOO_LONG
    peak_tokens = prompt_tokens + output_tokens - 1
    if peak_tokens >= most:
        peak_tokens = most - 1
    if limits.groups:
        peak_blocks = sum(most_held(limits, group, peak_tokens) for group in limits.groups)
    else:
        peak_blocks = -(-peak_tokens // limits.block_size)
    if peak_blocks > limits.num_blocks - 1:
        return RejectReason.NEVER_FITS
    return None
