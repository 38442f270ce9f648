"""`isim plan` and `isim topology`: what they print, write and refuse, and how they end."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest

from isim.cli.main import main
from isim.plan.artifact import load_artifact
from isim.record.canonical import canonical_json, fingerprint

Out = pytest.CaptureFixture[str]


@pytest.fixture
def work(tmp_path: Path) -> str:
    (tmp_path / "work.yaml").write_text("target_only:\n  token_count: 4\n")
    return str(tmp_path / "work.yaml")


def printed_json(capsys: Out, *words: str) -> Any:
    assert main(list(words)) == 0
    return json.loads(capsys.readouterr().out)


def test_a_plan_is_printed_or_written_and_executed(work: str, tmp_path: Path, capsys: Out) -> None:
    value = printed_json(capsys, "plan", "export", "multi-node", work)
    out = str(tmp_path / "plan.json")
    assert main(["plan", "export", "multi-node", work, "--out", out]) == 0
    assert "20 steps" in capsys.readouterr().err
    assert Path(out).read_text() == canonical_json(value) + "\n"
    assert main(["plan", "export", "multi-node", work, "--out", out]) == 2
    assert "expected a new file" in capsys.readouterr().err
    assert main(["validate", out]) == 0
    assert value["artifactFingerprint"] in capsys.readouterr().out
    told = printed_json(capsys, "plan", "run", out, "--json")
    assert (told["schema"], told["revision"], told["replay"]) == ("isim/plan-run", 1, "passed")
    assert told["artifact"]["planFingerprint"] == fingerprint(value["plan"])
    assert told["execution"]["completedAtNs"] == 4 * 328_254
    assert [operation["stepId"] for operation in told["execution"]["trace"]["operations"]] == [
        *(token * 5 + step for token in range(4) for step in (0, 2, 1, 3, 4))
    ]
    assert main(["plan", "run", out]) == 0
    assert "compute:node1:gpu0" in capsys.readouterr().out
    assert main(["plan", "run", out, "--quiet"]) == 0
    assert capsys.readouterr().out == ""


def test_a_run_agrees_with_its_log(work: str, tmp_path: Path, capsys: Out) -> None:
    log = str(tmp_path / "log.jsonl.zst")
    result = printed_json(capsys, "topology", "run", "multi-gpu", work, "--json", "--log", log)
    assert (result["schema"], result["revision"], result["replay"]) == ("isim/topology-run", 1, "passed")
    assert result["metrics"]["totalDurationNs"] == 4 * 274_874
    assert result["metrics"]["computeServiceNs"] == 8 * 273_000
    assert result["operationCounts"] == {"compute": 16, "transfer": 0, "collective": 4, "allReduce": 4, "allToAll": 0}
    assert main(["replay", log]) == 0
    assert result["logDigest"] in capsys.readouterr().out
    assert not list(tmp_path.glob("*.unfinished"))
    assert main(["topology", "run", "multi-gpu", work, "--log", log]) == 2
    assert "expected a new file" in capsys.readouterr().err


def test_the_same_run_says_the_same(work: str, capsys: Out) -> None:
    first, second = (printed_json(capsys, "topology", "run", "small-lan-3", work, "--json") for _ in range(2))
    assert first == second
    unchecked = printed_json(capsys, "topology", "run", "small-lan-3", work, "--json", "--no-replay")
    assert unchecked == {**first, "replay": "not_run"}


def test_utilization_is_busy_time_over_all_of_it(work: str, capsys: Out) -> None:
    metrics = printed_json(capsys, "topology", "run", "small-lan-4-advanced-rdma", work, "--json")["metrics"]
    uses = [*metrics["computeUtilization"], *metrics["linkUtilization"], *metrics["networkUtilization"]]
    assert [use["resourceId"] for use in uses if use["resourceId"].startswith("network:")] == [
        *("network:lan:fabric0", "network:node0:nic0", "network:node1:nic0", "network:node2:nic0", "network:node3:nic0")
    ]
    for use in uses:
        assert use["utilization"] == use["busyNs"] / (metrics["totalDurationNs"] * use["capacityLanes"])
        assert 0 < use["utilization"] <= 1
    assert sum(use["busyNs"] for use in metrics["computeUtilization"]) == metrics["computeServiceNs"]


def test_a_comparison_ranks_by_duration(work: str, capsys: Out) -> None:
    comparison = printed_json(capsys, "topology", "compare", work, "--json")
    rows = comparison["comparison"]
    assert [row["rank"] for row in rows] == [1, 2, 3, 4, 5, 6]
    assert [row["scenarioId"] for row in rows[:3]] == ["multi-gpu", "single-gpu-cpu", "unified-memory"]
    assert [row["relativeToFastest"] for row in rows] == [row["durationNs"] / rows[0]["durationNs"] for row in rows]
    two = printed_json(capsys, "topology", "compare", "cpu-only", "multi-gpu-ring-64", work, "--json")
    assert [row["scenarioId"] for row in two["comparison"]] == ["multi-gpu-ring-64", "cpu-only"]
    assert main(["topology", "compare", "cpu-only", "gpu-npu", work]) == 0
    assert "gpu-npu" in capsys.readouterr().out


@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_reports_fit_their_terminal(encoding: str, work: str, capsys: Out, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "64")
    monkeypatch.setattr("isim.cli.output.supports_unicode", lambda _: encoding == "utf-8")
    assert main(["topology", "run", "multi-gpu-ring-64", work]) == 0
    assert main(["topology", "compare", work]) == 0
    text = capsys.readouterr().out
    assert max(len(line) for line in text.splitlines()) <= 64
    assert text.isascii() == (encoding == "ascii")


@pytest.mark.parametrize(
    ("what", "words"),
    [
        ("topology-run", ["topology", "run", "gpu-npu", "--json"]),
        ("topology-comparison", ["topology", "compare", "--json"]),
        ("plan", ["plan", "export", "gpu-npu"]),
    ],
)
def test_output_follows_its_schema(what: str, words: list[str], work: str, capsys: Out) -> None:
    schema = printed_json(capsys, "schema", what)
    jsonschema.Draft202012Validator.check_schema(schema)
    found = printed_json(capsys, *words, work)
    jsonschema.Draft202012Validator(schema).validate(found["plan"] if what == "plan" else found)


def test_a_workload_follows_its_schema(work: str, capsys: Out) -> None:
    validator = jsonschema.Draft202012Validator(printed_json(capsys, "schema", "topology-workload"))
    validator.validate({"target_only": {"token_count": 4}, "concurrent_campaign": {"seed": 1}})
    assert not validator.is_valid({"target_only": {"token_count": 0}})
    assert not validator.is_valid({"target_only": {"token_count": 4}, "speculative": {}})


def test_a_target_may_be_a_file(work: str, tmp_path: Path, capsys: Out) -> None:
    file = str(tmp_path / "machine.json")
    assert main(["scenario", "gpu-npu", "--out", file]) == 0
    capsys.readouterr()
    assert printed_json(capsys, "topology", "run", file, work, "--json")["scenarioId"] == "gpu-npu"


def test_what_is_wrong_ends_with_2_and_a_sentence(work: str, tmp_path: Path, capsys: Out) -> None:
    tampered = tmp_path / "tampered.json"
    assert main(["plan", "export", "cpu-only", work, "--out", str(tampered)]) == 0
    tampered.write_text(tampered.read_text().replace("620000", "620001"))
    for words, sentence in [
        (["topology", "run", "multi-gpu-ring-1", work], "expected 2 to 64"),
        (["topology", "run", "mutli-gpu", work], 'did you mean "multi-gpu"'),
        (["topology", "run", "multi-gpu", "nowhere.yaml"], "expected a topology workload, found none"),
        (["plan", "run", work], "target_only: expected one of the keys kind, revision"),
        (["plan", "run", str(tampered)], "planFingerprint: expected fnv1a32:"),
        (["topology", "compare", "multi-gpu", "nowhere.yaml"], "expected a topology workload, found none"),
    ]:
        capsys.readouterr()
        assert main(words) == 2
        printed = capsys.readouterr()
        assert sentence in printed.err and printed.out == "" and "Traceback" not in printed.err


def test_a_plan_too_large_for_its_scenario_is_refused(work: str, tmp_path: Path, capsys: Out) -> None:
    """The plan itself has 8 steps; admission and terminal count among the events of an execution."""
    out = tmp_path / "machine.json"
    assert main(["scenario", "cpu-only", "--out", str(out)]) == 0
    scenario = json.loads(out.read_text())
    for limit, code in ((7, 2), (8, 2), (10, 0)):
        scenario["execution"]["maxEvents"] = limit
        out.write_text(msgspec.json.encode(scenario).decode())
        capsys.readouterr()
        assert main(["topology", "run", str(out), work, "--quiet"]) == code
        assert ("maxEvents" in capsys.readouterr().err) == (code == 2)


def test_an_exported_plan_is_what_is_run(work: str, tmp_path: Path, capsys: Out) -> None:
    out = str(tmp_path / "plan.json")
    assert main(["plan", "export", "gpu-npu", work, "--out", out]) == 0
    capsys.readouterr()
    direct = printed_json(capsys, "topology", "run", "gpu-npu", work, "--json")
    again = printed_json(capsys, "plan", "run", out, "--json")
    assert again["execution"]["completedAtNs"] == direct["metrics"]["totalDurationNs"]
    assert again["logDigest"] == direct["logDigest"]
    assert len(load_artifact(out).plan.steps) == direct["planSteps"]
