"""`isim plan export TARGET WORKLOAD` and `isim plan run FILE`: a frozen plan to a file, and from one."""

from __future__ import annotations

from typing import Any

from isim.analyze.topology import contract_execution
from isim.cli.execution import Finished, Wishes, executed
from isim.cli.folder import new_file
from isim.cli.output import emit, emit_json, say, style
from isim.plan.artifact import ARTIFACT_KIND, ARTIFACT_REVISION, PlanArtifact, load_artifact, plan_artifact
from isim.plan.compile import compile_checked
from isim.plan.workload import load_workload
from isim.topology.load import load_target

SCHEMA = "isim/plan-run"
REVISION = 1


def export(target: str, workload: str, out: str | None) -> int:
    """Compile, and print the artifact or write it to a new file."""
    topology = load_target(target)
    compiled = compile_checked(topology, load_workload(workload).profile())
    artifact, text = plan_artifact(topology, compiled.plan)
    if out is None:
        emit(text)
        return 0
    with new_file(out) as unfinished, open(unfinished, "w", encoding="utf-8") as stream:
        stream.write(text)
    say(f"written: {out}, {len(compiled.plan.steps):,} steps, {artifact.artifact_fingerprint}")
    return 0


def run(file: str, wishes: Wishes, *, as_json: bool, quiet: bool) -> int:
    """Check, execute and replay the plan of a file."""
    artifact = load_artifact(file)
    finished = executed(artifact.topology, artifact.plan, wishes)
    if as_json:
        emit_json(told(artifact, finished))
    elif not quiet:
        from isim.report.topology_run import render_plan_run

        emit(render_plan_run(artifact, finished.collector, finished.replay, **style()))
    return 0


def told(artifact: PlanArtifact, finished: Finished) -> dict[str, Any]:
    """What was executed and all that happened, under the contract's names."""
    return {
        "schema": SCHEMA,
        "revision": REVISION,
        "artifact": {
            "kind": ARTIFACT_KIND,
            "revision": ARTIFACT_REVISION,
            "artifactFingerprint": artifact.artifact_fingerprint,
            "scenarioFingerprint": artifact.scenario_fingerprint,
            "planFingerprint": artifact.plan_fingerprint,
        },
        "scenarioId": artifact.topology.scenario.id,
        "planId": artifact.plan.id,
        "execution": contract_execution(finished.collector),
        "replay": finished.replay,
        "logDigest": finished.log_digest,
    }
