"""`isim campaign TARGET WORKLOAD`: many executions of one plan on one machine."""

from __future__ import annotations

import msgspec

from isim.analyze.campaign import CampaignOf, CampaignOptions, CampaignResult, campaign_result
from isim.analyze.execution import ExecutionCollector
from isim.analyze.topology import Checked, cost_facts
from isim.cli.execution import Wishes, executed_together
from isim.cli.output import emit, emit_json, style
from isim.machine.campaign import DEFAULT_EXECUTIONS, DEFAULT_WINDOW_NS, campaign_requests
from isim.machine.program import program_of
from isim.machine.resources import resources_of
from isim.plan.compile import compile_checked
from isim.plan.costs import NORMALIZED
from isim.plan.workload import Workload, load_workload
from isim.topology.index import Topology
from isim.topology.load import load_target


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """What the command line says of the campaign; None where it leaves it to the workload."""

    executions: int | None = None
    seed: int | None = None
    window_ns: int | None = None


def campaign(target: str, workload: str, asked: Asked, wishes: Wishes, *, as_json: bool, quiet: bool) -> int:
    """Compile the workload, admit executions of it, execute, replay, report."""
    work = load_workload(workload)
    result, collector = run_campaign(load_target(target), work, asked, wishes)
    if as_json:
        emit_json(result)
    elif not quiet:
        from isim.report.campaign import render_campaign

        emit(render_campaign(result, collector, **style()))
    return 0


def run_campaign(
    topology: Topology, work: Workload, asked: Asked, wishes: Wishes
) -> tuple[CampaignResult, ExecutionCollector]:
    """The result of a campaign and what was collected. Raises RequestError, EventBudget, CompileError."""
    options = _options(topology, work, asked)
    compiled = compile_checked(topology, work.profile())
    machine = resources_of(topology)
    program = program_of(compiled.plan, machine)
    requests = campaign_requests(
        program, compiled.plan.execution_id, options.execution_count, options.arrival_window_ns, options.seed
    )
    finished = executed_together(machine, requests, wishes)
    plan = CampaignOf(
        scenario=topology.scenario.id,
        profile=compiled.profile.id,
        confidence=compiled.confidence,
        costs=cost_facts(NORMALIZED),
    )
    checked = Checked(finished.replay, finished.log_digest)
    return campaign_result(plan, options, finished.collector, checked), finished.collector


def _options(topology: Topology, work: Workload, asked: Asked) -> CampaignOptions:
    """The command line's, else the workload's, else the defaults; the seed last of all the scenario's."""
    told = work.campaign
    seeds = (asked.seed, None if told is None else told.seed, topology.scenario.execution.seed)
    counts = (asked.executions, DEFAULT_EXECUTIONS if told is None else told.executions)
    windows_ns = (asked.window_ns, DEFAULT_WINDOW_NS if told is None else told.window_ns)
    return CampaignOptions(
        execution_count=next(count for count in counts if count is not None),
        seed=next(seed for seed in seeds if seed is not None),
        arrival_window_ns=next(window_ns for window_ns in windows_ns if window_ns is not None),
    )
