"""What a person sees of a topology: its memories with what is reserved, who reaches what, links, groups and transfers.

Every access and every link is marked as within a node or between two. Nothing here computes but sums that are printed.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec import UNSET
from rich import box
from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from isim.record.canonical import fingerprint
from isim.report.console import drawn, fitting
from isim.report.text import bar, bytes_text, count_text, plain, time_text
from isim.scenario.topology.types import Composition, DeviceGovernor, HostGovernor, Link, MemoryDomain, Parallelism
from isim.topology.index import Topology
from isim.topology.ledger import DomainRow, Ledger, ledger_of
from isim.topology.routes import Router

_BAR_WIDTH = 16
_WIDE = 100
_WITHIN, _BETWEEN = "intra-node", "inter-node"


def render_topology(topology: Topology, *, width: int, color: bool = False, unicode: bool = True) -> str:
    """The topology as text, at most `width` columns wide, with ASCII marks only where not `unicode`."""
    width = fitting(width)
    ledger = ledger_of(topology)
    parts: list[RenderableType] = [
        _head(topology, unicode),
        _heading("Memory"),
        _memory(topology, ledger, unicode),
        *_aliases(ledger),
        _heading("Devices and the memories they reach"),
        _access(topology),
        _heading("Links"),
        _links(topology, width),
    ]
    if topology.scenario.network_resources:
        parts += [_heading("Network resources"), _resources(topology)]
    parts += [_heading("Groups"), _groups(topology)]
    if topology.scenario.transfers:
        parts += [_heading("Transfers"), _transfers(topology)]
    return drawn(Group(*parts), width=width, color=color)


def _heading(text: str) -> Text:
    return Text(f"\n{text}", style="bold")


def _table(columns: Sequence[str], right: Sequence[int] = ()) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), show_header=bool(columns[0]), header_style="dim", pad_edge=False)
    for index, name in enumerate(columns):
        table.add_column(name, justify="right" if index in right else "left", overflow="fold")
    return table


def _head(topology: Topology, unicode: bool) -> Panel:
    scenario = topology.scenario
    nodes = dict.fromkeys(device.node_id for device in scenario.devices)
    counts = [
        count_text(len(nodes), "node"),
        count_text(len(scenario.devices), "device"),
        count_text(len(scenario.memory_domains), "memory", "memories"),
        count_text(len(scenario.links), "directed link"),
        count_text(len(scenario.network_resources or ()), "network resource"),
    ]
    execution = scenario.execution
    streaming = "on" if execution.features.ssd_streaming else "off"
    rows = [
        ("machine", f"{scenario.family}: {', '.join(counts)}"),
        ("parallelism", _parallelism(execution.parallelism)),
        ("execution", f"topology epoch {execution.topology_epoch}, seed {execution.seed}, SSD streaming {streaming}"),
        ("figures", _confidence(topology)),
        ("fingerprint", fingerprint(msgspec.to_builtins(scenario))),
    ]
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(style="bold", no_wrap=True)
    grid.add_column(overflow="fold")
    for label, text in rows:
        grid.add_row(label, plain(text))
    return Panel(grid, title=Text(f" {plain(scenario.id)} "), box=box.ROUNDED if unicode else box.ASCII)


def _parallelism(degrees: Parallelism) -> str:
    axes = {"tensor": degrees.tensor, "pipeline": degrees.pipeline, "expert": degrees.expert, "data": degrees.data}
    listed = ", ".join(f"{name} {degree}" for name, degree in axes.items() if degree > 1) or "one rank"
    shared = " on the same ranks in turn" if degrees.composition is Composition.OVERLAP else ""
    return f"{listed}{shared}"


def _confidence(topology: Topology) -> str:
    """How many memories, devices, links and network resources have figures of which class of confidence."""
    scenario = topology.scenario
    sources = [it.provenance for it in scenario.memory_domains]
    sources += [it.provenance for it in scenario.devices]
    sources += [it.provenance for it in scenario.links]
    sources += [it.provenance for it in scenario.network_resources or ()]
    counts: dict[str, int] = {}
    for source in sources:
        counts[source.confidence] = counts.get(source.confidence, 0) + 1
    return ", ".join(f"{count} {name}" for name, count in counts.items())


def _memory(topology: Topology, ledger: Ledger, unicode: bool) -> Table:
    table = _table(("", "", "", "", ""))
    table.columns[0].no_wrap = True
    table.columns[1].no_wrap = True
    rows = {row.domain_id: row for row in ledger.rows}
    for domain in topology.scenario.memory_domains:
        row = rows[domain.id]
        held = ", ".join(f"{name} {bytes_text(total)}" for name, total in ledger.by_purpose(domain.id).items())
        limit = "" if row.capacity_bytes == row.physical_capacity_bytes else " (limit)"
        size = f"{bytes_text(row.reserved_bytes)} of {bytes_text(row.capacity_bytes)}{limit}"
        meter = bar(_share(row), _BAR_WIDTH, unicode=unicode)
        facts = f"{domain.kind}, {_governor(domain)}" if row.enabled else f"{domain.kind}, off: no SSD streaming"
        table.add_row(plain(domain.id), Text(meter, style=_style(row)), size, facts, held)
    return table


def _aliases(ledger: Ledger) -> list[RenderableType]:
    """Second names of allocations, which are charged once; nothing where there are none."""
    named = [entry for entry in ledger.entries if entry.aliases]
    if not named:
        return []
    table = _table(("allocation", "is also", "of", ""))
    for entry in named:
        others = plain(", ".join(entry.aliases))
        table.add_row(plain(entry.physical_allocation_id), others, bytes_text(entry.bytes), "charged once")
    return [_heading("Aliases"), table]


def _share(row: DomainRow) -> float:
    return row.reserved_bytes / row.capacity_bytes if row.capacity_bytes else 0.0


def _style(row: DomainRow) -> str:
    return "red" if row.free_bytes < 0 else "yellow" if _share(row) > 0.9 else "green"


def _governor(domain: MemoryDomain) -> str:
    if isinstance(domain.governor, HostGovernor):
        return f"governor of {plain(domain.governor.node_id)}"
    if isinstance(domain.governor, DeviceGovernor):
        return f"governor of {plain(domain.governor.device_id)}"
    return "no governor"


def _access(topology: Topology) -> Table:
    table = _table(("device", "kind", "can", "reaches", ""))
    for device in topology.scenario.devices:
        lanes = "" if device.max_concurrent_compute == 1 else f", {device.max_concurrent_compute} lanes"
        head = (plain(device.id), f"{device.kind}{lanes}", ", ".join(device.capabilities))
        for index, name in enumerate(device.memory_domain_ids):
            place = _WITHIN if topology.domains[name].node_id == device.node_id else _BETWEEN
            table.add_row(*(head if index == 0 else ("", "", "")), plain(name), place)
    return table


def _links(topology: Topology, width: int) -> Table:
    """One row for each direction; on a narrow terminal the ends stand below the name."""
    narrow = width < _WIDE
    ends_head = () if narrow else ("from", "to")
    shift = len(ends_head)
    table = _table(
        ("link", *ends_head, "kind", "bandwidth", "latency", "lanes", ""), right=(2 + shift, 3 + shift, 4 + shift)
    )
    table.columns[0].no_wrap = narrow
    for link in topology.scenario.links:
        names = (plain(link.source_domain_id), plain(link.target_domain_id))
        nodes = [topology.domains[name].node_id for name in (link.source_domain_id, link.target_domain_id)]
        table.add_row(
            f"{plain(link.id)}\n  {names[0]} -> {names[1]}" if narrow else plain(link.id),
            *(() if narrow else names),
            _kind(link),
            _bandwidth(link.bandwidth_bytes_per_sec) if link.bandwidth_curve is UNSET else "curve",
            time_text(link.latency_ns) if link.latency_curve is UNSET else "curve",
            str(link.concurrency_lanes),
            _WITHIN if nodes[0] == nodes[1] else _BETWEEN,
        )
    return table


def _kind(link: Link) -> str:
    transport = "" if link.transport is UNSET else f", {link.transport}"
    through = "" if not link.network_resource_ids else f" over {', '.join(link.network_resource_ids)}"
    return plain(f"{link.kind}{transport}{through}")


def _resources(topology: Topology) -> Table:
    table = _table(("resource", "kind", "node", "carries", "bandwidth", "latency", "lanes"), right=(4, 5, 6))
    for one in topology.scenario.network_resources or ():
        node = "-" if one.node_id is UNSET else plain(one.node_id)
        speed = (_bandwidth(one.bandwidth_bytes_per_sec), time_text(one.latency_ns), str(one.concurrency_lanes))
        table.add_row(plain(one.id), one.kind, node, ", ".join(one.supported_transports), *speed)
    return table


def _groups(topology: Topology) -> Table:
    table = _table(("group", "ranks in order", ""))
    for group in topology.scenario.groups:
        ranks = ", ".join(f"{rank.rank_id} on {rank.device_id}" for rank in group.ordered_ranks)
        nodes = dict.fromkeys(topology.devices[rank.device_id].node_id for rank in group.ordered_ranks)
        table.add_row(plain(group.id), plain(ranks), _WITHIN if len(nodes) == 1 else _BETWEEN)
    return table


def _transfers(topology: Topology) -> Table:
    """Declared transfers with the routes they take; a valid scenario has one for each."""
    table = _table(("transfer", "size", "route", "takes"), right=(1, 3))
    router = Router(topology)
    for one in topology.scenario.transfers:
        staged = one.requires_pinned_staging
        route = router.route(one.source_domain_id, one.target_domain_id, one.bytes, pinned=staged)
        way = "none" if route is None else " -> ".join(route.domain_ids)
        takes = "-" if route is None else time_text(route.declared_duration_ns)
        table.add_row(plain(one.id), bytes_text(one.bytes), plain(way), takes)
    return table


def _bandwidth(bytes_per_sec: int) -> str:
    return f"{bytes_per_sec / 1e9:g} GB/s"
