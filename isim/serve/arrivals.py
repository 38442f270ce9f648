"""The world outside: sends each request to the router at its time, or ahead of it where nobody can tell."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from itertools import islice

from isim.kernel.actor import Actor
from isim.kernel.alarm import Alarm
from isim.kernel.clock import SAFE_MAX_NS, Rank
from isim.kernel.kernel import Kernel
from isim.serve.census import Census
from isim.serve.router import Router
from isim.workload.request import Request

MOST_AHEAD = 128


def send(kernel: Kernel, requests: Iterator[Request], router: Router, census: Census, foresight: bool = True) -> Actor:
    """An actor that reads the stream some way ahead. All requests of one instant are sent in one go.

    With `foresight` it promises that nobody comes before the first that was not sent. A router that is blind to what
    engines do is then given many requests at once, before their time: all that come after those sent before have
    come. Nothing may depend on whether there is foresight.
    """
    ahead = foresight and router.blind

    def body(actor: Actor) -> Generator[Alarm, None, None]:
        actor.waits_for = "the next arrival"
        alarm = actor.alarm
        last_ns = 0
        for batch in _batches(requests, MOST_AHEAD if ahead else 1):
            first_ns = batch[0].arrival_ns
            if foresight:
                census.expect_arrival(first_ns)
            due_ns = last_ns if ahead else first_ns
            if due_ns > kernel.now_ns:
                alarm.set_at(due_ns)
                yield alarm.wait()
            census.arrived += len(batch)
            if ahead:
                last_ns = batch[-1].arrival_ns
                router.route_ahead(batch)
            else:
                for request in batch:
                    router.mailbox.put((request.index,), request)
        if last_ns > kernel.now_ns:
            census.expect_arrival(SAFE_MAX_NS)
            alarm.set_at(last_ns)
            yield alarm.wait()
        census.close(foresight)

    return kernel.spawn("arrivals", Rank.ARRIVAL, body)


def _batches(requests: Iterator[Request], most: int) -> Iterator[list[Request]]:
    """The requests in order, at most so many together, but all of one instant."""
    batch = list(islice(requests, most))
    while batch:
        last_ns, after = batch[-1].arrival_ns, next(requests, None)
        while after is not None and after.arrival_ns == last_ns:
            batch.append(after)
            after = next(requests, None)
        yield batch
        batch = [] if after is None else [after, *islice(requests, most - 1)]
