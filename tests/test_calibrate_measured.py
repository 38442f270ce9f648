"""Calibration on real measurements: fitted to one run of a server, scored on what was not fitted to.

P33 reports a TTFT that is 45 % off on an A100, and asks that calibration from one measured run cut the error; P26 asks
for 1 to 2 % of a recorded run of an RTX 4090. What is reached and what is not stands here in figures.

The measured runs are vLLM 0.15.1 under inference-perf: ten minutes of Poisson arrivals at each of two rates, a hundred
prompts that come again and again, so that they are found whole in the prefix cache, answers of fixed length. What is
simulated is a part of each stage with as large a part of the prompts, so that as many of a hundred requests are cold as
were measured: those of the first stage, of which the second is a continuation.

The share of the bandwidth is 0.9 before, as for a GPU that nobody has measured: the defaults of these three were fitted
to the very runs that are scored here.
"""

from __future__ import annotations

import csv
import gzip
import json
from fractions import Fraction
from pathlib import Path
from statistics import median
from typing import Any

import msgspec
import pytest
from readers import code_of

DATA = Path(__file__).parents[2] / "shared" / "data"
AGGREGATES = DATA / "sim_to_real_gt" / "ground_truth_actuals.csv"
RECORDED = DATA / "llmservingsim" / "vllm_runs" / "RTX4090" / "Llama-3.1-8B" / "requests.jsonl.gz"
PROMPTS, STAGE_S = 100, 600

RUN = """\
schema_version: 1
hardware: {{ gpu: {gpu}, count: {ranks} }}
model: {model}
engine:
  {{ tensor_parallel_size: {ranks}, max_num_seqs: 128, max_num_batched_tokens: 2048, max_model_len: 4096,
    gpu_memory_utilization: 0.9 }}
workload:
  kind: generated
  arrivals: {{ kind: poisson, rate: "{rate} /s" }}
  requests: {requests}
  input_tokens: {prompt}
  output_tokens: {answer}
  prompt_pool: {prompts}
cost: {{ kind: roofline, memory_efficiency: 0.9 }}
simulation: {{ seed: 1, warmup: {warmup} }}
"""


class Stage(msgspec.Struct, frozen=True):
    """A load stage of one of the measured runs, by its experiment, in the words of a run file."""

    experiment: str
    stage: int
    gpu: str
    model: str
    ranks: int
    rate: str
    prompt: int = 547
    answer: int = 248

    def run_file(self, requests: int) -> str:
        """So many requests, after a round of the prompts where the stage found them in the cache."""
        prompts = round(requests * PROMPTS / (STAGE_S * Fraction(self.rate)))
        warmup = f"{prompts} requests" if self.stage else "none"
        total = requests + prompts if self.stage else requests
        return RUN.format(**msgspec.to_builtins(self), requests=total, prompts=prompts, warmup=warmup)


def general(experiment: str, gpu: str, model: str, ranks: int, rates: tuple[str, str]) -> list[Stage]:
    return [Stage(experiment, stage, gpu, model, ranks, rate) for stage, rate in enumerate(rates)]


LITE = ("5/2", "6")
A100 = [
    *general("38-llama-3-1-8b-tp1-general-lite-1-1", "a100-80gb", "llama-3.1-8b", 1, LITE),
    *general("40-codellama-34b-tp2-general-lite-2", "a100-80gb", "codellama-34b", 2, LITE),
    *general("41-llama-2-70b-tp4-general-lite-4", "a100-80gb", "llama-2-70b", 4, LITE),
]
H100 = [
    *general("16-llama-3-1-8b-tp1-general-1", "h100-sxm", "llama-3.1-8b", 1, ("8", "20"))[:1],
    Stage("15-qwen3-14b-tp1-roleplay-1", 0, "h100-sxm", "qwen3-14b", 1, "6", 750, 251),
    *general("57-codellama-34b-tp2-general-lite-2-1", "h100-sxm", "codellama-34b", 2, LITE)[:1],
    *general("58-llama-2-70b-tp4-general-lite-4-1", "h100-sxm", "llama-2-70b", 4, LITE)[1:],
    Stage("63-mistral-nemo-12b-tp1-codegen-1-1", 0, "h100-sxm", "mistral-nemo-12b", 1, "5", 566, 247),
]


class Bench:
    """Commands in a folder, and the measured aggregates."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder, self._capsys = folder, capsys

    def write(self, name: str, text: str) -> str:
        (self.folder / name).write_text(text)
        return str(self.folder / name)

    def calibrate(self, *argv: str) -> dict[str, Any]:
        self._capsys.readouterr()
        assert code_of(["calibrate", *argv, "--json"]) == 0, self._capsys.readouterr().err
        return dict(json.loads(self._capsys.readouterr().out))

    def latency(self, run: str, settings: list[str]) -> dict[str, float]:
        """Means in ms."""
        self._capsys.readouterr()
        options = [word for setting in settings for word in ("--set", setting)]
        assert code_of(["run", run, "--json", "--no-log", "--no-replay", "--details", "never", *options]) == 0
        found = json.loads(self._capsys.readouterr().out)["latency"]
        return {name: found[f"{name}_ns"]["mean"] / 1e6 for name in ("ttft", "tpot", "e2e")}


@pytest.fixture
def bench(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Bench:
    return Bench(tmp_path, capsys)


def measured_ms(stage: Stage) -> dict[str, float]:
    """Means. The time of a token follows from the two others; what clients report for it counts chunks."""
    with AGGREGATES.open(encoding="utf-8") as stream:
        for row in csv.DictReader(stream):
            if (row["exp"], row["stage"]) == (stage.experiment, str(stage.stage)):
                ttft, e2e = float(row["ttft_mean_ms"]), float(row["e2e_mean_ms"])
                return {"ttft": ttft, "tpot": (e2e - ttft) / (stage.answer - 1), "e2e": e2e}
    raise AssertionError(f"no such run: {stage}")


def fitted(bench: Bench, stage: Stage, requests: int) -> list[str]:
    """The factors that one stage alone tells, as settings."""
    run = bench.write("fit.yaml", stage.run_file(requests))
    lines = [f"latency.{name}_ns.mean: {round(time * 1e6)} ns\n" for name, time in measured_ms(stage).items()]
    factors = ["cost.memory_efficiency", "engine.request_overhead"]
    told = bench.calibrate(run, bench.write("m.yaml", "".join(lines)), "--fit", *factors)
    assert [each["path"] for each in told["factors"] if each["identified"]] == factors
    assert all(abs(metric["after_error"]) < 0.01 for metric in told["metrics"])
    return list(told["settings"])


def errors(bench: Bench, stages: list[Stage], settings: list[str], requests: int) -> dict[str, float]:
    """Medians over the stages of how far TTFT and TPOT are off."""
    found: dict[str, list[float]] = {"ttft": [], "tpot": []}
    for stage in stages:
        simulated = bench.latency(bench.write("score.yaml", stage.run_file(requests)), settings)
        real = measured_ms(stage)
        for name, each in found.items():
            each.append(abs(simulated[name] / real[name] - 1))
    return {name: median(each) for name, each in found.items()}


needs_aggregates = pytest.mark.skipif(not AGGREGATES.exists(), reason="needs the measured runs in ../shared")


@needs_aggregates
def test_p33_one_run_on_an_a100_cuts_the_error_of_others_that_it_has_not_seen(bench: Bench) -> None:
    """Fitted to Llama-3.1-8B at 2.5 requests/s; scored at 6/s and on two larger models over two and four GPUs.

    TTFT from 34 % off to 12 %, TPOT from 21 % to 8 %. What stays is 70b at 6/s, 21 % and 17 % too fast: one load cannot
    tell what each request of a batch costs.
    """
    settings = fitted(bench, A100[0], 300)
    before, after = (errors(bench, A100[1:], each, 200) for each in ([], settings))
    assert before == pytest.approx({"ttft": 0.34, "tpot": 0.21}, abs=0.02)
    assert after == pytest.approx({"ttft": 0.12, "tpot": 0.08}, abs=0.02)


@needs_aggregates
def test_p33_one_run_on_an_h100_cuts_the_error_of_other_models(bench: Bench) -> None:
    """0.9 is nearly what this GPU reaches; what one run adds is the time outside the engine.

    TTFT of four other models from 16 % off to 2 %; TPOT, 3 % off, stays as it was.
    """
    settings = fitted(bench, H100[0], 300)
    before, after = (errors(bench, H100[1:], each, 150) for each in ([], settings))
    assert before == pytest.approx({"ttft": 0.16, "tpot": 0.035}, abs=0.015)
    assert after == pytest.approx({"ttft": 0.02, "tpot": 0.04}, abs=0.015)


@pytest.mark.skipif(not RECORDED.exists(), reason="needs the recorded run of LLMServingSim in ../shared")
def test_p26_fitted_to_the_first_hundred_requests(bench: Bench) -> None:
    """300 ShareGPT requests at once too many for 2,588 blocks: overloaded, so that only TPOT is fitted to.

    Of the whole run TPOT is then within 1 % (4.2 % before), TTFT and E2E within 4 and 3 % (8.1 and 7.1 % before): more
    than the 1 to 2 % asked for. With the bandwidth at which the TPOT of all 300 is met, which nobody has beforehand,
    TTFT stays 3.2 % and E2E 2.4 % off, so the bar is not met in-sample either: what is left is the time of prefill
    beside decoding, which one factor of bandwidth does not hold.
    """
    with gzip.open(RECORDED, "rt") as stream:
        real = sorted((json.loads(line) for line in stream), key=lambda row: row["queued_ts"])
    began = real[0]["queued_ts"]
    requests = [
        {"arrival_ns": round((row["queued_ts"] - began) * 1e9), "input_tokens": row["input_toks"],
         "output_tokens": row["output_toks"]}
        for row in real
    ]  # fmt: skip
    times = [
        {
            "ttft_ns": round((row["first_token_ts"] - row["queued_ts"]) * 1e9),
            "tpot_ns": round((row["last_token_ts"] - row["first_token_ts"]) / (row["output_toks"] - 1) * 1e9),
            "e2e_ns": round((row["last_token_ts"] - row["queued_ts"]) * 1e9),
        }
        for row in real
    ]
    bench.write("requests.jsonl", "".join(json.dumps(row) + "\n" for row in requests))
    run = bench.write(
        "run.yaml",
        "schema_version: 1\nhardware: { gpu: rtx-4090 }\nmodel: llama-3.1-8b\n"
        "engine: { max_num_seqs: 256, max_num_batched_tokens: 2048, max_model_len: 32768, gpu_memory_utilization: 0.9, "
        "num_gpu_blocks_override: 2588 }\n"
        "workload: { kind: request_file, format: jsonl, path: requests.jsonl }\n"
        "cost: { kind: roofline, memory_efficiency: 0.9 }\n",
    )

    def errors_of(settings: list[str]) -> dict[str, float]:
        means = {name: sum(row[f"{name}_ns"] for row in times) / len(times) / 1e6 for name in ("ttft", "tpot", "e2e")}
        return {name: time / means[name] - 1 for name, time in bench.latency(run, settings).items()}

    first = bench.write("first.jsonl", "".join(json.dumps(row) + "\n" for row in times[:100]))
    told = bench.calibrate(run, first, "--fit", "cost.memory_efficiency")
    assert [metric["metric"] for metric in told["metrics"] if metric["target"]] == ["latency.tpot_ns.mean"]
    assert told["load_before"] == told["load_after"] == "overloaded"
    assert errors_of([]) == pytest.approx({"ttft": 0.081, "tpot": 0.042, "e2e": 0.071}, abs=0.01)
    assert errors_of(told["settings"]) == pytest.approx({"ttft": 0.035, "tpot": 0.003, "e2e": 0.027}, abs=0.01)
    assert {one["latency"]: one["after"] for one in told["per_request"]} == pytest.approx(
        {"tpot_ns": 0.012, "e2e_ns": 0.018}, abs=0.006
    )
    in_sample = errors_of(["cost.memory_efficiency=0.952"])
    assert in_sample == pytest.approx({"ttft": 0.032, "tpot": 0.0, "e2e": 0.024}, abs=0.003)
