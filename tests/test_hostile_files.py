"""Files made to break a reader: one located error and exit code 2 through every reader, soon, and in little memory.

What does no harm is accepted, and means the same: CRLF line ends, a byte order mark, tabs in JSON.
"""

from __future__ import annotations

import gzip
import json
import os
import re
import struct
import subprocess
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from readers import LOCATED, READERS, Reader, all_readers, code_of, no_hang

ALL = [*READERS, "generation_config.json", "log", "result", "exported log"]
JSON_READERS = (
    "json run file",
    "request jsonl",
    "mooncake trace",
    "config.json",
    "generation_config.json",
    "log",
    "result",
)
PEAK_MIB = 400
CPU_S = 5.0


@pytest.fixture(scope="module")
def readers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Reader]:
    return all_readers(tmp_path_factory.mktemp("made"))


def refuses(reader: Reader, folder: Path, capsys: pytest.CaptureFixture[str], path: Path | None = None) -> str:
    """What is printed; nothing but that came of it."""
    path = reader.prepare(folder) if path is None else path
    before = sorted(folder.iterdir())
    with no_hang(f"{reader.name} {path}"):
        assert code_of(reader.argv(path)) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert LOCATED.match(printed.err), printed.err
    assert len(printed.err) < 20_000
    made = {each.name for each in folder.iterdir()} - {each.name for each in before}
    assert made <= {"run.yaml", "config.json"}
    return printed.err


@pytest.mark.parametrize("name", ALL)
def test_what_is_read_here_is_accepted_as_it_is(
    name: str, readers: dict[str, Reader], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Otherwise the refusals below would mean nothing."""
    path = readers[name].prepare(tmp_path)
    path.write_text(readers[name].good)
    assert code_of(readers[name].argv(path)) == 0, capsys.readouterr().err


# ---- what is no file


def fifo(path: Path) -> None:
    os.mkfifo(path)


def folder(path: Path) -> None:
    path.mkdir()


def loop(path: Path) -> None:
    path.symlink_to(path)


def nowhere(path: Path) -> None:
    path.symlink_to(path.with_name("nowhere"))


def endless(path: Path) -> None:
    path.symlink_to("/dev/zero")


def empty_device(path: Path) -> None:
    path.symlink_to("/dev/null")


def unreadable(path: Path) -> None:
    """Root reads what nobody may, but not this."""
    path.symlink_to("/proc/self/mem")


@pytest.mark.parametrize("make", [fifo, folder, loop, nowhere, endless, empty_device, unreadable])
@pytest.mark.parametrize("name", ALL)
def test_what_is_no_file(
    name: str, make: object, readers: dict[str, Reader], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if make is unreadable and not Path("/proc/self/mem").exists():
        pytest.skip("needs /proc/self/mem, a file that cannot be read")
    assert callable(make)
    path = readers[name].prepare(tmp_path)
    make(path)
    if name == "result" and make is folder:
        assert "found a folder" in refuses(readers[name], tmp_path, capsys, path)
        return
    said = refuses(readers[name], tmp_path, capsys, path)
    kind = {"fifo": "a pipe", "folder": "folder", "endless": "a device", "empty_device": "a device"}
    assert kind.get(make.__name__, str(path.name)) in said


@pytest.mark.parametrize("name", ["a\0b", "x" * 5000, "f/below a file", ""])
def test_names_that_no_file_can_have(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "f").write_text("")
    where = f"{tmp_path}/{name}" if name else ""
    out = str(tmp_path / "out")
    for argv in (["run", where], ["replay", where], ["report", where], ["export", where, "--out", out]):
        assert code_of(argv) == 2, argv
        assert LOCATED.match(capsys.readouterr().err)
    run = READERS["run file"]
    (tmp_path / "run.yaml").write_text(run.good)
    for option in ("--out",) if name else ():
        assert code_of(["run", str(tmp_path / "run.yaml"), "--quiet", option, where]) == 2
        assert "written" in capsys.readouterr().err.replace("write into", "written")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["f", "run.yaml"]


# ---- what --out may be


def test_links_as_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = READERS["run file"]
    (tmp_path / "run.yaml").write_text(run.good)
    loop(tmp_path / "loop")
    nowhere(tmp_path / "dangling")
    for name in ("loop", "dangling", "run.yaml", "run.yaml/below", "loop/below"):
        with no_hang(name):
            assert code_of(["run", str(tmp_path / "run.yaml"), "--quiet", "--out", str(tmp_path / name)]) == 2
        assert str(tmp_path / name.split("/")[0]) in capsys.readouterr().err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["dangling", "loop", "run.yaml"]
    (tmp_path / "empty").mkdir()
    (tmp_path / "to empty").symlink_to("empty")
    assert code_of(["run", str(tmp_path / "run.yaml"), "--quiet", "--out", str(tmp_path / "to empty")]) == 0
    assert (tmp_path / "empty" / "result.json").exists()


# ---- texts that are no texts


def _replaced(reader: Reader, old: str, new: str) -> bytes:
    assert old in reader.good
    return reader.good.replace(old, new, 1).encode("utf-8", "surrogatepass")


def bad_texts(name: str, reader: Reader) -> Iterator[tuple[str, bytes]]:
    good = reader.good.encode()
    middle = len(good) // 2
    yield "empty", b""
    yield "nothing but space", b" \n" * 100
    yield "NUL", good[:middle] + b"\0" + good[middle:]
    yield "NUL bytes only", b"\0" * 5000
    yield "no UTF-8", good[:middle] + b"\xff\xfe" + good[middle:]
    yield "UTF-16", reader.good.encode("utf-16")
    yield "half a gzip", gzip.compress(good)[: len(good) // 4]
    yield "half a zstd", b"\x28\xb5\x2f\xfd\x04\x00"
    if name in JSON_READERS:
        yield "deep lists", b"[" * 100_000
        yield "deep objects", b'{"a":' * 60_000
        yield "deep value", good[: good.index(b":") + 1] + b"[" * 60_000
        yield "cut", good[: good.rindex(b"\n", 0, -1) - 9]
        place = re.search(rf'(?<="{A_NUMBER[name]}":) ?[0-9.]+', reader.good)
        assert place is not None
        for text in ("NaN", "Infinity", "-Infinity", "1e999", "-", "9" * 400, "9" * 5000, "[[[", '"\\ud800"', "{}"):
            bad = reader.good[: place.start()] + text + reader.good[place.end() :]
            yield f"{text[:10]} for a number", bad.encode()


A_NUMBER = {
    "json run file": "requests",
    "request jsonl": "input_tokens",
    "mooncake trace": "input_length",
    "measured jsonl": "e2e_ms",
    "config.json": "hidden_size",
    "generation_config.json": "top_p",
    "log": "prompt_tokens",
    "result": "arrived",
}

REPEATED = {
    "run file": ("name: tiny", "name: tiny\nname: tiny", "each key once"),
    "json run file": ('"name": "tiny"', '"name": "tiny", "name": "tiny"', "each key once"),
    "request csv": ("input_tokens,", "input_tokens,input_tokens,", "expected once"),
    "request jsonl": ('"output_tokens": 4', '"output_tokens": 4, "output_tokens": 5', "expected once"),
    "mooncake trace": ('"output_length": 4', '"output_length": 4, "output_length": 5', "each key once"),
    "measured figures": ("latency.itl_ns.p50", "latency.tpot_ns.mean", "each key once"),
    "measured csv": ("tpot,", "ttft_ms,", "expected once"),
    "measured jsonl": ('"e2e_ms": 13', '"e2e_ms": 13, "e2e_ms": 14', "expected once"),
    "config.json": ('"hidden_size": 512', '"hidden_size": 512, "hidden_siz\\u0065": 513', "each key once"),
    "generation_config.json": ('"top_p": 0.9', '"top_p": 0.9, "top_p": 1.0', "each key once"),
    "log": ('"seq":1,', '"seq":1,"seq":1,', "each key once"),
    "result": ('"name": "tiny",', '"name": "tiny", "name": "tiny",', "each key once"),
}


@pytest.mark.parametrize("name", ALL)
def test_texts_that_no_reader_takes(
    name: str, readers: dict[str, Reader], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    reader = readers[name]
    for number, (what, data) in enumerate(bad_texts(name, reader)):
        folder = tmp_path / str(number)
        folder.mkdir()
        path = reader.prepare(folder)
        path.write_bytes(data)
        if name == "lengths" and what == "nothing but space":
            assert "1: expected tokens" in refuses(reader, folder, capsys, path)
            continue
        try:
            refuses(reader, folder, capsys, path)
        except AssertionError as error:
            raise AssertionError(f"{name}: {what}") from error


@pytest.mark.parametrize("name", REPEATED)
def test_a_key_that_is_there_twice(
    name: str, readers: dict[str, Reader], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Which of two values was meant nobody can know."""
    old, new, says = REPEATED[name]
    path = readers[name].prepare(tmp_path)
    path.write_bytes(_replaced(readers[name], old, new))
    said = refuses(readers[name], tmp_path, capsys, path)
    assert says in said
    assert f"{path}:" in said


# ---- what does no harm


@pytest.mark.parametrize("change", ["CRLF", "byte order mark", "tabs in JSON", "no line end at the end"])
@pytest.mark.parametrize("name", ALL)
def test_what_does_no_harm_changes_nothing(
    name: str, change: str, readers: dict[str, Reader], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    reader = readers[name]
    if change == "tabs in JSON" and name not in JSON_READERS:
        pytest.skip(f"{name} is no JSON")
    seen = []
    for number in (0, 1):
        folder = tmp_path / str(number) / "the same name"
        folder.mkdir(parents=True)
        text = reader.good
        if number:
            text = {
                "CRLF": text.replace("\n", "\r\n"),
                "byte order mark": "\ufeff" + text,
                "tabs in JSON": re.sub('(?<=":) ', "\t", text),
                "no line end at the end": text.rstrip("\n"),
            }[change]
        path = reader.prepare(folder)
        path.write_bytes(text.encode())
        code = code_of(reader.argv(path))
        printed = capsys.readouterr()
        if name in ("log", "exported log") and number and change in ("byte order mark", "no line end at the end"):
            assert code == 2
            assert ("stops after sequence" if "end" in change else "expected a zstd-compressed or plain") in printed.err
            return
        result = folder / "out" / "result.json"
        seen.append((code, printed.out.replace(str(folder), ""), result.exists() and _without_digests(result)))
    assert seen[0][0] == 0
    assert seen[0] == seen[1]


def _without_digests(path: Path) -> object:
    """The digest of a trace is that of its bytes, and the place in a config depends on its line ends."""
    result = json.loads(path.read_text())
    return {**result, "digests": None, "assumptions": len(result["assumptions"])}


# ---- bombs: small files that promise or become large ones


def gzip_bomb(content: bytes, gigabytes: int) -> bytes:
    """A gzip file that becomes so many gigabytes of `content`, which is a mebibyte: one block over and over."""
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    first = packer.compress(content) + packer.flush(zlib.Z_FULL_FLUSH)
    again = packer.compress(content) + packer.flush(zlib.Z_FULL_FLUSH)
    head = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03"
    return head + first + again * (1024 * gigabytes - 1) + packer.flush(zlib.Z_FINISH) + struct.pack("<II", 0, 0)


def zstd_bomb(byte: bytes, promised: int, blocks: int) -> bytes:
    """A frame that promises a content size and holds blocks of 128 KiB of one byte each."""
    head = b"\x28\xb5\x2f\xfd\xc0" + bytes([(27 - 10) << 3]) + struct.pack("<Q", promised)
    block = struct.pack("<I", (131072 << 3) | (1 << 1))[:3] + byte
    last = struct.pack("<I", (131072 << 3) | (1 << 1) | 1)[:3] + byte
    return head + block * (blocks - 1) + last


_ROW = b"0.5,90,4,,\n"
BOMBS = {
    "gzip of empty lines": gzip_bomb(b"\n" * (1 << 20), 10),
    "gzip of one line": gzip_bomb(b"0" * (1 << 20), 10),
    "gzip of NUL": gzip_bomb(b"\0" * (1 << 20), 10),
    "gzip members without content": gzip.compress(b"") * 20_000,
    "zstd of empty lines": zstd_bomb(b"\n", 10 << 30, 80_000),
    "zstd of one line": zstd_bomb(b"{", 10 << 30, 80_000),
    "zstd promise": zstd_bomb(b"x", 10 << 30, 1),
    "zstd window": b"\x28\xb5\x2f\xfd\x00" + bytes([(31 - 10) << 3]) + b"\x01\x00\x00",
    "long line": b'{"a":"' + b"x" * (1 << 25),
    "many lines": b"{}\n" * (1 << 20),
    "many keys": b"{" + b",".join(b'"k%d":1' % n for n in range(100_000)) + b"}",
    "one key": b"{" + b",".join([b'"k":1'] * 9000) + b"}",
    "many commas": b"," * 60_000 + b"\n",
    "many quotes": b'"' * 60_000 + b"\n",
    "many brackets": b"[]," * 20_000 + b"\n",
    "alias bomb": b"a: &a [x]\n" + b"".join(b"b%d: &b%d [*a, *a]\n" % (n, n) for n in range(500)),
}

needs_proc = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc to know a peak of memory")

CHILD = """
import json, sys, time
sys.path[:0] = json.loads(sys.argv[1])
from readers import code_of
for line in sys.stdin:
    argv = json.loads(line)
    began = time.process_time()
    code = code_of(argv)
    with open("/proc/self/status") as status:
        peak = next(int(line.split()[1]) >> 10 for line in status if line.startswith("VmHWM"))
    print(json.dumps([code, time.process_time() - began, peak]), flush=True)
"""


SUITED = {
    "run file": ("alias bomb", "long line", "many keys", "many commas", "many quotes"),
    "json run file": ("many keys", "one key"),
    "azure trace": ("gzip of empty lines", "gzip of one line", "gzip of NUL", "gzip members without content"),
    "request csv": ("gzip of empty lines", "many quotes", "many commas"),
    "request jsonl": ("one key", "many keys", "many brackets"),
    "mooncake trace": ("one key", "many keys", "gzip of NUL"),
    "lengths": ("gzip of empty lines", "many lines"),
    "config.json": ("many keys", "one key", "long line"),
    "generation_config.json": ("many keys", "one key"),
    "log": ("zstd of empty lines", "zstd of one line", "zstd promise", "zstd window", "long line", "many lines"),
    "result": ("long line", "many keys", "many lines"),
    "exported log": ("zstd of one line", "zstd promise"),
}


def defuses(readers: dict[str, Reader], folder: Path, bombs: dict[str, tuple[str, ...]]) -> None:
    """A process reads them all and tells code, CPU seconds and its peak of memory of each.

    Its own peak: what `getrusage` says of a process begins with the memory of the one that started it.
    """
    commands, told_of = [], []
    for name, whats in bombs.items():
        for what in whats:
            place = folder / f"{len(commands)}"
            place.mkdir()
            path = readers[name].prepare(place)
            path.write_bytes(BOMBS[what])
            commands.append(json.dumps(readers[name].argv(path)))
            told_of.append((name, what))
    child = subprocess.run(
        [sys.executable, "-c", CHILD, json.dumps(sys.path)],
        input="\n".join(commands) + "\n",
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    told = [json.loads(line) for line in child.stdout.splitlines()]
    assert len(told) == len(told_of), child.stderr[-2000:]
    for bomb, (code, seconds, peak_mib) in zip(told_of, told, strict=True):
        assert code == 2, (bomb, child.stderr[-2000:])
        assert seconds < CPU_S, bomb
        assert peak_mib < PEAK_MIB, bomb
    assert "Traceback" not in child.stderr


@needs_proc
def test_bombs(readers: dict[str, Reader], tmp_path: Path) -> None:
    defuses(readers, tmp_path, SUITED)


@needs_proc
@pytest.mark.slow
def test_every_bomb_through_every_reader(readers: dict[str, Reader], tmp_path: Path) -> None:
    defuses(readers, tmp_path, dict.fromkeys(ALL, tuple(BOMBS)))


@pytest.mark.parametrize(
    "verb", [["validate"], ["scenario"], ["plan", "run"], ["topology", "run", "@"], ["campaign", "@"], ["compare", "@"]]
)
@pytest.mark.parametrize("make", [fifo, folder, loop, endless, unreadable])
def test_other_verbs_read_files_only(
    verb: list[str], make: object, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if make is unreadable and not Path("/proc/self/mem").exists():
        pytest.skip("needs /proc/self/mem, a file that cannot be read")
    assert callable(make)
    make(tmp_path / "input")
    names = [str(tmp_path / "input") if word == "@" else word for word in verb]
    with no_hang(str(names)):
        assert code_of([*names, str(tmp_path / "input")]) == 2
    printed = capsys.readouterr()
    assert printed.out == "" and LOCATED.match(printed.err) and "input" in printed.err
