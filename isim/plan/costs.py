"""How long a plan's steps take under the normalized cost model, revision 9.

Every device of a kind costs the same: an overhead for each launch, and a time for each token of work, divided by how
many devices share it. Nothing depends on model, number format, context or memory bandwidth: these are figures to
compare topologies with, not predictions, and their class is heuristic. The figures are the contract's.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from isim.model.spec import Confidence, weakest
from isim.scenario.topology.types import Capability, DeviceKind, Provenance, TopologyScenario

COST_MODEL_REVISION = 9


class DeviceCosts(msgspec.Struct, frozen=True, kw_only=True):
    """Nanoseconds a launch, and nanoseconds a token of each kind of work that has a cost."""

    overhead_ns: int
    per_token_ns: dict[Capability, int]


class CostModel(msgspec.Struct, frozen=True, kw_only=True):
    """Costs by kind of device, bytes that a token of work moves, and how far they can be trusted."""

    revision: int
    devices: dict[DeviceKind, DeviceCosts]
    activation_bytes_per_token: int
    collective_bytes_per_token: int
    provenance: Provenance


def _per_token_ns(attention: int, ffn: int, draft: int, lookup: int) -> dict[Capability, int]:
    return {
        Capability.ATTENTION: attention,
        Capability.FFN: ffn,
        Capability.DRAFT: draft,
        Capability.LOOKUP: lookup,
    }


NORMALIZED = CostModel(
    revision=COST_MODEL_REVISION,
    devices={
        DeviceKind.CPU: DeviceCosts(overhead_ns=400_000, per_token_ns=_per_token_ns(220_000, 300_000, 110_000, 8_000)),
        DeviceKind.GPU: DeviceCosts(overhead_ns=120_000, per_token_ns=_per_token_ns(28_000, 38_000, 17_000, 8_000)),
        DeviceKind.NPU: DeviceCosts(overhead_ns=100_000, per_token_ns=_per_token_ns(22_000, 52_000, 24_000, 8_000)),
    },
    activation_bytes_per_token=1 << 20,
    collective_bytes_per_token=1 << 19,
    provenance=Provenance(
        confidence=Confidence.HEURISTIC,
        source="normalized decode costs by kind of device, for comparing topologies; no measurement stands behind them",
    ),
)


def launch_ns(costs: DeviceCosts, capability: Capability, tokens: int, devices: int) -> int:
    """One launch of `tokens` tokens of work spread over `devices` devices, rounded up to a nanosecond."""
    return costs.overhead_ns - (-costs.per_token_ns[capability] * tokens // devices)


def plan_confidence(scenario: TopologyScenario, costs: CostModel) -> Confidence:
    """Heuristic if anything that gives the plan its times is; else calibrated, since no duration is ever exact."""
    parts: Iterable[Provenance] = (
        part.provenance for those in (scenario.devices, scenario.memory_domains, scenario.links) for part in those
    )
    return weakest([Confidence.CALIBRATED, costs.provenance.confidence, *(part.confidence for part in parts)])
