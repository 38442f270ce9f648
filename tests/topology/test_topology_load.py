"""Files of topologies: what stands in them is read, or complained about with a place and a code; nothing crashes."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plain import at, change, complaints, plain, text_of

from isim.cli.main import main
from isim.plan.compile import compile_plan
from isim.plan.profile import target_only_profile
from isim.record.errors import IsimError
from isim.scenario.errors import ScenarioError
from isim.scenario.topology.presets.catalogue import ring_topology, small_lan_topology, topology_preset
from isim.scenario.topology.presets.lan import LanOptions, PresetError, configure_small_lan
from isim.scenario.topology.types import AllocationClass, LinkKind, Transport
from isim.topology.issues import IssueCode
from isim.topology.load import load_target, load_topology, read_topology
from isim.topology.validate import validate_topology

SCENARIOS = Path(__file__).parents[2] / "scenarios" / "topologies"
GIVEN = Path(__file__).parents[2].parent / "shared" / "reference" / "cases"


def refused(data: bytes) -> ScenarioError:
    with pytest.raises(ScenarioError) as caught:
        read_topology(data, "t.yaml")
    return caught.value


# ---- targets


@pytest.mark.parametrize("name", ["multi-gpu-ring-1", "multi-gpu-ring-65", "multi-gpu-ring-0", "small-lan-5"])
def test_sizes_out_of_range_are_said_to_be(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(PresetError, match="expected 2 to"):
        load_target(name)
    assert main(["scenario", name]) == 2
    assert "found" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["multi-gpu-ring-", "multi-gpu-ring-3x", "small-lan-2-wifi", "multi", ""])
def test_a_target_that_is_nothing_is_refused_with_what_there_is(name: str) -> None:
    with pytest.raises(ScenarioError, match="expected the name of a preset") as caught:
        load_target(name)
    assert "multi-gpu-ring-<2..64>" in str(caught.value)


def test_a_ring_by_name_is_the_builders() -> None:
    assert topology_preset("multi-gpu-ring-7") == ring_topology(7)
    assert topology_preset("multi-gpu-ring-07") == ring_topology(7)
    with pytest.raises(PresetError):
        ring_topology(1)


def test_the_small_ring_has_one_connection_and_larger_ones_are_closed() -> None:
    for ranks in range(2, 65):
        nvlinks = [link for link in ring_topology(ranks).links if link.kind == "nvlink"]
        assert len(nvlinks) == (2 if ranks == 2 else 2 * ranks)
        assert len({link.id for link in nvlinks}) == len(nvlinks)


@pytest.mark.parametrize("file", sorted(SCENARIOS.glob("*.yaml")), ids=lambda file: file.stem)
def test_heterogeneous_machines_load_validate_and_can_be_planned(file: Path) -> None:
    """Two vendors over host staging, NPU attention with GPU FFN, several CPU executors, a Mac beside a CUDA GPU."""
    topology = load_target(str(file))
    plan = compile_plan(topology, target_only_profile(3)).plan
    assert {rank for step in plan.steps for rank in step.participants} <= set(topology.ranks)
    assert main(["validate", str(file)]) == 0


def test_staging_of_two_vendors_is_on_the_way() -> None:
    topology = load_target(str(SCENARIOS / "two-vendors.yaml"))
    links = [step.operation.link_id for step in compile_plan(topology, target_only_profile(1)).plan.steps
             if hasattr(step.operation, "link_id")]  # fmt: skip
    assert links == ["pc:pcie0:reverse", "pc:pcie1:forward"]


# ---- what is no scenario


@pytest.mark.parametrize(
    ("text", "path", "code"),
    [
        ("", "", IssueCode.SCENARIO_BOUNDARY),
        ("[1]", "", IssueCode.SCENARIO_BOUNDARY),
        ("a: &x 1", "a", IssueCode.SCENARIO_BOUNDARY),
        ("schemaVersion: 4\nmore: 1", "schemaVersion", IssueCode.SCHEMA_VERSION),
        ("schemaVersion: '5'", "schemaVersion", IssueCode.SCHEMA_VERSION),
        ("{}", "schemaVersion", IssueCode.SCHEMA_VERSION),
        ('{"schemaVersion": 5, "schemaVersion": 5}', "schemaVersion", IssueCode.SCHEMA_VERSION),
    ],
)
def test_what_is_no_scenario(text: str, path: str, code: IssueCode) -> None:
    found = [(each.path, each.code) for each in refused(text.encode()).complaints]
    assert (path, code) in found
    assert all(code for _, code in found)


def test_bytes_that_are_no_text_and_files_that_are_not_there(tmp_path: Path) -> None:
    assert "UTF-8" in str(refused(b"\xff\xfe"))
    assert "at most" in str(refused(b"#" * ((1 << 20) + 1)))
    with pytest.raises(ScenarioError, match="found none"):
        load_topology(tmp_path / "none.yaml")
    with pytest.raises(ScenarioError, match="found none"):
        load_topology(tmp_path)


def test_everything_missing_is_said_at_once() -> None:
    found = refused(b"schemaVersion: 5\n").complaints
    keys = {"id", "family", "memoryDomains", "devices", "links", "placements", "transfers", "groups"}
    assert {each.path for each in found} == keys | {"workload", "execution", "calibration"}
    assert {each.code for each in found} == {IssueCode.SCENARIO_BOUNDARY}


def test_a_misspelt_key_is_met_with_the_nearest() -> None:
    value = plain("multi-gpu")
    change(value, "links[0].latencyNS", value["links"][0].pop("latencyNs"))
    (unknown, missing) = sorted(complaints(value), key=lambda each: "unknown" not in each.message)
    assert 'did you mean "latencyNs"?' in unknown.message
    assert missing.path == "links[0].latencyNs"


# ---- any value anywhere


def paths(value: Any, path: str = "") -> list[str]:
    """Every path of a value, the innermost ones and those on the way."""
    found = [path] if path else []
    if isinstance(value, dict):
        for key, inner in value.items():
            found += paths(inner, f"{path}.{key}" if path else key)
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            found += paths(inner, f"{path}[{index}]")
    return found


BASES = {name: plain(name) for name in ("gpu-npu", "small-lan-2-advanced-gpudirect", "mac-mini-m4-pro-64gb")}
ODD = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 3),
    st.sampled_from([1 << 53, -(1 << 70), 10**300, 0.5, 1e300, [], {}, [[]], [{}], {"kind": "host"}, "", "host"]),
    st.sampled_from(["node0:host", "node0:gpu0", "storage", "weights-0", "rank-0", "é", "\u2028", "x" * 2000]),
)


@given(st.sampled_from(sorted(BASES)), st.data())
@settings(max_examples=80, derandomize=True, deadline=None)
def test_any_value_anywhere(name: str, data: st.DataObject) -> None:
    """Up to three odd values put anywhere: accepted and usable, or complaints that each name a place, path and code."""
    value = copy.deepcopy(BASES[name])
    every = paths(value)
    for _ in range(data.draw(st.integers(1, 3))):
        path = data.draw(st.sampled_from(every))
        try:
            at(value, path)
        except (KeyError, IndexError, TypeError):
            continue
        change(value, path, data.draw(ODD))
    text = text_of(value)
    try:
        topology = read_topology(text.encode(), "t.json")
    except ScenarioError as error:
        lines = text.count("\n") + 1
        assert error.complaints
        for each in error.complaints:
            assert each.code in set(IssueCode) and each.message.startswith("expected ")
            assert 1 <= each.place.line <= lines
            assert "\n" not in each.text("t.json")
    else:
        try:
            compile_plan(topology, target_only_profile(1))
        except IsimError as error:
            assert error.exit_code == 2
        assert all(
            isinstance(form, AllocationClass) for it in topology.domains.values() for form in it.allocation_classes
        )


@pytest.mark.skipif(not GIVEN.is_dir(), reason=f"no recorded cases at {GIVEN}")
def test_the_recorded_file_with_many_issues_shows_them_all() -> None:
    """Six faults were put in; the rest of what is said follows from a GPU that no longer names its memory."""
    found = refused((GIVEN / "validate-many-issues" / "input.yaml").read_bytes()).complaints
    planted = {
        ("unknown_domain", "devices[1].memoryDomainIds[0]"),
        ("positive_integer", "links[0].bandwidthBytesPerSec"),
        ("missing_capability", "placements[0].requiredCapabilities[3]"),
        ("unknown_domain", "transfers[0].sourceDomainId"),
        ("unknown_device", "groups[0].orderedRanks[0].deviceId"),
        ("parallelism_composition", "execution.parallelism"),
    }
    said = {(str(each.code), each.path) for each in found}
    assert planted <= said
    assert {code for code, _ in said - planted} == {"asymmetric_access", "governor_device", "inaccessible_allocation"}


# ---- the builder of small networks


@pytest.mark.parametrize(
    "options",
    [
        LanOptions(transport=Transport.GPUDIRECT_RDMA),
        LanOptions(link_kind=LinkKind.NVLINK),
        LanOptions(nic_concurrency_lanes=0),
        LanOptions(fabric_concurrency_lanes=0),
        LanOptions(link_bandwidth_bytes_per_sec=0),
        LanOptions(link_latency_ns=-1),
    ],
)
def test_a_network_that_cannot_be_is_not_built(options: LanOptions) -> None:
    with pytest.raises(PresetError, match="expected"):
        small_lan_topology(2, options)


@pytest.mark.parametrize("nodes", [2, 3, 4])
@pytest.mark.parametrize("kind", [LinkKind.ETHERNET, LinkKind.INFINIBAND])
@pytest.mark.parametrize("transport", [None, *Transport])
def test_every_network_that_can_be_built_holds(nodes: int, kind: LinkKind, transport: Transport | None) -> None:
    options = LanOptions(advanced=True, link_kind=kind, transport=transport, link_latency_ns=0, fabric_latency_ns=0)
    scenario = small_lan_topology(nodes, options)
    assert validate_topology(scenario) == []
    again = configure_small_lan(scenario, LanOptions())
    assert len([link for link in again.links if link.kind == "ethernet"]) == nodes * (nodes - 1)


def test_a_small_network_needs_nodes_of_one_host_and_one_device_memory() -> None:
    for name in ("multi-gpu", "cpu-only", "unified-memory"):
        with pytest.raises(PresetError, match="small LAN"):
            configure_small_lan(load_target(name).scenario, LanOptions())


# ---- long files, which must not cost more than they are long


def many_peaks(value: Any) -> None:
    value["devices"][1]["customComputePeaks"] = [{"dtype": "fp16", "operationsPerSecond": 1}] * 3000


def many_broken_domains(value: Any) -> None:
    domain, transfer = value["memoryDomains"][0], value["transfers"][0]
    value["memoryDomains"] += [{**domain, "id": f"d{index}", "kind": "x"} for index in range(400)]
    value["transfers"] = [{**transfer, "id": f"t{index}", "sourceDomainId": f"d{index}"} for index in range(400)]


def many_staged_transfers(value: Any) -> None:
    value["transfers"] = [{**value["transfers"][0], "id": f"t{index}", "bytes": index + 1} for index in range(1000)]


def long_alias(value: Any) -> None:
    weights = value["placements"][0]["allocations"][0]
    value["placements"][0]["allocations"] += [
        {**weights, "physicalAllocationId": f"a{index}", "aliasOf": f"a{index + 1}", "bytes": 1}
        for index in range(1500)
    ]


@pytest.mark.parametrize(
    ("grow", "count"),
    [(many_peaks, 2999), (many_broken_domains, 1600), (many_staged_transfers, 0), (long_alias, 1500)],
)
def test_long_files(grow: Any, count: int) -> None:
    value = plain("gpu-npu")
    grow(value)
    try:
        read_topology(json.dumps(value).encode(), "t.json")
        found = 0
    except ScenarioError as error:
        found = len(error.complaints)
    assert found == count
