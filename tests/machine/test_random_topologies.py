"""Random valid topologies: read back as they were written, every byte accounted for, all of it shown."""

from __future__ import annotations

import json

import msgspec
import pytest
from random_machines import random_case

from isim.record.canonical import fingerprint
from isim.report.topology import render_topology
from isim.scenario.topology.types import DomainKind
from isim.topology.ledger import ledger_of
from isim.topology.load import read_topology


@pytest.mark.parametrize("seed", range(40))
def test_a_random_topology(seed: int) -> None:
    topology = random_case(seed, executions=1, steps=2).topology
    plain = msgspec.to_builtins(topology.scenario)
    again = read_topology(json.dumps(plain, indent=1).encode(), "t.json")
    assert again.scenario == topology.scenario
    assert fingerprint(msgspec.to_builtins(again.scenario)) == fingerprint(plain)
    ledger = ledger_of(topology)
    storage = [it.id for it in topology.scenario.memory_domains if it.kind is DomainKind.STORAGE]
    streaming = topology.scenario.execution.features.ssd_streaming
    charged = [
        owned.allocation
        for owned in topology.allocations.values()
        if not owned.allocation.alias_of and (streaming or owned.allocation.domain_id not in storage)
    ]
    assert sum(row.reserved_bytes for row in ledger.rows) == sum(each.bytes for each in charged)
    assert all(0 <= row.free_bytes == row.capacity_bytes - row.reserved_bytes for row in ledger.rows)
    text = render_topology(again, width=100)
    assert len([line for line in text.splitlines() if len(line) > 100]) == 0
    assert all(domain in text for domain in topology.domains)
