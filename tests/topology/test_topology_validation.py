"""One fault for each code: it is found, with its code, at its path, on its line, and it alone where it stands alone."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from plain import at, change, complaints, plain, text_of

from isim.scenario.errors import ScenarioError
from isim.topology.issues import MEANINGS, OWN_CODES, IssueCode, known
from isim.topology.issues import Issue as Found
from isim.topology.load import read_topology

Value = dict[str, Any]
Fault = Callable[[Value], None]
C = IssueCode
GIB = 1 << 30


def put(path: str, new: Any) -> Fault:
    return lambda value: change(value, path, new)


def grow(path: str, new: Any) -> Fault:
    return lambda value: at(value, path).append(new)


def drop(path: str, key: str) -> Fault:
    return lambda value: at(value, path).pop(key)


def both(*faults: Fault) -> Fault:
    def apply(value: Value) -> None:
        for fault in faults:
            fault(value)

    return apply


def copied(section: str) -> Fault:
    return lambda value: value[section].append(value[section][0])


def curve(*sizes: int) -> list[Value]:
    return [{"messageBytes": size, "latencyNs": 5} for size in sizes]


MULTI, NPU, MAC, LAN = "multi-gpu", "gpu-npu", "mac-mini-m4-pro-64gb", "small-lan-2-advanced-gpudirect"
RDMA = "small-lan-2-advanced-rdma"
COEFFICIENT = {
    "id": "a",
    "value": 1,
    "provenance": {"confidence": "calibrated", "source": "a run"},
    "measuredAt": "2026-01-01",
    "softwareStack": "some",
}

ALONE: list[tuple[IssueCode, str, str, Fault]] = [
    (C.SCENARIO_BOUNDARY, MULTI, "extra", put("extra", 1)),
    (C.SCENARIO_BOUNDARY, MULTI, "links[0].latency", put("links[0].latency", 1)),
    (C.SCENARIO_BOUNDARY, MULTI, "links[1].latencyNs", put("links[1].latencyNs", "5")),
    (C.SCENARIO_BOUNDARY, MULTI, "links[1].latencyNs", put("links[1].latencyNs", 5.0)),
    (C.SCENARIO_BOUNDARY, MULTI, "links[1].latencyNs", put("links[1].latencyNs", True)),
    (C.SCENARIO_BOUNDARY, MULTI, "links[1].latencyNs", drop("links[1]", "latencyNs")),
    (C.SCENARIO_BOUNDARY, MULTI, "memoryDomains[1].governor.nodeId", put("memoryDomains[1].governor.nodeId", "x")),
    (C.SCHEMA_VERSION, MULTI, "schemaVersion", put("schemaVersion", 4)),
    (C.SCHEMA_VERSION, MULTI, "schemaVersion", drop("", "schemaVersion")),
    (C.ENUM_VALUE, MULTI, "links[1].kind", put("links[1].kind", "pci")),
    (C.ENUM_VALUE, MULTI, "memoryDomains[3].governor.kind", put("memoryDomains[3].governor.kind", "nobody")),
    (C.INVALID_FEATURE, MULTI, "execution.features.ssd", put("execution.features.ssd", True)),
    (C.INVALID_FEATURE, MULTI, "execution.features.ssdStreaming", put("execution.features.ssdStreaming", 1)),
    (C.EMPTY_ID, MULTI, "links[3].id", put("links[3].id", "")),
    (C.POSITIVE_INTEGER, MULTI, "links[1].concurrencyLanes", put("links[1].concurrencyLanes", 0)),
    (C.POSITIVE_INTEGER, MULTI, "execution.maxEvents", put("execution.maxEvents", 1 << 53)),
    (C.POSITIVE_INTEGER, MULTI, "workload.batchSize", put("workload.batchSize", -1)),
    (C.NON_NEGATIVE_INTEGER, MULTI, "execution.seed", put("execution.seed", -1)),
    (C.NON_NEGATIVE_INTEGER, MULTI, "memoryDomains[0].latencyNs", put("memoryDomains[0].latencyNs", 1 << 60)),
    (C.DUPLICATE_VALUE, MULTI, "devices[1].capabilities[6]", grow("devices[1].capabilities", "ffn")),
    (C.EMPTY_PROVENANCE, MULTI, "links[2].provenance.source", put("links[2].provenance.source", "")),
    (C.UNKNOWN_DEVICE, MULTI, "memoryDomains[0].accessibleBy[3]", grow("memoryDomains[0].accessibleBy", "who")),
    (C.UNKNOWN_DOMAIN, MULTI, "devices[1].memoryDomainIds[2]", grow("devices[1].memoryDomainIds", "where")),
    (C.RESOURCE_LIMIT, MULTI, "memoryDomains[0].resourceLimitBytes",
     put("memoryDomains[0].resourceLimitBytes", 1 << 40)),
    (C.STORAGE_GOVERNOR, MULTI, "memoryDomains[3].governor",
     put("memoryDomains[3].governor", {"kind": "host", "nodeId": "node0"})),
    (C.STORAGE_ACCESS, MULTI, "memoryDomains[3].accessibleBy[1]",
     both(grow("memoryDomains[3].accessibleBy", "node0:gpu0"), grow("devices[1].memoryDomainIds", "node0:storage"))),
    (C.UNIFIED_CLASS, MULTI, "memoryDomains[0].allocationClasses",
     grow("memoryDomains[0].allocationClasses", "unified")),
    (C.UNIFIED_CLASS, MAC, "memoryDomains[0].allocationClasses",
     grow("memoryDomains[0].allocationClasses", "pageable")),
    (C.STORAGE_CLASS, MULTI, "memoryDomains[0].allocationClasses",
     grow("memoryDomains[0].allocationClasses", "storage")),
    (C.STORAGE_CLASS, MULTI, "memoryDomains[3].allocationClasses",
     grow("memoryDomains[3].allocationClasses", "pinned")),
    (C.GOVERNOR_NODE, MULTI, "memoryDomains[0].governor.nodeId", put("memoryDomains[0].governor.nodeId", "node7")),
    (C.GOVERNOR_NODE, MULTI, "memoryDomains[0].governor", put("memoryDomains[0].governor", {"kind": "none"})),
    (C.GOVERNOR_DEVICE, MULTI, "memoryDomains[1].governor", put("memoryDomains[1].governor", {"kind": "none"})),
    (C.GOVERNOR_DEVICE, MULTI, "memoryDomains[1].governor.deviceId",
     put("memoryDomains[1].governor.deviceId", "node0:gpu1")),
    (C.GOVERNOR_DEVICE, MULTI, "memoryDomains[1].governor.deviceId",
     put("memoryDomains[1].governor.deviceId", "node0:cpu0")),
    (C.EMPTY_EP, MULTI, "devices[0].executionProvider", put("devices[0].executionProvider", "")),
    (C.ASYMMETRIC_ACCESS, MULTI, "devices[0].memoryDomainIds[2]",
     grow("devices[0].memoryDomainIds", "node0:gpu0:vram")),
    (C.ASYMMETRIC_ACCESS, MULTI, "memoryDomains[1].accessibleBy[1]",
     grow("memoryDomains[1].accessibleBy", "node0:gpu1")),
    (C.UNKNOWN_COMPUTE_PROFILE, MAC, "devices[1].computeProfileId", put("devices[1].computeProfileId", "m99")),
    (C.COMPUTE_PROFILE_KIND_MISMATCH, MAC, "devices[1].computeProfileId",
     put("devices[1].computeProfileId", "apple-m2-cpu")),
    (C.MULTIPLE_COMPUTE_PROFILES, MAC, "devices[1].customComputePeaks",
     put("devices[1].customComputePeaks", [{"dtype": "fp16", "operationsPerSecond": 5}])),
    (C.EMPTY_CUSTOM_COMPUTE_PEAKS, MULTI, "devices[1].customComputePeaks", put("devices[1].customComputePeaks", [])),
    (C.POSITIVE_COMPUTE_PEAK, MULTI, "devices[1].customComputePeaks[0].operationsPerSecond",
     put("devices[1].customComputePeaks", [{"dtype": "fp16", "operationsPerSecond": 0}])),
    (C.DUPLICATE_VALUE, MULTI, "devices[1].customComputePeaks[1].dtype",
     put("devices[1].customComputePeaks", [{"dtype": "fp16", "operationsPerSecond": 5}] * 2)),
    (C.SELF_LINK, MULTI, "links[6].targetDomainId", put("links[6].targetDomainId", "node0:storage")),
    (C.INVALID_TRANSPORT_LINK, "small-lan-2", "links[4].transport",
     both(put("links[4].kind", "thunderbolt"), put("links[4].transport", "rdma_host"))),
    (C.UNKNOWN_NETWORK_RESOURCE, RDMA, "links[4].networkResourceIds[1]",
     put("links[4].networkResourceIds[1]", "fabric9")),
    (C.INVALID_NETWORK_PATH, RDMA, "links[4].networkResourceIds",
     put("links[4].networkResourceIds", ["node0:nic0", "lan:fabric0"])),
    (C.INVALID_NETWORK_PATH, RDMA, "links[4].networkResourceIds", drop("links[4]", "transport")),
    (C.INVALID_NETWORK_NODE, RDMA, "networkResources[2].nodeId", put("networkResources[2].nodeId", "node0")),
    (C.INVALID_DIRECT_MEMORY, RDMA, "networkResources[0].directMemoryDomainIds[0]",
     put("networkResources[0].directMemoryDomainIds", ["node1:gpu0:vram"])),
    (C.INVALID_DIRECT_MEMORY, RDMA, "networkResources[0].directMemoryDomainIds[0]",
     put("networkResources[0].directMemoryDomainIds", ["node0:host"])),
    (C.INVALID_DIRECT_MEMORY, LAN, "links[4]", drop("links[4]", "networkResourceIds")),
    (C.MISSING_CAPABILITY, MULTI, "placements[0].requiredCapabilities[3]",
     grow("placements[0].requiredCapabilities", "lookup")),
    (C.UNSUPPORTED_DTYPE, MULTI, "placements[0].dtype", put("placements[0].dtype", "int4")),
    (C.DUPLICATE_ALLOCATION, MULTI, "placements[1].allocations[0].physicalAllocationId",
     put("placements[1].allocations[0].physicalAllocationId", "weights-0")),
    (C.UNSUPPORTED_ALLOCATION_CLASS, MULTI, "placements[0].allocations[0].allocationClass",
     put("placements[0].allocations[0].allocationClass", "pinned")),
    (C.INACCESSIBLE_ALLOCATION, MULTI, "placements[0].allocations[1].domainId",
     put("placements[0].allocations[1].domainId", "node0:gpu1:vram")),
    (C.SELF_ALIAS, MULTI, "placements[0].allocations[0].aliasOf",
     put("placements[0].allocations[0].aliasOf", "weights-0")),
    (C.UNKNOWN_ALLOCATION, MULTI, "placements[0].allocations[0].aliasOf",
     put("placements[0].allocations[0].aliasOf", "what")),
    (C.UNKNOWN_ALLOCATION, NPU, "transfers[0].stagingAllocationIds[0]",
     put("transfers[0].stagingAllocationIds", ["what"])),
    (C.INVALID_ALIAS, MULTI, "placements[0].allocations[0].domainId",
     put("placements[0].allocations[0].aliasOf", "weights-1")),
    (C.INVALID_ALIAS, MULTI, "placements[0].allocations[0].bytes",
     put("placements[0].allocations[0].aliasOf", "kv-0")),
    (C.INTEGER_OVERFLOW, MULTI, "memoryDomains[3]",
     both(put("memoryDomains[3].capacityBytes", (1 << 53) - 1),
          put("placements[2].allocations[0].bytes", (1 << 53) - 1),
          grow("placements[2].allocations", {"physicalAllocationId": "more", "domainId": "node0:storage", "bytes": 1,
                                             "allocationClass": "storage", "purpose": "backing"}))),
    (C.DOMAIN_OVER_CAPACITY, MULTI, "memoryDomains[1].capacityBytes",
     put("placements[0].allocations[0].bytes", 90 * GIB)),
    (C.DOMAIN_OVER_LIMIT, MULTI, "memoryDomains[1].resourceLimitBytes",
     put("memoryDomains[1].resourceLimitBytes", 50 * GIB)),
    (C.NO_TRANSFER_PATH, MULTI, "transfers[0]", put("transfers[0].targetDomainId", "node0:storage")),
    (C.UNEXPECTED_STAGING, NPU, "transfers[0].stagingAllocationIds", put("transfers[0].requiresPinnedStaging", False)),
    (C.MISSING_STAGING, NPU, "transfers[0].stagingAllocationIds", put("transfers[0].stagingAllocationIds", [])),
    (C.INVALID_STAGING, NPU, "transfers[0].stagingAllocationIds[0]",
     put("transfers[0].stagingAllocationIds", ["attention-kv"])),
    (C.INVALID_STAGING, "multi-node", "transfers[0].stagingAllocationIds[1]",
     both(put("transfers[0].targetDomainId", "node0:host"), put("transfers[0].sourceDomainId", "node1:gpu0:vram"),
          put("transfers[0].stagingAllocationIds", ["staging-1", "staging-0"]))),
    (C.EMPTY_GROUP, MULTI, "groups[2].orderedRanks", grow("groups", {"id": "none", "orderedRanks": []})),
    (C.DUPLICATE_RANK, MULTI, "groups[1].orderedRanks[1].rankId",
     grow("groups[1].orderedRanks", {"rankId": "host-rank:node0:cpu0", "deviceId": "node0:gpu0"})),
    (C.RANK_REMAP, MULTI, "groups[1].orderedRanks[0].deviceId", put("groups[1].orderedRanks[0].rankId", "rank-0")),
    (C.DUPLICATE_GROUP_DEVICE, MULTI, "groups[1].orderedRanks[1].deviceId",
     grow("groups[1].orderedRanks", {"rankId": "again", "deviceId": "node0:cpu0"})),
    (C.NO_GROUP_PATH, MULTI, "groups[0].orderedRanks[0]",
     both(put("transfers", []), lambda value: value["links"].pop(4), lambda value: value["links"].pop(2))),
    (C.PARALLELISM_COMPOSITION, MULTI, "execution.parallelism", put("execution.parallelism.tensor", 3)),
    (C.PARALLELISM_COMPOSITION, MULTI, "execution.parallelism", put("execution.parallelism.pipeline", 2)),
    (C.PARALLELISM_PARTICIPANTS, MULTI, "execution.parallelism",
     both(put("execution.parallelism.tensor", 3), put("execution.parallelism.expert", 3))),
    (C.PARALLELISM_PARTICIPANTS, MULTI, "execution.parallelism", put("execution.parallelism.composition", "cartesian")),
    (C.PARALLELISM_PARTICIPANTS, NPU, "execution.parallelism.pipeline", lambda value: value["groups"].pop(0)),
    (C.INVALID_CURVE, MULTI, "links[0].latencyCurve", put("links[0].latencyCurve", curve(5))),
    (C.INVALID_CURVE, MULTI, "links[0].latencyCurve[2].messageBytes", put("links[0].latencyCurve", curve(1, 7, 7))),
    (C.INVALID_CALIBRATION, MULTI, "calibration.coefficients[0].value",
     put("calibration.coefficients", [{**COEFFICIENT, "value": -0.5}])),
    (C.INVALID_CALIBRATION, MULTI, "calibration.coefficients[0].maximum",
     put("calibration.coefficients", [{**COEFFICIENT, "minimum": 4, "maximum": 3}])),
    (C.INVALID_CALIBRATION, MULTI, "calibration.coefficients[0].softwareStack",
     put("calibration.coefficients", [{**COEFFICIENT, "softwareStack": ""}])),
    (C.DUPLICATE_ID, MULTI, "calibration.coefficients[1].id", put("calibration.coefficients", [COEFFICIENT] * 2)),
    *((C.DUPLICATE_ID, RDMA, f"{section}[{count}].{key}", copied(section)) for section, count, key in
      (("memoryDomains", 6, "id"), ("networkResources", 3, "id"), ("transfers", 1, "id"))),
]  # fmt: skip

AMONG: list[tuple[IssueCode, str, str, Fault]] = [
    (C.INVALID_TRANSPORT_LINK, MULTI, "links[4].transport", put("links[4].transport", "tcp")),
    (C.UNSUPPORTED_NETWORK_TRANSPORT, RDMA, "links[5].networkResourceIds[1]",
     put("networkResources[2].supportedTransports", ["tcp"])),
    (C.INVALID_NETWORK_NODE, RDMA, "links[4].networkResourceIds",
     put("links[4].networkResourceIds", ["node1:nic0", "lan:fabric0", "node0:nic0"])),
    (C.EMPTY_CLASSES, MULTI, "memoryDomains[1].allocationClasses", put("memoryDomains[1].allocationClasses", [])),
    (C.NO_MEMORY, MULTI, "devices[1].memoryDomainIds", put("devices[1].memoryDomainIds", [])),
    (C.DUPLICATE_ID, MULTI, "placements[3].partitionId", copied("placements")),
    (C.DUPLICATE_ID, MULTI, "groups[2].id", copied("groups")),
    (C.DUPLICATE_ID, MULTI, "links[7].id", copied("links")),
    (C.DUPLICATE_ID, MULTI, "devices[3].id", copied("devices")),
    (C.INVALID_TRANSPORT_LINK, RDMA, "links[4].transport", put("links[4].transport", "gpudirect_rdma")),
    (C.INVALID_DIRECT_MEMORY, LAN, "links[4].networkResourceIds",
     put("networkResources[0].directMemoryDomainIds", [])),
    (C.INVALID_NETWORK_NODE, RDMA, "networkResources[0].nodeId", drop("networkResources[0]", "nodeId")),
    (C.INVALID_ALIAS, MULTI, "placements[0].allocations[0].aliasOf",
     both(put("placements[0].allocations[0].aliasOf", "kv-0"),
          put("placements[0].allocations[1].aliasOf", "weights-0"))),
]  # fmt: skip
"""Faults that others follow from."""


def names(table: list[tuple[IssueCode, str, str, Fault]]) -> list[str]:
    return [f"{code}:{path}" for code, _, path, _ in table]


@pytest.mark.parametrize("preset", sorted({preset for _, preset, *_ in (*ALONE, *AMONG)}))
def test_without_a_fault_there_is_no_complaint(preset: str) -> None:
    assert complaints(plain(preset)) == []


@pytest.mark.parametrize(("code", "preset", "path", "fault"), ALONE, ids=names(ALONE))
def test_one_fault_gives_one_complaint(code: IssueCode, preset: str, path: str, fault: Fault) -> None:
    value = plain(preset)
    fault(value)
    found = complaints(value)
    assert [(each.code, each.path) for each in found] == [(code, path)]
    line = text_of(value).splitlines()[found[0].place.line - 1]
    key = re.sub(r"\[\d+\]$", "", path).rsplit(".", 1)[-1]
    assert f'"{key}"' in line or path.endswith("]") or code in (C.SCENARIO_BOUNDARY, C.SCHEMA_VERSION), line
    assert found[0].message.startswith("expected ") and "found" in found[0].message


@pytest.mark.parametrize(("code", "preset", "path", "fault"), AMONG, ids=names(AMONG))
def test_a_fault_that_others_follow_from_is_among_them(code: IssueCode, preset: str, path: str, fault: Fault) -> None:
    value = plain(preset)
    fault(value)
    assert (code, path) in [(each.code, each.path) for each in complaints(value)]


def test_every_code_is_in_the_tables_and_has_a_meaning() -> None:
    assert sorted({code for code, *_ in (*ALONE, *AMONG)}) == sorted(IssueCode) == sorted(MEANINGS)
    assert list(IssueCode)[-len(OWN_CODES) :] == list(OWN_CODES)


def test_the_page_lists_every_code() -> None:
    page = (Path(__file__).parents[2] / "docs" / "topology.md").read_text().partition("## What can be wrong")[2]
    rows = re.findall(r"^\| `(\w+)` \| (.*) \|$", page, re.MULTILINE)
    assert dict(rows) == {code.value: meaning for code, meaning in MEANINGS.items()}


def test_all_faults_at_once_each_on_its_line() -> None:
    """Faults that have nothing to do with each other are all found in one reading."""
    value = plain(MULTI)
    chosen: list[tuple[IssueCode, str, Fault]] = [
        (C.POSITIVE_INTEGER, "links[2].bandwidthBytesPerSec", put("links[2].bandwidthBytesPerSec", 0)),
        (C.EMPTY_EP, "devices[0].executionProvider", put("devices[0].executionProvider", "")),
        (C.UNKNOWN_DOMAIN, "devices[2].memoryDomainIds[2]", grow("devices[2].memoryDomainIds", "where")),
        (C.ENUM_VALUE, "links[5].kind", put("links[5].kind", "wire")),
        (C.SCENARIO_BOUNDARY, "workload.more", put("workload.more", 1)),
        (C.UNSUPPORTED_DTYPE, "placements[1].dtype", put("placements[1].dtype", "fp64")),
        (C.PARALLELISM_COMPOSITION, "execution.parallelism", put("execution.parallelism.data", 4)),
    ]
    for *_, fault in chosen:
        fault(value)
    found = complaints(value)
    assert sorted((each.code, each.path) for each in found) == sorted((code, path) for code, path, _ in chosen)
    assert [each.place for each in found] == sorted(each.place for each in found)


def test_the_device_of_a_draft_model_is_no_participant() -> None:
    """A draft model of its own on the CPU of a machine whose GPU serves the target."""
    value = plain("single-gpu-cpu")
    value["devices"][0]["capabilities"] += ["attention", "ffn", "draft"]
    draft = {"partitionId": "draft", "deviceId": "node0:cpu0", "requiredCapabilities": ["attention", "ffn", "draft"]}
    value["placements"].append({**draft, "allocations": []})
    assert complaints(value) == []
    value["placements"][-1]["requiredCapabilities"].pop()
    assert [each.code for each in complaints(value)] == [C.PARALLELISM_PARTICIPANTS]


def test_what_hangs_on_a_broken_value_is_not_judged() -> None:
    """A memory whose kind cannot be read says nothing wrong about governors, classes, transports or staging."""
    value = plain(MULTI)
    change(value, "memoryDomains[0].kind", "hoost")
    change(value, "devices[2].memoryDomainIds", 7)
    assert [(each.code, each.path) for each in complaints(value)] == [
        (C.ENUM_VALUE, "memoryDomains[0].kind"),
        (C.SCENARIO_BOUNDARY, "devices[2].memoryDomainIds"),
    ]


def test_dependencies_on_placeholders() -> None:
    issues = [
        Found(C.EMPTY_ID, "a[1].b", ""),
        Found(C.EMPTY_ID, "a[2].b", "", ("c[*].d",)),
        Found(C.EMPTY_ID, "a[1]", ""),
    ]
    assert known(issues, ["a[1].b"]) == issues[1:]
    assert known(issues, ["a[1]"]) == issues[1:2]
    assert known(issues, ["c[4].d"]) == known(issues, ["c[4]"]) == known(issues, ["c"]) == [issues[0], issues[2]]
    assert known(issues, ["c[4].e"]) == issues


@pytest.mark.parametrize("name", [MULTI, NPU, MAC, LAN, "multi-gpu-ring-5"])
def test_yaml_and_json_say_the_same(name: str) -> None:
    value = plain(name)
    as_json = read_topology(text_of(value).encode(), "a.json")
    as_yaml = read_topology(yaml_of(value).encode(), "a.yaml")
    assert as_json.scenario == as_yaml.scenario


def test_json_is_read_as_yaml_reads_it() -> None:
    """The same complaints from the quick reader of JSON and, behind a comment, from that of YAML, one line later."""
    for code, preset, _, fault in ALONE[::10]:
        value = plain(preset)
        fault(value)
        quick = complaints(value)
        with pytest.raises(ScenarioError) as caught:
            read_topology(f"# {code}\n{text_of(value)}".encode(), "t.json")
        slow = caught.value.complaints
        assert [(each.path, each.message, each.code) for each in slow] == [
            (each.path, each.message, each.code) for each in quick
        ]
        assert [(each.place.line - 1, each.place.column) for each in slow] == [
            (each.place.line, each.place.column) for each in quick
        ]


def yaml_of(value: Any, depth: int = 0) -> str:
    """Block style, written here; texts are quoted."""
    pad = "  " * depth
    if isinstance(value, dict):
        return "".join(f"{pad}{key}:{_after(inner, depth)}" for key, inner in value.items())
    return "".join(f"{pad}-{_after(inner, depth)}" for inner in value)


def _after(value: Any, depth: int) -> str:
    if isinstance(value, dict | list) and value:
        return "\n" + yaml_of(value, depth + 1)
    return f" {text_of(value)}\n"
