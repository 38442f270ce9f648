"""The product's engine against the slow one: thousands of small workloads in which nearly everything ties."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any
from unittest.mock import patch

import pytest
from expand import Told, tell
from product import Played, as_requests, fewest_free, play
from rare_cases import paced_case, tight_case, uneven_case
from slow_engine import EndlessRun, SlowRun, run_timed
from workload_fuzz import Case, linear_step_ns, quoted_ids, random_case, random_groups_case

from isim.kernel.errors import BudgetExceeded
from isim.policy.vllm.pool import BlockPool
from isim.replay import Replay, ReplayViolation
from isim.serve import arrivals
from isim.serve.trouble import NoHeadway

BATCHES = 8
CASES = 250
GROUP_CASES = 100


def compare(seed: int, make: Callable[[int], Case] = random_case) -> bool:
    """Play a case every way; False when its rules go in circles, which both engines must then say."""
    limits, requests, coefficients = make(seed)
    quotable = quoted_ids(requests)

    def product(**how: Any) -> Played:
        return play(limits, as_requests(requests, quotable), coefficients, max_events=100_000, **how)

    try:
        slow = run_timed(limits, requests, linear_step_ns(coefficients))
    except EndlessRun:
        with pytest.raises((NoHeadway, BudgetExceeded)):
            product()
        return False
    whole = product()
    replayed(whole, where := f"seed {seed}: {limits}")
    told = tell(whole.records)
    names = [request.id for request in requests]
    assert _steps(told) == _slow_steps(slow), where
    assert told.rejected == {
        names.index(name): outcome.rejected.value for name, outcome in slow.requests.items() if outcome.rejected
    }, where
    assert told.preempted == [(time_ns, names.index(name)) for time_ns, name in slow.preempted], where
    for index, name in enumerate(names):
        outcome = slow.requests[name]
        assert told.first.get(index) == outcome.first_token_ns, (where, name)
        assert told.finish.get(index) == outcome.finish_ns, (where, name)
        admissions = [(a.time_ns, a.hit_tokens, a.tokens) for a in outcome.admissions]
        assert [(time, hit, tokens) for time, who, hit, tokens in told.admissions if who == index] == admissions, where
    for step, free_blocks in told.free_blocks.items():
        assert free_blocks == slow.steps[step].free_blocks, (where, step)
    assert whole.block_order() == slow.free_block_order, where
    fewest = min([step.free_blocks for step in slow.steps], default=limits.num_blocks - 1)
    assert fewest_free(whole.records) == fewest, where
    single = product(max_stretch=1)
    replayed(single, where)
    assert single.digest == whole.digest, where
    assert fewest_free(single.records) == fewest, where
    assert single.block_order() == slow.free_block_order, where
    assert product(foresight=False).digest == whole.digest, where
    plain = product(make_pool=BlockPool)
    assert plain.digest == whole.digest, where
    assert fewest_free(plain.records) == fewest, where
    with patch.object(arrivals, "MOST_AHEAD", 1 + seed % 3):
        assert product().digest == whole.digest, where
    for shuffle_seed in (1, 2):
        if product(shuffle_seed=shuffle_seed).digest != whole.digest:
            shuffled = product(shuffle_seed=shuffle_seed, trace=True)
            pytest.fail("\n".join([where, *shuffled.system.kernel.trace]))
    return True


def replayed(played: Played, where: str) -> None:
    """The independent checker accepts the log, told either way."""
    replay = Replay()
    try:
        replay.read(played.records)
        replay.finish()
    except ReplayViolation as violation:
        raise AssertionError(f"{where}: {violation}") from violation


def _steps(told: Told) -> list[tuple[int, int, int, int, int]]:
    return [(s.decided_ns, s.start_ns, s.duration_ns, s.scheduled, s.context) for s in told.steps]


def _slow_steps(slow: SlowRun) -> list[tuple[int, int, int, int, int]]:
    return [(s.decided_ns, s.start_ns, s.duration_ns, len(s.scheduled), s.context) for s in slow.steps]


@pytest.mark.parametrize("batch", range(BATCHES))
def test_product_agrees_with_the_slow_engine(batch: int) -> None:
    ended = [compare(seed) for seed in range(batch * CASES, (batch + 1) * CASES)]
    assert sum(ended) > CASES * 0.9


@pytest.mark.parametrize("batch", range(4))
def test_product_agrees_with_the_slow_engine_on_several_groups(batch: int) -> None:
    ended = [compare(seed, random_groups_case) for seed in range(batch * GROUP_CASES, (batch + 1) * GROUP_CASES)]
    assert sum(ended) > GROUP_CASES * 0.8


@pytest.mark.parametrize(
    ("make", "seeds"),
    [(paced_case, range(40)), (tight_case, (28, 225, *range(20))), (uneven_case, (2150, *range(20)))],
)
def test_product_agrees_with_the_slow_engine_where_rare_things_happen(
    make: Callable[[int], Case], seeds: Sequence[int]
) -> None:
    ended = [compare(seed, make) for seed in seeds]
    assert sum(ended) > len(seeds) * 0.8


@pytest.mark.slow
@pytest.mark.parametrize("batch", range(4, 40))
def test_product_agrees_with_the_slow_engine_on_many_more_groups(batch: int) -> None:
    for seed in range(batch * GROUP_CASES, (batch + 1) * GROUP_CASES):
        compare(seed, random_groups_case)


@pytest.mark.slow
@pytest.mark.parametrize("batch", range(BATCHES, 5 * BATCHES))
def test_product_agrees_with_the_slow_engine_on_many_more(batch: int) -> None:
    for seed in range(batch * CASES, (batch + 1) * CASES):
        compare(seed)
