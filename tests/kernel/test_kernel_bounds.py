"""Where a limit lies, to the nanosecond and the event, and what is said of it: answers to mutants of the kernel."""

from __future__ import annotations

from collections.abc import Generator
from functools import partial

import pytest

from isim.kernel import SAFE_MAX_NS, Actor, Alarm, Arbiter, BudgetExceeded, Kernel, Lease, Rank
from isim.kernel.clock import check_span_ns
from isim.record.errors import CausalityError


class Bench:
    """A lane, and a listener that notes when it is woken."""

    def __init__(self, lanes: int = 1, *, trace: bool = False) -> None:
        self.kernel = Kernel(trace=trace)
        self.arbiter = Arbiter(self.kernel, "gpu", lanes)
        self.woken_ns: list[int] = []
        self.alarm = self.kernel.spawn("listener", Rank.ENGINE, self._listen).alarm
        self.leases: dict[str, Lease] = {}

    def _listen(self, actor: Actor) -> Generator[Alarm, None, None]:
        while True:
            yield actor.alarm.wait()
            self.woken_ns.append(self.kernel.now_ns)

    def submit_at(self, time_ns: int, key: str, hold_ns: int, wake_ns: int | None = None) -> None:
        def submit() -> None:
            self.leases[key] = self.arbiter.submit((key,), hold_ns, self.alarm, wake_ns)

        self.kernel.call_at(time_ns, Rank.ARRIVAL, submit)

    def shorten_at(self, time_ns: int, key: str, hold_ns: int, wake_ns: int | None = None) -> None:
        self.kernel.call_at(time_ns, Rank.FAULT, lambda: self.leases[key].shorten(hold_ns, wake_ns))

    def run(self) -> None:
        self.kernel.call_at(1_000, Rank.FAULT, self.kernel.finish)
        self.kernel.run()


def nothing() -> None:
    pass


def test_a_span_is_from_nothing_to_the_last_nanosecond() -> None:
    check_span_ns(0, "a wait")
    check_span_ns(SAFE_MAX_NS, "a wait")
    for span_ns in (-1, SAFE_MAX_NS + 1):
        with pytest.raises(CausalityError, match=f"^a wait is .*, found {span_ns} ns$"):
            check_span_ns(span_ns, "a wait")


def test_complaints_name_what_is_wrong() -> None:
    bench = Bench()
    for hold_ns, wake_ns, words in (
        (-1, None, "the hold of a lease is never negative, found -1 ns"),
        (5, -2, "the wake-up of a lease is never negative, found -2 ns"),
    ):
        with pytest.raises(CausalityError) as caught:
            bench.arbiter.submit(("a",), hold_ns, bench.alarm, wake_ns)
        assert str(caught.value) == words
    kernel = Kernel()
    kernel.call_at(5, Rank.REPORT, nothing)
    kernel.run()
    with pytest.raises(CausalityError, match=r"^a time lies at or after the present, 5 ns, found 0 ns$"):
        kernel.call_at(0, Rank.REPORT, nothing)


def test_exactly_the_budget_may_be_spent_at_once() -> None:
    kernel = Kernel(max_events=3)
    kernel.spend(3, "a stretch")
    with pytest.raises(BudgetExceeded, match="in a stretch"):
        kernel.spend(1, "a stretch")


def test_a_call_of_the_rank_of_grants_comes_before_them() -> None:
    bench = Bench()
    seen: list[tuple[str, bool]] = []
    bench.submit_at(7, "a", 10)
    for name, rank in (("grant", Rank.GRANT), ("report", Rank.REPORT)):
        bench.kernel.call_at(7, rank, partial(lambda it: seen.append((it, bench.leases["a"].granted)), name))
    bench.run()
    assert seen == [("grant", False), ("report", True)]


def test_the_trace_lists_who_came_later_in_the_order_in_which_they_would_have_come() -> None:
    kernel = Kernel(trace=True)
    numbers = [kernel.call_at(3, Rank.REPORT, nothing, key=()) for _ in range(4)]
    kernel.run()
    first = next(line for line in kernel.trace if "before" in line)
    assert first == "3 ns: REPORT: call {} before call {}, call {}, call {}".format(*numbers)


def test_who_waits_when_a_run_is_interrupted_is_in_no_deadlock() -> None:
    bench = Bench()
    bench.kernel.call_at(10, Rank.REPORT, bench.kernel.finish)
    bench.kernel.run(until_ns=5)
    assert bench.kernel.now_ns < 10
    bench.kernel.run()
    assert bench.kernel.now_ns == 10


# ---- leases


def test_shortening_counts_from_the_grant_and_not_from_the_beginning() -> None:
    bench = Bench()
    bench.submit_at(100, "a", 50)
    bench.shorten_at(120, "a", 20)
    bench.run()
    assert bench.leases["a"].end_ns == 120
    late = Bench()
    late.submit_at(100, "a", 50)
    late.shorten_at(120, "a", 19)
    with pytest.raises(CausalityError, match="has held 20 ns, too late to end it after 19 ns"):
        late.run()


def test_a_wake_up_may_be_moved_to_this_very_instant() -> None:
    bench = Bench()
    bench.submit_at(100, "a", 50, 40)
    bench.shorten_at(120, "a", 50, 20)
    bench.run()
    assert bench.woken_ns == [120, 150]


def test_a_wake_up_can_be_given_late_taken_back_and_given_again() -> None:
    bench = Bench()
    bench.submit_at(0, "a", 90)
    bench.shorten_at(10, "a", 90, 20)
    bench.shorten_at(12, "a", 90, None)
    bench.shorten_at(14, "a", 90, 40)
    bench.run()
    assert bench.woken_ns == [40, 90]


def test_a_wake_up_that_came_may_be_named_again() -> None:
    bench = Bench()
    bench.submit_at(0, "a", 90, 50)
    bench.shorten_at(10, "a", 90, 30)
    bench.shorten_at(35, "a", 80, 30)
    bench.run()
    assert bench.woken_ns == [30, 80]


def test_a_shortened_lease_ends_among_completions() -> None:
    """After a fault and before an arrival of the same instant."""
    bench = Bench()
    ended: list[tuple[Rank, bool]] = []
    bench.submit_at(0, "a", 90)
    bench.shorten_at(10, "a", 20)
    for rank in (Rank.FAULT, Rank.ARRIVAL):
        bench.kernel.call_at(20, rank, partial(lambda it: ended.append((it, bench.leases["a"].ended)), rank))
    bench.run()
    assert ended == [(Rank.FAULT, False), (Rank.ARRIVAL, True)]


def test_a_lease_may_end_at_the_last_nanosecond() -> None:
    bench = Bench()
    bench.submit_at(0, "a", SAFE_MAX_NS)
    bench.run()
    assert bench.leases["a"].end_ns == SAFE_MAX_NS


def test_an_arbiter_says_how_many_lanes_it_has_and_who_was_first_of_one_key() -> None:
    bench = Bench(3)
    assert bench.arbiter.lanes == 3
    other = bench.kernel.spawn("another", Rank.ENGINE, bench._listen).alarm
    bench.arbiter.submit(("k",), 1, bench.alarm)
    bench.arbiter.submit(("k",), 1, other)
    with pytest.raises(CausalityError, match=r"of gpu for listener, and lease \('k',\) of gpu for another"):
        bench.run()


def test_who_gave_up_behind_the_first_is_passed_over_and_not_told() -> None:
    bench = Bench(trace=True)
    for key in "abcd":
        bench.submit_at(0, key, 10)
    bench.kernel.call_at(0, Rank.RELEASE, lambda: bench.leases["b"].cancel())
    bench.run()
    assert [bench.leases[key].start_ns for key in "abcd"] == [0, None, 10, 20]
    told = [line for line in bench.kernel.trace if "GRANT" in line]
    assert told[0] == "0 ns: GRANT: lease ('a',) of gpu for listener before ('c',), ('d',)"
