"""The GPU table: dense rates only, sources everywhere, and ratios that hardware has."""

from __future__ import annotations

import msgspec
import pytest

from isim.model.spec import Dtype
from isim.scenario.presets.gpus import GPUS, gpu_complaints

NAMES = [
    "a100-40gb",
    "a100-80gb",
    "h100-sxm",
    "h100-pcie",
    "h200",
    "h20",
    "b200",
    "l40s",
    "a6000",
    "rtx-4090",
    "rtx-5090",
    "rtx-pro-6000",
    "mi300x",
    "m3-ultra",
]

# What the vendors print with structured sparsity (16 bits, 8-bit float), in units of 10^12 per second.
SPARSE = {
    "a100-40gb": (624, None),
    "a100-80gb": (624, None),
    "h100-sxm": (1979, 3958),
    "h100-pcie": (1513, 3026),
    "h200": (1979, 3958),
    "b200": (4500, 9000),
    "l40s": (733, 1466),
    "a6000": (309.7, None),
    "rtx-4090": (330.4, 660.6),
    "rtx-5090": (419, 838),
    "rtx-pro-6000": (1007.6, 2015.2),
    "mi300x": (2614.9, 5229.8),
}

# The size on the box in decimal gigabytes or binary, whichever is larger; a driver never reports more.
BOX_GIB = {
    "a100-40gb": 40,
    "a100-80gb": 80,
    "h100-sxm": 80,
    "h100-pcie": 80,
    "h200": 141,
    "h20": 96,
    "b200": 180,
    "l40s": 48,
    "a6000": 48,
    "rtx-4090": 24,
    "rtx-5090": 32,
    "rtx-pro-6000": 96,
    "mi300x": 192,
    "m3-ultra": 512,
}


def test_the_table_has_every_promised_gpu_and_no_complaints() -> None:
    assert list(GPUS) == NAMES
    for gpu in GPUS.values():
        assert gpu_complaints(gpu) == []
        for figure in ("memory_bytes", "memory_bandwidth_bytes_per_s", "dense_flops", "link"):
            assert gpu.source_of(figure) != "not stated"


def test_memory_is_what_a_driver_can_report() -> None:
    for name, box in BOX_GIB.items():
        assert 0.9 * box <= GPUS[name].memory_bytes / 2**30 <= box, name


def test_p18_fp8_is_at_most_twice_fp16_and_no_rate_is_a_sparse_one() -> None:
    for name, gpu in GPUS.items():
        rates = gpu.dense_flops
        assert rates.get(Dtype.FLOAT8_E4M3, 0) <= 2 * rates.get(Dtype.FLOAT16, 0)
        assert rates.get(Dtype.FLOAT16) == rates.get(Dtype.BFLOAT16)
        for dtype, sparse in zip((Dtype.FLOAT16, Dtype.FLOAT8_E4M3), SPARSE.get(name, ()), strict=False):
            if sparse is not None:
                assert rates[dtype] == pytest.approx(sparse * 1e12 / 2, rel=0.015), (name, dtype)
    assert Dtype.FLOAT8_E4M3 not in GPUS["a100-80gb"].dense_flops
    assert not GPUS["m3-ultra"].dense_flops


def test_p18_a_sparse_figure_is_refused() -> None:
    l40s = GPUS["l40s"]
    filled = msgspec.structs.replace(l40s, dense_flops={**l40s.dense_flops, Dtype.FLOAT8_E4M3: 1466 * 10**12})
    ((field, text),) = gpu_complaints(filled)
    assert field == "dense_flops.float8_e4m3"
    assert "sparsity" in text


def test_unsound_figures_are_all_named() -> None:
    bad = msgspec.structs.replace(GPUS["h100-sxm"], memory_bytes=0, memory_bandwidth_bytes_per_s=True)
    assert [field for field, _ in gpu_complaints(bad)] == ["memory_bytes", "memory_bandwidth_bytes_per_s"]
