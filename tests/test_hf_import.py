"""Configs of Hugging Face: published ones give published counts; what is not supported is said with its place."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from isim.assembly import parts_of
from isim.cli.main import main
from isim.model.arithmetic import parameters
from isim.model.hf import import_config, model_name
from isim.model.hf_config import ConfigError
from isim.model.layers import (
    Experts,
    FullAttention,
    LatentAttention,
    Mamba2,
    Part,
    SlidingAttention,
)
from isim.model.spec import Dtype, ModelSpec, precision_of
from isim.scenario.digest import scenario_digest
from isim.scenario.errors import ScenarioError
from isim.scenario.load import load_scenario
from isim.scenario.resolve import relocated, resolved_yaml

CONFIGS = Path(__file__).parents[1].parent / "shared" / "data" / "model_configs"
NO_CONFIGS = "the published configs (../shared/data/model_configs) are not here"

# Billions of parameters as the model cards and names say them, for the configs that are not in the catalogue's tests.
CARDS = {
    "MiniMaxAI--MiniMax-M2.5": 229,
    "Qwen--Qwen3-0.6B": 0.596,
    "Qwen--Qwen3-30B-A3B-FP8": 30.53,
    "Qwen--Qwen3.5-35B-A3B": 35,
    "google--gemma-4-26B-A4B": 25.2,
    "meta-llama--Meta-Llama-3.1-405B": 405.9,
    "moonshotai--Kimi-K2-Instruct": 1026.4,
}

LLAMA = {
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "vocab_size": 640,
    "max_position_embeddings": 4096,
    "torch_dtype": "bfloat16",
    "rms_norm_eps": 1e-5,
}
MLA = {"kv_lora_rank": 32, "q_lora_rank": None, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8, "v_head_dim": 16}
EXPERTS = {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 32}


def write(folder: Path, keys: dict[str, Any], **beside: dict[str, Any]) -> Path:
    (folder / "config.json").write_text(json.dumps(keys, indent=2))
    for name, content in beside.items():
        (folder / f"{name}.json").write_text(json.dumps(content))
    return folder / "config.json"


def read(folder: Path, more: dict[str, Any], **beside: dict[str, Any]) -> ModelSpec:
    return import_config(write(folder, {**LLAMA, **more}, **beside))


# ---- published configs


@pytest.mark.skipif(not CONFIGS.is_dir(), reason=NO_CONFIGS)
def test_every_published_config_imports_and_can_be_deployed() -> None:
    paths = sorted(CONFIGS.glob("*.json"))
    assert len(paths) >= 30
    for path in paths:
        model = import_config(path)
        billions = CARDS.get(path.stem)
        if billions is not None:
            assert parameters(model).total / 1e9 == pytest.approx(billions, rel=0.01), path.stem
        assert model.name == path.stem
        assert not any("is not a key that isim knows" in each for each in model.assumptions or ()), path.stem


@pytest.mark.skipif(not CONFIGS.is_dir(), reason=NO_CONFIGS)
def test_formats_of_published_quantised_checkpoints() -> None:
    oss = import_config(CONFIGS / "openai--gpt-oss-120b.json")
    assert oss.quantization.parts == (Part.EXPERTS,)
    precision = precision_of(oss)
    assert (precision.weights, precision.gemm, precision.kv_cache) == (
        Dtype.FLOAT4_E2M1,
        Dtype.BFLOAT16,
        Dtype.BFLOAT16,
    )
    fp8 = import_config(CONFIGS / "Qwen--Qwen3-30B-A3B-FP8.json")
    assert fp8.quantization.parts == (Part.ATTENTION, Part.EXPERTS)
    assert precision_of(fp8).gemm is Dtype.FLOAT8_E4M3
    assert precision_of(fp8).kv_cache is Dtype.BFLOAT16
    gemma = import_config(CONFIGS / "google--gemma-4-26B-A4B.json")
    sliding, full = gemma.layers
    assert (sliding.count, sliding.mixer.head_dim, sliding.mixer.window_tokens) == (25, 256, 1024)
    assert (full.count, full.mixer.head_dim, full.mixer.kv_heads, full.mixer.key_is_value) == (5, 512, 2, True)


# ---- kinds of layers


def test_a_plain_config_is_a_plain_model(tmp_path: Path) -> None:
    model = read(tmp_path, {"attention_bias": True})
    assert model.plain
    assert (model.head_dim, model.qkv_bias, model.o_bias, model.name) == (8, True, True, tmp_path.name)
    assert read(tmp_path, {"num_key_value_heads": None}).num_key_value_heads == 8


def test_layers_listed_one_by_one(tmp_path: Path) -> None:
    kinds = ["sliding_attention", "full_attention", "sliding_attention", "sliding_attention"]
    model = read(tmp_path, {"layer_types": kinds, "sliding_window": 100})
    assert [(run.count, type(run.mixer)) for run in model.layers] == [(3, SlidingAttention), (1, FullAttention)]
    # A window that no sequence outgrows is none.
    assert read(tmp_path, {"layer_types": kinds, "sliding_window": 4096}).plain
    assert read(tmp_path, {"sliding_window": 100, "use_sliding_window": False}).plain
    assert read(tmp_path, {"sliding_window": 100}).layers[0].mixer.window_tokens == 100


def test_experts_under_all_their_names(tmp_path: Path) -> None:
    for key in ("num_experts", "num_local_experts", "n_routed_experts"):
        more = {key: 8, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "first_k_dense_replace": 1}
        model = read(tmp_path, {**more, "n_shared_experts": 2})
        assert [run.count for run in model.layers] == [1, 3]
        assert model.layers[1].ffn == Experts(experts=8, experts_per_token=2, intermediate=32, shared_intermediate=64)
    every_other = read(tmp_path, {**EXPERTS, "decoder_sparse_step": 2})
    assert [run.count for run in every_other.layers] == [2, 2]
    listed = read(tmp_path, {**EXPERTS, "mlp_only_layers": [0, 3], "moe_layer_freq": [1, 1, 0, 1]})
    assert {type(run.ffn).__name__: run.count for run in listed.layers} == {"DenseMlp": 3, "Experts": 1}


def test_latent_attention_and_states(tmp_path: Path) -> None:
    (run,) = read(tmp_path, MLA).layers
    assert run.mixer == LatentAttention(heads=8, q_lora_rank=0, kv_lora_rank=32, nope_dim=16, rope_dim=8, value_dim=16)
    mamba = {"mamba_n_heads": 16, "mamba_d_head": 8, "mamba_d_state": 32, "mamba_ssm_dtype": "float32"}
    model = read(tmp_path, {"layer_types": ["mamba", "attention"] * 2, **mamba})
    assert [type(run.mixer) for run in model.layers] == [Mamba2, FullAttention]
    # In: z and x of 128, B and C of 32, dt of 16; convolution over 192 with bias; A, D and dt biases; norm; out.
    per_layer = 64 * (128 + 192 + 16) + 192 * (4 + 1) + 3 * 16 + 128 + 128 * 64
    attention = 64 * (64 + 2 * 16) + 64 * 64
    common = 4 * (3 * 64 * 128 + 2 * 64) + 64 + 2 * 640 * 64
    assert parameters(model).total == 2 * per_layer + 2 * attention + common


def test_a_nested_text_model_is_found_and_the_rest_is_said_to_be_left_out(tmp_path: Path) -> None:
    path = write(tmp_path, {"model_type": "llava", "text_config": LLAMA, "vision_config": {"hidden_size": 32}})
    model = import_config(path)
    assert model.plain
    assert any("no vision" in each for each in model.assumptions)


# ---- quantisation


@pytest.mark.parametrize(
    ("block", "weights", "activations", "bits_of_1024"),
    [
        ({"quant_method": "awq", "bits": 4, "group_size": 128}, Dtype.INT4, None, 4096 + 8 * 20),
        ({"quant_method": "gptq", "bits": 8, "group_size": -1}, Dtype.INT8, None, 8192),
        ({"quant_method": "fp8"}, Dtype.FLOAT8_E4M3, Dtype.FLOAT8_E4M3, 8192),
        ({"quant_method": "mxfp4"}, Dtype.FLOAT4_E2M1, None, 4096 + 32 * 8),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, Dtype.FLOAT4_E2M1, Dtype.FLOAT4_E2M1, 1024 * 9 // 2),
        ({"quant_method": "bitsandbytes", "load_in_8bit": True}, Dtype.INT8, None, 8192),
        (
            {
                "quant_method": "compressed-tensors",
                "ignore": ["lm_head"],
                "config_groups": {
                    "group_0": {
                        "weights": {"num_bits": 8, "type": "int", "strategy": "channel"},
                        "input_activations": {"num_bits": 8, "type": "int"},
                    }
                },
            },
            Dtype.INT8,
            Dtype.INT8,
            8192,
        ),
    ],
)
def test_ways_to_quantise(
    tmp_path: Path, block: dict[str, Any], weights: Dtype, activations: Dtype | None, bits_of_1024: int
) -> None:
    found = read(tmp_path, {**EXPERTS, "quantization_config": block}).quantization
    assert (found.weights, found.activations) == (weights, activations)
    assert found.stored_bits(1024) == bits_of_1024
    assert found.parts == ((Part.EXPERTS,) if block["quant_method"] == "mxfp4" else (Part.ATTENTION, Part.EXPERTS))


def test_modules_left_alone(tmp_path: Path) -> None:
    for pattern in ("model.layers.*.self_attn", "re:.*self_attn.*", "self_attn"):
        block = {"quant_method": "fp8", "modules_to_not_convert": [pattern, "lm_head", "mlp.gate"]}
        assert read(tmp_path, {"quantization_config": block}).quantization.parts == (Part.MLP,)
    first = {"quant_method": "fp8", "modules_to_not_convert": ["model.layers.0.self_attn"]}
    model = read(tmp_path, {"quantization_config": first})
    assert Part.ATTENTION in model.quantization.parts
    assert any("of 1 of 4 layers are not quantised" in each for each in model.assumptions)


def test_modelopt_writes_its_quantisation_beside_the_config(tmp_path: Path) -> None:
    beside = {"quantization": {"quant_algo": "NVFP4", "kv_cache_quant_algo": "FP8", "exclude_modules": ["lm_head"]}}
    model = read(tmp_path, {}, hf_quant_config=beside)
    assert model.quantization.weights is Dtype.FLOAT4_E2M1
    assert any("quantised KV cache" in each for each in model.assumptions)


# ---- sampling, assumptions, errors


def test_default_sampling_is_read_beside_the_config(tmp_path: Path) -> None:
    assert any("no generation_config.json" in each for each in read(tmp_path, {}).assumptions)
    for content, cut in (({"top_p": 0.9}, True), ({"top_k": 20}, True), ({"top_p": 1.0}, False), ({}, False)):
        model = read(tmp_path, {}, generation_config=content)
        assert model.sorted_sampling is cut
        assert not model.assumptions
        assert "generation_config.json" in model.source_of("sorted_sampling")


def test_what_is_not_known_is_assumed_aloud(tmp_path: Path) -> None:
    path = write(tmp_path, {**LLAMA, "model_type": "strange", "frobnicate": 3}, generation_config={})
    first, second = import_config(path).assumptions
    assert "model_type 'strange' is not known" in first
    assert (
        second
        == f"{tmp_path.name}/config.json:12:3: frobnicate is not a key that isim knows; it is taken to change no cost"
    )
    stretched = read(tmp_path, {"rope_scaling": {"rope_type": "yarn", "factor": 4.0}}, generation_config={})
    assert stretched.max_position_embeddings == 4 * 4096
    assert "16384" in stretched.assumptions[0]


@pytest.mark.parametrize(
    ("more", "key", "text"),
    [
        ({"layer_types": ["full_attention"] * 3}, "layer_types", 'found "a list of 3"; supported is a list with'),
        ({"layer_types": ["conv"] * 4}, "layer_types", 'found "conv"; supported is one of full_attention'),
        ({"num_attention_heads": "many"}, "num_attention_heads", 'found "many"; supported is a whole number'),
        ({"hidden_size": None}, "hidden_size", "found nothing; supported is a whole number"),
        ({"num_key_value_heads": 3}, "num_key_value_heads", "found 3; supported is a divisor of 8"),
        ({"index_topk": 2048}, "index_topk", "found 2048; supported is no such key (sparse attention"),
        ({"num_kv_shared_layers": 2}, "num_kv_shared_layers", "found 2; supported is 0 (layers that share"),
        ({"quantization_config": {"quant_method": "vq"}}, "quant_method", 'found "vq"; supported is one of awq'),
        ({"torch_dtype": "int4"}, "torch_dtype", 'found "int4"; supported is bfloat16, float16 or float32'),
        ({**EXPERTS, "num_experts_per_tok": 9}, "num_experts_per_tok", "found 9; supported is at most the 8 experts"),
        ({"num_hidden_layers": 10**9}, "num_hidden_layers", "found 1000000000; supported is at most 10000"),
        ({"num_attention_heads": 10**9}, "num_attention_heads", "found 1000000000; supported is at most 100000"),
        ({"num_attention_heads": 128}, "num_attention_heads", "found 128; supported is at most hidden_size where"),
        ({"attention_bias": "yes"}, "attention_bias", 'found "yes"; supported is true or false'),
    ],
)
def test_what_is_not_supported_is_refused_with_its_place(
    tmp_path: Path, more: dict[str, Any], key: str, text: str
) -> None:
    path = write(tmp_path, {**LLAMA, **more})
    with pytest.raises(ConfigError) as info:
        import_config(path)
    message = str(info.value)
    line = next(number for number, line in enumerate(path.read_text().splitlines(), 1) if f'"{key}"' in line)
    assert message.startswith(f"{path}:{line}:")
    assert f": {key}: {text}" in message
    assert "\n" not in message


@pytest.mark.parametrize("kind", ["jamba", "gpt2", "falcon_h1", "t5"])
def test_families_that_are_not_modelled_are_named(tmp_path: Path, kind: str) -> None:
    with pytest.raises(ConfigError, match=rf":2:3: model_type: found '{kind}', which has"):
        read(tmp_path, {"model_type": kind})


@pytest.mark.parametrize("text", ["", "{", "[]", "3", '{"hidden_size": 3}', "\x00", '{"a": "\ud800"}'])
def test_files_that_are_no_config(tmp_path: Path, text: str) -> None:
    path = tmp_path / "config.json"
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    with pytest.raises(ConfigError, match=r"config\.json"):
        import_config(path)
    with pytest.raises(ConfigError, match="found none"):
        import_config(tmp_path / "other.json")


def test_names() -> None:
    assert model_name("models/Qwen3-8B/config.json") == "Qwen3-8B"
    assert model_name("models/qwen.json") == "qwen"


# ---- in a run file

RUN_FILE = """
schema_version: 1
hardware: {gpu: h100-sxm}
model: %s
workload: {kind: generated, arrivals: {kind: fixed_rate, rate: 10 /s}, requests: 5, input_tokens: 50, output_tokens: 5}
cost: roofline
"""


def run_file(folder: Path, model: str) -> Path:
    (folder / "run.yaml").write_text(RUN_FILE % model)
    return folder / "run.yaml"


def test_a_run_file_names_a_config(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "tiny").mkdir()
    write(tmp_path / "tiny", {**LLAMA, **EXPERTS, "quantization_config": {"quant_method": "fp8"}})
    path = run_file(tmp_path, "tiny/config.json")
    scenario = load_scenario(path)
    assert scenario.model.spec.name == "tiny"
    assert (scenario.model.weight_dtype, scenario.model.activation_dtype) == (Dtype.FLOAT8_E4M3, Dtype.FLOAT8_E4M3)
    assert scenario.engine.kv_cache_dtype is Dtype.BFLOAT16
    # Written out elsewhere and read again it is the same.
    moved = relocated(scenario, tmp_path, tmp_path / "tiny")
    (tmp_path / "tiny" / "again.yaml").write_text(resolved_yaml(moved))
    again = load_scenario(tmp_path / "tiny" / "again.yaml")
    assert again.model.path == "config.json"
    assert again.engine == scenario.engine
    assert scenario_digest(again) == scenario_digest(scenario)
    assert main(["run", str(path), "--json"]) == 0
    assumptions = json.loads(capsys.readouterr().out)["assumptions"]
    assert any("there is no generation_config.json" in each for each in assumptions)


def test_nvfp4_is_widened_where_the_gpu_has_no_rate_for_it(tmp_path: Path) -> None:
    write(tmp_path, {**LLAMA, "quantization_config": {"quant_method": "modelopt", "quant_algo": "NVFP4"}})
    path = run_file(tmp_path, "config.json")
    assert load_scenario(path).model.activation_dtype is Dtype.BFLOAT16
    assert load_scenario(path, ["hardware.gpu=b200"]).model.activation_dtype is Dtype.FLOAT4_E2M1
    assert any("weights are widened" in each for each in parts_of(load_scenario(path)).cost.assumptions)
    with pytest.raises(ScenarioError, match="expected a published dense rate of float4_e2m1, found none for h100-sxm"):
        load_scenario(path, ["model.activation_dtype=fp4"])
    with pytest.raises(ScenarioError, match=r"engine\.kv_cache_dtype: expected one of auto, .* found the text \"fp4\""):
        load_scenario(path, ["engine.kv_cache_dtype=fp4"])


def test_fp8_on_a_gpu_without_a_rate_for_it_is_widened_only_when_asked(tmp_path: Path) -> None:
    write(tmp_path, {**LLAMA, "quantization_config": {"quant_method": "fp8"}})
    path = run_file(tmp_path, "config.json")
    with pytest.raises(ScenarioError, match="expected a published dense rate of float8_e4m3, found none for a100-80gb"):
        load_scenario(path, ["hardware.gpu=a100-80gb"])
    asked = load_scenario(path, ["hardware.gpu=a100-80gb", "model.activation_dtype=bf16"])
    assert asked.model.weight_dtype is Dtype.FLOAT8_E4M3
    assert any("weights are widened" in each for each in parts_of(asked).cost.assumptions)


def test_complaints_about_a_config_have_the_place_in_both_files(tmp_path: Path) -> None:
    write(tmp_path, {**LLAMA, "index_topk": 3})
    with pytest.raises(ScenarioError) as info:
        load_scenario(run_file(tmp_path, "{name: config.json, head_dim: 64}"))
    first, second = str(info.value).splitlines()
    assert "model.name: " in first
    assert f"{tmp_path / 'config.json'}:12:3: index_topk: found 3" in first
    assert "model.head_dim: expected nothing beside a config.json" in second
    with pytest.raises(ScenarioError, match=r"model\.head_dim: expected nothing, as the layers of this model"):
        load_scenario(run_file(tmp_path, "{name: mixtral-8x7b, head_dim: 64}"))
    load_scenario(run_file(tmp_path, "{name: mixtral-8x7b, max_position_embeddings: 1000}"))


def test_experts_in_parallel_in_a_run_file(tmp_path: Path) -> None:
    path = run_file(tmp_path, "qwen3-30b-a3b")
    sets = ["engine.tensor_parallel_size=4", "engine.enable_expert_parallel=true"]
    scenario = load_scenario(path, sets)
    assert any("whole experts on each rank" in each for each in parts_of(scenario).cost.assumptions)
    assert "enable_expert_parallel: true" in resolved_yaml(scenario)
    without = load_scenario(path, [sets[0], "engine.enable_expert_parallel=false"])
    assert scenario_digest(without) == scenario_digest(load_scenario(path, [sets[0]]))
    assert scenario_digest(without) != scenario_digest(scenario)
    with pytest.raises(
        ScenarioError, match=r"engine\.enable_expert_parallel: expected false, as qwen3-8b has no experts"
    ):
        load_scenario(path, ["model=qwen3-8b", "engine.enable_expert_parallel=true"])
    with pytest.raises(ScenarioError, match=r"3 cannot be used with qwen3-30b-a3b: .*Legal values: 1, 2, 4, 8, 16, 32"):
        load_scenario(path, ["engine.tensor_parallel_size=3"])


def test_models_of_several_groups_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", str(run_file(tmp_path, "gpt-oss-20b"))]) == 0
    assert "12 of sliding window" in capsys.readouterr().out
