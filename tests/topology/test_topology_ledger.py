"""The ledger: conservation, aliases, storage off, unified memory; presets against sums made by hand."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plain import change, complaints, plain

from isim.scenario.topology.presets.catalogue import LANS, NAMES, ring_topology, topology_preset
from isim.scenario.topology.types import DeviceGovernor, DeviceKind, HostGovernor, Purpose, TopologyScenario
from isim.topology.governors import governors_of
from isim.topology.index import Topology
from isim.topology.ledger import LedgerError, ledger_of, reclassified
from isim.topology.validate import validate_topology

GIB = 1 << 30
PRESETS = (
    *NAMES,
    *(f"multi-gpu-ring-{ranks}" for ranks in (2, 3, 8, 64)),
    *(f"small-lan-{nodes}{suffix}" for nodes in (2, 3, 4) for suffix in LANS),
)


def topology_of(value: dict[str, Any]) -> Topology:
    return Topology(msgspec.convert(value, TopologyScenario))


def preset(name: str) -> Topology:
    scenario = topology_preset(name)
    assert scenario is not None
    return Topology(scenario)


@pytest.mark.parametrize("name", PRESETS)
def test_presets_hold_and_every_byte_is_somewhere(name: str) -> None:
    topology = preset(name)
    assert validate_topology(topology.scenario) == []
    ledger = ledger_of(topology)
    assert sum(row.reserved_bytes for row in ledger.rows) == sum(
        each.bytes for placement in topology.scenario.placements for each in placement.allocations
    )
    assert [row.domain_id for row in ledger.rows] == sorted(topology.domains)
    for row in ledger.rows:
        assert row.free_bytes == row.capacity_bytes - row.reserved_bytes >= 0
        assert sum(ledger.by_purpose(row.domain_id).values()) == row.reserved_bytes
        assert row.capacity_bytes == topology.domains[row.domain_id].resource_limit_bytes
        assert row.physical_capacity_bytes == topology.domains[row.domain_id].capacity_bytes


def test_rings_of_every_size_hold() -> None:
    for ranks in range(2, 65):
        scenario = ring_topology(ranks)
        assert validate_topology(scenario) == []
        assert len(scenario.groups[0].ordered_ranks) == ranks


def test_a_ledger_by_hand() -> None:
    ledger = ledger_of(preset("single-gpu-cpu"))
    vram = {"weights": 40 * GIB, "kv": 8 * GIB, "workspace": GIB // 4, "cache": 8 * GIB}
    assert ledger.by_purpose("node0:gpu0:vram") == vram
    assert ledger.by_purpose("node0:host") == {"staging": 4 * GIB, "cache": 8 * GIB}
    assert ledger.by_purpose("node0:storage") == {"backing": 512 * GIB}


def test_without_streaming_storage_is_off() -> None:
    value = plain("multi-gpu")
    change(value, "execution.features.ssdStreaming", False)
    assert complaints(value) == []
    row = ledger_of(topology_of(value)).rows[-1]
    assert (row.domain_id, row.enabled, row.physical_capacity_bytes) == ("node0:storage", False, 2048 * GIB)
    assert (row.capacity_bytes, row.reserved_bytes, row.free_bytes) == (0, 0, 0)


def test_an_alias_costs_nothing_and_follows_to_its_end() -> None:
    value = plain("unified-memory")
    allocations = value["placements"][0]["allocations"]
    before = ledger_of(topology_of(value))
    allocations.append({**allocations[2], "physicalAllocationId": "view", "aliasOf": "target-workspace", "bytes": 4096})
    allocations.append({**allocations[2], "physicalAllocationId": "view-of-view", "aliasOf": "view", "bytes": 64})
    assert complaints(value) == []
    topology = topology_of(value)
    after = ledger_of(topology)
    assert after.rows == before.rows
    (workspace,) = [entry for entry in after.entries if entry.purpose is Purpose.WORKSPACE]
    assert workspace.aliases == ("view", "view-of-view")
    owned = topology.physical("view-of-view")
    assert owned is not None and owned.allocation.physical_allocation_id == "target-workspace"


def test_an_alias_in_a_circle_has_no_end() -> None:
    value = plain("unified-memory")
    for index, other in ((0, "target-kv"), (1, "target-weights")):
        change(value, f"placements[0].allocations[{index}].aliasOf", other)
    assert topology_of(value).physical("target-kv") is None


@given(st.lists(st.tuples(st.integers(0, 4), st.sampled_from(list(Purpose))), max_size=12))
@settings(max_examples=50, derandomize=True, deadline=None)
def test_unified_memory_is_never_charged_twice(moves: list[tuple[int, Purpose]]) -> None:
    """However often entries change what they are for, each stays one entry, and every sum stays."""
    topology = preset("unified-memory")
    first = ledger = ledger_of(topology)
    inside = [entry.physical_allocation_id for entry in first.entries if entry.domain_id == "node0:unified"]
    purposes = {entry.physical_allocation_id: entry.purpose for entry in first.entries}
    for index, purpose in moves:
        purposes[inside[index]] = purpose
        ledger = reclassified(ledger, topology, inside[index], purpose)
    assert ledger.rows == first.rows
    assert {entry.physical_allocation_id: entry.purpose for entry in ledger.entries} == purposes
    assert [entry.bytes for entry in ledger.entries] == [entry.bytes for entry in first.entries]
    assert sum(ledger.by_purpose("node0:unified").values()) == first.rows[-1].reserved_bytes


def test_only_unified_memory_changes_its_purpose() -> None:
    topology = preset("multi-gpu")
    ledger = ledger_of(topology)
    with pytest.raises(LedgerError, match="copy it"):
        reclassified(ledger, topology, "weights-0", Purpose.CACHE)
    with pytest.raises(LedgerError, match="nothing"):
        reclassified(ledger, topology, "nothing", Purpose.CACHE)


@pytest.mark.parametrize("name", PRESETS)
def test_governors(name: str) -> None:
    """One host governor for each node, one device governor for each accelerator with own memory, none for storage."""
    topology = preset(name)
    scenario = topology.scenario
    owned = governors_of(topology)
    hosts = [each.governor.node_id for each in owned if isinstance(each.governor, HostGovernor)]
    devices = [each.governor.device_id for each in owned if isinstance(each.governor, DeviceGovernor)]
    assert sorted(hosts) == sorted({device.node_id for device in scenario.devices})
    own_memory = {domain.accessible_by[0] for domain in scenario.memory_domains if domain.kind == "device"}
    assert sorted(devices) == sorted(own_memory)
    assert all(topology.devices[device].kind is not DeviceKind.CPU for device in devices)
    governed = [domain for each in owned for domain in each.domain_ids]
    storage = [domain.id for domain in scenario.memory_domains if domain.kind == "storage"]
    assert sorted((*governed, *storage)) == sorted(topology.domains)


def test_a_machine_of_cpus_has_no_device_governor() -> None:
    assert [each.governor for each in governors_of(preset("cpu-only"))] == [HostGovernor(node_id="node0")]
