"""`isim calibrate` where the truth is known: it was hidden in a run, and has to come back."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest
from readers import code_of

from isim.cli.schema import schema_text
from isim.cost.factors import RooflineFactors, check_factors
from isim.scenario.factors import FACTORS, significant
from isim.scenario.load import load_scenario

ALONE = """\
schema_version: 1
hardware: { gpu: h100-sxm }
model: llama-3.1-8b
engine: { max_num_seqs: 64, max_num_batched_tokens: 8192, max_model_len: 8192, enable_prefix_caching: false }
workload:
  kind: mixture
  arrivals: { kind: fixed_rate, rate: 0.5 /s }
  requests: 30
  classes:
    short: { weight: 2, input_tokens: 200, output_tokens: 21 }
    long: { weight: 1, input_tokens: 6000, output_tokens: 21 }
cost: { kind: linear, base: 5 ms, per_token: 20 us, per_request: 100 us, per_context_token: 300 ns }
simulation: { seed: 3 }
"""
"""One request at a time, so that every time is a sum that can be written down."""

MIXED = """\
schema_version: 1
hardware: { gpu: h100-sxm }
model: llama-3.1-8b
engine: { max_num_seqs: 64, max_num_batched_tokens: 2048, max_model_len: 8192, enable_prefix_caching: false }
workload:
  kind: generated
  arrivals: { kind: poisson, rate: 1 /s }
  requests: 60
  input_tokens: { kind: lognormal, median: 1500, sigma: 0.7, min: 16, max: 6000 }
  output_tokens: { kind: lognormal, median: 50, sigma: 0.6, min: 2, max: 300 }
cost: roofline
simulation: { seed: 3 }
"""
MEANS = [f"latency.{name}_ns.mean" for name in ("ttft", "tpot", "e2e")]


class Bed:
    """A folder with a run file, and what commands make of it."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder, self._capsys = folder, capsys

    def write(self, name: str, text: str) -> str:
        (self.folder / name).write_text(text)
        return str(self.folder / name)

    def hidden(self, run: str, *sets: str) -> str:
        """What a server with these factors would be measured to do: its requests.csv."""
        out = self.folder / "hidden"
        options = [word for each in sets for word in ("--set", each)]
        assert code_of(["run", run, "--quiet", "--no-log", "--no-replay", "--out", str(out), *options]) == 0
        return str(out / "requests.csv")

    def calibrate(self, *argv: str, code: int = 0) -> dict[str, Any]:
        self._capsys.readouterr()
        assert code_of(["calibrate", *argv, "--json"]) == code, self._capsys.readouterr().err
        return dict(json.loads(self._capsys.readouterr().out))

    def refused(self, *argv: str) -> str:
        self._capsys.readouterr()
        assert code_of(["calibrate", *argv]) == 2
        printed = self._capsys.readouterr()
        assert printed.out == ""
        return printed.err

    def shown(self, *argv: str) -> str:
        self._capsys.readouterr()
        assert code_of(["calibrate", *argv]) in (0, 1)
        return " ".join(self._capsys.readouterr().out.split())


@pytest.fixture
def bed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Bed:
    return Bed(tmp_path, capsys)


def factor(told: dict[str, Any], path: str) -> dict[str, Any]:
    return next(dict(each) for each in told["factors"] if each["path"] == path)


def picoseconds(text: str) -> int:
    number, unit = text.split()
    return int(number) * {"ps": 1, "ns": 10**3, "us": 10**6, "ms": 10**9}[unit]


def test_what_single_requests_took_gives_the_linear_factors_back(bed: Bed) -> None:
    """Two kinds of prompts, nobody waits: TTFT = base + request + P a, TPOT = base + request + a + c (P + (n + 1) / 2).

    With those of both kinds that is base + request, a and c. What is a request's and what is the step's cannot be told:
    the batch is always one.
    """
    run = bed.write("run.yaml", ALONE)
    base_ps, token_ps, request_ps, context_ps = 6_400_000_000, 31_500_000, 100_000_000, 512_000
    hidden = [f"cost.base={base_ps} ps", f"cost.per_token={token_ps} ps", f"cost.per_context_token={context_ps} ps"]
    measured = bed.hidden(run, *hidden)
    with open(measured, encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream))
    for row in rows:
        prompt = int(row["input_tokens"])
        assert int(row["ttft_ns"]) * 1000 == base_ps + request_ps + prompt * token_ps
        seen = prompt + 10.5 - 1
        tpot_ps = base_ps + request_ps + token_ps + context_ps * seen
        assert int(row["tpot_ns"]) * 1000 == pytest.approx(tpot_ps, abs=2000)
    metrics = [f"latency.{name}_ns.{figure}" for name in ("ttft", "tpot") for figure in ("mean", "p50", "p99")]
    told = bed.calibrate(run, measured, "--metric", *metrics)
    found = {each["path"]: picoseconds(each["after"]) for each in told["factors"] if each["identified"]}
    truth = {"cost.base": base_ps, "cost.per_token": token_ps, "cost.per_context_token": context_ps}
    assert found == pytest.approx(truth, rel=0.01)
    assert all(abs(each["after_error"]) < 0.005 for each in told["metrics"])
    request = factor(told, "cost.per_request")
    assert (request["before"], request["after"], request["leverage"]) == ("100 us", "100 us", None)
    assert request["reason"]
    assert told["requests"] == 30 and [one["latency"] for one in told["per_request"]] == ["tpot_ns", "e2e_ns"]
    assert all(one["after"] < 0.005 < one["before"] for one in told["per_request"])


def test_a_factor_that_does_as_another_does_is_named_with_it(bed: Bed) -> None:
    run = bed.write("run.yaml", ALONE)
    measured = bed.hidden(run, "cost.base=7 ms")
    told = bed.calibrate(run, measured, "--fit", "cost.base", "cost.per_request", "--metric", *MEANS[:2])
    assert factor(told, "cost.base")["identified"]
    request = factor(told, "cost.per_request")
    assert not request["identified"] and request["after"] == "100 us"
    words = bed.shown(run, measured, "--fit", "cost.base", "cost.per_request", "--metric", *MEANS[:2])
    assert "Left as they were - cost.per_request:" in words


def test_the_hidden_factors_of_a_roofline_come_back(bed: Bed) -> None:
    """Cold prompts tell the compute rate, decoding the bandwidth; all in one run, of requests that meet."""
    run = bed.write("run.yaml", MIXED)
    measured = bed.hidden(run, "cost.memory_efficiency=0.72", "cost.compute_efficiency=0.55")
    told = bed.calibrate(
        run, measured, "--fit", "cost.memory_efficiency", "cost.compute_efficiency", "--metric", *MEANS
    )
    found = {each["path"]: float(each["after"]) for each in told["factors"] if each["identified"]}
    truth = {"cost.memory_efficiency": 0.72, "cost.compute_efficiency": 0.55}
    assert found == pytest.approx(truth, rel=0.01)
    assert all(abs(each["after_error"]) < 0.005 for each in told["metrics"] if each["target"])


def test_time_outside_the_engine_comes_back_beside_the_bandwidth(bed: Bed) -> None:
    """What is fitted where nothing is asked for."""
    run = bed.write("run.yaml", MIXED)
    measured = bed.hidden(run, "cost.memory_efficiency=0.72", "engine.request_overhead=8.25 ms")
    told = bed.calibrate(run, measured)
    assert [metric["metric"] for metric in told["metrics"] if metric["target"]] == MEANS
    assert float(factor(told, "cost.memory_efficiency")["after"]) == pytest.approx(0.72, rel=0.01)
    overhead = factor(told, "engine.request_overhead")
    assert overhead["before"] == "0 ns"
    assert picoseconds(overhead["after"]) == pytest.approx(8_250_000_000, rel=0.01)
    assert all(abs(each["after_error"]) < 0.005 for each in told["metrics"])
    reasons = {each["path"]: each["reason"] for each in told["factors"] if not each["identified"]}
    assert reasons["cost.host_step"] == "the metrics do not change with it"
    assert sorted(reasons) == ["cost.compute_efficiency", "cost.host_step", "cost.kernel_gap"]


def test_times_to_first_token_are_no_target_where_nothing_stands_for_what_they_hold(bed: Bed) -> None:
    run = bed.write("run.yaml", MIXED)
    measured = bed.hidden(run, "cost.memory_efficiency=0.72")
    told = bed.calibrate(run, measured, "--fit", "cost.memory_efficiency")
    targets = [metric["metric"] for metric in told["metrics"] if metric["target"]]
    assert targets == MEANS[1:]
    assert float(factor(told, "cost.memory_efficiency")["after"]) == pytest.approx(0.72, rel=0.01)


def test_nothing_is_better_than_what_is_right(bed: Bed) -> None:
    """Measurements of the run itself move nothing."""
    run = bed.write("run.yaml", MIXED)
    told = bed.calibrate(run, bed.hidden(run))
    share = factor(told, "cost.memory_efficiency")
    assert share["after"] == share["before"]
    assert all(metric["before_error"] == metric["after_error"] == 0 for metric in told["metrics"])


def test_measurements_that_tell_nothing_fit_nothing(bed: Bed) -> None:
    run = bed.write("run.yaml", MIXED)
    measured = bed.write("m.yaml", "latency.tpot_ns.mean: 9 ms\n")
    out = bed.folder / "out.yaml"
    told = bed.calibrate(run, measured, "--fit", "cost.host_step", "--out", str(out), code=1)
    assert (told["settings"], told["fitted"]) == ([], None)
    assert not out.exists()
    assert "No factor is identified" in bed.shown(run, measured, "--fit", "cost.host_step")


def test_the_written_file_runs_to_what_was_told_and_says_where_it_comes_from(bed: Bed) -> None:
    run = bed.write("run.yaml", MIXED)
    measured = bed.hidden(run, "cost.memory_efficiency=0.72")
    out = str(bed.folder / "out.yaml")
    told = bed.calibrate(run, measured, "--out", out, "--fit", "cost.memory_efficiency")
    jsonschema.validate(told, json.loads(schema_text("calibration")))
    again = bed.folder / "again"
    assert code_of(["run", out, "--quiet", "--no-log", "--no-replay", "--out", str(again)]) == 0
    result = json.loads((again / "result.json").read_text())
    after = {metric["metric"]: metric["after"] for metric in told["metrics"]}
    assert {name: result["latency"][name.split(".")[1]]["mean"] for name in MEANS} == {
        name: after[name] for name in MEANS
    }
    assert result["confidence"]["latency"] == "heuristic"
    source = told["fitted"]["source"]
    assert f"cost factors: {source}" in result["provenance"]
    assert "run.yaml" in source and "requests.csv" in source and told["measured_sha256"][:12] in source
    assert not any("default factors" in assumption for assumption in result["assumptions"])
    assert result["beyond_fit"] == []
    assert told["fitted"]["batch"] == result["steps"]["max_running"]
    scenario = load_scenario(out)
    assert scenario.cost.fitted == msgspec.convert(told["fitted"], type(scenario.cost.fitted))


@pytest.mark.parametrize(
    ("set_", "says"),
    [
        ("hardware.gpu=h200", "fitted on h100-sxm; this run is on h200"),
        ("model=qwen3-8b", "fitted with llama-3.1-8b; this run serves qwen3-8b"),
        ("workload.arrivals.rate=40 /s", "this run has batches of up to"),
        ("workload.input_tokens=6500", "this run has requests of up to"),
        ("cost.memory_efficiency=0.5", "cost.memory_efficiency was fitted as 0.9; this run has 0.5."),
    ],
)
def test_p31_a_run_that_leaves_the_range_of_the_fit_says_in_what_and_by_how_much(
    set_: str, says: str, bed: Bed
) -> None:
    """Each way out of what was measured is a warning with the axis and the bound; nothing is clipped to it."""
    fitted = "fitted: { source: by hand, factors: cost.memory_efficiency=0.9, gpu: h100-sxm, model: llama-3.1-8b, tensor_parallel_size: 1, batch: 20, request_tokens: 6300 }"  # noqa: E501
    run = bed.write(
        "run.yaml", MIXED.replace("cost: roofline", f"cost: {{ kind: roofline, memory_efficiency: 0.9, {fitted} }}")
    )
    folder = bed.folder / "out"
    assert code_of(["run", run, "--no-log", "--out", str(folder), "--set", set_]) == 0
    result = json.loads((folder / "result.json").read_text())
    assert [each for each in result["beyond_fit"] if says in each]
    assert code_of(["run", run, "--no-log", "--out", str(bed.folder / "in")]) == 0
    assert json.loads((bed.folder / "in" / "result.json").read_text())["beyond_fit"] == []


def test_equal_input_gives_equal_bytes(bed: Bed, capsys: pytest.CaptureFixture[str]) -> None:
    run = bed.write("run.yaml", ALONE)
    measured = bed.write("m.yaml", "latency.tpot_ns.mean: 9 ms\nlatency.e2e_ns.mean: 240 ms\n")
    seen = []
    for number in range(2):
        out = bed.folder / f"{number}.yaml"
        assert code_of(["calibrate", run, measured, "--json", "--out", str(out)]) == 0
        seen.append((capsys.readouterr().out, out.read_bytes()))
    assert seen[0] == seen[1]


def test_near_saturation_waits_are_no_target_unless_asked_for(bed: Bed) -> None:
    """Twice as much as is served: the wait is the length of the queue, whatever a step takes."""
    text = MIXED.replace("rate: 1 /s", "rate: 60 /s").replace("max_num_seqs: 64", "max_num_seqs: 8")
    run = bed.write("run.yaml", text)
    measured = bed.hidden(run, "cost.memory_efficiency=0.72")
    told = bed.calibrate(run, measured)
    reasons = {metric["metric"]: metric["reason"] for metric in told["metrics"]}
    assert told["load_before"] in ("near_saturation", "overloaded")
    assert [name for name, reason in reasons.items() if not reason] == ["latency.tpot_ns.mean"]
    assert "the load is" in reasons["latency.ttft_ns.mean"] and "the load is" in reasons["latency.e2e_ns.mean"]
    assert not any("as was asked for" in warning for warning in told["warnings"])
    asked = bed.calibrate(run, measured, "--metric", "latency.ttft_ns.mean")
    assert any("as was asked for" in warning for warning in asked["warnings"])
    only = bed.write("only.yaml", "latency.ttft_ns.mean: 3 s\n")
    assert "nothing to fit to" in bed.refused(run, only)


def test_a_fit_that_ends_at_a_bound_says_so(bed: Bed) -> None:
    run = bed.write("run.yaml", MIXED)
    measured = bed.write("m.yaml", "latency.tpot_ns.mean: 900 ms\nlatency.e2e_ns.mean: 40 s\n")
    told = bed.calibrate(run, measured, "--fit", "cost.memory_efficiency")
    end = factor(told, "cost.memory_efficiency")
    assert end["at_bound"] and end["after"] == "0.3"
    assert any("ends at 0.3" in warning for warning in told["warnings"])
    assert any("stays" in warning for warning in told["warnings"])
    shown = bed.shown(run, measured, "--fit", "cost.memory_efficiency")
    assert "cost.memory_efficiency (at its bound)" in shown
    unasked = bed.calibrate(run, measured, code=1)
    assert "it would end at 0.3" in factor(unasked, "cost.memory_efficiency")["reason"]


def test_every_factor_is_on_its_page() -> None:
    page = (Path(__file__).parents[1] / "docs" / "calibration.md").read_text(encoding="utf-8")
    table = page[page.index("| factor | range |") :]
    assert [factor.path for factor in FACTORS if f"`{factor.path}`" not in table] == []


def test_clients_that_wait_for_answers_are_calibrated_too(bed: Bed) -> None:
    """Who comes when depends on the factors; rows are matched by the names of the requests."""
    loop = "kind: closed_loop\n  clients: 4\n  requests: 40\n  think: { kind: fixed, duration: 50 ms }\n"
    head, _, rest = MIXED.partition("kind: generated\n")
    run = bed.write("run.yaml", head + loop + rest[rest.index("  input_tokens") :])
    told = bed.calibrate(run, bed.hidden(run, "cost.memory_efficiency=0.72"), "--fit", "cost.memory_efficiency")
    assert float(factor(told, "cost.memory_efficiency")["after"]) == pytest.approx(0.72, rel=0.01)
    assert told["requests"] == 40
    unknown = bed.write("m.csv", "id,tpot_ns\nc0.0,9000000\nnobody,9000000\n")
    told = bed.calibrate(run, unknown, "--fit", "cost.memory_efficiency")
    assert told["requests"] == 1 and any(warning.endswith("not compared: 1.") for warning in told["warnings"])


def test_every_value_that_a_fit_can_come_to_is_one_that_a_run_file_may_say() -> None:
    for each in FACTORS:
        assert (
            0 < each.low < each.high and each.low == significant(each.low, 3) and each.high == significant(each.high, 3)
        )
        assert each.start == 0 or each.low <= each.start <= each.high
        block, name = each.field.split(".")[:2]
        for value in (each.low, each.high):
            if name.endswith("_ppm"):
                check_factors(RooflineFactors(**{name.removesuffix("_ppm"): value / 1_000_000}))
            elif block == "cost" and name.endswith("_ns"):
                check_factors(RooflineFactors(**{name: value}))
