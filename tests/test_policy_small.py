"""The scheduler's small parts against plain accounts: decoders request by request, queues by a sort."""

from __future__ import annotations

from random import Random
from typing import cast

import pytest

from isim.policy.vllm.decoders import Decoders
from isim.policy.vllm.keys import Chain
from isim.policy.vllm.pool import BlockPool
from isim.policy.vllm.sequence import Sequence, Status
from isim.policy.vllm.waiting import FirstComeQueue, PriorityQueue


def sequence(index: int, *, computed: int = 0, output: int = 1, priority: int = 0, order_time: int = 0) -> Sequence:
    return Sequence(
        index=index,
        id=f"r{index}",
        prompt=computed,
        output=output,
        priority=priority,
        order_time=order_time,
        computed=computed,
        order=index,
    )


class Plain:
    """Decoding requests one by one: each tick computes one token of each and gives it one."""

    def __init__(self, block: int) -> None:
        self.block = block
        self.running: dict[int, list[int]] = {}

    def opened(self, ticks: int) -> int:
        return sum(
            (computed + passed) % self.block == 0 for computed, _ in self.running.values() for passed in range(ticks)
        )

    def run_length(self, free_blocks: int) -> int:
        limit = min(left for _, left in self.running.values())
        return max(ticks for ticks in range(limit + 1) if self.opened(ticks) <= free_blocks)

    def advance(self, ticks: int) -> list[int]:
        for state in self.running.values():
            state[0] += ticks
            state[1] -= ticks
        ended = sorted(index for index, (_, left) in self.running.items() if left == 0)
        for index in ended:
            del self.running[index]
        return ended


@pytest.mark.parametrize("seed", range(40))
def test_decoders_are_those_of_a_count_request_by_request(seed: int) -> None:
    dice = Random(seed)
    block = dice.choice([1, 2, 3, 4, 16])
    decoders, plain = Decoders(block), Plain(block)
    there: dict[int, Sequence] = {}
    for index in range(60):
        if dice.random() < 0.5 or not there:
            computed, output = dice.randrange(1, 30), dice.randrange(1, 20)
            issued = dice.randrange(output)
            one = there[index] = sequence(index, computed=computed, output=output)
            one.issued = issued
            decoders.join(one, overlap_after=1)
            plain.running[index] = [computed, output - issued]
            assert one.status is Status.DECODE and decoders.newest_order == index
        elif dice.random() < 0.2:
            gone = dice.choice(list(there))
            one = there.pop(gone)
            computed, left = plain.running.pop(gone)
            decoders.leave(one)
            assert (one.computed, one.output - one.issued) == (computed, left)
        if not there:
            continue
        for ticks in range(1, 3 * block + 2):
            assert decoders.opened(ticks) == plain.opened(ticks), (seed, ticks)
        for free_blocks in (0, 1, 2, 5, 100):
            assert decoders.run_length(free_blocks) == plain.run_length(free_blocks), (seed, free_blocks)
        ticks = dice.randrange(1, decoders.run_length(1000) + 1)
        ended = decoders.advance(ticks)
        assert [one.index for one in ended] == plain.advance(ticks)
        for one in ended:
            assert one.status is Status.ENDING and one.issued == one.output
            del there[one.index]
        for number, one in there.items():
            decoders.settle(one)
            assert (one.computed, one.output - one.issued) == tuple(plain.running[number])
        assert decoders.count == len(plain.running)
        assert decoders.context == sum(computed for computed, _ in plain.running.values())


@pytest.mark.parametrize("joined", [(2, 0, 1), (1, 0)])
def test_those_who_end_together_end_in_running_order(joined: tuple[int, ...]) -> None:
    decoders = Decoders(4)
    for index in joined:
        decoders.join(sequence(index, computed=3, output=2), overlap_after=1)
    assert decoders.newest_order == joined[0]
    assert decoders.advance() == ()
    assert [one.index for one in decoders.advance()] == sorted(joined)
    assert (decoders.count, decoders.context, decoders.tick) == (0, 0, 2)


@pytest.mark.parametrize(("after", "ticks", "overlapped"), [(0, 1, True), (1, 1, True), (2, 1, False)])
def test_the_last_token_overlaps_the_one_before_from_its_tick_on(after: int, ticks: int, overlapped: bool) -> None:
    decoders = Decoders(4)
    one = sequence(0, computed=3, output=ticks)
    decoders.join(one, overlap_after=after)
    assert decoders.advance(ticks) == (one,)
    assert (one.overlap_tick <= decoders.tick) is overlapped
    assert overlapped or one.overlap_tick > 10**15


def test_first_come_first_served_but_for_those_who_were_preempted() -> None:
    queue = FirstComeQueue()
    requests = [sequence(index) for index in range(4)]
    for one in requests[:3]:
        queue.add(one)
    queue.put_back(requests[3])
    assert [one.index for one in queue.in_order()] == [3, 0, 1, 2]
    assert queue.first() is requests[3] and queue.take() is requests[3]
    queue.remove(requests[1])
    assert [one.index for one in queue.in_order()] == [0, 2]


def test_the_most_urgent_first_then_the_earliest_then_by_name() -> None:
    dice = Random(5)
    requests = [sequence(index, priority=dice.randrange(3), order_time=dice.randrange(3)) for index in range(40)]
    queue = PriorityQueue()
    for one in requests:
        queue.add(one)
    due = sorted(requests, key=lambda one: (one.priority, one.order_time, one.id))
    assert queue.in_order() == due and len(queue) == 40
    for one in dice.sample(due, 15):
        queue.remove(one)
        due.remove(one)
        assert queue.first() is due[0]
    assert queue.take() is due[0]
    queue.put_back(due[0])
    assert [queue.take() for _ in due] == due


class Keys:
    """A chain of which nothing is shared with others beforehand."""

    shared_blocks = 0

    def key(self, place: int) -> int:
        return 100 + place


def test_the_later_version_takes_freed_blocks_without_a_hash_before_those_that_can_be_found() -> None:
    """Also where the last in the queue have a hash that nobody looks for."""
    pool, chain = BlockPool(6, unhashed_first=True), cast("Chain", Keys())
    found, plain, other = sequence(0), sequence(1), sequence(2)
    for owner, count in ((found, 2), (plain, 2), (other, 1)):
        pool.take(owner, count)
    pool.register(found, chain, 2)
    pool.give_back(found, 2, 2)
    pool.give_back(other, 1, 1)
    pool.give_back(plain, 2, 0)
    pool.take(sequence(3), 2)
    assert (pool.free, len(pool.find(chain, 2))) == (3, 2)
    pool.take(sequence(3), 1)
    assert len(pool.find(chain, 2)) == 1
