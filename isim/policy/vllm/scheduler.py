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
from isim.policy.vllm.keys import Chain, KeyTable, Run
from isim.policy.vllm.plan import Blocked, Outcome, Plan
from isim.policy.vllm.pool import BlockPool
from isim.policy.vllm.rules import RULES
from isim.policy.vllm.sequence import Sequence, Status
from isim.policy.vllm.waiting import FirstComeQueue, PriorityQueue, Waiting
from isim.policy.vllm.walk import walk
from isim.record.records import EngineLimits, RejectReason, SchedulingPolicy


def output_limit(limits: EngineLimits, prompt_tokens: int, output_tokens: int) -> int:
    """Tokens the engine will generate: it stops where prompt and output reach `max_model_len`."""
    return min(output_tokens, limits.max_model_len - prompt_tokens)


def refusal(limits: EngineLimits, prompt_tokens: int, output_tokens: int) -> RejectReason | None:
    """Why the engine refuses a request at its arrival, if it does.

    The last token has no KV, so a request peaks at prompt + output - 1 positions.
    """
    if prompt_tokens >= limits.max_model_len:
        return RejectReason.PROMPT_TOO_LONG
    peak_tokens = prompt_tokens + output_limit(limits, prompt_tokens, output_tokens) - 1
    if -(-peak_tokens // limits.block_size) > limits.num_blocks - 1:
        return RejectReason.NEVER_FITS
    return None


class Flight:
    """One step under way: whose tokens of it need saying."""

    __slots__ = ("ending", "first", "late", "step", "tokens")

    def __init__(self, step: int) -> None:
        self.step = step
        self.tokens = 0
        self.first: list[Sequence] = []
        self.late: list[tuple[Sequence, int]] = []
        self.ending: list[Sequence] = []

    @property
    def quiet(self) -> bool:
        return not (self.first or self.ending or self.late)

    def sort(self) -> None:
        """Outputs are processed in running order."""
        self.first.sort(key=_order)
        self.ending.sort(key=_order)
        self.late.sort(key=lambda late: late[0].order)


def _order(sequence: Sequence) -> int:
    return sequence.order


class Scheduler:
    """State of one engine. Requests are named by their index; nobody is visited who has nothing new."""

    def __init__(self, limits: EngineLimits) -> None:
        self.limits = limits
        self.rules = RULES[limits.version]
        self.steps = 0
        """Steps with tokens decided so far."""
        self.pool = BlockPool(limits.num_blocks, unhashed_first=self.rules.unhashed_first)
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
        self._live: dict[int, Sequence] = {}
        self._keys = KeyTable()
        self._orders = 0
        self._quotable: dict[int, Sequence] = {}
        self._unreported = False
        self._depth = 2 if limits.async_scheduling else 1

    # ---- requests come and go

    def add(
        self,
        index: int,
        name: str,
        prompt_tokens: int,
        output_tokens: int,
        *,
        priority: int = 0,
        order_time: int = 0,
        prompt: Listing[Run] | None = None,
        quotable: bool = False,
    ) -> None:
        """Queue a request that `refusal` lets in. `prompt` spells its shareable tokens, from the first on."""
        output = output_limit(self.limits, prompt_tokens, output_tokens)
        sequence = Sequence(index, name, prompt_tokens, output)
        sequence.priority = priority
        sequence.order_time = order_time
        if self.limits.enable_prefix_caching and prompt:
            shared = sum(count for _, _, count in prompt)
            runs = list(prompt)
            if quotable:
                runs.append((f"o:{name}", 0, output))
                shared += output
                self._quotable[index] = sequence
            sequence.chain = Chain(self._keys, index, self.limits.block_size, runs, shared)
        self._live[index] = sequence
        self.waiting.add(sequence)

    def abort(self, index: int) -> bool:
        """Cancel a request; False when it is not there any more. Its tokens under way are dropped."""
        sequence = self._live.get(index)
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
        return bool(self._live) or self._unreported

    @property
    def depth(self) -> int:
        """How many steps may be under way."""
        return self._depth

    def open_to_newcomers(self) -> bool:
        """Whether a request that came now could be admitted by the next decision if it is like the last one."""
        if len(self.running) >= self.limits.max_num_seqs:
            return False
        return not self.waiting or self.limits.policy is SchedulingPolicy.PRIORITY

    # ---- one decision

    def schedule(self) -> Plan:
        """Decide the next step. A plan without tokens is a step nobody runs, yet it stays in flight."""
        plan = Plan(step=self.steps, decodes=0, decode_context=0)
        flight = Flight(-1)
        self.flights.append(flight)
        self._unreported = False
        if self.running and not self._smooth_pass(plan, flight):
            walk(self, plan, flight)
        if self.waiting and not plan.preempted:
            admit(self, plan, flight)
        flight.tokens = plan.tokens
        if plan.tokens:
            flight.step = self.steps
            self.steps += 1
            if plan.shapes and not flight.quiet:
                flight.sort()
        return plan

    def update(self) -> Outcome | None:
        """Take in the output of the oldest step under way; None if it brought nothing that needs saying."""
        flight = self.flights.popleft()
        if flight.quiet:
            return None
        outcome = Outcome(step=flight.step)
        outcome.first = [sequence.index for sequence in flight.first if sequence.status is not Status.GONE]
        outcome.late = [(late.index, step) for late, step in flight.late if late.status is not Status.GONE]
        for sequence in flight.ending:
            if sequence.status is Status.GONE:
                continue
            if sequence.status is Status.WAITING:
                self.waiting.remove(sequence)
            else:
                del self.running[sequence.index]
                sequence.hashed = sequence.computed
                self.free(sequence)
            outcome.finished.append(sequence.index)
            self._forget(sequence)
        return None if outcome.quiet else outcome

    # ---- runs of equal decisions

    def horizon(self, plan: Plan) -> int:
        """How many more decisions after this steady `plan` are like it, if nobody new comes in.

        The oldest step under way, unless it is the one just decided, may still bring an outcome before the first of
        them: `outcome_due`. Nothing after it does.
        """
        decoders, flights = self.decoders, self.flights
        if not decoders.count or len(flights) < self._depth or not flights[-1].quiet:
            return 0
        if self._quotable and plan.blocked is Blocked.BLOCKS:
            return 0
        if self._depth > 1:
            oldest = flights[0]
            if oldest.step < 0 or (oldest.ending and (self.waiting or not self.open_to_newcomers())):
                return 0
        return decoders.ticks_within(self.pool.free, decoders.ticks_to_end())

    def outcome_due(self) -> bool:
        """Whether the step before the one just decided brings something that needs saying: call `update` at its end."""
        return len(self.flights) > 1 and not self.flights[0].quiet

    def advance(self, steps: int) -> None:
        """Decide `steps` more steps, no more than `horizon` allowed, taking in the output of as many.

        If the output that was due has been taken in by `update`, one less.
        """
        decoders, flights = self.decoders, self.flights
        line = decoders.openings(steps)
        for sequence, block in zip(line, self.pool.take(len(line)), strict=True):
            sequence.blocks.append(block)
        self.steps += steps
        if len(flights) < self._depth:
            flights.appendleft(Flight(flights[0].step - 1))
        for flight in flights:
            flight.step += steps
        flights[-1].ending = decoders.advance(steps)
        self.publish()

    # ---- what the passes share

    def due(self, sequence: Sequence) -> int:
        """Tokens of a prefilling or waiting request that are not computed, cut by the long-prefill threshold."""
        return self.cut(sequence.prompt + sequence.issued - sequence.computed)

    def cut(self, tokens: int) -> int:
        threshold = self.limits.long_prefill_token_threshold
        if not 0 < threshold < tokens:
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
            self._register(sequence, chain)
        if computed < sequence.prompt + sequence.issued:
            return
        plan.sampled += 1
        step = plan.step
        if sequence.last_sample < 0:
            flight.first.append(sequence)
        elif sequence.last_sample != step - 1:
            flight.late.append((sequence, sequence.last_sample))
        sequence.last_sample = step
        sequence.issued += 1
        if sequence.issued == sequence.output:
            sequence.status = Status.ENDING
            flight.ending.append(sequence)
        else:
            self.decoders.join(sequence, 1)

    def decode(self, plan: Plan, flight: Flight) -> None:
        """Schedule one token of every decoder; their blocks are there."""
        decoders = self.decoders
        count = decoders.count
        plan.decodes = count
        plan.decode_context = decoders.context
        plan.tokens += count
        plan.sampled += count
        plan.context += decoders.context
        for sequence in self.skipped:
            if sequence.status is Status.DECODE:
                flight.late.append((sequence, sequence.last_sample))
        self.skipped.clear()
        flight.ending = decoders.advance()

    def publish(self) -> None:
        """Blocks of generated tokens that others may quote are findable as soon as they are full and known."""
        for sequence in self._quotable.values():
            self.publish_one(sequence)

    def publish_one(self, sequence: Sequence) -> None:
        """The same for one request, if its tokens may be quoted."""
        if sequence.status is Status.DECODE:
            self.decoders.settle(sequence)
        if sequence.status not in (Status.DECODE, Status.ENDING) or sequence.index not in self._quotable:
            return
        sequence.hashed = max(sequence.hashed, sequence.computed - self.overlap(sequence))
        if sequence.chain is not None:
            self._register(sequence, sequence.chain)

    def preempt(self, sequence: Sequence, plan: Plan) -> None:
        """Take a running request's blocks and queue it again; what it had computed may still be found."""
        if sequence.status is Status.DECODE:
            sequence.last_sample = plan.step - 1
        self.leave_running(sequence)
        self.free(sequence)
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
        return int(self._depth > 1 and self.decoders.tick >= sequence.overlap_tick)

    def free(self, sequence: Sequence) -> None:
        """Give back its blocks; those it had filled stay findable if anybody may look for them."""
        limits = self.limits
        hashed = sequence.hashed // limits.block_size if limits.enable_prefix_caching else 0
        if (hashed and sequence.issued < sequence.output) or sequence.index in self._quotable:
            chain = sequence.chain
            if chain is None:
                chain = sequence.chain = Chain(self._keys, sequence.index, limits.block_size, (), 0)
            self.pool.register(chain, sequence.blocks, 0, hashed)
        self.pool.give_back(sequence.blocks, hashed)
        sequence.blocks = []
        sequence.computed = 0
        sequence.hashed = 0
        sequence.registered = 0

    def seat(self, sequence: Sequence) -> None:
        """The request runs from now on, last in order."""
        self.running[sequence.index] = sequence
        sequence.order = self._orders
        self._orders += 1

    def _smooth_pass(self, plan: Plan, flight: Flight) -> bool:
        """The running pass where nobody's tokens or blocks depend on who comes first; False if they may."""
        decoders, pool, prefills = self.decoders, self.pool, self.prefills
        budget = self.limits.max_num_batched_tokens - decoders.count
        opening = decoders.opening()
        needed = len(opening)
        if budget < 0 or needed > pool.free:
            return False
        chunks: list[tuple[Sequence, int, int]] = []
        if prefills:
            if prefills[0].order < decoders.newest_order:
                return False
            block = self.limits.block_size
            for sequence in prefills:
                tokens = min(self.due(sequence), budget)
                budget -= tokens
                blocks = -(-(sequence.computed + tokens) // block) - len(sequence.blocks)
                needed += blocks
                chunks.append((sequence, tokens, blocks))
            if needed > pool.free or not chunks[-1][1]:
                return False
        if opening:
            for sequence, number in zip(opening, pool.take(len(opening)), strict=True):
                sequence.blocks.append(number)
        if decoders.count:
            self.decode(plan, flight)
            self.publish()
        for sequence, tokens, blocks in chunks:
            sequence.blocks += pool.take(blocks)
            plan.chunks.append((sequence.index, tokens))
            self.extend(sequence, tokens, plan, flight)
        if chunks:
            self.prefills = [sequence for sequence in prefills if sequence.status is Status.PREFILL]
        return True

    def _register(self, sequence: Sequence, chain: Chain) -> None:
        stop = min(sequence.hashed // self.limits.block_size, chain.shared_blocks)
        if stop > sequence.registered:
            self.pool.register(chain, sequence.blocks, sequence.registered, stop)
            sequence.registered = stop

    def _forget(self, sequence: Sequence) -> None:
        sequence.status = Status.GONE
        del self._live[sequence.index]
        self._quotable.pop(sequence.index, None)
        self._unreported = True
