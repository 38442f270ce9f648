"""What happened: one class per kind of record, and the table that lists them all.

A log is a sequence of records. The first is a `Header`: it holds every limit, pool size and fact that a
checker needs, so that a log is judged from itself alone. The last is an `End`. In between, records are
ordered by (time, rank, key) and numbered without gaps.

Time is integer nanoseconds since the start of the run. A request is named by its index in arrival order.

The engine's work is told in two kinds. A `Turn` is a moment at which something was decided or came out
that does not follow from "every running request that has a token due gets one": an admission, a chunk of
prefill, a preemption, a first token, a finish. A `Stretch` is a run of `steps` steps about which nothing
else needs saying: every step schedules the same `batch` requests for one token each. Totals are stated,
members never are: they follow from the turns.

Steps are numbered from 0 per engine; only steps that schedule tokens are steps. A step's duration is the
time it holds the device. With synchronous scheduling a step starts when it is scheduled. With asynchronous
scheduling step n is scheduled when step n - 1 starts, and starts when that ends (at once, if nothing runs).
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, ClassVar

import msgspec

SCHEMA = "isim/log"
REVISION = 1
SAFE_MAX = (1 << 53) - 1

Whole = Annotated[int, msgspec.Meta(ge=0, le=SAFE_MAX)]
"""A count, a size or a time; what a log says beyond these bounds is refused where it is read."""

MOST_ENGINES = 1024
MOST_BLOCK_TOKENS = 1 << 16
LONGEST_STRETCH = 1 << 12
"""What a log may ask whoever reads it to set room aside for: engines, tokens of a block, steps told by one record."""

Signed = Annotated[int, msgspec.Meta(ge=-SAFE_MAX, le=SAFE_MAX)]


class EngineVersion(StrEnum):
    """The vLLM generation whose scheduler is followed; "0.21" stands for 0.20 too."""

    V021 = "0.21"
    V033 = "0.33"


class SchedulingPolicy(StrEnum):
    FCFS = "fcfs"
    PRIORITY = "priority"


class RoutingPolicy(StrEnum):
    """How a router picks one of several engines.

    round_robin         request i goes to engine i modulo their number
    least_outstanding   where the fewest requests are that were sent there and have not left
    prefix_affinity     where the last request went whose prompt begins with the same shared run; else as the one above
    """

    ROUND_ROBIN = "round_robin"
    LEAST_OUTSTANDING = "least_outstanding"
    PREFIX_AFFINITY = "prefix_affinity"


class TieBreak(StrEnum):
    """Who of several equally good engines is picked: the first, or one drawn anew for each request."""

    POSITIONAL = "positional"
    SEEDED = "seeded"


class RejectReason(StrEnum):
    PROMPT_TOO_LONG = "prompt_too_long"
    """The prompt has at least `max_model_len` tokens; the engine refuses it."""
    NEVER_FITS = "never_fits"
    """At its peak the request needs more KV blocks than the pool can ever lend."""


class GroupKind(StrEnum):
    """What the layers of a KV group keep of a sequence.

    full            every token
    sliding         the last `window_tokens` tokens
    state           one recurrent state, in one block for as long as the sequence runs
    aligned_state   one recurrent state, kept at the ends of blocks too, so that others may start from there
    """

    FULL = "full"
    SLIDING = "sliding"
    STATE = "state"
    ALIGNED_STATE = "aligned_state"


class GroupLimits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One KV group: layers that share a block table. A group of kind `state` has blocks of any length."""

    kind: GroupKind
    block_size: Whole
    window_tokens: Whole = 0


class EngineLimits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything that decides what the scheduler does, in the engine's own names.

    `num_blocks` counts the null block, so `num_blocks - 1` are usable. `long_prefill_token_threshold` 0 is off.
    `groups` lists the KV groups when there is more than one full-attention group of `block_size`; all draw blocks
    from one pool.
    """

    version: EngineVersion
    max_num_seqs: Whole
    max_num_batched_tokens: Whole
    block_size: Annotated[int, msgspec.Meta(ge=0, le=MOST_BLOCK_TOKENS)]
    num_blocks: Whole
    max_model_len: Whole
    enable_prefix_caching: bool
    enable_chunked_prefill: bool
    long_prefill_token_threshold: Whole
    scheduler_reserve_full_isl: bool
    async_scheduling: bool
    policy: SchedulingPolicy
    groups: tuple[GroupLimits, ...] = ()


class RouterFacts(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The router's rule. A seeded tie is drawn with the log's seed: stream `router`, index the request.

    A request sent at an instant counts as outstanding until the engine took in the output that finished it, at an
    earlier instant than the decision that counts; one that is refused or was cancelled does not count.
    """

    policy: RoutingPolicy
    ties: TieBreak = TieBreak.POSITIONAL


class LinearCoefficients(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A step takes base + per_token x new tokens + per_request x batch + per_context_token x context.

    The coefficients are picoseconds, so that the price of one context token can be told; the sum is rounded up
    to whole nanoseconds.
    """

    base_ps: Whole
    per_token_ps: Whole
    per_request_ps: Whole
    per_context_token_ps: Whole


class Record(msgspec.Struct, kw_only=True, omit_defaults=True, forbid_unknown_fields=True, tag_field="kind"):
    """The envelope. `seq` is given by the log when the record's instant is over."""

    RANK: ClassVar[int]
    seq: Signed = -1
    time_ns: Whole


class Head(Record, kw_only=True):
    """What the first record of any log says first: what the log is."""

    schema: str
    revision: Whole


class Header(Head, kw_only=True, tag="header"):
    RANK: ClassVar[int] = -1
    isim_version: str
    scenario_digest: str
    seed: Whole
    max_events: Whole
    engines: Annotated[int, msgspec.Meta(ge=0, le=MOST_ENGINES)]
    engine: EngineLimits
    router: RouterFacts | None = None
    """None when there is nothing to choose: one engine."""
    linear_cost: LinearCoefficients | None = None
    """Given when step durations follow from the log itself; None when the cost model needs more than the log has."""
    request_overhead_ns: Whole = 0
    """How long before it arrived every request was sent by its client."""


class Arrive(Record, kw_only=True, tag="arrive"):
    """A request reached an engine. `output_tokens` is what was asked for, before the engine's own limits.

    Its client sent it `request_overhead_ns` (of the header) before `time_ns`.

    `prompt` lists runs (group, start, count): two tokens are equal exactly when group and offset are. None means
    that no other request shares any of it. `quotable` says that later prompts may quote this request's output as
    the group `o:<id>`. `order_time` is what priority ties compare, when it is not the arrival time.
    """

    RANK: ClassVar[int] = 2
    request: Whole
    id: str
    engine: Whole = 0
    prompt_tokens: Whole
    output_tokens: Whole
    priority: Signed = 0
    order_time: Signed | None = None
    prompt: list[tuple[str, Whole, Whole]] | None = None
    quotable: bool = False


class Reject(Record, kw_only=True, tag="reject"):
    """The engine refused the request at its arrival."""

    RANK: ClassVar[int] = 3
    request: Whole
    engine: Whole = 0
    reason: RejectReason


class Abort(Record, kw_only=True, tag="abort"):
    """The engine let go of a request whose client had given up; its blocks are free again.

    It does so at a moment of decision, after the output that has come by then and everybody who has arrived.
    """

    RANK: ClassVar[int] = 4
    request: Whole
    engine: Whole = 0


class Turn(Record, kw_only=True, tag="turn"):
    """A moment of the engine: the output of an ended step (`ended` ...), then a decision (`admitted` ...).

    ended      the step whose output was processed, if anything below came of it
    first      requests that got their first token from it
    late       (request, step of its token before): tokens that did not follow a token of the step before
    finished   requests that got their last token from it and left
    step       the step decided now, if it schedules tokens and is no part of a stretch
    admitted   (request, tokens found in the prefix cache, tokens scheduled), in order; new and resumed
    chunks     (request, tokens) of running requests that are scheduled for something else than one decode token
    skipped    running requests with tokens due that got none, in running order, whatever the reason
    preempted  in order
    scheduled, tokens, sampled, context   of the decided step: requests; new tokens; requests that will get a token
               from it; sum over its requests of tokens computed before the step, cache hits included
    running, waiting, free_blocks   after all of it
    """

    RANK: ClassVar[int] = 5
    engine: Whole = 0
    ended: Whole | None = None
    first: tuple[Whole, ...] = ()
    late: tuple[tuple[Whole, Whole], ...] = ()
    finished: tuple[Whole, ...] = ()
    step: Whole | None = None
    duration_ns: Whole = 0
    admitted: tuple[tuple[Whole, Whole, Whole], ...] = ()
    chunks: tuple[tuple[Whole, Whole], ...] = ()
    skipped: tuple[Whole, ...] = ()
    preempted: tuple[Whole, ...] = ()
    scheduled: Whole = 0
    tokens: Whole = 0
    sampled: Whole = 0
    context: Whole = 0
    running: Whole
    waiting: Whole
    free_blocks: Whole


class Stretch(Record, kw_only=True, tag="stretch"):
    """Steps `step` to `step + steps - 1`, each scheduling the same `batch` requests for one token each.

    `time_ns` is when the record was written, the first moment of a later decision or outcome; `schedule_ns` is when
    the first of the steps was decided. What is processed between two of these decisions brought no first token and no
    finish, but for the output of the step before the first: what that brought, if anything, a turn tells, which comes
    before this record. `durations_ns` has one entry per step, or a single one when all are equal. `context` is that of
    the first step; it grows by `batch` a step. `running` and `free_blocks` are after the last decision,
    `least_free_blocks` the fewest after any, if that is fewer.
    """

    RANK: ClassVar[int] = 5
    engine: Whole = 0
    step: Whole
    steps: Annotated[int, msgspec.Meta(ge=0, le=LONGEST_STRETCH)]
    schedule_ns: Whole
    durations_ns: list[Whole]
    batch: Whole
    context: Whole
    running: Whole
    free_blocks: Whole
    least_free_blocks: Whole | None = None


class End(Record, kw_only=True, tag="end"):
    """The run is over: every request is accounted for."""

    RANK: ClassVar[int] = 7
    arrived: Whole
    completed: Whole
    rejected: Whole
    aborted: Whole
    unfinished: Whole
    steps: Whole


AnyRecord = Header | Arrive | Reject | Abort | Turn | Stretch | End
KINDS: tuple[type[Record], ...] = (Header, Arrive, Reject, Abort, Turn, Stretch, End)
