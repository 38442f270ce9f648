"""What the factors of a cost block were fitted to, where they were: told with every result that rests on them."""

from __future__ import annotations

import msgspec


class Fitted(msgspec.Struct, frozen=True, kw_only=True):
    """Where factors come from and what they were seen at; what lies beyond that is told in the result.

    source                 a sentence: the measurements, and how far from them the fit stayed
    factors                what was fitted, as `--set` takes it: `path=value, path=value`
    gpu, model             their names
    tensor_parallel_size   GPUs that shared each layer
    batch                  the most requests that ran at once
    request_tokens         the most tokens, of prompt and output, of a request
    """

    source: str
    factors: str
    gpu: str
    model: str
    tensor_parallel_size: int
    batch: int
    request_tokens: int

    @property
    def settings(self) -> list[tuple[str, str]]:
        """The fitted factors, (path, value as a run file says it)."""
        pairs = [piece.partition("=") for piece in self.factors.split(",")]
        return [(path.strip(), value.strip()) for path, _, value in pairs]
