"""Configurations that may or may not make sense."""

from __future__ import annotations

from hypothesis import strategies as st

ODD_VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**70), 2**70), st.floats(allow_nan=False, allow_infinity=False), st.text(max_size=6),
    st.sampled_from([0, 1, 2, 64, 1.0, 0.25, [], {}, [1, 2], [[]], {"factor": 2}, "yarn", "linear", "llama3", "longrope", "default", "dynamic", "full_attention", 10**30, 1e300]),
    st.lists(st.integers(1, 64), max_size=8),
)  # fmt: skip
PARAMETERS = ("rope_type", "type", "factor", "original_max_position_embeddings", "beta_fast", "beta_slow", "mscale", "mscale_all_dim",
              "attention_factor", "low_freq_factor", "high_freq_factor", "short_factor", "long_factor", "mrope_section", "rope_theta",
              "partial_rotary_factor", "truncate")  # fmt: skip
KEYS = ("hidden_size", "num_attention_heads", "head_dim", "max_position_embeddings", "rope_theta", "partial_rotary_factor", "rotary_dim",
        "layer_types", "text_config", "vision_config", "sliding_window", "qk_rope_head_dim", "position_embedding_type", "n_embd",
        "n_head", "relative_attention_num_buckets", "window_size", "num_heads", "architectures", "alibi", "rotary_emb_base", "torch_dtype")  # fmt: skip
TYPES = ("llama", "gemma3", "qwen2_vl", "phi3", "deepseek_v3", "t5", "bert", "gpt2", "mpt", "bloom", "whisper", "gpt_neox", "falcon", "swin", "deberta-v2",
         "modernbert", "gpt_oss", "llama4", "mistral", "esm", "chatglm", "unheard-of")  # fmt: skip
CONFIGURATION = st.builds(
    lambda base, kind, odd, rope, name: {**base, "model_type": kind, **odd, **({name: rope} if name else {})},
    st.sampled_from(
        [{}, {"hidden_size": 64, "num_attention_heads": 4, "max_position_embeddings": 128, "rope_theta": 1e4}]
    ),
    st.one_of(*[st.sampled_from(TYPES)] * 9, st.text(max_size=6) | st.none()),
    st.dictionaries(st.sampled_from(KEYS), ODD_VALUES, max_size=4),
    st.dictionaries(st.sampled_from(PARAMETERS), ODD_VALUES, max_size=6) | ODD_VALUES,
    st.sampled_from(["", "rope_scaling", "rope_parameters"]),
)
