"""Where a configuration is found: folders, adapters, caches, presets, and what is said where there is none."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pe_cli.errors import PeError
from pe_cli.models.resolve import resolve

LLAMA = {"model_type": "llama", "hidden_size": 512, "num_attention_heads": 4, "rope_theta": 5e5}


def write(path: Path, values: Any = LLAMA) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(values if isinstance(values, str) else json.dumps(values))
    return path


@pytest.mark.parametrize(
    "name",
    [
        "config.json",
        "0_Transformer/config.json",
        "transformer/config.json",
        "model_config.json",
        "models--a--b/snapshots/1/config.json",
    ],
)
def test_folders_that_hold_a_configuration(tmp_path: Path, name: str) -> None:
    write(tmp_path / name)
    folder = tmp_path / "models--a--b" if name.startswith("models--") else tmp_path
    assert resolve(str(folder)).parameters["base"] == 5e5


def test_the_snapshot_that_main_names(tmp_path: Path) -> None:
    folder = tmp_path / "models--a--b"
    write(folder / "snapshots/new/config.json")
    write(folder / "snapshots/old/config.json", LLAMA | {"rope_theta": 1e4})
    write(folder / "refs/main", "old")
    assert resolve(str(folder)).parameters["base"] == 1e4


def test_original_parameters_and_yaml(tmp_path: Path) -> None:
    write(tmp_path / "a/original/params.json", {"dim": 512, "n_heads": 4, "rope_theta": 5e5})
    assert resolve(str(tmp_path / "a")).parameters == {"dim": 128, "base": 5e5, "layout": "complex"}
    pytest.importorskip("yaml")
    write(
        tmp_path / "b/model_config.yaml",
        "n_embd: 512\nn_head: 4\nblock_size: 8\nrotary_percentage: 0.5\nrope_base: 100000\n",
    )
    assert resolve(str(tmp_path / "b")).parameters == {"dim": 64, "base": 1e5, "layout": "half"}


def test_references_of_yaml_are_followed(tmp_path: Path) -> None:
    """OmegaConf: `${a.b}` from the top, `${.b}` from the object that it is in; what leads nowhere stays as it is."""
    pytest.importorskip("yaml")
    text = """
    sizes: {heads: 4, width: "${sizes.wide}", wide: 512}
    run: "${oc.env:NAME}"
    loop: "${loop}"
    model:
      encoder_seq_length: 2048
      max_position_embeddings: "${.encoder_seq_length}"
      hidden_size: "${sizes.width}"
      num_attention_heads: "${..sizes.heads}"
      position_embedding_type: rope
    """
    found = resolve(str(write(tmp_path / "model_config.yaml", text)))
    assert (found.parameters["dim"], found.max_position) == (128, 2048)


def test_a_model_of_the_hub_is_looked_up_in_the_cache_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(
        PeError,
        match=r"pe downloads nothing: fetch https://huggingface.co/Org/Model/resolve/main/config.json",
    ):
        resolve("Org/Model")
    write(tmp_path / "models--Org--Model/snapshots/1/config.json")
    assert resolve("Org/Model").parameters["base"] == 5e5
    adapter = write(
        tmp_path / "adapter/adapter_config.json",
        {"peft_type": "LORA", "base_model_name_or_path": "Org/Model"},
    )
    assert resolve(str(adapter.parent)).parameters["base"] == 5e5


def test_adapters_name_their_base_and_never_turn_in_circles(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    adapter = {"peft_type": "LORA", "base_model_name_or_path": "Org/Base"}
    write(tmp_path / "a/adapter_config.json", adapter)
    with pytest.raises(PeError, match="base model Org/Base"):
        resolve(str(tmp_path / "a"))
    for one, other in (("b", "c"), ("c", "b")):
        write(tmp_path / one / "adapter_config.json", adapter | {"base_model_name_or_path": f"../{other}"})
    with pytest.raises(PeError, match="adapters on one another"):
        resolve(str(tmp_path / "b"))


def test_a_preset_by_its_name() -> None:
    assert resolve("llama-3.1").parameters["factor"] == 8.0


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"config.json": "version https://git-lfs.github.com/spec/v1\noid sha256:0\n"}, "git lfs pull"),
        ({"genai_config.json": {"model": {"decoder": {"head_size": 64}}}}, "onnxruntime-genai"),
        (
            {"model_index.json": {}, "text_encoder/config.json": {}, "vae/config.json": {}},
            "text_encoder, vae",
        ),
        (
            {"adapter_config.json": {"peft_type": "LORA", "base_model_name_or_path": None}},
            "does not name its base",
        ),
        ({"x.nemo": ""}, r"x\.nemo"),
        ({"other.json": {}}, r"other\.json"),
        ({}, "no config.json in this folder"),
    ],
)
def test_what_helps_where_there_is_none(tmp_path: Path, files: dict[str, Any], message: str) -> None:
    for name, values in files.items():
        write(tmp_path / name, values)
    with pytest.raises(PeError, match=message):
        resolve(str(tmp_path))
