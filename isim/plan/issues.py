"""What can be wrong with a frozen plan: the codes, and a complaint."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

import msgspec

_SHOWN = 8


class PlanCode(StrEnum):
    """The contract's codes, in the order of the contract; STEP_ID, DUPLICATE_VALUE and DURATION_SUM are our own."""

    CONTRACT_REVISION = "contract_revision"
    EMPTY_ID = "empty_id"
    TOPOLOGY_EPOCH = "topology_epoch"
    EMPTY_PLAN = "empty_plan"
    DUPLICATE_STEP = "duplicate_step"
    EMPTY_PARTICIPANTS = "empty_participants"
    UNKNOWN_RANK = "unknown_rank"
    UNKNOWN_ALLOCATION = "unknown_allocation"
    READ_WRITE_OVERLAP = "read_write_overlap"
    UNKNOWN_DEPENDENCY = "unknown_dependency"
    SELF_DEPENDENCY = "self_dependency"
    DEPENDENCY_CYCLE = "dependency_cycle"
    UNORDERED_LEASE_CONFLICT = "unordered_lease_conflict"
    COLLECTIVE_SEQUENCE_GAP = "collective_sequence_gap"
    COLLECTIVE_ORDER_DEPENDENCY = "collective_order_dependency"
    COMPUTE_PARTICIPANT = "compute_participant"
    MISSING_CAPABILITY = "missing_capability"
    INACCESSIBLE_ALLOCATION = "inaccessible_allocation"
    TRANSFER_BUFFERS = "transfer_buffers"
    TRANSFER_SOURCE = "transfer_source"
    TRANSFER_TARGET = "transfer_target"
    COLLECTIVE_PARTICIPANTS = "collective_participants"
    COLLECTIVE_SEQUENCE = "collective_sequence"
    COLLECTIVE_ALGORITHM = "collective_algorithm"
    UNKNOWN_LINK = "unknown_link"
    UNKNOWN_GROUP = "unknown_group"
    UNKNOWN_DEVICE = "unknown_device"
    DURATION = "duration"
    STEP_ID = "step_id"
    DUPLICATE_VALUE = "duplicate_value"
    DURATION_SUM = "duration_sum"


class PlanIssue(msgspec.Struct, frozen=True):
    """One complaint. `path` is that of the plan, such as `steps[4].operation.linkIds`; two are joined by a comma."""

    code: PlanCode
    path: str
    message: str


def listed(names: Iterable[object]) -> str:
    """Names as a complaint lists them: the first eight, and how many more there are; `none` for none."""
    shown = [str(name) for name in names]
    more = f" and {len(shown) - _SHOWN} more" if len(shown) > _SHOWN else ""
    return ", ".join(shown[:_SHOWN]) + more or "none"
