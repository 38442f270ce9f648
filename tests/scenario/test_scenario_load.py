"""What a run file may say, what is said about one that is wrong, and where."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from isim.model.spec import Dtype
from isim.record.records import EngineVersion, LinearCoefficients, SchedulingPolicy
from isim.scenario.errors import ScenarioError
from isim.scenario.load import load_scenario, read_scenario
from isim.scenario.types import (
    AzureTrace,
    Constant,
    FixedRate,
    Generated,
    Linear,
    Ratio,
    RequestFile,
    RequestFormat,
    Roofline,
    Scenario,
    UnpublishedRate,
    WarmupDuration,
    WarmupRequests,
    WarmupShare,
    Window,
)

GOOD = """\
schema_version: 1
hardware:
  gpu: h100-sxm
  count: 2
model: llama-3.1-8b
engine:
  version: "0.21"
workload:
  kind: generated
  arrivals: {kind: fixed_rate, rate: 4 /s}
  requests: 10
  input_tokens: 2048
  output_tokens: 128
cost: roofline
"""


def load(text: str, *sets: str) -> Scenario:
    return read_scenario(text.encode(), "run.yaml", sets)


def complaints(text: str, *sets: str) -> list[str]:
    with pytest.raises(ScenarioError) as caught:
        load(text, *sets)
    assert caught.value.exit_code == 2
    assert str(caught.value).splitlines() == [each.text("run.yaml") for each in caught.value.complaints]
    return str(caught.value).splitlines()


def test_values_of_a_whole_file() -> None:
    scenario = load(GOOD)
    assert scenario.name == "run"
    assert scenario.hardware.gpu.name == "h100-sxm"
    assert scenario.hardware.count == 2
    assert scenario.workload == Generated(
        arrivals=FixedRate(rate_per_s=Ratio(numerator=4)),
        requests=10,
        input_tokens=Constant(tokens=2048),
        output_tokens=Constant(tokens=128),
    )
    assert scenario.cost == Roofline(unpublished_rate=UnpublishedRate.ERROR)
    assert scenario.simulation.seed == 0
    assert scenario.simulation.max_events == 100_000_000
    assert (scenario.simulation.max_stretch, scenario.simulation.warmup) == (None, None)
    assert scenario.model.weight_dtype is scenario.model.activation_dtype is Dtype.BFLOAT16


def test_engine_defaults_are_those_of_the_engine_page() -> None:
    engine = load(GOOD).engine
    assert engine.version is EngineVersion.V021
    assert (engine.enable_chunked_prefill, engine.enable_prefix_caching, engine.async_scheduling) == (True, True, True)
    assert engine.scheduler_reserve_full_isl is True
    assert engine.long_prefill_token_threshold == 0
    assert engine.block_size == 16
    assert engine.gpu_memory_utilization_ppm == 920_000
    assert engine.max_model_len == 131_072
    assert engine.kv_cache_dtype is Dtype.BFLOAT16
    assert engine.num_gpu_blocks_override is None
    assert engine.scheduling_policy is SchedulingPolicy.FCFS


@pytest.mark.parametrize(
    ("gpu", "version", "sequences", "tokens"),
    [
        ("h100-sxm", "0.21", 1024, 8192),
        ("a100-80gb", "0.21", 256, 2048),
        ("l40s", "0.21", 256, 2048),
        ("h20", "0.33", 1024, 8192),
        ("mi300x", "0.21", 1024, 8192),
        ("mi300x", "0.33", 1024, 16384),
        ("b200", "0.33", 1024, 16384),
        ("h200", "0.33", 1024, 8192),
    ],
)
def test_batch_defaults_by_gpu_and_version(gpu: str, version: str, sequences: int, tokens: int) -> None:
    engine = load(GOOD, f"hardware.gpu={gpu}", f"engine.version={version}").engine
    assert (engine.max_num_seqs, engine.max_num_batched_tokens) == (sequences, tokens)


def test_batch_defaults_bend_to_each_other() -> None:
    few = load(GOOD, "engine.max_num_seqs=4", "engine.max_model_len=100").engine
    assert few.max_num_batched_tokens == 400
    small = load(GOOD, "engine.max_num_batched_tokens=64").engine
    assert small.max_num_seqs == 64
    whole = load(GOOD, "engine.enable_chunked_prefill=false").engine
    assert whole.max_num_batched_tokens == 131_072


def test_version_020_is_021() -> None:
    assert load(GOOD, "engine.version=0.20") == load(GOOD)


def test_json_is_read_by_the_same_code() -> None:
    tree = {
        "schema_version": 1,
        "hardware": {"gpu": "h100-sxm", "count": 2},
        "model": "llama-3.1-8b",
        "workload": {
            "kind": "generated",
            "arrivals": {"kind": "fixed_rate", "rate": "4 /s"},
            "requests": 10,
            "input_tokens": 2048,
            "output_tokens": {"kind": "constant", "tokens": 128},
        },
        "cost": {"kind": "roofline"},
    }
    for text in (json.dumps(tree), json.dumps(tree, indent=2), json.dumps(tree, indent="\t")):
        assert load(text) == load(GOOD)
    assert load(json.dumps(tree | {"name": "\U0001f600 é"})).name == "\U0001f600 é"


def test_line_ends_and_byte_order_mark_change_nothing() -> None:
    assert load(GOOD.replace("\n", "\r\n")) == load(GOOD)
    assert load("\ufeff" + GOOD) == load(GOOD)


def test_linear_cost_traces_windows_and_warmup() -> None:
    text = GOOD.replace(
        "cost: roofline", "cost: {kind: linear, base: 7.2 ms, per_token: 1.5 us, per_context_token: 39 ps}"
    )
    assert load(text).cost == Linear(
        coefficients=LinearCoefficients(
            base_ps=7_200_000_000, per_token_ps=1_500_000, per_request_ps=0, per_context_token_ps=39
        )
    )
    head, tail = GOOD.split("workload:")[0], "cost: roofline\n"
    trace = "workload: {kind: azure_trace, path: t.csv, limit: 5, time_scale: 0.5, window: {start: 1 s, end: 2 min}}\n"
    window = Window(start_ns=10**9, end_ns=120 * 10**9)
    half = Ratio(numerator=1, denominator=2)
    assert load(head + trace + tail).workload == AzureTrace(path="t.csv", limit=5, time_scale=half, window=window)
    own = "workload: {kind: request_file, path: r, format: jsonl}\n"
    one = Ratio(numerator=1)
    expected = RequestFile(path="r", format=RequestFormat.JSONL, limit=None, time_scale=one, window=None)
    assert load(head + own + tail).workload == expected
    assert load(GOOD, "simulation.warmup=30 s").simulation.warmup == WarmupDuration(duration_ns=30 * 10**9)
    assert load(GOOD, "simulation.warmup=100 requests").simulation.warmup == WarmupRequests(requests=100)
    assert load(GOOD, "simulation.warmup=10%").simulation.warmup == WarmupShare(share_ppm=100_000)
    assert load(GOOD, "simulation.warmup=none").simulation.warmup is None


def test_explicit_gpu_and_model() -> None:
    text = GOOD.replace(
        "gpu: h100-sxm",
        "gpu: {name: mine, memory: 48 GiB, memory_bandwidth: 1 TB/s, dense_flops: {bfloat16: 100 TFLOPS}}\n"
        "  interconnect: {kind: pcie, bandwidth: 32 GB/s}",
    ).replace(
        "model: llama-3.1-8b",
        "model: {name: tiny, num_hidden_layers: 2, hidden_size: 64, intermediate_size: 128, num_attention_heads: 4,\n"
        "  num_key_value_heads: 2, head_dim: 16, vocab_size: 1000, max_position_embeddings: 512}",
    )
    scenario = load(text)
    gpu, spec = scenario.hardware.gpu, scenario.model.spec
    assert (gpu.name, gpu.memory_bytes, gpu.memory_bandwidth_bytes_per_s) == ("mine", 48 << 30, 10**12)
    assert gpu.dense_flops == {Dtype.BFLOAT16: 100 * 10**12}
    assert scenario.hardware.interconnect is not None
    assert scenario.hardware.interconnect.bandwidth_bytes_per_s == 32 * 10**9
    assert (spec.num_hidden_layers, spec.head_dim, scenario.engine.max_model_len) == (2, 16, 512)
    assert (gpu.source_of("memory_bytes"), spec.source_of("head_dim")) == ("the run file", "the run file")
    assert (scenario.engine.max_num_seqs, scenario.engine.max_num_batched_tokens) == (256, 2048)


def test_figures_beside_a_preset_replace_only_themselves() -> None:
    plain, changed = (
        load(GOOD),
        load(GOOD, "hardware.gpu.memory=64 GiB", "hardware.gpu.dense_flops.bfloat16=900 TFLOPS"),
    )
    gpu, preset = changed.hardware.gpu, plain.hardware.gpu
    assert gpu.memory_bytes == 64 << 30
    assert gpu.dense_flops == {**preset.dense_flops, Dtype.BFLOAT16: 900 * 10**12}
    assert gpu.memory_bandwidth_bytes_per_s == preset.memory_bandwidth_bytes_per_s
    assert gpu.source_of("memory_bytes") == "the run file"
    assert gpu.source_of("link") == preset.source_of("link")


EVERYTHING_WRONG = """\
schema_version: 2
hardwear: {gpu: h100}
hardware: {gpu: h100, count: 2}
model:
  name: llama-3.1-8b
  weigth_dtype: bf16
engine:
  version: 0.33
  tensor_parallel_size: 6
  max_num_seqs: "64"
  max_num_batched_tokens: 1e3
  block_size: true
  enable_chunked_prefill: yes
  max_model_len: 200000
workload:
  kind: generated
  arrivals: {kind: poisson, rate: 4}
  requests: 10
  requests: 11
  input_tokens: 0
  output_tokens: {kind: uniform, low: 9, high: 3}
cost: {kind: linear, base: 5, per_token: 0.5 ps}
simulation:
  warmup: 10
"""


def test_all_complaints_come_at_once_in_order() -> None:
    engine = "run.yaml:9:25: engine.tensor_parallel_size: expected"
    top = "schema_version, name, hardware, model, engine, replicas, router, clients, workload, cost, simulation, slo"
    lines = complaints(EVERYTHING_WRONG)
    model_line = lines.pop(3)
    assert model_line.startswith("run.yaml:6:3: model.weigth_dtype: expected one of the keys name, weight_dtype, ")
    assert model_line.endswith('found an unknown key; did you mean "weight_dtype"?')
    assert lines == [
        "run.yaml:1:17: schema_version: expected 1, found the whole number 2",
        f'run.yaml:2:1: hardwear: expected one of the keys {top}, found an unknown key; did you mean "hardware"?',
        "run.yaml:3:17: hardware.gpu.name: expected the name of a GPU (`isim presets gpus` lists them), "
        'found "h100"; did you mean "h100-sxm" or "h100-pcie"?',
        'run.yaml:8:12: engine.version: expected one of "0.21", "0.20", "0.33" (in quotes: "0.33"), '
        "found the number 0.33",
        f"{engine} at most the number of GPUs, found 6; hardware.count is 2 (run.yaml:3:30)",
        f"{engine} one of 1, 2, 4, 8, 16, 32, into which 32 attention and 8 key-value heads can be split, found 6; "
        "model.name is llama-3.1-8b (run.yaml:5:9)",
        'run.yaml:10:17: engine.max_num_seqs: expected a whole number of at least 1, found the text "64"',
        "run.yaml:11:27: engine.max_num_batched_tokens: expected a whole number from 1 to 1000000000, "
        "found the number 1e3",
        "run.yaml:12:15: engine.block_size: expected a whole number from 1 to 65536, found true",
        'run.yaml:13:27: engine.enable_chunked_prefill: expected true or false, found the text "yes"',
        "run.yaml:14:18: engine.max_model_len: expected at most the model's max_position_embeddings, 131072, "
        "found 200000",
        'run.yaml:17:35: workload.arrivals.rate: expected a rate with its unit, such as "4 /s" or "240 per minute", '
        "found the whole number 4",
        "run.yaml:19:3: workload.requests: expected each key once, found it again; first on line 18, column 3",
        "run.yaml:20:17: workload.input_tokens.tokens: expected a whole number from 1 to 1000000000, "
        "found the whole number 0",
        "run.yaml:21:48: workload.output_tokens.high: expected at least low, found 3; workload.output_tokens.low is 9 "
        "(run.yaml:21:39)",
        'run.yaml:22:28: cost.base: expected a duration with its unit, such as "39 ps", found the whole number 5',
        'run.yaml:22:42: cost.per_token: expected a duration of a whole number of ps, found the text "0.5 ps"',
        'run.yaml:24:11: simulation.warmup: expected a time ("30 s"), a number of requests ("100 requests") or a '
        'percentage of the requests ("10%"), found the whole number 10',
    ]


@pytest.mark.parametrize(
    ("sets", "says"),
    [
        (["hardware.count=1", "engine.tensor_parallel_size=2"], "at most the number of GPUs, found 2"),
        (
            ["engine.tensor_parallel_size=2", "hardware.gpu=m3-ultra", "cost.unpublished_rate=none"],
            "nothing joins GPUs",
        ),
        (["hardware.gpu=m3-ultra"], "expected a published dense rate of bfloat16, found none for m3-ultra"),
        (
            ["engine.max_num_batched_tokens=64", "engine.max_num_seqs=128"],
            "found 64; engine.max_num_seqs is 128 (--set[2])",
        ),
        (
            ["engine.enable_chunked_prefill=false", "engine.max_num_batched_tokens=8192"],
            "without chunked prefill, found 8192",
        ),
        (
            ["model=qwen3-14b", "hardware.count=8", "engine.tensor_parallel_size=6"],
            "into which 40 attention and 8 key-value heads can be split, found 6",
        ),
        (["model=llama"], 'did you mean "llama-2-7b"'),
        (["model=lama-3.1-8b"], 'did you mean "llama-3.1-8b"?'),
        (["hardware.gpu.dense_flops.float8_e4m3=3958 TFLOPS"], "structured sparsity"),
        (["model.num_key_value_heads=5"], "expected a divisor of num_attention_heads (32), found 5"),
        (["hardware.gpu={name: mine, memory: 1 GiB}"], "hardware.gpu.memory_bandwidth: expected the figure"),
        (["workload.kind=azure"], "expected one of azure_trace, request_file, generated"),
        (["workload.output_tokens=0"], "found the whole number 0"),
        (["workload.output_tokens=-3"], "found the whole number -3"),
        (["workload.output_tokens=12.0"], "found the number 12.0"),
        (["workload.arrivals.rate=0 /s"], "a rate above 0"),
        (["simulation.warmup=0.1"], "a percentage"),
        (["simulation.warmup=100%"], "less than 100%"),
        (["simulation.seed=-1"], "at least 0"),
        (["simulation.seed=true"], "found true"),
        (["simulation.max_events=0"], "at least 1"),
        (["engine.gpu_memory_utilization=1.5"], "above 0 and at most 1"),
        (["engine.gpu_memory_utilization=0"], "above 0 and at most 1"),
        (["engine.gpu_memory_utilization=.nan"], "such as"),
        (["engine.kv_cache_dtype=int4"], "expected one of auto"),
        (["engine.num_gpu_blocks_override=1"], "at least 2"),
        (["cost={kind: linear, base: 0 ns}"], "every step takes time"),
        (["cost=rooflin"], 'did you mean "roofline"?'),
        (["cost.compute_efficiency=0"], "above 0"),
        (["name=n", "name.x=3"], "expected a block at name to set a key in"),
        (["nonsense"], 'expected key.key=value, found "nonsense"'),
        (["a..b=1"], "expected key.key=value"),
        (["hardware=[1]"], "found a list"),
        (["hardware="], "found nothing"),
        (["engine.block_size='16'"], 'found the text "16"'),
        (
            ["workload.input_tokens={kind: lognormal, median: 5, sigma: 1, min: 6, max: 9}"],
            "expected at least min, found 5",
        ),
    ],
)
def test_override_is_checked_like_the_file(sets: list[str], says: str) -> None:
    lines = complaints(GOOD, *sets)
    assert any(says in line for line in lines), lines
    assert any("--set[" in line or "run.yaml:" in line for line in lines)


def test_override_says_which_one_it_was() -> None:
    text = 'simulation.seed: expected a whole number of at least 0, found the text "x"'
    assert complaints(GOOD, "name=a", "simulation.seed=x") == [f"--set[2]: {text}"]


def test_override_opens_short_forms_and_last_one_wins() -> None:
    scenario = load(
        GOOD, "model.weight_dtype=fp8", "cost.unpublished_rate=none", "simulation.seed=1", "simulation.seed=2"
    )
    assert scenario.model.weight_dtype is Dtype.FLOAT8_E4M3
    assert scenario.cost == Roofline(unpublished_rate=UnpublishedRate.NONE)
    assert scenario.simulation.seed == 2
    assert load(GOOD, "name=2024").name == "2024"


def test_path_override_from_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "files").mkdir()
    (tmp_path / "trace.csv").touch()
    run_file = tmp_path / "files" / "run.yaml"
    head, tail = GOOD.split("workload:")[0], "cost: roofline\n"
    run_file.write_text(head + "workload: {kind: azure_trace, path: x.csv}\n" + tail)
    monkeypatch.chdir(tmp_path)
    found = load_scenario("files/run.yaml", ["workload.path=trace.csv"]).workload
    assert isinstance(found, AzureTrace)
    assert (run_file.parent / found.path).resolve() == tmp_path / "trace.csv"
    as_written = load_scenario(run_file, ["workload.path=absent.csv"]).workload
    assert isinstance(as_written, AzureTrace)
    assert as_written.path == "absent.csv"


def test_missing_keys_are_named(tmp_path: Path) -> None:
    lines = complaints("schema_version: 1\n")
    assert [line.split(": ")[1] for line in lines] == ["cost", "hardware", "model", "workload"]
    with pytest.raises(ScenarioError, match="No such file"):
        load_scenario(tmp_path / "absent.yaml")
    with pytest.raises(ScenarioError, match="expected a run file, found none"):
        load_scenario(tmp_path)
