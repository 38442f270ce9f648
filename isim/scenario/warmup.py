"""The warm-up: a time, a number of requests, or a share of them, told apart by how it is written."""

from __future__ import annotations

import re

from isim.scenario.fields import Kind
from isim.scenario.nodes import Node, NodeKind
from isim.scenario.types import Warmup, WarmupDuration, WarmupRequests, WarmupShare
from isim.scenario.units import COUNT_MAX, Dimension, QuantityError, read_quantity, read_share_ppm, write_quantity

EXPECTED = 'a time ("30 s"), a number of requests ("100 requests") or a percentage of the requests ("10%")'

_REQUESTS = re.compile(r"([0-9]{1,16})\s*requests?")


def _read(node: Node) -> Warmup:
    text = node.raw.strip()
    if node.kind is not NodeKind.TEXT or len(text) > 80:
        raise QuantityError(EXPECTED)
    if match := _REQUESTS.fullmatch(text):
        if int(match[1]) > COUNT_MAX:
            raise QuantityError(EXPECTED)
        return WarmupRequests(requests=int(match[1]))
    if text.endswith("%"):
        share_ppm = read_share_ppm(text)
        if share_ppm >= 10**6:
            raise QuantityError("less than 100% of the requests")
        return WarmupShare(share_ppm=share_ppm)
    try:
        return WarmupDuration(duration_ns=read_quantity(text, Dimension.DURATION))
    except QuantityError:
        raise QuantityError(EXPECTED) from None


WARMUP = Kind(_read, {"type": "string", "description": EXPECTED, "examples": ["30 s", "100 requests", "10%"]})


def write_warmup(warmup: Warmup) -> str:
    """The warm-up as a run file has it."""
    if isinstance(warmup, WarmupRequests):
        return f"{warmup.requests} requests"
    if isinstance(warmup, WarmupShare):
        whole, rest = divmod(warmup.share_ppm, 10**4)
        return f"{whole}.{rest:04d}".rstrip("0").rstrip(".") + "%"
    return write_quantity(warmup.duration_ns, Dimension.DURATION)
