"""What a person sees of a plan that was executed on a topology, and of several topologies compared."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from isim.analyze.execution import ExecutionCollector
from isim.analyze.topology import ResourceUse, RunMetrics, TopologyComparison, TopologyRun, uses_of
from isim.plan.artifact import PlanArtifact
from isim.report.console import drawn, fitting
from isim.report.text import bar, count_text, plain, rate_text, share_text, time_text
from isim.report.timeline import span_text, timeline

_BAR_WIDTH = 24
_SHOWN_MOST = 40


def render_run(
    run: TopologyRun, collector: ExecutionCollector, *, width: int, color: bool = False, unicode: bool = True
) -> str:
    """A run as text, at most `width` columns wide, with ASCII marks only where not `unicode`."""
    metrics = run.metrics
    counts = run.operation_counts
    kinds = {
        "compute": counts.compute,
        "transfer": counts.transfer,
        "all-reduce": counts.all_reduce,
        "all-to-all": counts.all_to_all,
    }
    listed = ", ".join(f"{count:,} {kind}" for kind, count in kinds.items() if count)
    facts = [
        ("topology", run.scenario_id),
        ("work", f"{run.profile_id}, {count_text(metrics.committed_tokens, 'token')}"),
        ("plan", f"{count_text(run.plan_steps, 'step')}: {listed}"),
        ("status", f"{run.status}, replay {run.replay.replace('_', ' ')}"),
        ("takes", f"{time_text(metrics.total_duration_ns)}{_drain(metrics)}"),
        ("throughput", f"{rate_text(metrics.tokens_per_second)} tokens/s"),
        ("service", _service(metrics)),
        ("cost model", f"revision {run.cost_model.revision}, {run.confidence}: {run.cost_model.source}"),
    ]
    return _page(facts, collector, width=width, color=color, unicode=unicode)


def render_plan_run(
    artifact: PlanArtifact,
    collector: ExecutionCollector,
    replay: str,
    *,
    width: int,
    color: bool = False,
    unicode: bool = True,
) -> str:
    """The execution of a plan from a file, as text."""
    terminal = collector.terminals[0]
    facts = [
        ("plan", f"{artifact.plan.id}, {count_text(len(artifact.plan.steps), 'step')}, {artifact.plan_fingerprint}"),
        ("topology", f"{artifact.topology.scenario.id}, {artifact.scenario_fingerprint}"),
        ("artifact", artifact.artifact_fingerprint),
        ("execution", f"{terminal.execution}: {terminal.status.value}, replay {replay.replace('_', ' ')}"),
        ("takes", time_text(collector.completed_ns())),
        ("ranks", ", ".join(f"{rank.rank} at {time_text(rank.time_ns)}" for rank in terminal.ranks)),
    ]
    return _page(facts, collector, width=width, color=color, unicode=unicode)


def render_comparison(comparison: TopologyComparison, *, width: int, color: bool = False, unicode: bool = True) -> str:
    """Topologies ranked, a bar for how long each takes beside the slowest."""
    table = _table(("", "topology", "takes", "tokens/s", "of the fastest", ""), right=(0, 2, 3, 4))
    slowest_ns = comparison.comparison[-1].duration_ns
    for row in comparison.comparison:
        relative = row.relative_to_fastest
        table.add_row(
            str(row.rank),
            plain(row.scenario_id),
            time_text(row.duration_ns),
            rate_text(row.tokens_per_second),
            "-" if relative is None else f"x {relative:.3f}",
            bar(row.duration_ns / slowest_ns if slowest_ns else 0.0, _BAR_WIDTH, unicode=unicode),
        )
    model = comparison.cost_model
    facts = [
        ("work", comparison.profile_id),
        ("cost model", f"revision {model.revision}, {model.confidence}: {model.source}"),
    ]
    return drawn(Group(facts_grid(facts), Text(), table), width=fitting(width), color=color)


def _page(
    facts: Sequence[tuple[str, str]], collector: ExecutionCollector, *, width: int, color: bool, unicode: bool
) -> str:
    """Facts, then who did what when, then what was used how much."""
    parts: list[RenderableType] = [
        facts_grid(facts),
        heading(f"Timeline, {span_text(collector)}"),
        timeline(collector, width=fitting(width), unicode=unicode),
        heading("Utilization"),
        uses_table(uses_of(collector), unicode),
    ]
    return drawn(Group(*parts), width=fitting(width), color=color)


def _drain(metrics: RunMetrics) -> str:
    if not metrics.background_drain_ns:
        return ""
    foreground = time_text(metrics.foreground_duration_ns)
    return f", of which foreground {foreground} and drain {time_text(metrics.background_drain_ns)}"


def _service(metrics: RunMetrics) -> str:
    sums = {
        "compute": metrics.compute_service_ns,
        "transfer": metrics.transfer_service_ns,
        "collective": metrics.collective_service_ns,
    }
    return ", ".join(f"{kind} {time_text(total)}" for kind, total in sums.items() if total) or "none"


def uses_table(uses: Sequence[ResourceUse], unicode: bool) -> RenderableType:
    """The resources in their order, the busiest only where there are very many."""
    shown = uses
    if len(uses) > _SHOWN_MOST:
        busiest = sorted(uses, key=lambda use: -use.utilization)[:_SHOWN_MOST]
        shown = [use for use in uses if use in busiest]
    table = _table(("resource", "", "busy", "", "lanes"), right=(2, 3, 4))
    for use in shown:
        meter = Text(bar(use.utilization, _BAR_WIDTH, unicode=unicode), style="green")
        busy = (time_text(use.busy_ns), share_text(use.utilization), str(use.capacity_lanes))
        table.add_row(plain(use.resource_id), meter, *busy)
    if len(shown) == len(uses):
        return table
    return Group(table, Text(f"and {len(uses) - len(shown)} less busy resources"))


def facts_grid(rows: Sequence[tuple[str, str]]) -> Table:
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(style="bold", no_wrap=True)
    grid.add_column(overflow="fold")
    for label, text in rows:
        grid.add_row(label, plain(text))
    return grid


def heading(text: str) -> Text:
    return Text(f"\n{text}", style="bold")


def _table(columns: Sequence[str], right: Sequence[int] = ()) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim", pad_edge=False)
    for index, name in enumerate(columns):
        table.add_column(name, justify="right" if index in right else "left", overflow="fold")
    return table
