"""Limits, targets, goodput and classes, counted from the token times of the slow engine."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise

import pytest
from product import as_requests, play
from toy_facts import analysis_of
from workload_fuzz import finite_runs, quoted_ids

from isim.analyze.schema import Goodput, SloLimit, SloTarget
from isim.report.terminal import render
from isim.scenario.types import Slo, Targets, WarmupRequests

CASES = 60


def middle(values: list[int]) -> int:
    """A limit that some keep and some do not."""
    return max(1, sorted(values)[len(values) // 2])


@pytest.mark.parametrize("batch", range(2))
def test_limits_and_goodput_agree_with_every_token(batch: int) -> None:
    kept_some = 0
    for seed, (limits, asked, coefficients), slow in finite_runs(range(batch * CASES, (batch + 1) * CASES)):
        records = play(limits, as_requests(asked, quoted_ids(asked)), coefficients).records
        order = sorted(range(len(asked)), key=lambda place: asked[place].arrival_ns)
        warm_up = seed % 3
        done = [
            (place, asked[number].arrival_ns, times)
            for place, number in enumerate(order)
            if place >= warm_up and (times := slow.requests[asked[number].id].token_ns)
        ]
        if not done:
            continue
        ttft = {place: times[0] - arrival for place, arrival, times in done}
        e2e = {place: times[-1] - arrival for place, arrival, times in done}
        gaps = {place: [late - early for early, late in pairwise(times)] for place, _, times in done}
        tpot = {place: round(Fraction(sum(found), len(found))) if found else 0 for place, found in gaps.items()}
        itl = {place: max(found, default=0) for place, found in gaps.items()}
        told = {"ttft": ttft, "tpot": tpot, "itl": itl, "e2e": e2e}
        most = {name: middle(list(values.values())) for name, values in told.items()}
        slo = Slo(**{name: Targets(each_ns=limit_ns, p90_ns=limit_ns) for name, limit_ns in most.items()})
        warmup = WarmupRequests(requests=warm_up) if warm_up else None
        labels = {place: (("even", "odd")[place % 2], None, None, None) for place in range(len(asked)) if place % 3}
        result = analysis_of(records, slo=slo, warmup=warmup, labels=labels).result
        assert result.slo is not None
        assert [(limit.latency, limit.limit_ns, limit.kept) for limit in result.slo.limits] == [
            (f"{name}_ns", most[name], sum(value <= most[name] for value in told[name].values()))
            for name in ("ttft", "tpot", "itl", "e2e")
        ]
        good = [place for place, _, _ in done if all(told[name][place] <= most[name] for name in told)]
        assert result.slo.goodput is not None
        assert (result.slo.goodput.requests, result.slo.goodput.arrived) == (len(good), len(asked) - warm_up)
        for one in result.classes:
            members = [place for place, label in labels.items() if label[0] == one.name]
            assert one.arrived == len(members)
            assert one.measured == len([place for place, _, _ in done if place in members])
            assert one.slo is not None
            assert one.slo.goodput is not None
            assert one.slo.goodput.requests == len([place for place in good if place in members])
            pool = sorted(gap for place in members for gap in gaps.get(place, []))
            assert one.latency.itl_ns.count == len(pool)
            assert one.latency.itl_ns.max == (pool[-1] if pool else None)
            of_class = sorted(ttft[place] for place in members if place in ttft)
            assert one.latency.ttft_ns.max == (of_class[-1] if of_class else None)
        kept_some += 0 < len(good) < len(done)
    assert kept_some > 10


def test_targets_compare_with_the_figures_of_the_result() -> None:
    ((_, (limits, asked, coefficients), _),) = list(finite_runs(range(1, 2)))
    records = play(limits, as_requests(asked, quoted_ids(asked)), coefficients).records
    plain = analysis_of(records).result
    assert (plain.slo, plain.classes) == (None, [])
    p99, mean = plain.latency.ttft_ns.p99, plain.latency.e2e_ns.mean
    assert p99 is not None
    assert mean is not None
    slo = Slo(ttft=Targets(p99_ns=p99), e2e=Targets(mean_ns=mean - 1))
    outcome = analysis_of(records, slo=slo).result.slo
    assert outcome is not None
    assert outcome.goodput is None
    assert outcome.limits == []
    assert outcome.targets == [
        SloTarget(latency="ttft_ns", figure="p99", limit_ns=p99, actual_ns=p99, met=True),
        SloTarget(latency="e2e_ns", figure="mean", limit_ns=mean - 1, actual_ns=mean, met=False),
    ]
    assert outcome.met is False
    met = analysis_of(records, slo=Slo(ttft=Targets(p99_ns=p99))).result.slo
    assert met is not None
    assert met.met is True


def test_goodput_is_a_rate_over_the_time_after_the_warm_up() -> None:
    ((_, (limits, asked, coefficients), _),) = list(finite_runs(range(1, 2)))
    records = play(limits, as_requests(asked, quoted_ids(asked)), coefficients).records
    easy = Slo(ttft=Targets(each_ns=10**15))
    result = analysis_of(records, slo=easy).result
    assert result.slo is not None
    counts, whole = result.counts, result.throughput.whole_run
    duration_ns = whole.end_ns - whole.start_ns
    assert result.slo.limits == [SloLimit(latency="ttft_ns", limit_ns=10**15, kept=counts.completed)]
    assert result.slo.goodput == Goodput(
        requests=counts.completed,
        arrived=counts.arrived,
        share=counts.completed / counts.arrived,
        requests_per_s=counts.completed * 10**9 / duration_ns,
        output_tokens_per_s=counts.output_tokens * 10**9 / duration_ns,
    )


def test_the_report_tells_promises_and_classes() -> None:
    ((_, (limits, asked, coefficients), _),) = list(finite_runs(range(1, 2)))
    records = play(limits, as_requests(asked, quoted_ids(asked)), coefficients).records
    labels = {place: (f"kind\x1b{place % 20}", None, None, None) for place in range(len(asked))}
    slo = Slo(ttft=Targets(each_ns=10**15, p99_ns=1))
    for unicode in (False, True):
        text = render(analysis_of(records, slo=slo, labels=labels).result, width=80, unicode=unicode)
        assert "\x1b" not in text
        assert max(map(len, text.splitlines())) <= 80
        for words in ("Service levels", "TTFT each", "kept by 100.0 %", "missed", "Goodput: ", "Classes", "kind?0"):
            assert words in text
    assert "Service levels" not in render(analysis_of(records).result, width=80)
