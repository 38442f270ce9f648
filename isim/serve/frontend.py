"""What lies between a client and the engines: API server, tokenisation, HTTP. Every request spends the same time there.

All of it is put before the queue. So from the router on everything knows a request by when it arrives, and it was sent
an overhead before that. A source that reacts is told of ends as they are, and what it sends then arrives an overhead
later.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from msgspec.structs import replace

from isim.kernel.clock import SAFE_MAX_NS
from isim.serve.trouble import too_late
from isim.workload.request import Request

if TYPE_CHECKING:
    from isim.workload.feedback import Ended, Feedback


def through(source: Iterator[Request] | Feedback, overhead_ns: int) -> Iterator[Request] | Feedback:
    """The same requests at the times at which they arrive; the source gives those at which they are sent."""
    if isinstance(source, Iterator):
        return (_arriving(request, request.arrival_ns + overhead_ns) for request in source)
    return _Behind(source, overhead_ns)


class _Behind:
    """`Feedback` whose clients are `overhead_ns` away."""

    def __init__(self, source: Feedback, overhead_ns: int) -> None:
        self._source = source
        self._overhead_ns = overhead_ns

    def first(self) -> Iterator[tuple[int, Request]]:
        for client, request in self._source.first():
            yield client, _arriving(request, request.arrival_ns + self._overhead_ns)

    def next(self, ended: Ended) -> Request | None:
        """A client reacts no sooner than a nanosecond after the end, in its own time."""
        reply = self._source.next(ended)
        if reply is None:
            return None
        return _arriving(reply, max(reply.arrival_ns, ended.ended_ns + 1) + self._overhead_ns)


def _arriving(request: Request, arrival_ns: int) -> Request:
    if arrival_ns > SAFE_MAX_NS:
        raise too_late(arrival_ns, f"request {request.id}")
    return replace(request, arrival_ns=arrival_ns)
