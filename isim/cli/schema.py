"""`isim schema WHAT`: the JSON Schema of one line of a log, of a run file, and so on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from isim.cli.output import emit

_DRAFT = "https://json-schema.org/draft/2020-12/schema"


def schema(what: str) -> int:
    """Print the schema, as JSON."""
    emit(schema_text(what))
    return 0


def schema_text(what: str) -> str:
    """The schema as indented JSON with sorted keys."""
    tree = {"$schema": _DRAFT, **_SCHEMAS[what]()}
    return msgspec.json.format(msgspec.json.encode(tree, order="sorted"), indent=2).decode() + "\n"


def _log() -> dict[str, Any]:
    from isim.record.records import REVISION, SCHEMA, AnyRecord

    tree = msgspec.json.schema(AnyRecord)
    return {"title": f"{SCHEMA} revision {REVISION}", "description": "One line of a log.", **tree}


def _run() -> dict[str, Any]:
    from isim.scenario.json_schema import run_file_schema

    return run_file_schema()


def _result() -> dict[str, Any]:
    from isim.analyze.schema import REVISION, SCHEMA, Result

    return {"title": f"{SCHEMA} revision {REVISION}", **msgspec.json.schema(Result)}


def _topology() -> dict[str, Any]:
    from isim.scenario.topology.types import SCHEMA_VERSION, TopologyScenario

    return {"title": f"isim topology, schemaVersion {SCHEMA_VERSION}", **msgspec.json.schema(TopologyScenario)}


def _workload() -> dict[str, Any]:
    from isim.plan.workload import SCHEMA, WORKLOAD
    from isim.scenario.json_schema import block_schema

    return block_schema(SCHEMA, WORKLOAD)


def _plan() -> dict[str, Any]:
    from isim.plan.types import PLAN_CONTRACT_REVISION, FrozenPlan

    return {"title": f"frozen plan, contract revision {PLAN_CONTRACT_REVISION}", **msgspec.json.schema(FrozenPlan)}


def _topology_run() -> dict[str, Any]:
    from isim.analyze.topology import REVISION, SCHEMA, TopologyRun

    return {"title": f"{SCHEMA} revision {REVISION}", **msgspec.json.schema(TopologyRun)}


def _topology_comparison() -> dict[str, Any]:
    from isim.analyze.topology import COMPARISON_SCHEMA, REVISION, TopologyComparison

    return {"title": f"{COMPARISON_SCHEMA} revision {REVISION}", **msgspec.json.schema(TopologyComparison)}


def _execution_log() -> dict[str, Any]:
    from isim.record.execution import REVISION, SCHEMA, AnyExecutionRecord

    tree = msgspec.json.schema(AnyExecutionRecord)
    return {"title": f"{SCHEMA} revision {REVISION}", "description": "One line of an execution log.", **tree}


def _campaign() -> dict[str, Any]:
    from isim.analyze.campaign import REVISION, SCHEMA, CampaignResult

    return {"title": f"{SCHEMA} revision {REVISION}", **msgspec.json.schema(CampaignResult)}


def _comparison() -> dict[str, Any]:
    from isim.analyze.compare import REVISION, SCHEMA, Comparison

    return {"title": f"{SCHEMA} revision {REVISION}", **msgspec.json.schema(Comparison)}


def _calibration() -> dict[str, Any]:
    from isim.calibrate.schema import REVISION, SCHEMA, Calibration

    return {"title": f"{SCHEMA} revision {REVISION}", **msgspec.json.schema(Calibration)}


_SCHEMAS: dict[str, Callable[[], dict[str, Any]]] = {
    "log": _log,
    "execution-log": _execution_log,
    "campaign": _campaign,
    "run": _run,
    "result": _result,
    "comparison": _comparison,
    "calibration": _calibration,
    "topology": _topology,
    "topology-workload": _workload,
    "topology-run": _topology_run,
    "topology-comparison": _topology_comparison,
    "plan": _plan,
}
