"""The router: takes what arrived at an instant, in order, picks an engine for each, and refuses what that would."""

from __future__ import annotations

from collections.abc import Generator, Sequence

from isim.draw.streams import Stream
from isim.kernel.actor import Actor
from isim.kernel.alarm import Alarm
from isim.kernel.clock import Rank
from isim.kernel.kernel import Kernel
from isim.kernel.mailbox import Mailbox
from isim.policy.prompt import shared_beginning
from isim.policy.routing import Routing
from isim.policy.vllm.refusal import refusal
from isim.record.log import Log
from isim.record.records import Arrive, EngineLimits, Reject, RouterFacts
from isim.serve.census import Census
from isim.serve.clients import Clients
from isim.serve.engine import Engine
from isim.workload.request import Request


class Router:
    """Sends every request to one of the engines. `facts` is None where there is only one."""

    def __init__(
        self, kernel: Kernel, limits: EngineLimits, engines: Sequence[Engine], log: Log, census: Census
    ) -> None:
        self._limits = limits
        self._engines = engines
        self._arrive = log.lane(Arrive)
        self._reject = log.lane(Reject)
        self._log = log
        self._census = census
        self._kernel = kernel
        self._routing: Routing | None = None
        self._ties: Stream | None = None
        self._counted = [0] * len(engines)
        self.clients: Clients | None = None
        """Who gives up after a while, if anybody does."""
        self.mailbox: Mailbox[Request] = Mailbox(kernel.spawn("router", Rank.RELEASE, self._body).alarm)

    def choose_by(self, facts: RouterFacts, seed: int) -> None:
        """Route by these rules; before anything arrives."""
        self._routing = Routing(facts, len(self._engines))
        self._ties = Stream(seed, "router")

    @property
    def blind(self) -> bool:
        """Whether a request goes the same way whatever the engines do until it comes."""
        return self.clients is None and (self._routing is None or self._routing.blind)

    def route_ahead(self, requests: Sequence[Request]) -> None:
        """Route requests before their time, in order of arrival; they come after all that were routed before."""
        coming: list[list[Request]] = [[] for _ in self._engines]
        for request in requests:
            number = self._route(request)
            if number is not None:
                coming[number].append(request)
        for engine, its in zip(self._engines, coming, strict=True):
            if its:
                engine.foresee(its)

    def _body(self, actor: Actor) -> Generator[Alarm, None, None]:
        actor.waits_for = "requests"
        while True:
            yield actor.alarm.wait()
            self._log.reach(self._kernel.now_ns)
            if self._routing is not None:
                self._count(self._routing)
            for request in self.mailbox.take():
                number = self._route(request)
                if number is not None:
                    self._engines[number].mailbox.put((0, request.index), request)
                    if self.clients is not None:
                        self.clients.sent(request.index, number)

    def _count(self, routing: Routing) -> None:
        """Take note of who left. An engine ahead of the clock is not ahead of any arrival, so all of it is past."""
        for number, engine in enumerate(self._engines):
            left = engine.left
            routing.left(number, left - self._counted[number])
            self._counted[number] = left

    def _route(self, request: Request) -> int | None:
        """The engine that a request goes to at its arrival, None when that refuses it."""
        time_ns = request.arrival_ns
        prompt, routing = request.prompt, self._routing
        engine, beginning = 0, None
        if routing is not None and self._ties is not None:
            beginning = shared_beginning(prompt, request.id)
            engine = routing.choose(request.index, beginning, self._ties.bits(request.index))
        self._arrive(
            Arrive(
                time_ns=time_ns,
                request=request.index,
                id=request.id,
                engine=engine,
                prompt_tokens=request.input_tokens,
                output_tokens=request.output_tokens,
                priority=request.priority,
                prompt=None if prompt is None else list(prompt),
                quotable=request.quotable,
            )
        )
        reason = refusal(self._limits, request.input_tokens, request.output_tokens)
        if reason is None:
            if routing is not None:
                routing.sent(engine, beginning)
            return engine
        self._reject(Reject(time_ns=time_ns, request=request.index, engine=engine, reason=reason))
        self._census.rejected += 1
        self._census.tell(request.index, time_ns, completed=False)
        self._census.settle()
        return None
