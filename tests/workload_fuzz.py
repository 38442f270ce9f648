"""Random workloads in which almost everything ties, made to find two engines that disagree.

Arrivals lie on a grid of `GRID_NS`, and so do all step durations: arrivals, step ends and other arrivals fall on the
same nanosecond all the time. Pools are a little larger than the largest request, prompts are paths in a small tree
(so prefixes are shared, in whole blocks and not), some quote an earlier output, a few can never fit or are too long.
`random_case(seed)` is a function of the seed alone.

The rules themselves can go round for ever: requests of equal priority and arrival are victims in running order, so
two of them whose prompts come in chunks may evict each other in turn. `finite_runs` leaves such cases out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeVar

import msgspec
from slow_blocks import SlowRequest, most_held
from slow_engine import Chunk, EndlessRun, SlowRun, StepNs, run_timed

from isim.record.records import (
    EngineLimits,
    EngineVersion,
    GroupKind,
    GroupLimits,
    LinearCoefficients,
    SchedulingPolicy,
)

GRID_NS = 1000
GRID_PS = GRID_NS * 1000
MAX_DECISIONS = 3000
MASK = 2**64 - 1
GROUPS_SEED = 0x6B76_6772_6F75_7073
CROWD_SEED = 0x6372_6F77_6400_0000
QUOTES_SEED = 0x71756F74

T = TypeVar("T")
Case = tuple[EngineLimits, list[SlowRequest], LinearCoefficients]


class Dice:
    """Splitmix64: small, and the same everywhere."""

    def __init__(self, seed: int) -> None:
        self.state = (seed * 0x9E3779B97F4A7C15 + 0x243F6A8885A308D3) & MASK

    def bits(self) -> int:
        self.state = (self.state + 0x9E3779B97F4A7C15) & MASK
        z = self.state
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
        return z ^ (z >> 31)

    def between(self, low: int, high: int) -> int:
        """An integer from low to high, both included."""
        return low + self.bits() % (high - low + 1)

    def chance(self, percent: int) -> bool:
        return self.between(1, 100) <= percent

    def pick(self, *options: T) -> T:
        return options[self.bits() % len(options)]


def _limits(dice: Dice) -> EngineLimits:
    block_size = dice.pick(1, 2, 4, 4, 8, 16)
    max_model_len = dice.pick(40, 64, 64, 96)
    chunked = dice.chance(75)
    enough = max_model_len + dice.between(0, 60)
    # without chunking the engine refuses a budget below max_model_len
    budget = dice.pick(dice.between(1, 6), dice.between(4, 24), dice.between(16, 80), enough) if chunked else enough
    blocks_at_most = -(-max_model_len // block_size)
    room = dice.pick(100, 100, 130, 180, 400)
    return EngineLimits(
        version=dice.pick(EngineVersion.V021, EngineVersion.V033),
        max_num_seqs=dice.pick(1, 2, 3, 5, 8, 16),
        max_num_batched_tokens=budget,
        block_size=block_size,
        num_blocks=1 + max(1, blocks_at_most * room // 100 - dice.between(0, 2)),
        max_model_len=max_model_len,
        enable_prefix_caching=dice.chance(65),
        enable_chunked_prefill=chunked,
        long_prefill_token_threshold=dice.pick(0, 0, dice.between(1, 20)),
        scheduler_reserve_full_isl=dice.chance(50),
        async_scheduling=dice.chance(50),
        policy=dice.pick(SchedulingPolicy.FCFS, SchedulingPolicy.PRIORITY),
    )


def _tree_path(dice: Dice, block_size: int) -> list[tuple[str, int, int]]:
    """Runs from the root of the tree down; a node's length follows from its name, now and then cut short."""
    runs: list[tuple[str, int, int]] = []
    name = "t"
    for _ in range(dice.between(0, 3)):
        name += str(dice.between(0, 1))
        length = (len(name) + name.count("1")) * max(1, block_size // 2)
        if dice.chance(20):
            runs.append((name, 0, dice.between(1, length)))
            break
        runs.append((name, 0, length))
    return runs


def _cut(runs: Sequence[tuple[str, int, int]], tokens: int) -> list[tuple[str, int, int]]:
    kept = []
    for group, start, count in runs:
        if tokens > 0:
            kept.append((group, start, min(count, tokens)))
        tokens -= count
    return kept


def _prompt(dice: Dice, index: int, earlier: Sequence[SlowRequest], limits: EngineLimits) -> list[tuple[str, int, int]]:
    runs = _tree_path(dice, limits.block_size)
    if earlier and dice.chance(15):
        said = dice.pick(*earlier)
        runs = [*said.prompt, (f"o:{said.id}", 0, said.output_tokens)]
    runs.append((f"u:{index}", 0, dice.pick(1, dice.between(1, 6), dice.between(1, 30))))
    most = limits.max_model_len + 4 if dice.chance(4) else limits.max_model_len - dice.between(1, 20)
    return _cut(runs, most)


def _requests(dice: Dice, limits: EngineLimits) -> list[SlowRequest]:
    gap = dice.pick(0, 0, 1, 2, 4, 12)
    levels = dice.pick(0, 1, 1, 3)
    requests: list[SlowRequest] = []
    time = dice.between(0, 2)
    for index in range(dice.between(2, 20)):
        # a first token only, a typical answer, and one that max_model_len cuts
        output = dice.pick(1, dice.between(1, 6), dice.between(4, 24), dice.between(20, 60))
        requests.append(
            SlowRequest(
                id=f"r{index}",
                prompt=_prompt(dice, index, requests, limits),
                output_tokens=output,
                priority=dice.between(-levels, levels),
                arrival_ns=time * GRID_NS,
            )
        )
        time += dice.between(0, gap) + (dice.between(20, 80) if dice.chance(3) else 0)
    return requests


def _coefficients(dice: Dice) -> LinearCoefficients:
    return LinearCoefficients(
        base_ps=GRID_PS * dice.between(1, 3),
        per_token_ps=GRID_PS * dice.pick(0, 0, 1),
        per_request_ps=GRID_PS * dice.pick(0, 0, 1),
        per_context_token_ps=GRID_PS * dice.pick(0, 0, 0, 1),
    )


def random_case(seed: int) -> Case:
    """Limits, requests in order of arrival, and the price of a step; the same for the same seed, for ever."""
    dice = Dice(seed)
    limits = _limits(dice)
    requests = _requests(dice, limits)
    return limits, requests, _coefficients(dice)


def _groups(dice: Dice, max_model_len: int) -> tuple[GroupLimits, ...]:
    """A set of KV groups as models have them, and some that no model has; blocks of 1 to 4 times the least."""
    least = dice.pick(1, 2, 4, 4, 8)
    same = least * dice.pick(1, 2)

    def full() -> GroupLimits:
        return GroupLimits(kind=GroupKind.FULL, block_size=size())

    def window() -> GroupLimits:
        # within a chunk, about one block, and beyond most sequences
        tokens = dice.pick(2, dice.between(2, 8), dice.between(4, 24), dice.between(20, 80))
        return GroupLimits(kind=GroupKind.SLIDING, block_size=size(), window_tokens=tokens)

    def size() -> int:
        return same if equal else least * dice.pick(1, 1, 2, 3, 4)

    equal = dice.chance(60)
    state = GroupLimits(kind=GroupKind.STATE, block_size=max_model_len + dice.between(0, 9))
    aligned = GroupLimits(kind=GroupKind.ALIGNED_STATE, block_size=same)
    one, other = window(), window()
    groups = dice.pick(
        [full(), one],
        [full(), one],
        [full(), one, one],
        [full(), one, other],
        [full(), one, other, one],
        [one, full()],
        [one],
        [one, other],
        [full(), state],
        [full(), state, state, state],
        [one, state],
        [full(), aligned],
        [full(), aligned, aligned, aligned],
        [full(), aligned, one],
        [one, aligned],
        [aligned, full(), other, one],
        [aligned],
        [full()],
    )
    return tuple(groups)


def random_groups_case(seed: int) -> Case:
    """Like `random_case`, with several KV groups and a pool a little larger than what the largest request may hold."""
    dice = Dice(seed ^ GROUPS_SEED)
    limits = _limits(dice)
    groups = _groups(dice, limits.max_model_len)
    kinds = [group.kind for group in groups]
    aligned = [group.block_size for group in groups if group.kind is GroupKind.ALIGNED_STATE]
    limits = msgspec.structs.replace(
        limits,
        groups=groups,
        block_size=aligned[0] if aligned else groups[0].block_size,
        enable_prefix_caching=GroupKind.STATE not in kinds and dice.chance(80),
        # a chunk that is shorter than a block may never end on one
        max_num_batched_tokens=max([limits.max_num_batched_tokens, *aligned]),
        long_prefill_token_threshold=limits.long_prefill_token_threshold and max([dice.between(1, 20), *aligned]),
    )
    most = sum(most_held(limits, group, limits.max_model_len - 1) for group in groups)
    room = dice.pick(100, 100, 130, 180, 400)
    limits = msgspec.structs.replace(limits, num_blocks=1 + max(1, most * room // 100 - dice.between(0, 2)))
    return limits, _requests(dice, limits), _coefficients(dice)


def crowded_case(seed: int) -> Case:
    """Short prompts with long answers, of several priorities, in a pool that holds little more than one of them."""
    dice = Dice(seed ^ CROWD_SEED)
    limits, _, coefficients = random_groups_case(seed) if seed % 2 else random_case(seed)
    aligned = [group.block_size for group in limits.groups if group.kind is GroupKind.ALIGNED_STATE]
    limits = msgspec.structs.replace(
        limits,
        max_model_len=40,
        max_num_seqs=dice.pick(4, 8, 16),
        max_num_batched_tokens=max([dice.pick(dice.between(2, 6), dice.between(4, 16)), *aligned]),
        enable_chunked_prefill=True,
        long_prefill_token_threshold=dice.pick(0, max([dice.between(1, 6), *aligned])),
        policy=dice.pick(SchedulingPolicy.PRIORITY, SchedulingPolicy.PRIORITY, SchedulingPolicy.FCFS),
    )
    most = sum(most_held(limits, group, 39) for group in limits.groups) or -(-39 // limits.block_size)
    limits = msgspec.structs.replace(limits, num_blocks=1 + most + dice.between(0, 4))
    requests: list[SlowRequest] = []
    time = 0
    for index in range(dice.between(4, 14)):
        runs: list[tuple[str, int, int]] = []
        if requests and dice.chance(35):
            said = dice.pick(*requests)
            runs = [*said.prompt, (f"o:{said.id}", 0, dice.between(1, 12))]
        elif dice.chance(50):
            runs = [("t", 0, dice.between(1, 8))]
        prompt = _cut([*runs, (f"u:{index}", 0, dice.between(1, 6))], 36)
        output, priority = dice.between(2, 34), dice.between(-2, 2)
        time += dice.between(0, 3) * GRID_NS
        requests.append(
            SlowRequest(id=f"r{index}", prompt=prompt, output_tokens=output, priority=priority, arrival_ns=time)
        )
    return limits, requests, coefficients


def quoting_case(seed: int) -> Case:
    """Prompts that quote answers while these are given, and further than they have come by then."""
    dice = Dice(seed ^ QUOTES_SEED)
    limits, _, coefficients = random_groups_case(seed) if seed % 2 else random_case(seed)
    room = limits.num_blocks + dice.pick(0, 0, 6, 20)
    limits = msgspec.structs.replace(limits, enable_prefix_caching=True, num_blocks=room, max_num_seqs=8)
    if any(group.kind is GroupKind.STATE for group in limits.groups):
        limits = msgspec.structs.replace(limits, groups=())
    requests: list[SlowRequest] = []
    time = 0
    for index in range(dice.between(3, 9)):
        if requests and dice.chance(80):
            said = dice.pick(*requests)
            runs = [*said.prompt, (f"o:{said.id}", 0, dice.between(1, 20))]
        else:
            runs = [("t", 0, dice.between(1, 4))]
        if dice.chance(50):
            runs.append((f"u:{index}", 0, dice.between(1, 6)))
        time += dice.between(0, 4) * GRID_NS
        prompt, output = _cut(runs, limits.max_model_len - 4), dice.between(2, 34)
        priority = dice.between(-1, 1)
        requests.append(
            SlowRequest(id=f"r{index}", prompt=prompt, output_tokens=output, priority=priority, arrival_ns=time)
        )
    return limits, requests, coefficients


def quoted_ids(requests: Sequence[SlowRequest]) -> list[str]:
    """Ids of the requests whose output a prompt quotes."""
    groups = {group for request in requests for group, _, _ in request.prompt}
    return [request.id for request in requests if f"o:{request.id}" in groups]


def linear_step_ns(coefficients: LinearCoefficients) -> StepNs:
    """The linear price of a step, rounded up to whole nanoseconds."""

    def step_ns(decodes: int, decode_context: int, chunks: list[Chunk]) -> int:
        tokens = decodes + sum(tokens for tokens, _ in chunks)
        context = decode_context + sum(before for _, before in chunks)
        batch = decodes + len(chunks)
        total_ps = (
            coefficients.base_ps
            + coefficients.per_token_ps * tokens
            + coefficients.per_request_ps * batch
            + coefficients.per_context_token_ps * context
        )
        return -(-total_ps // 1000)

    return step_ns


def finite_runs(seeds: Sequence[int]) -> Iterator[tuple[int, Case, SlowRun]]:
    """The seeds whose case comes to an end, with the case and what the slow engine makes of it."""
    for seed in seeds:
        case = limits, requests, coefficients = random_case(seed)
        try:
            run = run_timed(limits, requests, linear_step_ns(coefficients), MAX_DECISIONS)
        except EndlessRun:
            continue
        yield seed, case, run
