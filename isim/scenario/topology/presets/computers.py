"""Five computers: memory as installed, what of it may be reserved, and the bandwidths their makers publish.

Host, PCIe and storage speeds, latencies and limits are assumptions, so that every figure counts as heuristic.
"""

from __future__ import annotations

import msgspec
from msgspec import UNSET

from isim.scenario.topology.presets.families import CUDA, coherent, discrete
from isim.scenario.topology.presets.parts import (
    ATTENTION,
    COMPUTE_CAPABILITIES,
    COPY,
    DRAFT,
    GIB,
    GIGA,
    GPU_CAPABILITIES,
    Base,
    Chip,
    Size,
    pcie,
)
from isim.scenario.topology.types import DeviceKind

CORE_ML = "CoreMLExecutionProvider"
DIRECT_ML = "DirectMLExecutionProvider"
_TIB = 1024 * GIB


class Desktop(msgspec.Struct, frozen=True):
    """A desktop computer with one discrete GPU."""

    host: Size
    gpu: str
    profile: str
    vram: Size
    pcie_bytes_per_sec: int
    storage_bytes: int


class Coherent(msgspec.Struct, frozen=True):
    """A computer on one memory; each chip is (name, published profile or nothing)."""

    node: str
    memory: Size
    provider: str
    gpu: tuple[str, str]
    npu: tuple[str, str]
    storage_bytes: int


DESKTOPS = {
    "rtx-4090-desktop": Desktop(
        Size(64 * GIB, 83 * GIGA, 56 * GIB), "rtx4090", "nvidia-geforce-rtx-4090",
        Size(24 * GIB, 1008 * GIGA, 22 * GIB), 32 * GIGA, 2 * _TIB,
    ),
    "rtx-5090-desktop": Desktop(
        Size(128 * GIB, 90 * GIGA, 112 * GIB), "rtx5090", "nvidia-geforce-rtx-5090",
        Size(32 * GIB, 1792 * GIGA, 30 * GIB), 64 * GIGA, 4 * _TIB,
    ),
}  # fmt: skip

COHERENT = {
    "mac-mini-m4-pro-64gb": Coherent(
        "mac-mini", Size(64 * GIB, 273 * GIGA, 56 * GIB), CORE_ML,
        ("m4-pro-gpu", "apple-m4-pro-gpu"), ("m4-pro-neural-engine", "apple-m4-pro-neural-engine"), 2 * _TIB,
    ),
    "mac-studio-m3-ultra-512gb": Coherent(
        "mac-studio", Size(512 * GIB, 819 * GIGA, 480 * GIB), CORE_ML,
        ("m3-ultra-gpu", "apple-m3-ultra-gpu"), ("m3-ultra-neural-engine", "apple-m3-ultra-neural-engine"), 8 * _TIB,
    ),
    "ryzen-ai-max-395-128gb": Coherent(
        "ryzen-ai", Size(128 * GIB, 256 * GIGA, 112 * GIB), DIRECT_ML,
        ("radeon-8060s", ""), ("xdna2-npu", ""), 2 * _TIB,
    ),
}  # fmt: skip


def desktop(name: str) -> Base:
    row = DESKTOPS[name]
    gpu = Chip(row.gpu, DeviceKind.GPU, CUDA, GPU_CAPABILITIES, "vram", row.vram, row.profile)
    base = discrete(name, "desktop", row.host, gpu, (8 * GIB, 2 * GIB, 2 * GIB), "cpu")
    links = pcie("desktop:pcie", "desktop:host", f"desktop:{row.gpu}:vram", (row.pcie_bytes_per_sec, 1500))
    return msgspec.structs.replace(base, links=links)


def coherent_computer(name: str) -> Base:
    row = COHERENT[name]
    gpu = Chip(row.gpu[0], DeviceKind.GPU, row.provider, COMPUTE_CAPABILITIES, profile=row.gpu[1] or UNSET)
    npu = Chip(row.npu[0], DeviceKind.NPU, row.provider, (ATTENTION, COPY, DRAFT), profile=row.npu[1] or UNSET)
    return coherent(name, row.node, row.memory, (gpu, npu), "cpu")
