"""A run is a function of scenario, seed and version: whole processes give the same bytes, whatever surrounds them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import zstandard

ROOT = Path(__file__).resolve().parents[1]
QUICKSTART = ROOT / "scenarios" / "quickstart.yaml"
DIGESTS = ROOT / "tools" / "digests.py"


def run(folder: Path, hash_seed: str, *options: str, **environment: str) -> Path:
    """Run the quickstart as a person would, from a folder of its own; returns what it wrote."""
    folder.mkdir()
    subprocess.run(
        [sys.executable, "-m", "isim", "run", str(QUICKSTART), "--quiet", "--out", "out", *options],
        cwd=folder,
        env={**os.environ, **environment, "PYTHONHASHSEED": hash_seed},
        check=True,
        timeout=120,
    )
    return folder / "out"


def contents(out: Path) -> dict[str, bytes]:
    """The bytes of every file but the resolved run file; the log decompressed, as zstd's bytes are its version's."""
    files = {name: (out / name).read_bytes() for name in ("result.json", "requests.csv")}
    with zstandard.ZstdDecompressor().stream_reader((out / "log.jsonl.zst").open("rb"), read_across_frames=True) as log:
        files["log"] = log.read()
    return files


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run(tmp_path_factory.mktemp("first") / "here", "0")


def test_the_same_bytes_under_another_hash_seed(first: Path, tmp_path: Path) -> None:
    expected = contents(first)
    assert expected["log"].count(b"\n") > 1000
    assert expected["requests.csv"].count(b"\n") == 241
    again = run(tmp_path / "elsewhere", "4242", TZ="Asia/Kathmandu", LC_ALL="C", COLUMNS="33")
    assert contents(again) == expected
    assert (again / "scenario.yaml").read_bytes() == (first / "scenario.yaml").read_bytes()


def test_the_resolved_run_file_gives_the_same_bytes(first: Path, tmp_path: Path) -> None:
    subprocess.run(
        [sys.executable, "-m", "isim", "run", str(first / "scenario.yaml"), "--quiet", "--out", str(tmp_path / "out")],
        check=True,
        timeout=120,
    )
    assert contents(tmp_path / "out") == contents(first)


def test_another_seed_gives_other_bytes(first: Path, tmp_path: Path) -> None:
    """Otherwise the equalities above would show nothing."""
    other = contents(run(tmp_path / "other", "0", "--seed", "2"))
    expected = contents(first)
    assert all(other[name] != expected[name] for name in expected)


def test_one_digest_with_and_without_numpy_and_its_vector_instructions() -> None:
    """`make digests` does so for every scenario, and under a second numpy version."""
    done = subprocess.run(
        [sys.executable, str(DIGESTS), "--only", "closed-loop.yaml", "--numpy", "no such folder"],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert sum(line.startswith("1 scenario, numpy none, hash seed ") for line in lines) == 2
    assert sum(line.endswith("the same digests") for line in lines) == 4
    assert sum("left out, there is no such folder" in line for line in lines) == 1


def test_isim_imports_no_numpy_anywhere() -> None:
    """So whatever numpy is there, and whatever instructions it chooses, cannot be in a result."""
    for file in (ROOT / "isim").rglob("*.py"):
        assert not re.search(r"^\s*(import|from) numpy", file.read_text(encoding="utf-8"), re.MULTILINE), file
