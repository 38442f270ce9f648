"""The clock, the order of an instant, calls and their ids, the budget, and the ways a run ends."""

from __future__ import annotations

from collections.abc import Generator
from functools import partial
from itertools import islice
from typing import Any

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isim.kernel import SAFE_MAX_NS, Actor, Alarm, Arbiter, Body, BudgetExceeded, DeadlockError, Kernel, Rank
from isim.kernel.ties import mix64, ties
from isim.kernel.trace import Trace
from isim.record.errors import CausalityError, IsimError

SHUFFLES = [None, *range(20)]


def nothing() -> None:
    pass


@pytest.mark.parametrize(
    ("value", "named"),
    [
        (1.0, "1.0 (builtins.float)"),
        (2.5, "2.5 (builtins.float)"),
        (float("nan"), "nan (builtins.float)"),
        (True, "True (builtins.bool)"),
        (numpy.int64(7), "(numpy.int64)"),
        (numpy.int32(7), "(numpy.int32)"),
        (numpy.float64(7), "(numpy.float64)"),
        ("7", "'7' (builtins.str)"),
        (None, "None (builtins.NoneType)"),
        (-1, "never negative, found -1 ns"),
        (2**53, "found 9007199254740992 ns"),
        (4, "at or after the present, 5 ns, found 4 ns"),
    ],
)
def test_the_clock_refuses_and_names_what_is_no_time(value: Any, named: str) -> None:
    kernel = Kernel()
    kernel.call_at(5, Rank.REPORT, nothing)
    kernel.run()
    alarm = kernel.spawn("a", Rank.ENGINE, idle).alarm
    for attempt in (
        lambda: kernel.call_at(value, Rank.REPORT, nothing),
        lambda: alarm.set_at(value),
    ):
        with pytest.raises(CausalityError) as caught:
            attempt()
        assert named in str(caught.value)
    assert type(kernel.now_ns) is int and kernel.now_ns == 5


@pytest.mark.parametrize("value", [1.0, True, numpy.int64(3), -1, 2**53])
def test_durations_are_held_to_the_same_rule(value: Any) -> None:
    kernel = Kernel()
    arbiter = Arbiter(kernel, "gpu")
    alarm = kernel.spawn("a", Rank.ENGINE, idle).alarm
    with pytest.raises(CausalityError, match="hold of a lease"):
        arbiter.submit((0,), value, alarm)
    with pytest.raises(CausalityError, match="wake-up of a lease"):
        arbiter.submit((0,), 9, alarm, value)


def test_the_last_nanosecond_can_be_reached_and_not_passed() -> None:
    kernel = Kernel()
    kernel.call_at(SAFE_MAX_NS, Rank.REPORT, nothing)
    kernel.run()
    assert kernel.now_ns == 2**53 - 1
    Arbiter(kernel, "gpu").submit((0,), 1, kernel.spawn("a", Rank.ENGINE, idle).alarm)
    with pytest.raises(CausalityError, match="beyond 2\\^53 - 1"):
        kernel.run()


def idle(actor: Actor) -> Generator[Alarm, None, None]:
    while True:
        yield actor.alarm.wait()


@pytest.mark.parametrize("shuffle_seed", SHUFFLES)
def test_an_instant_is_ordered_by_rank_and_key_whatever_the_shuffle(shuffle_seed: int | None) -> None:
    kernel = Kernel(shuffle_seed=shuffle_seed)
    seen: list[tuple[int, Rank, int]] = []
    places = [(time_ns, rank, key) for key in (2, 0, 1) for rank in reversed(Rank) for time_ns in (7, 0)]
    for time_ns, rank, key in places:
        kernel.call_at(time_ns, rank, partial(seen.append, (time_ns, rank, key)), key=(key,))
    kernel.run()
    assert seen == sorted(places)


def test_the_shuffle_does_reorder_equals_and_repeats_itself() -> None:
    def order(shuffle_seed: int | None) -> tuple[int, ...]:
        kernel = Kernel(shuffle_seed=shuffle_seed)
        seen: list[int] = []
        for number in range(8):
            kernel.call_at(3, Rank.ARRIVAL, partial(seen.append, number))
        kernel.run()
        return tuple(seen)

    assert order(None) == tuple(range(8))
    orders = [order(seed) for seed in range(20)]
    assert len({*orders}) == 20
    assert orders == [order(seed) for seed in range(20)]


def test_shuffled_entries_are_scattered_by_splitmix64_and_never_equal() -> None:
    """The first outputs of the published generator seeded with 1234567, which are the finaliser of its states."""
    states = [1234567 + place * 0x9E3779B97F4A7C15 for place in (1, 2, 3, 4, 5)]
    assert [mix64(state) for state in states] == [
        6457827717110365317,
        3203168211198807973,
        9817491932198370423,
        4593380528125082431,
        16408922859458223821,
    ]
    assert len({*islice(ties(5), 20_000)}) == 20_000


def test_the_trace_keeps_the_last_ten_thousand_choices_and_says_how_many_it_dropped() -> None:
    trace = Trace(1, None)
    for time_ns in range(10_000):
        trace.add(time_ns, "a before b")
    assert trace.lines() == ["seed 1, shuffle seed None", *(f"{time_ns} ns: a before b" for time_ns in range(10_000))]
    for time_ns in range(10_000, 10_003):
        trace.add(time_ns, "a before b")
    assert trace.lines()[1:3] == ["(3 earlier choices dropped)", "3 ns: a before b"]
    assert len(trace.lines()) == 10_002


@settings(derandomize=True, deadline=None, max_examples=150)
@given(
    st.lists(st.tuples(st.integers(0, 4), st.sampled_from(Rank), st.integers(0, 2), st.booleans()), max_size=40),
    st.one_of(st.none(), st.integers(0, 99)),
)
def test_calls_come_sorted_and_cancelled_ones_never(
    calls: list[tuple[int, Rank, int, bool]], shuffle_seed: int | None
) -> None:
    kernel = Kernel(shuffle_seed=shuffle_seed)
    seen: list[tuple[int, int, int, int]] = []
    expected = []
    for number, (time_ns, rank, key, cancelled) in enumerate(calls):
        place = (time_ns, int(rank), key, number)
        call_id = kernel.call_at(time_ns, rank, partial(seen.append, place), key=(key, number))
        assert call_id == number + 1
        if cancelled:
            assert kernel.cancel(call_id) and not kernel.cancel(call_id)
        else:
            expected.append(place)
    kernel.run()
    assert seen == sorted(expected)
    assert kernel.spent == len(expected)
    assert kernel.now_ns == max((place[0] for place in expected), default=0)


def test_ids_are_never_used_again_and_a_call_made_can_not_be_cancelled() -> None:
    kernel = Kernel()
    first = kernel.call_at(0, Rank.FAULT, nothing)
    kernel.cancel(first)
    second = kernel.call_at(0, Rank.FAULT, nothing)
    kernel.run()
    assert (first, second) == (1, 2)
    assert not kernel.cancel(second) and not kernel.cancel(99)
    bad_ids: list[Any] = [0, -3, True, 1.0]
    for bad in bad_ids:
        with pytest.raises(CausalityError, match="positive integer"):
            kernel.cancel(bad)


def test_what_was_given_up_in_masses_is_swept_out() -> None:
    kernel = Kernel()
    alarm = kernel.spawn("a", Rank.ENGINE, idle).alarm
    for time_ns in range(1, 50_000):
        alarm.set_at(time_ns)
    assert len(kernel.heap) < 5_000
    kernel.call_at(49_999, Rank.REPORT, kernel.finish)
    kernel.run()
    assert kernel.spent == 3, "a start, the one timer that is left, and the call"


def test_the_budget_counts_steps_and_events_and_says_where_it_ran_out() -> None:
    kernel = Kernel(max_events=10)

    def body(actor: Actor) -> Generator[Alarm, None, None]:
        while True:
            kernel.spend(3, "engine 0")
            actor.alarm.set_at(kernel.now_ns + 100)
            yield actor.alarm.wait()

    kernel.spawn("engine", Rank.ENGINE, body)
    with pytest.raises(BudgetExceeded) as caught:
        kernel.run()
    error = caught.value
    assert isinstance(error, IsimError) and error.exit_code == 2
    assert (error.limit, error.time_ns, error.where) == (10, 200, "engine 0"), (
        "(1 event + 3 steps) at 0, 100 and 200 ns"
    )
    assert str(error) == (
        "the run needs more than max_events = 10 events: stopped at 200 ns simulated, in engine 0. "
        "Raise max_events if the workload is meant to be this long"
    )


def test_an_endless_instant_runs_into_the_budget() -> None:
    kernel = Kernel(max_events=1_000)

    def body(actor: Actor) -> Generator[Alarm, None, None]:
        while True:
            actor.alarm.fire()
            yield actor.alarm.wait()

    kernel.spawn("spinner", Rank.ENGINE, body)
    with pytest.raises(BudgetExceeded, match="stopped at 0 ns simulated, in wake-up of spinner"):
        kernel.run()
    assert kernel.spent == 1_001


def test_exactly_the_budget_is_no_excess() -> None:
    kernel = Kernel(max_events=5)
    for time_ns in range(5):
        kernel.call_at(time_ns, Rank.REPORT, nothing)
    kernel.run()
    assert kernel.spent == 5


def test_a_deadlock_names_who_waits_for_what() -> None:
    kernel = Kernel()

    def waits(what: str, until_ns: int) -> Body:
        def body(actor: Actor) -> Generator[Alarm, None, None]:
            actor.alarm.set_at(until_ns)
            yield actor.alarm.wait()
            actor.waits_for = what
            yield actor.alarm.wait()

        return body

    def leaves(actor: Actor) -> Generator[Alarm, None, None]:
        actor.alarm.set_at(12)
        yield actor.alarm.wait()

    kernel.spawn("engine 0", Rank.ENGINE, waits("a request", 5))
    kernel.spawn("done", Rank.ENGINE, leaves)
    kernel.spawn("router", Rank.ARRIVAL, waits("an engine with room", 9))
    kernel.spawn("idle", Rank.REPORT, idle)
    with pytest.raises(DeadlockError) as caught:
        kernel.run()
    assert str(caught.value) == (
        "deadlock at 12 ns: nothing is scheduled, and still\n"
        "  engine 0 waits for a request\n"
        "  router waits for an engine with room\n"
        "  idle waits for its alarm"
    )
    assert caught.value.exit_code == 70


@pytest.mark.parametrize("shuffle_seed", SHUFFLES)
def test_finish_lets_the_instant_run_out_and_ends_those_who_wait(shuffle_seed: int | None) -> None:
    kernel = Kernel(shuffle_seed=shuffle_seed)
    seen: list[str] = []

    def server(actor: Actor) -> Generator[Alarm, None, None]:
        try:
            while True:
                yield actor.alarm.wait()
                seen.append(actor.name)
        finally:
            seen.append(f"{actor.name} ended")

    servers = [kernel.spawn(name, Rank.ENGINE, server) for name in ("x", "y")]
    for actor in servers:
        kernel.call_at(10, Rank.ARRIVAL, actor.alarm.fire)
        kernel.call_at(11, Rank.ARRIVAL, actor.alarm.fire)
    kernel.call_at(10, Rank.ARRIVAL, kernel.finish)
    kernel.run()
    assert kernel.now_ns == 10
    assert sorted(seen[:2]) == ["x", "y"]
    assert seen[2:] == ["x ended", "y ended"]


def test_running_until_a_time_leaves_the_clock_at_the_last_event() -> None:
    kernel = Kernel()
    seen: list[int] = []
    for time_ns in (3, 5, 8):
        kernel.call_at(time_ns, Rank.REPORT, partial(seen.append, time_ns))
    kernel.run(until_ns=5)
    assert (kernel.now_ns, seen) == (5, [3, 5])
    kernel.run(until_ns=7)
    assert (kernel.now_ns, seen) == (5, [3, 5])
    kernel.run()
    assert (kernel.now_ns, seen) == (8, [3, 5, 8])


def test_two_actors_of_one_name_and_a_run_inside_a_run_are_bugs() -> None:
    kernel = Kernel()
    kernel.call_at(1, Rank.REPORT, kernel.run)
    with pytest.raises(CausalityError, match="already running"):
        kernel.run()
    kernel.spawn("a", Rank.ENGINE, idle)
    with pytest.raises(CausalityError, match="one name"):
        kernel.spawn("a", Rank.ENGINE, idle)


def test_the_trace_tells_seeds_and_choices_among_equals() -> None:
    kernel = Kernel(seed=42, shuffle_seed=7, trace=True)
    arbiter = Arbiter(kernel, "link")
    actors = [kernel.spawn(name, Rank.ENGINE, idle) for name in ("a", "b")]
    for number, actor in enumerate(actors):
        arbiter.submit((number,), 5, actor.alarm)
    kernel.call_at(9, Rank.REPORT, nothing)
    kernel.call_at(20, Rank.REPORT, kernel.finish)
    kernel.run()
    head, *choices = kernel.trace
    assert head == "seed 42, shuffle seed 7"
    assert choices[0] in (
        "0 ns: ENGINE: start of a before start of b",
        "0 ns: ENGINE: start of b before start of a",
    )
    assert choices[1:] == ["0 ns: GRANT: lease (0,) of link for a before (1,)"]
    assert Kernel().trace == []
    assert Kernel(trace=True).trace == ["seed 0, shuffle seed None"]
