"""What is wrong with a workload, said to the person who wrote it."""

from __future__ import annotations

from typing import NoReturn

from isim.record.errors import IsimError

_FOUND_CHARACTERS = 48


class WorkloadError(IsimError):
    """A trace or a generator that cannot be followed: the input is to blame, and the message says where."""

    exit_code = 2


def complain(where: str, line: int, place: str, expected: str, found: str | int | None) -> NoReturn:
    """Raise a WorkloadError about `place` ("column x", or empty) of one line.

    `found` is text as it stands there, a time in nanoseconds, or None for nothing at all.
    """
    raise WorkloadError(f"{where}:{line}: {place}{': ' if place else ''}expected {expected}, found {_told(found)}")


def _told(found: str | int | None) -> str:
    if found is None:
        return "nothing"
    if isinstance(found, int):
        return f"{found} ns"
    text = ascii(found)
    if len(text) > _FOUND_CHARACTERS:
        return f"{text[:_FOUND_CHARACTERS]}... ({len(found)} characters)"
    return text
