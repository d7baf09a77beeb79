"""Configurations as people have them → the arguments of an encoding, and what is said where they fall short."""

from __future__ import annotations

import contextlib
import copy
import json
import math
import random
from pathlib import Path
from typing import Any

import pytest

from pe_cli.errors import PeError
from pe_cli.models.configuration import Configuration, data
from pe_cli.models.layers import layer_kinds
from pe_cli.models.resolve import from_config, resolve, resolve_configuration
from pe_cli.models.resolved import KeyLedger, Resolved

LLAMA = {
    "model_type": "llama",
    "hidden_size": 1024,
    "num_attention_heads": 8,
    "max_position_embeddings": 8192,
}
GEMMA = {
    "model_type": "gemma3_text",
    "rope_theta": 1e6,
    "rope_scaling": {"rope_type": "linear", "factor": 8.0},
}
YARN = {"factor": 4.0, "original_max_position_embeddings": 2048}


def resolved(values: dict[str, Any], **options: Any) -> Resolved:
    config = Configuration("config.json", values, model_type=str(values.get("model_type") or ""))
    return resolve_configuration(config, **options)


def arguments(values: dict[str, Any], **options: Any) -> dict[str, Any]:
    return resolved(values, **options).parameters


@pytest.mark.parametrize(
    ("kind", "rest", "seq_len"),
    [
        ("linear", {"factor": 4.0}, None),
        ("dynamic", {"factor": 2.0}, 16384),
        ("yarn", {**YARN, "beta_fast": 16.0, "mscale": 1.0, "mscale_all_dim": 0.5}, None),
        ("llama3", {**YARN, "low_freq_factor": 1.0, "high_freq_factor": 4.0}, None),
        ("longrope", {**YARN, "short_factor": [1.0] * 64, "long_factor": [2.0] * 64}, 4096),
    ],
)
def test_the_old_and_the_new_spelling_mean_the_same(
    kind: str, rest: dict[str, Any], seq_len: int | None
) -> None:
    old = arguments(LLAMA | {"rope_theta": 5e4, "rope_scaling": {"type": kind, **rest}}, seq_len=seq_len)
    newer = arguments(
        LLAMA | {"rope_theta": 5e4, "rope_scaling": {"rope_type": kind, **rest}}, seq_len=seq_len
    )
    new = arguments(
        LLAMA | {"rope_parameters": {"rope_type": kind, "rope_theta": 5e4, **rest}}, seq_len=seq_len
    )
    assert old == newer == new
    assert old["base"] == 5e4
    assert old["factor"] == rest["factor"]


@pytest.mark.parametrize(
    ("config", "dim", "base"),
    [
        (
            {"model_type": "gpt_neox", "hidden_size": 6144, "num_attention_heads": 64, "rotary_pct": 0.25},
            24,
            1e4,
        ),
        (
            {"model_type": "gpt_neox", "head_dim": 80, "rotary_pct": 0.5, "rotary_emb_base": 25000},
            40,
            25000.0,
        ),
        ({"model_type": "gptj", "n_embd": 4096, "n_head": 16, "rotary_dim": 64}, 64, 1e4),
        ({"model_type": "stablelm_epoch", "head_dim": 80, "rope_pct": 0.25, "rope_theta": 1e4}, 20, 1e4),
        ({"model_type": "qwen", "kv_channels": 128, "rotary_emb_base": 10000, "rotary_pct": 1.0}, 128, 1e4),
        ({"model_type": "chatglm", "kv_channels": 128, "rope_ratio": 500}, 64, 5e6),
        ({"model_type": "minimax_m2", "head_dim": 128, "rotary_dim": 64, "rope_theta": 5e6}, 64, 5e6),
        ({"model_type": "deepseek_v3", "qk_rope_head_dim": 64, "rope_theta": 1e4}, 64, 1e4),
        ({"model_type": "dbrx", "d_model": 6144, "n_heads": 48, "rope_theta": 5e5}, 128, 5e5),
        ({"model_type": "zamba2", "hidden_size": 2560, "num_attention_heads": 32}, 160, 1e4),
        ({"hidden_size": 512, "num_attention_heads": 8, "rope_theta": 777.0}, 64, 777.0),
    ],
    ids=lambda value: value.get("model_type", "none") if isinstance(value, dict) else None,
)
def test_older_names_of_width_and_base(config: dict[str, Any], dim: int, base: float) -> None:
    found = arguments(config)
    assert (found["dim"], found["base"]) == (dim, base)


def test_an_odd_width_keeps_its_number_in_the_exponents() -> None:
    found = arguments({"model_type": "qwen3_omni_moe_text", "hidden_size": 2048, "num_attention_heads": 28})
    assert int(found["dim"] * found["partial"]) == 2048 // 28 == 73


def test_a_default_is_loud_and_names_its_model_type() -> None:
    found = resolved(LLAMA)
    assert found.parameters["base"] == 1e4
    (warning,) = found.warnings
    assert "rope_theta is not in config.json" in warning
    assert "'llama'" in warning
    assert "LlamaConfig" in found.origins["base"]


def test_each_model_type_has_its_own_default() -> None:
    assert arguments({"model_type": "smollm3"})["base"] == 2e6
    assert arguments({"model_type": "gpt_oss"})["scaling"] == "yarn"
    assert arguments({"model_type": "gpt_oss"})["layout"] == "split"
    assert arguments({"model_type": "cohere"})["layout"] == "adjacent"
    assert arguments({"model_type": "llama4_text"})["layout"] == "complex"


def test_a_value_in_the_file_is_said_with_its_path() -> None:
    config = {
        "model_type": "gemma3",
        "text_config": {"model_type": "gemma3_text", "head_dim": 128, "rope_theta": 5e5},
    }
    found = resolved(config, component="text_config", layer_type="full_attention")
    assert found.origins["base"] == "text_config.rope_theta"
    assert found.origins["dim"] == "text_config.head_dim"
    assert not found.warnings


class TestLayerTypes:
    def test_scaling_goes_to_the_global_layers_only(self) -> None:
        full = arguments(GEMMA, layer_type="full_attention")
        local = arguments(GEMMA | {"rope_local_base_freq": 1e4}, layer_type="sliding_attention")
        assert (full["base"], full["scaling"], full["factor"]) == (1e6, "linear", 8.0)
        assert local["base"] == 1e4
        assert "scaling" not in local

    def test_one_has_to_be_chosen(self) -> None:
        with pytest.raises(PeError, match=r"layer_type: full_attention, sliding_attention"):
            resolved(GEMMA)
        with pytest.raises(PeError, match="did you mean 'full_attention'"):
            resolved(GEMMA, layer_type="full_atention")

    def test_a_null_type_does_not_rotate(self) -> None:
        config = {
            "head_dim": 64,
            "rope_parameters": {"full_attention": None, "sliding_attention": {"rope_theta": 1e4}},
        }
        found = resolved(config)
        assert found.layer_type == "sliding_attention"
        with pytest.raises(PeError, match="NoPE"):
            resolved(config, layer_type="full_attention")

    def test_a_head_may_be_wider_in_one_type(self) -> None:
        config = {"model_type": "gemma4_text", "head_dim": 256, "global_head_dim": 512}
        full = arguments(config, layer_type="full_attention")
        assert (full["dim"], full["scaling"], full["partial"]) == (512, "proportional", 0.25)
        assert arguments(config, layer_type="sliding_attention")["dim"] == 256

    def test_types_that_share_a_table_are_one(self) -> None:
        config = LLAMA | {"rope_theta": 1e4, "layer_types": ["full_attention", "sliding_attention"]}
        assert arguments(config, layer_type="full_attention") == arguments(config)
        with pytest.raises(PeError, match="no layer type 'conv'"):
            resolved(config, layer_type="conv")

    def test_a_list_of_bases_goes_by_layer(self) -> None:
        config = {
            "model_type": "step3p5",
            "layer_types": ["sliding_attention", "full_attention"],
            "rope_theta": [1e4, 5e6],
            "partial_rotary_factors": [1.0, 0.5],
        }
        assert arguments(config, layer_type="full_attention") == {"dim": 64, "base": 5e6, "layout": "half"}


class TestComponents:
    def test_the_one_text_part_is_used_and_said(self) -> None:
        config = {
            "model_type": "llava",
            "text_config": {"model_type": "llama"},
            "vision_config": {"hidden_size": 1024},
        }
        found = resolved(config)
        assert (found.component, found.parameters["dim"]) == ("text_config", 128)
        assert "the component text_config" in found.notes[0]

    def test_several_parts_are_listed(self) -> None:
        with pytest.raises(PeError, match=r"component: .*decoder_config.*encoder_config"):
            resolved({"model_type": "dia"})

    def test_a_part_may_be_left_out_of_the_file(self) -> None:
        found = resolved({"model_type": "dia"}, component="decoder_config")
        assert found.parameters["dim"] == 128
        assert any("not in config.json" in note for note in found.notes)

    def test_older_files_have_the_text_at_the_root(self) -> None:
        scaling = {"type": "mrope", "mrope_section": [16, 24, 24]}
        config = {
            "model_type": "qwen2_vl", "hidden_size": 3584, "num_attention_heads": 28, "rope_theta": 1e6, "rope_scaling": scaling,
        }  # fmt: skip
        found = resolved(config, component="text_config")
        assert found.parameters == {"dim": 128, "base": 1e6, "layout": "half", "sections": (16, 24, 24)}

    def test_dots_go_deeper(self) -> None:
        config = {"model_type": "qwen3_omni_moe", "thinker_config": {"text_config": {"head_dim": 64}}}
        found = resolved(config, component="thinker_config.text_config")
        assert (found.model_type, found.parameters["dim"]) == ("qwen3_omni_moe_text", 64)

    def test_a_part_that_is_not_there(self) -> None:
        with pytest.raises(PeError, match="did you mean 'text_config'"):
            resolved({"model_type": "llava", "text_config": {}}, component="text_confg")


class TestScalings:
    def test_the_original_length_at_the_root_wins(self) -> None:
        scaling = {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 1111}
        found = resolved(LLAMA | {"rope_scaling": scaling, "original_max_position_embeddings": 2222})
        assert found.parameters["original_len"] == 2222
        assert any("1111" in warning and "2222" in warning for warning in found.warnings)

    def test_a_null_factor_is_the_quotient_of_the_lengths(self) -> None:
        scaling = {"rope_type": "yarn", "factor": None, "original_max_position_embeddings": 2048}
        assert arguments(LLAMA | {"rope_scaling": scaling})["factor"] == 4.0

    def test_beta_and_mscale_of_zero_count_as_absent(self) -> None:
        scaling = {"rope_type": "yarn", **YARN, "beta_fast": 0, "mscale": 0, "mscale_all_dim": 0}
        assert (
            not {"beta_fast", "mscale", "mscale_all_dim"}
            & arguments(LLAMA | {"rope_scaling": scaling}).keys()
        )

    def test_hunyuan_calls_a_fixed_change_of_base_dynamic(self) -> None:
        config = {
            "model_type": "hunyuan_v1_dense",
            "head_dim": 128,
            "rope_scaling": {"type": "dynamic", "alpha": 1000.0},
        }
        found = arguments(config)
        assert (found["scaling"], found["factor"]) == ("ntk", 1000.0)

    def test_minitron_repeats_the_part_that_turns(self) -> None:
        """NVIDIA's Minitron files have rope_percent and partial_rotary_factor, which say the same."""
        shape = {"model_type": "nemotron", "hidden_size": 4096, "num_attention_heads": 32}
        both = resolved(shape | {"rope_percent": 0.5, "partial_rotary_factor": 0.5})
        assert (both.parameters["dim"], both.unread) == (64, ())
        differing = resolved(shape | {"rope_percent": 0.25, "partial_rotary_factor": 0.5})
        assert (differing.parameters["dim"], differing.unread) == (64, ("rope_percent",))

    def test_ernie_vl_of_its_own_code_is_that_of_transformers(self) -> None:
        """vLLM's ernie45_vl_moe.py: of 64 pairs freq_allocation turn with time, and rows and columns share the rest."""
        own = {"model_type": "ernie4_5_moe_vl", "rope_3d": True, "freq_allocation": 20}
        shape = {"hidden_size": 2560, "num_attention_heads": 20, "rope_theta": 5e5}
        found = resolved(own | shape)
        assert found.parameters["sections"] == (22, 22, 20)
        assert found.parameters == arguments({"model_type": "ernie4_5_vl_moe_text"} | shape)
        assert resolved(own | shape | {"freq_allocation": 16}).unread == ("freq_allocation",)

    def test_deepseek_v4_does_not_magnify(self) -> None:
        found = arguments(
            {"model_type": "deepseek_v4", "rope_scaling": {"type": "yarn", **YARN}}, layer_type="compress"
        )
        assert (found["attention_factor"], found["base"], found["dim"]) == (1.0, 160000.0, 64)

    def test_deepseek_v4_by_layer_type_magnifies(self) -> None:
        """DeepseekV4RotaryEmbedding.main_attention_scaling of transformers 5.24.0, for a factor of 6.5."""
        scaling = {
            "rope_type": "yarn",
            "factor": 6.5,
            "original_max_position_embeddings": 4096,
            "rope_theta": 1e4,
        }
        config = {"model_type": "deepseek_v4", "rope_parameters": {"main": scaling, "compress": scaling}}
        for label in ("main", "compress"):
            found = resolved(config, layer_type=label)
            assert "attention_factor" not in found.parameters
            assert found.parameters["dim"] == 64
            table = from_config(config, [0], layer_type=label)
            assert table.facts["attention_factor"] == pytest.approx(1.1871802176901591)
            assert any("attention_factor is not in" in warning for warning in found.warnings)
        said = {"main": scaling | {"attention_factor": 1.0}, "compress": scaling}
        found = resolved(config | {"rope_parameters": said}, layer_type="main")
        assert found.parameters["attention_factor"] == 1.0
        assert not any("attention_factor" in warning for warning in found.warnings)

    def test_phimoe_has_a_magnitude_for_each_list(self) -> None:
        lists = {
            "short_factor": [1.0] * 64,
            "long_factor": [2.0] * 64,
            "short_mscale": 1.2,
            "long_mscale": 1.3,
        }
        config = {"model_type": "phimoe", "rope_scaling": {"type": "longrope", **YARN, **lists}}
        assert arguments(config, seq_len=100)["attention_factor"] == 1.2
        long = resolved(config, seq_len=100000)
        assert long.parameters["attention_factor"] == 1.3
        assert any("short_factor at every length" in warning for warning in long.warnings)

    def test_telechat_has_a_slope_of_its_own(self) -> None:
        found = arguments(LLAMA | {"rope_scaling": {"type": "telechat3-yarn", **YARN}})
        assert found["attention_factor"] == pytest.approx(0.07 * math.log(4.0) + 1)

    @pytest.mark.parametrize("kind", ["dynamic", "longrope"])
    def test_a_length_is_asked_for_where_the_table_depends_on_it(self, kind: str) -> None:
        lists = {"short_factor": [1.0] * 64, "long_factor": [1.0] * 64}
        with pytest.raises(PeError, match="seq_len N"):
            resolved(LLAMA | {"rope_scaling": {"type": kind, "factor": 2.0, **lists}})

    def test_truncate_inside_a_layer_type_is_honoured_and_said(self) -> None:
        scaling = {"rope_type": "yarn", "rope_theta": 5e5, **YARN, "truncate": False}
        config = {
            "model_type": "olmo3",
            "rope_parameters": {"full_attention": scaling, "sliding_attention": {"rope_theta": 5e5}},
        }
        found = resolved(config, layer_type="full_attention")
        assert found.parameters["truncate"] is False
        (warning,) = [w for w in found.warnings if "truncate" in w]
        assert "rope_parameters.full_attention.truncate" in warning
        as_transformers = resolved(config, layer_type="full_attention", truncate=True)
        assert as_transformers.parameters["truncate"] is True
        assert not any("truncate" in w for w in as_transformers.warnings)

    def test_truncate_beside_the_layer_types_goes_for_all(self) -> None:
        scaling = {"rope_type": "yarn", "rope_theta": 5e5, **YARN}
        config = {"model_type": "olmo3", "rope_parameters": {"full_attention": scaling, "truncate": False}}
        assert arguments(config, layer_type="full_attention")["truncate"] is False


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"rope_scaling": {"type": "linear", "factor": "8.0"}}, r"rope_scaling\.factor is '8\.0', a number is needed; write \"factor\": 8"),
        ({"rope_scaling": {"type": "linear", "factor": True}}, r"rope_scaling\.factor is True"),
        ({"rope_scaling": {"type": "linear"}}, r"rope_scaling\.factor is missing, which rope_type 'linear' needs"),
        ({"rope_scaling": {"type": "yarnn", **YARN}}, r"rope_scaling\.type 'yarnn' is not known here; did you mean 'yarn'"),
        ({"rope_parameters": {"rope_type": 4}}, r"rope_parameters\.rope_type is 4"),
        ({"rope_scaling": 4.0}, r"rope_scaling is 4\.0, an object is needed"),
        ({"rope_theta": -1}, r"rope_theta is -1, a positive number"),
        ({"rope_theta": math.nan}, r"rope_theta is nan"),
        ({"num_attention_heads": 8.5}, r"num_attention_heads is 8\.5, a whole number"),
        ({"rope_scaling": {"type": "yarn", **YARN, "truncate": "no"}}, r"truncate is 'no', true or false"),
        ({"num_attention_heads": 0}, r'positive number is needed; write "num_attention_heads": 8'),
        ({"rope_scaling": {"type": "fope"}}, r"learned matrices"),
    ],
    ids=lambda value: json.dumps(value)[:50] if isinstance(value, dict) else None,
)  # fmt: skip
def test_trouble_names_file_key_and_remedy(config: dict[str, Any], message: str) -> None:
    with pytest.raises(PeError, match=message) as caught:
        resolved(LLAMA | config)
    assert str(caught.value).startswith("config.json: ")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("config", "options", "message"),
    [
        ({"model_type": "bloom"}, {"truncate": True}, "this model uses alibi"),
        ({"model_type": "bloom"}, {"layer_type": "full"}, "leave layer_type full out"),
        ({"model_type": "t5"}, {"layer_type": "encodr"}, "did you mean 'encoder'"),
        ({"model_type": "bloom"}, {"component": "x"}, "has no parts; leave component x out"),
        (LLAMA, {"layer_type": "full"}, "leave layer_type full out"),
        (LLAMA, {"truncate": True}, "truncate is for YaRN"),
        ({"_class_name": "FluxTransformer2DModel"}, {"seq_len": 8}, "is not scaled"),
        ({"_class_name": "FluxTransformer2DModel"}, {"truncate": False}, "is not scaled"),
    ],
)
def test_options_that_do_not_concern_the_model(
    config: dict[str, Any], options: dict[str, Any], message: str
) -> None:
    with pytest.raises(PeError, match=message):
        resolved(config, **options)


def test_a_length_that_changes_nothing_is_told() -> None:
    for config in (LLAMA, {"model_type": "bloom"}):
        assert any("it is the same for 8" in note for note in resolved(config, seq_len=8).notes)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({}, "no model_type and no rope_theta"),
        ({"model_type": "lama", "hidden_size": 64}, "did you mean 'llama'"),
        ({"model_type": "frobnicate", "hidden_size": 64}, "add rope_theta to the file"),
        ({"model_type": "mine", "rope_theta": 1e4}, "hidden_size"),
        ({"model_type": "mistral_large4_text"}, "alpha is learned"),
        ({"model_type": "bert", "max_position_embeddings": 512, "hidden_size": 768}, r"\(512, 768\).*embeddings\.position_embeddings\.weight"),
        ({"model_type": "opt", "max_position_embeddings": 2048, "hidden_size": 768}, r"\(2050, 768\), with 2 rows in front"),
        ({"model_type": "gpt2"}, r"ends in wpe\.weight"),
        ({"model_type": "mpt", "attn_config": {"alibi": False}}, r"wpe\.weight"),
        ({"model_type": "bert", "position_embedding_type": "relative_key"}, "Shaw"),
        ({"model_type": "telechat", "head_dim": 64, "rope_theta": 1e4, "base_seqlen": 8192, "training_seqlen": 8192}, "base_seqlen, training_seqlen"),
        ({"model_type": "levit"}, "end in attention_biases"),
        ({"model_type": "lightglue", "keypoint_detector_config": {"model_type": "superpoint"}}, "positional_encoder.projector"),
        ({"model_type": "superglue", "keypoint_detector_config": {"model_type": "superpoint"}}, "keypoint_encoder"),
        ({"model_type": "timm_backbone", "backbone": "vit_base_patch16_224"}, "whose name and not this file says"),
        ({"model_type": "glm5_next_text", "qk_rope_head_dim": 0, "head_dim": 0}, "NoPE"),
        ({"model_type": "hunyuan", "head_dim": 128, "rope_theta": 1e4, "use_rotary_pos_emb": False}, "does not rotate"),
    ],
    ids=lambda value: value.get("model_type", "none") if isinstance(value, dict) else None,
)  # fmt: skip
def test_where_no_table_follows_it_says_why(config: dict[str, Any], message: str) -> None:
    with pytest.raises(PeError, match=message):
        resolved(config)


@pytest.mark.parametrize(
    ("config", "layer_type", "encoding", "expected"),
    [
        ({"model_type": "bloom", "n_head": 32}, None, "alibi", {"form": "key", "heads": 32}),
        ({"model_type": "mpt", "n_heads": 12}, None, "alibi", {"form": "mpt", "heads": 12, "bias_max": 8}),
        ({"model_type": "falcon", "alibi": True, "num_attention_heads": 64}, None, "alibi", {"form": "key", "heads": 64}),
        ({"model_type": "falcon", "alibi": False, "hidden_size": 4544, "num_attention_heads": 71}, None, "rope", {"dim": 64, "base": 1e4, "layout": "half"}),
        ({"model_type": "t5", "relative_attention_num_buckets": 16}, "decoder", "t5", {"bidirectional": False, "num_buckets": 16, "max_distance": 128}),
        ({"model_type": "whisper", "d_model": 512}, "encoder", "sinusoidal", {"style": "t2t", "dim": 512}),
        ({"model_type": "m2m_100", "d_model": 512, "pad_token_id": 1}, None, "sinusoidal", {"style": "fairseq", "dim": 512, "padding_idx": 1}),
        ({"model_type": "roformer", "hidden_size": 768, "num_attention_heads": 12}, None, "rope", {"dim": 64, "base": 1e4, "layout": "sin-cos"}),
    ],
    ids=lambda value: value.get("model_type") if isinstance(value, dict) else None,
)  # fmt: skip
def test_models_without_rotation_have_their_own_encoding(
    config: dict[str, Any], layer_type: str | None, encoding: str, expected: dict[str, Any]
) -> None:
    found = resolved(config, layer_type=layer_type)
    assert (found.encoding, found.parameters) == (encoding, expected)


class TestExtraTables:
    def test_llama4_has_both(self) -> None:
        found = resolved({"model_type": "llama4_text", "num_hidden_layers": 8})
        tables = {table.name: table.parameters for table in found.extra_tables}
        assert tables["rotated-layers"] == {"layers": (1, 1, 1, 0, 1, 1, 1, 0)}
        assert tables["query-temperature"] == {"strength": 0.1, "length": 8192, "shift": 1}

    def test_one_in_no_rope_layers_means_that_the_layer_rotates(self) -> None:
        found = resolved({"model_type": "smollm3", "no_rope_layers": [1, 0, 1]})
        assert [dict(table.parameters) for table in found.extra_tables] == [{"layers": (1, 0, 1)}]

    def test_null_layer_types_do_not_rotate(self) -> None:
        config = {
            "head_dim": 64,
            "layer_types": ["sliding_attention", "full_attention"],
            "rope_parameters": {"full_attention": None, "sliding_attention": {"rope_theta": 1e4}},
        }
        assert resolved(config).extra_tables[0].parameters == {"layers": (1, 0)}

    def test_ministral_warms_all_queries(self) -> None:
        scaling = {"rope_type": "yarn", "rope_theta": 1e6, **YARN, "llama_4_scaling_beta": 0.1}
        (table,) = resolved({"model_type": "ministral3", "rope_parameters": scaling}).extra_tables
        assert table.parameters == {"strength": 0.1, "length": 2048}


class TestReading:
    def test_a_folder_and_a_file_are_the_same(self, tmp_path: Path) -> None:
        (tmp_path / "config.json").write_text(json.dumps(LLAMA | {"rope_theta": 1e4}))
        assert resolve(str(tmp_path)) == resolve(str(tmp_path / "config.json"))

    def test_params_json_of_meta(self, tmp_path: Path) -> None:
        params = {"dim": 4096, "n_heads": 32, "rope_theta": 5e5, "use_scaled_rope": True}
        (tmp_path / "params.json").write_text(json.dumps(params))
        found = resolve(str(tmp_path))
        assert found.parameters["layout"] == "complex"
        assert (found.parameters["dim"], found.parameters["scaling"], found.parameters["factor"]) == (
            128,
            "llama3",
            8.0,
        )

    @pytest.mark.parametrize(
        ("text", "message"),
        [(b"{", "not JSON at line 1"), (b"[1]", "not an object"), (b"\xff\xfe\x00", "not text"), (b"[" * 100000, "nested too deeply")],
    )  # fmt: skip
    def test_what_is_no_configuration(self, tmp_path: Path, text: bytes, message: str) -> None:
        (tmp_path / "config.json").write_bytes(text)
        with pytest.raises(PeError, match=message):
            resolve(str(tmp_path / "config.json"))

    def test_what_is_not_there(self, tmp_path: Path) -> None:
        with pytest.raises(PeError, match="no file"):
            resolve(str(tmp_path / "none.json"))
        with pytest.raises(PeError, match=r"no config\.json in this folder"):
            resolve(str(tmp_path))


KEYS = (
    "rope_theta rope_scaling rope_parameters layer_types head_dim hidden_size num_attention_heads model_type text_config "
    "max_position_embeddings original_max_position_embeddings partial_rotary_factor partial_rotary_factors layer_rope_theta "
    "no_rope_layers num_hidden_layers per_layer_config global_head_dim qk_rope_head_dim rotary_dim rope_ratio image_size "
    "patch_size attn_config position_embedding_type"
).split()
INSIDE = (
    "rope_type type factor rope_theta truncate mrope_section short_factor long_factor beta_fast attention_factor alpha "
    "original_max_position_embeddings low_freq_factor partial_rotary_factor llama_4_scaling_beta full_attention"
).split()
GARBAGE = [
    None, True, False, 0, -1, 1, 3, 1.5, 1e308, 10**30, 10**400, math.nan, math.inf, "x", "8", [], [1, 2], [None], [[1]], {}, {"a": 1},
]  # fmt: skip


@pytest.mark.parametrize("seed", range(8))
def test_garbage_is_an_error_and_never_a_crash(seed: int) -> None:
    draw = random.Random(seed)
    for _ in range(150):
        config = copy.deepcopy(draw.choice(list(data("presets").values())))
        for _ in range(draw.randint(1, 3)):
            inner = config.get("rope_scaling") or config.get("rope_parameters")
            inside = isinstance(inner, dict) and draw.random() < 0.5
            target, keys = (inner, INSIDE) if inside else (config, KEYS)
            target[draw.choice(keys)] = draw.choice(GARBAGE)
        for label in (None, "full_attention"):
            with contextlib.suppress(PeError):
                resolved(config, layer_type=label, seq_len=draw.choice([None, 100]))


@pytest.mark.parametrize("scaling", [{"factor": 2.0}, {"rope_type": "default", "factor": 2.0}])
def test_a_factor_without_effect_is_told(scaling: dict[str, Any]) -> None:
    """Transformers 5 does not scale either, and logs an unrecognized key."""
    found = resolved(
        {"model_type": "llama", "hidden_size": 64, "num_attention_heads": 4, "rope_scaling": scaling}
    )
    assert "scaling" not in found.parameters
    assert any("rope_scaling.factor 2.0 has no effect" in warning for warning in found.warnings)


@pytest.mark.parametrize(
    ("config", "wanted"),
    [
        ({"model_type": "gemma3_text", "num_hidden_layers": 7}, "SSSSSFS"),
        ({"model_type": "gemma3_text", "num_hidden_layers": 4, "sliding_window_pattern": 2}, "SFSF"),
        ({"model_type": "gemma4_text", "num_hidden_layers": 8}, "SSSSSFSF"),
        ({"model_type": "modernbert", "num_hidden_layers": 5}, "FSSFS"),
        ({"model_type": "mimo_v2_flash", "num_hidden_layers": 7}, "FSSSSFS"),
        ({"model_type": "exaone4", "num_hidden_layers": 6, "sliding_window_pattern": "LLG"}, "SSFSSF"),
    ],
)
def test_layers_that_the_class_makes_where_the_file_lists_none(config: dict[str, Any], wanted: str) -> None:
    kinds = layer_kinds(KeyLedger(Configuration("config.json", config, model_type=config["model_type"])))
    assert "".join(kind[0].upper() for kind in kinds) == wanted


def test_molmo_2_scales_the_layers_that_it_lists() -> None:
    config = {
        "model_type": "molmo2_text", "hidden_size": 64, "num_attention_heads": 2, "num_hidden_layers": 4, "rope_theta": 1e4,
        "head_dim": 32, "max_position_embeddings": 64, "rope_scaling_layers": [1],
        "rope_scaling": {"rope_type": "linear", "factor": 2.0},
    }  # fmt: skip
    scaled, unscaled = resolved(config, layer_type="scaled"), resolved(config, layer_type="unscaled")
    assert (scaled.layers, scaled.parameters["scaling"]) == ((1,), "linear")
    assert (unscaled.layers, unscaled.parameters.get("scaling")) == ((0, 2, 3), None)
    assert not resolved(config | {"rope_scaling_layers": [0, 1, 2, 3]}).layer_types


def test_sections_are_whole_numbers() -> None:
    values = {"model_type": "qwen2_vl_text", "head_dim": 16, "rope_theta": 1e4}
    with pytest.raises(PeError, match=r"mrope_section is .*, a list of whole numbers is needed"):
        resolve_configuration(
            Configuration(
                "config.json",
                {**values, "rope_scaling": {"type": "mrope", "mrope_section": [2, 3.5, 3]}},
                model_type="qwen2_vl_text",
            )
        )


@pytest.mark.parametrize(
    ("said", "pairing"),
    [({"rope_interleave": True}, "adjacent"), ({"rope_interleave": False}, "half"), ({}, None)],
)
def test_the_pairing_of_an_unknown_latent_attention_is_no_guess(
    said: dict[str, Any], pairing: str | None
) -> None:
    shape = {"qk_rope_head_dim": 64, "rope_theta": 1e4, "max_position_embeddings": 4096}
    found = resolved({"model_type": "frobnicate"} | shape | said)
    assert found.pairing == pairing
    assert any("which channels its attention turns" in w for w in found.warnings) == (pairing is None)


NEMO = {
    "num_layers": 32, "hidden_size": 4096, "num_attention_heads": 32, "position_embedding_type": "rope", "rotary_base": 500000,
    "rotary_interleaved": False, "apply_rope_fusion": True,
}  # fmt: skip
MISTRAL = {"dim": 4096, "n_layers": 32, "head_dim": 128, "n_heads": 32, "n_kv_heads": 8, "vocab_size": 32000}
CHATGLM2 = {
    "model_type": "chatglm", "hidden_size": 4096, "kv_channels": 128, "num_attention_heads": 32, "num_layers": 28,
    "seq_length": 32768, "original_rope": True, "rope_ratio": 16,
}  # fmt: skip
MINISTRAL = {"model_type": "ministral3", "hidden_size": 512, "num_attention_heads": 8, "num_hidden_layers": 6}
LITGPT = {"name": "x", "block_size": 2048, "n_layer": 2, "n_head": 8, "n_embd": 512, "rotary_percentage": 1.0}
LLAMA3_RULE = {"scaling": "llama3", "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_len": 8192}


@pytest.mark.parametrize(
    ("config", "wanted"),
    [
        (NEMO | {"scale_factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "old_context_len": 8192}, LLAMA3_RULE | {"factor": 8.0}),
        (NEMO | {"rope_scaling": True, "rope_scaling_factor": 16.0}, LLAMA3_RULE | {"factor": 16.0}),
        (NEMO | {"rope_scaling": False, "rope_scaling_factor": 8.0}, {"scaling": None, "base": 500000.0}),
        (MISTRAL | {"sliding_window": 4096}, {"base": 10000.0}),
        (MISTRAL | {"sliding_window": None}, {"base": 1000000.0}),
        (CHATGLM2 | {"_name_or_path": "/data/chatglm2-6b-32k"}, {"scaling": "linear", "factor": 16.0, "base": 10000.0}),
        (CHATGLM2 | {"_name_or_path": "THUDM/chatglm3-6b-32k"}, {"scaling": None, "base": 160000.0}),
        (MINISTRAL | {"rope_scaling": {"type": "linear", "factor": 2.0}}, {"base": 10000.0}),
        (MINISTRAL, {"base": 1000000.0}),
    ],
)  # fmt: skip
def test_what_other_formats_say_in_their_own_words(config: dict[str, Any], wanted: dict[str, Any]) -> None:
    """NeMo's llama.py and Megatron's boolean; mistral-inference before 1.0; ChatGLM2; a block without a base."""
    found = resolved(config)
    assert {key: found.parameters.get(key) for key in wanted} == wanted
    assert not found.unread


LONGROPE = {"short_factor": [1.0] * 64, "long_factor": [2.0] * 64, "short_mscale": 1.1, "long_mscale": 1.2}


@pytest.mark.parametrize(
    ("model_type", "keys", "foreign"),
    [
        ("llama", {"rotary_emb_base": 777}, "rotary_emb_base"),
        ("llama", {"rope_base": 777}, "rope_base"),
        ("llama", {"rope_theta": 10000.0, "rope_ratio": 2.0}, "rope_ratio"),
        ("llama", {"kv_channels": 48}, "kv_channels"),
        ("phi3", {"rotary_pct": 0.5}, "rotary_pct"),
        ("qwen2", {"qk_rope_head_dim": 32}, "qk_rope_head_dim"),
        ("gemma3_text", {"head_dim": 48, "global_head_dim": 96}, "global_head_dim"),
        ("llama", {"rope_scaling": {"type": "dynamic", "factor": 2.0, "alpha": 100.0}}, "alpha"),
        ("llama", {"num_hidden_layers": 2, "no_rope_layers": [1, 0]}, "no_rope_layers"),
        ("llama", {"rope_scaling": {"type": "longrope", **YARN, **LONGROPE}}, "long_mscale"),
        ("gpt_neox", {"rotary_pct": 0.25, "rotary_emb_base": 777}, None),
        ("deepseek_v2", {"qk_rope_head_dim": 32}, None),
        ("smollm3", {"num_hidden_layers": 2, "no_rope_layers": [1, 0]}, None),
        ("hunyuan_v1_dense", {"rope_scaling": {"type": "dynamic", "factor": 1.0, "alpha": 1000.0}}, None),
        ("qwen", {"kv_channels": 128, "rotary_emb_base": 10000}, None),
        ("chatglm", {"kv_channels": 128, "rope_ratio": 50}, None),
    ],
)  # fmt: skip
def test_keys_of_other_formats_are_used_with_a_word(
    model_type: str, keys: dict[str, Any], foreign: str | None
) -> None:
    """What the pinned transformers' classes name in their code."""
    layer = "full_attention" if model_type == "gemma3_text" else None
    found = resolved(LLAMA | {"model_type": model_type} | keys, layer_type=layer, seq_len=4096)
    told = [warning.split(" is used")[0] for warning in found.warnings if "does not read it" in warning]
    assert (foreign in told) if foreign else not told


BARE = {label: {"rope_type": "default"} for label in ("full_attention", "sliding_attention")}


@pytest.mark.parametrize(
    ("model_type", "keys", "layer", "base", "told"),
    [
        ("neomme", {"rope_theta": 50000.0}, "sliding_attention", 50000.0, False),
        ("olmo3", {"rope_theta": 70000.0}, "sliding_attention", 70000.0, True),
        ("olmo3", {"rope_theta": 70000.0}, "full_attention", 70000.0, False),
        ("step3p5", {"rope_theta": 70000.0, "rope_parameters": {"full_attention": {"rope_type": "default"}}}, "full_attention", 70000.0, True),
        ("dory", {"rope_parameters": BARE}, "full_attention", 10000.0, False),
        ("dory", {"rope_theta": 70000.0, "rope_parameters": BARE}, "sliding_attention", 70000.0, False),
        ("ultrabert", {"rope_parameters": BARE}, "full_attention", 10000.0, False),
        ("lfm3", {"rope_parameters": BARE}, "sliding_attention", 1000000.0, False),
        ("gemma3_text", {"rope_theta": 70000.0}, "sliding_attention", 10000.0, False),
        ("gemma3_text", {"rope_local_base_freq": 333.0}, "sliding_attention", 333.0, False),
        ("modernbert", {"rope_local_base_freq": 333.0}, "sliding_attention", 333.0, True),
    ],
)  # fmt: skip
def test_a_base_beside_the_layer_types_goes_where_the_class_takes_it(
    model_type: str, keys: dict[str, Any], layer: str, base: float, told: bool
) -> None:
    """`rope_parameters` of the configuration classes of transformers 5.24; what pe takes and they do not has a warning."""
    found = resolved(LLAMA | {"model_type": model_type, "num_hidden_layers": 6} | keys, layer_type=layer)
    assert found.parameters["base"] == base
    assert any("does not read it" in warning for warning in found.warnings) == told


def test_widths_beside_latent_attention_are_told() -> None:
    latent = {"hidden_size": 512, "num_attention_heads": 8, "qk_rope_head_dim": 64}
    half = resolved({**latent, "model_type": "deepseek_v2", "partial_rotary_factor": 0.5})
    assert half.parameters["dim"] == 64
    assert any("partial_rotary_factor 0.5 has no part" in warning for warning in half.warnings)
    assert any(
        "head_dim 48 has no part" in note
        for note in resolved({**latent, "model_type": "deepseek_v3", "head_dim": 48}).notes
    )


def test_positions_that_are_divided_in_code_of_other_releases_are_told() -> None:
    """Ernie 4.5 as released with its own code divides the positions by compression_ratio."""
    ernie = LLAMA | {"model_type": "ernie4_5"}
    assert resolved({**ernie, "compression_ratio": 2.0}).unread == ("compression_ratio",)
    assert not resolved({**ernie, "compression_ratio": 1.0}).unread


@pytest.mark.parametrize(("interleave", "pairing"), [(True, "adjacent"), (False, "half")])
def test_litgpt_says_which_channels_turn_together(interleave: bool, pairing: str) -> None:
    assert resolved(LITGPT | {"rope_interleave": interleave}).pairing == pairing


def test_deepseek_without_its_latent_attention_turns_halves() -> None:
    text = {
        "model_type": "deepseek_v2",
        "hidden_size": 1280,
        "num_attention_heads": 10,
        "use_mla": False,
        "qk_rope_head_dim": 0,
    }
    assert resolved({"model_type": "deepseek_vl_v2", "language_config": text}).pairing == "half"


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"model_type": "smollm3", "num_hidden_layers": 36, "no_rope_layers": [1, 1, 1, 0]}, "4 entries for the 36 layers"),
        ({"model_type": "cohere2", "num_hidden_layers": 8, "layer_types": ["full_attention"] * 2}, "2 entries for the 8 layers"),
        ({"model_type": "smollm3", "num_hidden_layers": 2, "no_rope_layers": [0, 0]}, "no layer of this model rotates"),
        ({"model_type": "cohere2", "num_hidden_layers": 2, "sliding_window": 4, "layer_types": ["full_attention"] * 2}, "no layer of this model rotates"),
    ],
)  # fmt: skip
def test_lists_of_layers_are_whole_and_leave_some_that_rotate(config: dict[str, Any], said: str) -> None:
    with pytest.raises(PeError, match=said):
        resolved({"hidden_size": 2048, "num_attention_heads": 16, **config})


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("position_embedding_type", "absolute"), ("use_absolute_position_embeddings", True), ("use_rel_pos_bias", True), ("rot_dim", 32),
        ("no_pe_layers", [0, 1]), ("interleaved", True), ("max_period", 5000), ("d_head", 64), ("attn_head_dim", 64),
        ("qk_head_dim", 64), ("hidden_size_per_head", 64), ("global_head_dim", 64), ("num_swa_attention_heads", 32),
    ],
)  # fmt: skip
def test_of_an_unknown_model_every_key_that_may_contradict_is_named(key: str, value: Any) -> None:
    config = {"model_type": "zzz_lm", "hidden_size": 2048, "num_attention_heads": 16, "rope_theta": 10000.0}
    with pytest.raises(PeError, match=f"does not understand: {key}"):
        resolved({**config, key: value})
    harmless = {
        "position_embedding_type": "rope",
        "d_head": 128,
        "attn_head_dim": 128,
        "qk_head_dim": 128,
    }.get(key, False)
    assert resolved({**config, key: harmless}).parameters["dim"] == 128


def test_a_type_is_not_offered_in_its_own_place() -> None:
    config = {
        "model_type": "bert",
        "position_embedding_type": "rope",
        "rope_theta": 10000,
        "hidden_size": 768,
    }
    assert "as one that rotates" in " ".join(resolved({**config, "num_attention_heads": 12}).warnings)


def test_a_pair_of_bases_is_no_list_of_layers() -> None:
    """NeMo's Gemma 3 writes the local and the global base."""
    with pytest.raises(PeError, match="rotary_base has 2 entries for the 32 layers"):
        resolved(NEMO | {"rotary_base": [10000, 1000000]})


def test_chronos_2_is_no_t5() -> None:
    config = {"model_type": "t5", "d_kv": 64, "d_model": 768, "num_heads": 12, "rope_theta": 10000.0}
    with pytest.raises(PeError, match="rotates the patches of its series"):
        resolved({**config, "architectures": ["Chronos2Model"]})
    assert resolved(config).encoding == "t5"
