"""The slow engine's run told as a log: where the product can play the same, word for word what the product writes."""

from __future__ import annotations

from product import as_requests, fewest_free, play
from slow_engine import EndlessRun
from slow_log import slow_log
from workload_fuzz import quoted_ids, random_case, random_groups_case

from isim.record.digest import log_digest
from isim.record.records import Stretch


def test_a_slow_log_is_the_products_log() -> None:
    compared = fewer = 0
    for seed in range(60):
        limits, requests, coefficients = random_case(seed)
        try:
            steps = slow_log(limits, requests, coefficients, max_stretch=1)
            whole = slow_log(limits, requests, coefficients)
        except EndlessRun:
            continue
        played = play(
            limits, as_requests(requests, quoted_ids(requests)), coefficients, max_events=100_000, max_stretch=1
        )
        assert played.records == steps, seed
        across = slow_log(limits, requests, coefficients, across=True)
        assert log_digest(whole) == log_digest(across) == played.digest, seed
        assert fewest_free(whole) == fewest_free(across) == fewest_free(steps), seed
        fewer += any(isinstance(record, Stretch) and record.least_free_blocks is not None for record in across)
        compared += 1
    assert compared > 50 and fewer > 5


def test_a_random_case_with_groups_is_a_function_of_its_seed() -> None:
    assert random_groups_case(7) == random_groups_case(7)
    assert random_groups_case(7) != random_groups_case(8)
    assert all(random_groups_case(seed)[0].groups for seed in range(50))
