"""What an engine measured when it started, in place of the estimates of it."""

from __future__ import annotations

import msgspec
from msgspec import UNSET, UnsetType


class ReservedMemory(msgspec.Struct, frozen=True, kw_only=True):
    """Memory of each GPU that no KV block gets; UNSET figures are estimated. vLLM prints them in its log.

    peak_activation_bytes   of the profiling run
    non_torch_bytes         outside PyTorch's allocator, communicators included
    cuda_graphs_bytes       set aside for CUDA graphs
    """

    peak_activation_bytes: int | UnsetType = UNSET
    non_torch_bytes: int | UnsetType = UNSET
    cuda_graphs_bytes: int | UnsetType = UNSET
