"""Which batch sizes the engine captures as CUDA graphs, and what size a batch is padded to.

Sizes are 1, 2, 4, then 8 to 248 by 8, then 256 to the greatest by 16, where the greatest is the least of twice
max_num_seqs, 512 and max_num_batched_tokens. Source: vLLM 0.21, VllmConfig._set_cudagraph_sizes.
"""

from __future__ import annotations

MAX_CAPTURED_TOKENS = 512


def capture_sizes(max_num_seqs: int, max_num_batched_tokens: int) -> tuple[int, ...]:
    """Captured sizes in tokens, ascending."""
    greatest = min(2 * max_num_seqs, MAX_CAPTURED_TOKENS, max_num_batched_tokens)
    small = (size for size in (1, 2, 4) if size <= greatest)
    return (*small, *range(8, min(greatest + 1, 256), 8), *range(256, greatest + 1, 16))


def padding_table(sizes: tuple[int, ...]) -> tuple[int, ...]:
    """For each count of tokens from 0 to the greatest captured size, the size it is padded to."""
    table = [0]
    for size in sizes:
        table += [size] * (size + 1 - len(table))
    return tuple(table)
