"""For each rule a log that breaks it, rejected at the first wrong record; for each field a value that is noticed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from execution_examples import (
    EXAMPLES,
    FOUR,
    PAIR,
    TURNS,
    Records,
    changed,
    collective,
    compute,
    contended,
    finish,
    long,
    numbered,
    plan,
    start,
    submit,
    together,
    turns,
    violation,
)
from executions import records_of
from log_mutations import could_be_read, kind_of, others
from random_machines import random_case

from isim.cli.main import main
from isim.record.codec import LogWriter, encode_lines, schema_of
from isim.record.errors import LogError, TruncatedLog
from isim.record.execution import (
    EXECUTION_KINDS,
    Admit,
    CollectiveKind,
    ExecutionEnd,
    Plan,
    StepFact,
    TransferFact,
    plan_digest,
)
from isim.replay.execution import (
    EXECUTION_RULES,
    FREE_EXECUTION_FIELDS,
    ExecutionReplay,
    ExecutionRule,
    replay_execution_log,
)


def _without(records: Records, place: int) -> Records:
    return numbered([*records[:place], *records[place + 1 :]])


def _with(records: Records, place: int, *more: Any) -> Records:
    return numbered([*records[:place], *more, *records[place:]])


def _planned(*steps: StepFact) -> Records:
    """`together` with another plan, named by its digest."""
    other = plan("other", *steps)
    return changed(changed(together(), 1, digest=other.digest, id="other", steps=steps), 2, plan=other.digest)


def _machine(**fields: Any) -> Records:
    return changed(contended(), 0, **fields)


def _facts(field: str, place: int, **fields: Any) -> Records:
    """`contended` on a machine of which one fact is another."""
    facts = list(getattr(contended()[0], field))
    facts[place] = msgspec.structs.replace(facts[place], **fields)
    return _machine(**{field: tuple(facts)})


def _revised(**fields: Any) -> Records:
    """`together` with a plan of another envelope, named by its digest."""
    told = {"id": PAIR.id, "contract_revision": 5, "topology_epoch": 4, **fields}
    digest = plan_digest(told["id"], told["contract_revision"], told["topology_epoch"], PAIR.steps)
    return changed(changed(together(), 1, digest=digest, **fields), 2, plan=digest)


def _overtaking() -> Records:
    """B submits its collective at 3, when its dependency has finished."""
    lanes = (("collective:g", 0), ("link:l", 0), ("network:n", 0))
    return _with(turns(), 7, submit(3, 1, "B", 1, TURNS.steps[1], *lanes))


def _late() -> Records:
    """The third step is submitted at 6, although nothing holds it back from 5 on."""
    records = contended()
    return numbered([*records[:8], records[9], msgspec.structs.replace(records[8], time_ns=6), *records[10:]])


def _moved(records: Records, place: int, to: int) -> Records:
    """One record told at another place."""
    rest = [*records[:place], *records[place + 1 :]]
    return numbered([*rest[:to], records[place], *rest[to:]])


ONE = compute(7, "d1", 2)
C = Admit(time_ns=12, execution="C", plan=FOUR.digest, admission=2)

BROKEN: list[tuple[ExecutionRule, int, Records]] = [
    (ExecutionRule.ENVELOPE, 4, changed(contended(), 4, seq=5)),
    (ExecutionRule.ENVELOPE, 0, numbered(contended()[1:])),
    (ExecutionRule.ENVELOPE, 3, _with(contended(), 3, contended()[0])),
    (ExecutionRule.ENVELOPE, 32, numbered([*contended(), contended()[-1]])),
    (ExecutionRule.ENVELOPE, 7, changed(contended(), 7, time_ns=1)),
    (ExecutionRule.ENVELOPE, 14, _with(contended(), 14, C)),
    (ExecutionRule.MACHINE, 0, _machine(revision=2)),
    (ExecutionRule.MACHINE, 0, _machine(schema="isim/log")),
    (ExecutionRule.MACHINE, 0, _machine(time_ns=1)),
    (ExecutionRule.MACHINE, 0, _facts("devices", 0, lanes=0)),
    (ExecutionRule.MACHINE, 0, _facts("devices", 0, id="d1")),
    (ExecutionRule.MACHINE, 0, _facts("links", 0, network=("m",))),
    (ExecutionRule.MACHINE, 0, _facts("links", 0, network=("n", "n"))),
    (ExecutionRule.MACHINE, 0, _facts("groups", 0, ranks=(("r0", "d0"), ("r0", "d1")))),
    (ExecutionRule.MACHINE, 0, _facts("groups", 0, ranks=(("r0", "d0"), ("r1", "d2")))),
    (ExecutionRule.MACHINE, 0, _machine(aliases=(("v", "b"), ("w", "v")))),
    (ExecutionRule.PLAN, 1, _revised(contract_revision=4)),
    (ExecutionRule.PLAN, 1, _revised(topology_epoch=5)),
    (ExecutionRule.PLAN, 1, _planned()),
    (ExecutionRule.PLAN, 1, _planned(ONE, ONE)),
    (ExecutionRule.PLAN, 1, _planned(compute(7, "d1", 2, dependencies=(8,)))),
    (ExecutionRule.PLAN, 1, _planned(compute(7, "d1", 2, dependencies=(7,)))),
    (ExecutionRule.PLAN, 1, _planned(compute(7, "d1", 2, dependencies=(3,)), compute(3, "d0", 2, dependencies=(7,)))),
    (ExecutionRule.PLAN, 1, _planned(compute(7, "d2", 2))),
    (ExecutionRule.PLAN, 1, _planned(msgspec.structs.replace(ONE, participants=("r0",)))),
    (ExecutionRule.PLAN, 1, _planned(msgspec.structs.replace(ONE, participants=()))),
    (ExecutionRule.PLAN, 1, _planned(compute(7, "d1", 2, reads=("v",), writes=("b",)))),
    (ExecutionRule.PLAN, 1, _planned(msgspec.structs.replace(collective(7, 2), participants=("r1", "r0")))),
    (
        ExecutionRule.PLAN,
        1,
        _planned(StepFact(id=7, participants=("r0",), operation=TransferFact(link="l", duration_ns=2))),
    ),
    (
        ExecutionRule.PLAN,
        1,
        _planned(
            StepFact(
                id=7, participants=("r0",), reads=("b",), writes=("c",), operation=TransferFact(link="k", duration_ns=2)
            )
        ),
    ),
    (ExecutionRule.PLAN, 1, _planned(collective(7, 2), collective(8, 2, dependencies=(7,)))),
    (ExecutionRule.PLAN_DIGEST, 1, changed(contended(), 1, digest="none")),
    (ExecutionRule.PLAN_DIGEST, 3, _with(contended(), 3, FOUR)),
    (ExecutionRule.PLAN_DIGEST, 2, changed(contended(), 2, plan=PAIR.digest)),
    (ExecutionRule.PLAN_DIGEST, 2, _with(contended(), 2, PAIR)),
    (ExecutionRule.PLAN_DIGEST, 2, changed(long(), 2, first=0)),
    (ExecutionRule.PLAN_DIGEST, 2, changed(long(), 2, steps=())),
    (ExecutionRule.PLAN_DIGEST, 2, _without(long(), 2)),
    (ExecutionRule.PLAN_DIGEST, 3, _with(long(), 3, long()[2])),
    (ExecutionRule.ADMISSION, 2, changed(contended(), 2, admission=1)),
    (ExecutionRule.ADMISSION, 5, changed(contended(), 5, execution="A")),
    (ExecutionRule.ADMISSION, 5, changed(contended(), 5, plan=PAIR.digest)),
    (ExecutionRule.ADMISSION, 2, changed(contended(), 2, not_before=((14, 12),))),
    (ExecutionRule.ADMISSION, 2, changed(contended(), 2, not_before=((13, 12), (13, 12)))),
    (ExecutionRule.RELEASE, 13, _without(contended(), 13)),
    (ExecutionRule.RELEASE, 13, changed(contended(), 13, time_ns=11)),
    (ExecutionRule.RELEASE, 13, changed(contended(), 13, time_ns=13)),
    (ExecutionRule.RELEASE, 13, changed(contended(), 13, step=12)),
    (ExecutionRule.READINESS, 8, changed(contended(), 8, step=12)),
    (ExecutionRule.READINESS, 8, changed(contended(), 8, step=10)),
    (ExecutionRule.READINESS, 4, _with(contended(), 4, submit(0, 1, "A", 1, FOUR.steps[3], ("compute:d1", 0)))),
    (ExecutionRule.READINESS, 30, _with(contended(), 30, msgspec.structs.replace(contended()[21], time_ns=24))),
    (ExecutionRule.DELAY, 8, _without(contended(), 8)),
    (ExecutionRule.DELAY, 8, _late()),
    (ExecutionRule.ARBITRATION, 3, _moved(together(), 4, 3)),
    (ExecutionRule.COMMUNICATOR, 7, _overtaking()),
    (ExecutionRule.SEQUENCE, 6, changed(contended(), 6, sequence=2)),
    (ExecutionRule.SEQUENCE, 6, changed(contended(), 6, source_sequence=1)),
    (ExecutionRule.LANES, 24, changed(contended(), 24, lanes=(("compute:d1", 0),))),
    (ExecutionRule.LANES, 8, changed(contended(), 8, lanes=(("link:l", 0),))),
    (ExecutionRule.LANES, 15, changed(contended(), 15, lanes=(("link:l", 0), ("network:n", 0), ("collective:g", 0)))),
    (ExecutionRule.LEASES, 8, changed(contended(), 8, reads=("b",))),
    (ExecutionRule.LEASES, 8, changed(contended(), 8, writes=())),
    (
        ExecutionRule.EVIDENCE,
        15,
        changed(
            contended(),
            15,
            collective=msgspec.structs.replace(contended()[15].collective, algorithm=CollectiveKind.ALL_TO_ALL_V),
        ),
    ),
    (ExecutionRule.EVIDENCE, 15, changed(contended(), 15, collective=None)),
    (ExecutionRule.START, 9, _without(contended(), 9)),
    (ExecutionRule.START, 12, changed(contended(), 12, sequence=3)),
    (ExecutionRule.START, 9, changed(contended(), 9, time_ns=6)),
    (ExecutionRule.START, 10, _with(contended(), 10, start(5, 2))),
    (ExecutionRule.FINISH, 7, changed(contended(), 7, time_ns=4)),
    (ExecutionRule.FINISH, 7, _without(contended(), 7)),
    (ExecutionRule.FINISH, 7, changed(contended(), 7, sequence=1)),
    (ExecutionRule.FINISH, 8, _with(contended(), 8, finish(5, 0))),
    (ExecutionRule.TERMINAL, 28, changed(contended(), 28, operations=3)),
    (ExecutionRule.TERMINAL, 28, changed(contended(), 28, execution="B")),
    (ExecutionRule.TERMINAL, 28, _without(contended(), 28)),
    (ExecutionRule.TERMINAL, 29, _with(contended(), 28, contended()[28])),
    (ExecutionRule.TERMINAL, 26, _with(contended(), 26, msgspec.structs.replace(contended()[28], time_ns=18))),
    (ExecutionRule.EVENT_BUDGET, 15, _machine(max_events=7)),
    (ExecutionRule.END, 31, changed(contended(), 31, operations=7)),
    (ExecutionRule.END, 31, changed(contended(), 31, time_ns=25)),
    (ExecutionRule.END, 31, contended()[:31]),
]


@pytest.mark.parametrize(("rule", "sequence", "records"), BROKEN)
def test_broken_log_is_rejected_at_its_first_wrong_record(rule: ExecutionRule, sequence: int, records: Records) -> None:
    error = violation(records)
    assert error is not None
    assert (error.rule, error.sequence) == (rule, sequence), str(error)
    assert error.exit_code == 3
    assert error.expected != error.found


def test_every_rule_has_a_meaning_and_a_log_that_breaks_it() -> None:
    assert list(EXECUTION_RULES) == list(ExecutionRule)
    assert {rule for rule, _, _ in BROKEN} == {*ExecutionRule}


@pytest.mark.parametrize("name", EXAMPLES)
def test_hand_worked_log_is_accepted(name: str) -> None:
    records = EXAMPLES[name]()
    replay = ExecutionReplay()
    for record in records:
        replay.read([record])
    summary = replay.finish()
    last = records[-1]
    assert isinstance(last, ExecutionEnd)
    told = (summary.records, summary.executions, summary.operations, summary.completed_ns, summary.unfinished)
    assert told == (len(records), last.executions, last.operations, last.time_ns, 0)


def test_a_log_without_its_end_is_fine_only_when_cut() -> None:
    replay = ExecutionReplay()
    replay.read(contended()[:12])
    assert replay.finish(truncated=True).unfinished == 2


GIVEN = {("admit", "execution"), ("plan", "time_ns"), ("plan", "more"), ("machine", "topology_epoch")}
"""Inputs: a wrong one is noticed by what follows from it, not before."""


def _noticed_later(name: str, key: tuple[str, str]) -> bool:
    """A plan told in pieces is judged with the last of them."""
    return key in GIVEN or (name == "long" and key[0] in ("plan", "steps"))


@pytest.mark.parametrize("name", [*EXAMPLES, "drawn 3", "drawn 5"])
def test_every_field_of_every_record_is_checked(name: str) -> None:
    drawn = name.startswith("drawn")
    case = random_case(int(name.split()[1])) if drawn else None
    records = EXAMPLES[name]() if case is None else numbered(records_of(case.machine, case.requests))
    judged = 0
    for place, record in enumerate(records):
        for field in record.__struct_fields__:
            key = (kind_of(record), field)
            if key in FREE_EXECUTION_FIELDS:
                continue
            for value in others(getattr(record, field)):
                if not could_be_read(record, field, value):
                    continue
                judged += 1
                error = violation(changed(records, place, **{field: value}))
                assert error is not None, (place, field, value)
                assert error.sequence == place or _noticed_later(name, key), (place, field, str(error))
    assert judged > 3 * len(records)


def _redigested(records: Records, place: int) -> Records:
    """A spoilt plan that is named by its content all the same."""
    told = records[place]
    assert isinstance(told, Plan)
    digest = plan_digest(told.id, told.contract_revision, told.topology_epoch, told.steps)
    copy = changed(records, place, digest=digest)
    return [
        msgspec.structs.replace(record, plan=digest)
        if isinstance(record, Admit) and record.plan == told.digest
        else record
        for record in copy
    ]


@pytest.mark.parametrize("name", EXAMPLES)
def test_whatever_is_spoilt_is_a_violation_or_legal_but_never_a_crash(name: str) -> None:
    """Free fields too, and plans that are digested again."""
    records = EXAMPLES[name]()
    legal = 0
    for place, record in enumerate(records):
        for field in record.__struct_fields__:
            for value in others(getattr(record, field)):
                if not could_be_read(record, field, value):
                    continue
                spoilt = changed(records, place, **{field: value})
                violation(spoilt)
                if isinstance(record, Plan) and not record.more and field != "digest":
                    legal += violation(_redigested(spoilt, place)) is None
    assert legal > 0 or name == "long", "a plan of other names is as legal"


def test_the_examples_hold_every_kind_and_the_free_fields_exist() -> None:
    assert {type(record) for make in EXAMPLES.values() for record in make()} == {*EXECUTION_KINDS}
    fields = {(kind_of(kind), field) for kind in EXECUTION_KINDS for field in kind.__struct_fields__}
    assert set(FREE_EXECUTION_FIELDS) <= fields
    assert all(FREE_EXECUTION_FIELDS.values())


def test_what_may_be_anything_still_has_its_consequences() -> None:
    """The free fields, where something hangs on them."""
    for rule, sequence, records in (
        (ExecutionRule.LANES, 24, _facts("devices", 1, lanes=1)),
        (ExecutionRule.LANES, 11, _facts("links", 0, lanes=1)),
        (ExecutionRule.LANES, 11, _facts("network", 0, lanes=2)),
        (ExecutionRule.LANES, 8, _facts("links", 0, network=())),
        (ExecutionRule.PLAN, 1, _facts("groups", 0, ranks=(("r1", "d1"), ("r0", "d0")))),
        (ExecutionRule.START, 10, _machine(aliases=())),
        (ExecutionRule.DELAY, 6, changed(contended(), 5, time_ns=1)),
        (ExecutionRule.RELEASE, 11, changed(contended(), 2, not_before=((13, 10),))),
    ):
        error = violation(records)
        assert error is not None and (error.rule, error.sequence) == (rule, sequence), str(error)


@pytest.mark.parametrize("name", EXAMPLES)
def test_no_record_can_be_lost_or_told_twice(name: str) -> None:
    records = EXAMPLES[name]()
    for place in range(len(records)):
        assert violation(_without(records, place)) is not None, place
        twice = violation(numbered([*records[: place + 1], *records[place:]]))
        assert twice is not None and twice.sequence == place + 1, (place, str(twice))


@pytest.mark.parametrize("name", EXAMPLES)
def test_neighbours_cannot_change_places(name: str) -> None:
    records = EXAMPLES[name]()
    for place in range(len(records) - 1):
        swapped = numbered([*records[:place], records[place + 1], records[place], *records[place + 2 :]])
        assert violation(swapped) is not None, place


def test_a_violation_says_where_and_what() -> None:
    error = violation(changed(contended(), 24, lanes=(("compute:d1", 0),)))
    assert error is not None
    again = type(error)(*error.args)
    assert str(again) == str(error)
    assert "record 24 breaks the rule lanes" in str(error)
    assert "(('compute:d1', 1),)" in str(error)


# ---- as a file


def _file(path: Path, records: Records) -> str:
    with path.open("wb") as stream:
        LogWriter(stream).write(records)
    return str(path)


def test_a_log_file_is_judged_by_what_it_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    whole = _file(tmp_path / "whole.jsonl.zst", contended())
    assert main(["replay", whole]) == 0
    assert "executions   2 admitted, 0 unfinished" in capsys.readouterr().out
    assert replay_execution_log(whole).log_digest is not None
    wrong = _file(tmp_path / "wrong.jsonl.zst", changed(contended(), 9, time_ns=6))
    assert main(["replay", wrong]) == 3
    assert "record 9 breaks the rule start" in capsys.readouterr().err


def test_no_log_is_taken_for_another(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = _file(tmp_path / "log.jsonl.zst", contended())
    assert schema_of(path) == "isim/execution-log"
    assert main(["export", path, "--out", str(tmp_path / "requests.csv")]) == 2
    assert "expected a log isim/log, found 'isim/execution-log'" in capsys.readouterr().err
    for name, data in (
        ("empty", b""),
        ("no log", b'{"schema": 3}\n'),
        ("deep", b"[" * 10**5 + b"\n"),
        ("bytes", b"{\xff"),
    ):
        (tmp_path / name).write_bytes(data)
        assert schema_of(tmp_path / name) is None
    assert schema_of(tmp_path / "absent") is None


def test_a_cut_log_is_checked_up_to_the_cut(tmp_path: Path) -> None:
    with pytest.raises(TruncatedLog, match="after sequence 11"):
        replay_execution_log(_file(tmp_path / "cut.jsonl.zst", contended()[:12]))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b'"kind":"release"', b'"kind":"relax"'),
        (b'"status":"succeeded"', b'"status":"survived"'),
        (b'"all_reduce_ring"', b'"all_reduce_tree"'),
        (b'"revision":1', b'"revision":2'),
        (b'"step":13', b'"step":-13'),
        (b'"step":13', b'"step":13,"more":1'),
        (b'"time_ns":12', b'"time_ns":12.5'),
    ],
)
def test_unknown_kinds_values_and_revisions_are_no_log(tmp_path: Path, before: bytes, after: bytes) -> None:
    data = encode_lines(contended())
    assert before in data
    path = tmp_path / "log.jsonl"
    path.write_bytes(data.replace(before, after))
    with pytest.raises(LogError):
        replay_execution_log(path)
