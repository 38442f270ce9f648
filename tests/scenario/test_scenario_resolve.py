"""The resolved run file loads back to an equal scenario, and the digest moves exactly with what can change a result."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from ruamel.yaml import YAML

from isim.model.catalogue import MODELS
from isim.scenario.defaults import scenario_assumptions
from isim.scenario.digest import scenario_digest
from isim.scenario.json_schema import run_file_schema
from isim.scenario.load import load_scenario, read_scenario
from isim.scenario.presets.gpus import GPUS
from isim.scenario.resolve import relocated, resolved_yaml
from isim.scenario.types import AzureTrace, Scenario

SCENARIOS = Path(__file__).parents[2] / "scenarios"
SHIPPED = sorted([*SCENARIOS.glob("*.yaml"), *(SCENARIOS / "bench").glob("*.yaml")])
"""Run files; topologies and what runs on them have tests of their own."""
SCHEMA = run_file_schema()
FORM = jsonschema.Draft202012Validator(SCHEMA)


def load(tree: dict[str, Any], *sets: str) -> Scenario:
    return read_scenario(json.dumps(tree).encode(), "run.json", sets)


def optional(**keys: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({}, optional=keys)


NAMES = st.text(st.characters(codec="utf-8", categories=["L", "N", "P", "S", "Zs"]), min_size=1, max_size=12)
PRINTABLE = NAMES.filter(str.isprintable)
COUNTS = st.integers(1, 10**9)
TIMES = st.builds("{} {}".format, st.integers(0, 1000), st.sampled_from(["ns", "us", "ms", "s", "min"]))
RATES = st.builds("{}/{} {}".format, st.integers(1, 999), st.integers(1, 999), st.sampled_from(["/s", "per minute"]))
SHARES = st.builds("{}.{}%".format, st.integers(1, 99), st.integers(0, 9999))
RANGES = st.lists(st.integers(1, 10**6), min_size=3, max_size=3).map(sorted)
LENGTHS = st.one_of(
    COUNTS,
    RANGES.map(lambda r: {"kind": "uniform", "low": r[0], "high": r[2]}),
    st.builds(
        lambda r, sigma: {"kind": "lognormal", "min": r[0], "median": r[1], "max": r[2], "sigma": sigma},
        RANGES,
        st.sampled_from([0, 1, 0.25, 1.125, 9.999999]),
    ),
)
ARRIVALS = st.fixed_dictionaries({"kind": st.sampled_from(["fixed_rate", "poisson"]), "rate": RATES})
GENERATED = st.fixed_dictionaries(
    {
        "kind": st.just("generated"),
        "arrivals": ARRIVALS,
        "requests": st.integers(1, 10**8),
        "input_tokens": LENGTHS,
        "output_tokens": LENGTHS,
    }
)
OPTIONS: dict[str, st.SearchStrategy[Any]] = {
    "limit": st.none() | COUNTS,
    "time_scale": st.sampled_from([1, 0.5, "7/9", 2.25]),
    "window": st.integers(0, 50).map(lambda start: {"start": f"{start} s", "end": f"{start + 1} min"}),
}
TRACE = st.fixed_dictionaries({"kind": st.just("azure_trace"), "path": PRINTABLE}, optional=OPTIONS)
OWN = st.fixed_dictionaries(
    {"kind": st.just("request_file"), "path": PRINTABLE, "format": st.sampled_from(["csv", "jsonl"])}, optional=OPTIONS
)
PRICES = st.builds("{} {}".format, st.integers(0, 999), st.sampled_from(["ps", "ns", "ms"]))
LINEAR = st.fixed_dictionaries(
    {"kind": st.just("linear"), "base": st.integers(1, 10**12).map("{} ps".format)},
    optional={"per_token": PRICES, "per_request": PRICES, "per_context_token": PRICES},
)
ROOFLINE = st.fixed_dictionaries(
    {"kind": st.just("roofline"), "unpublished_rate": st.just("none")},
    optional={"compute_efficiency": SHARES, "memory_efficiency": SHARES, "kernel_gap": TIMES, "host_step": TIMES},
)
RATE_TABLE = optional(bfloat16=st.integers(800, 900).map("{} TFLOPS".format), int4=st.just("1 PFLOPS"))
GPU = st.one_of(
    st.sampled_from(sorted(GPUS)),
    st.fixed_dictionaries(
        {"name": st.sampled_from(["h100-sxm", "rtx-4090"])},
        optional={"memory": st.just("48 GiB"), "dense_flops": RATE_TABLE, "source": PRINTABLE},
    ),
    st.fixed_dictionaries(
        {
            "name": st.just("mine"),
            "memory": st.integers(1, 10**12).map("{} B".format),
            "memory_bandwidth": st.integers(1, 10**6).map("{}.5 GB/s".format),
            "dense_flops": RATE_TABLE,
        },
        optional={"source": PRINTABLE},
    ),
)
LINK = st.fixed_dictionaries({"kind": st.sampled_from(["nvlink", "pcie"]), "bandwidth": st.just("64 GB/s")})
FIGURES = {"num_hidden_layers": 2, "hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 8}
FIGURES |= {"num_key_value_heads": 8, "head_dim": 16, "vocab_size": 640, "max_position_embeddings": 100_000}
MODEL = st.one_of(
    st.sampled_from(sorted(MODELS)),
    st.fixed_dictionaries(
        {"name": st.just("qwen3-8b")},
        optional={
            "weight_dtype": st.sampled_from(["fp8", "int4", "bf16"]),
            "head_dim": st.just(64),
            "source": PRINTABLE,
        },
    ),
    st.fixed_dictionaries(
        {"name": st.just("tiny"), **{key: st.just(value) for key, value in FIGURES.items()}},
        optional={"qk_norm": st.booleans(), "published_dtype": st.just("fp16"), "source": PRINTABLE},
    ),
)
ENGINE = optional(
    version=st.sampled_from(["0.20", "0.21", "0.33"]),
    max_num_seqs=st.integers(1, 500),
    max_num_batched_tokens=st.integers(512, 10_000),
    block_size=st.integers(1, 256),
    enable_prefix_caching=st.booleans(),
    long_prefill_token_threshold=st.integers(0, 1000),
    async_scheduling=st.booleans(),
    gpu_memory_utilization=st.sampled_from([0.9, 0.5, 1, "33.3333%", 0.0001]),
    kv_cache_dtype=st.sampled_from(["auto", "fp8", "bfloat16", "int8"]),
    num_gpu_blocks_override=st.none() | st.integers(2, 10**6),
    max_model_len=st.integers(2, 2000),
    scheduling_policy=st.sampled_from(["fcfs", "priority"]),
    request_overhead=TIMES,
)
SIMULATION = optional(
    seed=st.integers(0, 2**53 - 1),
    max_events=COUNTS,
    max_stretch=st.none() | COUNTS,
    warmup=st.one_of(st.none(), TIMES, SHARES, COUNTS.map("{} requests".format), st.just("none")),
)
RUN_FILES = st.fixed_dictionaries(
    {
        "schema_version": st.just(1),
        "hardware": st.fixed_dictionaries({"gpu": GPU}, optional={"count": st.integers(1, 8), "interconnect": LINK}),
        "model": MODEL,
        "workload": st.one_of(GENERATED, TRACE, OWN),
        "cost": st.one_of(LINEAR, ROOFLINE),
    },
    optional={"name": PRINTABLE, "engine": ENGINE, "simulation": SIMULATION},
)


@settings(derandomize=True, deadline=None, max_examples=250, phases=[Phase.generate])
@given(RUN_FILES)
def test_resolved_file_loads_back_to_the_same_scenario(tree: dict[str, Any]) -> None:
    scenario = load(tree)
    text = resolved_yaml(scenario)
    again = read_scenario(text.encode(), "elsewhere.yaml")
    assert again == scenario
    assert resolved_yaml(again) == text
    assert scenario_digest(again) == scenario_digest(scenario)
    assert scenario_assumptions(again) == scenario_assumptions(scenario)
    FORM.validate(tree)
    FORM.validate(YAML(typ="safe", pure=True).load(text))


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: str(path.relative_to(SCENARIOS)))
def test_shipped_scenarios_load_and_resolve(path: Path) -> None:
    scenario = load_scenario(path)
    assert read_scenario(resolved_yaml(scenario).encode(), "x") == scenario
    FORM.validate(YAML(typ="safe", pure=True).load(path))


def test_bench_scenarios_are_the_loads_they_are_named_for() -> None:
    loads = {}
    for path in sorted((SCENARIOS / "bench").glob("w*.yaml")):
        tree = YAML(typ="safe", pure=True).load(path)
        work, engine = tree["workload"], tree["engine"]
        assert (tree["model"], tree["cost"], work["arrivals"]["kind"]) == ("llama-3.1-8b", "roofline", "fixed_rate")
        assert (tree["hardware"]["gpu"], tree["hardware"].get("count", 1)) == ("h100-sxm", 1)
        assert (engine["max_num_seqs"], engine["max_num_batched_tokens"]) == (128, 2048)
        loads[path.stem] = (work["requests"], work["input_tokens"], work["output_tokens"], work["arrivals"]["rate"])
    assert loads == {
        "w1": (2400, 2048, 128, "4 /s"),
        "w2": (10_000, 512, 256, "8 /s"),
        "w3": (50_000, 512, 256, "8 /s"),
        "w4": (50_000, 512, 256, "20 /s"),
    }


BASE: dict[str, Any] = {
    "schema_version": 1,
    "hardware": {"gpu": "h100-sxm", "count": 4},
    "model": "llama-3.1-8b",
    "workload": {"kind": "azure_trace", "path": "trace.csv"},
    "cost": "roofline",
}


@pytest.mark.parametrize(
    ("override", "moves"),
    [
        ("name=other", False),
        ("simulation.max_events=5", False),
        ("simulation.max_stretch=1", False),
        ("workload.path=elsewhere/trace.csv", False),
        ("workload.time_scale=1", False),
        ("engine.max_num_seqs=1024", False),
        ("engine.version=0.20", False),
        ("engine.kv_cache_dtype=auto", False),
        ("engine.request_overhead=0 s", False),
        ("engine.request_overhead=1 ns", True),
        ("simulation.seed=1", True),
        ("simulation.warmup=1 s", True),
        ("workload.limit=5", True),
        ("workload.time_scale=1/2", True),
        ("engine.max_num_seqs=1023", True),
        ("engine.version=0.33", True),
        ("engine.tensor_parallel_size=2", True),
        ("engine.kv_cache_dtype=fp8", True),
        ("engine.gpu_memory_utilization=0.920001", True),
        ("hardware.gpu=h200", True),
        ("hardware.gpu.memory_bandwidth=3.3 TB/s", True),
        ("cost.host_step=1 ms", True),
        ("model.num_hidden_layers=31", True),
    ],
)
def test_digest_moves_with_what_can_change_a_result(override: str, moves: bool) -> None:
    assert (scenario_digest(load(BASE, override)) != scenario_digest(load(BASE))) is moves


def test_assumptions_name_the_rule_that_decided() -> None:
    notes = "\n".join(scenario_assumptions(load(BASE)))
    assert "engine.max_num_seqs 1024: vLLM's default on GPUs of 70 GiB or more other than A100" in notes
    assert "engine.max_num_batched_tokens 8192" in notes
    assert "stands for 0.20 too" in notes
    own = scenario_assumptions(load(BASE, "engine.max_num_seqs=64", "engine.version=0.33"))
    assert not any("max_num_seqs" in note or "0.20" in note for note in own)


@pytest.mark.parametrize(
    ("overrides", "note"),
    [
        (
            ["max_num_batched_tokens=100"],
            "engine.max_num_seqs 100: vLLM's default, no more than max_num_batched_tokens",
        ),
        (
            ["max_num_seqs=4", "max_model_len=100"],
            "engine.max_num_batched_tokens 400: vLLM's default, as many as all sequences can have",
        ),
        (
            ["enable_chunked_prefill=false", "max_model_len=32768"],
            "engine.max_num_batched_tokens 32768: vLLM's default, one prompt without chunks",
        ),
    ],
)
def test_assumptions_name_defaults_that_bent(overrides: list[str], note: str) -> None:
    scenario = load(BASE, *(f"engine.{override}" for override in overrides))
    assert note in scenario_assumptions(scenario)


def test_relocated_path_leads_to_the_same_file() -> None:
    moved = relocated(load(BASE), "a/b", "out/run").workload
    assert isinstance(moved, AzureTrace)
    assert moved.path == "../../a/b/trace.csv"
    there = load(BASE, "workload.path=/data/t.csv")
    assert relocated(there, "a", "b") == there


def test_schema_refuses_what_the_loader_refuses() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    for wrong in (
        {**BASE, "extra": 1},
        {**BASE, "schema_version": 2},
        {**BASE, "cost": "linear"},
        {**BASE, "engine": {"max_num_seqs": "4"}},
        {**BASE, "engine": {"enable_prefix_caching": 1}},
        {key: value for key, value in BASE.items() if key != "model"},
    ):
        with pytest.raises(jsonschema.ValidationError):
            FORM.validate(wrong)
