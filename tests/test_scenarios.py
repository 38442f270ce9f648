"""Every scenario that ships runs, is replayed, and is the same run in its resolved form and step by step."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from isim.assembly import settled
from isim.cli.main import main
from isim.scenario.digest import scenario_digest
from isim.scenario.load import load_scenario

SCENARIOS = Path(__file__).parents[1] / "scenarios"
TRACES = Path(__file__).parents[1].parent / "shared" / "data"
NEEDS = {
    "azure": TRACES / "traces_azure2023" / "AzureLLMInferenceTrace_code.csv.gz",
    "mooncake": TRACES / "traces_mooncake" / "conversation_trace.jsonl.gz",
}


def run(file: Path, out: Path, details: str, *sets: str) -> dict[str, Any]:
    words = [word for each in sets for word in ("--set", each)]
    assert main(["run", str(file), "--quiet", "--details", details, "--out", str(out), *words]) == 0
    result = json.loads((out / "result.json").read_text())
    assert result["replay"] == "passed"
    assert isinstance(result, dict)
    return result


@pytest.mark.parametrize("name", [file.stem for file in sorted(SCENARIOS.glob("*.yaml"))])
def test_the_scenario_runs_and_its_resolved_form_is_the_same_run(name: str, tmp_path: Path) -> None:
    trace = NEEDS.get(name)
    if trace is not None and not trace.is_file():
        pytest.skip(f"{trace.name} (../shared/data) is not here")
    sets = [] if trace is None else [f"workload.path={trace}", "workload.limit=150"]
    result = run(SCENARIOS / f"{name}.yaml", tmp_path / "out", "always", *sets)
    counts = result["counts"]
    assert isinstance(counts, dict)
    assert counts["arrived"] == counts["completed"] + counts["rejected"] > 100
    resolved = tmp_path / "out" / "scenario.yaml"
    if trace is None:
        original = settled(load_scenario(SCENARIOS / f"{name}.yaml"))
        assert scenario_digest(load_scenario(resolved)) == scenario_digest(original)
    again = run(resolved, tmp_path / "again", "never", "simulation.max_stretch=1")
    assert again["digests"] == result["digests"]
    assert again["latency"] == result["latency"]
    check_split(result)


def check_split(result: dict[str, Any]) -> None:
    """The closer look was taken, and what operations took adds up to the time the devices were busy."""
    details = result["details"]
    assert details["state"] == "given"
    assert len(details["step_time"]) > 10
    assert sum(one["total_ns"] for one in details["step_time"]) == result["busy"]["busy_ns"]
    assert min(one["total_ns"] for one in details["step_time"]) >= 0
    assert len(details["over_time"]["most_kv_blocks"]) == 60
    assert max(details["over_time"]["most_kv_blocks"]) <= result["kv"]["high_water_blocks"]
    assert details["sensitivity"] is not None
