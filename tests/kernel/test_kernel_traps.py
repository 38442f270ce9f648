"""Each trap of SimPy 4.1.2, first sprung in raw SimPy, then shown to be absent from the kernel."""

from __future__ import annotations

import warnings
from collections.abc import Generator
from contextlib import suppress
from random import Random
from typing import Any

import numpy
import pytest
import simpy
from simpy.events import Event

from isim.kernel import Actor, Alarm, Arbiter, Kernel, Mailbox, Rank
from isim.record.errors import CausalityError

Steps = Generator[Event, Any, None]


class KeywordOnlyError(Exception):
    def __init__(self, *, where: str) -> None:
        super().__init__(f"broken at {where}")
        self.where = where


def test_raw_an_interrupted_timeout_drags_the_clock_to_it() -> None:
    env = simpy.Environment()

    def sleeper() -> Steps:
        with suppress(simpy.Interrupt):
            yield env.timeout(1000)

    def waker(process: simpy.Process) -> Steps:
        yield env.timeout(1)
        process.interrupt()

    env.process(waker(env.process(sleeper())))
    env.run()
    assert env.now == 1000


def test_ours_a_disturbed_sleeper_leaves_the_clock_alone() -> None:
    kernel = Kernel()

    def sleeper(actor: Actor) -> Generator[Alarm, None, None]:
        actor.alarm.set_at(1000)
        yield actor.alarm.wait()
        assert kernel.now_ns == 1
        actor.alarm.clear()

    alarm = kernel.spawn("sleeper", Rank.ENGINE, sleeper).alarm
    kernel.call_at(1, Rank.ARRIVAL, alarm.fire)
    kernel.run()
    assert kernel.now_ns == 1


def test_raw_an_interrupt_loses_the_item_of_a_triggered_get() -> None:
    env = simpy.Environment()
    store = simpy.Store(env)
    got: list[object] = []

    def getter() -> Steps:
        with store.get() as request, suppress(simpy.Interrupt):
            got.append((yield request))

    def both(process: simpy.Process) -> Steps:
        yield env.timeout(1)
        yield store.put("letter")
        process.interrupt()

    env.process(both(env.process(getter())))
    env.run()
    assert got == [] and store.items == []


def test_ours_a_disturbance_loses_no_item() -> None:
    kernel = Kernel()
    got: list[str] = []

    def getter(actor: Actor) -> Generator[Alarm, None, None]:
        yield actor.alarm.wait()
        got.extend(disturbances.take())

    actor = kernel.spawn("getter", Rank.ENGINE, getter)
    letters: Mailbox[str] = Mailbox(actor.alarm)
    disturbances: Mailbox[str] = Mailbox(actor.alarm)
    kernel.call_at(1, Rank.ARRIVAL, lambda: letters.put((0,), "letter"))
    kernel.call_at(1, Rank.ARRIVAL, lambda: disturbances.put((0,), "disturbance"))
    kernel.run()
    assert got == ["disturbance"] and letters.take() == ["letter"]


def test_raw_a_forgotten_request_blocks_its_resource_for_good() -> None:
    env = simpy.Environment()
    resource = simpy.Resource(env)
    served: list[str] = []

    def holder() -> Steps:
        with resource.request() as request:
            yield request
            yield env.timeout(10)

    def forgets() -> Steps:
        try:
            yield resource.request()
        except simpy.Interrupt:
            return

    def last() -> Steps:
        yield env.timeout(5)
        with resource.request() as request:
            yield request
            served.append("last")

    def disturbs(process: simpy.Process) -> Steps:
        yield env.timeout(1)
        process.interrupt()

    env.process(holder())
    env.process(disturbs(env.process(forgets())))
    env.process(last())
    env.run()
    assert served == [] and resource.count == 1


def test_ours_a_lease_whose_owner_left_ends_by_itself() -> None:
    kernel = Kernel()
    link = Arbiter(kernel, "link")
    served: list[int | None] = []

    def leaves(actor: Actor) -> Generator[Alarm, None, None]:
        link.submit((0,), 10, actor.alarm)
        link.submit((1,), 7, actor.alarm)
        actor.alarm.set_at(1)
        yield actor.alarm.wait()

    def last(actor: Actor) -> Generator[Alarm, None, None]:
        lease = link.submit((2,), 3, actor.alarm)
        while not lease.ended:
            yield actor.alarm.wait()
        served.append(lease.start_ns)

    kernel.spawn("leaves", Rank.ENGINE, leaves)
    kernel.spawn("last", Rank.ENGINE, last)
    kernel.run()
    assert served == [17] and kernel.now_ns == 20 and link.free_lanes == 1


def test_raw_a_priority_store_is_not_first_in_first_out_on_ties() -> None:
    env = simpy.Environment()
    store = simpy.PriorityStore(env)
    got: list[object] = []

    def getter() -> Steps:
        yield env.timeout(1)
        for _ in range(4):
            got.append((yield store.get()).item)

    for name in "abcd":
        store.put(simpy.PriorityItem(0, name))
    env.process(getter())
    env.run()
    assert got != ["a", "b", "c", "d"]


def test_ours_items_of_one_key_stay_in_order() -> None:
    kernel = Kernel()

    def body(actor: Actor) -> Generator[Alarm, None, None]:
        yield actor.alarm.wait()

    box: Mailbox[str] = Mailbox(kernel.spawn("a", Rank.ENGINE, body).alarm)
    for name in "abcdefgh":
        box.put((0,), name)
    assert "".join(box.take()) == "abcdefgh"


def test_raw_preempting_a_dead_holder_raises() -> None:
    env = simpy.Environment()
    resource = simpy.PreemptiveResource(env)

    def dies() -> Steps:
        yield resource.request(priority=1)

    def preempts() -> Steps:
        yield env.timeout(1)
        yield resource.request(priority=0)

    env.process(dies())
    env.process(preempts())
    with pytest.raises(RuntimeError, match="terminated"):
        env.run()


def test_ours_the_lease_of_a_dead_holder_can_be_cut_short() -> None:
    kernel = Kernel()
    link = Arbiter(kernel, "link")

    def dies(actor: Actor) -> Generator[Alarm, None, None]:
        actor.alarm.set_at(1)
        yield actor.alarm.wait()

    lease = link.submit((0,), 100, kernel.spawn("dies", Rank.ENGINE, dies).alarm)
    kernel.call_at(5, Rank.FAULT, lambda: lease.shorten(5))
    kernel.run()
    assert lease.ended and lease.end_ns == 5 and kernel.now_ns == 5


def test_raw_an_exception_with_keyword_only_arguments_becomes_a_type_error() -> None:
    env = simpy.Environment()

    def breaks() -> Steps:
        yield env.timeout(1)
        raise KeywordOnlyError(where="the wheel")

    env.process(breaks())
    with pytest.raises(TypeError):
        env.run()


def test_ours_an_exception_comes_out_as_it_is() -> None:
    kernel = Kernel()
    error = KeywordOnlyError(where="the wheel")

    def breaks(actor: Actor) -> Generator[Alarm, None, None]:
        actor.alarm.set_at(1)
        yield actor.alarm.wait()
        raise error

    kernel.spawn("breaks", Rank.ENGINE, breaks)
    with pytest.raises(KeywordOnlyError) as caught:
        kernel.run()
    assert caught.value is error and error.__cause__ is None and error.__context__ is None
    assert any(entry.name == "breaks" for entry in caught.traceback), "the line that broke is in the traceback"


def test_raw_one_float_makes_a_float_clock_and_numpy_overflows() -> None:
    env = simpy.Environment()

    def floats() -> Steps:
        yield env.timeout(0.5)
        yield env.timeout(2**53)

    env.process(floats())
    env.run()
    assert env.now == 2**53, "half a nanosecond is gone, and the clock is a float for good"
    assert isinstance(env.now, float)
    env = simpy.Environment()

    def overflows() -> Steps:
        half: Any = numpy.int64(2**62)
        yield env.timeout(half)
        yield env.timeout(half)

    env.process(overflows())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        env.run()
    assert env.now < 0


def test_ours_an_actor_may_wait_for_nothing_but_its_alarm() -> None:
    kernel = Kernel()

    def sneaks(actor: Actor) -> Generator[Any, None, None]:
        yield actor.alarm.env.timeout(3.5)

    kernel.spawn("sneaks", Rank.ENGINE, sneaks)
    with pytest.raises(CausalityError, match="alarm only"):
        kernel.run()


def test_ours_an_event_of_simpy_is_refused_with_all_that_simpy_would_have_scheduled() -> None:
    """At normal priority, which is 1, and at once, if nothing else is said."""
    kernel = Kernel()
    event: list[Event] = []

    def sneaks(actor: Actor) -> Generator[Alarm, None, None]:
        event.append(actor.alarm.env.event())
        event[0].succeed()
        yield actor.alarm.wait()

    kernel.spawn("sneaks", Rank.ENGINE, sneaks)
    with pytest.raises(CausalityError) as caught:
        kernel.run()
    assert str(caught.value) == (
        f"actors wait for their alarm only, found SimPy's {event[0]!r} (priority {simpy.events.NORMAL}, delay 0)"
    )


GRID_NS = 10
DEVICES = 50
LINKS = 3
ROUNDS = 4


def _plan() -> list[list[tuple[int, int, int]]]:
    """(think, link, hold) of every device and round, on a coarse grid so that nearly everything ties."""
    draw = Random(1)
    return [
        [(draw.randrange(3) * GRID_NS, draw.randrange(LINKS), draw.randrange(1, 3) * GRID_NS) for _ in range(ROUNDS)]
        for _ in range(DEVICES)
    ]


def _raw_outcome(seed: int, *, keyed: bool) -> tuple[tuple[int, int], ...]:
    env = simpy.Environment()
    links = [simpy.PriorityResource(env) if keyed else simpy.Resource(env) for _ in range(LINKS)]
    grants: list[tuple[int, int]] = []

    def device(number: int, steps: list[tuple[int, int, int]]) -> Steps:
        for think, link, hold in steps:
            yield env.timeout(think)
            resource = links[link]
            request = (
                resource.request(priority=number)
                if isinstance(resource, simpy.PriorityResource)
                else resource.request()
            )
            with request:
                yield request
                grants.append((number, int(env.now)))
                yield env.timeout(hold)

    started = list(enumerate(_plan()))
    Random(seed).shuffle(started)
    for number, steps in started:
        env.process(device(number, steps))
    env.run()
    return tuple(sorted(grants))


def _our_outcome(seed: int) -> tuple[tuple[int, int], ...]:
    kernel = Kernel(shuffle_seed=seed)
    links = [Arbiter(kernel, f"link {number}") for number in range(LINKS)]
    grants: list[tuple[int, int]] = []

    def spawn(number: int, steps: list[tuple[int, int, int]]) -> None:
        def body(actor: Actor) -> Generator[Alarm, None, None]:
            for count, (think, link, hold) in enumerate(steps):
                due_ns = kernel.now_ns + think
                while kernel.now_ns < due_ns:
                    actor.alarm.set_at(due_ns)
                    yield actor.alarm.wait()
                lease = links[link].submit((kernel.now_ns, number, count), hold, actor.alarm)
                while not lease.ended:
                    yield actor.alarm.wait()
                assert lease.start_ns is not None
                grants.append((number, lease.start_ns))

        kernel.spawn(f"device {number}", Rank.ENGINE, body)

    started = list(enumerate(_plan()))
    Random(seed).shuffle(started)
    for number, steps in started:
        spawn(number, steps)
    kernel.run()
    return tuple(sorted(grants))


def test_contention_at_dense_ties_has_many_outcomes_in_simpy_and_one_in_ours() -> None:
    assert len({_raw_outcome(seed, keyed=False) for seed in range(20)}) > 5
    assert len({_raw_outcome(seed, keyed=True) for seed in range(20)}) > 5
    assert len({_our_outcome(seed) for seed in range(20)}) == 1
