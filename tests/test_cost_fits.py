"""The share of the bandwidth that a GPU reaches: what is fitted, told, and where nothing is."""

from __future__ import annotations

import math
from pathlib import Path
from statistics import median

import msgspec
import pytest
from public_cases import Cases, generated
from real_runs import errors, loads, main

from isim.cost.factors import RooflineFactors
from isim.cost.fits import FITS, default_factors, fit_of, share_source
from isim.scenario.presets.gpus import GPUS

REAL = Path(__file__).parents[1].parent / "shared/data/sim_to_real_gt"
MOST = {"H100": (0.05, 0.1, 0.05), "A100-80GB": (0.07, 0.13, 0.07), "L40S": (0.03, 0.04, 0.03)}
"""Root mean square and greatest error of the time per output token, median error of TTFT."""


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
    for share in (0.8, 0.9):
        assert told("h100-sxm", f"cost.memory_efficiency={share}") == f"{share} of the bandwidth: as declared"


@pytest.mark.skipif(not REAL.exists(), reason="needs the measured runs of inference-sim in ../shared")
@pytest.mark.parametrize("hardware", MOST)
def test_the_fits_are_as_good_as_they_say(hardware: str) -> None:
    """Root mean square and greatest error of the time per output token over loads at two rates or more."""
    once = {(load.hardware, load.model, load.ranks, load.workload, load.rate): load for load in loads(REAL)}
    off = [
        errors(load, 400, overhead=True)
        for load in once.values()
        if load.hardware == hardware and load.budget == 2048 and load.workload.startswith("general")
    ]
    most_rms, most, most_ttft = MOST[hardware]
    assert len(off) >= 2
    assert math.sqrt(sum(tpot**2 for _, tpot, _ in off) / len(off)) <= most_rms, off
    assert max(abs(tpot) for _, tpot, _ in off) <= most, off
    assert median(abs(ttft) for ttft, _, _ in off) <= most_ttft, off


def test_a_folder_without_measured_runs_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path)]) == 2
    printed = capsys.readouterr()
    assert printed.out == "" and printed.err.count("\n") == 1 and "expected a folder with" in printed.err
