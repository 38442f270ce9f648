"""The world outside: sends each request to the router at its time."""

from __future__ import annotations

from collections.abc import Generator, Iterator

from isim.kernel.actor import Actor
from isim.kernel.alarm import Alarm
from isim.kernel.clock import Rank
from isim.kernel.kernel import Kernel
from isim.kernel.mailbox import Mailbox
from isim.serve.census import Census
from isim.workload.request import Request


def send(
    kernel: Kernel, requests: Iterator[Request], router: Mailbox[Request], census: Census, foresight: bool = True
) -> Actor:
    """An actor that reads the stream no further than the next arrival. All of one instant are sent in one go.

    With `foresight` it promises that nobody comes before that; nothing may depend on whether it does.
    """

    def body(actor: Actor) -> Generator[Alarm, None, None]:
        actor.waits_for = "the next arrival"
        alarm = actor.alarm
        now_ns = kernel.now_ns
        for request in requests:
            if request.arrival_ns != now_ns:
                now_ns = request.arrival_ns
                if foresight:
                    census.expect_arrival(now_ns)
                alarm.set_at(now_ns)
                yield alarm.wait()
            census.arrived += 1
            router.put((request.index,), request)
        census.close(foresight)

    return kernel.spawn("arrivals", Rank.ARRIVAL, body)
