"""The Mooncake traces (github.com/kvcache-ai/Mooncake, FAST25-release, Apache-2.0).

JSON Lines, an object for each request: `timestamp` in milliseconds since the start of the trace, `input_length`,
`output_length`, and `hash_ids`, one number for each 512 tokens of the prompt, the last of them for what is left. Equal
numbers are equal tokens after equal tokens, so a number becomes the identity of 512 tokens: number h, seen as the
k-th different one, is the tokens 512 k to 512 k + 511 of the group `mooncake`. An engine finds them in its cache as far
as they fill blocks of its own size.

All prompts begin with the same number, so the second one tells conversations apart: it is the session. A row without
a timestamp comes with the row above it, the first one at 0. Tokens that no number covers are the request's own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NoReturn

import msgspec

from isim.record.json_text import JsonError, refuse_ambiguities
from isim.workload.errors import WorkloadError, complain
from isim.workload.fields import time_ns
from isim.workload.request import MAX_TOKENS
from isim.workload.rows import Extras, Row, Run

BLOCK_TOKENS = 512
GROUP = "mooncake"
PLACE = "key timestamp"
_MS = 1_000_000
_QUOTES = 6
"""In a row without a timestamp, all keys of which are there once."""
_LENGTHS = f"a whole number of tokens from 1 to {MAX_TOKENS}"


class _Line(msgspec.Struct, forbid_unknown_fields=True):
    input_length: int
    output_length: int
    hash_ids: list[int]
    timestamp: msgspec.Raw = msgspec.Raw(b"null")  # its text: no float comes between


_KINDS = {
    "input_length": _LENGTHS,
    "output_length": _LENGTHS,
    "hash_ids": f"a list of whole numbers, one for each {BLOCK_TOKENS} tokens of the prompt",
}


def mooncake_rows(lines: Iterable[tuple[int, str]], where: str, notes: list[str]) -> Iterator[Row]:
    """The rows of the trace; WorkloadError at the first that is not as described."""
    decode = msgspec.json.Decoder(_Line).decode
    numbers: dict[int, int] = {}
    last_ns = 0
    told = False
    for line, text in lines:
        try:
            row = decode(text)
        except (msgspec.MsgspecError, RecursionError, ValueError) as error:
            _refuse(where, line, str(error))
        stamp = bytes(row.timestamp).decode()
        if text.count('"') != (_QUOTES if stamp == "null" else _QUOTES + 2):
            _check_keys(where, line, text)
        if stamp == "null":
            if not told:
                told = True
                notes.append(f"rows without a timestamp come with the row above, the first at 0 (first on line {line})")
        else:
            read = time_ns(stamp, _MS)
            if read is None:
                complain(where, line, PLACE, "a number of milliseconds, 0 or more", stamp)
            last_ns = read[0]
        input_tokens, output_tokens = row.input_length, row.output_length
        for name, tokens in (("input_length", input_tokens), ("output_length", output_tokens)):
            if not 1 <= tokens <= MAX_TOKENS:
                complain(where, line, f"key {name}", _LENGTHS, str(tokens))
        hashes = row.hash_ids
        most = -(-input_tokens // BLOCK_TOKENS)
        if len(hashes) > most:
            expected = f"at most {most} numbers for {input_tokens} tokens"
            complain(where, line, "key hash_ids", expected, str(len(hashes)))
        session = str(hashes[1]) if len(hashes) > 1 else None
        extras = Extras(shared=_runs(hashes, input_tokens, numbers), session=session)
        yield line, last_ns, input_tokens, output_tokens, None, 0, extras


def _runs(hashes: list[int], input_tokens: int, numbers: dict[int, int]) -> tuple[Run, ...]:
    """The tokens of the numbers in the fewest runs."""
    runs: list[Run] = []
    left = input_tokens
    start = count = 0
    for number in hashes:
        begin = numbers.setdefault(number, len(numbers)) * BLOCK_TOKENS
        tokens = min(left, BLOCK_TOKENS)
        left -= tokens
        if count and begin == start + count:
            count += tokens
            continue
        if count:
            runs.append((GROUP, start, count))
        start, count = begin, tokens
    if count:
        runs.append((GROUP, start, count))
    return tuple(runs)


def _check_keys(where: str, line: int, text: str) -> None:
    """More quotes than the keys of a row have: is one of them there twice?"""
    try:
        refuse_ambiguities(text)
    except JsonError as error:
        raise WorkloadError(f"{where}:{line}:{error.column}: {error}") from None


def _refuse(where: str, line: int, message: str) -> NoReturn:
    """What msgspec says of a line, in our words."""
    problem, _, path = message.partition(" - at `$")
    name = path.lstrip(".").split("`")[0].split("[")[0]
    if name in _KINDS:
        raise WorkloadError(f"{where}:{line}: key {name}: expected {_KINDS[name]}; {problem}")
    for start, what in (
        ("Object missing required field ", "found none"),
        ("Object contains unknown field ", "unknown"),
    ):
        if problem.startswith(start):
            key = problem.removeprefix(start).strip("`")[:64]
            expected = f"the keys timestamp, {', '.join(_KINDS)}"
            raise WorkloadError(f"{where}:{line}: key {key!a}: expected {expected} and no other, {what}")
    raise WorkloadError(f"{where}:{line}: expected a JSON object of a Mooncake trace: {problem}")
