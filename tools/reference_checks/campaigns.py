"""Campaigns of concurrent executions: every figure that the reference printed of them."""

from __future__ import annotations

from typing import Any

from isim.cli.campaign import Asked, run_campaign
from isim.cli.execution import Wishes
from isim.plan.workload import read_workload
from isim.topology.load import load_target
from reference_checks.case import Case, Check, Compared, Verdict
from reference_checks.topology import plain


def _campaign(case: Case) -> Verdict:
    work = read_workload(case.inputs["input.yaml"].encode(), "input.yaml")
    result, _ = run_campaign(load_target(case.words()[1]), work, Asked(), Wishes())
    found: dict[str, Any] = plain(result)
    found["replayExecutions"] = found["executionCount"] if found["replay"] == "passed" else 0
    found["admissionsPreview"] = found["admissions"][: len(case.expected["admissionsPreview"])]
    return Compared(case.expected, {key: found.get(key) for key in case.expected})


CHECKS: tuple[Check, ...] = (Check("fault", "concurrent-campaign", _campaign),)
