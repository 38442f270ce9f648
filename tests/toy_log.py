"""A log written from explicit token times, so that every number of it is known without reading it.

There is no scheduler here: a random timetable says which step gives which request a token. The log is what an engine
that did exactly this would have written; the token times stay in the requests, for a test to compute with.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

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
    Header,
    Reject,
    RejectReason,
    SchedulingPolicy,
    Stretch,
    Turn,
)

MAX_MODEL_LEN = 500
POOL_BLOCKS = 1000


class ToyStep(msgspec.Struct):
    decided_ns: int
    start_ns: int
    duration_ns: int

    @property
    def end_ns(self) -> int:
        return self.start_ns + self.duration_ns


class ToyRequest(msgspec.Struct):
    """`start_step` schedules it first, `token_steps` gave its tokens; steps in between chunk, skip or preempt it."""

    arrival_ns: int
    input_tokens: int
    asked_tokens: int
    start_step: int = -1
    hit_tokens: int = 0
    token_steps: list[int] = []  # msgspec copies an empty literal default for each request
    preempting: bool = False
    abort_ns: int | None = None
    rejected: bool = False


def header(*, asynchronous: bool = False, max_num_seqs: int = 64) -> Header:
    limits = EngineLimits(
        version=EngineVersion.V021,
        max_num_seqs=max_num_seqs,
        max_num_batched_tokens=2048,
        block_size=16,
        num_blocks=POOL_BLOCKS + 1,
        max_model_len=MAX_MODEL_LEN,
        enable_prefix_caching=True,
        enable_chunked_prefill=True,
        long_prefill_token_threshold=0,
        scheduler_reserve_full_isl=True,
        async_scheduling=asynchronous,
        policy=SchedulingPolicy.FCFS,
    )
    return Header(
        seq=0,
        time_ns=0,
        schema=SCHEMA,
        revision=REVISION,
        isim_version="0",
        scenario_digest="ab" * 32,
        seed=1,
        max_events=10**8,
        engines=1,
        engine=limits,
    )


def numbered(records: Sequence[AnyRecord]) -> list[AnyRecord]:
    """The records in order of time and rank, numbered."""
    ordered = sorted(records, key=lambda record: (record.time_ns, record.RANK))
    for sequence, record in enumerate(ordered):
        record.seq = sequence
    return ordered


class Toy(msgspec.Struct):
    """A timetable. `free_blocks` of every record is arbitrary: `free[step]` after the decision of that step."""

    steps: list[ToyStep]
    requests: list[ToyRequest]
    asynchronous: bool
    free: list[int]

    def records(self, rng: random.Random) -> list[AnyRecord]:
        """The log; `rng` decides where stretches are cut."""
        records: list[AnyRecord] = [header(asynchronous=self.asynchronous)]
        for index, request in enumerate(self.requests):
            records.append(
                Arrive(
                    time_ns=request.arrival_ns,
                    request=index,
                    id=f"r{index}",
                    prompt_tokens=request.input_tokens,
                    output_tokens=request.asked_tokens,
                )
            )
            if request.rejected:
                reason = RejectReason.PROMPT_TOO_LONG
                records.append(Reject(time_ns=request.arrival_ns, request=index, reason=reason))
            if request.abort_ns is not None:
                records.append(Abort(time_ns=request.abort_ns, request=index))
        records += self._engine(rng)
        statuses = [self._left(request) for request in self.requests]
        last_ns = max([record.time_ns for record in records] + [step.end_ns for step in self.steps])
        records.append(
            End(
                time_ns=last_ns,
                arrived=len(statuses),
                completed=statuses.count("completed"),
                rejected=statuses.count("rejected"),
                aborted=statuses.count("aborted"),
                unfinished=0,
                steps=len(self.steps),
            )
        )
        return numbered(records)

    def delivered(self, request: ToyRequest) -> list[int]:
        """The steps whose token reached the requester."""
        if request.abort_ns is None:
            return request.token_steps
        return [step for step in request.token_steps if self.steps[step].end_ns <= request.abort_ns]

    @staticmethod
    def _left(request: ToyRequest) -> str:
        if request.rejected:
            return "rejected"
        return "completed" if request.abort_ns is None else "aborted"

    def _engine(self, rng: random.Random) -> list[AnyRecord]:
        moments: list[tuple[int, int, int]] = []
        for number, step in enumerate(self.steps):
            moments += [(step.decided_ns, 1, number), (step.end_ns, 0, number)]
        records: list[AnyRecord] = []
        stretch: Stretch | None = None
        output: Turn | None = None
        for time_ns, is_decision, number in sorted(moments):
            if output is not None and (output.time_ns < time_ns or not is_decision):
                records.append(output)
                output = None
            if is_decision:
                turn = self._decision(number)
                if turn is None and output is None and stretch is not None and self._extends(stretch, number, rng):
                    stretch.steps += 1
                    stretch.durations_ns.append(self.steps[number].duration_ns)
                    stretch.free_blocks = self.free[number]
                    continue
                if stretch is not None:
                    records.append(_closed(stretch, time_ns))
                    stretch = None
                if turn is None:
                    if output is not None:
                        records.append(output)
                        output = None
                    stretch = self._quiet(number)
                elif output is not None:
                    turn.ended, turn.first, turn.late, turn.finished = (
                        output.ended,
                        output.first,
                        output.late,
                        output.finished,
                    )
                    records.append(turn)
                    output = None
                else:
                    records.append(turn)
            else:
                output = self._output(number)
                if output is not None and stretch is not None:
                    records.append(_closed(stretch, time_ns))
                    stretch = None
        if stretch is not None:
            records.append(_closed(stretch, self.steps[-1].end_ns))
        if output is not None:
            records.append(output)
        return records

    def _extends(self, stretch: Stretch, number: int, rng: random.Random) -> bool:
        step, before = self.steps[number], self.steps[number - 1]
        same = len(self._members(number)) == stretch.batch and step.start_ns == before.end_ns
        return same and stretch.step + stretch.steps == number and rng.random() < 0.8

    def _members(self, number: int) -> list[int]:
        """Requests scheduled in this step, those with a token in flight at their abort included."""
        members = []
        for index, request in enumerate(self.requests):
            decided_ns = self.steps[number].decided_ns
            if request.abort_ns is not None and request.abort_ns <= decided_ns:
                continue
            chunk = request.token_steps and request.start_step <= number < request.token_steps[0]
            if chunk or number in request.token_steps:
                members.append(index)
        return members

    def _quiet(self, number: int) -> Stretch:
        members = self._members(number)
        return Stretch(
            time_ns=0,
            step=number,
            steps=1,
            schedule_ns=self.steps[number].decided_ns,
            durations_ns=[self.steps[number].duration_ns],
            batch=len(members),
            context=0,
            running=len(members),
            free_blocks=self.free[number],
        )

    def _decision(self, number: int) -> Turn | None:
        """The turn of this decision; None when every member gets its one decode token and nobody else is named."""
        members = self._members(number)
        decided_ns = self.steps[number].decided_ns
        turn = Turn(
            time_ns=decided_ns,
            step=number,
            duration_ns=self.steps[number].duration_ns,
            scheduled=len(members),
            running=len(members),
            waiting=0,
            free_blocks=self.free[number],
        )
        for index, request in enumerate(self.requests):
            steps = request.token_steps
            if not steps or (request.abort_ns is not None and request.abort_ns <= decided_ns):
                continue
            last = max([step for step in steps if step < number], default=None)
            if number == request.start_step:
                turn.admitted += ((index, request.hit_tokens, 2),)
            elif request.start_step < number <= steps[0]:
                turn.chunks += ((index, 2),)
            elif last is not None and last < number < steps[-1] and number not in steps:
                if not request.preempting:
                    turn.skipped += (index,)
                elif last == number - 1:
                    turn.preempted += (index,)
            elif request.preempting and last is not None and number in steps and last < number - 1:
                turn.admitted += ((index, 1, 2),)
        turn.sampled = sum(number in self.requests[index].token_steps for index in members)
        turn.tokens = len(members) + len(turn.admitted) + len(turn.chunks)
        named = turn.admitted or turn.chunks or turn.skipped or turn.preempted
        return turn if named or not members else None

    def _output(self, number: int) -> Turn | None:
        turn = Turn(time_ns=self.steps[number].end_ns, ended=number, running=0, waiting=0, free_blocks=POOL_BLOCKS)
        for index, request in enumerate(self.requests):
            steps = request.token_steps
            if number not in self.delivered(request):
                continue
            place = steps.index(number)
            if place == 0:
                turn.first += (index,)
            elif steps[place - 1] != number - 1:
                turn.late += ((index, steps[place - 1]),)
            if number == steps[-1]:
                turn.finished += (index,)
        return turn if turn.first or turn.late or turn.finished else None


def _closed(stretch: Stretch, time_ns: int) -> Stretch:
    stretch.time_ns = time_ns
    if len(set(stretch.durations_ns)) == 1:
        stretch.durations_ns = stretch.durations_ns[:1]
    return stretch


def random_toy(seed: int) -> tuple[Toy, list[AnyRecord]]:
    """A random timetable and its log: chunks, holes, preemptions, aborts, rejections, idle gaps, ties."""
    rng = random.Random(seed)
    asynchronous = rng.random() < 0.5
    requests = [_random_request(rng, step) for step in sorted(rng.randrange(40) for _ in range(rng.randrange(1, 12)))]
    last = max(step for request in requests for step in request.token_steps)
    steps: list[ToyStep] = []
    for number in range(last + 1):
        before_ns = steps[-1].end_ns if steps else 0
        busy = any(request.start_step < number <= request.token_steps[-1] for request in requests)
        idle_ns = 0 if busy else rng.randrange(4) * 10
        chained = asynchronous and steps and idle_ns == 0
        start_ns = before_ns + idle_ns
        decided_ns = steps[-1].start_ns if chained else start_ns
        steps.append(ToyStep(decided_ns=decided_ns, start_ns=start_ns, duration_ns=10 * rng.choice((1, 1, 1, 2, 7))))
    for request in requests:
        request.arrival_ns = max(0, steps[request.start_step].decided_ns - 10 * rng.randrange(5))
        if rng.random() < 0.2:
            request.abort_ns = max(
                steps[request.start_step].decided_ns + 1,
                steps[rng.choice(request.token_steps)].end_ns - rng.choice((0, 0, 5)),
            )
            if request.abort_ns >= steps[request.token_steps[-1]].end_ns:
                request.abort_ns = None
    if rng.random() < 0.5:
        requests.append(ToyRequest(arrival_ns=rng.randrange(300), input_tokens=600, asked_tokens=5, rejected=True))
    requests.sort(key=lambda request: request.arrival_ns)
    free = [rng.randrange(POOL_BLOCKS + 1) for _ in steps]
    toy = Toy(steps=steps, requests=requests, asynchronous=asynchronous, free=free)
    return toy, toy.records(rng)


def _random_request(rng: random.Random, start_step: int) -> ToyRequest:
    first = start_step + rng.choice((0, 0, 0, 1, 3))
    tokens = [first]
    for _ in range(rng.choice((0, 1, 5, 20))):
        tokens.append(tokens[-1] + rng.choice((1,) * 12 + (2, 4)))
    return ToyRequest(
        arrival_ns=0,
        input_tokens=rng.randrange(1, 400),
        asked_tokens=len(tokens),
        start_step=start_step,
        hit_tokens=rng.choice((0, 16)),
        token_steps=tokens,
        preempting=rng.random() < 0.5,
    )
