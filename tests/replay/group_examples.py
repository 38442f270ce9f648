"""Small logs of engines with several KV groups, worked out by hand, each with the working beside it."""

from __future__ import annotations

from replay_examples import arrive, end, header, numbered, stretch, turn

from isim.record.records import AnyRecord, EngineVersion, GroupKind, GroupLimits, Reject, RejectReason


def group(kind: GroupKind, block_size: int, window_tokens: int = 0) -> GroupLimits:
    return GroupLimits(kind=kind, block_size=block_size, window_tokens=window_tokens)


FULL_AND_WINDOW = (group(GroupKind.FULL, 2), group(GroupKind.SLIDING, 2, 3))
FULL_AND_STATE = (group(GroupKind.FULL, 4), group(GroupKind.ALIGNED_STATE, 4))


def windowed() -> list[AnyRecord]:
    """Full attention and a window of 3, blocks of 2, 8 of them; steps of 10 ns; r0 has 4 tokens and gives 4.

    0 ns: two blocks for each group, 4 free. 10 ns, step 1: with 4 tokens computed the window looks back to token 2, so
    its first block goes; token 5 takes a block in each: 3 free. Step 2: token 6 needs none. Step 3: with 6 computed
    the window's second block goes, token 7 takes two: 2 free. 40 ns: the fourth token.
    r1 would end with 9 tokens: 5 blocks of full attention, and 5 of the window, of which all 9 may come at once.
    """
    return numbered(
        [
            header(block_size=2, num_blocks=9, max_num_batched_tokens=9, groups=FULL_AND_WINDOW),
            arrive(0, 0, 4, 4),
            turn(0, (1, 0, 4), admitted=((0, 0, 4),), decided=(0, 10, 1, 4, 1, 0)),
            arrive(5, 1, 9, 1),
            Reject(time_ns=5, request=1, reason=RejectReason.NEVER_FITS),
            turn(10, (1, 0, 4), ended=0, first=(0,)),
            stretch(40, 1, 3, 10, 10, (1, 4, 1, 2)),
            turn(40, (0, 0, 8), ended=3, finished=(0,)),
            end(40, 4, completed=1, rejected=1),
        ]
    )


def stateful() -> list[AnyRecord]:
    """Full attention and a state at the ends of blocks of 4, prefix caching, 12 blocks, steps of 10 ns; one token each.

    0 ns: r0's 10 tokens are cut to 8, where its last whole block ends: two blocks, and one for the state after 8; 9 are
    free. r1 shares 8 tokens, and finds them; but the state is named in this very decision, so it waits.
    10 ns: r0's last 2 tokens take a block in each group, so do r1's behind the 8 it shares: 5 free.
    20 ns: both are done, 12 free. 25 ns: r2 has r0's prompt; two blocks and the state come out of the free queue, and
    two more are taken: 7 free.
    """
    prompt = [("p", 0, 10)]
    both = (0, 1)
    return numbered(
        [
            header(num_blocks=13, max_num_batched_tokens=20, enable_prefix_caching=True, groups=FULL_AND_STATE),
            arrive(0, 0, 10, 1, prompt=prompt),
            arrive(0, 1, 10, 1, prompt=[("p", 0, 8), ("x", 0, 2)]),
            turn(0, (1, 1, 9), admitted=((0, 0, 8),), decided=(0, 10, 1, 8, 0, 0)),
            turn(10, (2, 0, 5), chunks=((0, 2),), admitted=((1, 8, 2),), decided=(1, 10, 2, 4, 2, 16)),
            turn(20, (0, 0, 12), ended=1, first=both, finished=both),
            arrive(25, 2, 10, 1, prompt=prompt),
            turn(25, (1, 0, 7), admitted=((2, 8, 2),), decided=(2, 10, 1, 2, 1, 8)),
            turn(35, (0, 0, 12), ended=2, first=(2,), finished=(2,)),
            end(35, 3, completed=3),
        ]
    )


def giving_way() -> list[AnyRecord]:
    """Full attention and a window of 3, blocks of 2, 7 of them, steps of 10 ns; r0 (4 tokens) and r1 (2) give 3 each.

    0 ns: r0 takes 4 blocks, r1 2: 1 free. 10 ns, step 1: r0 leaves a block of the window and takes two: none free. r1
    has nothing to leave, needs two for token 3, and is its own victim: 2 free. 20 ns: r0's token 6 needs no block; r1's
    3 tokens need 4. 30 ns: r0 leaves with 3 + 2 blocks; r1 starts anew: 3 free. 40 ns: its token after that of step 0.
    """
    return numbered(
        [
            header(block_size=2, num_blocks=8, groups=FULL_AND_WINDOW),
            arrive(0, 0, 4, 3),
            arrive(0, 1, 2, 3),
            turn(0, (2, 0, 1), admitted=((0, 0, 4), (1, 0, 2)), decided=(0, 10, 2, 6, 2, 0)),
            turn(10, (1, 1, 2), ended=0, first=(0, 1), preempted=(1,), decided=(1, 10, 1, 1, 1, 4)),
            stretch(30, 2, 1, 20, 10, (1, 5, 1, 2)),
            turn(30, (1, 0, 3), ended=2, finished=(0,), admitted=((1, 0, 3),), decided=(3, 10, 1, 3, 1, 0)),
            turn(40, (1, 0, 3), ended=3, late=((1, 0),)),
            stretch(50, 4, 1, 40, 10, (1, 3, 1, 3)),
            turn(50, (0, 0, 7), ended=4, finished=(1,)),
            end(50, 5, completed=2),
        ]
    )


def trailing() -> list[AnyRecord]:
    """The first request of `windowed` in 0.33, asynchronously: what is under way does not count as left behind.

    0 ns: the prefill, and at once step 1; nothing is computed yet, so nothing goes, and token 5 takes two blocks: 2
    are free. 10 ns: step 2; 4 tokens are computed, the window's first block goes, token 6 needs none: 3 free. 20 ns:
    step 3; with 5 computed nothing goes, token 7 takes two: 1 free. 30 ns: nothing is due. 40 ns: the fourth token.
    """
    return numbered(
        [
            header(
                version=EngineVersion.V033, async_scheduling=True, block_size=2, num_blocks=9, groups=FULL_AND_WINDOW
            ),
            arrive(0, 0, 4, 4),
            turn(0, (1, 0, 4), admitted=((0, 0, 4),), decided=(0, 10, 1, 4, 1, 0)),
            stretch(10, 1, 1, 0, 10, (1, 4, 1, 2)),
            turn(10, (1, 0, 2), ended=0, first=(0,)),
            stretch(30, 2, 2, 10, 10, (1, 5, 1, 1)),
            turn(40, (0, 0, 8), ended=3, finished=(0,)),
            end(40, 4, completed=1),
        ]
    )


def starving() -> list[AnyRecord]:
    """0.33: a chunk that ends early lets others in, and the next one takes all of the budget of 12 before they decode.

    40 blocks of 4, steps of 10 ns. r0 (14 tokens) leaves three blocks of full attention and the state after 12. r1
    (32) shares 4 of its tokens, but of these no state is left, so it starts anew and ends its first chunk there, that
    others may find one. r2 (3 tokens, gives 3) gets its 3 beside it, r3 (12) of the 5 that are left a whole block.
    35, 45 ns: r1 takes 12 tokens each time, up to 28, the last state to be found; r2 and r3 go without. Blocks for 12
    tokens are three and one, and of states it holds the last two. 55 ns: it has 4 left, r2 goes on, and of 7 more
    tokens r3 takes 4, up to its own last state. 65 ns: r2's second token comes late, after that of step 2.
    """
    prompt = [("p", 0, 4), ("y", 0, 28)]
    limits = {"max_num_seqs": 3, "max_num_batched_tokens": 12, "num_blocks": 41, "max_model_len": 64}
    return numbered(
        [
            header(version=EngineVersion.V033, enable_prefix_caching=True, groups=FULL_AND_STATE, **limits),
            arrive(0, 0, 14, 1, prompt=[("p", 0, 14)]),
            turn(0, (1, 0, 36), admitted=((0, 0, 12),), decided=(0, 10, 1, 12, 0, 0)),
            turn(10, (1, 0, 34), chunks=((0, 2),), decided=(1, 10, 1, 2, 1, 12)),
            turn(20, (0, 0, 40), ended=1, first=(0,), finished=(0,)),
            arrive(25, 1, 32, 1, prompt=prompt),
            arrive(25, 2, 3, 3),
            arrive(25, 3, 12, 1),
            turn(25, (3, 0, 34), admitted=((1, 0, 4), (2, 0, 3), (3, 0, 4)), decided=(2, 10, 3, 11, 1, 0)),
            turn(35, (3, 0, 30), ended=2, first=(2,), chunks=((1, 12),), skipped=(2, 3), decided=(3, 10, 1, 12, 0, 4)),
            turn(45, (3, 0, 27), chunks=((1, 12),), skipped=(2, 3), decided=(4, 10, 1, 12, 0, 16)),
            turn(55, (3, 0, 24), chunks=((1, 4), (3, 4)), decided=(5, 10, 3, 9, 2, 35)),
            turn(
                65,
                (2, 0, 31),
                ended=5,
                first=(1,),
                late=((2, 2),),
                finished=(1,),
                chunks=((3, 4),),
                decided=(6, 10, 2, 5, 2, 12),
            ),
            turn(75, (0, 0, 40), ended=6, first=(3,), finished=(2, 3)),
            end(75, 7, completed=4),
        ]
    )


GROUP_EXAMPLES = {
    "trailing": trailing,
    "windowed": windowed,
    "stateful": stateful,
    "giving way": giving_way,
    "starving": starving,
}
