"""The six topology families: what each of them adds to what all presets share."""

from __future__ import annotations

import msgspec

from isim.scenario.topology.presets.parts import (
    ATTENTION,
    COLLECTIVE,
    COMPUTE_CAPABILITIES,
    COPY,
    DRAFT,
    FFN,
    GIB,
    GIGA,
    GPU_CAPABILITIES,
    HOST_CAPABILITIES,
    MIB,
    SAMPLING,
    SERIAL,
    Base,
    Chip,
    Size,
    accelerator,
    both_ways,
    cpu,
    device_memory,
    footprint,
    group,
    host_memory,
    overlapped,
    pcie,
    placement,
    staging,
    transfer,
    unified_memory,
)
from isim.scenario.topology.types import AllocationClass, DeviceKind, Family, Link, LinkKind, Placement

_N = "node0"
_HOST = "node0:host"
CUDA = "CUDAExecutionProvider"
SHARD_NEEDS = (ATTENTION, FFN, COLLECTIVE)
COLLECTIVE_BYTES = 64 * MIB
RING_MIN, RING_MAX = 2, 64


def cpu_only() -> Base:
    parts = footprint("target-{}", _HOST, AllocationClass.PAGEABLE, (8 * GIB, 2 * GIB, 256 * MIB))
    return Base(
        id="cpu-only",
        family=Family.CPU_ONLY,
        domains=(host_memory(_N, Size(128 * GIB, 100 * GIGA), ("node0:cpu0",)),),
        devices=(cpu(_N, _HOST, COMPUTE_CAPABILITIES),),
        links=(),
        placements=(placement("target", "node0:cpu0", (ATTENTION, FFN), parts),),
        transfers=(),
        groups=(group("world", ("node0:cpu0",)),),
    )


def single_gpu_cpu() -> Base:
    gpu = Chip("gpu0", DeviceKind.GPU, CUDA, GPU_CAPABILITIES, "vram", Size(80 * GIB, 2000 * GIGA))
    return discrete("single-gpu-cpu", _N, Size(256 * GIB, 100 * GIGA), gpu, (40 * GIB, 8 * GIB, 4 * GIB))


def discrete(
    name: str, node: str, host: Size, gpu: Chip, weights_kv_staging: tuple[int, int, int], cpu_name: str = "cpu0"
) -> Base:
    """One GPU beside one CPU, with weights offloaded through pinned staging in host memory."""
    chip, memory = f"{node}:{gpu.name}", f"{node}:{gpu.name}:{gpu.memory}"
    weights, kv, staged = weights_kv_staging
    parts = footprint("target-{}", memory, AllocationClass.DEVICE, (weights, kv, 256 * MIB))
    return Base(
        id=name,
        family=Family.SINGLE_DISCRETE,
        domains=(host_memory(node, host, (f"{node}:{cpu_name}", chip)), device_memory(node, gpu)),
        devices=(cpu(node, f"{node}:host", HOST_CAPABILITIES, cpu_name), accelerator(node, gpu)),
        links=pcie(f"{node}:pcie0", f"{node}:host", memory),
        placements=(placement("target", chip, (ATTENTION, FFN), (*parts, staging("offload-staging", node, staged))),),
        transfers=(transfer("offload-to-gpu", (f"{node}:host", memory), staged),),
        groups=(group("world", (chip,)),),
    )


def gpu_npu() -> Base:
    gpu_abilities = (FFN, COLLECTIVE, COPY, SAMPLING, DRAFT)
    gpu = Chip("gpu0", DeviceKind.GPU, CUDA, gpu_abilities, "vram", Size(48 * GIB, 900 * GIGA))
    npu_size = Size(16 * GIB, 200 * GIGA)
    npu = Chip("npu0", DeviceKind.NPU, "QNNExecutionProvider", (ATTENTION, COPY), "memory", npu_size)
    vram, memory = "node0:gpu0:vram", "node0:npu0:memory"
    attention = footprint("attention-{}", memory, AllocationClass.DEVICE, (8 * GIB, 4 * GIB, 256 * MIB))
    ffn = footprint("ffn-{}", vram, AllocationClass.DEVICE, (30 * GIB, 0, 256 * MIB))
    return Base(
        id="gpu-npu",
        family=Family.GPU_NPU,
        domains=(
            host_memory(_N, Size(128 * GIB, 80 * GIGA), ("node0:cpu0", "node0:gpu0", "node0:npu0")),
            device_memory(_N, gpu),
            device_memory(_N, npu),
        ),
        devices=(cpu(_N, _HOST, HOST_CAPABILITIES), accelerator(_N, gpu), accelerator(_N, npu)),
        links=(*pcie("node0:gpu-pcie", _HOST, vram), *pcie("node0:npu-pcie", _HOST, memory, (16 * GIGA, 2000))),
        placements=(
            placement("attention", "node0:npu0", (ATTENTION,), (*attention, staging("npu-staging", _N, 2 * GIB))),
            placement("ffn", "node0:gpu0", (FFN,), (*ffn, staging("gpu-staging", _N, 2 * GIB))),
        ),
        transfers=(transfer("npu-to-gpu-activation", (memory, vram), 256 * MIB, ("npu-staging",)),),
        groups=(group("pipeline", ("node0:npu0", "node0:gpu0")),),
        parallelism=msgspec.structs.replace(SERIAL, pipeline=2),
    )


def unified() -> Base:
    gpu = Chip("gpu0", DeviceKind.GPU, "CoreMLExecutionProvider", COMPUTE_CAPABILITIES)
    return coherent("unified-memory", _N, Size(128 * GIB, 500 * GIGA), (gpu,), "cpu0")


def coherent(name: str, node: str, size: Size, chips: tuple[Chip, ...], cpu_name: str) -> Base:
    """CPU and accelerators on one coherent memory; the first accelerator serves the model."""
    memory, served = f"{node}:unified", f"{node}:{chips[0].name}"
    sizes = (min(60 * GIB, size.capacity_bytes // 2), min(16 * GIB, size.capacity_bytes // 8), 256 * MIB)
    parts = footprint("target-{}", memory, AllocationClass.UNIFIED, sizes)
    members = (f"{node}:{cpu_name}", *(f"{node}:{chip.name}" for chip in chips))
    return Base(
        id=name,
        family=Family.UNIFIED,
        domains=(unified_memory(node, size, members),),
        devices=(
            cpu(node, memory, COMPUTE_CAPABILITIES, cpu_name),
            *(accelerator(node, chip) for chip in chips),
        ),
        links=(),
        placements=(placement("target", served, (ATTENTION, FFN), parts),),
        transfers=(),
        groups=(group("world", (served,)),),
    )


def ring(ranks: int, name: str) -> Base:
    """`ranks` GPUs of one node on a closed ring, both ways; two of them have one connection."""
    gpus = [
        Chip(f"gpu{index}", DeviceKind.GPU, CUDA, GPU_CAPABILITIES, "vram", Size(80 * GIB, 3000 * GIGA))
        for index in range(ranks)
    ]
    chips = [f"{_N}:{gpu.name}" for gpu in gpus]
    vram = [f"{chip}:vram" for chip in chips]
    ring_links: list[Link] = []
    for index in range(ranks if ranks > 2 else 1):
        after = (index + 1) % ranks
        label = f"node0:nvlink{index}{after}" if ranks > 2 else "node0:nvlink"
        ring_links += both_ways(label, (vram[index], vram[after]), LinkKind.NVLINK, (600 * GIGA, 500))
    host_links = [one for index in range(ranks) for one in pcie(f"node0:pcie{index}", _HOST, vram[index])]
    return Base(
        id=name,
        family=Family.MULTI_GPU,
        domains=(
            host_memory(_N, Size(512 * GIB, 120 * GIGA), ("node0:cpu0", *chips)),
            *(device_memory(_N, gpu) for gpu in gpus),
        ),
        devices=(cpu(_N, _HOST, HOST_CAPABILITIES), *(accelerator(_N, gpu) for gpu in gpus)),
        links=(*host_links, *ring_links),
        placements=tuple(_ring_shard(index) for index in range(ranks)),
        transfers=(transfer("tensor-parallel", (vram[0], vram[1]), COLLECTIVE_BYTES),),
        groups=(group("tp", chips),),
        parallelism=overlapped(ranks),
    )


def _ring_shard(index: int) -> Placement:
    parts = footprint(f"{{}}-{index}", f"node0:gpu{index}:vram", AllocationClass.DEVICE, (36 * GIB, 8 * GIB, 128 * MIB))
    cache = (staging("expert-cache-host", _N, 256 * MIB),) if index == 0 else ()
    return placement(f"target-shard-{index}", f"node0:gpu{index}", SHARD_NEEDS, (*parts, *cache))


def nodes(count: int, network: tuple[Link, ...]) -> Base:
    """`count` equal nodes of one GPU each, joined by `network`, with collectives staged in pinned host memory."""
    systems = [f"node{index}" for index in range(count)]
    gpu = Chip(
        "gpu0", DeviceKind.GPU, CUDA, (ATTENTION, FFN, COLLECTIVE, COPY, DRAFT), "vram", Size(80 * GIB, 2000 * GIGA)
    )
    domains = [
        domain
        for node in systems
        for domain in (
            host_memory(node, Size(256 * GIB, 100 * GIGA), (f"{node}:cpu0", f"{node}:gpu0")),
            device_memory(node, gpu),
        )
    ]
    devices = [
        device for node in systems for device in (cpu(node, f"{node}:host", HOST_CAPABILITIES), accelerator(node, gpu))
    ]
    host_links = [one for node in systems for one in pcie(f"{node}:pcie", f"{node}:host", f"{node}:gpu0:vram")]
    ends = ("node0:gpu0:vram", "node1:gpu0:vram")
    return Base(
        id="multi-node" if count == 2 else f"multi-node-{count}",
        family=Family.MULTI_NODE,
        domains=tuple(domains),
        devices=tuple(devices),
        links=(*host_links, *network),
        placements=tuple(_node_shard(index, count) for index in range(count)),
        transfers=(transfer("cross-node-collective", ends, COLLECTIVE_BYTES, ("staging-0", "staging-1")),),
        groups=(group("tp", [f"{node}:gpu0" for node in systems]),),
        parallelism=overlapped(count),
    )


def multi_node() -> Base:
    fabric = both_ways("cluster:rdma", (_HOST, "node1:host"), LinkKind.INFINIBAND, (50 * GIGA, 3000))
    return nodes(2, fabric)


def _node_shard(index: int, count: int) -> Placement:
    sizes = (72 * GIB // count, 16 * GIB // count, 128 * MIB)
    parts = footprint(f"{{}}-{index}", f"node{index}:gpu0:vram", AllocationClass.DEVICE, sizes)
    return placement(
        f"target-shard-{index}",
        f"node{index}:gpu0",
        SHARD_NEEDS,
        (*parts, staging(f"staging-{index}", f"node{index}", GIB)),
    )
