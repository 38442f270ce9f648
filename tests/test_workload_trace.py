"""The Azure trace, its text and compression, and the choice of a part; facts come from `datetime`, gzip and files."""

import gzip
import hashlib
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isim.scenario.types import AzureTrace, Ratio, Window
from isim.workload.azure import azure_rows
from isim.workload.errors import WorkloadError
from isim.workload.open import OpenWorkload, open_workload
from isim.workload.request import Request

SHARED = Path(__file__).parents[1].parent / "shared" / "data" / "traces_azure2023"
HEADER = "TIMESTAMP,ContextTokens,GeneratedTokens"
ONE = Ratio(numerator=1)
ROWS = (
    "2023-12-31 23:59:59.9999999,100,1",
    "2024-01-01 00:00:00.0000000,200,2",
    "2024-01-01 00:00:00.0000000,300,3",
    "2024-02-29 12:00:00.5,400,4",
)
OFFSETS = [0, 100, 100, 5_140_800_500_000_100]  # 59 days and 12 h after the new year


def azure(
    folder: Path,
    content: bytes | str,
    *,
    limit: int | None = None,
    scale: Ratio = ONE,
    window: Window | None = None,
) -> OpenWorkload:
    (folder / "trace").write_bytes(content.encode() if isinstance(content, str) else content)
    return open_workload(AzureTrace(path="trace", limit=limit, time_scale=scale, window=window), 1, folder)


def text(*rows: str, end: str = "\n") -> str:
    return end.join((HEADER, *rows)) + end


def told(folder: Path, content: bytes | str) -> str:
    with pytest.raises(WorkloadError) as caught:
        list(azure(folder, content).requests())
    assert caught.value.exit_code == 2
    return str(caught.value).replace(str(folder / "trace"), "trace")


def test_times_are_exact_and_rebased(tmp_path: Path) -> None:
    opened = azure(tmp_path, text(*ROWS))
    requests = list(opened.requests())
    assert requests == [Request(i, f"r{i}", arrival, 100 * (i + 1), i + 1) for i, arrival in enumerate(OFFSETS)]
    first_ns = 1_704_067_200 * 10**9 - 100
    assert f"rebased: the first row of the trace, {first_ns} ns after 1970, is t = 0" in opened.assumptions


@given(moments=st.lists(st.datetimes(datetime(2000, 1, 1), datetime(2199, 12, 31)), min_size=1, max_size=5))
@settings(derandomize=True, deadline=None, max_examples=300)
def test_timestamps_agree_with_datetime(moments: list[datetime]) -> None:
    epoch = datetime(1970, 1, 1)
    lines = [HEADER, *(f"{moment.isoformat(' ', 'microseconds')}7,1,1" for moment in moments)]
    rows = azure_rows(enumerate(lines, 1), "x")
    microsecond = timedelta(microseconds=1)
    assert [row[1] for row in rows] == [(moment - epoch) // microsecond * 1000 + 700 for moment in moments]


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("start", ["", "\ufeff"])
@pytest.mark.parametrize("compressed", [False, True])
def test_line_ends_marks_and_gzip_make_no_difference(tmp_path: Path, end: str, start: str, compressed: bool) -> None:
    plain = (start + text(*ROWS, end=end)).encode()
    opened = azure(tmp_path, gzip.compress(plain) if compressed else plain)
    assert [r.arrival_ns for r in opened.requests()] == OFFSETS
    assert opened.sha256 == hashlib.sha256(plain).hexdigest()


def test_gzip_of_several_members_and_no_last_line_end(tmp_path: Path) -> None:
    plain = text(*ROWS).encode().rstrip()
    parts = gzip.compress(plain[:70]) + gzip.compress(b"") + gzip.compress(plain[70:]) + b"\0" * 100
    opened = azure(tmp_path, parts)
    assert [r.arrival_ns for r in opened.requests()] == OFFSETS
    assert opened.sha256 == hashlib.sha256(plain).hexdigest()


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_long_traces_cross_the_pieces_they_are_read_in(tmp_path: Path, end: str) -> None:
    start = datetime(2023, 11, 16, tzinfo=UTC)
    rows = [
        f"{(start + timedelta(milliseconds=7 * i)).strftime('%Y-%m-%d %H:%M:%S.%f')}0,{i + 1},1" for i in range(20_000)
    ]
    plain = text(*rows, end=end).encode()
    for content in (plain, gzip.compress(plain, 1)):
        opened = azure(tmp_path, content)
        requests = list(opened.requests())
        assert [r.arrival_ns for r in requests] == [7_000_000 * i for i in range(20_000)]
        assert [r.input_tokens for r in requests] == list(range(1, 20_001))
        assert opened.sha256 == hashlib.sha256(plain).hexdigest()


@pytest.mark.parametrize("keep", range(5))
def test_a_workload_can_be_read_twice_and_partly(tmp_path: Path, keep: int) -> None:
    opened = azure(tmp_path, text(*ROWS), limit=keep or None)
    once = list(opened.requests())
    assert once == list(opened.requests())
    assert len(once) == (keep or 4)
    read = keep or 4
    assert opened.sha256 == hashlib.sha256(text(*ROWS[:read]).encode()).hexdigest()


def test_a_bad_row_beyond_the_limit_is_never_met(tmp_path: Path) -> None:
    assert len(list(azure(tmp_path, text(*ROWS, "rubbish"), limit=4).requests())) == 4


@pytest.mark.parametrize(
    ("row", "complaint"),
    [
        ("2024-03-01 00:00:00.0,5", "trace:6: expected 3 columns"),
        ("2024-03-01 00:00:00.0,5,5,5", "trace:6: expected 3 columns"),
        ("2024-03-01 00:00:00.0,0,5", "trace:6: column ContextTokens: expected a whole number from 1 to"),
        ("2024-03-01 00:00:00.0,5,0", "trace:6: column GeneratedTokens: expected a whole number from 1 to"),
        ("2024-03-01 00:00:00.0,-5,5", "trace:6: column ContextTokens: "),
        ("2024-03-01 00:00:00.0,5,nan", "trace:6: column GeneratedTokens: "),
        ("2024-03-01 00:00:00.0,5,1.0", "trace:6: column GeneratedTokens: "),
        ("2024-03-01 00:00:00.0, 5,1", "trace:6: column ContextTokens: "),
        ("2024-03-01 00:00:00.0,1_0,1", "trace:6: column ContextTokens: "),
        ("2024-03-01 00:00:00.0,,1", "trace:6: column ContextTokens: "),
        ("2024-03-01 00:00:00.0,٣,1", "trace:6: column ContextTokens: "),
        ("2024-03-01 00:00:00.0,1000000001,1", "trace:6: column ContextTokens: "),
        (f"2024-03-01 00:00:00.0,{'9' * 5000},1", "trace:6: column ContextTokens: "),
        (",5,5", "trace:6: column TIMESTAMP: expected a time like"),
        ("2023-02-29 00:00:00.0,5,5", "trace:6: column TIMESTAMP: "),
        ("2024-13-01 00:00:00.0,5,5", "trace:6: column TIMESTAMP: "),
        ("2024-03-00 00:00:00.0,5,5", "trace:6: column TIMESTAMP: "),
        ("2024-03-01 24:00:00.0,5,5", "trace:6: column TIMESTAMP: "),
        ("2024-03-01 00:60:00.0,5,5", "trace:6: column TIMESTAMP: "),
        ("2024-03-01 00:00:60.0,5,5", "trace:6: column TIMESTAMP: "),
        ("2024-03-01 00:00:0,5,5", "trace:6: column TIMESTAMP: "),
        ("2024-03-01 00:00:00.,5,5", "trace:6: column TIMESTAMP: "),
        ("2024-03-01 00:00:00.0123456789,5,5", "trace:6: column TIMESTAMP: "),
        ("2024-03-01 00:00:00,5,5,", "trace:6: expected 3 columns"),
        ("1700158623.97,5,5", "trace:6: column TIMESTAMP: "),
        ("2024-02-29 12:00:00.4999999,5,5", "trace:6: column TIMESTAMP: expected no time before the row above"),
        ("2025-01-01 00:00:00.0,5,5", "trace:6: column TIMESTAMP: expected at most 9007199254740991 ns (104 days)"),
    ],
)
def test_the_first_bad_row_is_located(tmp_path: Path, row: str, complaint: str) -> None:
    assert told(tmp_path, text(*ROWS, row)).startswith(complaint)


def test_a_long_cell_is_not_repeated_in_full(tmp_path: Path) -> None:
    message = told(tmp_path, text(f"2024-03-01 00:00:00.0,{'9' * 5000},1"))
    assert len(message) < 200
    assert "(5000 characters)" in message


def test_files_that_are_no_trace(tmp_path: Path) -> None:
    assert told(tmp_path, "").startswith("trace:1: header: expected 'TIMESTAMP,")
    assert told(tmp_path, text()) == "trace: expected at least one request, found none"
    assert told(tmp_path, "time,in,out\n").startswith("trace:1: header: expected 'TIMESTAMP,")
    assert told(tmp_path, text(*ROWS) + "\xff").startswith("trace:6: expected 3 columns")
    assert told(tmp_path, text(*ROWS).encode() + b"\xff") == ("trace:6: expected UTF-8 text, found byte 0xff at 1")
    assert "at most 65536 bytes" in told(tmp_path, text(*ROWS) + "9" * 70_000)
    assert "at most 65536 bytes" in told(tmp_path, text("9" * 1_000_000, *ROWS))
    assert "UTF-8" in told(tmp_path, text(*ROWS).encode("utf-16"))


def test_missing_files_and_folders(tmp_path: Path) -> None:
    for path in ("absent", ".", "nul\0"):
        workload = AzureTrace(path=path, limit=None, time_scale=ONE, window=None)
        with pytest.raises(WorkloadError, match="cannot be read"):
            open_workload(workload, 1, tmp_path)


def test_cut_and_damaged_gzip(tmp_path: Path) -> None:
    rows = [f"2024-03-01 00:00:00.{i:07},{i + 1},1" for i in range(5_000)]
    whole = gzip.compress(text(*rows).encode())
    for cut in (len(whole) - 1, len(whole) // 2, 20, 3):
        assert "the file was cut short" in told(tmp_path, whole[:cut])
    damaged = bytearray(whole)
    damaged[-6] ^= 1  # the checksum
    assert "gzip data is damaged" in told(tmp_path, bytes(damaged))
    assert "gzip data is damaged" in told(tmp_path, whole + b"rubbish")


def test_rows_before_the_cut_are_delivered(tmp_path: Path) -> None:
    rows = [f"2024-03-01 00:00:00.{i:07},{i + 1},1" for i in range(50_000)]
    content = gzip.compress(text(*rows).encode())
    got = 0
    with pytest.raises(WorkloadError, match=r"trace:\d+: the gzip data stops here"):
        for request in azure(tmp_path, content[: len(content) - 20]).requests():
            assert request.arrival_ns == 100 * got
            got += 1
    assert got > 10_000


@given(
    offsets=st.lists(st.integers(0, 400), min_size=1, max_size=30).map(sorted),
    start=st.integers(0, 400),
    length=st.integers(1, 400),
    numerator=st.integers(1, 9),
    denominator=st.integers(1, 9),
    limit=st.none() | st.integers(1, 10),
)
@settings(derandomize=True, deadline=None, max_examples=200)
def test_window_then_limit_then_scale(
    tmp_path_factory: pytest.TempPathFactory,
    offsets: list[int],
    start: int,
    length: int,
    numerator: int,
    denominator: int,
    limit: int | None,
) -> None:
    """In units of 100 ns, the trace's own. `round` of a Fraction rounds half to even."""
    rows = [f"2024-03-01 00:00:00.{offset:07},{i + 1},1" for i, offset in enumerate(offsets)]
    opened = azure(
        tmp_path_factory.getbasetemp(),
        text(*rows),
        limit=limit,
        scale=Ratio(numerator=numerator, denominator=denominator),
        window=Window(start_ns=start * 100, end_ns=(start + length) * 100),
    )
    since = [offset - offsets[0] for offset in offsets]
    kept = [(i + 1, at) for i, at in enumerate(since) if start <= at < start + length][:limit]
    expected = [(tokens, round(Fraction((at - start) * 100 * numerator, denominator))) for tokens, at in kept]
    if not kept:
        with pytest.raises(WorkloadError, match="inside the window"):
            list(opened.requests())
        return
    requests = list(opened.requests())
    assert [(r.input_tokens, r.arrival_ns) for r in requests] == expected
    assert [r.index for r in requests] == list(range(len(kept)))
    assert any(note.startswith("window") for note in opened.assumptions)


def test_a_scale_beyond_the_clock_is_an_error(tmp_path: Path) -> None:
    opened = azure(tmp_path, text(*ROWS), scale=Ratio(numerator=2))
    with pytest.raises(WorkloadError, match=r"trace:5: .*after time_scale"):
        list(opened.requests())


def test_the_published_trace(tmp_path: Path) -> None:
    """First and last rows of the code trace, 2023-11-16 18:17:03.9799600 to 19:14:19.9280160, counted by hand."""
    file = "AzureLLMInferenceTrace_code.csv.gz"
    if not (SHARED / file).exists():
        pytest.skip("needs ../shared/data/traces_azure2023, which is not here")
    opened = open_workload(AzureTrace(path=file, limit=None, time_scale=ONE, window=None), 1, SHARED)
    requests = list(opened.requests())
    assert [r.arrival_ns for r in requests[:4]] == [0, 52_000_000, 98_189_000, 140_684_000]
    assert (requests[0].input_tokens, requests[0].output_tokens) == (4808, 10)
    assert requests[-1].arrival_ns == (57 * 60 + 15) * 10**9 + 948_056_000
    assert len(requests) == 8_819
    assert opened.sha256 == hashlib.sha256(gzip.decompress((SHARED / file).read_bytes())).hexdigest()
