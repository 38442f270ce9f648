"""Compiled plans: closed forms per token, hazards against all pairs, pipelines, routed units, and what is refused."""

from __future__ import annotations

from itertools import combinations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from toy_machine import accelerator, allocation, degrees, link, machine, placement, ring

from isim.machine.execute import execute_plan
from isim.model.spec import Confidence
from isim.plan.buffers import Buffers
from isim.plan.compile import CompiledPlan, compile_checked, compile_plan
from isim.plan.errors import CompileError
from isim.plan.hazards import Hazards
from isim.plan.owners import ExpertPlacement, PlacementStrategy
from isim.plan.profile import Profile, Unit, target_only_profile
from isim.plan.types import Collective, CollectiveAlgorithm, Compute, PlanStep, Transfer
from isim.plan.validate import validate_plan
from isim.scenario.topology.types import Capability, DeviceKind, Parallelism, Purpose, Rank, TopologyScenario
from isim.topology.index import Topology
from isim.topology.load import load_target
from isim.topology.validate import validate_topology

REPLACE = msgspec.structs.replace
UNITS = Profile(id="widths", units=tuple(Unit(width_tokens=width, committed_tokens=1) for width in (1, 3, 3, 2)))


def compiled(topology: Topology, profile: Profile) -> CompiledPlan:
    """The plan, after it has been found valid."""
    found = compile_plan(topology, profile)
    assert validate_plan(found.plan, topology) == []
    return found


# ---- durations

PER_TOKEN_NS = {
    "cpu-only": 1_320_000,
    "single-gpu-cpu": 306_000,
    "unified-memory": 306_000,
    "multi-gpu": 134_000 + 139_000 + 1_874,
    "multi-node": 328_254,
    "gpu-npu": 381_804,
}


@pytest.mark.parametrize("name", PER_TOKEN_NS)
def test_a_token_takes_what_the_contract_says(name: str) -> None:
    topology = load_target(name)
    for tokens in (1, 7):
        plan = compiled(topology, target_only_profile(tokens)).plan
        assert execute_plan(topology, plan).completed_ns == tokens * PER_TOKEN_NS[name]


def up(amount: int, by: int) -> int:
    """Divided and rounded up."""
    return (amount + by - 1) // by


@pytest.mark.parametrize("ranks", [2, 3, 4, 5, 8, 16, 31, 64])
def test_a_token_on_a_ring_takes_its_closed_form(ranks: int) -> None:
    """Attention and FFN shared by N, then 2 (N - 1) hops of a N-th of 512 KiB over NVLink at 600 GB/s."""
    topology = load_target(f"multi-gpu-ring-{ranks}")
    plan = compiled(topology, target_only_profile(2)).plan
    hop_ns = 500 + up(up(1 << 19, ranks), 600)
    token_ns = 240_000 + up(28_000, ranks) + up(38_000, ranks) + 2 * (ranks - 1) * hop_ns
    assert execute_plan(topology, plan).completed_ns == 2 * token_ns
    assert len(plan.steps) == 2 * (2 * ranks + 1)


def test_a_wider_unit_is_one_launch_of_more_work() -> None:
    topology = load_target("single-gpu-cpu")
    wide = Profile(id="wide", units=(Unit(width_tokens=5, committed_tokens=2),))
    found = compiled(topology, wide)
    assert [step.operation.duration_ns for step in found.plan.steps] == [120_000 + 5 * 28_000, 120_000 + 5 * 38_000]
    assert found.profile.committed_tokens == 2
    assert found.confidence is Confidence.HEURISTIC


def longest_chain_ns(steps: tuple[PlanStep, ...]) -> int:
    """How long the plan takes on a machine without limits: the longest way through what waits for what."""
    done: dict[int, int] = {}
    for step in steps:
        done[step.id] = max((done[other] for other in step.dependencies), default=0) + step.operation.duration_ns
    return max(done.values())


@pytest.mark.parametrize("name", ["gpu-npu", "multi-gpu-ring-7", "small-lan-4-advanced-tcp", "rtx-5090-desktop"])
def test_a_token_after_the_other_there_is_nothing_to_wait_for_but_dependencies(name: str) -> None:
    topology = load_target(name)
    plan = compiled(topology, UNITS).plan
    assert execute_plan(topology, plan).completed_ns == longest_chain_ns(plan.steps)


# ---- hazards


class Slow:
    """What a step must wait for by its buffers: every earlier step with which it conflicts, nearest ones only."""

    def __init__(self, steps: list[tuple[set[str], set[str]]]) -> None:
        self.steps = steps

    def conflict(self, a: int, b: int) -> bool:
        (reads, writes), (later_reads, later_writes) = self.steps[a], self.steps[b]
        return bool(writes & (later_reads | later_writes) or reads & later_writes)


USES = st.lists(st.tuples(st.sampled_from("abc"), st.booleans()), min_size=1, max_size=3, unique_by=lambda use: use[0])


@settings(derandomize=True, deadline=None, max_examples=100)
@given(uses=st.lists(USES, min_size=1, max_size=9))
def test_hazards_order_exactly_the_steps_that_conflict(uses: list[list[tuple[str, bool]]]) -> None:
    """The closure of what is waited for has every conflicting pair and no pair that no chain of conflicts explains."""
    steps = [({name for name, write in use if not write}, {name for name, write in use if write}) for use in uses]
    hazards = Hazards({name: name for name in "abc"})
    before = [set(hazards.take(number, (), sorted(r), sorted(w))) for number, (r, w) in enumerate(steps)]
    slow = Slow(steps)
    literal = [{a for a in range(b) if slow.conflict(a, b)} for b in range(len(steps))]
    assert all(mine <= all_of for mine, all_of in zip(before, literal, strict=True))
    assert closure(before) == closure(literal)


def closure(before: list[set[int]]) -> list[set[int]]:
    """Edges lead back, so one pass in order is enough."""
    whole: list[set[int]] = []
    for those in before:
        whole.append(those | {far for near in those for far in whole[near]})
    return whole


def test_waits_come_first_then_reads_then_writes() -> None:
    hazards = Hazards({"a": "a", "b": "b", "view": "b"})
    assert hazards.take(0, (), (), ("a", "b")) == ()
    assert hazards.take(1, (), ("a",), ()) == (0,)
    assert hazards.take(2, (), ("view",), ()) == (0,)
    assert hazards.take(3, (2,), ("a",), ("b",)) == (2, 0)
    assert hazards.take(4, (3,), (), ("a",)) == (3, 0, 1)


@pytest.mark.parametrize("name", ["gpu-npu", "multi-gpu", "multi-gpu-ring-5", "small-lan-3", "unified-memory"])
def test_whatever_conflicts_is_ordered_as_in_the_source(name: str) -> None:
    topology = load_target(name)
    steps = compiled(topology, UNITS).plan.steps
    roots = Buffers(topology)
    slow = Slow([(set(roots.roots(step.reads)), set(roots.roots(step.writes))) for step in steps])
    before = closure([set(step.dependencies) for step in steps])
    assert all(a in before[b] for a, b in combinations(range(len(steps)), 2) if slow.conflict(a, b))
    assert [step.id for step in steps] == list(range(len(steps)))


# ---- shapes


def kinds(steps: tuple[PlanStep, ...]) -> list[str]:
    def kind(step: PlanStep) -> str:
        operation = step.operation
        if isinstance(operation, Compute):
            return f"{operation.capability} {operation.device_id}"
        if isinstance(operation, Transfer):
            return operation.link_id
        return f"{operation.algorithm} {operation.group_id}.{operation.comm_sequence_id}"

    return [kind(step) for step in steps]


def two_by_two(parallelism: Parallelism | None = None) -> TopologyScenario:
    """Two stages of two GPUs each, with links within stages and from each GPU to its counterpart."""
    names = ["a0", "a1", "b0", "b1"]
    pairs = [("a0", "a1"), ("b0", "b1"), ("a0", "b0"), ("a1", "b1")]
    return machine(
        [accelerator(name) for name in names],
        [link(*ends) for a, b in pairs for ends in ((a, b), (b, a))],
        {"world": names, "first": ["a1", "a0"], "second": names[2:]},
        parallelism or degrees(tensor=2, pipeline=2),
    )


def test_pipeline_of_tensor_groups() -> None:
    """Every stage reduces in its own group, and each activation goes to its counterpart."""
    scenario = two_by_two()
    assert validate_topology(scenario) == []
    steps = compiled(Topology(scenario), target_only_profile(2)).plan.steps
    token = [
        *("attention a0", "ffn a0", "attention a1", "ffn a1", "all_reduce_ring first.{}", "a0>b0", "a1>b1"),
        *("attention b0", "ffn b0", "attention b1", "ffn b1", "all_reduce_ring second.{}"),
    ]
    assert kinds(steps) == [name.format(number) for number in (0, 1) for name in token]
    assert steps[4].participants == ("r-a1", "r-a0")
    assert steps[4].reads == ("ws-a1", "ws-a0")
    assert steps[5].dependencies == (4, 1) and steps[6].dependencies == (4, 3)
    assert steps[7].dependencies == (5,) and steps[9].dependencies == (6,)
    assert steps[11].dependencies == (8, 10)
    assert steps[12].dependencies[0] == 11
    assert steps[5].operation == Transfer(link_id="a0>b0", duration_ns=100 + up(1 << 20, 100))
    whole = compiled(Topology(scenario), UNITS).plan
    assert execute_plan(Topology(scenario), whole).completed_ns == longest_chain_ns(whole.steps)


def test_an_activation_goes_hop_by_hop_through_buffers_on_its_way() -> None:
    """a -> b -> c: b has no part of the target, so its staging is where the activation stays, though not the first."""
    devices = [accelerator(name) for name in ("a", "b", "c")]
    other = REPLACE(
        placement("b"),
        required_capabilities=(),
        allocations=(allocation("scrap", "b", Purpose.CACHE), allocation("stage", "b", Purpose.STAGING)),
    )
    scenario = machine(
        devices,
        [link("a", "b"), link("b", "c")],
        {"line": ["a", "b", "c"]},
        degrees(pipeline=2),
        [placement("a", Capability.ATTENTION), other, placement("c", Capability.FFN)],
    )
    steps = compiled(Topology(scenario), target_only_profile(1)).plan.steps
    assert kinds(steps) == ["attention a", "a>b", "b>c", "ffn c"]
    assert [(step.reads, step.writes) for step in steps[1:3]] == [(("ws-a",), ("stage",)), (("stage",), ("ws-c",))]
    assert steps[1].participants == ("r-a", "r-c")


def test_devices_cost_by_their_kind() -> None:
    scenario = machine(
        [accelerator("n", DeviceKind.NPU)], [], {"world": ["n"]}, degrees(), [placement("n", Capability.ATTENTION)]
    )
    steps = compiled(Topology(scenario), target_only_profile(1)).plan.steps
    assert [step.operation.duration_ns for step in steps] == [122_000]


# ---- experts

EXPERTS = tuple(f"e{number}" for number in range(8))


def routed(strategy: PlacementStrategy, *tokens: tuple[str, ...]) -> Profile:
    return Profile(
        id="routed",
        units=(Unit(width_tokens=len(tokens), committed_tokens=len(tokens), routed=tokens),),
        experts=ExpertPlacement(strategy=strategy, expert_ids=EXPERTS),
    )


def test_routed_tokens_go_to_the_owners_of_their_experts_and_back() -> None:
    """Token t starts on rank t mod 2; round robin gives even experts to rank 0. 3 MiB go one way, 2 the other."""
    topology = load_target("multi-gpu-ring-2")
    tokens = (("e2", "e1"), ("e4", "e3"), ("e6", "e5"), ("e0", "e7"), ("e2", "e1"))
    steps = compiled(topology, routed(PlacementStrategy.ROUND_ROBIN, *tokens)).plan.steps
    assert kinds(steps) == [
        *("attention node0:gpu0", "attention node0:gpu1", "all_reduce_ring tp.0", "all_to_all_v tp.1"),
        *("ffn node0:gpu0", "ffn node0:gpu1", "all_to_all_v tp.2"),
    ]
    assert steps[3].operation.duration_ns == steps[6].operation.duration_ns == 500 + up(3 << 20, 600)
    assert steps[4].operation.duration_ns == steps[5].operation.duration_ns == 120_000 + 5 * 38_000
    assert steps[4].reads == ("weights-0", "expert-hot-cache:target-shard-0")


def test_who_is_not_asked_does_nothing() -> None:
    """Contiguous: e0 to e3 are rank 0's. Only those are asked for, and rank 1 starts one of the tokens."""
    topology = load_target("multi-gpu-ring-2")
    steps = compiled(topology, routed(PlacementStrategy.CONTIGUOUS, ("e0",), ("e3",))).plan.steps
    assert [name for name in kinds(steps) if name.startswith("ffn")] == ["ffn node0:gpu0"]
    exchanges = [step.operation for step in steps if isinstance(step.operation, Collective)][1:]
    assert [exchange.algorithm for exchange in exchanges] == [CollectiveAlgorithm.ALL_TO_ALL_V] * 2
    assert [exchange.link_ids for exchange in exchanges] == [("node0:nvlink:reverse",), ("node0:nvlink:forward",)]


# ---- refusals


def stray() -> TopologyScenario:
    return REPLACE(ring(2), groups=ring(2).groups[:0])


REFUSED: list[tuple[str, TopologyScenario, Profile, str]] = [
    (
        "too large to hold",
        REPLACE(ring(2), execution=REPLACE(ring(2).execution, max_events=1 << 53)),
        target_only_profile(400_001),
        "at most 2000000 steps, found 2000005",
    ),
    ("no work", ring(2), Profile(id="none", units=()), "at least one unit"),
    ("replicas", two_by_two(degrees(tensor=2, data=2)), UNITS, "data parallelism of 2"),
    ("experts apart", two_by_two(degrees(tensor=2, expert=2)), UNITS, "expert parallelism of 2"),
    ("too many placements", two_by_two(degrees(tensor=2)), UNITS, "expected 2 placements"),
    ("no group", REPLACE(two_by_two(), groups=two_by_two().groups[:1]), UNITS, "exactly a0, a1, found none"),
    (
        "two groups",
        REPLACE(two_by_two(), groups=(*two_by_two().groups, REPLACE(two_by_two().groups[1], id="twin"))),
        UNITS,
        "found first and twin",
    ),
    ("no rank", REPLACE(ring(1), groups=()), UNITS, "expected a rank on g0"),
    (
        "no workspace",
        REPLACE(ring(1), placements=(REPLACE(placement("g0"), allocations=placement("g0").allocations[:2]),)),
        UNITS,
        "allocation for workspace",
    ),
    ("no path", REPLACE(two_by_two(), links=two_by_two().links[:4]), UNITS, "path from a0:memory to b0:memory"),
    ("too large", REPLACE(ring(2), execution=REPLACE(ring(2).execution, max_events=19)), UNITS, "maxEvents 19"),
    (
        "two partitions on one device",
        REPLACE(ring(2), placements=(placement("g0"), REPLACE(placement("g0"), partition_id="again"))),
        UNITS,
        "device of its own",
    ),
    ("routed on one", ring(1), routed(PlacementStrategy.CONTIGUOUS, ("e0",)), "one stage of several partitions"),
    (
        "nobody's expert",
        ring(2),
        routed(PlacementStrategy.CONTIGUOUS, ("e0", "e9")),
        "experts that somebody owns, found e9",
    ),
    (
        "tokens without experts",
        ring(2),
        Profile(
            id="routed",
            units=(Unit(width_tokens=2, committed_tokens=2, routed=(("e0",),)),),
            experts=ExpertPlacement(strategy=PlacementStrategy.CONTIGUOUS, expert_ids=EXPERTS),
        ),
        "experts of 2 tokens, not of 1",
    ),
]


@pytest.mark.parametrize(
    ("scenario", "profile", "message"), [pytest.param(s, p, m, id=name) for name, s, p, m in REFUSED]
)
def test_what_cannot_be_compiled_is_refused(scenario: TopologyScenario, profile: Profile, message: str) -> None:
    with pytest.raises(CompileError) as refusal:
        compile_plan(Topology(scenario), profile)
    assert message in str(refusal.value)
    assert refusal.value.exit_code == 2


def test_a_plan_that_its_scenario_cannot_hold_is_refused() -> None:
    """A member without the capability: the scenario is valid, since its placements do not ask for it."""
    scenario = ring(2)
    devices = (REPLACE(scenario.devices[0], capabilities=(Capability.ATTENTION, Capability.FFN)), scenario.devices[1])
    weak = REPLACE(scenario, devices=devices)
    assert validate_topology(weak) == []
    with pytest.raises(CompileError, match=r"that can do a collective, found g0 \[missing_capability\]"):
        compile_checked(Topology(weak), UNITS)
    assert compile_checked(Topology(scenario), UNITS) == compile_plan(Topology(scenario), UNITS)


def test_a_device_takes_part_under_the_rank_of_its_group() -> None:
    """A device may have another rank in another group, be it the first."""
    scenario = ring(2)
    other = REPLACE(scenario.groups[0], id="a", ordered_ranks=(Rank(rank_id="alone", device_id="g1"),))
    topology = Topology(REPLACE(scenario, groups=(other, *scenario.groups)))
    assert validate_topology(topology.scenario) == []
    assert compiled(topology, UNITS).plan.steps == compiled(Topology(scenario), UNITS).plan.steps


def test_as_many_steps_as_events_are_allowed() -> None:
    scenario = ring(2)
    limited = REPLACE(scenario, execution=REPLACE(scenario.execution, max_events=20))
    assert len(compiled(Topology(limited), UNITS).plan.steps) == 20
