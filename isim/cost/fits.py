"""How much of its memory bandwidth each GPU reaches in real serving: one fitted number for each that runs tell of.

Decoding is bound by memory, so this share decides what a token takes, and it is not the same on all GPUs: with that of
an H100 an A100 came out a fifth too fast. Each share here is the one, to two digits, with the least root mean square
of relative errors in mean time per output token over published vLLM runs of dense 16-bit models, every other factor at
its default; for the RTX 4090, whose one run is overloaded, in TTFT and E2E too. Where there are several runs of
different models and loads, what is left says how well one number does; where there is one, it says nothing of another
model. A share holds for the preset's bandwidth only: who gives another figure gets what holds for GPUs in general.
"""

from __future__ import annotations

import msgspec

from isim.cost.factors import RooflineFactors
from isim.scenario.presets.gpus import GPUS, GpuSpec

_SIM_TO_REAL = "vLLM 0.15.1, published by inference-sim for sim-to-real accuracy validation"
_LLMSERVINGSIM = "Llama-3.1-8B on vLLM 0.19, 300 ShareGPT requests, published with LLMServingSim"


class Fit(msgspec.Struct, frozen=True):
    """A share of the memory bandwidth, and the runs it was fitted on with the error that is left."""

    memory_efficiency: float
    text: str


FITS: dict[str, Fit] = {
    "h100-sxm": Fit(0.93, f"fitted to 39 loads of 8 models on H100, {_SIM_TO_REAL}: 4 % rms, 10 % at most a token"),
    "a100-80gb": Fit(0.71, f"fitted to 6 loads of 3 models on A100, {_SIM_TO_REAL}: 6 % rms, 12 % at most a token"),
    "l40s": Fit(0.82, f"fitted to 2 loads of Llama-3.1-8B on L40S, {_SIM_TO_REAL}: 2 % rms a token"),
    "rtx-4090": Fit(0.97, f"fitted to one run of {_LLMSERVINGSIM}: 1 % a token"),
    "rtx-pro-6000": Fit(0.81, f"fitted to one run of {_LLMSERVINGSIM}: 1 % a token"),
}


def fit_of(gpu: GpuSpec) -> Fit | None:
    """The fit for this GPU, if runs tell of it and its bandwidth is that of the preset."""
    preset = GPUS.get(gpu.name)
    same = preset is not None and preset.memory_bandwidth_bytes_per_s == gpu.memory_bandwidth_bytes_per_s
    return FITS.get(gpu.name) if same else None


def default_factors(gpu: GpuSpec) -> RooflineFactors:
    """The factors that a run file leaves out, for this GPU."""
    fit = fit_of(gpu)
    factors = RooflineFactors()
    return msgspec.structs.replace(factors, memory_efficiency=fit.memory_efficiency) if fit else factors


def share_source(gpu: GpuSpec, memory_efficiency: float) -> str:
    """Where a share of this GPU's bandwidth comes from, in words."""
    fit = fit_of(gpu)
    if fit is not None:
        return fit.text if memory_efficiency == fit.memory_efficiency else "as declared"
    if memory_efficiency == RooflineFactors().memory_efficiency:
        shares = [each.memory_efficiency for each in FITS.values()]
        return f"no published run tells what {gpu.name} reaches; other GPUs range from {min(shares)} to {max(shares)}"
    return "as declared"
