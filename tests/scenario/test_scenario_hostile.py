"""Files made to break a loader: each is refused with a place, in bounded time and memory, never with a traceback."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isim.scenario.errors import ScenarioError
from isim.scenario.load import read_scenario
from isim.scenario.nodes import MAX_FILE_BYTES
from isim.scenario.types import Scenario

SCENARIOS = Path(__file__).parents[2] / "scenarios"
QUICKSTART = (SCENARIOS / "quickstart.yaml").read_bytes()
GOOD = (SCENARIOS / "bench" / "w1.yaml").read_text()
BUDGET_CPU_S = 2.0  # a second on an idle machine, and slack for a busy one


def refusal(data: bytes | str, *sets: str) -> ScenarioError:
    started = time.process_time()
    with pytest.raises(ScenarioError) as caught:
        read_scenario(data if isinstance(data, bytes) else data.encode("utf-8", "surrogatepass"), "run.yaml", sets)
    assert time.process_time() - started < BUDGET_CPU_S
    assert caught.value.complaints
    assert str(caught.value).isascii() or str(caught.value).encode()
    return caught.value


ALIAS_BOMB = "a: &a [x, x]\n" + "".join(
    f"{chr(98 + n)}: &{chr(98 + n)} [*{chr(97 + n)}, *{chr(97 + n)}]\n" for n in range(20)
)

PLACED = [
    ("", "1:1: expected a run file, found no content"),
    ("# nothing\n", "2:1: expected a run file, found no content"),
    ("\ufeff", "1:1: expected a run file, found no content"),
    ("text", '1:1: expected a block of keys, found the text "text"'),
    ("- a\n", "1:1: expected a block of keys, found a list"),
    ("null", "1:1: expected a block of keys, found nothing"),
    ("a: 1\n---\na: 1\n", "2:1: expected one document, found the start of a second one"),
    ("name: a\nname: b\n", "2:1: name: expected each key once, found it again; first on line 1, column 1"),
    ("name: &x a\n", "1:7: name: expected a value, found an anchor; write the value where it is needed"),
    ("name: *x\n", "1:7: name: expected a value, found an alias; write the value out"),
    ("name: !!str a\n", "1:7: name: expected a value without a tag, found the tag tag:yaml.org,2002:str"),
    ("name: !!python/object/apply:os.system [x]\n", "1:7: name: expected a value without a tag"),
    ("%YAML 1.1\n---\nname: a\n", "2:1: expected YAML 1.2 without directives, found a directive"),
    ("? [a]\n: b\n", "1:3: expected a text as key, found a list"),
    ("name: a\n\thardware: b\n", "2:1: expected spaces, found a tab"),
    ("name: {a\n", "2:1: name: expected well-formed YAML"),
    ("name: a: b\n", "1:8: expected well-formed YAML"),
    ("name: 'a\n", "expected well-formed YAML"),
    ("name: \x00\n", "1:7: expected printable text, found the character U+0000"),
    ("name: a\nx: \x1b[31m\n", "2:4: expected printable text, found the character U+001B"),
    ("name: \u2028\n", "1:7: expected printable text, found the character U+2028"),
    ('{"name": "\\ud83d"}', "1:10: name: expected text, found half of a surrogate pair"),
    ('name: "\\UFFFFFFFF"\n', "expected well-formed YAML"),
    (b"name: \xff\n", "1:7: expected UTF-8 text, found the byte 0xff"),
    (GOOD.encode("utf-16"), "1:1: expected UTF-8 text, found the byte 0xff"),
    ("<<: {name: a}\n", "1:1: <<: expected one of the keys"),
    ("1: a\n", "1:1: 1: expected one of the keys"),
    (
        "schema_version: " + "9" * 400,
        "1:17: schema_version: expected 1, found the whole number 999999999999… of 400 digits",
    ),
    ("schema_version: 1.0", "1:17: schema_version: expected 1, found the number 1.0"),
    ("schema_version: .inf", "1:17: schema_version: expected 1, found the number .inf"),
    ("schema_version: .nan", "1:17: schema_version: expected 1, found the number .nan"),
    ("schema_version: true", "1:17: schema_version: expected 1, found true"),
    ("schema_version: '1'", '1:17: schema_version: expected 1, found the text "1"'),
    ("schema_version:", "1:16: schema_version: expected 1, found nothing"),
]


@pytest.mark.parametrize(("data", "says"), PLACED)
def test_refused_with_its_place(data: bytes | str, says: str) -> None:
    lines = str(refusal(data)).splitlines()
    assert any(says in line for line in lines), lines
    assert all(line.startswith("run.yaml:") for line in lines)


HUGE = {
    "nested lists": "[" * 5000,
    "nested lists on lines": "[ \n" * 5000,
    "nested lists with items": "[a," * 5000,
    "nested blocks": "{a: " * 5000,
    "nested items": "- " * 5000,
    "nested indents": "\n".join(" " * depth + "a:" for depth in range(340)),
    "nested keys": "? " * 10_000,
    "alias bomb": ALIAS_BOMB,
    "many anchors": "&a " * 10_000,
    "many tags": "!a " * 10_000,
    "many values": "[" + "a," * 30_000 + "]",
    "many pairs": "[" + "a: b," * 12_000 + "]",
    "many keys": "\n".join(f"key{n}: {n}" for n in range(4200)),
    "same key": "name:\n" * 8000,
    "many documents": "---\n" * 15_000,
    "long word": "name: " + "a" * 65_000,
    "long quoted": "name: '" + "a" * 65_000,
    "long escapes": 'name: "' + "\\n" * 30_000 + '"',
    "long block": "name: |\n" + " b\n" * 20_000,
    "long number": "schema_version: " + "9" * 65_000,
    "long exponent": "engine: {gpu_memory_utilization: 1e999999999}",
    "long unit": "hardware: {gpu: {name: a, memory: '1" + " " * 60_000 + "x'}}",
    "long warmup": "simulation: {warmup: '1" + " " * 60_000 + "x'}",
    "too long": "#" * (MAX_FILE_BYTES + 1),
    "zeros": "\0" * 60_000,
    "colons": ":" * 60_000,
    "colons apart": ": " * 30_000,
    "brackets": "[]" * 30_000,
    "empty lists": "[" + "[]," * 20_000,
    "plain lines": "name: " + "a\n " * 20_000,
}


@pytest.mark.parametrize("name", HUGE)
def test_huge_is_refused_quickly(name: str) -> None:
    error = refusal(HUGE[name])
    assert len(str(error)) < 200_000


@pytest.mark.parametrize(
    "override",
    ["", "=", "a", ".=1", "a.=1", "." * 1000 + "=1", "x" * 10_000, "name=\0", "name=[", "name=&a b", "name=*a", "a=b=c",
     "name=\ud800", "workload.path=\0", "a." * 30 + "b=1", "name=" + "[" * 5000, "schema_version=9" + "9" * 5000],
)  # fmt: skip
def test_hostile_override(override: str) -> None:
    for line in str(refusal(GOOD, override)).splitlines():
        assert line.startswith("--set[1]: ")


def outcome(data: bytes, *sets: str) -> Scenario | ScenarioError:
    try:
        return read_scenario(data, "run.yaml", sets)
    except ScenarioError as error:
        assert error.complaints
        return error


FRAGMENTS = b"\x00 : - ? [ ] { } , # & * ! | > ' \" % @ ` 1e3 .nan null true 0x1F ~ << -1 0 \xc3\xa9 \xff \xf0".split()
FRAGMENTS += [b"\n", b"\t", b" ", b"\r"]


@settings(derandomize=True, deadline=None, max_examples=400)
@given(st.integers(0, 1 << 32))
def test_any_mutation_gives_a_scenario_or_a_complaint(seed: int) -> None:
    dice = random.Random(seed)
    data = bytearray(dice.choice((QUICKSTART, GOOD.encode())))
    for _ in range(dice.randint(1, 6)):
        at = dice.randrange(len(data))
        what = dice.randrange(4)
        if what == 0:
            data[at] = dice.randrange(256)
        elif what == 1:
            del data[at : at + dice.randint(1, 40)]
        elif what == 2:
            data[at:at] = dice.choice(FRAGMENTS)
        else:
            source = dice.randrange(len(data))
            data[at:at] = data[source : source + dice.randint(1, 80)]
    outcome(bytes(data))


@settings(derandomize=True, deadline=None, max_examples=200)
@given(st.binary(max_size=200))
def test_any_bytes_give_a_complaint(data: bytes) -> None:
    assert isinstance(outcome(data), ScenarioError)


@settings(derandomize=True, deadline=None, max_examples=200)
@given(st.text(max_size=60))
def test_any_override_gives_a_scenario_or_a_complaint(text: str) -> None:
    outcome(GOOD.encode(), text)
    outcome(GOOD.encode(), f"name={text}")
    outcome(GOOD.encode(), f"engine.{text}=1")
