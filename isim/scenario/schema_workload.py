"""The blocks `workload` and `slo` of the run file: what is served, and what is promised."""

from __future__ import annotations

from isim.scenario.fields import (
    RATE,
    RATIO,
    TEXT,
    Block,
    Field,
    Kind,
    Named,
    OneOf,
    choice,
    quantity,
    share,
    whole,
    wholes,
)
from isim.scenario.types import RequestFormat
from isim.scenario.units import Dimension

TOKENS_MAX = 10**9
PRIORITY_MAX = 10**9
MILLION = 10**6

FORMAT = choice({form.value: form for form in RequestFormat})
COUNT = whole(1)
TOKENS = whole(1, TOKENS_MAX)
DURATION = quantity(Dimension.DURATION)
TIME = quantity(Dimension.DURATION, 1)
REQUESTS = whole(1, 10**8)

WINDOW = Block(
    {
        "start": Field(DURATION, "First arrival kept, since the trace's first.", default=0, rule="0 ns"),
        "end": Field(DURATION, "Arrivals from here on are left out.", required=True),
    },
    "The part of the trace that is used; its start is time 0.",
)
_TRACE = {
    "limit": Field(COUNT, "How many requests are used.", rule="all", nullable=True),
    "time_scale": Field(RATIO, "Factor on the times between arrivals.", rule="1"),
    "window": Field(WINDOW, "The part of the trace that is used.", rule="all of it", nullable=True),
}
_PATH = Field(TEXT, "The file, relative to the run file.", required=True)


def _required(kind: Kind, doc: str) -> Field:
    return Field(kind, doc, required=True)


ARRIVALS = OneOf(
    "kind",
    {
        "fixed_rate": Block({"rate": _required(RATE, "Requests in a time.")}, "Equal gaps."),
        "poisson": Block({"rate": _required(RATE, "Mean requests in a time.")}, "Exponential gaps."),
        "gamma": Block(
            {
                "rate": _required(RATE, "Mean requests in a time."),
                "cv": _required(
                    share(10_000, 10 * MILLION, "a number from 0.01 to 10"),
                    "Coefficient of variation of the gaps, 1 for a Poisson process.",
                ),
            },
            "Gamma gaps: even below a cv of 1, in clumps above it.",
        ),
        "ramp": Block(
            {
                "from": _required(RATE, "Mean requests in a time at the start."),
                "to": _required(RATE, "Mean requests in a time at the end of the ramp and after it."),
                "over": _required(TIME, "How long the ramp is."),
            },
            "A Poisson process whose rate goes in a straight line from one to the other.",
        ),
        "diurnal": Block(
            {
                "low": _required(RATE, "Mean requests in a time at the start of every period."),
                "high": _required(RATE, "Mean requests in a time in the middle of every period."),
                "period": _required(quantity(Dimension.DURATION, 2), "How long a period is."),
            },
            "A Poisson process whose rate goes up and down in straight lines, over and over.",
        ),
        "burst": Block(
            {
                "base": _required(RATE, "Mean requests in a time between bursts."),
                "burst": _required(RATE, "Mean requests in a time in a burst."),
                "period": _required(quantity(Dimension.DURATION, 2), "From the end of a burst to the end of the next."),
                "length": _required(TIME, "How long a burst is."),
            },
            "A Poisson process with a burst at the end of every period.",
        ),
    },
    "When requests arrive.",
)
LENGTH = OneOf(
    "kind",
    {
        "constant": Block({"tokens": _required(TOKENS, "Tokens of every request.")}, "Always the same."),
        "uniform": Block(
            {"low": _required(TOKENS, "Fewest tokens."), "high": _required(TOKENS, "Most tokens.")},
            "Every length of a range equally likely.",
        ),
        "lognormal": Block(
            {
                "median": _required(TOKENS, "Half of the requests have fewer tokens."),
                "sigma": _required(
                    share(0, 10 * MILLION, "a number from 0 to 10"), "Standard deviation of the logarithm."
                ),
                "min": Field(TOKENS, "Fewest tokens.", default=1),
                "max": _required(TOKENS, "Most tokens."),
            },
            "A lognormal length confined to a range.",
        ),
        "empirical": Block(
            {
                "values": _required(wholes(1, TOKENS_MAX), "The lengths there are."),
                "weights": Field(
                    wholes(1, TOKENS_MAX), "How often each was seen.", rule="all equally often", nullable=True
                ),
            },
            "Lengths as they were seen.",
        ),
        "empirical_file": Block(
            {"path": _PATH}, "Lengths as they were seen: on each line of a file one, perhaps a comma and how often."
        ),
    },
    "How many tokens; a bare whole number is a constant.",
    short="tokens",
    plain="constant",
)
SHARED_PREFIX = Block(
    {
        "tokens": _required(TOKENS, "How many tokens requests of one group share; a shorter prompt shares all it has."),
        "groups": Field(whole(1, TOKENS_MAX), "How many groups there are, all equally likely.", default=1),
    },
    "The first tokens of a prompt, the same for all requests of a group.",
)
_TRAFFIC = {
    "input_tokens": Field(LENGTH, "Tokens of a prompt, a shared prefix included.", required=True),
    "output_tokens": Field(LENGTH, "Tokens of an answer.", required=True),
    "priority": Field(whole(-PRIORITY_MAX, PRIORITY_MAX), "Lower is more urgent.", default=0),
    "shared_prefix": Field(SHARED_PREFIX, "What prompts have in common.", rule="nothing", nullable=True),
    "prompt_pool": Field(
        whole(1, TOKENS_MAX), "How many prompts there are; they come over and over.", rule="no limit", nullable=True
    ),
}
THINK = OneOf(
    "kind",
    {
        "fixed": Block({"duration": _required(DURATION, "The wait.")}, "Always the same wait."),
        "exponential": Block({"mean": _required(TIME, "The mean wait.")}, "An exponential wait."),
    },
    "How long a client waits after an answer before it sends again.",
)
_REACTING = {key: field for key, field in _TRAFFIC.items() if key != "prompt_pool"}
CLASS = Block(
    {"weight": Field(whole(1, 1000), "How many of the sum of all weights are of this class.", default=1), **_TRAFFIC},
    "Requests of one kind.",
)
WORKLOAD = OneOf(
    "kind",
    {
        "azure_trace": Block({"path": _PATH, **_TRACE}, "An Azure LLM inference trace."),
        "request_file": Block(
            {"path": _PATH, "format": _required(FORMAT, "Form of the file."), **_TRACE},
            "Requests in isim's own format.",
        ),
        "generated": Block(
            {
                "arrivals": Field(ARRIVALS, "When requests arrive.", required=True),
                "requests": _required(REQUESTS, "How many requests."),
                **_TRAFFIC,
            },
            "Seeded random requests.",
        ),
        "mooncake_trace": Block({"path": _PATH, **_TRACE}, "A Mooncake trace, whose prompts share blocks."),
        "mixture": Block(
            {
                "arrivals": Field(ARRIVALS, "When requests arrive, all classes together.", required=True),
                "requests": _required(REQUESTS, "How many requests, all classes together."),
                "classes": Field(Named(CLASS, "The classes by their names."), "Kinds of requests.", required=True),
            },
            "Seeded random requests of several classes, in proportion to their weights.",
        ),
        "closed_loop": Block(
            {
                "clients": _required(REQUESTS, "How many clients there are; each has one request at a time."),
                "requests": _required(REQUESTS, "How many requests, of all clients together."),
                "think": Field(THINK, "The wait between an answer and the next request.", required=True),
                **_REACTING,
            },
            "Clients that send their next request after the answer to the last one.",
        ),
        "sessions": Block(
            {
                "arrivals": Field(ARRIVALS, "When conversations begin.", required=True),
                "sessions": _required(REQUESTS, "How many conversations."),
                "turns": Field(
                    LENGTH, "How many requests a conversation has; lengths count turns here.", required=True
                ),
                "think": Field(THINK, "The wait between an answer and the next turn.", required=True),
                **_REACTING,
            },
            "Conversations: each prompt is all that was said before, answers included, and input_tokens more.",
        ),
    },
    "What is served.",
)

TARGETS = Block(
    {
        "each": Field(TIME, "What every request has to keep.", nullable=True, rule="nothing"),
        "mean": Field(TIME, "What the mean has to keep.", nullable=True, rule="nothing"),
        **{
            f"p{percent}": Field(TIME, f"What {percent} % of the requests have to keep.", nullable=True, rule="nothing")
            for percent in (50, 90, 95, 99)
        },
        "max": Field(TIME, "What the longest has to keep.", nullable=True, rule="nothing"),
    },
    "Longest times. A time in its place is short for what each request has to keep.",
    short="each",
)
SLO = Block(
    {
        name: Field(TARGETS, doc, nullable=True, rule="nothing")
        for name, doc in {
            "ttft": "Time to first token.",
            "tpot": "Time per output token after the first, the mean of a request.",
            "itl": "Time between two tokens; each means every one of a request.",
            "e2e": "From arrival to the last token.",
        }.items()
    },
    "What is promised to the users: times with units.",
)
