"""What attention receives in a forward pass of a small model of transformers: its table, what it pairs, which layers.

The functions of a modelling file that rotate queries and keys are wrapped while the model runs.
"""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from transformers.configuration_utils import PreTrainedConfig
from transformers.modeling_utils import PreTrainedModel

MODELS = Path(transformers.__file__).parent / "models"
ROTATES = re.compile(r"apply_\w*(rotary|rope|rotate)|^rotary_embed", re.IGNORECASE)
LENGTH = 13
SMALL = {
    "vocab_size": 128, "hidden_size": 128, "intermediate_size": 64, "num_hidden_layers": 4, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 32, "moe_intermediate_size": 32, "num_experts": 4, "num_local_experts": 4,
    "n_routed_experts": 4, "num_experts_per_tok": 2, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
    "vocab_size_per_layer_input": 128, "hidden_size_per_layer_input": 16, "shared_expert_intermediate_size": 32,
    "ffn_dim": 64, "encoder_ffn_dim": 64, "decoder_ffn_dim": 64, "encoder_layers": 2, "decoder_layers": 2, "kv_lora_rank": 32,
    "q_lora_rank": 32, "qk_nope_head_dim": 32, "v_head_dim": 32, "num_nextn_predict_layers": 0, "n_group": 1, "topk_group": 1, "audio_vocab_size": 64,
    "n_embd": 128, "n_layer": 4, "n_head": 4, "n_inner": 64, "d_model": 128, "max_position_embeddings": 128,
}  # fmt: skip
# Other sizes to try where a model does not take these: heads of their own, latent attention, sections of 64 pairs.
OTHERS: tuple[dict[str, Any], ...] = (
    {},
    {"num_key_value_heads": 4},
    {"num_key_value_heads": 4, "head_dim": 16, "qk_rope_head_dim": 16, "rotary_dim": 16},
    {"num_key_value_heads": 4, "head_dim": None, "rotary_dim": 16},
    {"hidden_size": 512, "head_dim": 128},
    {"hidden_size": 512, "head_dim": 128, "num_key_value_heads": 4},
)

# What single models need beside these sizes, by the name of their configuration class.
SPECIAL: dict[str, dict[str, Any]] = {
    "BailingHybridConfig": {"layer_group_size": 2},
    "BambaConfig": {"attn_layer_indices": [1, 3]},
    "GraniteMoeHybridConfig": {"layer_types": ["linear_attention", "full_attention"] * 2, "position_embedding_type": "rope"},
    "Lfm2MoeConfig": {"layer_types": ["conv", "full_attention"] * 2},
    "EsmConfig": {"position_embedding_type": "rotary"},
    "Zamba2Config": {"use_mem_rope": True, "num_mem_blocks": 1, "layers_block_type": ["mamba", "hybrid"] * 2, "head_dim": None},
    "Glm4vTextConfig": {"hidden_size": 512, "rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.5, "mrope_section": [8, 12, 12]}},
    "GlmImageTextConfig": {"hidden_size": 512, "rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.5, "mrope_section": [8, 12, 12]}},
    "GlmOcrTextConfig": {"hidden_size": 512, "head_dim": 128, "rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.5, "mrope_section": [8, 12, 12]}},
    "CohereCompassTextConfig": {"layer_types": ["full_attention"] * 4, "rope_parameters": {"full_attention": {"rope_type": "default", "rope_theta": 1e4}}},
    "HunYuanVLTextConfig": {"rope_parameters": {"rope_type": "dynamic", "alpha": 10.0, "factor": 1.0, "rope_theta": 1e4, "mrope_section": [4, 4, 4, 4]}},
    "Qwen2_5OmniTalkerConfig": {"rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [4, 6, 6]}, "embedding_size": 128},
    "DbrxConfig": {"attn_config": {"rope_theta": 1e4, "kv_n_heads": 2, "clip_qkv": 8.0}, "ffn_config": {"ffn_hidden_size": 64, "moe_num_experts": 2, "moe_top_k": 1}},
    "Qwen3OmniMoeTalkerTextConfig": {"shared_expert_intermediate_size": 32},
    "T5Gemma2TextConfig": {"dropout_rate": 0.0},
    "MoonshineStreamingConfig": {"num_key_value_heads": 4},
    "DeepseekOcr2TextConfig": {"mlp_layer_types": ["dense"] * 4},
    "DiffusionGemmaTextConfig": {"top_k_experts": 2},
    "Ernie4_5_VLMoeTextConfig": {"moe_intermediate_size": [32, 32]},
    "Dots1Config": {"n_shared_experts": 1},
    "Gemma3nTextConfig": {"num_kv_shared_layers": 0, "layer_types": ["sliding_attention", "full_attention"] * 2},
}  # fmt: skip


@dataclass
class Captured:
    """What the wrapped functions were given.

    tables : the tensors that multiply queries, by call, as (rows, columns) arrays
    pairing : half or adjacent, as the function mixed the channels of a query; None where it did neither
    layers : the indices of the layers in which it was called
    """

    tables: list[list[np.ndarray]] = field(default_factory=list)
    pairings: set[str | None] = field(default_factory=set)
    layers: set[int] = field(default_factory=set)
    count: int = 0


def small_model(config_class: type[PreTrainedConfig], changes: dict[str, Any]) -> tuple[PreTrainedModel, Any]:
    """The base model of a configuration class with few and narrow layers, and its modelling file."""
    module = importlib.import_module(config_class.__module__.replace("configuration_", "modeling_"))
    models = [
        value
        for value in vars(module).values()
        if inspect.isclass(value)
        and issubclass(value, PreTrainedModel)
        and value.__module__ == module.__name__
        and getattr(value, "config_class", None) is config_class
        and not value.__name__.endswith("PreTrainedModel")
    ]
    if not models:
        raise LookupError("no model class of this configuration")
    models.sort(key=lambda m: ("For" in m.__name__, not m.__name__.endswith("Model"), len(m.__name__)))
    config = small_config(config_class, changes)
    torch.manual_seed(0)
    return models[0](config).eval(), module


def small_config(config_class: type[PreTrainedConfig], changes: dict[str, Any]) -> PreTrainedConfig:
    """A configuration with the sizes of SMALL, but for `changes`, where its class has them."""
    special = SPECIAL.get(config_class.__name__, {})
    names = set(vars(config_class())) | set(config_class.attribute_map or {}) | set(special)
    wanted = {k: v for k, v in (SMALL | changes | special).items() if k in names and v is not None}
    config = config_class(**wanted)
    config._attn_implementation = "eager"
    return config


@contextmanager
def capturing(model: PreTrainedModel, module: Any) -> Iterator[Captured]:
    """Record what the rotating functions of the modelling file are given while the model runs."""
    found = Captured()
    layer: list[int | None] = [None]
    lists = [m for m in model.modules() if isinstance(m, torch.nn.ModuleList) and len(m)]
    longest = max(lists, key=len, default=[])
    hooks = []
    for index, block in enumerate(longest):
        hooks.append(block.register_forward_pre_hook(lambda *_, index=index: layer.__setitem__(0, index)))
        hooks.append(block.register_forward_hook(lambda *_: layer.__setitem__(0, None)))
    found.count = len(longest)
    indexers = [m for m in model.modules() if "Indexer" in type(m).__name__]
    asleep: list[bool] = []  # what chooses the keys of sparse attention turns them its own way
    for indexer in indexers:
        hooks.append(indexer.register_forward_pre_hook(lambda *_: asleep.append(True)))
        hooks.append(indexer.register_forward_hook(lambda *_: asleep.clear()))
    originals = {n: f for n, f in vars(module).items() if inspect.isfunction(f) and ROTATES.search(n)}

    def wrap(function: Any) -> Any:
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            result = function(*args, **kwargs)
            if asleep:
                return result
            record(found, function, args, kwargs, result)
            if layer[0] is not None:
                found.layers.add(layer[0])
            return result

        return wrapped

    for name, function in originals.items():
        setattr(module, name, wrap(function))
    try:
        yield found
    finally:
        for name, function in originals.items():
            setattr(module, name, function)
        for hook in hooks:
            hook.remove()


def record(found: Captured, function: Any, args: Any, kwargs: Any, result: Any) -> None:
    bound = inspect.signature(function).bind(*args, **kwargs)
    tables = [t for t in tensors_of(bound.arguments) if is_table(t)]
    values = [plain(t) for t in tables]
    if values and not any(same(values, known) for known in found.tables):
        found.tables.append(values)
    found.pairings.add(pairing_of(function, bound))


def tensors_of(arguments: dict[str, Any]) -> list[torch.Tensor]:
    named = []
    for name, value in arguments.items():
        if re.search(r"cos|sin|freq|emb|rope|rotary|pos", name):
            named += [
                v
                for v in (value if isinstance(value, (tuple, list)) else [value])
                if isinstance(v, torch.Tensor)
            ]
    return named


def is_table(tensor: torch.Tensor) -> bool:
    return tensor.is_complex() or tensor.is_floating_point()


def plain(tensor: torch.Tensor) -> np.ndarray:
    array = tensor.detach().numpy()
    return array.reshape(-1, array.shape[-1]) if array.ndim > 1 else array


def same(a: list[np.ndarray], b: list[np.ndarray]) -> bool:
    return len(a) == len(b) and all(
        x.shape == y.shape and np.array_equal(x, y) for x, y in zip(a, b, strict=True)
    )


def pairing_of(function: Any, bound: inspect.BoundArguments) -> str | None:
    """Which channels of the first argument the function mixes, found by turning one channel at a time."""
    names = list(bound.arguments)
    query = bound.arguments[names[0]]
    if not isinstance(query, torch.Tensor) or query.is_complex():
        return None
    width = query.shape[-1]
    support = []
    for channel in range(min(width, 64)):
        one = torch.zeros_like(query)
        one[..., channel] = 1
        arguments = dict(bound.arguments) | {names[0]: one}
        with torch.no_grad():
            out = function(**arguments)
        out = out[0] if isinstance(out, tuple) else out
        touched = (out.reshape(-1, out.shape[-1]).abs() > 1e-6).any(0).nonzero().flatten().tolist()
        support.append(tuple(touched))
    partners = [c for c in range(1, len(support)) if support[c] == support[0] and len(support[0]) == 2]
    if partners == [1]:
        return "adjacent"
    return "half" if partners and partners[0] > 1 else None


def inputs(model: PreTrainedModel) -> dict[str, Any]:
    """13 tokens, or hidden states where the model takes no tokens."""
    taken = inspect.signature(model.forward).parameters
    tokens = torch.arange(3, 3 + LENGTH)[None]
    if re.search("Code2WavTransformer|CodePredictorModel|Qwen3OmniMoeTalkerModel", type(model).__name__):
        return {"inputs_embeds": torch.zeros(1, LENGTH, model.config.hidden_size), "use_cache": False}
    if re.search("GlmAsrEncoder", type(model).__name__):  # of two frames a row
        return {"input_features": torch.zeros(1, model.config.num_mel_bins, 2 * LENGTH)}
    if re.search("LasrEncoder", type(model).__name__):  # two convolutions of 5 frames in steps of 2, unpadded
        return {"input_features": torch.zeros(1, 2 * (2 * LENGTH + 2) + 5, model.config.num_mel_bins)}
    if "past_values" in taken:
        return {"past_values": torch.zeros(1, LENGTH * model.config.patch_length)}
    if "codes" in taken:
        return {"codes": torch.zeros(1, model.config.num_quantizers, LENGTH, dtype=torch.long)}
    if "input_values" in taken and "decoder_input_ids" in taken:
        return {"input_values": torch.zeros(1, 16000), "decoder_input_ids": tokens}
    if "input_ids" in taken and type(model).__name__ == "CsmBackboneModel":
        return {
            "input_ids": torch.zeros(1, LENGTH, model.config.num_codebooks, dtype=torch.long),
            "use_cache": False,
        }
    if "input_ids" in taken:
        return {"input_ids": tokens, "use_cache": False}
    for name in ("input_embeds", "inputs_embeds", "hidden_states"):
        if name in taken:
            return {name: torch.zeros(1, LENGTH, model.config.hidden_size)}
    if "input_features" in taken:
        width = getattr(model.config, "num_mel_bins", 80)
        return {"input_features": torch.zeros(1, width, 4 * LENGTH)}
    return {"input_ids": tokens}


def run(config_class: type[PreTrainedConfig]) -> tuple[Captured, PreTrainedConfig]:
    """One forward pass of a small model over 13 tokens, with the first sizes that it takes."""
    troubles = []
    for changes in OTHERS:
        try:
            model, module = small_model(config_class, changes)
            with capturing(model, module) as found, torch.no_grad():
                model(**inputs(model))
        except Exception as error:
            troubles.append(
                f"{type(error).__name__}: {str(error).splitlines()[0][:80] if str(error) else ''}"
            )
            continue
        return found, model.config
    raise RuntimeError(" / ".join(dict.fromkeys(troubles)))
