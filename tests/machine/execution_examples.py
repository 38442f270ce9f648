"""Small execution logs worked out by hand, each with the working beside it, and ways to spoil a log."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from isim.record.execution import (
    REVISION,
    SCHEMA,
    Admit,
    AnyExecutionRecord,
    CollectiveEvidence,
    CollectiveFact,
    CollectiveKind,
    ComputeFact,
    DeviceFact,
    ExecutionEnd,
    ExecutionStatus,
    Finish,
    GroupFact,
    LinkFact,
    Machine,
    NetworkFact,
    Plan,
    RankTerminal,
    Release,
    Start,
    StepFact,
    Steps,
    Submit,
    Terminal,
    TransferFact,
    plan_digest,
)
from isim.replay.execution import ExecutionReplay, ExecutionViolation

Records = list[AnyExecutionRecord]
RING = CollectiveKind.ALL_REDUCE_RING


def machine() -> Machine:
    """Device d0 has one lane, d1 two; link l has two, but the NIC n behind it has one. v is another name of b."""
    return Machine(
        time_ns=0,
        schema=SCHEMA,
        revision=REVISION,
        isim_version="by hand",
        scenario="by hand",
        scenario_fingerprint="none",
        topology_epoch=4,
        max_events=100,
        devices=(DeviceFact(id="d0", lanes=1), DeviceFact(id="d1", lanes=2)),
        network=(NetworkFact(id="n", lanes=1),),
        links=(LinkFact(id="l", lanes=2, network=("n",)),),
        groups=(GroupFact(id="g", ranks=(("r0", "d0"), ("r1", "d1"))),),
        aliases=(("v", "b"),),
    )


def plan(name: str, *steps: StepFact, time_ns: int = 0) -> Plan:
    return Plan(
        time_ns=time_ns,
        digest=plan_digest(name, 5, 4, steps),
        id=name,
        contract_revision=5,
        topology_epoch=4,
        steps=steps,
    )


def compute(step: int, device: str, duration_ns: int, **more: Any) -> StepFact:
    operation = ComputeFact(device=device, capability="ffn", duration_ns=duration_ns)
    return StepFact(id=step, participants=("r0" if device == "d0" else "r1",), operation=operation, **more)


def collective(step: int, duration_ns: int, **more: Any) -> StepFact:
    operation = CollectiveFact(group="g", comm_sequence=0, algorithm=RING, links=("l",), duration_ns=duration_ns)
    return StepFact(id=step, participants=("r0", "r1"), operation=operation, **more)


EVIDENCE = CollectiveEvidence(group="g", comm_sequence=0, algorithm=RING)

FOUR = plan(
    "four",
    compute(10, "d0", 5, writes=("b",)),
    StepFact(
        id=11,
        participants=("r0", "r1"),
        dependencies=(10,),
        reads=("v",),
        writes=("c",),
        operation=TransferFact(link="l", duration_ns=4),
    ),
    collective(12, 0, dependencies=(11,), reads=("c",)),
    compute(13, "d1", 3, dependencies=(12,), writes=("c",)),
)


def submit(time_ns: int, number: int, execution: str, source: int, step: StepFact, *lanes: tuple[str, int]) -> Submit:
    return Submit(
        time_ns=time_ns,
        execution=execution,
        step=step.id,
        sequence=number,
        source_sequence=source,
        lanes=lanes,
        reads=step.reads,
        writes=step.writes,
        collective=EVIDENCE if isinstance(step.operation, CollectiveFact) else None,
    )


def start(time_ns: int, number: int) -> Start:
    return Start(time_ns=time_ns, sequence=number)


def finish(time_ns: int, number: int) -> Finish:
    return Finish(time_ns=time_ns, sequence=number)


def terminal(time_ns: int, execution: str, operations: int, **ranks: int) -> Terminal:
    return Terminal(
        time_ns=time_ns,
        execution=execution,
        status=ExecutionStatus.SUCCEEDED,
        operations=operations,
        ranks=tuple(
            RankTerminal(rank=rank, status=ExecutionStatus.SUCCEEDED, time_ns=end_ns) for rank, end_ns in ranks.items()
        ),
    )


def numbered(records: Records) -> Records:
    """Copies with the numbers of their places."""
    return [msgspec.structs.replace(record, seq=place) for place, record in enumerate(records)]


def contended() -> Records:
    """Two executions of one plan that get in each other's way."""
    first, copy, reduce, last = FOUR.steps
    return numbered(
        [
            machine(),
            FOUR,
            Admit(time_ns=0, execution="A", plan=FOUR.digest, admission=0, not_before=((13, 12),)),
            submit(0, 0, "A", 0, first, ("compute:d0", 0)),
            start(0, 0),
            Admit(time_ns=2, execution="B", plan=FOUR.digest, admission=1),
            # d0 is taken to 5, and so is b.
            submit(2, 1, "B", 0, first, ("compute:d0", 0)),
            finish(5, 0),
            # Reads b by its other name; B writes it from 5 to 10, so this starts at 10 and holds l/0 and n/0 to 14.
            submit(5, 2, "A", 1, copy, ("link:l", 0), ("network:n", 0)),
            start(5, 1),
            finish(10, 1),
            # l/1 is free, but the NIC only from 14 on, and so is c.
            submit(10, 3, "B", 1, copy, ("link:l", 1), ("network:n", 0)),
            start(10, 2),
            Release(time_ns=12, execution="A", step=13),
            finish(14, 2),
            # l/0 is free from 14, l/1 from 18; the NIC from 18.
            submit(14, 4, "A", 2, reduce, ("collective:g", 0), ("link:l", 0), ("network:n", 0)),
            start(14, 3),
            finish(18, 3),
            # The collective before takes no time, so l/0, n and g are free in round 1, l/1 already in round 0.
            submit(18, 5, "B", 2, reduce, ("collective:g", 0), ("link:l", 1), ("network:n", 0)),
            start(18, 4),
            # Round 1. B reads c in this round, so A writes it from round 2 on.
            finish(18, 4),
            submit(18, 6, "A", 3, last, ("compute:d1", 0)),
            start(18, 5),
            # Round 2. d1/1 is free, but A writes c to 21.
            finish(18, 5),
            submit(18, 7, "B", 3, last, ("compute:d1", 1)),
            start(18, 6),
            finish(21, 6),
            start(21, 7),
            terminal(21, "A", 4, r0=18, r1=21),
            finish(24, 7),
            terminal(24, "B", 4, r0=18, r1=24),
            ExecutionEnd(time_ns=24, executions=2, operations=8),
        ]
    )


def long() -> Records:
    """The plan of `together`, told in two pieces."""
    records = together()
    first, rest = PAIR.steps
    return numbered(
        [
            records[0],
            msgspec.structs.replace(PAIR, steps=(first,), more=1),
            Steps(time_ns=0, first=1, steps=(rest,)),
            *records[2:],
        ]
    )


PAIR = plan("pair", compute(7, "d1", 2), compute(3, "d0", 2, reads=("b",)))


def together() -> Records:
    """Two steps ready at once: the order is that of the plan, not of the ids."""
    one, other = PAIR.steps
    return numbered(
        [
            machine(),
            PAIR,
            Admit(time_ns=0, execution="A", plan=PAIR.digest, admission=0),
            submit(0, 0, "A", 0, one, ("compute:d1", 0)),
            submit(0, 1, "A", 1, other, ("compute:d0", 0)),
            start(0, 0),
            start(0, 1),
            finish(2, 0),
            finish(2, 1),
            terminal(2, "A", 2, r0=2, r1=2),
            ExecutionEnd(time_ns=2, executions=1, operations=2),
        ]
    )


TURNS = plan("turns", compute(0, "d1", 2), collective(1, 3, dependencies=(0,)))


def turns() -> Records:
    """B is ready for its collective at 3 but A, admitted first and held back, has the turn until it submits at 8."""
    work, reduce = TURNS.steps
    return numbered(
        [
            machine(),
            TURNS,
            Admit(time_ns=0, execution="A", plan=TURNS.digest, admission=0, not_before=((0, 6),)),
            Admit(time_ns=1, execution="B", plan=TURNS.digest, admission=1),
            submit(1, 0, "B", 0, work, ("compute:d1", 0)),
            start(1, 0),
            finish(3, 0),
            Release(time_ns=6, execution="A", step=0),
            # d1/1 has been free since 0, d1/0 since 3.
            submit(6, 1, "A", 0, work, ("compute:d1", 1)),
            start(6, 1),
            finish(8, 1),
            submit(8, 2, "A", 1, reduce, ("collective:g", 0), ("link:l", 0), ("network:n", 0)),
            submit(8, 3, "B", 1, reduce, ("collective:g", 0), ("link:l", 1), ("network:n", 0)),
            start(8, 2),
            finish(11, 2),
            start(11, 3),
            terminal(11, "A", 2, r0=11, r1=11),
            finish(14, 3),
            terminal(14, "B", 2, r0=14, r1=14),
            ExecutionEnd(time_ns=14, executions=2, operations=4),
        ]
    )


EXAMPLES: dict[str, Callable[[], Records]] = {
    "contended": contended,
    "together": together,
    "turns": turns,
    "long": long,
}


def changed(records: Records, place: int, **fields: Any) -> Records:
    """A copy with some fields of one record changed."""
    copy = list(records)
    copy[place] = msgspec.structs.replace(copy[place], **fields)
    return copy


def violation(records: Records) -> ExecutionViolation | None:
    """What the replay says of a whole log."""
    replay = ExecutionReplay()
    try:
        replay.read(records)
        replay.finish()
    except ExecutionViolation as error:
        return error
    return None
