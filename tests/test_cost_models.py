"""Step durations: the linear formula redone by hand, the roofline against roofs computed here from the figures."""

from __future__ import annotations

from fractions import Fraction

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isim.cost.base import CostError, CostModel
from isim.cost.factors import RooflineFactors
from isim.cost.graphs import capture_sizes, padding_table
from isim.cost.linear import LinearCost
from isim.cost.roofline import RooflineCost, RooflineInputs
from isim.cost.scaled import ScaledCost
from isim.model.arithmetic import legal_tensor_parallel
from isim.model.catalogue import MODELS
from isim.model.spec import Dtype, ModelError, ModelSpec, precision_of
from isim.record.records import LinearCoefficients
from isim.scenario.presets.gpus import GPUS, GpuSpec

IDEAL = RooflineFactors(
    compute_efficiency=1.0,
    memory_efficiency=1.0,
    kernel_gap_ns=0,
    kernel_ramp_ns=0,
    launch_ns=0,
    host_step_ns=0,
    allreduce_latency_ns=0,
    allreduce_efficiency=1.0,
)

PLAIN = sorted(name for name, model in MODELS.items() if model.plain)

Chunks = tuple[tuple[int, int], ...]
CHUNKS = st.lists(st.tuples(st.integers(1, 3000), st.integers(0, 30_000)), max_size=4).map(tuple)
DECODES = st.integers(0, 700)


def inputs_of(model: str = "llama-3.1-8b", gpu: str = "h100-sxm", **changes: object) -> RooflineInputs:
    spec = MODELS[model]
    plain = RooflineInputs(
        model=spec,
        gpu=GPUS[gpu],
        precision=precision_of(spec),
        max_num_seqs=128,
        max_num_batched_tokens=2048,
        allow_unpublished_rate=True,
    )
    return msgspec.structs.replace(plain, **changes)


@st.composite
def deployments(draw: st.DrawFn) -> RooflineInputs:
    name = draw(st.sampled_from(PLAIN))
    gpu = draw(st.sampled_from(sorted(GPUS)))
    ranks = draw(st.sampled_from(legal_tensor_parallel(MODELS[name]))) if GPUS[gpu].link else 1
    weights = draw(st.sampled_from((None, Dtype.FLOAT8_E4M3, Dtype.INT4)))
    cache = draw(st.sampled_from((None, Dtype.FLOAT8_E4M3)))
    return inputs_of(
        name,
        gpu,
        tensor_parallel_size=ranks,
        precision=precision_of(MODELS[name], weights=weights, kv_cache=cache),
        async_scheduling=draw(st.booleans()),
        max_num_seqs=draw(st.sampled_from((1, 3, 100, 128, 1024))),
        factors=draw(st.sampled_from((IDEAL, RooflineFactors()))),
    )


def roof_ns(inputs: RooflineInputs, decodes: int, context: int, chunks: Chunks) -> Fraction:
    """Least time physics allows one rank, written from the published figures and not from isim's arithmetic."""
    model, gpu, ranks = inputs.model, inputs.gpu, inputs.tensor_parallel_size
    tokens = decodes + sum(new for new, _ in chunks)
    rows = decodes + len(chunks)
    width = model.num_attention_heads * model.head_dim
    layer = model.hidden_size * width * 2 + 3 * model.hidden_size * model.intermediate_size
    layer_kv = 2 * model.hidden_size * model.num_key_value_heads * model.head_dim
    layers = model.num_hidden_layers * (layer + layer_kv)
    head = model.vocab_size * model.hidden_size
    pairs = context + decodes + sum(new * before + new * (new + 1) // 2 for new, before in chunks)
    flops = 2 * (tokens * layers + rows * head) + 4 * model.num_hidden_layers * width * pairs
    keys = context + decodes + sum(new + before for new, before in chunks)
    key_bits = 2 * model.num_hidden_layers * model.num_key_value_heads * model.head_dim * inputs.precision.kv_cache.bits
    bits = layers * inputs.precision.weights.bits + head * inputs.precision.model.bits + keys * key_bits
    rate = gpu.dense_flops.get(inputs.precision.model)
    compute = Fraction(flops * 10**9, rate * ranks) if rate else Fraction(0)
    return max(compute, Fraction(bits * 10**9, 8 * gpu.memory_bandwidth_bytes_per_s * ranks))


@settings(derandomize=True, deadline=None, max_examples=300)
@given(deployments(), DECODES, st.integers(0, 2000), CHUNKS)
def test_no_step_beats_the_dense_peak_or_the_memory(
    inputs: RooflineInputs, decodes: int, mean_context: int, chunks: Chunks
) -> None:
    if decodes or chunks:
        step_ns = RooflineCost(inputs).step_ns(decodes, decodes * mean_context, chunks)
        assert type(step_ns) is int
        assert step_ns >= max(1, roof_ns(inputs, decodes, decodes * mean_context, chunks))


@settings(derandomize=True, deadline=None, max_examples=200)
@given(deployments(), st.integers(1, 700), st.integers(0, 10**6), st.integers(0, 60))
def test_series_equals_scalar(inputs: RooflineInputs, decodes: int, context: int, steps: int) -> None:
    slow_gpu = msgspec.structs.replace(inputs.gpu, dense_flops={Dtype.BFLOAT16: 10**12, Dtype.FLOAT16: 10**12})
    for gpu in (inputs.gpu, slow_gpu):
        cost = RooflineCost(msgspec.structs.replace(inputs, gpu=gpu))
        series = cost.decode_series_ns(decodes, context, steps)
        assert series == [cost.step_ns(decodes, context + i * decodes, ()) for i in range(steps)]
        assert all(type(step_ns) is int and step_ns >= 1 for step_ns in series)


@settings(derandomize=True, deadline=None, max_examples=200)
@given(deployments(), DECODES, st.integers(0, 10**6), CHUNKS, st.integers(1, 600))
def test_more_tokens_requests_or_context_never_take_less(
    inputs: RooflineInputs, decodes: int, context: int, chunks: Chunks, more: int
) -> None:
    cost = RooflineCost(inputs)
    context *= bool(decodes)
    if decodes or chunks:
        step_ns = cost.step_ns(decodes, context, chunks)
        assert cost.step_ns(decodes + more, context, chunks) >= step_ns
        assert cost.step_ns(decodes, context, (*chunks, (more, 0))) >= step_ns
        assert not decodes or cost.step_ns(decodes, context + more, chunks) >= step_ns
        if chunks:
            (new, before), *rest = chunks
            assert cost.step_ns(decodes, context, ((new + more, before), *rest)) >= step_ns
            assert cost.step_ns(decodes, context, ((new, before + more), *rest)) >= step_ns


@settings(derandomize=True, deadline=None, max_examples=150)
@given(deployments(), DECODES, st.integers(0, 10**5), CHUNKS, st.integers(0, 5000))
def test_a_chunk_of_one_token_is_a_decode_and_the_breakdown_adds_up(
    inputs: RooflineInputs, decodes: int, context: int, chunks: Chunks, before: int
) -> None:
    cost = RooflineCost(inputs)
    context *= bool(decodes)
    step_ns = cost.step_ns(decodes, context, (*chunks, (1, before)))
    assert step_ns == cost.step_ns(decodes + 1, context + before, chunks)
    parts = cost.breakdown(decodes, context, (*chunks, (1, before)))
    assert sum(parts.values()) == step_ns
    assert min(parts.values()) >= 0


@settings(derandomize=True, deadline=None, max_examples=60)
@given(deployments(), DECODES, st.integers(0, 10**5), CHUNKS, st.integers(1, 40))
def test_parts_of_many_steps_are_those_of_each_and_no_more_than_they_take(
    inputs: RooflineInputs, decodes: int, context: int, chunks: Chunks, steps: int
) -> None:
    cost = RooflineCost(inputs)
    parts = cost.parts(decodes, context, chunks)
    if decodes or chunks:
        assert sum(parts.values()) <= cost.step_ns(decodes, context, chunks) * cost.parts_per_ns
    if not decodes:
        return
    apart = [cost.parts(decodes, context + step * decodes, ()) for step in range(steps)]
    together = cost.parts(decodes, context, (), steps)
    assert together == {name: sum(each[name] for each in apart) for name in apart[0]}
    taken_ns = cost.decode_series_ns(decodes, context, steps)
    assert sum(together.values()) <= sum(taken_ns) * cost.parts_per_ns
    for percent in (90, 110):
        scaled = ScaledCost(cost, percent)
        assert scaled.parts(decodes, context, (), steps) == {name: ticks * percent for name, ticks in together.items()}
        exact = [Fraction(each * percent, 100) for each in taken_ns]
        found = scaled.decode_series_ns(decodes, context, steps)
        assert all(0 <= here - there < 1 for here, there in zip(found, exact, strict=True))
        assert found == [scaled.step_ns(decodes, context + step * decodes, ()) for step in range(steps)]


def test_decoding_one_token_is_reading_the_weights() -> None:
    # Llama-3.1-8B on one H100 at 100%: (8,030,261,248 - embedding 525,336,576) x 2 bytes / 3.35 TB/s = 4.48 ms, plus
    # activations of one token and ten passes over its logits, which are under 1%.
    cost = RooflineCost(inputs_of(factors=IDEAL, sorted_sampling=False))
    least = (8_030_261_248 - 525_336_576) * 2 / 3.35e12 * 1e9
    assert least < cost.step_ns(1, 0, ()) < 1.01 * least
    # 1,000 more tokens of context are 131,072,000 bytes more.
    assert cost.step_ns(1, 1000, ()) - cost.step_ns(1, 0, ()) == pytest.approx(131_072_000 / 3.35e3, abs=2)


def test_a_long_prefill_is_bound_by_the_dense_rate() -> None:
    # 2,048 tokens through the layers of Llama-3.1-8B: 2 x 6,979,321,856 x 2,048 operations at 989.5 TFLOP/s = 28.9 ms.
    cost = RooflineCost(inputs_of(factors=IDEAL, sorted_sampling=False))
    matrices = 32 * (4096 * (6144 + 4096) + 3 * 4096 * 14336)
    least = 2 * matrices * 2048 / 989.5e12 * 1e9
    parts = cost.breakdown(0, 0, ((2048, 0),))
    assert sum(parts[name] for name in ("qkv", "o", "gate_up", "down")) == pytest.approx(least, rel=1e-6)
    # The other kernels of a layer, each memory-bound, come on top: well under a fifth.
    assert least < cost.step_ns(0, 0, ((2048, 0),)) < 1.2 * least


def test_decode_batches_pad_to_the_captured_size() -> None:
    # One row more changes the head and the sampler by 1, but the layers only when a captured size is passed.
    cost = RooflineCost(inputs_of())
    inside, outside = cost.breakdown(17, 0, ()), cost.breakdown(24, 0, ())
    for name in ("qkv", "gate_up", "norms"):
        assert inside[name] == pytest.approx(outside[name], abs=1)
        assert cost.breakdown(25, 0, ())[name] > outside[name]


def test_capture_sizes_are_the_documented_ones() -> None:
    # max_num_seqs 256 captures 51 sizes, the list vLLM prints: 1, 2, 4, 8 ... 248, 256, 272 ... 512.
    sizes = capture_sizes(256, 2048)
    assert (len(sizes), sizes[:5], sizes[33:37], sizes[-1]) == (51, (1, 2, 4, 8, 16), (248, 256, 272, 288), 512)
    assert capture_sizes(3, 2048) == (1, 2, 4)
    assert capture_sizes(1024, 100)[-1] == 96
    table = padding_table(sizes)
    assert len(table) == 513
    assert all(table[tokens] == min(size for size in sizes if size >= tokens) for tokens in range(1, 513))


def test_host_is_added_synchronously_and_a_floor_asynchronously() -> None:
    factors = RooflineFactors(host_step_ns=2_000_000)
    device_ns = RooflineCost(inputs_of(factors=RooflineFactors(host_step_ns=0))).step_ns(8, 4000, ())
    assert device_ns > 2_000_000
    for asynchronous, expected in ((True, device_ns), (False, device_ns + 2_000_000)):
        cost = RooflineCost(inputs_of(factors=factors, async_scheduling=asynchronous))
        assert cost.step_ns(8, 4000, ()) == expected
    slow_host = RooflineCost(inputs_of(factors=RooflineFactors(host_step_ns=50_000_000)))
    assert slow_host.decode_series_ns(8, 4000, 3) == [50_000_000] * 3


def test_ranks_share_the_weights_and_pay_for_talking() -> None:
    one = RooflineCost(inputs_of("llama-2-70b")).breakdown(8, 4000, ())
    four = RooflineCost(inputs_of("llama-2-70b", tensor_parallel_size=4)).breakdown(8, 4000, ())
    assert four["gate_up"] == pytest.approx(one["gate_up"] / 4, rel=0.01)
    assert "all_reduce" not in one
    # 161 all-reduces over NVLink at 8 us each, and 8 tokens x 16 KiB that take far less.
    assert 161 * 8_000 <= four["all_reduce"] <= 161 * 9_000


def test_p18_a_missing_rate_is_an_error_or_no_ceiling_never_another_rate() -> None:
    model = MODELS["llama-3.1-8b"]
    fp8 = precision_of(model, weights=Dtype.FLOAT8_E4M3, activations=Dtype.FLOAT8_E4M3)
    strict = inputs_of(gpu="a100-80gb", precision=fp8, allow_unpublished_rate=False)
    with pytest.raises(CostError, match=r"no dense float8_e4m3 rate is published for a100-80gb .*unpublished_rate"):
        RooflineCost(strict)
    free = RooflineCost(msgspec.structs.replace(strict, allow_unpublished_rate=True))
    assert any("unproven" in text for text in free.assumptions)
    huge: GpuSpec = msgspec.structs.replace(
        GPUS["a100-80gb"], dense_flops={**GPUS["a100-80gb"].dense_flops, Dtype.FLOAT8_E4M3: 10**30}
    )
    ceiling = RooflineCost(msgspec.structs.replace(strict, gpu=huge))
    assert free.step_ns(0, 0, ((2048, 0),)) == ceiling.step_ns(0, 0, ((2048, 0),))
    apple = RooflineCost(inputs_of(gpu="m3-ultra"))
    assert any("m3-ultra" in text and "unproven" in text for text in apple.assumptions)
    with pytest.raises(CostError, match="published: none"):
        RooflineCost(inputs_of(gpu="m3-ultra", allow_unpublished_rate=False))


def test_deployments_that_cannot_be_are_refused() -> None:
    with pytest.raises(CostError, match="2 ranks on m3-ultra"):
        RooflineCost(inputs_of(gpu="m3-ultra", tensor_parallel_size=2))
    with pytest.raises(ModelError, match="Legal values"):
        RooflineCost(inputs_of(tensor_parallel_size=3))
    with pytest.raises(CostError, match=r"memory_efficiency.*found 1\.5\n.*host_step_ns.*found -1"):
        RooflineCost(inputs_of(factors=RooflineFactors(memory_efficiency=1.5, host_step_ns=-1)))


def test_costs_say_what_they_rest_on() -> None:
    linear = LinearCost(LinearCoefficients(base_ps=1, per_token_ps=0, per_request_ps=0, per_context_token_ps=0))
    models: tuple[CostModel, ...] = (linear, RooflineCost(inputs_of(tensor_parallel_size=2)))
    for cost in models:
        assert cost.confidence == "heuristic"
        assert cost.assumptions
        assert cost.provenance


PICOSECONDS = st.integers(0, 10**9)


@settings(derandomize=True, deadline=None, max_examples=200)
@given(*(PICOSECONDS,) * 4, DECODES, st.integers(0, 10**6), CHUNKS)
def test_linear_is_the_formula_rounded_up(
    base: int, token: int, request: int, context: int, decodes: int, computed: int, chunks: Chunks
) -> None:
    coefficients = LinearCoefficients(
        base_ps=base + 1, per_token_ps=token, per_request_ps=request, per_context_token_ps=context
    )
    cost = LinearCost(coefficients)
    new = decodes + sum(each for each, _ in chunks)
    old = computed + sum(each for _, each in chunks)
    exact = Fraction(base + 1 + token * new + request * (decodes + len(chunks)) + context * old, 1000)
    step_ns = cost.step_ns(decodes, computed, chunks)
    assert exact <= step_ns < exact + 1
    series = cost.decode_series_ns(decodes, computed, 5)
    assert series == [cost.step_ns(decodes, computed + i * decodes, ()) for i in range(5)]


def test_linear_refuses_what_takes_no_time() -> None:
    with pytest.raises(CostError, match="a step could take no time"):
        LinearCost(LinearCoefficients(base_ps=0, per_token_ps=0, per_request_ps=0, per_context_token_ps=5))
    with pytest.raises(CostError, match=r"cost\.per_token_ps.*found -1"):
        LinearCost(LinearCoefficients(base_ps=9, per_token_ps=-1, per_request_ps=0, per_context_token_ps=5))
    one_ps = LinearCost(LinearCoefficients(base_ps=0, per_token_ps=1, per_request_ps=0, per_context_token_ps=0))
    assert one_ps.step_ns(1, 0, ()) == 1


def test_a_model_of_ones_own_costs_what_its_figures_say() -> None:
    tiny = ModelSpec(
        name="tiny",
        num_hidden_layers=1,
        hidden_size=64,
        intermediate_size=128,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=32,
        vocab_size=64,
        max_position_embeddings=128,
    )
    gpu = GpuSpec(
        name="slow",
        memory_bytes=10**9,
        memory_bandwidth_bytes_per_s=10**9,
        dense_flops={Dtype.BFLOAT16: 10**18},
    )
    cost = RooflineCost(
        RooflineInputs(
            model=tiny,
            gpu=gpu,
            precision=precision_of(tiny),
            max_num_seqs=4,
            max_num_batched_tokens=64,
            factors=msgspec.structs.replace(IDEAL, sampler_passes=0),
        )
    )
    # At 1 GB/s a byte is a nanosecond. One token: weights 64x128 + 64x64 + 64x256 + 128x64 and head 64x64, inputs and
    # outputs of each, all of 2 bytes.
    parts = cost.breakdown(1, 9, ())
    assert parts["qkv"] == 2 * (64 * 128 + 64 + 128)
    assert parts["o"] == 2 * (64 * 64 + 64 + 64)
    assert parts["gate_up"] == 2 * (64 * 256 + 64 + 256)
    assert parts["down"] == 2 * (128 * 64 + 128 + 64)
    assert parts["lm_head"] == 2 * (64 * 64 + 64 + 64)
    # Ten keys and values of 32 numbers, one query and one output of 64.
    assert parts["decode_attention"] == 2 * (10 * 2 * 32 + 2 * 64)


def test_narrow_activations_of_wide_weights_are_widened_and_that_is_said() -> None:
    """On A100 no fp8 rate is needed: the products are of 16 bits, as those of the weights."""
    model = MODELS["llama-3.1-8b"]
    plain = RooflineCost(inputs_of(gpu="a100-80gb"))
    narrow = RooflineCost(inputs_of(gpu="a100-80gb", precision=precision_of(model, activations=Dtype.FLOAT8_E4M3)))
    assert any("activations are widened and gain nothing" in text for text in narrow.assumptions)
    assert not any("widened" in text for text in plain.assumptions)
