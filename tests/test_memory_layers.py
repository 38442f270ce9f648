"""KV pools of models of several kinds of layers and of quantised checkpoints, against differences worked by hand."""

from __future__ import annotations

import msgspec
import pytest

from isim.cost.memory import CapacityError, KvCapacity, MemoryLimits, kv_capacity
from isim.model.arithmetic import rank_weights
from isim.model.catalogue import MODELS
from isim.model.layers import LINEAR_PARTS, Quantization
from isim.model.spec import Dtype, ModelError, ModelSpec, precision_of
from isim.scenario.presets.gpus import GPUS

MIB = 1 << 20


def capacity(
    model: ModelSpec, gpu: str = "h200", kv_cache: Dtype | None = None, ranks: int = 1, **changes: object
) -> KvCapacity:
    figures = {"max_num_seqs": 256, "max_num_batched_tokens": 2048, "max_model_len": 8192, **changes}
    limits = MemoryLimits(tensor_parallel_size=ranks, **figures)
    return kv_capacity(model, GPUS[gpu], precision_of(model, kv_cache=kv_cache), limits)


def test_p15_a_four_bit_checkpoint_leaves_the_exact_difference_to_the_blocks() -> None:
    model = MODELS["llama-3.1-70b"]
    scheme = Quantization(method="awq", weights=Dtype.INT4, group_elements=128, group_bits=20, parts=LINEAR_PARTS)
    packed = msgspec.structs.replace(model, quantization=scheme)
    wide, narrow = capacity(model, ranks=4), capacity(packed, ranks=4)
    elements = 80 * (8192 * 8192 * 2 + 2 * 8192 * 1024 + 3 * 8192 * 28672) // 4
    saved = 2 * elements - (elements // 2 + elements // 128 * 20 // 8)
    assert sum(dict(narrow.derivation).values()) - sum(dict(wide.derivation).values()) == saved
    assert narrow.block_bytes == wide.block_bytes == 16 * 2 * 80 * 2 * 128 * 2
    assert (narrow.num_blocks - wide.num_blocks) - saved // wide.block_bytes in (0, 1)


def test_p16_fp8_keys_double_the_blocks_of_every_kind() -> None:
    for name in ("llama-3.1-8b", "qwen3-30b-a3b", "deepseek-v2-lite"):
        wide = capacity(MODELS[name])
        narrow = capacity(MODELS[name], kv_cache=Dtype.FLOAT8_E4M3)
        assert 2 * narrow.block_bytes == wide.block_bytes
        assert narrow.num_blocks - 2 * wide.num_blocks in (0, 1), name


def test_blocks_of_a_hybrid_are_pages_of_a_group() -> None:
    hybrid = capacity(MODELS["qwen3.5-27b"])
    assert hybrid.block_bytes == 49 * MIB
    left = sum(dict(hybrid.derivation).values())
    assert hybrid.num_blocks == left // (49 * MIB)
    (note,) = [note for note in hybrid.notes if note.startswith("KV on each rank")]
    assert "48 layers of state, 3207168 bytes a sequence" in note
    assert "16 of full attention (784 tokens)" in note
    oss = capacity(MODELS["gpt-oss-120b"])
    assert oss.block_bytes == 18 * 16 * 2048
    assert any("18 layers of sliding window, 2048 bytes a token of the last 128" in note for note in oss.notes)


def test_latent_keys_are_on_every_rank_and_whole_experts_weigh_what_slices_do() -> None:
    model = MODELS["deepseek-v3"]
    sliced, whole = (capacity(model, ranks=8, expert_parallel=each) for each in (False, True))
    assert sliced.block_bytes == whole.block_bytes == 16 * 61 * 576 * 2
    assert sliced.num_blocks == whole.num_blocks
    weights = -dict(sliced.derivation)["weights on each of 8 rank(s), float8_e4m3"]
    assert weights == rank_weights(model, 8, precision_of(model)).total_bytes
    assert any("latent attention" in note for note in sliced.notes)


def test_what_does_not_fit_or_cannot_be_split_is_one_error() -> None:
    with pytest.raises(CapacityError, match="no room for a KV cache: deepseek-v3 on h200") as info:
        capacity(MODELS["deepseek-v3"])
    assert "\n" not in str(info.value)
    with pytest.raises(ModelError, match="3 cannot be used with mixtral-8x7b"):
        capacity(MODELS["mixtral-8x7b"], ranks=3)


def test_a_pool_too_small_for_the_longest_sequence_is_noted() -> None:
    small = capacity(MODELS["mixtral-8x7b"], ranks=2, num_gpu_blocks_override=100, max_model_len=8192)
    assert any("99 blocks of 512 that 8192 tokens take" in note for note in small.notes)
    exact = capacity(MODELS["mixtral-8x7b"], ranks=2, num_gpu_blocks_override=513, max_model_len=8192)
    assert not any("refuse to start" in note for note in exact.notes)
