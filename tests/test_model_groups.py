"""KV groups: the pages and groups that the published figures give, and blocks counted one token at a time."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isim.cost.groups import engine_groups
from isim.model.catalogue import MODELS
from isim.model.groups import KvGroup, KvKind, group_size, kv_groups, kv_layers
from isim.model.spec import Dtype, precision_of
from isim.record.records import GroupKind, GroupLimits

MIB = 1 << 20


@pytest.mark.parametrize(
    ("ranks", "cache", "requested", "page"),
    [
        (1, None, 16, 784),
        (2, None, 16, 784),
        (4, None, 16, 784),
        (8, None, 16, 400),
        (1, Dtype.FLOAT8_E4M3, 16, 1568),
        (1, None, 32, 800),
    ],
)
def test_pages_of_qwen35_27b_are_those_the_engine_prints(
    ranks: int, cache: Dtype | None, requested: int, page: int
) -> None:
    model = MODELS["qwen3.5-27b"]
    groups = kv_groups(model, ranks, precision_of(model, kv_cache=cache), requested)
    assert [group.block_tokens for group in groups.groups if group.kind is KvKind.FULL] == [page]
    assert [group.layers for group in groups.groups] == [16, 16, 16, 16]
    assert [group.kind for group in groups.groups].count(KvKind.STATE) == 3


def test_a_block_of_qwen35_27b_is_49_mib() -> None:
    model = MODELS["qwen3.5-27b"]
    groups = kv_groups(model, 1, precision_of(model), 16)
    # 784 tokens of 16 layers, each with K and V of 4 heads of 256 in two bytes.
    assert groups.block_bytes == 784 * 16 * 2 * 4 * 256 * 2 == 49 * MIB
    assert kv_groups(model, 4, precision_of(model), 16).block_bytes == 49 * MIB // 4
    for tokens in (1, 784, 785, 10_000):
        assert groups.sequence_blocks(tokens) == -(-tokens // 784) + 3


def test_gpt_oss_120b_has_two_groups_of_18() -> None:
    model = MODELS["gpt-oss-120b"]
    groups = kv_groups(model, 1, precision_of(model), 16)
    assert [(group.kind, group.layers) for group in groups.groups] == [(KvKind.SLIDING, 18), (KvKind.FULL, 18)]
    assert groups.block_bytes == 18 * 16 * 2 * 8 * 64 * 2
    # 5000 tokens: 313 full blocks; the 127 positions before the next token, 4873 on, lie in blocks 304 to 312.
    assert groups.sequence_blocks(5000) == 313 + 9


def test_one_kind_is_one_group_of_all_layers() -> None:
    for name in ("llama-3.1-8b", "mixtral-8x7b", "deepseek-v3", "llama-4-scout"):
        model = MODELS[name]
        groups = kv_groups(model, 1, precision_of(model), 16)
        assert [group.layers for group in groups.groups] == [model.num_hidden_layers]


def test_the_engine_sees_the_groups_of_the_model() -> None:
    model = MODELS["qwen3.5-27b"]
    plain = engine_groups(model, precision_of(model), 1, 16, state_tokens=4096)
    full = GroupLimits(kind=GroupKind.FULL, block_size=784)
    assert [group for group in plain if group != GroupLimits(kind=GroupKind.STATE, block_size=4096)] == [full]
    cached = engine_groups(model, precision_of(model), 1, 16, state_tokens=None)
    assert cached == (GroupLimits(kind=GroupKind.ALIGNED_STATE, block_size=784),) * 3 + (full,)
    windows = engine_groups(MODELS["gpt-oss-20b"], precision_of(MODELS["gpt-oss-20b"]), 1, 16, state_tokens=None)
    assert windows == (
        GroupLimits(kind=GroupKind.SLIDING, block_size=16, window_tokens=128),
        GroupLimits(kind=GroupKind.FULL, block_size=16),
    )
    llama = MODELS["llama-4-scout"]
    assert engine_groups(llama, precision_of(llama), 8, 16, state_tokens=None) == ()


def test_size_of_groups() -> None:
    assert group_size((18, 18)) == 18
    assert group_size((16, 48)) == 16
    assert group_size((20, 29)) == 29  # below one and a half times: one group each, the smaller filled up
    assert group_size((20, 30)) == 20
    assert group_size((25, 5)) == 5


@settings(derandomize=True, deadline=None, max_examples=200)
@given(st.integers(1, 64), st.integers(1, 300), st.integers(1, 2000))
def test_blocks_held_are_those_a_walk_over_the_tokens_leaves(block: int, window: int, tokens: int) -> None:
    held: list[int] = []
    for computed in range(tokens):
        # Before the token at position `computed` is allotted, blocks wholly older than its window go.
        held = [index for index in held if (index + 1) * block > computed - window + 1]
        if computed % block == 0:
            held.append(computed // block)
    held = [index for index in held if (index + 1) * block > tokens - window + 1]
    sliding = KvGroup(kind=KvKind.SLIDING, layers=1, block_tokens=block, window_tokens=window)
    assert sliding.held_blocks(tokens) == len(held)
    assert sliding.held_blocks(tokens) <= -(-(window - 1) // block) + 1
    assert KvGroup(kind=KvKind.FULL, layers=1, block_tokens=block).held_blocks(tokens) == -(-tokens // block)


def test_p35_bytes_a_token_times_tokens_are_the_bytes_of_the_sequence() -> None:
    """The capacity in tokens, for sequences of a stated length, and their bytes a token agree, windows included."""
    model = MODELS["gpt-oss-120b"]
    groups = kv_groups(model, 1, precision_of(model), 16)
    pool_bytes = 100_000 * groups.block_bytes
    for length in (100, 128, 1000, 50_000):
        a_token = Fraction(groups.sequence_bytes(length), length)
        capacity_tokens = Fraction(pool_bytes, groups.sequence_bytes(length)) * length
        assert capacity_tokens * a_token == pool_bytes
        full = 2 * 36 * 8 * 64 * 2
        # A long sequence keeps half of what full attention in every layer would; a short one all of it.
        assert Fraction(1, 2) < a_token / full < Fraction(5, 4)
    assert Fraction(groups.sequence_bytes(50_000), 50_000) < Fraction(full * 51, 100)
    assert [(each.kind, each.count, each.window_tokens) for each in kv_layers(model, 1, precision_of(model))] == [
        (KvKind.SLIDING, 18, 128),
        (KvKind.FULL, 18, 0),
    ]
