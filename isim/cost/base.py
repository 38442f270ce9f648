"""What every cost model promises: how long a step takes, and why anyone should believe it.

A step is told by its shape: `decodes` requests that get one token each, with the sum of the tokens they had computed
before, and the other scheduled requests as (new tokens, tokens computed before). Both forms of the answer are the same
arithmetic on integers, so a stretch of decode steps and the same steps one by one agree to the nanosecond.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from isim.model.spec import Confidence
from isim.record.errors import IsimError


class CostError(IsimError):
    """The cost model cannot be built from what the run file says."""


class CostModel(Protocol):
    @property
    def confidence(self) -> Confidence: ...

    @property
    def assumptions(self) -> tuple[str, ...]: ...

    @property
    def provenance(self) -> tuple[str, ...]: ...

    @property
    def parts_per_ns(self) -> int:
        """The unit of `parts`."""
        ...

    @property
    def rest(self) -> str:
        """What the difference of durations and `parts` is: floors and rounding."""
        ...

    def step_ns(self, decodes: int, decode_context: int, chunks: Sequence[tuple[int, int]]) -> int:
        """Duration of one step, at least 1 ns. The step has at least one token."""
        ...

    def decode_series_ns(self, decodes: int, context: int, steps: int) -> list[int]:
        """Durations of `steps` successive steps of the same `decodes` requests, one token each.

        Equal to [step_ns(decodes, context + i * decodes, ()) for i in range(steps)].
        """
        ...

    def parts(
        self, decodes: int, decode_context: int, chunks: Sequence[tuple[int, int]], steps: int = 1
    ) -> dict[str, int]:
        """What the time of `steps` successive steps goes to, by operation, in fractions of 1 / `parts_per_ns` ns.

        Before rounding and without floors, so it sums to no more than the durations. Each further step of the same
        requests sees one more token of each; only steps without chunks follow one another so.
        """
        ...
