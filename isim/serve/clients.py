"""The clients' patience: whoever has no answer in time gives up, and the engine is told.

A client gives up at a set time after its request was sent. The engine takes the cancellation in where it takes in
arrivals: at its next moment of decision, after the output that has come by then; a request that this output finishes
is not cancelled any more. Between client and engine nobody looks who is still there: a request whose client gave up
before it arrived still arrives, and its engine lets go of it where it takes it in.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Sequence

from isim.kernel.actor import Actor
from isim.kernel.alarm import Alarm
from isim.kernel.clock import SAFE_MAX_NS, Rank
from isim.kernel.kernel import Kernel
from isim.serve.census import Census
from isim.serve.engine import Engine
from isim.serve.message import Cancel


class Clients:
    """One actor for all of them: patience is the same for all, so they give up in the order in which they sent.

    `patience_ns` is what is left of it when a request arrives; 0 or less: its client has given up by then.
    """

    def __init__(self, kernel: Kernel, engines: Sequence[Engine], census: Census, patience_ns: int) -> None:
        self._kernel = kernel
        self._engines = engines
        self._census = census
        self._patience_ns = patience_ns
        self._patient: deque[tuple[int, int, int]] = deque()
        """(when it gives up, request, engine)"""
        self._alarm = kernel.spawn("clients", Rank.RELEASE, self._body).alarm

    def sent(self, request: int, engine: int) -> None:
        """A request went to an engine now."""
        if self._patience_ns <= 0:
            self._engines[engine].mailbox.put((1, request), Cancel(request))
            return
        gives_up_ns = min(self._kernel.now_ns + self._patience_ns, SAFE_MAX_NS)
        self._patient.append((gives_up_ns, request, engine))
        if len(self._patient) == 1:
            self._wait(gives_up_ns)

    def _wait(self, gives_up_ns: int) -> None:
        self._census.expect_patience(gives_up_ns)
        self._alarm.set_at(gives_up_ns)

    def _body(self, actor: Actor) -> Generator[Alarm, None, None]:
        actor.waits_for = "the first client to give up"
        patient, engines = self._patient, self._engines
        while True:
            yield self._alarm.wait()
            now_ns = self._kernel.now_ns
            while patient and (patient[0][0] <= now_ns or not engines[patient[0][2]].has(patient[0][1])):
                _, request, engine = patient.popleft()
                if engines[engine].has(request):
                    engines[engine].mailbox.put((1, request), Cancel(request))
            if patient:
                self._wait(patient[0][0])
            else:
                self._census.expect_patience(SAFE_MAX_NS)
