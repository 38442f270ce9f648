"""The timeline of an execution: letters where the steps are."""

from __future__ import annotations

import pytest

from isim.analyze.execution import ExecutionCollector
from isim.machine.execute import execute_plan
from isim.plan.compile import compile_plan
from isim.plan.profile import target_only_profile
from isim.report.console import drawn
from isim.report.timeline import span_text, timeline
from isim.topology.load import load_target


def picture(target: str, tokens: int, *, width: int = 100, unicode: bool = True) -> tuple[list[str], str]:
    topology = load_target(target)
    collector = ExecutionCollector()
    execute_plan(topology, compile_plan(topology, target_only_profile(tokens)).plan, readers=[collector.read])
    text = drawn(timeline(collector, width=width, unicode=unicode), width=width)
    return text.splitlines(), span_text(collector)


def test_each_rank_has_a_line_and_each_step_its_share_of_it() -> None:
    """One token of gpu-npu: 122,000 ns of attention, 67,536 and 34,268 ns of transfers, 158,000 ns of FFN."""
    lines, span = picture("gpu-npu", 1)
    assert span == "all of it"
    npu, gpu = (line.split()[1] for line in lines[:2])
    columns = len(npu)
    per_ns = columns / (122_000 + 67_536 + 34_268 + 158_000)
    assert abs(npu.count("A") - 122_000 * per_ns) <= 1
    assert abs(npu.count("T") - (67_536 + 34_268) * per_ns) <= 1
    assert abs(gpu.count("F") - 158_000 * per_ns) <= 1
    assert gpu.strip("·FT") == "" and npu.startswith("A") and npu.endswith("·")
    assert lines[-1] == "A attention, F ffn, T transfer, · idle"


def test_what_is_shorter_than_a_column_is_still_seen() -> None:
    lines, span = picture("multi-gpu", 8)
    assert span.startswith("the first 1.51 ms of")
    assert lines[0].count("C") == lines[1].count("C") == 5


@pytest.mark.parametrize("width", [60, 80, 120])
def test_it_fits_and_has_ascii_marks_only_where_asked(width: int) -> None:
    lines, _ = picture("multi-gpu-ring-64", 2, width=width, unicode=False)
    assert max(len(line) for line in lines) <= width
    assert all(line.isascii() for line in lines)
    assert lines[-1] == "and 49 more ranks" or lines[-1].startswith("and ")
