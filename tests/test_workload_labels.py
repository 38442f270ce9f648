"""Sessions, classes, server counts and free prompts in request files, and the hits that prompts lead to."""

from __future__ import annotations

import gzip
import io
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isim.cli.main import main
from isim.scenario.types import Ratio, RequestFile, RequestFormat
from isim.workload.errors import WorkloadError
from isim.workload.open import OpenWorkload, open_workload
from isim.workload.request import Request
from isim.workload.write import write_requests

JSONL, CSV = RequestFormat.JSONL, RequestFormat.CSV
ONE = Ratio(numerator=1)
GOOD: dict[str, Any] = {"id": "a", "arrival_s": 1, "input_tokens": 10, "output_tokens": 2, "quotable": True}
NEXT = GOOD | {"id": "b"}
TRACE = Path(__file__).parents[1].parent / "shared" / "data" / "traces_mooncake" / "conversation_trace.jsonl.gz"


def opened(folder: Path, content: str, form: RequestFormat = JSONL) -> OpenWorkload:
    (folder / "file").write_text(content)
    return open_workload(RequestFile(path="file", format=form, limit=None, time_scale=ONE, window=None), 1, folder)


def lines(*rows: dict[str, Any]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def test_a_worked_file(tmp_path: Path) -> None:
    content = lines(
        GOOD | {"session": "s", "class": "chat", "prompt": [["sys", 0, 4], ["s:s", 0, 6]]},
        NEXT | {"quotable": False, "input_tokens": 9, "server_input_tokens": 14, "session": "s",
                "prompt": [["sys", 0, 4], ["o:a", 0, 2]]},
    )  # fmt: skip
    trace = opened(tmp_path, content)
    prompt = (("sys", 0, 4), ("o:a", 0, 2), ("p:b", 0, 8))
    assert list(trace.requests()) == [
        Request(0, "a", 10**9, 10, 2, 0, (("sys", 0, 4), ("s:s", 0, 6)), True, "s", "chat"),
        Request(1, "b", 10**9, 14, 2, 0, prompt, False, "s", None, 9),
    ]
    assert trace.labels == {0: ("chat", "s", None, None), 1: (None, "s", 9, None)}
    assert trace.assumptions == [
        "server_input_tokens: the server's count is used for 1 requests, 14 prompt tokens where the client counted 9"
    ]


def test_a_worked_csv(tmp_path: Path) -> None:
    content = (
        "id,arrival_s,input_tokens,server_input_tokens,output_tokens,session,class,quotable\n"
        "a,0,5,,1,s,,\nb,0,5,9,1,,batch,true\nc,0,5,,1,,,false\n"
    )
    assert list(opened(tmp_path, content, CSV).requests()) == [
        Request(0, "a", 0, 5, 1, session="s"),
        Request(1, "b", 0, 9, 1, quotable=True, request_class="batch", client_input_tokens=5),
        Request(2, "c", 0, 5, 1),
    ]


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"server_input_tokens": 0}, "key server_input_tokens: expected a whole number of tokens from 1"),
        (
            {"server_input_tokens": 4, "prefix_id": "s", "prefix_tokens": 5},
            "key prefix_tokens: expected a whole number",
        ),
        ({"reasoning_tokens": 3}, "key reasoning_tokens: expected a whole number from 0 to output_tokens (2)"),
        ({"reasoning_tokens": -1}, "key reasoning_tokens: expected a whole number from 0"),
        ({"session": 5}, "key session: expected text"),
        ({"session": "a\n"}, "key session: expected 1 to 256 printable characters"),
        ({"class": "x" * 257}, "key class: expected 1 to 256 printable characters"),
        ({"quotable": "true"}, "key quotable: expected true or false"),
        ({"quotable": 1}, "key quotable: expected true or false"),
        ({"prompt": "sys"}, "key prompt: expected a list of [group, start, count]"),
        ({"prompt": [["sys", 0]]}, "key prompt: expected a list of [group, start, count]"),
        ({"prompt": [["sys", 0, 0]]}, "key prompt: expected a list of [group, start, count]"),
        ({"prompt": [["sys", -1, 1]]}, "key prompt: expected a list of [group, start, count]"),
        ({"prompt": [["sys", 0, 1.5]]}, "key prompt: expected a list of [group, start, count]"),
        ({"prompt": [["sys", 0, 11]]}, "key prompt: expected a list of [group, start, count]"),
        ({"prompt": [["sys", 2**60, 1]]}, "key prompt: expected a list of [group, start, count]"),
        ({"prompt": [["sys", 0, 6], ["sys", 9, 5]]}, "key prompt: expected a list of [group, start, count]"),
        ({"prompt": [["p:a", 0, 1]]}, "key prompt: expected groups of 1 to 256 printable characters that do not"),
        ({"prompt": [["o:c", 0, 1]]}, "prompt: expected outputs of quotable requests above"),
        ({"prompt": [["o:b", 0, 1]]}, "prompt: expected outputs of quotable requests above"),
        ({"prompt": [["s", 0, 1]], "prefix_id": "s", "prefix_tokens": 1}, "key prompt: expected either a prompt or a"),
    ],
)
def test_hostile_values_are_located(tmp_path: Path, change: dict[str, Any], complaint: str) -> None:
    with pytest.raises(WorkloadError) as caught:
        list(opened(tmp_path, lines(GOOD, NEXT | change)).requests())
    assert str(caught.value).startswith(f"{tmp_path / 'file'}:2: {complaint}")


def test_a_request_without_id_cannot_be_quoted_and_classes_are_few(tmp_path: Path) -> None:
    nameless = {key: value for key, value in GOOD.items() if key != "id"}
    with pytest.raises(WorkloadError, match="key quotable: expected true or false, and an id where it is true"):
        list(opened(tmp_path, lines(nameless)).requests())
    many = [nameless | {"quotable": False, "class": f"c{place}"} for place in range(65)]
    assert len(list(opened(tmp_path, lines(*many[:64])).requests())) == 64
    with pytest.raises(WorkloadError, match=":65: key class: expected at most 64 different classes, found 'c64'"):
        list(opened(tmp_path, lines(*many)).requests())


TEXT = st.text(st.characters(codec="utf-8"), min_size=1, max_size=6).filter(str.isprintable)
GROUPS = TEXT.filter(lambda name: not name.startswith(("p:", "o:")))
RUNS = st.lists(st.tuples(GROUPS, st.integers(0, 2**52), st.integers(1, 10**6)), max_size=4)


@st.composite
def request_lists(draw: st.DrawFn) -> list[Request]:
    requests: list[Request] = []
    for index in range(draw(st.integers(1, 6))):
        runs = draw(RUNS)
        for earlier in requests:
            if earlier.quotable and draw(st.booleans()):
                runs.append((f"o:{earlier.id}", 0, draw(st.integers(1, 99))))
        own = draw(st.integers(0 if runs else 1, 500))
        prompt = (*runs, *([(f"p:n{index}", 0, own)] if own else [])) if runs else None
        request = Request(
            index,
            f"n{index}",
            7 * index,
            own + sum(count for _, _, count in runs),
            draw(st.integers(1, 99)),
            draw(st.integers(-5, 5)),
            prompt,
            draw(st.booleans()),
            draw(st.none() | TEXT),
            draw(st.none() | TEXT),
            draw(st.none() | st.integers(1, 10**9)),
        )
        request = msgspec.structs.replace(
            request, reasoning_tokens=draw(st.none() | st.integers(0, request.output_tokens))
        )
        requests.append(request)
    return requests


@given(requests=request_lists())
@settings(derandomize=True, deadline=None, max_examples=100)
def test_what_is_written_reads_back_the_same(tmp_path_factory: pytest.TempPathFactory, requests: list[Request]) -> None:
    stream = io.BytesIO()
    write_requests(requests, stream, JSONL)
    folder = tmp_path_factory.getbasetemp()
    assert list(opened(folder, stream.getvalue().decode()).requests()) == requests


HEAD = """\
schema_version: 1
hardware: { gpu: h200 }
model: llama-3.1-8b
engine: { num_gpu_blocks_override: 400000 }
cost: { kind: linear, base: 1 us }
workload: """


def hit_tokens(folder: Path, capsys: pytest.CaptureFixture[str], workload: str) -> tuple[int, list[int]]:
    (folder / "run.yaml").write_text(HEAD + workload + "\n")
    assert main(["run", str(folder / "run.yaml"), "--json", "--no-replay", "--out", str(folder / "out")]) == 0
    rows = (folder / "out" / "requests.csv").read_text().splitlines()
    place = rows[0].split(",").index("hit_tokens")
    return json.loads(capsys.readouterr().out)["counts"]["hit_tokens"], [int(row.split(",")[place]) for row in rows[1:]]


def test_ten_requests_that_share_a_prefix(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Case P13: 14,336 of 14,592 tokens, which are whole blocks of 16: nine requests find them all."""
    row = {"input_tokens": 14_592, "output_tokens": 8, "prefix_id": "doc", "prefix_tokens": 14_336}
    (tmp_path / "file").write_text(lines(*[row | {"arrival_s": place} for place in range(10)]))
    whole, _ = hit_tokens(tmp_path, capsys, "{ kind: request_file, format: jsonl, path: file }")
    assert whole == 9 * 14_336


def test_rows_beyond_the_longest_sequence_are_cut_or_refused_and_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Case P23: of 8,192 tokens a prompt of 8,000 leaves 192 to its answer, and one of 8,192 nothing."""
    sizes = [(8000, 192), (8000, 500), (8191, 9), (8192, 1), (20_000, 1)]
    rows = [{"arrival_s": 1, "input_tokens": brings, "output_tokens": asks} for brings, asks in sizes]
    (tmp_path / "file").write_text(lines(*rows))
    head = HEAD.replace("{ num", "{ max_model_len: 8192, num")
    (tmp_path / "run.yaml").write_text(head + "{ kind: request_file, format: jsonl, path: file }\n")
    assert main(["run", str(tmp_path / "run.yaml"), "--json"]) == 0
    counts = json.loads(capsys.readouterr().out)["counts"]
    assert counts["rejected_by_reason"]["prompt_too_long"] == counts["rejected"] == 2
    assert counts["truncated_outputs"] == 2
    assert counts["output_tokens"] == 192 + 192 + 1


@pytest.mark.skipif(not TRACE.exists(), reason="needs the Mooncake trace of ../shared")
def test_hits_equal_those_of_a_cache_of_single_tokens(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The trace's first requests, far enough apart that each is done before the next, in a pool that holds them all.

    The reference remembers prompts token by token; the engine finds whole blocks of 16, and computes the last token.
    """
    count = 120
    with gzip.open(TRACE, "rt") as stream:
        rows = [json.loads(next(stream)) for _ in range(count)]
    (tmp_path / "file").write_text(lines(*[row | {"timestamp": 10_000 * place} for place, row in enumerate(rows)]))
    _, found = hit_tokens(tmp_path, capsys, "{ kind: mooncake_trace, path: file }")
    root: dict[tuple[int, int], Any] = {}
    expected = []
    for row in rows:
        node, known = root, 0
        for place in range(row["input_length"]):
            token = (row["hash_ids"][place // 512], place % 512)
            if token in node:
                known = place + 1
            node = node.setdefault(token, {})
        expected.append(min(known, row["input_length"] - 1) // 16 * 16)
    assert found == expected
    assert sum(expected) > 0
