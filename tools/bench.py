"""What a run costs: whole processes, start-up included, over the loads in scenarios/bench, and over topologies.

    python tools/bench.py [--loads w1,w2,plans] [--repeats N] [--grow]

Each load runs in three ways: log and replay off; log on, written to a folder; log and replay on. Each way runs a few
times and the least CPU time counts, user and system together, since what else the machine does only ever adds to it.
Peak memory is the greatest of the repeats. The targets stand beside; nothing here fails on time, it only prints.
`--grow` adds W3 with ten times the requests: time should grow tenfold, not more.

`plans` are the loads of the topology world (`tools/bench_plan.py`): plans compiled, validated, executed and replayed,
and a campaign; the ratio is to the first, of a quarter of the steps.

Machines differ: the calibration line is the CPU time of one fixed loop of plain Python. Where it is twice the
reference, expect every figure to be twice its target.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import msgspec

LOADS = Path(__file__).resolve().parents[1] / "scenarios" / "bench"
ISIM = Path(sys.executable).with_name("isim")

TARGET_CPU_S = {"w1": 0.55, "w2": 1.0, "w3": 3.0, "w4": 4.0}
TARGET_MB = 300
TARGET_HELP_S = 0.15
GROWN_REQUESTS = 500_000
GROWN_TIMES = 10
TARGET_GROWN_MB = 1000

PLANS = "plans"
BENCH_PLAN = Path(__file__).with_name("bench_plan.py")


class PlanLoad(msgspec.Struct, frozen=True, kw_only=True):
    """Arguments of `bench_plan.py` and what it should take at most."""

    name: str
    arguments: tuple[str, ...]
    target: str


PLAN_LOADS = (
    PlanLoad(name="5,120 steps", arguments=("multi-gpu", "1024"), target="2 CPU s, 200 MB"),
    PlanLoad(name="20,480 steps", arguments=("multi-gpu", "4096"), target="8 CPU s, 4x"),
    PlanLoad(name="campaign", arguments=("multi-gpu", "8", "512"), target="3 CPU s, 512 plans of 8 tokens"),
)

CALIBRATION_ROUNDS = 2_000_000
REFERENCE_CALIBRATION_S = 0.12
"""The loop on the machine the targets were set on."""


class Way(msgspec.Struct, frozen=True, kw_only=True):
    """One way to run a load. `most_times` is the target as a multiple of the first way's CPU time."""

    name: str
    options: tuple[str, ...]
    most_times: float | None = None


OFF = Way(name="log off", options=("--no-log", "--no-replay"))
WAYS = (
    OFF,
    Way(name="log on", options=("--out", "out", "--no-replay"), most_times=2),
    Way(name="log, replay", options=("--out", "out"), most_times=5),
)


class Cost(msgspec.Struct, frozen=True, kw_only=True):
    """Of one process, or the best of several; `trouble` is what it said when it did not exit with 0."""

    cpu_s: float
    wall_s: float
    peak_mb: float
    trouble: str = ""


def measure(command: list[str]) -> Cost:
    """Run a command to its end, in a folder that is thrown away, and ask the kernel what it took."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile() as errors:
        started_s = time.perf_counter()
        child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=errors, env=environment, cwd=folder)
        _, status, usage = os.wait4(child.pid, 0)
        wall_s = time.perf_counter() - started_s
        child.returncode = os.waitstatus_to_exitcode(status)
        errors.seek(0)
        said = errors.read().decode(errors="replace").strip().partition("\n")[0]
    bytes_per_unit = 1 if sys.platform == "darwin" else 1024
    return Cost(
        cpu_s=usage.ru_utime + usage.ru_stime,
        wall_s=wall_s,
        peak_mb=usage.ru_maxrss * bytes_per_unit / 1e6,
        trouble="" if child.returncode == 0 else f"exit {child.returncode}: {said}",
    )


def best(command: list[str], repeats: int) -> Cost:
    """The least time and the greatest memory of some repeats; stops at the first that fails."""
    costs: list[Cost] = []
    for _ in range(repeats):
        cost = measure(command)
        if cost.trouble:
            return cost
        costs.append(cost)
    return Cost(
        cpu_s=min(cost.cpu_s for cost in costs),
        wall_s=min(cost.wall_s for cost in costs),
        peak_mb=max(cost.peak_mb for cost in costs),
    )


def run_load(load: str, way: Way, repeats: int, *options: str) -> Cost:
    """The best of some runs of a load."""
    return best([str(ISIM), "run", str(LOADS / f"{load}.yaml"), "--quiet", *way.options, *options], repeats)


def calibration_s() -> float:
    """CPU seconds of a fixed loop of plain Python, the least of three."""
    times = []
    for _ in range(3):
        started_s = time.process_time()
        total = 0
        for number in range(CALIBRATION_ROUNDS):
            total += number * 3 & 255
        times.append(time.process_time() - started_s)
    return min(times)


def line(name: str, way: str, cost: Cost, base: Cost | None, target: str) -> None:
    if cost.trouble:
        print(f"{name:9} {way:12} {cost.trouble}", flush=True)
        return
    times = f"{cost.cpu_s / base.cpu_s:6.2f}x" if base is not None and not base.trouble else " " * 7
    print(f"{name:9} {way:12} {cost.cpu_s:8.2f} {cost.wall_s:8.2f} {cost.peak_mb:8.0f} {times}  {target}", flush=True)


def bench(loads: list[str], repeats: int) -> dict[str, Cost]:
    """Print the table; returns what each load costs with log and replay off."""
    for way in WAYS:
        run_load(loads[0], way, 1, "--set", "workload.requests=3")  # so that what is measured finds its bytecode cached
    bases: dict[str, Cost] = {}
    for load in loads:
        for way in WAYS:
            cost = run_load(load, way, repeats)
            bases.setdefault(load, cost)
            if way.most_times is None:
                target = f"{TARGET_CPU_S[load]:g} CPU s, {TARGET_MB} MB"
            else:
                target = f"{way.most_times:g}x log off"
            line(load, way.name, cost, bases[load], target)
    return bases


def grow(base: Cost) -> None:
    """W3 with ten times the requests; the ratio is to W3 itself."""
    cost = run_load("w3", OFF, 1, "--set", f"workload.requests={GROWN_REQUESTS}")
    line("w3 grown", OFF.name, cost, base, f"{GROWN_TIMES}x w3, {TARGET_GROWN_MB} MB")


def bench_plans(repeats: int) -> None:
    """The loads of the topology world, the ratio to the first."""
    base = None
    for load in PLAN_LOADS:
        cost = best([sys.executable, str(BENCH_PLAN), *load.arguments], repeats)
        base = base or cost
        line(PLANS, load.name, cost, base, load.target)


def main() -> int:
    parser = argparse.ArgumentParser(description="CPU seconds, wall seconds and peak memory of whole runs.")
    parser.add_argument("--loads", default=",".join((*TARGET_CPU_S, PLANS)), help="which, joined by commas")
    parser.add_argument("--repeats", type=int, default=2, metavar="N", help="runs of each, of which the best counts")
    parser.add_argument("--grow", action="store_true", help=f"add w3 with {GROWN_REQUESTS:,} requests")
    arguments = parser.parse_args()
    loads = arguments.loads.split(",")
    unknown = [load for load in loads if load not in (*TARGET_CPU_S, PLANS)]
    if unknown or arguments.repeats < 1:
        parser.error(f"expected loads of {', '.join(TARGET_CPU_S)}, {PLANS} and at least 1 repeat")
    runs = [load for load in loads if load != PLANS]
    print(f"calibration: {calibration_s():.3f} CPU s, reference {REFERENCE_CALIBRATION_S} CPU s")
    print(f"{'load':9} {'way':12} {'CPU s':>8} {'wall s':>8} {'peak MB':>8} {'ratio':>7}  target")
    line("--help", "", best([str(ISIM), "--help"], 5), None, f"{TARGET_HELP_S} CPU s")
    bases = bench(runs, arguments.repeats) if runs else {}
    if PLANS in loads:
        bench_plans(arguments.repeats)
    if arguments.grow:
        grow(bases["w3"] if "w3" in bases else run_load("w3", OFF, arguments.repeats))
    return 0


if __name__ == "__main__":
    sys.exit(main())
