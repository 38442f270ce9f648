"""The router: takes what arrived at an instant, in order, refuses what the engine would, hands on the rest."""

from __future__ import annotations

from collections.abc import Generator, Sequence

from isim.kernel.actor import Actor
from isim.kernel.alarm import Alarm
from isim.kernel.clock import Rank
from isim.kernel.kernel import Kernel
from isim.kernel.mailbox import Mailbox
from isim.policy.vllm.refusal import refusal
from isim.record.log import Log
from isim.record.records import Arrive, EngineLimits, Reject
from isim.serve.census import Census
from isim.workload.request import Request


class Router:
    """Sends every request to the one engine there is."""

    def __init__(
        self, kernel: Kernel, limits: EngineLimits, engines: Sequence[Mailbox[Request]], log: Log, census: Census
    ) -> None:
        self._limits = limits
        self._engines = engines
        self._log = log
        self._arrive = log.lane(Arrive)
        self._reject = log.lane(Reject)
        self._census = census
        self._kernel = kernel
        self.mailbox: Mailbox[Request] = Mailbox(kernel.spawn("router", Rank.RELEASE, self._body).alarm)

    def _body(self, actor: Actor) -> Generator[Alarm, None, None]:
        actor.waits_for = "requests"
        while True:
            yield actor.alarm.wait()
            self._log.reach(self._kernel.now_ns)
            for request in self.mailbox.take():
                self._route(request)

    def _route(self, request: Request) -> None:
        now_ns = self._kernel.now_ns
        prompt = request.prompt
        self._arrive(
            Arrive(
                time_ns=now_ns,
                request=request.index,
                id=request.id,
                prompt_tokens=request.input_tokens,
                output_tokens=request.output_tokens,
                priority=request.priority,
                prompt=None if prompt is None else list(prompt),
                quotable=request.quotable,
            )
        )
        reason = refusal(self._limits, request.input_tokens, request.output_tokens)
        if reason is None:
            self._engines[0].put((request.index,), request)
            return
        self._reject(Reject(time_ns=now_ns, request=request.index, reason=reason))
        self._census.rejected += 1
        self._census.settle()
