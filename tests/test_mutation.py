"""Changed logs are noticed: a small seeded choice of what `make mutation` tries, and that it would tell of a hole."""

from __future__ import annotations

from pathlib import Path

import msgspec
import mutation
import pytest
from log_mutations import Mutation, kind_of, mutations

from isim.record.codec import SERVING_LOG
from isim.record.execution import EXECUTION_KINDS
from isim.record.records import KINDS

NAMES = (
    "quickstart.yaml",
    "hybrid.yaml",
    "crowd, engine.version=0.33, engine.async_scheduling=true, engine.scheduling_policy=priority",
    "crowd, 3 engines, least_outstanding",
    "clients that give up",
    "clients far away that give up",
    "campaign, multi-gpu-ring-8",
)
LONG = "campaign, multi-gpu, 110 tokens"
"""Its records are large, and each of their parts is changed: minutes."""


@pytest.mark.parametrize("name", [*NAMES, pytest.param(LONG, marks=pytest.mark.slow)])
def test_no_change_survives_that_is_not_documented(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    code = mutation.main(["--requests", "10", "--records", "1", "--changes", "1", "--only", name])
    told = capsys.readouterr().out
    assert code == 0, told
    assert told.rstrip().endswith(" 0 holes")


def test_every_kind_of_record_is_in_some_log(tmp_path: Path) -> None:
    kinds = {
        (subject.execution, kind_of(record))
        for name, make in mutation.logs(tmp_path, 10)
        if name in (*NAMES, LONG, "crowd, engine.version=0.21, engine.async_scheduling=false")
        for subject in [make()]
        for record in subject.records
    }
    wanted = {(False, kind_of(kind)) for kind in KINDS} | {(True, kind_of(kind)) for kind in EXECUTION_KINDS}
    assert wanted - kinds <= {(False, "reject"), (True, "release")}


def test_a_change_that_nothing_notices_is_a_hole(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(mutation, "replay_log", lambda path: None)
    asked = ["--requests", "4", "--records", "1", "--changes", "1", "--only", "quickstart.yaml"]
    assert mutation.main(asked) == 1
    told = capsys.readouterr().out
    assert "turn.free_blocks value" in told
    assert "header.seed value: 1 tried; noticed by nothing, 1 survived (free)" in told
    assert "header.seed twice: 1 tried; noticed by nothing, 1 survived\n" in told


def test_every_sort_of_change_is_made() -> None:
    """Of a turn with two requests admitted: each change, and none that the decoder reads as the same turn."""
    line = (
        b'{"kind":"turn","seq":3,"time_ns":0,"step":0,"duration_ns":5,"admitted":[[0,0,3],[1,0,4]],'
        b'"scheduled":2,"tokens":7,"sampled":2,"running":2,"waiting":0,"free_blocks":4}'
    )
    record = SERVING_LOG.decoder.decode(line)
    made = dict(mutations(record, "admitted"))
    assert set(made) == set(Mutation)
    swapped = {changed for mutation, changed in mutations(record, "admitted") if mutation is Mutation.ORDER}
    assert any(b"[[1,0,4],[0,0,3]]" in changed for changed in swapped)
    doubled = {changed for mutation, changed in mutations(record, "admitted") if mutation is Mutation.DUPLICATION}
    assert any(b"[[0,0,3],[0,0,3],[1,0,4]]" in changed for changed in doubled)
    assert b'"running"' not in next(it for mutation, it in mutations(record, "running") if mutation == "deletion")


def test_an_end_before_the_last_step_has_ended_is_noticed(tmp_path: Path) -> None:
    """The last clients give up while a step is under way; the run ends with that step."""
    subject = dict(mutation.logs(tmp_path, 24))["clients that give up"]()
    lines = [msgspec.json.encode(record) for record in subject.records]
    path = tmp_path / "log.jsonl"
    for earlier_ns, verdict in ((0, None), (1, "end")):
        end = subject.records[-1]
        last = msgspec.json.encode(msgspec.structs.replace(end, time_ns=end.time_ns - earlier_ns))
        path.write_bytes(b"\n".join([*lines[:-1], last]) + b"\n")
        assert subject.judge(path) == verdict


def test_a_log_that_is_not_there_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert mutation.main(["--only", "nothing"]) == 2
    assert "expected --only" in capsys.readouterr().err
