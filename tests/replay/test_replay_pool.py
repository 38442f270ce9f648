"""The block ledger against a plain pool: every block has a number and lies in a list while it is free."""

from __future__ import annotations

from random import Random

import msgspec
import pytest

from isim.replay.pool import Block, Pool

KEYS = 12


class Held(msgspec.Struct, eq=False):
    """A request: the numbers of its blocks, of which the first have names, and those names as the ledger has them."""

    path: list[int]
    numbers: list[int]
    blocks: list[Block]


class Plain:
    """`names` has the key of every block that can be found, the oldest name first; `users` those who hold a block."""

    def __init__(self, blocks: int, *, unkeyed_first: bool) -> None:
        self.queue = list(range(blocks))
        self.unkeyed_first = unkeyed_first
        self.names: dict[int, int] = {}
        self.users = [0] * blocks

    def take(self, count: int) -> list[int]:
        taken, self.queue = self.queue[:count], self.queue[count:]
        for number in taken:
            self.users[number] = 1
            self.names.pop(number, None)
        return taken

    def oldest(self, key: int) -> int | None:
        return next((number for number, name in self.names.items() if name == key), None)

    def find(self, path: list[int]) -> list[int]:
        found: list[int] = []
        for number in map(self.oldest, path):
            if number is None:
                break
            found.append(number)
        return found

    def touch(self, numbers: list[int]) -> None:
        for number in numbers:
            self.users[number] += 1
            if number in self.queue:
                self.queue.remove(number)

    def give(self, named: list[int], rest: list[int]) -> None:
        """The tail first; the later version puts those without a name in front of everybody."""
        for number in [*named, *rest]:
            self.users[number] -= 1
        gone = [number for number in reversed(named) if not self.users[number]]
        if self.unkeyed_first:
            self.queue = rest[::-1] + self.queue + gone
        else:
            self.queue += rest[::-1] + gone


class Both:
    """The ledger and the plain pool, told the same."""

    def __init__(self, seed: int) -> None:
        self.dice = Random(seed)
        blocks, unkeyed_first = self.dice.randrange(4, 30), self.dice.random() < 0.5
        self.pool = Pool(blocks, caching=True, unkeyed_first=unkeyed_first)
        self.plain = Plain(blocks, unkeyed_first=unkeyed_first)
        self.known: dict[int, Block] = {}
        self.held: list[Held] = []

    def begin(self) -> None:
        dice, pool, plain = self.dice, self.pool, self.plain
        path = [dice.randrange(KEYS) for _ in range(dice.randrange(7))]
        limit = dice.randrange(len(path) + 1)
        numbers = plain.find(path[:limit])
        blocks = pool.find(path, limit)
        assert [id(block) for block in blocks] == [id(self.known[number]) for number in numbers]
        if len(set(numbers)) < len(numbers):
            return
        pool.touch(blocks)
        plain.touch(numbers)
        new = min(pool.free, dice.randrange(8))
        pool.take(new)
        self.held.append(Held(path, numbers + plain.take(new), blocks))

    def name(self) -> None:
        one = self.dice.choice(self.held)
        first = len(one.blocks)
        last = self.dice.randint(first, max(first, min(len(one.path), len(one.numbers))))
        blocks = self.pool.name(one.path[first:last])
        for number, key, block in zip(one.numbers[first:last], one.path[first:last], blocks, strict=True):
            assert block.key == key
            self.plain.names[number] = key
            self.known[number] = block
        one.blocks += blocks

    def give(self) -> None:
        one = self.held.pop(self.dice.randrange(len(self.held)))
        named, rest = one.numbers[: len(one.blocks)], one.numbers[len(one.blocks) :]
        if named or self.dice.random() < 0.5:
            self.pool.give(one.blocks, len(rest))
            self.plain.give(named, rest)
        else:
            full = self.dice.randrange(len(rest) + 1)
            self.pool.give_unnamed(full, len(rest) - full)
            self.plain.give(rest[:full], rest[full:])

    def agree(self) -> None:
        assert self.pool.free == len(self.plain.queue)
        assert self.pool.cached_keys == len(set(self.plain.names.values()))
        for key in range(KEYS):
            number, block = self.plain.oldest(key), self.pool.oldest(key)
            assert block is (None if number is None else self.known[number])
        for number in self.plain.names:
            assert self.known[number].users == self.plain.users[number]


@pytest.mark.parametrize("least_kept", [1024, 0, -(1 << 60)])
@pytest.mark.parametrize("seed", range(16))
def test_the_ledger_is_what_a_list_of_free_blocks_is(
    seed: int, least_kept: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whenever the queue is made anew: seldom, once its stale places are half, or at every return of blocks."""
    monkeypatch.setattr("isim.replay.pool._LEAST_KEPT", least_kept)
    both = Both(seed)
    for _ in range(150):
        what = both.dice.choice([both.begin, both.begin, both.name, both.give, both.give]) if both.held else both.begin
        what()
        both.agree()


def test_without_caching_blocks_are_counted() -> None:
    pool = Pool(5, caching=False, unkeyed_first=True)
    pool.take(3)
    pool.give_unnamed(1, 1)
    assert (pool.free, pool.cached_keys) == (4, 0)
    pool.take(4)
    assert pool.free == 0


def test_the_room_of_the_free_queue_is_bounded() -> None:
    """Whoever comes back to the same block again and again leaves a stale place behind each time."""
    pool = Pool(2, caching=True, unkeyed_first=False)
    pool.take(1)
    pool.give(pool.name([7]), 0)
    for _ in range(5000):
        found = pool.find([7], 1)
        pool.touch(found)
        pool.give(found, 0)
    assert len(pool._queue) < 2000
    pool.take(2)
    assert (pool.free, pool.cached_keys) == (0, 0)
