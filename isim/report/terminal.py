"""What a person sees of a run: from a `Result` alone, as text for a terminal or for a file.

Nothing here computes; a number that is not in the result is not in the report. rich is imported with this module, so
it costs nothing in runs that print no report.
"""

from __future__ import annotations

from collections.abc import Callable

from rich import box
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from isim.analyze.schema import Distribution, LoadReason, LoadState, Rates, ReplayState, Result
from isim.model.spec import Confidence
from isim.report import details
from isim.report.console import drawn, fitting
from isim.report.text import (
    bar,
    bytes_text,
    count_text,
    plain,
    rate_text,
    share_text,
    sparkline,
    time_text,
)

_MOST_CLASSES = 16
_CLASS_WIDTH = 20

_LATENCIES = (
    ("TTFT", "ttft_ns"),
    ("TPOT", "tpot_ns"),
    ("ITL", "itl_ns"),
    ("E2E", "e2e_ns"),
    ("overhead", "overhead_ns"),
    ("queue", "queue_ns"),
    ("prefill", "prefill_ns"),
)
_SENSITIVITY = ("", "now", "at -10 %", "", "at +10 %", "")
_REASONS = {
    LoadReason.QUEUE_GROWS: "the queue grows from quarter to quarter",
    LoadReason.REQUESTS_QUEUE: "requests wait for several steps before they start",
    LoadReason.SEATS: "at least 90 % of max_num_seqs are taken on average",
    LoadReason.KV_BLOCKS: "at least 90 % of the KV blocks were in use",
    LoadReason.PREEMPTION: "requests were preempted for want of KV blocks",
    LoadReason.SYSTEM_GROWS: "the number of requests in the system grows from quarter to quarter",
    LoadReason.STEP_TIME: "with steps 10 % longer it is overloaded, or the mean TTFT or E2E more than 20 % greater",
}
_STATES = {
    LoadState.NEAR_SATURATION: "Near saturation: small errors of step times change latencies a lot.",
    LoadState.OVERLOADED: "Overloaded: more arrives than is served; latencies depend on how long the load lasts.",
}


def render(result: Result, *, width: int, color: bool = False, unicode: bool = True) -> str:
    """The report, at most `width` columns wide.

    Without `color` it has no escape sequence; without `unicode` its own marks are ASCII.
    """
    return print_text(lambda columns: _report(result, columns, unicode), width=width, color=color)


def print_text(whole: Callable[[int], RenderableType], *, width: int, color: bool) -> str:
    """What `whole` makes of the columns there are, 60 to 120, as lines without blanks at their ends."""
    width = fitting(width)
    return drawn(whole(width), width=width, color=color)


def _report(result: Result, width: int, unicode: bool) -> Group:
    parts: list[RenderableType] = [
        Panel(
            _simulated(result),
            title=Text(f" {plain(result.name)} "),
            subtitle=Text(f" isim {result.isim_version}, seed {result.seed} "),
            box=box.ROUNDED if unicode else box.ASCII,
        ),
        _requests(result),
        Text(),
        *_latency(result, unicode),
        Text(),
        _throughput(result, unicode),
        Text(),
        *_promises(result, unicode),
        *_classes(result, unicode),
        _machine(result, width, unicode),
        Text(),
        *details.step_time(result, empty_table("Step time", ("", "share", "", "in all"), unicode), unicode),
        *details.sensitivity(result, empty_table("Sensitivity to step times", _SENSITIVITY, unicode)),
        _trust(result),
    ]
    warnings = _warnings(result)
    if warnings:
        parts += [Text(), bullets("Warnings", warnings, "bold yellow")]
    return Group(*parts)


def _grid(rows: list[tuple[str, Text]]) -> Table:
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(style="bold", no_wrap=True)
    grid.add_column(overflow="fold")
    for label, text in rows:
        grid.add_row(label, text)
    return grid


def _simulated(result: Result) -> Table:
    simulated = result.simulated
    rows = [
        ("model", simulated.model),
        ("hardware", simulated.hardware),
        ("engine", simulated.engine),
        ("workload", simulated.workload),
        ("cost", simulated.cost),
        ("warm-up", result.warm_up.rule),
    ]
    return _grid([(label, Text(plain(text))) for label, text in rows])


def _requests(result: Result) -> Text:
    counts = result.counts
    parts = [f"{count_text(counts.arrived, 'request')} arrived", f"{counts.completed:,} completed"]
    optional = {
        "rejected": counts.rejected,
        "aborted": counts.aborted,
        "unfinished": counts.unfinished,
        "left out as warm-up": result.warm_up.requests_left_out,
    }
    parts += [f"{count:,} {name}" for name, count in optional.items() if count]
    tokens = f"{counts.input_tokens:,} tokens in, {counts.output_tokens:,} out"
    hits = f", {counts.hit_tokens:,} found in the prefix cache ({share_text(counts.hit_share)})"
    hits = hits if counts.hit_tokens else ""
    of = f" of {count_text(counts.preempted_requests, 'request')}"
    preempted = f", {count_text(counts.preemptions, 'preemption')}{of}" if counts.preemptions else ""
    text = Text(", ".join(parts) + ". ", style="bold")
    text.append(f"{tokens}{hits}{preempted}.", style="not bold")
    return text


def empty_table(title: str, columns: tuple[str, ...], unicode: bool) -> Table:
    """A table without rows; numbers stand to the right."""
    table = Table(
        title=title,
        title_justify="left",
        title_style="bold",
        box=box.SIMPLE_HEAD if unicode else box.ASCII2,
        padding=(0, 1),
        expand=False,
        show_edge=False,
    )
    for index, column in enumerate(columns):
        table.add_column(column, justify="right" if index else "left", overflow="fold")
    return table


def _latency(result: Result, unicode: bool) -> list[RenderableType]:
    measured = count_text(result.counts.measured, "request")
    table = empty_table(f"Latency of {measured}", ("", "mean", "p50", "p90", "p95", "p99", "max"), unicode)
    rows: list[tuple[str, str, Distribution]] = [
        (label, name, getattr(result.latency, name)) for label, name in _LATENCIES
    ]
    if not result.latency.overhead_ns.max:
        rows = [row for row in rows if row[1] != "overhead_ns"]
    if result.first_visible_ns is not None:
        rows.insert(1, ("visible", "first_visible_ns", result.first_visible_ns))
    marks = False
    for label, name, values in rows:
        numbers = (values.mean, values.p50, values.p90, values.p95, values.p99, values.max)
        steep = details.steep(result, name)
        marks |= steep
        table.add_row(Text(f"{label} ~" if steep else label, style="bold"), *(time_text(number) for number in numbers))
    return [table, Text(details.steep_note(), style="yellow")] if marks else [table]


def _throughput(result: Result, unicode: bool) -> Table:
    columns = ("", "requests/s", "output tok/s", "total tok/s", "from", "to")
    table = empty_table("Throughput", columns, unicode)
    table.add_row(Text("whole run", style="bold"), *_rates(result.throughput.whole_run))
    steady = result.throughput.steady_state
    table.add_row(Text("steady", style="bold"), *(_rates(steady) if steady is not None else ["-"] * 5))
    return table


def _rates(rates: Rates) -> list[str]:
    numbers = (rates.requests_per_s, rates.output_tokens_per_s, rates.total_tokens_per_s)
    return [*(rate_text(number) for number in numbers), time_text(rates.start_ns), time_text(rates.end_ns)]


def _promises(result: Result, unicode: bool) -> list[RenderableType]:
    """The targets and the goodput; nothing where nothing was promised."""
    slo = result.slo
    if slo is None:
        return []
    table = empty_table("Service levels", ("", "limit", "reached", "verdict"), unicode)
    names = {name: label for label, name in _LATENCIES}
    measured = result.counts.measured
    for limit in slo.limits:
        kept = share_text(limit.kept / measured if measured else None)
        label = f"{names[limit.latency]} each"
        table.add_row(Text(label, style="bold"), time_text(limit.limit_ns), f"kept by {kept}", "")
    for target in slo.targets:
        verdict = "-" if target.met is None else "met" if target.met else "missed"
        label = f"{names[target.latency]} {target.figure}"
        table.add_row(Text(label, style="bold"), time_text(target.limit_ns), time_text(target.actual_ns), Text(verdict))
    parts: list[RenderableType] = [table]
    if slo.goodput is not None:
        goodput = slo.goodput
        text = Text("Goodput: ", style="bold")
        good = f"{goodput.requests:,} of {count_text(goodput.arrived, 'request')}, {share_text(goodput.share)}"
        rates = f"{rate_text(goodput.requests_per_s)} requests/s, {rate_text(goodput.output_tokens_per_s)} output tok/s"
        text.append(f"{good}, {rates}.", style="not bold")
        parts.append(text)
    return [*parts, Text()]


def _classes(result: Result, unicode: bool) -> list[RenderableType]:
    """A line for each class of requests; nothing where there is none."""
    if not result.classes:
        return []
    columns = ("", "requests", "TTFT p50", "TTFT p99", "TPOT p50", "E2E p50", "E2E p99", "good")
    table = empty_table("Classes", columns, unicode)
    for one in result.classes[:_MOST_CLASSES]:
        latency = one.latency
        times = (
            latency.ttft_ns.p50,
            latency.ttft_ns.p99,
            latency.tpot_ns.p50,
            latency.e2e_ns.p50,
            latency.e2e_ns.p99,
        )
        goodput = None if one.slo is None else one.slo.goodput
        good = share_text(None if goodput is None else goodput.share)
        name = plain(one.name)[:_CLASS_WIDTH]
        table.add_row(Text(name, style="bold"), f"{one.measured:,}", *map(time_text, times), good)
    more = len(result.classes) - _MOST_CLASSES
    return [table, *([Text(f"and {more} more classes in the result.")] if more > 0 else []), Text()]


def _machine(result: Result, width: int, unicode: bool) -> Table:
    kv = result.kv
    room = width - 12
    meter = min(30, room - 32)
    memory = Text(bar(result.load.kv_share, meter, unicode=unicode), style="cyan")
    memory.append(f" {share_text(result.load.kv_share)} at the high water mark", style="default")
    pool = f"{kv.high_water_blocks:,} of {kv.usable_blocks:,} blocks of {kv.block_size_tokens} tokens"
    origin = f"{pool}, {bytes_text(kv.kv_bytes)} a GPU, {plain(kv.source)}"
    if kv.override_blocks is not None:
        origin += " (derived: no room)" if kv.derived_blocks is None else f" (derived: {kv.derived_blocks:,} blocks)"
    busy = result.busy
    spent = f"{share_text(busy.utilisation)} of {time_text(busy.duration_ns)}, {count_text(result.steps.total, 'step')}"
    steps = f"{spent}, {result.steps.with_prefill:,} with prefill, {result.steps.decode_only:,} without"
    return _grid([("KV memory", memory), ("", Text(origin)), *_over_time(result, room, unicode), ("busy", Text(steps))])


def _over_time(result: Result, room: int, unicode: bool) -> list[tuple[str, Text]]:
    """Lines of levels, each with what its highest level is."""

    def line(values: list[int]) -> Text:
        return Text(sparkline(values, room, unicode=unicode), style="green")

    batch = result.batch_over_time.mean_batch_milli
    most = rate_text(max(batch, default=0) / 1000)
    rows = [
        ("batch", line(batch)),
        ("", Text(f"requests on the device over time, at most {most} on average in a part")),
    ]
    over_time = result.details.over_time
    if over_time is not None:
        queue, blocks = over_time.mean_queue_milli, over_time.most_kv_blocks
        most = rate_text(max(queue, default=0) / 1000)
        rows += [
            ("queue", line(queue)),
            ("", Text(f"requests not started yet, at most {most} on average in a part")),
            ("KV used", line(blocks)),
            ("", Text(f"blocks in use on one engine, at most {max(blocks, default=0):,}")),
        ]
    return rows


def _trust(result: Result) -> Group:
    capacity, latency = result.confidence.kv_capacity, result.confidence.latency
    confidence = Text("Confidence: ", style="bold")
    confidence.append(f"KV capacity {capacity.value}, latency and throughput {latency.value}", style="magenta")
    measured = "as measured" if capacity is Confidence.EXACT else "an estimate"
    confidence.append(f"; the pool is {measured}, and each class is the weakest of its inputs.", style="not bold")
    passed = result.replay is ReplayState.PASSED
    checked = "An independent checker replayed the log: it is legal." if passed else "The log was not replayed."
    confidence.append(f" {checked}", style="not bold")
    parts: list[RenderableType] = [confidence]
    if result.assumptions:
        parts.append(bullets("Assumptions", list(result.assumptions), "bold"))
    if result.provenance:
        parts.append(bullets("Sources", list(result.provenance), "bold"))
    return Group(*parts)


def bullets(title: str, sentences: list[str], style: str) -> Group:
    """A title and a list."""
    bullets = Table.grid(padding=(0, 1, 0, 0))
    bullets.add_column(no_wrap=True)
    bullets.add_column(overflow="fold")
    for sentence in sentences:
        bullets.add_row("-", Text(plain(sentence)))
    return Group(Text(title, style=style), Padding(bullets, (0, 0, 0, 1)))


def _warnings(result: Result) -> list[str]:
    counts = result.counts
    warnings = [
        f"{count_text(count, 'request')} rejected: {reason.value.replace('_', ' ')}."
        for reason, count in counts.rejected_by_reason.items()
        if count
    ]
    if not counts.completed:
        warnings.append("Nothing completed; latencies are not defined.")
    elif not counts.measured:
        warnings.append("Nothing completed but the warm-up; latencies are not defined.")
    if result.kv.override_blocks is not None and result.kv.derived_blocks is None:
        warnings.append("By estimate no KV block fits beside the weights; num_gpu_blocks_override was believed.")
    if counts.truncated_outputs:
        warnings.append(f"{count_text(counts.truncated_outputs, 'output')} cut off at max_model_len.")
    if counts.unfinished:
        warnings.append(f"{count_text(counts.unfinished, 'request')} unfinished.")
    warnings += result.beyond_fit
    state = result.load.state
    if state in _STATES:
        reasons = "; ".join(_REASONS[reason] for reason in result.load.reasons)
        warnings.append(f"{_STATES[state]} Signs: {reasons}.")
    return warnings
