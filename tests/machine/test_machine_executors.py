"""The closed form, the processes, the replay and the slow executor are four accounts of one semantics: they agree."""

from __future__ import annotations

import itertools
import math

import msgspec
import pytest
from executions import plans_by_execution, records_of
from hypothesis import given, settings
from hypothesis import strategies as st
from random_machines import random_case
from slow_executor import slow_execution

from isim.analyze.execution import ExecutionCollector
from isim.machine.campaign import campaign_requests
from isim.machine.closed_form import ClosedForm
from isim.machine.execute import execute
from isim.machine.program import program_of
from isim.machine.resources import resources_of
from isim.plan.compile import compile_plan
from isim.plan.profile import target_only_profile
from isim.record.execution import (
    STEPS_A_RECORD,
    Admit,
    AnyExecutionRecord,
    ExecutionDigest,
    ExecutionEnd,
    Plan,
    Start,
    Steps,
    Submit,
    Terminal,
)
from isim.record.execution_log import ExecutionLog
from isim.replay.execution import ExecutionReplay
from isim.scenario.topology.presets.catalogue import NAMES
from isim.topology.load import load_target

SEEDS = st.integers(0, 2**63)


@settings(derandomize=True, max_examples=60, deadline=None)
@given(SEEDS)
def test_processes_tell_the_log_of_the_closed_form_whatever_their_order(seed: int) -> None:
    case = random_case(seed)
    expected = records_of(case.machine, case.requests)
    assert records_of(case.machine, case.requests, processes=True) == expected
    assert records_of(case.machine, case.requests, processes=True, shuffle_seed=seed) == expected


@settings(derandomize=True, max_examples=60, deadline=None)
@given(SEEDS)
def test_the_slow_executor_comes_to_the_same_times_lanes_and_order(seed: int) -> None:
    case = random_case(seed)
    collector = ExecutionCollector()
    collector.read(records_of(case.machine, case.requests))
    plans = plans_by_execution(case)
    slow = slow_execution(case.topology, plans, case.requests)
    names = [request.execution for request in case.requests]
    assert [
        (it.execution, it.step.id, it.submitted_ns, it.start_ns, it.finish_ns, it.lanes) for it in collector.operations
    ] == [
        (name, plans[name].steps[it.place].id, it.submitted[0], it.start[0], it.end[0], it.lanes)
        for it in slow
        for name in [names[it.admission]]
    ]


@settings(derandomize=True, max_examples=50, deadline=None)
@given(SEEDS)
def test_the_replay_accepts_what_was_executed(seed: int) -> None:
    case = random_case(seed)
    records = records_of(case.machine, case.requests)
    replay = ExecutionReplay()
    replay.read(records)
    summary = replay.finish()
    assert (summary.executions, summary.unfinished) == (len(case.requests), 0)
    assert summary.operations == sum(len(request.program.steps) for request in case.requests)


@settings(derandomize=True, max_examples=30, deadline=None)
@given(SEEDS)
def test_admitted_one_by_one_as_they_arrive_they_tell_the_same(seed: int) -> None:
    case = random_case(seed)
    expected = records_of(case.machine, case.requests)
    told: list[AnyExecutionRecord] = []
    log = ExecutionLog(case.machine.header, [told.extend])
    run = ClosedForm(case.machine, log)
    for request in case.requests:
        run.advance(request.arrival_ns)
        run.admit(request)
    run.drain()
    end = expected[-1]
    assert isinstance(end, ExecutionEnd)
    log.close(msgspec.structs.replace(end))
    assert told == expected


def test_the_cases_are_contended() -> None:
    """Steps wait for lanes and leases, take other lanes than the first, and take no time, often enough to be tested."""
    waits = lanes = rounds = 0
    for seed in range(20):
        case = random_case(seed)
        records = records_of(case.machine, case.requests)
        submitted = {record.sequence: record for record in records if isinstance(record, Submit)}
        starts = [record for record in records if isinstance(record, Start)]
        waits += sum(record.time_ns > submitted[record.sequence].time_ns for record in starts)
        lanes += sum(any(lane for _, lane in record.lanes) for record in submitted.values())
        pairs = itertools.pairwise(records[1:])
        rounds += sum(one.time_ns == other.time_ns and one.RANK > other.RANK for one, other in pairs)
    assert min(waits, lanes, rounds) > 50


RINGS = ("multi-gpu-ring-3", "multi-gpu-ring-64", "small-lan-3")


@pytest.mark.parametrize("target", [*NAMES, *RINGS])
def test_on_every_preset_processes_and_closed_form_agree(target: str) -> None:
    """A few executions at once of what the target compiles for two tokens."""
    topology = load_target(target)
    compiled = compile_plan(topology, target_only_profile(2))
    machine = resources_of(topology)
    requests = campaign_requests(program_of(compiled.plan, machine), "x", 3, 400_000, 7)
    records = records_of(machine, requests)
    assert records_of(machine, requests, processes=True, shuffle_seed=3) == records
    replay = ExecutionReplay()
    replay.read(records)
    assert replay.finish().unfinished == 0


def test_a_long_plan_is_told_in_pieces_and_each_step_once() -> None:
    topology = load_target("multi-gpu")
    tokens = STEPS_A_RECORD // 2
    compiled = compile_plan(topology, target_only_profile(tokens))
    machine = resources_of(topology)
    requests = campaign_requests(program_of(compiled.plan, machine), "x", 2, 1000, 1)
    records = records_of(machine, requests)
    told = [record for record in records if isinstance(record, Plan | Steps)]
    assert [len(record.steps) for record in told] == [STEPS_A_RECORD, STEPS_A_RECORD, STEPS_A_RECORD // 2]
    assert [step.id for record in told for step in record.steps] == [step.id for step in compiled.plan.steps]
    assert records_of(machine, requests, processes=True) == records
    replay, collector = ExecutionReplay(), ExecutionCollector()
    replay.read(records)
    collector.read(records)
    assert replay.finish().operations == len(collector.operations) == 2 * len(compiled.plan.steps)


def test_shuffled_processes_have_one_digest() -> None:
    """Hundreds of ties on a grid of 10 ns: ten orders of processes, one digest."""
    case = random_case(326)
    digests = []
    for seed in [None, *range(10)]:
        digest = ExecutionDigest()
        digest.read(records_of(case.machine, case.requests, processes=True, shuffle_seed=seed))
        digests.append(digest.hexdigest())
    assert len({*digests}) == 1


def test_executions_do_not_overtake_within_themselves() -> None:
    """Conservation: every step of every execution is submitted, started and ended once; terminals add up."""
    for seed in range(15):
        case = random_case(seed)
        records = records_of(case.machine, case.requests)
        admitted = [record.execution for record in records if isinstance(record, Admit)]
        ended = [record for record in records if isinstance(record, Terminal)]
        assert sorted(record.execution for record in ended) == sorted(admitted)
        for request in case.requests:
            steps = [it.step for it in records if isinstance(it, Submit) and it.execution == request.execution]
            assert sorted(steps) == sorted(work.fact.id for work in request.program.steps)


@settings(derandomize=True, max_examples=25, deadline=None)
@given(st.integers(2, 64), st.integers(1, 3), st.integers(1, 4))
def test_rings_of_any_size_take_what_the_formula_says(ranks: int, tokens: int, executions: int) -> None:
    """A token is attention and FFN, each divided by the ranks, and 2 (N - 1) neighbour phases of a N-th of 512 KiB.

    Executions at once share every device, so they follow one another on it; only their all-reduces overlap with others'
    compute. Alone the duration is exact; together it is at least the compute of all, and at most all of it in a row.
    """
    topology = load_target(f"multi-gpu-ring-{ranks}")
    compiled = compile_plan(topology, target_only_profile(tokens))
    machine = resources_of(topology)
    program = program_of(compiled.plan, machine)
    compute_ns = 2 * 120_000 + math.ceil(28_000 / ranks) + math.ceil(38_000 / ranks)
    phase_ns = 500 + math.ceil(math.ceil(524_288 / ranks) / 600e9 * 1e9)
    token_ns = compute_ns + 2 * (ranks - 1) * phase_ns
    collector = ExecutionCollector()
    execute(machine, campaign_requests(program, "x", 1, 0, 0), readers=[collector.read])
    assert collector.completed_ns() == tokens * token_ns
    collector, replay = ExecutionCollector(), ExecutionReplay()
    execute(machine, campaign_requests(program, "x", executions, 0, 0), readers=[collector.read, replay.read])
    assert executions * tokens * compute_ns < collector.completed_ns() <= executions * tokens * token_ns
    assert replay.finish().operations == executions * tokens * (2 * ranks + 1)


@pytest.mark.slow
@pytest.mark.parametrize("start", range(0, 4000, 500))
def test_thousands_of_cases_agree(start: int) -> None:
    for seed in range(start, start + 500):
        case = random_case(seed, executions=3 + seed % 12, steps=5 + seed % 37)
        expected = records_of(case.machine, case.requests)
        assert records_of(case.machine, case.requests, processes=True, shuffle_seed=seed) == expected, seed
        replay = ExecutionReplay()
        replay.read(expected)
        assert replay.finish().unfinished == 0, seed
