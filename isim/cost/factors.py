"""The declared factors of the roofline: how far below its peaks a GPU is assumed to work, and what is added.

All heuristic. Their form (per kernel the greater of arithmetic and memory time, and a gap) and most defaults come from
a fit of this kind of model to published vLLM runs on H100. The share of the memory bandwidth that kernels reach differs
most between GPUs; where published runs tell it for one, `isim.cost.fits` has it.
"""

from __future__ import annotations

import math

import msgspec

from isim.cost.base import CostError
from isim.scenario.presets.gpus import LinkKind

TICKS_PER_NS = 1 << 20
"""Costs are added up in ticks of 2^-20 ns, integers, and rounded up to nanoseconds once, at the end."""

_TICKS_PER_S = TICKS_PER_NS * 10**9

ALLREDUCE_LATENCY_NS: dict[LinkKind, int] = {
    LinkKind.NVLINK: 8_000,
    LinkKind.INFINITY_FABRIC: 15_000,
    LinkKind.PCIE: 30_000,
}
"""Floor of one all-reduce: 5 to 10 us with a custom kernel over NVLink, 15 to 50 us with NCCL or over PCIe."""


class RooflineFactors(msgspec.Struct, frozen=True, kw_only=True):
    """Shares of a peak are above 0 and at most 1; times are of one occurrence.

    compute_efficiency     share of the dense rate that matrix products and attention reach
    memory_efficiency      share of the memory bandwidth that every kernel reaches, on GPUs without a fit
    kernel_gap_ns          idle time of the device before each kernel, under a full graph too (1 to 2 us)
    kernel_ramp_ns         filling and draining of each kernel; with the gap 4.5 us, 50 us for a layer of 11 kernels
    launch_ns              host time to launch one kernel, or one piece of a graph, where no full graph does it
    host_step_ns           scheduling, input preparation and output handling of a step (1.5 to 4 ms)
    sampler_passes         passes of 4 bytes over the logits of a batch to draw tokens without sorting
    sort_ps_per_logit      more per logit when default sampling cuts by top-k or top-p, which sorts (210 fitted on H100)
    allreduce_latency_ns   floor of a collective; None takes it by kind of link
    allreduce_efficiency   share of the link's bandwidth (316 of 450 GB/s measured on four H100 for 64 MiB)
    expert_tile_rows       rows of an expert are padded to multiples of this (fused expert kernels take 16 to 128)
    """

    compute_efficiency: float = 0.8
    memory_efficiency: float = 0.9
    kernel_gap_ns: int = 1_500
    kernel_ramp_ns: int = 3_000
    launch_ns: int = 5_000
    host_step_ns: int = 1_500_000
    sampler_passes: int = 10
    sort_ps_per_logit: int = 210
    allreduce_latency_ns: int | None = None
    allreduce_efficiency: float = 0.7
    expert_tile_rows: int = 16


def check_factors(factors: RooflineFactors) -> None:
    """Raises CostError naming every factor that is out of range."""
    found = []
    for name in factors.__struct_fields__:
        value = getattr(factors, name)
        if name.endswith("_efficiency"):
            if type(value) not in (int, float) or not 0 < value <= 1:
                found.append(f"cost.{name}: expected a share above 0 and at most 1, found {value!r}")
        elif name == "expert_tile_rows":
            if type(value) is not int or value < 1:
                found.append(f"cost.{name}: expected a positive integer, found {value!r}")
        elif value is not None and (type(value) is not int or value < 0):
            found.append(f"cost.{name}: expected an integer, 0 or more, found {value!r}")
    if found:
        raise CostError("\n".join(found))


class Pace(msgspec.Struct, frozen=True):
    """Ticks for each unit of work as an exact fraction."""

    numerator: int
    denominator: int

    def ticks(self, amount: int) -> int:
        """Ticks for this much work, rounded up."""
        return -(-amount * self.numerator // self.denominator)


FREE = Pace(0, 1)


def pace(units_per_s: int, efficiency: float) -> Pace:
    """The pace of a resource that does so many units per second at this share of its peak, without any rounding."""
    share, whole = efficiency.as_integer_ratio()
    numerator, denominator = _TICKS_PER_S * whole, units_per_s * share
    common = math.gcd(numerator, denominator)
    return Pace(numerator // common, denominator // common)
