"""One decision of the scheduler, derived again: who runs next, and with how many tokens.

A decision has a running pass and a waiting pass. In the running pass a request's place in the batch matters only when
somebody goes without: when the tokens due exceed the budget before the last of them, or the blocks needed exceed the
free ones. Otherwise (`_sweep`) the decoding requests are served as one, by their counts, and only prefills are looked
at one by one. When places matter, `walk` goes through the batch as the engine does.
"""

from __future__ import annotations

from isim.replay.member import Member, Stage
from isim.replay.scheduler import Decision, Scheduler
from isim.replay.walk import walk


def decide(scheduler: Scheduler, *, in_flight: int) -> Decision:
    """The scheduler is asked once, while the outputs of `in_flight` steps are still to come."""
    roster = scheduler.roster
    step = roster.steps
    decision = Decision()
    threshold = scheduler.threshold()
    scheduler.begin(overlapping=in_flight > 0)
    if not _sweep(scheduler, decision, threshold):
        walk(scheduler, decision, threshold)
        if not decision.scheduled:
            return decision
    roster.steps += 1
    if roster.decoders:
        roster.retire(step)
    if scheduler.queue and not decision.preempted:
        _admit(scheduler, decision, threshold)
    if not decision.scheduled:
        roster.steps -= 1
    return decision


def _sweep(scheduler: Scheduler, decision: Decision, threshold: int) -> bool:
    """The running pass when nobody's place in the batch matters. False, and nothing done, when it does.

    The budget covers all who decode: when the last request was admitted there was a token for everybody.
    """
    roster = scheduler.roster
    decoders = roster.decoders
    left = scheduler.limits.max_num_batched_tokens - decoders
    grants: list[tuple[Member, int]] = []
    if roster.prefilling:
        wishes = sum(min(m.target - m.computed, threshold) for m in roster.prefilling.values())
        if wishes > left and _decodes_behind_prefill(scheduler):
            return False
        for member in roster.prefilling.values():
            tokens = scheduler.cut(member, min(member.target - member.computed, threshold, left))
            left -= tokens
            grants.append((member, tokens))
    if not scheduler.lend_all(grants):
        return False
    decision.scheduled = decision.tokens = decision.sampled = decoders
    decision.context = roster.decode_context()
    for member in roster.held_up:
        decision.lates.append((member, member.last))
        roster.go_on(member)
    roster.held_up.clear()
    for member, tokens in grants:
        if tokens:
            scheduler.advance(member, tokens, decision)
        else:
            decision.skipped.append(member.index)
    return True


def _decodes_behind_prefill(scheduler: Scheduler) -> bool:
    roster = scheduler.roster
    first = next(iter(roster.prefilling))
    for seq in reversed(roster.running):
        if seq < first:
            return False
        if roster.running[seq].stage is Stage.DECODE:
            return True
    return False


def _admit(scheduler: Scheduler, decision: Decision, threshold: int) -> None:
    """The waiting pass: the head of the queue, and the next, until one does not fit."""
    limits, queue = scheduler.limits, scheduler.queue
    running = scheduler.roster.running
    left = limits.max_num_batched_tokens - decision.tokens
    while queue and left > 0 and len(running) < limits.max_num_seqs:
        member = queue.head()
        found = scheduler.find(member)
        wish = min(member.known - found.tokens, threshold)
        tokens = 0
        if wish <= left or limits.enable_chunked_prefill:
            tokens = scheduler.cut_first(member, found, min(wish, left))
        if not (tokens and scheduler.fits(member, found, tokens)):
            scheduler.turn_away(member, found)
            return
        scheduler.admit(member, found, tokens, decision)
        left -= tokens
