"""Mutation testing of the code: change an operator, a constant, an argument, and see whether a test notices.

    python tools/mutants.py MODULE ...

A module is a file of isim/kernel/, isim/policy/ or isim/replay/. mutmut makes the mutants and runs, for each, the tests
named below: the cheapest that ought to know, not all there are. It works on a copy of the tree in build/mutants/ and
keeps there what it found. Survivors are read by people; docs/mutants.md has a row for each that is equivalent, with
the reason. Prints how many were killed, how many survived with and without such a row, and those without; exit 1 if
there are any, or if a row fits no survivor any more.
"""

from __future__ import annotations

import fnmatch
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import msgspec

ROOT = Path(__file__).resolve().parents[1]
BUILD = ROOT / "build" / "mutants"
ANSWERS = ROOT / "docs" / "mutants.md"
COPIED = ("isim", "tests", "tools", "scenarios", "pyproject.toml", "README.md")
DEFAULT_MODULES = (
    "isim/kernel/clock.py",
    "isim/kernel/agenda.py",
    "isim/kernel/alarm.py",
    "isim/kernel/mailbox.py",
    "isim/kernel/actor.py",
    "isim/kernel/arbiter.py",
    "isim/kernel/kernel.py",
    "isim/kernel/ties.py",
    "isim/kernel/trace.py",
    "isim/kernel/errors.py",
    "isim/policy/prompt.py",
    "isim/policy/routing.py",
    "isim/policy/vllm/keys.py",
    "isim/policy/vllm/refusal.py",
    "isim/policy/vllm/pool.py",
    "isim/policy/vllm/decoders.py",
    "isim/policy/vllm/waiting.py",
    "isim/policy/vllm/group_rules.py",
    "isim/policy/vllm/group_pool.py",
    "isim/policy/vllm/group_scheduler.py",
    "isim/policy/vllm/walk.py",
    "isim/policy/vllm/admit.py",
    "isim/policy/vllm/scheduler.py",
    "isim/policy/vllm/flight.py",
    "isim/replay/pool.py",
    "isim/replay/tables.py",
    "isim/replay/execution/line.py",
    "isim/replay/execution/plan.py",
    "isim/replay/execution/machine.py",
    "isim/replay/execution/future.py",
    "isim/replay/execution/replay.py",
    "isim/replay/lookup.py",
    "isim/replay/chain.py",
    "isim/replay/member.py",
    "isim/replay/roster.py",
    "isim/replay/span.py",
    "isim/replay/compare.py",
    "isim/replay/entry.py",
    "isim/replay/routing.py",
    "isim/replay/walk.py",
    "isim/replay/decide.py",
    "isim/replay/engine.py",
    "isim/replay/replay.py",
    "isim/replay/scheduler.py",
    "isim/replay/groups.py",
)
TESTS: dict[str, tuple[str, ...]] = {
    "isim/kernel/*.py": ("tests/kernel",),
    "isim/policy/vllm/waiting.py": ("tests/test_policy_small.py",),
    "isim/policy/vllm/keys.py": ("tests/test_policy_doors.py",),
    "isim/policy/vllm/refusal.py": ("tests/test_policy_doors.py",),
    "isim/policy/vllm/decoders.py": ("tests/test_policy_small.py",),
    "isim/policy/vllm/pool.py": ("tests/test_policy_small.py", "tests/test_engine_few.py"),
    "isim/policy/vllm/group_pool.py": ("tests/test_group_pool.py", "tests/test_policy_doors.py"),
    "isim/policy/vllm/walk.py": ("tests/test_scheduler_few.py",),
    "isim/policy/vllm/admit.py": ("tests/test_scheduler_few.py",),
    "isim/policy/vllm/scheduler.py": ("tests/test_scheduler_runs.py",),
    "isim/policy/vllm/group_scheduler.py": (
        "tests/test_group_scheduler.py",
        "tests/test_scheduler_few.py::test_a_prompt_that_is_not_cut_may_take_the_last_of_the_budget",
        "tests/test_scheduler_runs.py::test_so_is_one_with_several_groups",
    ),
    "isim/policy/vllm/group_rules.py": ("tests/replay/test_group_terms.py",),
    "isim/policy/vllm/flight.py": ("tests/test_scheduler_few.py",),
    "isim/policy/vllm/*.py": ("tests/test_engine_few.py",),
    "isim/policy/*.py": ("tests/test_policy_doors.py",),
    "isim/replay/execution/future.py": ("tests/machine/test_execution_parts.py",),
    "isim/replay/execution/line.py": ("tests/machine/test_execution_parts.py",),
    "isim/replay/execution/*.py": (
        "tests/machine/test_execution_replay.py",
        "tests/machine/test_execution_words.py",
        "tests/machine/test_execution_parts.py",
    ),
    "isim/replay/pool.py": ("tests/replay/test_replay_pool.py",),
    "isim/replay/chain.py": ("tests/replay/test_replay_keys.py",),
    "isim/replay/routing.py": ("tests/replay/test_replay_routing.py",),
    "isim/replay/entry.py": ("tests/replay/test_replay_entry.py",),
    "isim/replay/span.py": ("tests/replay/test_replay_span.py",),
    "isim/replay/compare.py": ("tests/replay/test_replay_span.py",),
    "isim/replay/member.py": ("tests/replay/test_replay_roster.py",),
    "isim/replay/roster.py": ("tests/replay/test_replay_roster.py",),
    "isim/replay/lookup.py": ("tests/replay/test_replay_keys.py",),
    "isim/replay/engine.py": (
        "tests/replay/test_replay_rules.py",
        "tests/replay/test_replay_words.py",
        "tests/replay/test_replay_moments.py",
        "tests/replay/test_replay_work.py",
        "tests/replay/test_replay_few.py",
    ),
    "isim/replay/replay.py": (
        "tests/replay/test_replay_rules.py",
        "tests/replay/test_replay_words.py",
        "tests/replay/test_replay_moments.py",
        "tests/replay/test_replay_files.py",
    ),
    "isim/replay/tables.py": (
        "tests/replay/test_replay_tables.py",
        "tests/replay/test_group_terms.py",
        "tests/replay/test_replay_groups.py",
        "tests/replay/test_replay_rules.py",
    ),
    "isim/replay/groups.py": (
        "tests/replay/test_replay_probes.py",
        "tests/replay/test_replay_few.py",
        "tests/replay/test_replay_rare.py",
        "tests/replay/test_replay_groups.py::test_broken_log_is_rejected_at_its_first_wrong_record",
    ),
    "isim/replay/*.py": (
        "tests/replay/test_replay_few.py",
        "tests/replay/test_replay_rare.py",
        "tests/replay/test_replay_rules.py::test_hand_worked_log_is_accepted",
        "tests/replay/test_replay_rules.py::test_broken_log_is_rejected_at_its_first_wrong_record",
        "tests/replay/test_replay_groups.py::test_broken_log_is_rejected_at_its_first_wrong_record",
    ),
}
"""The first pattern that fits decides."""
TOO_SLOW = "not random_log"
"""Tests that draw hundreds of cases: seconds for each mutant."""

CONFIGURATION = """
[tool.mutmut]
source_paths = ["isim"]
only_mutate = [{module}]
also_copy = ["tools", "scenarios", "README.md"]
pytest_add_cli_args = ["-n0", "-x", "-p", "no:cacheprovider", "-k", {deselected}]
pytest_add_cli_args_test_selection = {tests}
use_git_change_detection = false
timeout_multiplier = 4.0
track_dependencies = false
"""

SHOW = """
import sys
from mutmut.mutation.diff_apply import get_diff_for_mutant
for name in sys.argv[2:]:
    print("mutant", name)
    print(get_diff_for_mutant(name, path=sys.argv[1]))
"""
KILLED, SURVIVED = (1, 3, 24, 36, 152, 255, -24), (0, 5, 33)
"""Exit codes of pytest as mutmut keeps them: a failure, an error or a timeout; all green, or no test that comes by."""

_FUNCTION = re.compile(r"\.(?:x_|xǁ(?P<owner>\w+)ǁ)(?P<name>\w+)__mutmut_\d+$")
_ROW = re.compile(r"^\| `(?P<module>[^`]+)` \| `(?P<function>[^`]+)` \| `(?P<line>[^`]+)` \| (?P<reason>.+) \|$", re.M)


class Survivor(msgspec.Struct, frozen=True):
    """A change nobody noticed. `line` is what the line became, without its indentation."""

    module: str
    function: str
    line: str

    def row(self) -> str:
        return f"| `{self.module}` | `{self.function}` | `{self.line}` |"


def prepare(module: str) -> Path:
    """A fresh copy of the tree, configured for this module."""
    folder = BUILD / module.removesuffix(".py").replace("/", ".")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, folder / name)
    tests = next((tests for pattern, tests in TESTS.items() if fnmatch.fnmatch(module, pattern)), None)
    if tests is None or not (ROOT / module).is_file():
        sys.exit(f"expected a file of {', '.join(TESTS)}, found {module}")
    configuration = folder / "pyproject.toml"
    text = configuration.read_text(encoding="utf-8").replace('pythonpath = ["tools"', 'pythonpath = [".", "tools"')
    text += CONFIGURATION.format(
        module=json.dumps(module), tests=json.dumps(list(tests)), deselected=json.dumps(TOO_SLOW)
    )
    configuration.write_text(text, encoding="utf-8")
    return folder


def survivors(folder: Path, module: str) -> tuple[int, list[Survivor]]:
    """How many mutants there were, and those that nobody noticed."""
    meta = json.loads((folder / "mutants" / f"{module}.meta").read_text(encoding="utf-8"))
    codes: dict[str, int | None] = meta["exit_code_by_key"]
    odd = {name: code for name, code in codes.items() if code not in (*KILLED, *SURVIVED)}
    if odd:
        sys.exit(f"{module}: mutmut came to no verdict, see {folder}: {odd}")
    names = [name for name, code in codes.items() if code in SURVIVED]
    if not names:
        return len(codes), []
    command = [sys.executable, "-c", SHOW, module, *names]
    told = subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True).stdout
    found = []
    for part in told.split("mutant isim")[1:]:
        name, _, diff = part.partition("\n")
        match = _FUNCTION.search(name)
        assert match is not None, name
        function = f"{match['owner']}.{match['name']}" if match["owner"] else match["name"]
        changed = [it[1:].strip() for it in diff.splitlines() if it[:1] == "+" and it[:3] != "+++"]
        gone = [f"without {it[1:].strip()}" for it in diff.splitlines() if it[:1] == "-" and it[:3] != "---"]
        line = " ".join(changed or gone)
        found.append(Survivor(module, function, line.replace("`", "'").replace("|", "/")))
    return len(codes), found


def judge(module: str, answered: set[Survivor]) -> bool:
    """Run the mutants of one module and say what came of it; whether survivors and rows fit each other."""
    folder = prepare(module)
    log = folder / "mutmut.log"
    environment = {**os.environ, "PYTHONPATH": ""}
    with log.open("wb") as stream:
        done = subprocess.run(
            [sys.executable, "-m", "mutmut", "run", "--max-children", "2"],
            cwd=folder,
            stdout=stream,
            stderr=subprocess.STDOUT,
            env=environment,
        )
    if done.returncode:
        sys.exit(f"{module}: mutmut ended with {done.returncode}, see {log}")
    total, survived = survivors(folder, module)
    open_ones = [it for it in survived if it not in answered]
    print(
        f"{module}: {total} mutants, {total - len(survived)} killed, "
        f"{len(survived) - len(open_ones)} equivalent (docs/mutants.md), {len(open_ones)} survived",
        flush=True,
    )
    for it in open_ones:
        print(f"  {it.row()}")
    idle = sorted(it.row() for it in answered if it.module == module and it not in survived)
    for row in idle:
        print(f"  no survivor fits {row}")
    return not open_ones and not idle


def answers() -> set[Survivor]:
    """The rows of docs/mutants.md."""
    text = ANSWERS.read_text(encoding="utf-8")
    return {Survivor(it["module"], it["function"], it["line"]) for it in _ROW.finditer(text)}


def main() -> int:
    modules = sys.argv[1:] or list(DEFAULT_MODULES)
    answered = answers()
    judged = [judge(module, answered) for module in modules]
    return 0 if all(judged) else 1


if __name__ == "__main__":
    sys.exit(main())
