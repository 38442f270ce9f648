"""Runs that cannot go on say so, and whose fault it is: exit code 2, within a moment."""

from __future__ import annotations

from pathlib import Path

import pytest

from isim.cli.main import main

RUN = """
schema_version: 1
hardware: {{gpu: rtx-4090}}
model: llama-3.1-8b
engine: {engine}
workload: {workload}
cost: {{kind: linear, base: {base}}}
"""


def run(tmp_path: Path, engine: str, workload: str, base: str = "1 ms") -> int:
    file = tmp_path / "run.yaml"
    file.write_text(RUN.format(engine=engine, workload=workload, base=base))
    return main(["run", str(file), "--quiet", "--out", str(tmp_path / "out")])


GENERATED = (
    "{kind: generated, arrivals: {kind: fixed_rate, rate: 1 /s}, requests: 1, input_tokens: 4, output_tokens: 1005}"
)
FIVE_THOUSAND_DAYS = "{kind: closed_loop, clients: 1, requests: 9, think: {kind: fixed, duration: 5000000 s}, "


@pytest.mark.parametrize(
    ("workload", "base"),
    [
        (GENERATED, "9000 s"),
        (FIVE_THOUSAND_DAYS + "input_tokens: 4, output_tokens: 4}", "1 ms"),
    ],
)
def test_time_that_the_clock_cannot_tell_is_the_input_s_fault(
    workload: str, base: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(tmp_path, "{max_model_len: 4096}", workload, base) == 2
    assert "the clock ends at 2^53 - 1" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["run.yaml"]


@pytest.mark.parametrize("version", ["0.21", "0.33"])
@pytest.mark.parametrize("async_scheduling", ["true", "false"])
def test_prompts_that_evict_one_another_for_ever_end_the_run(
    version: str, async_scheduling: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two prompts of equal priority and arrival, prefilled in small chunks, neither of which is set room aside for."""
    (tmp_path / "requests.csv").write_text("arrival_ns,input_tokens,output_tokens,priority\n0,55,18,1\n0,46,123,1\n")
    engine = (
        f'{{version: "{version}", async_scheduling: {async_scheduling}, block_size: 8, num_gpu_blocks_override: 10, '
        "max_model_len: 64, max_num_seqs: 10, max_num_batched_tokens: 16, long_prefill_token_threshold: 3, "
        "scheduler_reserve_full_isl: false, enable_prefix_caching: false, scheduling_policy: priority}"
    )
    assert run(tmp_path, engine, "{kind: request_file, path: requests.csv, format: csv}") == 2
    assert "preempt one another in turn" in capsys.readouterr().err
