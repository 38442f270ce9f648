"""A thousand inputs spoilt at random, each through the command that reads it: a right run or an error, never less.

Seeded, so the same thousand every time. Of every case it is asked: an exit code that is documented, a located complaint
where it is not 0 or 4, no bug report, a folder that is whole or not there, and an end.
"""

from __future__ import annotations

import random
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from readers import LOCATED, READERS, Reader, all_readers, code_of, no_hang

from isim.cli.folder import LOG, REQUESTS, RESULT, SCENARIO

TRACES = ("azure trace", "request csv", "request jsonl", "mooncake trace", "lengths")
MEASURED = ("measured figures", "measured csv", "measured jsonl")
GROUPS = {
    "run files": ("run file", "run file", "json run file"),
    "traces": TRACES,
    "model configurations": ("config.json", "config.json", "generation_config.json"),
    "measurements": MEASURED,
    "logs": ("log", "log", "log", "exported log", "result"),
}
ALLOWED = {"log": (0, 2, 3), "exported log": (0, 2), "result": (0, 2)}
CASES = 250
PIECES = 5

_NUMBERS = (
    "0 -1 1 2 3 17 4096 65536 4294967296 9007199254740992 99999999999999999999 1e3 1e999 -0 0.5 1.5e-3 .nan .inf NaN "
    "Infinity 0x10 1_000 00012 null true [] {} \"\" '' 1 2023-11-16 ms s 10% ~"
)
NUMBERS = tuple(_NUMBERS.split())
_FRAGMENTS = "\0 \n \r\n \t : , - ? [ ] { } # & * ! | > ' \" % @ ` \\ \ufeff \u2028 é \U0001f600"
FRAGMENTS = tuple(_FRAGMENTS.split(" "))
_NUMBER = re.compile(r"[0-9]+(?:\.[0-9]+)?")
_WORD = re.compile(r"[A-Za-z_][A-Za-z_0-9]+")

Dice = random.Random
Spoil = Callable[[Dice, str], str]


def _cut(dice: Dice, text: str) -> str:
    return text[: dice.randrange(len(text))]


def _drop(dice: Dice, text: str) -> str:
    at = dice.randrange(len(text))
    return text[:at] + text[at + dice.randint(1, 30) :]


def _repeat(dice: Dice, text: str) -> str:
    start, at = dice.randrange(len(text)), dice.randrange(len(text))
    return text[:at] + text[start : start + dice.randint(1, 60)] + text[at:]


def _insert(dice: Dice, text: str) -> str:
    at = dice.randrange(len(text))
    return text[:at] + dice.choice(FRAGMENTS) + text[at:]


def _number(dice: Dice, text: str) -> str:
    found = list(_NUMBER.finditer(text))
    if not found:
        return text
    match = dice.choice(found)
    return text[: match.start()] + dice.choice((*NUMBERS, match[0] * 2, str(dice.randrange(300)))) + text[match.end() :]


def _word(dice: Dice, text: str) -> str:
    found = list(_WORD.finditer(text))
    if not found:
        return text
    match, other = dice.choice(found), dice.choice(found)
    return text[: match.start()] + other[0] + text[match.end() :]


def _line(dice: Dice, text: str) -> str:
    lines = text.splitlines(keepends=True)
    at, other = dice.randrange(len(lines)), dice.randrange(len(lines))
    what = dice.randrange(3)
    if what == 0:
        lines[at], lines[other] = lines[other], lines[at]
    elif what == 1:
        lines.insert(at, lines[other])
    else:
        del lines[at]
    return "".join(lines)


SPOILS: tuple[Spoil, ...] = (_cut, _drop, _repeat, _insert, _number, _number, _number, _word, _word, _line, _line)


def spoilt(dice: Dice, text: str) -> bytes:
    for _ in range(dice.choice((1, 1, 1, 2, 4))):
        if text:
            text = dice.choice(SPOILS)(dice, text)
    data = text.encode("utf-8", "surrogatepass")
    if data and dice.randrange(10) == 0:
        at = dice.randrange(len(data))
        data = data[:at] + bytes([dice.randrange(256)]) + data[at + 1 :]
    return data


def judge(reader: Reader, name: str, data: bytes, folder: Path, capsys: pytest.CaptureFixture[str]) -> int:
    """The exit code, after everything that must hold with it."""
    path = reader.prepare(folder)
    path.write_bytes(data)
    with no_hang(f"{name} {data!r}"):
        code = code_of(reader.argv(path))
    printed = capsys.readouterr()
    assert code in ALLOWED.get(name, (0, 2, 4)), printed.err
    if code not in (0, 4):
        assert printed.out == ""
        assert LOCATED.match(printed.err), printed.err
    out = folder / "out"
    assert not (folder / "out.unfinished").exists()
    if name in MEASURED:
        assert (folder / "fitted.yaml").exists() == (code == 0)
        return code
    if name in READERS or name == "generation_config.json":
        assert out.exists() == (code != 2)
    if out.exists():
        assert sorted(each.name for each in out.iterdir()) == sorted((LOG, REQUESTS, RESULT, SCENARIO))
    assert (folder / "made.csv").exists() == (name == "exported log" and code == 0)
    return code


def fuzz(
    group: str, seeds: range, readers: dict[str, Reader], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> dict[int, int]:
    """How often each exit code came."""
    codes: dict[int, int] = {}
    for seed in seeds:
        dice = random.Random(f"{group} {seed}")
        name = dice.choice(GROUPS[group])
        folder = tmp_path / str(seed)
        folder.mkdir()
        try:
            code = judge(readers[name], name, spoilt(dice, readers[name].good), folder, capsys)
        except AssertionError as error:
            raise AssertionError(f"{group}, seed {seed}, {name}: see {folder}") from error
        codes[code] = codes.get(code, 0) + 1
        shutil.rmtree(folder)
    return codes


@pytest.fixture(scope="module")
def readers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Reader]:
    return all_readers(tmp_path_factory.mktemp("made"))


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A report of a bug would lie in the working folder."""
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("piece", range(PIECES))
@pytest.mark.parametrize("group", GROUPS)
def test_spoilt_inputs(
    group: str, piece: int, readers: dict[str, Reader], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    size = CASES // PIECES
    codes = fuzz(group, range(piece * size, (piece + 1) * size), readers, tmp_path, capsys)
    assert 2 in codes or 3 in codes, "some are spoilt"
    assert 0 in codes, "some are spoilt where it does not matter"


@pytest.mark.slow
@pytest.mark.parametrize("group", GROUPS)
def test_many_spoilt_inputs(
    group: str, readers: dict[str, Reader], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fuzz(group, range(CASES, 8 * CASES), readers, tmp_path, capsys)
