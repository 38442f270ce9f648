"""The log in the making, and its digest."""

from __future__ import annotations

import hashlib
import struct

import msgspec
import pytest
from product import as_requests, play
from workload_fuzz import random_case

from isim.record.digest import log_digest
from isim.record.errors import CausalityError
from isim.record.log import Log
from isim.record.records import AnyRecord, Arrive, End, Header, Stretch, Turn


def some_run(seed: int = 3, **how: int) -> list[AnyRecord]:
    limits, requests, coefficients = random_case(seed)
    return play(limits, as_requests(requests), coefficients, **how).records  # type: ignore[arg-type]  # ints only


def arrive(request: int, time_ns: int) -> Arrive:
    return Arrive(time_ns=time_ns, request=request, id=str(request), prompt_tokens=1, output_tokens=1)


def turn(time_ns: int, engine: int) -> Turn:
    return Turn(time_ns=time_ns, engine=engine, running=0, waiting=0, free_blocks=0)


def end(time_ns: int) -> End:
    return End(time_ns=time_ns, arrived=0, completed=0, rejected=0, aborted=0, unfinished=0, steps=0)


def test_records_are_ordered_by_time_rank_and_engine_and_numbered() -> None:
    header = some_run()[0]
    assert isinstance(header, Header)
    told: list[AnyRecord] = []
    log = Log(header, [told.extend])
    lanes = {"second": log.lane(Turn, 1), "first": log.lane(Turn, 0), "router": log.lane(Arrive)}
    for record in (turn(5, 1), turn(7, 1), arrive(0, 5), turn(5, 0), arrive(1, 6), arrive(2, 6)):
        lanes["router" if isinstance(record, Arrive) else "second" if record.engine else "first"](record)
    log.close(end(9))
    kinds = [(record.time_ns, type(record).__name__, getattr(record, "engine", None)) for record in told[1:]]
    assert kinds == [
        (5, "Arrive", 0),
        (5, "Turn", 0),
        (5, "Turn", 1),
        (6, "Arrive", 0),
        (6, "Arrive", 0),
        (7, "Turn", 1),
        (9, "End", None),
    ]
    assert [record.seq for record in told] == list(range(8))


def test_a_record_for_a_time_the_log_has_passed_is_a_bug() -> None:
    header = some_run()[0]
    assert isinstance(header, Header)
    log = Log(header, [])
    emit = log.lane(Arrive)
    for time_ns in range(5000):
        emit(arrive(time_ns, time_ns))
    log.reach(5000)
    emit(arrive(5000, 4999))
    with pytest.raises(CausalityError, match="has reached 5000 ns"):
        log.close(end(6000))


def test_digest_does_not_depend_on_how_steps_were_gathered() -> None:
    for seed in range(20):
        assert log_digest(some_run(seed)) == log_digest(some_run(seed, max_stretch=1))
        assert log_digest(some_run(seed)) == log_digest(some_run(seed, max_stretch=3))


def test_digest_is_the_one_its_docstring_describes() -> None:
    """By hand: one stretch of two steps of two requests after a turn, synchronous."""
    header = some_run()[0]
    assert isinstance(header, Header)
    engine = msgspec.structs.replace(header.engine, async_scheduling=False)
    header = msgspec.structs.replace(header, engine=engine)
    records = [
        header,
        Turn(time_ns=10, step=0, duration_ns=5, scheduled=2, tokens=8, sampled=2, running=2, waiting=0, free_blocks=3),
        Stretch(
            time_ns=22,
            step=1,
            steps=2,
            schedule_ns=15,
            durations_ns=[3, 4],
            batch=2,
            context=8,
            running=2,
            free_blocks=3,
        ),
    ]

    def column(*values: int) -> bytes:
        return hashlib.sha256(struct.pack(f"<{len(values)}q", *values)).digest()

    plain = msgspec.to_builtins(header)
    del plain["seq"], plain["max_events"]
    text = msgspec.json.encode(plain, order="deterministic")
    events = struct.pack("<2q", 9, len(text)) + text
    events += struct.pack("<16q", 5, 10, 0, -1, 0, 2, 2, 0, 3, *[0] * 7)
    whole = hashlib.sha256(hashlib.sha256(events).digest())
    whole.update(struct.pack("<q", 0))
    for values in ((10, 15, 18), (5, 3, 4), (2, 2, 2), (8, 2, 2), (0, 8, 10)):
        whole.update(column(*values))
    assert log_digest(records) == whole.hexdigest()


def test_every_fact_is_in_the_digest() -> None:
    """Changing any field of any record changes it, but for what the docstring says is left out."""
    records = some_run(7)
    digest = log_digest(records)
    free = {("Stretch", field) for field in ("step", "running", "free_blocks", "time_ns")} | {("Header", "max_events")}
    seen: dict[tuple[str, str], bool] = {}
    for place, record in enumerate(records):
        name = type(record).__name__
        for field in record.__struct_fields__:
            value = getattr(record, field)
            if field == "seq" or type(value) is not int or seen.get((name, field)):
                continue
            changed = [*records]
            changed[place] = msgspec.structs.replace(record, **{field: value + 1})
            if name == "Stretch" and field == "steps" and len(record.durations_ns) != 1:  # type: ignore[union-attr]
                continue
            seen[name, field] = True
            same = log_digest(changed) == digest
            assert same == ((name, field) in free), (name, field)
