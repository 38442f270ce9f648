"""The catalogue against published counts, published configs and worked examples."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from isim.model.arithmetic import (
    attended_pairs,
    check_tensor_parallel,
    kv_bytes_per_token,
    legal_tensor_parallel,
    parameters,
    rank_kv_bytes_per_token,
    rank_shape,
    rank_weights,
    token_flops,
)
from isim.model.catalogue import MODELS
from isim.model.spec import Confidence, Dtype, ModelError, precision_of, spec_complaints, weakest

CONFIGS = Path(__file__).parents[1].parent / "shared" / "data" / "model_configs"

# Published counts: "total parameters" of the safetensors metadata on each model's Hugging Face page, except Llama 2,
# CodeLlama and Yi, whose model cards say 7B, 70B, 34B and 34B and whose exact counts are in the checkpoint index.
PUBLISHED = {
    "llama-2-7b": 6_738_415_616,
    "llama-2-70b": 68_976_648_192,
    "llama-3.1-8b": 8_030_261_248,
    "llama-3.1-70b": 70_553_706_496,
    "llama-3.3-70b": 70_553_706_496,
    "codellama-34b": 33_743_970_304,
    "mistral-nemo-12b": 12_247_782_400,
    "yi-34b": 34_388_917_248,
    "qwen2.5-7b": 7_615_616_512,
    "qwen3-8b": 8_190_735_360,
    "qwen3-14b": 14_768_307_200,
    "qwen3-32b": 32_762_123_264,
}

CONFIG_FILES = {
    "llama-2-7b": "llama-2-7b-hf",
    "llama-2-70b": "llama-2-70b-hf",
    "llama-3.1-8b": "meta-llama--Meta-Llama-3.1-8B",
    "llama-3.1-70b": "meta-llama--Meta-Llama-3.1-70B",
    "llama-3.3-70b": "llama-3.3-70b",
    "codellama-34b": "codellama-34b-instruct-hf",
    "mistral-nemo-12b": "mistral-nemo-instruct-2407",
    "yi-34b": "yi-34b",
    "qwen2.5-7b": "qwen2.5-7b-instruct",
    "qwen3-8b": "Qwen--Qwen3-8B",
    "qwen3-14b": "qwen3-14b",
    "qwen3-32b": "Qwen--Qwen3-32B",
}

PLAIN = {name: model for name, model in MODELS.items() if model.plain}


def test_parameter_counts_are_the_published_ones() -> None:
    assert sorted(PLAIN) == sorted(PUBLISHED)
    for name, published in PUBLISHED.items():
        assert abs(parameters(MODELS[name]).total - published) * 100 <= published, name


@pytest.mark.skipif(not CONFIGS.is_dir(), reason="the published configs (../shared/data/model_configs) are not here")
@pytest.mark.parametrize("name", CONFIG_FILES)
def test_figures_are_those_of_the_published_config(name: str) -> None:
    config = json.loads((CONFIGS / f"{CONFIG_FILES[name]}.json").read_text())
    model = MODELS[name]
    same = ("num_hidden_layers", "hidden_size", "intermediate_size", "num_attention_heads", "num_key_value_heads")
    for field in (*same, "vocab_size", "max_position_embeddings", "tie_word_embeddings"):
        assert getattr(model, field) == config[field], field
    assert model.head_dim == config.get("head_dim", config["hidden_size"] // config["num_attention_heads"])
    assert model.weight_dtype == config["torch_dtype"]
    assert model.o_bias == config.get("attention_bias", False)
    assert model.qkv_bias == (config["model_type"] == "qwen2" or config.get("attention_bias", False))
    assert model.qk_norm == (config["model_type"] == "qwen3")


def test_every_figure_has_a_source() -> None:
    for model in MODELS.values():
        assert spec_complaints(model) == []
        for field in model.__struct_fields__:
            assert model.source_of(field) != "not stated"


def test_kv_bytes_per_token_worked_by_hand() -> None:
    # Llama-3.1-8B: 2 (K, V) x 32 layers x 8 heads x 128 x 2 bytes = 128 KiB; half of it in fp8 (public case P16).
    llama = MODELS["llama-3.1-8b"]
    assert kv_bytes_per_token(llama, Dtype.BFLOAT16) == 131_072
    assert kv_bytes_per_token(llama, Dtype.FLOAT8_E4M3) == 65_536
    assert kv_bytes_per_token(MODELS["llama-2-7b"], Dtype.FLOAT16) == 512 << 10
    # Eight KV heads over 4 ranks are two a rank; over 64 ranks of Llama-2-70B one each, replicated eight times.
    assert rank_kv_bytes_per_token(MODELS["llama-2-70b"], 4, Dtype.FLOAT16) == 2 * 80 * 2 * 128 * 2
    assert rank_kv_bytes_per_token(MODELS["llama-2-70b"], 64, Dtype.FLOAT16) == 2 * 80 * 1 * 128 * 2


def test_one_rank_holds_the_whole_checkpoint() -> None:
    for name, model in PLAIN.items():
        if model.vocab_size % 64 == 0:
            total = rank_weights(model, 1, precision_of(model)).total_bytes
            assert total == 2 * parameters(model).total, name


def test_ranks_replicate_norms_and_scarce_heads_and_split_the_rest() -> None:
    for model in PLAIN.values():
        precision = precision_of(model)
        parts = parameters(model)
        for ranks in legal_tensor_parallel(model):
            norms = 2 * (parts.layers * parts.norms + parts.final_norm)
            norms += 2 * parts.layers * 2 * model.head_dim * model.qk_norm
            extra_heads = max(ranks - model.num_key_value_heads, 0)
            row = model.hidden_size + model.qkv_bias
            heads = 2 * parts.layers * extra_heads * 2 * model.head_dim * row
            whole = 2 * parts.total + norms * (ranks - 1) + heads
            assert ranks * rank_weights(model, ranks, precision).total_bytes == whole, (model.name, ranks)


def test_the_vocabulary_pads_to_64_rows() -> None:
    odd = msgspec.structs.replace(MODELS["llama-2-7b"], vocab_size=32_001)
    shape = rank_shape(odd, 2)
    assert (shape.vocab, shape.ranks) == (32_064 // 2, 2)


def test_quantised_weights_leave_head_embedding_and_norms_alone() -> None:
    model = MODELS["llama-3.1-8b"]
    plain = rank_weights(model, 1, precision_of(model))
    packed = rank_weights(model, 1, precision_of(model, weights=Dtype.INT4))
    assert 4 * packed.linear_bytes == plain.linear_bytes
    assert packed.total_bytes - packed.linear_bytes == plain.total_bytes - plain.linear_bytes
    assert precision_of(model, weights=Dtype.INT4).gemm is Dtype.BFLOAT16
    assert precision_of(model, weights=Dtype.FLOAT8_E4M3, activations=Dtype.FLOAT8_E4M3).gemm is Dtype.FLOAT8_E4M3


def test_p58_and_o4_an_illegal_split_is_one_error_listing_the_legal_ones() -> None:
    with pytest.raises(ModelError, match=r"6 cannot be used with qwen3-14b: .*40 attention heads.*: 1, 2, 4, 8$"):
        check_tensor_parallel(MODELS["qwen3-14b"], 6)
    for ranks in (0, -1, True, 3, 64, 10**12):
        with pytest.raises(
            ModelError, match=r"engine\.tensor_parallel_size.*Legal values: 1, 2, 4, 8, 16, 32$"
        ) as info:
            check_tensor_parallel(MODELS["llama-3.1-8b"], ranks)
        assert "\n" not in str(info.value)
    # Five ranks divide 40 heads, but 8 KV heads neither split over them nor repeat evenly.
    with pytest.raises(ModelError, match="8 key-value heads"):
        check_tensor_parallel(MODELS["qwen3-14b"], 5)


def test_flops_per_token_are_two_per_matrix_parameter_plus_attention() -> None:
    # The common closed form: 2 x (parameters outside embedding and norms) + 4 x layers x width x keys.
    for name in ("llama-2-7b", "llama-3.1-70b", "qwen3-32b"):
        model = MODELS[name]
        parts = parameters(model)
        norms = parts.layers * (parts.norms + 2 * model.head_dim * model.qk_norm) + parts.final_norm
        matrices = parts.total - parts.embedding - norms
        width = model.num_attention_heads * model.head_dim
        assert token_flops(model, 999) == 2 * matrices + 4 * model.num_hidden_layers * width * 1000


def test_attended_pairs_count_the_causal_triangle() -> None:
    for new in range(1, 20):
        for before in range(20):
            mask = [[key <= before + query for key in range(before + new)] for query in range(new)]
            assert attended_pairs(new, before) == sum(map(sum, mask))


def test_the_weakest_confidence_counts() -> None:
    assert weakest([]) is Confidence.EXACT
    assert weakest([Confidence.BOUNDED, Confidence.HEURISTIC, Confidence.EXACT]) is Confidence.HEURISTIC
    assert weakest([Confidence.CALIBRATED, Confidence.BOUNDED]) is Confidence.CALIBRATED


def test_explicit_models_are_told_everything_that_is_wrong() -> None:
    bad = msgspec.structs.replace(MODELS["llama-2-7b"], hidden_size=0, head_dim=True, weight_dtype=Dtype.INT4)
    assert [field for field, _ in spec_complaints(bad)] == ["hidden_size", "head_dim", "weight_dtype"]
    odd = msgspec.structs.replace(MODELS["llama-2-7b"], num_key_value_heads=5)
    assert [field for field, _ in spec_complaints(odd)] == ["num_key_value_heads"]
