"""`pe gen model`: what it writes, prints and refuses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file

from pe_cli.cli import run

LLAMA = {
    "model_type": "llama", "head_dim": 64, "rope_theta": 500000.0, "max_position_embeddings": 131072,
    "rope_scaling": {
        "rope_type": "llama3", "factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192,
    },
}  # fmt: skip


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Write a config.json into the working folder."""
    monkeypatch.chdir(tmp_path)

    def write(values: dict[str, Any]) -> None:
        (tmp_path / "config.json").write_text(json.dumps(values))

    return write


def made(*argv: str) -> dict[str, np.ndarray]:
    assert run(["gen", "model", "config.json", *argv, "-o", "out.safetensors", "--force", "-q"]) == 0
    return load_file("out.safetensors")  # type: ignore[no-any-return]


def trouble(capsys: pytest.CaptureFixture[str], *argv: str) -> str:
    assert run(["gen", "model", "config.json", *argv]) == 2
    return capsys.readouterr().err


def test_the_table_is_that_of_the_options(config: Any) -> None:
    config(LLAMA)
    model = made("--positions", "0,1,8191,131071")
    scaling = [
        "--scaling",
        "llama3",
        "--factor",
        "32",
        "--original-len",
        "8192",
        "--low-freq-factor",
        "1",
        "--high-freq-factor",
        "4",
    ]
    rope = [
        "gen",
        "rope",
        "--dim",
        "64",
        "--base",
        "500000",
        *scaling,
        "--layout",
        "half",
        "--positions",
        "0,1,8191,131071",
    ]
    assert run([*rope, "-o", "rope.safetensors", "-q"]) == 0
    for name, table in load_file("rope.safetensors").items():
        np.testing.assert_array_equal(model[name], table)


def test_the_layout_is_the_models_own_unless_another_is_asked_for(config: Any) -> None:
    config({"model_type": "gpt_oss"})
    assert made("--len", "4")["cos"].shape == (4, 32)
    assert made("--len", "4", "--layout", "half")["cos"].shape == (4, 64)


def test_the_file_says_how_it_was_made(config: Any) -> None:
    config(LLAMA)
    made("--len", "8")
    with safe_open("out.safetensors", "numpy") as file:
        record = json.loads(file.metadata()["pe"])
    assert record["command"] == "pe gen model config.json --len 8"
    assert record["encoding"] == "rope"
    assert record["parameters"]["factor"] == 32.0
    assert record["facts"]["model_type"] == "llama"
    assert record["facts"]["attention_factor"] == 1.0


def test_every_value_is_said_with_its_origin(config: Any, capsys: pytest.CaptureFixture[str]) -> None:
    config(
        {
            "model_type": "llama",
            "hidden_size": 512,
            "num_attention_heads": 8,
            "rope_scaling": {"type": "linear", "factor": 2.0},
        }
    )
    assert run(["gen", "model", "config.json", "--len", "4", "-o", "out.npz"]) == 0
    said = capsys.readouterr().err
    assert "hidden_size 512 / num_attention_heads 8" in said
    assert "rope_scaling.factor" in said
    assert "warning: rope_theta is not in config.json" in said


def test_json_has_origins_and_warnings(config: Any, capsys: pytest.CaptureFixture[str]) -> None:
    config({"model_type": "smollm3"})
    assert run(["gen", "model", "config.json", "--len", "4", "--json", "-q"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["parameters"]["base"] == 2e6
    assert "SmolLM3Config" in report["origins"]["base"]
    assert any("rope_theta" in warning for warning in report["warnings"])
    assert report["facts"]["also"] == ["rotated-layers"]


def test_a_value_of_the_command_line_has_no_origin_in_the_model(config: Any, capsys: Any) -> None:
    config({"model_type": "llama", "hidden_size": 64, "num_attention_heads": 4})
    assert run("gen model config.json --len 4 --layout split --dtype float16 --json -q".split()) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["parameters"].items() >= {"layout": "split", "dtype": "float16"}.items()
    assert report["origins"].items() >= dict.fromkeys(("layout", "dtype"), "command line").items()
    assert report["origins"]["dim"] == "hidden_size 64 / num_attention_heads 4"
    config({"model_type": "llama4_text", "num_hidden_layers": 4})
    assert run("gen model config.json --table rotated-layers --json -q".split()) == 0
    assert json.loads(capsys.readouterr().out)["origins"] == {}


def test_side_tables_are_tables_of_their_own(config: Any) -> None:
    config({"model_type": "llama4_text", "num_hidden_layers": 4})
    layers = made("--table", "rotated-layers")["rotated-layers"]
    assert (layers.dtype, layers.tolist()) == (np.uint8, [1, 1, 1, 0])
    warm = made("--table", "query-temperature", "--positions", "0,8191,16383", "--name", "scale")["scale"]
    np.testing.assert_allclose(warm, 1 + 0.1 * np.log([1, 2, 3]), rtol=1e-6)


def test_a_vision_tower_goes_by_its_grid(config: Any) -> None:
    config(
        {
            "model_type": "pixtral",
            "hidden_size": 1024,
            "num_attention_heads": 16,
            "image_size": 64,
            "patch_size": 16,
            "rope_theta": 1e4,
        }
    )
    assert made("--grid", "2x3")["cos"].shape == (6, 64)
    assert made()["cos"].shape == (16, 64)


def test_alibi_takes_pairs(config: Any) -> None:
    config({"model_type": "mpt", "n_heads": 4})
    assert made("--len", "8")["alibi"].shape == (4, 8)
    config({"model_type": "t5"})
    assert made("--q-len", "2", "--k-len", "5", "--layer-type", "decoder")["t5"].shape == (2, 5)


def test_a_shard_is_a_part_of_the_table(config: Any) -> None:
    config(LLAMA)
    whole = made("--len", "10")["cos"]
    np.testing.assert_array_equal(made("--len", "10", "--shard", "1/2")["cos"], whole[5:])


TOWER = {
    "model_type": "qwen2_vl_vision",
    "embed_dim": 64,
    "num_heads": 2,
    "spatial_merge_size": 2,
    "rope_parameters": {"rope_type": "axial", "rope_theta": 10000.0},
}


def test_a_tower_has_its_rows_in_merged_squares_or_row_by_row(
    config: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    config(TOWER)
    words = ["gen", "model", "config.json", "--grid", "4x6", "--json"]
    assert run([*words, "-o", "model.safetensors"]) == 0
    assert json.loads(capsys.readouterr().out)["facts"]["row_order"] == "squares of 2x2 patches"
    assert run([*words, "--row-order", "raster", "-o", "raster.safetensors"]) == 0
    assert json.loads(capsys.readouterr().out)["facts"]["row_order"] == "row by row"
    order = np.arange(24).reshape(2, 2, 3, 2).transpose(0, 2, 1, 3).ravel()
    held, plain = load_file("model.safetensors"), load_file("raster.safetensors")
    np.testing.assert_array_equal(held["cos"], plain["cos"][order])
    assert "multiples" in trouble(capsys, "--grid", "5x6", "-o", "odd.safetensors")
    config(LLAMA)
    assert "no grid" in trouble(capsys, "--len", "4", "--row-order", "raster", "-o", "l.npz")


def test_all_layer_types_are_in_one_file(config: Any, capsys: pytest.CaptureFixture[str]) -> None:
    gemma = {
        "model_type": "gemma3_text",
        "head_dim": 32,
        "rope_theta": 1000000.0,
        "rope_local_base_freq": 10000.0,
    }
    kinds = ["sliding_attention", "sliding_attention", "full_attention"]
    config({**gemma, "rope_scaling": {"rope_type": "linear", "factor": 8.0}, "layer_types": kinds})
    assert run(["gen", "model", "config.json", "--len", "9", "--layer-type", "all", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)["facts"]
    assert facts["full_attention"]["layers"] == [2]
    assert facts["sliding_attention"]["layers"] == [0, 1]
    every = made("--len", "9", "--layer-type", "all")
    assert len(every) == 4
    for label in ("full_attention", "sliding_attention"):
        for part, table in made("--len", "9", "--layer-type", label).items():
            np.testing.assert_array_equal(every[f"{label}.{part}"], table)
    config(LLAMA)
    assert "leave" in trouble(capsys, "--len", "4", "--layer-type", "all", "-o", "one.npz")


def test_stdin_is_a_configuration(config: Any) -> None:
    import subprocess
    import sys

    argv = [sys.executable, "-m", "pe_cli", "gen", "model", "-", "--len", "4", "-o", "out.safetensors", "-q"]
    assert subprocess.run(argv, input=json.dumps(LLAMA).encode(), check=False).returncode == 0


@pytest.mark.parametrize(
    ("values", "argv", "message"),
    [
        (LLAMA, [], "--len N or --positions"),
        (LLAMA, ["--len", "4", "--q-len", "2"], "--q-len 2: this model uses rope"),
        (LLAMA, ["--len", "4", "--table", "query-temperature"], "no table of this model 'query-temperature'"),
        (LLAMA, ["--len", "4", "--truncate"], "--truncate is for YaRN"),
        (LLAMA, ["--len", "4", "--layout", "hlaf"], "did you mean 'half'"),
        (LLAMA, ["--len", "4", "--dtype", "float33"], "no dtype 'float33'"),
        ({"model_type": "bloom", "n_head": 4}, ["--len", "4", "--layout", "half"], "which has no layout"),
        ({"model_type": "bloom", "n_head": 4}, ["--len", "4", "--grid", "2x2"], "which has no grid"),
        ({"model_type": "qwen2_vl_vision"}, ["--len", "4"], "2 axes"),
        ({"model_type": "bert"}, ["--len", "4"], "learned table"),
        (LLAMA | {"rope_scaling": {"type": "linear", "factor": "8"}}, ["--len", "4"], "write \"factor\": 8"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)  # fmt: skip
def test_wrong_use_is_one_line(
    config: Any, capsys: pytest.CaptureFixture[str], values: dict[str, Any], argv: list[str], message: str
) -> None:
    config(values)
    said = trouble(capsys, *argv, "-o", "out.safetensors")
    assert message in said
    assert len(said.strip().split("\n")) == 1 or said.strip().split("\n")[-1].startswith("pe: ")
    assert not Path("out.safetensors").exists()


@pytest.mark.parametrize("model", ["llama-3.1", "qwen2.5-vl"])
def test_float64_is_what_was_asked_for(model: str, pe: Any, tmp_path: Path) -> None:
    more = ["--grid", "2x2"] if model == "qwen2.5-vl" else ["--len", "4"]
    pe("gen", "model", model, *more, "--dtype", "float64", "-o", "x.npz")
    with np.load(tmp_path / "x.npz") as file:
        assert {array.dtype.name for array in file.values()} == {"float64"}


@pytest.mark.parametrize(
    "option",
    ["--layout half", "--compute float32", "--grid 2x2", "--len 4", "--shard 0/2", "--dtype float64"],
)
def test_a_table_by_layer_refuses_what_it_does_not_take(config: Any, capsys: Any, option: str) -> None:
    config({"model_type": "llama4_text", "num_hidden_layers": 8, "head_dim": 16, "rope_theta": 5e5})
    said = trouble(capsys, "--table", "rotated-layers", *option.split())
    assert f"{option}: --table rotated-layers does not take it" in said


def test_a_table_by_position_takes_rows_and_no_pairs(config: Any, capsys: Any) -> None:
    config({"model_type": "llama4_text", "num_hidden_layers": 8, "head_dim": 16, "rope_theta": 5e5})
    assert (
        made("--table", "query-temperature", "--len", "4", "--prefix-rows", "1")["query-temperature"][0] == 0
    )
    assert "--q-len 3: " in trouble(capsys, "--table", "query-temperature", "--len", "4", "--q-len", "3")


def test_rows_of_zeros_stand_in_front_of_an_added_table_of_cells(config: Any, capsys: Any) -> None:
    config(
        {
            "_class_name": "DiTTransformer2DModel",
            "num_attention_heads": 2,
            "attention_head_dim": 8,
            "sample_size": 8,
        }
    )
    table, whole = made("--prefix-rows", "2")["sinusoidal"], made()["sinusoidal"]
    assert not table[:2].any()
    assert np.array_equal(table[2:], whole)
    config({"_class_name": "FluxTransformer2DModel"})
    assert "rotary table" in trouble(capsys, "--grid", "2x2", "--prefix-rows", "2")
