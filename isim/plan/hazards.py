"""Who must wait for whom because of the buffers they use: the closure of hazards, in source order.

A read waits for the last writer of the allocation (read after write). A write waits for the last writer (write after
write) and for all who have read since (write after read). Reads wait for no reads. With these waits in the graph no
two steps that conflict over an allocation can ever overlap or change places, whatever else runs on the machine.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence


class Hazards:
    """The last writer of each allocation and the readers since, as far as the plan has been written.

    `physical` gives the allocation behind every name, so that an alias is what it stands for.
    """

    __slots__ = ("_physical", "_readers", "_writer")

    def __init__(self, physical: Mapping[str, str]) -> None:
        self._physical = physical
        self._writer: dict[str, int] = {}
        self._readers: dict[str, list[int]] = {}

    def take(self, step: int, waits: Sequence[int], reads: Sequence[str], writes: Sequence[str]) -> tuple[int, ...]:
        """What the next step of the plan waits for: `waits`, then what its buffers demand, each step once.

        Reads come before writes, allocations in the order given, a writer before the readers since.
        """
        needed = dict.fromkeys(waits)
        physical = self._physical
        reads, writes = [physical[name] for name in reads], [physical[name] for name in writes]
        for allocation in reads:
            if allocation in self._writer:
                needed[self._writer[allocation]] = None
        for allocation in writes:
            if allocation in self._writer:
                needed[self._writer[allocation]] = None
            needed.update(dict.fromkeys(self._readers.get(allocation, ())))
        for allocation in reads:
            self._readers.setdefault(allocation, []).append(step)
        for allocation in writes:
            self._writer[allocation] = step
            self._readers[allocation] = []
        return tuple(needed)
