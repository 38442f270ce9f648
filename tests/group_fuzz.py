"""Random workloads for engines with several KV groups, made as `workload_fuzz` makes its own."""

from __future__ import annotations

import msgspec
from workload_fuzz import Case, Dice, random_case

from isim.record.records import EngineLimits, GroupKind, GroupLimits


def random_group_case(seed: int) -> Case:
    """A case of `workload_fuzz` whose engine has KV groups, and a pool between scarce and roomy for them."""
    limits, requests, coefficients = random_case(seed)
    dice = Dice(seed ^ 0x5EED)
    groups = _groups(dice, limits)
    peak = sum(-(-limits.max_model_len // group.block_size) for group in groups if group.kind is GroupKind.FULL)
    others = sum(_few(dice, group) for group in groups if group.kind is not GroupKind.FULL)
    usable = peak * dice.pick(60, 100, 100, 150, 300) // 100 + others + dice.between(0, 3)
    return msgspec.structs.replace(limits, groups=groups, num_blocks=1 + max(1, usable)), requests, coefficients


def _few(dice: Dice, group: GroupLimits) -> int:
    window = group.window_tokens // group.block_size + 1
    return dice.between(1, 2 * window) if group.kind is GroupKind.SLIDING else dice.between(1, 3)


def _groups(dice: Dice, limits: EngineLimits) -> tuple[GroupLimits, ...]:
    block = limits.block_size
    full = GroupLimits(kind=GroupKind.FULL, block_size=block * dice.pick(1, 1, 1, 2))
    windows = [
        GroupLimits(
            kind=GroupKind.SLIDING,
            block_size=block * dice.pick(1, 1, 1, 2, 3),
            window_tokens=dice.pick(2, 3, dice.between(2, 12), dice.between(4, 40)),
        )
        for _ in range(2)
    ]
    state = GroupLimits(kind=GroupKind.ALIGNED_STATE, block_size=block)
    if not limits.enable_prefix_caching and dice.chance(60):
        state = GroupLimits(kind=GroupKind.STATE, block_size=limits.max_model_len)
    plain_full = GroupLimits(kind=GroupKind.FULL, block_size=block)
    return dice.pick(
        (full, windows[0]),
        (full, windows[0], windows[0]),
        (windows[0], full, windows[1]),
        (windows[0],),
        (windows[0], windows[1]),
        (plain_full, state),
        (plain_full, state, state, state),
        (plain_full, state, windows[0]),
    )
