"""One unit of work on a topology, as moves: steps that have no number yet, and no sequence in their group.

The stages of the pipeline follow one another, and between two stages each partition's activation goes to its
counterpart, link by link over the best path for its size. A stage of several partitions works side by side and ends in
one all-reduce.

    dense    attention then FFN on every partition, all-reduce
    routed   attention everywhere, all-reduce, all-to-all of tokens to the owners of their experts, FFN where experts
             were asked for, all-to-all back (the transposed bytes)

A compute step reads weights, and the hot expert cache if it is routed, and writes KV, workspace and sidecar;
collectives read workspaces. Equal units are made once: a plan of n equal tokens looks at placements and paths once.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from isim.plan.buffers import Buffers
from isim.plan.collective import CollectiveCost, Matrix, all_reduce_ring, all_to_all_v, transposed
from isim.plan.costs import CostModel, launch_ns
from isim.plan.errors import CompileError
from isim.plan.owners import dispatch_matrix, owners
from isim.plan.paths import Paths
from isim.plan.profile import Profile, Unit
from isim.plan.stages import Partition, Stage, stages_of
from isim.plan.types import Collective, CollectiveAlgorithm, Compute, Operation, Transfer
from isim.scenario.topology.types import Capability, Purpose
from isim.topology.index import Topology

START = -1
"""Stands among a move's waits for whatever the unit begins after."""


class Move(msgspec.Struct, frozen=True):
    """A step before it has a number: `waits` are positions within the unit. The last move ends the unit."""

    participants: tuple[str, ...]
    waits: tuple[int, ...]
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    operation: Operation


class Work(msgspec.Struct, frozen=True):
    """`tokens` tokens of one kind of work, spread over `devices` devices; `routed` work needs the hot expert cache."""

    capability: Capability
    tokens: int
    devices: int
    routed: bool = False


class UnitMoves:
    """Moves of each different unit, made once."""

    def __init__(self, topology: Topology, buffers: Buffers, profile: Profile, costs: CostModel) -> None:
        self._topology = topology
        self._profile = profile
        self._paths = Paths(topology)
        self._costs = costs
        self._stages = stages_of(topology, buffers)
        self._made: dict[Unit, tuple[Move, ...]] = {}

    def of(self, unit: Unit) -> tuple[Move, ...]:
        if unit not in self._made:
            moves: list[Move] = []
            if unit.routed is None:
                self._dense(moves, unit)
            else:
                self._routed(moves, unit, unit.routed)
            self._made[unit] = tuple(moves)
        return self._made[unit]

    def _dense(self, moves: list[Move], unit: Unit) -> None:
        begins: list[tuple[int, ...]] = [(START,)] * len(self._stages[0].partitions)
        for index, stage in enumerate(self._stages):
            ends: list[tuple[int, ...]] = []
            for partition, waits in zip(stage.partitions, begins, strict=True):
                for capability in partition.work:
                    waits = (self._compute(moves, partition, Work(capability, unit.width_tokens, len(begins)), waits),)
                ends.append(waits)
            if stage.group_id:
                ends = [(self._all_reduce(moves, stage, unit, ends),)] * len(ends)
            if index + 1 < len(self._stages):
                pairs = zip(stage.partitions, self._stages[index + 1].partitions, ends, strict=True)
                begins = [self._activation(moves, source, target, unit, waits) for source, target, waits in pairs]

    def _routed(self, moves: list[Move], unit: Unit, routed: tuple[tuple[str, ...], ...]) -> None:
        stage = self._stages[0]
        owner = self._owners(unit, routed)
        spread = len(stage.ring)
        attention = Work(Capability.ATTENTION, unit.width_tokens, spread)
        ends = [(self._compute(moves, partition, attention, (START,)),) for partition in stage.partitions]
        reduced = self._all_reduce(moves, stage, unit, ends)
        matrix = dispatch_matrix(routed, owner, spread, self._costs.activation_bytes_per_token)
        dispatched = self._exchange(moves, stage, matrix, (reduced,))
        asked = [owner[expert] for experts in routed for expert in experts]
        done: list[int] = []
        for partition in stage.partitions:
            tokens = asked.count(stage.ring.index(partition))
            if tokens:
                work = Work(Capability.FFN, tokens, 1, routed=True)
                done.append(self._compute(moves, partition, work, (dispatched,)))
        self._exchange(moves, stage, transposed(matrix), tuple(done) or (dispatched,))

    def _owners(self, unit: Unit, routed: tuple[tuple[str, ...], ...]) -> dict[str, int]:
        """The owner of each expert; CompileError where a routed unit cannot be dealt out."""
        placement, name = self._profile.experts, self._profile.id
        if placement is None or len(self._stages) > 1 or not self._stages[0].group_id:
            raise CompileError(
                f"profile {name}: expected, for routed units, owners of the experts and one stage of several "
                "partitions (tensor = expert > 1, pipeline 1)"
            )
        if len(routed) != unit.width_tokens:
            raise CompileError(
                f"profile {name}: expected the experts of {unit.width_tokens} tokens, not of {len(routed)}"
            )
        owner = owners(placement, len(self._stages[0].ring))
        strangers = [expert for experts in routed for expert in experts if expert not in owner]
        if strangers:
            raise CompileError(f"profile {name}: expected experts that somebody owns, found {strangers[0]}")
        return owner

    def _compute(
        self,
        moves: list[Move],
        partition: Partition,
        work: Work,
        waits: tuple[int, ...],
    ) -> int:
        device = partition.device
        duration_ns = launch_ns(self._costs.devices[device.kind], work.capability, work.tokens, work.devices)
        moves.append(
            Move(
                participants=(partition.rank,),
                waits=waits,
                reads=(*partition.weights, *(partition.hot if work.routed else ())),
                writes=partition.written,
                operation=Compute(device_id=device.id, capability=work.capability, duration_ns=duration_ns),
            )
        )
        return len(moves) - 1

    def _all_reduce(self, moves: list[Move], stage: Stage, unit: Unit, ends: Sequence[tuple[int, ...]]) -> int:
        size_bytes = self._costs.collective_bytes_per_token * unit.width_tokens
        cost = all_reduce_ring([member.domain for member in stage.ring], size_bytes, self._paths)
        waits = tuple(wait for those in ends for wait in those)
        return self._collective(moves, stage, CollectiveAlgorithm.ALL_REDUCE_RING, cost, waits)

    def _exchange(self, moves: list[Move], stage: Stage, matrix: Matrix, waits: tuple[int, ...]) -> int:
        cost = all_to_all_v([member.domain for member in stage.ring], matrix, self._paths)
        return self._collective(moves, stage, CollectiveAlgorithm.ALL_TO_ALL_V, cost, waits)

    def _collective(
        self,
        moves: list[Move],
        stage: Stage,
        algorithm: CollectiveAlgorithm,
        cost: CollectiveCost,
        waits: tuple[int, ...],
    ) -> int:
        moves.append(
            Move(
                participants=stage.ranks,
                waits=waits,
                reads=tuple(member.workspace for member in stage.ring),
                writes=(),
                operation=Collective(
                    group_id=stage.group_id,
                    comm_sequence_id=0,
                    algorithm=algorithm,
                    link_ids=cost.links,
                    duration_ns=cost.duration_ns,
                ),
            )
        )
        return len(moves) - 1

    def _activation(
        self, moves: list[Move], source: Partition, target: Partition, unit: Unit, waits: tuple[int, ...]
    ) -> tuple[int, ...]:
        """Moves of the activation from one stage to the next, a hop at a time; what the next stage waits for."""
        size_bytes = self._costs.activation_bytes_per_token * unit.width_tokens
        links = self._paths.links(source.domain, target.domain, size_bytes)
        held = source.workspace
        for index, link in enumerate(links):
            last = index + 1 == len(links)
            reached = target.workspace if last else self._buffer(link.target_domain_id)
            moves.append(
                Move(
                    participants=(source.rank, target.rank),
                    waits=waits,
                    reads=(held,),
                    writes=(reached,),
                    operation=Transfer(link_id=link.id, duration_ns=self._paths.hop_ns(link, size_bytes)),
                )
            )
            held, waits = reached, (len(moves) - 1,)
        return waits

    def _buffer(self, domain: str) -> str:
        """Where an activation on its way stays in a domain: a workspace of the target, else staging, else anything."""
        for stage in self._stages:
            for partition in stage.partitions:
                if partition.domain == domain:
                    return partition.workspace
        owned = self._topology.allocations.values()
        there = [each.allocation for each in owned if each.allocation.domain_id == domain]
        for purpose in (Purpose.STAGING, Purpose.WORKSPACE):
            for each in there:
                if each.purpose is purpose:
                    return each.physical_allocation_id
        if not there:
            raise CompileError(f"expected an allocation in {domain} for activations on their way, found none")
        return there[0].physical_allocation_id
