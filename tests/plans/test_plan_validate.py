"""Every code of a plan's validation, and the order of leases against all pairs compared literally."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from itertools import combinations
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from toy_machine import accelerator, all_reduce, compute, degrees, link, machine, placement, plan, ring

from isim.plan.buffers import Buffers
from isim.plan.compile import compile_plan
from isim.plan.issues import PlanCode
from isim.plan.profile import target_only_profile
from isim.plan.types import Capability, CollectiveAlgorithm, Compute, FrozenPlan, PlanStep, Transfer
from isim.plan.validate import conflicts, validate_plan
from isim.scenario.topology.types import Purpose, TopologyScenario
from isim.topology.index import Topology
from isim.topology.load import load_target

REPLACE = msgspec.structs.replace


def pair() -> TopologyScenario:
    return ring(2)


def two_tokens() -> list[PlanStep]:
    """Two tokens on two GPUs: attention and FFN on each, then an all-reduce."""
    steps: list[PlanStep] = []
    for token in range(2):
        first = 5 * token
        before = [] if token == 0 else [4]
        last = [] if token == 0 else [1], [] if token == 0 else [3]
        for index, device in enumerate(("g0", "g1")):
            steps.append(compute(first + 2 * index, device, [*before, *last[index]]))
            steps.append(compute(first + 2 * index + 1, device, [first + 2 * index]))
        steps.append(all_reduce(first + 4, ("g0", "g1"), [first + 1, first + 3], token))
    return steps


def found(
    steps: Sequence[PlanStep], scenario: TopologyScenario | None = None, **changes: object
) -> list[tuple[str, str]]:
    issues = validate_plan(plan(*steps, **changes), Topology(scenario or pair()))
    return [(issue.code.value, issue.path) for issue in issues]


def changed(position: int, **changes: object) -> list[PlanStep]:
    steps = two_tokens()
    steps[position] = REPLACE(steps[position], **changes)
    return steps


def operated(position: int, **changes: object) -> list[PlanStep]:
    return changed(position, operation=REPLACE(two_tokens()[position].operation, **changes))


def test_a_sound_plan_has_no_issues() -> None:
    assert found(two_tokens()) == []


# The reference prints these codes and paths for such corruptions of its two-token plan on two GPUs.
REFERENCE: list[tuple[str, Callable[[], list[tuple[str, str]]], list[tuple[str, str]]]] = [
    ("revision", lambda: found(two_tokens(), contract_revision=4), [("contract_revision", "contractRevision")]),
    ("epoch", lambda: found(two_tokens(), topology_epoch=7), [("topology_epoch", "topologyEpoch")]),
    ("no steps", lambda: found([]), [("empty_plan", "steps")]),
    (
        "an id twice",
        lambda: found(changed(1, id=0)),
        [
            ("duplicate_step", "steps[1].id"),
            ("self_dependency", "steps[1].dependencies"),
            ("unknown_dependency", "steps[4].dependencies"),
            ("unknown_dependency", "steps[5].dependencies"),
            ("dependency_cycle", "steps"),
        ],
    ),
    (
        "rank",
        lambda: found(changed(0, participants=("stranger",))),
        [("unknown_rank", "steps[0].participants"), ("compute_participant", "steps[0].participants")],
    ),
    ("allocation", lambda: found(changed(0, reads=("stranger",))), [("unknown_allocation", "steps[0]")]),
    ("both", lambda: found(changed(0, reads=("kv-g0",))), [("read_write_overlap", "steps[0]")]),
    ("cycle", lambda: found(changed(0, dependencies=(4,))), [("dependency_cycle", "steps")]),
    (
        "self",
        lambda: found(changed(0, dependencies=(0,))),
        [("self_dependency", "steps[0].dependencies"), ("dependency_cycle", "steps")],
    ),
    ("dependency", lambda: found(changed(0, dependencies=(99,))), [("unknown_dependency", "steps[0].dependencies")]),
    ("sequence", lambda: found(operated(9, comm_sequence_id=2)), [("collective_sequence_gap", "steps")]),
    (
        "members",
        lambda: found(changed(4, participants=("r-g1", "r-g0"))),
        [("collective_participants", "steps[4].participants")],
    ),
    (
        "capability",
        lambda: found(operated(0, capability=Capability.DRAFT)),
        [("missing_capability", "steps[0].operation.capability")],
    ),
    (
        "device",
        lambda: found(operated(0, device_id="stranger")),
        [("unknown_device", "steps[0].operation.deviceId"), ("compute_participant", "steps[0].participants")],
    ),
    ("duration", lambda: found(operated(0, duration_ns=-1)), [("duration", "steps[0].operation.durationNs")]),
    (
        "link",
        lambda: found(operated(4, link_ids=("stranger",))),
        [("unknown_link", "steps[4].operation.linkIds")],
    ),
]


@pytest.mark.parametrize(("make", "expected"), [pytest.param(make, out, id=name) for name, make, out in REFERENCE])
def test_corruptions_of_the_reference_are_told_as_the_reference_tells_them(
    make: Callable[[], list[tuple[str, str]]], expected: list[tuple[str, str]]
) -> None:
    assert make() == expected


def transfer(
    number: int, over: str, reads: Sequence[str], writes: Sequence[str], waits: Sequence[int] = ()
) -> PlanStep:
    return PlanStep(
        id=number,
        participants=("r-g0",),
        dependencies=tuple(waits),
        reads=tuple(reads),
        writes=tuple(writes),
        operation=Transfer(link_id=over, duration_ns=1),
    )


def one_way() -> TopologyScenario:
    """Two GPUs of which g1 can do no collective."""
    devices = [accelerator("g0"), REPLACE(accelerator("g1"), capabilities=(Capability.FFN,))]
    return machine(devices, [link("g0", "g1"), link("g1", "g0")], {"tp": ["g0", "g1"]}, degrees())


LONGEST = Compute(device_id="g0", capability=Capability.FFN, duration_ns=(1 << 53) - 1)

OURS: list[tuple[str, list[tuple[str, str]], list[tuple[str, str]]]] = [
    ("ids", found(two_tokens(), id="", execution_id=""), [("empty_id", "id"), ("empty_id", "executionId")]),
    ("negative id", found([compute(-1, "g0")]), [("step_id", "steps[0].id")]),
    ("large id", found([compute(1 << 53, "g0")]), [("step_id", "steps[0].id")]),
    (
        "nobody",
        found(changed(0, participants=())),
        [("empty_participants", "steps[0].participants"), ("compute_participant", "steps[0].participants")],
    ),
    (
        "two on one device",
        found(changed(0, participants=("r-g0", "r-g1"))),
        [("compute_participant", "steps[0].participants")],
    ),
    ("wrong rank", found(changed(0, participants=("r-g1",))), [("compute_participant", "steps[0].participants")]),
    (
        "far memory",
        found([compute(0, "g0", reads=("w-g1",))]),
        [("inaccessible_allocation", "steps[0]")],
    ),
    ("twice", found([compute(0, "g0", reads=("w-g0", "w-g0"))]), [("duplicate_value", "steps[0].reads")]),
    ("waits twice", found(changed(1, dependencies=(0, 0))), [("duplicate_value", "steps[1].dependencies")]),
    ("unknown link", found([transfer(0, "x", ["ws-g0"], ["ws-g1"])]), [("unknown_link", "steps[0].operation.linkId")]),
    ("no buffers", found([transfer(0, "g0>g1", [], [])]), [("transfer_buffers", "steps[0]")]),
    ("source", found([transfer(0, "g0>g1", ["ws-g1"], ["kv-g1"])]), [("transfer_source", "steps[0].reads")]),
    ("target", found([transfer(0, "g0>g1", ["ws-g0"], ["kv-g0"])]), [("transfer_target", "steps[0].writes")]),
    (
        "unknown group",
        found([REPLACE(two_tokens()[4], dependencies=(), operation=REPLACE(two_tokens()[4].operation, group_id="x"))]),
        [("unknown_group", "steps[0].operation.groupId")],
    ),
    (
        "member without the capability",
        found([all_reduce(0, ("g0", "g1"), [])], one_way()),
        [("missing_capability", "steps[0].participants")],
    ),
    (
        "negative sequence",
        found([all_reduce(0, ("g0", "g1"), [], -1)]),
        [("collective_sequence", "steps[0].operation.commSequenceId"), ("collective_sequence_gap", "steps")],
    ),
    (
        "collectives side by side",
        found([all_reduce(0, ("g0", "g1"), [], 0), all_reduce(1, ("g0", "g1"), [], 1)]),
        [("collective_order_dependency", "steps[1].dependencies")],
    ),
    (
        "collectives against their order",
        found([all_reduce(0, ("g0", "g1"), [], 1), all_reduce(1, ("g0", "g1"), [0], 0)]),
        [("collective_order_dependency", "steps[0].dependencies")],
    ),
    (
        "too long in all",
        found([compute(0, "g0", operation=LONGEST), compute(1, "g0", [0])]),
        [("duration_sum", "steps")],
    ),
    (
        "leases",
        found([*two_tokens()[:1], REPLACE(two_tokens()[1], dependencies=()), *two_tokens()[2:4],
               REPLACE(two_tokens()[4], dependencies=(3,)), *two_tokens()[5:]]),
        [("unordered_lease_conflict", "steps[0],steps[1]"), ("unordered_lease_conflict", "steps[1],steps[4]")],
    ),
]  # fmt: skip


@pytest.mark.parametrize(("said", "expected"), [pytest.param(said, out, id=name) for name, said, out in OURS])
def test_each_fault_has_its_code_and_its_place(said: list[tuple[str, str]], expected: list[tuple[str, str]]) -> None:
    assert said == expected


def test_every_code_is_tested() -> None:
    """But for the unknown algorithm, which has no place in the types: the file's reader says it."""
    tested = {code for _, _, out in OURS for code, _ in out} | {code for _, _, out in REFERENCE for code, _ in out}
    assert sorted(set(PlanCode) - tested) == [PlanCode.COLLECTIVE_ALGORITHM]
    assert len(CollectiveAlgorithm) == 2


def test_durations_of_nothing_are_legal() -> None:
    assert found(operated(0, duration_ns=0)) == []


# ---- order of leases


def aliased() -> TopologyScenario:
    """One GPU with two names for its workspace: `ws-g0` and `again`."""
    scenario = ring(1)
    other = REPLACE(scenario.placements[0].allocations[2], physical_allocation_id="again", alias_of="ws-g0")
    assert other.purpose is Purpose.WORKSPACE
    placed = REPLACE(placement("g0"), allocations=(*scenario.placements[0].allocations, other))
    return REPLACE(scenario, placements=(placed,))


def test_an_alias_is_what_it_stands_for() -> None:
    names = [compute(0, "g0", writes=("ws-g0",)), compute(1, "g0", writes=("again",))]
    assert found(names, aliased()) == [("unordered_lease_conflict", "steps[0],steps[1]")]
    assert found([names[0], REPLACE(names[1], dependencies=(0,))], aliased()) == []
    assert found([compute(0, "g0", reads=("again",), writes=("ws-g0",))], aliased()) == [
        ("read_write_overlap", "steps[0]")
    ]


def conflicting_pairs_that_nothing_orders(whole: FrozenPlan) -> set[tuple[int, int]]:
    """All pairs, by definition: they share an allocation, one writes it, and neither waits for the other in the end."""
    before = [set(step.dependencies) for step in whole.steps]
    for _ in whole.steps:
        before = [those | {far for near in those for far in before[near]} for those in before]
    pairs = set()
    for a, b in combinations(range(len(whole.steps)), 2):
        one, other = whole.steps[a], whole.steps[b]
        shared = set(one.writes) & {*other.reads, *other.writes} or set(other.writes) & set(one.reads)
        if shared and a not in before[b] and b not in before[a]:
            pairs.add((a, b))
    return pairs


ALONE = Topology(ring(1))


@st.composite
def loose_plans(draw: st.DrawFn) -> FrozenPlan:
    """Steps on one GPU with any buffers and any earlier dependencies, plan order shuffled."""
    count = draw(st.integers(1, 10))
    names = draw(st.permutations(range(count)))
    steps: list[PlanStep] = []
    for index in range(count):
        uses = draw(st.lists(st.sampled_from("-rw"), min_size=3, max_size=3))
        buffers = list(zip(("w-g0", "kv-g0", "ws-g0"), uses, strict=True))
        waits = draw(st.lists(st.integers(0, index - 1), max_size=2, unique=True)) if index else []
        step = compute(names[index], "g0", [names[wait] for wait in waits])
        reads = tuple(name for name, use in buffers if use == "r")
        writes = tuple(name for name, use in buffers if use == "w")
        steps.append(REPLACE(step, reads=reads, writes=writes))
    return plan(*sorted(steps, key=lambda step: step.id))


@settings(derandomize=True, deadline=None, max_examples=150)
@given(whole=loose_plans())
def test_leases_are_ordered_exactly_where_every_pair_is(whole: FrozenPlan) -> None:
    issues = validate_plan(whole, ALONE)
    assert {issue.code for issue in issues} <= {PlanCode.UNORDERED_LEASE_CONFLICT}
    literal = conflicting_pairs_that_nothing_orders(whole)
    said = {tuple(int(part[len("steps[") : -1]) for part in issue.path.split(",")) for issue in issues}
    assert said <= literal
    assert bool(said) == bool(literal)


def test_the_page_lists_every_code() -> None:
    page = (Path(__file__).parents[2] / "docs" / "plans.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \| .+ \|$", page.split("## Checking a plan")[1].split("##")[0], re.MULTILINE)
    assert rows == [code.value for code in PlanCode]


def test_there_are_as_many_questions_as_uses_of_buffers() -> None:
    """What is asked about the order of leases grows with the plan, not with its square."""
    topology = load_target("multi-gpu-ring-4")
    asked = []
    for tokens in (25, 50):
        steps = compile_plan(topology, target_only_profile(tokens)).plan.steps
        questions = list(conflicts(plan(*steps), Buffers(topology), range(len(steps))))
        assert len(questions) <= sum(len(step.reads) + len(step.writes) for step in steps)
        asked.append(len(questions))
    assert asked[1] <= 2 * asked[0] + len(topology.allocations)
