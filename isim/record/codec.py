"""The log as a file: JSON Lines in zstd frames, one frame for each batch of records.

A log cut anywhere is readable up to the cut: frames before it are whole, and of the broken one every
complete line is read. What is wrong is told with file, line and the last good sequence number. Byte
equality of logs is that of the decompressed lines; zstd's own bytes depend on its version.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Generic, TypeVar

import msgspec
import zstandard

from isim.record.catalogue import Catalogue
from isim.record.errors import LogError, TruncatedLog
from isim.record.files import open_input, reason_of
from isim.record.json_text import JsonError, refuse_ambiguities
from isim.record.records import REVISION, SAFE_MAX, SCHEMA, AnyRecord, End, Head, Header, Record

_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
_READ_BYTES = 1 << 20
_FEED_BYTES = 1 << 9
"""Of compressed bytes at once: at most 16 MiB come of them."""
_WINDOW_BYTES = 1 << 27
MAX_LINE_BYTES = 16 << 20

R = TypeVar("R", bound=Record)

SERVING_LOG: Catalogue[AnyRecord] = Catalogue(
    schema=SCHEMA, revision=REVISION, decoder=msgspec.json.Decoder(AnyRecord), header=Header, end=End
)

_encoder = msgspec.json.Encoder()


class LogWriter:
    """A reader of the log that writes it down. Close it, or the file is a truncated log."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self._compressor = zstandard.ZstdCompressor(level=3, write_checksum=True)

    def write(self, records: Sequence[Record]) -> None:
        self._stream.write(self._compressor.compress(encode_lines(records)))


def encode_lines(records: Sequence[Record]) -> bytes:
    """The canonical decompressed bytes of these records, one line each."""
    return _encoder.encode_lines(records)


def schema_of(path: Path | str) -> str | None:
    """The schema that the first record of a log names; None where there is no such record to be read."""
    try:
        with open_input(path) as stream:
            piece = next(_lines(stream, str(path)), b"")
            return _schema_in(piece.partition(b"\n")[0])
    except (OSError, LogError, _Broken, _TooLong):
        return None


class _Schema(msgspec.Struct):
    schema: str


def _schema_in(line: bytes) -> str | None:
    try:
        return msgspec.json.decode(line, type=_Schema).schema
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return None


def read_log(path: Path | str) -> Iterator[list[AnyRecord]]:
    """All records of the log of a serving run; as `read_records`."""
    return read_records(path, SERVING_LOG)


def read_records(path: Path | str, catalogue: Catalogue[R]) -> Iterator[list[R]]:
    """All records of a log in batches, checked for envelope, revision, numbering and safe integers.

    Raises LogError at the first bad line and TruncatedLog where a log that was good so far stops; both after
    handing on everything before it.
    """
    path = Path(path)
    where = str(path) if str(path).isprintable() else ascii(str(path))
    try:
        stream = open_input(path)
    except OSError as error:
        raise LogError(f"cannot be opened: {reason_of(error)}", where=where, sequence=-1) from None
    with stream:
        yield from _Envelope(where, catalogue).check(_lines(stream, where))


class _Broken(Exception):  # noqa: N818 - internal marker
    """The compressed stream stops making sense here."""


class _TooLong(Exception):  # noqa: N818 - internal marker
    """A line has more than MAX_LINE_BYTES."""


def _lines(stream: IO[bytes], where: str) -> Iterator[bytes]:
    """Complete lines, those of a piece at once; raises _Broken where the stream breaks off."""
    head = stream.read(4)
    stream.seek(0)
    if _ZSTD_MAGIC.startswith(head) and head != _ZSTD_MAGIC:
        raise _Broken
    elif head == _ZSTD_MAGIC:
        pieces = _decompressed(stream)
    elif head.startswith(b"{"):
        pieces = iter(lambda: stream.read(_READ_BYTES), b"")
    else:
        raise LogError("expected a zstd-compressed or plain JSON Lines log", where=where, sequence=-1)
    rest: list[bytes] = []
    size = 0
    for piece in pieces:
        end = piece.rfind(b"\n") + 1
        if end:
            yield b"".join((*rest, piece[:end]))
            rest, size = [], 0
        rest.append(piece[end:])
        size += len(rest[-1])
        if size > MAX_LINE_BYTES:
            raise _TooLong
    if size:
        raise _Broken


def _decompressed(stream: IO[bytes]) -> Iterator[bytes]:
    """What the frames hold, in small pieces, so that little is lost where one is damaged; then raises _Broken."""
    decompressor = zstandard.ZstdDecompressor(max_window_size=_WINDOW_BYTES)
    frame = decompressor.decompressobj()
    begun = False
    while fed := stream.read(_FEED_BYTES):
        while fed:
            try:
                piece = frame.decompress(fed)
            except zstandard.ZstdError:
                raise _Broken from None
            begun = True
            if piece:
                yield piece
            fed = frame.unused_data
            if frame.eof:
                frame = decompressor.decompressobj()
                begun = False
    if begun:
        raise _Broken


class _Envelope(Generic[R]):
    def __init__(self, where: str, catalogue: Catalogue[R]) -> None:
        self._where = where
        self._catalogue = catalogue
        self._line = 0
        self._last = -1
        self._time_ns = 0
        self._ended = False

    def check(self, pieces: Iterator[bytes]) -> Iterator[list[R]]:
        while True:
            try:
                piece = next(pieces, None)
            except _Broken:
                if self._ended:
                    raise self._error("expected nothing after the end record, found bytes of no log") from None
                piece = None
            except _TooLong:
                self._line += 1
                raise self._error(f"expected a line of at most {MAX_LINE_BYTES} bytes, found a longer one") from None
            except OSError as error:
                raise self._error(f"cannot be read: {reason_of(error)}") from None
            if piece is None:
                break
            batch: list[R] = []
            lines = piece.split(b"\n")
            lines.pop()
            try:
                for line in lines:
                    batch.append(self._record(line))
            except LogError:
                if batch:
                    yield batch
                raise
            if encode_lines(batch) != piece:
                yield from self._refuse_ambiguities(lines, batch)
            yield batch
        if not self._ended:
            message = f"the log stops after sequence {self._last}, before its end record"
            if self._last < 0:
                message = "the log stops before its first record is whole"
            raise TruncatedLog(message, where=self._where, sequence=self._last)

    def _refuse_ambiguities(self, lines: list[bytes], batch: list[R]) -> Iterator[list[R]]:
        """These lines are not as isim writes them: they may say something twice. Hands on what is before such a one."""
        for place, line in enumerate(lines):
            try:
                refuse_ambiguities(line.decode())
            except JsonError as error:
                if place:
                    yield batch[:place]
                self._line += place + 1 - len(lines)
                self._last += place - len(lines)
                raise self._error(str(error)) from None

    def _record(self, line: bytes) -> R:
        self._line += 1
        known = self._catalogue
        try:
            record = known.decoder.decode(line)
        except msgspec.DecodeError as error:
            other = _schema_in(line) if self._last < 0 else None
            if other not in (None, known.schema):
                raise self._error(f"expected a log {known.schema}, found {other!r}") from None
            raise self._error(f"not a record of revision {known.revision}: {error}") from None
        except (RecursionError, UnicodeDecodeError):
            raise self._error("not a record: nested too deeply or not UTF-8") from None
        if record.seq != self._last + 1:
            raise self._error(f"expected sequence {self._last + 1}, found {record.seq}")
        if self._ended:
            raise self._error("expected nothing after the end record")
        if record.time_ns < self._time_ns:
            raise self._error(f"expected a time from {self._time_ns} to {SAFE_MAX} ns, found {record.time_ns}")
        if isinstance(record, known.header) != (self._last < 0):
            raise self._error("expected a header as the first record and nowhere else")
        if isinstance(record, known.header):
            self._check_head(record)
        self._last = record.seq
        self._time_ns = record.time_ns
        self._ended = isinstance(record, known.end)
        return record

    def _check_head(self, head: Head) -> None:
        known = self._catalogue
        if (head.schema, head.revision) != (known.schema, known.revision):
            expected = f"{known.schema} revision {known.revision}"
            raise self._error(f"expected {expected}, found {head.schema} {head.revision}")

    def _error(self, message: str) -> LogError:
        return LogError(message, where=f"{self._where}:{self._line}", sequence=self._last)
