"""Models of several kinds of layers: published counts, bytes worked by hand, and plain models seen the other way."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from isim.model.arithmetic import (
    check_tensor_parallel,
    kv_bytes_per_token,
    legal_tensor_parallel,
    parameters,
    rank_kv_bytes_per_token,
    rank_weights,
    state_bytes_per_sequence,
    token_flops,
)
from isim.model.catalogue import LAYERED, MODELS
from isim.model.catalogue_layers import LAYERED_MODELS
from isim.model.hf import import_config
from isim.model.layers import LINEAR_PARTS, Part, Quantization
from isim.model.matrices import layer_runs
from isim.model.spec import Dtype, ModelError, precision_of, spec_complaints

CONFIGS = Path(__file__).parents[1].parent / "shared" / "data" / "model_configs"
NO_CONFIGS = "the published configs (../shared/data/model_configs) are not here"

# Published totals in millions, and active parameters in billions where the card gives them. Mixtral, Qwen3, Scout:
# "total parameters" of the safetensors metadata on Hugging Face (Scout's includes 0.9 B of the vision part); Qwen3.5,
# DeepSeek and gpt-oss: the model cards (27B; 15.7B/2.4B, 671B/37B; 20.91B/3.61B and 116.83B/5.13B). Qwen3.6-27B: its
# name and card say 27B.
PUBLISHED = {
    "llama-4-scout": (108_641.8, 17),
    "mixtral-8x7b": (46_702.8, 12.9),
    "mixtral-8x22b": (140_620.6, 39),
    "qwen3-30b-a3b": (30_532.1, 3.3),
    "qwen3-235b-a22b": (235_093.6, 22),
    "qwen3.5-27b": (27_000, None),
    "qwen3.6-27b": (27_000, None),
    "deepseek-v2-lite": (15_706.5, 2.4),
    "deepseek-v3": (671_026.4, 37),
    "deepseek-r1": (671_026.4, 37),
    "gpt-oss-20b": (20_914.8, 3.6),
    "gpt-oss-120b": (116_829.2, 5.1),
}

CONFIG_FILES = {
    "llama-4-scout": "meta-llama--Llama-4-Scout-17B-16E-Instruct",
    "mixtral-8x7b": "mistralai--Mixtral-8x7B-v0.1",
    "mixtral-8x22b": "mistralai--Mixtral-8x22B-v0.1",
    "qwen3-30b-a3b": "Qwen--Qwen3-30B-A3B",
    "qwen3-235b-a22b": "Qwen--Qwen3-235B-A22B",
    "qwen3.5-27b": "Qwen--Qwen3.5-27B",
    "deepseek-v2-lite": "deepseek-v2-lite",
    "deepseek-v3": "deepseek-ai--DeepSeek-V3",
    "deepseek-r1": "deepseek-ai--DeepSeek-R1",
    "gpt-oss-20b": "openai--gpt-oss-20b",
    "gpt-oss-120b": "openai--gpt-oss-120b",
}


def test_parameter_counts_are_the_published_ones() -> None:
    assert tuple(LAYERED_MODELS) == LAYERED == tuple(PUBLISHED)
    for name, (millions, billions) in PUBLISHED.items():
        found = parameters(MODELS[name])
        assert abs(found.total / 1e6 - millions) <= millions / 100, name
        if billions is not None:
            # Cards round to whole billions, and count the embedding among the active or not.
            vocabulary = MODELS[name].vocab_size * MODELS[name].hidden_size / 1e9
            assert found.active / 1e9 - 0.05 * billions <= billions <= (found.active / 1e9 + vocabulary) * 1.05, name


@pytest.mark.skipif(not CONFIGS.is_dir(), reason=NO_CONFIGS)
@pytest.mark.parametrize("name", CONFIG_FILES)
def test_figures_are_those_of_the_published_config(name: str) -> None:
    model = MODELS[name]
    imported = import_config(CONFIGS / f"{CONFIG_FILES[name]}.json")
    for field in model.__struct_fields__:
        if field not in ("name", "sources", "assumptions", "sorted_sampling"):
            assert getattr(model, field) == getattr(imported, field), field


def test_figures_have_sources_and_a_substitution_says_so() -> None:
    for name in LAYERED:
        assert spec_complaints(MODELS[name]) == []
        assert "config.json" in MODELS[name].source_of("layers")
    successor, origin = MODELS["qwen3.6-27b"], MODELS["qwen3.5-27b"]
    assert "SUBSTITUTION" in successor.source_of("*")
    assert "Qwen3.5-27B" in successor.source_of("layers")
    assert successor.layers == origin.layers


def test_kv_bytes_worked_by_hand() -> None:
    bf16, fp8 = Dtype.BFLOAT16, Dtype.FLOAT8_E4M3
    # Latent attention keeps 512 + 64 numbers a token and layer, the same on every rank.
    assert kv_bytes_per_token(MODELS["deepseek-v3"], bf16) == 61 * 576 * 2 == 70_272
    assert rank_kv_bytes_per_token(MODELS["deepseek-v3"], 8, bf16) == 70_272
    assert rank_kv_bytes_per_token(MODELS["deepseek-v2-lite"], 2, fp8) == 27 * 576
    # Qwen3-30B-A3B: K and V, 48 layers, 4 heads of 128; from 4 ranks on each rank has one head.
    assert kv_bytes_per_token(MODELS["qwen3-30b-a3b"], bf16) == 2 * 48 * 4 * 128 * 2 == 98_304
    assert rank_kv_bytes_per_token(MODELS["qwen3-30b-a3b"], 8, bf16) == 98_304 // 4
    # Qwen3.5-27B: 16 attention layers of 4 heads of 256; 48 states of 3 x 10,240 bf16 and 48 x 128 x 128 float32.
    hybrid = MODELS["qwen3.5-27b"]
    assert kv_bytes_per_token(hybrid, bf16) == 2 * 16 * 4 * 256 * 2 == 65_536
    assert state_bytes_per_sequence(hybrid, 1, bf16) == 48 * (3 * 10_240 * 2 + 48 * 128 * 128 * 4) == 153_944_064
    assert state_bytes_per_sequence(hybrid, 8, bf16) == 153_944_064 // 8
    assert state_bytes_per_sequence(MODELS["qwen3-8b"], 1, bf16) == 0


def test_flops_of_a_token() -> None:
    # Two operations for each active parameter that is a matrix, and attention on top.
    for name in LAYERED:
        model = MODELS[name]
        active = parameters(model).active
        assert 1.9 * active < token_flops(model, 0) < 2.2 * active, name
    # DeepSeek-V3: 128 heads score 576 numbers and sum up 512 for each key, in 61 layers.
    deepseek = MODELS["deepseek-v3"]
    assert token_flops(deepseek, 1001) - token_flops(deepseek, 1) == 1000 * 61 * 128 * 2 * (576 + 512)
    # gpt-oss sees 128 keys in one half of its layers and all of them in the other, 64 heads of 64.
    oss = MODELS["gpt-oss-20b"]
    assert token_flops(oss, 5000) - token_flops(oss, 4000) == 1000 * 12 * 4 * 64 * 64
    assert token_flops(oss, 100) - token_flops(oss, 0) == 100 * 24 * 4 * 64 * 64


@pytest.mark.parametrize("name", ["llama-3.1-8b", "qwen3-14b", "qwen2.5-7b", "llama-2-70b"])
def test_a_plain_model_seen_as_layers_is_the_same_model(name: str) -> None:
    plain = MODELS[name]
    layered = msgspec.structs.replace(plain, layers=layer_runs(plain))
    assert not layered.plain
    assert parameters(layered).total == parameters(plain).total
    assert legal_tensor_parallel(layered) == legal_tensor_parallel(plain)
    assert token_flops(layered, 777) == token_flops(plain, 777)
    for ranks in legal_tensor_parallel(plain):
        for weights in (None, Dtype.FLOAT8_E4M3, Dtype.INT4):
            precision = precision_of(plain, weights=weights)
            same = rank_weights(layered, ranks, precision).total_bytes
            assert same == rank_weights(plain, ranks, precision).total_bytes
        for cache in (Dtype.BFLOAT16, Dtype.FLOAT8_E4M3):
            assert rank_kv_bytes_per_token(layered, ranks, cache) == rank_kv_bytes_per_token(plain, ranks, cache)


def test_one_rank_holds_the_checkpoint_and_ranks_replicate_what_they_must() -> None:
    for name in LAYERED:
        model = MODELS[name]
        whole = Dtype.BFLOAT16
        unquantised = precision_of(model, weights=whole)
        assert rank_weights(model, 1, unquantised).total_bytes == 2 * parameters(model).total, name
    # Mixtral-8x7B on 2 ranks: router (8 x 4096) and norms (2 x 4096) of 32 layers and the last norm are on both.
    mixtral = MODELS["mixtral-8x7b"]
    both = 2 * (32 * (8 * 4096 + 2 * 4096) + 4096)
    halves = 2 * rank_weights(mixtral, 2, precision_of(mixtral)).total_bytes
    assert halves == 2 * parameters(mixtral).total + both
    # The same with whole experts: four on each rank instead of half of each of eight.
    assert 2 * rank_weights(mixtral, 2, precision_of(mixtral), expert_parallel=True).total_bytes == halves


def test_published_checkpoints_take_what_their_quantisation_says() -> None:
    # gpt-oss: experts at 4.25 bits, all else bf16. The published checkpoint of 120b is 60.8 GiB, of 20b 12.8 GiB.
    for name, gib in (("gpt-oss-120b", 60.8), ("gpt-oss-20b", 12.8)):
        model = MODELS[name]
        (first, _) = model.layers
        experts = model.num_hidden_layers * first.ffn.experts * 3 * 2880 * 2880
        total = rank_weights(model, 1, precision_of(model)).total_bytes
        assert total == 2 * (parameters(model).total - experts) + experts * 17 // 32
        assert total / 2**30 == pytest.approx(gib, rel=0.03)
    # DeepSeek-V3: 8 bits and a float32 scale for each 128 x 128 block; its embedding, head, router and norms are bf16.
    deepseek = MODELS["deepseek-v3"]
    total = rank_weights(deepseek, 1, precision_of(deepseek)).total_bytes
    unquantised = 2 * 129280 * 7168 + 58 * 256 * 7168
    assert total == pytest.approx(parameters(deepseek).total * (1 + 4 / 16384) + unquantised, rel=1e-4)


def test_p15_four_bits_are_half_a_byte_a_weight_and_scales() -> None:
    model = MODELS["llama-3.1-70b"]
    scheme = Quantization(method="awq", weights=Dtype.INT4, group_elements=128, group_bits=16 + 4, parts=LINEAR_PARTS)
    packed = msgspec.structs.replace(model, quantization=scheme)
    precision = precision_of(packed)
    assert (precision.weights, precision.activations, precision.gemm) == (Dtype.INT4, Dtype.BFLOAT16, Dtype.BFLOAT16)
    linear = 80 * (8192 * 8192 * 2 + 2 * 8192 * 1024 + 3 * 8192 * 28672)
    wide = rank_weights(model, 4, precision_of(model)).total_bytes
    saved = linear // 4 * 2 - linear // 4 // 2 - linear // 4 // 128 * 20 // 8
    assert wide - rank_weights(packed, 4, precision).total_bytes == saved
    # Asked to be served in 16 bits, the checkpoint is widened.
    assert rank_weights(packed, 4, precision_of(packed, weights=Dtype.BFLOAT16)).total_bytes == wide


def test_nvfp4_is_four_and_a_half_bits_a_weight() -> None:
    scheme = Quantization(
        method="modelopt", weights=Dtype.FLOAT4_E2M1, group_elements=16, group_bits=8, parts=(Part.MLP,)
    )
    assert scheme.stored_bits(1600) == 1600 * 9 // 2
    assert scheme.stored_bits(17) == 17 * 4 + 2 * 8


def test_p58_an_illegal_split_is_one_error_listing_the_legal_ones() -> None:
    expected = {
        "qwen3-30b-a3b": (1, 2, 4, 8, 16, 32),
        "qwen3.5-27b": (1, 2, 4, 8),
        "deepseek-v3": (1, 2, 4, 8, 16),
        "gpt-oss-120b": (1, 2, 4, 8, 16, 32, 64),
        "llama-4-scout": (1, 2, 4, 8),
    }
    for name, legal in expected.items():
        assert legal_tensor_parallel(MODELS[name]) == legal, name
        with pytest.raises(ModelError, match="7 cannot be used with") as info:
            check_tensor_parallel(MODELS[name], 7)
        assert str(info.value).endswith(", ".join(map(str, legal)))
        assert "\n" not in str(info.value)
    # A slice of a block-quantised expert is a whole number of blocks; a whole expert always is.
    with pytest.raises(ModelError, match=r"2048 over it is 64, no multiple of the quantisation block 128"):
        check_tensor_parallel(MODELS["deepseek-v3"], 32)
    assert 16 in legal_tensor_parallel(MODELS["deepseek-v3"], expert_parallel=True)
