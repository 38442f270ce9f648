"""The explicit cost model: a step takes base + a x new tokens + b x requests + c x context, as the run file says.

In picoseconds, the sum rounded up to whole nanoseconds. A checker can redo it from the log alone.
"""

from __future__ import annotations

from collections.abc import Sequence

from isim.cost.base import CostError
from isim.model.spec import Confidence
from isim.record.records import LinearCoefficients

_PS_PER_NS = 1000
_ROUND_UP = _PS_PER_NS - 1


class LinearCost:
    """`CostModel` of four coefficients. Raises CostError for a negative one, and when a step could take no time.

    Every step has a token and a request, so base, per token and per request together must be above zero; the context
    may be empty and cannot vouch for it.
    """

    confidence = Confidence.HEURISTIC
    parts_per_ns = _PS_PER_NS
    rest = "rounding"

    def __init__(self, coefficients: LinearCoefficients, source: str | None = None) -> None:
        for name in coefficients.__struct_fields__:
            value = getattr(coefficients, name)
            if type(value) is not int or value < 0:
                raise CostError(f"cost.{name}: expected an integer of picoseconds, 0 or more, found {value!r}")
        fixed = coefficients.base_ps + coefficients.per_token_ps + coefficients.per_request_ps
        if fixed == 0:
            raise CostError(
                "cost: base_ps, per_token_ps and per_request_ps are all 0, so a step could take no time; "
                "expected at least one of them above 0"
            )
        self.coefficients = coefficients
        self._base = coefficients.base_ps
        self._token = coefficients.per_token_ps
        self._request = coefficients.per_request_ps
        self._context = coefficients.per_context_token_ps
        self._source = source

    @property
    def assumptions(self) -> tuple[str, ...]:
        formula = "step durations are the linear formula of the run file"
        if self._source is None:
            return (f"{formula}; nothing vouches for its coefficients",)
        return (f"{formula}; what was fitted of its coefficients, and to what, is among the sources",)

    @property
    def provenance(self) -> tuple[str, ...]:
        given = self.coefficients
        fitted = () if self._source is None else (f"cost factors: {self._source}",)
        return (
            *fitted,
            f"linear cost from the run file: base {given.base_ps} ps, {given.per_token_ps} ps a token, "
            f"{given.per_request_ps} ps a request, {given.per_context_token_ps} ps a token of context",
        )

    def step_ns(self, decodes: int, decode_context: int, chunks: Sequence[tuple[int, int]]) -> int:
        tokens, context = decodes, decode_context
        for new, before in chunks:
            tokens += new
            context += before
        total = self._base + self._token * tokens + self._request * (decodes + len(chunks)) + self._context * context
        return (total + _ROUND_UP) // _PS_PER_NS

    def decode_series_ns(self, decodes: int, context: int, steps: int) -> list[int]:
        first = self._base + (self._token + self._request) * decodes + self._context * context + _ROUND_UP
        growth = self._context * decodes
        if growth == 0:
            return [first // _PS_PER_NS] * steps
        return [total // _PS_PER_NS for total in range(first, first + growth * steps, growth)]

    def parts(
        self, decodes: int, decode_context: int, chunks: Sequence[tuple[int, int]], steps: int = 1
    ) -> dict[str, int]:
        tokens = decodes + sum([new for new, _ in chunks])
        context = decode_context + sum([before for _, before in chunks])
        seen = steps * context + decodes * (steps * (steps - 1) // 2)
        return {
            "base": steps * self._base,
            "new_tokens": steps * tokens * self._token,
            "requests": steps * (decodes + len(chunks)) * self._request,
            "context": seen * self._context,
        }
