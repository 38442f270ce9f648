"""The rules of the house that no other tool holds: run code, imports, and documents that say what is there."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import isim
from isim.replay import FREE_FIELDS, FREE_ORDERS, RULES
from isim.replay.execution import EXECUTION_RULES, FREE_EXECUTION_FIELDS
from isim.scenario.load import load_scenario, read_scenario

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tools"))

from check_run_code import ALLOWED, ROOMS, Rule, check, check_source  # noqa: E402 - tools/ is no package

PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
README = (ROOT / "README.md").read_text()


# ---- run code


def test_run_code_is_a_function_of_scenario_and_seed() -> None:
    assert [str(finding) for finding in check(ROOT)] == []


def test_every_exception_has_its_reason() -> None:
    assert all(reason.strip() for reason in ALLOWED.values())
    assert all(reason.strip() for _, reason in ROOMS.values())


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("import time", Rule.CLOCK),
        ("from datetime import datetime", Rule.CLOCK),
        ("import os\nos.urandom(8)", Rule.RANDOM),
        ("import random", Rule.RANDOM),
        ("from numpy.random import default_rng", Rule.RANDOM),
        ("from numpy import random", Rule.RANDOM),
        ("import uuid", Rule.RANDOM),
        ("x = hash('a')", Rule.HASH),
        ("sorted([1], key=id)", Rule.IDENTITY),
        ("for x in {1, 2}: pass", Rule.SET_ORDER),
        ("[x for x in {1, 2}]", Rule.SET_ORDER),
        ("list(set('ab'))", Rule.SET_ORDER),
        ("def f(x: set[int]):\n    return tuple(x)", Rule.SET_ORDER),
        ("def f(x: set[int]):\n    y = x | {1}\n    return ','.join(y)", Rule.SET_ORDER),
        ("def f(x: dict[int, int]):\n    for y in x.keys() - {1}: pass", Rule.SET_ORDER),
        ("class C:\n    s: frozenset[int]\n    def f(self):\n        yield from self.s", Rule.SET_ORDER),
        ("s = {1}\na, = s", Rule.SET_ORDER),
        ("s = {1}\ns.pop()", Rule.SET_ORDER),
        ("s = {1}\nf'{s}'", Rule.SET_ORDER),
        ("import threading", Rule.THREADS),
        ("async def f(): pass", Rule.THREADS),
        ("x = 1\n" * 401, Rule.FILE_LENGTH),
        ("def f():\n" + "    x = 1\n" * 70, Rule.FUNCTION_LENGTH),
    ],
)
def test_what_the_check_finds(text: str, rule: Rule) -> None:
    assert rule in [finding.rule for finding in check_source(text, "isim/x.py")]


@pytest.mark.parametrize(
    "text",
    [
        "for x in sorted({1, 2}): pass",
        "sorted(x + 1 for x in {1, 2})",
        "s = {1}\nok = 1 in s and len(s) and any(x for x in s)",
        "for key in {'a': 1}: pass",
        "class C:\n    id: str\n    def f(self, id: int): return self.id, id",
        "from isim.draw.streams import Stream",
        "x = 1\n" * 400,
        "def f():\n" + "    x = 1\n" * 69,
    ],
)
def test_what_the_check_lets_pass(text: str) -> None:
    assert check_source(text, "isim/x.py") == []


# ---- what is imported


SOME = ("simpy.core", "importlib.metadata")


def imported(*arguments: str) -> list[str]:
    """Top-level modules, rooms of isim and some others loaded after a command line, in a process of its own."""
    script = (
        "import sys\nfrom isim.cli.main import main\n"
        f"try: code = main({list(arguments)!r})\nexcept SystemExit as end: code = end.code\n"
        f"names = [it for it in sys.modules if '.' not in it or it in {SOME}"
        " or it.startswith('isim.') and it.count('.') == 1]\n"
        "sys.stderr.write(' '.join(sorted(names)))\nsys.exit(code)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stderr.split()


HEAVY = ("simpy.core", "msgspec", "rich", "ruamel", "zstandard", "numpy", "attrs", "attr", "dataclasses", "inspect")


def test_help_imports_nothing_heavy() -> None:
    modules = imported("--help")
    assert "isim" in modules
    assert [name for name in HEAVY if name in modules] == []


def test_a_run_without_log_and_replay_imports_what_it_needs() -> None:
    run_file = str(ROOT / "scenarios" / "bench" / "w1.yaml")
    options = ("--quiet", "--no-log", "--no-replay", "--set", "workload.requests=3")
    modules = imported("run", run_file, *options)
    assert "simpy.core" in modules
    unwanted = ("numpy", "zstandard", "rich", "attrs", "attr", "cattrs", "scipy", "pandas", "dataclasses")
    assert "importlib.metadata" not in modules
    assert [name for name in unwanted if name in modules] == []
    assert [name for name in ("isim.topology", "isim.plan", "isim.machine") if name in modules] == []


def test_the_rest_of_simpy_is_there_for_who_asks() -> None:
    script = (
        "import isim.kernel, simpy, simpy.events\n"
        "from isim.kernel.simpy_core import Environment, Event\n"
        "assert simpy.core.Environment is Environment is simpy.Environment\n"
        "assert simpy.events.Event is Event is simpy.Event\n"
        "assert simpy.Store(simpy.Environment()).items == [] and simpy.__version__ and not hasattr(simpy, 'nothing')\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


def test_plans_are_executed_without_a_kernel() -> None:
    workload = str(ROOT / "scenarios" / "plans" / "target-only.yaml")
    modules = imported("campaign", "cpu-only", workload, "--executions", "2", "--quiet", "--no-replay")
    assert "isim.machine" in modules
    unwanted = ("simpy.core", "numpy", "zstandard", "rich", "attrs", "dataclasses", "isim.kernel", "isim.serve")
    assert [name for name in unwanted if name in modules] == []


# ---- documents


def test_one_version() -> None:
    newest = re.search(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert newest is not None
    assert isim.__version__ == PYPROJECT["project"]["version"] == newest[1]


def test_every_make_target_is_in_the_readme() -> None:
    phony = re.search(r"^\.PHONY:(.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert phony is not None
    targets = phony[1].split()
    assert {"run", "test", "check", "bench", "shuffle", "slow", "schedules", "clean"} <= set(targets)
    assert [target for target in targets if not re.search(rf"\bmake {target}\b", README)] == []


def test_the_picture_of_the_floors_is_the_contract() -> None:
    """Same rooms, same order, top floor first; rooms side by side in the picture are so in the contract."""
    architecture = (ROOT / "docs" / "architecture.md").read_text()
    picture = re.search(r"^## Floors$.*?^```\w*\n(.*?)^```", architecture, re.MULTILINE | re.DOTALL)
    assert picture is not None
    room = r"(?:[a-z_]+)(?:/|\.py)"
    drawn = []
    for line in picture[1].splitlines():
        found = re.match(rf"\s*({room}(?:\s*\|\s*{room})*)(?:\s|$)", line)
        assert found is not None, line
        drawn.append([re.sub(r"/|\.py|\s", "", name) for name in found[1].split("|")])
    contract = next(it for it in PYPROJECT["tool"]["importlinter"]["contracts"] if it["name"] == "floors")
    assert drawn == [[name.strip() for name in layer.split("|")] for layer in contract["layers"]]
    there = [path.stem for path in (ROOT / "isim").iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()]
    assert sorted(name for floor in drawn for name in floor) == sorted(name for name in there if name != "__init__")


def readme_blocks(kind: str) -> list[str]:
    return re.findall(rf"^```{kind}\n(.*?)^```", README, re.MULTILINE | re.DOTALL)


def test_the_scenario_in_the_readme_is_the_quickstart() -> None:
    (shown,) = readme_blocks("yaml")
    file = ROOT / "scenarios" / "quickstart.yaml"
    assert read_scenario(shown.encode(), "quickstart.yaml") == load_scenario(file)


def test_the_report_in_the_readme_is_what_is_printed() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "isim", "run", "scenarios/quickstart.yaml", "--no-log", "--no-replay"],
        cwd=ROOT,
        env={**os.environ, "COLUMNS": "80", "PYTHONIOENCODING": "utf-8"},
        capture_output=True,
        encoding="utf-8",
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert [block for block in readme_blocks("text") if block not in done.stdout] == []


def readme_commands() -> list[str]:
    return [line for block in readme_blocks("sh") for line in block.splitlines() if line.startswith("isim ")]


def test_the_readme_shows_commands() -> None:
    assert {command.split()[1] for command in readme_commands()} == {
        *("run", "replay", "report", "validate", "presets", "schema", "compare", "calibrate"),
        *("scenario", "topology", "campaign", "plan"),
    }


@pytest.mark.parametrize(
    "page", ["README.md", "CHANGELOG.md", *(f"docs/{it.name}" for it in (ROOT / "docs").glob("*"))]
)
def test_links_lead_somewhere(page: str) -> None:
    text = (ROOT / page).read_text()
    links = [link.partition("#")[0] for link in re.findall(r"\]\(([^)]+)\)", text) if "://" not in link]
    assert [link for link in links if link and not ((ROOT / page).parent / link).exists()] == []


def test_the_execution_page_lists_every_rule_and_every_free_field() -> None:
    page = (ROOT / "docs" / "execution.md").read_text()
    for rule, meaning in EXECUTION_RULES.items():
        assert f"| `{rule.value}` | {meaning} |" in page
    for (kind, field), reason in FREE_EXECUTION_FIELDS.items():
        assert f"| `{kind}.{field}` | {reason} |" in page


def test_the_replay_page_lists_every_rule_and_every_free_field() -> None:
    page = (ROOT / "docs" / "replay.md").read_text()
    for rule, meaning in RULES.items():
        assert f"| `{rule.value}` | {meaning} |" in page
    for (kind, field), reason in [*FREE_FIELDS.items(), *FREE_ORDERS.items()]:
        assert f"| `{kind}.{field}` | {reason} |" in page
