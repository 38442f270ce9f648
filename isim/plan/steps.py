"""What can be said of one step of a plan by itself: who takes part, which buffers it uses, what it may do."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeAlias

from isim.plan.buffers import Buffers
from isim.plan.issues import PlanCode, PlanIssue, listed
from isim.plan.types import Collective, Compute, PlanStep, Transfer
from isim.record.records import SAFE_MAX
from isim.scenario.topology.types import Capability
from isim.topology.index import Topology

Finding: TypeAlias = tuple[PlanCode, str, str]
"""Code, the path below the step (empty for the step itself), and the message."""


class StepChecks:
    """Checks steps of one scenario. Steps that name the same things are looked at once."""

    def __init__(self, topology: Topology, buffers: Buffers) -> None:
        self._topology = topology
        self._buffers = buffers
        self._seen: dict[tuple[object, ...], list[Finding]] = {}

    def check(self, position: int, step: PlanStep) -> Iterator[PlanIssue]:
        """The complaints about a step that need no other step."""
        findings = self._named(step)
        operation = step.operation
        if not 0 <= operation.duration_ns <= SAFE_MAX:
            message = f"expected a duration from 0 to {SAFE_MAX} ns, found {operation.duration_ns}"
            findings = [*findings, (PlanCode.DURATION, "operation.durationNs", message)]
        if isinstance(operation, Collective) and not 0 <= operation.comm_sequence_id <= SAFE_MAX:
            message = f"expected a sequence number counted from 0, found {operation.comm_sequence_id}"
            findings = [*findings, (PlanCode.COLLECTIVE_SEQUENCE, "operation.commSequenceId", message)]
        for code, path, message in findings:
            yield PlanIssue(code, f"steps[{position}].{path}" if path else f"steps[{position}]", message)

    def _named(self, step: PlanStep) -> list[Finding]:
        operation = step.operation
        what: tuple[object, ...]
        if isinstance(operation, Compute):
            what = (operation.device_id, operation.capability)
        elif isinstance(operation, Transfer):
            what = (operation.link_id,)
        else:
            what = (operation.group_id, operation.link_ids, operation.algorithm)
        key = (step.participants, step.reads, step.writes, *what)
        found = self._seen.get(key)
        if found is None:
            found = self._seen[key] = [*self._common(step), *self._operation(step)]
        return found

    def _common(self, step: PlanStep) -> Iterator[Finding]:
        ranks, buffers = self._topology.ranks, self._buffers
        yield from _doubled("participants", step.participants)
        if not step.participants:
            yield PlanCode.EMPTY_PARTICIPANTS, "participants", "expected at least one rank, found none"
        unknown = [rank for rank in step.participants if rank not in ranks]
        if unknown:
            yield (
                PlanCode.UNKNOWN_RANK,
                "participants",
                f"expected ranks of the scenario's groups, found {listed(unknown)}",
            )
        yield from _doubled("reads", step.reads)
        yield from _doubled("writes", step.writes)
        lost = [name for name in (*step.reads, *step.writes) if name not in buffers.physical]
        if lost:
            yield PlanCode.UNKNOWN_ALLOCATION, "", f"expected allocations of the scenario, found {listed(lost)}"
        written = buffers.roots(step.writes)
        both = [name for name in step.reads if buffers.physical.get(name) in written]
        if both:
            message = f"expected what is read and written in writes only, found {listed(both)} in both"
            yield PlanCode.READ_WRITE_OVERLAP, "", message

    def _operation(self, step: PlanStep) -> Iterator[Finding]:
        operation = step.operation
        if isinstance(operation, Compute):
            return self._compute(step, operation)
        if isinstance(operation, Transfer):
            return self._transfer(step, operation)
        return self._collective(step, operation)

    def _compute(self, step: PlanStep, operation: Compute) -> Iterator[Finding]:
        device = self._topology.devices.get(operation.device_id)
        if device is None:
            message = f'expected a device of the scenario, found "{operation.device_id}"'
            yield PlanCode.UNKNOWN_DEVICE, "operation.deviceId", message
        ranks = [self._topology.ranks.get(rank) for rank in step.participants]
        if len(ranks) != 1 or ranks[0] is None or ranks[0].device_id != operation.device_id:
            message = f'expected the one rank of device "{operation.device_id}", found {listed(step.participants)}'
            yield PlanCode.COMPUTE_PARTICIPANT, "participants", message
        if device is None:
            return
        if operation.capability not in device.capabilities:
            message = (
                f"expected one of what {device.id} can do ({listed(device.capabilities)}), found {operation.capability}"
            )
            yield PlanCode.MISSING_CAPABILITY, "operation.capability", message
        yield from self._reachable(step, (device.id,))

    def _reachable(self, step: PlanStep, devices: Sequence[str]) -> Iterator[Finding]:
        """Every buffer must lie in a domain that one of the devices sees."""
        domain = self._buffers.domain
        seen = {memory for name in devices for memory in self._topology.devices[name].memory_domain_ids}
        hidden = [name for name in (*step.reads, *step.writes) if name in domain and domain[name] not in seen]
        if hidden:
            message = f"expected allocations that {listed(devices)} can access, found {listed(hidden)}"
            yield PlanCode.INACCESSIBLE_ALLOCATION, "", message

    def _transfer(self, step: PlanStep, operation: Transfer) -> Iterator[Finding]:
        domain = self._buffers.domain
        link = self._topology.links.get(operation.link_id)
        if link is None:
            yield (
                PlanCode.UNKNOWN_LINK,
                "operation.linkId",
                f'expected a link of the scenario, found "{operation.link_id}"',
            )
        if not step.reads or not step.writes:
            message = f"expected at least one read and one write, found {len(step.reads)} and {len(step.writes)}"
            yield PlanCode.TRANSFER_BUFFERS, "", message
        if link is None:
            return
        ends = (
            (PlanCode.TRANSFER_SOURCE, "reads", step.reads, link.source_domain_id),
            (PlanCode.TRANSFER_TARGET, "writes", step.writes, link.target_domain_id),
        )
        for code, path, names, end in ends:
            astray = [name for name in names if name in domain and domain[name] != end]
            if astray:
                yield code, path, f"expected allocations in {end}, an end of {link.id}, found {listed(astray)}"

    def _collective(self, step: PlanStep, operation: Collective) -> Iterator[Finding]:
        group = self._topology.groups.get(operation.group_id)
        if group is None:
            message = f'expected a group of the scenario, found "{operation.group_id}"'
            yield PlanCode.UNKNOWN_GROUP, "operation.groupId", message
        else:
            members = tuple([rank.rank_id for rank in group.ordered_ranks])
            if step.participants != members:
                message = (
                    f"expected the ranks of {group.id} in order ({listed(members)}), found {listed(step.participants)}"
                )
                yield PlanCode.COLLECTIVE_PARTICIPANTS, "participants", message
            able = self._topology.devices
            devices = [rank.device_id for rank in group.ordered_ranks if rank.device_id in able]
            unable = [name for name in devices if Capability.COLLECTIVE not in able[name].capabilities]
            if unable:
                message = f"expected members that can do a collective, found {listed(unable)}"
                yield PlanCode.MISSING_CAPABILITY, "participants", message
            yield from self._reachable(step, devices)
        yield from _doubled("operation.linkIds", operation.link_ids)
        unknown = [name for name in operation.link_ids if name not in self._topology.links]
        if unknown:
            yield PlanCode.UNKNOWN_LINK, "operation.linkIds", f"expected links of the scenario, found {listed(unknown)}"


def _doubled(path: str, names: Sequence[str]) -> Iterator[Finding]:
    if len(dict.fromkeys(names)) < len(names):
        again = dict.fromkeys(name for name in names if names.count(name) > 1)
        yield PlanCode.DUPLICATE_VALUE, path, f"expected each name once, found {listed(again)} again"
