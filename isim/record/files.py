"""Opening what a person names as input: a file that can be read to its end, or an OSError that says what it is."""

from __future__ import annotations

import errno
import os
import stat
from typing import BinaryIO

_KINDS = (
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


def open_input(path: str | os.PathLike[str]) -> BinaryIO:
    """A regular file for reading, in binary. Raises OSError, whose `strerror` says why, for whatever else it is.

    A pipe or a device may keep a reader waiting or never end, and what is read twice must be the same twice.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    except ValueError:  # a NUL, or half of a surrogate pair
        raise OSError(errno.EINVAL, "No file can have this name") from None
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISREG(mode):
        return open(descriptor, "rb")
    os.close(descriptor)
    kind = next((noun for is_kind, noun in _KINDS if is_kind(mode)), "something else")
    raise OSError(errno.EINVAL, f"Expected a regular file, found {kind}")


def reason_of(error: OSError) -> str:
    """What the operating system says of it, in words."""
    return error.strerror or "it cannot be opened"
