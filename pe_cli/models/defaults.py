"""What the model classes assume where a configuration is silent, by model type.

The data for transformers is `defaults.json`, collected by `tools/collect_model_defaults.py` from the classes
themselves. `REMOTE` adds model types whose code lives beside their checkpoints.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from functools import lru_cache
from importlib.resources import files
from typing import Any

# fmt: off
REMOTE: dict[str, dict[str, Any]] = {
    "meta_llama": {"class": "ModelArgs", "source": "llama/model.py of meta-llama", "layout": "complex", "theta": 10000.0},
    "chatglm": {
        "class": "ChatGLMConfig", "source": "modeling_chatglm.py of THUDM/chatglm3-6b and glm-4-9b", "layout": "adjacent",
        "theta": 10000.0, "partial": 0.5, "fields": {"hidden_size": 4096, "num_attention_heads": 32, "head_dim": 128},
        "aliases": {"max_position_embeddings": "seq_length", "num_hidden_layers": "num_layers", "head_dim": "kv_channels"},
    },
    "qwen": {
        "class": "QWenConfig", "source": "modeling_qwen.py of Qwen/Qwen-7B", "layout": "half", "theta": 10000.0,
        "fields": {"hidden_size": 4096, "num_attention_heads": 32, "head_dim": 128, "max_position_embeddings": 8192},
        "aliases": {"head_dim": "kv_channels"},
    },
    "baichuan": {
        "class": "BaichuanConfig", "source": "modeling_baichuan.py of baichuan-inc/Baichuan2-7B-Base", "layout": "half", "theta": 10000.0,
        "fields": {"hidden_size": 4096, "num_attention_heads": 32, "max_position_embeddings": 4096},
    },
    **{
        name: {
            "class": "RWConfig", "source": f"modelling_RW.py of tiiuae/falcon-{size}", "layout": "half", "theta": 10000.0,
            "fields": {"hidden_size": hidden, "num_attention_heads": heads, "max_position_embeddings": 2048},
            "aliases": {"num_attention_heads": "n_head", "num_hidden_layers": "n_layer"},
        }
        for name, size, hidden, heads in (("RefinedWebModel", "7b", 4544, 71), ("RefinedWeb", "40b", 8192, 128))
    },
    "internlm": {"class": "InternLMConfig", "source": "modeling_internlm.py of internlm/internlm-7b", "layout": "half", "theta": 10000.0},
    "internlm2": {
        "class": "InternLM2Config", "source": "modeling_internlm2.py of internlm/internlm2-7b", "layout": "half", "theta": 10000.0,
        "fields": {"hidden_size": 4096, "num_attention_heads": 32, "max_position_embeddings": 2048},
    },
    "stablelm_epoch": {
        "class": "StableLMEpochConfig", "source": "modeling_stablelm_epoch.py of stabilityai/stablelm-3b-4e1t", "layout": "half",
        "theta": 10000.0, "partial": 0.25, "fields": {"hidden_size": 2560, "num_attention_heads": 32, "max_position_embeddings": 4096},
    },
    "minicpm": {
        "class": "MiniCPMConfig", "source": "modeling_minicpm.py of openbmb/MiniCPM-2B", "layout": "half", "theta": 10000.0,
        "fields": {"hidden_size": 4096, "num_attention_heads": 32, "max_position_embeddings": 2048},
    },
    "phi-msft": {
        "class": "PhiConfig", "source": "modeling_phi.py of microsoft/phi-1_5", "layout": "split", "theta": 10000.0,
        "fields": {"rotary_dim": 32, "max_position_embeddings": 2048},
    },
    "wav2vec2-conformer": {
        "class": "Wav2Vec2ConformerConfig", "source": "transformers 5.24.0", "layout": "half", "theta": 10000.0,
        "fields": {"hidden_size": 768, "num_attention_heads": 12}, "rotary": "Wav2Vec2ConformerRotaryPositionalEmbedding",
    },
    "wav2vec2-bert": {
        "class": "Wav2Vec2BertConfig", "source": "transformers 5.24.0", "layout": "half", "theta": 10000.0,
        "fields": {"hidden_size": 1024, "num_attention_heads": 16}, "rotary": "Wav2Vec2BertRotaryPositionalEmbedding",
    },
    "seamless_m4t": {
        "class": "SeamlessM4TConfig", "source": "transformers 5.24.0", "layout": "half", "theta": 10000.0,
        "fields": {"hidden_size": 1024, "num_attention_heads": 16}, "aliases": {"num_attention_heads": "speech_encoder_attention_heads"},
        "rotary": "SeamlessM4TConformerRotaryPositionalEmbedding",
    },
    "roformer": {
        "class": "RoFormerConfig", "source": "transformers 5.24.0", "layout": "sin-cos", "theta": 10000.0,
        "fields": {"hidden_size": 768, "num_attention_heads": 12, "max_position_embeddings": 1536},
        "rotary": "RoFormerSinusoidalPositionalEmbedding",
    },
    "vjepa2": {
        "class": "VJEPA2Config", "source": "transformers 5.24.0", "layout": "half", "theta": 10000.0,
        "fields": {"hidden_size": 1024, "num_attention_heads": 16}, "rotary": "VJEPA2RopeAttention",
    },
    "kimi_k2": {
        "class": "DeepseekV3Config", "source": "configuration_deepseek.py of moonshotai/Kimi-K2-Instruct", "layout": "half",
        "theta": 10000.0, "fields": {"qk_rope_head_dim": 64, "hidden_size": 7168, "num_attention_heads": 64},
    },
}
# fmt: on


@dataclass(frozen=True)
class Defaults:
    """What one model type assumes. `rope` is the rotary parameters of a configuration that says nothing."""

    model_type: str
    known: bool
    name: str = ""
    source: str = ""
    fields: dict[str, Any] = field(default_factory=dict)
    aliases: dict[str, str] = field(default_factory=dict)
    rope: dict[str, Any] | None = None
    theta: float | dict[str, float] | None = None
    partial: float | None = None
    head_dims: dict[str, int] = field(default_factory=dict)
    scaled: tuple[str, ...] = ()
    sections: tuple[int, ...] | None = None
    components: dict[str, str] = field(default_factory=dict)
    parts: dict[str, dict[str, Any]] = field(default_factory=dict)
    layout: str = "half"
    axial: bool = False
    interleaved: bool = False
    theta_ignored: bool = False
    partial_ignored: bool = False
    head_multiple: int = 1
    attention_factor: float | None = None
    module: str = ""

    @property
    def labels(self) -> tuple[str, ...]:
        """The layer types that have rotary parameters of their own."""
        return tuple(k for k, v in (self.rope or {}).items() if v is None or isinstance(v, dict))

    def described(self) -> str:
        """`the default of model type 'llama' (LlamaConfig, transformers 5.24.0)`."""
        if not self.known:
            return "the usual default, since the model type is not known here"
        return f"the default of model type {self.model_type!r} ({self.name}, {self.source})"


@lru_cache(maxsize=1)
def _collected() -> tuple[str, dict[str, dict[str, Any]]]:
    record = json.loads((files(__package__) / "defaults.json").read_text())
    return record["source"].partition(",")[0], record["models"]


@lru_cache(maxsize=64)
def defaults(model_type: str) -> Defaults:
    """What is known of `model_type`; `.known` is False where nothing is."""
    source, models = _collected()
    entry = models.get(model_type) or REMOTE.get(model_type)
    if entry is None:
        return Defaults(model_type, known=False)
    return Defaults(
        model_type,
        known=True,
        name=entry["class"],
        source=entry.get("source", source),
        fields=entry.get("fields", {}),
        aliases=entry.get("aliases", {}),
        rope=entry.get("rope"),
        theta=entry.get("theta"),
        partial=entry.get("partial"),
        head_dims=entry.get("head_dims", {}),
        scaled=tuple(entry.get("scaled", ())),
        sections=tuple(entry["sections"]) if "sections" in entry else None,
        components=entry.get("components", {}),
        parts=entry.get("parts", {}),
        layout=entry.get("layout", "half"),
        axial=entry.get("axial", False),
        interleaved=entry.get("interleaved", False),
        theta_ignored=bool(entry.get("rope")) and entry.get("theta_ignored", False),
        partial_ignored=entry.get("partial_ignored", False),
        attention_factor=entry.get("attention_factor"),
        head_multiple=entry.get("head_multiple", 1),
        module=entry.get("rotary", ""),
    )


def part_defaults(outer: str, key: str, model_type: str, *, given: bool) -> Defaults:
    """What is known of the part `key` of a composite, which may fill it otherwise than its own class would.

    `given` says that the file has that part; most composites then leave the rest to its own class.
    """
    known, composite = defaults(model_type), defaults(outer)
    changed = dict(composite.parts.get(key, {}))
    merged = changed.pop("merged", False)
    if not changed or model_type != composite.components.get(key) or (given and not merged):
        return known
    rope = changed.pop("rope_parameters", known.rope)
    return replace(
        known,
        fields={**known.fields, **changed},
        rope=rope,
        model_type=outer,
        name=composite.name,
        source=composite.source,
    )


def known_types() -> list[str]:
    """Every model type of the table."""
    return [*_collected()[1], *REMOTE]
