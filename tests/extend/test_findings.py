"""`pe inspect FOLDER`: contradictions are found, and nothing is told of folders that agree."""

from __future__ import annotations

import json
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from pe_cli.cli import run
from pe_cli.extend.findings import findings

LLAMA = {
    "model_type": "llama",
    "hidden_size": 64,
    "num_attention_heads": 4,
    "num_hidden_layers": 2,
    "max_position_embeddings": 8192,
    "rope_theta": 500000.0,
}
BERT = {"model_type": "bert", "hidden_size": 8, "num_attention_heads": 2, "max_position_embeddings": 64}
VIT = {"model_type": "vit", "hidden_size": 8, "image_size": 32, "patch_size": 8}
WORDS = "embeddings.position_embeddings.weight"
INV_FREQ = "model.layers.0.self_attn.rotary_emb.inv_freq"


def table(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).normal(size=shape).astype(np.float32)


def frequencies(base: float, dim: int = 16) -> np.ndarray:
    return (base ** (-np.arange(0, dim, 2) / dim)).astype(np.float32)


@pytest.fixture
def folder(tmp_path: Path) -> Any:
    def write(config: dict[str, Any], tensors: dict[str, np.ndarray], **files: Any) -> str:
        (tmp_path / "config.json").write_text(json.dumps(config))
        for name, value in files.items():
            (tmp_path / f"{name}.json").write_text(json.dumps(value))
        if tensors:
            save_file(tensors, tmp_path / "model.safetensors")
        return str(tmp_path)

    return write


YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 2048}
CONTRADICTIONS: dict[str, tuple[dict[str, Any], dict[str, np.ndarray], dict[str, Any], list[str]]] = {
    "rows": ({**BERT, "max_position_embeddings": 128}, {WORDS: table(64, 8)}, {}, ["64 rows", "128"]),
    "rows of RoBERTa": (
        {**BERT, "model_type": "roberta", "max_position_embeddings": 514},
        {f"roberta.{WORDS}": table(1026, 8)},
        {},
        ["1026 rows", "514"],
    ),
    "tokenizer": (
        BERT,
        {WORDS: table(64, 8)},
        {"tokenizer_config": {"model_max_length": 512}},
        ["512", "64"],
    ),
    "truncation": (
        BERT,
        {WORDS: table(64, 8)},
        {"tokenizer": {"truncation": {"max_length": 128}}},
        ["truncation.max_length 128"],
    ),
    "sentences": (
        BERT,
        {WORDS: table(64, 8)},
        {"sentence_bert_config": {"max_seq_length": 256}},
        ["max_seq_length 256"],
    ),
    "buffer": (
        BERT,
        {WORDS: table(64, 8), "embeddings.position_ids": np.arange(512)[None]},
        {},
        ["512 entries", "64 rows"],
    ),
    "stored frequencies": (LLAMA, {INV_FREQ: frequencies(10000.0)}, {}, ["base 10000", "500000"]),
    "plain beside yarn": (
        {**LLAMA, "max_position_embeddings": 8192, "rope_scaling": YARN},
        {INV_FREQ: frequencies(500000.0)},
        {},
        ["with yarn scaling"],
    ),
    "two bases": (
        {**LLAMA, "rope_parameters": {"rope_type": "default", "rope_theta": 1e6}},
        {},
        {},
        ["rope_theta is 500000", "rope_parameters.rope_theta is 1000000"],
    ),
    "two types": (
        {**LLAMA, "rope_scaling": {"type": "linear", "rope_type": "dynamic", "factor": 2.0}},
        {},
        {},
        ["rope_scaling.type", "dynamic"],
    ),
    "yarn falls short": (
        {**LLAMA, "max_position_embeddings": 32768, "rope_scaling": YARN},
        {},
        {},
        ["reaches 8192", "32768"],
    ),
    "factor list": (
        {
            **LLAMA,
            "model_type": "phi3",
            "original_max_position_embeddings": 4096,
            "rope_scaling": {"type": "longrope", "short_factor": [1.0] * 8, "long_factor": [2.0] * 6},
        },
        {},
        {},
        ["long_factor has 6", "8 pairs"],
    ),
    "sections": (
        {**LLAMA, "model_type": "qwen2_vl", "rope_scaling": {"type": "mrope", "mrope_section": [2, 2, 2]}},
        {},
        {},
        ["covers 6", "8 turn"],
    ),
    "layer types": (
        {**LLAMA, "layer_types": ["full_attention"] * 3},
        {},
        {},
        ["3 entries", "2 layers"],
    ),
    "grid": (
        VIT,
        {"embeddings.position_embeddings": table(1, 65, 8)},
        {},
        ["65 rows", "image_size 32", "17 rows"],
    ),
    "scaling without rotation": (
        {**BERT, "rope_scaling": {"rope_type": "yarn", "factor": 2.0}},
        {WORDS: table(64, 8)},
        {},
        ["does not rotate"],
    ),
    "the length of GPT-2, spelled twice": (
        {"model_type": "gpt2", "n_embd": 8, "n_head": 2, "n_positions": 64, "n_ctx": 128},
        {"wpe.weight": table(64, 8)},
        {},
        ["n_positions is 64", "n_ctx is 128"],
    ),
    "generation": (
        {"model_type": "gpt2", "n_embd": 8, "n_head": 2, "n_positions": 64},
        {"wpe.weight": table(64, 8)},
        {"generation_config": {"max_length": 128}},
        ["max_length 128", "64 positions"],
    ),
    "rows that BERT does not put in front": (BERT, {WORDS: table(66, 8)}, {}, ["66 rows", "64"]),
    "rows that RoBERTa's length counts": (
        {**BERT, "model_type": "roberta", "pad_token_id": 1},
        {f"roberta.{WORDS}": table(66, 8)},
        {},
        ["66 rows", "64"],
    ),
    "buffer that was rounded": (
        BERT,
        {WORDS: table(64, 8), "embeddings.position_ids": np.arange(64)[None] // 2 * 2},
        {},
        ["does not count up"],
    ),
    "frequencies of another width": (
        LLAMA,
        {INV_FREQ: frequencies(500000.0, 32)},
        {},
        ["16 frequencies", "8 pairs"],
    ),
    "two scalings": (
        {
            **LLAMA,
            "rope_scaling": {"rope_type": "linear", "factor": 2.0},
            "rope_parameters": {"rope_type": "dynamic", "factor": 2.0},
        },
        {},
        {},
        ["rope_scaling is", "rope_parameters is"],
    ),
    "linear that ends early": (
        {
            **LLAMA,
            "rope_scaling": {"rope_type": "linear", "factor": 2.0, "original_max_position_embeddings": 2048},
        },
        {},
        {},
        ["4096 positions", "8192"],
    ),
    "sides of a grid": (
        {"model_type": "sam", "vision_config": {"image_size": 128, "patch_size": 16}},
        {"vision_encoder.pos_embed": table(1, 4, 4, 8)},
        {},
        ["8x8 patches"],
    ),
    "window": (
        {"model_type": "swin", "image_size": 224, "patch_size": 4, "window_size": 7},
        {"encoder.layers.0.blocks.0.attention.self.relative_position_bias_table": table(81, 2)},
        {},
        ["81 rows", "window_size 7", "169"],
    ),
    "window of a whole image": (
        {"model_type": "beit", "image_size": 64, "patch_size": 8, "use_relative_position_bias": True},
        {
            "encoder.layer.0.attention.attention.relative_position_bias.relative_position_bias_table": table(
                52, 2
            )
        },
        {},
        ["52 rows", "228"],
    ),
    "buckets": (
        {"model_type": "t5", "d_model": 8, "num_heads": 2, "relative_attention_num_buckets": 32},
        {"encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight": table(64, 2)},
        {},
        ["64 rows", "relative_attention_num_buckets 32"],
    ),
    "distances": (
        {**BERT, "model_type": "deberta-v2", "relative_attention": True, "position_buckets": 256},
        {"deberta.encoder.rel_embeddings.weight": table(256, 8)},
        {},
        ["256 rows", "512"],
    ),
    "processor of images": (
        VIT,
        {"embeddings.position_embeddings": table(1, 17, 8)},
        {"preprocessor_config": {"size": {"height": 64, "width": 64}}},
        ["size 64", "image_size 32"],
    ),
    "processor that crops": (
        {"model_type": "clip", "vision_config": {"image_size": 32, "patch_size": 8}},
        {"vision_model.embeddings.position_embedding.weight": table(17, 8)},
        {"preprocessor_config": {"size": {"shortest_edge": 32}, "crop_size": 64, "do_center_crop": True}},
        ["crop_size 64", "vision_config.image_size 32"],
    ),
    "tower of LLaVA": (
        {
            "model_type": "llava",
            "vision_config": {"model_type": "clip_vision_model", "image_size": 32, "patch_size": 8},
        },
        {},
        {"preprocessor_config": {"crop_size": {"height": 64, "width": 64}, "do_center_crop": True}},
        ["crop_size 64", "vision_config.image_size 32"],
    ),
    "an image that is not square": (
        VIT,
        {},
        {"preprocessor_config": {"size": [64, 32]}},
        ["size [64, 32]", "image_size 32"],
    ),
    "encoder that sees": (
        {"model_type": "vision-encoder-decoder", "encoder": VIT, "decoder": {"model_type": "gpt2"}},
        {},
        {"preprocessor_config": {"size": 64}},
        ["size 64", "encoder.image_size 32"],
    ),
    "patches of a processor": (
        {
            "model_type": "llava",
            "vision_config": {"model_type": "clip_vision_model", "image_size": 32, "patch_size": 8},
        },
        {},
        {"processor_config": {"patch_size": 12}},
        ["patch_size 12", "vision_config.patch_size 8"],
    ),
    "tokens of an image": (
        {
            "model_type": "llava",
            "vision_config": {"model_type": "clip_vision_model", "image_size": 32, "patch_size": 8},
        },
        {},
        {"processor_config": {"image_processor": {"image_seq_length": 99}}},
        ["image_processor.image_seq_length 99", "16"],
    ),
    "a decoder that ends before its texts": (
        {"model_type": "led", "max_encoder_position_embeddings": 128, "max_decoder_position_embeddings": 64},
        {"encoder.embed_positions.weight": table(128, 8), "decoder.embed_positions.weight": table(64, 8)},
        {"generation_config": {"max_length": 100}},
        ["max_length 100", "decoder.embed_positions.weight ends after 64"],
    ),
    "width of a head": (
        {**LLAMA, "head_dim": 32},
        {"model.layers.0.self_attn.q_proj.weight": table(64, 64)},
        {},
        ["64 rows", "head_dim 32", "needs 128"],
    ),
    "number of heads": (
        {**LLAMA, "num_key_value_heads": 2},
        {"model.layers.0.self_attn.k_proj.weight": table(64, 64)},
        {},
        ["64 rows", "num_key_value_heads 2", "needs 32"],
    ),
    "a shard that is not there": (
        LLAMA,
        {"model.norm.weight": table(8)},
        {
            "model.safetensors.index": {
                "weight_map": {"model.norm.weight": "model.safetensors", "lm_head.weight": "b.safetensors"}
            }
        },
        ["b.safetensors", "not there"],
    ),
    "frames of Whisper": (
        {"model_type": "whisper", "d_model": 8, "max_source_positions": 100},
        {"model.encoder.embed_positions.weight": table(100, 8)},
        {"preprocessor_config": {"nb_max_frames": 3000}},
        ["nb_max_frames 3000", "200"],
    ),
}


@pytest.mark.parametrize("kind", CONTRADICTIONS)
def test_contradictions_are_found(kind: str, folder: Any) -> None:
    config, tensors, files, words = CONTRADICTIONS[kind]
    found = findings(folder(config, tensors, **files))
    assert len(found) == 1, found
    assert all(word in found[0].what for word in words), found[0].what
    assert found[0].where


AGREE: dict[str, tuple[dict[str, Any], dict[str, np.ndarray], dict[str, Any]]] = {
    "bert": (
        BERT,
        {WORDS: table(64, 8), "embeddings.position_ids": np.arange(64)[None]},
        {"tokenizer_config": {"model_max_length": 64}},
    ),
    "roberta": (
        {**BERT, "model_type": "roberta", "max_position_embeddings": 514, "pad_token_id": 1},
        {f"roberta.{WORDS}": table(514, 8)},
        {"tokenizer_config": {"model_max_length": 512}},
    ),
    "a tokenizer without a limit": (
        BERT,
        {WORDS: table(64, 8)},
        {"tokenizer_config": {"model_max_length": 1000000000000000019884624838656}},
    ),
    "a tokenizer beyond a rotary model": (LLAMA, {}, {"tokenizer_config": {"model_max_length": 131072}}),
    "stored frequencies in bfloat16 steps": (
        LLAMA,
        {INV_FREQ: (frequencies(500000.0).view(np.uint32) & 0xFFFF0000).view(np.float32)},
        {},
    ),
    "plain frequencies beside linear scaling": (
        {**LLAMA, "rope_scaling": {"type": "linear", "factor": 2.0}},
        {INV_FREQ: frequencies(500000.0)},
        {},
    ),
    "yarn beyond the length": ({**LLAMA, "rope_scaling": YARN, "max_position_embeddings": 4096}, {}, {}),
    "llama3": (
        {
            **LLAMA,
            "max_position_embeddings": 131072,
            "rope_scaling": {
                "rope_type": "llama3",
                "factor": 8.0,
                "low_freq_factor": 1.0,
                "high_freq_factor": 4.0,
                "original_max_position_embeddings": 8192,
            },
        },
        {},
        {},
    ),
    "both spellings with one value": (
        {**LLAMA, "rope_parameters": {"rope_type": "default", "rope_theta": 500000}},
        {},
        {},
    ),
    "mrope called default": (
        {
            **LLAMA,
            "model_type": "qwen2_vl",
            "rope_scaling": {"type": "mrope", "rope_type": "default", "mrope_section": [2, 3, 3]},
        },
        {},
        {},
    ),
    "an image of LLaVA, with and without its class token": (
        {
            "model_type": "llava",
            "vision_config": {"model_type": "clip_vision_model", "image_size": 32, "patch_size": 8},
        },
        {},
        {
            "preprocessor_config": {"image_seq_length": 16, "crop_size": 32, "do_center_crop": True},
            "processor_config": {"patch_size": 16, "image_processor": {"image_seq_length": 17}},
        },
    ),
    "heads of queries with a gate": (
        {**LLAMA, "num_key_value_heads": 2, "head_dim": 32},
        {
            "model.layers.0.self_attn.q_proj.weight": table(256, 64),
            "model.layers.0.self_attn.k_proj.weight": table(64, 64),
        },
        {},
    ),
    "vit": (VIT, {"embeddings.position_embeddings": table(1, 17, 8)}, {}),
    "clip": (
        {
            "model_type": "clip",
            "text_config": {"model_type": "clip_text_model", "max_position_embeddings": 77},
            "vision_config": {"model_type": "clip_vision_model", "image_size": 32, "patch_size": 8},
        },
        {
            "text_model.embeddings.position_embedding.weight": table(77, 8),
            "vision_model.embeddings.position_embedding.weight": table(17, 12),
            "text_model.embeddings.position_ids": np.arange(77)[None],
        },
        {"tokenizer_config": {"model_max_length": 77}},
    ),
}


@pytest.mark.parametrize("kind", AGREE)
def test_nothing_is_told_where_all_agree(kind: str, folder: Any) -> None:
    config, tensors, files = AGREE[kind]
    assert findings(folder(config, tensors, **files)) == []


# What sizes a table, doubled, is a contradiction; as it is, all agree.
SIZED: dict[str, tuple[dict[str, Any], dict[str, np.ndarray], str]] = {
    "bare tower": (
        {"model_type": "clip_vision_model", "image_size": 224, "patch_size": 32},
        {"embeddings.position_embedding.weight": table(50, 8)},
        "image_size",
    ),
    "count of cells": (
        {"model_type": "qwen3_vl", "vision_config": {"num_position_embeddings": 64, "patch_size": 16}},
        {"visual.pos_embed.weight": table(64, 8)},
        "vision_config.num_position_embeddings",
    ),
    "two sides": (
        {
            "model_type": "kimi_k25",
            "vision_config": {"pos_emb_height": 8, "pos_emb_width": 8, "patch_size": 14},
        },
        {"vision_tower.patch_embed.pos_emb.position_embeddings": table(8, 8, 4)},
        "vision_config.pos_emb_height",
    ),
    "coordinates of a page": (
        {"model_type": "layoutlm", "max_position_embeddings": 64, "max_2d_position_embeddings": 128},
        {"embeddings.x_position_embeddings.weight": table(128, 8), WORDS: table(64, 8)},
        "max_2d_position_embeddings",
    ),
    "frames": (
        {"model_type": "xclip", "vision_config": {"num_frames": 8}},
        {"mit.position_embedding": table(1, 8, 4)},
        "vision_config.num_frames",
    ),
    "window of SAM": (
        {"model_type": "sam", "vision_config": {"image_size": 512, "patch_size": 16, "window_size": 14}},
        {
            "vision_encoder.layers.0.attn.rel_pos_h": table(27, 8),
            "vision_encoder.layers.2.attn.rel_pos_h": table(63, 8),
        },
        "vision_config.window_size",
    ),
    "decoder of text": (
        {
            "model_type": "blip",
            "text_config": {"model_type": "blip_text_model", "max_position_embeddings": 64},
        },
        {"text_decoder.bert.embeddings.position_embeddings.weight": table(64, 8)},
        "text_config.max_position_embeddings",
    ),
    "part of a part": (
        {"model_type": "t5gemma2", "encoder": {"vision_config": {"image_size": 64, "patch_size": 8}}},
        {"encoder.vision_tower.embeddings.position_embedding.weight": table(64, 8)},
        "encoder.vision_config.image_size",
    ),
    "two resolutions": (
        {
            "model_type": "deepseek_vl_hybrid",
            "vision_config": {"image_size": 384, "patch_size": 16},
            "high_res_vision_config": {"image_size": 1024, "patch_size": 16},
        },
        {"high_res_vision_model.vision_encoder.pos_embed": table(1, 64, 64, 4)},
        "high_res_vision_config.image_size",
    ),
    "largest image": (
        {"model_type": "radio", "image_size": 224, "max_img_size": 256, "patch_size": 16},
        {"embeddings.position_embeddings": table(1, 256, 4)},
        "max_img_size",
    ),
    "buckets of SEW-D": (
        {
            "model_type": "sew-d",
            "relative_attention": True,
            "position_buckets": 16,
            "max_position_embeddings": 512,
        },
        {"encoder.rel_embeddings.weight": table(32, 8)},
        "position_buckets",
    ),
}


@pytest.mark.parametrize("kind", SIZED)
def test_what_sizes_a_table_is_compared_with_it(kind: str, folder: Any) -> None:
    config, tensors, field = SIZED[kind]
    assert not findings(folder(config, tensors))
    *parts, last = field.split(".")
    inner = config = json.loads(json.dumps(config))
    for part in parts:
        inner = inner[part]
    inner[last] *= 2
    assert findings(folder(config, tensors))


@pytest.mark.parametrize(
    ("config", "tensors"),
    [
        (
            {"model_type": "mllama", "vision_config": {"image_size": 560, "patch_size": 14, "max_num_tiles": 4}},
            {"vision_model.gated_positional_embedding.tile_embedding.weight": table(9, 16)},
        ),
        (
            {"model_type": "videoprism", "image_size": 64, "num_frames": 16, "tubelet_size": [1, 8, 8]},
            {"embeddings.spatial_position_embeddings": table(1, 64, 4), "embeddings.temporal_embedding": table(1, 16, 4)},
        ),
    ],
    ids=["aspect ratios", "frames apart"],
)  # fmt: skip
def test_rows_that_are_no_patches_of_the_image_agree(
    config: dict[str, Any], tensors: dict[str, np.ndarray], folder: Any
) -> None:
    assert not findings(folder(config, tensors))


def test_strict_exits_1_where_there_are_findings(folder: Any, capfd: Any) -> None:
    place = folder({**BERT, "max_position_embeddings": 128}, {WORDS: table(64, 8)})
    assert run(["inspect", place, "--strict"]) == 1
    assert "contradiction" in capfd.readouterr().out
    assert run(["inspect", place]) == 0


def test_strict_exits_0_where_all_agree(folder: Any, capfd: Any) -> None:
    assert run(["inspect", folder(BERT, {WORDS: table(64, 8)}), "--strict", "--json"]) == 0
    assert json.loads(capfd.readouterr().out)["findings"] == []


def test_strict_is_not_for_tables(tmp_path: Path, capfd: Any) -> None:
    np.save(tmp_path / "x.npy", table(4, 4))
    assert run(["inspect", str(tmp_path / "x.npy"), "--strict"]) == 2
    assert "--strict" in capfd.readouterr().err


def test_published_configurations_agree(tmp_path: Path) -> None:
    """Configurations that the golden cases took from the hub are as their authors meant them."""
    cases = json.loads((Path(__file__).parents[1] / "golden" / "cases.json").read_text())
    told = {}
    for case in cases:
        for value in case["inputs"].values():
            if case["family"].startswith("real") and "json" in value and "model_type" in value["json"]:
                (tmp_path / "config.json").write_text(json.dumps(value["json"]))
                if found := findings(str(tmp_path)):
                    told[case["id"]] = [f.what for f in found]
    assert not told


@pytest.mark.interop
@pytest.mark.slow
def test_default_configurations_of_transformers_agree(tmp_path: Path) -> None:
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    told = {}
    for kind in CONFIG_MAPPING:
        try:
            text = CONFIG_MAPPING[kind]().to_json_string(use_diff=False)
        except Exception:  # some have no defaults
            continue
        (tmp_path / "config.json").write_text(text)
        if found := findings(str(tmp_path)):
            told[kind] = [f.what for f in found]
    assert not told


def test_a_folder_without_a_config_lists_its_position_tensors(tmp_path: Path, capfd: Any) -> None:
    save_file({"positional_embedding": table(77, 8)}, tmp_path / "open_clip_model.safetensors")
    assert run(["inspect", str(tmp_path)]) == 0
    out = capfd.readouterr().out
    assert "positional_embedding" in out
    assert "config.json" in out


def test_weights_of_torch_are_read_too(folder: Any, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    source = folder(BERT, {})
    torch.save({f"bert.{WORDS}": torch.zeros(64, 8)}, tmp_path / "pytorch_model.bin")
    assert findings(source) == []
    torch.save({f"bert.{WORDS}": torch.zeros(128, 8)}, tmp_path / "pytorch_model.bin")
    assert "128 rows" in findings(source)[0].what


def test_an_index_that_does_not_know_where_a_table_lies(folder: Any, tmp_path: Path) -> None:
    first, second = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"
    index = {"weight_map": {WORDS: first, "other": second}}
    source = folder(BERT, {}, **{"model.safetensors.index": index})
    save_file({WORDS: table(64, 8)}, tmp_path / first)
    save_file({"other": table(2, 2)}, tmp_path / second)
    assert findings(source) == []
    save_file({"x": table(2, 2)}, tmp_path / first)
    save_file({"other": table(2, 2), WORDS: table(64, 8)}, tmp_path / second)
    (told,) = findings(source)
    assert f"which is in {second}" in told.what


def test_a_configuration_of_open_clip(tmp_path: Path) -> None:
    parts = {
        "vision_cfg": {"image_size": 32, "patch_size": 8},
        "text_cfg": {"context_length": 20, "heads": 2},
    }
    tensors = {"visual.positional_embedding": table(17, 8), "positional_embedding": table(20, 8)}
    save_file(tensors, tmp_path / "open_clip_model.safetensors")
    for text, image, count in ((20, 32, 0), (40, 32, 1), (40, 64, 2)):
        parts["text_cfg"]["context_length"], parts["vision_cfg"]["image_size"] = text, image
        (tmp_path / "open_clip_config.json").write_text(json.dumps({"model_cfg": parts}))
        assert len(findings(str(tmp_path))) == count


def test_nothing_is_found_in_the_presets(folder: Any) -> None:
    presets = json.loads(resources.files("pe_cli.models.data").joinpath("presets.json").read_text())
    assert len(presets) >= 50
    assert {name: told for name, config in presets.items() if (told := findings(folder(config, {})))} == {}
