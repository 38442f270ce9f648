"""What is left behind when a run does not come to its end: killed, interrupted, out of room, not allowed to write.

Whatever the moment, the folder is not there, is whole, or is called unfinished; and its log is readable to the cut.
"""

from __future__ import annotations

import ctypes
import os
import random
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from readers import code_of

from isim.cli.folder import LOG, REQUESTS, RESULT, SCENARIO
from isim.record.codec import read_log
from isim.record.errors import LogError
from isim.record.records import AnyRecord

RUN_FILE = """\
schema_version: 1
name: long
hardware: { gpu: h100-sxm }
model: llama-3.1-8b
engine: { max_num_seqs: 64, max_num_batched_tokens: 2048, max_model_len: 8192 }
workload:
  kind: generated
  arrivals: { kind: poisson, rate: 30 /s }
  requests: 700
  input_tokens: { kind: uniform, low: 16, high: 900 }
  output_tokens: { kind: uniform, low: 2, high: 60 }
cost: { kind: linear, base: 2 ms, per_token: 10 us, per_context_token: 10 ns }
"""
WHOLE = sorted((LOG, REQUESTS, RESULT, SCENARIO))


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "isim", *arguments]


class Long:
    """A run of a second or two, as it is when nobody disturbs it."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "long.yaml"
        self.file.write_text(RUN_FILE)
        began = time.monotonic()
        subprocess.run(command("run", str(self.file), "--quiet", "--out", str(folder / "whole")), check=True)
        self.seconds = time.monotonic() - began
        self.folder = folder / "whole"
        self.records = [record for batch in read_log(self.folder / LOG) for record in batch]

    def start(self, out: Path) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            command("run", str(self.file), "--quiet", "--out", str(out)),
            stderr=subprocess.PIPE,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),  # tests may run without one
        )


@pytest.fixture(scope="module")
def long(tmp_path_factory: pytest.TempPathFactory) -> Long:
    return Long(tmp_path_factory.mktemp("long"))


def read_to_the_cut(log: Path) -> tuple[list[AnyRecord], LogError | None]:
    found: list[AnyRecord] = []
    try:
        for batch in read_log(log):
            found += batch
    except LogError as error:
        return found, error
    return found, None


def what_is_left(long: Long, out: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """`absent`, `unfinished` or `whole`, after everything that must hold then."""
    unfinished = out.with_name(out.name + ".unfinished")
    if out.exists():
        assert not unfinished.exists()
        assert sorted(path.name for path in out.iterdir()) == WHOLE
        for name in WHOLE:
            assert (out / name).read_bytes() == (long.folder / name).read_bytes()
        assert code_of(["report", str(out)]) == 0
        capsys.readouterr()
        return "whole"
    assert code_of(["report", str(out)]) == 2
    hint = "of a run that did not end" in capsys.readouterr().err
    assert hint == unfinished.exists()
    if not unfinished.exists():
        return "absent"
    assert code_of(["run", str(long.file), "--quiet", "--out", str(out)]) == 2
    assert "remove it first" in capsys.readouterr().err
    log = unfinished / LOG
    if not log.exists():
        return "unfinished"
    records, error = read_to_the_cut(log)
    assert records == long.records[: len(records)]
    code = code_of(["replay", str(log)])
    printed = capsys.readouterr()
    assert code == (2 if error else 0)
    if error is not None:
        last = "before its first record" if not records else f"after sequence {len(records) - 1}"
        assert error.sequence == len(records) - 1
        assert last in printed.err and printed.out == ""
    return "unfinished"


def wait_for(folder: Path, process: subprocess.Popen[bytes]) -> None:
    while not folder.exists() and process.poll() is None:
        time.sleep(0.005)


def killed(long: Long, seeds: range, folder: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, int]:
    left: dict[str, int] = {}
    for seed in seeds:
        out = folder / f"out {seed}"
        process = long.start(out)
        if seed % 3:  # most moments from when the folder is there; before that there is nothing to spoil
            wait_for(out.with_name(out.name + ".unfinished"), process)
        time.sleep(random.Random(seed).uniform(0, 0.8) * long.seconds)
        process.kill()
        process.communicate()
        state = what_is_left(long, out, capsys)
        left[state] = left.get(state, 0) + 1
    return left


def test_killed_at_any_moment(long: Long, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    killed(long, range(3), tmp_path, capsys)


@pytest.mark.slow
def test_killed_at_fifty_moments(long: Long, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    left = killed(long, range(100, 150), tmp_path, capsys)
    print(f"\nkilled at fifty moments of {long.seconds:.2f} s: {left}")
    assert left["unfinished"] > 10


def interrupted(long: Long, seeds: range, folder: Path, capsys: pytest.CaptureFixture[str]) -> list[float]:
    """Seconds from each interrupt to the end."""
    took = []
    for seed in seeds:
        out = folder / f"out {seed}"
        unfinished = out.with_name(out.name + ".unfinished")
        process = long.start(out)
        wait_for(unfinished, process)
        time.sleep(random.Random(seed).uniform(0, 0.5) * long.seconds)
        began = time.monotonic()
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
        took.append(time.monotonic() - began)
        if process.returncode == 0:
            assert what_is_left(long, out, capsys) == "whole"
            continue
        assert process.returncode == 130, errors
        assert errors.decode().splitlines() == [f"kept: {unfinished}, as far as it was written", "isim: interrupted"]
        assert what_is_left(long, out, capsys) == "unfinished"
        assert (unfinished / SCENARIO).exists()
    return took


def test_interrupted_at_any_moment(long: Long, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    interrupted(long, range(1), tmp_path, capsys)


@pytest.mark.slow
def test_interrupted_at_fifty_moments(long: Long, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    took = interrupted(long, range(100, 150), tmp_path, capsys)
    print(f"\ninterrupted at fifty moments: ended after {max(took):.2f} s at most")


# ---- no room, no permission


def without_room(room_bytes: int, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run where no file may grow beyond some size."""

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (room_bytes, room_bytes))

    return subprocess.run(command(*arguments), capture_output=True, text=True, preexec_fn=limit, check=False)


@pytest.mark.parametrize("full", [SCENARIO, LOG, RESULT, REQUESTS])
def test_no_room(full: str, long: Long, tmp_path: Path) -> None:
    """Whichever file is the first that does not fit."""
    sizes = {name: (long.folder / name).stat().st_size for name in (SCENARIO, LOG, RESULT, REQUESTS)}
    if full == RESULT:
        options, room = ["--no-log"], sizes[RESULT] - 1
    elif full == REQUESTS:
        options, room = ["--no-log"], sizes[REQUESTS] - 1
    else:
        options, room = [], sizes[full] - 1
    process = without_room(room, "run", str(long.file), "--quiet", *options, "--out", str(tmp_path / "out"))
    assert process.returncode == 2
    assert process.stderr == f"isim: {tmp_path}/out.unfinished: cannot be written: File too large\n"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("room", [0, 1000])
@pytest.mark.parametrize("verb", ["export", "scenario"])
def test_no_room_for_a_file(verb: str, room: int, long: Long, tmp_path: Path) -> None:
    what = {"export": str(long.file), "scenario": "multi-gpu-ring-8"}[verb]
    process = without_room(room, verb, what, "--out", str(tmp_path / "out"))
    assert process.returncode == 2
    assert process.stderr == f"isim: {tmp_path}/out: cannot be written: File too large\n"
    assert list(tmp_path.iterdir()) == []


_DAC_OVERRIDE, _DAC_READ_SEARCH, _PR_CAPBSET_DROP = 1, 2, 24
HELD = "permissions do not apply here, and the capabilities that make it so cannot be dropped"


def as_anybody(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run where permissions apply: they do not to root, unless it gives up the capabilities to pass them over."""

    def give_up() -> None:
        for capability in (_DAC_OVERRIDE, _DAC_READ_SEARCH) if os.getuid() == 0 else ():
            if ctypes.CDLL(None).prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0):
                os._exit(99)

    process = subprocess.run(command(*arguments), capture_output=True, text=True, preexec_fn=give_up, check=False)
    if process.returncode == 99:
        pytest.skip(HELD)
    return process


def test_a_folder_that_may_not_be_written_to(tmp_path: Path, long: Long) -> None:
    closed = tmp_path / "closed"
    closed.mkdir()
    closed.chmod(0o555)
    for arguments in (["run", str(long.file), "--quiet", "--out"], ["export", str(long.file), "--out"]):
        process = as_anybody(*arguments, str(closed / "out"))
        assert process.returncode == 2
        assert process.stderr.startswith(f"isim: {closed}/out")
        assert "cannot be written: Permission denied" in process.stderr
    assert list(closed.iterdir()) == []


def test_files_that_may_not_be_read(tmp_path: Path) -> None:
    for name in ("secret", "config.json"):
        (tmp_path / name).write_text(RUN_FILE)
        (tmp_path / name).chmod(0o000)
    (tmp_path / "model.yaml").write_text(RUN_FILE.replace("model: llama-3.1-8b", "model: config.json"))
    start = RUN_FILE.index("workload:")
    (tmp_path / "trace.yaml").write_text(
        RUN_FILE[:start] + "workload: { kind: azure_trace, path: secret }\ncost: { kind: linear, base: 1 ms }\n"
    )
    for verb, name in (("run", "secret"), ("run", "model.yaml"), ("run", "trace.yaml"), ("replay", "secret")):
        process = as_anybody(verb, str(tmp_path / name))
        assert (process.returncode, process.stdout) == (2, ""), process.stderr
        assert "Permission denied" in process.stderr and str(tmp_path) in process.stderr
