"""The lines of a text file that may be compressed, one at a time, with a digest of what was read.

gzip is told by its first bytes, never by the file's name. Lines end in LF, CRLF or CR; a byte order mark is dropped;
the text is UTF-8. The digest is the SHA-256 of the decompressed bytes up to the end of the last line handed out:
read to its end, that is what `zcat FILE | sha256sum` prints. A few kilobytes of gzip can hold gigabytes of empty
lines, so only so many of them may follow one another.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Iterator
from pathlib import Path

from isim.record.files import open_input, reason_of
from isim.workload.errors import WorkloadError, complain

MAX_LINE_BYTES = 1 << 16
MAX_EMPTY_LINES = 10_000
_PIECE_BYTES = 1 << 18
_GZIP = b"\x1f\x8b"


class _Broken(Exception):  # noqa: N818 - internal marker
    """The compressed stream stops making sense; the text says how."""


class Lines:
    """One pass over a file. `where` is what errors call it."""

    def __init__(self, path: Path, where: str) -> None:
        self._path = path
        self._where = where
        self._sha256 = hashlib.sha256()

    @property
    def sha256(self) -> str:
        """Of the decompressed bytes up to the end of the last line handed out."""
        return self._sha256.hexdigest()

    def __iter__(self) -> Iterator[tuple[int, str]]:
        """(number from 1, text without its end) of every line that is not empty.

        Raises WorkloadError for a file that cannot be read, decompressed or decoded, for a line of more than
        MAX_LINE_BYTES, and for more than MAX_EMPTY_LINES in a row.
        """
        update = self._sha256.update
        empty = 0
        for number, line in enumerate(self._split(), 1):
            update(line)
            try:
                text = line.decode()
            except UnicodeDecodeError as error:
                found = f"byte {line[error.start]:#04x} at {error.start + 1}"
                raise WorkloadError(f"{self._where}:{number}: expected UTF-8 text, found {found}") from None
            if number == 1:
                text = text.removeprefix("\ufeff")
            text = text.rstrip("\r\n")
            if text:
                empty = 0
                yield number, text
            else:
                empty += 1
                if empty > MAX_EMPTY_LINES:
                    complain(self._where, number, "", f"at most {MAX_EMPTY_LINES} empty lines in a row", "another")

    def _split(self) -> Iterator[bytes]:
        rest = b""
        done = 0
        try:
            for piece in _pieces(self._path):
                # The last line is kept even if it looks whole: an LF may follow the CR that ends it.
                lines = (rest + piece).splitlines(keepends=True)
                rest = lines.pop()
                for line in lines:
                    done += 1
                    if len(line) > MAX_LINE_BYTES:
                        self._too_long(done, line)
                    yield line
                if len(rest) > MAX_LINE_BYTES:
                    self._too_long(done + 1, rest)
        except _Broken as broken:
            raise WorkloadError(f"{self._where}:{done + 1}: {broken}") from None
        except OSError as error:
            where = self._where if self._where.isprintable() else ascii(self._where)
            raise WorkloadError(f"{where}: cannot be read: {reason_of(error)}") from None
        if rest:
            yield rest

    def _too_long(self, line: int, found: bytes) -> None:
        complain(self._where, line, "", f"a line of at most {MAX_LINE_BYTES} bytes", found[:20].decode("latin-1"))


def _pieces(path: Path) -> Iterator[bytes]:
    """The decompressed content in pieces of bounded size, none of them empty."""
    with open_input(path) as stream:
        piece = stream.read(_PIECE_BYTES)
        if piece[:2] != _GZIP:
            while piece:
                yield piece
                piece = stream.read(_PIECE_BYTES)
            return
        member = zlib.decompressobj(wbits=31)
        while piece:
            try:
                content = member.decompress(piece, _PIECE_BYTES)
            except zlib.error:
                raise _Broken("the gzip data is damaged from here on") from None
            if content:
                yield content
            piece = member.unconsumed_tail
            if member.eof:
                piece = member.unused_data.lstrip(b"\0") or stream.read(_PIECE_BYTES).lstrip(b"\0")
                if piece:
                    member = zlib.decompressobj(wbits=31)
            elif not piece:
                piece = stream.read(_PIECE_BYTES)
        if not member.eof:
            raise _Broken("the gzip data stops here: the file was cut short")
