"""The product's engine on limits, requests and a linear price, without files: how tests play random cases."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec
from block_numbers import NumberedPool
from slow_blocks import SlowRequest

from isim.analyze.collect import Collector
from isim.assembly import Parts, System, wire
from isim.cost.linear import LinearCost
from isim.cost.memory import KvCapacity
from isim.kernel.kernel import Kernel
from isim.model.spec import Confidence
from isim.policy.vllm.group_pool import GroupPool
from isim.policy.vllm.pool import BlockPool
from isim.record.digest import log_digest
from isim.record.log import Log
from isim.record.records import REVISION, SCHEMA, AnyRecord, End, EngineLimits, Header, LinearCoefficients, RouterFacts
from isim.workload.feedback import Feedback
from isim.workload.request import Request

NO_CAPACITY = KvCapacity(
    num_blocks=0,
    usable_blocks=0,
    block_bytes=0,
    kv_bytes=0,
    source="override",
    confidence=Confidence.EXACT,
    derived_blocks=None,
    override_blocks=None,
    derivation=(),
)


class Played(msgspec.Struct, kw_only=True):
    records: list[AnyRecord]
    digest: str
    system: System

    def block_order(self) -> list[int]:
        """The free queue at the end, in the numbers of the real engine."""
        pool = self.system.engines[0].scheduler.ledger
        assert isinstance(pool, NumberedPool | GroupPool)
        return pool.order()


def play(
    limits: EngineLimits,
    requests: Iterator[Request] | Feedback,
    coefficients: LinearCoefficients,
    *,
    max_stretch: int | None = None,
    shuffle_seed: int | None = None,
    max_events: int = 1_000_000,
    foresight: bool = True,
    trace: bool = False,
    engines: int = 1,
    router: RouterFacts | None = None,
    timeout_ns: int | None = None,
    overhead_ns: int = 0,
    make_pool: type[BlockPool] = NumberedPool,
) -> Played:
    """Run to the end and keep every record. With `BlockPool` blocks have no numbers, as in the product."""
    records: list[AnyRecord] = []
    header = Header(
        time_ns=0,
        schema=SCHEMA,
        revision=REVISION,
        isim_version="test",
        scenario_digest="",
        seed=0,
        max_events=max_events,
        engines=engines,
        engine=limits,
        router=router,
        linear_cost=coefficients,
        request_overhead_ns=overhead_ns,
    )
    log = Log(header, [records.extend])
    kernel = Kernel(max_events=max_events, shuffle_seed=shuffle_seed, trace=trace)
    cost = LinearCost(coefficients)
    parts = Parts(
        capacity=NO_CAPACITY,
        limits=limits,
        cost=cost,
        engines=engines,
        router=router,
        client_timeout_ns=timeout_ns,
        request_overhead_ns=overhead_ns,
    )
    system = wire(
        parts, requests, log, kernel=kernel, max_stretch=max_stretch, make_pool=make_pool, foresight=foresight
    )
    kernel.run()
    census = system.census
    log.close(
        End(
            time_ns=kernel.now_ns,
            arrived=census.arrived,
            completed=census.completed,
            rejected=census.rejected,
            aborted=census.aborted,
            unfinished=census.present,
            steps=sum(engine.scheduler.steps for engine in system.engines),
        )
    )
    return Played(records=records, digest=log_digest(records), system=system)


def fewest_free(records: Sequence[AnyRecord]) -> int:
    """The fewest free blocks after any decision of one engine, as the analysis has it from a log."""
    collector = Collector()
    collector.read(records)
    return collector.engines[0].least_free_blocks


def as_requests(requests: Sequence[SlowRequest], quotable: Sequence[str] = ()) -> Iterator[Request]:
    """The slow engine's requests as the product's, whole prompts shareable."""
    for index, request in enumerate(requests):
        yield Request(
            index=index,
            id=request.id,
            arrival_ns=request.arrival_ns,
            input_tokens=request.prompt_tokens,
            output_tokens=request.output_tokens,
            priority=request.priority,
            prompt=tuple(request.prompt),
            quotable=request.id in quotable,
        )
