"""Shuffle what nobody may rely on: the order of equal events. The log digest must not move.

    python tools/shuffle.py [--seeds N] [--only NAME] [--seed S]

Every scenario in scenarios/ runs once as it is and once for each shuffle seed; the traces only where they are found,
and only their first requests. Random times almost never tie, so there are crowds too: requests that arrive several at a
time on whole milliseconds, served by steps of one millisecond from a pool of blocks that is too small, with priorities
and shared prefixes, in every mode of the scheduler. Campaigns of plans run by the executor that is made of processes,
on machines where all do the same at once; unshuffled is the closed form. Prints `N seeds, 1 digest` for each; exit 1
otherwise, naming the seeds that differ and how to run one again.
"""

from __future__ import annotations

import argparse
import itertools
import json
import shlex
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from isim.draw.streams import Stream
from isim.machine.campaign import campaign_requests
from isim.machine.execute import execute
from isim.machine.program import program_of
from isim.machine.resources import resources_of
from isim.plan.compile import compile_plan
from isim.plan.profile import target_only_profile
from isim.record.execution_log import ExecutionReader
from isim.record.log import Reader
from isim.run import simulate
from isim.scenario.load import load_scenario
from isim.scenario.types import AzureTrace, MooncakeTrace
from isim.topology.load import load_target

ROOT = Path(__file__).resolve().parents[1]
SCENARIOS = ROOT / "scenarios"
DATA = ROOT.parent / "shared" / "data"
TRACES: dict[type, Path] = {
    AzureTrace: DATA / "traces_azure2023" / "AzureLLMInferenceTrace_code.csv.gz",
    MooncakeTrace: DATA / "traces_mooncake" / "conversation_trace.jsonl.gz",
}
TRACE_REQUESTS = 300

CROWD_REQUESTS = 150
CROWD = (
    "cost={kind: linear, base: 1 ms}",
    "engine.max_num_seqs=16",
    "engine.max_num_batched_tokens=96",
    "engine.num_gpu_blocks_override=60",
    "engine.max_model_len=512",
)
MODES = {
    "engine.version": ("0.21", "0.33"),
    "engine.async_scheduling": ("true", "false"),
    "engine.scheduling_policy": ("fcfs", "priority"),
}

CAMPAIGN_TARGETS = ("gpu-npu", "multi-node", "multi-gpu-ring-8", "small-lan-3")
CAMPAIGN_EXECUTIONS = 6
CAMPAIGN_TOKENS = 2


class Subject(msgspec.Struct, frozen=True, kw_only=True):
    """A run file with overrides."""

    name: str
    file: Path
    sets: tuple[str, ...] = ()

    def digest(self, shuffle_seed: int | None, readers: Sequence[Reader] = ()) -> str:
        scenario = load_scenario(self.file, self.sets)
        finished = simulate(scenario, base_dir=self.file.parent, readers=readers, shuffle_seed=shuffle_seed)
        assert finished.digest is not None
        return finished.digest

    def records(self, shuffle_seed: int | None) -> list[str]:
        """The log, a record a line."""
        lines: list[str] = []
        self.digest(shuffle_seed, [lambda records: lines.extend(msgspec.json.encode(it).decode() for it in records)])
        return lines


def crowd_lines(requests: int) -> str:
    """Requests in isim's own format, most of them at the same millisecond as others."""
    draws = Stream(0, "crowd")
    lines = []
    arrival_ms = 0
    for number in range(requests):
        arrival_ms += draws.below(4, number, 0) // 2 * draws.below(12, number, 1)
        input_tokens = 1 + draws.below(120, number, 2)
        lines.append(
            {
                "arrival_ms": arrival_ms,
                "input_tokens": input_tokens,
                "output_tokens": 1 + draws.below(60, number, 3),
                "priority": draws.below(3, number, 4),
                "prefix_id": f"prefix {draws.below(3, number, 5)}",
                "prefix_tokens": 1 + draws.below(input_tokens, number, 6),
            }
        )
    return "".join(json.dumps(line) + "\n" for line in lines)


def crowds(folder: Path) -> Iterator[Subject]:
    """A crowd in every mode; its request file is written to the folder."""
    requests = folder / "crowd.jsonl"
    requests.write_text(crowd_lines(CROWD_REQUESTS), encoding="utf-8")
    workload = json.dumps({"kind": "request_file", "format": "jsonl", "path": str(requests)})
    for values in itertools.product(*MODES.values()):
        modes = tuple(f"{key}={value}" for key, value in zip(MODES, values, strict=True))
        yield Subject(
            name=f"crowd, {', '.join(modes)}",
            file=SCENARIOS / "quickstart.yaml",
            sets=(f"workload={workload}", *CROWD, *modes),
        )


def scenarios() -> Iterator[Subject]:
    """The run files of scenarios/ itself. bench/ is left out: large, and of one arrival at a time."""
    for file in sorted(SCENARIOS.glob("*.yaml")):
        sets: tuple[str, ...] = ()
        trace = TRACES.get(type(load_scenario(file).workload))
        if trace is not None:
            if not trace.exists():
                print(f"{file.name}: left out, there is no trace at {trace}")
                continue
            sets = (f"workload.path={trace}", f"workload.limit={TRACE_REQUESTS}")
        yield Subject(name=file.name, file=file, sets=sets)


class Campaign(msgspec.Struct, frozen=True, kw_only=True):
    """Executions of one plan that all arrive within a microsecond."""

    name: str
    target: str

    def digest(self, shuffle_seed: int | None, readers: Sequence[ExecutionReader] = ()) -> str:
        topology = load_target(self.target)
        machine = resources_of(topology)
        plan = compile_plan(topology, target_only_profile(CAMPAIGN_TOKENS)).plan
        program = program_of(plan, machine)
        requests = campaign_requests(program, plan.execution_id, CAMPAIGN_EXECUTIONS, 1000, 42)
        processes = shuffle_seed is not None
        done = execute(machine, requests, readers=readers, digest=True, processes=processes, shuffle_seed=shuffle_seed)
        assert done.digest is not None
        return done.digest

    def records(self, shuffle_seed: int | None) -> list[str]:
        """The log, a record a line."""
        lines: list[str] = []
        self.digest(shuffle_seed, [lambda records: lines.extend(msgspec.json.encode(it).decode() for it in records)])
        return lines


def campaigns() -> Iterator[Campaign]:
    """On one machine of each kind of contention."""
    for target in CAMPAIGN_TARGETS:
        yield Campaign(name=f"campaign, {target}", target=target)


def differing(subject: Subject | Campaign, seeds: Sequence[int]) -> list[int]:
    """The shuffle seeds whose log is not that of the run without one."""
    expected = subject.digest(None)
    return [seed for seed in seeds if subject.digest(seed) != expected]


def complain(subject: Subject | Campaign, wrong: list[int]) -> None:
    print(f"{subject.name}: {len(wrong)} seeds give another digest: {', '.join(map(str, wrong))}")
    print(f"  again: python tools/shuffle.py --only {shlex.quote(subject.name)} --seed {wrong[0]}")
    for expected, found in itertools.zip_longest(subject.records(None), subject.records(wrong[0])):
        if expected != found:
            print(f"  first difference, unshuffled:   {expected}")
            print(f"  first difference, seed {wrong[0]:<8} {found}")
            return
    print("  the records are equal: what differs is the digest alone")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="The same digest whatever the order of equal events.")
    parser.add_argument("--seeds", type=int, default=100, metavar="N", help="shuffle seeds 1 to N for each scenario")
    parser.add_argument("--seed", type=int, metavar="S", help="this shuffle seed alone")
    parser.add_argument("--only", metavar="NAME", help="this scenario alone, as it is printed")
    parsed = parser.parse_args()
    if parsed.seeds < 1:
        parser.error("expected at least 1 seed")
    return parsed


def main() -> int:
    asked = arguments()
    seeds = range(1, asked.seeds + 1) if asked.seed is None else [asked.seed]
    judged, failed = 0, False
    with tempfile.TemporaryDirectory() as folder:
        subjects: list[Subject | Campaign] = [*scenarios(), *crowds(Path(folder)), *campaigns()]
        for subject in subjects:
            if asked.only not in (None, subject.name):
                continue
            judged += 1
            wrong = differing(subject, seeds)
            if wrong:
                failed = True
                complain(subject, wrong)
            else:
                print(f"{subject.name}: {len(seeds)} seeds, 1 digest", flush=True)
    if not judged:
        print(f"expected --only to name a scenario as it is printed, found {asked.only!r}", file=sys.stderr)
        return 2
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
