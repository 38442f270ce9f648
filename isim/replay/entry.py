"""What comes in from outside: are the engine's limits and each request well-formed, and who has to be refused?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from isim.record.records import Arrive, EngineLimits, GroupKind, Header, RejectReason
from isim.replay.chain import quoted_outputs
from isim.replay.rules import Mismatch, Rule
from isim.replay.tables import Terms

_LEAST_IN_HEADER = {"max_events": 1, "engines": 1}
_LEAST_LIMITS = {
    "max_num_seqs": 1,
    "max_num_batched_tokens": 1,
    "block_size": 1,
    "num_blocks": 2,
    "max_model_len": 1,
    "long_prefill_token_threshold": 0,
}


def check_limits(header: Header) -> None:
    """Every limit is one an engine can run with."""
    _check_least(header, _LEAST_IN_HEADER)
    _check_least(header.engine, _LEAST_LIMITS)
    _check_groups(header.engine)
    _check_chunks(header.engine)
    if (header.router is None) != (header.engines == 1):
        raise Mismatch(Rule.HEADER, "a router exactly where there are several engines", header.router)
    if header.linear_cost is not None:
        _check_least(header.linear_cost, dict.fromkeys(header.linear_cost.__struct_fields__, 0))


def _check_groups(limits: EngineLimits) -> None:
    """Groups that can be: states kept throughout have room for any sequence, and nobody else can start from them."""
    for group in limits.groups:
        window, length = group.window_tokens, group.block_size
        if length < 1:
            raise Mismatch(Rule.HEADER, "groups with blocks of 1 token or more", group)
        if (window > 1) != (group.kind is GroupKind.SLIDING):
            raise Mismatch(Rule.HEADER, "a window of 2 tokens or more exactly where a group is sliding", group)
        if group.kind is GroupKind.STATE and length < limits.max_model_len:
            raise Mismatch(Rule.HEADER, f"a state's block of max_model_len {limits.max_model_len} tokens", group)
        if group.kind is GroupKind.STATE and limits.enable_prefix_caching:
            raise Mismatch(Rule.HEADER, "with prefix caching no group that keeps a state throughout", group)
        if group.kind is GroupKind.ALIGNED_STATE and length != limits.block_size:
            raise Mismatch(Rule.HEADER, f"aligned states in blocks of block_size {limits.block_size}", group)


def _check_chunks(limits: EngineLimits) -> None:
    """A chunk can be long enough: for any prompt if none is split, for a block if a state is kept at its end."""
    kinds = [group.kind for group in limits.groups]
    least = limits.block_size if GroupKind.ALIGNED_STATE in kinds else 1
    whole = 1 if limits.enable_chunked_prefill else limits.max_model_len
    _check_least(limits, {"max_num_batched_tokens": max(least, whole)})
    if limits.long_prefill_token_threshold:
        _check_least(limits, {"long_prefill_token_threshold": least})


def _check_least(values: msgspec.Struct, least: Mapping[str, int]) -> None:
    for field, smallest in least.items():
        value = getattr(values, field)
        if value < smallest:
            raise Mismatch(Rule.HEADER, f"{field} from {smallest}", value)


def check_request(record: Arrive, ids: Mapping[str, bool]) -> None:
    """A new id, tokens both ways, a prompt that adds up, quotes of outputs that may be quoted (`ids`: id, quotable)."""
    if not record.id or record.id in ids:
        raise Mismatch(Rule.ARRIVAL, "an id of its own", f"id {record.id!r}")
    for field in ("prompt_tokens", "output_tokens"):
        if getattr(record, field) < 1:
            raise Mismatch(Rule.ARRIVAL, f"{field} from 1", getattr(record, field))
    if record.prompt is None:
        return
    if any(start < 0 or count < 1 for _, start, count in record.prompt):
        raise Mismatch(Rule.ARRIVAL, "prompt runs that start at 0 or later and have a token", record.prompt)
    total = sum(count for _, _, count in record.prompt)
    if total != record.prompt_tokens:
        raise Mismatch(Rule.ARRIVAL, f"a prompt of {record.prompt_tokens} tokens", f"runs of {total} tokens")
    for quoted in quoted_outputs(record.prompt):
        if not ids.get(quoted, True):
            raise Mismatch(Rule.ARRIVAL, "quotes of quotable outputs only", f"a quote of the output of {quoted!r}")


def refusal(record: Arrive, limits: EngineLimits, groups: Sequence[Terms]) -> RejectReason | None:
    """Why the engine must refuse the request; None when it can run.

    A prompt of max_model_len tokens leaves no room for output. At its peak a request holds blocks for all its tokens
    but the last, which is sampled and never computed, or what its groups may come to hold of them; the null block is
    not for lending.
    """
    if record.prompt_tokens >= limits.max_model_len:
        return RejectReason.PROMPT_TOO_LONG
    output_tokens = min(record.output_tokens, limits.max_model_len - record.prompt_tokens)
    peak_tokens = record.prompt_tokens + output_tokens - 1
    peak_blocks = sum(group.most_held(peak_tokens) for group in groups) or -(-peak_tokens // limits.block_size)
    return RejectReason.NEVER_FITS if peak_blocks > limits.num_blocks - 1 else None
