"""The report, rendered to text."""

from __future__ import annotations

import msgspec
import pytest
from toy_facts import analysis_of
from toy_log import random_toy

from isim.analyze.schema import Result
from isim.report.terminal import render
from isim.report.text import bar, bytes_text, count_text, plain, rate_text, share_text, sparkline, time_text

LONG = "a sentence that is much longer than any terminal is wide, as assumptions sometimes are, and goes on " * 2


def result(seed: int = 335) -> Result:
    _, records = random_toy(seed)
    return analysis_of(records, assumptions=(LONG, "short")).result


@pytest.mark.parametrize("width", [80, 100, 120])
@pytest.mark.parametrize("unicode", [True, False])
def test_no_line_is_wider_than_asked(width: int, unicode: bool) -> None:
    for seed in range(30):
        text = render(result(seed), width=width, unicode=unicode)
        assert max(len(line) for line in text.splitlines()) <= width
        assert "\x1b" not in text
        assert unicode or text.isascii()


def test_everything_asked_of_a_report_is_in_it() -> None:
    text = render(result(), width=120)
    for words in ("TTFT", "TPOT", "ITL", "E2E", "queue", "p50", "p99", "whole run", "steady", "KV memory", "batch"):
        assert words in text
    assert "947 of 1,000 blocks" in text
    assert "derived: 1,200 blocks" in text
    assert "Confidence: KV capacity exact, latency and throughput heuristic; the pool is as measured" in text
    assert "Sensitivity: not looked at, as asked; `isim run --details always` does." in text
    assert "The log was not replayed" in text
    assert "1 request rejected: prompt too long." in text
    assert "Near saturation" in text


def test_colour_only_when_asked() -> None:
    assert "\x1b[" in render(result(), width=80, color=True)


def test_names_cannot_command_the_terminal() -> None:
    hostile = msgspec.structs.replace(result(), name="\x1b[31mred[bold]\r\n", assumptions=["[link]x[/link]\x07"])
    text = render(hostile, width=80)
    assert "\x1b" not in text and "\x07" not in text and "\r" not in text
    assert "[bold]" in text and "[link]x[/link]?" in text


def test_an_override_where_nothing_fits_is_warned_of() -> None:
    base = result()
    kv = msgspec.structs.replace(base.kv, override_blocks=1000, derived_blocks=None)
    text = render(msgspec.structs.replace(base, kv=kv), width=120)
    assert "(derived: no room)" in text
    assert "no KV block fits beside the weights" in text
    assert "no KV block fits" not in render(base, width=120)


def test_a_run_that_was_all_warm_up_is_warned_of() -> None:
    base = result()
    assert base.counts.completed
    counts = msgspec.structs.replace(base.counts, measured=0)
    assert "Nothing completed but the warm-up" in render(msgspec.structs.replace(base, counts=counts), width=120)
    assert "warm-up; latencies" not in render(base, width=120)


def test_undefined_numbers_are_dashes() -> None:
    empty = analysis_of([random_toy(0)[1][0]]).result
    text = render(empty, width=80)
    assert "Nothing completed" in text
    assert " - " in text and "nan" not in text.lower() and "None" not in text


def test_times_have_three_digits_and_a_unit() -> None:
    assert [time_text(ns) for ns in (0, 999, 1500, 12_340_000, 123_400_000, 1_234_000_000, 80_500_000_000)] == [
        "0 ns", "999 ns", "1.50 us", "12.3 ms", "123 ms", "1.23 s", "80.5 s",
    ]  # fmt: skip
    assert time_text(None) == "-"


def test_small_texts() -> None:
    assert (bytes_text(80 << 30), bytes_text(1536), bytes_text(7)) == ("80.0 GiB", "1.50 KiB", "7 B")
    assert (rate_text(None), rate_text(0.5), rate_text(12345.6)) == ("-", "0.50", "12,346")
    assert (share_text(None), share_text(0.5)) == ("-", "50.0 %")
    assert (count_text(1, "request"), count_text(1200, "request")) == ("1 request", "1,200 requests")
    assert plain("a\tb") == "a?b"


def test_bars_and_sparklines() -> None:
    assert bar(0.5, 4, unicode=False) == "##--"
    assert bar(None, 3, unicode=True) == "░░░"
    assert bar(1.0, 3, unicode=True) == "███"
    assert sparkline([0, 1, 1000, 500], 10, unicode=True) == " ▁█▄"
    assert len(sparkline(list(range(60)), 30, unicode=True)) == 30
    assert sparkline([0, 0], 5, unicode=True) == "  "
    assert sparkline([], 5, unicode=True) == ""
