"""What a block holds, as a key: equal keys, equal tokens from the start of the prompt on.

Tokens are named (group, offset), and a prompt is told in runs (group, start, count). Runs that go on where the one
before ended are one run, so a sequence of tokens has one telling. What lies before a token, and the token itself, is
then told by the runs that ended before its own, by where its own began, and by how far it got. Of the first two a
digest is made, once a run; the keys of the blocks that end in a run are that number and how far each of them gets.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b

import msgspec

_ROOT = 0
_KEY_BYTES = 16
OUTPUT_PREFIX = "o:"
_ENDLESS = 1 << 60
Run = tuple[str, int, int]


class Chain(msgspec.Struct, eq=False):
    """The keys of one request's blocks, made as far as somebody asked. Its output follows its prompt.

    `run` is the number of the run that comes next, `head` and `begin` tell of the one in hand: its digest, and the
    place in the sequence where it starts; `end` is where it ends.
    """

    runs: list[Run]
    quoted: list[str]
    keys: list[int] = []  # msgspec copies an empty literal default for each chain
    run: int = 0
    head: int = _ROOT
    begin: int = 0
    end: int = 0


def quoted_outputs(prompt: Sequence[Run]) -> list[str]:
    """Ids of the requests whose output the prompt names, each once."""
    named = (group[len(OUTPUT_PREFIX) :] for group, _, _ in prompt if group.startswith(OUTPUT_PREFIX))
    return list(dict.fromkeys(named))


def _joined(prompt: Sequence[Run]) -> list[Run]:
    """The prompt in the fewest runs."""
    runs: list[Run] = []
    for group, start, count in prompt:
        if runs and runs[-1][0] == group and runs[-1][1] + runs[-1][2] == start:
            _, first, before = runs.pop()
            runs.append((group, first, before + count))
        else:
            runs.append((group, start, count))
    return runs


class Keys:
    """Makes the keys of block contents, equal ones for equal contents, `stride` apart for neighbouring tokens."""

    def __init__(self, block_size: int, stride: int = 1) -> None:
        self._block_size = block_size
        self._stride = stride

    def chain(self, request_id: str, prompt: Sequence[Run]) -> Chain:
        """The chain of a request with this prompt; it quotes the outputs whose groups the prompt names."""
        return Chain([*_joined(prompt), (OUTPUT_PREFIX + request_id, 0, _ENDLESS)], quoted_outputs(prompt))

    def extend(self, chain: Chain, blocks: int) -> list[int]:
        """The chain's keys, at least the first `blocks` of them."""
        keys, size, stride = chain.keys, self._block_size, self._stride
        while len(keys) < blocks:
            if (len(keys) + 1) * size > chain.end:
                self._next_run(chain)
                continue
            first = (len(keys) + 1) * size - chain.begin
            last = min(blocks, chain.end // size) * size - chain.begin
            keys.extend(range(chain.head + first * stride, chain.head + last * stride + 1, size * stride))
        return keys

    def _next_run(self, chain: Chain) -> None:
        group, start, count = chain.runs[chain.run]
        told = repr((chain.head, chain.end - chain.begin, group, start)).encode()
        chain.head = int.from_bytes(blake2b(told, digest_size=_KEY_BYTES).digest(), "little")
        chain.begin, chain.end = chain.end, chain.end + count
        chain.run += 1
