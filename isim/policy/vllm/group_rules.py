"""What a KV group keeps of a sequence, as arithmetic: entries passed, entries held at most, and when either moves.

A table has an entry for each block of positions. An entry is passed once nothing of its block is needed any more.
"""

from __future__ import annotations

from math import lcm

from isim.policy.vllm.rules import RULES
from isim.record.records import EngineLimits, GroupKind, GroupLimits


def groups_of(limits: EngineLimits) -> tuple[GroupLimits, ...]:
    """The KV groups, the usual single one written out."""
    return limits.groups or (GroupLimits(kind=GroupKind.FULL, block_size=limits.block_size),)


def span_behind(group: GroupLimits) -> int | None:
    """Entries are passed by how far the computed tokens are beyond this many; None where none ever is."""
    if group.kind is GroupKind.SLIDING:
        return group.window_tokens - 1
    return 1 if group.kind is GroupKind.ALIGNED_STATE else None


def passed_entries(group: GroupLimits, computed: int) -> int:
    """Leading entries that the group needs no more once so many tokens are computed."""
    behind = span_behind(group)
    return 0 if behind is None else max(0, computed - behind) // group.block_size


def whole_block(limits: EngineLimits) -> int:
    """Entries are named up to a multiple of this many tokens, 1 for all that are full."""
    sizes = [group.block_size for group in limits.groups]
    return lcm(*sizes) if RULES[limits.version].whole_names and len(set(sizes)) > 1 else 1


def unprocessed_steps(limits: EngineLimits) -> int:
    """Steps whose tokens may be computed beyond those that count for what is passed, the one being decided included."""
    return 2 if RULES[limits.version].processed_only and limits.async_scheduling else 1


def most_held(limits: EngineLimits, group: GroupLimits, tokens: int) -> int:
    """The most entries a table may come to hold for a sequence of `tokens` computed tokens."""
    entries = -(-tokens // group.block_size)
    if group.kind is GroupKind.FULL:
        return entries
    if group.kind is GroupKind.STATE:
        return min(entries, 1)
    steps = unprocessed_steps(limits)
    if group.kind is GroupKind.ALIGNED_STATE:
        return min(entries, 1 + steps)
    span = min(group.window_tokens - 1 + steps * limits.max_num_batched_tokens, limits.max_model_len)
    return min(entries, -(-span // group.block_size) + 1)


def beats_of(limits: EngineLimits) -> tuple[tuple[int, int], ...]:
    """(block, residue) of the numbers of computed tokens at which one more token may open, pass or name an entry.

    Where only processed tokens count, what is passed moves one token later once a request decodes. Where names are
    given up to multiples of all blocks only, the last entries of a prompt get theirs while the request decodes.
    """
    late = (0, 1) if unprocessed_steps(limits) > 1 else (0,)
    beats: dict[tuple[int, int], None] = {}
    for group in groups_of(limits):
        block, behind = group.block_size, span_behind(group)
        beats[block, 0] = None
        if behind is not None:
            beats.update(dict.fromkeys((block, (behind + lag) % block) for lag in late))
    whole = whole_block(limits)
    if whole > 1 and limits.enable_prefix_caching:
        beats[whole, 0 if limits.async_scheduling else whole - 1] = None
    return tuple(beats)
