"""The default cost model against measured runs of vLLM: `python tools/real_runs.py FOLDER [--gpu NAME] [--overhead]`.

FOLDER is `sim_to_real_gt` of the measured data (aggregates of runs of dense 16-bit models by inference-sim, for its
sim-to-real accuracy validation). Each load is simulated as it was sent: Poisson arrivals, prompts that come over and
over after a hundred, answers of a fixed length, vLLM with asynchronous scheduling and 128 seats. Printed are the
errors of the mean TTFT, time per output token and E2E. `--overhead` adds what a request spends outside the engine,
which a study of those runs found for each kind of GPU (docs/engine.md).
"""

from __future__ import annotations

import argparse
import csv
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median

import msgspec

from isim.analyze.collect import Collector
from isim.analyze.latency import latency, token_counts
from isim.run import simulate
from isim.scenario.load import read_scenario

GPUS = {"H100": ("h100-sxm", "7.1 ms"), "A100-80GB": ("a100-80gb", "9.8 ms"), "L40S": ("l40s", "10.6 ms")}
"""The preset, and the overhead of a request."""
AGGREGATES = "ground_truth_actuals.csv"
MODELS = {
    "CodeLlama-34b-Instruct-hf": "codellama-34b",
    "Llama-2-7b-hf": "llama-2-7b",
    "Llama-2-70b-hf": "llama-2-70b",
    "Llama-3.1-8B-Instruct": "llama-3.1-8b",
    "Mistral-Nemo-Instruct-2407": "mistral-nemo-12b",
    "Qwen2.5-7B-Instruct": "qwen2.5-7b",
    "Qwen3-14B": "qwen3-14b",
    "Yi-34B": "yi-34b",
}
LENGTHS = {"general": (547, 248), "general-lite": (547, 248), "codegen": (566, 247), "roleplay": (750, 251)}
RUN = """\
schema_version: 1
hardware: {{ gpu: {gpu}, count: {ranks} }}
model: {model}
engine:
  tensor_parallel_size: {ranks}
  max_num_seqs: 128
  max_num_batched_tokens: {budget}
  max_model_len: 4096
  gpu_memory_utilization: 0.9
  request_overhead: {overhead}
workload:
  kind: generated
  arrivals: {{ kind: poisson, rate: {rate} /s }}
  requests: {requests}
  input_tokens: {brings}
  output_tokens: {asks}
  prompt_pool: 100
cost: roofline
"""
METRICS = ("TTFT", "TPOT", "E2E")
WARM_UP = 150
"""Requests left out: after the first 100 every prompt is known."""


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """One measured load: what was served how, and mean milliseconds of TTFT, of an output token, and of E2E."""

    name: str
    hardware: str
    model: str
    ranks: int
    budget: int
    workload: str
    rate: str
    measured_ms: tuple[float, float, float]


def loads(folder: Path) -> Iterator[Load]:
    """Every load of a dense model that is told with its rate, on the GPUs above."""
    with (folder / AGGREGATES).open() as stream:
        for row in csv.DictReader(stream):
            model = MODELS.get(row["model"].rpartition("/")[2])
            told = row["stage"] in ("0", "1") and row["workload"] in LENGTHS and row["req_rate"] not in ("", "mixed")
            if model is None or not told or row["hardware"] not in GPUS or row["dp"] != "1":
                continue
            yield Load(
                name=row["exp"],
                hardware=row["hardware"],
                model=model,
                ranks=int(row["tp"]),
                budget=int(row["max_num_batched_tokens"]),
                workload=row["workload"],
                rate=row["req_rate"],
                measured_ms=(float(row["ttft_mean_ms"]), float(row["tpot_from_e2e_ms"]), float(row["e2e_mean_ms"])),
            )


def errors(load: Load, requests: int, *, overhead: bool = False) -> tuple[float, float, float]:
    """How far the simulated TTFT, time per output token and E2E are off, as shares of what was measured."""
    gpu, overhead_text = GPUS[load.hardware]
    brings, asks = LENGTHS[load.workload]
    text = RUN.format(
        gpu=gpu,
        ranks=load.ranks,
        model=load.model,
        budget=load.budget,
        overhead=overhead_text if overhead else "0 s",
        rate=load.rate,
        requests=requests,
        brings=brings,
        asks=asks,
    )
    collector = Collector()
    simulate(read_scenario(text.encode(), load.name), base_dir=Path(), readers=[collector.read], digest=False)
    collector.finish()
    found = latency(collector, token_counts(collector.requests), WARM_UP)
    means_ns = (found.ttft_ns.mean, found.tpot_ns.mean, found.e2e_ns.mean)
    return tuple((mean_ns or 0) / 1e6 / ms - 1 for mean_ns, ms in zip(means_ns, load.measured_ms, strict=True))  # type: ignore[return-value] # three of them


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="The default cost model against measured runs.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--gpu", choices=list(GPUS), help="only this one")
    parser.add_argument("--requests", type=int, default=2000)
    parser.add_argument("--overhead", action="store_true", help="with the overhead of requests outside the engine")
    options = parser.parse_args(arguments)
    if not (options.folder / AGGREGATES).is_file():
        print(f"real_runs: {options.folder}: expected a folder with {AGGREGATES}, found none", file=sys.stderr)
        return 2
    for hardware in GPUS:
        if options.gpu not in (None, hardware):
            continue
        rows = []
        for load in loads(options.folder):
            if load.hardware == hardware:
                rows.append(errors(load, options.requests, overhead=options.overhead))
                told = "  ".join(f"{name} {100 * off:+6.1f} %" for name, off in zip(METRICS, rows[-1], strict=True))
                print(f"{hardware:10}{load.model:18}TP {load.ranks}  {load.workload:13}{load.rate:>4} /s  {told}")
        for name, off in zip(METRICS, zip(*rows, strict=True), strict=True):
            middle, worst = 100 * median(map(abs, off)), 100 * max(off, key=abs)
            print(f"{hardware} {len(off)} loads: {name} off by {middle:.1f} % in the median, {worst:+.1f} % at most")
    return 0


if __name__ == "__main__":
    sys.exit(main())
