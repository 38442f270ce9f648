"""Alarms, mailboxes and actors: who wakes when, at which rank, how often, and what it then sees."""

from __future__ import annotations

from collections.abc import Generator
from functools import partial
from random import Random

import pytest

from isim.kernel import Actor, Alarm, Arbiter, Body, Kernel, Mailbox, Rank
from isim.record.errors import CausalityError

SHUFFLES = [None, *range(20)]


def noting(kernel: Kernel, wakes: list[tuple[int, str]]) -> Body:
    def body(actor: Actor) -> Generator[Alarm, None, None]:
        while True:
            yield actor.alarm.wait()
            wakes.append((kernel.now_ns, actor.name))

    return body


def test_an_alarm_set_again_rings_once_at_the_later_choice() -> None:
    kernel = Kernel()
    wakes: list[tuple[int, str]] = []
    alarm = kernel.spawn("a", Rank.ENGINE, noting(kernel, wakes)).alarm
    alarm.set_at(50)
    alarm.set_at(20)
    alarm.set_at(30)
    alarm.set_at(30)
    assert alarm.armed_ns == 30
    kernel.call_at(60, Rank.REPORT, kernel.finish)
    kernel.run()
    assert wakes == [(30, "a")]
    assert alarm.armed_ns is None


def test_the_time_set_is_there_to_be_read_as_long_as_it_is_to_come() -> None:
    kernel = Kernel()
    wakes: list[tuple[int, str]] = []
    alarm = kernel.spawn("a", Rank.ENGINE, noting(kernel, wakes)).alarm
    assert alarm.armed_ns is None
    alarm.set_at(40)
    assert alarm.armed_ns == 40
    alarm.clear()
    assert alarm.armed_ns is None


def test_waking_brings_nothing_but_the_wake_up() -> None:
    kernel = Kernel()
    brought: list[object] = []

    def body(actor: Actor) -> Generator[Alarm, object, None]:
        brought.append((yield actor.alarm.wait()))

    kernel.spawn("a", Rank.ENGINE, body).alarm.fire()
    kernel.run()
    assert brought == [None]


def test_a_cleared_alarm_does_not_ring_but_a_fired_one_still_does() -> None:
    kernel = Kernel()
    wakes: list[tuple[int, str]] = []
    alarm = kernel.spawn("a", Rank.ENGINE, noting(kernel, wakes)).alarm

    def clear() -> None:
        alarm.fire()
        alarm.clear()

    alarm.set_at(40)
    kernel.call_at(20, Rank.ARRIVAL, clear)
    kernel.call_at(60, Rank.REPORT, kernel.finish)
    kernel.run()
    assert wakes == [(20, "a")]


def test_firing_leaves_the_time_that_was_set() -> None:
    kernel = Kernel()
    wakes: list[tuple[int, str]] = []
    alarm = kernel.spawn("a", Rank.ENGINE, noting(kernel, wakes)).alarm
    alarm.set_at(40)
    kernel.call_at(20, Rank.ARRIVAL, alarm.fire)
    kernel.call_at(60, Rank.REPORT, kernel.finish)
    kernel.run()
    assert wakes == [(20, "a"), (40, "a")]


@pytest.mark.parametrize("shuffle_seed", SHUFFLES)
def test_everything_that_wakes_an_owner_at_one_instant_wakes_it_once(shuffle_seed: int | None) -> None:
    """Time after time: what was used up at one instant is none of the next one's business."""
    kernel = Kernel(shuffle_seed=shuffle_seed)
    wakes: list[tuple[int, str]] = []
    alarm = kernel.spawn("a", Rank.ENGINE, noting(kernel, wakes)).alarm
    for time_ns in (30, 130, 230):
        gpu, link = Arbiter(kernel, f"gpu of {time_ns}"), Arbiter(kernel, f"link of {time_ns}")
        kernel.call_at(time_ns - 10, Rank.GOVERNOR, partial(alarm.set_at, time_ns))
        gpu.submit((0,), time_ns, alarm, wake_ns=time_ns)
        link.submit((0,), 900, alarm, wake_ns=time_ns)
        for rank in (Rank.FAULT, Rank.ARRIVAL, Rank.ARRIVAL, Rank.GOVERNOR):
            kernel.call_at(time_ns, rank, alarm.fire)
    kernel.call_at(260, Rank.REPORT, kernel.finish)
    kernel.run()
    assert wakes == [(30, "a"), (130, "a"), (230, "a")]


@pytest.mark.parametrize("shuffle_seed", SHUFFLES)
def test_an_owner_wakes_at_its_own_rank_and_sees_the_whole_instant(shuffle_seed: int | None) -> None:
    """The bug only dense ties found: an owner run inside its waker's rank sees the first of three messages."""
    kernel = Kernel(shuffle_seed=shuffle_seed)
    seen: list[tuple[int, list[str], int]] = []
    freed = 0

    def engine(actor: Actor) -> Generator[Alarm, None, None]:
        while True:
            yield actor.alarm.wait()
            seen.append((kernel.now_ns, box.take(), freed))

    def sender(key: int) -> Body:
        def body(actor: Actor) -> Generator[Alarm, None, None]:
            while True:
                actor.alarm.set_at(kernel.now_ns + 10)
                yield actor.alarm.wait()
                box.put((key, actor.name), actor.name)

        return body

    def release() -> None:
        nonlocal freed
        freed += 1

    box: Mailbox[str] = Mailbox(kernel.spawn("engine", Rank.ENGINE, engine).alarm)
    for name, key in (("s2", 2), ("s0", 0), ("s1", 1)):
        kernel.spawn(name, Rank.ARRIVAL, sender(key))
    kernel.call_at(10, Rank.RELEASE, release)
    kernel.call_at(20, Rank.GOVERNOR, release)
    kernel.call_at(20, Rank.REPORT, kernel.finish)
    kernel.run()
    assert seen == [(10, ["s0", "s1", "s2"], 1), (20, ["s0", "s1", "s2"], 2)]


def test_an_owner_whose_rank_has_passed_runs_next_at_the_same_instant() -> None:
    kernel = Kernel()
    order: list[str] = []

    def early(actor: Actor) -> Generator[Alarm, None, None]:
        while True:
            yield actor.alarm.wait()
            order.append(f"early at {kernel.now_ns}")

    alarm = kernel.spawn("early", Rank.ARRIVAL, early).alarm

    def report() -> None:
        alarm.fire()
        order.append("report")

    kernel.call_at(5, Rank.REPORT, report, key=(0,))
    kernel.call_at(5, Rank.REPORT, lambda: order.append("later report"), key=(1,))
    kernel.call_at(6, Rank.FAULT, kernel.finish)
    kernel.run()
    assert order == ["report", "early at 5", "later report"]


@pytest.mark.parametrize("shuffle_seed", SHUFFLES)
def test_a_message_before_the_first_wait_is_not_lost(shuffle_seed: int | None) -> None:
    kernel = Kernel(shuffle_seed=shuffle_seed)
    got: list[str] = []

    def engine(actor: Actor) -> Generator[Alarm, None, None]:
        while True:
            yield actor.alarm.wait()
            got.extend(box.take())

    box: Mailbox[str] = Mailbox(kernel.spawn("engine", Rank.ENGINE, engine).alarm)
    box.put((0,), "hello")
    kernel.call_at(1, Rank.REPORT, kernel.finish)
    kernel.run()
    assert got == ["hello"]


@pytest.mark.parametrize("shuffle_seed", SHUFFLES)
def test_a_mailbox_gives_items_in_key_order(shuffle_seed: int | None) -> None:
    kernel = Kernel(shuffle_seed=shuffle_seed)
    got: list[list[tuple[int, str]]] = []

    def engine(actor: Actor) -> Generator[Alarm, None, None]:
        while len(got) < 3:
            yield actor.alarm.wait()
            got.append(box.take())
            assert box.items == [] and box.take() == []

    box: Mailbox[tuple[int, str]] = Mailbox(kernel.spawn("engine", Rank.ENGINE, engine).alarm)
    keys = [(n * 7 % 10, f"r{n % 3}") for n in range(10)]
    for time_ns in (10, 20, 30):
        for key in keys:
            kernel.call_at(time_ns, Rank.ARRIVAL, partial(box.put, key, key))
    kernel.run()
    assert got == [sorted(keys)] * 3


def test_nothing_that_was_put_into_a_mailbox_is_lost_and_equal_keys_keep_their_order() -> None:
    dice = Random(3)
    for size in range(8):
        alarm = Kernel().spawn("a", Rank.ENGINE, noting(Kernel(), [])).alarm
        box: Mailbox[int] = Mailbox(alarm)
        put = [(dice.randrange(3), -number) for number in range(size)]
        for key, item in put:
            box.put((key,), item)
        assert box.take() == [item for due in range(3) for key, item in put if key == due]
        assert box.items == []


def test_an_alarm_has_one_owner() -> None:
    kernel = Kernel()

    def owner(actor: Actor) -> Generator[Alarm, None, None]:
        yield actor.alarm.wait()

    alarm = kernel.spawn("owner", Rank.ENGINE, owner).alarm

    def thief(_: Actor) -> Generator[Alarm, None, None]:
        yield alarm.wait()

    kernel.spawn("thief", Rank.REPORT, thief)
    with pytest.raises(CausalityError, match="alarm of owner"):
        kernel.run()


def test_an_actor_starts_at_its_rank_and_is_alive_until_it_returns() -> None:
    kernel = Kernel()
    order: list[str] = []

    def once(actor: Actor) -> Generator[Alarm, None, None]:
        order.append(actor.name)
        actor.alarm.set_at(3)
        yield actor.alarm.wait()

    late = kernel.spawn("late", Rank.REPORT, once)
    early = kernel.spawn("early", Rank.ARRIVAL, once)
    assert late.alive and early.alive
    kernel.run()
    assert order == ["early", "late"]
    assert not late.alive and not early.alive
    late.alarm.fire()
    kernel.run()
    assert kernel.now_ns == 3


def test_an_actor_can_start_another_at_the_same_instant() -> None:
    kernel = Kernel()
    started: list[tuple[int, str]] = []

    def child(actor: Actor) -> Generator[Alarm, None, None]:
        started.append((kernel.now_ns, actor.name))
        return
        yield actor.alarm.wait()

    def parent(actor: Actor) -> Generator[Alarm, None, None]:
        actor.alarm.set_at(4)
        yield actor.alarm.wait()
        kernel.spawn("child", Rank.ARRIVAL, child)

    kernel.spawn("parent", Rank.ENGINE, parent)
    kernel.run()
    assert started == [(4, "child")]
