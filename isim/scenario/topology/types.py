"""A topology scenario as frozen values: schema revision 5, camelCase on the wire, snake_case here.

A scenario is what a person wrote, in the order it was written: nothing is resolved, indexed or sorted. Sizes are bytes,
times nanoseconds, bandwidths bytes per second, all integers up to 2^53 - 1. Values of these types may still be wrong
(an unknown domain, a bandwidth of 0); `isim.topology.validate` says what is, and only what it lets pass is used.
An optional field that was left out is UNSET, so that writing gives back what was read.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec
from msgspec import UNSET, UnsetType

from isim.model.spec import Confidence

SCHEMA_VERSION = 5


class Family(StrEnum):
    CPU_ONLY = "cpu_only"
    SINGLE_DISCRETE = "single_discrete"
    MULTI_GPU = "multi_gpu"
    GPU_NPU = "gpu_npu"
    UNIFIED = "unified"
    MULTI_NODE = "multi_node"
    CUSTOM = "custom"


class DomainKind(StrEnum):
    HOST = "host"
    DEVICE = "device"
    UNIFIED = "unified"
    STORAGE = "storage"


class AllocationClass(StrEnum):
    PAGEABLE = "pageable"
    PINNED = "pinned"
    DEVICE = "device"
    UNIFIED = "unified"
    STORAGE = "storage"


class DeviceKind(StrEnum):
    CPU = "cpu"
    GPU = "gpu"
    NPU = "npu"


class Capability(StrEnum):
    ATTENTION = "attention"
    FFN = "ffn"
    COLLECTIVE = "collective"
    COPY = "copy"
    SAMPLING = "sampling"
    DRAFT = "draft"
    LOOKUP = "lookup"


class LinkKind(StrEnum):
    ON_CHIP = "on-chip"
    PCIE = "pcie"
    NVLINK = "nvlink"
    ETHERNET = "ethernet"
    INFINIBAND = "infiniband"
    THUNDERBOLT = "thunderbolt"
    STORAGE = "storage"


class ResourceKind(StrEnum):
    NIC = "nic"
    SWITCH = "switch"


class Transport(StrEnum):
    TCP = "tcp"
    RDMA_HOST = "rdma_host"
    GPUDIRECT_RDMA = "gpudirect_rdma"


class Purpose(StrEnum):
    WEIGHTS = "weights"
    KV = "kv"
    WORKSPACE = "workspace"
    STAGING = "staging"
    CACHE = "cache"
    BACKING = "backing"
    CHECKPOINT = "checkpoint"
    SIDECAR = "sidecar"


class Composition(StrEnum):
    """CARTESIAN: the degrees are independent axes and multiply. OVERLAP: the same ranks serve TP and EP in turn."""

    CARTESIAN = "cartesian"
    OVERLAP = "overlap_by_capability"


class NumberFormat(StrEnum):
    FP64 = "fp64"
    FP32 = "fp32"
    TF32 = "tf32"
    BF16 = "bf16"
    FP16 = "fp16"
    FP8 = "fp8"
    FP6 = "fp6"
    FP4 = "fp4"
    INT8 = "int8"
    INT4 = "int4"


class _Wire(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """What all of these share: immutable, named fields, camelCase on the wire, unknown keys refused."""


class Provenance(_Wire, frozen=True, kw_only=True):
    """Where the figures beside it come from, and how good they are."""

    confidence: Confidence
    source: str


class HostGovernor(_Wire, frozen=True, kw_only=True, tag="host", tag_field="kind"):
    """The one owner of a node's host or unified memory."""

    node_id: str


class DeviceGovernor(_Wire, frozen=True, kw_only=True, tag="device", tag_field="kind"):
    """The owner of the memory of one accelerator."""

    device_id: str


class NoGovernor(_Wire, frozen=True, kw_only=True, tag="none", tag_field="kind"):
    """Memory that no governor owns: storage, or device memory whose grants nobody arbitrates."""


Governor = HostGovernor | DeviceGovernor | NoGovernor


class MemoryDomain(_Wire, frozen=True, kw_only=True):
    """One physical memory. `resource_limit_bytes` is what may be reserved of `capacity_bytes`."""

    id: str
    node_id: str
    kind: DomainKind
    capacity_bytes: int
    resource_limit_bytes: int
    bandwidth_bytes_per_sec: int
    latency_ns: int
    coherent: bool
    allocation_classes: tuple[AllocationClass, ...]
    accessible_by: tuple[str, ...]
    governor: Governor
    provenance: Provenance


class ComputePeak(_Wire, frozen=True, kw_only=True):
    """A dense arithmetic rate of one number format, where no published profile is named."""

    dtype: NumberFormat
    operations_per_second: int


class Device(_Wire, frozen=True, kw_only=True):
    """One schedulable chip; `max_concurrent_compute` is its number of compute lanes.

    `compute_profile_id` names an entry of the registry of published peaks; `custom_compute_peaks` is given instead.
    """

    id: str
    node_id: str
    kind: DeviceKind
    execution_provider: str
    memory_domain_ids: tuple[str, ...]
    capabilities: tuple[Capability, ...]
    supported_dtypes: tuple[NumberFormat, ...]
    max_concurrent_compute: int
    provenance: Provenance
    compute_profile_id: str | UnsetType = UNSET
    custom_compute_peaks: tuple[ComputePeak, ...] | UnsetType = UNSET


class NetworkResource(_Wire, frozen=True, kw_only=True):
    """A NIC of one node, or a switch fabric between nodes. `direct_memory_domain_ids`: what a NIC reaches by itself."""

    id: str
    kind: ResourceKind
    node_id: str | UnsetType = UNSET
    bandwidth_bytes_per_sec: int
    latency_ns: int
    concurrency_lanes: int
    supported_transports: tuple[Transport, ...]
    direct_memory_domain_ids: tuple[str, ...]
    provenance: Provenance


class BandwidthPoint(_Wire, frozen=True, kw_only=True):
    """Measured bandwidth at one message size."""

    message_bytes: int
    bandwidth_bytes_per_sec: int


class LatencyPoint(_Wire, frozen=True, kw_only=True):
    """Measured latency at one message size."""

    message_bytes: int
    latency_ns: int


class Link(_Wire, frozen=True, kw_only=True):
    """One direction of a connection between two memory domains.

    A curve stands in the place of the plain figure, between its first and last point only: messages of other sizes have
    no duration on this link, and so no route over it.
    """

    id: str
    source_domain_id: str
    target_domain_id: str
    kind: LinkKind
    bandwidth_bytes_per_sec: int
    latency_ns: int
    concurrency_lanes: int
    transport: Transport | UnsetType = UNSET
    network_resource_ids: tuple[str, ...] | UnsetType = UNSET
    bandwidth_curve: tuple[BandwidthPoint, ...] | UnsetType = UNSET
    latency_curve: tuple[LatencyPoint, ...] | UnsetType = UNSET
    provenance: Provenance


class Allocation(_Wire, frozen=True, kw_only=True):
    """One physical allocation, or, where `alias_of` names another, a second name of that one without a charge."""

    physical_allocation_id: str
    domain_id: str
    bytes: int
    allocation_class: AllocationClass
    purpose: Purpose
    alias_of: str | UnsetType = UNSET


class Placement(_Wire, frozen=True, kw_only=True):
    """A partition of the model on one device. `dtype`: number format of its weights, where it is stated."""

    partition_id: str
    device_id: str
    required_capabilities: tuple[Capability, ...]
    dtype: NumberFormat | UnsetType = UNSET
    allocations: tuple[Allocation, ...]


class Transfer(_Wire, frozen=True, kw_only=True):
    """A transfer that must be possible; with `requires_pinned_staging` through a pinned domain between the two."""

    id: str
    source_domain_id: str
    target_domain_id: str
    bytes: int
    requires_pinned_staging: bool
    staging_allocation_ids: tuple[str, ...]


class Rank(_Wire, frozen=True, kw_only=True):
    rank_id: str
    device_id: str


class Group(_Wire, frozen=True, kw_only=True):
    """A communicator: its members in their immutable order, which is the logical ring."""

    id: str
    ordered_ranks: tuple[Rank, ...]


class WorkloadShape(_Wire, frozen=True, kw_only=True):
    """The work the placements were made for; no figure is computed from it."""

    batch_size: int
    input_sequence_length: int
    output_sequence_length: int


class Features(_Wire, frozen=True, kw_only=True):
    """`ssd_streaming` False takes storage out of what may be allocated."""

    ssd_streaming: bool


class Parallelism(_Wire, frozen=True, kw_only=True):
    composition: Composition
    tensor: int
    pipeline: int
    expert: int
    data: int


class Execution(_Wire, frozen=True, kw_only=True):
    topology_epoch: int
    seed: int
    max_events: int
    features: Features
    parallelism: Parallelism


class Coefficient(_Wire, frozen=True, kw_only=True):
    """A measured coefficient of this scenario, with its evidence; `minimum` and `maximum` bound what it holds for."""

    id: str
    value: float
    provenance: Provenance
    measured_at: str
    software_stack: str
    dtype: NumberFormat | UnsetType = UNSET
    regime: str | UnsetType = UNSET
    algorithm: str | UnsetType = UNSET
    minimum: float | UnsetType = UNSET
    maximum: float | UnsetType = UNSET


class Calibration(_Wire, frozen=True, kw_only=True):
    coefficients: tuple[Coefficient, ...]


class TopologyScenario(_Wire, frozen=True, kw_only=True):
    """A machine, what is placed on it, and how it is to be used. `network_resources` is UNSET on simple networks."""

    schema_version: int
    id: str
    family: Family
    memory_domains: tuple[MemoryDomain, ...]
    devices: tuple[Device, ...]
    network_resources: tuple[NetworkResource, ...] | UnsetType = UNSET
    links: tuple[Link, ...]
    placements: tuple[Placement, ...]
    transfers: tuple[Transfer, ...]
    groups: tuple[Group, ...]
    workload: WorkloadShape
    execution: Execution
    calibration: Calibration
