"""Step durations of models of several kinds of layers: against the plain roofline, and roofs from the figures."""

from __future__ import annotations

import itertools
from fractions import Fraction

import msgspec
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from isim.cost.base import CostError
from isim.cost.experts import EXPERT_UNIT, distinct_experts, expert_load
from isim.cost.factors import RooflineFactors
from isim.cost.layered import LayeredCost
from isim.cost.mixers import chunked_pairs, windowed_pairs
from isim.cost.roofline import RooflineCost, RooflineInputs, roofline
from isim.model.arithmetic import legal_tensor_parallel
from isim.model.catalogue import LAYERED, MODELS
from isim.model.layers import (
    LINEAR_PARTS,
    ChunkedAttention,
    DenseMlp,
    Experts,
    GatedDelta,
    LatentAttention,
    Quantization,
    SlidingAttention,
)
from isim.model.matrices import layer_runs
from isim.model.spec import Dtype, precision_of
from isim.scenario.presets.gpus import GPUS

IDEAL = RooflineFactors(
    compute_efficiency=1.0,
    memory_efficiency=1.0,
    kernel_gap_ns=0,
    kernel_ramp_ns=0,
    launch_ns=0,
    host_step_ns=0,
    allreduce_latency_ns=0,
    allreduce_efficiency=1.0,
    expert_tile_rows=1,
)
PLAIN = sorted(name for name, model in MODELS.items() if model.plain)
Chunks = tuple[tuple[int, int], ...]
CHUNKS = st.lists(st.tuples(st.integers(1, 3000), st.integers(0, 30_000)), max_size=4).map(tuple)
DECODES = st.integers(0, 700)


def inputs_of(model: str, gpu: str = "h200", **changes: object) -> RooflineInputs:
    spec = MODELS[model]
    found = RooflineInputs(
        model=spec,
        gpu=GPUS[gpu],
        precision=precision_of(spec),
        max_num_seqs=128,
        max_num_batched_tokens=2048,
        allow_unpublished_rate=True,
    )
    return msgspec.structs.replace(found, **changes)


@st.composite
def deployments(draw: st.DrawFn, names: list[str], **changes: object) -> RooflineInputs:
    model = MODELS[draw(st.sampled_from(names))]
    gpu = draw(st.sampled_from(sorted(GPUS)))
    whole = draw(st.booleans()) and model.has_experts
    ranks = draw(st.sampled_from(legal_tensor_parallel(model, whole))) if GPUS[gpu].link else 1
    weights = draw(st.sampled_from((None, None, Dtype.FLOAT8_E4M3, Dtype.INT4, Dtype.BFLOAT16)))
    return inputs_of(
        model.name,
        gpu,
        tensor_parallel_size=ranks,
        precision=precision_of(
            model,
            weights=weights,
            activations=draw(st.sampled_from((None, Dtype.BFLOAT16))),
            kv_cache=draw(st.sampled_from((None, Dtype.FLOAT8_E4M3))),
        ),
        expert_parallel=whole,
        async_scheduling=draw(st.booleans()),
        max_num_seqs=draw(st.sampled_from((1, 3, 100, 128, 1024))),
        factors=draw(st.sampled_from((IDEAL, RooflineFactors()))),
        **changes,
    )


@settings(derandomize=True, deadline=None, max_examples=120)
@given(deployments(PLAIN), DECODES, st.integers(0, 10**6), CHUNKS)
def test_a_plain_model_seen_as_layers_costs_the_same(
    inputs: RooflineInputs, decodes: int, context: int, chunks: Chunks
) -> None:
    assume(decodes or chunks)
    plain = RooflineCost(inputs)
    layered = LayeredCost(msgspec.structs.replace(inputs, model=_as_layers(inputs)))
    context *= bool(decodes)
    assert layered.step_ns(decodes, context, chunks) == plain.step_ns(decodes, context, chunks)
    if decodes:
        assert layered.decode_series_ns(decodes, context, 7) == plain.decode_series_ns(decodes, context, 7)


def _as_layers(inputs: RooflineInputs) -> object:
    return msgspec.structs.replace(inputs.model, layers=layer_runs(inputs.model))


@settings(derandomize=True, deadline=None, max_examples=150)
@given(deployments(list(LAYERED)), st.integers(1, 700), st.integers(0, 10**6), st.integers(0, 60))
def test_series_equals_scalar(inputs: RooflineInputs, decodes: int, context: int, steps: int) -> None:
    cost = roofline(inputs)
    assert type(cost) is LayeredCost
    series = cost.decode_series_ns(decodes, context, steps)
    assert series == [cost.step_ns(decodes, context + i * decodes, ()) for i in range(steps)]
    assert all(type(step_ns) is int and step_ns >= 1 for step_ns in series)


def roof_ns(inputs: RooflineInputs, decodes: int, mean: int, chunks: Chunks) -> Fraction:
    """Least time physics allows one rank, from the figures of the layers and not from isim's arithmetic.

    Every matrix but the experts is read once, of the experts at least those that one token takes; each token is
    multiplied with what it passes; attention is the un-absorbed one, of which both forms do at least as much.
    """
    model, gpu, ranks, precision = inputs.model, inputs.gpu, inputs.tensor_parallel_size, inputs.precision
    tokens, rows = decodes + sum(new for new, _ in chunks), decodes + len(chunks)
    sequences = [(1, mean)] * decodes + list(chunks)
    hidden = model.hidden_size
    bits, flops = model.vocab_size * hidden * min(16, precision.weights.bits), 2 * rows * model.vocab_size * hidden
    for run in model.layers:
        mixer, ffn = run.mixer, run.ffn
        narrow = min(precision.weights.bits, 16)
        if isinstance(ffn, DenseMlp):
            touched = passed = 3 * hidden * ffn.intermediate
        else:
            passed = 3 * hidden * (ffn.experts_per_token * ffn.intermediate + ffn.shared_intermediate)
            touched = passed
        if isinstance(mixer, LatentAttention):
            mixed, a_key = mixer.heads * mixer.value_dim * hidden, (mixer.kv_lora_rank + mixer.rope_dim)
            a_pair = 2 * mixer.heads * (mixer.nope_dim + mixer.rope_dim + mixer.value_dim)
        elif isinstance(mixer, GatedDelta):
            mixed, a_key, a_pair = 2 * mixer.value_heads * mixer.value_dim * hidden, 0, 0
        else:
            assert not isinstance(mixer, GatedDelta)
            mixed, a_key = 2 * mixer.heads * mixer.head_dim * hidden, 2 * mixer.kv_heads * mixer.head_dim
            a_pair = 4 * mixer.heads * mixer.head_dim
        bits += run.count * (touched + mixed) * narrow
        flops += run.count * 2 * tokens * (passed + mixed)
        for new, before in sequences:
            seen, pairs = before + new, new * before + new * (new + 1) // 2
            if isinstance(mixer, SlidingAttention):
                seen = min(before, mixer.window_tokens - 1) + new
                pairs = sum(min(before + i, mixer.window_tokens) for i in range(1, new + 1))
            elif isinstance(mixer, ChunkedAttention):
                seen, pairs = new, new
            bits += run.count * seen * a_key * precision.kv_cache.bits
            flops += run.count * pairs * a_pair
    rate = max((gpu.dense_flops.get(each, 0) for each in (precision.model, precision.gemm)), default=0)
    known = all(each in gpu.dense_flops for each in (precision.model, precision.gemm))
    compute = Fraction(flops * 10**9, rate * ranks) if known else Fraction(0)
    return max(compute, Fraction(bits * 10**9, 8 * gpu.memory_bandwidth_bytes_per_s * ranks))


@settings(derandomize=True, deadline=None, max_examples=200)
@given(deployments(list(LAYERED)), DECODES, st.integers(0, 2000), CHUNKS)
def test_no_step_beats_the_dense_peak_or_the_memory(
    inputs: RooflineInputs, decodes: int, mean: int, chunks: Chunks
) -> None:
    assume(decodes or chunks)
    step_ns = roofline(inputs).step_ns(decodes, decodes * mean, chunks)
    assert step_ns >= max(1, roof_ns(inputs, decodes, mean, chunks))


@settings(derandomize=True, deadline=None, max_examples=150)
@given(deployments(list(LAYERED)), DECODES, st.integers(0, 10**6), CHUNKS, st.integers(1, 600))
def test_more_tokens_requests_or_context_never_take_less(
    inputs: RooflineInputs, decodes: int, context: int, chunks: Chunks, more: int
) -> None:
    assume(decodes or chunks)
    cost = roofline(inputs)
    context *= bool(decodes)
    step_ns = cost.step_ns(decodes, context, chunks)
    assert cost.step_ns(decodes + more, context, chunks) >= step_ns
    assert cost.step_ns(decodes, context, (*chunks, (more, 0))) >= step_ns
    assert not decodes or cost.step_ns(decodes, context + more, chunks) >= step_ns
    if chunks:
        (new, before), *rest = chunks
        assert cost.step_ns(decodes, context, ((new + more, before), *rest)) >= step_ns


@settings(derandomize=True, deadline=None, max_examples=100)
@given(deployments(list(LAYERED)), DECODES, st.integers(0, 10**5), CHUNKS, st.integers(0, 5000))
def test_a_chunk_of_one_token_is_a_decode_and_the_breakdown_adds_up(
    inputs: RooflineInputs, decodes: int, context: int, chunks: Chunks, before: int
) -> None:
    cost = roofline(inputs)
    context *= bool(decodes)
    step_ns = cost.step_ns(decodes, context, (*chunks, (1, before)))
    assert step_ns == cost.step_ns(decodes + 1, context + before, chunks)
    assert sum(cost.breakdown(decodes, context, (*chunks, (1, before))).values()) == step_ns


# ---- the formulas, against counting


@pytest.mark.parametrize(("experts", "chosen", "tokens"), [(4, 1, 3), (4, 2, 3), (5, 3, 2), (3, 3, 2), (6, 2, 3)])
def test_expected_distinct_experts_by_trying_every_routing(experts: int, chosen: int, tokens: int) -> None:
    choices = list(itertools.combinations(range(experts), chosen))
    routings = list(itertools.product(choices, repeat=tokens))
    met = Fraction(sum(len({each for choice in routing for each in choice}) for routing in routings), len(routings))
    assert 0 <= Fraction(distinct_experts(experts, chosen, tokens), EXPERT_UNIT) - met < Fraction(1, EXPERT_UNIT)


@settings(derandomize=True, deadline=None, max_examples=200)
@given(st.integers(1, 400), st.integers(1, 8), st.integers(1, 5000), st.sampled_from((1, 2, 8, 64)), st.booleans())
def test_the_load_of_a_rank(experts: int, chosen: int, tokens: int, ranks: int, whole: bool) -> None:
    assume(chosen <= experts)
    ffn = Experts(experts=experts, experts_per_token=chosen, intermediate=64)
    load = expert_load(ffn, tokens, ranks, whole, 16)
    held = -(-experts // ranks) if whole else experts
    assert load.rows * (ranks if whole else 1) >= tokens * chosen or load.rows == tokens * min(chosen, held)
    assert load.rows <= tokens * chosen
    assert load.padded_rows >= load.rows
    assert load.padded_rows < load.rows + 16 * -(-load.experts // EXPERT_UNIT) + 16
    assert load.experts <= held * EXPERT_UNIT
    assert load.experts <= load.rows * EXPERT_UNIT
    assert expert_load(ffn, tokens + 1, ranks, whole, 16).padded_rows >= load.padded_rows


def test_pairs_of_windows_and_chunks_by_counting() -> None:
    for new, before, size in itertools.product(range(1, 9), range(12), range(1, 7)):
        positions = range(before, before + new)
        seen = [sum(position - size < key <= position for key in range(position + 1)) for position in positions]
        assert windowed_pairs(new, before, size) == sum(seen)
        own = [sum(key // size == position // size for key in range(position + 1)) for position in positions]
        assert chunked_pairs(new, before, size) == sum(own)


# ---- what each kind should show


def one_kernel(inputs: RooflineInputs, name: str, tokens: int) -> int:
    return roofline(inputs).breakdown(0, 0, ((tokens, 0),))[name]


def test_four_bit_weights_compute_at_the_16_bit_rate_and_read_a_quarter() -> None:
    model = MODELS["llama-3.1-70b"]
    scheme = Quantization(method="gptq", weights=Dtype.INT4, group_elements=128, group_bits=20, parts=LINEAR_PARTS)
    packed = msgspec.structs.replace(model, quantization=scheme)
    wide = inputs_of("llama-3.1-70b", "h100-sxm", factors=IDEAL)
    narrow = msgspec.structs.replace(wide, model=packed, precision=precision_of(packed))
    # 2048 tokens are bound by arithmetic: the same time. One token is bound by memory: 4.15625 of 16 bits.
    assert one_kernel(narrow, "gate_up", 2048) == one_kernel(wide, "gate_up", 2048)
    single = [roofline(each).breakdown(1, 0, ())["gate_up"] for each in (narrow, wide)]
    assert Fraction(*single) == pytest.approx(4.15625 / 16, rel=2e-3)


def test_mxfp4_computes_at_the_16_bit_rate_and_nvfp4_at_its_own_where_there_is_one() -> None:
    oss = inputs_of("gpt-oss-120b", "h100-sxm")
    assert oss.precision.gemm is Dtype.BFLOAT16
    model = MODELS["llama-3.1-70b"]
    figures = {"group_elements": 16, "group_bits": 8, "activations": Dtype.FLOAT4_E2M1, "parts": LINEAR_PARTS}
    scheme = Quantization(method="modelopt", weights=Dtype.FLOAT4_E2M1, **figures)
    packed = msgspec.structs.replace(model, quantization=scheme)
    plain = inputs_of("llama-3.1-70b", "b200", factors=IDEAL)
    fast = msgspec.structs.replace(plain, model=packed, precision=precision_of(packed))
    share = Fraction(one_kernel(fast, "gate_up", 8192), one_kernel(plain, "gate_up", 8192))
    assert share == pytest.approx(2250 / 9000, rel=1e-3)
    with pytest.raises(CostError, match="no dense float4_e2m1 rate is published for h100-sxm"):
        roofline(msgspec.structs.replace(fast, gpu=GPUS["h100-sxm"], allow_unpublished_rate=False))
    widened = precision_of(packed, activations=Dtype.BFLOAT16)
    cost = roofline(msgspec.structs.replace(fast, gpu=GPUS["h100-sxm"], precision=widened))
    assert any("weights are widened" in text for text in cost.assumptions)


def test_a_batch_of_one_reads_the_chosen_experts_and_a_large_one_all() -> None:
    # Qwen3-30B-A3B: 48 layers of 128 experts with 3 matrices of 2048 x 768, 8 of them for one token.
    inputs = inputs_of("qwen3-30b-a3b", factors=IDEAL)
    an_expert = 48 * 3 * 2048 * 768 * 2
    bandwidth = inputs.gpu.memory_bandwidth_bytes_per_s
    for decodes, experts in ((1, 8), (2048, 128)):
        parts = roofline(inputs).breakdown(decodes, 0, ())
        read_ns = parts["expert_gate_up"] + parts["expert_down"]
        moved_ns = 2 * decodes * 48 * 8 * (2048 + 2 * 768 + 768 + 2048) * 10**9 / bandwidth
        assert read_ns == pytest.approx(experts * an_expert * 10**9 / bandwidth + moved_ns, rel=1e-3)


def test_tiles_cost_where_experts_get_few_rows_each() -> None:
    slow = msgspec.structs.replace(GPUS["h200"], dense_flops={Dtype.BFLOAT16: 10**13})
    found = []
    for tile in (16, 1):
        factors = msgspec.structs.replace(IDEAL, expert_tile_rows=tile)
        inputs = msgspec.structs.replace(inputs_of("qwen3-30b-a3b", factors=factors), gpu=slow)
        found.append(roofline(inputs).breakdown(128, 0, ())["expert_gate_up"])
    # 128 tokens give each of 128 experts 8 rows: a tile of 16 doubles the arithmetic.
    assert Fraction(*found) == pytest.approx(2, rel=0.01)


def test_latent_attention_is_absorbed_in_decodes_and_projects_the_context_up_in_chunks() -> None:
    inputs = inputs_of("deepseek-v3", factors=IDEAL, tensor_parallel_size=8)
    bandwidth, rate = inputs.gpu.memory_bandwidth_bytes_per_s, inputs.gpu.dense_flops[Dtype.BFLOAT16]
    cost = roofline(inputs)
    # A decode reads 576 numbers a key whatever the heads, 61 layers; 16 heads a rank compute 2 x (576 + 512) each.
    keys = 10_001
    read_ns = 61 * (keys * 576 + 16 * (576 + 512)) * 2 * 10**9 / bandwidth
    assert cost.breakdown(1, keys - 1, ())["decode_attention"] == pytest.approx(read_ns, rel=1e-3)
    assert 61 * keys * 16 * 2 * (576 + 512) / rate < read_ns / 10**9
    # A chunk after 30,000 tokens: 512 x 16 x 256 for each of them, then pairs of 192 + 128 wide heads.
    new, before = 2048, 30_000
    pairs = new * before + new * (new + 1) // 2
    flops = 61 * (before * 2 * 512 * 16 * 256 + pairs * 16 * 2 * (192 + 128))
    found = cost.breakdown(0, 0, ((new, before),))["prefill_attention"]
    assert found == pytest.approx(flops * 10**9 / rate, rel=0.05)


def test_states_cost_the_same_whatever_the_context_and_windows_stop_growing() -> None:
    hybrid = roofline(inputs_of("qwen3.5-27b", factors=IDEAL))
    short, long = (hybrid.breakdown(8, 8 * context, ()) for context in (100, 100_000))
    assert short["decode_states"] == pytest.approx(long["decode_states"], abs=2)
    # 48 states of 3,207,168 bytes are read and written for each of 8 requests.
    moved_ns = 8 * 2 * 48 * 3_207_168 * 10**9 / GPUS["h200"].memory_bandwidth_bytes_per_s
    assert short["decode_states"] == pytest.approx(moved_ns, rel=0.01)
    oss = roofline(inputs_of("gpt-oss-120b", factors=IDEAL))
    a_key_ns = 2 * 8 * 64 * 2 * 10**9 / GPUS["h200"].memory_bandwidth_bytes_per_s
    grown = oss.breakdown(1, 50_000, ())["decode_attention"] - oss.breakdown(1, 40_000, ())["decode_attention"]
    assert grown == pytest.approx(18 * 10_000 * a_key_ns, rel=1e-3)


def test_whole_experts_share_the_work_and_the_slowest_rank_counts() -> None:
    for tokens, uneven in ((1, 1.5), (64, 1.0), (2048, 1.0)):
        parts = {}
        for ranks in (1, 4):
            inputs = inputs_of("qwen3-235b-a22b", factors=IDEAL, tensor_parallel_size=ranks, expert_parallel=True)
            found = roofline(inputs).breakdown(tokens, 0, ())
            parts[ranks] = found["expert_gate_up"] + found["expert_down"]
        # Never better than even ranks. With few tokens the fullest has clearly more, with many hardly.
        assert uneven * parts[1] / 4 <= parts[4] <= min(1.0, uneven * 1.7 / 4) * parts[1], tokens


def test_what_was_assumed_is_said() -> None:
    said = {name: " ".join(roofline(inputs_of(name)).assumptions) for name in LAYERED}
    assert "uniform routing" in said["mixtral-8x7b"]
    assert "un-absorbed" in said["deepseek-v3"]
    assert "recurrent form" in said["qwen3.5-27b"]
    assert "an upper bound" in said["gpt-oss-20b"]
    assert any("SUBSTITUTION" in text for text in roofline(inputs_of("qwen3.6-27b")).provenance)
