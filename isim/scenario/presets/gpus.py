"""The GPUs isim knows by name: memory, bandwidth, dense arithmetic rates and links, with a source per figure.

Rates are dense and per number format. Vendors print figures for structured sparsity beside or instead of them; those
are twice what an inference kernel can reach and stand nowhere here. Where the vendor prints only the sparse figure,
the dense one is its half, and the source says so. On GeForce cards the rate is the one with float32 accumulation,
which is what inference kernels use. A rate that the vendor does not publish is absent: it is never guessed from
another format's.

`memory_bytes` is what the driver reports as the total, since the engine takes its share of that and not of the size on
the box. Those figures are printed in GiB to two decimals by PyTorch and vLLM and move by some tenths of a percent with
the driver, so they are `bounded` unless a run recorded the bytes.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from isim.model.spec import Confidence, Dtype, Source

_GIB = 1 << 30
_GIGA = 10**9
_TERA = 10**12

BF16, FP16, FP32 = Dtype.BFLOAT16, Dtype.FLOAT16, Dtype.FLOAT32
FP8, INT8, INT4 = Dtype.FLOAT8_E4M3, Dtype.INT8, Dtype.INT4


class LinkKind(StrEnum):
    NVLINK = "nvlink"
    INFINITY_FABRIC = "infinity_fabric"
    PCIE = "pcie"


class LinkSpec(msgspec.Struct, frozen=True, kw_only=True):
    """How a GPU reaches its neighbours in one machine: bytes per second in one direction, all its links together."""

    kind: LinkKind
    bandwidth_bytes_per_s: int


class GpuSpec(msgspec.Struct, frozen=True, kw_only=True):
    """One GPU. `dense_flops` are operations per second by format; a format that is not in it is not published.

    `memory_confidence` says how good `memory_bytes` is; `link` is None where several cannot be joined.
    """

    name: str
    memory_bytes: int
    memory_bandwidth_bytes_per_s: int
    dense_flops: dict[Dtype, int]
    link: LinkSpec | None = None
    memory_confidence: Confidence = Confidence.BOUNDED
    sources: tuple[Source, ...] = ()

    def source_of(self, figure: str) -> str:
        """Where this figure comes from; 'not stated' when nobody said."""
        texts = {source.figure: source.text for source in self.sources}
        return texts.get(figure, texts.get("*", "not stated"))


def gpu_complaints(gpu: GpuSpec) -> list[tuple[str, str]]:
    """What is wrong with explicit GPU figures: (field, expected and found), all of it; empty when they are sound.

    A float8 rate above twice the 16-bit one is refused: no tensor core has that ratio, a sparse figure does.
    """
    found: list[tuple[str, str]] = []
    rates = [(f"dense_flops.{dtype}", rate) for dtype, rate in gpu.dense_flops.items()]
    sizes = [
        ("memory_bytes", gpu.memory_bytes),
        ("memory_bandwidth_bytes_per_s", gpu.memory_bandwidth_bytes_per_s),
        *rates,
    ]
    if gpu.link is not None:
        sizes.append(("link.bandwidth_bytes_per_s", gpu.link.bandwidth_bytes_per_s))
    for field, value in sizes:
        if type(value) is not int or value < 1:
            found.append((field, f"expected a positive integer, found {value!r}"))
    half = max(gpu.dense_flops.get(BF16, 0), gpu.dense_flops.get(FP16, 0))
    if not found and half and gpu.dense_flops.get(FP8, 0) > 2 * half:
        text = f"expected at most twice the 16-bit rate ({2 * half}), found {gpu.dense_flops[FP8]}: "
        found.append(
            (f"dense_flops.{FP8}", text + "this looks like a figure for structured sparsity; give the dense one")
        )
    return found


def _gib(hundredths: int) -> int:
    """Bytes of a size printed in GiB with two decimals."""
    return hundredths * _GIB // 100


def _half_rates(sixteen_bit: int, **others: int) -> dict[Dtype, int]:
    return {BF16: sixteen_bit, FP16: sixteen_bit, **{Dtype(name): rate for name, rate in others.items()}}


_LOGS = "total capacity as PyTorch and vLLM print it in public logs, to 0.01 GiB; moves with the driver"


def _sources(sheet: str, *, memory: str = _LOGS, rates: str = "", link: str = "") -> tuple[Source, ...]:
    found = [Source(figure="*", text=sheet), Source(figure="memory_bytes", text=memory)]
    if rates:
        found.append(Source(figure="dense_flops", text=f"{sheet}; {rates}"))
    if link:
        found.append(Source(figure="link", text=link))
    return tuple(found)


_PCIE4 = LinkSpec(kind=LinkKind.PCIE, bandwidth_bytes_per_s=32 * _GIGA)
_PCIE5 = LinkSpec(kind=LinkKind.PCIE, bandwidth_bytes_per_s=64 * _GIGA)
_NVLINK3 = LinkSpec(kind=LinkKind.NVLINK, bandwidth_bytes_per_s=300 * _GIGA)
_NVLINK4 = LinkSpec(kind=LinkKind.NVLINK, bandwidth_bytes_per_s=450 * _GIGA)
_NVLINK5 = LinkSpec(kind=LinkKind.NVLINK, bandwidth_bytes_per_s=900 * _GIGA)
_FABRIC = LinkSpec(kind=LinkKind.INFINITY_FABRIC, bandwidth_bytes_per_s=448 * _GIGA)

_A100_RATES = _half_rates(312 * _TERA, int8=624 * _TERA, int4=1248 * _TERA, float32=195 * _TERA // 10)
_HOPPER_RATES = _half_rates(9895 * _TERA // 10, float8_e4m3=1979 * _TERA, int8=1979 * _TERA, float32=67 * _TERA)
_HALVED = "tensor rates are the printed ones with sparsity, halved"

_TABLE: tuple[GpuSpec, ...] = (
    GpuSpec(
        name="a100-40gb",
        memory_bytes=_gib(3939),
        memory_bandwidth_bytes_per_s=1555 * _GIGA,
        dense_flops=_A100_RATES,
        link=_NVLINK3,
        sources=_sources("NVIDIA A100 datasheet, 40GB SXM", link="same; 600 GB/s NVLink, both directions"),
    ),
    GpuSpec(
        name="a100-80gb",
        memory_bytes=_gib(7915),
        memory_bandwidth_bytes_per_s=2039 * _GIGA,
        dense_flops=_A100_RATES,
        link=_NVLINK3,
        sources=_sources("NVIDIA A100 datasheet, 80GB SXM", link="same; 600 GB/s NVLink, both directions"),
    ),
    GpuSpec(
        name="h100-sxm",
        memory_bytes=_gib(7910),
        memory_bandwidth_bytes_per_s=3350 * _GIGA,
        dense_flops=_HOPPER_RATES,
        link=_NVLINK4,
        sources=_sources("NVIDIA H100 datasheet, SXM", rates=_HALVED, link="same; 900 GB/s NVLink, both directions"),
    ),
    GpuSpec(
        name="h100-pcie",
        memory_bytes=_gib(7911),
        memory_bandwidth_bytes_per_s=2000 * _GIGA,
        dense_flops=_half_rates(7565 * _TERA // 10, float8_e4m3=1513 * _TERA, int8=1513 * _TERA, float32=51 * _TERA),
        link=_PCIE5,
        sources=_sources("NVIDIA H100 datasheet, PCIe", rates=_HALVED, link="same; PCIe 5.0 x16, no NVLink bridge"),
    ),
    GpuSpec(
        name="h200",
        memory_bytes=_gib(13972),
        memory_bandwidth_bytes_per_s=4800 * _GIGA,
        dense_flops=_HOPPER_RATES,
        link=_NVLINK4,
        sources=_sources("NVIDIA H200 datasheet, SXM", rates=_HALVED, link="same; 900 GB/s NVLink, both directions"),
    ),
    GpuSpec(
        name="h20",
        memory_bytes=_gib(9500),
        memory_bandwidth_bytes_per_s=4000 * _GIGA,
        dense_flops=_half_rates(148 * _TERA, float8_e4m3=296 * _TERA, int8=296 * _TERA, float32=44 * _TERA),
        link=_NVLINK4,
        sources=_sources(
            "NVIDIA H20 product sheet, as the trade press reproduced it (no public datasheet)",
            link="same; 900 GB/s NVLink, both directions",
        ),
    ),
    GpuSpec(
        name="b200",
        memory_bytes=_gib(17836),
        memory_bandwidth_bytes_per_s=7700 * _GIGA,
        dense_flops=_half_rates(
            2250 * _TERA,
            float8_e4m3=4500 * _TERA,
            float4_e2m1=9000 * _TERA,
            int8=4500 * _TERA,
            float32=75 * _TERA,
        ),
        link=_NVLINK5,
        sources=_sources(
            "NVIDIA Blackwell datasheet, HGX B200 (180 GB)",
            rates="per GPU; " + _HALVED,
            link="same; 1,800 GB/s NVLink, both directions",
        ),
    ),
    GpuSpec(
        name="l40s",
        memory_bytes=_gib(4442),
        memory_bandwidth_bytes_per_s=864 * _GIGA,
        dense_flops=_half_rates(
            36205 * _TERA // 100,
            float8_e4m3=7241 * _TERA // 10,
            int8=7241 * _TERA // 10,
            float32=916 * _TERA // 10,
        ),
        link=_PCIE4,
        sources=_sources(
            "NVIDIA L40S datasheet",
            rates="it prints 362.05 for 16 bits but 733 (a higher clock) for 8 bits dense; twice the former is used",
            link="same; PCIe 4.0 x16",
        ),
    ),
    GpuSpec(
        name="a6000",
        memory_bytes=_gib(4754),
        memory_bandwidth_bytes_per_s=768 * _GIGA,
        dense_flops=_half_rates(15485 * _TERA // 100, int8=3097 * _TERA // 10, float32=387 * _TERA // 10),
        link=_PCIE4,
        sources=_sources(
            "NVIDIA RTX A6000 datasheet and GA102 whitepaper",
            rates="the datasheet's 309.7 is with sparsity for 16 bits, halved here, and dense for int8",
            link="same; PCIe 4.0 x16, no NVLink bridge",
        ),
    ),
    GpuSpec(
        name="rtx-4090",
        memory_bytes=25_250_627_584,
        memory_confidence=Confidence.EXACT,
        memory_bandwidth_bytes_per_s=1008 * _GIGA,
        dense_flops=_half_rates(
            1652 * _TERA // 10,
            float8_e4m3=3303 * _TERA // 10,
            int8=6606 * _TERA // 10,
            int4=13212 * _TERA // 10,
            float32=826 * _TERA // 10,
        ),
        link=_PCIE4,
        sources=_sources(
            "NVIDIA Ada GPU architecture whitepaper, GeForce RTX 4090",
            memory="device_total_memory_bytes in the metadata of a vLLM 0.19.0 run published with LLMServingSim",
            rates="floating point with float32 accumulation",
            link="same; PCIe 4.0 x16",
        ),
    ),
    GpuSpec(
        name="rtx-5090",
        memory_bytes=_gib(3136),
        memory_bandwidth_bytes_per_s=1792 * _GIGA,
        dense_flops=_half_rates(
            2095 * _TERA // 10,
            float8_e4m3=419 * _TERA,
            int8=838 * _TERA,
            float32=1048 * _TERA // 10,
        ),
        link=_PCIE5,
        sources=_sources(
            "NVIDIA RTX Blackwell GPU architecture whitepaper, GeForce RTX 5090",
            rates="floating point with float32 accumulation",
            link="same; PCIe 5.0 x16",
        ),
    ),
    GpuSpec(
        name="rtx-pro-6000",
        memory_bytes=_gib(9497),
        memory_bandwidth_bytes_per_s=1792 * _GIGA,
        dense_flops=_half_rates(
            5038 * _TERA // 10,
            float8_e4m3=10076 * _TERA // 10,
            int8=10076 * _TERA // 10,
            float32=125 * _TERA,
        ),
        link=_PCIE5,
        sources=_sources(
            "NVIDIA RTX PRO Blackwell GPU architecture whitepaper, RTX PRO 6000 Workstation Edition",
            link="same; PCIe 5.0 x16",
        ),
    ),
    GpuSpec(
        name="mi300x",
        memory_bytes=_gib(19198),
        memory_bandwidth_bytes_per_s=5300 * _GIGA,
        dense_flops=_half_rates(
            13074 * _TERA // 10,
            float8_e4m3=26148 * _TERA // 10,
            int8=26148 * _TERA // 10,
            float32=1634 * _TERA // 10,
        ),
        link=_FABRIC,
        sources=_sources(
            "AMD Instinct MI300X data sheet",
            rates="its 2,614.9 for 8 bits is twice 1,307.4 but for rounding; twice that is used",
            link="same; 7 Infinity Fabric links of 64 GB/s in one direction",
        ),
    ),
    GpuSpec(
        name="m3-ultra",
        memory_bytes=512 * _GIB,
        memory_bandwidth_bytes_per_s=819 * _GIGA,
        dense_flops={},
        sources=_sources(
            "Apple, Mac Studio technical specifications, M3 Ultra; no arithmetic rate is published for any format",
            memory="largest unified memory sold; marketing size, and macOS lends a GPU less than all of it",
        ),
        memory_confidence=Confidence.HEURISTIC,
    ),
)

GPUS: dict[str, GpuSpec] = {gpu.name: gpu for gpu in _TABLE}
