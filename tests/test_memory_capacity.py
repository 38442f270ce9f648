"""The KV pool: the formula by hand, refusals, overrides, and pools that real engines recorded."""

from __future__ import annotations

import msgspec
import pytest

from isim.cost.base import CostError
from isim.cost.memory import CapacityError, KvCapacity, MemoryFactors, MemoryLimits, kv_capacity
from isim.model.arithmetic import rank_weights
from isim.model.catalogue import MODELS
from isim.model.spec import Dtype, ModelError, precision_of
from isim.scenario.presets.gpus import GPUS

MIB = 1 << 20
NOTHING = MemoryFactors(
    sampler_bytes_per_logit=0, growth_bytes=0, communicator_bytes=0, graph_bytes_per_size_and_layer=0
)
BEFORE_GRAPHS = MemoryFactors(graph_bytes_per_size_and_layer=0)


def capacity(
    model: str = "llama-3.1-8b",
    gpu: str = "h100-sxm",
    factors: MemoryFactors | None = None,
    kv_cache: Dtype | None = None,
    **changes: object,
) -> KvCapacity:
    limits = MemoryLimits(max_num_seqs=128, max_num_batched_tokens=2048, max_model_len=4096)
    limits = msgspec.structs.replace(limits, **changes)
    return kv_capacity(MODELS[model], GPUS[gpu], precision_of(MODELS[model], kv_cache=kv_cache), limits, factors)


def test_derivation_sums_to_the_pool_and_shows_the_formula() -> None:
    for model, gpu, ranks in (("llama-3.1-8b", "h100-sxm", 1), ("llama-2-70b", "a100-80gb", 4)):
        found = capacity(model, gpu, tensor_parallel_size=ranks)
        left = sum(amount for _, amount in found.derivation)
        assert found.num_blocks == left // found.block_bytes
        assert found.usable_blocks == found.num_blocks - 1
        assert found.kv_bytes == found.num_blocks * found.block_bytes
        assert (found.source, found.override_blocks, found.confidence) == ("derived", None, "heuristic")
        weights = rank_weights(MODELS[model], ranks, precision_of(MODELS[model])).total_bytes
        assert -weights in [amount for _, amount in found.derivation]


def test_the_share_is_rounded_up_as_the_engine_does() -> None:
    # 0.9 of the 25,250,627,584 bytes an RTX 4090's driver reports is 22,725,564,825.6.
    found = capacity(gpu="rtx-4090", gpu_memory_utilization=0.9)
    assert found.derivation[0][1] == 22_725_564_826


def test_peak_activation_by_hand() -> None:
    # Llama-2-7B, 2,048 tokens: hidden and residual 2 x 4096, gate, up and product 3 x 11008, of 2 bytes each.
    found = dict(capacity("llama-2-7b", factors=NOTHING, max_num_seqs=1).derivation)
    assert found["peak activation of a full-budget dummy run (estimate)"] == -2048 * (2 * 4096 + 3 * 11008) * 2
    # With a large vocabulary and batch the sampler is the peak: 1,024 rows of 128,256 logits at 2 + 21 bytes.
    found = dict(capacity(max_num_seqs=1024).derivation)
    assert found["peak activation of a full-budget dummy run (estimate)"] == -(1024 * 128256 * 23 + 2048 * 4096 * 2)


@pytest.mark.parametrize(
    ("model", "gpu", "ranks", "seqs", "recorded", "tolerance"),
    [
        # Recorded by vLLM 0.15 and 0.19 at 0.9 utilization, 2,048 batched tokens, before engines reserved for CUDA
        # graphs; published in inference-sim/training and LLMServingSim. They were in view when `growth_bytes` and
        # `communicator_bytes` were set: a check of the form, no prediction.
        ("llama-2-7b", "h100-sxm", 1, 128, 7_462, 0.005),
        ("codellama-34b", "h100-sxm", 2, 128, 26_602, 0.01),
        ("llama-2-70b", "h100-sxm", 4, 128, 31_356, 0.01),
        ("llama-3.1-8b", "rtx-4090", 1, 256, 2_588, 0.05),
    ],
)
def test_p26_derived_pools_are_near_recorded_ones(
    model: str, gpu: str, ranks: int, seqs: int, recorded: int, tolerance: float
) -> None:
    changes = {"tensor_parallel_size": ranks, "max_num_seqs": seqs, "gpu_memory_utilization": 0.9}
    derived = capacity(model, gpu, BEFORE_GRAPHS, **changes)
    assert derived.num_blocks == pytest.approx(recorded, rel=tolerance)
    given = capacity(model, gpu, BEFORE_GRAPHS, num_gpu_blocks_override=recorded, **changes)
    assert (given.num_blocks, given.usable_blocks, given.source) == (recorded, recorded - 1, "override")
    assert given.derived_blocks == derived.num_blocks
    assert any(str(recorded) in note and str(derived.num_blocks) in note for note in given.notes)


def test_p16_an_fp8_cache_doubles_the_pool() -> None:
    plain, narrow = capacity(), capacity(kv_cache=Dtype.FLOAT8_E4M3)
    assert (plain.block_bytes, narrow.block_bytes) == (2 * MIB, MIB)
    assert narrow.num_blocks - 2 * plain.num_blocks in (0, 1)


def test_no_room_is_one_error_that_names_what_is_too_big() -> None:
    with pytest.raises(CapacityError, match=r"llama-2-70b on h100-sxm.*largest part is weights.*128\.\d+ GiB") as info:
        capacity("llama-2-70b")
    assert info.value.exit_code == 2
    assert "tensor_parallel_size (2, 4, 8" in str(info.value)
    with pytest.raises(CapacityError, match="largest part is peak activation"):
        capacity("llama-3.1-8b", gpu_memory_utilization=0.4, max_num_seqs=100_000, max_num_batched_tokens=100_000)


def test_an_override_stands_where_nothing_can_be_derived() -> None:
    found = capacity("llama-2-70b", num_gpu_blocks_override=500)
    assert (found.num_blocks, found.derived_blocks) == (500, None)
    assert any("no room at all" in note for note in found.notes)


def test_a_pool_below_max_model_len_is_said_aloud() -> None:
    assert not capacity(gpu="rtx-4090", max_model_len=8192, factors=BEFORE_GRAPHS).notes
    (note,) = capacity(gpu="rtx-4090", max_model_len=131_072, factors=BEFORE_GRAPHS).notes
    assert "vLLM would refuse to start" in note


def test_wrong_inputs_are_named() -> None:
    with pytest.raises(ModelError, match=r"engine\.tensor_parallel_size: 64"):
        capacity(tensor_parallel_size=64)
    for share in (0, 1.01, True, -0.5, float("nan")):
        with pytest.raises(CostError, match=r"engine\.gpu_memory_utilization"):
            capacity(gpu_memory_utilization=share)
    for override in (0, 1, True):
        with pytest.raises(CapacityError, match=r"engine\.num_gpu_blocks_override"):
            capacity(num_gpu_blocks_override=override)
    with pytest.raises(CostError, match=r"engine\.block_size"):
        capacity(block_size=0)
