"""Another cost model with all steps longer or shorter by a share: how a run looks if the model is that wrong."""

from __future__ import annotations

from collections.abc import Sequence

from isim.cost.base import CostModel
from isim.model.spec import Confidence

_PERCENT = 100


class ScaledCost:
    """`CostModel` whose steps take `percent` hundredths of another's, rounded up to whole nanoseconds."""

    confidence = Confidence.HEURISTIC
    rest = "rounding"

    def __init__(self, cost: CostModel, percent: int) -> None:
        self._cost = cost
        self._percent = percent

    @property
    def assumptions(self) -> tuple[str, ...]:
        return (*self._cost.assumptions, f"every step takes {self._percent} % of that")

    @property
    def provenance(self) -> tuple[str, ...]:
        return self._cost.provenance

    @property
    def parts_per_ns(self) -> int:
        return self._cost.parts_per_ns * _PERCENT

    def step_ns(self, decodes: int, decode_context: int, chunks: Sequence[tuple[int, int]]) -> int:
        return -(-self._cost.step_ns(decodes, decode_context, chunks) * self._percent // _PERCENT)

    def decode_series_ns(self, decodes: int, context: int, steps: int) -> list[int]:
        percent = self._percent
        return [-(-step_ns * percent // _PERCENT) for step_ns in self._cost.decode_series_ns(decodes, context, steps)]

    def parts(
        self, decodes: int, decode_context: int, chunks: Sequence[tuple[int, int]], steps: int = 1
    ) -> dict[str, int]:
        found = self._cost.parts(decodes, decode_context, chunks, steps)
        return {name: parts * self._percent for name, parts in found.items()}
