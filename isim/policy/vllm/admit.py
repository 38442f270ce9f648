"""The waiting pass: who of the waiting starts or starts again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from isim.policy.vllm.plan import Blocked, Plan
from isim.policy.vllm.sequence import Status

if TYPE_CHECKING:
    from isim.policy.vllm.scheduler import Flight, Scheduler


def admit(table: Scheduler, plan: Plan, flight: Flight) -> None:
    """Admit from the head of the queue while seats, budget and blocks last; the first that does not fit ends it."""
    limits, pool, waiting = table.limits, table.pool, table.waiting
    block = limits.block_size
    budget = limits.max_num_batched_tokens - plan.tokens
    while waiting and budget > 0:
        if len(table.running) >= limits.max_num_seqs:
            plan.blocked = Blocked.SEATS
            return
        sequence = waiting.first()
        known = sequence.prompt + sequence.issued
        chain = sequence.chain
        hits = pool.find(chain, (known - 1) // block) if chain is not None else []
        hit_tokens = len(hits) * block
        plan.lookups.append((sequence.index, hit_tokens))
        tokens = table.cut(known - hit_tokens)
        if tokens > budget:
            if not limits.enable_chunked_prefill:
                return
            tokens = budget
        room = pool.free - pool.idle(hits) if hits else pool.free
        needed = -(-(hit_tokens + tokens) // block) - len(hits)
        whole = -(-known // block) - len(hits) if limits.scheduler_reserve_full_isl else needed
        if max(needed, whole) > room:
            plan.blocked = Blocked.BLOCKS
            return
        waiting.take()
        if hits:
            pool.touch(sequence, hits)
        pool.take(sequence, needed)
        sequence.computed = hit_tokens
        sequence.status = Status.PREFILL
        table.seat(sequence)
        plan.admitted.append((sequence.index, hit_tokens, tokens))
        table.extend(sequence, tokens, plan, flight)
        if sequence.status is Status.PREFILL:
            table.prefills.append(sequence)
        budget -= tokens
