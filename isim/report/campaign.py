"""What a person sees of a campaign."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.text import Text

from isim.analyze.campaign import CampaignResult
from isim.analyze.execution import ExecutionCollector
from isim.analyze.topology import uses_of
from isim.report.console import drawn, fitting
from isim.report.text import count_text, time_text
from isim.report.topology_run import facts_grid, heading, uses_table


def render_campaign(
    result: CampaignResult, collector: ExecutionCollector, *, width: int, color: bool = False, unicode: bool = True
) -> str:
    """A campaign as text, at most `width` columns wide, with ASCII marks only where not `unicode`."""
    latency, options = result.latency_ns, result.options
    facts = [
        ("topology", result.scenario_id),
        ("work", f"{result.profile_id}, {count_text(result.execution_count, 'execution')} of one plan"),
        ("arrivals", f"within {time_text(options.arrival_window_ns)}, seed {options.seed}"),
        ("operations", f"{result.submitted_operations:,}, replay {result.replay.replace('_', ' ')}"),
        ("at once", f"at most {result.maximum_concurrent_executions:,}"),
        ("takes", time_text(result.completed_at_ns)),
        (
            "latency",
            f"min {time_text(latency.minimum)}, mean {time_text(round(latency.average))}, "
            f"p95 {time_text(latency.p95)}, max {time_text(latency.maximum)}",
        ),
        ("cost model", f"revision {result.cost_model.revision}, {result.confidence}: {result.cost_model.source}"),
    ]
    uses = uses_of(collector)
    note = Text("Executions share the plan's allocations and wait for each other's leases: no measure of throughput.")
    parts: list[RenderableType] = [facts_grid(facts), heading("Utilization"), uses_table(uses, unicode), Text(), note]
    return drawn(Group(*parts), width=fitting(width), color=color)
