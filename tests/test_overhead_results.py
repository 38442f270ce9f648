"""What `engine.request_overhead` does to results: added to what clients wait for, and to nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from public_cases import NO_CACHE, Cases, closed_loop, generated

from isim.cli.main import main
from isim.cost.linear import LinearCost
from isim.model.spec import Confidence

ENGINE = f"max_num_seqs: 4, max_num_batched_tokens: 512, num_gpu_blocks_override: 200, max_model_len: 2048, {NO_CACHE}"
OVERHEAD_NS = 7_100_000
OVERHEAD = "engine.request_overhead=7.1 ms"
FIGURES = ("mean", "p50", "p90", "p95", "p99", "max")
ABSOLUTE = {"start_ns", "end_ns", "start", "first_token_ns", "finish_ns"}
"""Times on the axis, which are later; all other numbers are spans, counts and rates."""


@pytest.fixture
def cases(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Cases:
    monkeypatch.chdir(tmp_path)
    return Cases(tmp_path, capsys)


def later(tree: Any) -> Any:
    """The numbers of a result whose windows are later by the overhead."""
    if isinstance(tree, list):
        return [later(each) for each in tree]
    if not isinstance(tree, dict):
        return tree
    return {
        key: value + OVERHEAD_NS if key in ABSOLUTE and isinstance(value, int) else later(value)
        for key, value in tree.items()
    }


def longer(distribution: dict[str, Any]) -> dict[str, Any]:
    return distribution | {figure: distribution[figure] + OVERHEAD_NS for figure in FIGURES}


def arrivals(rate: str) -> str:
    lengths = "input_tokens: { kind: uniform, low: 1, high: 600 }, output_tokens: { kind: uniform, low: 1, high: 60 }"
    return (
        f"{{ kind: mixture, arrivals: {{ kind: poisson, rate: {rate} }}, requests: 120, "
        f"classes: {{ chat: {{ {lengths} }} }} }}"
    )


@pytest.mark.parametrize("rate", ["5 /s", "40 /s", "400 /s"])
@pytest.mark.parametrize("warmup", ["none", "10%", "15 requests", "300 ms"])
def test_only_what_clients_wait_for_is_longer(rate: str, warmup: str, cases: Cases) -> None:
    """Idle, loaded, overloaded: every rate, share, queue and flag is what it was, and every window as long."""
    more = f'simulation: {{ warmup: "{warmup}" }}\n'
    plain = cases.run(engine=ENGINE, workload=arrivals(rate), more=more)
    ran = cases.run(OVERHEAD, engine=ENGINE, workload=arrivals(rate), more=more)
    assert plain.code == ran.code == 0
    expected, found = later(plain.result), ran.result
    assert found["warm_up"]["requests_left_out"] == plain.result["warm_up"]["requests_left_out"]
    for result in (expected, found):
        for told in ("assumptions", "digests", "simulated"):
            del result[told]
        del result["details"]["sensitivity"]
    if warmup == "none":
        assert found["warm_up"]["end_ns"] == plain.result["warm_up"]["end_ns"] == 0
        expected["warm_up"] = found["warm_up"]
    for latency in (expected["latency"], expected["classes"][0]["latency"]):
        count = latency["ttft_ns"]["count"]
        latency["overhead_ns"] = {"count": count} | dict.fromkeys(FIGURES, OVERHEAD_NS)
        for name in ("ttft_ns", "e2e_ns"):
            latency[name] = longer(latency[name])
    assert found == expected
    for before, after in zip(plain.rows, ran.rows, strict=True):
        told = dict(before) | {"overhead_ns": str(OVERHEAD_NS)}
        for key in ("start_ns", "first_token_ns", "finish_ns", "ttft_ns", "e2e_ns"):
            told[key] = str(int(before[key]) + OVERHEAD_NS) if before[key] else ""
        assert after == told


def test_promises_and_visible_tokens_count_from_sending(cases: Cases) -> None:
    """One request of 100 tokens: the first after 1.1 ms of the engine, the fifth 4.004 ms later."""
    row = {"arrival_ns": 5, "input_tokens": 100, "output_tokens": 5, "reasoning_tokens": 4}
    workload = cases.file("r.jsonl", row)
    for ttft, e2e, kept in (("8.2 ms", "12.204 ms", [1, 1]), ("8199999 ns", "12203999 ns", [0, 0])):
        more = f"slo: {{ ttft: {{ each: {ttft}, max: {ttft} }}, e2e: {{ each: {e2e} }} }}\n"
        slo = (ran := cases.run(OVERHEAD, workload=workload, more=more)).result["slo"]
        assert [limit["kept"] for limit in slo["limits"]] == kept
        assert slo["met"] is bool(kept[0]) and slo["targets"][0]["actual_ns"] == 8_200_000
        assert ran.result["first_visible_ns"]["max"] == 12_204_000
        assert ran.rows[0]["first_visible_ns"] == str(5 + 12_204_000)
        assert (ran.rows[0]["arrival_ns"], ran.rows[0]["start_ns"]) == ("5", str(5 + OVERHEAD_NS))


def test_warm_up_windows_and_limits_of_traces_are_in_the_time_of_sending(cases: Cases) -> None:
    """A request every 10 ms: those sent before 30 ms are warm-up, though they arrive after it."""
    rows = [{"arrival_ms": 10 * n, "input_tokens": 10, "output_tokens": 1} for n in range(10)]
    workload = cases.file("r.jsonl", *rows)
    sets = ("engine.request_overhead=35 ms", 'simulation.warmup="30 ms"')
    ran = cases.run(*sets, workload=workload)
    assert [row["measured"] for row in ran.rows] == ["0"] * 3 + ["1"] * 7
    assert ran.result["warm_up"]["end_ns"] == 65_000_000
    steady = ran.result["throughput"]["steady_state"]
    assert (steady["start_ns"], steady["end_ns"]) == (65_000_000, 125_000_000)
    part = workload[:-2] + ", window: { start: 40 ms, end: 80 ms } }"
    cut = cases.run("engine.request_overhead=35 ms", workload=part)
    assert [int(row["arrival_ns"]) for row in cut.rows] == [n * 10_000_000 for n in range(4)]
    assert {row["queue_ns"] for row in cut.rows} == {"0"}


def test_a_closed_loop_serves_less_the_farther_its_clients_are(cases: Cases) -> None:
    """One client, 20 requests of 2.002 ms, and a nanosecond to react: the run is as long as all its periods."""
    ran = cases.run(OVERHEAD, workload=closed_loop(1, 20, 1, 2))
    period_ns = OVERHEAD_NS + 2 * 1_001_000 + 1
    assert [int(row["arrival_ns"]) for row in ran.rows] == [turn * period_ns for turn in range(20)]
    assert {row["e2e_ns"] for row in ran.rows} == {str(period_ns - 1)}
    assert ran.result["busy"]["duration_ns"] == 20 * period_ns - 1 - OVERHEAD_NS, "from the first arrival on"


def test_none_is_none_and_some_is_said(cases: Cases) -> None:
    workload = generated(3, 40, 5)
    plain, none = cases.run(workload=workload), cases.run("engine.request_overhead=0 s", workload=workload)
    assert none.result == plain.result and none.rows == plain.rows and none.records == plain.records
    some = cases.run(OVERHEAD, workload=workload)
    said = [b"request_overhead_ns" in msgspec.json.encode(ran.records[0]) for ran in (plain, none, some)]
    assert said == [False, False, True]
    for digest in ("scenario", "log"):
        assert some.result["digests"][digest] != plain.result["digests"][digest]
    assert "7.1 ms overhead a request" in some.result["simulated"]["engine"]
    assert "engine.request_overhead 7100 us" in " ".join(some.report.split())
    assert "clients of measured vLLM servers wait 7 to 11 ms more" in " ".join(plain.report.split())
    assert not any(line.startswith(" overhead") for line in plain.report.splitlines())
    assert any(line.startswith(" overhead") for line in some.report.splitlines())


def test_a_guess_of_the_overhead_is_the_weakest_input(cases: Cases, monkeypatch: pytest.MonkeyPatch) -> None:
    """A measured pool and calibrated steps: latencies are calibrated, but not with a guess in them."""
    monkeypatch.setattr(LinearCost, "confidence", Confidence.CALIBRATED)
    for sets, latency in (((), "calibrated"), ((OVERHEAD,), "heuristic")):
        ran = cases.run(*sets, engine=ENGINE, workload=generated(3, 40, 5))
        assert ran.result["confidence"] == {"kv_capacity": "exact", "latency": latency}


@pytest.mark.parametrize("bad", ["7", "-1 ms", "0.5 ns", "7 apples", "null"])
def test_it_is_a_duration_with_its_unit(bad: str, cases: Cases) -> None:
    ran = cases.run(f"engine.request_overhead={bad}", workload=generated(1, 40, 5))
    assert ran.code == 2
    assert ran.said.startswith("isim: ") and "engine.request_overhead: expected a duration" in ran.said


def test_the_resolved_run_file_and_the_comparison_have_it(cases: Cases, capsys: pytest.CaptureFixture[str]) -> None:
    workload = generated(30, 400, 20, "20 /s")
    cases.run(workload=workload)
    first = cases.run(OVERHEAD, workload=workload)
    out = cases.folder / "case2" / "out"
    assert 'request_overhead: "7100 us"' in (out / "scenario.yaml").read_text()
    assert main(["run", str(out / "scenario.yaml"), "--quiet", "--out", str(cases.folder / "again")]) == 0
    assert (cases.folder / "again" / "requests.csv").read_bytes() == (out / "requests.csv").read_bytes()
    assert (cases.folder / "again" / "log.jsonl.zst").read_bytes() == (out / "log.jsonl.zst").read_bytes()
    capsys.readouterr()
    assert main(["compare", str(cases.folder / "case1" / "out"), str(out)]) == 0
    told = capsys.readouterr().out
    assert "overhead mean" in told and "7.1 ms overhead a request" in told
    row = next(line for line in told.splitlines() if "overhead mean" in line)
    assert "0 ns" in row and "7.10 ms" in row
    assert first.result["latency"]["tpot_ns"]["count"] == 30
    rates = [line for line in told.splitlines() if "requests/s" in line or "output tok/s" in line]
    assert rates and all("=" in line for line in rates), "an open loop is served as fast"


def test_what_it_says_is_beyond_the_clock_is_one_line(cases: Cases) -> None:
    row = {"arrival_ns": 10**9, "input_tokens": 4, "output_tokens": 1}
    ran = cases.run(f"engine.request_overhead={2**53 - 1} ns", workload=cases.file("r.jsonl", row))
    assert ran.code == 2 and ran.report == ""
    (line,) = ran.said.strip().splitlines()
    assert "request r0 would come to" in line and "the clock ends at" in line
    assert "engine.request_overhead" in line
