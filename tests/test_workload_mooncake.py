"""The Mooncake trace: hash ids as token identities, its text, and the hits they lead to; facts come from the trace."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isim.cli.main import main
from isim.scenario.types import MooncakeTrace, Ratio, Window
from isim.workload.errors import WorkloadError
from isim.workload.open import OpenWorkload, open_workload
from isim.workload.request import Request

SHARED = Path(__file__).parents[1].parent / "shared" / "data" / "traces_mooncake"
TRACE = SHARED / "conversation_trace.jsonl.gz"
needs_trace = pytest.mark.skipif(not TRACE.exists(), reason=f"needs {TRACE.name} of ../shared")
ONE = Ratio(numerator=1)
GOOD: dict[str, object] = {"timestamp": 5, "input_length": 1030, "output_length": 3, "hash_ids": [7, 8, 9]}


def opened(folder: Path, content: str | bytes, window: Window | None = None) -> OpenWorkload:
    (folder / "trace").write_bytes(content.encode() if isinstance(content, str) else content)
    return open_workload(MooncakeTrace(path="trace", limit=None, time_scale=ONE, window=window), 1, folder)


def lines(*rows: dict[str, object]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def row(timestamp: object, input_length: int, hashes: list[int]) -> dict[str, object]:
    return {"timestamp": timestamp, "input_length": input_length, "output_length": 2, "hash_ids": hashes}


def tokens(request: Request) -> list[tuple[str, int]]:
    """Every token of a prompt as its identity."""
    return [(group, start + place) for group, start, count in request.prompt or () for place in range(count)]


def test_a_worked_trace(tmp_path: Path) -> None:
    content = lines(row(0, 600, [0, 41]), row(1.5, 1100, [0, 41, 50]), row(3000, 512, [0]), row(3000, 700, [0]))
    for data in (content, gzip.compress(content.encode())):
        first, second, third, fourth = opened(tmp_path, data).requests()
        assert [r.arrival_ns for r in (first, second, third, fourth)] == [0, 1_500_000, 3 * 10**9, 3 * 10**9]
        assert [r.session for r in (first, second, third, fourth)] == ["41", "41", None, None]
        assert [len(tokens(r)) for r in (first, second, third, fourth)] == [600, 1100, 512, 700]
        assert tokens(second)[:600] == tokens(first)
        assert tokens(third) == tokens(first)[:512]
        assert tokens(fourth)[:512] == tokens(third)
        assert tokens(fourth)[512:] == [("p:r3", place) for place in range(188)]  # what no number covers is its own


@given(
    prompts=st.lists(
        st.tuples(
            st.lists(st.sampled_from([0, 1, 2, 3, 4, 2**40, 2**70]), min_size=1, max_size=4), st.integers(1, 512)
        ),
        min_size=1,
        max_size=5,
    )
)
@settings(derandomize=True, deadline=None, max_examples=60)
def test_equal_numbers_are_equal_tokens_and_others_are_not(
    tmp_path_factory: pytest.TempPathFactory, prompts: list[tuple[list[int], int]]
) -> None:
    rows = [row(0, 512 * (len(hashes) - 1) + last, hashes) for hashes, last in prompts]
    requests = list(opened(tmp_path_factory.getbasetemp(), lines(*rows)).requests())
    said: dict[tuple[str, int], tuple[int, int]] = {}
    for request, (hashes, _) in zip(requests, prompts, strict=True):
        expected = [(hashes[place // 512], place % 512) for place in range(request.input_tokens)]
        for token, meaning in zip(tokens(request), expected, strict=True):
            assert said.setdefault(token, meaning) == meaning
    assert len(set(said.values())) == len(said)


def test_a_row_without_a_time_comes_with_the_one_above(tmp_path: Path) -> None:
    """Case P38 (b): [missing, 100] is [0, 100], not [0, 0]."""
    without = {key: value for key, value in GOOD.items() if key != "timestamp"}
    trace = opened(tmp_path, lines(without, row(100, 10, [1]), row(None, 10, [1])))
    assert [r.arrival_ns for r in trace.requests()] == [0, 100 * 10**6, 100 * 10**6]
    assert any("without a timestamp" in note and "line 1" in note for note in trace.assumptions)
    assert not any("without a timestamp" in note for note in opened(tmp_path, lines(GOOD)).assumptions)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"input_length": 0}, "key input_length: expected a whole number of tokens from 1"),
        ({"input_length": "5"}, "key input_length: expected a whole number of tokens"),
        ({"input_length": 5.5}, "key input_length: expected a whole number of tokens"),
        ({"input_length": True}, "key input_length: expected a whole number of tokens"),
        ({"output_length": -1}, "key output_length: expected a whole number of tokens"),
        ({"output_length": 10**10}, "key output_length: expected a whole number of tokens"),
        ({"hash_ids": [1, 2, 3, 4]}, "key hash_ids: expected at most 3 numbers for 1030 tokens, found '4'"),
        ({"hash_ids": [1.5]}, "key hash_ids: expected a list of whole numbers"),
        ({"hash_ids": 5}, "key hash_ids: expected a list of whole numbers"),
        ({"timestamp": -1}, "key timestamp: expected a number of milliseconds"),
        ({"timestamp": "1"}, "key timestamp: expected a number of milliseconds"),
        ({"timestamp": [1]}, "key timestamp: expected a number of milliseconds"),
        ({"timestamp": 4}, "key timestamp: expected no time before the row above"),
        ({"timestam": 4}, "key 'timestam': expected the keys timestamp"),
    ],
)
def test_hostile_values_are_located(tmp_path: Path, change: dict[str, object], complaint: str) -> None:
    with pytest.raises(WorkloadError) as caught:
        list(opened(tmp_path, lines(GOOD, GOOD | change)).requests())
    assert str(caught.value).startswith(f"{tmp_path / 'trace'}:2: {complaint}")


@given(data=st.binary(max_size=60))
@settings(derandomize=True, deadline=None, max_examples=200)
def test_no_bytes_bring_a_traceback(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    good = lines(GOOD).encode()
    place = sum(data) % len(good)
    for content in (data, good + data, good[:place] + data + good[place:], b"[" * 50_000 + data):
        try:
            list(opened(tmp_path_factory.getbasetemp(), content).requests())
        except WorkloadError as error:
            assert "expected" in str(error) or "gzip" in str(error)


RUN_FILE = """\
schema_version: 1
hardware: { gpu: h200 }
model: llama-3.1-8b
engine: { max_num_batched_tokens: 8192, enable_chunked_prefill: true, block_size: %d }
workload: { kind: mooncake_trace, path: trace }
cost: { kind: linear, base: 1 ms }
"""


@pytest.mark.parametrize(("block", "hits"), [(16, 592), (64, 576), (512, 512), (1024, 0)])
def test_only_whole_blocks_of_the_engine_hit(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], block: int, hits: int
) -> None:
    """600 tokens are there when the second request comes: 37 blocks of 16, 9 of 64, one of 512, none of 1,024."""
    (tmp_path / "trace").write_text(lines(row(0, 600, [0, 41]), row(60_000, 1100, [0, 41, 50])))
    (tmp_path / "run.yaml").write_text(RUN_FILE % block)
    assert main(["run", str(tmp_path / "run.yaml"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["counts"]["hit_tokens"] == hits


@needs_trace
def test_the_published_trace_is_read_whole() -> None:
    """Counts from a plain reading of the file; all prompts share the first number, no conversation has it alone."""
    with gzip.open(TRACE, "rt") as stream:
        rows = [json.loads(line) for line in stream]
    workload = MooncakeTrace(path=TRACE.name, limit=None, time_scale=ONE, window=None)
    requests = list(open_workload(workload, 1, SHARED).requests())
    assert len(requests) == len(rows) == 12_031
    assert [r.arrival_ns for r in requests] == [r["timestamp"] * 10**6 for r in rows]
    assert [(r.input_tokens, r.output_tokens) for r in requests] == [
        (r["input_length"], r["output_length"]) for r in rows
    ]
    assert [r.session for r in requests] == [str(r["hash_ids"][1]) for r in rows]
    for request in requests:
        assert sum(count for _, _, count in request.prompt or ()) == request.input_tokens
