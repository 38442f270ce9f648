"""Change every field of every kind of record in logs of all scenarios, and see which rule of the replay notices.

    python tools/mutation.py [--requests N] [--records N] [--changes N] [--seed S] [--only NAME]

The logs are those of scenarios/, cut to N requests (traces only where they are found), crowds in which everything ties
in every mode of the scheduler, clients that give up, and campaigns of plans. Of each kind of record N records, and for
each of their fields N changes of each sort, are a seeded choice; `log_mutations.py` makes them. Every changed log is
written to a file and judged from there, as by `isim replay`. Prints a line for each field and sort of change: how many
were tried, what noticed them (rules of the replay, or the reader of logs), how many survived. A change may survive only
in a field that `isim.replay` names as free, with the reason; docs/replay.md and docs/execution.md hold the same tables.
Exit 1 if another does, or if a changed log ends in anything but a violation or an error of the reader.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import msgspec
from log_mutations import Mutation, kind_of, moved, mutations
from shuffle import CAMPAIGN_TARGETS, CROWD, MODES, SCENARIOS, crowd_lines, scenarios

from isim.draw.streams import Stream
from isim.machine.campaign import campaign_requests
from isim.machine.execute import execute
from isim.machine.program import program_of
from isim.machine.resources import resources_of
from isim.plan.compile import compile_plan
from isim.plan.profile import target_only_profile
from isim.record.codec import SERVING_LOG
from isim.record.errors import LogError
from isim.record.execution import EXECUTION_LOG
from isim.record.records import Record
from isim.replay import FREE_FIELDS, FREE_ORDERS, ReplayViolation, replay_log
from isim.replay.execution import FREE_EXECUTION_FIELDS, replay_execution_log
from isim.run import simulate
from isim.scenario.load import load_scenario
from isim.scenario.types import AzureTrace, MooncakeTrace, Sessions
from isim.topology.load import load_target

READER = "the reader"
WHOLE = "(record)"
MOVES = (Mutation.ORDER, Mutation.DELETION, Mutation.DUPLICATION)
LONG_CAMPAIGN = ("multi-gpu", 110)
"""550 steps: more than one record of a plan tells."""
EXECUTIONS = 2
WITHIN_NS = 1000
GIVING_UP: dict[str, tuple[str, ...]] = {
    "clients that give up": (),
    "clients far away that give up": ("engine.request_overhead=30 ms",),
    "clients that give up on the way": ("engine.request_overhead=40 ms",),
}
MODES_TRIED = ((0, 0, 0), (1, 0, 1), (0, 1, 1), (1, 1, 0))
"""Crowds: each two modes of the scheduler meet in every combination."""


class Cell(msgspec.Struct, frozen=True, order=True):
    """A row of the table."""

    kind: str
    field: str
    mutation: str


class Subject(msgspec.Struct, frozen=True):
    """A log, and who judges it."""

    name: str
    records: Sequence[Record]
    execution: bool = False

    def judge(self, path: Path) -> str | None:
        """What noticed that the log at this path is wrong; None when nothing did."""
        try:
            (replay_execution_log if self.execution else replay_log)(path)
        except ReplayViolation as violation:
            return str(violation.rule)
        except LogError:
            return READER
        return None

    def same(self, line: bytes, record: Record) -> bool:
        """Whether this line is the record it was made from, in other words."""
        decoder = (EXECUTION_LOG if self.execution else SERVING_LOG).decoder
        try:
            return msgspec.json.encode(decoder.decode(line)) == msgspec.json.encode(record)
        except msgspec.DecodeError:
            return False

    def free(self, cell: Cell) -> bool:
        """Whether a change of this field may go unnoticed. A key that is there twice may not, whatever it says."""
        field = (cell.kind, cell.field)
        if self.execution:
            return field in FREE_EXECUTION_FIELDS and cell.mutation != Mutation.TWICE
        if cell.mutation == Mutation.ORDER and field in FREE_ORDERS:
            return True
        return field in FREE_FIELDS and cell.mutation != Mutation.TWICE


class Table(msgspec.Struct):
    """What was tried, what noticed it, and what should have been noticed and was not."""

    tried: Counter[Cell] = msgspec.field(default_factory=Counter)
    noticed: dict[Cell, Counter[str]] = msgspec.field(default_factory=dict)
    free: Counter[Cell] = msgspec.field(default_factory=Counter)
    holes: list[str] = msgspec.field(default_factory=list)

    def add(self, subject: Subject, cell: Cell, place: int, changed: bytes, verdict: str | None) -> None:
        self.tried[cell] += 1
        if verdict is not None:
            self.noticed.setdefault(cell, Counter())[verdict] += 1
        elif subject.free(cell):
            self.free[cell] += 1
        else:
            self.holes.append(
                f"{subject.name}: record {place}, {cell.kind}.{cell.field} {cell.mutation}: "
                f"{subject.records[place]} as {changed.decode(errors='replace')}"
            )

    def lines(self) -> Iterator[str]:
        for cell in sorted(self.tried):
            noticed = self.noticed.get(cell, Counter())
            by = ", ".join(f"{rule} {count}" for rule, count in sorted(noticed.items()))
            survived = self.tried[cell] - noticed.total()
            state = f", {survived} survived" + (" (free)" if self.free[cell] else "") if survived else ""
            told = f"{cell.kind}.{cell.field} {cell.mutation}: {self.tried[cell]} tried"
            yield f"{told}; {by or 'noticed by nothing'}{state}"
        tried, free = self.tried.total(), self.free.total()
        yield (
            f"{tried} changes tried, {tried - free - len(self.holes)} noticed, {free} survived in free fields, "
            f"{len(self.holes)} holes"
        )


class Choice:
    """Which of many: the same for the same seed and name."""

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def some(self, count: int, total: int, *name: object) -> list[int]:
        """At most so many places out of so many, in order."""
        if total <= count:
            return list(range(total))
        stream = Stream(self._seed, " ".join(map(str, name)))
        places = list(range(total))
        for at in range(count):
            other = at + stream.below(total - at, at, 0)
            places[at], places[other] = places[other], places[at]
        return sorted(places[:count])


def spoil(subject: Subject, table: Table, choice: Choice, records: int, changes: int, path: Path) -> None:
    """Try this many changes of each sort in each field of this many records of each kind."""
    lines = [msgspec.json.encode(record) for record in subject.records]
    by_kind: dict[str, list[int]] = {}
    for place, record in enumerate(subject.records):
        by_kind.setdefault(kind_of(record), []).append(place)

    def judge(cell: Cell, place: int, told: list[bytes]) -> None:
        path.write_bytes(b"\n".join(told) + b"\n")
        changed = told[place] if place < len(told) else b"nothing"
        table.add(subject, cell, place, changed, subject.judge(path))

    for kind, places in by_kind.items():
        for at in choice.some(records, len(places), subject.name, kind):
            place = places[at]
            record = subject.records[place]
            for field in ("kind", *record.__struct_fields__):
                for mutation, line in _chosen(subject, record, field, choice, changes, place):
                    judge(Cell(kind, field, mutation), place, [*lines[:place], line, *lines[place + 1 :]])
            for mutation in MOVES:
                told = moved(lines, place, mutation)
                if told != lines:
                    judge(Cell(kind, WHOLE, mutation), place, told)


def _chosen(
    subject: Subject, record: Record, field: str, choice: Choice, changes: int, place: int
) -> Iterator[tuple[Mutation, bytes]]:
    """Some changes of each sort, each another line that says something else."""
    by_mutation: dict[Mutation, dict[bytes, None]] = {}
    for mutation, line in mutations(record, field):
        if mutation is Mutation.TWICE or not subject.same(line, record):
            by_mutation.setdefault(mutation, {})[line] = None
    for mutation, found in by_mutation.items():
        lines = list(found)
        for number in choice.some(changes, len(lines), subject.name, place, field, mutation):
            yield mutation, lines[number]


def served(name: str, file: Path, sets: Sequence[str]) -> Subject:
    """The log of a run."""
    records: list[Record] = []
    simulate(load_scenario(file, sets), base_dir=file.parent, readers=[records.extend], digest=False)
    return Subject(name, records)


def serving_logs(folder: Path, requests: int) -> Iterator[tuple[str, Callable[[], Subject]]]:
    """Every scenario, cut; crowds; clients that give up, some of them before they are there."""
    for subject in scenarios():
        workload = load_scenario(subject.file, subject.sets).workload
        cut = f"workload.requests={requests}"
        if isinstance(workload, AzureTrace | MooncakeTrace):
            cut = f"workload.limit={requests}"
        elif isinstance(workload, Sessions):
            cut = f"workload.sessions={1 + requests // 5}"
        sets = (*subject.sets, cut)
        yield subject.name, partial(served, subject.name, subject.file, sets)
    crowd = folder / "crowd.jsonl"
    crowd.write_text(crowd_lines(requests), encoding="utf-8")
    read = f"workload={json.dumps({'kind': 'request_file', 'format': 'jsonl', 'path': str(crowd)})}"
    file = SCENARIOS / "quickstart.yaml"
    small = (*CROWD, "engine.num_gpu_blocks_override=24")
    for choices in MODES_TRIED:
        modes = [f"{key}={values[at]}" for (key, values), at in zip(MODES.items(), choices, strict=True)]
        name = f"crowd, {', '.join(modes)}"
        yield name, partial(served, name, file, (read, *small, *modes))
    for policy in ("round_robin", "least_outstanding"):
        name = f"crowd, 3 engines, {policy}"
        more = ("replicas=3", f"router={{policy: {policy}}}")
        yield name, partial(served, name, file, (read, *CROWD, *more))
    for name, sets in GIVING_UP.items():
        yield name, partial(served, name, file, (read, *small, "clients.timeout=40 ms", *sets))


def campaign(target: str, tokens: int = 1) -> Subject:
    """The log of a few executions of one plan at once; of a long plan the log has pieces."""
    topology = load_target(target)
    machine = resources_of(topology)
    plan = compile_plan(topology, target_only_profile(tokens)).plan
    requests = campaign_requests(program_of(plan, machine), plan.execution_id, EXECUTIONS, WITHIN_NS, 42)
    records: list[Record] = []
    execute(machine, requests, readers=[records.extend])
    return Subject(campaign_name(target, tokens), records, execution=True)


def campaign_name(target: str, tokens: int) -> str:
    return f"campaign, {target}" if tokens == 1 else f"campaign, {target}, {tokens} tokens"


def logs(folder: Path, requests: int) -> Iterator[tuple[str, Callable[[], Subject]]]:
    """Names, and how to get the log."""
    yield from serving_logs(folder, requests)
    for target, tokens in [*((target, 1) for target in CAMPAIGN_TARGETS), LONG_CAMPAIGN]:
        yield campaign_name(target, tokens), partial(campaign, target, tokens)


def arguments(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Change every field of every record; some rule must notice.")
    parser.add_argument("--requests", type=int, default=24, metavar="N", help="requests of each run (default 24)")
    parser.add_argument("--records", type=int, default=6, metavar="N", help="records of each kind (default 6)")
    parser.add_argument("--changes", type=int, default=3, metavar="N", help="changes of each sort (default 3)")
    parser.add_argument("--seed", type=int, default=1, metavar="S", help="seed of the choice (default 1)")
    parser.add_argument("--only", metavar="NAME", help="this log alone")
    return parser.parse_args(words)


def main(words: Sequence[str] | None = None) -> int:
    asked = arguments(words)
    table, judged = Table(), 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for title, make in logs(folder, asked.requests):
            if asked.only not in (None, title):
                continue
            subject = make()
            before, judged = table.tried.total(), judged + 1
            spoil(subject, table, Choice(asked.seed), asked.records, asked.changes, folder / "changed.jsonl")
            print(f"{title}: {len(subject.records)} records, {table.tried.total() - before} changes", file=sys.stderr)
    if not judged:
        print(f"expected --only to name a log as it is printed, found {asked.only!r}", file=sys.stderr)
        return 2
    for line in [*table.holes, *table.lines()]:
        print(line)
    return 1 if table.holes else 0


if __name__ == "__main__":
    sys.exit(main())
