"""`isim presets [gpus|models]`: what a run file may name."""

from __future__ import annotations

from collections.abc import Sequence

from isim.cli.output import emit
from isim.model.arithmetic import parameters
from isim.model.catalogue import MODELS
from isim.scenario.presets.gpus import GPUS


def presets(what: str | None) -> int:
    """Print the GPUs, the models, or both."""
    tables = {"gpus": _gpus, "models": _models}
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


def _table(rows: Sequence[Sequence[str]]) -> str:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    return "\n".join(lines) + "\n"
