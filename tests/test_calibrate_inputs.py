"""What a calibration is given: both forms of measurements, options, and everything that is refused with its place."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from readers import RUN_FILE, code_of

from isim.calibrate.measured import Row, load_measured
from isim.record.errors import IsimError


def load(folder: Path, name: str, text: str) -> tuple[Row, ...]:
    (folder / name).write_text(text)
    return load_measured(str(folder / name)).rows


def refusal(folder: Path, name: str, text: str) -> str:
    (folder / name).write_text(text)
    with pytest.raises(IsimError) as raised:
        load_measured(str(folder / name))
    assert raised.value.exit_code == 2
    return str(raised.value).replace(str(folder) + "/", "")


def test_times_are_read_in_every_unit_exactly(tmp_path: Path) -> None:
    text = "id,ttft_s,tpot,e2e_us\na,0.0421,12.25 ms,3067300.5\nb,1e-3,800 ns,\nc,,,\n"
    assert load(tmp_path, "m.csv", text) == (
        Row(2, "a", 42_100_000, 12_250_000, 3_067_300_500),
        Row(3, "b", 1_000_000, 800, None),
        Row(4, "c", None, None, None),
    )
    lines = [{"ttft_ms": 42.1}, {"tpot": "12.25 ms", "e2e_ns": 99, "id": None}, {}]
    rows = load(tmp_path, "m.jsonl", "".join(json.dumps(line) + "\n" for line in lines))
    assert rows == (
        Row(1, None, 42_100_000, None, None),
        Row(2, None, None, 12_250_000, 99),
        Row(3, None, None, None, None),
    )


def test_rows_that_did_not_complete_or_were_warm_up_are_left_out(tmp_path: Path) -> None:
    text = "ttft_ns,status,measured\n5,completed,1\n6,completed,0\n7,aborted,1\n8,rejected,0\n9,,\n"
    assert [row.ttft_ns for row in load(tmp_path, "m.csv", text)] == [5, None, None, None, 9]


def test_a_compressed_file_is_read_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "m.CSV.gz").write_bytes(gzip.compress(b"ttft_ns\n5\n"))
    assert load_measured(str(tmp_path / "m.CSV.gz")).rows[0].ttft_ns == 5


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "m.csv:1: header: expected the names of the columns, found nothing"),
        ("id,ttft_ns\n", "expected at least one request with a latency"),
        ("id,ttft_ns\na,\n", "expected at least one request with a latency"),
        ("id,arrival_ns\na,5\n", "m.csv:1: header: expected a column of ttft, tpot, e2e"),
        (
            "id,ttft_nss\na,5\n",
            "m.csv:1: column 'ttft_nss': expected a known name, found another (did you mean ttft_ns?)",
        ),
        ("ttft_ns,ttft_ns\n1,2\n", "m.csv:1: column ttft_ns: expected once, found twice"),
        ("ttft_ns,ttft_ms\n1,2\n", "m.csv:2: column ttft_ns: expected one column of ttft"),
        ("id,ttft_ns\na,5\na,6\n", "m.csv:3: column id: expected an id that no row above has; first on line 2"),
        ("id,ttft_ns\na,5\n,6\n", "m.csv:3: column id: expected an id on every row or on none, found nothing"),
        ("id,ttft_ns\n,5\nb,6\n", "m.csv:3: column id: expected an id on every row or on none, found 'b'"),
        ("id,ttft_ns\na\n", "m.csv:2: expected 2 cells, as in the header, found 1"),
        ("ttft_ns\nnan\n", "m.csv:2: column ttft_ns: expected a number above 0, found 'nan'"),
        ("ttft_ns\n-5\n", "m.csv:2: column ttft_ns: expected a number above 0, found '-5'"),
        ("ttft_ns\n0\n", "m.csv:2: column ttft_ns: expected a number above 0, found '0'"),
        ("ttft_ns\n1e30\n", "m.csv:2: column ttft_ns: expected a number above 0"),
        ("ttft_ns\ninf\n", "m.csv:2: column ttft_ns: expected a number above 0"),
        ("ttft\n42\n", "m.csv:2: column ttft: expected a time above 0 with its unit"),
        ("ttft\n0 ms\n", "m.csv:2: column ttft: expected a time above 0 with its unit"),
        ("ttft_ns,e2e_ns\n50,40\n", "m.csv:2: column e2e: expected no less than the time to the first token, 50 ns"),
        ("ttft_ns,status\n50,done\n", "m.csv:2: column status: expected one of completed"),
        ("ttft_ns,measured\n50,yes\n", "m.csv:2: column measured: expected 0 or 1"),
    ],
)
def test_rows_that_cannot_be_followed(text: str, says: str, tmp_path: Path) -> None:
    assert says in refusal(tmp_path, "m.csv", text)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('{"ttft_ns": "5"}', "m.jsonl:1: key ttft_ns: expected a number"),
        ('{"ttft_ns": NaN}', "m.jsonl:1: key ttft_ns: expected a number above 0, found 'NaN'"),
        ('{"ttft": 5}', "m.jsonl:1: key ttft: expected text with a unit"),
        ('{"ttft_ns": 5, "ttft_ns": 6}', "m.jsonl:1: key 'ttft_ns': expected once, found twice"),
        ('{"ttft_ns": 5', "m.jsonl:1:14: expected a JSON object"),
        ("[5]", "m.jsonl:1: expected a JSON object"),
    ],
)
def test_objects_that_cannot_be_followed(text: str, says: str, tmp_path: Path) -> None:
    assert says in refusal(tmp_path, "m.jsonl", text + "\n")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "m.yaml:1:1: expected a file of measured figures, found no content"),
        ("{}", "m.yaml:1:1: expected at least one metric, found none"),
        ("latency.tpot_ns.mean: 12", 'm.yaml:1:23: latency.tpot_ns.mean: expected a duration with its unit'),
        ("latency.tpot_ns.mean: 0 ms", "m.yaml:1:23: latency.tpot_ns.mean: expected a duration of at least 1 ns"),
        ("latency.tpot_ns.mean: -5 ms", "m.yaml:1:23: latency.tpot_ns.mean: expected a duration with its unit"),
        ("latency.tpot_ns.mean: .nan", "m.yaml:1:23: latency.tpot_ns.mean: expected a duration with its unit"),
        ("latency.tpot_ns.mean: null", "m.yaml:1:23: latency.tpot_ns.mean: expected a duration with its unit"),
        ("latency.tpot_ns.mean: 5 s\nlatency.tpot_ns.mean: 6 s", "m.yaml:2:1: latency.tpot_ns.mean: expected each key"),
        ("latency.tpot.mean: 5 ms", 'found an unknown key; did you mean "latency.tpot_ns.mean"?'),
        ("latency:\n  tpot_ns: 5 ms", "m.yaml:1:1: latency: expected one of the keys latency.ttft_ns.mean"),
        ("kv.usable_blocks: 5", "m.yaml:1:1: kv.usable_blocks: expected one of the keys"),
        ("throughput.whole_run.requests_per_s: 5", "expected a rate above 0 with its unit"),
        ("throughput.whole_run.requests_per_s: 0 /s", "expected a rate above 0 with its unit"),
        ("- 5 ms", "m.yaml:1:1: expected a block of keys"),
    ],
)  # fmt: skip
def test_figures_that_cannot_be_followed(text: str, says: str, tmp_path: Path) -> None:
    assert says in refusal(tmp_path, "m.yaml", text)


def test_all_complaints_of_figures_come_at_once(tmp_path: Path) -> None:
    said = refusal(tmp_path, "m.json", '{"latency.tpot_ns.mean": 5,\n "latency.nothing": "5 ms"}')
    assert [line.split(": ")[0] for line in said.splitlines()] == ["m.json:1:26", "m.json:2:2"]


@pytest.fixture
def run(tmp_path: Path) -> str:
    (tmp_path / "run.yaml").write_text(RUN_FILE)
    return str(tmp_path / "run.yaml")


def told(capsys: pytest.CaptureFixture[str], *argv: str) -> str:
    assert code_of(["calibrate", *argv]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    return printed.err


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--fit", "cost.bass"], "--fit cost.bass: expected a factor that can be fitted; did you mean cost.base?"),
        (["--fit", "nothing"], "--fit nothing: expected a factor that can be fitted: cost.base, engine."),
        (["--fit", "cost.memory_efficiency"], "expected a factor that this run file has, found none; it has cost.base"),
        (["--fit", "cost.base", "cost.base"], "--fit cost.base: expected once, found twice"),
        (
            ["--fit", "cost.base", "cost.per_token"],
            "--fit: expected at most as many factors as metrics that are fitted to, 1",
        ),
        (["--metric", "latency.e2e_ns.mean"], "--metric latency.e2e_ns.mean: expected a metric that was measured"),
        (["--metric", "tpot"], "--metric tpot: expected the name of a metric that was measured"),
        (["--metric", "latency.tpot_ns.mean", "--metric", "latency.tpot_ns.mean"], "expected once, found twice"),
        (["--set", "cost.base=3"], "--set[1]: cost.base: expected a duration with its unit"),
        (["--json", "--quiet"], "not allowed with argument"),
    ],
)
def test_options_that_cannot_be_followed(
    options: list[str], says: str, run: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "m.yaml").write_text("latency.tpot_ns.mean: 3 ms\n")
    assert says in told(capsys, run, str(tmp_path / "m.yaml"), *options)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("id,ttft_ns,tpot_ns\nr9,5,5\n", "m.csv:2: id: expected the id of a request of the workload, found 'r9'"),
        ("tpot_ns\n" + "5\n" * 5, "m.csv:6: expected at most 4 requests, as in the workload"),
        ("id,tpot_ns\nr0,5\n", "expected requests that the run completes after its warm-up, found none"),
    ],
)
def test_rows_of_no_request(text: str, says: str, run: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "m.csv").write_text(text)
    assert says in told(capsys, run, str(tmp_path / "m.csv"), "--set", "simulation.warmup=2 requests")


def test_a_metric_that_the_run_does_not_have(run: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "m.yaml").write_text("latency.tpot_ns.mean: 3 ms\n")
    said = told(capsys, run, str(tmp_path / "m.yaml"), "--set", "workload.output_tokens=1")
    assert "latency.tpot_ns.mean: measured, but the run has no such number" in said


def test_a_run_in_which_nothing_completes(run: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "m.yaml").write_text("latency.tpot_ns.mean: 3 ms\n")
    argv = ["calibrate", run, str(tmp_path / "m.yaml"), "--set", "workload.input_tokens=100000"]
    assert code_of(argv) == 4
    assert "nothing completed" in capsys.readouterr().err


def test_a_file_that_is_there_is_kept_and_asked_for_before_anything_runs(
    run: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "m.yaml").write_text("latency.tpot_ns.mean: 3 ms\n")
    (tmp_path / "taken").write_text("mine")
    for out in ("taken", "taken/below", "no folder/below"):
        assert code_of(["calibrate", run, str(tmp_path / "m.yaml"), "--quiet", "--out", str(tmp_path / out)]) == 2
        assert "taken" in capsys.readouterr().err or out == "no folder/below"
    assert (tmp_path / "taken").read_text() == "mine"
    monkeypatch.chdir(tmp_path)
    assert code_of(["calibrate", run, str(tmp_path / "m.yaml"), "--quiet", "--out", ""]) == 2
    assert not list(tmp_path.glob("*unfinished"))


def test_only_the_requests_that_were_measured_are_compared(
    run: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """By id in any order, or the first ones; what the run has no answer to is counted."""
    (tmp_path / "m.csv").write_text("id,tpot_ns\nr3,3000000\nr1,3000000\n")
    assert code_of(["calibrate", run, str(tmp_path / "m.csv"), "--json", "--fit", "cost.base"]) == 0
    assert json.loads(capsys.readouterr().out)["requests"] == 2
    (tmp_path / "m.csv").write_text("tpot_ns\n3000000\n\n3000000\n3000000\n")
    assert code_of(["calibrate", run, str(tmp_path / "m.csv"), "--json", "--fit", "cost.base"]) == 0
    assert json.loads(capsys.readouterr().out)["requests"] == 3
