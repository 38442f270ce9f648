"""What a KV group keeps: the scheduler's arithmetic and the replay's, each against a look at every position."""

from __future__ import annotations

from itertools import product
from math import lcm

import msgspec
import pytest
from replay_examples import LIMITS

from isim.policy.vllm.group_rules import (
    beats_of,
    groups_of,
    most_held,
    passed_entries,
    span_behind,
    unprocessed_steps,
    whole_block,
)
from isim.record.records import EngineLimits, EngineVersion, GroupKind, GroupLimits
from isim.replay.tables import terms

FULL, SLIDING, STATE, ALIGNED = GroupKind.FULL, GroupKind.SLIDING, GroupKind.STATE, GroupKind.ALIGNED_STATE
MODES = list(product(EngineVersion, (False, True)))


def limits_of(version: EngineVersion, asynchronous: bool, *groups: GroupLimits, **more: int) -> EngineLimits:
    return msgspec.structs.replace(LIMITS, version=version, async_scheduling=asynchronous, groups=groups, **more)


def group(kind: GroupKind, block_size: int, window_tokens: int = 0) -> GroupLimits:
    return GroupLimits(kind=kind, block_size=block_size, window_tokens=window_tokens)


def needed(kind: GroupKind, window: int, position: int, computed: int) -> bool:
    """Whether the token at `computed`, computed next, has use for what is kept of an earlier position."""
    if kind is SLIDING:
        return computed - position < window
    return kind is not ALIGNED or position >= computed - 1


@pytest.mark.parametrize(
    ("kind", "window"), [(FULL, 0), (SLIDING, 2), (SLIDING, 3), (SLIDING, 6), (STATE, 0), (ALIGNED, 0)]
)
@pytest.mark.parametrize("block", [1, 2, 4])
def test_an_entry_is_passed_once_none_of_its_positions_is_needed(kind: GroupKind, window: int, block: int) -> None:
    one = group(kind, 64 if kind is STATE else block, window)
    told = terms(limits_of(EngineVersion.V021, False, one))[0]
    for computed in range(30):
        due = 0
        while (due + 1) * one.block_size <= computed and not any(
            needed(kind, window, position, computed)
            for position in range(due * one.block_size, (due + 1) * one.block_size)
        ):
            due += 1
        assert passed_entries(one, computed) == told.passed(computed) == due, computed


def test_how_far_back_the_last_entry_reaches() -> None:
    assert [span_behind(group(*it)) for it in ((FULL, 4), (SLIDING, 4, 7), (STATE, 64), (ALIGNED, 4))] == [
        None,
        6,
        None,
        1,
    ]


@pytest.mark.parametrize(("version", "asynchronous"), MODES)
def test_only_the_later_version_ahead_of_its_outputs_has_two_steps_unprocessed(
    version: EngineVersion, asynchronous: bool
) -> None:
    due = 2 if version is EngineVersion.V033 and asynchronous else 1
    assert unprocessed_steps(limits_of(version, asynchronous)) == due


@pytest.mark.parametrize(("version", "asynchronous"), MODES)
@pytest.mark.parametrize("budget", [1, 3, 8])
@pytest.mark.parametrize("block", [1, 2, 4])
def test_a_window_never_holds_more_than_it_says(
    version: EngineVersion, asynchronous: bool, budget: int, block: int
) -> None:
    """It grows to all tokens of the steps that do not count yet before it gives back what is behind the window."""
    one = group(SLIDING, block, 6)
    limits = limits_of(version, asynchronous, one, max_num_batched_tokens=budget)
    told = terms(limits)[0]
    ahead = unprocessed_steps(limits) * budget
    for tokens in range(1, 33):
        held = max(
            -(-min(tokens, computed + ahead) // block) - passed_entries(one, computed) for computed in range(tokens)
        )
        assert held <= most_held(limits, one, tokens) == told.most_held(tokens), tokens
    span = min(5 + ahead, limits.max_model_len)
    assert most_held(limits, one, 10**6) == -(-span // block) + 1


@pytest.mark.parametrize(("version", "asynchronous"), MODES)
def test_what_the_other_kinds_hold_at_most(version: EngineVersion, asynchronous: bool) -> None:
    limits = limits_of(version, asynchronous)
    states = 3 if version is EngineVersion.V033 and asynchronous else 2
    for tokens in range(1, 33):
        assert most_held(limits, group(FULL, 4), tokens) == (tokens + 3) // 4
        assert most_held(limits, group(STATE, 64), tokens) == 1
        assert most_held(limits, group(ALIGNED, 4), tokens) == min((tokens + 3) // 4, states)
    assert [most_held(limits, group(STATE, 4), tokens) for tokens in (0, 1, 9)] == [0, 1, 1]
    one = terms(limits_of(version, asynchronous, group(FULL, 4), group(ALIGNED, 4)))
    assert [it.most_held(100) for it in one] == [25, states]
    assert [(it.number, it.at_once(100), it.entries(9), it.run) for it in one] == [
        (0, 25, 3, one[0].run),
        (1, 25, 3, 1),
    ]


def test_without_a_list_there_is_one_group_of_everything() -> None:
    assert groups_of(LIMITS) == (GroupLimits(kind=FULL, block_size=4),)
    listed = (group(FULL, 4), group(SLIDING, 2, 5))
    assert groups_of(limits_of(EngineVersion.V021, False, *listed)) == listed


@pytest.mark.parametrize(("version", "asynchronous"), MODES)
def test_names_are_given_up_to_whole_blocks_of_all(version: EngineVersion, asynchronous: bool) -> None:
    """Only 0.33 waits for a multiple of all block sizes, and only where they differ."""
    newer = version is EngineVersion.V033
    assert whole_block(limits_of(version, asynchronous, group(FULL, 4), group(SLIDING, 6, 5))) == (12 if newer else 1)
    assert whole_block(limits_of(version, asynchronous, group(FULL, 4), group(SLIDING, 4, 5))) == 1


@pytest.mark.parametrize(("version", "asynchronous"), MODES)
@pytest.mark.parametrize("sliding", [(2, 6), (4, 6), (5, 8), (6, 5), (1, 3)])
@pytest.mark.parametrize("full_block", [2, 4])
def test_a_table_changes_on_its_beats_only(
    version: EngineVersion, asynchronous: bool, sliding: tuple[int, int], full_block: int
) -> None:
    """Counted over many numbers of computed tokens: the beats are where one more opens or passes an entry."""
    groups = (group(FULL, full_block), group(SLIDING, *sliding))
    limits = limits_of(version, asynchronous, *groups)
    lags = range(unprocessed_steps(limits))
    due = set()
    for computed in range(12, 60):
        for one in groups:
            block = one.block_size
            opens = -(-(computed + 1) // block) != -(-computed // block)
            passes = [passed_entries(one, computed - lag) != passed_entries(one, computed - lag - 1) for lag in lags]
            if opens or any(passes):
                due.add((block, computed % block))
    told = beats_of(limits)
    assert len(told) == len(due) and set(told) == due
    caching = beats_of(msgspec.structs.replace(limits, enable_prefix_caching=True))
    whole = lcm(full_block, sliding[0])
    if version is EngineVersion.V033 and full_block != sliding[0]:
        # The last token of a multiple of all blocks names them; ahead of the outputs, with the step after.
        due.add((whole, 0 if asynchronous else whole - 1))
    assert len(caching) == len(due) and set(caching) == due
