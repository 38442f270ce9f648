"""What can be wrong with a topology scenario: one code for each rule, and what was found by them.

The codes are those of the reference's contract; the last of them are of rules that it lacks. An issue says at which
path something stands that should not. `depends` are further paths it was judged by: where the reader had to put a
placeholder at one of them, nothing is known, and the issue is dropped.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from enum import StrEnum

import msgspec


class IssueCode(StrEnum):
    SCENARIO_BOUNDARY = "scenario_boundary"
    SCHEMA_VERSION = "schema_version"
    ENUM_VALUE = "enum_value"
    INVALID_FEATURE = "invalid_feature"
    EMPTY_ID = "empty_id"
    POSITIVE_INTEGER = "positive_integer"
    NON_NEGATIVE_INTEGER = "non_negative_integer"
    INTEGER_OVERFLOW = "integer_overflow"
    DUPLICATE_ID = "duplicate_id"
    DUPLICATE_VALUE = "duplicate_value"
    EMPTY_PROVENANCE = "empty_provenance"
    UNKNOWN_DEVICE = "unknown_device"
    UNKNOWN_DOMAIN = "unknown_domain"
    RESOURCE_LIMIT = "resource_limit"
    EMPTY_CLASSES = "empty_classes"
    UNIFIED_CLASS = "unified_class"
    STORAGE_CLASS = "storage_class"
    STORAGE_GOVERNOR = "storage_governor"
    STORAGE_ACCESS = "storage_access"
    GOVERNOR_NODE = "governor_node"
    GOVERNOR_DEVICE = "governor_device"
    EMPTY_EP = "empty_ep"
    NO_MEMORY = "no_memory"
    ASYMMETRIC_ACCESS = "asymmetric_access"
    UNKNOWN_COMPUTE_PROFILE = "unknown_compute_profile"
    COMPUTE_PROFILE_KIND_MISMATCH = "compute_profile_kind_mismatch"
    MULTIPLE_COMPUTE_PROFILES = "multiple_compute_profiles"
    EMPTY_CUSTOM_COMPUTE_PEAKS = "empty_custom_compute_peaks"
    POSITIVE_COMPUTE_PEAK = "positive_compute_peak"
    SELF_LINK = "self_link"
    INVALID_TRANSPORT_LINK = "invalid_transport_link"
    UNKNOWN_NETWORK_RESOURCE = "unknown_network_resource"
    UNSUPPORTED_NETWORK_TRANSPORT = "unsupported_network_transport"
    INVALID_NETWORK_PATH = "invalid_network_path"
    INVALID_NETWORK_NODE = "invalid_network_node"
    INVALID_DIRECT_MEMORY = "invalid_direct_memory"
    MISSING_CAPABILITY = "missing_capability"
    DUPLICATE_ALLOCATION = "duplicate_allocation"
    UNSUPPORTED_ALLOCATION_CLASS = "unsupported_allocation_class"
    INACCESSIBLE_ALLOCATION = "inaccessible_allocation"
    UNKNOWN_ALLOCATION = "unknown_allocation"
    SELF_ALIAS = "self_alias"
    DOMAIN_OVER_CAPACITY = "domain_over_capacity"
    NO_TRANSFER_PATH = "no_transfer_path"
    UNEXPECTED_STAGING = "unexpected_staging"
    INVALID_STAGING = "invalid_staging"
    MISSING_STAGING = "missing_staging"
    EMPTY_GROUP = "empty_group"
    DUPLICATE_RANK = "duplicate_rank"
    RANK_REMAP = "rank_remap"
    DUPLICATE_GROUP_DEVICE = "duplicate_group_device"
    PARALLELISM_COMPOSITION = "parallelism_composition"
    PARALLELISM_PARTICIPANTS = "parallelism_participants"
    INVALID_CALIBRATION = "invalid_calibration"
    DOMAIN_OVER_LIMIT = "domain_over_limit"
    INVALID_ALIAS = "invalid_alias"
    INVALID_CURVE = "invalid_curve"
    NO_GROUP_PATH = "no_group_path"
    UNSUPPORTED_DTYPE = "unsupported_dtype"


MEANINGS: dict[IssueCode, str] = {
    IssueCode.SCENARIO_BOUNDARY: "not of the form: a key that is unknown or missing, or a value of another kind",
    IssueCode.SCHEMA_VERSION: "the schema version is not 5",
    IssueCode.ENUM_VALUE: "a text that is none of the words allowed there",
    IssueCode.INVALID_FEATURE: "a feature that is unknown, or neither true nor false",
    IssueCode.EMPTY_ID: "an id, or the name of a node, is empty",
    IssueCode.POSITIVE_INTEGER: "a whole number outside of 1 to 2^53 - 1",
    IssueCode.NON_NEGATIVE_INTEGER: "a whole number outside of 0 to 2^53 - 1",
    IssueCode.INTEGER_OVERFLOW: "sizes whose sum is beyond 2^53 - 1",
    IssueCode.DUPLICATE_ID: "two things of one kind with the same id",
    IssueCode.DUPLICATE_VALUE: "a list that names something twice",
    IssueCode.EMPTY_PROVENANCE: "figures without a source",
    IssueCode.UNKNOWN_DEVICE: "the id of no device",
    IssueCode.UNKNOWN_DOMAIN: "the id of no memory domain",
    IssueCode.RESOURCE_LIMIT: "more may be reserved than there is",
    IssueCode.EMPTY_CLASSES: "a memory domain without any allocation class",
    IssueCode.UNIFIED_CLASS: "unified memory with other classes than `unified`, or that class elsewhere",
    IssueCode.STORAGE_CLASS: "storage with other classes than `storage`, or that class elsewhere",
    IssueCode.STORAGE_GOVERNOR: "storage that a governor owns",
    IssueCode.STORAGE_ACCESS: "storage that other devices than CPUs reach by themselves",
    IssueCode.GOVERNOR_NODE: "host or unified memory without the host governor of its node, or other memory with one",
    IssueCode.GOVERNOR_DEVICE: "device memory without the governor of an accelerator of its own",
    IssueCode.EMPTY_EP: "a device without execution provider",
    IssueCode.NO_MEMORY: "a device without memory",
    IssueCode.ASYMMETRIC_ACCESS: "a device names a memory that does not name it, or the other way round",
    IssueCode.UNKNOWN_COMPUTE_PROFILE: "a compute profile that is not in the registry",
    IssueCode.COMPUTE_PROFILE_KIND_MISMATCH: "the compute profile of another kind of device",
    IssueCode.MULTIPLE_COMPUTE_PROFILES: "a compute profile and custom peaks at once",
    IssueCode.EMPTY_CUSTOM_COMPUTE_PEAKS: "custom peaks that are none",
    IssueCode.POSITIVE_COMPUTE_PEAK: "a compute peak outside of 1 to 2^53 - 1",
    IssueCode.SELF_LINK: "a link from a memory to itself",
    IssueCode.INVALID_TRANSPORT_LINK: "a transport that the kind of link or its ends cannot have",
    IssueCode.UNKNOWN_NETWORK_RESOURCE: "the id of no network resource",
    IssueCode.UNSUPPORTED_NETWORK_TRANSPORT: "a network resource that does not support the link's transport",
    IssueCode.INVALID_NETWORK_PATH: "a path that is not NIC, switches, NIC of a link with a transport",
    IssueCode.INVALID_NETWORK_NODE: "a NIC of no node or of the wrong one, or a switch of one",
    IssueCode.INVALID_DIRECT_MEMORY: "a NIC with direct access to memory elsewhere, or GPUDirect without such access",
    IssueCode.MISSING_CAPABILITY: "a placement that needs what its device cannot do",
    IssueCode.DUPLICATE_ALLOCATION: "one physical allocation listed twice",
    IssueCode.UNSUPPORTED_ALLOCATION_CLASS: "an allocation of a class that its memory does not have",
    IssueCode.INACCESSIBLE_ALLOCATION: "an allocation in memory that the placement's device cannot reach",
    IssueCode.UNKNOWN_ALLOCATION: "the id of no allocation",
    IssueCode.SELF_ALIAS: "an alias of itself",
    IssueCode.DOMAIN_OVER_CAPACITY: "more reserved in a memory than it holds",
    IssueCode.NO_TRANSFER_PATH: "a declared transfer that no route carries",
    IssueCode.UNEXPECTED_STAGING: "staging allocations of a transfer that asks for none",
    IssueCode.INVALID_STAGING: "a staging allocation that is not pinned staging in memory on the transfer's way",
    IssueCode.MISSING_STAGING: "a transfer that asks for staging and names none",
    IssueCode.EMPTY_GROUP: "a group without members",
    IssueCode.DUPLICATE_RANK: "a rank twice in one group",
    IssueCode.RANK_REMAP: "a rank that is on another device in another group",
    IssueCode.DUPLICATE_GROUP_DEVICE: "a device twice in one group",
    IssueCode.PARALLELISM_COMPOSITION: "degrees of parallelism that cannot be composed so",
    IssueCode.PARALLELISM_PARTICIPANTS: "degrees of parallelism that placements and groups do not bear out",
    IssueCode.INVALID_CALIBRATION: "a calibration coefficient without value, evidence or range",
    IssueCode.DOMAIN_OVER_LIMIT: "more reserved in a memory than its resource limit",
    IssueCode.INVALID_ALIAS: "an alias in another memory than its allocation, or larger, or one that leads in a circle",
    IssueCode.INVALID_CURVE: "a curve of fewer than two points, or whose message sizes do not rise",
    IssueCode.NO_GROUP_PATH: "two members of a group that exchange messages and have no path",
    IssueCode.UNSUPPORTED_DTYPE: "a placement whose number format its device does not support",
}
OWN_CODES = (
    IssueCode.DOMAIN_OVER_LIMIT,
    IssueCode.INVALID_ALIAS,
    IssueCode.INVALID_CURVE,
    IssueCode.NO_GROUP_PATH,
    IssueCode.UNSUPPORTED_DTYPE,
)
"""Codes of rules that the reference lacks."""


class Issue(msgspec.Struct, frozen=True):
    """One thing that is wrong with a scenario; `path` as in `links[3].latencyNs`."""

    code: IssueCode
    path: str
    message: str
    depends: tuple[str, ...] = ()


class Findings:
    """The issues found so far, in the order they were found."""

    __slots__ = ("issues",)

    def __init__(self) -> None:
        self.issues: list[Issue] = []

    def add(self, code: IssueCode, path: str, message: str, *depends: str) -> None:
        self.issues.append(Issue(code, path, message, depends))


def known(issues: Iterable[Issue], broken: Iterable[str]) -> list[Issue]:
    """The issues that do not hang on a placeholder: none at its own path or around it, none in what it depends on.

    In a dependency `[*]` stands for any index. The cost grows with the issues and with the placeholders, not with both.
    """
    gaps = _Gaps(broken)
    return [
        issue
        for issue in issues
        if not gaps.around(_tokens(issue.path)) and not any(gaps.touch(_tokens(one)) for one in issue.depends)
    ]


_Tokens = tuple[str, ...]


class _Gaps:
    """Where placeholders are, and all that lies around them; each also with every index made `*`."""

    __slots__ = ("_above", "_at")

    def __init__(self, broken: Iterable[str]) -> None:
        self._at: dict[_Tokens, None] = {}
        self._above: dict[_Tokens, None] = {}
        for path in broken:
            tokens = _tokens(path)
            for form in (tokens, _any_index(tokens)):
                self._at[form] = None
                self._above.update(dict.fromkeys(form[:length] for length in range(len(form) + 1)))

    def around(self, path: _Tokens) -> bool:
        """Whether a placeholder stands at this path or around it."""
        return any(path[:length] in self._at for length in range(len(path) + 1))

    def touch(self, path: _Tokens) -> bool:
        """Whether a placeholder stands at this path, around it or within it."""
        form = _any_index(path) if "*" in path else path
        return form in self._above or self.around(form)


def _tokens(path: str) -> _Tokens:
    return tuple(re.findall(r"[^.\[\]]+", path))


def _any_index(path: _Tokens) -> _Tokens:
    return tuple("*" if token.isdecimal() else token for token in path)
