"""Random workloads made for what hardly ever happens in those of `workload_fuzz`; each a function of its seed alone."""

from __future__ import annotations

import msgspec
from slow_blocks import SlowRequest, most_held
from workload_fuzz import GRID_NS, Case, Dice, crowded_case, random_case

from isim.record.records import EngineVersion, GroupKind, GroupLimits, SchedulingPolicy

Runs = list[tuple[str, int, int]]


def paced_case(seed: int) -> Case:
    """Prompts in chunks of a token or two that quote the answer which is given behind them, at the same pace."""
    dice = Dice(seed ^ 0x7061636564)
    limits, _, coefficients = random_case(seed)
    block_size = dice.pick(1, 2, 2, 4)
    limits = msgspec.structs.replace(
        limits,
        block_size=block_size,
        max_model_len=40,
        max_num_seqs=8,
        enable_prefix_caching=True,
        enable_chunked_prefill=True,
        long_prefill_token_threshold=dice.pick(1, 1, 1, 2),
        max_num_batched_tokens=40,
        num_blocks=1 + -(-39 // block_size) * dice.pick(2, 3) + dice.between(0, 6),
    )
    start, quoted = dice.between(1, 3), dice.pick(1, 2, 2)
    alone: Runs = [("u:0", 0, dice.between(1, 2))]
    requests = [SlowRequest(id="r0", prompt=alone, output_tokens=dice.between(8, 30))]
    time = 0
    for index in range(1, dice.between(4, 7)):
        runs: Runs = [("t", 0, start)]
        if index != quoted:
            runs.append((f"o:r{quoted}", 0, dice.between(4, 16)))
        if dice.chance(20):
            runs.append((f"u:{index}", 0, dice.between(1, 4)))
        output, priority = dice.between(2, 20), dice.pick(0, 0, -1)
        requests.append(
            SlowRequest(id=f"r{index}", prompt=runs, output_tokens=output, priority=priority, arrival_ns=time)
        )
        time += dice.between(0, 1 if index < 3 else 20) * GRID_NS
    return limits, requests, coefficients


def tight_case(seed: int) -> Case:
    """A crowd whose prompts are whole blocks more often than not, so that a victim may find all of its prompt."""
    dice = Dice(seed ^ 0x7469676874)
    limits, requests, coefficients = crowded_case(2 * seed)
    block_size = dice.pick(1, 1, 2, 4)
    limits = msgspec.structs.replace(
        limits,
        block_size=block_size,
        enable_prefix_caching=True,
        policy=SchedulingPolicy.PRIORITY,
        num_blocks=1 + -(-39 // block_size) + dice.between(0, 4),
    )
    return limits, requests, coefficients


def private_case(seed: int) -> Case:
    """Prompts of their own (one run), in whole blocks, beside shared ones; under way for long, in a small pool."""
    dice = Dice(seed ^ 0x70726976617465)
    limits, _, coefficients = random_case(seed)
    block_size = dice.pick(1, 2, 2, 4)
    limits = msgspec.structs.replace(
        limits,
        version=dice.pick(EngineVersion.V033, EngineVersion.V033, EngineVersion.V021),
        block_size=block_size,
        max_model_len=40,
        max_num_seqs=8,
        enable_prefix_caching=True,
        enable_chunked_prefill=True,
        max_num_batched_tokens=dice.pick(8, 16, 40),
        async_scheduling=True,
        num_blocks=1 + -(-39 // block_size) + dice.between(0, 6),
    )
    if dice.chance(30):
        window = GroupLimits(kind=GroupKind.SLIDING, block_size=block_size, window_tokens=dice.between(2, 12))
        groups = (GroupLimits(kind=GroupKind.FULL, block_size=block_size), window)
        most = sum(most_held(limits, group, 39) for group in groups)
        limits = msgspec.structs.replace(limits, groups=groups, num_blocks=1 + most + dice.between(0, 6))
    requests: list[SlowRequest] = []
    time = 0
    for index in range(dice.between(5, 12)):
        runs: Runs = [("t", 0, dice.between(1, 12)), (f"u:{index}", 0, 1)]
        if dice.chance(50):
            runs = [(f"u:{index}", 0, block_size * dice.between(1, 12 // block_size))]
        output, priority = dice.between(2, 20), dice.between(-1, 1)
        requests.append(
            SlowRequest(id=f"r{index}", prompt=runs, output_tokens=output, priority=priority, arrival_ns=time)
        )
        time += dice.between(0, 4) * GRID_NS
    return limits, requests, coefficients


def uneven_case(seed: int) -> Case:
    """Groups whose blocks differ in length, so that 0.33 names the ends of prompts late; quotes, and small pools."""
    dice = Dice(seed ^ 0x756E6576656E)
    limits, _, coefficients = random_case(seed)
    least = dice.pick(1, 2, 4)
    one, two = dice.pick((1, 2), (1, 3), (2, 3), (2, 4), (1, 4), (3, 2), (4, 2), (2, 1), (3, 1), (4, 3))
    reach = dice.pick(2, dice.between(2, 8), dice.between(4, 24))
    full = GroupLimits(kind=GroupKind.FULL, block_size=one * least)
    window = GroupLimits(kind=GroupKind.SLIDING, block_size=two * least, window_tokens=reach)
    other = GroupLimits(kind=GroupKind.SLIDING, block_size=one * least, window_tokens=dice.between(2, 12))
    state = GroupLimits(kind=GroupKind.ALIGNED_STATE, block_size=two * least)
    groups = dice.pick(
        (full, window),
        (window, full),
        (full, window, other),
        (other, window),
        (full, state),
        (full, state),
        (other, state),
        (full, state, other),
    )
    aligned = [state.block_size] if state in groups else []
    limits = msgspec.structs.replace(
        limits,
        version=dice.pick(EngineVersion.V033, EngineVersion.V033, EngineVersion.V021),
        groups=groups,
        block_size=aligned[0] if aligned else groups[0].block_size,
        max_model_len=48,
        enable_prefix_caching=True,
        enable_chunked_prefill=True,
        max_num_seqs=dice.pick(4, 8, 16),
        max_num_batched_tokens=max([dice.pick(dice.between(2, 8), dice.between(4, 24), 60), *aligned]),
        long_prefill_token_threshold=dice.pick(0, 0, max([dice.between(1, 12), *aligned])),
        async_scheduling=dice.chance(70),
    )
    most = sum(most_held(limits, group, 47) for group in groups)
    limits = msgspec.structs.replace(limits, num_blocks=1 + most + dice.pick(0, dice.between(0, 4), 8, 20))
    requests: list[SlowRequest] = []
    time = 0
    for index in range(dice.between(4, 12)):
        runs: Runs = [("t", 0, dice.between(1, 10))] if dice.chance(50) else [(f"u:{index}", 0, dice.between(1, 10))]
        if requests and dice.chance(70):
            said = dice.pick(*requests)
            runs = [*said.prompt, (f"o:{said.id}", 0, dice.between(1, 16))]
            if dice.chance(40):
                runs.append((f"u:{index}", 0, dice.between(1, 6)))
        prompt_tokens = sum(count for _, _, count in runs)
        if prompt_tokens > 42:
            runs = [(f"u:{index}", 0, dice.between(1, 20))]
        time += dice.between(0, 4) * GRID_NS
        output, priority = dice.between(1, 30), dice.between(-1, 1)
        requests.append(
            SlowRequest(id=f"r{index}", prompt=runs, output_tokens=output, priority=priority, arrival_ns=time)
        )
    return limits, requests, coefficients


def tails_case(seed: int) -> Case:
    """Blocks of different lengths, prompts that begin alike and end anywhere, and a budget that leaves some out.

    The blocks at the ends of prompts are equal ones then, which 0.33 names when tokens follow.
    """
    dice = Dice(seed ^ 0x7461696C73)
    limits, _, coefficients = random_case(seed)
    one, two = dice.pick((1, 2), (1, 2), (1, 3), (2, 3), (1, 4), (1, 4), (2, 4), (4, 1), (2, 1), (1, 1))
    full = GroupLimits(kind=GroupKind.FULL, block_size=one)
    longer = GroupLimits(kind=GroupKind.FULL, block_size=two)
    window = GroupLimits(kind=GroupKind.SLIDING, block_size=two, window_tokens=dice.between(2, 8))
    state = GroupLimits(kind=GroupKind.ALIGNED_STATE, block_size=two)
    groups = dice.pick((full, longer), (full, window), (full, state), (full, state), (full, state), (window, state))
    budget = max(dice.pick(dice.between(2, 4), dice.between(3, 10)), two)
    limits = msgspec.structs.replace(
        limits,
        version=dice.pick(EngineVersion.V033, EngineVersion.V033, EngineVersion.V033, EngineVersion.V021),
        groups=groups,
        block_size=two if state in groups else groups[0].block_size,
        max_model_len=48,
        enable_prefix_caching=True,
        enable_chunked_prefill=True,
        max_num_seqs=8,
        max_num_batched_tokens=budget,
        long_prefill_token_threshold=dice.pick(0, 0, max(dice.between(1, 4), two)),
        async_scheduling=dice.chance(80),
    )
    most = sum(most_held(limits, group, 47) for group in groups)
    limits = msgspec.structs.replace(limits, num_blocks=1 + most + dice.pick(dice.between(0, 8), 40, 200))
    requests: list[SlowRequest] = []
    time, count = 0, dice.between(4, 9)
    for index in range(count):
        runs: Runs = [("t", 0, dice.between(1, 16))]
        if dice.chance(40):
            runs.append((f"o:r{dice.between(0, count - 1)}", 0, dice.between(1, 16)))
        if dice.chance(40):
            runs = [(f"u:{index}", 0, dice.pick(1, 1, dice.between(4, 30)))]
        output, priority = dice.between(1, 14), dice.between(-1, 1)
        requests.append(
            SlowRequest(id=f"r{index}", prompt=runs, output_tokens=output, priority=priority, arrival_ns=time)
        )
        time += dice.pick(0, 0, 0, 1, 1, 2, 4) * GRID_NS
    return limits, requests, coefficients
