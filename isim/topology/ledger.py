"""The reservation ledger: what the placements reserve of each memory domain, exactly, by domain and by purpose.

An entry is one physical allocation. Aliases are further names of it and cost nothing. What may be reserved of a domain
is its resource limit; a storage domain has none of it while SSD streaming is off. In unified memory an entry may change
what it is for; it stays the same bytes, which are never charged a second time.
"""

from __future__ import annotations

import msgspec
from msgspec import UNSET

from isim.record.errors import IsimError
from isim.scenario.topology.types import AllocationClass, DomainKind, Purpose, TopologyScenario
from isim.topology.index import Topology


class LedgerError(IsimError):
    """What is asked of the ledger would move or double bytes."""


class Entry(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One physical allocation, its owner, and the ids of its aliases in the order they are written."""

    physical_allocation_id: str
    domain_id: str
    partition_id: str
    allocation_class: AllocationClass
    purpose: Purpose
    bytes: int
    aliases: tuple[str, ...]


class DomainRow(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One domain. `capacity_bytes` is what may be reserved, 0 if the domain is not enabled."""

    domain_id: str
    enabled: bool
    physical_capacity_bytes: int
    capacity_bytes: int
    reserved_bytes: int
    free_bytes: int


class Ledger(msgspec.Struct, frozen=True):
    """All entries in the order of the scenario, and the domains by id."""

    entries: tuple[Entry, ...]
    rows: tuple[DomainRow, ...]

    def by_purpose(self, domain_id: str) -> dict[Purpose, int]:
        """Bytes reserved in the domain for each purpose that has some, in the order of the purposes."""
        sums = dict.fromkeys(Purpose, 0)
        for entry in self.entries:
            if entry.domain_id == domain_id:
                sums[entry.purpose] += entry.bytes
        return {purpose: total for purpose, total in sums.items() if total}


def ledger_of(topology: Topology) -> Ledger:
    """The ledger of a topology. A domain that holds more than it may has negative `free_bytes`."""
    scenario = topology.scenario
    entries = _entries(topology)
    kept = [entry for entry in entries if _enabled(scenario, topology.domains[entry.domain_id].kind)]
    reserved = dict.fromkeys(sorted(topology.domains), 0)
    for entry in kept:
        reserved[entry.domain_id] += entry.bytes
    rows = []
    for name, total in reserved.items():
        domain = topology.domains[name]
        enabled = _enabled(scenario, domain.kind)
        limit = domain.resource_limit_bytes if enabled else 0
        rows.append(
            DomainRow(
                domain_id=name,
                enabled=enabled,
                physical_capacity_bytes=domain.capacity_bytes,
                capacity_bytes=limit,
                reserved_bytes=total,
                free_bytes=limit - total,
            )
        )
    return Ledger(tuple(kept), tuple(rows))


def reclassified(ledger: Ledger, topology: Topology, allocation_id: str, purpose: Purpose) -> Ledger:
    """The ledger with one entry of unified memory, or one of its aliases, put to another purpose; no byte is moved.

    Raises LedgerError for an unknown id, and for memory that is not unified: there it takes a copy, a second entry.
    """
    owned = topology.physical(allocation_id)
    name = allocation_id if owned is None else owned.allocation.physical_allocation_id
    changed = next((entry for entry in ledger.entries if entry.physical_allocation_id == name), None)
    if changed is None:
        raise LedgerError(f"expected an allocation of the ledger, found {allocation_id}")
    kind = topology.domains[changed.domain_id].kind
    if kind is not DomainKind.UNIFIED:
        raise LedgerError(f"expected an allocation in unified memory, found {name} in {kind} memory: copy it instead")
    entries = tuple(
        msgspec.structs.replace(entry, purpose=purpose) if entry is changed else entry for entry in ledger.entries
    )
    return Ledger(entries, ledger.rows)


def _entries(topology: Topology) -> list[Entry]:
    aliases: dict[str, list[str]] = {}
    for name, owned in topology.allocations.items():
        physical = topology.physical(name)
        if owned.allocation.alias_of is not UNSET and physical is not None:
            aliases.setdefault(physical.allocation.physical_allocation_id, []).append(name)
    return [
        Entry(
            physical_allocation_id=name,
            domain_id=owned.allocation.domain_id,
            partition_id=owned.placement.partition_id,
            allocation_class=owned.allocation.allocation_class,
            purpose=owned.allocation.purpose,
            bytes=owned.allocation.bytes,
            aliases=tuple(aliases.get(name, ())),
        )
        for name, owned in topology.allocations.items()
        if owned.allocation.alias_of is UNSET and owned.allocation.domain_id in topology.domains
    ]


def _enabled(scenario: TopologyScenario, kind: DomainKind) -> bool:
    return kind is not DomainKind.STORAGE or scenario.execution.features.ssd_streaming
