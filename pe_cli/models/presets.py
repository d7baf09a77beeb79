"""Well-known models by name: the rotary part of their configurations, each with where the numbers were read.

Sources: `mlc` model_preset.py of mlc-llm, copies of config.json · `litgpt` config.py of litgpt · `authors` the model's
own code · `candle` candle-transformers · `quoted` a configuration quoted in a public thread or file · `class` the
default of the transformers class, which checkpoints may override.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pe_cli.errors import no_such
from pe_cli.models.read import Configuration
from pe_cli.models.resolve import resolve_configuration
from pe_cli.models.resolved import Resolved

SEPARATOR = ":"


@dataclass(frozen=True)
class Preset:
    """A configuration as `config.json` would have it, without what positions do not need."""

    config: dict[str, Any]
    source: str


def _preset(model_type: str, head_dim: int, theta: float, longest: int, source: str, **more: Any) -> Preset:
    size = {"qk_rope_head_dim": head_dim} if model_type.startswith("deepseek") else {"head_dim": head_dim}
    config = {
        "model_type": model_type,
        **size,
        "rope_theta": theta,
        "max_position_embeddings": longest,
        **more,
    }
    return Preset(config, source)


def _llama3(factor: float) -> dict[str, Any]:
    return {
        "rope_type": "llama3",
        "factor": factor,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    }


def _yarn(factor: float, original: int, **more: Any) -> dict[str, Any]:
    return {"rope_type": "yarn", "factor": factor, "original_max_position_embeddings": original, **more}


def _gemma3(head_dim: int, longest: int, factor: float | None, source: str) -> Preset:
    scaling = {"rope_type": "linear", "factor": factor} if factor else None
    return _preset(
        "gemma3_text", head_dim, 1e6, longest, source, rope_local_base_freq=10000.0, rope_scaling=scaling
    )


def _longrope(short: tuple[float, ...], long: tuple[float, ...]) -> dict[str, Any]:
    return {"rope_type": "longrope", "short_factor": list(short), "long_factor": list(long)}


# fmt: off
PHI35_SHORT = (
    1.0, 1.0199999809265137, 1.0299999713897705, 1.0299999713897705, 1.0499999523162842, 1.0499999523162842,
    1.0499999523162842, 1.0499999523162842, 1.0499999523162842, 1.0699999332427979, 1.0999999046325684, 1.1099998950958252,
    1.1599998474121094, 1.1599998474121094, 1.1699998378753662, 1.2899998426437378, 1.339999794960022, 1.679999828338623,
    1.7899998426437378, 1.8199998140335083, 1.8499997854232788, 1.8799997568130493, 1.9099997282028198, 1.9399996995925903,
    1.9899996519088745, 2.0199997425079346, 2.0199997425079346, 2.0199997425079346, 2.0199997425079346, 2.0199997425079346,
    2.0199997425079346, 2.0299997329711914, 2.0299997329711914, 2.0299997329711914, 2.0299997329711914, 2.0299997329711914,
    2.0299997329711914, 2.0299997329711914, 2.0299997329711914, 2.0299997329711914, 2.0799996852874756, 2.0899996757507324,
    2.189999580383301, 2.2199995517730713, 2.5899994373321533, 2.729999542236328, 2.749999523162842, 2.8399994373321533,
)
PHI35_LONG = (
    1.0800000429153442, 1.1100000143051147, 1.1399999856948853, 1.340000033378601, 1.5899999141693115, 1.600000023841858,
    1.6200000047683716, 2.620000123977661, 3.2300000190734863, 3.2300000190734863, 4.789999961853027, 7.400000095367432,
    7.700000286102295, 9.09000015258789, 12.199999809265137, 17.670000076293945, 24.46000099182129, 28.57000160217285,
    30.420001983642578, 30.840002059936523, 32.590003967285156, 32.93000411987305, 42.320003509521484, 44.96000289916992,
    50.340003967285156, 50.45000457763672, 57.55000305175781, 57.93000411987305, 58.21000289916992, 60.1400032043457,
    62.61000442504883, 62.62000274658203, 62.71000289916992, 63.1400032043457, 63.1400032043457, 63.77000427246094,
    63.93000411987305, 63.96000289916992, 63.970001220703125, 64.02999877929688, 64.06999969482422, 64.08000183105469,
    64.12000274658203, 64.41000366210938, 64.4800033569336, 64.51000213623047, 64.52999877929688, 64.83999633789062,
)
PHI4_MINI_LONG = (
    1.0, 1.118320672, 1.250641126, 1.398617824, 1.564103225, 1.74916897, 1.956131817, 2.187582649,
    2.446418898, 2.735880826, 3.059592084, 3.421605075, 3.826451687, 4.279200023, 4.785517845, 5.351743533,
    5.984965424, 6.693110555, 7.485043894, 8.370679318, 9.36110372, 10.4687158, 11.70738129, 13.09260651,
    14.64173252, 16.37415215, 18.31155283, 20.47818807, 22.90118105, 25.61086418, 28.64115884, 32.03,
    32.1, 32.13, 32.23, 32.6, 32.61, 32.64, 32.66, 32.7, 32.71, 32.93, 32.97, 33.28, 33.49, 33.5, 44.16, 47.77,
)

PRESETS: dict[str, Preset] = {
    "llama-2": _preset("llama", 128, 1e4, 4096, "litgpt"),
    "llama-2-7b-32k": _preset("llama", 128, 1e4, 32768, "litgpt", rope_scaling={"rope_type": "linear", "factor": 8.0}),
    "codellama-7b": _preset("llama", 128, 1e6, 16384, "mlc, litgpt"),
    "llama-3": _preset("llama", 128, 5e5, 8192, "litgpt"),
    "llama-3.1": _preset("llama", 128, 5e5, 131072, "mlc, litgpt", rope_scaling=_llama3(8.0)),
    "llama-3.2-1b": _preset("llama", 64, 5e5, 131072, "mlc, litgpt", rope_scaling=_llama3(32.0)),
    "llama-3.2-3b": _preset("llama", 128, 5e5, 131072, "mlc, litgpt", rope_scaling=_llama3(32.0)),
    "llama-3.3": _preset("llama", 128, 5e5, 131072, "mlc, litgpt", rope_scaling=_llama3(8.0)),
    "llama-4-scout": _preset(
        "llama4_text", 128, 5e5, 10485760, "authors", num_hidden_layers=48, rope_scaling=_llama3(16.0) | {"high_freq_factor": 1.0},
    ),
    "llama-4-maverick": _preset("llama4_text", 128, 5e5, 1048576, "authors", num_hidden_layers=48),
    "mistral-7b-v0.1": _preset("mistral", 128, 1e4, 32768, "mlc, litgpt"),
    "mistral-7b-v0.3": _preset("mistral", 128, 1e6, 32768, "mlc, litgpt"),
    "mixtral-8x7b": _preset("mixtral", 128, 1e6, 32768, "mlc, litgpt"),
    "mixtral-8x22b": _preset("mixtral", 128, 1e6, 65536, "litgpt"),
    "ministral-3-3b": _preset(
        "ministral3", 128, 1e6, 262144, "mlc",
        rope_scaling=_yarn(16.0, 16384, rope_theta=1e6, beta_fast=32.0, beta_slow=1.0, mscale=1.0, mscale_all_dim=1.0, llama_4_scaling_beta=0.1),
    ),
    "qwen2-7b": _preset("qwen2", 128, 1e6, 32768, "mlc"),
    "qwen2.5-7b": _preset("qwen2", 128, 1e6, 131072, "litgpt"),
    "qwen2.5-7b-yarn": _preset("qwen2", 128, 1e6, 131072, "quoted", rope_scaling=_yarn(4.0, 32768)),
    "qwen2.5-7b-1m": _preset("qwen2", 128, 1e7, 1010000, "litgpt, quoted"),
    "qwen2.5-math-7b": _preset("qwen2", 128, 1e4, 4096, "litgpt"),
    "qwen3": _preset("qwen3", 128, 1e6, 40960, "mlc, litgpt"),
    "qwen3-yarn": _preset("qwen3", 128, 1e6, 131072, "quoted", rope_scaling=_yarn(4.0, 32768)),
    "qwen3-4b-2507": _preset("qwen3", 128, 5e6, 262144, "litgpt"),
    "qwen3-30b-a3b-2507": _preset("qwen3_moe", 128, 1e7, 262144, "litgpt"),
    "qwen2.5-vl": _preset("qwen2_5_vl_text", 128, 1e6, 128000, "quoted, class", rope_scaling={"rope_type": "default", "mrope_section": [16, 24, 24]}),
    "qwen3-vl-30b-a3b": _preset(
        "qwen3_vl_moe_text", 128, 5e6, 262144, "quoted, class",
        rope_scaling={"rope_type": "default", "mrope_section": [24, 20, 20], "mrope_interleaved": True},
    ),
    "qwen3-next-80b": _preset("qwen3_next", 256, 1e7, 262144, "quoted", partial_rotary_factor=0.25),
    "qwen3.5-35b-a3b": _preset(
        "qwen3_5_moe_text", 256, 1e7, 262144, "quoted", partial_rotary_factor=0.25,
        rope_scaling={"rope_type": "default", "mrope_section": [11, 11, 10], "mrope_interleaved": True},
    ),
    "gemma-2b": _preset("gemma", 256, 1e4, 8192, "mlc"),
    "gemma-2-9b": _preset("gemma2", 256, 1e4, 8192, "mlc"),
    "gemma-2-27b": _preset("gemma2", 128, 1e4, 8192, "mlc"),
    "gemma-3-1b": _gemma3(256, 32768, None, "mlc"),
    "gemma-3-4b": _gemma3(256, 131072, 8.0, "litgpt, transformers pull request 41922"),
    "gemma-3-27b": _gemma3(128, 131072, 8.0, "litgpt, transformers pull request 41922"),
    "gemma-4": Preset({"model_type": "gemma4_text", "head_dim": 256, "global_head_dim": 512, "max_position_embeddings": 131072,
                       "rope_parameters": {"full_attention": {"rope_type": "proportional", "partial_rotary_factor": 0.25, "rope_theta": 1e6},
                                           "sliding_attention": {"rope_type": "default", "rope_theta": 1e4}}}, "quoted, class"),
    "phi-1.5": _preset("phi", 64, 1e4, 2048, "mlc, litgpt", partial_rotary_factor=0.5),
    "phi-2": _preset("phi", 80, 1e4, 2048, "mlc, litgpt", partial_rotary_factor=0.4),
    "phi-3-mini-4k": _preset("phi3", 96, 1e4, 4096, "litgpt"),
    "phi-3.5-mini": _preset(
        "phi3", 96, 1e4, 131072, "mlc", original_max_position_embeddings=4096, rope_scaling=_longrope(PHI35_SHORT, PHI35_LONG),
    ),
    "phi-4-mini": _preset(
        "phi3", 128, 1e4, 131072, "mlc", original_max_position_embeddings=4096, partial_rotary_factor=0.75,
        rope_scaling=_longrope((1.0,) * 48, PHI4_MINI_LONG),
    ),
    "phi-4": _preset("phi3", 128, 250000.0, 16384, "litgpt"),
    "deepseek-v2-lite": _preset("deepseek_v2", 64, 1e4, 163840, "mlc", rope_scaling=_yarn(40.0, 4096, beta_fast=32, beta_slow=1, mscale=0.707, mscale_all_dim=0.707)),
    "deepseek-v3": _preset("deepseek_v3", 64, 1e4, 163840, "authors", rope_scaling=_yarn(40.0, 4096, beta_fast=32, beta_slow=1, mscale=1.0, mscale_all_dim=1.0)),
    "kimi-k2": _preset("deepseek_v3", 64, 5e4, 131072, "quoted", rope_scaling=_yarn(32.0, 4096, beta_fast=1.0, beta_slow=1.0, mscale=1.0, mscale_all_dim=1.0)),
    "gpt-oss": _preset("gpt_oss", 64, 150000.0, 131072, "authors, class", rope_scaling=_yarn(32.0, 4096, beta_fast=32.0, beta_slow=1.0, truncate=False)),
    "gpt-j-6b": Preset({"model_type": "gptj", "rotary_dim": 64, "n_positions": 2048, "rope_theta": 1e4}, "mlc, class"),
    "gpt-neox-20b": Preset({"model_type": "gpt_neox", "head_dim": 96, "rotary_pct": 0.25, "rotary_emb_base": 1e4, "max_position_embeddings": 2048}, "class"),
    "pythia-1.4b": Preset({"model_type": "gpt_neox", "head_dim": 128, "rotary_pct": 0.25, "rotary_emb_base": 1e4, "max_position_embeddings": 2048}, "litgpt"),
    "pythia-2.8b": Preset({"model_type": "gpt_neox", "head_dim": 80, "rotary_pct": 0.25, "rotary_emb_base": 1e4, "max_position_embeddings": 2048}, "litgpt"),
    "stablelm-3b-4e1t": _preset("stablelm", 80, 1e4, 4096, "mlc, litgpt", partial_rotary_factor=0.25),
    "stablelm-2-1.6b": _preset("stablelm", 64, 1e4, 4096, "litgpt", partial_rotary_factor=0.25),
    "glm-4-9b-chat": Preset({"model_type": "chatglm", "kv_channels": 128, "partial_rotary_factor": 0.5, "rope_theta": 1e4, "rope_ratio": 500, "seq_length": 131072}, "quoted"),
    "glm-4-9b-chat-1m": Preset({"model_type": "chatglm", "kv_channels": 128, "partial_rotary_factor": 0.5, "rope_theta": 1e4, "rope_ratio": 10000, "seq_length": 1048576}, "quoted"),
    "command-r-v01": _preset("cohere", 128, 8e6, 131072, "quoted, class"),
    "command-r-08-2024": _preset("cohere", 128, 4e6, 131072, "quoted, class"),
    "command-r-plus": _preset("cohere", 128, 7.5e7, 131072, "quoted, class"),
    "smollm2-135m": _preset("llama", 64, 1e5, 8192, "mlc, litgpt"),
    "smollm2-1.7b": _preset("llama", 64, 130000.0, 8192, "mlc, litgpt"),
    "smollm3-3b": _preset("smollm3", 128, 2e6, 32768, "class", num_hidden_layers=36),
    "yi-6b": _preset("llama", 128, 5e6, 4096, "candle"),
    "olmo-2-7b": _preset("olmo2", 128, 5e5, 4096, "mlc, litgpt"),
    "falcon-7b": _preset("falcon", 64, 1e4, 2048, "litgpt", alibi=False),
    "falcon3-7b": _preset("llama", 256, 1000042.0, 32768, "litgpt"),
    "internlm2.5-7b": _preset("internlm2", 128, 1e6, 32768, "mlc", rope_scaling={"type": "dynamic", "factor": 2.0}),
    "minicpm-2b-128k": _preset("minicpm", 64, 1e6, 65536, "mlc", rope_scaling={"type": "dynamic", "factor": 4.0}),
    "starcoder2-15b": _preset("starcoder2", 128, 1e6, 16384, "mlc"),
    "minimax-m2": _preset("minimax_m2", 128, 5e6, 196608, "class", rotary_dim=64),
    "modernbert-base": Preset({"model_type": "modernbert", "hidden_size": 768, "num_attention_heads": 12, "max_position_embeddings": 8192,
                               "global_rope_theta": 160000.0, "local_rope_theta": 10000.0}, "class"),
}
# fmt: on


def preset(name: str, *, layer_type: str | None = None, seq_len: int | None = None) -> Resolved:
    """The encoding of a well-known model; `name:layer_type` chooses among its tables too.

    Raises PeError for a name that is not known, and as `resolve` does where a layer type or length is needed.
    """
    model, _, label = name.partition(SEPARATOR)
    if model not in PRESETS:
        raise no_such("preset", model, PRESETS)
    known = PRESETS[model]
    config = Configuration(
        f"preset {model} ({known.source})", known.config, model_type=known.config["model_type"]
    )
    return resolve_configuration(config, layer_type=layer_type or label or None, seq_len=seq_len)
