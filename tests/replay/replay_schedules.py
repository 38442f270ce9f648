"""Turns a recorded schedule of the real scheduler into the log that an engine would have written of it.

Nothing is scheduled here: who ran, who was preempted, what was free comes from the recording. Added are only time
(every step takes some nanoseconds, calls without tokens take none) and the log's way of telling.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from isim.record.records import (
    REVISION,
    SCHEMA,
    Abort,
    AnyRecord,
    Arrive,
    End,
    EngineLimits,
    EngineVersion,
    GroupKind,
    GroupLimits,
    Header,
    SchedulingPolicy,
    Stretch,
    Turn,
)

SHARED = Path(__file__).parents[2].parent / "shared" / "reference" / "vllm-schedules"
VERSIONS = {"0.21.0": EngineVersion.V021, "0.33.0": EngineVersion.V033}
_NOT_FOR_US = ("hyb-cl-", "pp-", "stall-")
_STATES = {"none": GroupKind.STATE, "align": GroupKind.ALIGNED_STATE}
_IDLE_NS = 5


class Untellable(Exception):  # noqa: N818 - a property of the recording, no error
    """The recording tells apart what has one instant in time."""


def cases() -> Iterator[Path]:
    """Folders of the recordings that this engine covers."""
    for version in VERSIONS:
        for folder in sorted((SHARED / version).iterdir()):
            if folder.name.startswith(_NOT_FOR_US):
                continue
            if not json.loads((folder / "input.json").read_text())["engine"].get("extra"):
                yield folder


def header(engine: dict[str, Any], version: EngineVersion) -> Header:
    return Header(
        time_ns=0,
        schema=SCHEMA,
        revision=REVISION,
        isim_version="recorded",
        scenario_digest="",
        seed=0,
        max_events=1_000_000,
        engines=1,
        engine=EngineLimits(
            version=version,
            max_num_seqs=engine["max_num_seqs"],
            max_num_batched_tokens=engine["max_num_batched_tokens"],
            block_size=engine["block_size"],
            num_blocks=engine["num_gpu_blocks"],
            max_model_len=engine["max_model_len"],
            enable_prefix_caching=engine["enable_prefix_caching"],
            enable_chunked_prefill=engine["enable_chunked_prefill"],
            long_prefill_token_threshold=engine["long_prefill_token_threshold"],
            scheduler_reserve_full_isl=engine["scheduler_reserve_full_isl"],
            async_scheduling=engine["async_scheduling"],
            policy=SchedulingPolicy(engine["policy"]),
            groups=tuple(_group(told, engine["block_size"]) for told in engine.get("kv_cache_groups", ())),
        ),
    )


def _group(told: dict[str, Any], block_size: int) -> GroupLimits:
    kind = _STATES[told["mamba_cache_mode"]] if told["kind"] == "mamba" else GroupKind(told["kind"])
    size, window_tokens = told.get("block_size", block_size), told.get("sliding_window", 0)
    return GroupLimits(kind=kind, block_size=size, window_tokens=window_tokens)


def _place(record: AnyRecord) -> tuple[int, int, int]:
    if isinstance(record, Header | End):
        return (record.time_ns, record.RANK, 0)
    if isinstance(record, Turn | Stretch):
        return (record.time_ns, record.RANK, record.engine)
    return (record.time_ns, record.RANK, record.request)


def in_order(records: list[AnyRecord]) -> list[AnyRecord]:
    """Records as a log has them: by time, rank and request or engine, and numbered."""
    ordered = sorted(records, key=_place)
    for number, record in enumerate(ordered):
        record.seq = number
    return ordered


class Telling(msgspec.Struct, kw_only=True):
    """How the log is to be told: durations by step, the longest stretch, whether prompts nobody shares are named."""

    duration_ns: Callable[[int], int] = lambda step: 1
    max_stretch: int = 1_000_000
    hide_private: bool = False


class Converter:
    """Follows the calls of one recording in their order."""

    def __init__(self, folder: Path, telling: Telling | None = None) -> None:
        self.input = json.loads((folder / "input.json").read_text())
        self.expected = json.loads(gzip.decompress((folder / "expected.json.gz").read_bytes()))
        self.telling = telling or Telling()
        engine = self.input["engine"]
        self.records: list[AnyRecord] = []
        self.records.append(header(engine, VERSIONS[folder.parent.name]))
        self.requests = {request["id"]: request for request in self.input["requests"]}
        limit = engine["max_model_len"]
        self.outputs = {n: min(r["output_len"], limit - r["prompt_len"]) for n, r in self.requests.items()}
        self.index: dict[str, int] = {}
        self.computed: dict[str, int] = {}
        self.target: dict[str, int] = {}
        self.sampled = dict.fromkeys(self.requests, 0)
        self.token_step: dict[str, int] = {}
        self.left: dict[str, str] = {}
        self.now_ns = 0
        self.asked_ns = -1
        self.end_ns = 0
        self.steps = 0
        self.flight: dict[int, tuple[int, int]] = {}
        self.outcome: dict[str, Any] = {}
        self.stretch: Stretch | None = None
        self.least = 0
        self.free_blocks = 0
        self.shared = self._shared_groups()

    def convert(self) -> list[AnyRecord]:
        calls = {call["step"]: call for call in self.expected["steps"]}
        for event in self.expected["order"]:
            call = calls[int(event[1:])]
            if event[0] == "s":
                self._schedule(call)
            else:
                self._update(call)
        if self.outcome or self.stretch:
            last = self.expected["steps"][-1]["update"]
            self._turn(
                Turn(
                    time_ns=self.now_ns,
                    running=len(last["running"]),
                    waiting=len(last["waiting"]),
                    free_blocks=last["free_blocks"],
                )
            )
        gone = list(self.left.values())
        if len(gone) < len(self.requests):
            raise Untellable("the recording stops before all requests are done")
        self.records.append(
            End(
                time_ns=self.now_ns,
                arrived=len(self.index),
                completed=gone.count("length"),
                rejected=0,
                aborted=gone.count("abort"),
                unfinished=0,
                steps=self.steps,
            )
        )
        return in_order(self.records)

    def _shared_groups(self) -> dict[str, int]:
        """How many requests name each group of tokens in their prompt or make it as output."""
        counts: dict[str, int] = {}
        for name, request in self.requests.items():
            groups = {group: None for group, _, _ in request["prompt_segments"]}
            for group in [*groups, f"o:{name}"]:
                counts[group] = counts.get(group, 0) + 1
        return counts

    def _schedule(self, call: dict[str, Any]) -> None:
        idle = self.asked_ns == self.now_ns and not self.flight and len(self.left) == len(self.index)
        if idle and call["added"]:
            self.now_ns += _IDLE_NS
        if (call["added"] or call["aborted"]) and self.asked_ns == self.now_ns:
            raise Untellable("something came between two calls of one instant")
        self.asked_ns = self.now_ns
        for name in call["added"]:
            self._arrive(name)
        for name in call["aborted"]:
            if name in self.index and name not in self.left:
                self.left[name] = "abort"
                self.records.append(Abort(time_ns=self.now_ns, request=self.index[name]))
        self._decide(call)

    def _arrive(self, name: str) -> None:
        request = self.requests[name]
        segments = request["prompt_segments"]
        private = self.telling.hide_private and all(self.shared[group] == 1 for group, _, _ in segments)
        blocks = -(-(request["prompt_len"] + self.outputs[name] - 1) // self.input["engine"]["block_size"])
        if blocks >= self.input["engine"]["num_gpu_blocks"]:
            raise Untellable("a request that never fits is rejected here, and waits in the recording")
        self.index[name] = len(self.index)
        self.records.append(
            Arrive(
                time_ns=self.now_ns,
                request=self.index[name],
                id=name,
                prompt_tokens=request["prompt_len"],
                output_tokens=request["output_len"],
                priority=request["priority"],
                order_time=request["arrival_time"],
                prompt=None if private else [(group, start, count) for group, start, count in segments],
                quotable=self.shared[f"o:{name}"] > 1,
            )
        )

    def _decide(self, call: dict[str, Any]) -> None:
        """One schedule() call: a turn, a step of a stretch, or nothing to tell."""
        entries = call["scheduled"]
        turn = Turn(
            time_ns=self.now_ns,
            running=len(call["running"]),
            waiting=len(call["waiting"]),
            free_blocks=call["free_blocks"],
        )
        for name, tokens, before, kind in entries:
            if kind != "running":
                admissions = self.expected["requests"][name]["admissions"]
                self.target[name] = next(a["num_tokens_then"] for a in admissions if a["step"] == call["step"])
                turn.admitted += ((self.index[name], before, tokens),)
            elif before < self.target[name]:
                turn.chunks += ((self.index[name], tokens),)
            self.computed[name] = before + tokens
        turn.preempted = tuple(self.index[name] for name in call["preempted"])
        turn.skipped = tuple(self._skipped(call))
        for name in call["sampled"]:
            self.sampled[name] += 1
        context = sum(before for _, _, before, _ in entries)
        steady = bool(entries) and not (turn.admitted or turn.chunks or turn.preempted or turn.skipped)
        if steady:
            if self.outcome:
                turn.free_blocks = self.free_blocks
            self._steady(turn, len(entries), context, call["free_blocks"])
        else:
            if entries:
                turn.step, turn.duration_ns = self.steps, self.telling.duration_ns(self.steps)
                turn.scheduled, turn.tokens = len(entries), call["total_scheduled"]
                turn.sampled, turn.context = len(call["sampled"]), context
            if self.outcome or entries or turn.preempted:
                self._turn(turn)
            else:
                self._flush()
        if entries:
            self.end_ns = max(self.now_ns, self.end_ns) + self.telling.duration_ns(self.steps)
            self.flight[call["step"]] = (self.steps, self.end_ns)
            self.steps += 1

    def _skipped(self, call: dict[str, Any]) -> list[int]:
        served = {name for name, *_ in call["scheduled"]}
        return [
            self.index[name]
            for name in call["running"]
            if name not in served
            and self.sampled[name] < self.outputs[name]
            and self.computed[name] < self.requests[name]["prompt_len"] + self.sampled[name]
        ]

    def _steady(self, turn: Turn, batch: int, context: int, free_blocks: int) -> None:
        if self.outcome:
            self._turn(turn)
        stretch, duration_ns = self.stretch, self.telling.duration_ns(self.steps)
        if stretch and stretch.batch == batch and stretch.steps < self.telling.max_stretch:
            stretch.steps += 1
            stretch.durations_ns.append(duration_ns)
            stretch.free_blocks = free_blocks
            self.least = min(self.least, free_blocks)
            return
        self._flush()
        self.least = free_blocks
        self.stretch = Stretch(
            time_ns=0,
            step=self.steps,
            steps=1,
            schedule_ns=self.now_ns,
            durations_ns=[duration_ns],
            batch=batch,
            context=context,
            running=turn.running,
            free_blocks=free_blocks,
        )

    def _update(self, call: dict[str, Any]) -> None:
        if call["step"] not in self.flight:
            return
        step, self.now_ns = self.flight.pop(call["step"])
        update = call["update"]
        self.free_blocks = update["free_blocks"]
        first: list[int] = []
        late: list[tuple[int, int]] = []
        for name in update["emitted"]:
            before = self.token_step.get(name)
            if before is None:
                first.append(self.index[name])
            elif before != step - 1:
                late.append((self.index[name], before))
            self.token_step[name] = step
        for name in update["finished"]:
            self.left[name] = "length"
        if first or late or update["finished"]:
            finished = [self.index[name] for name in update["finished"]]
            self.outcome = {"ended": step, "first": tuple(first), "late": tuple(late), "finished": tuple(finished)}

    def _turn(self, turn: Turn) -> None:
        self._flush()
        for field, value in self.outcome.items():
            setattr(turn, field, value)
        self.outcome = {}
        if turn.ended is not None or turn.step is not None or turn.preempted:
            self.records.append(turn)

    def _flush(self) -> None:
        stretch = self.stretch
        if stretch is not None:
            if len(set(stretch.durations_ns)) == 1:
                stretch.durations_ns = stretch.durations_ns[:1]
            stretch.time_ns = self.now_ns
            if self.least < stretch.free_blocks:
                stretch.least_free_blocks = self.least
            self.records.append(stretch)
            self.stretch = None
