"""Small logs worked out by hand, each with the working beside it, and ways to spoil a log."""

from __future__ import annotations

from collections.abc import Sequence
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
    Header,
    LinearCoefficients,
    Reject,
    RejectReason,
    RouterFacts,
    RoutingPolicy,
    SchedulingPolicy,
    Stretch,
    Turn,
)
from isim.replay import Replay, ReplayViolation

LIMITS = EngineLimits(
    version=EngineVersion.V021,
    max_num_seqs=2,
    max_num_batched_tokens=8,
    block_size=4,
    num_blocks=9,
    max_model_len=32,
    enable_prefix_caching=False,
    enable_chunked_prefill=True,
    long_prefill_token_threshold=0,
    scheduler_reserve_full_isl=True,
    async_scheduling=False,
    policy=SchedulingPolicy.FCFS,
)


def header(linear_cost: LinearCoefficients | None = None, **limits: Any) -> Header:
    return Header(
        time_ns=0,
        schema=SCHEMA,
        revision=REVISION,
        isim_version="by hand",
        scenario_digest="none",
        seed=7,
        max_events=1000,
        engines=1,
        engine=msgspec.structs.replace(LIMITS, **limits),
        linear_cost=linear_cost,
    )


def arrive(time_ns: int, request: int, prompt_tokens: int, output_tokens: int, **more: Any) -> Arrive:
    return Arrive(
        time_ns=time_ns,
        request=request,
        id=f"r{request}",
        prompt_tokens=prompt_tokens,
        output_tokens=output_tokens,
        **more,
    )


def turn(
    time_ns: int,
    left: tuple[int, int, int],
    decided: tuple[int, int, int, int, int, int] | None = None,
    **more: Any,
) -> Turn:
    """A turn; left: running, waiting, free blocks; decided: step, duration, requests, tokens, sampled, context."""
    if decided is not None:
        more |= dict(zip(("step", "duration_ns", "scheduled", "tokens", "sampled", "context"), decided, strict=True))
    return Turn(time_ns=time_ns, running=left[0], waiting=left[1], free_blocks=left[2], **more)


def stretch(time_ns: int, step: int, steps: int, schedule_ns: int, duration_ns: int, facts: tuple[int, ...]) -> Stretch:
    """A stretch of equal steps; facts: batch, context, running, free blocks, and the fewest of them if that differs."""
    named = dict(zip(("batch", "context", "running", "free_blocks", "least_free_blocks"), facts, strict=False))
    return Stretch(
        time_ns=time_ns, step=step, steps=steps, schedule_ns=schedule_ns, durations_ns=[duration_ns], **named
    )


def end(time_ns: int, steps: int, *, completed: int, rejected: int = 0, aborted: int = 0) -> End:
    return End(
        time_ns=time_ns,
        arrived=completed + rejected + aborted,
        completed=completed,
        rejected=rejected,
        aborted=aborted,
        unfinished=0,
        steps=steps,
    )


def numbered(records: Sequence[AnyRecord]) -> list[AnyRecord]:
    return [msgspec.structs.replace(record, seq=number) for number, record in enumerate(records)]


def routed() -> list[AnyRecord]:
    """Two engines, each request to the one with fewer, the first of equals; a step takes 10 ns. One token each.

    0 ns: r0 finds both empty and goes to engine 0, r1 finds one there and goes to engine 1; both run until 10.
    5 ns: one each, so r2 goes to engine 0 and waits. 10 ns: r3 comes before the outputs of that instant are taken in,
    finds two and one, and goes to engine 1. Then r0 and r1 finish, r2 and r3 run until 20 and finish.
    """
    facts = RouterFacts(policy=RoutingPolicy.LEAST_OUTSTANDING)
    return numbered(
        [
            msgspec.structs.replace(header(), engines=2, router=facts),
            arrive(0, 0, 3, 1),
            arrive(0, 1, 3, 1, engine=1),
            turn(0, (1, 0, 7), admitted=((0, 0, 3),), decided=(0, 10, 1, 3, 1, 0)),
            turn(0, (1, 0, 7), admitted=((1, 0, 3),), decided=(0, 10, 1, 3, 1, 0), engine=1),
            arrive(5, 2, 3, 1),
            arrive(10, 3, 3, 1, engine=1),
            turn(10, (1, 0, 7), ended=0, first=(0,), finished=(0,), admitted=((2, 0, 3),), decided=(1, 10, 1, 3, 1, 0)),
            turn(
                10,
                (1, 0, 7),
                ended=0,
                first=(1,),
                finished=(1,),
                admitted=((3, 0, 3),),
                decided=(1, 10, 1, 3, 1, 0),
                engine=1,
            ),
            turn(20, (0, 0, 8), ended=1, first=(2,), finished=(2,)),
            turn(20, (0, 0, 8), ended=1, first=(3,), finished=(3,), engine=1),
            end(20, 4, completed=4),
        ]
    )


def synchronous() -> list[AnyRecord]:
    """A step takes 2 ns + 1 ns a token; 8 blocks of 4. Two requests run, one has a prompt that is too long.

    0 ns: r0 computes 6 tokens (2 blocks), until 8. r1 and r2 come at 3 ns; r2 is refused, its 40 tokens exceed 32.
    8 ns: r0's first token. r0 computes its 7th token, still 2 blocks; r1 its 5 (2 blocks); 6 tokens take until 16.
    16 ns: r1's first token. Each gets one more: 8 and 6 tokens, no new block, until 20. Both are done then.
    """
    cost = LinearCoefficients(base_ps=1001, per_token_ps=1000, per_request_ps=0, per_context_token_ps=0)
    return numbered(
        [
            header(cost),
            arrive(0, 0, 6, 3),
            turn(0, (1, 0, 6), admitted=((0, 0, 6),), decided=(0, 8, 1, 6, 1, 0)),
            arrive(3, 1, 5, 2),
            arrive(3, 2, 40, 1),
            Reject(time_ns=3, request=2, reason=RejectReason.PROMPT_TOO_LONG),
            turn(8, (2, 0, 4), ended=0, first=(0,), admitted=((1, 0, 5),), decided=(1, 8, 2, 6, 2, 6)),
            turn(16, (2, 0, 4), ended=1, first=(1,)),
            stretch(20, 2, 1, 16, 4, (2, 12, 2, 4)),
            turn(
                20,
                (0, 0, 8),
                ended=2,
                finished=(
                    0,
                    1,
                ),
            ),
            end(20, 3, completed=2, rejected=1),
        ]
    )


def preempting() -> list[AnyRecord]:
    """5 blocks of 2, steps of 5 ns; r0 (2 tokens, 6 to give) and r1 (2, 4 to give) come together.

    0 ns: both prefill, a block each, 3 free. 5 ns: first tokens; at steps 1 and 2 they compute tokens 3 and 4, which
    takes a block each: 1 free. 15 ns, step 3: token 5 needs a third block; r0 gets the last one, r1 is the last in
    the batch and its own victim: 2 free again. 20 ns: r0's token 6 needs none, token 7 takes one; r1's 5 known
    tokens need 3 blocks and do not fit. 30 ns: r0 has its 6th token and leaves 4 blocks: 5 free; r1 computes its
    5 tokens again (3 blocks). 35 ns: that gives its 4th token, the one before came from step 2.
    """
    return numbered(
        [
            header(block_size=2, num_blocks=6),
            arrive(0, 0, 2, 6),
            arrive(0, 1, 2, 4),
            turn(
                0,
                (2, 0, 3),
                admitted=(
                    (0, 0, 2),
                    (1, 0, 2),
                ),
                decided=(0, 5, 2, 4, 2, 0),
            ),
            turn(
                5,
                (2, 0, 3),
                ended=0,
                first=(
                    0,
                    1,
                ),
            ),
            stretch(15, 1, 2, 5, 5, (2, 4, 2, 1)),
            turn(15, (1, 1, 2), preempted=(1,), decided=(3, 5, 1, 1, 1, 4)),
            stretch(30, 4, 2, 20, 5, (1, 5, 1, 1)),
            turn(30, (1, 0, 2), ended=5, finished=(0,), admitted=((1, 0, 5),), decided=(6, 5, 1, 5, 1, 0)),
            turn(35, (0, 0, 5), ended=6, late=((1, 2),), finished=(1,)),
            end(35, 7, completed=2),
        ]
    )


def asynchronous() -> list[AnyRecord]:
    """One request of 3 tokens that gives 3, steps of 10 ns, 8 blocks of 4, two steps under way.

    0 ns: step 0 prefills; step 1 is decided at once and feeds the token that step 0 will give (block 1 holds 4).
    10 ns: the first token. Step 2 is decided, its token 5 takes a second block; it will give the third and last token.
    20 ns: nothing more to decide. 30 ns: the last token.
    """
    return numbered(
        [
            header(async_scheduling=True),
            arrive(0, 0, 3, 3),
            turn(0, (1, 0, 7), admitted=((0, 0, 3),), decided=(0, 10, 1, 3, 1, 0)),
            stretch(10, 1, 1, 0, 10, (1, 3, 1, 7)),
            turn(10, (1, 0, 7), ended=0, first=(0,)),
            stretch(20, 2, 1, 10, 10, (1, 4, 1, 6)),
            turn(30, (0, 0, 8), ended=2, finished=(0,)),
            end(30, 3, completed=1),
        ]
    )


def across() -> list[AnyRecord]:
    """Two requests of 3 tokens that give 2 and 5, steps of 10 ns, 8 blocks of 4, two steps under way.

    0 ns: step 0 prefills both, step 1 decodes both (its token is the first one's last).
    10 ns: their first tokens; step 2 is the second request's alone, whose token 5 takes a block: 5 are free.
    20 ns: the first leaves with its block. Step 3 follows on step 2: the stretch goes on across this output.
    30 ns: step 4 gives the last token. 40 ns: nothing more to decide, the stretch is told. 50 ns: the last token.
    """
    return numbered(
        [
            header(async_scheduling=True),
            arrive(0, 0, 3, 2),
            arrive(0, 1, 3, 5),
            turn(0, (2, 0, 6), admitted=((0, 0, 3), (1, 0, 3)), decided=(0, 10, 2, 6, 2, 0)),
            stretch(10, 1, 1, 0, 10, (2, 6, 2, 6)),
            turn(10, (2, 0, 6), ended=0, first=(0, 1)),
            turn(20, (1, 0, 6), ended=1, finished=(0,)),
            stretch(40, 2, 3, 10, 10, (1, 4, 1, 6, 5)),
            turn(50, (0, 0, 8), ended=4, finished=(1,)),
            end(50, 5, completed=2),
        ]
    )


def joining() -> list[AnyRecord]:
    """As `asynchronous`, but a second request comes at 5 ns, of 3 tokens that give 1.

    10 ns: it is admitted beside token 5 of the first, which takes a block. 30 ns: both get their last token.
    """
    return numbered(
        [
            header(async_scheduling=True),
            arrive(0, 0, 3, 3),
            turn(0, (1, 0, 7), admitted=((0, 0, 3),), decided=(0, 10, 1, 3, 1, 0)),
            arrive(5, 1, 3, 1),
            stretch(10, 1, 1, 0, 10, (1, 3, 1, 7)),
            turn(10, (2, 0, 5), ended=0, first=(0,), admitted=((1, 0, 3),), decided=(2, 10, 2, 4, 2, 4)),
            turn(30, (0, 0, 8), ended=2, first=(1,), finished=(0, 1)),
            end(30, 3, completed=2),
        ]
    )


def sharing() -> list[AnyRecord]:
    """Prefix caching, blocks of 2: r1's first 4 of 6 tokens are those of r0, whose full blocks can be found at once.

    r0 takes 3 blocks for 5 tokens, r1 shares 2 of them and takes 1: 4 of 8 are free. Both end with one token. A third
    request comes while they run and finds the same two blocks after they are done, by then in the free queue.
    """
    return numbered(
        [
            header(block_size=2, enable_prefix_caching=True),
            arrive(0, 0, 5, 1, prompt=[("p", 0, 5)]),
            arrive(0, 1, 6, 1, prompt=[("p", 0, 4), ("x", 0, 2)]),
            turn(
                0,
                (2, 0, 4),
                admitted=(
                    (0, 0, 5),
                    (1, 4, 2),
                ),
                decided=(0, 7, 2, 7, 2, 4),
            ),
            arrive(5, 2, 5, 1, prompt=[("p", 0, 2), ("p", 2, 3)]),
            turn(
                7,
                (1, 0, 5),
                ended=0,
                first=(
                    0,
                    1,
                ),
                finished=(
                    0,
                    1,
                ),
                admitted=((2, 4, 1),),
                decided=(1, 7, 1, 1, 1, 4),
            ),
            turn(14, (0, 0, 8), ended=1, first=(2,), finished=(2,)),
            end(14, 2, completed=3),
        ]
    )


def aborted() -> list[AnyRecord]:
    """One request of 3 tokens in steps of 10 ns, cancelled at 35 ns: the step that ends at 40 gives it nothing."""
    return numbered(
        [
            header(),
            arrive(0, 0, 3, 9),
            turn(0, (1, 0, 7), admitted=((0, 0, 3),), decided=(0, 10, 1, 3, 1, 0)),
            turn(10, (1, 0, 7), ended=0, first=(0,)),
            Abort(time_ns=35, request=0),
            stretch(40, 1, 3, 10, 10, (1, 3, 1, 6)),
            end(40, 4, completed=0, aborted=1),
        ]
    )


def chunked() -> list[AnyRecord]:
    """A budget of 4: r0 prefills 6 tokens in two chunks; r1 (2 tokens) waits for budget, then for a seat.

    0 ns: r0 gets 4 of 6. 10 ns: 2 more, which gives its first token, and r1's 2. 20 ns: first tokens; r2 finds no
    seat. r0 and r1 are done with the step that ends at 30; r2 (1 token) runs until 40.
    """
    return numbered(
        [
            header(max_num_batched_tokens=4),
            arrive(0, 0, 6, 2),
            arrive(0, 1, 2, 2),
            turn(0, (1, 1, 7), admitted=((0, 0, 4),), decided=(0, 10, 1, 4, 0, 0)),
            turn(10, (2, 0, 5), admitted=((1, 0, 2),), chunks=((0, 2),), decided=(1, 10, 2, 4, 2, 4)),
            arrive(20, 2, 1, 1),
            turn(
                20,
                (2, 1, 5),
                ended=1,
                first=(
                    0,
                    1,
                ),
            ),
            stretch(30, 2, 1, 20, 10, (2, 8, 2, 5)),
            turn(
                30,
                (1, 0, 7),
                ended=2,
                finished=(
                    0,
                    1,
                ),
                admitted=((2, 0, 1),),
                decided=(3, 10, 1, 1, 1, 0),
            ),
            turn(40, (0, 0, 8), ended=3, first=(2,), finished=(2,)),
            end(40, 4, completed=3),
        ]
    )


def skipping() -> list[AnyRecord]:
    """Priorities, 3 blocks of 2, steps of 10 ns; r0 (2 tokens, gives 5) is less urgent than r1 (1, gives 4).

    10 ns, step 1: r0's token 3 takes a second block, r1 the third one. 20 ns, step 2: tokens 4 and 2 need none.
    30 ns: token 5 of r0 needs a block. Of the two r0 is the victim, itself; in 0.21 that ends the pass: r1, behind it,
    goes without and nothing is scheduled. So the engine asks again at once: r1's token 3 takes a block, 1 is free,
    r0's 5 known tokens need 3 and wait. r1's tokens of steps 2 and 3 follow each other: nothing is late.
    50 ns: r1 is done, r0 computes its 5 tokens; its 4th token comes at 60, after that of step 2; the last at 70.
    """
    return numbered(
        [
            header(block_size=2, num_blocks=4, policy=SchedulingPolicy.PRIORITY),
            arrive(0, 0, 2, 5, priority=1),
            turn(0, (1, 0, 2), admitted=((0, 0, 2),), decided=(0, 10, 1, 2, 1, 0)),
            arrive(1, 1, 1, 4),
            turn(10, (2, 0, 0), ended=0, first=(0,), admitted=((1, 0, 1),), decided=(1, 10, 2, 2, 2, 2)),
            turn(20, (2, 0, 0), ended=1, first=(1,)),
            stretch(30, 2, 1, 20, 10, (2, 4, 2, 0)),
            turn(30, (1, 1, 2), skipped=(1,), preempted=(0,)),
            stretch(50, 3, 2, 30, 10, (1, 2, 1, 1)),
            turn(50, (1, 0, 0), ended=4, finished=(1,), admitted=((0, 0, 5),), decided=(5, 10, 1, 5, 1, 0)),
            turn(60, (1, 0, 0), ended=5, late=((0, 2),)),
            stretch(70, 6, 1, 60, 10, (1, 5, 1, 0)),
            turn(70, (0, 0, 3), ended=6, finished=(0,)),
            end(70, 7, completed=2),
        ]
    )


def slowing() -> list[AnyRecord]:
    """A step takes 1 ns + half a ns for each token of context, rounded up; one request of 3 tokens gives 4.

    Step 0 has no context: 1 ns. Steps 1 to 3 have 3, 4 and 5 tokens of it: 2.5, 3 and 3.5 ns, so 3, 3 and 4.
    """
    cost = LinearCoefficients(base_ps=1000, per_token_ps=0, per_request_ps=0, per_context_token_ps=500)
    steps = msgspec.structs.replace(stretch(11, 1, 3, 1, 0, (1, 3, 1, 6)), durations_ns=[3, 3, 4])
    return numbered(
        [
            header(cost),
            arrive(0, 0, 3, 4),
            turn(0, (1, 0, 7), admitted=((0, 0, 3),), decided=(0, 1, 1, 3, 1, 0)),
            turn(1, (1, 0, 7), ended=0, first=(0,)),
            steps,
            turn(11, (0, 0, 8), ended=3, finished=(0,)),
            end(11, 4, completed=1),
        ]
    )


EXAMPLES = {
    "routed": routed,
    "slowing": slowing,
    "synchronous": synchronous,
    "preempting": preempting,
    "asynchronous": asynchronous,
    "across": across,
    "joining": joining,
    "sharing": sharing,
    "aborted": aborted,
    "chunked": chunked,
    "skipping": skipping,
}


def read(records: Sequence[AnyRecord]) -> None:
    replay = Replay()
    replay.read(records)
    replay.finish()


def violation(records: Sequence[AnyRecord]) -> ReplayViolation | None:
    """What replay says of the log, None when it is content."""
    try:
        read(records)
    except ReplayViolation as error:
        return error
    return None


def changed(records: Sequence[AnyRecord], place: int, **fields: Any) -> list[AnyRecord]:
    """The log with other values in one record."""
    copy = list(records)
    copy[place] = msgspec.structs.replace(records[place], **fields)
    return copy
