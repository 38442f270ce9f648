"""Hits of the Mooncake trace against a plain cache that knows every token by itself.

The cache of this test has no blocks to run short of and no chains of runs: it goes through each prompt by token and
remembers, at each multiple of the block size, that a prefix so long has been scheduled. Which tokens are scheduled
when is read from the log; how many of them a request finds must be what the log says.
"""

from __future__ import annotations

import gzip
import json
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from isim.record.records import AnyRecord, Turn
from isim.run import simulate
from isim.scenario.load import load_scenario

ROOT = Path(__file__).parents[1]
TRACE = ROOT.parent / "shared" / "data" / "traces_mooncake" / "conversation_trace.jsonl.gz"
NUMBERED_TOKENS = 512
"""Tokens that one of the trace's hash_ids stands for."""

needs_trace = pytest.mark.skipif(not TRACE.is_file(), reason=f"{TRACE.name} (../shared/data) is not here")


class PlainCache:
    def __init__(self, rows: list[dict[str, Any]], block: int) -> None:
        self._rows = rows
        self._block = block
        self._known: set[int] = set()
        self._done: dict[int, int] = {}
        self._ends: dict[int, list[int]] = {}

    def find(self, request: int) -> int:
        """Tokens of the longest known prefix in whole blocks, short of the last token."""
        row = self._rows[request]
        length, numbers = row["input_length"], row["hash_ids"]
        ends, prefix = [], 0
        for token in range(length):
            prefix = hash((prefix, numbers[token // NUMBERED_TOKENS], token % NUMBERED_TOKENS))
            if (token + 1) % self._block == 0:
                ends.append(prefix)
        self._ends[request] = ends
        found = 0
        while (found + 1) * self._block < length and ends[found] in self._known:
            found += 1
        return found * self._block

    def schedule(self, request: int, start: int, tokens: int) -> None:
        self._done[request] = start + tokens
        self._known.update(self._ends[request][: (start + tokens) // self._block])

    def go_on(self, request: int, tokens: int) -> None:
        self.schedule(request, self._done[request], tokens)


def check(limit: int, *sets: str) -> int:
    """Run the first rows of the trace with room for everything; tokens found, all as the plain cache has them."""
    with gzip.open(TRACE, "rt") as lines:
        rows = [json.loads(line) for line in islice(lines, limit)]
    overrides = [f"workload.path={TRACE}", f"workload.limit={limit}", "engine.num_gpu_blocks_override=10000000", *sets]
    scenario = load_scenario(ROOT / "scenarios" / "mooncake.yaml", overrides)
    records: list[AnyRecord] = []
    simulate(scenario, base_dir=ROOT, readers=[records.extend], digest=False)
    cache = PlainCache(rows, scenario.engine.block_size)
    hits = 0
    for record in records:
        if not isinstance(record, Turn):
            continue
        assert not record.preempted
        for request, tokens in record.chunks:
            cache.go_on(request, tokens)
        for request, found, tokens in record.admitted:
            assert found == cache.find(request), request
            cache.schedule(request, found, tokens)
            hits += found
    return hits


@needs_trace
@pytest.mark.parametrize(
    ("limit", "sets"), [(300, ()), (120, ("engine.block_size=64",)), (120, ("engine.block_size=48",))]
)
def test_hits_are_those_of_a_plain_cache(limit: int, sets: tuple[str, ...]) -> None:
    assert check(limit, *sets) > 50_000


@needs_trace
@pytest.mark.slow
def test_hits_are_those_of_a_plain_cache_on_more_of_the_trace() -> None:
    assert check(3000) > 1_000_000
