"""A scenario in words."""

from __future__ import annotations

from isim.analyze.describe import simulated, warm_up_rule
from isim.scenario.load import read_scenario
from isim.scenario.types import WarmupRequests

HEAD = "schema_version: 1\nname: x\nhardware: { gpu: h100-sxm, count: 2 }\nmodel: llama-3.1-8b\n"
GENERATED = """\
workload:
  kind: generated
  arrivals: { kind: poisson, rate: 5/2 per second }
  requests: 7
  input_tokens: { kind: uniform, low: 3, high: 9 }
  output_tokens: { kind: lognormal, median: 20, sigma: 0.5, min: 1, max: 99 }
"""


def words(rest: str) -> dict[str, str]:
    said = simulated(read_scenario((HEAD + rest).encode(), "x.yaml"))
    return {name: getattr(said, name) for name in ("model", "hardware", "engine", "workload", "cost")}


def test_generated_load_and_linear_cost() -> None:
    said = words(
        "engine: { tensor_parallel_size: 2, max_model_len: 4096, async_scheduling: false }\n"
        + GENERATED.replace("5/2 per second", "2.5 /s")
        + "cost: { kind: linear, base: 2 us, per_token: 39 ps }\n"
    )
    assert said["model"] == "llama-3.1-8b, weights bfloat16, activations bfloat16"
    assert said["hardware"] == "2 x h100-sxm, joined by nvlink at 450 GB/s"
    assert "TP 2" in said["engine"] and "asynchronous scheduling off" in said["engine"]
    assert said["workload"] == (
        "7 requests, Poisson with 2.5 per second; tokens: uniform 3 to 9 in, "
        "lognormal (median 20, sigma 0.5, 1 to 99) out"
    )
    assert said["cost"] == "linear: 2000 ns a step, 0.039 ns a new token"


def test_a_trace_is_named_and_not_located() -> None:
    said = words(
        "engine: { max_model_len: 4096 }\n"
        "workload: { kind: azure_trace, path: some/where/trace.csv.gz, limit: 5, time_scale: 1/3,"
        " window: { start: 1 min, end: 90 s } }\ncost: roofline\n"
    )
    assert said["workload"] == "Azure trace trace.csv.gz, first 5 requests, from 60 s to 90 s, time x ~0.333333333"
    assert said["cost"] == "roofline"


def test_one_request_is_not_several() -> None:
    one = GENERATED.replace("requests: 7", "requests: 1") + "cost: roofline\n"
    assert words("engine: { max_model_len: 4096 }\n" + one)["workload"].startswith("1 request, Poisson")
    assert warm_up_rule(WarmupRequests(requests=1)) == "1 request"
    assert warm_up_rule(WarmupRequests(requests=2)) == "2 requests"
