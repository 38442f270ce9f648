"""The workload file of a topology."""

from __future__ import annotations

from pathlib import Path

import pytest

from isim.plan.profile import Unit
from isim.plan.workload import SCHEMA, Campaign, Workload, load_workload, read_workload
from isim.scenario.errors import ScenarioError

SHIPPED = Path(__file__).parents[2] / "scenarios" / "plans"


def read(text: str) -> Workload:
    return read_workload(text.encode(), "w.yaml")


def test_tokens_of_the_target_alone() -> None:
    workload = read("target_only:\n  token_count: 3\n")
    assert workload == Workload(token_count=3, campaign=None)
    assert workload.profile().id == "target-only"
    assert workload.profile().units == (Unit(width_tokens=1, committed_tokens=1),) * 3


def test_a_campaign_has_defaults() -> None:
    head = f"schema: {SCHEMA}\ntarget_only: {{token_count: 8}}\nconcurrent_campaign:"
    assert read(f"{head} {{}}").campaign == Campaign(executions=32, seed=None, window_ns=1_000_000)
    assert read(f"{head} {{execution_count: 1, seed: 0, arrival_window_ns: 0}}").campaign == Campaign(
        executions=1, seed=0, window_ns=0
    )


def test_json_is_read_too(tmp_path: Path) -> None:
    (tmp_path / "w.json").write_text('{"target_only": {"token_count": 12}}')
    assert load_workload(tmp_path / "w.json").token_count == 12


REFUSED = [
    ("", "w.yaml:1:1: expected a topology workload, found no content"),
    ("schema: isim/log\ntarget_only: {token_count: 1}", "w.yaml:1:9: schema: expected one of isim/topology-workload"),
    ("target_only: {}", "w.yaml:1:14: target_only.token_count: expected tokens of output"),
    ("target_only: {token_count: 0}", "expected a whole number from 1 to 1000000, found the whole number 0"),
    ("target_only: {token_count: 1.5}", "found the number 1.5"),
    ("target_only: {token_count: true}", "found true"),
    (
        "target_only: {token_cuont: 1}",
        "target_only.token_cuont: expected one of the keys token_count, found an unknown",
    ),
    ("concurrent_campaign: {seed: 1}", "target_only: expected tokens that the target model makes alone, found nothing"),
    ("target_only: {token_count: 1}\nconcurrent_campaign: {seed: 4294967296}", "from 0 to 4294967295"),
    ("target_only: {token_count: 1}\nserving: {}", "serving: expected one of the keys schema, target_only"),
    ("target_only: [1]", "expected a block of keys, found a list"),
    ("target_only: {token_count: 1}\n---\n", "expected one document"),
]


@pytest.mark.parametrize(("text", "said"), REFUSED)
def test_what_is_refused(text: str, said: str) -> None:
    with pytest.raises(ScenarioError) as refusal:
        read(text)
    assert said in str(refusal.value)


def test_a_file_that_is_not_there() -> None:
    with pytest.raises(ScenarioError, match="expected a topology workload, found none"):
        load_workload("/nowhere/w.yaml")


@pytest.mark.parametrize("path", sorted(SHIPPED.glob("*.yaml")), ids=lambda path: path.name)
def test_shipped_workloads_are_valid(path: Path) -> None:
    assert load_workload(path).profile().units
