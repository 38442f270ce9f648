"""What happened when plans were executed on a topology: the records of an execution log and their table.

The first record is a `Machine`: lanes, paths and communicators, everything a checker needs, so that a log is judged
from itself alone. The last is an `ExecutionEnd`. A `Plan` comes with the first execution of it and is named by a digest
of its content. An execution is admitted; each of its steps is submitted, starts and finishes; then it is terminal.

What a step does, in three moments. *Submitted*: nothing holds it back any more, its leases are registered and its lanes
chosen; from here on it has a place in the future of each lane, and whoever is submitted later comes behind it there.
*Started*: it holds its lanes and leases. *Finished*: it gave them back. Submission is not the start, nor is the start
completion.

Time is integer nanoseconds. Within an instant things happen in rounds: finishes, admissions, releases, submissions,
starts, terminals. Only a step that takes no time makes a second round, which begins with its finish. Records are
ordered by time, round, rank; then finishes, submissions and starts by the number of the submission, admissions and
terminals by the order of admission, releases by that and the place of the step in its plan.
"""

from __future__ import annotations

import hashlib
from enum import StrEnum
from typing import ClassVar

import msgspec

from isim.record.catalogue import Catalogue
from isim.record.records import Head, Record, Whole

SCHEMA = "isim/execution-log"
REVISION = 1


class ExecutionStatus(StrEnum):
    SUCCEEDED = "succeeded"


class CollectiveKind(StrEnum):
    """The algorithm of a collective, which its evidence must repeat."""

    ALL_REDUCE_RING = "all_reduce_ring"
    ALL_TO_ALL_V = "all_to_all_v"


class _Fact(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A value within a record."""


class DeviceFact(_Fact, frozen=True, kw_only=True):
    """A device and how many compute steps it runs side by side: the lanes of resource `compute:<id>`."""

    id: str
    lanes: Whole


class NetworkFact(_Fact, frozen=True, kw_only=True):
    """A NIC or a switch fabric: the lanes of resource `network:<id>`."""

    id: str
    lanes: Whole


class LinkFact(_Fact, frozen=True, kw_only=True):
    """One direction of a link: resource `link:<id>`, and the network resources that whoever uses it holds too."""

    id: str
    lanes: Whole
    network: tuple[str, ...] = ()


class GroupFact(_Fact, frozen=True, kw_only=True):
    """A communicator: resource `collective:<id>` of one lane. `ranks` are (rank, its device) in their order."""

    id: str
    ranks: tuple[tuple[str, str], ...]


class ComputeFact(_Fact, frozen=True, kw_only=True, tag_field="kind", tag="compute"):
    device: str
    capability: str
    duration_ns: Whole
    component: str | None = None
    phase: str | None = None


class TransferFact(_Fact, frozen=True, kw_only=True, tag_field="kind", tag="transfer"):
    link: str
    duration_ns: Whole


class CollectiveFact(_Fact, frozen=True, kw_only=True, tag_field="kind", tag="collective"):
    """The `comm_sequence`-th operation of a group within the plan; it holds every one of `links`."""

    group: str
    comm_sequence: Whole
    algorithm: CollectiveKind
    links: tuple[str, ...]
    duration_ns: Whole


OperationFact = ComputeFact | TransferFact | CollectiveFact


class StepFact(_Fact, frozen=True, kw_only=True):
    """A step of a plan, in the plan's own names; `dependencies` are ids of steps."""

    id: Whole
    participants: tuple[str, ...]
    dependencies: tuple[Whole, ...] = ()
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    operation: OperationFact


class CollectiveEvidence(_Fact, frozen=True, kw_only=True):
    """Which operation of which communicator was submitted, and how it was carried out."""

    group: str
    comm_sequence: Whole
    algorithm: CollectiveKind


class RankTerminal(_Fact, frozen=True, kw_only=True):
    """A rank is through with an execution when the last step it takes part in has finished."""

    rank: str
    status: ExecutionStatus
    time_ns: Whole


class Machine(Head, kw_only=True, tag="machine"):
    """The header. `aliases` are (allocation, the physical allocation it is another name of)."""

    RANK: ClassVar[int] = -1
    isim_version: str
    scenario: str
    scenario_fingerprint: str
    topology_epoch: Whole
    max_events: Whole
    devices: tuple[DeviceFact, ...]
    network: tuple[NetworkFact, ...] = ()
    links: tuple[LinkFact, ...] = ()
    groups: tuple[GroupFact, ...] = ()
    aliases: tuple[tuple[str, str], ...] = ()


class Plan(Record, kw_only=True, tag="plan"):
    """A plan at its first admission. Steps stand in source order; `more` of them follow in `Steps`, which come next."""

    RANK: ClassVar[int] = 2
    digest: str
    id: str
    contract_revision: Whole
    topology_epoch: Whole
    steps: tuple[StepFact, ...]
    more: Whole = 0


class Steps(Record, kw_only=True, tag="steps"):
    """Steps of the plan that is being told, the first of them at place `first`. So no line of a log is very long."""

    RANK: ClassVar[int] = 2
    first: Whole
    steps: tuple[StepFact, ...]


class Admit(Record, kw_only=True, tag="admit"):
    """An execution of a plan was admitted. `not_before` are (step, the absolute time before which it must wait)."""

    RANK: ClassVar[int] = 2
    execution: str
    plan: str
    admission: Whole
    not_before: tuple[tuple[Whole, Whole], ...] = ()


class Release(Record, kw_only=True, tag="release"):
    """The time before which a step had to wait has come. Not recorded where it had come by the admission."""

    RANK: ClassVar[int] = 3
    execution: str
    step: Whole


class Submit(Record, kw_only=True, tag="submit"):
    """`sequence` counts submissions of the log, `source_sequence` those of the execution. `lanes` are the lane chosen
    of each resource, in the order in which the step names them; `reads` and `writes` the leases registered."""

    RANK: ClassVar[int] = 5
    execution: str
    step: Whole
    sequence: Whole
    source_sequence: Whole
    lanes: tuple[tuple[str, Whole], ...]
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    collective: CollectiveEvidence | None = None


class Start(Record, kw_only=True, tag="start"):
    """The step holds its lanes and leases. `sequence` is that of its submission."""

    RANK: ClassVar[int] = 6
    sequence: Whole


class Finish(Record, kw_only=True, tag="finish"):
    """The step is over; lanes and leases are free. `sequence` is that of its submission."""

    RANK: ClassVar[int] = 1
    sequence: Whole


class Terminal(Record, kw_only=True, tag="terminal"):
    """All steps of an execution have finished. `operations` counts them; `ranks` are sorted by code point."""

    RANK: ClassVar[int] = 7
    execution: str
    status: ExecutionStatus
    operations: Whole
    ranks: tuple[RankTerminal, ...]


class ExecutionEnd(Record, kw_only=True, tag="end"):
    RANK: ClassVar[int] = 8
    executions: Whole
    operations: Whole


AnyExecutionRecord = Machine | Plan | Steps | Admit | Release | Submit | Start | Finish | Terminal | ExecutionEnd
EXECUTION_KINDS: tuple[type[Record], ...] = (
    *(Machine, Plan, Steps, Admit, Release, Submit, Start, Finish, Terminal, ExecutionEnd),
)

PlanRecords = tuple[Plan, *tuple[Steps, ...]]

EXECUTION_LOG: Catalogue[AnyExecutionRecord] = Catalogue(
    schema=SCHEMA,
    revision=REVISION,
    decoder=msgspec.json.Decoder(AnyExecutionRecord),
    header=Machine,
    end=ExecutionEnd,
)


STEPS_A_RECORD = 512


def plan_records(plan_id: str, contract_revision: int, topology_epoch: int, steps: tuple[StepFact, ...]) -> PlanRecords:
    """What the log says of a plan: the `Plan`, and `Steps` for what is beyond the first records' steps."""
    cuts = range(STEPS_A_RECORD, len(steps), STEPS_A_RECORD)
    plan = Plan(
        time_ns=0,
        digest=plan_digest(plan_id, contract_revision, topology_epoch, steps),
        id=plan_id,
        contract_revision=contract_revision,
        topology_epoch=topology_epoch,
        steps=steps[:STEPS_A_RECORD],
        more=max(0, len(steps) - STEPS_A_RECORD),
    )
    return plan, *(Steps(time_ns=0, first=cut, steps=steps[cut : cut + STEPS_A_RECORD]) for cut in cuts)


def plan_digest(plan_id: str, contract_revision: int, topology_epoch: int, steps: tuple[StepFact, ...]) -> str:
    """The name of a plan's content: SHA-256 of its JSON."""
    content = msgspec.json.encode([plan_id, contract_revision, topology_epoch, steps])
    return hashlib.sha256(content).hexdigest()


class ExecutionDigest:
    """A reader: SHA-256 of the records, without what cannot change a result (`isim_version`, `max_events`)."""

    def __init__(self) -> None:
        self._hash = hashlib.sha256()
        self._encoder = msgspec.json.Encoder()

    def read(self, records: list[AnyExecutionRecord]) -> None:
        lines = [
            msgspec.structs.replace(record, isim_version="", max_events=0) if isinstance(record, Machine) else record
            for record in records
        ]
        self._hash.update(self._encoder.encode_lines(lines))

    def hexdigest(self) -> str:
        return self._hash.hexdigest()
