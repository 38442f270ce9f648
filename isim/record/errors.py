"""The one root of every error a person can meet, and the errors of the log itself.

An error says who is to blame. Its class carries the exit code of the command that met it:
1 a comparison came out negative, 2 invalid input or a capacity that cannot hold, 3 a replay
violation, 70 a bug of ours.
"""

from __future__ import annotations


class IsimError(Exception):
    """Root of all errors isim raises on purpose; `str()` of it is what a person reads."""

    exit_code = 2


class CausalityError(IsimError):
    """A promise isim makes to itself was broken: always our bug, never the input's."""

    exit_code = 70


class LogError(IsimError):
    """A log that cannot be read: unknown kind or revision, a gap, a malformed line.

    `sequence` is the last good sequence number, or -1 when there is none.
    """

    def __init__(self, message: str, *, where: str, sequence: int) -> None:
        super().__init__(f"{where}: {message}")
        self.sequence = sequence


class TruncatedLog(LogError):  # noqa: N818 - it names a state of the log, as a person would say it
    """The log ends before its `end` record; everything up to `sequence` was read and is good."""
