"""Small logs of requests that wait for blocks or budget and what they find then, worked out by hand."""

from __future__ import annotations

from replay_examples import arrive, end, header, numbered, preempting, stretch, turn

from isim.record.records import AnyRecord, EngineVersion


def coming_back() -> list[AnyRecord]:
    """`preempting` with prefix caching: what nobody else can share r1 may find again itself.

    15 ns: its two blocks are full when it gives way, and go to the end of the free queue, the second first. Step 5
    takes that one for r0's token 7. 30 ns: r1 finds its first block, and computes 3 of its 5 tokens: two more blocks.
    """
    records = preempting()
    cached = header(block_size=2, num_blocks=6, enable_prefix_caching=True)
    again = turn(30, (1, 0, 2), ended=5, finished=(0,), admitted=((1, 2, 3),), decided=(6, 5, 1, 3, 1, 2))
    return numbered([cached, *records[1:8], again, *records[9:]])


def leftovers() -> list[AnyRecord]:
    """0.33, prefix caching, 3 blocks of 2, steps of 10 ns: who takes what was freed without a name.

    10 ns: r0's block can be found, behind the two that were never lent. 15 ns: r1, whose 3 tokens nobody shares, takes
    these; 25 ns: its full one goes to the end of the queue, the other to the head. 30 ns: r2 takes that one, so r3
    finds r0's, and takes the last.
    """
    return numbered(
        [
            header(version=EngineVersion.V033, block_size=2, num_blocks=4, enable_prefix_caching=True),
            arrive(0, 0, 2, 1, prompt=[("p", 0, 2)]),
            turn(0, (1, 0, 2), admitted=((0, 0, 2),), decided=(0, 10, 1, 2, 1, 0)),
            turn(10, (0, 0, 3), ended=0, first=(0,), finished=(0,)),
            arrive(15, 1, 3, 1),
            turn(15, (1, 0, 1), admitted=((1, 0, 3),), decided=(1, 10, 1, 3, 1, 0)),
            turn(25, (0, 0, 3), ended=1, first=(1,), finished=(1,)),
            arrive(30, 2, 1, 1),
            arrive(30, 3, 3, 1, prompt=[("p", 0, 2), ("x", 0, 1)]),
            turn(30, (2, 0, 0), admitted=((2, 0, 1), (3, 2, 1)), decided=(2, 10, 2, 2, 2, 2)),
            turn(40, (0, 0, 3), ended=2, first=(2, 3), finished=(2, 3)),
            end(40, 3, completed=4),
        ]
    )


def past_an_admission() -> list[AnyRecord]:
    """Not legal: a stretch that goes on while the head of the queue could be let in. 2 blocks of 4, steps of 10 ns.

    r0 has one block, the other is free. r1's 5 tokens are r0's one and 4 of its answer: two blocks, until r0 has
    computed 4 tokens. Step 3 does, and from then on r1 shares that block and lacks but one: it must be let in.
    """
    return numbered(
        [
            header(num_blocks=3, enable_prefix_caching=True),
            arrive(0, 0, 1, 6, prompt=[("a", 0, 1)], quotable=True),
            turn(0, (1, 0, 1), admitted=((0, 0, 1),), decided=(0, 10, 1, 1, 1, 0)),
            arrive(5, 1, 5, 1, prompt=[("a", 0, 1), ("o:r0", 0, 4)]),
            turn(10, (1, 1, 1), ended=0, first=(0,)),
            stretch(40, 1, 3, 10, 10, (1, 1, 1, 1)),
        ]
    )


def unchunked() -> list[AnyRecord]:
    """Without chunks, a budget of 9: r0 (3 tokens) and r1 (5) give 2 each, 3 blocks of 8; steps of 10 ns.

    10 ns: their tokens 4 and 6 take no block, and r2's 8 tokens are one more than is left. 20 ns: both are done.
    """
    return numbered(
        [
            header(enable_chunked_prefill=False, max_num_seqs=3, max_num_batched_tokens=9, max_model_len=9),
            arrive(0, 0, 3, 2),
            arrive(0, 1, 5, 2),
            turn(0, (2, 0, 5), admitted=((0, 0, 3), (1, 0, 5)), decided=(0, 10, 2, 8, 2, 0)),
            arrive(5, 2, 8, 1),
            turn(10, (2, 1, 5), ended=0, first=(0, 1)),
            stretch(20, 1, 1, 10, 10, (2, 8, 2, 5)),
            turn(20, (1, 0, 6), ended=1, finished=(0, 1), admitted=((2, 0, 8),), decided=(2, 10, 1, 8, 1, 0)),
            turn(30, (0, 0, 8), ended=2, first=(2,), finished=(2,)),
            end(30, 3, completed=3),
        ]
    )


def whole() -> list[AnyRecord]:
    """As `unchunked`, but r2 has 7 tokens: just what is left beside two decodes. 20 ns: all three are done."""
    return numbered(
        [
            *unchunked()[:4],
            arrive(5, 2, 7, 1),
            turn(10, (3, 0, 3), ended=0, first=(0, 1), admitted=((2, 0, 7),), decided=(1, 10, 3, 9, 3, 8)),
            turn(20, (0, 0, 8), ended=1, first=(2,), finished=(0, 1, 2)),
            end(20, 2, completed=3),
        ]
    )


WAITING_EXAMPLES = {"coming back": coming_back, "leftovers": leftovers, "unchunked": unchunked, "whole": whole}
