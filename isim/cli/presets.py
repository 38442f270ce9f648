"""`isim presets [gpus|models|topologies]`: what a run file may name, and the targets of topology commands."""

from __future__ import annotations

from collections.abc import Sequence

from isim.cli.output import emit
from isim.model.arithmetic import parameters
from isim.model.catalogue import MODELS
from isim.scenario.presets.gpus import GPUS


def presets(what: str | None) -> int:
    """Print the GPUs, the models, the topologies, or all of them."""
    tables = {"gpus": _gpus, "models": _models, "topologies": _topologies}
    emit("\n".join(table() for name, table in tables.items() if what in (None, name)))
    return 0


def _gpus() -> str:
    rows = [("GPU", "memory", "bandwidth", "dense TFLOPS")]
    for name, gpu in GPUS.items():
        rates = ", ".join(f"{dtype.value} {rate / 1e12:g}" for dtype, rate in gpu.dense_flops.items())
        memory = f"{gpu.memory_bytes / (1 << 30):.1f} GiB"
        rows.append((name, memory, f"{gpu.memory_bandwidth_bytes_per_s / 1e12:g} TB/s", rates or "not published"))
    return _table(rows)


def _models() -> str:
    rows: list[tuple[str, ...]] = [("model", "parameters", "layers", "heads", "KV heads", "longest")]
    for name, model in MODELS.items():
        billions = f"{parameters(model).total / 1e9:.1f} B"
        heads = (model.num_hidden_layers, model.num_attention_heads, model.num_key_value_heads)
        rows.append((name, billions, *(f"{count}" for count in heads), f"{model.max_position_embeddings:,}"))
    return _table(rows)


def _topologies() -> str:
    from isim.scenario.topology.presets.catalogue import LAN, NAMES, RING, topology_preset

    rows: list[tuple[str, ...]] = [("topology", "family", "nodes", "devices", "memory", "links")]
    for name in NAMES:
        scenario = topology_preset(name)
        assert scenario is not None  # every listed name is a preset's
        kinds = dict.fromkeys(device.kind.value for device in scenario.devices)
        counts = [f"{sum(it.kind == kind for it in scenario.devices)} {kind}" for kind in kinds]
        near = sum(it.capacity_bytes for it in scenario.memory_domains if it.kind != "storage")
        nodes = dict.fromkeys(device.node_id for device in scenario.devices)
        facts = (f"{len(nodes)}", ", ".join(counts), f"{near >> 30} GiB", f"{len(scenario.links)}")
        rows.append((name, scenario.family.value, *facts))
    rows += [(RING, "multi_gpu", "1"), (LAN, "multi_node", "2..4")]
    return _table([row + ("",) * (6 - len(row)) for row in rows])


def _table(rows: Sequence[Sequence[str]]) -> str:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    return "\n".join(lines) + "\n"
