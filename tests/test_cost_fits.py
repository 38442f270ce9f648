"""The share of the bandwidth that a GPU reaches: what is fitted, told, and where nothing is."""

from __future__ import annotations

import csv
import json
import math
from pathlib import Path

import msgspec
import pytest
from public_cases import Cases, generated
from readers import code_of

from isim.cost.factors import RooflineFactors
from isim.cost.fits import FITS, default_factors, fit_of, share_source
from isim.scenario.presets.gpus import GPUS

REAL = Path(__file__).parents[1].parent / "shared/data/sim_to_real_gt/ground_truth_actuals.csv"
MODELS = {
    "CodeLlama-34b-Instruct-hf": "codellama-34b",
    "Llama-2-70b-hf": "llama-2-70b",
    "Llama-3.1-8B-Instruct": "llama-3.1-8b",
    "Qwen3-14B": "qwen3-14b",
}
HARDWARE = {"H100": "h100-sxm", "A100-80GB": "a100-80gb", "L40S": "l40s"}
MOST_RMS = {"h100-sxm": 0.06, "a100-80gb": 0.07, "l40s": 0.03}


RUN = """\
schema_version: 1
hardware: {{ gpu: {gpu}, count: {ranks} }}
model: {model}
engine: {{ tensor_parallel_size: {ranks}, max_num_seqs: 128, max_num_batched_tokens: 2048, max_model_len: 4096 }}
workload:
  kind: generated
  arrivals: {{ kind: poisson, rate: {rate} /s }}
  requests: 500
  input_tokens: 547
  output_tokens: 248
  prompt_pool: 100
cost: roofline
simulation: {{ warmup: 100 requests }}
"""


@pytest.fixture
def cases(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Cases:
    monkeypatch.chdir(tmp_path)
    return Cases(tmp_path, capsys)


def test_only_a_preset_with_its_own_bandwidth_has_a_fit() -> None:
    """A share of 1,008 GB/s says nothing of a card that the run file says has another bandwidth."""
    assert sorted(FITS) == sorted(name for name in GPUS if fit_of(GPUS[name]))
    card = GPUS["rtx-4090"]
    assert default_factors(card).memory_efficiency == 0.97
    other = msgspec.structs.replace(card, memory_bandwidth_bytes_per_s=2 * card.memory_bandwidth_bytes_per_s)
    assert default_factors(other) == RooflineFactors() == default_factors(GPUS["mi300x"])
    assert "one run of Llama-3.1-8B" in share_source(card, 0.97)
    assert share_source(card, 0.8) == "as declared"
    assert "no published run" in share_source(GPUS["mi300x"], 0.9)


def test_a_run_tells_where_the_share_comes_from(cases: Cases) -> None:
    def told(gpu: str, *overrides: str) -> str:
        ran = cases.run(*overrides, workload=generated(2, 9, 3), gpu=gpu, cost="roofline")
        assert ran.code == 0, ran.said
        return next(text for text in ran.result["assumptions"] if "of the bandwidth" in text)

    assert told("h100-sxm").startswith("0.93 of the bandwidth: fitted to 39 loads of 8 models")
    assert told("mi300x").startswith("0.9 of the bandwidth: no published run tells what mi300x reaches")
    assert told("h100-sxm", "cost.memory_efficiency=0.8") == "0.8 of the bandwidth: as declared"


def measured(hardware: str) -> dict[tuple[str, str, str], float]:
    """Milliseconds per output token of the loads of 547 tokens in and 248 out, by (model, ranks, requests a second)."""
    found: dict[tuple[str, str, str], float] = {}
    with REAL.open() as stream:
        for row in csv.DictReader(stream):
            model = MODELS.get(row["model"].rpartition("/")[2])
            general = row["workload"].startswith("general") and row["stage"] in ("0", "1")
            if row["hardware"] == hardware and model and general and row["max_num_batched_tokens"] == "2048":
                found.setdefault((model, row["tp"], row["req_rate"]), float(row["tpot_from_e2e_ms"]))
    return found


@pytest.mark.skipif(not REAL.exists(), reason="needs the measured runs of inference-sim in ../shared")
@pytest.mark.parametrize("hardware", HARDWARE)
def test_the_fits_are_as_good_as_they_say(hardware: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Poisson arrivals, and prompts that come over and over after a hundred, as those runs had them."""
    errors = {}
    for (model, ranks, rate), real_ms in measured(hardware).items():
        file = tmp_path / "run.yaml"
        file.write_text(RUN.format(gpu=HARDWARE[hardware], model=model, ranks=ranks, rate=rate))
        assert code_of(["run", str(file), "--json", "--no-log", "--no-replay"]) == 0
        result = json.loads(capsys.readouterr().out)
        errors[model, ranks, rate] = result["latency"]["tpot_ns"]["mean"] / 1e6 / real_ms - 1
    assert len(errors) >= 2
    assert math.sqrt(sum(error**2 for error in errors.values()) / len(errors)) <= MOST_RMS[HARDWARE[hardware]], errors
