"""Configs of models that are not in the project's data, and configs that nobody would publish."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from isim.model.arithmetic import legal_tensor_parallel, parameters, rank_weights
from isim.model.groups import kv_groups
from isim.model.hf import import_config
from isim.model.hf_config import ConfigError
from isim.model.spec import ModelError, precision_of

# The keys that decide shapes, as the published configs have them, and the parameters the cards give in billions.
STATES = {
    "linear_conv_kernel_dim": 4,
    "linear_key_head_dim": 128,
    "linear_num_key_heads": 16,
    "linear_num_value_heads": 32,
    "linear_value_head_dim": 128,
}
MAMBA = {
    "mamba_n_heads": 128,
    "mamba_d_head": 64,
    "mamba_d_state": 128,
    "mamba_n_groups": 1,
    "mamba_d_conv": 4,
    "mamba_expand": 2,
    "mamba_conv_bias": True,
}
SHAPES = ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads")
MODELS: dict[str, tuple[str, tuple[int, ...], int, dict[str, Any], float]] = {
    "GLM-4.5-Air": (
        "glm4_moe",
        (4096, 10944, 46, 96, 8),
        151552,
        {"head_dim": 128, "attention_bias": True, "n_routed_experts": 128, "n_shared_experts": 1}
        | {"num_experts_per_tok": 8, "moe_intermediate_size": 1408, "first_k_dense_replace": 1},
        106,
    ),
    "Qwen3-Next-80B-A3B": (
        "qwen3_next",
        (2048, 5120, 48, 16, 2),
        151936,
        {"head_dim": 256, "num_experts": 512, "num_experts_per_tok": 10, "moe_intermediate_size": 512, **STATES}
        | {"shared_expert_intermediate_size": 512, "full_attention_interval": 4},
        80,
    ),
    "Llama-4-Maverick": (
        "llama4_text",
        (5120, 8192, 48, 40, 8),
        202048,
        {"head_dim": 128, "num_local_experts": 128, "num_experts_per_tok": 1, "interleave_moe_layer_step": 2}
        | {"intermediate_size_mlp": 16384, "attention_chunk_size": 8192},
        400,
    ),
    "Gemma-3-27B": (
        "gemma3_text",
        (5376, 21504, 62, 32, 16),
        262208,
        {"head_dim": 128, "sliding_window": 1024},
        27,
    ),
    "Granite-4.0-H-Small": (
        "granitemoehybrid",
        (4096, 768, 40, 32, 8),
        100352,
        {"num_local_experts": 72, "num_experts_per_tok": 10, "shared_intermediate_size": 1536, **MAMBA}
        | {"layer_types": (["mamba"] * 9 + ["attention"]) * 4, "tie_word_embeddings": True},
        32,
    ),
    "Mistral-7B-v0.1": ("mistral", (4096, 14336, 32, 32, 8), 32000, {"sliding_window": 4096}, 7.24),
    "Phi-3-mini": ("phi3", (3072, 8192, 32, 32, 32), 32064, {"sliding_window": 262144}, 3.8),
    "Qwen2-57B-A14B": (
        "qwen2_moe",
        (3584, 18944, 28, 28, 4),
        151936,
        {"num_experts": 64, "num_experts_per_tok": 8, "moe_intermediate_size": 2560}
        | {"shared_expert_intermediate_size": 20480},
        57.4,
    ),
    "Gemma-2-9B": ("gemma2", (3584, 14336, 42, 16, 8), 256000, {"head_dim": 256, "sliding_window": 4096}, 9.24),
}


@pytest.mark.parametrize("name", MODELS)
def test_other_published_models_have_the_parameters_of_their_cards(tmp_path: Path, name: str) -> None:
    kind, shape, vocab, more, billions = MODELS[name]
    keys = {"model_type": kind, "vocab_size": vocab, "max_position_embeddings": 131072, "torch_dtype": "bfloat16"}
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**keys, **dict(zip(SHAPES, shape, strict=True)), **more}))
    (tmp_path / "generation_config.json").write_text("{}")
    model = import_config(path)
    assert parameters(model).total / 1e9 == pytest.approx(billions, rel=0.01)
    assert not model.assumptions
    assert kv_groups(model, 1, precision_of(model), 16).block_bytes > 0


KEYS = [
    *SHAPES,
    *STATES,
    *MAMBA,
    "vocab_size",
    "max_position_embeddings",
    "head_dim",
    "model_type",
    "torch_dtype",
    "layer_types",
    "sliding_window",
    "kv_lora_rank",
    "q_lora_rank",
    "qk_nope_head_dim",
    "qk_rope_head_dim",
    "v_head_dim",
    "num_experts",
    "num_local_experts",
    "num_experts_per_tok",
    "moe_intermediate_size",
    "moe_layer_freq",
    "first_k_dense_replace",
    "mlp_only_layers",
    "attention_bias",
    "attention_chunk_size",
    "no_rope_layers",
    "quantization_config",
    "rope_scaling",
    "text_config",
    "mamba_ssm_dtype",
]
NAMES = ["llama", "qwen3_moe", "gpt_oss", "deepseek_v3", "gemma4_text", "bfloat16", "int4", "fp8", "awq"]
PLAIN = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-2, 9),
    st.sampled_from([64, 128, 4096, 10**9, 10**30, 0.5, 4.0, -1.0]),
    st.sampled_from(NAMES),
    st.lists(st.sampled_from(["full_attention", "sliding_attention", "linear_attention", "mamba", 1, 0]), max_size=4),
)
QUANTIZED = st.dictionaries(
    st.sampled_from(
        ["quant_method", "bits", "group_size", "weight_block_size", "ignore", "config_groups", "quant_algo"]
    ),
    st.one_of(PLAIN, st.sampled_from(["gptq", "fp8", "compressed-tensors", "modelopt", "NVFP4", [128, 128]])),
)
VALUES = st.one_of(PLAIN, QUANTIZED, st.dictionaries(st.sampled_from(KEYS), PLAIN, max_size=5))
SOUND = {
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "vocab_size": 640,
    "max_position_embeddings": 4096,
}


@settings(
    derandomize=True,
    deadline=None,
    max_examples=600,
    # Each example writes the file of the one before again; nothing of it is left to the next.
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(st.dictionaries(st.sampled_from(KEYS), VALUES, max_size=6))
def test_any_config_is_a_model_that_can_be_reckoned_with_or_one_located_error(
    tmp_path: Path, more: dict[str, Any]
) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**SOUND, **more}))
    try:
        model = import_config(path)
    except ConfigError as error:
        assert str(path) in str(error)
        assert "\n" not in str(error)
        return
    assert parameters(model).total > 0
    assert 1 in legal_tensor_parallel(model) or model.vocab_size % 1
    precision = precision_of(model)
    assert rank_weights(model, 1, precision).total_bytes > 0
    try:
        assert kv_groups(model, 1, precision, 16).block_bytes > 0
    except ModelError as error:
        assert "\n" not in str(error)


def test_a_plain_model_by_name_loads_nothing_of_the_others() -> None:
    script = (
        "import sys\nfrom isim.model.catalogue import MODELS\nfrom isim.assembly import parts_of\n"
        "from isim.scenario.load import load_scenario\n"
        f"parts_of(load_scenario({str(Path(__file__).parents[1] / 'scenarios' / 'quickstart.yaml')!r}))\n"
        "print(*(name for name in sys.modules if name.startswith(('isim.model.', 'isim.cost.'))))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    unwanted = ("layers", "layered", "matrices", "groups", "hf", "hf_config", "catalogue_layers", "mixers", "experts")
    assert [name for name in done.stdout.split() if name.rpartition(".")[2] in unwanted] == []
