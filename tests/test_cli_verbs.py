"""The verbs, called as the shell calls them but in this process: output, files, exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest

from isim.cli.folder import LOG, REQUESTS, RESULT, SCENARIO
from isim.cli.main import main

RUN_FILE = """\
schema_version: 1
name: tiny
hardware: { gpu: h100-sxm }
model: llama-3.1-8b
engine: { max_num_seqs: 8, max_num_batched_tokens: 256, max_model_len: 4096 }
workload:
  kind: generated
  arrivals: { kind: fixed_rate, rate: 50 /s }
  requests: 40
  input_tokens: 100
  output_tokens: 8
cost: { kind: linear, base: 2 ms, per_token: 10 us, per_request: 50 us, per_context_token: 10 ns }
"""


@pytest.fixture
def run_file(tmp_path: Path) -> str:
    path = tmp_path / "tiny.yaml"
    path.write_text(RUN_FILE)
    return str(path)


def test_a_run_prints_a_report_and_nothing_else(run_file: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", run_file]) == 0
    printed = capsys.readouterr()
    assert "Latency of 40 requests" in printed.out
    assert "An independent checker replayed the log" in " ".join(printed.out.split())
    assert printed.err == ""


def test_json_is_the_result_and_the_same_as_the_file(
    run_file: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert main(["run", run_file, "--json", "--out", str(out)]) == 0
    printed = capsys.readouterr()
    assert printed.out == (out / RESULT).read_text()
    assert sorted(path.name for path in out.iterdir()) == sorted((LOG, REQUESTS, RESULT, SCENARIO))
    assert not (tmp_path / "out.unfinished").exists()
    assert str(out) in printed.err
    result = json.loads(printed.out)
    assert (result["schema"], result["revision"], result["replay"]) == ("isim/result", 3, "passed")
    assert result["counts"]["arrived"] == result["counts"]["completed"] == 40
    assert main(["schema", "result"]) == 0
    jsonschema.validate(result, json.loads(capsys.readouterr().out))


def test_what_is_written_can_be_read_again(run_file: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = str(tmp_path / "out")
    assert main(["run", run_file, "--out", out]) == 0
    report = capsys.readouterr().out
    assert main(["report", out]) == 0
    assert capsys.readouterr().out == report
    assert main(["replay", f"{out}/{LOG}"]) == 0
    assert "legal" in capsys.readouterr().out
    assert main(["run", f"{out}/{SCENARIO}", "--json"]) == 0
    assert capsys.readouterr().out == (tmp_path / "out" / RESULT).read_text()


def test_quiet_prints_nothing(run_file: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", run_file, "--quiet", "--out", str(tmp_path / "out")]) == 0
    assert capsys.readouterr() == ("", "")


def test_log_and_replay_off(run_file: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    assert main(["run", run_file, "--json", "--no-log", "--no-replay", "--out", str(out)]) == 0
    result = json.loads(capsys.readouterr().out)
    assert (result["replay"], result["digests"]["log"]) == ("not_run", None)
    assert not (out / LOG).exists()
    assert main(["run", run_file, "--json", "--no-log"]) == 0
    checked = json.loads(capsys.readouterr().out)
    assert checked["replay"] == "passed"
    assert len(checked["digests"]["log"]) == 64
    assert {**result, "replay": 0, "digests": 0} == {**checked, "replay": 0, "digests": 0}


def test_seed_is_the_override(run_file: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", run_file, "--json", "--seed", "7"]) == 0
    by_option = capsys.readouterr().out
    assert main(["run", run_file, "--json", "--set", "simulation.seed=7"]) == 0
    assert capsys.readouterr().out == by_option
    assert json.loads(by_option)["seed"] == 7


def test_stretches_change_no_byte_of_the_result(run_file: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", run_file, "--json"]) == 0
    stretched = capsys.readouterr().out
    assert main(["run", run_file, "--json", "--set", "simulation.max_stretch=1"]) == 0
    assert capsys.readouterr().out == stretched


def test_a_full_folder_is_refused(run_file: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "note.txt").write_text("mine")
    assert main(["run", run_file, "--out", str(tmp_path / "full")]) == 2
    assert "expected a new or empty folder" in capsys.readouterr().err
    assert [path.name for path in (tmp_path / "full").iterdir()] == ["note.txt"]
    (tmp_path / "empty").mkdir()
    assert main(["run", run_file, "--quiet", "--out", str(tmp_path / "empty")]) == 0


def test_what_a_killed_run_left_is_not_overwritten(
    run_file: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "out.unfinished").mkdir()
    assert main(["run", run_file, "--out", str(tmp_path / "out")]) == 2
    assert "remove it first" in capsys.readouterr().err
    assert main(["report", str(tmp_path / "out")]) == 2
    assert "of a run that did not end" in capsys.readouterr().err


def test_wrong_input_is_2_and_leaves_no_folder(
    run_file: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = str(tmp_path / "out")
    assert main(["run", run_file, "--set", "engine.max_num_seqz=4", "--out", out]) == 2
    error = capsys.readouterr().err
    assert "max_num_seqz" in error and "max_num_seqs" in error
    assert main(["run", run_file, "--set", "engine.gpu_memory_utilization=0.05", "--out", out]) == 2
    assert main(["run", run_file, "--set", "simulation.max_events=50", "--out", out]) == 2
    assert main(["run", str(tmp_path / "missing.yaml")]) == 2
    assert "missing.yaml" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["tiny.yaml"]


def test_nothing_completed_is_4_and_still_a_result(run_file: str, capsys: pytest.CaptureFixture[str]) -> None:
    """P50: all requests are refused; the result is whole, valid and full of nulls."""
    assert main(["run", run_file, "--json", "--set", "workload.input_tokens=5000"]) == 4
    result = json.loads(capsys.readouterr().out)
    assert (result["counts"]["rejected"], result["counts"]["completed"]) == (40, 0)
    assert result["latency"]["ttft_ns"]["mean"] is None
    assert result["throughput"]["whole_run"]["requests_per_s"] is None
    assert main(["run", run_file, "--set", "workload.input_tokens=5000"]) == 4


def test_a_cut_log_is_2_and_a_forged_one_3(run_file: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import zstandard

    out = tmp_path / "out"
    assert main(["run", run_file, "--quiet", "--out", str(out)]) == 0
    lines = zstandard.ZstdDecompressor().stream_reader((out / LOG).read_bytes(), read_across_frames=True).read()
    cut = tmp_path / "cut.jsonl"
    cut.write_bytes(b"".join(lines.splitlines(keepends=True)[:30]))
    assert main(["replay", str(cut)]) == 2
    assert "sequence 29" in capsys.readouterr().err
    forged = tmp_path / "forged.jsonl"
    forged.write_bytes(lines.replace(b'"completed":40', b'"completed":39'))
    assert main(["replay", str(forged)]) == 3
    error = capsys.readouterr().err
    assert "expected" in error and "found" in error
    assert main(["replay", str(tmp_path / "none.zst")]) == 2


def test_validate_checks_without_running(run_file: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["validate", run_file]) == 0
    printed = capsys.readouterr().out
    assert f"{run_file}: valid" in printed and "requests  40" in printed
    assert main(["validate", run_file, "--set", "engine.tensor_parallel_size=3"]) == 2
    assert "tensor_parallel_size" in capsys.readouterr().err


def test_presets(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["presets"]) == 0
    everything = capsys.readouterr().out
    assert main(["presets", "gpus"]) == 0
    gpus = capsys.readouterr().out
    assert main(["presets", "models"]) == 0
    models = capsys.readouterr().out
    assert main(["presets", "topologies"]) == 0
    assert everything == "\n".join([gpus, models, capsys.readouterr().out])
    assert "h100-sxm" in gpus and "h100-sxm" not in models
    assert "llama-3.1-8b" in models and "8.0 B" in models


@pytest.mark.parametrize("what", ["log", "run", "result", "topology"])
def test_schemas_are_schemas(what: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schema", what]) == 0
    jsonschema.Draft202012Validator.check_schema(json.loads(capsys.readouterr().out))


def test_every_line_of_a_log_follows_its_schema(
    run_file: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import zstandard

    out = tmp_path / "out"
    assert main(["run", run_file, "--quiet", "--no-replay", "--out", str(out)]) == 0
    assert main(["schema", "log"]) == 0
    validator = jsonschema.Draft202012Validator(json.loads(capsys.readouterr().out))
    lines = zstandard.ZstdDecompressor().stream_reader((out / LOG).read_bytes(), read_across_frames=True).read()
    for line in lines.splitlines():
        validator.validate(json.loads(line))


@pytest.mark.parametrize(
    "text",
    ["", "{}", "[1]", '{"schema": "isim/result", "revision": 1}', '{"schema": "isim/result", "revision": 3}', "\xff"],
)
def test_a_result_that_is_none_is_2(text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / RESULT).write_text(text, encoding="latin-1")
    assert main(["report", str(tmp_path)]) == 2
    assert RESULT in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [[], ["run"], ["fly"], ["run", "f", "--json", "--quiet"], ["schema", "all"]])
def test_bad_usage_is_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        main(arguments)
    assert exit_.value.code == 2
    assert "usage: isim" in capsys.readouterr().err


def test_a_bug_is_70_with_its_traceback_in_a_file(
    run_file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("isim.cli.presets.GPUS", None)
    assert main(["presets"]) == 70
    error = capsys.readouterr().err
    assert "bug of isim" in error
    (file,) = tmp_path.glob("isim-bug-*.txt")
    assert file.name in error
    assert "AttributeError" in file.read_text()


def test_an_interrupt_is_130_and_keeps_what_was_written(
    run_file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("isim.cli.run.analyze", interrupted)
    assert main(["run", run_file, "--no-replay", "--out", str(tmp_path / "out")]) == 130
    assert "interrupted" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
    assert (tmp_path / "out.unfinished" / LOG).stat().st_size > 0


def test_a_replay_violation_is_3_and_keeps_the_log(
    run_file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from isim.replay.rules import ReplayViolation, Rule

    def violated(_: Path) -> None:
        raise ReplayViolation(17, Rule.END, "an end record", "no more records")

    monkeypatch.setattr("isim.replay.replay_log", violated)
    assert main(["run", run_file, "--out", str(tmp_path / "out")]) == 3
    error = capsys.readouterr().err
    assert "17" in error and "expected an end record" in error and "found no more records" in error
    assert (tmp_path / "out.unfinished" / LOG).exists() and not (tmp_path / "out").exists()


def test_an_interrupt_while_the_command_line_is_read_is_130(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("isim.cli.main._parser", interrupted)
    assert main(["presets"]) == 130
    assert capsys.readouterr().err == "isim: interrupted\n"


def test_a_load_of_which_nothing_is_served_is_not_called_stable(
    run_file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", run_file, "--json", "--set", "workload.input_tokens=5000"]) == 4
    load = json.loads(capsys.readouterr().out)["load"]
    assert (load["state"], load["reasons"]) == (None, [])


def test_the_figures_behind_the_pool_have_their_sources(run_file: str, capsys: pytest.CaptureFixture[str]) -> None:
    def sources(*overrides: str) -> list[str]:
        sets = [word for override in overrides for word in ("--set", override)]
        assert main(["run", run_file, "--json", *sets]) == 0
        found: list[str] = json.loads(capsys.readouterr().out)["provenance"]
        return [text.partition(":")[0] for text in found]

    derived = ["model llama-3.1-8b", "memory of h100-sxm"]
    assert sources()[-2:] == derived
    roofline = sources("cost=roofline")
    assert all(roofline.count(name) == 1 for name in derived)
    assert not {*derived} & {*sources("engine.num_gpu_blocks_override=1000")}


@pytest.mark.parametrize(("key", "value"), [("max_num_batched_tokens", 783), ("long_prefill_token_threshold", 100)])
def test_chunks_that_could_never_end_on_a_block_are_refused(
    key: str, value: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """Qwen3.5-27B keeps states at the ends of blocks of 784 tokens; without prefix caching any chunk will do."""
    hybrid = [str(Path(__file__).parents[1] / "scenarios" / "hybrid.yaml"), "--set", f"engine.{key}={value}"]
    for verb in ("run", "validate"):
        assert main([verb, *hybrid]) == 2
        told = capsys.readouterr().err
        assert f"engine.{key}: expected at least 784" in told and told.count("\n") == 1
    assert main(["validate", *hybrid, "--set", "engine.enable_prefix_caching=false"]) == 0
