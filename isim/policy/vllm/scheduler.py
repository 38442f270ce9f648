"""The scheduler's table: add, abort, schedule, update, and runs of equal steps.

`schedule()` decides one step and moves the state as if it were under way; `update()` takes in the output of the
oldest step under way. How many may be under way is the engine's affair: one, or two with asynchronous scheduling.
After a steady plan, `horizon` says how many more steps must be decided in just the same way whatever they bring,
as long as nobody new comes in, and `advance` decides them all at once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence as Listing

from isim.policy.vllm.admit import admit
from isim.policy.vllm.decoders import Decoders
from isim.policy.vllm.flight import QUIET, Flight
from isim.policy.vllm.keys import Chain, KeyTable, Run
from isim.policy.vllm.plan import Outcome, Plan
from isim.policy.vllm.pool import BlockPool, Ledger
from isim.policy.vllm.rules import RULES
from isim.policy.vllm.sequence import Sequence, Status
from isim.policy.vllm.waiting import FirstComeQueue, PriorityQueue, Waiting
from isim.policy.vllm.walk import walk
from isim.record.records import EngineLimits, SchedulingPolicy

# Looking them up in their class takes longer than all else that is done with them.
_WAITING, _GONE = Status.WAITING, Status.GONE


class Scheduler:
    """State of one engine. Requests are named by their index; nobody is visited who has nothing new."""

    def __init__(self, limits: EngineLimits, make_pool: type[BlockPool] = BlockPool) -> None:
        self.limits = limits
        self.rules = RULES[limits.version]
        self.steps = 0
        """Steps with tokens decided so far."""
        self.pool = make_pool(limits.num_blocks, unhashed_first=self.rules.unhashed_first)
        self.ledger: Ledger = self.pool
        self.decoders = Decoders(limits.block_size)
        self.running: dict[int, Sequence] = {}
        """By index, in running order."""
        self.prefills: list[Sequence] = []
        """Running requests with more than a decoder's token due, in running order."""
        by_priority = limits.policy is SchedulingPolicy.PRIORITY
        self.waiting: Waiting = PriorityQueue() if by_priority else FirstComeQueue()
        self.flights: deque[Flight] = deque()
        self.skipped: list[Sequence] = []
        """Decoders whose next token will be late."""
        self.live: dict[int, Sequence] = {}
        """Everybody who has not left."""
        self._keys = KeyTable()
        self.orders = 0
        """Admissions so far."""
        self._quotable: dict[int, Sequence] = {}
        self.unreported = False
        """Whether somebody left whom no decision has reported yet."""
        self.depth = 2 if limits.async_scheduling else 1
        """How many steps may be under way."""

    # ---- requests come and go

    def add(
        self,
        index: int,
        name: str,
        prompt_tokens: int,
        output_tokens: int,
        priority: int,
        order_time: int,
        prompt: Listing[Run] | None,
        quotable: bool,
    ) -> None:
        """Queue a request that `refusal` lets in. `prompt` spells its shareable tokens, from the first on."""
        output = min(output_tokens, self.limits.max_model_len - prompt_tokens)
        sequence = Sequence(index, name, prompt_tokens, output, priority, order_time)
        if self.limits.enable_prefix_caching and prompt:
            shared = sum(count for _, _, count in prompt)
            runs = list(prompt)
            if quotable:
                runs.append((f"o:{name}", 0, output))
                shared += output
                self._quotable[index] = sequence
            sequence.chain = Chain(self._keys, index, self.limits.block_size, runs, shared)
        self.live[index] = sequence
        self.waiting.add(sequence)

    def abort(self, index: int) -> bool:
        """Cancel a request; False when it is not there any more. Its tokens under way are dropped."""
        sequence = self.live.get(index)
        if sequence is None:
            return False
        if sequence.status is Status.WAITING:
            self.waiting.remove(sequence)
        else:
            self.leave_running(sequence)
            self.free(sequence)
        self._forget(sequence)
        return True

    @property
    def has_requests(self) -> bool:
        """Whether the engine's loop has a reason to schedule: work, or finished requests not yet reported."""
        return bool(self.live) or self.unreported

    # ---- one decision

    def schedule(self) -> Plan:
        """Decide the next step. A plan without tokens is a step nobody runs, yet it stays in flight."""
        plan = Plan(self.steps)
        flight = Flight(-1)
        self.flights.append(flight)
        self.unreported = False
        if self.running and not self._smooth_pass(plan, flight):
            walk(self, plan, flight)
        if self.waiting and not plan.preempted:
            self._waiting_pass(plan, flight)
        if plan.tokens:
            flight.step = self.steps
            self.steps += 1
            if plan.shapes:
                if flight.ending or flight.late:
                    flight.sort()
            else:
                plan.steady = not (plan.preempted or plan.skipped)
        return plan

    def update(self) -> Outcome | None:
        """Take in the output of the oldest step under way; None if it brought nothing that needs saying."""
        flight = self.flights.popleft()
        if flight.quiet:
            return None
        first: tuple[int, ...] = ()
        late: tuple[tuple[int, int], ...] = ()
        finished: tuple[int, ...] = ()
        if flight.first:
            first = tuple([member.index for member in flight.first if member.status is not _GONE])
        if flight.late:
            late = tuple([(member.index, step) for member, step in flight.late if member.status is not _GONE])
        for sequence in flight.ending:
            status = sequence.status
            if status is _GONE:
                continue
            if status is _WAITING:
                self.waiting.remove(sequence)
            else:
                del self.running[sequence.index]
                sequence.hashed = sequence.computed
                self.free(sequence)
            finished += (sequence.index,)
            self._forget(sequence)
        return Outcome(flight.step, first, late, finished) if first or late or finished else None

    # ---- runs of equal decisions

    def steady_steps(self) -> int:
        """How many decisions from the next one on are certain to be steady, if nobody comes in.

        0 when the next one has to be made to know. The oldest step under way may still bring an outcome before the
        second of them: `outcome_due`.
        """
        if self.waiting or self.prefills or self.skipped:
            return 0
        if not self.decoders.count or len(self.flights) != self.depth - 1:
            return 0
        return self.decoders.run_length(self.ledger.free)

    def horizon(self, plan: Plan) -> int:
        """How many more decisions after this steady `plan` are like it, if nobody comes in; `outcome_due` as above."""
        flights = self.flights
        if len(flights) < self.depth or not flights[-1].quiet:
            return 0
        if self._quotable and plan.lookups:
            return 0
        if flights[0].step < 0 or (flights[0].ending and self.waiting):
            return 0
        return self.decoders.run_length(self.ledger.free)

    def outcome_due(self) -> bool:
        """Whether the oldest step under way brings something that needs saying: call `update` at its end."""
        return self.depth > 1 and not self.flights[0].quiet

    def advance(self, steps: int, made: int = 0) -> int:
        """Make `steps` steady decisions after `made` such ones, and go on to when the next is due.

        The outputs that have come by then are taken in, but for that of the very last step, with one step under way,
        and, after a single decision, that of the step before. Returns how many blocks were free after the decision that
        left the fewest. No more than `steady_steps` or `horizon` allowed; what was due must have been taken in.
        """
        decoders, flights = self.decoders, self.flights
        opening = decoders.opened(steps)
        if opening:
            self.pool.open(opening, decoders, self.running.values(), steps)
        self.steps += steps
        if steps + made > 1 or self.depth == 1:
            flights.clear()
        ending = decoders.advance(steps)
        flights.append(Flight(self.steps - 1, False, (), (), ending) if ending else QUIET)
        return self.ledger.free

    def advance_past_output(self, steps: int, made: int) -> tuple[Outcome | None, int, int]:
        """Make all but `made` (0 or 1) of at least 2 steady decisions, taking in after the first what was due then.

        Returns what it brought, how many blocks were free at that moment, and after the decision that left the fewest.
        """
        ledger = self.ledger
        if not made and (not self.flights[0].ending or (self.pool.alike and not self._quotable)):
            opening = self.decoders.opened(1)
            least = ledger.free - opening
            outcome = self.update()
            free_blocks = ledger.free - opening
            later = self.advance(steps)
            return outcome, free_blocks, least if least < later else later
        # What is given back now the next decision may take.
        least = ledger.free if made else self.advance(1)
        outcome = self.update()
        free_blocks = ledger.free
        return outcome, free_blocks, min(least, self.advance(steps - 1, 1))

    # ---- what the passes share

    def due(self, sequence: Sequence) -> int:
        """Tokens of a prefilling or waiting request that are not computed, cut by the long-prefill threshold."""
        return self.cut(sequence.prompt + sequence.issued - sequence.computed)

    def cut(self, tokens: int) -> int:
        """`tokens`, or the long-prefill threshold where that is less and holds."""
        threshold = self.limits.long_prefill_token_threshold
        if threshold == 0 or tokens <= threshold:
            return tokens
        if not self.rules.threshold_alone and len(self.running) + len(self.waiting) == 1:
            return tokens
        return threshold

    def extend(self, sequence: Sequence, tokens: int, plan: Plan, flight: Flight) -> None:
        """Schedule `tokens` of a prefilling request whose blocks are there; its last ones yield a token."""
        before = sequence.computed
        plan.shapes.append((tokens, before))
        plan.tokens += tokens
        plan.context += before
        sequence.computed = computed = before + tokens
        sequence.hashed = computed
        chain = sequence.chain
        if chain is not None:
            self.publish()
            self.register(sequence, chain)
        if computed < sequence.prompt + sequence.issued:
            return
        plan.sampled += 1
        step = plan.step
        if sequence.last_sample < 0:
            flight.first += (sequence,)
            flight.quiet = False
        elif sequence.last_sample != step - 1:
            flight.late += ((sequence, sequence.last_sample),)
            flight.quiet = False
        sequence.last_sample = step
        sequence.issued += 1
        if sequence.issued == sequence.output:
            sequence.status = Status.ENDING
            flight.ending += (sequence,)
            flight.quiet = False
        else:
            self.decoders.join(sequence, 1)

    def decode(self, plan: Plan, flight: Flight) -> None:
        """Schedule one token of every decoder; their blocks are there."""
        decoders = self.decoders
        plan.decodes = plan.tokens = plan.sampled = decoders.count
        plan.decode_context = plan.context = decoders.context
        if self.skipped:
            flight.late = tuple(
                (sequence, sequence.last_sample)
                for sequence in self.skipped
                if sequence.status is Status.DECODE and sequence.last_sample != plan.step - 1
            )
            flight.quiet = not flight.late
            self.skipped.clear()
        ending = decoders.advance()
        if ending:
            flight.ending = ending
            flight.quiet = False

    def publish(self) -> None:
        """Make findable what is full and known of tokens that others may quote.

        To be called before anybody looks for blocks or adds findable ones: nobody could tell if it were done sooner.
        """
        for sequence in self._quotable.values():
            if sequence.status is Status.DECODE:
                self.decoders.settle(sequence)
            elif sequence.status is not Status.ENDING:
                continue
            sequence.hashed = max(sequence.hashed, sequence.computed - self.overlap(sequence))
            if sequence.chain is not None:
                self.register(sequence, sequence.chain)

    def preempt(self, sequence: Sequence, plan: Plan, granted: int) -> None:
        """Take a running request's blocks and queue it again; what it had computed may still be found.

        `granted` tokens it was to get in this step have their blocks already.
        """
        if sequence.status is Status.DECODE and sequence not in self.skipped:
            sequence.last_sample = plan.step - 1
        self.leave_running(sequence)
        self.free(sequence, granted)
        sequence.status = Status.WAITING
        self.waiting.put_back(sequence)
        plan.preempted.append(sequence.index)

    def leave_running(self, sequence: Sequence) -> None:
        del self.running[sequence.index]
        if sequence.status is Status.DECODE:
            self.decoders.leave(sequence)
            sequence.hashed = max(sequence.hashed, sequence.computed - self.overlap(sequence))
        elif sequence.status is Status.PREFILL:
            self.prefills.remove(sequence)
        elif sequence.status is Status.ENDING:
            sequence.hashed = max(sequence.hashed, sequence.computed - self.overlap(sequence))

    def overlap(self, sequence: Sequence) -> int:
        """1 when its newest computed token was not known yet when that was scheduled, so its block has no hash."""
        return int(self.depth > 1 and self.decoders.tick >= sequence.overlap_tick)

    def free(self, sequence: Sequence, granted: int = 0) -> None:
        """Give back its blocks; those it had filled stay findable if anybody may look for them."""
        limits = self.limits
        block = limits.block_size
        hashed = sequence.hashed // block if limits.enable_prefix_caching else 0
        if hashed and (sequence.issued < sequence.output or sequence.index in self._quotable):
            chain = sequence.chain
            if chain is None:
                chain = sequence.chain = Chain(self._keys, sequence.index, block, (), 0)
            self.pool.register(sequence, chain, hashed)
        self.pool.give_back(sequence, -(-(sequence.computed + granted) // block), hashed)

    _waiting_pass = admit

    def _smooth_pass(self, plan: Plan, flight: Flight) -> bool:
        """The running pass where nobody's tokens or blocks depend on who comes first; False if they may."""
        decoders, pool = self.decoders, self.pool
        opening = decoders.opened(1)
        chunks: list[tuple[Sequence, int, int]] = []
        if self.prefills:
            found = self._smooth_chunks(opening)
            if found is None:
                return False
            chunks = found
        elif decoders.count > self.limits.max_num_batched_tokens or opening > pool.free:
            return False
        if opening:
            pool.open(opening, decoders, self.running.values(), 1)
        if decoders.count:
            self.decode(plan, flight)
        for sequence, tokens, blocks in chunks:
            pool.take(sequence, blocks)
            plan.chunks.append((sequence.index, tokens))
            self.extend(sequence, tokens, plan, flight)
        if chunks:
            self.prefills = [sequence for sequence in self.prefills if sequence.status is Status.PREFILL]
        return True

    def _smooth_chunks(self, opening: int) -> list[tuple[Sequence, int, int]] | None:
        """(request, tokens, new blocks) of everybody in prefill, or None where the order among the running matters."""
        budget = self.limits.max_num_batched_tokens - self.decoders.count
        if self.prefills[0].order < self.decoders.newest_order:
            return None
        chunks: list[tuple[Sequence, int, int]] = []
        needed, block = opening, self.limits.block_size
        for sequence in self.prefills:
            tokens = min(self.due(sequence), budget)
            if tokens <= 0:
                return None
            budget -= tokens
            blocks = -(-(sequence.computed + tokens) // block) - -(-sequence.computed // block)
            needed += blocks
            chunks.append((sequence, tokens, blocks))
        return chunks if needed <= self.pool.free else None

    def register(self, sequence: Sequence, chain: Chain) -> None:
        """Make its blocks findable that are full and that others may quote."""
        stop = min(sequence.hashed // self.limits.block_size, chain.shared_blocks)
        if stop > len(sequence.findable):
            self.pool.register(sequence, chain, stop)

    def _forget(self, sequence: Sequence) -> None:
        sequence.status = _GONE
        del self.live[sequence.index]
        self._quotable.pop(sequence.index, None)
        self.unreported = True
