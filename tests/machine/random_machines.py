"""Random valid topologies, plans and executions, on a coarse time grid where almost everything ties."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import msgspec
from msgspec import UNSET

from isim.draw.streams import Stream
from isim.machine.program import program_of
from isim.machine.requests import ExecutionRequest
from isim.machine.resources import Resources, resources_of
from isim.model.spec import Confidence
from isim.plan.types import Collective, CollectiveAlgorithm, Compute, FrozenPlan, PlanStep, Transfer
from isim.plan.validate import validate_plan
from isim.scenario.topology import types as t
from isim.topology.index import Topology
from isim.topology.validate import validate_topology

T = TypeVar("T")
GIB = 1 << 30
PROVENANCE = t.Provenance(confidence=Confidence.HEURISTIC, source="drawn")


class Dice:
    """Draws in a row."""

    def __init__(self, seed: int, name: str) -> None:
        self._stream = Stream(seed, name)
        self._count = 0

    def below(self, n: int) -> int:
        self._count += 1
        return self._stream.below(n, self._count)

    def one(self, choices: Sequence[T]) -> T:
        return choices[self.below(len(choices))]

    def some(self, choices: Sequence[T], most: int) -> list[T]:
        """Up to `most` different ones, in a drawn order."""
        left = list(choices)
        return [left.pop(self.below(len(left))) for _ in range(min(self.below(most + 1), len(left)))]


class Case(msgspec.Struct):
    """A topology, its plans, and executions of them in the order of admission."""

    topology: Topology
    plans: list[FrozenPlan]
    machine: Resources
    requests: list[ExecutionRequest]


def random_case(seed: int, *, executions: int = 5, steps: int = 14) -> Case:
    """A valid scenario with valid plans."""
    dice = Dice(seed, "machines")
    topology = Topology(random_scenario(dice))
    assert validate_topology(topology.scenario) == []
    machine = resources_of(topology)
    plans = [
        random_plan(dice, topology, f"plan {number}", 1 + dice.below(steps)) for number in range(1 + dice.below(2))
    ]
    for plan in plans:
        assert validate_plan(plan, topology) == []
    programs = [program_of(plan, machine) for plan in plans]
    requests = []
    arrival_ns = 0
    for number in range(1 + dice.below(executions)):
        program = dice.one(programs)
        steps_of = [work.fact.id for work in program.steps]
        held = dice.some(steps_of, 2)
        requests.append(
            ExecutionRequest(
                program=program,
                execution=f"execution {number}",
                arrival_ns=arrival_ns,
                not_before=tuple((step, 10 * dice.below(12)) for step in held),
            )
        )
        arrival_ns += 10 * dice.below(3)
    return Case(topology, plans, machine, requests)


def random_scenario(dice: Dice) -> t.TopologyScenario:
    """One or two nodes with a CPU and up to three GPUs each, and a switched network between them."""
    nodes = 1 + dice.below(2)
    gpus = [(node, index) for node in range(nodes) for index in range(1 + dice.below(3))]
    domains, devices, links, placements = [], [], [], []
    for node in range(nodes):
        host, cpu = f"n{node}:host", f"n{node}:cpu"
        governor = t.HostGovernor(node_id=f"n{node}")
        domains.append(domain(host, f"n{node}", t.DomainKind.HOST, cpu, governor))
        devices.append(device(cpu, f"n{node}", t.DeviceKind.CPU, host, 1 + dice.below(2)))
        names = [f"n{node}:staging", f"n{node}:cache"]
        placements.append(placement(cpu, host, names, t.AllocationClass.PINNED, ()))
    for node, index in gpus:
        gpu, vram = f"n{node}:gpu{index}", f"n{node}:vram{index}"
        domains.append(domain(vram, f"n{node}", t.DomainKind.DEVICE, gpu, t.DeviceGovernor(device_id=gpu)))
        devices.append(device(gpu, f"n{node}", t.DeviceKind.GPU, vram, 1 + dice.below(3)))
        names = [f"{gpu}:weights", f"{gpu}:kv", f"{gpu}:workspace"]
        placements.append(placement(gpu, vram, names, t.AllocationClass.DEVICE, (t.Capability.ATTENTION,)))
        for way, ends in (("up", (vram, f"n{node}:host")), ("down", (f"n{node}:host", vram))):
            links.append(link(f"{gpu}:{way}", ends, 1 + dice.below(2)))
    network = []
    if nodes == 2:
        for kind, name, node in (("nic", "nic0", "n0"), ("nic", "nic1", "n1"), ("switch", "fabric", None)):
            network.append(resource(name, t.ResourceKind(kind), node, 1 + dice.below(2)))
        links.append(link("lan:01", ("n0:host", "n1:host"), 1 + dice.below(2), ("nic0", "fabric", "nic1")))
        links.append(link("lan:10", ("n1:host", "n0:host"), 1 + dice.below(2), ("nic1", "fabric", "nic0")))
    return scenario(domains, devices, links, placements, network, [f"n{node}:gpu{index}" for node, index in gpus], dice)


def domain(name: str, node: str, kind: t.DomainKind, owner: str, governor: t.Governor) -> t.MemoryDomain:
    host = kind is t.DomainKind.HOST
    classes = (t.AllocationClass.PAGEABLE, t.AllocationClass.PINNED) if host else (t.AllocationClass.DEVICE,)
    return t.MemoryDomain(
        id=name,
        node_id=node,
        kind=kind,
        capacity_bytes=64 * GIB,
        resource_limit_bytes=64 * GIB,
        bandwidth_bytes_per_sec=10**11,
        latency_ns=100,
        coherent=host,
        allocation_classes=classes,
        accessible_by=(owner,),
        governor=governor,
        provenance=PROVENANCE,
    )


def device(name: str, node: str, kind: t.DeviceKind, memory: str, lanes: int) -> t.Device:
    gpu = kind is t.DeviceKind.GPU
    able = (t.Capability.ATTENTION, t.Capability.FFN, t.Capability.COLLECTIVE) if gpu else (t.Capability.LOOKUP,)
    return t.Device(
        id=name,
        node_id=node,
        kind=kind,
        execution_provider="drawn",
        memory_domain_ids=(memory,),
        capabilities=able,
        supported_dtypes=(t.NumberFormat.FP16,),
        max_concurrent_compute=lanes,
        provenance=PROVENANCE,
    )


def placement(
    owner: str, memory: str, names: Sequence[str], kind: t.AllocationClass, needs: tuple[t.Capability, ...]
) -> t.Placement:
    """With a second name for the last of the allocations."""
    aliases = [UNSET] * len(names) + [names[-1]]
    return t.Placement(
        partition_id=f"on {owner}",
        device_id=owner,
        required_capabilities=needs,
        allocations=tuple(
            t.Allocation(
                physical_allocation_id=name,
                domain_id=memory,
                bytes=GIB,
                allocation_class=kind,
                purpose=t.Purpose.WORKSPACE,
                alias_of=alias,
            )
            for name, alias in zip([*names, f"{names[-1]}:view"], aliases, strict=True)
        ),
    )


def link(name: str, ends: tuple[str, str], lanes: int, network: tuple[str, ...] = ()) -> t.Link:
    return t.Link(
        id=name,
        source_domain_id=ends[0],
        target_domain_id=ends[1],
        kind=t.LinkKind.ETHERNET if network else t.LinkKind.PCIE,
        bandwidth_bytes_per_sec=10**10,
        latency_ns=1000,
        concurrency_lanes=lanes,
        transport=t.Transport.TCP if network else UNSET,
        network_resource_ids=network or UNSET,
        provenance=PROVENANCE,
    )


def resource(name: str, kind: t.ResourceKind, node: str | None, lanes: int) -> t.NetworkResource:
    return t.NetworkResource(
        id=name,
        kind=kind,
        node_id=UNSET if node is None else node,
        bandwidth_bytes_per_sec=10**10,
        latency_ns=100,
        concurrency_lanes=lanes,
        supported_transports=(t.Transport.TCP,),
        direct_memory_domain_ids=(),
        provenance=PROVENANCE,
    )


def scenario(
    domains: list[t.MemoryDomain],
    devices: list[t.Device],
    links: list[t.Link],
    placements: list[t.Placement],
    network: list[t.NetworkResource],
    gpus: list[str],
    dice: Dice,
) -> t.TopologyScenario:
    """All GPUs in one group, some of them in a second one in another order, each CPU in one of its own."""
    members = {"all": gpus, "some": dice.some(gpus, len(gpus)) or gpus[:1]}
    members.update((f"of {each.id}", [each.id]) for each in devices if each.kind is t.DeviceKind.CPU)
    parallelism = t.Parallelism(composition=t.Composition.CARTESIAN, tensor=len(gpus), pipeline=1, expert=1, data=1)
    return t.TopologyScenario(
        schema_version=t.SCHEMA_VERSION,
        id="drawn",
        family=t.Family.CUSTOM,
        memory_domains=tuple(domains),
        devices=tuple(devices),
        network_resources=tuple(network) or UNSET,
        links=tuple(links),
        placements=tuple(placements),
        transfers=(),
        groups=tuple(
            t.Group(id=name, ordered_ranks=tuple(t.Rank(rank_id=f"rank of {it}", device_id=it) for it in ordered))
            for name, ordered in members.items()
        ),
        workload=t.WorkloadShape(batch_size=1, input_sequence_length=1, output_sequence_length=1),
        execution=t.Execution(
            topology_epoch=3,
            seed=1,
            max_events=10_000,
            features=t.Features(ssd_streaming=True),
            parallelism=parallelism,
        ),
        calibration=t.Calibration(coefficients=()),
    )


class Planner:
    """Draws steps one after the other, with the dependencies that buffers and communicators demand."""

    def __init__(self, dice: Dice, topology: Topology) -> None:
        self._dice = dice
        self._topology = topology
        self._last: dict[str, int] = {}
        self._readers: dict[str, list[int]] = {}
        self._sequence: dict[str, int] = {}
        self._collective: dict[str, int] = {}
        self.steps: list[PlanStep] = []

    def _in(self, *domains: str) -> list[str]:
        return [name for name, owned in self._topology.allocations.items() if owned.allocation.domain_id in domains]

    def _root(self, name: str) -> str:
        physical = self._topology.physical(name)
        assert physical is not None
        return physical.allocation.physical_allocation_id

    def step(self, number: int, before: Sequence[int]) -> PlanStep:
        operation, participants, reads, writes = self._operation()
        dependencies = dict.fromkeys(before)
        if isinstance(operation, Collective) and operation.group_id in self._collective:
            dependencies[self._collective[operation.group_id]] = None
        for name in (*reads, *writes):
            if self._root(name) in self._last:
                dependencies[self._last[self._root(name)]] = None
        for name in writes:
            dependencies.update(dict.fromkeys(self._readers.pop(self._root(name), ())))
            self._last[self._root(name)] = number
        for name in reads:
            self._readers.setdefault(self._root(name), []).append(number)
        if isinstance(operation, Collective):
            self._collective[operation.group_id] = number
        return PlanStep(
            id=number,
            participants=participants,
            dependencies=tuple(dependencies),
            reads=tuple(reads),
            writes=tuple(writes),
            operation=operation,
        )

    def _operation(self) -> tuple[Compute | Transfer | Collective, tuple[str, ...], list[str], list[str]]:
        dice, topology = self._dice, self._topology
        duration_ns = 10 * dice.below(4)
        kind = dice.below(3)
        if kind == 0:
            device = dice.one(list(topology.devices.values()))
            reads, writes = self._buffers(self._in(*device.memory_domain_ids), 2, 2)
            compute = Compute(device_id=device.id, capability=device.capabilities[0], duration_ns=duration_ns)
            return compute, (f"rank of {device.id}",), reads, writes
        if kind == 1:
            link = dice.one(list(topology.links.values()))
            transfer = Transfer(link_id=link.id, duration_ns=duration_ns)
            reads = [dice.one(self._in(link.source_domain_id))]
            writes = [dice.one(self._in(link.target_domain_id))]
            return transfer, (dice.one(list(topology.ranks)),), reads, writes
        group = dice.one([topology.groups["all"], topology.groups["some"]])
        domains = [name for it in group.ordered_ranks for name in topology.devices[it.device_id].memory_domain_ids]
        reads, writes = self._buffers(self._in(*domains), 3, 1)
        sequence = self._sequence.get(group.id, 0)
        self._sequence[group.id] = sequence + 1
        collective = Collective(
            group_id=group.id,
            comm_sequence_id=sequence,
            algorithm=dice.one(list(CollectiveAlgorithm)),
            link_ids=tuple(dice.some(list(topology.links), 4)),
            duration_ns=duration_ns,
        )
        return collective, tuple(rank.rank_id for rank in group.ordered_ranks), reads, writes

    def _buffers(self, names: list[str], reads: int, writes: int) -> tuple[list[str], list[str]]:
        """No allocation twice, under whatever name."""
        chosen: dict[str, str] = {}
        for name in self._dice.some(names, reads + writes):
            chosen.setdefault(self._root(name), name)
        both = list(chosen.values())
        cut = self._dice.below(writes + 1)
        return both[cut:], both[:cut]


def random_plan(dice: Dice, topology: Topology, name: str, steps: int) -> FrozenPlan:
    """Ids are drawn, so that they are not in the order of the plan."""
    planner = Planner(dice, topology)
    ids = dice_order(dice, steps)
    made: list[PlanStep] = []
    for number in range(steps):
        made.append(planner.step(number, dice.some(range(number), 2)))
    renamed = [
        msgspec.structs.replace(
            step, id=ids[step.id], dependencies=tuple(ids[dependency] for dependency in step.dependencies)
        )
        for step in made
    ]
    return FrozenPlan(
        contract_revision=5,
        id=name,
        execution_id=f"{name} alone",
        topology_epoch=topology.scenario.execution.topology_epoch,
        steps=tuple(renamed),
    )


def dice_order(dice: Dice, count: int) -> list[int]:
    """The numbers below `count`, times seven, in a drawn order."""
    left = [7 * number for number in range(count)]
    return [left.pop(dice.below(len(left))) for _ in range(count)]
