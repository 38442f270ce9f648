"""The roofline for models whose layers are not all plain, or whose checkpoints are quantised.

It is `isim.cost.roofline` with the operations of each kind of layer in the place of the plain layer's: the same roofs,
gaps, launches, padding and rounding, so that for a plain model both give the same nanoseconds, which a test holds.
Matrices of quantised parts are read as they are stored, with their scales, and multiplied in the wider of the
formats of weights and inputs: 4-bit weights with 16-bit inputs at the 16-bit rate. Routers and what a checkpoint leaves
alone stay in the model's own format.
"""

from __future__ import annotations

from collections.abc import Sequence

from isim.cost.experts import EXPERT_UNIT, ExpertLoad, expert_load
from isim.cost.factors import TICKS_PER_NS, Pace
from isim.cost.mixers import MixerTicks, Paces, mixer_ticks
from isim.cost.roofline import SHIFT, STEP_KERNELS, Operations, RooflineCost, RooflineInputs
from isim.model.arithmetic import head_gemm
from isim.model.layered import quantization_in_force
from isim.model.layers import (
    ChunkedAttention,
    DenseMlp,
    Experts,
    GatedDelta,
    LatentAttention,
    LayerRun,
    Mamba2,
    Part,
    QkNorm,
    SlidingAttention,
)
from isim.model.matrices import Matrix, conv_columns, ffn_matrices, head_widths, layer_runs, mixer_matrices
from isim.model.spec import Dtype

HEAD_KERNELS = 6
"""Qkv, rotation, cache write, attention, its reduction, o: with two norms and a gated MLP the 11 of a plain layer."""
LATENT_KERNELS = 11
"""Projections down, two norms, queries up, absorption, rotation, cache write, attention, its reduction, values, o."""
STATE_KERNELS = 7
"""Two projections, convolution, gates, recurrence, gated norm, output."""
MLP_KERNELS = 3
EXPERT_KERNELS = 7
"""Router, choice, alignment, gate and up, activation, down, sum."""
SHARED_KERNELS = 4
"""Gate and up, activation, down, addition."""


def layer_kernels(run: LayerRun) -> int:
    """Kernels of one layer."""
    mixer, ffn = run.mixer, run.ffn
    if isinstance(mixer, LatentAttention):
        found = LATENT_KERNELS
    elif isinstance(mixer, GatedDelta | Mamba2):
        found = STATE_KERNELS
    else:
        found = HEAD_KERNELS + (mixer.qk_norm is not QkNorm.NONE) + mixer.gated
    found += MLP_KERNELS if isinstance(ffn, DenseMlp) else EXPERT_KERNELS
    if isinstance(ffn, Experts) and ffn.shared_intermediate:
        found += SHARED_KERNELS + ffn.shared_gate
    return found + run.norms


class LayeredOperations(Operations):
    """Ticks of every operation but attention and states, over the kinds of layers."""

    def __init__(self, inputs: RooflineInputs) -> None:
        super().__init__(inputs)
        self.runs = layer_runs(inputs.model)
        factors = inputs.factors
        self.kernels = sum(run.count * layer_kernels(run) for run in self.runs) + STEP_KERNELS
        self.gaps = self.kernels * (factors.kernel_gap_ns + factors.kernel_ramp_ns) * TICKS_PER_NS
        self.quantization = quantization_in_force(inputs.model, inputs.precision)

    def by_tokens(self, rows: int) -> dict[str, int]:
        memory, hidden_bytes = self.memory, rows * self.shape.hidden * self.element_bytes
        found = {"embedding": memory.ticks(2 * hidden_bytes), "norms": memory.ticks(2 * hidden_bytes)}
        for run in self.runs:
            parts = [("norms", run.norms * memory.ticks(4 * hidden_bytes))]
            parts += self._mixer(run, rows) + self._ffn(run, rows)
            for name, ticks in parts:
                found[name] = found.get(name, 0) + run.count * ticks
        if self.shape.ranks > 1:
            found["all_reduce"] = self.all_reduce(hidden_bytes)
        return found

    def _mixer(self, run: LayerRun, rows: int) -> list[tuple[str, int]]:
        mixer, ranks, element = run.mixer, self.shape.ranks, self.element_bytes
        kept = self.inputs.precision.kv_cache.bits // 8
        matrices = mixer_matrices(mixer, self.shape.hidden, ranks)
        found = [(each.name, self._product(each, rows)) for each in matrices]
        if isinstance(mixer, GatedDelta | Mamba2):
            row_bytes = 2 * conv_columns(mixer, ranks) * element + 3 * matrices[-1].inner * element
            return [*found, ("convolution_and_gate", self.memory.ticks(rows * row_bytes))]
        if isinstance(mixer, LatentAttention):
            latent = mixer.kv_lora_rank + mixer.rope_dim
            row_bytes = 2 * (mixer.heads // ranks + 1) * mixer.rope_dim * element + latent * (element + kept)
            row_bytes += 2 * (mixer.q_lora_rank + mixer.kv_lora_rank) * element
            return [*found, ("rotation_and_cache_write", self.memory.ticks(rows * row_bytes))]
        widths = head_widths(mixer, ranks)
        normed = mixer.qk_norm is not QkNorm.NONE
        row_bytes = (2 + 2 * normed) * (widths.query + widths.key) * element + 2 * widths.key * (element + kept)
        found.append(("rotation_and_cache_write", self.memory.ticks(rows * row_bytes)))
        if mixer.gated:
            found.append(("output_gate", self.memory.ticks(3 * rows * widths.query * element)))
        return found

    def _ffn(self, run: LayerRun, rows: int) -> list[tuple[str, int]]:
        ffn, shape, element = run.ffn, self.shape, self.element_bytes
        parallel = self.inputs.expert_parallel
        matrices = ffn_matrices(ffn, shape.hidden, shape.ranks, parallel)
        load = None
        if isinstance(ffn, Experts):
            load = expert_load(ffn, rows, shape.ranks, parallel, self.inputs.factors.expert_tile_rows)
        found = [(each.name, self._product(each, rows, load)) for each in matrices]
        for each in matrices:
            if each.name.endswith("down"):
                passed = load.rows if load and each.routed else rows
                found.append(("activation", self.memory.ticks(3 * passed * each.inner * element)))
        if load:
            moved = rows * matrices[0].outer * 4 + (load.rows + rows) * shape.hidden * element
            found.append(("routing_and_sum", self.memory.ticks(moved)))
        return found

    def _format(self, part: Part | None) -> tuple[Pace, Dtype]:
        """The pace of a part's products, and the format of their inputs."""
        quantization, precision = self.quantization, self.inputs.precision
        if part is None or (quantization is not None and part not in quantization.parts):
            return self.compute, precision.model
        return self.linear, precision.activations

    def stored_bits(self, part: Part | None, elements: int) -> int:
        """Bits of so many elements of a part's matrices."""
        quantization = self.quantization
        if quantization is None or part not in quantization.parts:
            return elements * self.inputs.precision.model.bits
        return quantization.stored_bits(elements)

    def _product(self, matrix: Matrix, rows: int, load: ExpertLoad | None = None) -> int:
        arithmetic, inputs = self._format(matrix.part)
        bits = self.stored_bits(matrix.part, matrix.inner * matrix.outer)
        multiplied = rows
        if load is not None and matrix.routed:
            rows, multiplied = load.rows, load.padded_rows
            bits = -(-bits * load.experts // EXPERT_UNIT)
        bits += rows * (matrix.inner * inputs.bits + matrix.outer * self.inputs.precision.model.bits)
        flops = 2 * multiplied * matrix.inner * matrix.outer
        return max(arithmetic.ticks(flops), self.memory.ticks(-(-bits // 8)))

    def lm_head(self, rows: int) -> int:
        head = head_gemm(self.shape)
        quantised = self.quantization is not None and Part.LM_HEAD in self.quantization.parts
        part = Part.LM_HEAD if quantised else None
        return self._product(Matrix(name="lm_head", part=part, inner=head.inner, outer=head.outer), rows)


class LayeredCost(RooflineCost):
    """`CostModel` of any model on one GPU per rank. Raises CostError or ModelError for what cannot be deployed."""

    def __init__(self, inputs: RooflineInputs) -> None:
        super().__init__(inputs)
        operations = self._operations
        paces = Paces(operations.memory, operations.compute)
        ranks = inputs.tensor_parallel_size
        self._runs = layer_runs(inputs.model)
        self._mixers: list[MixerTicks] = [mixer_ticks(run, ranks, inputs.precision, paces) for run in self._runs]
        self._bases: dict[int, tuple[int, int]] = {}

    def _make_operations(self) -> Operations:
        return LayeredOperations(self.inputs)

    def step_ns(self, decodes: int, decode_context: int, chunks: Sequence[tuple[int, int]]) -> int:
        requests, attention, new_tokens = decodes + len(chunks), 0, 0
        for new, before in chunks:
            if new == 1:
                decodes += 1
                decode_context += before
                continue
            new_tokens += new
            for mixer in self._mixers:
                attention += mixer.chunk(new, before)
        if not new_tokens:
            base, least = self._bases.get(decodes) or self._base(decodes)
        else:
            tokens = decodes + new_tokens
            base = (self._tokens.get(tokens) or self._token_ticks(tokens)) + attention + self._constant
            base += self._requests.get(requests) or self._request_ticks(requests)
            least = self._pieces_floor_ns if tokens < len(self._padding) else self._launch_floor_ns
        if decodes:
            for mixer in self._mixers:
                base += mixer.decode(decodes, decode_context)
        return max(base >> SHIFT, least)

    def decode_series_ns(self, decodes: int, context: int, steps: int) -> list[int]:
        if steps < 1:
            return []
        base, least = self._bases.get(decodes) or self._base(decodes)
        series = [base] * steps
        for mixer in self._mixers:
            if mixer.decode(decodes, context) == mixer.decode(decodes, context + decodes * steps):
                grown = mixer.decode(decodes, context)
                series = [ticks + grown for ticks in series]
                continue
            seen = range(context, context + decodes * steps, decodes)
            series = [ticks + mixer.decode(decodes, each) for ticks, each in zip(series, seen, strict=True)]
        return [max(ticks >> SHIFT, least) for ticks in series]

    def _base(self, decodes: int) -> tuple[int, int]:
        """Ticks of a step of decodes without attention and states, and its floor."""
        ticks = self._token_ticks(decodes) + self._request_ticks(decodes) + self._constant
        least = self._floor_ns if decodes < len(self._padding) else self._launch_floor_ns
        entry = self._bases[decodes] = (ticks, least)
        return entry

    def _attention_parts(self, decodes: int, context: int, prefills: Sequence[tuple[int, int]]) -> dict[str, int]:
        found: dict[str, int] = {}
        for run, mixer in zip(self._runs, self._mixers, strict=True):
            kind = "states" if isinstance(run.mixer, GatedDelta | Mamba2) else "attention"
            for name, ticks in (
                (f"decode_{kind}", mixer.decode(decodes, context) if decodes else 0),
                (f"prefill_{kind}", sum(mixer.chunk(new, before) for new, before in prefills)),
            ):
                if ticks:
                    found[name] = found.get(name, 0) + ticks
        return found

    @property
    def assumptions(self) -> tuple[str, ...]:
        return (*super().assumptions, *_layer_assumptions(self.inputs, self._runs))


def _layer_assumptions(inputs: RooflineInputs, runs: tuple[LayerRun, ...]) -> list[str]:
    mixers, ffns = [run.mixer for run in runs], [run.ffn for run in runs]
    found = []
    if any(isinstance(each, Experts) for each in ffns):
        tile = inputs.factors.expert_tile_rows
        how = "whole experts on each rank, the slowest rank counting" if inputs.expert_parallel else "each expert split"
        found.append(
            f"experts: uniform routing, E * (1 - (1 - k/E)^T) of them read, rows padded to {tile}; {how} over the ranks"
        )
    if any(isinstance(each, LatentAttention) for each in mixers):
        found.append("latent attention: decodes absorbed; chunks un-absorbed, projecting the whole cached context up")
    if any(isinstance(each, SlidingAttention | ChunkedAttention) for each in mixers):
        found.append("windows and chunks of decodes are taken as if their contexts were alike: an upper bound")
    if any(isinstance(each, GatedDelta | Mamba2) for each in mixers):
        found.append("states: arithmetic of the recurrent form, the state read and written once a request and step")
    quantization = inputs.model.quantization or None
    if quantization is not None and quantization.activations not in (None, inputs.precision.activations):
        found.append(
            f"inputs of quantised matrices stay {inputs.precision.activations} instead of the checkpoint's "
            f"{quantization.activations}: weights are widened and products run at that rate"
        )
    return found
