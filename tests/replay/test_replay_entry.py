"""Headers and requests at the edge of what can be: the last that can, the first that cannot, and what is said of it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from replay_examples import LIMITS, arrive, header

from isim.record.records import (
    Arrive,
    EngineLimits,
    GroupKind,
    GroupLimits,
    Header,
    LinearCoefficients,
    RejectReason,
    RouterFacts,
    RoutingPolicy,
)
from isim.replay.entry import check_limits, check_request, refusal
from isim.replay.rules import Mismatch, Rule, shown
from isim.replay.tables import terms

FULL, SLIDING, STATE, ALIGNED = GroupKind.FULL, GroupKind.SLIDING, GroupKind.STATE, GroupKind.ALIGNED_STATE


def with_limits(**limits: Any) -> Header:
    return header(**limits)


def with_groups(*groups: GroupLimits, **limits: Any) -> Header:
    return header(groups=groups, **limits)


def with_cost(**parts: int) -> Header:
    zero = LinearCoefficients(base_ps=0, per_token_ps=0, per_request_ps=0, per_context_token_ps=0)
    return header(msgspec.structs.replace(zero, **parts))


def with_engines(engines: int, *, routed: bool) -> Header:
    router = RouterFacts(policy=RoutingPolicy.LEAST_OUTSTANDING) if routed else None
    return msgspec.structs.replace(header(), engines=engines, router=router)


def group(kind: GroupKind, block_size: int, window_tokens: int = 0) -> GroupLimits:
    return GroupLimits(kind=kind, block_size=block_size, window_tokens=window_tokens)


@pytest.mark.parametrize(
    ("field", "least"),
    [
        ("max_num_seqs", 1),
        ("max_num_batched_tokens", 1),
        ("block_size", 1),
        ("num_blocks", 2),
        ("max_model_len", 1),
        ("long_prefill_token_threshold", 0),
    ],
)
def test_a_limit_has_a_least_value(field: str, least: int) -> None:
    check_limits(with_limits(**{field: least}))
    with pytest.raises(Mismatch) as raised:
        check_limits(with_limits(**{field: least - 1}))
    assert (raised.value.expected, raised.value.found) == (f"{field} from {least}", str(least - 1))
    assert raised.value.rule is Rule.HEADER


CAN_BE = [
    with_engines(2, routed=True),
    msgspec.structs.replace(header(), max_events=1),
    with_cost(),
    with_groups(group(FULL, 1), group(SLIDING, 3, 2), group(ALIGNED, 4), enable_prefix_caching=True),
    with_groups(group(FULL, 2), group(STATE, 32)),
    with_groups(group(ALIGNED, 4), max_num_batched_tokens=4, long_prefill_token_threshold=4),
    with_groups(group(FULL, 4), max_num_batched_tokens=3, long_prefill_token_threshold=3),
    with_limits(enable_chunked_prefill=False, max_num_batched_tokens=32),
]
CANNOT_BE: list[tuple[Header, str, object]] = [
    (msgspec.structs.replace(header(), max_events=0), "max_events from 1", 0),
    (with_engines(0, routed=True), "engines from 1", 0),
    (
        with_engines(1, routed=True),
        "a router exactly where there are several engines",
        with_engines(2, routed=True).router,
    ),
    (with_engines(2, routed=False), "a router exactly where there are several engines", None),
    (with_cost(base_ps=-1), "base_ps from 0", -1),
    (with_cost(per_token_ps=-2), "per_token_ps from 0", -2),
    (with_cost(per_request_ps=-1), "per_request_ps from 0", -1),
    (with_cost(per_context_token_ps=-1), "per_context_token_ps from 0", -1),
    (with_groups(group(FULL, 0)), "groups with blocks of 1 token or more", group(FULL, 0)),
    (
        with_groups(group(FULL, 2), group(SLIDING, 2, 1)),
        "a window of 2 tokens or more exactly where a group is sliding",
        group(SLIDING, 2, 1),
    ),
    (
        with_groups(group(FULL, 2, 2)),
        "a window of 2 tokens or more exactly where a group is sliding",
        group(FULL, 2, 2),
    ),
    (with_groups(group(STATE, 31)), "a state's block of max_model_len 32 tokens", group(STATE, 31)),
    (
        with_groups(group(STATE, 32), enable_prefix_caching=True),
        "with prefix caching no group that keeps a state throughout",
        group(STATE, 32),
    ),
    (with_groups(group(ALIGNED, 8)), "aligned states in blocks of block_size 4", group(ALIGNED, 8)),
    (with_groups(group(ALIGNED, 2)), "aligned states in blocks of block_size 4", group(ALIGNED, 2)),
    (with_groups(group(FULL, 4), group(ALIGNED, 4), max_num_batched_tokens=3), "max_num_batched_tokens from 4", 3),
    (with_groups(group(ALIGNED, 4), long_prefill_token_threshold=3), "long_prefill_token_threshold from 4", 3),
    (with_limits(enable_chunked_prefill=False, max_num_batched_tokens=31), "max_num_batched_tokens from 32", 31),
    (
        with_groups(group(ALIGNED, 4), enable_chunked_prefill=False, max_num_batched_tokens=31),
        "max_num_batched_tokens from 32",
        31,
    ),
]


@pytest.mark.parametrize("told", CAN_BE)
def test_a_header_that_can_be(told: Header) -> None:
    check_limits(told)


@pytest.mark.parametrize(("told", "expected", "found"), CANNOT_BE)
def test_a_header_that_cannot_be(told: Header, expected: str, found: object) -> None:
    with pytest.raises(Mismatch) as raised:
        check_limits(told)
    assert (raised.value.rule, raised.value.expected, raised.value.found) == (Rule.HEADER, expected, shown(found))


IDS = {"r0": True, "r1": False}
"""Who came before, and whether the output may be quoted."""
COMES = [
    arrive(0, 2, 1, 1),
    arrive(0, 2, 3, 1, prompt=[("a", 0, 1), ("a", 5, 2)]),
    arrive(0, 2, 3, 1, prompt=[("o:r0", 0, 3)]),
    arrive(0, 2, 3, 1, prompt=[("o:nobody", 0, 3)]),
]
DOES_NOT: list[tuple[Arrive, str, object]] = [
    (msgspec.structs.replace(arrive(0, 2, 1, 1), id=""), "an id of its own", "id ''"),
    (arrive(0, 1, 1, 1), "an id of its own", "id 'r1'"),
    (arrive(0, 2, 0, 1), "prompt_tokens from 1", 0),
    (arrive(0, 2, 1, 0), "output_tokens from 1", 0),
    (
        arrive(0, 2, 3, 1, prompt=[("a", -1, 3)]),
        "prompt runs that start at 0 or later and have a token",
        [("a", -1, 3)],
    ),
    (
        arrive(0, 2, 3, 1, prompt=[("a", 0, 3), ("b", 0, 0)]),
        "prompt runs that start at 0 or later and have a token",
        [("a", 0, 3), ("b", 0, 0)],
    ),
    (arrive(0, 2, 3, 1, prompt=[("a", 0, 2)]), "a prompt of 3 tokens", "runs of 2 tokens"),
    (arrive(0, 2, 3, 1, prompt=[("a", 0, 2), ("b", 7, 2)]), "a prompt of 3 tokens", "runs of 4 tokens"),
    (
        arrive(0, 2, 3, 1, prompt=[("o:r0", 0, 1), ("o:r1", 0, 2)]),
        "quotes of quotable outputs only",
        "a quote of the output of 'r1'",
    ),
]


@pytest.mark.parametrize("told", COMES)
def test_a_request_that_can_come(told: Arrive) -> None:
    check_request(told, IDS)


@pytest.mark.parametrize(("told", "expected", "found"), DOES_NOT)
def test_a_request_that_cannot_come(told: Arrive, expected: str, found: object) -> None:
    with pytest.raises(Mismatch) as raised:
        check_request(told, IDS)
    assert (raised.value.rule, raised.value.expected, raised.value.found) == (Rule.ARRIVAL, expected, shown(found))


def due_refusal(limits: EngineLimits, prompt: int, output: int) -> RejectReason | None:
    """Token by token: an answer ends where the model's length is reached, and its last token is never computed."""
    if prompt >= limits.max_model_len:
        return RejectReason.PROMPT_TOO_LONG
    computed = {position for position in range(prompt + output - 1) if position < limits.max_model_len - 1}
    groups = limits.groups or (group(FULL, limits.block_size),)
    blocks = sum(len({position // one.block_size for position in computed}) for one in groups)
    return RejectReason.NEVER_FITS if blocks > limits.num_blocks - 1 else None


@pytest.mark.parametrize("groups", [(), (group(FULL, 4), group(FULL, 2))])
@pytest.mark.parametrize("num_blocks", [2, 5, 8, 9, 14, 25])
def test_who_has_to_be_refused(groups: tuple[GroupLimits, ...], num_blocks: int) -> None:
    limits = msgspec.structs.replace(LIMITS, num_blocks=num_blocks, groups=groups)
    for prompt in range(1, 35):
        for output in (1, 2, 3, 5, 9, 31, 100):
            told = refusal(arrive(0, 0, prompt, output), limits, terms(limits))
            assert told == due_refusal(limits, prompt, output), (prompt, output)
