"""The slow engine against the recorded schedules, and against answers that can be worked out by hand."""

from __future__ import annotations

import json
import sys
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parents[1] / "tools"))

from schedule_cases import Case, CaseRequest, CasesMissing, load_cases, play
from slow_blocks import SlowRequest
from slow_engine import Chunk, EndlessRun, SlowRun, SlowScheduler, allowed_output, run_timed
from workload_fuzz import Case as FuzzCase
from workload_fuzz import finite_runs, linear_step_ns, quoted_ids, random_case

from isim.record.records import EngineLimits, EngineVersion, RejectReason, SchedulingPolicy

RECORDED = Path(__file__).parents[1].parent / "shared" / "reference" / "vllm-schedules"
VERSIONS = ["0.21.0", "0.33.0"]
BOTH = pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])


class SlowDriver(SlowScheduler):
    """The slow scheduler as the recorder's loop wants it."""

    def add(self, request: CaseRequest) -> None:  # type: ignore[override] # a recorded request instead of a slow one
        super().add(
            SlowRequest(
                id=request.id,
                prompt=request.prompt_segments,
                output_tokens=request.output_len,
                priority=request.priority,
                order_time=request.arrival_time,
            )
        )


def limits_of(**changes: object) -> EngineLimits:
    usual: dict[str, object] = {
        "version": EngineVersion.V021,
        "max_num_seqs": 8,
        "max_num_batched_tokens": 64,
        "block_size": 4,
        "num_blocks": 257,
        "max_model_len": 256,
        "enable_prefix_caching": False,
        "enable_chunked_prefill": True,
        "long_prefill_token_threshold": 0,
        "scheduler_reserve_full_isl": True,
        "async_scheduling": False,
        "policy": SchedulingPolicy.FCFS,
    }
    return EngineLimits(**(usual | changes))  # type: ignore[arg-type] # msgspec checks nothing here; tests give the right types


def request_of(index: int, prompt: int, output: int, arrival_ns: int = 0, priority: int = 0) -> SlowRequest:
    return SlowRequest(
        id=f"r{index}",
        prompt=[(f"p{index}", 0, prompt)],
        output_tokens=output,
        arrival_ns=arrival_ns,
        priority=priority,
    )


def unit(decodes: int, decode_context: int, chunks: list[Chunk]) -> int:
    return 1000


def recorded_cases() -> list[Case]:
    if not RECORDED.is_dir():
        pytest.skip(f"no recorded schedules: {RECORDED.name} is not beside the checkout")
    return load_cases(RECORDED)[0]


@pytest.mark.parametrize("version", VERSIONS)
def test_recorded_schedules_are_reproduced(version: str) -> None:
    cases = [case for case in recorded_cases() if case.name.startswith(version)]
    differences = [str(found) for case in cases if (found := play(case, SlowDriver(case.limits))) is not None]
    assert len(cases) > 100
    assert not differences, "\n".join(differences)


def test_the_other_version_differs_where_the_recorder_says() -> None:
    """Playing the rules of 0.33 against recordings of 0.21 shows that `play` finds what is different, and where."""
    cases = {case.name: case for case in recorded_cases()}
    known = json.loads((RECORDED / "differs-0.21-0.33.json").read_text())
    compared = 0
    for name, case in cases.items():
        folder, short = name.split("/")
        other = cases.get(f"0.33.0/{short}")
        if folder != "0.21.0" or other is None:
            continue
        found = play(case, SlowDriver(other.limits))
        # the list is of decisions: a look-up of somebody not admitted and the final free queue may differ beside it
        if short in known:
            assert found is not None and found.step <= known[short]["first_step"], name
            assert found.step == known[short]["first_step"] or found.field == "lookups", name
            compared += 1
        else:
            assert found is None or found.field.startswith(("lookups", "free_block_order")), found
    assert compared > 10


def test_a_folder_without_cases_is_said(tmp_path: Path) -> None:
    with pytest.raises(CasesMissing, match="expected recorded schedules") as error:
        load_cases(tmp_path)
    assert error.value.exit_code == 2


@BOTH
def test_a_lone_request_has_one_token_a_step(asynchronous: bool) -> None:
    run = run_timed(limits_of(async_scheduling=asynchronous), [request_of(0, 10, 3, arrival_ns=500)], unit)
    outcome = run.requests["r0"]
    assert outcome.token_ns == [1500, 2500, 3500]
    assert (outcome.first_token_ns, outcome.finish_ns, outcome.preemptions) == (1500, 3500, 0)
    assert [step.scheduled[0][1:3] for step in run.steps] == [(10, 0), (1, 10), (1, 11)]
    assert [step.context for step in run.steps] == [0, 10, 11]
    # the last token has no KV: 12 positions
    assert run.max_blocks_used == 3


@pytest.mark.parametrize(("asynchronous", "start_ns"), [(False, 2000), (True, 3000)])
def test_a_late_arrival_waits_for_one_more_step_when_asynchronous(asynchronous: bool, start_ns: int) -> None:
    """An arrival during step 1 runs in step 2, or in step 3 when that is already fixed."""
    requests = [request_of(0, 4, 9), request_of(1, 4, 1, arrival_ns=1500)]
    run = run_timed(limits_of(async_scheduling=asynchronous), requests, unit)
    assert run.requests["r1"].token_ns == [start_ns + 1000]
    assert run.requests["r0"].token_ns == [1000 * k for k in range(1, 10)]


def test_an_arrival_at_the_end_of_a_step_is_in_the_next_one() -> None:
    run = run_timed(limits_of(), [request_of(0, 4, 3), request_of(1, 4, 1, arrival_ns=1000)], unit)
    assert [len(step.scheduled) for step in run.steps] == [1, 2, 1]


@pytest.mark.parametrize(("caching", "hit"), [(False, 0), (True, 4)])
def test_a_preempted_request_by_hand(caching: bool, hit: int) -> None:
    """Three blocks of 4. Both prompts take one; in step 1 the second finds no block, goes, and comes back at 4000."""
    limits = limits_of(num_blocks=4, enable_prefix_caching=caching)
    run = run_timed(limits, [request_of(0, 4, 4), request_of(1, 4, 4)], unit)
    assert run.requests["r0"].token_ns == [1000, 2000, 3000, 4000]
    assert run.requests["r1"].token_ns == [1000, 5000, 6000, 7000]
    assert run.preempted == [(1000, "r1")]
    admissions = [(a.time_ns, a.hit_tokens, a.tokens) for a in run.requests["r1"].admissions]
    assert admissions == [(0, 0, 4), (4000, hit, 5 - hit)]


def test_decodes_and_chunks_are_priced_apart() -> None:
    """A prompt of 10 in chunks of 6 and 4, then two decodes; beside it a prompt of 2 from the second step on."""
    seen = []

    def watch(decodes: int, decode_context: int, chunks: list[Chunk]) -> int:
        seen.append((decodes, decode_context, chunks))
        return 1000

    run_timed(limits_of(max_num_batched_tokens=6), [request_of(0, 10, 3), request_of(1, 2, 2)], watch)
    assert seen == [(0, 0, [(6, 0)]), (0, 0, [(4, 6), (2, 0)]), (2, 12, []), (1, 11, [])]


def test_shared_prefix_in_one_step_is_hit_in_whole_blocks() -> None:
    """10 prompts share 14 tokens of 16 and come at once: 9 hit the 12 tokens of three whole blocks."""
    requests = [
        SlowRequest(id=f"r{k}", prompt=[("shared", 0, 14), (f"own{k}", 0, 2)], output_tokens=1) for k in range(10)
    ]
    limits = limits_of(enable_prefix_caching=True, max_num_seqs=16)
    run = run_timed(limits, requests, unit)
    hits = [outcome.admissions[0].hit_tokens for outcome in run.requests.values()]
    assert hits == [0] + [12] * 9
    assert len(run.steps) == 1


def test_a_fully_cached_prompt_recomputes_its_last_block() -> None:
    requests = [
        SlowRequest(id=f"r{k}", prompt=[("same", 0, 12)], output_tokens=2, arrival_ns=9000 * k) for k in range(2)
    ]
    run = run_timed(limits_of(enable_prefix_caching=True), requests, unit)
    assert run.requests["r1"].admissions[0].hit_tokens == 8


@pytest.mark.parametrize("version", list(EngineVersion))
def test_the_priority_victim_of_a_tie_is_the_first_in_running_order(version: EngineVersion) -> None:
    """Three requests on three blocks of 4, all due a second block; r1 and r2 tie, r1 was admitted before."""
    limits = limits_of(num_blocks=4, policy=SchedulingPolicy.PRIORITY, version=version)
    requests = [request_of(0, 4, 4, priority=-1), request_of(1, 4, 4), request_of(2, 4, 4)]
    run = run_timed(limits, requests, unit)
    assert run.preempted[0] == (1000, "r1")


def test_the_heap_orders_equal_priorities_by_id_as_a_string() -> None:
    requests = [request_of(k, 4, 1) for k in (2, 10, 1)]
    run = run_timed(limits_of(max_num_seqs=1, policy=SchedulingPolicy.PRIORITY), requests, unit)
    assert [step.scheduled[0][0] for step in run.steps] == ["r1", "r10", "r2"]


def test_two_that_tie_can_evict_each_other_for_ever() -> None:
    """Admitted on the room for one chunk, either prompt needs the other's blocks; who is first in the list goes."""
    limits = limits_of(
        version=EngineVersion.V033,
        policy=SchedulingPolicy.PRIORITY,
        scheduler_reserve_full_isl=False,
        long_prefill_token_threshold=2,
        num_blocks=9,
    )
    with pytest.raises(EndlessRun):
        run_timed(limits, [request_of(0, 30, 2), request_of(1, 30, 2)], unit, max_decisions=500)
    apart = [request_of(0, 30, 2), request_of(1, 30, 2, arrival_ns=1)]
    assert run_timed(limits, apart, unit, max_decisions=500).requests["r1"].finish_ns is not None


@BOTH
@settings(derandomize=True, deadline=None, max_examples=60)
@given(jobs=st.lists(st.tuples(st.integers(0, 6), st.integers(1, 5)), min_size=1, max_size=12))
def test_one_seat_is_the_lindley_recursion(asynchronous: bool, jobs: list[tuple[int, int]]) -> None:
    """W' = max(0, W + S - A): with one seat and constant steps a request is served for as many steps as tokens."""
    time_ns, requests = 0, []
    for index, (gap, output) in enumerate(jobs):
        time_ns += gap * 700
        requests.append(request_of(index, 3, output, arrival_ns=time_ns))
    run = run_timed(limits_of(max_num_seqs=1, async_scheduling=asynchronous), requests, unit)
    wait_ns = 0
    for index, request in enumerate(requests):
        if index > 0:
            before = requests[index - 1]
            wait_ns = max(0, wait_ns + 1000 * before.output_tokens - (request.arrival_ns - before.arrival_ns))
        start_ns = request.arrival_ns + wait_ns
        assert run.requests[request.id].first_token_ns == start_ns + 1000
        assert run.requests[request.id].finish_ns == start_ns + 1000 * request.output_tokens


def test_the_budget_is_shared() -> None:
    """P38: prompts of 4 and 8 with a budget of 8: 8 tokens are computed in the first step, 4 in the second."""
    run = run_timed(limits_of(max_num_batched_tokens=8), [request_of(0, 4, 1), request_of(1, 8, 1)], unit)
    assert [sum(tokens for _, tokens, _, _ in step.scheduled) for step in run.steps] == [8, 4]


def test_what_never_fits_is_refused_and_the_rest_runs() -> None:
    """P01: 50 blocks of 16 hold 800 tokens."""
    limits = limits_of(block_size=16, num_blocks=51, max_model_len=2048, max_num_batched_tokens=2048)
    run = run_timed(limits, [request_of(0, 900, 10), request_of(1, 100, 5), request_of(2, 2048, 1)], unit)
    reasons = [outcome.rejected for outcome in run.requests.values()]
    assert reasons == [RejectReason.NEVER_FITS, None, RejectReason.PROMPT_TOO_LONG]
    assert len(run.requests["r1"].token_ns) == 5
    # 790 + 11 - 1 positions are exactly 50 blocks
    assert run_timed(limits, [request_of(0, 790, 11)], unit).requests["r0"].rejected is None
    assert run_timed(limits, [request_of(0, 790, 12)], unit).requests["r0"].rejected is RejectReason.NEVER_FITS


def test_output_ends_at_max_model_len() -> None:
    run = run_timed(limits_of(max_model_len=16), [request_of(0, 10, 50)], unit)
    assert len(run.requests["r0"].token_ns) == 6


def test_overload_does_not_schedule_anyone_twice() -> None:
    """P03: 125 blocks, prompts of 256, ten times more than fit."""
    limits = limits_of(block_size=16, num_blocks=126, max_num_seqs=64, max_num_batched_tokens=2048, max_model_len=512)
    run = run_timed(limits, [request_of(k, 256, 40) for k in range(70)], unit)
    for step in run.steps:
        names = [name for name, _, _, _ in step.scheduled]
        assert len(names) == len(set(names))
    assert all(len(outcome.token_ns) == 40 for outcome in run.requests.values())
    assert len(run.preempted) < len(run.steps)


def test_an_evicted_long_prompt_comes_back_to_its_cached_blocks() -> None:
    """P05: a long decode beside a prompt of 9,000 in a pool for 9,800 tokens."""
    limits = limits_of(
        block_size=16,
        num_blocks=9800 // 16 + 1,
        max_num_batched_tokens=2048,
        max_model_len=16384,
        enable_prefix_caching=True,
    )
    run = run_timed(limits, [request_of(0, 500, 500), request_of(1, 9000, 300)], unit)
    assert [name for _, name in run.preempted] == ["r1"]
    assert run.requests["r1"].admissions[1].hit_tokens > 8000


@pytest.mark.parametrize("reserve", [True, False])
def test_the_whole_prompt_is_reserved_or_thrashes(reserve: bool) -> None:
    """P56, a hundredth of its size: two prompts of 1,200 in a pool for 1,500 tokens."""
    limits = limits_of(
        block_size=16,
        num_blocks=1500 // 16 + 1,
        max_num_batched_tokens=200,
        max_model_len=2048,
        scheduler_reserve_full_isl=reserve,
    )
    run = run_timed(limits, [request_of(0, 1200, 20), request_of(1, 1200, 20)], unit)
    first, second = run.requests["r0"], run.requests["r1"]
    if reserve:
        assert not run.preempted
        assert second.admissions[0].time_ns == first.finish_ns
    else:
        assert run.preempted


def test_five_tokens_have_four_gaps() -> None:
    """P45: the wait for the first token is no gap between tokens."""
    outcome = run_timed(limits_of(), [request_of(0, 60, 5)], lambda d, _, c: 1000 * d + 10 * sum(n for n, _ in c))
    times = outcome.requests["r0"].token_ns
    assert [after - before for before, after in pairwise(times)] == [1000] * 4
    assert outcome.requests["r0"].first_token_ns == 600


def assert_lawful(case: FuzzCase, run: SlowRun) -> None:
    limits, requests, coefficients = case
    price = linear_step_ns(coefficients)
    device_free_ns = 0
    computed = dict.fromkeys(run.requests, 0)
    for step in run.steps:
        tokens = {name: count for name, count, _, _ in step.scheduled}
        assert len(tokens) == len(step.scheduled) <= limits.max_num_seqs
        assert 0 < sum(tokens.values()) <= limits.max_num_batched_tokens
        assert max(step.decided_ns, device_free_ns) == step.start_ns
        decodes = [before for name, _, before, _ in step.scheduled if name in step.decision.decodes]
        chunks = [(count, before) for name, count, before, _ in step.scheduled if name not in step.decision.decodes]
        assert step.duration_ns == price(len(decodes), sum(decodes), chunks)
        device_free_ns = step.start_ns + step.duration_ns
        for name, count in tokens.items():
            computed[name] += count
    for request in requests:
        outcome = run.requests[request.id]
        if outcome.rejected is None:
            assert len(outcome.admissions) in (outcome.preemptions, outcome.preemptions + 1)
            needed = request.prompt_tokens + allowed_output(limits, request) - 1
            hits = sum(admission.hit_tokens for admission in outcome.admissions)
            assert computed[request.id] + hits >= needed
            if outcome.preemptions == 0:
                assert computed[request.id] + hits == needed
            assert outcome.admissions[0].time_ns >= request.arrival_ns
            assert outcome.token_ns == sorted(set(outcome.token_ns))
    assert run.max_blocks_used < limits.num_blocks
    if limits.policy is SchedulingPolicy.FCFS:
        first = [
            run.requests[request.id].admissions[0].time_ns
            for request in requests
            if run.requests[request.id].admissions
        ]
        assert first == sorted(first)


def test_random_workloads_are_lawful_and_dense() -> None:
    """Budget, seats, device, prices and conservation on 400 cases; `run_timed` itself finds leaked blocks."""
    seen = {"cases": 0, "preemptions": 0, "hits": 0, "rejected": 0, "ties": 0, "quotes": 0, "skipped": 0}
    for _, case, run in finite_runs(range(400)):
        assert_lawful(case, run)
        outcomes = run.requests.values()
        ends = {step.start_ns + step.duration_ns for step in run.steps}
        seen["cases"] += 1
        seen["preemptions"] += len(run.preempted)
        seen["hits"] += sum(admission.hit_tokens for outcome in outcomes for admission in outcome.admissions)
        seen["rejected"] += sum(outcome.rejected is not None for outcome in outcomes)
        seen["ties"] += sum(request.arrival_ns in ends for request in case[1])
        seen["quotes"] += len(quoted_ids(case[1]))
        seen["skipped"] += sum(len(step.decision.skipped) for step in run.steps)
    assert seen["cases"] >= 390
    assert all(count > 0 for count in seen.values()), seen
    assert seen["preemptions"] > 400 and seen["ties"] > 200, seen


def test_a_random_case_is_a_function_of_its_seed() -> None:
    assert random_case(7) == random_case(7)
    assert random_case(7) != random_case(8)
