"""A few of the dense-tie workloads against the slow engine: enough to notice most faults in a second.

The many are in test_engine_against_slow.py; `make mutants` runs these for every mutant.
"""

from __future__ import annotations

import pytest
from test_engine_against_slow import compare
from workload_fuzz import random_case, random_groups_case


@pytest.mark.parametrize("first", range(0, 24, 8))
def test_a_few_cases_of_one_group(first: int) -> None:
    assert sum(compare(seed, random_case) for seed in range(first, first + 8)) > 4


@pytest.mark.parametrize("first", range(0, 16, 8))
def test_a_few_cases_of_several_groups(first: int) -> None:
    assert sum(compare(seed, random_groups_case) for seed in range(first, first + 8)) > 4
