"""How long a step takes, from the shape of its batch: per operation the greater of arithmetic and memory time.

A step runs the embedding; per layer two norms, four matrix products, rotation and cache write, attention and the gated
activation; then the LM head on one row for each scheduled request (unfinished chunks included) and the sampler. With
several ranks there is an all-reduce after the embedding and two a layer, and a gather of logits. Each operation takes
max(operations / effective rate, bytes / effective bandwidth); each kernel adds a gap and a ramp. Tokens are padded to
the captured CUDA-graph size. Batches of decodes run as one graph, mixed ones in pieces whose attention is launched by
the host, larger ones kernel by kernel; the launches are a floor. With asynchronous scheduling the host's own work is
a floor too, synchronously it is added.

Costs are integers in ticks of 2^-20 ns, every quotient rounded up, so that no step is ever faster than the roof, and
a step in a stretch costs what it costs alone. What depends on the count of tokens or of requests only is kept in
tables; attention is linear in the context, so a stretch of decodes is an arithmetic progression.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from isim.cost.base import CostError
from isim.cost.factors import ALLREDUCE_LATENCY_NS, FREE, TICKS_PER_NS, Pace, RooflineFactors, check_factors, pace
from isim.cost.fits import share_source
from isim.cost.graphs import capture_sizes, padding_table
from isim.model.arithmetic import attended_pairs, attention_flops_per_pair, head_gemm, layer_gemms, rank_shape
from isim.model.spec import Confidence, Dtype, ModelSpec, Precision
from isim.scenario.presets.gpus import GpuSpec

SHIFT = 20
ROUND_UP = TICKS_PER_NS - 1
_PS_PER_NS = 1000

LAYER_KERNELS = 11
"""Norm, qkv, rotation, cache write, attention, its reduction, o, norm, gate and up, activation, down."""

STEP_KERNELS = 8
"""Embedding, last norm, gather of rows, LM head and the sampler's."""

_ORIGINS = (
    "declared shares of the peaks, and what was fitted of them, and to what, is among the sources",
    "declared shares of the peaks",
)
"""What is to be said of factors that have a source of their own, and of those that have none."""

PIECES_PER_LAYER = 2
"""Launches of a layer when graphs run in pieces: the piece and its attention."""


class RooflineInputs(msgspec.Struct, frozen=True, kw_only=True):
    """What the roofline needs to know of a deployment, in the engine's names where it has some.

    sorted_sampling        whether logits are sorted to draw a token; None takes the model's default sampling
    allow_unpublished_rate when the GPU's vendor publishes no rate for a format: no compute ceiling, instead of an error
    expert_parallel        whether ranks hold whole experts instead of a slice of each
    source                 what the factors were fitted to, if they were
    """

    model: ModelSpec
    gpu: GpuSpec
    precision: Precision
    tensor_parallel_size: int = 1
    max_num_seqs: int
    max_num_batched_tokens: int
    async_scheduling: bool = True
    sorted_sampling: bool | None = None
    allow_unpublished_rate: bool = False
    expert_parallel: bool = False
    factors: RooflineFactors = RooflineFactors()
    source: str | None = None


def _compute_pace(inputs: RooflineInputs, dtype: Dtype) -> Pace:
    gpu = inputs.gpu
    rate = gpu.dense_flops.get(dtype)
    if rate is not None:
        return pace(rate, inputs.factors.compute_efficiency)
    if inputs.allow_unpublished_rate:
        return FREE
    known = ", ".join(gpu.dense_flops) or "none"
    raise CostError(
        f"hardware: no dense {dtype} rate is published for {gpu.name} (published: {known}). Give "
        f"hardware.dense_flops.{dtype}, or set cost.unpublished_rate: none to go without a compute ceiling"
    )


class Operations:
    """Ticks of every operation but attention, by name: what a count of tokens and a count of rows decide."""

    def __init__(self, inputs: RooflineInputs) -> None:
        factors, precision, model = inputs.factors, inputs.precision, inputs.model
        self.inputs = inputs
        self.shape = rank_shape(model, inputs.tensor_parallel_size, inputs.expert_parallel)
        self.memory = pace(inputs.gpu.memory_bandwidth_bytes_per_s, factors.memory_efficiency)
        self.linear = _compute_pace(inputs, precision.gemm)
        self.compute = _compute_pace(inputs, precision.model)
        self.element_bytes = precision.model.bits // 8
        self.kernels = (LAYER_KERNELS + model.qk_norm) * self.shape.layers + STEP_KERNELS
        self.gaps = self.kernels * (factors.kernel_gap_ns + factors.kernel_ramp_ns) * TICKS_PER_NS
        sorts = model.sorted_sampling if inputs.sorted_sampling is None else inputs.sorted_sampling
        self._sort_ps = factors.sort_ps_per_logit if sorts else 0
        self._link, self._latency = self._communication()

    def _communication(self) -> tuple[Pace, int]:
        gpu, factors = self.inputs.gpu, self.inputs.factors
        if self.shape.ranks == 1:
            return FREE, 0
        if gpu.link is None:
            raise CostError(
                f"engine.tensor_parallel_size: {self.shape.ranks} ranks on {gpu.name}, for which no link between "
                "GPUs is known. Give hardware.interconnect, or use 1"
            )
        latency_ns = factors.allreduce_latency_ns
        if latency_ns is None:
            latency_ns = ALLREDUCE_LATENCY_NS[gpu.link.kind]
        link = pace(gpu.link.bandwidth_bytes_per_s, factors.allreduce_efficiency)
        return link, latency_ns * TICKS_PER_NS

    def by_tokens(self, rows: int) -> dict[str, int]:
        """Operations on `rows` tokens, padding included."""
        shape, element, memory = self.shape, self.element_bytes, self.memory
        precision, model = self.inputs.precision, self.inputs.model
        layers, hidden_bytes = shape.layers, rows * shape.hidden * element
        rotated = rows * (shape.query + shape.key_value) * element
        cached = 2 * rows * shape.key_value * (element + precision.kv_cache.bits // 8)
        found = {
            "embedding": memory.ticks(2 * hidden_bytes),
            "norms": layers * 2 * memory.ticks(4 * hidden_bytes) + memory.ticks(2 * hidden_bytes),
            "rotation_and_cache_write": layers * memory.ticks((2 + 2 * model.qk_norm) * rotated + cached),
            "activation": layers * memory.ticks(3 * rows * shape.intermediate * element),
        }
        for gemm in layer_gemms(shape):
            moved = gemm.moved_bytes(rows, precision.weights, precision.activations, precision.model)
            found[gemm.name] = layers * max(self.linear.ticks(gemm.flops(rows)), memory.ticks(moved))
        if shape.ranks > 1:
            found["all_reduce"] = self.all_reduce(hidden_bytes)
        return found

    def all_reduce(self, hidden_bytes: int) -> int:
        """Two all-reduces a layer and one after the embedding; a ring sends each byte 2(n - 1)/n times."""
        shape = self.shape
        sent = -(-2 * (shape.ranks - 1) * hidden_bytes // shape.ranks)
        return (2 * shape.layers + 1) * (self._latency + self._link.ticks(sent))

    def by_requests(self, rows: int) -> dict[str, int]:
        """Operations on one row for each of `rows` scheduled requests."""
        shape, model = self.shape, self.inputs.model
        logits = rows * model.vocab_size
        found = {
            "lm_head": self.lm_head(rows),
            "sampler": self.memory.ticks(logits * 4 * self.inputs.factors.sampler_passes)
            + -(-logits * self._sort_ps * TICKS_PER_NS // _PS_PER_NS),
        }
        if shape.ranks > 1:
            received = (shape.ranks - 1) * rows * shape.vocab * self.element_bytes
            found["gather_logits"] = self._latency + self._link.ticks(received)
        return found

    def lm_head(self, rows: int) -> int:
        """The LM head on so many rows."""
        head, dtype = head_gemm(self.shape), self.inputs.precision.model
        moved = head.moved_bytes(rows, dtype, dtype, dtype)
        return max(self.compute.ticks(head.flops(rows)), self.memory.ticks(moved))


def roofline(inputs: RooflineInputs) -> RooflineCost:
    """The roofline of any model. Raises CostError or ModelError for what cannot be deployed."""
    if inputs.model.plain:
        return RooflineCost(inputs)
    from isim.cost.layered import LayeredCost

    return LayeredCost(inputs)


class RooflineCost:
    """`CostModel` of a plain model on one GPU per rank. Raises CostError or ModelError for what cannot be deployed."""

    confidence = Confidence.HEURISTIC
    parts_per_ns = TICKS_PER_NS
    rest = "host"

    def __init__(self, inputs: RooflineInputs) -> None:
        check_factors(inputs.factors)
        self.inputs = inputs
        self._operations = self._make_operations()
        shape, element = self._operations.shape, self._operations.element_bytes
        memory = self._operations.memory
        kv_bits = inputs.precision.kv_cache.bits
        self._key_ticks = memory.ticks(shape.layers * 2 * shape.key_value * kv_bits // 8)
        self._query_ticks = memory.ticks(shape.layers * 2 * shape.query * element)
        self._pair_ticks = self._operations.compute.ticks(shape.layers * attention_flops_per_pair(shape))
        self._padding = padding_table(capture_sizes(inputs.max_num_seqs, inputs.max_num_batched_tokens))
        self._tokens: dict[int, int] = {}
        self._requests: dict[int, int] = {}
        self._decode: dict[int, tuple[int, int, int]] = {}
        factors = inputs.factors
        added_ns = 0 if inputs.async_scheduling else factors.host_step_ns
        floor_ns = factors.host_step_ns if inputs.async_scheduling else 0
        pieces_ns = (PIECES_PER_LAYER * shape.layers + STEP_KERNELS) * factors.launch_ns
        self._constant = self._operations.gaps + added_ns * TICKS_PER_NS + ROUND_UP
        self._floor_ns = max(1, floor_ns)
        self._pieces_floor_ns = max(self._floor_ns, pieces_ns + added_ns)
        self._launch_floor_ns = max(self._pieces_floor_ns, self._operations.kernels * factors.launch_ns + added_ns)

    def _make_operations(self) -> Operations:
        return Operations(self.inputs)

    def step_ns(self, decodes: int, decode_context: int, chunks: Sequence[tuple[int, int]]) -> int:
        tokens, requests = decodes, decodes + len(chunks)
        key_ticks, query_ticks, pair_ticks = self._key_ticks, self._query_ticks, self._pair_ticks
        attention = 0
        for new, before in chunks:
            if new == 1:
                decodes += 1
                decode_context += before
                tokens += 1
                continue
            tokens += new
            moved = (before + new) * key_ticks + new * query_ticks
            computed = (new * before + new * (new + 1) // 2) * pair_ticks
            attention += computed if computed > moved else moved
        if tokens == decodes:
            entry = self._decode.get(decodes) or self._decode_entry(decodes)
            ticks = entry[0] + decode_context * key_ticks
            computed = entry[1] + decode_context * pair_ticks
            least = entry[2]
        else:
            base = self._tokens.get(tokens) or self._token_ticks(tokens)
            base += (self._requests.get(requests) or self._request_ticks(requests)) + attention + self._constant
            ticks = base + (decode_context + decodes) * key_ticks + decodes * query_ticks
            computed = base + (decode_context + decodes) * pair_ticks
            least = self._pieces_floor_ns if tokens < len(self._padding) else self._launch_floor_ns
        step_ns = (computed if computed > ticks else ticks) >> SHIFT
        return step_ns if step_ns > least else least

    def decode_series_ns(self, decodes: int, context: int, steps: int) -> list[int]:
        if steps < 1:
            return []
        memory, compute, least = self._decode.get(decodes) or self._decode_entry(decodes)
        growth = decodes * self._key_ticks
        first = memory + context * self._key_ticks
        if self._pair_ticks > self._key_ticks:
            # Arithmetic could overtake memory, so both lines are needed.
            climb = decodes * self._pair_ticks
            start = compute + context * self._pair_ticks
            lines = zip(
                range(first, first + growth * steps, growth), range(start, start + climb * steps, climb), strict=True
            )
            series = [(line if line > other else other) >> SHIFT for line, other in lines]
        else:
            series = [ticks >> SHIFT for ticks in range(first, first + growth * steps, growth)]
        if series[0] < least:
            series = [step_ns if step_ns > least else least for step_ns in series]
        return series

    def _decode_entry(self, decodes: int) -> tuple[int, int, int]:
        """Ticks of a step of decodes without context, by memory and by arithmetic of attention, and its floor."""
        base = self._token_ticks(decodes) + self._request_ticks(decodes) + self._constant
        memory = base + decodes * (self._key_ticks + self._query_ticks)
        least = self._floor_ns if decodes < len(self._padding) else self._launch_floor_ns
        entry = self._decode[decodes] = (memory, base + decodes * self._pair_ticks, least)
        return entry

    def _token_ticks(self, tokens: int) -> int:
        rows = self._padding[tokens] if tokens < len(self._padding) else tokens
        ticks = self._tokens[tokens] = sum(self._operations.by_tokens(rows).values())
        return ticks

    def _request_ticks(self, requests: int) -> int:
        ticks = self._requests[requests] = sum(self._operations.by_requests(requests).values())
        return ticks

    def breakdown(self, decodes: int, decode_context: int, chunks: Sequence[tuple[int, int]]) -> dict[str, int]:
        """What the nanoseconds of `step_ns` for the same arguments go to, by operation; they sum to it exactly.

        `gaps` is between and within kernels, `host` what the host adds, or what the device waits for it.
        """
        total_ns = self.step_ns(decodes, decode_context, chunks)
        done, found = 0, {}
        for name, ticks in self.parts(decodes, decode_context, chunks).items():
            before_ns = (done + ROUND_UP) >> SHIFT
            done += ticks
            found[name] = ((done + ROUND_UP) >> SHIFT) - before_ns
        found[self.rest] = total_ns - ((done + ROUND_UP) >> SHIFT)
        return found

    def parts(
        self, decodes: int, decode_context: int, chunks: Sequence[tuple[int, int]], steps: int = 1
    ) -> dict[str, int]:
        requests = decodes + len(chunks)
        singles = [before for new, before in chunks if new == 1]
        decodes, decode_context = decodes + len(singles), decode_context + sum(singles)
        prefills = [(new, before) for new, before in chunks if new > 1]
        tokens = decodes + sum(new for new, _ in prefills)
        found = self._operations.by_tokens(self._padding[tokens] if tokens < len(self._padding) else tokens)
        attention = self._attention_parts(decodes, decode_context, prefills)
        found |= attention
        found |= self._operations.by_requests(requests)
        found["gaps"] = self._operations.gaps
        if steps == 1:
            return found
        found = {name: ticks * steps for name, ticks in found.items()}
        for step in range(1, steps):
            for name, ticks in self._attention_parts(decodes, decode_context + step * decodes, prefills).items():
                found[name] += ticks - attention[name]
        return found

    def _attention_parts(self, decodes: int, context: int, prefills: Sequence[tuple[int, int]]) -> dict[str, int]:
        """Ticks of attention by name, those that are there."""
        parts = {}
        if decodes:
            keys = context + decodes
            moved = keys * self._key_ticks + decodes * self._query_ticks
            parts["decode_attention"] = max(moved, keys * self._pair_ticks)
        if prefills:
            parts["prefill_attention"] = sum(
                max(
                    (new + before) * self._key_ticks + new * self._query_ticks,
                    attended_pairs(new, before) * self._pair_ticks,
                )
                for new, before in prefills
            )
        return parts

    @property
    def assumptions(self) -> tuple[str, ...]:
        inputs, factors = self.inputs, self.inputs.factors
        host = "the greater of device and host" if inputs.async_scheduling else "device plus host"
        sampling = inputs.model.sorted_sampling if inputs.sorted_sampling is None else inputs.sorted_sampling
        found = [
            f"roofline: per operation the greater of arithmetic and memory time, at {_ORIGINS[inputs.source is None]}",
            f"{factors.memory_efficiency} of the bandwidth: {share_source(inputs.gpu, factors.memory_efficiency)}",
            f"{factors.compute_efficiency} of the dense rate",
            f"{factors.kernel_gap_ns} ns gap and {factors.kernel_ramp_ns} ns ramp a kernel, "
            f"{self._operations.kernels} kernels a step; a launch takes {factors.launch_ns} ns",
            f"a step takes {host}, the host's part being {factors.host_step_ns} ns",
            f"sampler: {factors.sampler_passes} passes over the logits"
            + (f" and a sort at {factors.sort_ps_per_logit} ps a logit" if sampling else ", nothing sorted"),
            "attention of a batch is the sum over its requests; no split limit, tail wave or imbalance",
        ]
        if self._operations.shape.ranks > 1:
            found.append("all-reduces do not overlap with anything; a ring over the links of one machine")
        if inputs.precision.activations.bits < inputs.precision.weights.bits:
            found.append(
                f"linear layers compute in {inputs.precision.gemm}, the wider of weights and activations: "
                f"{inputs.precision.activations} activations are widened and gain nothing"
            )
        if inputs.precision.weights.bits < 16:
            scales = "" if inputs.model.quantization else "scales of quantised weights and "
            found.append(f"{scales}the quantisation of activations cost nothing")
        for dtype in dict.fromkeys((inputs.precision.gemm, inputs.precision.model)):
            if dtype not in inputs.gpu.dense_flops:
                found.append(
                    f"no compute ceiling: {inputs.gpu.name} has no published {dtype} rate; the limit is unproven"
                )
        return tuple(found)

    @property
    def provenance(self) -> tuple[str, ...]:
        model, gpu = self.inputs.model, self.inputs.gpu
        model_figures = ("*", "layers") if model.layers else ("*",)
        found = [
            *([] if self.inputs.source is None else [f"cost factors: {self.inputs.source}"]),
            *(f"model {model.name}: {text}" for text in dict.fromkeys(map(model.source_of, model_figures))),
            f"memory bandwidth of {gpu.name}: {gpu.source_of('memory_bandwidth_bytes_per_s')}",
            f"dense rates of {gpu.name}: {gpu.source_of('dense_flops')}",
        ]
        if self._operations.shape.ranks > 1:
            found.append(f"link of {gpu.name}: {gpu.source_of('link')}")
        return tuple(found)
