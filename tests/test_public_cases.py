"""Faults that users of such simulators reported, by their ids: what an engine does. Each case is met as a person would.

Cases that are tested where they belong are not repeated: P13 (workload_labels, workload_own), P15 and P16 (memory),
P18 (gpus_table), P23 (workload_labels), P35 (model_groups), P40 (replicas), P60 (analyze_result). The slow engine, the
oracle of the tests, has P01, P03, P05, P38, P45 and P56 too. Those about numbers are in test_public_numbers.py.
"""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest
from public_cases import NO_CACHE, Cases, closed_loop, generated, reasons, turns

from isim.model.arithmetic import legal_tensor_parallel
from isim.model.catalogue import MODELS
from isim.record.records import Arrive


@pytest.fixture
def cases(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Cases:
    monkeypatch.chdir(tmp_path)
    return Cases(tmp_path, capsys)


KINDS = [
    f'version: "{version}", scheduling_policy: {policy}, async_scheduling: {overlap}, enable_prefix_caching: {cache}'
    for version, policy, overlap, cache in product(
        ("0.21", "0.33"), ("fcfs", "priority"), ("true", "false"), ("true", "false")
    )
]
"""Every kind of engine there is."""

FIFTY = "num_gpu_blocks_override: 51, max_model_len: 4096"


@pytest.mark.parametrize("kind", KINDS)
def test_p01_what_never_fits_is_refused_and_the_run_ends(kind: str, cases: Cases) -> None:
    """50 blocks of 16 hold 800 tokens: a prompt of 900 is refused, beside others and alone."""
    row = {"arrival_s": 0, "input_tokens": 100, "output_tokens": 5}
    beside = cases.run(engine=f"{FIFTY}, {kind}", workload=cases.file("r.jsonl", row, row | {"input_tokens": 900}, row))
    assert beside.code == 0 and beside.conserves()
    assert (beside.counts["completed"], reasons(beside)) == (2, {"never_fits": 1})
    assert [row["reason"] for row in beside.rows] == ["", "never_fits", ""]
    alone = cases.run(engine=f"{FIFTY}, {kind}", workload=generated(3, 900, 5))
    assert alone.code == 4 and alone.conserves()
    assert alone.counts["rejected"] == 3
    # A prompt that fits, whose answer does not, is of the same kind: it would be preempted for ever.
    grows = cases.run(engine=f"{FIFTY}, {kind}", workload=generated(3, 700, 102))
    assert (grows.code, reasons(grows)) == (4, {"never_fits": 3})
    fits = cases.run(engine=f"{FIFTY}, {kind}", workload=generated(3, 700, 101))
    assert (fits.code, fits.counts["completed"]) == (0, 3)


@pytest.mark.parametrize("times", [2, 10])
@pytest.mark.parametrize("kind", KINDS[::5])
def test_p03_overload_schedules_nobody_twice_in_a_step(times: int, kind: str, cases: Cases) -> None:
    """125 blocks hold seven prompts of 256; the replay finds whoever is in a step twice, so do the sums here."""
    requests = 7 * times
    engine = f"num_gpu_blocks_override: 126, max_num_seqs: 64, max_model_len: 512, {kind}"
    ran = cases.run(engine=engine, workload=generated(requests, 256, 40, "100000 /s"))
    assert ran.code == 0 and ran.counts["completed"] == requests
    for turn in turns(ran):
        named = [entry[0] for entry in (*turn.admitted, *turn.chunks)]
        assert len(named) == len(set(named)) <= turn.scheduled <= turn.running
        assert not {*turn.preempted} & {*named}
    assert len(ran.records) < 40 * requests
    assert ran.counts["preemptions"] < 10 * requests


@pytest.mark.parametrize("reserve", ["true", "false"])
def test_p05_an_evicted_long_prompt_comes_back_to_what_is_cached(reserve: str, cases: Cases) -> None:
    """A long decode beside a prompt of 9,000 in chunks of 2,048, in a pool for 9,800 tokens."""
    rows = [{"arrival_ns": n, "input_tokens": brings, "output_tokens": asks}
            for n, (brings, asks) in enumerate(((500, 500), (9000, 300)))]  # fmt: skip
    engine = (
        f"num_gpu_blocks_override: {9800 // 16 + 1}, max_num_seqs: 8, max_num_batched_tokens: 2048, "
        f"max_model_len: 16384, scheduler_reserve_full_isl: {reserve}"
    )
    ran = cases.run(engine=engine, workload=cases.file("r.jsonl", *rows))
    assert ran.code == 0 and ran.counts["completed"] == 2
    admitted = [(hit, tokens) for turn in turns(ran) for who, hit, tokens in turn.admitted if who == 1]
    assert len(admitted) == 1 + ran.counts["preemptions"] == 2
    assert admitted[0][0] == 0 and admitted[1][0] > 8000
    assert ran.counts["resumed_hit_tokens"] == admitted[1][0]


def test_p06_a_full_pool_makes_no_more_records_than_there_is_to_tell(cases: Cases) -> None:
    """Requests in a pool that holds one and a half of them: nothing is printed or told for those who wait."""
    count = 400
    pressed = cases.run(
        engine="num_gpu_blocks_override: 100, max_num_seqs: 64, max_model_len: 2048, enable_prefix_caching: false",
        workload=generated(count, 1000, 4, "20 /s"),
    )
    free = cases.run(
        engine=f"num_gpu_blocks_override: 9000, max_num_seqs: 64, max_model_len: 2048, {NO_CACHE}",
        workload=generated(count, 1000, 4, "20 /s"),
    )
    assert pressed.code == free.code == 0
    assert pressed.counts["completed"] == count
    assert pressed.said.count("\n") == 1, "where it was written"
    assert len(pressed.records) <= len(free.records) <= 6 * count + 2
    assert len(pressed.report) < 2 * len(free.report)
    flooded = cases.run(
        engine=f"num_gpu_blocks_override: 100, max_num_seqs: 64, max_model_len: 2048, {NO_CACHE}",
        workload=generated(400, 1000, 4, "100000 /s"),
    )
    assert flooded.counts["completed"] == 400
    assert len(flooded.records) <= 6 * 400


def test_p08_an_idle_replica_gives_the_first_token_after_one_step(cases: Cases) -> None:
    """A prompt of 512: the overhead, the base and 512 tokens; no router and no second engine adds to it."""
    workload = generated(1, 512, 1, "1 /s")
    plain = cases.run(workload=workload)
    assert plain.result["latency"]["ttft_ns"]["max"] == 1_000_000 + 512 * 1_000
    ahead = cases.run("engine.request_overhead=7.1 ms", workload=workload)
    assert ahead.result["latency"]["ttft_ns"]["max"] == 7_100_000 + 1_000_000 + 512 * 1_000
    for policy in ("round_robin", "least_outstanding", "prefix_affinity"):
        routed = cases.run(workload=workload, more=f"replicas: 3\nrouter: {{ policy: {policy}, ties: seeded }}\n")
        assert routed.result["latency"]["ttft_ns"] == plain.result["latency"]["ttft_ns"]
        behind = cases.run(
            "engine.request_overhead=7.1 ms",
            workload=workload,
            more=f"replicas: 3\nrouter: {{ policy: {policy}, ties: seeded }}\n",
        )
        assert behind.result["latency"]["ttft_ns"] == ahead.result["latency"]["ttft_ns"]


@pytest.mark.parametrize(
    ("unit", "since_1970"),
    [("s", 1_700_000_000), ("ms", 1_700_000_000_000), ("us", 1_700_000_000_000_000), ("ns", 1_700_000_000_000_000_000)],
)
def test_p10_times_of_day_and_a_deadline_after_sending(unit: str, since_1970: int, cases: Cases) -> None:
    """Deadlines count from when a request came, and times of day from the first of them: nobody times out at once."""
    rows = [{f"arrival_{unit}": since_1970 + n, "input_tokens": 64, "output_tokens": 4} for n in range(5)]
    ran = cases.run(workload=cases.file("r.jsonl", *rows), more="clients: { timeout: 30 s }\n")
    assert (ran.code, ran.counts["completed"], ran.counts["aborted"]) == (0, 5, 0)
    assert any("rebased" in each for each in ran.result["assumptions"])
    assert ran.rows[0]["arrival_ns"] == "0"
    # Where all of them do time out the exit code says so.
    for sets in ((), ("engine.request_overhead=2 us",)):
        late = cases.run(*sets, workload=cases.file("r.jsonl", *rows), more="clients: { timeout: 1 us }\n")
        assert late.code == 4 and late.conserves() and late.counts["aborted"] == 5


def test_p11_a_request_counts_from_when_it_was_sent(cases: Cases) -> None:
    """A file has one time for a request: a planned one beside it is refused, not taken for the other."""
    row = {"arrival_ms": 50, "input_tokens": 100, "output_tokens": 1}
    sent = cases.run(workload=cases.file("r.jsonl", row))
    assert sent.rows[0]["queue_ns"] == "0"
    assert sent.rows[0]["ttft_ns"] == str(1_000_000 + 100 * 1_000)
    both = cases.run(workload=cases.file("r.jsonl", row | {"planned_ms": 0}))
    assert both.code == 2 and "r.jsonl:1: key 'planned_ms'" in both.said
    twice = cases.run(workload=cases.file("r.jsonl", row | {"arrival_s": 0}))
    assert twice.code == 2 and "expected one of arrival, arrival_s" in twice.said
    # Clients that wait send when they are answered: no time is spent in a queue that the client spent waiting.
    closed = closed_loop(1, 20, 100, 3)
    waited = cases.run(workload=closed)
    assert waited.code == 0 and {row["queue_ns"] for row in waited.rows} == {"0"}


@pytest.mark.parametrize("key", ["cpu_offload_gb: 4", "kv_offloading_size: 4", "swap_space: 4"])
def test_p31_what_is_not_modelled_is_refused_and_not_taken_for_granted(key: str, cases: Cases) -> None:
    """There is no second tier of KV blocks: whoever asks for one is told."""
    ran = cases.run(engine=key, workload=generated(2, 40, 5))
    assert ran.code == 2
    assert f"engine.{key.partition(':')[0]}: expected one of the keys" in ran.said


@pytest.mark.parametrize("kind", KINDS[::3])
def test_p38_the_budget_is_what_others_left_of_it(kind: str, cases: Cases) -> None:
    """Prompts of 4 and 8 and a budget of 8: eight tokens in the first step, four in the second."""
    row = {"arrival_ns": 0, "output_tokens": 1}
    ran = cases.run(
        engine=f"max_num_batched_tokens: 8, max_num_seqs: 4, max_model_len: 64, {kind}",
        workload=cases.file("r.jsonl", row | {"input_tokens": 4}, row | {"input_tokens": 8}),
    )
    assert [turn.tokens for turn in turns(ran) if turn.step is not None] == [8, 4]


@pytest.mark.parametrize("kind", KINDS[::3])
def test_p41_nobody_starves_in_a_closed_loop(kind: str, cases: Cases) -> None:
    """64 clients on 1,024 blocks of 16, prompts of 512: all are served, in turn."""
    closed = closed_loop(64, 640, 512, 32)
    ran = cases.run(engine=f"num_gpu_blocks_override: 1025, max_model_len: 1024, {kind}", workload=closed)
    assert ran.code == 0 and ran.counts["completed"] == 640 and ran.conserves()
    # 31 fit at once, so a client waits for little more than one round of the others.
    e2e = ran.result["latency"]["e2e_ns"]
    queue = ran.result["latency"]["queue_ns"]
    assert queue["max"] <= 3 * (e2e["max"] - queue["max"] + e2e["mean"])


@pytest.mark.parametrize("version", ["0.21", "0.33"])
def test_p56_a_whole_prompt_is_reserved_or_prompts_thrash(version: str, cases: Cases) -> None:
    """Two prompts of 120,000 in a pool for 150,000 tokens, in chunks."""
    engine = (
        f'version: "{version}", num_gpu_blocks_override: {150_000 // 16 + 1}, max_num_batched_tokens: 8192, '
        f"max_num_seqs: 8, {NO_CACHE}, scheduler_reserve_full_isl: "
    )
    reserved = cases.run(engine=engine + "true", workload=generated(2, 120_000, 20))
    assert (reserved.code, reserved.counts["preemptions"]) == (0, 0)
    assert int(reserved.rows[1]["start_ns"]) >= int(reserved.rows[0]["finish_ns"])
    by_chunk = cases.run(engine=engine + "false", workload=generated(2, 120_000, 20))
    assert by_chunk.code == 0 and by_chunk.counts["completed"] == 2
    assert by_chunk.counts["preemptions"] > 0


FORTY = (
    "{ name: forty, num_hidden_layers: 40, hidden_size: 5120, intermediate_size: 13824, num_attention_heads: 40, "
    "num_key_value_heads: 40, head_dim: 128, vocab_size: 32000, max_position_embeddings: 4096 }"
)


def test_p58_a_split_that_heads_do_not_allow_lists_those_they_do(cases: Cases) -> None:
    ran = cases.run("engine.tensor_parallel_size=6", workload=generated(2, 40, 5), model=FORTY)
    assert ran.code == 2
    (line,) = ran.said.strip().splitlines()
    assert "engine.tensor_parallel_size: expected one of 1, 2, 4, 8, into which 40 attention" in line
    assert "found 6" in line


def test_o2_a_prompt_beyond_the_longest_sequence_is_rejected_and_counted(cases: Cases) -> None:
    ran = cases.run(engine=f"max_model_len: 8192, {NO_CACHE}", workload=generated(20, 9000, 5))
    assert ran.code == 4 and ran.conserves()
    assert reasons(ran) == {"prompt_too_long": 20}
    assert "20 rejected" in " ".join(ran.report.split())


@pytest.mark.parametrize("model", ["llama-3.1-8b", "llama-2-70b", "qwen2.5-7b", FORTY])
def test_o4_every_illegal_split_is_one_error_before_anything_is_made(model: str, cases: Cases) -> None:
    """32 heads, 64, 28 and 40: whatever the number is, one line."""
    heads = 40 if model is FORTY else MODELS[model].num_attention_heads
    legal = [ranks for ranks in range(1, heads + 1) if heads % ranks == 0]
    if model is not FORTY:
        legal = [ranks for ranks in legal if ranks in legal_tensor_parallel(MODELS[model])]
    for ranks in (3, 6, 7, 16, 24, 64, 65, 128, 4096):
        ran = cases.run(f"engine.tensor_parallel_size={ranks}", workload=generated(1, 8, 1), model=model, gpu="b200")
        if ranks in legal:
            assert ran.code in (0, 2)
            continue
        assert ran.code == 2
        complaints = ran.said.strip().splitlines()
        assert any("engine.tensor_parallel_size" in line and f"found {ranks}" in line for line in complaints)
        assert len(complaints) <= 2, "a GPU without a link may be the second"


@pytest.mark.parametrize("tokens", ["0", "-1", "{ kind: constant, tokens: 0 }", "{ kind: uniform, low: 0, high: 4 }"])
def test_o5_an_answer_of_no_tokens_is_refused(tokens: str, cases: Cases) -> None:
    ran = cases.run(workload=generated(2, 40, 5).replace("output_tokens: 5", f"output_tokens: {tokens}"))
    assert ran.code == 2 and "workload.output_tokens" in ran.said and "from 1 to" in ran.said


def test_o5_no_file_may_ask_for_none_either(cases: Cases) -> None:
    row = {"arrival_ns": 0, "input_tokens": 40, "output_tokens": 0}
    ran = cases.run(workload=cases.file("r.jsonl", row))
    assert ran.code == 2 and "r.jsonl:1: key output_tokens: expected a whole number of tokens from 1" in ran.said


@pytest.mark.parametrize(
    ("override", "names"),
    [
        ("workload.output_tokens=0", "workload.output_tokens.tokens: expected a whole number from 1"),
        ("engine.tensor_parallel_size=64", "engine.tensor_parallel_size: expected one of 1, 2, 4, 8, 16, 32"),
        ("engine.max_num_seqs=5000", "max_num_batched_tokens to be at least max_num_seqs"),
        ("engine.gpu_memory_utilization=1.5", "engine.gpu_memory_utilization: expected a share"),
        ("engine.block_size=0", "engine.block_size: expected a whole number from 1"),
        ("engine.max_model_len=1", "engine.max_model_len: expected a whole number from 2"),
    ],
)
def test_o7_one_line_that_names_the_wrong_input(override: str, names: str, cases: Cases) -> None:
    ran = cases.run(override, workload=generated(2, 40, 5), engine="max_num_batched_tokens: 2048")
    assert ran.code == 2
    (line,) = ran.said.strip().splitlines()
    assert line.startswith("isim: ") and names in line


def test_routed_requests_of_any_case_are_told_once(cases: Cases) -> None:
    """Conservation of a fleet: every request arrives at exactly one engine."""
    ran = cases.run(engine=FIFTY, workload=generated(60, 300, 40), more="replicas: 3\n")
    sent = [record.request for record in ran.records if isinstance(record, Arrive)]
    assert sent == list(range(60)) and ran.conserves()
