"""What the factors of a cost block were fitted to, where they were: told with every result that rests on them."""

from __future__ import annotations

import msgspec


class Fitted(msgspec.Struct, frozen=True, kw_only=True):
    """Where factors come from and what they were seen at; what lies beyond that is told in the result.

    source                 a sentence: the measurements, and how far from them the fit stayed
    gpu, model             their names
    tensor_parallel_size   GPUs that shared each layer
    batch                  the most requests that ran at once
    request_tokens         the most tokens, of prompt and output, of a request
    """

    source: str
    gpu: str
    model: str
    tensor_parallel_size: int
    batch: int
    request_tokens: int
