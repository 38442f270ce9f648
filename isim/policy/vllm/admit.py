"""The waiting pass: who of the waiting starts or starts again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from isim.policy.vllm.plan import Plan
from isim.policy.vllm.pool import Block
from isim.policy.vllm.sequence import Status

if TYPE_CHECKING:
    from isim.policy.vllm.flight import Flight
    from isim.policy.vllm.scheduler import Scheduler


_PREFILL = Status.PREFILL


def admit(table: Scheduler, plan: Plan, flight: Flight) -> None:
    """Admit from the head of the queue while seats, budget and blocks last; the first that does not fit ends it."""
    limits, pool, waiting, running = table.limits, table.pool, table.waiting, table.running
    block, seats, whole_first = limits.block_size, limits.max_num_seqs, limits.scheduler_reserve_full_isl
    budget = limits.max_num_batched_tokens - plan.tokens
    while waiting and budget > 0 and len(running) < seats:
        sequence = waiting.first()
        known = sequence.prompt + sequence.issued
        chain = sequence.chain
        hits: list[Block] | None = None
        free_blocks, found = pool.free, 0
        if chain is not None:
            table.publish()
            hits = pool.find(chain, (known - 1) // block)
            found = len(hits)
            free_blocks -= pool.idle(hits)
        hit_tokens = found * block
        index = sequence.index
        plan.lookups.append((index, hit_tokens))
        tokens = table.cut(known - hit_tokens)
        if tokens > budget:
            if not limits.enable_chunked_prefill:
                return
            tokens = budget
        needed = -(-(hit_tokens + tokens) // block) - found
        if needed > free_blocks or (whole_first and -(-known // block) - found > free_blocks):
            return
        waiting.take()
        if hits:
            pool.touch(sequence, hits)
        pool.take(sequence, needed)
        sequence.computed = hit_tokens
        sequence.status = _PREFILL
        sequence.order = table.orders
        table.orders += 1
        running[index] = sequence
        plan.admitted.append((index, hit_tokens, tokens))
        table.extend(sequence, tokens, plan, flight)
        if sequence.status is _PREFILL:
            table.prefills.append(sequence)
        budget -= tokens
