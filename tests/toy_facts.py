"""What an analysis needs to know besides a toy log."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from toy_log import POOL_BLOCKS

from isim.analyze.collect import Collector
from isim.analyze.result import Analysis, Facts, analyze
from isim.analyze.schema import ReplayState, Simulated
from isim.cost.memory import KvCapacity
from isim.model.spec import Confidence
from isim.record.records import AnyRecord

CAPACITY = KvCapacity(
    num_blocks=POOL_BLOCKS + 1,
    usable_blocks=POOL_BLOCKS,
    block_bytes=2 << 20,
    kv_bytes=(POOL_BLOCKS + 1) * (2 << 20),
    source="override",
    confidence=Confidence.EXACT,
    derived_blocks=1200,
    override_blocks=POOL_BLOCKS + 1,
    derivation=(("GPU memory", 80 << 30), ("weights", -(16 << 30))),
)

FACTS = Facts(
    name="toy",
    simulated=Simulated(model="m", hardware="h", engine="e", workload="w", cost="c"),
    warmup=None,
    capacity=CAPACITY,
    confidence=Confidence.HEURISTIC,
    assumptions=("tokens are delivered when a step ends",),
    provenance=("rates: a data sheet",),
    log_digest=None,
    workload_sha256=None,
    replay=ReplayState.NOT_RUN,
)


def analysis_of(records: Sequence[AnyRecord], **facts: Any) -> Analysis:
    """Analyze a log, handed over in uneven batches."""
    collector = Collector()
    for start in range(0, len(records), 3):
        collector.read(records[start : start + 3])
    return analyze(collector, msgspec.structs.replace(FACTS, **facts))
