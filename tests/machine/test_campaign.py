"""Campaigns: arrivals, what they come to against the reference's figures, and what the command prints."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from random_machines import random_case

from isim.analyze.execution import ExecutionCollector
from isim.cli.main import main
from isim.draw.reference import campaign_arrivals
from isim.machine.campaign import campaign_requests
from isim.machine.execute import execute
from isim.machine.program import program_of
from isim.machine.requests import RequestError
from isim.machine.resources import resources_of
from isim.plan.compile import compile_plan
from isim.plan.profile import target_only_profile
from isim.record.execution import Admit, Terminal
from isim.topology.load import load_target

# Of the reference implementation: 32 executions of 8 tokens, seed 24301, within 1 ms.
RECORDED = {
    "gpu-npu": (54891376, 1024, (49021140, 51662775.8125, 53825956, 53962610)),
    "multi-node": (84033024, 1280, (11089032, 47110892.3125, 80772572, 83104258)),
}


@pytest.fixture
def workload(tmp_path: Path) -> str:
    path = tmp_path / "workload.yaml"
    path.write_text("target_only: { token_count: 8 }\nconcurrent_campaign: { seed: 24301 }\n")
    return str(path)


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert main(["campaign", *arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("target", RECORDED)
def test_the_recorded_figures(target: str, workload: str, capsys: pytest.CaptureFixture[str]) -> None:
    completed_ns, operations, latency = RECORDED[target]
    result = printed(capsys, target, workload)
    assert result["completedAtNs"] == completed_ns
    assert result["submittedOperations"] == operations
    assert tuple(result["latencyNs"].values()) == latency
    assert result["maximumConcurrentExecutions"] == result["executionCount"] == 32
    assert result["replayAppliedEvents"] == operations + 64
    assert (result["replay"], result["confidence"]) == ("passed", "heuristic")
    assert result["admissions"][0] == {
        "executionId": f"{target}:target-only:campaign:22",
        "arrivalNs": 0,
        "admissionOrder": 0,
    }


def test_the_command_line_goes_before_the_workload_and_that_before_the_scenario(
    workload: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bare = tmp_path / "bare.yaml"
    bare.write_text("target_only: { token_count: 1 }\n")
    assert printed(capsys, "cpu-only", str(bare))["options"] == {
        "executionCount": 32,
        "seed": 42,
        "arrivalWindowNs": 1_000_000,
    }
    asked = ("--executions", "3", "--window", "0")
    result = printed(capsys, "cpu-only", workload, *asked)
    assert result["options"] == {"executionCount": 3, "seed": 24301, "arrivalWindowNs": 0}
    assert [it["arrivalNs"] for it in result["admissions"]] == [0, 0, 0]
    assert printed(capsys, "cpu-only", workload, *asked, "--seed", "5")["options"]["seed"] == 5


def test_arrivals_are_those_of_the_generator() -> None:
    topology = load_target("cpu-only")
    program = program_of(compile_plan(topology, target_only_profile(1)).plan, resources_of(topology))
    requests = campaign_requests(program, "x", 20, 1000, 9)
    assert [(it.execution, it.arrival_ns) for it in requests] == [
        (f"x:campaign:{index}", arrival_ns) for index, arrival_ns in campaign_arrivals(20, 1000, 9)
    ]


@pytest.mark.parametrize(("count", "window_ns", "seed"), [(0, 1, 1), (1, -1, 1), (1, 1, -1), (1, 1, 1 << 32)])
def test_no_count_window_or_seed_beyond_what_the_generator_takes(count: int, window_ns: int, seed: int) -> None:
    case = random_case(1)
    with pytest.raises(RequestError, match="campaign: expected a") as refused:
        campaign_requests(case.requests[0].program, "x", count, window_ns, seed)
    assert refused.value.exit_code == 2


def test_bad_requests_end_with_2_and_without_a_traceback(workload: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["campaign", "cpu-only", workload, "--executions", "0"]) == 2
    assert main(["campaign", "cpu-only", workload, "--executions", "56000"]) == 2
    assert main(["campaign", "cpu", workload]) == 2
    errors = capsys.readouterr().err
    assert "number of executions" in errors and "maxEvents = 1000000" in errors and "Traceback" not in errors


def test_the_report_and_the_log(workload: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = str(tmp_path / "log.jsonl.zst")
    assert main(["campaign", "multi-node", workload, "--executions", "4", "--log", log]) == 0
    report = capsys.readouterr().out
    assert "4 executions of one plan" in report and "replay passed" in report
    assert "no measure of throughput" in " ".join(report.split())
    assert main(["replay", log]) == 0
    assert "executions   4 admitted, 0 unfinished" in capsys.readouterr().out
    assert main(["campaign", "multi-node", workload, "--quiet", "--log", log]) == 2


def test_detailed_is_the_same_by_processes_and_as_the_schema_says(
    workload: str, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ("gpu-npu", workload, "--executions", "5")
    result = printed(capsys, *asked, "--detailed")
    assert result == printed(capsys, *asked)
    assert main(["schema", "campaign"]) == 0
    jsonschema.validate(result, json.loads(capsys.readouterr().out))


# ---- what the collector counts, against counting by hand


def test_collected_figures_are_those_of_the_records() -> None:
    for seed in range(20):
        case = random_case(seed)
        collector, records = ExecutionCollector(), []
        execute(case.machine, case.requests, readers=[collector.read, records.extend])
        arrivals = {it.execution: it.time_ns for it in records if isinstance(it, Admit)}
        ends = {it.execution: it.time_ns for it in records if isinstance(it, Terminal)}
        spans = sorted(ends[name] - arrivals[name] for name in ends)
        spread = collector.latency_ns()
        assert spread is not None
        assert (spread.minimum, spread.maximum, spread.average) == (spans[0], spans[-1], sum(spans) / len(spans))
        assert spread.p95 == spans[max(0, -(-95 * len(spans) // 100) - 1)]
        assert collector.completed_ns() == max(ends.values())
        instants = {*arrivals.values(), *ends.values()}
        most = max(
            sum(arrivals[name] <= at and (ends[name] > at or arrivals[name] == ends[name] == at) for name in ends)
            for at in instants
        )
        assert collector.most_at_once() == most
        durations = {
            (request.execution, work.fact.id): work.duration_ns
            for request in case.requests
            for work in request.program.steps
        }
        busy = {use.resource: use.busy_ns for use in collector.uses()}
        for resource in case.machine.resources:
            held = [
                durations[request.execution, work.fact.id]
                for request in case.requests
                for work in request.program.steps
                if resource.id in work.names
            ]
            assert busy[resource.id] == sum(held)
        assert sum(collector.service_ns()) == sum(durations.values())
