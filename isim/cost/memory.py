"""How many KV blocks fit: what the engine may use of a GPU, less everything else it keeps there.

The formula is the engine's own: ceil(utilization * total memory as the driver reports it), less weights, less the peak
of activations in a dummy run of a full token budget and a full batch of sampled requests, less growth outside the
allocator, less CUDA graphs. The engine measures the last three on the machine. Here they are estimates from declared
factors, so a derived pool is `heuristic`; what an engine printed of them can be given instead
(`engine.reserved_memory`), and a measured `num_gpu_blocks` given as an override is better still.

The peak of the dummy run is the greater of two moments: in a layer, where residual, gate and up and their product
live together, and in the sampler, where each logit of a full batch lives as model dtype, as float32, sorted, with
its sorted index and its probability. Ranks are alike, so the least of them is any of them.
"""

from __future__ import annotations

import math

import msgspec
from msgspec import UNSET, UnsetType

from isim.cost.base import CostError
from isim.cost.graphs import capture_sizes
from isim.model.arithmetic import legal_tensor_parallel, rank_kv_bytes_per_token, rank_shape, rank_weights
from isim.model.spec import Confidence, ModelSpec, Precision
from isim.record.errors import IsimError
from isim.scenario.presets.gpus import GpuSpec
from isim.scenario.reserved import ReservedMemory

_Rows = tuple[tuple[str, int], ...]
_MIB = 1 << 20
_GIB = 1 << 30


class CapacityError(IsimError):
    """The model and its engine do not fit the GPU; told before anything runs."""


class MemoryLimits(msgspec.Struct, frozen=True, kw_only=True):
    """The engine's settings that decide what memory is left for KV blocks, in the engine's names."""

    tensor_parallel_size: int = 1
    gpu_memory_utilization: float = 0.92
    block_size: int = 16
    max_num_seqs: int
    max_num_batched_tokens: int
    max_model_len: int
    num_gpu_blocks_override: int | None = None
    expert_parallel: bool = False
    reserved: ReservedMemory = ReservedMemory()


class MemoryFactors(msgspec.Struct, frozen=True, kw_only=True):
    """What the engine would measure and this estimates; heuristic.

    sampler_bytes_per_logit         beside the logit itself: float32 copy 4, sorted 4, index 8, probability 4, mask 1
    growth_bytes                    outside the allocator on every rank: workspaces and kernel modules; about what
                                    one published H100 run (Llama-2-7B, TP 1, vLLM 0.15) leaves unexplained
    communicator_bytes              more of it on each rank when there are several: NCCL buffers, which AIConfigurator
                                    lists at 342 to 392 MiB, and those of the all-reduce
    graph_bytes_per_size_and_layer  for each captured batch size and layer, of the order of what vLLM prints after
                                    capturing; 0 for engines that do not reserve it (0.19 and before)
    """

    sampler_bytes_per_logit: int = 21
    growth_bytes: int = 256 * _MIB
    communicator_bytes: int = 400 * _MIB
    graph_bytes_per_size_and_layer: int = 256 << 10


class KvCapacity(msgspec.Struct, frozen=True, kw_only=True):
    """The KV pool of one rank.

    num_blocks      in the pool that is used, the null block included; `usable_blocks` is one less
    derived_blocks  what the arithmetic gives, beside an override; None when it gives no room at all
    derivation      (what, bytes), amounts taken off being negative; they sum to the bytes left for KV
    notes           sentences a person should read
    """

    num_blocks: int
    usable_blocks: int
    block_bytes: int
    kv_bytes: int
    source: str
    confidence: Confidence
    derived_blocks: int | None
    override_blocks: int | None
    derivation: tuple[tuple[str, int], ...]
    notes: tuple[str, ...] = ()


def _check(limits: MemoryLimits) -> None:
    share = limits.gpu_memory_utilization
    if type(share) not in (int, float) or not 0 < share <= 1:
        raise CostError(f"engine.gpu_memory_utilization: expected a share above 0 and at most 1, found {share!r}")
    for name in ("block_size", "max_num_seqs", "max_num_batched_tokens", "max_model_len"):
        value = getattr(limits, name)
        if type(value) is not int or value < 1:
            raise CostError(f"engine.{name}: expected a positive integer, found {value!r}")
    override = limits.num_gpu_blocks_override
    if override is not None and (type(override) is not int or override < 2):
        raise CapacityError(
            f"engine.num_gpu_blocks_override: expected 2 or more, as one block is the null block, found {override!r}"
        )


def _activation_bytes(model: ModelSpec, precision: Precision, limits: MemoryLimits, factors: MemoryFactors) -> int:
    """Peak of the dummy run, as the essay above says."""
    shape = rank_shape(model, limits.tensor_parallel_size, limits.expert_parallel)
    element = precision.model.bits // 8
    tokens = limits.max_num_batched_tokens
    width = 3 * shape.intermediate
    if model.layers:
        from isim.cost.groups import layer_width

        width = layer_width(model, limits.tensor_parallel_size)
    layer = tokens * (2 * shape.hidden + width) * element
    rows = min(limits.max_num_seqs, tokens)
    sampler = rows * model.vocab_size * (element + factors.sampler_bytes_per_logit) + tokens * shape.hidden * element
    return max(layer, sampler)


def _derivation(
    model: ModelSpec, gpu: GpuSpec, precision: Precision, limits: MemoryLimits, factors: MemoryFactors
) -> _Rows:
    ranks = limits.tensor_parallel_size
    weights = rank_weights(model, ranks, precision, limits.expert_parallel).total_bytes
    rotation = model.max_position_embeddings * model.head_dim * precision.model.bits // 8
    graph_bytes = factors.graph_bytes_per_size_and_layer * model.num_hidden_layers
    graph_bytes *= len(capture_sizes(limits.max_num_seqs, limits.max_num_batched_tokens))
    given = limits.reserved
    share = limits.gpu_memory_utilization
    rows = [
        (f"the engine's share: ceil({share} x {gpu.memory_bytes})", math.ceil(share * gpu.memory_bytes)),
        (f"weights on each of {ranks} rank(s), {precision.weights}", -weights),
        ("table of rotary positions", -rotation),
        _row(
            "peak activation of a full-budget dummy run",
            _activation_bytes(model, precision, limits, factors),
            given.peak_activation_bytes,
        ),
        _row("growth outside the allocator", factors.growth_bytes, given.non_torch_bytes),
    ]
    if ranks > 1 and given.non_torch_bytes is UNSET:
        rows.append(_row("communicators", factors.communicator_bytes))
    return (*rows, _row("CUDA graphs", graph_bytes, given.cuda_graphs_bytes))


def _row(what: str, estimate_bytes: int, given_bytes: int | UnsetType = UNSET) -> tuple[str, int]:
    """What is taken off."""
    if isinstance(given_bytes, int):
        return f"{what} (given)", -given_bytes
    return f"{what} (estimate)", -estimate_bytes


def _given_notes(limits: MemoryLimits, rows: _Rows, estimated: _Rows) -> list[str]:
    """What the run file gives, beside what would have been estimated of it."""
    instead = {label.partition(" (")[0]: amount for label, amount in estimated}
    if isinstance(limits.reserved.non_torch_bytes, int):
        instead["growth outside the allocator"] += instead.get("communicators", 0)
    found = []
    for label, amount in rows:
        what, _, how = label.partition(" (")
        if how == "given)":
            found.append(f"engine.reserved_memory: {what} {-amount} B is used; estimated: {-instead[what]} B")
    return found


def _blocks(model: ModelSpec, precision: Precision, limits: MemoryLimits) -> tuple[int, int, list[str]]:
    """Bytes of a block of the pool on one rank, the blocks of the longest sequence, and what a person should read."""
    if model.layers:
        from isim.cost.groups import group_blocks

        return group_blocks(model, precision, limits.tensor_parallel_size, limits.block_size, limits.max_model_len)
    block_bytes = limits.block_size * rank_kv_bytes_per_token(model, limits.tensor_parallel_size, precision.kv_cache)
    return block_bytes, -(-limits.max_model_len // limits.block_size), list(model.assumptions or ())


def _gib(size_bytes: int) -> str:
    return f"{size_bytes / _GIB:.2f} GiB"


def _no_room(model: ModelSpec, gpu: GpuSpec, limits: MemoryLimits, rows: _Rows) -> CapacityError:
    ranks, expert_parallel = limits.tensor_parallel_size, limits.expert_parallel
    share = rows[0][1]
    what, most = min(rows[1:], key=lambda row: row[1])
    left = sum(amount for _, amount in rows)
    larger = [str(each) for each in legal_tensor_parallel(model, expert_parallel) if each > ranks]
    split = f"a larger engine.tensor_parallel_size ({', '.join(larger)})" if larger and gpu.link else ""
    ways = [split, "a larger GPU", "narrower weights", "smaller max_num_batched_tokens or max_num_seqs"]
    return CapacityError(
        f"no room for a KV cache: {model.name} on {gpu.name} leaves {_gib(left)} for it, and at least one block beside "
        f"the null block is needed. The engine may use {_gib(share)}; the largest part is {what}: {_gib(-most)}. "
        f"Try {', '.join(way for way in ways if way)}, or engine.num_gpu_blocks_override if you measured it"
    )


def kv_capacity(
    model: ModelSpec,
    gpu: GpuSpec,
    precision: Precision,
    limits: MemoryLimits,
    factors: MemoryFactors | None = None,
) -> KvCapacity:
    """The KV pool of each rank. Blocks are floor(bytes left / block bytes), block 0 being the null block.

    Raises ModelError for an illegal tensor_parallel_size, CapacityError when nothing fits and no override is given.
    Source: vLLM 0.21, GPUWorker.determine_available_memory and get_num_blocks.
    """
    _check(limits)
    block_bytes, longest_blocks, notes = _blocks(model, precision, limits)
    factors = factors or MemoryFactors()
    rows = _derivation(model, gpu, precision, limits, factors)
    if limits.reserved != ReservedMemory():
        unmeasured = msgspec.structs.replace(limits, reserved=ReservedMemory())
        notes += _given_notes(limits, rows, _derivation(model, gpu, precision, unmeasured, factors))
    left = sum(amount for _, amount in rows)
    derived = left // block_bytes if left >= 2 * block_bytes else None
    override = limits.num_gpu_blocks_override
    blocks = derived if override is None else override
    if blocks is None:
        raise _no_room(model, gpu, limits, rows)
    if override is not None:
        beside = "no room at all" if derived is None else f"{derived}"
        notes.append(f"num_gpu_blocks_override {override} is used; derived: {beside}")
    if blocks - 1 < longest_blocks:
        tokens = (blocks - 1) * limits.block_size
        holds = (
            f"{blocks - 1} blocks of {longest_blocks} that {limits.max_model_len} tokens take"
            if (model.layers)
            else f"{tokens} tokens, less than max_model_len {limits.max_model_len}"
        )
        notes.append(
            f"the pool holds {holds}: vLLM would refuse to start; here only requests that never fit are rejected"
        )
    return KvCapacity(
        num_blocks=blocks,
        usable_blocks=blocks - 1,
        block_bytes=block_bytes,
        kv_bytes=blocks * block_bytes,
        source="derived" if override is None else "override",
        confidence=Confidence.HEURISTIC if override is None else Confidence.EXACT,
        derived_blocks=derived,
        override_blocks=override,
        derivation=rows,
        notes=tuple(notes),
    )
