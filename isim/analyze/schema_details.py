"""The part of `result.json` that takes a closer look at a run: what costs too much to do for any run, however large."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import msgspec
from msgspec import Meta

MOST_REQUESTS = 1_000
MOST_STEPS = 200_000
STEP_TIME_PERCENT = 10
STEEP_TIMES = 2


class DetailState(StrEnum):
    """Whether there are details; where not, why not."""

    GIVEN = "given"
    TOO_LARGE = "too_large"
    OFF = "off"


class OperationTime(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What one operation took, in all steps of all engines together."""

    operation: Annotated[
        str,
        Meta(
            description="As the cost model names it; `gaps` is between and within kernels, `host` what the device "
            "waits for the host, `rounding` the rounding up of every step to whole nanoseconds."
        ),
    ]
    total_ns: int
    share: Annotated[float | None, Meta(description="total_ns / busy_ns.")]


class OverTime(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Queue and KV memory in the parts of `batch_over_time`; empty where that is empty."""

    mean_queue_milli: Annotated[
        list[int],
        Meta(
            description="Time-weighted mean number of requests that have arrived and no step has scheduled yet, in "
            "thousandths, rounded half to even. Requests that wait again after a preemption are not among them."
        ),
    ]
    most_kv_blocks: Annotated[
        list[int],
        Meta(
            description="The most KV blocks in use on any one engine after a decision of the part that was more than "
            "one more token for everybody who runs; without one, what was in use after the last before."
        ),
    ]


class MetricChange(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One number of the result, and what it is when every step takes 10 % less or more."""

    metric: Annotated[str, Meta(description="Where in the result it stands.")]
    value: int | float | None
    faster: Annotated[int | float | None, Meta(description="With steps of 90 %.")]
    slower: Annotated[int | float | None, Meta(description="With steps of 110 %.")]
    faster_change: Annotated[float | None, Meta(description="faster / value - 1; null where value is 0 or null.")]
    slower_change: Annotated[float | None, Meta(description="slower / value - 1; null where value is 0 or null.")]
    steep: Annotated[
        bool,
        Meta(
            description="Whether either change is greater than 20 %, twice that of the step times: not a number then."
        ),
    ]


class Sensitivity(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The same requests and configuration, run again with every step 10 % shorter and 10 % longer."""

    metrics: list[MetricChange]
    faster_load: Annotated[str | None, Meta(description="`load.state` with steps of 90 %.")]
    slower_load: Annotated[str | None, Meta(description="`load.state` with steps of 110 %.")]


class Details(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A closer look, by default at runs of at most 1,000 requests and 200,000 steps.

    `state` is `too_large` beyond that (`isim run --details always` takes the look all the same) and `off` where it was
    switched off.
    """

    state: DetailState
    step_time: Annotated[
        list[OperationTime], Meta(description="Sums to busy_ns exactly; what takes longest comes first.")
    ] = []
    over_time: OverTime | None = None
    sensitivity: Sensitivity | None = None
    no_sensitivity: Annotated[
        str | None, Meta(description="Why `sensitivity` is null: with other step times the run comes to no end.")
    ] = None
