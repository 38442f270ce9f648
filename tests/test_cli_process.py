"""The command as a process: what it imports, that its bytes depend on nothing, that a closed pipe is no error."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from test_cli_verbs import RUN_FILE

HEAVY = ("numpy", "scipy", "rich", "zstandard", "attrs", "attr", "pydantic", "isim.replay", "isim.report.terminal")


def isim(*arguments: str, **environment: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-m", "isim", *arguments],
        capture_output=True,
        env={**os.environ, **environment},
        check=False,
    )


@pytest.fixture
def run_file(tmp_path: Path) -> str:
    path = tmp_path / "tiny.yaml"
    path.write_text(RUN_FILE)
    return str(path)


def loaded(*arguments: str) -> list[str]:
    code = (
        f"import sys; from isim.cli.main import main; main({list(arguments)!r}); print(*sys.modules, file=sys.stderr)"
    )
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return process.stderr.split()


@pytest.mark.parametrize("form", ["--quiet", "--json"])
def test_a_bare_run_loads_nothing_it_does_not_need(run_file: str, form: str) -> None:
    modules = loaded("run", run_file, "--no-log", "--no-replay", form)
    assert [name for name in HEAVY if name in modules] == []
    assert "isim.run" in modules


def test_the_version_loads_next_to_nothing() -> None:
    modules = loaded("--version")
    assert [name for name in modules if name.split(".")[0] in (*HEAVY, "msgspec", "simpy", "ruamel")] == []


def test_help_names_every_verb() -> None:
    process = isim("--help")
    assert process.returncode == 0
    for verb in (b"run", b"replay", b"report", b"validate", b"presets", b"schema"):
        assert verb in process.stdout


def test_the_same_bytes_with_any_hash_seed(run_file: str, tmp_path: Path) -> None:
    for seed in ("0", "1", "4242"):
        assert isim("run", run_file, "--quiet", "--out", str(tmp_path / seed), PYTHONHASHSEED=seed).returncode == 0
    names = ("result.json", "requests.csv", "scenario.yaml", "log.jsonl.zst")
    for name in names:
        first, *others = [(tmp_path / seed / name).read_bytes() for seed in ("0", "1", "4242")]
        assert others == [first, first]


def test_a_reader_that_goes_away_is_no_error(run_file: str) -> None:
    for arguments in (["presets"], ["run", run_file, "--json", "--no-replay"]):
        process = subprocess.Popen(
            [sys.executable, "-m", "isim", *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        assert process.stdout is not None and process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait() == 0
        process.stderr.close()


def test_a_terminal_that_knows_only_ascii(run_file: str) -> None:
    process = isim("run", run_file, "--no-replay", PYTHONIOENCODING="ascii")
    assert process.returncode == 0
    assert process.stdout.isascii()
    assert b"KV memory" in process.stdout


def test_columns_are_obeyed(run_file: str) -> None:
    process = isim("run", run_file, "--no-replay", COLUMNS="120", PYTHONIOENCODING="utf-8")
    widths = [len(line) for line in process.stdout.decode().splitlines()]
    assert max(widths) == 120


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_full_disk_is_not_a_bug(run_file: str, unbuffered: str, tmp_path: Path) -> None:
    for arguments in (["presets"], ["run", run_file, "--json", "--no-replay"]):
        with open("/dev/full", "w") as full:
            process = subprocess.run(
                [sys.executable, "-m", "isim", *arguments],
                stdout=full,
                stderr=subprocess.PIPE,
                env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
                cwd=tmp_path,
                check=False,
            )
        assert (process.returncode, process.stderr) == (
            2,
            b"isim: standard output: cannot be written: No space left on device\n",
        )


@pytest.mark.parametrize(("closed", "code"), [(">&-", 0), ("2>&-", 0), (">&- 2>&-", 0)])
def test_closed_streams_are_no_error(run_file: str, closed: str, code: int, tmp_path: Path) -> None:
    command = f'"{sys.executable}" -m isim run "{run_file}" --no-replay {closed}'
    process = subprocess.run(["sh", "-c", command], capture_output=True, cwd=tmp_path, check=False)
    assert process.returncode == code
    assert process.stderr == b""
    assert [path.name for path in tmp_path.iterdir()] == ["tiny.yaml"]


def test_an_interrupt_waits_until_an_import_is_whole() -> None:
    """A C extension whose import is cut short may crash later, and an interrupt in a callback of the import is lost."""
    code = (
        "import os, signal, sys\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "class Hook:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'isim.model.catalogue':\n"
        "            os.kill(os.getpid(), signal.SIGINT)\n"
        "sys.meta_path.insert(0, Hook())\n"
        "from isim.cli.main import main\n"
        "print(main(['presets']), 'isim.model.catalogue' in sys.modules)\n"
    )
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (process.stdout, process.stderr) == ("130 True\n", "isim: interrupted\n")
