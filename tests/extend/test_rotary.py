"""`pe extend --scaling`: a longer context for rotary models, read back by transformers and by `pe gen model`."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from pe_cli.cli import run
from pe_cli.errors import PeError
from pe_cli.extend.rotary import stretch_model

LLAMA = {
    "model_type": "llama",
    "hidden_size": 64,
    "num_attention_heads": 4,
    "num_hidden_layers": 1,
    "max_position_embeddings": 2048,
    "rope_theta": 10000.0,
}


@pytest.fixture
def model(tmp_path: Path) -> Any:
    def write(config: dict[str, Any], **files: Any) -> Path:
        folder = tmp_path / "model"
        folder.mkdir()
        (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
        for name, value in files.items():
            (folder / f"{name}.json").write_text(json.dumps(value))
        save_file({"w": np.ones((2, 3), np.float32)}, folder / "model.safetensors")
        return folder

    return write


def test_the_block_is_written_in_the_spelling_of_the_file(model: Any) -> None:
    folder = model({**LLAMA, "rope_scaling": None})
    edits = {".".join(e.path): e.new for e in stretch_model(str(folder), 8192, "yarn").edits}
    block = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 2048}
    assert edits == {"rope_scaling": block, "max_position_embeddings": 8192}


def test_parameters_by_layer_type_are_scaled_in_full_attention_alone(model: Any) -> None:
    rope = {
        "full_attention": {"rope_type": "default", "rope_theta": 1e6},
        "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
    }
    text = {**LLAMA, "model_type": "gemma3_text", "head_dim": 16, "rope_parameters": rope}
    edits = {".".join(e.path): e.new for e in stretch_model(str(model(text)), 8192, "linear").edits}
    assert edits == {
        "rope_parameters.full_attention": {"rope_theta": 1e6, "rope_type": "linear", "factor": 4.0},
        "max_position_embeddings": 8192,
    }


def test_the_part_of_a_composite_that_rotates_is_edited(model: Any) -> None:
    composite = {
        "model_type": "llava",
        "text_config": LLAMA,
        "vision_config": {"model_type": "clip_vision_model"},
    }
    found = stretch_model(str(model(composite)), 4096, "linear")
    assert found.overrides() == {
        "text_config": {
            "rope_scaling": {"rope_type": "linear", "factor": 2.0},
            "max_position_embeddings": 4096,
        }
    }


def test_m_rope_keeps_its_sections_under_yarn(model: Any) -> None:
    block = {"type": "mrope", "mrope_section": [2, 3, 3]}
    text = {**LLAMA, "model_type": "qwen2_vl", "rope_scaling": block}
    scaled = stretch_model(str(model(text)), 8192, "yarn").overrides()["rope_scaling"]
    assert scaled["mrope_section"] == [2, 3, 3]
    assert scaled["rope_type"] == "yarn"
    assert "type" not in scaled


def test_ntk_changes_the_base_of_every_layer_that_has_it(model: Any) -> None:
    bases = [10000.0, 0, 10000.0, 10000.0]
    config = {**LLAMA, "model_type": "granite_swa", "num_hidden_layers": 4, "layer_rope_theta": bases}
    found = stretch_model(str(model(config)), 8192, "ntk", factor=4)
    written = found.overrides()["layer_rope_theta"]
    width = found.before.parameters["dim"]
    assert written == [pytest.approx(10000 * 4 ** (width / (width - 2))), 0, written[0], written[0]]


@pytest.mark.parametrize(
    "config",
    [
        {**LLAMA, "rope_ratio": 2.0},
        {**LLAMA, "rope_parameters": {"rope_type": "default", "rope_theta": 1e6}},
        {**LLAMA, "model_type": "granite_swa", "num_hidden_layers": 2, "layer_rope_theta": [5e5, 5e5]},
    ],
)  # fmt: skip
def test_ntk_stretches_the_slowest_pair_by_the_factor(model: Any, config: dict[str, Any]) -> None:
    """The exponent d / (d - 2) is chosen so: bloc97's NTK-aware scaling."""
    before, after = stretch_model(str(model(config)), 8192, "ntk", factor=4).wavelengths()
    assert after[-1] / before[-1] == pytest.approx(4, rel=1e-9)


def test_ntk_changes_the_base_alone(model: Any) -> None:
    found = stretch_model(str(model(LLAMA)), 8192, "ntk")
    assert found.overrides() == {
        "rope_theta": pytest.approx(10000 * 4 ** (16 / 14), rel=1e-15),
        "max_position_embeddings": 8192,
    }
    before, after = found.wavelengths()
    assert after[0] == before[0]
    assert after[-1] / before[-1] == pytest.approx(4, rel=1e-12)


@pytest.mark.parametrize(
    ("changes", "length", "scaling", "options", "said"),
    [
        ({}, 2048, "yarn", {}, "trained with 2048 positions"),
        ({}, 8192, "yarn", {"factor": 2.0}, "at least 4"),
        ({}, 8192, "yarn", {"factor": math.nan}, "above 1"),
        ({}, 8192, "longrope", {}, "long_factor"),
        ({}, 8192, "yorn", {}, "did you mean 'yarn'"),
        ({"rope_scaling": {"rope_type": "linear", "factor": 2.0}}, 8192, "yarn", {}, "force_scaling"),
        ({"model_type": "bert", "rope_theta": None}, 8192, "yarn", {}, "models that rotate"),
        ({"model_type": "phi3"}, 8192, "yarn", {}, "short_factor"),
    ],
)
def test_what_cannot_be_scaled_is_refused(
    changes: dict[str, Any], length: int, scaling: str, options: dict[str, Any], said: str, model: Any
) -> None:
    folder = model({**LLAMA, **changes})
    with pytest.raises(PeError, match=said):
        stretch_model(str(folder), length, scaling, **options)


def test_a_scaling_that_is_replaced_leaves_nothing_behind(model: Any) -> None:
    old = {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 1024,
    }
    found = stretch_model(str(model({**LLAMA, "rope_scaling": old})), 16384, "yarn", force=True)
    assert found.overrides()["rope_scaling"] == {
        "rope_type": "yarn",
        "factor": 16.0,
        "original_max_position_embeddings": 1024,
    }


def test_a_folder_is_written_with_the_limit_of_its_tokenizer(model: Any, tmp_path: Path) -> None:
    folder = model(LLAMA, tokenizer_config={"model_max_length": 2048}, generation_config={"max_length": 2048})
    assert (
        run(["extend", str(folder), "--len", "8192", "--scaling", "linear", "-o", str(tmp_path / "new")]) == 0
    )
    new = tmp_path / "new"
    assert json.loads((new / "tokenizer_config.json").read_text())["model_max_length"] == 8192
    assert json.loads((new / "generation_config.json").read_text())["max_length"] == 8192
    assert (new / "model.safetensors").read_bytes() == (folder / "model.safetensors").read_bytes()
    assert (new / "model.safetensors").stat().st_ino != (folder / "model.safetensors").stat().st_ino


def test_link_makes_hard_links(model: Any, tmp_path: Path) -> None:
    folder, new = model(LLAMA), tmp_path / "new"
    words = ["extend", str(folder), "--len", "8192", "--scaling", "linear", "--link", "-o", str(new)]
    assert run(words) == 0
    assert (new / "model.safetensors").samefile(folder / "model.safetensors")


def test_without_an_output_the_configuration_goes_to_stdout(model: Any, capfd: Any) -> None:
    folder = model(LLAMA)
    assert run(["extend", str(folder), "--len", "8192", "--scaling", "yarn"]) == 0
    out = capfd.readouterr().out
    assert json.loads(out)["rope_scaling"]["factor"] == 4.0
    assert out.startswith('{\n  "model_type"')


def test_json_has_what_engines_take(model: Any, capfd: Any) -> None:
    folder = model(LLAMA)
    assert run(["extend", str(folder), "--len", "8192", "--scaling", "yarn", "--json", "-q"]) == 0
    record = json.loads(capfd.readouterr().out)
    assert record["hf_overrides"]["max_position_embeddings"] == 8192
    assert len(record["rotary"]["wavelengths"]["after"]) == 8


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--len", "8192", "--factor", "2"], "--scaling"),
        (["--scaling", "yarn", "--grid", "4x4"], "--grid"),
        (["--scaling", "yarn"], "--len"),
        (["--len", "99999", "--scaling", "longrope"], "long_factor"),
    ],
)
def test_wrong_use_is_told(words: list[str], said: str, model: Any, capfd: Any) -> None:
    assert run(["extend", str(model(LLAMA)), *words]) == 2
    assert said in capfd.readouterr().err


def test_gguf_gives_the_options_of_llama_cpp(tmp_path: Path, capfd: Any) -> None:
    gguf = pytest.importorskip("gguf")
    path = tmp_path / "model.gguf"
    writer = gguf.GGUFWriter(path, "qwen2")
    writer.add_context_length(32768)
    writer.add_embedding_length(64)
    writer.add_head_count(4)
    writer.add_rope_freq_base(1e6)
    writer.add_tensor("token_embd.weight", np.zeros((4, 64), np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    assert run(["extend", str(path), "--len", "131072", "--scaling", "yarn", "-q"]) == 0
    out = capfd.readouterr().out
    assert out == "--rope-scaling yarn --rope-scale 4 --yarn-orig-ctx 32768 -c 131072\n"


SMALL = {
    "vocab_size": 64,
    "hidden_size": 64,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
}
MODELS: dict[str, dict[str, Any]] = {
    "llama": {**SMALL, "head_dim": 16},
    "qwen2": SMALL,
    "mistral": {**SMALL, "head_dim": 16, "sliding_window": None},
    "mixtral": {**SMALL, "num_local_experts": 2, "sliding_window": None},
    "gpt_neox": {k: v for k, v in SMALL.items() if k != "num_key_value_heads"},
    "gemma3_text": {**SMALL, "head_dim": 16, "layer_types": ["sliding_attention", "full_attention"]},
    "deepseek_v3": {
        **SMALL,
        "num_key_value_heads": 4,
        "n_routed_experts": 4,
        "num_experts_per_tok": 2,
        "n_group": 1,
        "topk_group": 1,
        "n_shared_experts": 1,
        "moe_intermediate_size": 32,
        "q_lora_rank": 16,
        "kv_lora_rank": 16,
        "qk_rope_head_dim": 8,
        "qk_nope_head_dim": 8,
        "v_head_dim": 16,
        "first_k_dense_replace": 1,
    },
}


def test_layers_that_slide_are_not_scaled_where_one_block_would_scale_all(model: Any) -> None:
    thetas = {"global_rope_theta": 160000.0, "local_rope_theta": 10000.0}
    folder = model({**LLAMA, **thetas, "model_type": "modernbert"})
    edits = {".".join(e.path): e.new for e in stretch_model(str(folder), 8192, "yarn").edits}
    assert edits["rope_parameters"] == {
        "full_attention": {
            "rope_theta": 160000.0,
            "rope_type": "yarn",
            "factor": 4.0,
            "original_max_position_embeddings": 2048,
        },
        "sliding_attention": {"rope_theta": 10000.0, "rope_type": "default"},
    }


def test_a_type_that_is_not_known_is_called_so(model: Any) -> None:
    notes = stretch_model(str(model({**LLAMA, "model_type": "foo"})), 8192, "yarn").notes
    assert any("foo is not known to pe" in note for note in notes)


@pytest.mark.parametrize("kind", ["gptj", "codegen", "roformer", "baichuan", "chatglm"])
@pytest.mark.parametrize("scaling", ["yarn", "ntk"])
def test_a_scaling_that_the_code_of_a_model_does_not_read_is_refused(
    kind: str, scaling: str, model: Any, capfd: Any
) -> None:
    sizes = {
        "n_embd": 64,
        "n_head": 4,
        "n_positions": 2048,
        "seq_length": 2048,
        "kv_channels": 16,
        "rotary_dim": 8,
    }
    source = str(model({**LLAMA, **sizes, "model_type": kind}))
    assert run(["extend", source, "--len", "99999", "--scaling", scaling]) == 2
    assert "would have no effect" in capfd.readouterr().err


@pytest.mark.interop
@pytest.mark.slow
@pytest.mark.parametrize("scaling", ["yarn", "linear", "ntk", "llama3"])
@pytest.mark.parametrize("kind", MODELS)
def test_transformers_computes_the_table_that_pe_computes(kind: str, scaling: str, tmp_path: Path) -> None:
    import torch
    import transformers

    config = transformers.AutoConfig.for_model(kind, **MODELS[kind])
    torch.manual_seed(0)
    transformers.AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path / "old")
    old, new = tmp_path / "old", tmp_path / "new"
    assert run(["extend", str(old), "--len", "256", "--scaling", scaling, "-o", str(new)]) == 0
    assert (old / "model.safetensors").read_bytes() == (new / "model.safetensors").read_bytes()
    loaded = transformers.AutoModelForCausalLM.from_pretrained(new)
    with torch.no_grad():
        logits = loaded(torch.arange(256)[None] % 64).logits
    assert torch.isfinite(logits).all()
    rotary = next(m for name, m in loaded.named_modules() if name.endswith("rotary_emb"))
    kinds = ("full_attention", "sliding_attention") if kind == "gemma3_text" else (None,)
    for label in kinds:
        given = {} if label is None else {"layer_type": label}
        cos, sin = rotary(torch.zeros(1, 256, 64), torch.arange(256)[None], **given)
        out = str(tmp_path / f"{label}.safetensors")
        words = [
            "gen",
            "model",
            str(new),
            "--len",
            "256",
            "--layout",
            "half",
            "--compute",
            "float32",
            "-o",
            out,
        ]
        assert run([*words, *(("--layer-type", label) if label else ())]) == 0
        table = load_file(out)
        width = table["cos"].shape[1]
        np.testing.assert_allclose(table["cos"], cos[0, :, :width].numpy(), atol=3e-5)
        np.testing.assert_allclose(table["sin"], sin[0, :, :width].numpy(), atol=3e-5)


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"model_type": "t5gemma", "encoder": {"model_type": "t5_gemma_module"}, "decoder": {"model_type": "t5_gemma_module"}}, "encoder, decoder"),
        ({"model_type": "t5gemma2", "encoder": {"text_config": {"model_type": "t5gemma2_text"}}, "decoder": {"model_type": "t5gemma2_decoder"}}, "several parts"),
        ({"model_type": "sam3_vit_model", "hidden_size": 64, "num_attention_heads": 4}, "coordinates of an image"),
    ],
)  # fmt: skip
def test_what_has_several_scalings_or_none_is_refused_without_options_that_extend_does_not_have(
    config: dict[str, Any], said: str, tmp_path: Path
) -> None:
    sizes = {"max_position_embeddings": 64, "hidden_size": 64, "num_attention_heads": 4}
    for part in (config.get("decoder"), config.get("encoder", {}).get("text_config", config.get("encoder"))):
        if part is not None:
            part.update(sizes)
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config), encoding="utf-8")
    with pytest.raises(PeError, match=said) as refused:
        stretch_model(str(path), 256, "yarn")
    assert not {"component", "layer_type"} & set(str(refused.value).split())
