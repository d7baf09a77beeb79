"""Formats that are no config.json of transformers: what they mean, against formulas of their own code."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np
import pytest

from pe_cli.encodings.rope.scaling import frequencies
from pe_cli.errors import PeError
from pe_cli.models.configuration import Configuration
from pe_cli.models.layers import FUNCTIONS
from pe_cli.models.resolve import resolve_configuration
from pe_cli.models.resolved import Resolved

LLAMA3 = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
META = {"dim": 4096, "n_heads": 32, "n_layers": 32, "rope_theta": 5e5}
DEEPSEEK = {"dim": 7168, "n_heads": 128, "kv_lora_rank": 512, "qk_rope_head_dim": 64}
MISTRAL = {"dim": 3072, "n_heads": 32, "head_dim": 128}


def resolved(config: dict[str, Any], **options: Any) -> Resolved:
    return resolve_configuration(
        Configuration("config.json", config, model_type=config.get("model_type", "")), **options
    )


def inv_freq(found: Resolved) -> np.ndarray:
    taken = {k: v for k, v in found.parameters.items() if k not in ("dim", "base", "layout", "sections")}
    made = frequencies(found.parameters["dim"], base=found.parameters["base"], **taken)
    return np.array([float(w) for w in made.inv_freq])


def plain(base: float, dim: int) -> np.ndarray:
    return base ** (-np.arange(0, dim, 2) / dim)


def llama3(base: float, dim: int, factor: float, high: float, old: float = 8192.0) -> np.ndarray:
    """apply_scaling of Meta's llama3/model.py, for a low frequency factor of 1."""
    scaled = []
    for w in plain(base, dim):
        wavelength = 2 * math.pi / w
        if wavelength < old / high:
            scaled.append(w)
        elif wavelength > old:
            scaled.append(w / factor)
        else:
            smooth = (old / wavelength - 1) / (high - 1)
            scaled.append((1 - smooth) * w / factor + smooth * w)
    return np.array(scaled)


def yarn(
    base: float, dim: int, factor: float, original: int, fast: float, slow: float, *, rounded: bool
) -> np.ndarray:
    """YaRN's ramp between the pairs that turn `fast` and `slow` times within the original length."""
    low, high = (
        dim * math.log(original / (turns * 2 * math.pi)) / (2 * math.log(base)) for turns in (fast, slow)
    )
    if rounded:
        low, high = max(math.floor(low), 0), min(math.ceil(high), dim - 1)
    ramp = np.clip((np.arange(dim // 2) - low) / (high - low), 0, 1)
    w = plain(base, dim)
    return w / factor * ramp + w * (1 - ramp)


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (META | {"use_scaled_rope": True}, llama3(5e5, 128, 8, 4)),
        (META, plain(5e5, 128)),
        (META | {"use_scaled_rope": True, "nope_layer_interval": 4}, llama3(5e5, 128, 16, 1 + 1e-12)),
        (META | {"use_scaled_rope": True, "moe_args": {"x": 1}, "rope_scaling_factor": 12.0, "rope_high_freq_factor": 2.0}, llama3(5e5, 128, 12, 2)),
        (MISTRAL | {"moe": {"num_experts": 8}}, plain(1e6, 128)),
        (MISTRAL | {"rope_theta": 1e5, "yarn": {"factor": 16, "original_max_position_embeddings": 16384, "beta": 32, "alpha": 1, "apply_scale": False}},
         yarn(1e5, 128, 16, 16384, 32, 1, rounded=True)),
        (DEEPSEEK, yarn(1e4, 64, 40, 4096, 32, 1, rounded=True)),
        (DEEPSEEK | {"max_seq_len": 4096}, plain(1e4, 64)),
        ({"rope_ntk_alpha": 1, "rope_ntk_beta": 32, "initial_context_length": 4096, "rope_scaling_factor": 32.0, "rope_theta": 150000, "head_dim": 64},
         yarn(150000, 64, 32, 4096, 32, 1, rounded=False)),
        ({"emb_dim": 2048, "n_heads": 32, "rope_base": 5e5, "rope_freq": LLAMA3 | {"original_context_length": 8192}}, llama3(5e5, 64, 8, 4)),
        ({"n_embd": 4096, "n_head": 32, "block_size": 8192, "rotary_percentage": 0.5, "rope_base": 1e5, "rope_condense_ratio": 4}, plain(1e5, 64) / 4),
        ({"encoder_seq_length": 4096, "hidden_size": 4096, "num_attention_heads": 32, "rotary_base": 2e4, "seq_len_interpolation_factor": 2, "position_embedding_type": "rope"},
         plain(2e4, 128) / 2),
        ({"architecture": "X", "position_embedding_type": "rope_gptj", "hidden_size": 512, "num_attention_heads": 4, "rotary_base": 1e5,
          "rotary_scaling": {"type": "linear", "factor": 2.0}}, plain(1e5, 128) / 2),
        ({"model_type": "stripedhyena", "hidden_size": 512, "num_attention_heads": 4, "use_interpolated_rotary_pos_emb": True, "rotary_emb_scaling_factor": 16},
         plain(1e4, 128) / 16),
        ({"model_type": "mpt", "d_model": 512, "n_heads": 4, "attn_config": {"alibi": False, "rope": True, "rope_theta": 5e5}}, plain(5e5, 128)),
        ({"model_type": "dbrx", "d_model": 512, "n_heads": 4, "attn_config": {"rope_theta": 5e5}}, plain(5e5, 128)),
        ({"model_type": "phi3small", "hidden_size": 512, "num_attention_heads": 4, "rope_embedding_base": 1e6, "rope_position_scale": 1.0}, plain(1e6, 128)),
        ({"model_type": "internlm", "hidden_size": 512, "num_attention_heads": 4, "rotary": {"base": 1e6, "type": "origin"}}, plain(1e6, 128)),
        ({"model_type": "samba", "hidden_size": 512, "attn": {"num_heads": 8, "rope_theta": 2e4}}, plain(2e4, 64)),
        ({"model_type": "moss", "n_embd": 512, "n_head": 4, "rotary_dim": 64}, plain(1e4, 64)),
        ({"model_type": "deepseek_v2", "hidden_size": 512, "num_attention_heads": 4, "use_mla": False, "qk_rope_head_dim": 0}, plain(1e4, 128)),
        ({"model_type": "new", "hidden_size": 512, "num_attention_heads": 4, "rope_theta": 1e4, "max_position_embeddings": 8192,
          "rope_scaling": {"type": "ntk", "factor": 8.0}}, plain(8e4, 128) / 8 ** (2 / 128)),
        ({"version": "0.1", "quantization": "q4", "model_type": "llama", "model_config": {"hidden_size": 512, "num_attention_heads": 4, "vocab_size": 1,
          "position_embedding_base": 3e5}}, plain(3e5, 128)),
    ],
)  # fmt: skip
def test_frequencies(config: dict[str, Any], expected: np.ndarray) -> None:
    np.testing.assert_allclose(inv_freq(resolved(config)), expected, rtol=1e-9)


@pytest.mark.parametrize("length", [4096, 8192, 16384, 32768])
def test_the_base_of_qwen_1_grows_with_the_length(length: int) -> None:
    config = {
        "model_type": "qwen", "hidden_size": 4096, "num_attention_heads": 32, "seq_length": 8192, "use_dynamic_ntk": True,
    }  # fmt: skip
    alpha = max(2 ** math.ceil(math.log2(length / 8192) + 1) - 1, 1)
    found = resolved(config, seq_len=length)
    np.testing.assert_allclose(inv_freq(found), plain(1e4 * alpha ** (128 / 126), 128), rtol=1e-9)


def test_internlm_grows_its_base_too() -> None:
    config = {
        "model_type": "internlm", "hidden_size": 512, "num_attention_heads": 4, "max_position_embeddings": 2048,
        "rotary": {"base": 10000, "type": "dynamic"},
    }  # fmt: skip
    found = resolved(config, seq_len=8192)
    np.testing.assert_allclose(inv_freq(found), plain(1e4 * 4 ** (128 / 126), 128), rtol=1e-9)


def test_origins_are_keys_of_the_file() -> None:
    found = resolved(META | {"use_scaled_rope": True})
    assert found.origins["dim"] == "dim 4096 / n_heads 32"
    assert found.origins["factor"].startswith("use_scaled_rope")
    assert any("rope_factor is not in config.json: 40" in w for w in resolved(DEEPSEEK).warnings)


@pytest.mark.parametrize(
    ("config", "layout", "pairing"),
    [
        ({"model_type": "chatglm", "original_rope": True}, "interleaved", "adjacent"),
        ({"model_type": "chatglm", "original_rope": False}, "half", "half"),
        ({"model_type": "chatglm", "position_encoding_2d": True}, "half", "half"),
        ({"model_type": "nomic_bert", "rotary_emb_interleaved": True}, "adjacent", "adjacent"),
        ({"model_type": "deepseek_v3"}, "half", "adjacent"),
        ({"model_type": "deepseek_v3", "rope_interleave": False}, "half", "half"),
        ({"model_type": "glm4"}, "half", "adjacent"),
        ({"model_type": "glm4_moe"}, "half", "half"),
        (META, "complex", "adjacent"),
    ],
)
def test_pairing_and_layout(config: dict[str, Any], layout: str, pairing: str) -> None:
    found = resolved(config)
    assert (found.parameters["layout"], found.pairing) == (layout, pairing)


def test_bases_by_layer_type_of_a_training_from_scratch() -> None:
    config = {"emb_dim": 640, "n_heads": 4, "head_dim": 256, "rope_base": 1e6, "rope_local_base": 1e4}
    bases = [
        resolved(config, layer_type=f"{kind}_attention").parameters["base"] for kind in ("full", "sliding")
    ]
    assert bases == [1e6, 1e4]


@pytest.mark.parametrize(
    ("config", "positions", "expected"),
    [
        (MISTRAL | {"llama_4_scaling": {"beta": 0.1, "original_max_position_embeddings": 4}}, [3, 4, 9], 1 + 0.1 * np.log([1, 2, 3])),
        (META | {"nope_layer_interval": 4, "attn_temperature_tuning": True}, [0, 8191], 1 + 0.1 * np.log([1, 2])),
        ({"model_type": "beam"}, [0, 2047], np.array([1 + 1 / 2048, 2]) ** 0.1),
        ({"model_type": "qwen", "seq_length": 4, "use_logn_attn": True}, [1, 3, 15], [1, 1, 2]),
    ],
)  # fmt: skip
def test_temperature_of_queries(config: dict[str, Any], positions: list[int], expected: Any) -> None:
    (table,) = (t for t in resolved(config).extra_tables if t.name == "query-temperature")
    made = FUNCTIONS[table.name](np.array(positions), **table.parameters)
    np.testing.assert_allclose(made, expected, rtol=1e-12)


@pytest.mark.parametrize(
    ("config", "layers"),
    [
        ({"model_type": "cohere2", "num_hidden_layers": 5}, (1, 1, 1, 0, 1)),
        ({"model_type": "cohere2", "num_hidden_layers": 5, "sliding_window_pattern": 2}, (1, 0, 1, 0, 1)),
        ({"model_type": "afmoe", "num_hidden_layers": 4, "global_attn_every_n_layers": 3}, (1, 1, 0, 1)),
        ({"model_type": "flint", "num_hidden_layers": 7}, (0, 0, 1, 1, 1, 0, 0)),
        ({"model_type": "lara_mini", "num_hidden_layers": 5}, (0, 1, 0, 0, 1)),
        ({"model_type": "beam", "num_hidden_layers": 8}, (1, 1, 1, 1, 1, 0, 1, 0)),
        ({"model_type": "muse_spark_text", "num_hidden_layers": 6}, (1, 0, 1, 1, 1, 0)),
        ({"model_type": "exaone4", "num_hidden_layers": 4, "sliding_window": None}, None),
        (META | {"nope_layer_interval": 2, "n_layers": 4}, (1, 0, 1, 0)),
    ],
)
def test_layers_that_rotate(config: dict[str, Any], layers: tuple[int, ...] | None) -> None:
    tables = [t.parameters["layers"] for t in resolved(config).extra_tables if t.name == "rotated-layers"]
    assert tables == ([] if layers is None else [layers])


def test_bases_by_layer() -> None:
    config = {
        "model_type": "granite_swa",
        "num_hidden_layers": 2,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1e4},
    }
    assert resolved(config | {"layer_rope_theta": [5e5, 0]}).parameters["base"] == 5e5
    with pytest.raises(PeError, match="layer_rope_theta has several bases"):
        resolved(config | {"layer_rope_theta": [5e5, 1e4]})


def test_architectures_stand_in_for_the_model_type() -> None:
    found = resolved({"architectures": ["LlamaForCausalLM"], "hidden_size": 512, "num_attention_heads": 4})
    assert found.model_type == "llama"
    assert any("there is no model_type" in warning for warning in found.warnings)
    with pytest.raises(PeError, match=r"learned table of shape \(514, 768\)"):
        resolved(
            {"architectures": ["RobertaForMaskedLM"], "hidden_size": 768, "max_position_embeddings": 514}
        )
    alibi = resolved(
        {"alibi_starting_size": 512, "num_attention_heads": 12, "position_embedding_type": "absolute"}
    )
    assert (alibi.encoding, alibi.parameters["heads"]) == ("alibi", 12)


def test_a_guess_of_the_trained_length_is_called_one() -> None:
    config = {"model_type": "cohere", "max_position_embeddings": 8192, "model_max_length": 131072}
    found = resolved(config)
    assert found.trained_length == 8192
    assert found.trained_origin == "a guess: the longest length of the model; model_max_length is 131072"
    scaled = {
        "model_type": "llama",
        "rope_scaling": {"rope_type": "llama3", **LLAMA3, "original_max_position_embeddings": 8192},
    }
    assert resolved(scaled).trained_origin == "rope_scaling.original_max_position_embeddings"
    chunk = {"chunk_size": 3, "original_max_position_embeddings": 3}
    chunked = resolved(
        {"model_type": "qwen2", "max_position_embeddings": 9, "dual_chunk_attention_config": chunk}
    )
    assert (chunked.trained_length, chunked.unread) == (3, ("dual_chunk_attention_config.chunk_size",))


GROK = {
    "model_type": "git", "architectures": ["Grok1ForCausalLM"], "hidden_size": 8192, "num_attention_heads": 64, "head_dim": 128,
    "max_position_embeddings": 131072, "rope_theta": 208533496, "scaling_factor": 16.0, "beta_fast": 8, "beta_slow": 1,
    "original_max_position_embeddings": 8192, "extrapolation_factor": 1.0, "attn_factor": 1.0,
}  # fmt: skip


def test_grok_2_scales_as_its_rope_type_says() -> None:
    plain = resolved(GROK | {"rope_type": "original"})
    assert "scaling" not in plain.parameters
    assert not plain.unread
    yarn = resolved(GROK | {"rope_type": "yarn"}).parameters
    assert (yarn["scaling"], yarn["factor"], yarn["original_len"], yarn["beta_fast"]) == (
        "yarn",
        16.0,
        8192,
        8.0,
    )
    assert yarn["attention_factor"] == 1.0
    assert resolved(GROK | {"rope_type": "yarn", "rope_rotate_half_dims": True}).parameters["dim"] == 64
    with pytest.raises(PeError, match="rope_type 'yarn_log' is not known here"):
        resolved(GROK | {"rope_type": "yarn_log"})


def test_chatglm2_divides_positions_by_its_ratio_and_later_ones_multiply_the_base() -> None:
    config = {
        "model_type": "chatglm",
        "kv_channels": 128,
        "num_layers": 28,
        "seq_length": 32768,
        "rope_ratio": 16,
    }
    second = resolved(config | {"_name_or_path": "THUDM/chatglm2-6b"}).parameters
    assert (second["scaling"], second["factor"], second["base"]) == ("linear", 16.0, 10000.0)
    third = resolved(config | {"_name_or_path": "THUDM/chatglm3-6b"}).parameters
    assert ("scaling" in third, third["base"]) == (False, 160000.0)


def test_vision_encoder_of_mistral_turns_on_two_axes() -> None:
    params = {
        "dim": 5120, "n_layers": 40, "head_dim": 128, "n_heads": 32, "rope_theta": 1e9,
        "vision_encoder": {"hidden_size": 1024, "image_size": 1024, "patch_size": 16, "num_attention_heads": 16, "rope_theta": 1e4},
    }  # fmt: skip
    found = resolved(params, component="vision_encoder")
    assert (found.axes, found.parameters["axis_style"], found.pairing) == (2, "pixtral", "adjacent")
    assert not found.unread


def test_a_model_of_images_is_never_read_as_one_of_text() -> None:
    tower = {"model_type": "my_own_vit", "hidden_size": 1152, "num_attention_heads": 16, "patch_size": 14}
    with pytest.raises(PeError, match="a model of images"):
        resolved(tower | {"rope_theta": 1e4})
    with pytest.raises(PeError, match="pe inspect CHECKPOINT"):
        resolved(tower)


def test_a_file_without_a_model_type_is_read_as_loudly_as_an_unknown_type() -> None:
    config = {"hidden_size": 512, "num_attention_heads": 4, "rope_theta": 1e4}
    assert any(
        "there is no model_type in it; it is read as a plain" in said for said in resolved(config).warnings
    )
    with pytest.raises(PeError, match=r"does not understand: rope_twist"):
        resolved(config | {"rope_twist": 2})
    with pytest.raises(PeError, match="did you mean 'gptj'"):
        resolved(config | {"model_type": "gpt_j"})


TENCENT = {"heads_num": 8, "layers_num": 6, "hidden_size": 512, "emb_size": 512}
NEMO = {"encoder_seq_length": 4096, "num_attention_heads": 8, "hidden_size": 512}
NEOX = {"pipe_parallel_size": 1, "hidden_size": 512, "num_attention_heads": 8, "max_position_embeddings": 64}
TRT = {
    "architecture": "ForCausalLM",
    "hidden_size": 512,
    "num_attention_heads": 8,
    "mapping": {"world_size": 1},
}
MODERN = {"text_arch": "modern", "context_length": 256, "width": 512, "heads": 8}


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (TENCENT | {"embedding": ["word"], "alibi_position_embedding": True}, ("alibi", None)),
        (TENCENT | {"embedding": ["word"], "rotary_position_embedding": True}, ("rope", "adjacent")),
        (TENCENT | {"embedding": ["word"], "relative_position_embedding": True}, ("t5", None)),
        (NEMO | {"position_embedding_type": "rope", "rotary_interleaved": True}, ("rope", "adjacent")),
        (NEOX | {"pos_emb": "rotary", "rotary_pct": 0.5, "rope_fusion": False}, ("rope", "half")),
        (NEOX | {"pos_emb": "rpe", "rpe_num_buckets": 16}, ("t5", None)),
        ({"model": {"name": "mpt_causal_lm", "d_model": 512, "n_heads": 8, "attn_config": {"alibi": True}}}, ("alibi", None)),
        ({"model": {"name": "mpt_causal_lm", "d_model": 512, "n_heads": 8, "attn_config": {"rope": True}}}, ("rope", "half")),
        ({"model": {"model_config": {"is_llama_config": True, "hidden_size": 512, "num_attention_heads": 8, "rope_interleaved": True}}}, ("rope", "adjacent")),
        ({"embed_dim": 512, "text_cfg": MODERN}, ("rope", "adjacent")),
        ({"model_type": "transformer", "hidden_size": 512, "num_heads": 8}, ("rope", "half")),
        (TRT | {"position_embedding_type": "alibi", "rotary_base": 1e4}, ("alibi", None)),
        (TRT | {"position_embedding_type": "learned_absolute", "kv_lora_rank": 512, "qk_rope_head_dim": 64}, ("rope", "adjacent")),
        ({"model_type": "kimi_k25", "vision_config": {"vt_hidden_size": 512, "vt_num_attention_heads": 8}}, ("rope", "adjacent")),
        ({"model_type": "newer_vlm", "hidden_size": 512, "llm_config": {"model_type": "llama", "hidden_size": 512, "num_attention_heads": 8}}, ("rope", "half")),
    ],
)  # fmt: skip
def test_trainings_say_in_their_own_keys_what_they_use(
    config: dict[str, Any], expected: tuple[str, str | None]
) -> None:
    found = resolved(config)
    assert (found.encoding, found.pairing, found.unread) == (*expected, ())
    if found.encoding == "rope":
        width = 32 if "rotary_pct" in config else 64
        np.testing.assert_allclose(inv_freq(found), plain(1e4, width), rtol=1e-12)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (TENCENT | {"embedding": ["word"]}, "no encoding of positions"),
        (TENCENT | {"embedding": ["word", "pos", "seg"]}, "learned table of shape (512, 512)"),
        (TENCENT | {"embedding": ["word", "sinusoidalpos"]}, "style paper --dim 512 --base X --positions 2:N"),
        (TENCENT | {"embedding": ["speech", "sinusoidalpos"], "data_processor": "s2t"}, "style t2t --dim 512 --positions 2:N"),
        (NEMO | {"position_embedding_type": "none"}, "no encoding of positions"),
        (NEOX, "learned table of shape (64, 512)"),
        ({"model": {"encoder": {"self_attention_model": "rel_pos", "d_model": 512, "n_heads": 8}}}, "Transformer-XL"),
        ({"model": {"name": "mpt_causal_lm", "d_model": 512, "n_heads": 8, "max_seq_len": 64}}, "learned table of shape (64, 512)"),
        ({"embed_dim": 512, "text_cfg": MODERN | {"pos_embed": "none"}}, "no encoding of positions"),
        ({"embed_dim": 512, "text_cfg": {"hf_model_name": "roberta-base"}}, "the model roberta-base"),
        ({"model_type": "forgetting_transformer", "hidden_size": 512}, "pe gen fox"),
    ],
)  # fmt: skip
def test_trainings_without_a_rotation_say_what_they_have(config: dict[str, Any], message: str) -> None:
    with pytest.raises(PeError, match=re.escape(message)):
        resolved(config)


def test_open_clip_towers_of_other_kinds() -> None:
    tower = {"width": 1024, "image_size": 224, "patch_size": 14}
    model = {"embed_dim": 512, "text_cfg": {"hf_model_name": "roberta-base"}, "vision_cfg": tower}
    with pytest.raises(PeError, match="turn besides"):
        resolved(model | {"vision_cfg": tower | {"rope": True}}, component="vision_cfg")
    with pytest.raises(PeError, match="is vit_base of timm"):
        resolved(model | {"vision_cfg": {"timm_model_name": "vit_base"}}, component="vision_cfg")


def test_relative_positions_of_tensorrt_llm_are_those_of_t5() -> None:
    config = {
        "architecture": "EncoderModel",
        "hidden_size": 768,
        "num_attention_heads": 12,
        "position_embedding_type": "relative",
    }
    encoder, decoder = resolved(config), resolved(config | {"architecture": "DecoderModel"})
    assert (encoder.encoding, encoder.parameters["bidirectional"]) == ("t5", True)
    assert (decoder.encoding, decoder.parameters["bidirectional"]) == ("t5", False)
