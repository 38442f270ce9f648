"""`isim scenario TARGET`: a topology, materialised: its memories with what is reserved, its accesses and links."""

from __future__ import annotations

import sys
from typing import Any

import msgspec

from isim.cli.folder import new_file
from isim.cli.output import columns, emit, supports_color, supports_unicode
from isim.topology.index import Topology
from isim.topology.ledger import ledger_of
from isim.topology.load import load_target


def scenario(target: str, *, as_json: bool, out: str | None) -> int:
    """Print the topology for a person, or it and its ledger as JSON; write it to a new file where one is named."""
    topology = load_target(target)
    if out is not None:
        _write(topology, out)
    if as_json:
        emit(_indented(materialised(topology)))
        return 0
    from isim.report.topology import render_topology

    stream = sys.stdout
    options = {"color": supports_color(stream), "unicode": supports_unicode(stream)}
    emit(render_topology(topology, width=columns(stream), **options))
    return 0


def materialised(topology: Topology) -> dict[str, Any]:
    """The scenario and the rows of its ledger, under the contract's names."""
    return {
        "scenario": msgspec.to_builtins(topology.scenario),
        "memoryLedger": msgspec.to_builtins(ledger_of(topology).rows),
    }


def _indented(value: Any) -> str:
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode() + "\n"


def _write(topology: Topology, out: str) -> None:
    with new_file(out) as unfinished, open(unfinished, "w", encoding="utf-8") as file:
        file.write(_indented(msgspec.to_builtins(topology.scenario)))
