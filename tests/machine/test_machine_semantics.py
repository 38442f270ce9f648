"""One promise of the executor at a time, on plans small enough to work out by hand."""

from __future__ import annotations

import msgspec
import pytest
from executions import records_of
from random_machines import PROVENANCE, Dice, random_scenario

import isim.scenario.topology.types as t
from isim.analyze.execution import ExecutionCollector
from isim.machine.closed_form import ClosedForm
from isim.machine.moment import SAFE_MAX_NS, TimeOverflow
from isim.machine.program import program_of
from isim.machine.requests import EventBudget, ExecutionRequest, RequestError
from isim.machine.resources import Resources, resources_of
from isim.plan.types import Collective, CollectiveAlgorithm, Compute, FrozenPlan, PlanStep, Transfer
from isim.record.errors import CausalityError
from isim.record.execution import AnyExecutionRecord, Submit
from isim.record.execution_log import ExecutionLog
from isim.replay.execution import ExecutionReplay
from isim.topology.index import Topology


def machine(lanes: int = 1, max_events: int = 1000) -> Resources:
    """Devices `a`, `b`, `c` of so many lanes; links `ab`, `ac` share the NIC `n`, `cd` is apart; a group of all."""
    return resources_of(Topology(_scenario(lanes, max_events)))


def _scenario(lanes: int, max_events: int) -> t.TopologyScenario:
    """Not valid as a whole, but all that an executor looks at."""
    base = random_scenario(Dice(0, "base"))
    device = base.devices[0]
    link = base.links[0]
    network = t.NetworkResource(
        id="n",
        kind=t.ResourceKind.NIC,
        bandwidth_bytes_per_sec=1,
        latency_ns=0,
        concurrency_lanes=1,
        supported_transports=(),
        direct_memory_domain_ids=(),
        provenance=PROVENANCE,
    )
    return t.TopologyScenario(
        schema_version=5,
        id="by hand",
        family=t.Family.CUSTOM,
        memory_domains=(),
        devices=tuple(msgspec.structs.replace(device, id=name, max_concurrent_compute=lanes) for name in "abc"),
        network_resources=(network,),
        links=(
            msgspec.structs.replace(link, id="ab", concurrency_lanes=2, network_resource_ids=("n",)),
            msgspec.structs.replace(link, id="ac", concurrency_lanes=1, network_resource_ids=("n",)),
            msgspec.structs.replace(link, id="cd", concurrency_lanes=1),
        ),
        placements=(),
        transfers=(),
        groups=(t.Group(id="g", ordered_ranks=tuple(t.Rank(rank_id=f"r{name}", device_id=name) for name in "abc")),),
        workload=base.workload,
        execution=msgspec.structs.replace(base.execution, topology_epoch=0, max_events=max_events),
        calibration=base.calibration,
    )


def work(step: int, device: str, duration_ns: int, *after: int, reads: str = "", writes: str = "") -> PlanStep:
    """Compute on a device; `reads` and `writes` are names of one letter."""
    operation = Compute(device_id=device, capability=t.Capability.FFN, duration_ns=duration_ns)
    return PlanStep(
        id=step,
        participants=(f"r{device}",),
        dependencies=after,
        reads=tuple(reads),
        writes=tuple(writes),
        operation=operation,
    )


def copy(step: int, link: str, duration_ns: int, *after: int, reads: str = "x", writes: str = "y") -> PlanStep:
    operation = Transfer(link_id=link, duration_ns=duration_ns)
    return PlanStep(
        id=step, participants=("ra",), dependencies=after, reads=tuple(reads), writes=tuple(writes), operation=operation
    )


def reduce(step: int, sequence: int, duration_ns: int, *after: int, links: tuple[str, ...] = ()) -> PlanStep:
    operation = Collective(
        group_id="g",
        comm_sequence_id=sequence,
        algorithm=CollectiveAlgorithm.ALL_REDUCE_RING,
        link_ids=links,
        duration_ns=duration_ns,
    )
    return PlanStep(
        id=step, participants=("ra", "rb", "rc"), dependencies=after, reads=(), writes=(), operation=operation
    )


def plan(*steps: PlanStep) -> FrozenPlan:
    return FrozenPlan(contract_revision=5, id="p", execution_id="e", topology_epoch=0, steps=steps)


def request(where: Resources, steps: FrozenPlan, name: str = "e", arrival_ns: int = 0, **held: int) -> ExecutionRequest:
    """`held`: s3=40 keeps step 3 back until 40 ns."""
    not_before = tuple((int(step[1:]), time_ns) for step, time_ns in held.items())
    program = program_of(steps, where)
    return ExecutionRequest(program=program, execution=name, arrival_ns=arrival_ns, not_before=not_before)


def times(where: Resources, *requests: ExecutionRequest) -> dict[tuple[str, int], tuple[int, int, int]]:
    """(submitted, start, finish) of each step of each execution; the processes come to the same."""
    records = records_of(where, list(requests))
    assert records_of(where, list(requests), processes=True, shuffle_seed=5) == records
    collector = ExecutionCollector()
    collector.read(records)
    return {
        (it.execution, it.step.id): (it.submitted_ns, it.start_ns or 0, it.finish_ns or 0)
        for it in collector.operations
    }


def lanes(records: list[AnyExecutionRecord]) -> dict[int, tuple[tuple[str, int], ...]]:
    return {record.step: record.lanes for record in records if isinstance(record, Submit)}


# ---- lanes


def test_steps_on_one_lane_follow_one_another_and_others_overlap() -> None:
    where = machine()
    found = times(where, request(where, plan(work(0, "a", 5), work(1, "a", 5), work(2, "b", 7))))
    assert found == {("e", 0): (0, 0, 5), ("e", 1): (0, 5, 10), ("e", 2): (0, 0, 7)}


def test_a_waiting_step_reserves_all_its_lanes_and_nobody_fills_in() -> None:
    """1 needs ac and the NIC, which 0 holds to 10. The lane of ac is idle until then, and 2 still comes after 1."""
    where = machine()
    found = times(
        where,
        request(where, plan(copy(0, "ab", 10, reads="p", writes="q"), copy(1, "ac", 3), copy(2, "ac", 4, writes="z"))),
    )
    assert found[("e", 1)] == (0, 10, 13)
    assert found[("e", 2)] == (0, 13, 17)


def test_links_that_share_a_nic_contend_on_it_and_others_do_not() -> None:
    where = machine()
    steps = plan(copy(0, "ab", 10, writes="q"), copy(1, "ac", 3, writes="r"), copy(2, "cd", 4, writes="s"))
    found = times(where, request(where, steps))
    assert [found[("e", step)] for step in range(3)] == [(0, 0, 10), (0, 10, 13), (0, 0, 4)]


def test_the_lane_that_is_free_first_is_taken_the_lowest_of_equals() -> None:
    """At 4, lane 1 was free since 2 and lane 0 since 3; later lane 0 is again the first of equals."""
    where = machine(lanes=2)
    steps = plan(
        work(0, "a", 3), work(1, "a", 2), work(2, "b", 4), work(3, "a", 6, 2), work(4, "a", 7, 2), work(5, "a", 1, 3, 4)
    )
    records = records_of(where, [request(where, steps)])
    found = {step: dict(held)["compute:a"] for step, held in lanes(records).items() if step != 2}
    assert found == {0: 0, 1: 1, 3: 1, 4: 0, 5: 1}


def test_lanes_cost_nothing_until_they_are_used() -> None:
    where = machine(lanes=10**12)
    found = times(where, request(where, plan(*(work(step, "a", 5) for step in range(4)))))
    assert {it[1] for it in found.values()} == {0}


def test_ready_steps_go_by_their_place_in_the_plan_not_by_their_ids() -> None:
    where = machine()
    found = times(where, request(where, plan(work(9, "a", 5), work(1, "a", 5))))
    assert found[("e", 9)][1] < found[("e", 1)][1]


def test_a_collective_holds_all_links_and_network_resources_of_its_phases() -> None:
    where = machine()
    steps = plan(reduce(0, 0, 10, links=("ab", "cd")), copy(1, "cd", 2), copy(2, "ac", 2, writes="z"), work(3, "a", 1))
    found = times(where, request(where, steps))
    assert [found[("e", step)][1] for step in range(4)] == [0, 10, 10, 0]


# ---- leases


def test_readers_share_and_a_writer_is_alone() -> None:
    where = machine()
    first = request(where, plan(work(0, "a", 5, reads="k")), "first")
    second = request(where, plan(work(0, "b", 3, reads="k")), "second")
    third = request(where, plan(work(0, "c", 4, writes="k")), "third")
    found = times(where, first, second, third)
    assert [found[(name, 0)] for name in ("first", "second", "third")] == [(0, 0, 5), (0, 0, 3), (0, 5, 9)]


def test_a_lease_may_be_taken_before_a_later_one_if_it_is_given_back_by_then() -> None:
    """The second booked k from 20 to 25, when its lane is free. The third fits before it, the fourth does not."""
    where = machine()
    first = request(where, plan(work(0, "a", 20)), "first")
    second = request(where, plan(work(0, "a", 5, writes="k")), "second")
    third = request(where, plan(work(0, "b", 20, writes="k")), "third")
    fourth = request(where, plan(work(0, "c", 1, writes="k")), "fourth")
    found = times(where, first, second, third, fourth)
    assert [found[(name, 0)] for name in ("second", "third", "fourth")] == [(0, 20, 25), (0, 0, 20), (0, 25, 26)]


def test_a_step_of_no_time_still_excludes_others() -> None:
    """All at 0 ns, one after the other, and what takes time after what takes none."""
    where = machine()
    requests = [request(where, plan(work(0, name, 0, writes="k")), f"on {name}") for name in "ab"]
    last = request(where, plan(work(0, "c", 3, writes="k"), work(1, "a", 2, 0)), "last")
    found = times(where, *requests, last)
    assert [found[key] for key in found] == [(0, 0, 0), (0, 0, 0), (0, 0, 3), (3, 3, 5)]


# ---- admission


def test_completions_come_before_admissions_and_admissions_before_selection() -> None:
    """At 5 the first execution's second step and the second execution are ready: the first was admitted first."""
    where = machine()
    first = request(where, plan(work(0, "a", 5), work(1, "b", 4, 0)), "first")
    second = request(where, plan(work(0, "b", 4)), "second", 5)
    found = times(where, first, second)
    assert (found[("first", 1)], found[("second", 0)]) == ((5, 5, 9), (5, 9, 13))


def test_a_time_to_wait_for_is_no_reservation() -> None:
    """Until 6 the device is free for others, and whoever holds it then is not disturbed."""
    where = machine()
    first = request(where, plan(work(0, "a", 2)), "first", s0=6)
    second = request(where, plan(work(0, "a", 8)), "second")
    found = times(where, first, second)
    assert (found[("first", 0)], found[("second", 0)]) == ((6, 8, 10), (0, 0, 8))


def test_a_release_waits_for_the_dependencies_too() -> None:
    where = machine()
    found = times(where, request(where, plan(work(0, "a", 9), work(1, "b", 1, 0)), s1=4))
    assert found[("e", 1)] == (9, 9, 10)


def test_a_communicator_serves_one_execution_after_the_other() -> None:
    """Groups wait for the execution admitted first, whole plans at a time; nothing is held meanwhile."""
    where = machine()
    steps = plan(work(0, "a", 5), reduce(1, 0, 2, 0), work(2, "a", 5, 1), reduce(3, 1, 2, 2))
    found = times(where, request(where, steps, "first"), request(where, steps, "second"))
    assert found[("first", 3)] == (15, 15, 17)
    assert found[("second", 0)] == (0, 5, 10)
    assert found[("second", 1)] == (15, 17, 19)


def test_it_streams() -> None:
    """Executions may be admitted while it runs, but not into the past; the log is that of all at once."""
    where = machine()
    steps = plan(work(0, "a", 5), work(1, "a", 5, 0))
    both = [request(where, steps, "first"), request(where, steps, "second", 7)]
    told: list[AnyExecutionRecord] = []
    log = ExecutionLog(where.header, [told.extend])
    run = ClosedForm(where, log)
    run.admit(both[0])
    run.advance(7)
    assert run.now_ns == 5
    run.admit(both[1])
    run.advance(11)
    with pytest.raises(CausalityError, match="admission at 9 ns"):
        run.admit(request(where, steps, "third", 9))
    run.drain()
    expected = records_of(where, both)
    log.close(expected[-1])  # type: ignore[arg-type]
    assert told == expected


def test_nothing_asked_for_is_a_log_of_two_records() -> None:
    where = machine()
    told = records_of(where, [])
    assert [type(record).__name__ for record in told] == ["Machine", "ExecutionEnd"]
    assert records_of(where, [], processes=True) == told
    replay = ExecutionReplay()
    replay.read(told)
    assert replay.finish().executions == 0


# ---- refusals


def test_too_many_events_are_refused_before_anything_runs() -> None:
    where = machine(max_events=8)
    steps = plan(work(0, "a", 5), work(1, "a", 5))
    records_of(where, [request(where, steps, "first"), request(where, steps, "second")])
    with pytest.raises(EventBudget, match=r"need 9 events.*maxEvents = 8") as refused:
        records_of(where, [request(where, steps, "first"), request(where, steps, "second", s1=3)])
    assert refused.value.exit_code == 2


def test_requests_that_cannot_be_admitted_are_refused() -> None:
    where = machine()
    steps = plan(work(0, "a", 5))
    for message, requests in (
        ("new execution id", [request(where, steps), request(where, steps)]),
        ("arrival from 3 to", [request(where, steps, "first", 3), request(where, steps, "second", 2)]),
        ("id of a step", [request(where, steps, s4=1)]),
        ("not-before time from 0", [request(where, steps, s0=-1)]),
    ):
        with pytest.raises(RequestError, match=message) as refused:
            records_of(where, requests)
        assert refused.value.exit_code == 2
    with pytest.raises(RequestError, match="one not-before time"):
        program = program_of(steps, where)
        records_of(where, [ExecutionRequest(program=program, execution="e", not_before=((0, 1), (0, 2)))])


def test_time_does_not_go_beyond_the_last_nanosecond() -> None:
    where = machine()
    records_of(where, [request(where, plan(work(0, "a", SAFE_MAX_NS)))])
    with pytest.raises(TimeOverflow, match="beyond 2\\^53 - 1") as refused:
        records_of(where, [request(where, plan(work(0, "a", SAFE_MAX_NS), work(1, "a", 1)))])
    assert refused.value.exit_code == 2
