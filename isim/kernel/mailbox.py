"""Messages to an actor. What came is taken in the order of keys, not in the order in which senders happened to run."""

from __future__ import annotations

from operator import itemgetter
from typing import Generic, TypeVar

from isim.kernel.agenda import Key
from isim.kernel.alarm import Alarm

T = TypeVar("T")

_by_key = itemgetter(0)


class Mailbox(Generic[T]):
    """Items under keys for the owner of an alarm.

    Senders of an earlier rank than the owner's have all put before it wakes, so it sees an instant's items together.
    Items of one key stay in the order they were put: only one sender should use a key. An owner that could do nothing
    about an item before it wakes anyway sets `wakes` to False meanwhile.
    """

    __slots__ = ("_alarm", "items", "wakes")

    def __init__(self, alarm: Alarm) -> None:
        self._alarm = alarm
        self.items: list[tuple[Key, T]] = []
        """What is there, in no order that means anything: for looking."""
        self.wakes = True

    def put(self, key: Key, item: T) -> None:
        """Leave an item and fire the owner's alarm, unless the owner does not want to be woken."""
        self.items.append((key, item))
        if self.wakes:
            self._alarm.fire()

    def take(self) -> list[T]:
        """Everything that is there, in the order of keys; the mailbox is empty then."""
        items = self.items
        if not items:
            return []
        self.items = []
        if len(items) == 1:
            return [items[0][1]]
        items.sort(key=_by_key)
        return [item for _, item in items]
