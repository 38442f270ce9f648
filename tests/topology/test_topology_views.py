"""`isim scenario`, `isim validate` and the views: what is shown is what the scenario says, for every preset."""

from __future__ import annotations

import json
import re
from pathlib import Path

import jsonschema
import pytest

from isim.cli.kinds import FileKind, kind_of
from isim.cli.main import main
from isim.report.topology import render_topology
from isim.scenario.topology.presets.catalogue import NAMES, topology_preset
from isim.topology.index import Topology
from isim.topology.load import load_target, load_topology

WIDTH = 120
SHOWN = (*NAMES, "multi-gpu-ring-4", "small-lan-3-advanced-rdma", "small-lan-2-advanced-gpudirect")


def topology(name: str) -> Topology:
    scenario = topology_preset(name)
    assert scenario is not None
    return Topology(scenario)


def section(text: str, title: str) -> str:
    return text.partition(f"\n{title}\n")[2].partition("\n\n")[0]


@pytest.mark.parametrize("name", SHOWN)
def test_every_link_and_access_is_shown_and_marked(name: str) -> None:
    shown = topology(name)
    scenario = shown.scenario
    text = render_topology(shown, width=WIDTH)
    node = {domain.id: domain.node_id for domain in scenario.memory_domains}
    links = section(text, "Links")
    assert len(re.findall("(?:intra|inter)-node", links)) == len(scenario.links)
    between = [link for link in scenario.links if node[link.source_domain_id] != node[link.target_domain_id]]
    assert links.count("inter-node") == len(between)
    accesses = section(text, "Devices and the memories they reach")
    assert accesses.count("intra-node") == sum(len(device.memory_domain_ids) for device in scenario.devices)
    memory = section(text, "Memory")
    for domain in scenario.memory_domains:
        assert domain.id in memory
    if scenario.network_resources:
        assert all(one.id in section(text, "Network resources") for one in scenario.network_resources)
    assert all(group.id in section(text, "Groups") for group in scenario.groups)


@pytest.mark.parametrize("width", [60, 80, 100, 200])
def test_it_fits_the_terminal_in_unicode_and_in_ascii(width: int) -> None:
    for name in ("multi-node", "small-lan-2-advanced-tcp"):
        text = render_topology(topology(name), width=width)
        assert max(len(line) for line in text.splitlines()) <= min(width, 120)
        assert "\x1b" not in text
        ascii_text = render_topology(topology(name), width=width, unicode=False)
        assert ascii_text.isascii()
        assert "\x1b" in render_topology(topology(name), width=width, color=True)


def test_bars_are_as_long_as_what_is_reserved() -> None:
    """52.125 of 80 GiB is 65 % of 16 columns: ten of them."""
    text = section(render_topology(topology("multi-gpu"), width=WIDTH), "Memory")
    bars = [re.search("[█░]{16}", line) for line in text.splitlines() if "node0:gpu0:vram" in line]
    assert [bar[0].count("█") for bar in bars if bar] == [10]


def test_json_is_the_scenario_and_its_ledger(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["scenario", "gpu-npu", "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert list(printed) == ["scenario", "memoryLedger"]
    assert main(["schema", "topology"]) == 0
    jsonschema.validate(printed["scenario"], json.loads(capsys.readouterr().out))
    assert [row["domainId"] for row in printed["memoryLedger"]] == sorted(
        domain["id"] for domain in printed["scenario"]["memoryDomains"]
    )


@pytest.mark.parametrize("name", ["cpu-only", "small-lan-3-advanced-gpudirect"])
def test_what_is_written_can_be_read_again(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = str(tmp_path / "t.json")
    assert main(["scenario", name, "--out", file]) == 0
    text = capsys.readouterr().out
    assert load_topology(file).scenario == load_target(name).scenario
    assert main(["scenario", file]) == 0
    assert capsys.readouterr().out == text
    assert main(["validate", file]) == 0
    assert "fingerprint" in capsys.readouterr().out
    assert main(["scenario", name, "--out", file]) == 2
    assert "new file" in capsys.readouterr().err


def test_an_invalid_file_shows_all_with_codes_and_exits_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "t.json"
    assert main(["scenario", "cpu-only", "--out", str(file)]) == 0
    capsys.readouterr()
    value = json.loads(file.read_text())
    value["links"][0]["latencyNs"] = -1
    value["devices"][0]["executionProvider"] = ""
    file.write_text(json.dumps(value, indent=1))
    for verb in ("validate", "scenario"):
        assert main([verb, str(file)]) == 2
        printed = capsys.readouterr()
        assert printed.out == ""
        said = printed.err.splitlines()
        assert [re.search(r"\[(\w+)\]$", line)[1] for line in said] == ["empty_ep", "non_negative_integer"]  # type: ignore[index]
        assert all(re.search(r"t\.json:\d+:\d+: ", line) for line in said)


def test_overrides_are_for_run_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "t.json"
    assert main(["scenario", "cpu-only", "--out", str(file)]) == 0
    assert main(["validate", str(file), "--set", "id=x"]) == 2
    assert "run file for --set" in capsys.readouterr().err


def test_aliases_are_shown_as_charged_once() -> None:
    file = Path(__file__).parents[2] / "scenarios" / "topologies" / "overflow-to-mac.yaml"
    text = section(render_topology(load_topology(file), width=WIDTH), "Aliases")
    assert re.search(r"mac-workspace +mac-logits +256 MiB +charged once", text)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("schemaVersion: 5\nid: x\n", FileKind.TOPOLOGY),
        ("# a comment\n'schemaVersion' : 4\n", FileKind.TOPOLOGY),
        ('{"id": 1, "memoryDomains": []}', FileKind.TOPOLOGY),
        ('{"kind": "x", "planContractRevision": 5, "scenario": {"schemaVersion": 5}}', FileKind.PLAN),
        ("target_only:\n  token_count: 3\n", FileKind.WORKLOAD),
        ("schema: isim/topology-workload\n", FileKind.WORKLOAD),
        ("{target_only: {token_count: 3}}", FileKind.WORKLOAD),
        ("schema_version: 1\nname: x\n", FileKind.RUN),
        ("other:\n  schemaVersion: 5\n", FileKind.RUN),
        ("", FileKind.RUN),
        ("{", FileKind.RUN),
        ("[" * 100_000, FileKind.RUN),
        ("\ufeffschemaVersion: 5\n", FileKind.TOPOLOGY),
    ],
)  # fmt: skip
def test_a_key_at_the_top_says_what_a_file_is(text: str, kind: FileKind, tmp_path: Path) -> None:
    file = tmp_path / "f"
    file.write_text(text, encoding="utf-8")
    assert kind_of(str(file)) is kind


def test_what_cannot_be_read_is_left_to_the_reader_of_run_files(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert kind_of(str(tmp_path)) is kind_of("\0") is FileKind.RUN
    assert main(["validate", str(tmp_path / "none")]) == 2
    assert "expected a run file" in capsys.readouterr().err
