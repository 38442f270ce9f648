"""One request, as the log makes it known, and the queue of those that wait."""

from __future__ import annotations

from collections import deque
from enum import Enum
from heapq import heappop, heappush

import msgspec

from isim.replay.chain import Chain
from isim.replay.pool import Block


class Stage(Enum):
    WAITING = "waiting"
    """In the queue: new, or preempted."""
    PREFILL = "prefill"
    """Running, with more to compute than the token it sampled last."""
    DECODE = "decode"
    """Running, one token due at each decision."""
    LAST = "last"
    """Running, its last token is under way; nothing is due."""
    GONE = "gone"
    """Finished or aborted."""


class Member(msgspec.Struct, eq=False, kw_only=True):
    """A request. While it decodes, `computed` and `sampled` are those before step `since`; both grow by one a step.

    output_tokens   what it will give: as asked, but not beyond max_model_len
    target          known tokens when it was admitted; its prefill ends there
    seq             number of its last admission: the running order
    sampled         tokens sampled in steps decided so far, delivered or not
    final           the step that will sample its last token, -1 when it is not on the way there
    run             first step of its present unbroken run of samples
    last            the last step that sampled for it, kept while it is not decoding or is held up
    held_up         it decodes, but the last step left it out
    """

    index: int
    id: str
    engine: int
    prompt_tokens: int
    output_tokens: int
    priority: int
    order: int
    chain: Chain | None
    quotable: bool
    stage: Stage = Stage.WAITING
    computed: int = 0
    target: int = 0
    seq: int = -1
    sampled: int = 0
    since: int = 0
    final: int = -1
    run: int = 0
    last: int = -1
    held_up: bool = False
    ticket: int = 0
    blocks: list[Block] = []  # msgspec copies an empty literal default for each member

    @property
    def known(self) -> int:
        """Tokens known of a request that does not decode: its prompt and what it sampled."""
        return self.prompt_tokens + self.sampled


class Queue:
    """Waiting requests in the order in which they will be served."""

    def __init__(self, *, by_priority: bool) -> None:
        self._by_priority = by_priority
        self._line: deque[tuple[int, Member]] = deque()
        self._heap: list[tuple[int, int, str, int, Member]] = []
        self._tickets = 0
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def push(self, member: Member, *, in_front: bool = False) -> None:
        """Queue it: at the end, or `in_front` of all; with priorities always in its place."""
        self._tickets += 1
        self._count += 1
        member.ticket = self._tickets
        if self._by_priority:
            heappush(self._heap, (member.priority, member.order, member.id, member.ticket, member))
        elif in_front:
            self._line.appendleft((member.ticket, member))
        else:
            self._line.append((member.ticket, member))

    def head(self) -> Member:
        """The next to be served; the queue is not empty."""
        if self._by_priority:
            heap = self._heap
            while heap[0][4].ticket != heap[0][3]:
                heappop(heap)
            return heap[0][4]
        line = self._line
        while line[0][1].ticket != line[0][0]:
            line.popleft()
        return line[0][1]

    def discard(self, member: Member) -> None:
        """Take a waiting request out, wherever it stands."""
        member.ticket = 0
        self._count -= 1
