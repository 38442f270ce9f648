"""What may change nothing changes nothing: the order of equal events, and how many equal steps run as one."""

from __future__ import annotations

from pathlib import Path

import pytest

from isim.analyze.collect import Collector
from isim.analyze.facts import facts_of
from isim.analyze.result import analyze, encode
from isim.analyze.schema import ReplayState
from isim.record.records import Stretch, Turn
from isim.run import FinishedRun, simulate
from isim.scenario.load import read_scenario
from isim.scenario.types import Scenario

RUN_FILE = b"""
schema_version: 1
name: crowd
hardware: { gpu: rtx-4090 }
model: llama-3.1-8b
engine:
  max_num_seqs: 8
  max_num_batched_tokens: 64
  max_model_len: 512
  num_gpu_blocks_override: 40
workload:
  kind: request_file
  path: crowd.csv
  format: csv
cost: { kind: linear, base: 1 ms }
"""
MODES = [
    (version, asynchronous, policy)
    for version in ("0.21", "0.33")
    for asynchronous in ("true", "false")
    for policy in ("fcfs", "priority")
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A crowd: four requests every 7 ms, on the millisecond grid of the steps, their sizes by small remainders."""
    folder = tmp_path_factory.mktemp("crowd")
    rows = ["arrival_ms,input_tokens,output_tokens,priority,prefix_id,prefix_tokens"]
    for number in range(60):
        prompt = 20 + number * 37 % 90
        rows.append(f"{number // 4 * 7},{prompt},{1 + number * 11 % 45},{number % 3},p{number % 2},{prompt // 2}")
    (folder / "crowd.csv").write_text("\n".join(rows) + "\n")
    return folder


def scenario_of(folder: Path, version: str, asynchronous: str, policy: str, *more: str) -> Scenario:
    modes = (
        f"engine.version={version}",
        f"engine.async_scheduling={asynchronous}",
        f"engine.scheduling_policy={policy}",
    )
    return read_scenario(RUN_FILE, str(folder / "crowd.yaml"), [*modes, *more])


def run(folder: Path, scenario: Scenario, shuffle_seed: int | None = None) -> tuple[FinishedRun, bytes, list[object]]:
    """The finished run, its result.json and its records."""
    collector = Collector()
    records: list[object] = []
    finished = simulate(scenario, base_dir=folder, readers=[collector.read, records.extend], shuffle_seed=shuffle_seed)
    facts = facts_of(scenario, finished, ReplayState.NOT_RUN)
    return finished, encode(analyze(collector, facts).result), records


@pytest.mark.parametrize(("version", "asynchronous", "policy"), MODES)
def test_neither_shuffling_nor_stretches_change_digest_or_result(
    folder: Path, version: str, asynchronous: str, policy: str
) -> None:
    scenario = scenario_of(folder, version, asynchronous, policy)
    finished, result, _ = run(folder, scenario)
    assert finished.digest is not None
    for seed in range(1, 6):
        again, same, _ = run(folder, scenario, seed)
        assert (again.digest, same) == (finished.digest, result), f"shuffle seed {seed}"
    for most in (1, 3):
        single = scenario_of(folder, version, asynchronous, policy, f"simulation.max_stretch={most}")
        for shuffle_seed in (None, 7):
            again, same, _ = run(folder, single, shuffle_seed)
            assert (again.digest, same) == (finished.digest, result), f"max_stretch {most}, seed {shuffle_seed}"


def test_the_crowd_is_crowded(folder: Path) -> None:
    """Otherwise the test above would show nothing: there are stretches, preemptions, cache hits and ties."""
    _, _, records = run(folder, scenario_of(folder, "0.21", "true", "fcfs"))
    turns = [record for record in records if isinstance(record, Turn)]
    stretches = [record for record in records if isinstance(record, Stretch)]
    assert max(stretch.steps for stretch in stretches) > 1
    assert sum(len(turn.preempted) for turn in turns) > 0
    assert sum(hit > 0 for turn in turns for _, hit, _ in turn.admitted) > 0
    assert any(turn.time_ns % 7_000_000 == 0 and turn.ended is not None for turn in turns)


def test_max_stretch_one_really_runs_single_steps(folder: Path) -> None:
    _, _, records = run(folder, scenario_of(folder, "0.21", "true", "fcfs", "simulation.max_stretch=1"))
    assert {record.steps for record in records if isinstance(record, Stretch)} == {1}


@pytest.mark.parametrize("asynchronous", ["true", "false"])
def test_random_arrivals_under_the_roofline(folder: Path, asynchronous: str) -> None:
    """Times that never tie and step times that grow with the context: long stretches, cut by arrivals."""
    load = (
        "workload={kind: generated, requests: 60, input_tokens: {kind: uniform, low: 1, high: 300},"
        " output_tokens: {kind: uniform, low: 1, high: 80}, arrivals: {kind: poisson, rate: 40 /s}}"
    )
    sets = (load, "cost=roofline", "engine.num_gpu_blocks_override=90")
    scenario = scenario_of(folder, "0.21", asynchronous, "fcfs", *sets)
    finished, result, records = run(folder, scenario)
    assert max(record.steps for record in records if isinstance(record, Stretch)) > 3
    single = scenario_of(folder, "0.21", asynchronous, "fcfs", *sets, "simulation.max_stretch=1")
    for candidate, shuffle_seed in ((scenario, 1), (scenario, 2), (single, None), (single, 3)):
        again, same, _ = run(folder, candidate, shuffle_seed)
        assert (again.digest, same) == (finished.digest, result)
