"""What a person is told of a broken log: what was expected at its first wrong record, and what was found there.

The logs of `test_execution_replay` in their order, and then those that are wrong in a way that only its words tell
from another.
"""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from execution_examples import (
    FOUR,
    PAIR,
    Records,
    changed,
    collective,
    compute,
    contended,
    finish,
    numbered,
    together,
    turns,
    violation,
)
from test_execution_replay import BROKEN, _facts, _machine, _planned, _revised

from isim.record.execution import (
    ExecutionEnd,
    GroupFact,
    LinkFact,
    NetworkFact,
    Release,
    StepFact,
    Steps,
    TransferFact,
)
from isim.replay.execution import ExecutionReplay, ExecutionRule

WORDS: list[tuple[str, str]] = [
    ("sequence 4", "5"),  # envelope
    ("a machine first and nowhere else", "a record Plan"),  # envelope
    ("a machine first and nowhere else", "a record Machine"),  # envelope
    ("nothing after the end", "a record ExecutionEnd"),  # envelope
    ("a time from 2 ns", "1 ns"),  # envelope
    ("records of rank 3 or later", "rank 2"),  # envelope
    ("isim/execution-log revision 1", "isim/execution-log revision 2"),  # machine
    ("isim/execution-log revision 1", "isim/log revision 1"),  # machine
    ("a machine at 0 ns", "1 ns"),  # machine
    ("device d0 with at least 1 lane", "0"),  # machine
    ("devices with names of their own", "'d1' twice or empty"),  # machine
    ("a known network resource", "'m'"),  # machine
    ("network resources of link l with names of their own", "'n' twice or empty"),  # machine
    ("ranks of group g with names of their own", "'r0' twice or empty"),  # machine
    ("a known device", "'d2'"),  # machine
    ("a physical allocation behind w", "the alias v"),  # machine
    ("contract revision 5 and topology epoch 4", "revision 4 and epoch 4"),  # plan
    ("contract revision 5 and topology epoch 4", "revision 5 and epoch 5"),  # plan
    ("steps, each with an id of its own", "0 of 0"),  # plan
    ("steps, each with an id of its own", "1 of 2"),  # plan
    ("step 7 with dependencies on other steps of the plan", "on 8"),  # plan
    ("step 7 with dependencies on other steps of the plan", "on 7"),  # plan
    ("step 7 with no circle of dependencies", "one that it is part of, or behind"),  # plan
    ("step 7 with a known device", "d2"),  # plan
    ("step 7 with one participant, the rank of d1", "('r0',) on d0"),  # plan
    ("step 7 with participants, each once", "()"),  # plan
    ("step 7 with no allocation both read and written", "('v',)"),  # plan
    ("step 7 with the ranks of group g, ('r0', 'r1')", "('r1', 'r0')"),  # plan
    ("step 7 with something to read and something to write", "() and ()"),  # plan
    ("step 7 with a known link", "k"),  # plan
    ("operations of group g numbered from 0 without gaps", "[0, 0]"),  # plan
    (f"{FOUR.digest}", "none"),  # plan_digest
    ("a plan that was not told yet", f"{FOUR.digest}"),  # plan_digest
    (f"an execution of plan {FOUR.digest}", f"of {PAIR.digest}"),  # plan_digest
    (f"an execution of it after plan {FOUR.digest}", "another record"),  # plan_digest
    ("1 to 1 steps from place 1 on", "1 steps from place 0 on"),  # plan_digest
    ("1 to 1 steps from place 1 on", "0 steps from place 1 on"),  # plan_digest
    (f"the rest of its steps after plan {PAIR.digest}", "another record"),  # plan_digest
    (f"an execution of it after plan {PAIR.digest}", "another record"),  # plan_digest
    ("admission 0", "admission 1"),  # admission
    ("an execution with an id of its own", "'A'"),  # admission
    ("a plan that was told", f"{PAIR.digest}"),  # admission
    ("not-before times of steps of the plan, each once", "14"),  # admission
    ("not-before times of steps of the plan, each once", "13"),  # admission
    ("release of step 13 of execution A at 12 ns", "another record"),  # release
    ("no release at 11 ns", "step 13 of execution A"),  # release
    ("release of step 13 of execution A at 12 ns", "another record"),  # release
    ("the release that is due at 12 ns", "step 12 of execution A"),  # release
    ("a step that is ready", "step 12 of execution A"),  # readiness
    ("a step whose dependencies have finished, once", "step 10 of execution A"),  # readiness
    ("a step that is ready", "step 13 of execution A"),  # readiness
    ("a step whose dependencies have finished, once", "step 13 of execution A"),  # readiness
    ("step 11 of execution A submitted at 5 ns", "not yet"),  # delay
    ("step 11 of execution A submitted at 5 ns", "not yet"),  # delay
    ("step 7 of execution A", "step 3 of execution A"),  # arbitration
    ("group g: (admission, operation) (0, 0)", "(1, 0)"),  # communicator
    ("(1, 0)", "(2, 0)"),  # sequence
    ("(1, 0)", "(1, 1)"),  # sequence
    ("(('compute:d1', 1),)", "(('compute:d1', 0),)"),  # lanes
    ("(('link:l', 0), ('network:n', 0))", "(('link:l', 0),)"),  # lanes
    (
        "(('collective:g', 0), ('link:l', 0), ('network:n', 0))",
        "(('link:l', 0), ('network:n', 0), ('collective:g', 0))",
    ),  # lanes
    ("reads ('v',), writes ('c',)", "reads ('b',), writes ('c',)"),  # leases
    ("reads ('v',), writes ('c',)", "reads ('v',), writes ()"),  # leases
    (
        "CollectiveEvidence(group='g', comm_sequence=0, algorithm=<CollectiveKind.ALL_REDUCE_RING: 'all_reduce_ring'>)",
        "CollectiveEvidence(group='g', comm_sequence=0, algorithm=<CollectiveKind.ALL_TO_ALL_V: 'all_to_all_v'>)",
    ),  # evidence
    (
        "CollectiveEvidence(group='g', comm_sequence=0, algorithm=<CollectiveKind.ALL_REDUCE_RING: 'all_reduce_ring'>)",
        "None",
    ),  # evidence
    ("start of submission 1 at 5 ns", "another record"),  # start
    ("the start that is due at 10 ns", "start of submission 3"),  # start
    ("start of submission 1 at 5 ns", "another record"),  # start
    ("no start at 5 ns", "start of submission 2"),  # start
    ("no finish at 4 ns", "finish of submission 0"),  # finish
    ("finish of submission 0 at 5 ns", "another record"),  # finish
    ("the finish that is due at 5 ns", "finish of submission 1"),  # finish
    ("no finish at 5 ns", "finish of submission 0"),  # finish
    (
        "(<ExecutionStatus.SUCCEEDED: 'succeeded'>, 4, (RankTerminal(rank='r0'…",
        "(<ExecutionStatus.SUCCEEDED: 'succeeded'>, 3, (RankTerminal(rank='r0'…",
    ),  # terminal
    ("terminal of execution A", "terminal of execution B"),  # terminal
    ("terminal of execution A", "another record"),  # terminal
    ("no terminal", "terminal of execution A"),  # terminal
    ("no terminal", "terminal of execution A"),  # terminal
    ("at most 7 events", "8"),  # event_budget
    ("(time, executions, operations) (24, 2, 8)", "(24, 2, 7)"),  # end
    ("(time, executions, operations) (24, 2, 8)", "(25, 2, 8)"),  # end
    ("an end record", "no more records"),  # end
]
"""Of what is long only the beginning."""


def transfer(**more: Any) -> StepFact:
    return StepFact(id=7, participants=("r0",), operation=TransferFact(link="l", duration_ns=2), **more)


def reduce(**fields: Any) -> StepFact:
    step = collective(7, 2)
    return msgspec.structs.replace(step, operation=msgspec.structs.replace(step.operation, **fields))


def held_back(released: int) -> Records:
    """`together`, where the second step has to wait until 6, up to a release."""
    records = together()
    return numbered(
        [
            *records[:2],
            msgspec.structs.replace(records[2], not_before=((3, 6),)),
            records[3],
            records[5],
            records[7],
            Release(time_ns=6, execution="A", step=released),
        ]
    )


MORE: list[tuple[ExecutionRule, int, Records, str, str]] = [
    (ExecutionRule.MACHINE, 0, _facts("links", 0, lanes=0), "link l with at least 1 lane", "0"),
    (ExecutionRule.MACHINE, 0, _facts("network", 0, lanes=-1), "network resource n with at least 1 lane", "-1"),
    (ExecutionRule.MACHINE, 0, _facts("devices", 1, id=""), "devices with names of their own", "'' twice or empty"),
    (
        ExecutionRule.MACHINE,
        0,
        _machine(network=(NetworkFact(id="n", lanes=1),) * 2),
        "network resources with names of their own",
        "'n' twice or empty",
    ),
    (
        ExecutionRule.MACHINE,
        0,
        _machine(links=(LinkFact(id="l", lanes=1, network=()),) * 2),
        "links with names of their own",
        "'l' twice or empty",
    ),
    (ExecutionRule.MACHINE, 0, _facts("groups", 0, id=""), "groups with names of their own", "'' twice or empty"),
    (
        ExecutionRule.MACHINE,
        0,
        _machine(aliases=(("v", "b"), ("v", "c"))),
        "aliases with names of their own",
        "'v' twice or empty",
    ),
    (
        ExecutionRule.MACHINE,
        0,
        _machine(
            groups=(
                GroupFact(id="g", ranks=(("r0", "d0"), ("r1", "d1"))),
                GroupFact(id="h", ranks=(("r1", "d1"), ("r0", "d1"))),
            )
        ),
        "rank r0 on d0",
        "on d1",
    ),
    (
        ExecutionRule.PLAN,
        1,
        _revised(contract_revision=6),
        "contract revision 5 and topology epoch 4",
        "revision 6 and epoch 4",
    ),
    (
        ExecutionRule.PLAN,
        1,
        _planned(compute(7, "d1", 2, reads=("b",), writes=("b",))),
        "step 7 with no allocation both read and written",
        "('b',)",
    ),
    (
        ExecutionRule.PLAN,
        1,
        _planned(compute(7, "d1", 2, reads=("b",), writes=("v",))),
        "step 7 with no allocation both read and written",
        "('b',)",
    ),
    (
        ExecutionRule.PLAN,
        1,
        _planned(transfer(reads=("b",))),
        "step 7 with something to read and something to write",
        "('b',) and ()",
    ),
    (
        ExecutionRule.PLAN,
        1,
        _planned(transfer(writes=("b",))),
        "step 7 with something to read and something to write",
        "() and ('b',)",
    ),
    (ExecutionRule.PLAN, 1, _planned(reduce(links=("l", "k"))), "step 7 with a known link", "k"),
    (ExecutionRule.PLAN, 1, _planned(reduce(group="h")), "step 7 with the ranks of group h, ()", "('r0', 'r1')"),
    (
        ExecutionRule.PLAN,
        1,
        _planned(reduce(comm_sequence=1)),
        "operations of group g numbered from 0 without gaps",
        "[1]",
    ),
    (
        ExecutionRule.PLAN,
        1,
        _planned(msgspec.structs.replace(compute(7, "d1", 2), participants=("r1", "r1"))),
        "step 7 with participants, each once",
        "('r1', 'r1')",
    ),
    (
        ExecutionRule.PLAN,
        1,
        _planned(msgspec.structs.replace(compute(7, "d1", 2), participants=("r1", "r0"))),
        "step 7 with one participant, the rank of d1",
        "('r1', 'r0') on d1",
    ),
    (
        ExecutionRule.RELEASE,
        13,
        changed(contended(), 13, execution="X"),
        "an execution that was admitted",
        "'X'",
    ),
    (
        ExecutionRule.RELEASE,
        6,
        held_back(99),
        "the release that is due at 6 ns",
        "step 99 of execution A",
    ),
    (
        ExecutionRule.RELEASE,
        7,
        numbered([*turns()[:7], *turns()[8:]]),
        "release of step 0 of execution A at 6 ns",
        "another record",
    ),
    (
        ExecutionRule.FINISH,
        1,
        numbered([together()[0], finish(0, 0)]),
        "no finish at 0 ns",
        "finish of submission 0",
    ),
    (
        ExecutionRule.PLAN_DIGEST,
        1,
        numbered([together()[0], Steps(time_ns=0, first=0, steps=PAIR.steps[:1])]),
        "a plan that has more steps",
        "1 steps from place 0 on",
    ),
    (
        ExecutionRule.READINESS,
        8,
        changed(contended(), 8, execution="X"),
        "an execution that was admitted",
        "'X'",
    ),
    (ExecutionRule.READINESS, 8, changed(contended(), 8, step=99), "a step of the plan", "step 99"),
    (
        ExecutionRule.END,
        7,
        numbered([*contended()[:7], ExecutionEnd(time_ns=3, executions=2, operations=1)]),
        "every execution terminal",
        "2 still going on",
    ),
]


def told(text: str, words: str) -> bool:
    return text.startswith(words[:-1]) if words.endswith("…") else text == words


@pytest.mark.parametrize(("place", "expected", "found"), [(place, *words) for place, words in enumerate(WORDS)])
def test_a_broken_log_is_told_in_these_words(place: int, expected: str, found: str) -> None:
    error = violation(BROKEN[place][2])
    assert error is not None
    assert told(error.expected, expected) and told(error.found, found), str(error)


@pytest.mark.parametrize(("rule", "sequence", "records", "expected", "found"), MORE)
def test_what_else_is_wrong_is_told(
    rule: ExecutionRule, sequence: int, records: Records, expected: str, found: str
) -> None:
    error = violation(records)
    assert error is not None
    assert (error.rule, error.sequence, error.expected, error.found) == (rule, sequence, expected, found)


def test_there_are_words_for_every_broken_log() -> None:
    assert len(WORDS) == len(BROKEN)


def test_a_machine_on_which_nothing_happens_is_done_at_the_beginning() -> None:
    replay = ExecutionReplay()
    replay.read(numbered([contended()[0], ExecutionEnd(time_ns=0, executions=0, operations=0)]))
    assert replay.finish().completed_ns == 0
