"""`pe inspect FOLDER`: contradictions are found, and nothing is told of folders that agree."""

from __future__ import annotations

import json
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
