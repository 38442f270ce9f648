"""`isim topology run TARGET WORKLOAD` and `isim topology compare [TARGET ...] WORKLOAD`."""

from __future__ import annotations

from collections.abc import Sequence

from isim.analyze.topology import Checked, TopologyRun, compare_runs, topology_run
from isim.cli.execution import Finished, Wishes, executed
from isim.cli.output import emit, emit_json, style
from isim.plan.compile import compile_checked
from isim.plan.costs import NORMALIZED
from isim.plan.workload import Workload, load_workload
from isim.topology.load import load_target

FAMILIES = ("cpu-only", "single-gpu-cpu", "multi-gpu", "gpu-npu", "unified-memory", "multi-node")
"""What a comparison without targets compares: one topology of each family."""


def run(target: str, workload: str, wishes: Wishes, *, as_json: bool, quiet: bool) -> int:
    """Compile the workload for the topology, execute, replay, report."""
    result, finished = _run(target, load_workload(workload), wishes)
    if as_json:
        emit_json(result)
    elif not quiet:
        from isim.report.topology_run import render_run

        emit(render_run(result, finished.collector, **style()))
    return 0


def compare(targets: Sequence[str], workload: str, wishes: Wishes, *, as_json: bool) -> int:
    """Run the same workload on each topology and rank them."""
    work = load_workload(workload)
    comparison = compare_runs([_run(target, work, wishes)[0] for target in targets or FAMILIES])
    if as_json:
        emit_json(comparison)
    else:
        from isim.report.topology_run import render_comparison

        emit(render_comparison(comparison, **style()))
    return 0


def _run(target: str, workload: Workload, wishes: Wishes) -> tuple[TopologyRun, Finished]:
    topology = load_target(target)
    compiled = compile_checked(topology, workload.profile())
    finished = executed(topology, compiled.plan, wishes)
    checked = Checked(finished.replay, finished.log_digest)
    result = topology_run(compiled, topology.scenario.id, finished.collector, NORMALIZED, checked)
    return result, finished
