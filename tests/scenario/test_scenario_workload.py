"""The blocks `workload` and `slo`: what they may say, what is refused and where, and that they write back the same."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from isim.scenario.digest import scenario_digest
from isim.scenario.errors import ScenarioError
from isim.scenario.json_schema import run_file_schema
from isim.scenario.load import read_scenario
from isim.scenario.resolve import relocated, resolved_yaml
from isim.scenario.types import (
    Burst,
    Empirical,
    EmpiricalFile,
    Gamma,
    Generated,
    Mixture,
    MooncakeTrace,
    Ramp,
    Ratio,
    Scenario,
    SharedPrefix,
    Slo,
    Targets,
    Traffic,
    Uniform,
)

BASE: dict[str, Any] = {
    "schema_version": 1,
    "hardware": {"gpu": "h100-sxm"},
    "model": "llama-3.1-8b",
    "workload": {
        "kind": "generated",
        "arrivals": {"kind": "poisson", "rate": "1 /s"},
        "requests": 5,
        "input_tokens": 10,
        "output_tokens": 10,
    },
    "cost": "roofline",
}
FORM = jsonschema.Draft202012Validator(run_file_schema())


def load(tree: dict[str, Any], *sets: str) -> Scenario:
    return read_scenario(json.dumps(tree).encode(), "run.json", sets)


def told(tree: dict[str, Any], *sets: str) -> str:
    with pytest.raises(ScenarioError) as caught:
        load(tree, *sets)
    return str(caught.value)


def with_workload(**keys: Any) -> dict[str, Any]:
    return BASE | {"workload": BASE["workload"] | keys}


COUNTS = st.integers(1, 10**9)
RATES = st.builds("{}/{} {}".format, st.integers(1, 999), st.integers(1, 999), st.sampled_from(["/s", "per minute"]))
TIMES = st.builds("{} {}".format, st.integers(2, 1000), st.sampled_from(["ns", "us", "ms", "s", "min"]))
ARRIVALS = st.one_of(
    st.fixed_dictionaries({"kind": st.just("gamma"), "rate": RATES, "cv": st.sampled_from([0.01, 1, 2.5, "250%", 10])}),
    st.fixed_dictionaries({"kind": st.just("ramp"), "from": RATES, "to": RATES, "over": TIMES}),
    st.fixed_dictionaries({"kind": st.just("diurnal"), "low": RATES, "high": RATES, "period": TIMES}),
    st.fixed_dictionaries(
        {"kind": st.just("burst"), "base": RATES, "burst": RATES, "period": TIMES, "length": st.just("1 ns")}
    ),
)
VALUES = st.lists(COUNTS, min_size=1, max_size=4)
LENGTHS = st.one_of(
    COUNTS,
    VALUES.map(lambda values: {"kind": "empirical", "values": values}),
    VALUES.map(lambda values: {"kind": "empirical", "values": values, "weights": [1 + v % 7 for v in values]}),
    st.just({"kind": "empirical_file", "path": "a b.txt"}),
)
TRAFFIC = {"input_tokens": LENGTHS, "output_tokens": LENGTHS}
OPTIONAL = {
    "priority": st.integers(-(10**9), 10**9),
    "prompt_pool": st.one_of(st.none(), COUNTS),
    "shared_prefix": st.fixed_dictionaries({"tokens": COUNTS}, optional={"groups": COUNTS}),
}
CLASSES = st.dictionaries(
    st.from_regex("[A-Za-z][A-Za-z0-9_-]{0,9}", fullmatch=True),
    st.fixed_dictionaries(TRAFFIC, optional=OPTIONAL | {"weight": st.integers(1, 1000)}),
    min_size=1,
    max_size=3,
)
GENERATORS = {"arrivals": ARRIVALS, "requests": st.integers(1, 10**8)}
WORKLOADS = st.one_of(
    st.fixed_dictionaries({"kind": st.just("generated"), **GENERATORS, **TRAFFIC}, optional=OPTIONAL),
    st.fixed_dictionaries({"kind": st.just("mixture"), **GENERATORS, "classes": CLASSES}),
    st.fixed_dictionaries({"kind": st.just("mooncake_trace"), "path": st.just("t.jsonl")}, optional={"limit": COUNTS}),
)
FIGURES = ("each", "mean", "p50", "p90", "p95", "p99", "max")
TARGETS = st.one_of(TIMES, st.dictionaries(st.sampled_from(FIGURES), TIMES, min_size=1, max_size=3))
SLOS = st.dictionaries(st.sampled_from(["ttft", "tpot", "itl", "e2e"]), TARGETS, min_size=1)


@given(workload=WORKLOADS, slo=SLOS)
@settings(derandomize=True, deadline=None, max_examples=150, phases=[Phase.generate])
def test_what_is_written_back_loads_to_the_same_and_has_the_form(workload: dict[str, Any], slo: dict[str, Any]) -> None:
    tree = BASE | {"workload": workload, "slo": slo}
    FORM.validate(tree)
    scenario = load(tree)
    again = read_scenario(resolved_yaml(scenario).encode(), "run.yaml")
    assert again == scenario
    assert scenario_digest(again) == scenario_digest(scenario)


def test_values_are_what_they_say() -> None:
    tree = with_workload(
        arrivals={"kind": "burst", "base": "30 per minute", "burst": "7/2 /s", "period": "1 min", "length": "5 s"},
        input_tokens={"kind": "empirical", "values": [5, 9], "weights": [1, 2]},
        output_tokens={"kind": "empirical_file", "path": "x"},
        shared_prefix={"tokens": 64},
        prompt_pool=100,
        priority=-3,
    )
    assert load(tree).workload == Generated(
        arrivals=Burst(
            base_per_s=Ratio(numerator=1, denominator=2),
            burst_per_s=Ratio(numerator=7, denominator=2),
            period_ns=60 * 10**9,
            burst_ns=5 * 10**9,
        ),
        requests=5,
        input_tokens=Empirical(tokens=(5, 9), weights=(1, 2)),
        output_tokens=EmpiricalFile(path="x"),
        priority=-3,
        shared_prefix=SharedPrefix(groups=1, tokens=64),
        prompt_pool=100,
    )
    mixture = {
        "kind": "mixture",
        "arrivals": {"kind": "gamma", "rate": "2 /s", "cv": "150%"},
        "requests": 9,
        "classes": {
            "b": {"input_tokens": 1, "output_tokens": 2, "weight": 3},
            "a": {"input_tokens": {"kind": "uniform", "low": 1, "high": 9}, "output_tokens": 4},
        },
    }
    assert load(BASE | {"workload": mixture}, "workload.classes.a.output_tokens=5").workload == Mixture(
        arrivals=Gamma(rate_per_s=Ratio(numerator=2), cv_ppm=1_500_000),
        requests=9,
        classes=(
            ("b", Traffic(input_tokens=CONSTANT[1], output_tokens=CONSTANT[2], weight=3)),
            ("a", Traffic(input_tokens=Uniform(low_tokens=1, high_tokens=9), output_tokens=CONSTANT[5])),
        ),
    )
    ramp = with_workload(arrivals={"kind": "ramp", "from": "1 /s", "to": "2 /s", "over": "1 s"})
    workload = load(ramp).workload
    assert isinstance(workload, Generated)
    one, two = Ratio(numerator=1), Ratio(numerator=2)
    assert workload.arrivals == Ramp(from_per_s=one, to_per_s=two, over_ns=10**9)
    trace = load(BASE | {"workload": {"kind": "mooncake_trace", "path": "t"}}).workload
    assert trace == MooncakeTrace(path="t", limit=None, time_scale=one, window=None)


CONSTANT = {tokens: load(with_workload(input_tokens=tokens)).workload.input_tokens for tokens in (1, 2, 5)}  # type: ignore[union-attr]


def test_a_target_has_its_unit() -> None:
    """Case P55: 200 ms is 200 ms; a bare number, or one in seconds, is refused and not taken for anything."""
    slo = load(BASE | {"slo": {"ttft": "200 ms", "itl": {"p99": "0.05 s", "each": "1 s"}}}).slo
    assert slo == Slo(ttft=Targets(each_ns=200_000_000), itl=Targets(p99_ns=50_000_000, each_ns=10**9))
    assert load(BASE).slo is None
    for bare in (200, 0.2, "200"):
        message = told(BASE | {"slo": {"ttft": {"each": bare}}})
        assert 'slo.ttft.each: expected a duration with its unit, such as "200 ms", found' in message
        assert "slo.ttft" in told(BASE | {"slo": {"ttft": bare}})


@pytest.mark.parametrize(
    ("tree", "complaint"),
    [
        (BASE | {"slo": {}}, "slo: expected a target for ttft, tpot, itl or e2e, found none"),
        (BASE | {"slo": {"ttft": {}}}, "slo.ttft: expected each, mean, p50, p90, p95, p99 or max with a time"),
        (BASE | {"slo": {"ttft": "0 ms"}}, "slo.ttft.each: expected a duration of at least 1 ns"),
        (BASE | {"slo": {"ttfs": "1 ms"}}, 'did you mean "ttft"?'),
        (BASE | {"slo": {"ttft": {"p98": "1 ms"}}}, "slo.ttft.p98: expected one of the keys each, mean"),
        (
            with_workload(
                arrivals={"kind": "burst", "base": "1 /s", "burst": "2 /s", "period": "1 s", "length": "1 s"}
            ),
            "workload.arrivals.length: expected less than the period, found 1000000000 ns; workload.arrivals.period is",
        ),
        (
            with_workload(input_tokens={"kind": "empirical", "values": [1, 2], "weights": [1]}),
            "workload.input_tokens.weights: expected a weight for each of the values, found 1",
        ),
        (
            with_workload(input_tokens={"kind": "empirical", "values": []}),
            "workload.input_tokens.values: expected a list of whole numbers from 1",
        ),
        (
            with_workload(input_tokens={"kind": "empirical", "values": [1, 0]}),
            "workload.input_tokens.values: expected a whole number from 1",
        ),
        (with_workload(prompt_pool=0), "workload.prompt_pool: expected a whole number from 1"),
        (with_workload(shared_prefix={}), "workload.shared_prefix.tokens: expected how many tokens"),
        (
            with_workload(arrivals={"kind": "gamma", "rate": "1 /s", "cv": 0}),
            "workload.arrivals.cv: expected a number from 0.01 to 10",
        ),
        (
            BASE | {"workload": {"kind": "mixture", "arrivals": {"kind": "poisson", "rate": "1 /s"}, "requests": 1}},
            "workload.classes: expected kinds of requests, found nothing; it is required",
        ),
    ],
)
def test_faults_are_located(tree: dict[str, Any], complaint: str) -> None:
    message = told(tree)
    assert complaint in message
    assert "run.json:1:" in message


@pytest.mark.parametrize(
    ("classes", "complaint"),
    [
        ({}, "workload.classes: expected a block of names, each with a block of keys, found no name"),
        ("x", "workload.classes: expected a block of names, each with a block of keys, found the text"),
        ({"p:x": {"input_tokens": 1, "output_tokens": 1}}, "workload.classes.p:x: expected a name of letters"),
        ({"a": {"input_tokens": 1}}, "workload.classes.a.output_tokens: expected tokens of an answer, found nothing"),
        ({"a": {"input_tokens": 1, "output_tokens": 1, "wait": 1}}, 'did you mean "weight"?'),
        ({"a": {"input_tokens": 1, "output_tokens": 1, "weight": 0}}, "workload.classes.a.weight: expected a whole"),
        ({"a": 5}, "workload.classes.a: expected a block of keys, found the whole number 5"),
    ],
)
def test_faults_of_classes_are_located(classes: Any, complaint: str) -> None:
    arrivals = {"kind": "poisson", "rate": "1 /s"}
    message = told(BASE | {"workload": {"kind": "mixture", "arrivals": arrivals, "requests": 1, "classes": classes}})
    assert complaint in message


def test_paths_move_with_the_file_and_are_in_no_digest() -> None:
    lengths = {"kind": "empirical_file", "path": "lengths.txt"}
    traffic = {"input_tokens": 1, "output_tokens": lengths}
    mixture = {
        "kind": "mixture",
        "arrivals": {"kind": "poisson", "rate": "1 /s"},
        "requests": 1,
        "classes": {"a": traffic},
    }
    generated = load(with_workload(input_tokens=lengths))
    moved = relocated(generated, "a/b", "out/run").workload
    assert isinstance(moved, Generated)
    assert moved.input_tokens == EmpiricalFile(path=str(Path("../../a/b/lengths.txt")))
    scenario = load(BASE | {"workload": mixture})
    there = relocated(scenario, "a/b", "out/run")
    assert isinstance(there.workload, Mixture)
    assert there.workload.classes[0][1].output_tokens == EmpiricalFile(path=str(Path("../../a/b/lengths.txt")))
    assert there != scenario
    assert scenario_digest(there) == scenario_digest(scenario)


def test_a_promise_is_part_of_what_a_result_depends_on() -> None:
    assert scenario_digest(load(BASE)) != scenario_digest(load(BASE, "slo.ttft=1 s"))
    assert load(BASE, "slo.ttft=1 s").slo == Slo(ttft=Targets(each_ns=10**9))
