"""Checks of who works together: communicator groups and their paths, degrees of parallelism, calibration.

Participants are the devices of placements that compute attention or FFNs for the target, not for a draft model. In a
cartesian composition the degrees multiply to their number; overlapped, tensor and expert degree are their number. An
axis of more than one rank needs groups: each participant is in one of as many members as the axis is long, or in one of
all participants, and no others.
"""

from __future__ import annotations

from math import isfinite, prod

from msgspec import UNSET

from isim.scenario.topology.types import Capability, Composition, Group
from isim.topology.check_memory import DEVICE_IDS
from isim.topology.index import Topology
from isim.topology.issues import Findings, IssueCode

_DEGREES = "execution.parallelism"
_COMPUTING = (Capability.ATTENTION, Capability.FFN)


def check_groups(topology: Topology, found: Findings) -> None:
    devices: dict[str, tuple[str, str]] = {}
    for index, group in enumerate(topology.scenario.groups):
        at = f"groups[{index}]"
        if not group.ordered_ranks:
            found.add(IssueCode.EMPTY_GROUP, f"{at}.orderedRanks", "expected at least one rank, found none")
        _members(found, topology, group, at, devices)
        _paths(found, topology, group, at)


def _members(found: Findings, topology: Topology, group: Group, at: str, devices: dict[str, tuple[str, str]]) -> None:
    """`devices` are the device and the path of each rank of the groups before."""
    ranks: dict[str, str] = {}
    taken: dict[str, str] = {}
    for index, rank in enumerate(group.ordered_ranks):
        path = f"{at}.orderedRanks[{index}]"
        if rank.device_id not in topology.devices:
            message = f"expected the id of a device, found {rank.device_id}"
            found.add(IssueCode.UNKNOWN_DEVICE, f"{path}.deviceId", message, DEVICE_IDS)
        if ranks.setdefault(rank.rank_id, path) != path:
            message = f"expected each rank once, found {rank.rank_id} again, first at {ranks[rank.rank_id]}"
            found.add(IssueCode.DUPLICATE_RANK, f"{path}.rankId", message, f"{ranks[rank.rank_id]}.rankId")
            continue
        if taken.setdefault(rank.device_id, path) != path:
            message = f"expected each device once, found {rank.device_id} again, first at {taken[rank.device_id]}"
            depends = f"{taken[rank.device_id]}.deviceId"
            found.add(IssueCode.DUPLICATE_GROUP_DEVICE, f"{path}.deviceId", message, depends)
        device, first = devices.setdefault(rank.rank_id, (rank.device_id, path))
        if device != rank.device_id:
            message = f"expected {rank.rank_id} on {device}, where it is at {first}, found it on {rank.device_id}"
            found.add(IssueCode.RANK_REMAP, f"{path}.deviceId", message, path, first)


def _paths(found: Findings, topology: Topology, group: Group, at: str) -> None:
    """Neighbours on the ring can reach each other if all members do collectives, else each can reach the next."""
    members = [rank.device_id for rank in group.ordered_ranks]
    devices = [topology.devices.get(name) for name in members]
    if len(members) < 2 or None in devices:
        return
    ring = all(device is not None and Capability.COLLECTIVE in device.capabilities for device in devices)
    for index, name in enumerate(members if ring else members[:-1]):
        after = members[(index + 1) % len(members)]
        source, target = topology.exchange_domain(name), topology.exchange_domain(after)
        if source is None or target is None or _reaches(topology, source, target):
            continue
        message = f"expected a path from {name} to {after}, the next member, found none from {source} to {target}"
        depends = ("links", "memoryDomains", "devices", "placements", at)
        found.add(IssueCode.NO_GROUP_PATH, f"{at}.orderedRanks[{index}]", message, *depends)


def _reaches(topology: Topology, source: str, target: str) -> bool:
    """Whether links lead from one domain to another, whatever the size of the message."""
    reached = {source: None}
    waiting = [source]
    for domain in waiting:
        if target in reached:
            return True
        for link in topology.leaving[domain]:
            if link.target_domain_id not in reached:
                reached[link.target_domain_id] = None
                waiting.append(link.target_domain_id)
    return target in reached


def check_parallelism(topology: Topology, found: Findings) -> None:
    degrees = topology.scenario.execution.parallelism
    axes = {
        "tensor": degrees.tensor,
        "pipeline": degrees.pipeline,
        "expert": degrees.expert,
        "data": degrees.data,
    }
    if min(axes.values()) < 1:
        return
    overlapped = degrees.composition is Composition.OVERLAP
    if overlapped and not (degrees.tensor == degrees.expert and degrees.pipeline == degrees.data == 1):
        listed = ", ".join(f"{name} {degree}" for name, degree in axes.items())
        message = f"expected equal tensor and expert degrees, pipeline 1 and data 1, found {listed}"
        found.add(IssueCode.PARALLELISM_COMPOSITION, _DEGREES, message, _DEGREES)
        return
    participants = dict.fromkeys(
        placement.device_id
        for placement in topology.scenario.placements
        if any(capability in _COMPUTING for capability in placement.required_capabilities)
        and Capability.DRAFT not in placement.required_capabilities
    )
    world = degrees.tensor if overlapped else prod(axes.values())
    if world != len(participants):
        message = f"expected {world} devices with placements that compute attention or FFNs, found {len(participants)}"
        found.add(IssueCode.PARALLELISM_PARTICIPANTS, _DEGREES, message, _DEGREES, "placements")
        return
    for name, degree in axes.items():
        alone = _alone(topology, participants, degree) if name != "data" else []
        if alone:
            message = f"expected a group of {degree} participants with {alone[0]}, found none"
            found.add(
                IssueCode.PARALLELISM_PARTICIPANTS, f"{_DEGREES}.{name}", message, _DEGREES, "placements", "groups"
            )


def _alone(topology: Topology, participants: dict[str, None], degree: int) -> list[str]:
    """Participants of an axis of this degree that are in no fitting group."""
    if degree == 1:
        return []
    together: dict[str, None] = {}
    for group in topology.scenario.groups:
        members = [rank.device_id for rank in group.ordered_ranks]
        if len(members) in (degree, len(participants)) and all(member in participants for member in members):
            together.update(dict.fromkeys(members))
    return [device for device in participants if device not in together]


def check_calibration(topology: Topology, found: Findings) -> None:
    first: dict[str, int] = {}
    for index, each in enumerate(topology.scenario.calibration.coefficients):
        at = f"calibration.coefficients[{index}]"
        if first.setdefault(each.id, index) != index:
            before = f"calibration.coefficients[{first[each.id]}].id"
            message = f"expected an id of its own, found {each.id} again, first at {before}"
            found.add(IssueCode.DUPLICATE_ID, f"{at}.id", message, before)
        for key, value in (("value", each.value), ("minimum", each.minimum), ("maximum", each.maximum)):
            if value is not UNSET and not (isfinite(value) and value >= 0):
                message = f"expected a finite number of at least 0, found {value}"
                found.add(IssueCode.INVALID_CALIBRATION, f"{at}.{key}", message)
        if each.minimum is not UNSET and each.maximum is not UNSET and each.minimum > each.maximum:
            message = f"expected at least the minimum of {each.minimum}, found {each.maximum}"
            found.add(IssueCode.INVALID_CALIBRATION, f"{at}.maximum", message, at)
