"""What is known of the keys and families of Hugging Face configs, as tables.

A key of a config is read by the import, or stands here as one that changes no cost, or as one that is supported at
some values only. Any other key gives a printed assumption. A family says what the implementation of a `model_type`
does that its config does not say. Sources: the `configuration_*.py` and `modeling_*.py` of Hugging Face transformers,
and the published remote code of models that bring their own.
"""

from __future__ import annotations

from typing import Any

import msgspec

from isim.model.layers import QkNorm


class Family(msgspec.Struct, frozen=True, kw_only=True):
    """What an implementation does beyond its config.

    qkv_bias, o_bias    None: as `attention_bias` says
    norms               weight vectors of hidden_size a layer
    wide_experts        the experts' width is intermediate_size where no other is given
    shared_expert       one shared expert of the experts' width
    parallel_mlp        a dense MLP of intermediate_size beside the experts of every layer
    windows_alternate   where the config does not list its layers, every n-th layer is full; 0: all alike
    stretched           whether vLLM stretches the longest sequence by the rotary scaling
    defaults            figures of the configuration class that published configs leave out
    """

    qkv_bias: bool | None = None
    o_bias: bool | None = None
    qk_norm: QkNorm = QkNorm.NONE
    gated: bool = False
    sinks: bool = False
    shared_gate: bool = False
    router_bias: bool = False
    expert_bias: bool = False
    norms: int = 2
    wide_experts: bool = False
    shared_expert: bool = False
    parallel_mlp: bool = False
    tied: bool = False
    windows_alternate: int = 0
    stretched: bool = True
    defaults: tuple[tuple[str, int], ...] = ()


FAMILIES: dict[str, Family] = {
    "llama": Family(),
    "mistral": Family(),
    "ministral": Family(),
    "mixtral": Family(wide_experts=True),
    "qwen2": Family(qkv_bias=True, o_bias=False),
    "qwen2_moe": Family(qkv_bias=True, o_bias=False, shared_gate=True),
    "qwen3": Family(qk_norm=QkNorm.HEAD),
    "qwen3_moe": Family(qk_norm=QkNorm.HEAD),
    "qwen3_vl_text": Family(qk_norm=QkNorm.HEAD),
    "qwen3_vl_moe_text": Family(qk_norm=QkNorm.HEAD),
    "qwen3_next": Family(qk_norm=QkNorm.HEAD, gated=True, shared_gate=True),
    "qwen3_5_text": Family(qk_norm=QkNorm.HEAD, gated=True, shared_gate=True),
    "qwen3_5_moe_text": Family(qk_norm=QkNorm.HEAD, gated=True, shared_gate=True),
    "deepseek_v2": Family(),
    "deepseek_v3": Family(router_bias=True),
    "kimi_k2": Family(router_bias=True),
    "gpt_oss": Family(sinks=True, router_bias=True, expert_bias=True, wide_experts=True),
    "llama4_text": Family(qk_norm=QkNorm.UNWEIGHTED, wide_experts=True, shared_expert=True),
    "minimax_m2": Family(qk_norm=QkNorm.ALL_HEADS, router_bias=True, wide_experts=True),
    "gemma2": Family(norms=4, tied=True, windows_alternate=2),
    "gemma3_text": Family(
        norms=4,
        tied=True,
        qk_norm=QkNorm.HEAD,
        windows_alternate=6,
        stretched=False,
        defaults=(
            ("vocab_size", 262208),
            ("max_position_embeddings", 131072),
            ("num_attention_heads", 8),
            ("num_key_value_heads", 4),
            ("head_dim", 256),
        ),
    ),
    "gemma4_text": Family(norms=7, tied=True, qk_norm=QkNorm.HEAD, parallel_mlp=True),
    "phi3": Family(qkv_bias=False, o_bias=False),
    "glm4": Family(o_bias=False, norms=4),
    "glm4_moe": Family(o_bias=False, router_bias=True),
    "granite": Family(),
    "granitemoe": Family(wide_experts=True),
    "granitemoehybrid": Family(wide_experts=True),
    "olmo2": Family(qk_norm=QkNorm.ALL_HEADS),
    "olmo3": Family(qk_norm=QkNorm.ALL_HEADS),
    "olmoe": Family(qk_norm=QkNorm.ALL_HEADS, wide_experts=True),
    "seed_oss": Family(),
    "smollm3": Family(),
    "ernie4_5": Family(),
    "exaone4": Family(qk_norm=QkNorm.HEAD),
    "cohere2": Family(norms=1, tied=True, windows_alternate=4),
}

NOT_SUPPORTED_TYPES: dict[str, str] = {
    "jamba": "Mamba-1 layers",
    "mamba": "Mamba-1 layers",
    "falcon_mamba": "Mamba-1 layers",
    "mamba2": "models without attention",
    "nemotron_h": "layers that are a mixer or an MLP only",
    "nemotron-nas": "layers of different widths",
    "falcon_h1": "attention and Mamba in one layer",
    "rwkv": "models without attention",
    "minimax_m1": "lightning attention",
    "minimax_text_01": "lightning attention",
    "kimi_linear": "KDA layers",
    "gpt2": "MLPs without a gate",
    "gptj": "MLPs without a gate",
    "gpt_neox": "MLPs without a gate",
    "gpt_bigcode": "MLPs without a gate",
    "opt": "MLPs without a gate",
    "bloom": "MLPs without a gate",
    "falcon": "MLPs without a gate",
    "phi": "MLPs without a gate",
    "starcoder2": "MLPs without a gate",
    "nemotron": "MLPs without a gate",
    "bert": "encoders",
    "t5": "encoders",
    "whisper": "encoders",
    "mllama_text_model": "cross-attention layers",
    "gemma3n_text": "per-layer embeddings",
}
"""Families whose layers have a kind that is not modelled, and which."""


class Only(msgspec.Struct, frozen=True):
    """A key that changes cost: the values at which it does not, and what it would mean otherwise."""

    values: tuple[Any, ...]
    meaning: str


ONLY: dict[str, Only] = {
    "is_encoder_decoder": Only((False,), "an encoder"),
    "cross_attention_layers": Only(([],), "cross-attention layers"),
    "num_kv_shared_layers": Only((0,), "layers that share keys and values with others"),
    "use_double_wide_mlp": Only((False,), "MLPs of twice the width"),
    "hidden_size_per_layer_input": Only((0,), "per-layer embeddings"),
    "index_topk": Only((), "sparse attention with an indexer"),
    "sparse_attention_config": Only((), "sparse attention"),
    "dual_chunk_attention_config": Only((), "dual chunk attention"),
    "attn_layer_indices": Only(([],), "a pattern of layers"),
    "block_configs": Only((), "layers of different widths"),
    "hybrid_override_pattern": Only((), "a pattern of layers"),
    "attn_layer_period": Only((1,), "a pattern of layers"),
    "num_attention_groups": Only((), "multi-query groups"),
    "attention_other_setting": Only((), "attention layers of different widths"),
    "zero_expert_num": Only((0,), "experts without work"),
    "moe_num_experts": Only((0,), "experts of several kinds"),
    "partial_attention_layers": Only(([],), "layers without attention"),
    "position_embedding_type": Only(("rope", "nope", "absolute", None), "relative position keys"),
}

STATE_PREFIXES = ("mamba_", "ssm_", "linear_", "lightning_")
"""Keys of states, which a config may have only where it says which layers have one."""

MTP_KEYS = ("num_nextn_predict_layers", "mtp_num_hidden_layers", "num_mtp_modules", "mtp_transformer_layers", "use_mtp")

_NO_COST = """
    _attn_implementation_autoset _name_or_path architectures attention_dropout attention_multiplier attn_factor
    attn_logit_softcapping attn_scale attn_temperature_tuning auto_map aux_loss_alpha bad_words_ids
    begin_suppress_tokens bos_token_id cache_implementation chunk_size_feed_forward classifier_dropout
    decoder_start_token_id diversity_penalty do_sample early_stopping emb_dropout embd_pdrop embedding_dropout
    embedding_multiplier enable_moe_block encoder_no_repeat_ngram_size eos_token_id ep_size
    exponential_decay_length_penalty final_logit_softcapping finetuning_task floor_scale for_llm_compressor
    forced_bos_token_id forced_eos_token_id full_attention_interval hidden_act hidden_activation hidden_dropout
    id2label image_token_id image_token_index init_method initial_context_length initializer_range
    input_jitter_noise is_decoder label2id layer_norm_eps length_penalty logit_scale logits_scaling mamba_chunk_size
    mamba_expand mamba_proj_bias max_length max_window_layers min_length mlp_only_layers model_type mrope_section
    mtp_use_dedicated_embeddings n_group no_repeat_ngram_size norm_eps norm_topk_prob normalization_function
    num_beam_groups num_beams num_return_sequences original_max_position_embeddings output_attentions
    output_hidden_states output_router_logits output_scores pad_token_id partial_rotary_factor prefix pretraining_tp
    problem_type pruned_heads qk_head_dim qk_norm_type query_pre_attn_scalar remove_invalid_values
    repetition_penalty resid_pdrop residual_dropout residual_multiplier return_dict return_dict_in_generate
    rms_norm_eps rope_interleave rope_interleaved rope_local_base_freq rope_parameters rope_ratio rope_theta
    rotary_dim routed_scaling_factor router_aux_loss_coef router_jitter_noise router_z_loss_coef scoring_func
    sep_token_id seq_aux seq_length suppress_tokens swiglu_alpha swiglu_limit task_specific_params temperature
    tf_legacy_loss tie_encoder_decoder time_step_floor time_step_limit time_step_max time_step_min tokenizer_class
    top_k top_p topk_group topk_method torchscript transformers_version typical_p unsloth_fixed unsloth_version
    use_bfloat16 use_bidirectional_attention use_cache use_flash_attn use_mrope use_qkv_bias use_routing_bias
    vocab_size_per_layer_input
"""
NO_COST = frozenset(_NO_COST.split())
"""Keys that change no cost: how numbers are scaled, trained, drawn or named, and what the import reads elsewhere."""
