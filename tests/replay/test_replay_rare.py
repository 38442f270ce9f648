"""Logs of the slow engine in which something happens that hardly ever does, accepted as they are."""

from __future__ import annotations

import msgspec
import pytest
from rare_cases import paced_case, private_case, tight_case, uneven_case
from replay_examples import violation
from slow_log import slow_log
from test_replay_groups import TELLINGS
from workload_fuzz import GRID_NS

from isim.record.records import AnyRecord, Arrive

MAKERS = {"paced": paced_case, "tight": tight_case, "private": private_case, "uneven": uneven_case}
TIMEOUTS = (None, None, 6 * GRID_NS, 30 * GRID_NS)
SEEDS = {
    "paced": range(40),
    "tight": (*range(20), 169),
    "private": (*range(30), 1115),
    "uneven": (*range(40), 96, 156, 180, 241, 554, 1001195, 2000005),
}
"""The first, and some in which what the maker is for shows."""


def rare_log(maker: str, seed: int) -> list[AnyRecord]:
    """Of `private` the clients give up soon, and the prompts of a single run, which nobody shares, are not told."""
    how, timeout_ns = TELLINGS[seed % 3], TIMEOUTS[seed // 3 % 4]
    if maker != "private":
        return slow_log(*MAKERS[maker](seed), timeout_ns=timeout_ns, **how)
    records = slow_log(*MAKERS[maker](seed), timeout_ns=(2 + seed % 7) * GRID_NS, **how)
    return [
        msgspec.structs.replace(record, prompt=None) if isinstance(record, Arrive) and own(record) else record
        for record in records
    ]


def own(record: Arrive) -> bool:
    return record.prompt is not None and len(record.prompt) == 1


@pytest.mark.parametrize("maker", MAKERS)
def test_what_is_rare_is_legal(maker: str) -> None:
    for seed in SEEDS[maker]:
        error = violation(rare_log(maker, seed))
        assert error is None, (seed, str(error))
