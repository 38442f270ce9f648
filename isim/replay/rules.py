"""What a log must obey: the rules, what each means, the violation that names one, and what no rule can judge."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import ClassVar

from isim.record.errors import IsimError

_SHOWN_CHARS = 300


class Rule(StrEnum):
    """One kind of promise; `RULES` says each in a line."""

    ENVELOPE = "envelope"
    HEADER = "header"
    ARRIVAL = "arrival"
    ROUTING = "routing"
    REJECTION = "rejection"
    LIFECYCLE = "lifecycle"
    CAUSALITY = "causality"
    STEP_NUMBER = "step_number"
    OUTCOME = "outcome"
    FINISH = "finish"
    PREEMPTION = "preemption"
    CHUNKS = "chunks"
    SKIPPED = "skipped"
    TOKEN_BUDGET = "token_budget"
    MAX_NUM_SEQS = "max_num_seqs"
    ADMISSION = "admission"
    PREFIX_HIT = "prefix_hit"
    STEP_TOTALS = "step_totals"
    QUEUES = "queues"
    BLOCK_LEDGER = "block_ledger"
    DURATION = "duration"
    STRETCH = "stretch"
    STRETCH_FORM = "stretch_form"
    EVENT_BUDGET = "event_budget"
    END = "end"


RULES: dict[StrEnum, str] = {
    Rule.ENVELOPE: "numbers without gaps, times that never go back, one instant in order, a header first, an end last",
    Rule.HEADER: "a known schema and revision, and limits an engine can run with",
    Rule.ARRIVAL: "requests arrive in index order, sent at t = 0 or later, with a new id, at least one token each way "
    "and a prompt that adds up",
    Rule.ROUTING: "every request goes to the engine that the router's rule picks, ties included",
    Rule.REJECTION: "exactly the requests that can never run are rejected, at their arrival, for the right reason",
    Rule.LIFECYCLE: "only a request that is there can leave, and it leaves once",
    Rule.CAUSALITY: "the engine acts when a step ends or when an arrival finds it idle: then, at once, and only then",
    Rule.STEP_NUMBER: "steps are numbered without gaps; exactly the decisions that schedule tokens are steps",
    Rule.OUTCOME: "first tokens, and tokens after a pause, are those the ended step had coming, in running order",
    Rule.FINISH: "a request finishes with the step that gives its last token, in running order",
    Rule.PREEMPTION: "block shortage, and nothing else, preempts; the victims are the policy's, in order",
    Rule.CHUNKS: "each running prefill gets what threshold, budget and the ends of states leave it, in running order",
    Rule.SKIPPED: "a running request with tokens due goes without only when the pass ends before it",
    Rule.TOKEN_BUDGET: "no step has more new tokens than max_num_batched_tokens",
    Rule.MAX_NUM_SEQS: "no more than max_num_seqs requests run",
    Rule.ADMISSION: "the head of the queue is admitted while seats, budget and blocks allow, and nobody before it",
    Rule.PREFIX_HIT: "a prefix hit is the longest prefix that all groups have cached, short of the last known token",
    Rule.STEP_TOTALS: "a step's requests, tokens, sampled tokens and context add up",
    Rule.QUEUES: "the numbers of running and waiting requests follow from who came and went",
    Rule.BLOCK_LEDGER: "free blocks are all blocks less those that a table of some request holds",
    Rule.DURATION: "a step takes at least 1 ns, and what the linear cost says when the header states it",
    Rule.STRETCH: "a stretch hides nothing: its steps serve the same requests, what came out within it has its turn",
    Rule.STRETCH_FORM: "one duration when all are equal, otherwise one for each step",
    Rule.EVENT_BUDGET: "no more steps than max_events",
    Rule.END: "the end's totals are those of the log, and nothing is left that could still run",
}

FREE_FIELDS: dict[tuple[str, str], str] = {
    ("header", "isim_version"): "says who wrote the log, nothing follows from it",
    ("header", "scenario_digest"): "names a file that is not in the log",
    ("header", "seed"): "draws are in the log as arrivals and durations; only seeded ties of a router are drawn again",
    ("header", "max_events"): "an upper limit; only a run beyond it is wrong",
    (
        "header",
        "engines",
    ): "engines to which nothing was sent leave no trace; another count sends somebody elsewhere",
    ("header", "router"): "a rule that never had a choice to make leaves no trace; every choice made is checked",
    ("header", "engine"): "limits that never bound in this run leave no trace; those that did are followed exactly",
    ("header", "linear_cost"): "without it durations are given, not derived",
    (
        "header",
        "request_overhead_ns",
    ): "says when what arrived was sent; nothing more follows than that it was not before t = 0",
    ("arrive", "time_ns"): "an input; between the same two decisions of a busy engine nothing follows from it",
    ("abort", "time_ns"): "an input; within the same step nothing follows from it",
    ("arrive", "id"): "a name; it must be new, breaks priority ties and may be quoted by later prompts",
    ("arrive", "priority"): "an input; without the priority policy nothing follows from it",
    ("arrive", "order_time"): "an input; without the priority policy nothing follows from it",
    ("arrive", "prompt"): "an input; it must add up, and with prefix caching every hit follows from it",
    ("arrive", "quotable"): "a permission; needed where a later prompt quotes the output, otherwise without trace",
    ("arrive", "prompt_tokens"): "an input; of a prompt that is too long only the refusal follows",
    ("arrive", "output_tokens"): "an input; all beyond max_model_len is without trace",
}
"""Fields whose wrong value need not be noticed, and why. Every other field of every kind is derived and compared."""

FREE_ORDERS: dict[tuple[str, str], str] = {
    ("stretch", "durations_ns"): "without a linear cost durations are given; which of two steps took longer is without "
    "trace where nobody came in between",
}
"""Lists of which only the order need not be noticed, and why."""


class Mismatch(Exception):  # noqa: N818 - not yet an error for people, it lacks the record's place
    """What a checker found wrong; `Replay` adds where."""

    def __init__(self, rule: StrEnum, expected: object, found: object) -> None:
        super().__init__(rule, expected, found)
        self.rule = rule
        self.expected = shown(expected)
        self.found = shown(found)


class ReplayViolation(IsimError):  # noqa: N818 - its name in the architecture
    """The log tells of something the engine it describes could not have done. `sequence` is the first wrong record."""

    exit_code = 3
    meanings: ClassVar[Mapping[StrEnum, str]] = RULES

    def __init__(self, sequence: int, rule: StrEnum, expected: str, found: str) -> None:
        super().__init__(sequence, rule, expected, found)
        self.sequence = sequence
        self.rule = rule
        self.expected = expected
        self.found = found

    def __str__(self) -> str:
        return (
            f"replay: record {self.sequence} breaks the rule {self.rule} ({self.meanings[self.rule]}): "
            f"expected {self.expected}, found {self.found}"
        )


def shown(value: object) -> str:
    """The value in words for a message; long lists are cut."""
    text = value if isinstance(value, str) else repr(value)
    return text if len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]}… ({len(text)} characters)"
