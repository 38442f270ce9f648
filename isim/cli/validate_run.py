"""`isim validate FILE` of a run file: everything that can be said of a run before it runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from isim.analyze.describe import simulated
from isim.assembly import parts_of, settled
from isim.cli.output import emit
from isim.report.text import bytes_text
from isim.scenario.defaults import scenario_assumptions
from isim.scenario.digest import scenario_digest
from isim.scenario.load import load_scenario
from isim.workload.open import open_workload


def validate_run(file: str, sets: Sequence[str]) -> int:
    """Check file, memory, cost model and every row of the workload; print what they come to."""
    scenario = load_scenario(file, sets)
    parts = parts_of(scenario)
    workload = open_workload(scenario.workload, scenario.simulation.seed, Path(file).parent)
    source = workload.source()
    requests = f"{sum(1 for _ in source):,}" if isinstance(source, Iterator) else "as many as answers lead to"
    words = simulated(scenario)
    capacity = parts.capacity
    pool = f"{capacity.usable_blocks:,} usable blocks, {bytes_text(capacity.kv_bytes)} a GPU, {capacity.source}"
    lines = [
        f"{file}: valid",
        f"model     {words.model}",
        f"hardware  {words.hardware}",
        f"engine    {words.engine}",
        f"KV        {pool}",
        f"workload  {words.workload}",
        f"requests  {requests}",
        f"cost      {words.cost}",
        f"digest    {scenario_digest(settled(scenario))}",
    ]
    notes = (*scenario_assumptions(scenario), *parts.cost.assumptions, *capacity.notes, *workload.assumptions)
    emit("\n".join([*lines, *(f"- {note}" for note in notes)]) + "\n")
    return 0
