"""The main job on an hour of real traffic: run, logged, replayed, reported."""

from __future__ import annotations

import csv
import gzip
import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TRACE = ROOT.parent / "shared" / "data" / "traces_azure2023" / "AzureLLMInferenceTrace_code.csv.gz"


def isim(*words: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "isim", *map(str, words)], cwd=ROOT, capture_output=True, text=True, check=False
    )


@pytest.mark.skipif(not TRACE.is_file(), reason="the public trace (../shared/data) is not here")
def test_the_azure_trace_runs_and_is_replayed(tmp_path: Path) -> None:
    out = tmp_path / "out"
    done = isim("run", "scenarios/azure.yaml", "--set", f"workload.path={TRACE}", "--out", out)
    assert done.returncode == 0, done.stderr
    result = json.loads((out / "result.json").read_text())
    with gzip.open(TRACE, "rt") as stream:
        rows = list(csv.DictReader(stream))
    assert result["counts"]["arrived"] == len(rows)
    assert result["counts"]["completed"] == len(rows), "the configuration is meant to carry the trace"
    assert result["replay"] == "passed"
    with (out / "requests.csv").open() as stream:
        told = list(csv.DictReader(stream))
    assert [(row["input_tokens"], row["output_tokens"]) for row in told] == [
        (row["ContextTokens"], row["GeneratedTokens"]) for row in rows
    ]
    assert isim("replay", out / "log.jsonl.zst").returncode == 0
    assert "TTFT" in done.stdout


def test_without_the_trace_the_error_says_where_to_put_it() -> None:
    done = isim("run", "scenarios/azure.yaml", "--set", "workload.path=/nowhere/trace.csv")
    assert done.returncode == 2
    assert "/nowhere/trace.csv" in done.stderr
    assert "Traceback" not in done.stderr
