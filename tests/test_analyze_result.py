"""result.json and requests.csv as files: their schema, their bytes, and that one agrees with the other."""

from __future__ import annotations

import csv
import io
import json
from random import Random

import jsonschema
import msgspec
import pytest
from toy_facts import analysis_of
from toy_log import Toy, ToyRequest, ToyStep, random_toy

from isim.analyze.describe import decimal, warm_up_rule
from isim.analyze.result import encode
from isim.analyze.schema import LoadReason, LoadState, Result
from isim.analyze.table import COLUMNS, write_requests
from isim.scenario.types import WarmupDuration, WarmupRequests, WarmupShare


def rows_of(records: list) -> list[dict[str, str]]:  # type: ignore[type-arg] # records of any kind
    stream = io.StringIO(newline="")
    write_requests(analysis_of(records), stream)
    return list(csv.DictReader(io.StringIO(stream.getvalue(), newline="")))


def test_results_follow_the_schema_they_publish() -> None:
    validator = jsonschema.Draft202012Validator(msgspec.json.schema(Result))
    for seed in range(40):
        _, records = random_toy(seed)
        data = encode(analysis_of(records).result)
        validator.validate(json.loads(data))
        assert msgspec.json.decode(data, type=Result) == analysis_of(records).result


def test_definitions_stand_in_the_schema() -> None:
    text = json.dumps(msgspec.json.schema(Result))
    for words in ("(E2E - TTFT) / (n - 1)", "n - 1 for a request of n tokens", "start of the first step", "rank"):
        assert words in text


def test_the_result_is_indented_json_that_ends_with_a_newline() -> None:
    _, records = random_toy(1)
    data = encode(analysis_of(records).result)
    assert data.startswith(b'{\n  "schema": "isim/result",\n  "revision": 3,\n')
    assert data.endswith(b"}\n")
    assert b"NaN" not in data and b"Infinity" not in data


def test_the_table_gives_the_numbers_of_the_result() -> None:
    for seed in range(60):
        _, records = random_toy(seed)
        result = analysis_of(records).result
        rows = rows_of(records)
        assert tuple(rows[0]) == COLUMNS
        assert len(rows) == result.counts.arrived
        done = [row for row in rows if row["status"] == "completed"]
        assert len(done) == result.counts.completed == sum(int(row["measured"]) for row in rows)
        assert max((int(row["e2e_ns"]) for row in done), default=None) == result.latency.e2e_ns.max
        assert max((int(row["queue_ns"]) for row in done), default=None) == result.latency.queue_ns.max
        assert sum(int(row["output_tokens"]) for row in rows) == result.counts.output_tokens
        for row in rows:
            if row["status"] == "rejected":
                assert (row["start_ns"], row["first_token_ns"], row["tpot_ns"]) == ("", "", "")
                assert row["reason"] == "prompt_too_long"
            if row["status"] == "completed":
                assert int(row["ttft_ns"]) == int(row["first_token_ns"]) - int(row["arrival_ns"])
                assert (row["tpot_ns"] == "") == (row["output_tokens"] == "1")


def test_names_with_commas_and_quotes_stay_one_cell() -> None:
    _, records = random_toy(2)
    awkward = 'a,"b"\nc'
    for record in records:
        if hasattr(record, "id"):
            record.id = awkward
    assert {row["id"] for row in rows_of(records)} == {awkward}


@pytest.mark.parametrize(
    ("rule", "text"),
    [
        (None, "none"),
        (WarmupDuration(duration_ns=1_500_000_000), "1.5 s"),
        (WarmupRequests(requests=100), "100 requests"),
        (WarmupShare(share_ppm=125_000), "12.5 % of the requests"),
    ],
)
def test_the_three_forms_of_warm_up_are_told_apart(rule: object, text: str) -> None:
    """P53: a share, a count and a time can't be mistaken for one another."""
    assert warm_up_rule(rule) == text  # type: ignore[arg-type] # parametrised over all forms


def test_decimals_say_when_they_are_not_exact() -> None:
    assert [decimal(4, 1), decimal(1, 4), decimal(1, 3)] == ["4", "0.25", "~0.333333333"]


def single_server(gap_ns: int, service_ns: int, requests: int) -> Toy:
    """One request at a time, each of one step; arrivals every `gap_ns`."""
    now_ns = 0
    steps: list[ToyStep] = []
    asked: list[ToyRequest] = []
    for number in range(requests):
        arrival_ns = number * gap_ns
        start_ns = max(now_ns, arrival_ns)
        now_ns = start_ns + service_ns
        steps.append(ToyStep(decided_ns=start_ns, start_ns=start_ns, duration_ns=service_ns))
        asked.append(
            ToyRequest(arrival_ns=arrival_ns, input_tokens=8, asked_tokens=1, start_step=number, token_steps=[number])
        )
    return Toy(steps=steps, requests=asked, asynchronous=False, free=[900] * requests)


def test_load_tells_a_stable_server_from_an_overloaded_one() -> None:
    """P60: work arriving slower than it is served, and faster; by the Lindley recursion the queue grows without end."""
    stable = analysis_of(single_server(100, 80, 400).records(Random(0))).result
    assert (stable.load.state, stable.load.reasons) == (LoadState.STABLE, [])
    assert stable.load.queue_mean_ns_by_quarter == [0, 0, 0, 0]
    assert stable.busy.utilisation == 400 * 80 / (399 * 100 + 80)
    over = analysis_of(single_server(100, 120, 400).records(Random(0))).result
    assert over.load.state is LoadState.OVERLOADED
    assert LoadReason.QUEUE_GROWS in over.load.reasons
    assert over.busy.utilisation == 1.0
    # Request k waits 20 k; the first quarter is k = 0 to 99.
    assert over.load.queue_mean_ns_by_quarter == [990, 2990, 4990, 6990]
    # At 39,900 ns steps 0 to 332 have started (333 x 120 > 39,900).
    assert over.load.waiting_at_last_arrival == 400 - 333
