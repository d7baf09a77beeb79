"""`pe_cli.extend` does all that the command does: files, model folders, configurations of rotary models."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import pe_cli
from pe_cli.errors import PeError

WPE = "wpe.weight"
LLAMA = {
    "model_type": "llama",
    "hidden_size": 64,
    "num_attention_heads": 4,
    "max_position_embeddings": 2048,
    "rope_theta": 1e4,
}


def folder_of(path: Path, config: dict[str, object], **tensors: np.ndarray) -> Path:
    path.mkdir()
    (path / "config.json").write_text(json.dumps(config))
    save_file({"other": np.ones((2, 2), np.float32), **tensors}, path / "model.safetensors")
    return path


def gpt2(path: Path) -> Path:
    table = np.random.default_rng(0).normal(size=(64, 8)).astype(np.float32)
    return folder_of(path, {"model_type": "gpt2", "n_positions": 64}, **{WPE: table})


def test_a_folder_is_written_or_only_looked_at(tmp_path: Path) -> None:
    old, new = gpt2(tmp_path / "old"), tmp_path / "new"
    seen = pe_cli.extend(old, 100)
    assert [change["file"] for change in seen.to_dict()["files"]] == ["model.safetensors", "config.json"]
    assert not new.exists()
    pe_cli.extend(old, 100, output=new)
    assert load_file(new / "model.safetensors")[WPE].shape == (100, 8)
    assert json.loads((new / "config.json").read_text())["n_positions"] == 100


def test_a_file_is_written(tmp_path: Path) -> None:
    source = gpt2(tmp_path / "old") / "model.safetensors"
    done = pe_cli.extend(source, 100, output=tmp_path / "new.safetensors", config="none")
    assert load_file(tmp_path / "new.safetensors")[WPE].shape == (100, 8)
    assert list(done.tables) == []
    assert pe_cli.extend(source, 100).tables[WPE].shape == (100, 8)


def test_a_rotary_model_is_scaled(tmp_path: Path) -> None:
    old, new = folder_of(tmp_path / "old", LLAMA), tmp_path / "new"
    done = pe_cli.extend(old, 8192, scaling="yarn", output=new)
    assert json.loads((new / "config.json").read_text())["rope_scaling"]["factor"] == 4.0
    assert done.to_dict()["rotary"]["factor"] == 4.0


def test_sides_are_numbers_or_text(tmp_path: Path) -> None:
    table = np.random.default_rng(0).normal(size=(1, 17, 4))
    for size in ((6, 6), 6, "6x6"):
        assert pe_cli.extend(table, grid=size).shape == (1, 37, 4)


def test_errors_name_parameters_as_python_does(tmp_path: Path) -> None:
    with pytest.raises(PeError, match=r"^factor 2: by which rule\? Give scaling "):
        pe_cli.extend(folder_of(tmp_path / "old", LLAMA), 8192, factor=2)
    with pytest.raises(PeError, match="give one of length, grid, window"):
        pe_cli.extend(np.ones((4, 4)))
