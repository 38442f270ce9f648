"""What an execution log must obey, and what of it no rule can judge."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import ClassVar

from isim.replay.rules import ReplayViolation


class ExecutionRule(StrEnum):
    """One kind of promise; `EXECUTION_RULES` says each in a line."""

    ENVELOPE = "envelope"
    MACHINE = "machine"
    PLAN = "plan"
    PLAN_DIGEST = "plan_digest"
    ADMISSION = "admission"
    RELEASE = "release"
    READINESS = "readiness"
    DELAY = "delay"
    ARBITRATION = "arbitration"
    COMMUNICATOR = "communicator"
    SEQUENCE = "sequence"
    LANES = "lanes"
    LEASES = "leases"
    EVIDENCE = "evidence"
    START = "start"
    FINISH = "finish"
    TERMINAL = "terminal"
    EVENT_BUDGET = "event_budget"
    END = "end"


EXECUTION_RULES: dict[StrEnum, str] = {
    ExecutionRule.ENVELOPE: "numbers without gaps, times that never go back, an instant in order, a first and a last",
    ExecutionRule.MACHINE: "a known schema and revision, and a machine whose names are unique and lead somewhere",
    ExecutionRule.PLAN: "steps wait for known steps, never in a circle, and use what the machine has as it allows",
    ExecutionRule.PLAN_DIGEST: "a plan is named by the digest of its content, and told once",
    ExecutionRule.ADMISSION: "admissions are numbered without gaps; an execution is new and its plan told",
    ExecutionRule.RELEASE: "a step held back by a time is released at that time, once",
    ExecutionRule.READINESS: "a step is submitted once, when its dependencies have finished and its time has come",
    ExecutionRule.DELAY: "a step that nothing holds back is submitted at that moment",
    ExecutionRule.ARBITRATION: "what is ready at one moment is submitted by order of admission, then of the plan",
    ExecutionRule.COMMUNICATOR: "a communicator serves one execution after the other, each in the plan's sequence",
    ExecutionRule.SEQUENCE: "submissions are counted over the log and within each execution, without gaps",
    ExecutionRule.LANES: "a step takes of each resource it names the lane that is free first, the lowest of equals",
    ExecutionRule.LEASES: "a submission registers the leases that the plan states",
    ExecutionRule.EVIDENCE: "a collective is the one of the plan: its group, its place in the order, its algorithm",
    ExecutionRule.START: "a step starts when its lanes are free and its leases hold for all of its duration, not later",
    ExecutionRule.FINISH: "a step finishes once, its duration after its start",
    ExecutionRule.TERMINAL: "an execution is terminal with its last step, each rank with the last it takes part in",
    ExecutionRule.EVENT_BUDGET: "no more admissions, submissions, releases and terminals than max_events",
    ExecutionRule.END: "the end's totals and time are those of the log, and every execution is terminal",
}

FREE_EXECUTION_FIELDS: dict[tuple[str, str], str] = {
    ("machine", "isim_version"): "says who wrote the log, nothing follows from it",
    ("machine", "scenario"): "a name; nothing follows from it",
    ("machine", "scenario_fingerprint"): "names a file that is not in the log",
    ("machine", "max_events"): "an upper limit; only a log beyond it is wrong",
    ("machine", "devices"): "lanes never all taken, devices nobody used and the order of the list leave no trace",
    ("machine", "links"): "lanes never all taken, links nobody used and the order of the list leave no trace",
    ("machine", "network"): "lanes never all taken, resources nobody used and the order of the list leave no trace",
    ("machine", "groups"): "communicators nobody used and the order of the list leave no trace",
    ("machine", "aliases"): "a second name under which nobody was kept waiting leaves no trace",
    ("admit", "time_ns"): "an input; where everything at first waits for something else nothing follows from it",
    ("admit", "not_before"): "an input; a time that had come by the admission holds nothing back",
}
"""Fields whose wrong value need not be noticed, and why. Every other field of every kind is derived and compared."""


class ExecutionViolation(ReplayViolation):
    """The execution log tells of something that could not have happened on the machine it describes."""

    meanings: ClassVar[Mapping[StrEnum, str]] = EXECUTION_RULES
