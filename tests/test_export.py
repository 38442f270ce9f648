"""Exporting a workload and running the export gives every request the same times, for every kind of workload."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from isim.cli.main import main

HEAD = """\
schema_version: 1
hardware: { gpu: h100-sxm }
model: llama-3.1-8b
engine: { max_num_seqs: 8, max_num_batched_tokens: 512, max_model_len: 4096, num_gpu_blocks_override: 300%s }
cost: { kind: linear, base: 2 ms, per_token: 10 us, per_request: 50 us, per_context_token: 10 ns }
simulation: { warmup: 10%% }
slo: { ttft: 100 ms }
workload:
"""
OWN = (
    {"id": "a", "arrival_s": 1, "input_tokens": 300, "output_tokens": 40, "quotable": True, "session": "s",
     "prompt": [["sys", 0, 100], ["s:1", 0, 150]]},
    {"id": "b", "arrival_s": 2, "input_tokens": 500, "output_tokens": 9, "class": "chat", "session": "s",
     "prompt": [["sys", 0, 100], ["s:1", 0, 150], ["sys", 3, 50], ["o:a", 0, 40], ["s:1", 150, 60]]},
    {"id": "c", "arrival_s": 2, "input_tokens": 64, "server_input_tokens": 80, "output_tokens": 9, "priority": -4},
    {"id": "d", "arrival_s": 2, "input_tokens": 64, "output_tokens": 9, "prefix_id": "sys", "prefix_tokens": 48},
    {"id": "e", "arrival_s": 3, "input_tokens": 5000, "output_tokens": 9},
)  # fmt: skip
MOONCAKE = [
    {"timestamp": 300 * place, "input_length": 1200 + place, "output_length": 7, "hash_ids": [0, place % 3, 9 + place]}
    for place in range(20)
]
AZURE = ["TIMESTAMP,ContextTokens,GeneratedTokens", "2023-11-16 18:17:03.9799600,400,4", "2023-11-16 18:17:04,90,9"]
FILES = {
    "own.jsonl": [json.dumps(row) for row in OWN],
    "mooncake.jsonl": [json.dumps(row) for row in MOONCAKE],
    "azure.csv": AZURE,
    "lengths.txt": ["100,3", "900"],
}
LENGTHS = (
    "input_tokens: { kind: empirical_file, path: lengths.txt }\n  output_tokens: { kind: uniform, low: 1, high: 30 }"
)
GENERATED = "  kind: generated\n  requests: 60\n  " + LENGTHS
CHAT = "chat: { weight: 2, input_tokens: 300, output_tokens: 9, shared_prefix: { tokens: 200, groups: 2 } }"
BATCH = "batch: { priority: 5, input_tokens: { kind: uniform, low: 9, high: 999 }, output_tokens: 1, prompt_pool: 7 }"
KINDS = {
    "own": "  { kind: request_file, format: jsonl, path: own.jsonl }",
    "mooncake": "  { kind: mooncake_trace, path: mooncake.jsonl, time_scale: 1/3, limit: 18 }",
    "azure": "  { kind: azure_trace, path: azure.csv }",
    "fixed": GENERATED + "\n  arrivals: { kind: fixed_rate, rate: 7/3 per s }",
    "poisson": GENERATED + "\n  arrivals: { kind: poisson, rate: 20 /s }\n  prompt_pool: 10",
    "gamma": GENERATED + "\n  arrivals: { kind: gamma, rate: 20 /s, cv: 2 }\n  shared_prefix: { tokens: 64 }",
    "ramp": GENERATED + "\n  arrivals: { kind: ramp, from: 1 /s, to: 40 /s, over: 10 s }",
    "diurnal": GENERATED + "\n  arrivals: { kind: diurnal, low: 1 /s, high: 20 /s, period: 10 s }",
    "burst": GENERATED + "\n  arrivals: { kind: burst, base: 1 /s, burst: 50 /s, period: 4 s, length: 500 ms }",
    "mixture": "  kind: mixture\n  arrivals: { kind: poisson, rate: 30 /s }\n  requests: 80\n  classes:\n"
    f"    {CHAT}\n    {BATCH}",
}
TALKS = """\
  input_tokens: { kind: uniform, low: 9, high: 99 }
  output_tokens: { kind: uniform, low: 1, high: 60 }
  think: { kind: exponential, mean: 300 ms }
  shared_prefix: { tokens: 64, groups: 2 }"""
REACTING = {
    "closed_loop": "  kind: closed_loop\n  clients: 9\n  requests: 70\n" + TALKS,
    "sessions": "  kind: sessions\n  arrivals: { kind: poisson, rate: 5 /s }\n  sessions: 12\n  turns: 6\n" + TALKS,
}
AGAIN = "  { kind: request_file, format: jsonl, path: export.jsonl }"


def run(folder: Path, name: str, workload: str, extra: str = "") -> tuple[list[dict[str, str]], dict[str, object]]:
    (folder / f"{name}.yaml").write_text(HEAD % extra + workload + "\n")
    assert main(["run", str(folder / f"{name}.yaml"), "--quiet", "--out", str(folder / name)]) == 0
    with (folder / name / "requests.csv").open() as stream:
        return list(csv.DictReader(stream)), json.loads((folder / name / "result.json").read_text())


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, lines in FILES.items():
        (tmp_path / name).write_text("\n".join(lines) + "\n")
    return tmp_path


@pytest.mark.parametrize("kind", KINDS)
def test_the_run_of_an_export_is_the_same_run(folder: Path, kind: str) -> None:
    rows, result = run(folder, "first", KINDS[kind])
    assert main(["export", str(folder / "first.yaml"), "--out", str(folder / "export.jsonl")]) == 0
    again_rows, again = run(folder, "second", AGAIN)
    assert again_rows == rows
    for part in ("counts", "latency", "throughput", "kv", "steps", "busy", "load", "slo", "classes"):
        assert again[part] == result[part]


@pytest.mark.parametrize("kind", KINDS | REACTING)
def test_a_log_tells_the_workload_too(folder: Path, kind: str) -> None:
    """It knows no sessions, classes and counts of clients; what happens is the same, from when each was sent on."""
    more = ", scheduling_policy: priority, request_overhead: 7 ms"
    rows, _ = run(folder, "first", (KINDS | REACTING)[kind], more)
    log = str(folder / "first" / "log.jsonl.zst")
    assert main(["export", log, "--out", str(folder / "export.jsonl")]) == 0
    again_rows, _ = run(folder, "second", AGAIN, more)
    unknown = dict.fromkeys(("class", "session", "client_input_tokens"), "")
    assert again_rows == [row | unknown for row in rows]


def test_a_workload_without_free_prompts_can_be_csv(folder: Path) -> None:
    rows, _ = run(folder, "first", KINDS["gamma"])
    assert main(["export", str(folder / "first.yaml"), "--out", str(folder / "export.csv")]) == 0
    again_rows, _ = run(folder, "second", AGAIN.replace("jsonl", "csv"))
    assert again_rows == rows


def test_one_run_of_every_kind_shares_something_or_says_so(folder: Path) -> None:
    """The comparison above would be worth little if no prompt were ever found in the cache."""
    for kind in ("own", "mooncake", "poisson", "gamma", "mixture"):
        _, result = run(folder, kind, KINDS[kind])
        counts = result["counts"]
        assert isinstance(counts, dict)
        assert counts["hit_tokens"] > 0


def test_an_export_never_overwrites_and_leaves_nothing_half_done(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(folder, "first", KINDS["mooncake"])
    taken = folder / "taken.jsonl"
    taken.write_text("mine")
    assert main(["export", str(folder / "first.yaml"), "--out", str(taken)]) == 2
    assert taken.read_text() == "mine"
    before = sorted(path.name for path in folder.iterdir())
    assert main(["export", str(folder / "first.yaml"), "--out", str(folder / "export.csv")]) == 2
    assert "cannot be written: expected one shared prefix" in capsys.readouterr().err
    assert main(["export", str(folder / "first.yaml"), "--out", str(folder / "no" / "where.jsonl")]) == 2
    assert sorted(path.name for path in folder.iterdir()) == before


@pytest.mark.parametrize("kind", REACTING)
def test_what_clients_send_in_answer_is_known_after_the_run_only(
    folder: Path, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run(folder, "first", REACTING[kind])
    assert main(["export", str(folder / "first.yaml"), "--out", str(folder / "export.jsonl")]) == 2
    assert "depends on when they are answered" in capsys.readouterr().err
    assert not (folder / "export.jsonl").exists()


def test_both_counts_of_a_prompt_are_reported(folder: Path) -> None:
    """The server's count wins: 80 tokens are simulated where the client counted 64."""
    rows, result = run(folder, "own", KINDS["own"])
    assert [(row["input_tokens"], row["client_input_tokens"]) for row in rows][2] == ("80", "64")
    counts = result["counts"]
    assert isinstance(counts, dict)
    served = [row for row in rows if row["status"] != "rejected"]
    assert counts["input_tokens"] == sum(int(row["input_tokens"]) for row in served)
    assert counts["client_input_tokens"] == counts["input_tokens"] - 16
    assert any("80 prompt tokens where the client counted 64" in str(note) for note in list(result["assumptions"]))  # type: ignore[call-overload]
    assert [row["session"] for row in rows] == ["s", "s", "", "", ""]
