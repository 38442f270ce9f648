"""Every reader of the product with a small input it accepts, called as the shell calls it: for tests of bad input.

A reader is given a file and comes to an exit code. `accepts` writes what it takes for granted (the run file around a
trace), and returns the command that reads `file`.
"""

from __future__ import annotations

import gc
import json
import re
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import msgspec
import pytest

from isim.cli.main import main

HANGS_S = 60
"""Nothing here takes a hundredth of it; a reader that does not come back is told from one that does."""

RUN_FILE = """\
schema_version: 1
name: tiny
hardware: { gpu: h100-sxm }
model: llama-3.1-8b
engine: { max_num_seqs: 4, max_num_batched_tokens: 256, max_model_len: 4096, num_gpu_blocks_override: 900 }
workload:
  kind: generated
  arrivals: { kind: poisson, rate: 50 /s }
  requests: 4
  input_tokens: 100
  output_tokens: 4
cost: { kind: linear, base: 2 ms, per_token: 10 us }
simulation: { max_events: 20000 }
"""
_GENERATED = RUN_FILE[RUN_FILE.index("workload:") : RUN_FILE.index("cost:")]
AZURE = "TIMESTAMP,ContextTokens,GeneratedTokens\n" + "".join(
    f"2023-11-16 18:17:03.{n}799600,{100 + n},{4 + n}\n" for n in range(4)
)
CSV = "arrival_ms,input_tokens,output_tokens,id,class\n" + "".join(f"{n}.5,{90 + n},4,r-{n},chat\n" for n in range(4))
JSONL = "".join(
    json.dumps({"arrival": f"{n} ms", "input_tokens": 90, "output_tokens": 4, "prompt": [["g", 0, 64]]}) + "\n"
    for n in range(4)
)
MOONCAKE = "".join(
    json.dumps({"timestamp": n, "input_length": 600, "output_length": 4, "hash_ids": [0, n]}) + "\n" for n in range(4)
)
LENGTHS = "100,3\n200\n"
FIGURES = """\
latency.tpot_ns.mean: 2.5 ms
latency.itl_ns.p50: 2600 us
throughput.whole_run.output_tokens_per_s: 200 /s
"""
MEASURED = "id,status,ttft_ms,tpot,e2e_s\n" + "".join(f"r{n},completed,4.{n},3 ms,0.013\n" for n in range(4))
MEASURED_JSONL = "".join(json.dumps({"ttft_ms": 4.5, "tpot": "2800 us", "e2e_ms": 13}) + "\n" for n in range(4))
CONFIG = json.dumps(
    {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": 512,
        "intermediate_size": 1024,
        "num_hidden_layers": 4,
        "num_attention_heads": 8,
        "num_key_value_heads": 2,
        "vocab_size": 1000,
        "max_position_embeddings": 8192,
        "rope_scaling": {"rope_type": "llama3", "factor": 8.0},
        "torch_dtype": "bfloat16",
        "quantization_config": {"quant_method": "fp8", "modules_to_not_convert": ["lm_head", "re:.*gate$"]},
    },
    indent=1,
)
SAMPLING = json.dumps({"do_sample": True, "temperature": 0.6, "top_p": 0.9}, indent=1)


class Reader(msgspec.Struct, frozen=True):
    """`good` is what it accepts under the name `name`; `around` is a file beside it and what that holds."""

    name: str
    good: str
    argv: Callable[[Path], list[str]]
    around: tuple[str, str] | None = None

    def prepare(self, folder: Path) -> Path:
        """Where the input belongs, in an empty folder."""
        if self.around is not None:
            (folder / self.around[0]).write_text(self.around[1])
        return folder / self.name


def _run(path: Path) -> list[str]:
    return ["run", str(path), "--quiet", "--out", str(path.parent / "out")]


def _around(path: Path) -> list[str]:
    return _run(path.parent / "run.yaml")


def _calibrate(path: Path) -> list[str]:
    run, out = str(path.parent / "run.yaml"), str(path.parent / "fitted.yaml")
    return ["calibrate", run, str(path), "--fit", "cost.base", "--quiet", "--out", out]


def _with_trace(kind: str) -> tuple[str, str]:
    return "run.yaml", RUN_FILE.replace(_GENERATED, f"workload: {{ {kind} }}\n")


def _with_model(name: str) -> tuple[str, str]:
    text = RUN_FILE.replace("model: llama-3.1-8b", "model: config.json").replace("num_gpu_blocks_override: 900", "")
    return "run.yaml" if name == "config.json" else "config.json", text if name == "config.json" else CONFIG


READERS = {
    "run file": Reader("run.yaml", RUN_FILE, _run),
    "json run file": Reader(
        "run.json", json.dumps({
            "schema_version": 1, "name": "tiny", "hardware": {"gpu": "h100-sxm"}, "model": "llama-3.1-8b",
            "engine": {"max_num_seqs": 4, "max_num_batched_tokens": 256, "max_model_len": 4096},
            "workload": {
                "kind": "generated", "arrivals": {"kind": "poisson", "rate": "50 /s"}, "requests": 4,
                "input_tokens": 100, "output_tokens": 4,
            },
            "cost": {"kind": "linear", "base": "2 ms"}, "simulation": {"max_events": 20000},
        }, indent=1), _run,
    ),
    "azure trace": Reader("t.csv", AZURE, _around, _with_trace("kind: azure_trace, path: t.csv")),
    "request csv": Reader("t.csv", CSV, _around, _with_trace("kind: request_file, format: csv, path: t.csv")),
    "request jsonl": Reader("t.jsonl", JSONL, _around, _with_trace("kind: request_file, format: jsonl, path: t.jsonl")),
    "mooncake trace": Reader("t.jsonl", MOONCAKE, _around, _with_trace("kind: mooncake_trace, path: t.jsonl")),
    "lengths": Reader(
        "l.txt", LENGTHS, _around,
        ("run.yaml", RUN_FILE.replace("input_tokens: 100", "input_tokens: { kind: empirical_file, path: l.txt }")),
    ),
    "config.json": Reader("config.json", CONFIG, _around, _with_model("config.json")),
    "measured figures": Reader("m.yaml", FIGURES, _calibrate, ("run.yaml", RUN_FILE)),
    "measured csv": Reader("m.csv", MEASURED, _calibrate, ("run.yaml", RUN_FILE)),
    "measured jsonl": Reader("m.jsonl", MEASURED_JSONL, _calibrate, ("run.yaml", RUN_FILE)),
}  # fmt: skip


def log_and_result(folder: Path) -> tuple[bytes, bytes]:
    """The plain lines of a small run's log, and its result.json."""
    import zstandard

    (folder / "made.yaml").write_text(RUN_FILE)
    assert main(["run", str(folder / "made.yaml"), "--quiet", "--out", str(folder / "made")]) == 0
    packed = (folder / "made" / "log.jsonl.zst").read_bytes()
    lines = zstandard.ZstdDecompressor().stream_reader(packed, read_across_frames=True).read()
    return lines, (folder / "made" / "result.json").read_bytes()


def all_readers(folder: Path) -> dict[str, Reader]:
    """Those above, with the readers of logs, results and sampling defaults; what they read is made in `folder`."""
    log, result = log_and_result(folder)
    return READERS | {
        "generation_config.json": Reader("generation_config.json", SAMPLING, _model_beside),
        "log": Reader("log.jsonl", log.decode(), lambda path: ["replay", str(path)]),
        "result": Reader("result.json", result.decode(), lambda path: ["report", str(path.parent)]),
        "exported log": Reader(
            "log.jsonl.zst", log.decode(), lambda path: ["export", str(path), "--out", str(path.parent / "made.csv")]
        ),
    }


def _model_beside(path: Path) -> list[str]:
    (path.parent / "config.json").write_text(CONFIG)
    (path.parent / "run.yaml").write_text(_with_model("config.json")[1])
    return _run(path.parent / "run.yaml")


@contextmanager
def no_hang(what: str) -> Iterator[None]:
    """Fails, naming what was read, where nothing came back for very long."""

    def hangs(_: int, __: FrameType | None) -> None:
        pytest.fail(f"still reading after {HANGS_S} s: {what}")

    before = signal.signal(signal.SIGALRM, hangs)
    signal.alarm(HANGS_S)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def code_of(argv: list[str]) -> int:
    """The exit code of a command."""
    try:
        return main(argv)
    except SystemExit as exit_:
        assert isinstance(exit_.code, int)
        return exit_.code
    finally:
        gc.enable()


LOCATED = re.compile(r"^isim: .|^--set\[[0-9]+\]: .", re.MULTILINE)
