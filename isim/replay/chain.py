"""What a block holds, as a key: equal keys, equal tokens from the start of the prompt on.

Tokens are named (group, offset). A block's tokens are told as the fewest runs (group, start, count), which is one
form for one content. Its key is a digest of that and of the key of the block before, so nothing has to be kept of
contents that nobody holds any more.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b

import msgspec

_ROOT = b""
_KEY_BYTES = 16
OUTPUT_PREFIX = "o:"
Run = tuple[str, int, int]


class Chain(msgspec.Struct, eq=False):
    """The keys of one request's blocks, made as far as somebody asked. Its output follows its prompt."""

    runs: list[Run]
    output: Run
    quoted: list[str]
    keys: list[bytes] = []  # msgspec copies an empty literal default for each chain
    run: int = 0
    used: int = 0


def quoted_outputs(prompt: Sequence[Run]) -> list[str]:
    """Ids of the requests whose output the prompt names, each once."""
    named = (group[len(OUTPUT_PREFIX) :] for group, _, _ in prompt if group.startswith(OUTPUT_PREFIX))
    return list(dict.fromkeys(named))


class Keys:
    """Makes the keys of block contents, equal ones for equal contents."""

    def __init__(self, block_size: int) -> None:
        self._block_size = block_size

    def chain(self, request_id: str, prompt: Sequence[Run]) -> Chain:
        """The chain of a request with this prompt; it quotes the outputs whose groups the prompt names."""
        return Chain(list(prompt), (OUTPUT_PREFIX + request_id, 0, 1 << 60), quoted_outputs(prompt))

    def extend(self, chain: Chain, blocks: int) -> list[bytes]:
        """The chain's keys, at least the first `blocks` of them."""
        keys = chain.keys
        while len(keys) < blocks:
            content = repr(self._next_block(chain)).encode()
            before = keys[-1] if keys else _ROOT
            keys.append(blake2b(before + content, digest_size=_KEY_BYTES).digest())
        return keys

    def _next_block(self, chain: Chain) -> list[Run]:
        pieces: list[Run] = []
        missing = self._block_size
        while missing:
            group, start, count = chain.runs[chain.run] if chain.run < len(chain.runs) else chain.output
            taken = min(missing, count - chain.used)
            first = start + chain.used
            if pieces and pieces[-1][0] == group and pieces[-1][1] + pieces[-1][2] == first:
                _, first_before, taken_before = pieces.pop()
                pieces.append((group, first_before, taken_before + taken))
            else:
                pieces.append((group, first, taken))
            missing -= taken
            chain.used += taken
            if chain.used == count:
                chain.run += 1
                chain.used = 0
        return pieces
