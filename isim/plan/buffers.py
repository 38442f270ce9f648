"""The allocations of a topology as a plan sees them: where each lies, and which names are one and the same memory."""

from __future__ import annotations

from collections.abc import Iterable

from isim.topology.index import Topology


class Buffers:
    """`physical` gives, for each allocation's id, that of the memory behind it: its own, or what it is an alias of."""

    __slots__ = ("domain", "physical")

    def __init__(self, topology: Topology) -> None:
        self.domain = {name: owned.allocation.domain_id for name, owned in topology.allocations.items()}
        self.physical: dict[str, str] = {}
        for name in topology.allocations:
            behind = topology.physical(name)
            self.physical[name] = name if behind is None else behind.allocation.physical_allocation_id

    def roots(self, names: Iterable[str]) -> tuple[str, ...]:
        """The memory behind the names, each once, in the order of first use; unknown names stand for nothing."""
        return tuple(dict.fromkeys(self.physical[name] for name in names if name in self.physical))

    def first_names(self, names: Iterable[str]) -> tuple[str, ...]:
        """The names without those whose memory an earlier one has named."""
        first: dict[str, str] = {}
        for name in names:
            first.setdefault(self.physical[name], name)
        return tuple(first.values())
