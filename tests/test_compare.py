"""Results side by side: verdicts at bounds that are known in closed form, and what a reader is warned of."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest
from toy_facts import analysis_of
from toy_log import random_toy

from isim.analyze.compare import Verdict, compare
from isim.analyze.metrics import METRICS
from isim.analyze.schema import Result
from isim.cli.main import main
from isim.report.compare import letter, render_comparison
from isim.report.text import change_text

RUN_FILE = """\
schema_version: 1
name: seat
hardware: { gpu: h100-sxm }
model: llama-3.1-8b
engine: { max_num_seqs: 1, max_num_batched_tokens: 64, max_model_len: 64, async_scheduling: false }
workload:
  kind: generated
  arrivals: { kind: fixed_rate, rate: 100 /s }
  requests: 40
  input_tokens: 10
  output_tokens: 1
cost: { kind: linear, base: 5 ms }
"""


@pytest.fixture
def run_file(tmp_path: Path) -> str:
    path = tmp_path / "seat.yaml"
    path.write_text(RUN_FILE)
    return str(path)


def out(run_file: str, name: str, *words: str) -> str:
    folder = str(Path(run_file).parent / name)
    assert main(["run", run_file, "--quiet", "--out", folder, *words]) == 0
    return folder


def compared(capsys: pytest.CaptureFixture[str], *folders: str) -> dict[str, Any]:
    assert main(["compare", *folders, "--json"]) == 0
    comparison: dict[str, Any] = json.loads(capsys.readouterr().out)
    return comparison


def test_folders_whose_names_are_no_text_are_escaped(run_file: str, capsys: pytest.CaptureFixture[str]) -> None:
    folder = out(run_file, "one", "--no-log")
    try:
        other = Path(folder).rename(Path(folder).with_name("two\udcff"))
    except (OSError, UnicodeEncodeError):
        pytest.skip("this file system takes only names that are text")
    paths = [run["path"] for run in compared(capsys, str(other), str(other))["runs"]]
    assert [path.endswith("two\\udcff") for path in paths] == [True, True]
    assert main(["compare", str(other), str(other)]) == 0


def test_verdicts_at_their_bounds(run_file: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Nobody waits, so TTFT = E2E = the step: 5 ms, at most 5.5 with +10 %. A run of s ms comes down to 0.9 s."""
    steps_ms = ("5.1", "5.101", "5.25", "5.251", "5.5", "5.54", "5.555", "5.6", "4.5", "4.4", "5")
    folders = [out(run_file, f"s{ms}", "--set", f"cost.base={ms} ms", "--no-log") for ms in ("5.0", *steps_ms)]
    found = {metric["metric"]: metric for metric in compared(capsys, *folders)["metrics"]}
    ttft, e2e = found["latency.ttft_ns.mean"], found["latency.e2e_ns.mean"]
    assert ttft["values"] == e2e["values"] == [int(float(ms) * 1_000_000) for ms in ("5.0", *steps_ms)]
    tie, near, far = Verdict.TIE, Verdict.STEP_TIME, Verdict.DIFFERS
    expected = [tie, near, near, near, near, near, near, far, near, far, Verdict.EQUAL]
    assert e2e["verdicts"] == [Verdict.EQUAL, *expected]
    assert ttft["verdicts"] == [Verdict.EQUAL, tie, tie, tie, *expected[3:]]
    assert e2e["changes"][8] == pytest.approx(0.12)
    assert (ttft["band_percent"], e2e["band_percent"]) == (5, 2)


def test_every_row_is_the_number_of_the_result(run_file: str, capsys: pytest.CaptureFixture[str]) -> None:
    folders = [out(run_file, "one"), out(run_file, "two", "--set", "engine.kv_cache_dtype=fp8", "--seed", "3")]
    comparison = compared(capsys, *folders)
    results = [json.loads((Path(folder) / "result.json").read_text()) for folder in folders]
    assert [metric["metric"] for metric in comparison["metrics"]] == [metric.name for metric in METRICS]
    for metric in comparison["metrics"]:
        for value, result in zip(metric["values"], results, strict=True):
            for key in metric["metric"].split("."):
                result = None if result is None else result[key]
            assert value == result, metric["metric"]
    assert comparison["runs"][1]["changed"] == {"engine": "KV float8_e4m3"}
    assert comparison["notes"] == [
        f"{folders[1]} did not serve the same requests as {folders[0]}: chance is in every difference"
    ]
    assert main(["schema", "comparison"]) == 0
    jsonschema.validate(comparison, json.loads(capsys.readouterr().out))


def test_without_sensitivity_only_the_band_counts_and_that_is_said(
    run_file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    folders = [out(run_file, "plain", "--details", "never"), out(run_file, "slow", "--set", "cost.base=5.2 ms")]
    comparison = compared(capsys, folders[0], folders[0])
    assert {verdict for metric in comparison["metrics"] for verdict in metric["verdicts"]} == {"equal"}
    assert comparison["notes"][0].startswith(f"{folders[0]} has no sensitivity (off)")
    slow = {metric["metric"]: metric["verdicts"] for metric in compared(capsys, *folders)["metrics"]}
    assert slow["latency.e2e_ns.mean"] == ["equal", "step_time"], "the other run's own sensitivity reaches down to it"
    faster = out(run_file, "faster", "--set", "cost.base=5.2 ms", "--details", "never")
    none = {metric["metric"]: metric["verdicts"] for metric in compared(capsys, folders[0], faster)["metrics"]}
    assert none["latency.e2e_ns.mean"] == ["equal", "differs"]
    over = out(run_file, "over", "--set", "cost.base=40 ms")
    assert any("is overloaded" in note for note in compared(capsys, folders[0], over)["notes"])


def test_as_text_each_run_has_a_column(run_file: str, capsys: pytest.CaptureFixture[str]) -> None:
    folders = [out(run_file, "one"), out(run_file, "two", "--set", "cost.base=5.6 ms"), out(run_file, "three")]
    assert main(["compare", *folders]) == 0
    text = capsys.readouterr().out
    row = next(line for line in text.splitlines() if line.startswith(" E2E mean"))
    assert row.split() == ["E2E", "mean", "5.00", "ms", "5.60", "ms", "+12.0", "%", "*", "5.00", "ms", "+0.0", "%", "="]
    assert f"B  {folders[1]}: seat, seed 0, load stable" in text.replace("\n   ", " ")


@pytest.mark.parametrize("width", [60, 80, 120])
def test_no_line_is_wider_than_asked(width: int) -> None:
    results = [(f"dir{seed}", analysis_of(random_toy(seed)[1]).result) for seed in range(7)]
    for unicode in (True, False):
        text = render_comparison(compare(results), width=width, unicode=unicode)
        assert max(len(line) for line in text.splitlines()) <= width
        assert unicode or text.isascii()
        assert all(letter(run) in text for run in range(7))


def test_a_number_that_only_one_run_has_is_not_compared() -> None:
    result = analysis_of(random_toy(3)[1]).result
    empty = analysis_of([random_toy(0)[1][0]]).result
    verdicts = {metric.metric: metric.verdicts[1] for metric in compare([("a", result), ("b", empty)]).metrics}
    assert verdicts["latency.ttft_ns.mean"] is Verdict.UNKNOWN
    assert verdicts["slo.goodput.share"] is Verdict.EQUAL


def test_what_cannot_be_compared_is_2(run_file: str, capsys: pytest.CaptureFixture[str]) -> None:
    folder = out(run_file, "one")
    assert main(["compare", folder, str(Path(folder).parent / "none")]) == 2
    assert "none" in capsys.readouterr().err
    with pytest.raises(SystemExit) as end:
        main(["compare", folder])
    assert end.value.code == 2


def test_a_report_as_json_is_the_result(run_file: str, capsys: pytest.CaptureFixture[str]) -> None:
    folder = out(run_file, "one")
    assert main(["report", folder, "--json"]) == 0
    printed = capsys.readouterr().out
    assert printed == (Path(folder) / "result.json").read_text()
    assert msgspec.json.decode(printed, type=Result).confidence.kv_capacity == "heuristic"
    measured = out(run_file, "measured", "--set", "engine.num_gpu_blocks_override=2588")
    assert main(["report", measured, "--json"]) == 0
    trust = json.loads(capsys.readouterr().out)["confidence"]
    assert trust == {"kv_capacity": "exact", "latency": "heuristic"}


def test_changes_have_a_sign_and_no_negative_zero() -> None:
    assert [change_text(change) for change in (None, 0.123, -0.5, -0.0001, 0.0, 11.34)] == [
        "-", "+12.3 %", "-50.0 %", "+0.0 %", "+0.0 %", "x 12.3",
    ]  # fmt: skip
