"""The log as a file: what is written is read back, and whatever is wrong is told with line and sequence."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
import zstandard
from product import as_requests, play
from workload_fuzz import random_case

from isim.record.codec import LogWriter, encode_lines, read_log
from isim.record.errors import LogError, TruncatedLog
from isim.record.records import AnyRecord, Header


@pytest.fixture(scope="module")
def records() -> list[AnyRecord]:
    limits, requests, coefficients = random_case(3)
    return play(limits, as_requests(requests), coefficients).records


def compressed(*batches: list[AnyRecord]) -> bytes:
    stream = io.BytesIO()
    writer = LogWriter(stream)
    for batch in batches:
        writer.write(batch)
    return stream.getvalue()


def read_all(path: Path) -> list[AnyRecord]:
    return [record for batch in read_log(path) for record in batch]


def test_a_log_reads_back_as_it_was_written(records: list[AnyRecord], tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl.zst"
    path.write_bytes(compressed(records[:5], records[5:]))
    assert read_all(path) == records
    plain = tmp_path / "log.jsonl"
    plain.write_bytes(encode_lines(records))
    assert read_all(plain) == records


def test_a_log_cut_anywhere_is_read_up_to_the_cut(records: list[AnyRecord], tmp_path: Path) -> None:
    whole = compressed(*[[record] for record in records])
    path = tmp_path / "log.jsonl.zst"
    for size in range(0, len(whole), max(1, len(whole) // 60)):
        path.write_bytes(whole[:size])
        found: list[AnyRecord] = []
        with pytest.raises(LogError) as caught:
            for batch in read_log(path):
                found += batch
        assert found == records[: len(found)]
        if isinstance(caught.value, TruncatedLog):
            assert caught.value.sequence == len(found) - 1
        else:
            assert size < 4, "too short to tell what it is"
    plain = encode_lines(records)
    cut = plain.index(b"\n", len(plain) // 2)
    (tmp_path / "log.jsonl").write_bytes(plain[: cut + 10])
    whole_lines = plain[:cut].count(b"\n") + 1
    with pytest.raises(TruncatedLog, match=f"stops after sequence {whole_lines - 1}"):
        read_all(tmp_path / "log.jsonl")


WRONG = {
    "unknown kind": (2, {"kind": "sabotage"}, "sabotage"),
    "unknown field": (2, {"surprise": 1}, "surprise"),
    "a gap": (2, {"seq": 3}, "expected sequence 2, found 3"),
    "a repetition": (2, {"seq": 1}, "expected sequence 2, found 1"),
    "a float for a time": (2, {"time_ns": 1.5}, "int"),
    "an integral float": (2, {"time_ns": 4.0}, "int"),
    "a text for a number": (2, {"time_ns": "4"}, "int"),
    "a bool for a number": (2, {"time_ns": True}, "int"),
    "a time beyond 2^53 - 1": (2, {"time_ns": 2**53}, "not a record"),
    "a number of 400 digits": (2, {"time_ns": 10**400}, "not a record"),
    "a count below zero": (2, {"request": -1}, "not a record"),
    "another revision": (0, {"revision": 2}, "found isim/log 2"),
    "another schema": (0, {"schema": "other/log"}, "found other/log 1"),
    "a second header": (1, None, "a header as the first record"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_located(name: str, records: list[AnyRecord], tmp_path: Path) -> None:
    line, change, message = WRONG[name]
    lines = [json.loads(text) for text in encode_lines(records).splitlines()]
    lines[line] = {**lines[0], "seq": line} if change is None else lines[line] | change
    path = tmp_path / "log.jsonl"
    path.write_text("".join(json.dumps(text) + "\n" for text in lines))
    with pytest.raises(LogError, match=message) as caught:
        read_all(path)
    assert str(caught.value).startswith(f"{path}:{line + 1}: ")
    assert caught.value.sequence == line - 1


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e400"])
def test_numbers_that_are_not_finite_are_refused(number: str, records: list[AnyRecord], tmp_path: Path) -> None:
    text = encode_lines(records).decode().replace('"time_ns":0', f'"time_ns":{number}', 1)
    path = tmp_path / "log.jsonl"
    path.write_text(text)
    with pytest.raises(LogError, match="not a record"):
        read_all(path)


def test_time_that_goes_back_and_records_after_the_end_are_refused(records: list[AnyRecord], tmp_path: Path) -> None:
    lines = [json.loads(text) for text in encode_lines(records).splitlines()]
    path = tmp_path / "log.jsonl"
    late = next(place for place, line in enumerate(lines) if line["time_ns"] > 0)
    back = [*lines[: late + 1], lines[late + 1] | {"time_ns": 0}]
    path.write_text("".join(json.dumps(text) + "\n" for text in back))
    with pytest.raises(LogError, match=f"expected a time from {lines[late]['time_ns']}"):
        read_all(path)
    path.write_text("".join(json.dumps(text) + "\n" for text in [*lines, lines[-1] | {"seq": len(lines)}]))
    with pytest.raises(LogError, match="nothing after the end record"):
        read_all(path)


@pytest.mark.parametrize(
    "content",
    [b"", b"hello", b"\x1f\x8b\x08\x00", b"{", b"[" * 100_000, b'{"kind":', b"\xff\xfe{", b"\x28\xb5\x2f\xfd"],
)
def test_what_is_no_log_is_a_log_error(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(content)
    with pytest.raises(LogError):
        read_all(path)
    with pytest.raises(LogError, match="cannot be opened"):
        read_all(tmp_path / "absent")


def test_a_promise_of_a_huge_window_is_refused(tmp_path: Path) -> None:
    """A frame may claim that it needs any amount of memory to be read; reading it must not believe that."""
    parameters = zstandard.ZstdCompressionParameters(window_log=30, compression_level=1)
    path = tmp_path / "log.jsonl.zst"
    compressor = zstandard.ZstdCompressor(compression_params=parameters)
    with path.open("wb") as stream, compressor.stream_writer(stream) as writer:
        writer.write(b'{"kind":"header"}\n')
    with pytest.raises(LogError):
        read_all(path)


def test_the_first_record_is_a_header(records: list[AnyRecord]) -> None:
    assert isinstance(records[0], Header)
    assert [record.seq for record in records] == list(range(len(records)))


def test_damage_costs_no_more_than_what_comes_after_it(records: list[AnyRecord], tmp_path: Path) -> None:
    """Frames before a damaged one are read whole, and the last good sequence is that of what was read."""
    frames = [compressed([record]) for record in records]
    path = tmp_path / "log.jsonl.zst"
    for place in (1, len(frames) // 2, len(frames) - 1):
        damaged = bytearray(frames[place])
        damaged[len(damaged) // 2] ^= 0xFF
        path.write_bytes(b"".join(frames[:place]) + bytes(damaged) + b"".join(frames[place + 1 :]))
        found: list[AnyRecord] = []
        with pytest.raises(LogError) as caught:
            for batch in read_log(path):
                found += batch
        assert found == records[: len(found)]
        assert len(found) >= place - 60, "small frames are fed together"
        assert caught.value.sequence == len(found) - 1


def test_bytes_after_the_end_are_told(records: list[AnyRecord], tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl.zst"
    path.write_bytes(compressed(records) + b"junk")
    found: list[AnyRecord] = []
    with pytest.raises(LogError, match="expected nothing after the end record") as caught:
        for batch in read_log(path):
            found += batch
    assert found == records
    assert caught.value.sequence == len(records) - 1
