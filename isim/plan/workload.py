"""The workload file of a topology: what is to be run on it, apart from what the topology is.

    schema: isim/topology-workload     # may be left out where the command says what the file is
    target_only:
      token_count: 128
    concurrent_campaign:               # for `isim campaign`; each key may be left out
      execution_count: 32
      seed: 42                         # default: the scenario's
      arrival_window_ns: 1000000

YAML 1.2 or JSON, keys in snake case, unknown keys refused.
"""

from __future__ import annotations

import os
from typing import Any

import msgspec

from isim.plan.profile import Profile, target_only_profile
from isim.scenario.errors import ScenarioError
from isim.scenario.fields import Block, Field, Reading, Values, choice, read_block, whole
from isim.scenario.files import read_bytes
from isim.scenario.nodes import Limits, decode, parse
from isim.scenario.units import TIME_MAX_NS

SCHEMA = "isim/topology-workload"
LIMITS = Limits(noun="a topology workload")
TOKENS_MAX = 10**6
EXECUTIONS_MAX = 10**6
SEED_MAX = (1 << 32) - 1

_TARGET = Block(
    {"token_count": Field(whole(1, TOKENS_MAX), "Tokens of output, one pass of the target model each.", required=True)}
)
_CAMPAIGN = Block(
    {
        "execution_count": Field(whole(1, EXECUTIONS_MAX), "How many executions of the plan are admitted.", default=32),
        "seed": Field(whole(0, SEED_MAX), "Seed of arrivals and of the order of equals.", rule="the scenario's seed"),
        "arrival_window_ns": Field(whole(0, TIME_MAX_NS), "Arrivals are drawn from 0 to this.", default=1_000_000),
    }
)
WORKLOAD = Block(
    {
        "schema": Field(choice({SCHEMA: SCHEMA}), "What this file is.", rule="what the command expects"),
        "target_only": Field(_TARGET, "Tokens that the target model makes alone.", required=True),
        "concurrent_campaign": Field(_CAMPAIGN, "Many executions of the plan on one machine."),
    },
    "What is to be run on a topology.",
)


class Campaign(msgspec.Struct, frozen=True, kw_only=True):
    """`executions` of one plan, arriving within `window_ns`; `seed` None is the scenario's."""

    executions: int
    seed: int | None
    window_ns: int


class Workload(msgspec.Struct, frozen=True, kw_only=True):
    """What a workload file says; `campaign` None where it says nothing of one."""

    token_count: int
    campaign: Campaign | None

    def profile(self) -> Profile:
        """The units of work of one execution."""
        return target_only_profile(self.token_count)


def load_workload(path: str | os.PathLike[str]) -> Workload:
    """The workload of a file. Raises ScenarioError with all complaints."""
    file = os.fspath(path)
    return read_workload(read_bytes(file, LIMITS), file)


def read_workload(data: bytes, file: str) -> Workload:
    """The workload of a file's bytes; `file` is what complaints call it."""
    reading = Reading(file)
    text = decode(data, reading.complaints, LIMITS)
    root = None if text is None else parse(text, reading.complaints, limits=LIMITS)
    values = None if root is None else read_block(reading, WORKLOAD, root, "")
    if values is None or reading.complaints:
        raise ScenarioError(file, reading.complaints)
    target: Values = values.values["target_only"]
    return Workload(token_count=target.values["token_count"], campaign=_campaign(values.values["concurrent_campaign"]))


def _campaign(values: Values | None) -> Campaign | None:
    if values is None:
        return None
    found: dict[str, Any] = values.values
    return Campaign(executions=found["execution_count"], seed=found["seed"], window_ns=found["arrival_window_ns"])
