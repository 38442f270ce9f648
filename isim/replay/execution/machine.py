"""The machine of a log: are its facts in order, and which resources does a step hold?"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from isim.record.execution import (
    REVISION,
    SCHEMA,
    CollectiveFact,
    ComputeFact,
    DeviceFact,
    GroupFact,
    LinkFact,
    Machine,
    NetworkFact,
    OperationFact,
)
from isim.replay.execution.rules import ExecutionRule
from isim.replay.rules import Mismatch

Fact = TypeVar("Fact", DeviceFact, LinkFact, NetworkFact, GroupFact)


class Facts:
    """Everything by its id. `homes` gives the device of each rank."""

    def __init__(self, machine: Machine) -> None:
        found = (machine.schema, machine.revision)
        if found != (SCHEMA, REVISION):
            raise Mismatch(ExecutionRule.MACHINE, f"{SCHEMA} revision {REVISION}", f"{found[0]} revision {found[1]}")
        if machine.time_ns != 0:
            raise Mismatch(ExecutionRule.MACHINE, "a machine at 0 ns", f"{machine.time_ns} ns")
        self.epoch = machine.topology_epoch
        self.max_events = machine.max_events
        self.devices = _by_id("device", machine.devices)
        self.network = _by_id("network resource", machine.network)
        self.links = _by_id("link", machine.links)
        self.groups = _by_id("group", machine.groups)
        self.roots = dict(machine.aliases)
        self.homes: dict[str, str] = {}
        self._check(machine)

    def _check(self, machine: Machine) -> None:
        for kind, fact in _lanes(machine):
            if fact.lanes < 1:
                raise Mismatch(ExecutionRule.MACHINE, f"{kind} {fact.id} with at least 1 lane", f"{fact.lanes}")
        for link in machine.links:
            for name in link.network:
                _known("network resource", name, self.network)
            _unique(f"network resources of link {link.id}", link.network)
        for group in machine.groups:
            _unique(f"ranks of group {group.id}", [rank for rank, _ in group.ranks])
            for rank, device in group.ranks:
                _known("device", device, self.devices)
                if self.homes.setdefault(rank, device) != device:
                    raise Mismatch(ExecutionRule.MACHINE, f"rank {rank} on {self.homes[rank]}", f"on {device}")
        _unique("aliases", [alias for alias, _ in machine.aliases])
        for alias, root in machine.aliases:
            if root in self.roots:
                raise Mismatch(ExecutionRule.MACHINE, f"a physical allocation behind {alias}", f"the alias {root}")

    def resources(self, operation: OperationFact) -> list[str]:
        """What a step holds, in the order of the contract: communicator, then each link and what that uses."""
        if isinstance(operation, ComputeFact):
            return [f"compute:{operation.device}"]
        held: list[str] = []
        links: tuple[str, ...] = operation.links if isinstance(operation, CollectiveFact) else (operation.link,)
        if isinstance(operation, CollectiveFact):
            held.append(f"collective:{operation.group}")
        for link in links:
            for name in (f"link:{link}", *(f"network:{used}" for used in self.links[link].network)):
                if name not in held:
                    held.append(name)
        return held

    def lanes(self) -> dict[str, int]:
        """How many lanes each resource has."""
        counts = {f"compute:{device.id}": device.lanes for device in self.devices.values()}
        counts.update((f"link:{link.id}", link.lanes) for link in self.links.values())
        counts.update((f"network:{network.id}", network.lanes) for network in self.network.values())
        counts.update((f"collective:{group}", 1) for group in self.groups)
        return counts


def _lanes(machine: Machine) -> Iterable[tuple[str, DeviceFact | LinkFact | NetworkFact]]:
    for device in machine.devices:
        yield "device", device
    for link in machine.links:
        yield "link", link
    for network in machine.network:
        yield "network resource", network


def _by_id(kind: str, facts: tuple[Fact, ...]) -> dict[str, Fact]:
    _unique(f"{kind}s", [fact.id for fact in facts])
    return {fact.id: fact for fact in facts}


def _unique(what: str, names: Iterable[str]) -> None:
    seen: set[str] = set()
    for name in names:
        if not name or name in seen:
            raise Mismatch(ExecutionRule.MACHINE, f"{what} with names of their own", f"{name!r} twice or empty")
        seen.add(name)


def _known(kind: str, name: str, known: dict[str, DeviceFact] | dict[str, NetworkFact]) -> None:
    if name not in known:
        raise Mismatch(ExecutionRule.MACHINE, f"a known {kind}", repr(name))
