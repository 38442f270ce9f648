"""Logs as files, and the island: what importing the replay room brings along."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from replay_examples import EXAMPLES, changed, preempting, synchronous

from isim.record.codec import LogWriter, encode_lines
from isim.record.digest import log_digest
from isim.record.errors import LogError, TruncatedLog
from isim.record.records import AnyRecord
from isim.replay import ReplayViolation, Rule, replay_log


def _written(folder: Path, records: list[AnyRecord]) -> Path:
    path = folder / "log.jsonl.zst"
    with path.open("wb") as stream:
        writer = LogWriter(stream)
        for start in range(0, len(records), 3):
            writer.write(records[start : start + 3])
    return path


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_file_is_judged_like_its_records(tmp_path: Path, name: str) -> None:
    records = EXAMPLES[name]()
    summary = replay_log(_written(tmp_path, records))
    assert summary.records == len(records)
    assert summary.log_digest == log_digest(records)


def test_a_cut_log_is_checked_up_to_the_cut(tmp_path: Path) -> None:
    plain = tmp_path / "log.jsonl"
    data = encode_lines(preempting())
    plain.write_bytes(data[:-10])
    with pytest.raises(TruncatedLog) as cut:
        replay_log(plain)
    assert (cut.value.sequence, cut.value.exit_code) == (len(preempting()) - 2, 2)
    wrong = changed(preempting(), 6, preempted=(0,))
    plain.write_bytes(encode_lines(wrong)[:-10])
    with pytest.raises(ReplayViolation) as violation:
        replay_log(plain)
    assert (violation.value.rule, violation.value.sequence) == (Rule.PREEMPTION, 6)


def test_what_is_no_log_is_the_codecs_to_say(tmp_path: Path) -> None:
    with pytest.raises(LogError):
        replay_log(tmp_path / "absent")
    unknown = tmp_path / "log.jsonl"
    unknown.write_bytes(encode_lines(synchronous()).replace(b'"kind":"stretch"', b'"kind":"leap"'))
    with pytest.raises(LogError, match="leap"):
        replay_log(unknown)


def test_the_replay_room_is_an_island() -> None:
    code = (
        "import sys, isim.replay\n"
        "loaded = {name for name in sys.modules if name.split('.')[0] in ('simpy', 'numpy', 'isim')}\n"
        "print(*sorted(loaded))"
    )
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    rooms = {name.split(".")[1] for name in loaded if name.startswith("isim.")}
    assert rooms == {"record", "replay"}
    assert not [name for name in loaded if name.startswith(("simpy", "numpy"))]
