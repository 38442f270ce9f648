"""The recorded cases of the reference, from the pack in this folder: all agree, but for what the rules explain."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import pytest
import reference
from reference import Judged, State, judge
from reference_checks.case import Case, CaseError, Compared, differences, load_cases, pack
from reference_checks.listings import LISTINGS
from reference_checks.topology import plain

from isim.cli.scenario import materialised
from isim.topology.load import load_target

ROOT = Path(__file__).parents[1]
PACK = ROOT / "tests" / "reference" / "cases.jsonl.gz"
CASES = load_cases(PACK)
GIVEN = reference.DEFAULT
PACKED = {case.name: case for case in CASES}


@cache
def judged(name: str) -> Judged:
    return judge(PACKED[name])


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_the_case(case: Case) -> None:
    found = judged(case.name)
    assert found.state in (State.AGREE, State.LISTED), "\n".join(found.notes[:20])


def beyond_its_limit(category: str, command: str, expected: Any) -> Case:
    """A scenario that the reference accepts, and whose host may reserve less than it holds."""
    text = PACKED["validate-ok-multi-gpu"].inputs["input.yaml"]
    text = text.replace("resourceLimitBytes: 549755813888", "resourceLimitBytes: 1073741824", 1)
    inputs = {"input.yaml": text}
    return Case(name="made", category=category, command=command, exit=0, inputs=inputs, expected=expected)


def test_what_only_our_rules_refuse_is_listed() -> None:
    ledger = {"scenario": {}, "memoryLedger": [{"domainId": "node0:host", "freeBytes": -7784628224}]}
    for case in (
        beyond_its_limit("validate", "validate input.yaml", {"valid": True, "issues": []}),
        beyond_its_limit("scenario+ledger", "scenario input.yaml", ledger),
    ):
        assert (judge(case).state, judge(case).notes) == (State.LISTED, ("own-rules",))
    otherwise = beyond_its_limit("validate", "validate input.yaml", {"valid": True, "issues": []})
    otherwise.inputs["input.yaml"] += "more: 1\n"
    assert judge(otherwise).state is State.DIFFER


def test_lists_in_the_order_of_a_locale_are_listed() -> None:
    """A ring of twelve in whose ledger `gpu1:` stands before `gpu10:`, and one with a wrong figure besides."""
    expected = plain(materialised(load_target("multi-gpu-ring-12")))
    case = Case(name="made", category="scenario+ledger", command="scenario multi-gpu-ring-12", exit=0, inputs={})
    assert judge(msgspec.structs.replace(case, expected=expected)).state is State.AGREE
    rows = expected["memoryLedger"]
    rows.sort(key=lambda row: row["domainId"].replace(":", "!"))
    judgement = judge(msgspec.structs.replace(case, expected=expected))
    assert (judgement.state, judgement.notes) == (State.LISTED, ("string-order",))
    rows[0]["freeBytes"] += 1
    assert judge(msgspec.structs.replace(case, expected=expected)).state is State.DIFFER


def test_every_rule_is_needed_and_documented() -> None:
    used = [note for name in PACKED if judged(name).state is State.LISTED for note in judged(name).notes]
    assert sorted({*used, "own-rules", "string-order"}) == sorted(rule.name for rule in LISTINGS)
    page = (ROOT / "docs" / "reference-differences.md").read_text()
    rows = [line for line in page.splitlines() if line.startswith("| `")]
    assert rows == [f"| `{rule.name}` | {rule.reason} |" for rule in LISTINGS]


@pytest.mark.skipif(not GIVEN.is_dir(), reason=f"no recorded cases at {GIVEN}")
def test_the_pack_holds_the_covered_cases(tmp_path: Path) -> None:
    given = load_cases(GIVEN)
    covered = [case for case in given if PACKED.get(case.name) == case or judge(case).state is not State.NOT_COVERED]
    pack(covered, tmp_path / "again")
    assert load_cases(tmp_path / "again") == covered == CASES


def test_differences_are_found_at_their_place() -> None:
    expected = {"a": [1, {"b": True}], "c": 1, "d": "x"}
    found = {"a": [1, {"b": 1}], "c": 1.0, "e": None}
    seen = {each.path: (each.expected, each.found) for each in differences(Compared(expected, found))}
    assert seen == {"$.a[1].b": (True, 1), "$.d": ("x", "nothing"), "$.e": ("nothing", None)}


def test_a_case_that_differs_is_said_to(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """A changed figure in a folder of cases gives exit code 1 and a last line that counts it."""
    case = next(case for case in CASES if case.name == "core-prng-campaign-arrivals")
    case.expected[0]["requests"][3]["arrivalNs"] += 1
    pack([case], tmp_path / "pack")
    case.expected[0]["requests"][3]["arrivalNs"] -= 1
    assert reference.main([str(tmp_path / "pack")]) == 1
    printed = capsys.readouterr().out.splitlines()
    assert printed[-1] == "agree 0, listed 0, differ 1, not covered 0"
    assert "$[0].requests[3].arrivalNs" in printed[-2]


def test_a_folder_without_cases_is_invalid_input(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert reference.main([str(tmp_path)]) == 2
    (tmp_path / "index.json").write_text(json.dumps([{"name": "x"}]))
    with pytest.raises(CaseError):
        load_cases(tmp_path)
    assert "expected cases" in capsys.readouterr().err
