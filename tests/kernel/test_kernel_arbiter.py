"""Arbiters: who holds a lane when. Expected figures are worked out by hand, by recursion, or by a plain tick loop."""

from __future__ import annotations

from collections.abc import Generator
from functools import partial
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isim.kernel import Actor, Alarm, Arbiter, Kernel, Key, Lease, Rank
from isim.record.errors import CausalityError

SHUFFLES = [None, *range(20)]


class Bench:
    """A kernel, an arbiter, and one listener that notes when it is woken."""

    def __init__(self, lanes: int = 1, shuffle_seed: int | None = None) -> None:
        self.kernel = Kernel(shuffle_seed=shuffle_seed)
        self.arbiter = Arbiter(self.kernel, "gpu", lanes)
        self.woken_ns: list[int] = []
        self.alarm = self.kernel.spawn("listener", Rank.ENGINE, self._listen).alarm

    def _listen(self, actor: Actor) -> Generator[Alarm, None, None]:
        while True:
            yield actor.alarm.wait()
            self.woken_ns.append(self.kernel.now_ns)

    def run(self) -> None:
        self.kernel.call_at(1_000, Rank.FAULT, self.kernel.finish)
        self.kernel.run()

    def submit(self, key: Key, hold_ns: int, wake_ns: int | None = None) -> Lease:
        return self.arbiter.submit(key, hold_ns, self.alarm, wake_ns)


@pytest.mark.parametrize("shuffle_seed", SHUFFLES)
@pytest.mark.parametrize("lanes", [1, 2, 3])
def test_requests_of_one_instant_are_granted_in_key_order(lanes: int, shuffle_seed: int | None) -> None:
    bench = Bench(lanes, shuffle_seed)
    leases: dict[int, Lease] = {}

    def ask(key: int) -> None:
        leases[key] = bench.submit((0, key), 10)

    for key in (4, 1, 5, 0, 3, 2):
        bench.kernel.call_at(7, Rank.ARRIVAL, partial(ask, key))
    bench.run()
    assert [leases[key].start_ns for key in range(6)] == [7 + 10 * (key // lanes) for key in range(6)]


def test_nothing_is_granted_before_the_end_of_the_instant() -> None:
    bench = Bench()
    granted: list[bool] = []
    first = bench.submit((9,), 10)
    for rank in Rank:
        bench.kernel.call_at(0, rank, lambda: granted.append(first.granted))
    bench.run()
    assert granted == [False] * 7 + [True], "all ranks up to GRANT come before; REPORT sees what was granted"


def test_a_late_request_with_an_earlier_key_goes_first() -> None:
    bench = Bench()
    late = bench.submit((2,), 10)
    leases: list[Lease] = []
    bench.kernel.call_at(0, Rank.ENGINE, lambda: leases.append(bench.submit((1,), 10)))
    bench.run()
    assert (leases[0].start_ns, late.start_ns) == (0, 10)


def test_a_lane_freed_and_asked_for_at_one_instant_goes_by_key() -> None:
    bench = Bench()
    bench.submit((0,), 10)
    waiting = bench.submit((5,), 10)
    leases: list[Lease] = []
    bench.kernel.call_at(10, Rank.ENGINE, lambda: leases.append(bench.submit((3,), 10)))
    bench.run()
    assert (leases[0].start_ns, waiting.start_ns) == (10, 20), "who waited longer has no claim: the key has"


def test_a_lease_tells_its_state_and_wakes_its_owner_at_its_end() -> None:
    bench = Bench()
    lease = bench.submit((0,), 30, wake_ns=20)
    assert (lease.granted, lease.ended, lease.start_ns, lease.end_ns) == (False, False, None, None)
    states: list[tuple[bool, bool, int | None]] = []
    for rank, time_ns in ((Rank.REPORT, 0), (Rank.FAULT, 30), (Rank.ARRIVAL, 30)):
        bench.kernel.call_at(time_ns, rank, lambda: states.append((lease.granted, lease.ended, lease.end_ns)))
    bench.run()
    assert states == [(True, False, 30), (True, False, 30), (True, True, 30)]
    assert bench.woken_ns == [20, 30]


def test_one_cycle_costs_two_entries() -> None:
    kernel = Kernel()
    arbiter = Arbiter(kernel, "gpu")

    def body(actor: Actor) -> Generator[Alarm, None, None]:
        for number in range(1_000):
            lease = arbiter.submit((number,), 5, actor.alarm)
            while not lease.ended:
                yield actor.alarm.wait()

    kernel.spawn("engine", Rank.ENGINE, body)
    kernel.run()
    assert (kernel.now_ns, kernel.spent) == (5_000, 1 + 2 * 1_000)


def test_a_hold_of_nothing_ends_in_its_instant() -> None:
    bench = Bench()
    leases = [bench.submit((number,), 0) for number in range(3)] + [bench.submit((3,), 4)]
    bench.run()
    assert [(lease.start_ns, lease.end_ns) for lease in leases] == [(0, 0), (0, 0), (0, 0), (0, 4)]
    assert bench.woken_ns[-1] == 4 and {*bench.woken_ns} == {0, 4}


def test_a_muted_lease_ends_in_silence_and_its_wake_up_still_comes() -> None:
    bench = Bench()
    bench.submit((0,), 10).mute()
    woken = bench.submit((1,), 10, wake_ns=4)
    woken.mute()
    later = bench.submit((2,), 10)
    bench.kernel.call_at(25, Rank.ARRIVAL, later.mute)
    bench.run()
    assert bench.woken_ns == [14]
    assert woken.ended and later.end_ns == 30


def test_shortening_frees_the_lane_earlier_and_moves_the_alarm() -> None:
    bench = Bench()
    first = bench.submit((0,), 100, wake_ns=90)
    second = bench.submit((1,), 10)
    bench.kernel.call_at(15, Rank.ARRIVAL, lambda: first.shorten(40, wake_ns=30))
    bench.kernel.call_at(20, Rank.ARRIVAL, lambda: first.shorten(35, wake_ns=30))
    bench.run()
    assert (first.end_ns, second.start_ns) == (35, 35)
    assert bench.woken_ns == [30, 35, 45]


def test_shortening_before_the_grant_counts_from_the_grant() -> None:
    bench = Bench()
    bench.submit((0,), 50).mute()
    waiting = bench.submit((1,), 100, wake_ns=60)
    bench.kernel.call_at(20, Rank.ARRIVAL, lambda: waiting.shorten(30))
    bench.run()
    assert (waiting.start_ns, waiting.end_ns) == (50, 80)
    assert bench.woken_ns == [80], "the wake-up was not asked for again"


@pytest.mark.parametrize("rank", [Rank.FAULT, Rank.ARRIVAL, Rank.ENGINE, Rank.REPORT])
def test_shortening_to_this_very_instant_lends_the_lane_again_in_it(rank: Rank) -> None:
    bench = Bench()
    first = bench.submit((0,), 100)
    second = bench.submit((1,), 10)
    bench.kernel.call_at(25, rank, lambda: first.shorten(25))
    bench.run()
    assert (first.ended, first.end_ns, second.start_ns) == (True, 25, 25)
    assert bench.woken_ns == [25, 35]


def test_at_the_instant_of_its_end_a_fault_still_meets_the_lease_and_an_arrival_does_not() -> None:
    bench = Bench()
    lease = bench.submit((0,), 10)
    refused: list[str] = []

    def too_late() -> None:
        with pytest.raises(CausalityError) as caught:
            lease.shorten(10)
        refused.append(str(caught.value))

    bench.kernel.call_at(10, Rank.FAULT, lambda: lease.shorten(10))
    bench.kernel.call_at(10, Rank.ARRIVAL, too_late)
    bench.run()
    assert bench.woken_ns == [10]
    assert refused == ["lease (0,) of gpu for listener is over and can not be shortened"]


@pytest.mark.parametrize(
    ("hold_ns", "wake_ns", "complaint"),
    [
        (14, None, "has held 15 ns, too late to end it after 14 ns"),
        (41, None, "holds 40 ns and can not be shortened to 41 ns"),
        (30, 14, "has held 15 ns, too late to wake after 14 ns"),
        (30, 31, "a lease of 30 ns can not wake its owner after 31 ns"),
    ],
)
def test_what_shortening_may_not_do(hold_ns: int, wake_ns: int | None, complaint: str) -> None:
    bench = Bench()
    lease = bench.submit((0,), 40)
    bench.kernel.call_at(15, Rank.ARRIVAL, lambda: lease.shorten(hold_ns, wake_ns))
    with pytest.raises(CausalityError) as caught:
        bench.run()
    assert complaint in str(caught.value)


def test_a_cancelled_request_is_passed_over_and_its_key_is_free_again() -> None:
    bench = Bench()
    bench.submit((0,), 10)
    gone = bench.submit((1,), 10)
    last = bench.submit((2,), 10)
    again: list[Lease] = []

    def replace() -> None:
        gone.cancel()
        again.append(bench.submit((1,), 3))

    bench.kernel.call_at(5, Rank.ARRIVAL, replace)
    bench.run()
    assert (gone.granted, gone.ended, gone.cancelled) == (False, False, True)
    assert (again[0].start_ns, last.start_ns) == (10, 13)
    with pytest.raises(CausalityError, match="was granted at 13 ns"):
        last.cancel()
    with pytest.raises(CausalityError, match="is over"):
        gone.shorten(1)


def test_two_requests_of_one_key_are_a_bug() -> None:
    bench = Bench()
    bench.submit((0, "a"), 10)
    bench.submit((0, "a"), 20)
    with pytest.raises(CausalityError, match="two requests of one key at 0 ns"):
        bench.run()


@pytest.mark.parametrize("lanes", [0, -1, True, 1.0])
def test_lanes_are_counted_in_whole_ones(lanes: int) -> None:
    with pytest.raises(CausalityError, match="lanes"):
        Arbiter(Kernel(), "gpu", lanes)


def _served_alone(arrivals_ns: list[int], holds_ns: list[int], shuffle_seed: int | None) -> list[int]:
    """Waits of customers that come one by one to one lane."""
    kernel = Kernel(shuffle_seed=shuffle_seed)
    arbiter = Arbiter(kernel, "server")

    def nobody(actor: Actor) -> Generator[Alarm, None, None]:
        while True:
            yield actor.alarm.wait()

    alarm = kernel.spawn("nobody", Rank.ENGINE, nobody).alarm
    leases: list[Lease] = []

    def ask(number: int) -> None:
        leases.append(arbiter.submit((kernel.now_ns, number), holds_ns[number], alarm))

    for number, arrival_ns in enumerate(arrivals_ns):
        kernel.call_at(arrival_ns, Rank.ARRIVAL, partial(ask, number))
    kernel.call_at(sum(holds_ns) + arrivals_ns[-1] + 1, Rank.REPORT, kernel.finish)
    kernel.run()
    waits = {lease.key: (lease.start_ns or 0) - arrivals_ns[int(lease.key[1])] for lease in leases}
    return [waits[arrival_ns, number] for number, arrival_ns in enumerate(arrivals_ns)]


@pytest.mark.parametrize("shuffle_seed", [None, 1, 2])
@pytest.mark.parametrize("grid_ns", [1, 500])
@pytest.mark.parametrize("constant", [True, False])
def test_waits_at_one_lane_are_lindleys(constant: bool, grid_ns: int, shuffle_seed: int | None) -> None:
    """W(n+1) = max(0, W(n) + S(n) - (A(n+1) - A(n))) (Lindley 1952), with service constant (M/D/1) or not."""
    draw = Random(3)
    now_ns, arrivals_ns, holds_ns = 0, [], []
    for _ in range(3_000):
        now_ns += int(draw.expovariate(1 / 1_100)) // grid_ns * grid_ns
        arrivals_ns.append(now_ns)
        holds_ns.append(1_000 if constant else int(draw.expovariate(1 / 1_000)) // grid_ns * grid_ns)
    expected = [0]
    for number in range(1, len(arrivals_ns)):
        gap_ns = arrivals_ns[number] - arrivals_ns[number - 1]
        expected.append(max(0, expected[-1] + holds_ns[number - 1] - gap_ns))
    assert _served_alone(arrivals_ns, holds_ns, shuffle_seed) == expected


def _by_ticks(requests: list[tuple[int, int]], lanes: int) -> list[int]:
    """Starts of (asked at, hold >= 1) requests whose key is (hold, number), by walking every nanosecond."""
    starts = [-1] * len(requests)
    ends: list[int] = []
    now_ns = 0
    while -1 in starts:
        ends = [end for end in ends if end > now_ns]
        waiting = [(hold, n) for n, (asked, hold) in enumerate(requests) if asked <= now_ns and starts[n] < 0]
        for hold, n in sorted(waiting)[: lanes - len(ends)]:
            starts[n] = now_ns
            ends.append(now_ns + hold)
        now_ns += 1
    return starts


@settings(derandomize=True, deadline=None, max_examples=200)
@given(
    st.lists(st.tuples(st.integers(0, 12), st.integers(1, 6)), min_size=1, max_size=25),
    st.integers(1, 4),
    st.one_of(st.none(), st.integers(0, 99)),
)
def test_lanes_agree_with_a_walk_over_every_nanosecond(
    requests: list[tuple[int, int]], lanes: int, shuffle_seed: int | None
) -> None:
    kernel = Kernel(shuffle_seed=shuffle_seed)
    arbiter = Arbiter(kernel, "gpu", lanes)
    starts: dict[int, int | None] = {}

    def spawn(number: int, asked_ns: int, hold_ns: int) -> None:
        def body(actor: Actor) -> Generator[Alarm, None, None]:
            while kernel.now_ns < asked_ns:
                actor.alarm.set_at(asked_ns)
                yield actor.alarm.wait()
            lease = arbiter.submit((hold_ns, number), hold_ns, actor.alarm)
            while not lease.ended:
                yield actor.alarm.wait()
            assert kernel.now_ns == lease.end_ns
            starts[number] = lease.start_ns

        kernel.spawn(f"device {number}", Rank.ENGINE, body)

    for number, (asked_ns, hold_ns) in enumerate(requests):
        spawn(number, asked_ns, hold_ns)
    kernel.run()
    assert [starts[number] for number in range(len(requests))] == _by_ticks(requests, lanes)
