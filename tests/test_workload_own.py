"""isim's own request files: what they may say, what is refused and where, and that writing and reading are inverse."""

import gzip
import io
import json
from decimal import ROUND_HALF_EVEN, Decimal
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isim.scenario.types import Ratio, RequestFile, RequestFormat, Window
from isim.workload.errors import WorkloadError
from isim.workload.open import OpenWorkload, open_workload
from isim.workload.request import Request
from isim.workload.write import write_requests

CSV, JSONL = RequestFormat.CSV, RequestFormat.JSONL
ONE = Ratio(numerator=1)
EPOCH_NS = 1_700_000_000 * 10**9


def opened(folder: Path, form: RequestFormat, content: bytes | str, window: Window | None = None) -> OpenWorkload:
    (folder / "file").write_bytes(content.encode() if isinstance(content, str) else content)
    workload = RequestFile(path="file", format=form, limit=None, time_scale=ONE, window=window)
    return open_workload(workload, 1, folder)


def read(folder: Path, form: RequestFormat, content: bytes | str) -> list[Request]:
    return list(opened(folder, form, content).requests())


def told(folder: Path, form: RequestFormat, content: bytes | str) -> str:
    with pytest.raises(WorkloadError) as caught:
        read(folder, form, content)
    return str(caught.value).replace(str(folder / "file"), "file")


def as_jsonl(*rows: dict[str, object]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def test_a_worked_csv(tmp_path: Path) -> None:
    content = (
        "id,priority,arrival_ms,prefix_id,prefix_tokens,input_tokens,output_tokens\n"
        "a,,0,system,64,100,5\n"
        '"b, ""the second""",-3,0.000001,system,64,64,1\n'
        "c,7,1.5e3,,,10,2\n"
    )
    assert read(tmp_path, CSV, content) == [
        Request(0, "a", 0, 100, 5, 0, (("system", 0, 64), ("p:a", 0, 36))),
        Request(1, 'b, "the second"', 1, 64, 1, -3, (("system", 0, 64),)),
        Request(2, "c", 1_500_000_000, 10, 2, 7),
    ]


def test_a_worked_jsonl(tmp_path: Path) -> None:
    content = (
        '{"arrival": "1.25 s", "input_tokens": 100, "output_tokens": 5, "prefix_id": "s", "prefix_tokens": 64}\n'
        "\n"
        '{"arrival_us": 1250000.5, "input_tokens": 7, "output_tokens": 1, "priority": -2, "prefix_id": null}\n'
    )
    for data in (content, gzip.compress(content.encode()), "\ufeff" + content.replace("\n", "\r\n")):
        assert read(tmp_path, JSONL, data) == [
            Request(0, "r0", 1_250_000_000, 100, 5, 0, (("s", 0, 64), ("p:r0", 0, 36))),
            Request(1, "r1", 1_250_000_500, 7, 1, -2),
        ]


def test_ten_requests_that_share_a_prefix_share_it_token_for_token(tmp_path: Path) -> None:
    """Case P13: 14,336 of 14,592 tokens are shared; the runs say which, and that the rest is not."""
    row = {"arrival_s": 0, "input_tokens": 14_592, "output_tokens": 8, "prefix_id": "doc", "prefix_tokens": 14_336}
    requests = read(tmp_path, JSONL, as_jsonl(*[row] * 10))
    assert len({r.prompt for r in requests}) == 10
    for request in requests:
        assert request.prompt is not None
        assert request.prompt[0] == ("doc", 0, 14_336)
        assert sum(count for _, _, count in request.prompt) == 14_592
    assert len({r.prompt[1][0] for r in requests if r.prompt}) == 10


@given(
    digits=st.integers(0, 10**12),
    places=st.integers(0, 15),
    exponent=st.integers(-6, 3),
    unit=st.sampled_from(["s", "ms", "us", "ns"]),
)
@settings(derandomize=True, deadline=None, max_examples=300)
def test_times_are_decimal_and_exact(
    tmp_path_factory: pytest.TempPathFactory, digits: int, places: int, exponent: int, unit: str
) -> None:
    """`decimal` computes the same: digits / 10^places times the unit, half to even."""
    folder = tmp_path_factory.getbasetemp()
    number = format(Decimal(digits).scaleb(-places), "f")
    written = f"{number}e{exponent}" if exponent else number
    power = {"s": 9, "ms": 6, "us": 3, "ns": 0}[unit]
    exact = Decimal(digits).scaleb(power + exponent - places)
    expected = int(exact.to_integral_value(ROUND_HALF_EVEN))
    if expected >= 2**53:
        return
    csv = f"arrival_{unit},input_tokens,output_tokens\n{written},1,1\n"
    with_unit = f"arrival,input_tokens,output_tokens\n{written} {unit},1,1\n{written}{unit},1,1\n"
    line = f'{{"arrival_{unit}": {written}, "input_tokens": 1, "output_tokens": 1}}\n'
    assert [r.arrival_ns for r in read(folder, CSV, csv)] == [expected]
    assert [r.arrival_ns for r in read(folder, CSV, with_unit)] == [expected, expected]
    trace = opened(folder, JSONL, line)
    assert [r.arrival_ns for r in trace.requests()] == [expected]
    assert any("rounded" in note for note in trace.assumptions) is (exact != expected)


def test_an_epoch_is_rebased_and_said(tmp_path: Path) -> None:
    """Case P10: microseconds since 1970."""
    rows = [
        {"arrival_us": EPOCH_NS // 1000 + offset, "input_tokens": 1, "output_tokens": 1} for offset in (0, 5, 1_000_000)
    ]
    trace = opened(tmp_path, JSONL, as_jsonl(*rows))
    assert [r.arrival_ns for r in trace.requests()] == [0, 5_000, 10**9]
    assert trace.assumptions == [f"rebased: the first row of the trace, {EPOCH_NS} ns after 1970, is t = 0"]
    trace = opened(tmp_path, JSONL, as_jsonl(*rows), Window(start_ns=4_000, end_ns=6_000))
    assert [r.arrival_ns for r in trace.requests()] == [1_000]


def test_times_since_the_start_stay_as_they_are(tmp_path: Path) -> None:
    trace = opened(tmp_path, CSV, "arrival_s,input_tokens,output_tokens\n10,1,1\n12,1,1\n")
    assert [r.arrival_ns for r in trace.requests()] == [10 * 10**9, 12 * 10**9]
    assert trace.assumptions == []


def test_epoch_and_relative_times_do_not_mix(tmp_path: Path) -> None:
    head = "arrival_s,input_tokens,output_tokens\n"
    later = told(tmp_path, CSV, head + "1,1,1\n1700000000,1,1\n")
    assert later.startswith("file:3: column arrival: expected a time since the start, as in the rows above")
    earlier = told(tmp_path, CSV, head + "1700000000,1,1\n1,1,1\n")
    assert earlier.startswith("file:3: column arrival: expected a time of day, as in the rows above")
    neither = told(tmp_path, CSV, head.replace("_s", "_ms") + "1700000000000000,1,1\n")
    assert neither.startswith("file:2: column arrival: expected at most 9007199254740991 ns (104 days)")


GOOD: dict[str, object] = {"arrival_s": 1, "input_tokens": 10, "output_tokens": 2}


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"input_tokens": 0}, "key input_tokens: expected a whole number of tokens from 1"),
        ({"output_tokens": 0}, "key output_tokens: expected a whole number of tokens from 1"),
        ({"output_tokens": -1}, "key output_tokens: expected a whole number of tokens"),
        ({"output_tokens": 1.5}, "key output_tokens: expected a whole number of tokens"),
        ({"output_tokens": float("nan")}, "key output_tokens: expected a whole number of tokens"),
        ({"output_tokens": True}, "key output_tokens: expected a number, found 'True'"),
        ({"output_tokens": "4"}, "key output_tokens: expected a number"),
        ({"output_tokens": [4]}, "key output_tokens: expected a number"),
        ({"output_tokens": {"a": 4}}, "key output_tokens: expected a number"),
        ({"output_tokens": None}, "key output_tokens: expected a whole number of tokens"),
        ({"output_tokens": 10**400}, "key output_tokens: expected a whole number of tokens"),
        ({"arrival_s": -1}, "key arrival_s: expected a number, 0 or more, found '-1'"),
        ({"arrival_s": float("inf")}, "key arrival_s: expected a number, 0 or more"),
        ({"arrival_s": 1e-300}, "key arrival_s: expected a number, 0 or more"),
        ({"arrival_s": "1"}, "key arrival_s: expected a number"),
        ({"arrival_s": None}, "expected one of arrival, arrival_s"),
        ({"arrival": "1 s"}, "expected one of arrival, arrival_s"),
        ({"arrival_s": None, "arrival": 5}, 'key arrival: expected text with a unit, like "1.25 s"'),
        ({"arrival_s": None, "arrival": "5"}, "key arrival: expected a number with its unit"),
        ({"arrival_s": None, "arrival": "5 h"}, "key arrival: expected a number with its unit"),
        ({"arrival_s": None, "arrival": "5  s"}, "key arrival: expected a number with its unit"),
        ({"arrival_s": None, "arrival": "s"}, "key arrival: expected a number with its unit"),
        ({"arrival_s": 0.5}, "key arrival: expected no time before the row above, 1000000000 ns, found 500000000 ns"),
        ({"priority": 1.5}, "key priority: expected a whole number"),
        ({"priority": 10**12}, "key priority: expected a whole number"),
        ({"id": "x"}, "key id: expected an id on every row or on none"),
        ({"prefix_id": "a"}, "key prefix_tokens: expected a whole number from 1 to input_tokens (10), found nothing"),
        ({"prefix_tokens": 5}, "key prefix_id: expected a name"),
        ({"prefix_id": "a", "prefix_tokens": 11}, "key prefix_tokens: expected a whole number from 1 to input_tokens"),
        ({"prefix_id": "a", "prefix_tokens": 0}, "key prefix_tokens: expected a whole number from 1 to input_tokens"),
        ({"prefix_id": "p:a", "prefix_tokens": 1}, "key prefix_id: expected 1 to 256 printable characters that do not"),
        ({"prefix_id": "o:a", "prefix_tokens": 1}, "key prefix_id: expected 1 to 256 printable characters that do not"),
        ({"prefix_id": "a\n", "prefix_tokens": 1}, "key prefix_id: expected 1 to 256 printable characters"),
        ({"prefix_id": 5, "prefix_tokens": 1}, "key prefix_id: expected text"),
        (
            {"ouptut_tokens": 3},
            "key 'ouptut_tokens': expected a known name, found another (did you mean output_tokens?",
        ),
        ({"deadline": 3}, "key 'deadline': expected a known name"),
    ],
)
def test_hostile_values_are_located(tmp_path: Path, change: dict[str, object], complaint: str) -> None:
    message = told(tmp_path, JSONL, as_jsonl(GOOD, GOOD | change))
    assert message.startswith("file:2: " + complaint)
    assert len(message) < 300


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("{", "file:2:2: expected a JSON object"),
        ("[1]", "file:2: expected a JSON object"),
        ('{"a": 1, "a": 1}', "file:2: key 'a': expected once, found twice"),
        ('{"input_tokens": 1} x', "file:2:21: expected a JSON object"),
        ("[" * 60_000, "file:2: expected a JSON object of plain fields, found deep nesting"),
        ("nul\0", "file:2:1: expected a JSON object"),
    ],
)
def test_hostile_lines_are_located(tmp_path: Path, line: str, complaint: str) -> None:
    assert told(tmp_path, JSONL, as_jsonl(GOOD) + line + "\n").startswith(complaint)


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("", "file:1: header: expected the names of the columns, found nothing"),
        ("input_tokens,output_tokens\n", "file:1: header: expected one of arrival, arrival_s"),
        ("arrival_s,arrival_ms,input_tokens,output_tokens\n", "file:1: header: expected one of arrival, arrival_s"),
        ("arrival_s,input_tokens\n", "file:1: header: expected a column output_tokens"),
        ("arrival_s,input_tokens,input_tokens\n", "file:1: column input_tokens: expected once, found twice"),
        ("arrival_s,input_token,output_tokens\n", "file:1: column 'input_token': expected a known name, found another"),
        ("arrival_s,input_tokens,output_tokens\n1,2\n", "file:2: expected 3 cells, as in the header, found 2"),
        ("arrival_s,input_tokens,output_tokens\n1,2,3,4\n", "file:2: expected 3 cells, as in the header, found 4"),
        ("arrival_s,input_tokens,output_tokens\n,2,3\n", "file:2: expected one of arrival"),
        ("arrival,input_tokens,output_tokens\n1.5,2,3\n", "file:2: column arrival: expected a number with its unit"),
        ('arrival_s,input_tokens,output_tokens\n1,2,"3\n', "file:2: expected quotes as RFC 4180 has them"),
        (
            "arrival_s,id,input_tokens,output_tokens\n1,a,2,3\n2,,2,3\n",
            "file:3: column id: expected an id on every row",
        ),
        (
            "arrival_s,id,input_tokens,output_tokens\n1,a,2,3\n2,a,2,3\n",
            "file:3: column id: expected an id that no row",
        ),
        (f"arrival_s,id,input_tokens,output_tokens\n1,{'x' * 257},2,3\n", "file:2: column id: expected 1 to 256"),
        ("arrival_s,id,input_tokens,output_tokens\n1,\t,2,3\n", "file:2: column id: expected 1 to 256 printable"),
        ("arrival_s,input_tokens,output_tokens\n", "file: expected at least one request, found none"),
    ],
)
def test_hostile_csv_is_located(tmp_path: Path, content: str, complaint: str) -> None:
    assert told(tmp_path, CSV, content).startswith(complaint)


@given(data=st.binary(max_size=60), form=st.sampled_from([CSV, JSONL]))
@settings(derandomize=True, deadline=None, max_examples=300)
def test_no_bytes_bring_a_traceback(tmp_path_factory: pytest.TempPathFactory, data: bytes, form: RequestFormat) -> None:
    good = b"arrival_s,input_tokens,output_tokens\n1,2,3\n" if form is CSV else as_jsonl(GOOD).encode()
    place = sum(data) % len(good)
    for content in (data, good + data, good[:place] + data + good[place:], b"\x1f\x8b" + data):
        try:
            read(tmp_path_factory.getbasetemp(), form, content)
        except WorkloadError as error:
            assert "expected" in str(error) or "gzip" in str(error)


NAMES = st.text(st.characters(codec="utf-8"), min_size=1, max_size=8).filter(str.isprintable)
GROUPS = NAMES.filter(lambda name: not name.startswith(("p:", "o:")))


@st.composite
def request_lists(draw: st.DrawFn) -> list[Request]:
    names = draw(st.lists(NAMES, min_size=1, max_size=8, unique=True))
    times = sorted(draw(st.lists(st.integers(0, 2**53 - 1), min_size=len(names), max_size=len(names))))
    requests = []
    for index, (name, arrival_ns) in enumerate(zip(names, times, strict=True)):
        tokens = draw(st.integers(1, 10**9))
        prompt = None
        if draw(st.booleans()):
            shared = draw(st.integers(1, tokens))
            prompt = ((draw(GROUPS), 0, shared), *([(f"p:{name}", 0, tokens - shared)] if shared < tokens else []))
        priority = draw(st.integers(-(10**9), 10**9))
        requests.append(Request(index, name, arrival_ns, tokens, draw(st.integers(1, 10**9)), priority, prompt))
    return requests


@given(requests=request_lists(), form=st.sampled_from([CSV, JSONL]))
@settings(derandomize=True, deadline=None, max_examples=80)
def test_what_is_written_reads_back_the_same(
    tmp_path_factory: pytest.TempPathFactory, requests: list[Request], form: RequestFormat
) -> None:
    stream = io.BytesIO()
    assert write_requests(requests, stream, form) == len(requests)
    trace = opened(tmp_path_factory.getbasetemp(), form, stream.getvalue())
    assert list(trace.requests()) == requests
    assert trace.assumptions == []


@pytest.mark.parametrize(
    "bad",
    [
        Request(1, "a", 0, 5, 5),
        Request(0, "", 0, 5, 5),
        Request(0, "a\n", 0, 5, 5),
        Request(0, "a", 0, 5, 5, 0, (("g", 1, 5),)),
        Request(0, "a", 0, 5, 5, 0, (("g", 0, 3),)),
        Request(0, "a", 0, 5, 5, 0, (("g", 0, 3), ("h", 0, 2))),
        Request(0, "a", 0, 5, 5, 0, (("o:b", 0, 3), ("p:a", 0, 2))),
        Request(0, "a", 0, 5, 5, 0, ()),
    ],
)
def test_what_the_format_cannot_say_is_not_written(bad: Request) -> None:
    with pytest.raises(WorkloadError, match="cannot be written"):
        write_requests([bad], io.BytesIO(), CSV)
    first = Request(0, "b", 9, 5, 5)
    for second in (Request(1, "b", 9, 5, 5), Request(1, "c", 8, 5, 5)):
        with pytest.raises(WorkloadError, match="cannot be written"):
            write_requests([first, second], io.BytesIO(), JSONL)
