"""The recorded schedules of the real scheduler, told as logs: every one is legal, and a spoilt one is not."""

from __future__ import annotations

import json
import random
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import pytest
from replay_examples import changed, numbered, violation
from replay_schedules import SHARED, Converter, Telling, Untellable, cases, in_order

from isim.record.records import (
    Abort,
    AnyRecord,
    Arrive,
    End,
    GroupKind,
    GroupLimits,
    Header,
    Reject,
    RouterFacts,
    RoutingPolicy,
    Stretch,
    Turn,
)
from isim.replay import Replay, Rule

pytestmark = pytest.mark.skipif(not SHARED.is_dir(), reason="recorded schedules (../shared/reference) are not here")

PLAIN = "unit steps, long stretches"
TELLINGS = {
    PLAIN: Telling(),
    "uneven steps, each told alone": Telling(duration_ns=lambda step: 1 + step * 7 % 5, max_stretch=1),
    "slowing steps, private prompts unnamed": Telling(duration_ns=lambda step: 10 + step // 20, hide_private=True),
}


def _caching(folder: Path) -> bool:
    engine = json.loads((folder / "input.json").read_text())["engine"]
    return bool(engine["enable_prefix_caching"])


@cache
def _logs(telling: str) -> list[tuple[Path, Converter, list[AnyRecord]]]:
    logs = []
    for folder in cases():
        if TELLINGS[telling].hide_private and not _caching(folder):
            continue
        converter = Converter(folder, TELLINGS[telling])
        try:
            logs.append((folder, converter, converter.convert()))
        except Untellable:
            continue
    return logs


@pytest.mark.parametrize("telling", TELLINGS)
def test_recorded_schedules_are_legal(telling: str) -> None:
    """Who ran with how many tokens, victims, hits, queues and blocks: all as derived from the arrivals alone."""
    agreed: Counter[str] = Counter()
    logs = _logs(telling)
    for folder, converter, records in logs:
        error = violation(records)
        assert error is None, (folder.parent.name, folder.name, str(error))
        engine = converter.input["engine"]
        agreed[folder.parent.name] += 1
        agreed["asynchronous"] += engine["async_scheduling"]
        agreed["priority"] += engine["policy"] == "priority"
        agreed["caching"] += engine["enable_prefix_caching"]
        agreed["aborting"] += any(isinstance(record, Abort) for record in records)
        agreed["groups"] += "kv_cache_groups" in engine
        agreed["late"] += any(isinstance(record, Turn) and bool(record.late) for record in records)
    # recordings in which something arrives between two calls of one instant cannot be told in time
    told = [folder for folder in cases() if _caching(folder) or not TELLINGS[telling].hide_private]
    assert len(logs) >= 0.75 * len(told)
    assert min(agreed.values()) > 5, agreed


MORE_KEYS = {"0.33.0/hyb-mixed-004-full32-sw16-apc"}
"""Three keys more are recorded than the rules give, while all blocks lie in the free queue as they say."""


def test_cached_keys_at_the_end_are_those_of_the_recording() -> None:
    """What the real block pool still had under a key when all was over, counted."""
    compared = 0
    for folder, converter, records in _logs(PLAIN):
        if converter.input["engine"]["enable_prefix_caching"]:
            name = f"{folder.parent.name}/{folder.name}"
            replay = Replay()
            replay.read(records)
            pool = replay._engines[0].scheduler.pool
            recorded = converter.expected["final"]["num_cached_hashes"]
            assert pool.cached_keys == recorded - 3 * (name in MORE_KEYS), name
            assert pool.free == converter.expected["final"]["free_blocks"], folder
            compared += 1
    assert compared > 50


def spoilt(dice: random.Random, record: AnyRecord) -> dict[str, Any]:
    """Another value for one derived field."""
    if isinstance(record, Turn):
        fields = ["running", "waiting", "free_blocks"]
        if record.step is not None:
            fields += ["step", "scheduled", "tokens", "sampled", "context"]
        fields += [f for f in ("first", "late", "finished", "admitted", "chunks", "skipped") if getattr(record, f)]
        fields += ["preempted"] * bool(record.preempted)
    elif isinstance(record, Stretch):
        fields = ["step", "steps", "schedule_ns", "batch", "context", "running", "free_blocks", "time_ns"]
    elif isinstance(record, End):
        fields = ["arrived", "completed", "aborted", "unfinished", "steps"]
    else:
        fields = ["request"]
    field = dice.choice(fields)
    value = getattr(record, field)
    if isinstance(value, tuple):
        return {field: value[::-1] if len(value) > 1 and value[::-1] != value and dice.random() < 0.5 else value[1:]}
    return {field: value + dice.choice((-1, 1))}


def test_a_spoilt_record_is_rejected_where_it_is() -> None:
    dice = random.Random(2024)
    rules: Counter[Rule] = Counter()
    for folder, _, records in _logs(PLAIN)[::2]:
        for _ in range(5):
            place = dice.randrange(1, len(records))
            fields = spoilt(dice, records[place])
            error = violation(changed(records, place, **fields))
            where = (folder.parent.name, folder.name, records[place], fields)
            assert error is not None, where
            assert error.sequence == place or isinstance(records[place], Abort), (*where, str(error))
            rules[error.rule] += 1
    assert len(rules) > 12, rules


def test_a_lost_or_repeated_record_is_noticed() -> None:
    dice = random.Random(2025)
    for folder, _, records in _logs(PLAIN)[1::3]:
        for _ in range(2):
            place = dice.randrange(len(records))
            lost = numbered([*records[:place], *records[place + 1 :]])
            assert violation(lost) is not None, (folder, "lost", records[place])
            twice = violation(numbered([*records[: place + 1], *records[place:]]))
            assert twice is not None and twice.sequence == place + 1, (folder, "twice", records[place])


def test_limits_decide() -> None:
    """A log judged by other limits than those it ran with is illegal in many cases, for each of the limits."""
    noticed: Counter[str] = Counter()
    for folder, _, records in _logs(PLAIN)[::9]:
        header = records[0]
        assert isinstance(header, Header)
        told = msgspec.to_builtins(header.engine)
        others = {
            "version": "0.33" if told["version"] == "0.21" else "0.21",
            "max_num_seqs": max(1, told["max_num_seqs"] // 2),
            "max_num_batched_tokens": told["max_num_batched_tokens"] - 1 or 2,
            "block_size": told["block_size"] + 1,
            "num_blocks": told["num_blocks"] + 1,
            "max_model_len": told["max_model_len"] // 2,
            "enable_prefix_caching": not told["enable_prefix_caching"],
            "enable_chunked_prefill": not told["enable_chunked_prefill"],
            "long_prefill_token_threshold": told["long_prefill_token_threshold"] + 3,
            "scheduler_reserve_full_isl": not told["scheduler_reserve_full_isl"],
            "async_scheduling": not told["async_scheduling"],
            "policy": "fcfs" if told["policy"] == "priority" else "priority",
            "groups": told["groups"][1:],
        }
        for limit, value in others.items():
            if value == told[limit]:
                continue
            engine = msgspec.convert({**told, limit: value}, type(header.engine))
            noticed[limit] += violation(changed(records, 0, engine=engine)) is not None
        assert violation(records) is None, folder
    assert set(noticed) == set(others)
    assert min(noticed.values()) >= 2, noticed


def test_one_group_that_is_listed_is_judged_as_the_usual_one() -> None:
    """Two accounts, with counts and with tables, of what a single full-attention group does."""
    for folder, _, records in _logs(PLAIN):
        header = records[0]
        assert isinstance(header, Header)
        if not header.engine.groups:
            full = GroupLimits(kind=GroupKind.FULL, block_size=header.engine.block_size)
            engine = msgspec.structs.replace(header.engine, groups=(full,))
            error = violation(changed(records, 0, engine=engine))
            assert error is None, (folder.parent.name, folder.name, str(error))


def _on_two_engines(records: list[AnyRecord]) -> list[AnyRecord]:
    """The same story on two engines at once, requests sent to them in turn."""
    told: list[AnyRecord] = []
    for engine in (0, 1):
        for record in records:
            if isinstance(record, Header | End):
                continue
            again = msgspec.structs.replace(record, engine=engine)
            if isinstance(again, Arrive):
                again.id = f"{again.id}-{engine}"
            told.append(again)
    arrivals = sorted((r for r in told if isinstance(r, Arrive)), key=lambda r: (r.time_ns, r.request, r.engine))
    number = {(r.engine, r.request): index for index, r in enumerate(arrivals)}
    for record in told:
        if isinstance(record, Arrive | Reject | Abort):
            record.request = number[record.engine, record.request]
        elif isinstance(record, Turn):
            where = record.engine
            for field in ("first", "finished", "skipped", "preempted"):
                setattr(record, field, tuple(number[where, request] for request in getattr(record, field)))
            for field in ("late", "admitted", "chunks"):
                setattr(record, field, tuple((number[where, who], *rest) for who, *rest in getattr(record, field)))
    first, last = records[0], records[-1]
    assert isinstance(first, Header) and isinstance(last, End)
    counts = ("arrived", "completed", "aborted", "steps")
    end = msgspec.structs.replace(last, **{n: 2 * getattr(last, n) for n in counts})
    router = RouterFacts(policy=RoutingPolicy.ROUND_ROBIN)
    return in_order([msgspec.structs.replace(first, engines=2, router=router), *told, end])


def test_two_engines_are_judged_side_by_side() -> None:
    dice = random.Random(0)
    for folder, _, records in _logs(PLAIN)[::16]:
        # names break ties of priority, quotes name requests: both would have to be told apart
        if json.loads((folder / "input.json").read_text())["engine"]["policy"] == "priority":
            continue
        if any(isinstance(record, Arrive) and record.quotable for record in records):
            continue
        both = _on_two_engines(records)
        assert violation(both) is None, (folder, str(violation(both)))
        place = dice.choice([n for n, record in enumerate(both) if isinstance(record, Turn | Stretch)])
        error = violation(changed(both, place, engine=1 - both[place].engine))
        assert error is not None, (folder, both[place])
