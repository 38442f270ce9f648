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
from isim.record.records import REVISION, SAFE_MAX, SCHEMA, AnyRecord, End, Head, Header, Record

_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
_READ_BYTES = 1 << 20
_FEED_BYTES = 1 << 12
_WINDOW_BYTES = 1 << 27
MAX_LINE_BYTES = 64 << 20

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
        with Path(path).open("rb") as stream:
            lines = next(_lines(stream, str(path)), [])
            return _schema_in(lines[0]) if lines else None
    except (OSError, LogError, _Broken):
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
    try:
        stream = path.open("rb")
    except OSError as error:
        raise LogError(f"cannot be opened: {error.strerror}", where=str(path), sequence=-1) from None
    with stream:
        yield from _Envelope(str(path), catalogue).check(_lines(stream, str(path)))


class _Broken(Exception):  # noqa: N818 - internal marker
    """The compressed stream stops making sense here."""


def _lines(stream: IO[bytes], where: str) -> Iterator[list[bytes]]:
    """Complete lines, a list for each piece read; raises _Broken where the stream breaks off."""
    head = stream.read(4)
    stream.seek(0)
    if head == _ZSTD_MAGIC:
        pieces = _decompressed(stream)
    elif head.startswith(b"{"):
        pieces = iter(lambda: stream.read(_READ_BYTES), b"")
    else:
        raise LogError("expected a zstd-compressed or plain JSON Lines log", where=where, sequence=-1)
    rest = b""
    for piece in pieces:
        lines = (rest + piece).split(b"\n")
        rest = lines.pop()
        if len(rest) > MAX_LINE_BYTES:
            raise LogError(f"a line of more than {MAX_LINE_BYTES} bytes", where=where, sequence=-1)
        if lines:
            yield lines
    if rest:
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

    def check(self, pieces: Iterator[list[bytes]]) -> Iterator[list[R]]:
        while True:
            try:
                lines = next(pieces, None)
            except _Broken:
                if self._ended:
                    raise self._error("expected nothing after the end record, found bytes of no log") from None
                lines = None
            if lines is None:
                break
            batch: list[R] = []
            try:
                for line in lines:
                    batch.append(self._record(line))
            except LogError:
                if batch:
                    yield batch
                raise
            yield batch
        if not self._ended:
            message = f"the log stops after sequence {self._last}, before its end record"
            raise TruncatedLog(message, where=self._where, sequence=self._last)

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
