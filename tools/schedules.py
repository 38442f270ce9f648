"""Play the recorded schedules of the real vLLM scheduler against isim: `schedules.py [DIR] [--verbose]`.

DIR defaults to ../shared/reference/vllm-schedules beside the checkout. Every covered case is played twice: against
the pure policy in the recorder's own loop, and against the engine actor with steps of unit time. The last line is
`agree N, differ M, not covered K`; a case agrees when both do. Exit 0, or 1 when any case differs, 2 without cases.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from schedule_cases import Case, Difference, Driver, load_cases, play
from schedule_drivers import PolicyDriver, run_actor_case

from isim.record.errors import IsimError
from isim.record.records import EngineLimits

DEFAULT_DIR = Path(__file__).parents[1].parent / "shared" / "reference" / "vllm-schedules"

DRIVERS: dict[str, Callable[[EngineLimits], Driver]] = {"policy": PolicyDriver}
"""Schedulers played in the recorder's loop. The engine actor has a loop of its own and is no `Driver`."""

Player = Callable[[Case], Difference | None]


def in_loop(make: Callable[[EngineLimits], Driver]) -> Player:
    return lambda case: play(case, make(case.limits))


PLAYERS: dict[str, Player] = {name: in_loop(make) for name, make in DRIVERS.items()} | {"actor": run_actor_case}


def judge(cases: list[Case], verbose: bool) -> int:
    """Play all cases, print every difference and a count per player; the number of cases that differ."""
    differing: dict[str, list[str]] = {name: [] for name in PLAYERS}
    for case in cases:
        for name, player in PLAYERS.items():
            difference = player(case)
            if difference is not None:
                differing[name].append(case.name)
                print(f"{name}: {difference}")
            elif verbose:
                print(f"{name}: {case.name}: agrees")
    for name, names in differing.items():
        print(f"{name}: {len(cases) - len(names)} agree, {len(names)} differ")
    return len({name for names in differing.values() for name in names})


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dir", nargs="?", type=Path, default=DEFAULT_DIR, metavar="DIR")
    parser.add_argument("--verbose", action="store_true", help="also name the cases that agree, and those not covered")
    given = parser.parse_args(arguments)
    try:
        covered, uncovered = load_cases(given.dir)
    except IsimError as error:
        print(f"schedules: {error}", file=sys.stderr)
        return error.exit_code
    if given.verbose:
        for name in uncovered:
            print(f"not covered: {name}")
    differ = judge(covered, given.verbose)
    print(f"agree {len(covered) - differ}, differ {differ}, not covered {len(uncovered)}")
    return 1 if differ else 0


if __name__ == "__main__":
    sys.exit(main())
