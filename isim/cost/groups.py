"""What memory needs to know of models whose layers are not all plain: widths, blocks of the pool, and words."""

from __future__ import annotations

from isim.model.arithmetic import check_tensor_parallel
from isim.model.groups import KvGroups, KvKind, kv_groups, kv_layers
from isim.model.layers import ChunkedAttention, DenseMlp, LatentAttention
from isim.model.matrices import layer_runs
from isim.model.spec import ModelError, ModelSpec, Precision
from isim.record.records import GroupKind, GroupLimits

_MLA_NOTE = (
    "latent attention: engine.block_size is taken as given; vLLM's own default depends on the attention backend "
    "(16, 32, 64 or 128)"
)
_CHUNKED_NOTE = (
    "chunked attention keeps keys and values of all tokens in one group with the full layers, as vLLM does without its "
    "hybrid KV cache manager"
)


def layer_width(model: ModelSpec, ranks: int) -> int:
    """Columns that live at once in the widest feed-forward part on one rank, gate and up and their product.

    With experts each token has as many rows as experts chosen, and their outputs live beside them before the sum.
    """
    widest = 0
    for run in layer_runs(model):
        ffn = run.ffn
        if isinstance(ffn, DenseMlp):
            width = 3 * ffn.intermediate // ranks
        else:
            width = ffn.experts_per_token * (3 * ffn.intermediate // ranks + model.hidden_size)
        widest = max(widest, width)
    return widest


def group_blocks(
    model: ModelSpec, precision: Precision, ranks: int, block_size: int, longest_tokens: int
) -> tuple[int, int, list[str]]:
    """Bytes of a block on one rank, blocks of a sequence of `longest_tokens`, and the notes on how layers keep.

    Raises ModelError for an illegal split, or for layers whose pages cannot be made of one size.
    """
    check_tensor_parallel(model, ranks, expert_parallel=True)
    groups = kv_groups(model, ranks, precision, block_size)
    notes = list(model.assumptions or ())
    mixers = [run.mixer for run in layer_runs(model)]
    if any(isinstance(mixer, LatentAttention) for mixer in mixers):
        notes.append(_MLA_NOTE)
    if any(isinstance(mixer, ChunkedAttention) for mixer in mixers):
        notes.append(_CHUNKED_NOTE)
    if len(groups.groups) > 1:
        notes.append(_described(model, precision, ranks, groups))
    return groups.block_bytes, groups.sequence_blocks(longest_tokens), notes


def engine_groups(
    model: ModelSpec, precision: Precision, ranks: int, block_size: int, *, state_tokens: int | None
) -> tuple[GroupLimits, ...]:
    """The KV groups as the engine sees them; none where one group of full attention has blocks of `block_size`.

    `state_tokens` is the length that the block of a state stands for where states cannot be found again; None where
    they are kept at the ends of blocks.
    """
    kinds = {
        KvKind.FULL: GroupKind.FULL,
        KvKind.SLIDING: GroupKind.SLIDING,
        KvKind.STATE: GroupKind.ALIGNED_STATE if state_tokens is None else GroupKind.STATE,
    }
    groups = tuple(
        GroupLimits(
            kind=kinds[group.kind],
            block_size=state_tokens if state_tokens and group.kind is KvKind.STATE else group.block_tokens,
            window_tokens=group.window_tokens,
        )
        for group in kv_groups(model, ranks, precision, block_size).groups
    )
    return groups if groups != (GroupLimits(kind=GroupKind.FULL, block_size=block_size),) else ()


def check_chunks(groups: tuple[GroupLimits, ...], budget_tokens: int, threshold_tokens: int) -> None:
    """Raises ModelError where no chunk of a prefill could ever reach the end of a block at which its state is kept.

    Such chunks would be cut to nothing for ever; vLLM refuses to start. `threshold_tokens` 0 is none.
    """
    block = max((group.block_size for group in groups if group.kind is GroupKind.ALIGNED_STATE), default=0)
    for name, most in (
        ("max_num_batched_tokens", budget_tokens),
        ("long_prefill_token_threshold", threshold_tokens or block),
    ):
        if most < block:
            raise ModelError(
                f"engine.{name}: expected at least {block}, a block of this model, at whose ends recurrent states are "
                f"kept for prefix caching, found {most}; or set engine.enable_prefix_caching: false"
            )


def _described(model: ModelSpec, precision: Precision, ranks: int, groups: KvGroups) -> str:
    """The mixed layers, what each keeps, and the groups they form."""
    kinds = []
    for each in kv_layers(model, ranks, precision):
        keeps = f"{each.token_bytes} bytes a token"
        if each.kind is KvKind.STATE:
            keeps = f"{each.state_bytes} bytes a sequence"
        elif each.kind is KvKind.SLIDING:
            keeps += f" of the last {each.window_tokens}"
        kinds.append(f"{each.count} layers of {each.kind}, {keeps} each")
    sizes = ", ".join(f"{group.layers} of {group.kind} ({group.block_tokens} tokens)" for group in groups.groups)
    return (
        f"KV on each rank: {'; '.join(kinds)}. Groups of {groups.group_layers} layers: {sizes}; a block of the pool is "
        f"{groups.block_bytes} bytes, and a sequence holds blocks of every group"
    )
