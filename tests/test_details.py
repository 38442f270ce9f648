"""The closer look at a run: shapes of steps against their durations, queues and blocks counted one by one, and P60."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from expand import tell
from product import as_requests, play
from toy_facts import analysis_of
from workload_fuzz import finite_runs, quoted_ids

from isim.analyze.closer import Watcher, over_time, step_time
from isim.analyze.windows import BUCKETS
from isim.cli.main import main
from isim.cost.linear import LinearCost
from isim.record.records import Abort, AnyRecord, Arrive, Header, Reject, Stretch, Turn

ONE_SEAT = """\
schema_version: 1
hardware: { gpu: h100-sxm }
model: llama-3.1-8b
engine: { max_num_seqs: 1, max_num_batched_tokens: 64, max_model_len: 64, async_scheduling: false }
workload:
  kind: generated
  arrivals: { kind: fixed_rate, rate: 100 /s }
  requests: 800
  input_tokens: 10
  output_tokens: 1
cost: { kind: linear, base: 8 ms }
"""
GAP_NS = 10_000_000
REQUESTS = 800


@pytest.fixture
def run_file(tmp_path: Path) -> str:
    path = tmp_path / "seat.yaml"
    path.write_text(ONE_SEAT)
    return str(path)


def result_of(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    assert main(["run", *words, "--json"]) == 0
    result: dict[str, Any] = json.loads(capsys.readouterr().out)
    return result


def mean_ttft_ns(service_ns: int) -> int:
    """D/D/1: request k waits k times what service is longer than the gap."""
    waits = sum(max(0, service_ns - GAP_NS) * k for k in range(REQUESTS))
    return round(waits / REQUESTS) + service_ns


def changes_of(result: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {change["metric"]: change for change in result["details"]["sensitivity"]["metrics"]}


@pytest.mark.parametrize(("service_ms", "state", "steep"), [(5, "stable", False), (9.5, "near_saturation", True)])
def test_p60_a_queue_near_its_knee_is_not_told_as_a_number(
    run_file: str, capsys: pytest.CaptureFixture[str], service_ms: float, state: str, steep: bool
) -> None:
    """P60: at a utilisation of 0.95 nobody waits at all, and with steps 10 % longer the queue grows without end.

    Utilisation, queue growth and stability are told, and every number with what it is at +-10 %: by the closed form.
    """
    service_ns = int(service_ms * 1_000_000)
    result = result_of(capsys, run_file, "--set", f"cost.base={service_ms} ms")
    assert result["busy"]["utilisation"] == pytest.approx(service_ns / GAP_NS, rel=0.01)
    assert result["load"]["queue_mean_ns_by_quarter"] == [0, 0, 0, 0]
    assert result["load"]["state"] == state
    assert ("step_time" in result["load"]["reasons"]) == steep
    ttft = changes_of(result)["latency.ttft_ns.mean"]
    assert (ttft["value"], ttft["faster"], ttft["slower"]) == (
        mean_ttft_ns(service_ns), mean_ttft_ns(service_ns * 9 // 10), mean_ttft_ns(service_ns * 11 // 10)
    )  # fmt: skip
    assert ttft["slower_change"] == pytest.approx(ttft["slower"] / ttft["value"] - 1)
    assert ttft["steep"] == steep
    assert result["details"]["sensitivity"]["slower_load"] == ("overloaded" if steep else "stable")
    assert result["details"]["sensitivity"]["faster_load"] == "stable"
    assert main(["run", run_file, "--set", f"cost.base={service_ms} ms"]) == 0
    report = capsys.readouterr().out
    assert ("not to be quoted" in report) == ("Near saturation" in report) == ("TTFT ~" in report) == steep
    assert "Load with steps 10 % shorter: stable; longer: " in report


def test_p60_an_overload_is_told_by_growth(run_file: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The kind of P60 beyond the knee: the number in the system grows by what is not served, quarter by quarter."""
    result = result_of(capsys, run_file, "--set", "cost.base=12 ms")
    load = result["load"]
    assert load["state"] == "overloaded"
    assert {"queue_grows", "system_grows"} <= set(load["reasons"])
    # At time t, t / 10 ms rounded up came and t / 12 ms rounded down were served, which on average adds half and half;
    # the middle of quarter q is at (2 q + 1) / 8 of 7.99 s.
    expected = [799 * (2 * quarter + 1) / 8 / 6 + 1 for quarter in range(4)]
    assert [mean / 1000 for mean in load["system_mean_milli_by_quarter"]] == pytest.approx(expected, abs=0.05)


def test_a_large_run_is_left_alone_unless_asked(run_file: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The rule is of requests and steps, not of time: 1,000 requests are looked at, 1,001 are not."""
    assert result_of(capsys, run_file, "--set", "workload.requests=1000")["details"]["state"] == "given"
    beyond = (run_file, "--set", "workload.requests=1001")
    large = result_of(capsys, *beyond)
    assert (large["details"]["state"], large["details"]["sensitivity"]) == ("too_large", None)
    assert result_of(capsys, *beyond, "--details", "always")["details"]["state"] == "given"
    off = result_of(capsys, run_file, "--details", "never")
    assert (off["details"]["state"], off["details"]["step_time"]) == ("off", [])
    assert main(["run", *beyond]) == 0
    assert "isim run --details always" in capsys.readouterr().out
    small = result_of(capsys, run_file)
    assert {**small, "details": 0} == {**off, "details": 0}


def test_nothing_of_the_result_depends_on_how_steps_were_gathered(
    run_file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    several = ("--set", "engine.max_num_seqs=4", "--set", "workload.output_tokens=20", "--set", "cost.base=2 ms")
    whole = result_of(capsys, run_file, *several)
    assert whole == result_of(capsys, run_file, *several, "--set", "simulation.max_stretch=1")
    assert whole["details"]["state"] == "given"


def test_a_run_that_ends_only_with_shorter_steps_says_so(run_file: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Simulated time ends after 104 days; 950 steps of 9,000 s end before, and 10 % longer they do not."""
    values = ("cost.base=9000 s", "workload.requests=1", "workload.output_tokens=950", "engine.max_model_len=1000")
    long = [word for value in values for word in ("--set", value)]
    details = result_of(capsys, run_file, *long)["details"]
    assert (details["state"], details["sensitivity"]) == ("given", None)
    assert details["no_sensitivity"].startswith("with steps of 110 %: ")


def durations(record: Turn | Stretch) -> list[int]:
    if isinstance(record, Turn):
        return [] if record.step is None else [record.duration_ns]
    return record.durations_ns * (record.steps if len(record.durations_ns) == 1 else 1)


def seen_of(records: list[AnyRecord]) -> Watcher:
    watcher = Watcher(always=True)
    for start in range(0, len(records), 5):
        watcher.read(records[start : start + 5])
    return watcher


def test_shapes_read_from_the_log_are_those_that_were_priced() -> None:
    """Each shape, priced again, gives the durations of the log; all four coefficients are at work."""
    several = 0
    for _, (limits, asked, coefficients), _ in finite_runs(range(150)):
        records = play(limits, as_requests(asked, quoted_ids(asked)), coefficients).records
        cost = LinearCost(coefficients)
        priced = []
        for decodes, context, chunks, steps in seen_of(records).shapes:
            several += steps > 1
            priced += [cost.step_ns(decodes, context + step * decodes, chunks) for step in range(steps)]
        told = [ns for record in records if isinstance(record, Turn | Stretch) for ns in durations(record)]
        assert priced == told
        watcher = seen_of(records)
        split = step_time(watcher, cost, sum(told))
        assert sum(one.total_ns for one in split) == sum(told)
        new_tokens = sum(
            steps * (decodes + sum(new for new, _ in chunks)) for decodes, _, chunks, steps in watcher.shapes
        )
        by_name = {one.operation: one.total_ns for one in split}
        assert by_name["new_tokens"] == new_tokens * coefficients.per_token_ps // 1000
        assert 0 <= by_name["rounding"] <= len(told) + 4
    assert several > 50


def queue_spells(records: list[AnyRecord]) -> list[tuple[int, int]]:
    """When each request came, and when its first step started."""
    told = tell(records)
    first: dict[int, int] = {}
    for record in records:
        if isinstance(record, Turn) and record.step is not None:
            for request, _, _ in record.admitted:
                first.setdefault(request, told.steps[record.step].start_ns)
    gone = {record.request: record.time_ns for record in records if isinstance(record, Abort)}
    return [
        (arrival_ns, first.get(request, gone.get(request, 1 << 60)))
        for request, arrival_ns in told.arrivals.items()
        if request not in told.rejected
    ]


def test_queue_and_blocks_over_time_are_those_of_every_moment() -> None:
    """The queue is constant between arrivals and starts, so sampling it between all such moments integrates it."""
    waited = 0
    for _, (limits, asked, coefficients), _ in finite_runs(range(60)):
        records = play(limits, as_requests(asked, quoted_ids(asked)), coefficients).records
        analysis = analysis_of(records)
        window = analysis.result.batch_over_time
        found = over_time(seen_of(records), analysis.collector, analysis.result)
        if not window.mean_batch_milli:
            assert (found.mean_queue_milli, found.most_kv_blocks) == ([], [])
            continue
        span_ns = window.end_ns - window.start_ns
        cuts = [window.start_ns + span_ns * part // BUCKETS for part in range(BUCKETS + 1)]
        told = tell(records)
        moments = {*cuts, *told.arrivals.values(), *(step.start_ns for step in told.steps)}
        ordered = sorted(moment for moment in moments if cuts[0] <= moment <= cuts[-1])
        spells = queue_spells(records)
        areas = dict.fromkeys(cuts[:-1], 0)
        part_ns = cuts[0]
        for before, after in pairwise(ordered):
            part_ns = before if before in areas else part_ns
            areas[part_ns] += (after - before) * sum(came <= before < started for came, started in spells)
        means = [1000 * area / (end - start) for area, (start, end) in zip(areas.values(), pairwise(cuts), strict=True)]
        assert found.mean_queue_milli == pytest.approx(means, abs=0.51)
        waited += any(found.mean_queue_milli)
        header = records[0]
        assert isinstance(header, Header)
        usable = analysis.result.kv.usable_blocks
        turns = [record for record in records if isinstance(record, Turn)]
        for most, (start, end) in zip(found.most_kv_blocks, pairwise(cuts), strict=True):
            inside = [turn for turn in turns if start < turn.time_ns <= end]
            seen = inside or [turn for turn in turns if turn.time_ns <= start][-1:]
            assert most == max([usable - turn.free_blocks for turn in seen], default=0)
    assert waited > 20


def test_a_watcher_that_gave_up_keeps_nothing() -> None:
    ((_, (limits, asked, coefficients), _),) = list(finite_runs(range(1, 2)))
    records = play(limits, as_requests(asked, quoted_ids(asked)), coefficients).records
    crowd = [record for record in records if isinstance(record, Header | Reject)]
    crowd += [record for record in records if isinstance(record, Arrive)] * 1000  # type: ignore[arg-type] # any records
    watcher = Watcher()
    watcher.read(records)
    assert watcher.whole and watcher.shapes
    watcher.read(crowd)
    watcher.read(records)
    assert not watcher.whole
    assert (watcher.shapes, watcher.turn_ns, watcher.free_blocks) == ([], [], [])
