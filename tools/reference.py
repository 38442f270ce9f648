"""Compare isim with the cases of the independent reference: `reference.py [CASES] [--verbose] [--pack FILE]`.

CASES is a folder with `index.json`, by default ../shared/reference beside the checkout, or a pack. The table has a row
for each category; below it stand the differences. The last line is `agree N, listed L, differ M, not covered K`: listed
are cases whose every difference is explained by a rule of `reference_checks/listings.py`. Exit 0, or 1 when any case
differs, 2 without cases. `--pack` writes the cases that are covered to one file, which the tests read.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path

import msgspec

sys.path.insert(0, str(Path(__file__).parent))

from reference_checks import campaigns, core, plans, topology
from reference_checks.case import (
    Case,
    Check,
    Compared,
    Difference,
    NotCovered,
    differences,
    load_cases,
    pack,
)
from reference_checks.listings import LISTINGS

from isim.record.errors import IsimError

DEFAULT = Path(__file__).parents[1].parent / "shared" / "reference"
CHECKS: tuple[Check, ...] = (*topology.CHECKS, *core.CHECKS, *plans.CHECKS, *campaigns.CHECKS)
_SHOWN = 10


class State(StrEnum):
    AGREE = "agree"
    LISTED = "listed"
    DIFFER = "differ"
    NOT_COVERED = "not covered"


class Judged(msgspec.Struct, frozen=True):
    """What came of a case. `notes` are the rules that explain it, the differences none explains, or why not covered."""

    case: Case
    state: State
    notes: tuple[str, ...] = ()


def judge(case: Case) -> Judged:
    """Compare one case; an error of a checker is a difference."""
    check = next((it for it in CHECKS if it.category == case.category and case.command.startswith(it.command)), None)
    if check is None:
        return Judged(case, State.NOT_COVERED, ("no checker for it",))
    try:
        verdict = check.judge(case)
    except Exception as error:
        return Judged(case, State.DIFFER, (f"expected an answer, found {type(error).__name__}: {error}",))
    if isinstance(verdict, NotCovered):
        return Judged(case, State.NOT_COVERED, (verdict.reason,))
    found = differences(verdict)
    names = [_explained(case, verdict, each) for each in found]
    unexplained = [str(each) for each, name in zip(found, names, strict=True) if not name]
    if unexplained:
        return Judged(case, State.DIFFER, tuple(unexplained))
    return Judged(case, State.LISTED if found else State.AGREE, tuple(dict.fromkeys(names)))


def _explained(case: Case, verdict: Compared, difference: Difference) -> str:
    return next((rule.name for rule in LISTINGS if rule.explains(case, verdict, difference)), "")


def counts(judged: Sequence[Judged]) -> dict[State, int]:
    return {state: sum(each.state is state for each in judged) for state in State}


def table(judged: Sequence[Judged]) -> str:
    """A row for each category, in the order they come."""
    categories = dict.fromkeys(each.case.category for each in judged)
    width = max(len(name) for name in categories)
    lines = [f"{'category':{width}}  " + "  ".join(state.value for state in State)]
    for name in categories:
        row = counts([each for each in judged if each.case.category == name])
        lines.append(f"{name:{width}}  " + "  ".join(f"{row[state]:>{len(state.value)}}" for state in State))
    return "\n".join(lines)


def details(judged: Sequence[Judged], verbose: bool) -> list[str]:
    """What is to be said of single cases."""
    lines = []
    for each in judged:
        if each.state is State.DIFFER:
            lines += [f"differ: {each.case.name}: {note}" for note in each.notes[:_SHOWN]]
            lines += [f"differ: {each.case.name}: and {len(each.notes) - _SHOWN} more"] * (len(each.notes) > _SHOWN)
        elif each.state is State.LISTED:
            lines.append(f"listed: {each.case.name}: {', '.join(each.notes)}")
        elif verbose:
            lines.append(f"{each.state}: {each.case.name}{''.join(f': {note}' for note in each.notes)}")
    return lines


def last_line(judged: Sequence[Judged]) -> str:
    return ", ".join(f"{state} {count}" for state, count in counts(judged).items())


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="?", type=Path, default=DEFAULT, metavar="CASES")
    parser.add_argument("--verbose", action="store_true", help="also name the cases that agree, and those not covered")
    parser.add_argument("--pack", type=Path, metavar="FILE", help="write the covered cases to this file")
    given = parser.parse_args(arguments)
    try:
        cases = load_cases(given.cases)
    except IsimError as error:
        print(f"reference: {error}", file=sys.stderr)
        return error.exit_code
    judged = [judge(case) for case in cases]
    print("\n".join([table(judged), *details(judged, given.verbose), last_line(judged)]))
    if given.pack is not None:
        pack([each.case for each in judged if each.state is not State.NOT_COVERED], given.pack)
    return 1 if any(each.state is State.DIFFER for each in judged) else 0


if __name__ == "__main__":
    sys.exit(main())
