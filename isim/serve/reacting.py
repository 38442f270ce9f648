"""The world outside, where it waits for answers: clients that send their next request after the last one ended.

What a client sends next is decided by a source that knows no clock; this actor keeps the time. A client reacts no
sooner than a nanosecond after the instant at which its request ended: what it sends is an effect, and everything of
that instant was decided before. Nobody can say when the next request comes, so engines are promised nothing.
"""

from __future__ import annotations

from collections.abc import Generator
from heapq import heappop, heappush

import msgspec

from isim.kernel.actor import Actor
from isim.kernel.alarm import Alarm
from isim.kernel.clock import SAFE_MAX_NS, Rank
from isim.kernel.kernel import Kernel
from isim.kernel.mailbox import Mailbox
from isim.record.records import EngineLimits
from isim.serve.census import Census, Ending
from isim.serve.trouble import too_late
from isim.workload.feedback import Ended, Feedback
from isim.workload.request import Request


class Reacting:
    """One actor for all clients. Requests are numbered as they are sent, at one instant in the order of clients."""

    def __init__(
        self, kernel: Kernel, source: Feedback, router: Mailbox[Request], census: Census, limits: EngineLimits
    ) -> None:
        self._kernel = kernel
        self._source = source
        self._router = router
        self._census = census
        self._limits = limits
        self._coming: list[tuple[int, int, Request]] = []
        """(arrival, client, request), a heap"""
        self._open: dict[int, tuple[int, Request]] = {}
        """By index: (client, request) of those that have not ended."""
        actor = kernel.spawn("clients that react", Rank.ARRIVAL, self._body)
        self._alarm = actor.alarm
        self._endings: Mailbox[Ending] = Mailbox(actor.alarm)
        census.endings = self._endings

    def _body(self, actor: Actor) -> Generator[Alarm, None, None]:
        actor.waits_for = "the end of a request"
        coming = self._coming
        first = self._source.first()
        following = next(first, None)
        while True:
            self._react()
            now_ns = self._kernel.now_ns
            while following is not None and following[1].arrival_ns <= now_ns:
                client, request = following
                heappush(coming, (request.arrival_ns, client, request))
                following = next(first, None)
            while coming and coming[0][0] <= now_ns:
                self._send(*heappop(coming))
            times = [entry[0] for entry in coming[:1]]
            if following is not None:
                times.append(following[1].arrival_ns)
            if times:
                self._alarm.set_at(min(times))
            elif not self._open:
                self._census.close(foresight=False)
                return
            yield self._alarm.wait()

    def _send(self, arrival_ns: int, client: int, request: Request) -> None:
        index = self._census.arrived
        request = msgspec.structs.replace(request, index=index, arrival_ns=arrival_ns)
        self._open[index] = (client, request)
        self._census.arrived += 1
        self._router.put((index,), request)

    def _react(self) -> None:
        """Ask the source what comes after each request that has ended."""
        told = [(ending, *self._open.pop(ending.request)) for ending in self._endings.take()]
        told.sort(key=lambda each: (each[0].time_ns, each[1]))
        for ending, client, request in told:
            room = self._limits.max_model_len - request.input_tokens
            tokens = min(request.output_tokens, room) if ending.completed else 0
            ended = Ended(client=client, ended_ns=ending.time_ns, output_tokens=tokens, completed=ending.completed)
            reply = self._source.next(ended)
            if reply is not None:
                arrival_ns = max(reply.arrival_ns, self._kernel.now_ns + 1)
                if arrival_ns > SAFE_MAX_NS:
                    raise too_late(arrival_ns, f"client {client}")
                heappush(self._coming, (arrival_ns, client, reply))
