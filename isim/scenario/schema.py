"""The run file, schema_version 1: one table for each block, from which it is read, described and documented.

A key's first sentence says what it is; `rule` says what decides where it is left out. Shares are decimals or
percentages, quantities carry their units, and a key that is in no table is an error.
"""

from __future__ import annotations

from isim.model.spec import DTYPE_ALIASES, Dtype
from isim.record.records import (
    MOST_BLOCK_TOKENS,
    MOST_ENGINES,
    EngineVersion,
    RoutingPolicy,
    SchedulingPolicy,
    TieBreak,
)
from isim.scenario.fields import BOOLEAN, TEXT, Block, Field, OneOf, choice, quantity, share, whole
from isim.scenario.presets.gpus import LinkKind
from isim.scenario.schema_workload import SLO, WORKLOAD
from isim.scenario.types import UnpublishedRate
from isim.scenario.units import Dimension
from isim.scenario.warmup import WARMUP

SCHEMA_VERSION = 1
TOKENS_MAX = 10**9
MILLION = 10**6

_NAMED = {**{dtype.value: dtype for dtype in Dtype}, **DTYPE_ALIASES}
DTYPE = choice(_NAMED)
KV_DTYPE = choice({"auto": None, **{name: dtype for name, dtype in _NAMED.items() if dtype.bits >= 8}})
VERSION = choice({"0.21": EngineVersion.V021, "0.20": EngineVersion.V021, "0.33": EngineVersion.V033})
ROUTING = choice({policy.value: policy for policy in RoutingPolicy})
TIES = choice({ties.value: ties for ties in TieBreak})
POLICY = choice({policy.value: policy for policy in SchedulingPolicy})
LINK = choice({kind.value: kind for kind in LinkKind})
UNPUBLISHED = choice({what.value: what for what in UnpublishedRate})
COUNT = whole(1)
TOKENS = whole(1, TOKENS_MAX)
SOME_BYTES = quantity(Dimension.BYTES, 1)
RESERVED_BYTES = quantity(Dimension.BYTES)
BANDWIDTH = quantity(Dimension.BANDWIDTH, 1)
DURATION = quantity(Dimension.DURATION)
PRICE = quantity(Dimension.PRICE)
EFFICIENCY = share(1, MILLION, "a share above 0 and at most 1")

INTERCONNECT = Block(
    {
        "kind": Field(LINK, "What kind of link it is.", required=True),
        "bandwidth": Field(BANDWIDTH, "Bandwidth of one GPU in one direction, all its links together.", required=True),
    },
    "What joins the GPUs of one engine.",
)
DENSE_FLOPS = Block(
    {dtype.value: Field(quantity(Dimension.FLOPS, 1), f"Dense rate of {dtype.value}.") for dtype in Dtype},
    "Dense compute rate by number type, never the sparse one; a type left out is unpublished.",
)

GPU = Block(
    {
        "name": Field(TEXT, "Name of a preset (`isim presets gpus`), or of the GPU described here.", required=True),
        "memory": Field(SOME_BYTES, "Memory the driver reports."),
        "memory_bandwidth": Field(BANDWIDTH, "Bandwidth of the memory."),
        "dense_flops": Field(DENSE_FLOPS, "Dense compute rate by number type.", rule="those of the preset"),
        "source": Field(TEXT, "Where the figures given here come from.", rule="the run file"),
    },
    "A GPU by its name, or by its figures; figures given beside a preset's name replace the preset's.",
    short="name",
)

HARDWARE = Block(
    {
        "gpu": Field(GPU, "The GPU.", required=True),
        "count": Field(whole(1, 4096), "How many of them.", rule="engine.tensor_parallel_size, or 1"),
        "interconnect": Field(INTERCONNECT, "What joins the GPUs.", rule="that of the GPU's preset", nullable=True),
    },
    "What the engine runs on.",
)

MODEL_FIGURES = {
    "num_hidden_layers": Field(whole(1, 10_000), "Layers."),
    "hidden_size": Field(TOKENS, "Width of the residual stream."),
    "intermediate_size": Field(TOKENS, "Width of the gated MLP."),
    "num_attention_heads": Field(whole(1, 100_000), "Query heads."),
    "num_key_value_heads": Field(whole(1, 100_000), "Key and value heads."),
    "head_dim": Field(whole(1, 100_000), "Width of a head."),
    "vocab_size": Field(TOKENS, "Rows of the embedding."),
    "max_position_embeddings": Field(TOKENS, "Longest sequence the model is made for."),
    "published_dtype": Field(DTYPE, "Number type of the published checkpoint.", rule="bfloat16"),
    "tie_word_embeddings": Field(BOOLEAN, "Whether the LM head is the embedding.", rule="false"),
    "qkv_bias": Field(BOOLEAN, "Whether the query, key and value projections have a bias.", rule="false"),
    "o_bias": Field(BOOLEAN, "Whether the output projection has a bias.", rule="false"),
    "qk_norm": Field(BOOLEAN, "Whether queries and keys are normalised.", rule="false"),
    "sorted_sampling": Field(BOOLEAN, "Whether the default sampling cuts by top-k or top-p.", rule="false"),
}

MODEL = Block(
    {
        "name": Field(
            TEXT,
            "Name of a built-in model (`isim presets models`) or of the one described here, or the path of a Hugging "
            "Face config.json, relative to the run file.",
            required=True,
        ),
        "weight_dtype": Field(DTYPE, "Number type of the linear layers' weights.", rule="that of the checkpoint"),
        "activation_dtype": Field(DTYPE, "Number type of their inputs.", rule="that of the unquantised model"),
        **MODEL_FIGURES,
        "source": Field(TEXT, "Where the figures given here come from.", rule="the run file"),
    },
    "A model by its name, its figures, or its config.json; figures given beside a built-in name replace those.",
    short="name",
)

_ESTIMATE = "isim's estimate"
RESERVED = Block(
    {
        "peak_activation": Field(RESERVED_BYTES, "Activation peak of the profiling run.", rule=_ESTIMATE),
        "non_torch": Field(
            RESERVED_BYTES, "What lies outside PyTorch's allocator, communicators included.", rule=_ESTIMATE
        ),
        "cuda_graphs": Field(
            RESERVED_BYTES, "Set aside for CUDA graphs; 0 B for engines that do not, 0.19 and before.", rule=_ESTIMATE
        ),
    },
    "Memory of each GPU that an engine measured and that no KV block gets, as vLLM's log says.",
)

ENGINE = Block(
    {
        "version": Field(VERSION, "The vLLM whose scheduler is followed; 0.20 is 0.21.", default=EngineVersion.V021),
        "tensor_parallel_size": Field(whole(1, 4096), "GPUs that share each layer.", default=1),
        "enable_expert_parallel": Field(
            BOOLEAN, "Whether those GPUs hold whole experts instead of a slice of each.", rule="false"
        ),
        "max_num_seqs": Field(COUNT, "Most requests that run at once.", rule="vLLM's default for the GPU"),
        "max_num_batched_tokens": Field(TOKENS, "Token budget of a step.", rule="vLLM's default for the GPU"),
        "block_size": Field(whole(1, MOST_BLOCK_TOKENS), "Tokens in a KV block.", default=16),
        "enable_prefix_caching": Field(
            BOOLEAN,
            "Whether KV blocks are shared by equal prefixes.",
            rule="true; in 0.21 false for models with recurrent states",
        ),
        "enable_chunked_prefill": Field(BOOLEAN, "Whether a prompt may be computed over several steps.", default=True),
        "long_prefill_token_threshold": Field(
            whole(0, TOKENS_MAX), "Most tokens of one request in a step, 0 for no such limit.", default=0
        ),
        "scheduler_reserve_full_isl": Field(BOOLEAN, "Whether the whole prompt must fit at admission.", default=True),
        "async_scheduling": Field(BOOLEAN, "Whether a step is scheduled while the one before runs.", default=True),
        "gpu_memory_utilization": Field(
            EFFICIENCY, "Share of the GPU's memory the engine may use.", default=920_000, rule="0.92"
        ),
        "kv_cache_dtype": Field(
            KV_DTYPE, "Number type of the KV cache, auto for that of the unquantised model.", rule="auto"
        ),
        "num_gpu_blocks_override": Field(
            whole(2),
            "KV blocks that were measured, the null block included.",
            rule="what the memory holds",
            nullable=True,
        ),
        "reserved_memory": Field(RESERVED, "What the engine measured that no KV block gets.", rule="isim's estimates"),
        "max_model_len": Field(whole(2, TOKENS_MAX), "Most tokens of prompt and output.", rule="the model's limit"),
        "scheduling_policy": Field(POLICY, "Order of the waiting requests.", default=SchedulingPolicy.FCFS),
        "request_overhead": Field(
            DURATION,
            "Time of each request outside the engine (API server, tokenisation, HTTP), all of it before it queues.",
            default=0,
            rule="0 s",
        ),
    },
    "The engine, in vLLM's names.",
)

FITTED = Block(
    {
        "source": Field(TEXT, "What they were fitted to and how well, in a sentence.", required=True),
        "factors": Field(TEXT, "What was fitted: path=value, path=value.", required=True),
        "gpu": Field(TEXT, "Name of the GPU that was measured.", required=True),
        "model": Field(TEXT, "Name of the model it served.", required=True),
        "tensor_parallel_size": Field(whole(1, 4096), "How many GPUs shared each layer.", required=True),
        "batch": Field(COUNT, "Most requests that ran at once.", required=True),
        "request_tokens": Field(TOKENS, "Most tokens, prompt and output, of a request.", required=True),
    },
    "What the factors were fitted to, as `isim calibrate` writes it; a result that leaves this range says so.",
)
_FITTED = Field(FITTED, "What the factors were fitted to.", rule="nothing: they are declared", nullable=True)

COST = OneOf(
    "kind",
    {
        "linear": Block(
            {
                "base": Field(PRICE, "Time of every step.", required=True),
                "per_token": Field(PRICE, "Time of each new token.", default=0, rule="0 ps"),
                "per_request": Field(PRICE, "Time of each request in the batch.", default=0, rule="0 ps"),
                "per_context_token": Field(PRICE, "Time of each token computed before.", default=0, rule="0 ps"),
                "fitted": _FITTED,
            },
            "A step takes base + per_token x new tokens + per_request x batch + per_context_token x context.",
        ),
        "roofline": Block(
            {
                "unpublished_rate": Field(
                    UNPUBLISHED, "What to do about an unpublished compute rate.", default=UnpublishedRate.ERROR
                ),
                "compute_efficiency": Field(
                    EFFICIENCY, "Share of the dense peak reached.", rule="isim's default", nullable=True
                ),
                "memory_efficiency": Field(
                    EFFICIENCY, "Share of the bandwidth reached.", rule="isim's default", nullable=True
                ),
                "kernel_gap": Field(DURATION, "Idle time between two kernels.", rule="isim's default", nullable=True),
                "host_step": Field(DURATION, "Work of the host for a step.", rule="isim's default", nullable=True),
                "allreduce_latency": Field(DURATION, "Latency of an all-reduce.", rule="isim's default", nullable=True),
                "fitted": _FITTED,
            },
            "Each operation takes the longer of its arithmetic and its memory traffic.",
        ),
    },
    "How long a step takes.",
    short="kind",
)

CLIENTS = Block(
    {
        "timeout": Field(
            quantity(Dimension.DURATION, 1), "When a client cancels its request.", rule="never", nullable=True
        ),
    },
    "Who sends the requests.",
)

ROUTER = Block(
    {
        "policy": Field(ROUTING, "How an engine is picked.", default=RoutingPolicy.ROUND_ROBIN),
        "ties": Field(TIES, "Who of equally good engines is picked.", default=TieBreak.POSITIONAL),
    },
    "How requests find their replica.",
    short="policy",
)

SIMULATION = Block(
    {
        "seed": Field(whole(0), "Seed of all random draws.", default=0),
        "max_events": Field(COUNT, "Events and steps after which the run is given up.", default=100_000_000),
        "max_stretch": Field(
            whole(1), "Most equal steps told as one event; changes no result.", rule="no limit", nullable=True
        ),
        "warmup": Field(WARMUP, "Requests left out of the latencies.", rule="none", nullable=True),
    },
    "How the run is done.",
)

RUN_FILE = Block(
    {
        "schema_version": Field(whole(SCHEMA_VERSION, SCHEMA_VERSION), "Version of this format, 1.", required=True),
        "name": Field(TEXT, "What the report calls the run.", rule="the file's name without its ending"),
        "hardware": Field(HARDWARE, "What the engine runs on.", required=True),
        "model": Field(MODEL, "The model served.", required=True),
        "engine": Field(ENGINE, "The engine, in vLLM's names."),
        "replicas": Field(whole(1, MOST_ENGINES), "Equal engines, each on GPUs of its own.", default=1),
        "router": Field(ROUTER, "How requests find their replica."),
        "clients": Field(CLIENTS, "Who sends the requests."),
        "workload": Field(WORKLOAD, "What is served.", required=True),
        "cost": Field(COST, "How long a step takes.", required=True),
        "simulation": Field(SIMULATION, "How the run is done."),
        "slo": Field(SLO, "What is promised to the users.", rule="nothing", nullable=True),
    }
)
