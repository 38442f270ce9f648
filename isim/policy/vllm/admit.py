"""The waiting pass: who of the waiting starts or starts again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from isim.policy.vllm.plan import Blocked, Plan
from isim.policy.vllm.pool import Block
from isim.policy.vllm.sequence import Status

if TYPE_CHECKING:
    from isim.policy.vllm.flight import Flight
    from isim.policy.vllm.scheduler import Scheduler


def admit(table: Scheduler, plan: Plan, flight: Flight) -> None:
    """Admit from the head of the queue while seats, budget and blocks last; the first that does not fit ends it."""
    limits, pool, waiting, running = table.limits, table.pool, table.waiting, table.running
    block, seats = limits.block_size, limits.max_num_seqs
    budget = limits.max_num_batched_tokens - plan.tokens
    while waiting and budget > 0:
        if len(running) >= seats:
            plan.blocked = Blocked.SEATS
            return
        sequence = waiting.first()
        known = sequence.prompt + sequence.issued
        chain = sequence.chain
        hits: list[Block] = []
        if chain is not None:
            table.publish()
            hits = pool.find(chain, (known - 1) // block)
        hit_tokens = len(hits) * block
        index = sequence.index
        plan.lookups.append((index, hit_tokens))
        tokens = table.cut(known - hit_tokens)
        if tokens > budget:
            if not limits.enable_chunked_prefill:
                return
            tokens = budget
        needed = -(-(hit_tokens + tokens) // block) - len(hits)
        whole = -(-known // block) - len(hits) if limits.scheduler_reserve_full_isl else needed
        if (whole if whole > needed else needed) > (pool.free - pool.idle(hits) if hits else pool.free):
            plan.blocked = Blocked.BLOCKS
            return
        waiting.take()
        if hits:
            pool.touch(sequence, hits)
        pool.take(sequence, needed)
        sequence.computed = hit_tokens
        sequence.status = Status.PREFILL
        sequence.order = table.orders
        table.orders += 1
        running[index] = sequence
        plan.admitted.append((index, hit_tokens, tokens))
        table.extend(sequence, tokens, plan, flight)
        if sequence.status is Status.PREFILL:
            table.prefills.append(sequence)
        budget -= tokens
