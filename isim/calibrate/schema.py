"""What a calibration comes to, as values; the descriptions go into `isim schema calibration`."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from isim.analyze.metrics import Unit
from isim.analyze.schema import LoadState
from isim.scenario.fitted import Fitted

SCHEMA = "isim/calibration"
REVISION = 1


class FittedMetric(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A metric that was measured, and what the run told of it with the factors as they were and as fitted."""

    metric: Annotated[str, Meta(description="Where in result.json it stands.")]
    unit: Unit
    measured: int | float
    before: int | float | None
    before_error: Annotated[float | None, Meta(description="before / measured - 1.")]
    after: int | float | None
    after_error: Annotated[float | None, Meta(description="after / measured - 1.")]
    target: Annotated[bool, Meta(description="Whether the factors were fitted to it.")]
    reason: Annotated[str, Meta(description="Why it was not; empty where it was.")]


class FittedFactor(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A factor that was looked at. One that the metrics do not identify is left as it was."""

    path: Annotated[str, Meta(description="Its key in the run file.")]
    before: Annotated[str, Meta(description="As the run file says it.")]
    after: Annotated[str, Meta(description="To three significant digits, where it was fitted.")]
    identified: bool
    leverage: Annotated[
        float | None,
        Meta(
            description="By how many percent it moves when the measurements are 1 % off in the worst direction, the "
            "other factors being fitted again; null where it is not identified."
        ),
    ]
    at_bound: Annotated[
        bool,
        Meta(
            description="Whether the fit ended where the range of plausible values does, or nothing in it was better "
            "than a value outside."
        ),
    ]
    reason: Annotated[str, Meta(description="Why it was left alone; empty where it was fitted.")]


class PerRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How far single requests are off. Not told of TTFT: away from saturation it is chance which step a request met."""

    latency: str
    requests: int
    before: Annotated[float, Meta(description="Median over the requests of |simulated / measured - 1|.")]
    after: float


class Calibration(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A run file's declared factors fitted to measurements. Equal input gives equal bytes."""

    schema: str
    revision: int
    isim_version: str
    run_file: str
    scenario_digest: Annotated[str, Meta(description="Of the run file with its factors as they were.")]
    measured_file: str
    measured_sha256: str
    requests: Annotated[int | None, Meta(description="Measured requests that were compared; null for plain figures.")]
    metrics: list[FittedMetric]
    per_request: list[PerRequest]
    factors: list[FittedFactor]
    load_before: LoadState | None
    load_after: LoadState | None
    runs: Annotated[int, Meta(description="Simulations made.")]
    fitted: Annotated[
        Fitted | None, Meta(description="What is written beside the factors; null where none was fitted.")
    ]
    settings: Annotated[list[str], Meta(description="The fitted factors as `--set` takes them.")]
    warnings: list[str]
