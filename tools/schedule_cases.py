"""Recorded schedules of the real vLLM scheduler, and the loop that plays them against a scheduler of ours.

A folder of cases holds `<version>/<case>/input.json` and `expected.json.gz`; its own README explains every field
and the loop: additions, aborts, schedule, a queue of steps in flight, update of the oldest, jumps over idle time.
`play` is that loop. It knows nothing of how a scheduler works, and whoever satisfies `Driver` can be judged by it.

Not covered are chunked-local attention, pipeline parallelism, requests that a real engine would refuse at start
(`stall-*`), and engine options that isim does not have (a non-empty `engine.extra`).
"""

from __future__ import annotations

import gzip
from collections import deque
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Protocol

import msgspec

from isim.record.errors import IsimError
from isim.record.records import EngineLimits, EngineVersion, GroupKind, GroupLimits, SchedulingPolicy

VERSION_FOLDERS = {"0.21.0": EngineVersion.V021, "0.33.0": EngineVersion.V033}
UNCOVERED_NAMES = ("hyb-cl-", "stall-")
UNCOVERED_CATEGORIES = ("pp",)
GROUP_KINDS = {
    ("full", "none"): GroupKind.FULL,
    ("sliding", "none"): GroupKind.SLIDING,
    ("mamba", "none"): GroupKind.STATE,
    ("mamba", "align"): GroupKind.ALIGNED_STATE,
}


class CasesMissing(IsimError):  # noqa: N818 - it names a state of the folder, as a person would say it
    """The folder given holds no recorded cases."""


class CaseRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request of a case; `arrival_time` is only what ties between equal priorities compare."""

    id: str
    arrival_step: int
    arrival_time: int
    prompt_len: int
    output_len: int
    priority: int
    prompt_segments: list[tuple[str, int, int]]


class CaseAbort(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    step: int


class ExpectedUpdate(msgspec.Struct, frozen=True, kw_only=True):
    """What processing the output of the step did."""

    emitted: list[str]
    finished: list[str]
    running: list[str]
    waiting: list[str]
    free_blocks: int


class ExpectedStep(msgspec.Struct, frozen=True, kw_only=True):
    """One schedule() call, by its step number, and the later update of the same step."""

    step: int
    added: list[str]
    aborted: list[str]
    scheduled: list[tuple[str, int, int, str]]
    preempted: list[str]
    lookups: list[tuple[str, int]]
    sampled: list[str]
    running: list[str]
    waiting: list[str]
    free_blocks: int
    update: ExpectedUpdate


class ExpectedFinal(msgspec.Struct, frozen=True, kw_only=True):
    free_block_order: list[int]


class Expected(msgspec.Struct, frozen=True, kw_only=True):
    steps: list[ExpectedStep]
    order: list[str]
    final: ExpectedFinal


class _Group(msgspec.Struct, frozen=True, kw_only=True):
    kind: str
    block_size: int = 0
    sliding_window: int = 0
    mamba_cache_mode: str = "none"
    attention_chunk_size: int = 0

    def limits(self, block_size: int) -> GroupLimits:
        kind = GROUP_KINDS[self.kind, self.mamba_cache_mode]
        return GroupLimits(kind=kind, block_size=self.block_size or block_size, window_tokens=self.sliding_window)


class _Engine(msgspec.Struct, frozen=True, kw_only=True):
    max_num_seqs: int
    max_num_batched_tokens: int
    block_size: int
    num_gpu_blocks: int
    enable_prefix_caching: bool
    enable_chunked_prefill: bool
    long_prefill_token_threshold: int
    policy: SchedulingPolicy
    async_scheduling: bool
    scheduler_reserve_full_isl: bool
    max_model_len: int
    extra: dict[str, object] = {}
    kv_cache_groups: list[_Group] = []


class _Input(msgspec.Struct, frozen=True, kw_only=True):
    case: str
    category: str
    engine: _Engine
    requests: list[CaseRequest]
    max_steps: int
    aborts: list[CaseAbort] = []


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """A covered case: `name` is `<version folder>/<case>`."""

    name: str
    folder: Path
    limits: EngineLimits
    requests: list[CaseRequest]
    aborts: list[CaseAbort]
    max_steps: int

    def expected(self) -> Expected:
        """Read what the real scheduler did."""
        with gzip.open(self.folder / "expected.json.gz") as file:
            return msgspec.json.decode(file.read(), type=Expected)


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """The first place where a driver left the recorded schedule; `step` -1 is about the whole case."""

    case: str
    step: int
    field: str
    expected: object
    found: object

    def __str__(self) -> str:
        where = f"step {self.step}" if self.step >= 0 else "whole case"
        return f"{self.case}: {where}: {self.field}: expected {self.expected}, found {self.found}"


class StepDecision(Protocol):
    """What one schedule() call decided: `scheduled` entries are (id, tokens, computed before, kind)."""

    @property
    def scheduled(self) -> Sequence[tuple[str, int, int, str]]: ...
    @property
    def preempted(self) -> Sequence[str]: ...
    @property
    def lookups(self) -> Sequence[tuple[str, int]]: ...
    @property
    def sampled(self) -> Sequence[str]: ...


class Driver(Protocol):
    """A scheduler that can be played against a recorded case. Requests go by their string ids."""

    def add(self, request: CaseRequest, /) -> None: ...
    def abort(self, request_id: str, /) -> None: ...
    def has_requests(self) -> bool:
        """Whether a schedule() call is due: unfinished requests, or finished ones not told of by a call yet."""
        ...

    def schedule(self) -> StepDecision: ...
    def update(self) -> tuple[Sequence[str], Sequence[str]]:
        """Process the output of the oldest scheduled step: ids that got a token, ids that finished."""
        ...

    def running(self) -> Sequence[str]: ...
    def waiting(self) -> Sequence[str]: ...
    def free_blocks(self) -> int: ...
    def free_block_order(self) -> Sequence[int]: ...


def load_cases(folder: Path) -> tuple[list[Case], list[str]]:
    """All covered cases below `folder` in the order of their names, and the names of those not covered.

    Raises `CasesMissing` when there is no case at all.
    """
    covered: list[Case] = []
    uncovered: list[str] = []
    for path, version in _case_folders(folder):
        given = msgspec.json.decode((path / "input.json").read_bytes(), type=_Input)
        name = f"{path.parent.name}/{given.case}"
        if _is_covered(given):
            covered.append(_case(name, path, version, given))
        else:
            uncovered.append(name)
    if not covered and not uncovered:
        folders = " or ".join(f"{name}/<case>/input.json" for name in VERSION_FOLDERS)
        raise CasesMissing(f"{folder}: expected recorded schedules in {folders}, found none; give their folder")
    return covered, uncovered


def _case_folders(folder: Path) -> Iterator[tuple[Path, EngineVersion]]:
    for name, version in VERSION_FOLDERS.items():
        for path in sorted((folder / name).glob("*/input.json")):
            yield path.parent, version


def _is_covered(given: _Input) -> bool:
    engine = given.engine
    return not (given.case.startswith(UNCOVERED_NAMES) or given.category in UNCOVERED_CATEGORIES or engine.extra)


def _case(name: str, folder: Path, version: EngineVersion, given: _Input) -> Case:
    engine = given.engine
    limits = EngineLimits(
        version=version,
        max_num_seqs=engine.max_num_seqs,
        max_num_batched_tokens=engine.max_num_batched_tokens,
        block_size=engine.block_size,
        num_blocks=engine.num_gpu_blocks,
        max_model_len=engine.max_model_len,
        enable_prefix_caching=engine.enable_prefix_caching,
        enable_chunked_prefill=engine.enable_chunked_prefill,
        long_prefill_token_threshold=engine.long_prefill_token_threshold,
        scheduler_reserve_full_isl=engine.scheduler_reserve_full_isl,
        async_scheduling=engine.async_scheduling,
        policy=engine.policy,
        groups=tuple(group.limits(engine.block_size) for group in engine.kv_cache_groups),
    )
    return Case(
        name=name,
        folder=folder,
        limits=limits,
        requests=given.requests,
        aborts=given.aborts,
        max_steps=given.max_steps,
    )


class _Mismatch(Exception):  # noqa: N818 - control flow inside `play`, never seen outside
    def __init__(self, step: int, field: str, expected: object, found: object) -> None:
        super().__init__(step, field, expected, found)
        self.step, self.field, self.expected, self.found = step, field, expected, found


def play(case: Case, driver: Driver) -> Difference | None:
    """Run the recorder's loop over `driver`; None when everything it did is what was recorded."""
    try:
        _Player(case, driver).run()
    except _Mismatch as mismatch:
        return Difference(
            case=case.name,
            step=mismatch.step,
            field=mismatch.field,
            expected=mismatch.expected,
            found=mismatch.found,
        )
    return None


def _compare(step: int, expected: object, found: dict[str, object]) -> None:
    for field, value in found.items():
        if getattr(expected, field) != value:
            raise _Mismatch(step, field, getattr(expected, field), value)


def _compare_long(field: str, expected: Sequence[object], found: Sequence[object]) -> None:
    for index, (wanted, got) in enumerate(zip_longest(expected, found)):
        if wanted != got:
            raise _Mismatch(-1, f"{field}[{index}]", wanted, got)


class _Player:
    """One run of the loop. `queue` holds the expectations of the steps in flight, oldest first."""

    def __init__(self, case: Case, driver: Driver) -> None:
        self.case, self.driver = case, driver
        self.expected = case.expected()
        self.depth = 2 if case.limits.async_scheduling else 1
        self.arrivals = deque(sorted(case.requests, key=lambda request: request.arrival_step))
        self.aborts = deque(sorted(case.aborts, key=lambda abort: abort.step))
        self.queue: deque[ExpectedStep] = deque()
        self.order: list[str] = []
        self.calls = 0
        self.step = 0

    def run(self) -> None:
        while self.step < self.case.max_steps:
            added, aborted = self._add(), self._abort()
            if self.driver.has_requests():
                if self._schedule(added, aborted):
                    continue
                self._update()
            elif self.queue:
                self._update()
            elif self.arrivals:
                self.step = self.arrivals[0].arrival_step
            else:
                break
        if self.calls < len(self.expected.steps):
            raise _Mismatch(self.expected.steps[self.calls].step, "step", "a schedule() call", "no requests left")
        _compare_long("order", self.expected.order, self.order)
        _compare_long("free_block_order", self.expected.final.free_block_order, self.driver.free_block_order())

    def _add(self) -> list[str]:
        added = []
        while self.arrivals and self.arrivals[0].arrival_step <= self.step:
            request = self.arrivals.popleft()
            self.driver.add(request)
            added.append(request.id)
        return added

    def _abort(self) -> list[str]:
        aborted = []
        while self.aborts and self.aborts[0].step <= self.step:
            abort = self.aborts.popleft()
            self.driver.abort(abort.id)
            aborted.append(abort.id)
        return aborted

    def _schedule(self, added: list[str], aborted: list[str]) -> bool:
        """One schedule() call; True when the turn ends without an update."""
        if self.calls == len(self.expected.steps):
            raise _Mismatch(self.step, "step", "the end of the recording", "one more schedule() call")
        driver, expected = self.driver, self.expected.steps[self.calls]
        decision = driver.schedule()
        found = {
            "step": self.step,
            "added": added,
            "aborted": aborted,
            "preempted": list(decision.preempted),
            "lookups": [tuple(lookup) for lookup in decision.lookups],
            "scheduled": [tuple(entry) for entry in decision.scheduled],
            "sampled": list(decision.sampled),
            "running": list(driver.running()),
            "waiting": list(driver.waiting()),
            "free_blocks": driver.free_blocks(),
        }
        _compare(self.step, expected, found)
        self.queue.append(expected)
        self.order.append(f"s{self.step}")
        self.calls += 1
        self.step += 1
        waits = bool(decision.scheduled) or (self.case.limits.version is EngineVersion.V033 and driver.has_requests())
        return waits and len(self.queue) < self.depth

    def _update(self) -> None:
        driver, expected = self.driver, self.queue.popleft()
        emitted, finished = driver.update()
        found = {
            "emitted": list(emitted),
            "finished": list(finished),
            "running": list(driver.running()),
            "waiting": list(driver.waiting()),
            "free_blocks": driver.free_blocks(),
        }
        _compare(expected.step, expected.update, found)
        self.order.append(f"u{expected.step}")
