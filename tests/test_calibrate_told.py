"""What a calibration tells beside its factors: of which requests, from which measurements, and what to beware of."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from readers import code_of
from test_calibrate import ALONE, MEANS, MIXED, Bed, factor, picoseconds

from isim.scenario.load import load_scenario


@pytest.fixture
def bed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Bed:
    return Bed(tmp_path, capsys)


def test_before_and_after_are_told_of_the_requests_that_both_runs_complete(bed: Bed) -> None:
    """Clients wait for 255 ms. A long prompt takes 264 ms with a base of 5 ms, which is let go, and 243 ms with 4.

    So only the short ones are in both runs: 5 + 0.1 + 0.02 + 0.0003 x (200 + 9.5) ms a token before.
    """
    run = bed.write("run.yaml", ALONE)
    measured = bed.hidden(run, "cost.base=4 ms")
    with open(measured, encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream))
    short = [int(row["tpot_ns"]) for row in rows if row["input_tokens"] == "200"]
    assert 0 < len(short) < 30 == len(rows)
    patience = ("--set", "clients.timeout=255 ms")
    told = bed.calibrate(run, measured, *patience, "--fit", "cost.base", "--metric", MEANS[1])
    assert told["requests"] == len(short)
    assert any(warning.endswith(f"not compared: {30 - len(short)}.") for warning in told["warnings"])
    tpot = next(metric for metric in told["metrics"] if metric["metric"] == MEANS[1])
    assert tpot["measured"] == pytest.approx(sum(short) / len(short), abs=1)
    assert tpot["before"] == pytest.approx(5_182_850, abs=2)
    for metric in told["metrics"]:
        for side in ("before", "after"):
            assert metric[f"{side}_error"] == pytest.approx(metric[side] / metric["measured"] - 1, abs=1e-9)
    assert factor(told, "cost.base")["after"] == "4 ms"
    assert [one["requests"] for one in told["per_request"]] == [len(short)] * 2


def test_times_to_first_token_alone_tell_the_time_outside_the_engine(bed: Bed) -> None:
    """A constant on every time to first token is an overhead of that size; no other factor makes it."""
    run = bed.write("run.yaml", ALONE)
    measured = bed.hidden(run, "engine.request_overhead=8 ms")
    told = bed.calibrate(run, measured, "--metric", MEANS[0])
    assert [each["path"] for each in told["factors"] if each["identified"]] == ["engine.request_overhead"]
    overhead = factor(told, "engine.request_overhead")["after"]
    assert picoseconds(overhead) == pytest.approx(8_000_000_000, rel=0.01)
    assert told["warnings"] == []


def test_who_fits_times_to_first_token_without_an_overhead_is_warned(bed: Bed) -> None:
    run = bed.write("run.yaml", ALONE)
    measured = bed.hidden(run, "cost.per_token=30 us")
    argv = (run, measured, "--fit", "cost.per_token", "--metric", MEANS[0])
    says = "with engine.request_overhead left at 0 s: whatever they hold of time outside the engine"
    assert [says in warning for warning in bed.calibrate(*argv)["warnings"]] == [True]
    given = bed.calibrate(*argv, "--set", "engine.request_overhead=1 us")
    assert given["warnings"] == []
    other = bed.calibrate(run, measured, "--fit", "cost.per_token", "--metric", MEANS[2])
    assert not any(says in warning for warning in other["warnings"])


def test_a_queue_is_inside_the_engine(bed: Bed) -> None:
    """So it is a target where no factor stands for what is outside; a time to first token is not."""
    run = bed.write("run.yaml", MIXED)
    measured = bed.write("m.yaml", "latency.queue_ns.mean: 9 ms\nlatency.ttft_ns.mean: 80 ms\n")
    told = bed.calibrate(run, measured, "--fit", "cost.memory_efficiency")
    assert {metric["metric"]: metric["target"] for metric in told["metrics"]} == {
        "latency.queue_ns.mean": True,
        MEANS[0]: False,
    }


def test_a_factor_outside_its_range_that_stays_says_so(bed: Bed) -> None:
    """A share of 0.2 takes some 5 times as long as 1; 32 of its 35 ms would need 0.22, and 0.3 makes 22."""
    run = bed.write("run.yaml", MIXED)
    measured = bed.hidden(run, "cost.memory_efficiency=0.22")
    told = bed.calibrate(
        run, measured, "--fit", "cost.memory_efficiency", "--metric", MEANS[1], "--set", "cost.memory_efficiency=0.2"
    )
    assert told["settings"] == ["cost.memory_efficiency=0.2"]
    assert factor(told, "cost.memory_efficiency")["at_bound"]
    assert (
        "cost.memory_efficiency stays at 0.2, as it was, outside the range of plausible values from 0.3 to 1"
        in (told["warnings"][0])
    )


def test_of_fitted_values_nothing_is_said_where_there_are_none(bed: Bed) -> None:
    run = bed.write("run.yaml", MIXED)
    measured = bed.write("m.yaml", "latency.tpot_ns.mean: 1 ns\n")
    told = bed.calibrate(run, measured, code=1)
    assert (told["settings"], told["warnings"]) == ([], [])


def test_what_is_0_in_the_run_is_told_from_what_it_has_not(bed: Bed) -> None:
    run = bed.write("run.yaml", ALONE)
    measured = bed.write("m.yaml", "latency.overhead_ns.mean: 8 ms\n")
    assert "latency.overhead_ns.mean: measured, but it is 0 in the run" in bed.refused(run, measured)
    told = bed.calibrate(run, measured, "--set", "engine.request_overhead=1 ms")
    assert told["settings"] == ["engine.request_overhead=8 ms"]


def test_a_latency_that_the_run_has_of_no_request_is_not_left_out_in_silence(bed: Bed) -> None:
    """Of one token there is no time per token. With --metric the others are fitted to, and it is told."""
    run = bed.write("run.yaml", ALONE)
    both = bed.write("both.csv", "id,ttft_ns,tpot_ns\nr8,9000000,8000000\nr9,9000000,9000000\n")
    one = bed.write("one.csv", "id,tpot_ns\nr8,8000000\n")
    tokens = [f"workload.classes.{name}.output_tokens=1" for name in ("short", "long")]
    argv = [word for each in tokens for word in ("--set", each)]
    for measured in (both, one):
        says = "latency.tpot_ns.mean: measured, but the run has no such number"
        assert says in bed.refused(run, measured, "--fit", "cost.base", *argv)
    told = bed.calibrate(run, both, "--fit", "cost.base", "--metric", MEANS[0], *argv)
    tpot = next(metric for metric in told["metrics"] if metric["metric"] == MEANS[1])
    assert (tpot["measured"], tpot["before"], tpot["after"], tpot["after_error"]) == (8_500_000, None, None, None)
    assert told["requests"] == 2
    assert "(TPOT mean) 8.50 ms - - - -" in bed.shown(run, both, "--fit", "cost.base", "--metric", MEANS[0], *argv)


def test_a_second_calibration_keeps_what_the_first_was_fitted_to(bed: Bed) -> None:
    """Unless all factors of the first are fitted anew; the range is the smaller of both."""
    run = bed.write("run.yaml", ALONE)
    tpot = bed.write("tpot.yaml", "latency.tpot_ns.mean: 9 ms\n")
    ttft = bed.write("ttft.yaml", "latency.ttft_ns.mean: 70 ms\n")
    first, second = (str(bed.folder / name) for name in ("first.yaml", "second.yaml"))
    short = ("--set", "workload.classes.long.input_tokens=3000")
    one = bed.calibrate(run, tpot, "--fit", "cost.base", "--out", first, *short)["fitted"]
    assert one["request_tokens"] == 3021
    two = bed.calibrate(
        first, ttft, "--fit", "engine.request_overhead", "--out", second, "--set", short[1].replace("3000", "6000")
    )["fitted"]
    assert two["source"].endswith(f"; before that: {one['source']}")
    assert "engine.request_overhead=" in two["source"].split("; before that: ")[0]
    assert two["request_tokens"] == 3021
    assert [each.partition("=")[0] for each in two["factors"].split(", ")] == ["engine.request_overhead", "cost.base"]
    assert load_scenario(second).cost.fitted.source == two["source"]
    anew = bed.calibrate(first, tpot, "--fit", "cost.base", "--set", short[1].replace("3000", "6000"))["fitted"]
    assert "before that" not in anew["source"] and anew["request_tokens"] == 6021
    long = bed.write("long.yaml", Path(first).read_text().replace(one["source"], "by hand " + "x" * 990))
    cut = bed.calibrate(long, ttft, "--fit", "engine.request_overhead")["fitted"]["source"]
    assert len(cut) == 1000 and cut.endswith("xxx ...") and "before that: by hand x" in cut


def test_the_run_file_bounds_the_events_of_what_is_told(bed: Bed, capsys: pytest.CaptureFixture[str]) -> None:
    run = bed.write("run.yaml", ALONE)
    measured = bed.write("m.yaml", "latency.tpot_ns.mean: 9 ms\n")
    said = bed.refused(run, measured, "--fit", "cost.base", "--set", "simulation.max_events=300")
    assert "more than max_events = 300 events" in said


def test_names_that_are_no_text_are_escaped(bed: Bed) -> None:
    try:
        run, measured = bed.write("r\udcff.yaml", ALONE), bed.write("m\udcff.yaml", "latency.tpot_ns.mean: 9 ms\n")
    except (OSError, UnicodeEncodeError):
        pytest.skip("this file system takes only names that are text")
    told = bed.calibrate(run, measured, "--fit", "cost.base")
    assert (told["run_file"], told["measured_file"]) == ("r\\udcff.yaml", "m\\udcff.yaml")
    shown = bed.shown(run, measured, "--fit", "cost.base")
    assert "r\\udcff.yaml against m\\udcff.yaml" in shown


def test_a_written_file_finds_its_trace_through_links(bed: Bed) -> None:
    """`link` leads two folders down, so the folder above it is not where its text says."""
    trace = "arrival_ms,input_tokens,output_tokens\n" + "".join(f"{500 * n},200,21\n" for n in range(12))
    bed.write("trace.csv", trace)
    head, _, rest = ALONE.partition("  kind: mixture\n")
    source = "  kind: request_file\n  format: csv\n  path: trace.csv\n"
    run = bed.write("run.yaml", head + source + rest[rest.index("cost:") :])
    (bed.folder / "real" / "deep").mkdir(parents=True)
    (bed.folder / "link").symlink_to(Path("real") / "deep")
    measured = bed.write("m.yaml", "latency.tpot_ns.mean: 9 ms\n")
    out = bed.folder / "link" / "out.yaml"
    bed.calibrate(run, measured, "--fit", "cost.base", "--out", str(out))
    assert load_scenario(str(out)).workload.path == "../../trace.csv"
    assert code_of(["validate", str(out)]) == 0
    folder = bed.folder / "link" / "run"
    assert code_of(["run", str(out), "--quiet", "--no-log", "--out", str(folder)]) == 0
    assert code_of(["validate", str(folder / "scenario.yaml")]) == 0


@pytest.mark.parametrize("name", ["a\nb", "a\udcff"])
def test_a_path_that_no_run_file_can_say_is_refused_and_nothing_is_left(name: str, bed: Bed) -> None:
    """Beside the trace its path is `trace.csv`; from elsewhere it has the name of the folder."""
    inside = bed.folder / name
    try:
        inside.mkdir()
    except (OSError, UnicodeEncodeError):
        pytest.skip("this file system takes only names that are text")
    (inside / "trace.csv").write_text("arrival_ms,input_tokens,output_tokens\n0,200,21\n900,200,21\n")
    head, _, rest = ALONE.partition("  kind: mixture\n")
    source = "  kind: request_file\n  format: csv\n  path: trace.csv\n"
    (inside / "run.yaml").write_text(head + source + rest[rest.index("cost:") :])
    run, measured = str(inside / "run.yaml"), bed.write("m.yaml", "latency.tpot_ns.mean: 9 ms\n")
    said = bed.refused(run, measured, "--fit", "cost.base", "--out", str(bed.folder / "out.yaml"))
    assert "expected a folder from which trace.csv has a path that a run file can say" in said
    assert code_of(["run", run, "--quiet", "--out", str(bed.folder / "out")]) == 2
    assert sorted(path.name for path in bed.folder.iterdir()) == sorted(["m.yaml", name])
    bed.calibrate(run, measured, "--fit", "cost.base", "--out", str(inside / "out.yaml"))


def test_a_place_that_cannot_be_written_is_told_before_anything_runs(
    bed: Bed, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = bed.write("run.yaml", ALONE)
    measured = bed.write("m.yaml", "latency.tpot_ns.mean: 9 ms\n")
    monkeypatch.setattr("isim.calibrate.bench.Bench.look", lambda *_: pytest.fail("it ran"))
    monkeypatch.chdir(bed.folder)
    for out, says in (
        ("run.yaml", "run.yaml: expected a new file, found one"),
        ("run.yaml/below", "cannot be written: Not a directory"),
        ("nowhere/out.yaml", "cannot be written: No such file or directory"),
        ("", "'': expected the name of a new file, found none"),
        ("new/", "new/: expected the name of a new file, found a folder"),
    ):
        assert says in bed.refused(run, measured, "--out", out)
    assert sorted(path.name for path in bed.folder.iterdir()) == ["m.yaml", "run.yaml"]


@pytest.mark.parametrize("factors", ["cost.memory_eficiency=0.9", "cost.memory_efficiency", "by hand"])
def test_what_was_fitted_is_named_by_factors_that_there_are(
    factors: str, bed: Bed, capsys: pytest.CaptureFixture[str]
) -> None:
    """A name with a slip of the pen would never be compared with what the run has."""
    rest = "source: by hand, gpu: h100-sxm, model: llama-3.1-8b, tensor_parallel_size: 1, batch: 9, request_tokens: 99"
    told = f"cost: {{ kind: linear, base: 8 ms, fitted: {{ factors: {factors}, {rest} }} }}\n"
    run = bed.write("run.yaml", ALONE[: ALONE.index("cost:")] + told)
    assert code_of(["validate", run]) == 2
    said = capsys.readouterr().err
    assert "cost.fitted.factors: expected path=value of factors that can be fitted, found" in said
    assert ('did you mean "cost.memory_efficiency"?' in said) == factors.startswith("cost")
