"""A plan of a log: is it named by its content, and could its steps run on the machine at all?"""

from __future__ import annotations

from typing import NoReturn

from isim.record.execution import CollectiveFact, ComputeFact, Plan, StepFact, TransferFact, plan_digest
from isim.replay.execution.machine import Facts
from isim.replay.execution.rules import ExecutionRule
from isim.replay.rules import Mismatch

_CONTRACT_REVISION = 5


class Checked:
    """A plan that was checked. Steps go by their place; `holds`, `reads` and `writes` are resources and physical
    allocations, `followers` who waits for a step, `operations` how many each communicator has in the plan."""

    def __init__(self, plan: Plan, steps: tuple[StepFact, ...], facts: Facts) -> None:
        self.facts = steps
        self.place = {step.id: place for place, step in enumerate(steps)}
        _check_plan(plan, steps, facts, self.place)
        self.needs = [len({*step.dependencies}) for step in steps]
        self.followers: list[list[int]] = [[] for _ in steps]
        for place, step in enumerate(steps):
            for dependency in dict.fromkeys(step.dependencies):
                self.followers[self.place[dependency]].append(place)
        self._check_order()
        roots = facts.roots
        self.holds = [tuple(facts.resources(step.operation)) for step in steps]
        self.writes = [tuple(dict.fromkeys(roots.get(name, name) for name in step.writes)) for step in steps]
        self.reads = [
            tuple(dict.fromkeys(root for name in step.reads if (root := roots.get(name, name)) not in written))
            for step, written in zip(steps, self.writes, strict=True)
        ]
        self.operations: dict[str, int] = {}
        for step in steps:
            if isinstance(step.operation, CollectiveFact):
                group = step.operation.group
                self.operations[group] = self.operations.get(group, 0) + 1
        self.ranks = sorted({rank for step in steps for rank in step.participants})

    def _check_order(self) -> None:
        """Peel off what waits for nothing; a circle is left."""
        needs = list(self.needs)
        free = [place for place, count in enumerate(needs) if not count]
        for place in free:
            for follower in self.followers[place]:
                needs[follower] -= 1
                if not needs[follower]:
                    free.append(follower)
        if len(free) < len(needs):
            stuck = next(place for place, count in enumerate(needs) if count)
            _wrong(self.facts[stuck], "no circle of dependencies", "one that it is part of, or behind")


def _check_plan(plan: Plan, steps: tuple[StepFact, ...], facts: Facts, places: dict[int, int]) -> None:
    digest = plan_digest(plan.id, plan.contract_revision, plan.topology_epoch, steps)
    if plan.digest != digest:
        raise Mismatch(ExecutionRule.PLAN_DIGEST, digest, plan.digest)
    found = (plan.contract_revision, plan.topology_epoch)
    if found != (_CONTRACT_REVISION, facts.epoch):
        expected = f"contract revision {_CONTRACT_REVISION} and topology epoch {facts.epoch}"
        raise Mismatch(ExecutionRule.PLAN, expected, f"revision {found[0]} and epoch {found[1]}")
    if not steps or len(places) < len(steps):
        raise Mismatch(ExecutionRule.PLAN, "steps, each with an id of its own", f"{len(places)} of {len(steps)}")
    sequences: dict[str, list[int]] = {}
    for step in steps:
        _check_step(step, facts, places)
        if isinstance(step.operation, CollectiveFact):
            sequences.setdefault(step.operation.group, []).append(step.operation.comm_sequence)
    for group, numbers in sequences.items():
        if sorted(numbers) != list(range(len(numbers))):
            raise Mismatch(ExecutionRule.PLAN, f"operations of group {group} numbered from 0 without gaps", numbers)


def _check_step(step: StepFact, facts: Facts, places: dict[int, int]) -> None:
    for dependency in step.dependencies:
        if dependency not in places or dependency == step.id:
            _wrong(step, "dependencies on other steps of the plan", f"on {dependency}")
    if not step.participants or len({*step.participants}) < len(step.participants):
        _wrong(step, "participants, each once", step.participants)
    roots = facts.roots
    written = {roots.get(name, name) for name in step.writes}
    if any(roots.get(name, name) in written for name in step.reads):
        _wrong(step, "no allocation both read and written", step.reads)
    match step.operation:
        case ComputeFact(device=device):
            if device not in facts.devices:
                _wrong(step, "a known device", device)
            home = facts.homes.get(step.participants[0])
            if len(step.participants) != 1 or home != device:
                _wrong(step, f"one participant, the rank of {device}", f"{step.participants} on {home}")
        case TransferFact(link=link):
            if link not in facts.links:
                _wrong(step, "a known link", link)
            if not step.reads or not step.writes:
                _wrong(step, "something to read and something to write", f"{step.reads} and {step.writes}")
        case CollectiveFact() as operation:
            group = facts.groups.get(operation.group)
            ranks = () if group is None else tuple(rank for rank, _ in group.ranks)
            if step.participants != ranks:
                _wrong(step, f"the ranks of group {operation.group}, {ranks}", step.participants)
            for link in operation.links:
                if link not in facts.links:
                    _wrong(step, "a known link", link)


def _wrong(step: StepFact, expected: str, found: object) -> NoReturn:
    raise Mismatch(ExecutionRule.PLAN, f"step {step.id} with {expected}", found)
