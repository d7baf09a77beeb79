"""Fields that follow a table, and only those; what other files of a folder repeat; what is said where nothing can follow."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from pe_cli import cli
from pe_cli.extend.findings import findings

RNG = np.random.default_rng(5)


def table(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def model(folder: Path, tensors: dict[str, np.ndarray], **files: Any) -> Path:
    folder.mkdir()
    save_file(tensors, folder / files.pop("weights", "model.safetensors"))
    for name, content in files.items():
        (folder / f"{name}.json").write_text(json.dumps(content))
    return folder


def extended(folder: Path, *options: str) -> dict[str, Any]:
    target = folder.with_name("new")
    assert cli.run(["extend", str(folder), *options, "-o", str(target), "-q"]) == 0
    return {path.stem: json.loads(path.read_text()) for path in target.glob("*.json")}


SIDES = {f"embeddings.{axis}_position_embeddings.weight": (64, 8) for axis in "hwxy"}


def layoutlm(folder: Path) -> Path:
    tensors = {name: table(*shape) for name, shape in SIDES.items()}
    tensors["embeddings.position_embeddings.weight"] = table(40, 8)
    config = {"model_type": "layoutlm", "max_2d_position_embeddings": 64, "max_position_embeddings": 40}
    return model(folder, tensors, config=config, tokenizer_config={"model_max_length": 40})


def test_tables_of_the_page_leave_the_tokenizer_alone(tmp_path: Path) -> None:
    new = extended(layoutlm(tmp_path / "m"), "--len", "128", "--tensor", "*[xyhw]_position_embeddings.weight")
    assert new["config"]["max_2d_position_embeddings"] == 128
    assert new["config"]["max_position_embeddings"] == 40
    assert new["tokenizer_config"]["model_max_length"] == 40


def led(folder: Path, limit: int) -> Path:
    tensors = {
        f"{stack}.embed_positions.weight": table(rows, 8)
        for stack, rows in (("encoder", 128), ("decoder", 64))
    }
    lengths = {"max_encoder_position_embeddings": 128, "max_decoder_position_embeddings": 64}
    config = {"model_type": "led", **lengths}
    return model(folder, tensors, config=config, tokenizer_config={"model_max_length": limit})


@pytest.mark.parametrize(
    ("limit", "length", "tensor", "new"),
    [
        (128, 256, "*embed_positions.weight", 256),  # both change: it was the encoder's
        (64, 256, "*embed_positions.weight", 256),
        (128, 32, "decoder.*", 128),  # the encoder still has as many
        (64, 32, "decoder.*", 32),
        (64, 256, "encoder.*", 64),  # the decoder ends there
        (128, 256, "encoder.*", 256),
    ],
)
def test_a_limit_of_tokens_follows_the_stack_that_it_is_of(
    tmp_path: Path, limit: int, length: int, tensor: str, new: int
) -> None:
    files = extended(led(tmp_path / "m", limit), "--len", str(length), "--tensor", tensor)
    assert files["tokenizer_config"]["model_max_length"] == new


def test_the_limit_follows_the_factors_of_reformer(tmp_path: Path) -> None:
    tensors = {
        f"embeddings.position_embeddings.weights.{i}": table(*shape)
        for i, shape in enumerate([(8, 1, 4), (1, 8, 4)])
    }
    config = {"model_type": "reformer", "axial_pos_shape": [8, 8], "max_position_embeddings": 64}
    folder = model(tmp_path / "m", tensors, config=config, tokenizer_config={"model_max_length": 64})
    assert extended(folder, "--grid", "16x16")["tokenizer_config"]["model_max_length"] == 256


def tower(folder: Path, config: dict[str, Any], **files: Any) -> Path:
    """A tower of 8x8 patches of 8 pixels."""
    sizes = {"image_size": 64, "patch_size": 8}
    whole = {"model_type": "clip", **config, "vision_config": {**config.get("vision_config", {}), **sizes}}
    return model(
        folder, {"vision_model.embeddings.position_embedding.weight": table(64, 8)}, config=whole, **files
    )


def test_tiles_grow_with_the_image_that_they_are_cut_out_of(tmp_path: Path) -> None:
    made = {"max_image_size": {"longest_edge": 64}, "size": {"longest_edge": 256}}
    config = {"model_type": "smolvlm", "scale_factor": 2}
    folder = tower(tmp_path / "m", config, preprocessor_config=made, processor_config={"image_seq_len": 16})
    new = extended(folder, "--grid", "16x16")
    assert new["preprocessor_config"] == {
        "max_image_size": {"longest_edge": 128},
        "size": {"longest_edge": 512},
    }
    assert new["processor_config"] == {"image_seq_len": 64}


def test_masks_stay_in_proportion_to_the_image(tmp_path: Path) -> None:
    made = {
        "size": {"longest_edge": 64},
        "mask_size": {"longest_edge": 16},
        "mask_pad_size": {"height": 16, "width": 16},
    }
    new = extended(tower(tmp_path / "m", {}, preprocessor_config=made), "--grid", "16x16")[
        "preprocessor_config"
    ]
    assert new == {
        "size": {"longest_edge": 128},
        "mask_size": {"longest_edge": 32},
        "mask_pad_size": {"height": 32, "width": 32},
    }


def test_what_counts_patches_and_has_none_of_the_new_number_is_said(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = tower(tmp_path / "m", {"projector_patch_to_query_dict": {"64": 16}})
    assert cli.run(["extend", str(folder), "--grid", "16x16", "--dry-run"]) == 0
    assert "projector_patch_to_query_dict" in capfd.readouterr().err


def test_a_grid_of_which_mask_units_are_no_part_is_refused(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = tower(tmp_path / "m", {"vision_config": {"masked_unit_size": [8, 8]}})
    assert cli.run(["extend", str(folder), "--grid", "20x20", "--dry-run"]) == 2
    assert "masked_unit_size [8, 8]" in capfd.readouterr().err


def test_pixels_of_imagegpt_are_a_grid(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    config = {"model_type": "imagegpt", "n_positions": 64}
    folder = model(
        tmp_path / "m",
        {"wpe.weight": table(64, 8)},
        config=config,
        preprocessor_config={"size": {"height": 8, "width": 8}},
    )
    new = extended(folder, "--grid", "16x16")
    assert new["config"]["n_positions"] == 256
    assert new["preprocessor_config"]["size"] == {"height": 16, "width": 16}
    capfd.readouterr()
    assert cli.run(["extend", str(folder), "--len", "100", "--dry-run"]) == 0
    assert "--grid keeps the lines apart" in capfd.readouterr().err


def timm(folder: Path, rows: int, size: int, kernel: int) -> Path:
    tensors = {"pos_embed": table(1, rows, 8), "patch_embed.proj.weight": table(8, 3, kernel, kernel)}
    sizes = {"input_size": [3, size, size], "test_input_size": [3, size + 64, size + 64]}
    return model(folder, tensors, config={"architecture": "vit", "pretrained_cfg": sizes})


@pytest.mark.parametrize(
    ("rows", "size", "kernel", "new"),
    [(197, 224, 16, 384), (729, 384, 14, 336), (785, 224, 16, 192)],  # side by side, with a rest, overlapping
)
def test_timm_sizes_follow_the_kernel(tmp_path: Path, rows: int, size: int, kernel: int, new: int) -> None:
    files = extended(timm(tmp_path / "m", rows, size, kernel), "--grid", "24x24")
    sizes = files["config"]["pretrained_cfg"]
    assert sizes["input_size"] == sizes["test_input_size"] == [3, new, new]


@pytest.mark.parametrize(("rows", "size"), [(197, 384), (577, 224)])
def test_an_image_that_the_kernel_does_not_cut_into_the_grid(
    tmp_path: Path, rows: int, size: int, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = timm(tmp_path / "m", rows, size, 16)
    assert f"{size // 16}x{size // 16} patches" in findings(str(folder))[0].what
    assert cli.run(["extend", str(folder), "--grid", "28x28", "--dry-run"]) == 2
    assert "input_size" in capfd.readouterr().err


def test_a_shared_field_names_all_its_tables(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    folder = layoutlm(tmp_path / "m")
    assert (
        cli.run(
            ["extend", str(folder), "--len", "128", "--tensor", "*x_position*", "-o", str(tmp_path / "n")]
        )
        == 2
    )
    told = capfd.readouterr().err
    assert all(f"{axis}_position_embeddings" in told for axis in "hwy")


@pytest.mark.parametrize(("kind", "buckets", "most"), [("deberta", 0, 32), ("deberta-v2", 8, -1)])
def test_relative_rows_of_deberta(tmp_path: Path, kind: str, buckets: int, most: int) -> None:
    """Without buckets the old number is written down; with them nothing counts by the length."""
    config = {
        "model_type": kind,
        "max_position_embeddings": 32,
        "max_relative_positions": -1,
        "relative_attention": True,
        **({"position_buckets": buckets} if buckets else {}),
    }
    tensors = {
        "embeddings.position_embeddings.weight": table(32, 8),
        "encoder.rel_embeddings.weight": table(64, 8),
    }
    new = extended(model(tmp_path / "m", tensors, config=config), "--len", "48")["config"]
    assert (new["max_position_embeddings"], new["max_relative_positions"]) == (48, most)


@pytest.mark.parametrize("size", [256, {"height": 256, "width": 256}, {"shortest_edge": 256}])
def test_what_a_crop_is_cut_out_of_grows_with_it(tmp_path: Path, size: Any) -> None:
    config = {"model_type": "deit", "hidden_size": 8, "image_size": 224, "patch_size": 16}
    processor = {"do_center_crop": True, "size": size, "crop_size": {"height": 224, "width": 224}}
    tensors = {"embeddings.position_embeddings": table(1, 198, 8), "other.weight": table(2, 2)}
    folder = model(tmp_path / "m", tensors, config=config, preprocessor_config=processor)
    new = extended(folder, "--grid", "24x24")["preprocessor_config"]
    assert new["crop_size"] == {"height": 384, "width": 384}
    sides = new["size"].values() if isinstance(new["size"], dict) else [new["size"]]
    assert set(sides) == {439}  # 384 * 256 / 224, rounded up


@pytest.mark.parametrize(
    ("config", "before", "after"),
    [
        ({"model_type": "paligemma"}, 49, 81),
        ({"model_type": "idefics3", "scale_factor": 7}, 1, 1),
        ({"model_type": "gemma3", "mm_tokens_per_image": 49}, 49, 49),
    ],
)
def test_tokens_of_an_image(tmp_path: Path, config: dict[str, Any], before: int, after: int) -> None:
    """They follow the patches where these become tokens, and stay where a model pools them."""
    vision = {"image_size": 56, "patch_size": 8, "hidden_size": 8, "model_type": "siglip_vision_model"}
    tensors = {"vision_tower.embeddings.position_embedding.weight": table(49, 8), "other.weight": table(2, 2)}
    folder = model(
        tmp_path / "m",
        tensors,
        config={**config, "vision_config": vision},
        processor_config={"image_seq_length": before},
    )
    new = extended(folder, "--grid", "9x9")
    assert new["config"]["vision_config"]["image_size"] == 72
    assert new["processor_config"]["image_seq_length"] == after


def test_blocks_of_nest_are_not_rows_of_the_image(tmp_path: Path) -> None:
    old = {f"levels.{level}.pos_embed": table(1, 4 ** (2 - level), 49, 8) for level in range(3)}
    save_file(old, tmp_path / "n.safetensors")
    assert (
        cli.run(
            [
                "extend",
                str(tmp_path / "n.safetensors"),
                "--grid",
                "7x7",
                "-o",
                str(tmp_path / "same.safetensors"),
                "-q",
            ]
        )
        == 0
    )
    same = load_file(tmp_path / "same.safetensors")
    assert all(np.allclose(same[name], old[name], atol=1e-6) for name in old)
    assert (
        cli.run(
            [
                "extend",
                str(tmp_path / "n.safetensors"),
                "--grid",
                "9x9",
                "-o",
                str(tmp_path / "new.safetensors"),
                "-q",
            ]
        )
        == 0
    )
    new = load_file(tmp_path / "new.safetensors")
    assert [new[name].shape for name in old] == [(1, 16, 81, 8), (1, 4, 81, 8), (1, 1, 81, 8)]


def test_tiles_of_llama_vision_follow_their_grid(tmp_path: Path) -> None:
    """Each tile of each aspect ratio is resampled as the table of the grid is."""
    grid, tiles = table(50, 8), table(9, 4 * 50 * 8)
    tiles[2, 50 * 8 : 2 * 50 * 8] = grid.reshape(-1)
    prefix = "vision_model.gated_positional_embedding"
    save_file(
        {f"{prefix}.embedding": grid, f"{prefix}.tile_embedding.weight": tiles}, tmp_path / "m.safetensors"
    )
    assert (
        cli.run(
            [
                "extend",
                str(tmp_path / "m.safetensors"),
                "--grid",
                "9x9",
                "-o",
                str(tmp_path / "o.safetensors"),
                "-q",
            ]
        )
        == 0
    )
    new = load_file(tmp_path / "o.safetensors")
    rows = new[f"{prefix}.tile_embedding.weight"].reshape(9, 4, 82, 8)
    assert np.array_equal(rows[2, 1], new[f"{prefix}.embedding"])


def test_swin_v2_keeps_the_scale_of_its_coordinates(tmp_path: Path) -> None:
    from pe_cli import swin

    old, new = (swin(window=(side, side), version="2", pretrained_window=(8, 8)) for side in (8, 12))
    name = "layers.0.blocks.0.attn"
    tensors = {
        f"{name}.{key}": np.asarray(old[key]) for key in ("relative_coords_table", "relative_position_index")
    }
    save_file({**tensors, f"{name}.cpb_mlp.0.weight": table(16, 2)}, tmp_path / "s.safetensors")
    assert (
        cli.run(
            [
                "extend",
                str(tmp_path / "s.safetensors"),
                "--window",
                "12x12",
                "-o",
                str(tmp_path / "o.safetensors"),
                "-q",
            ]
        )
        == 0
    )
    got = load_file(tmp_path / "o.safetensors")
    want = np.asarray(new["relative_coords_table"])
    assert np.allclose(got[f"{name}.relative_coords_table"].reshape(want.shape), want, atol=1e-6)
    assert np.array_equal(got[f"{name}.relative_position_index"], new["relative_position_index"])


def test_windows_as_large_as_the_grid_are_not_guessed(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """SAM where the window is the grid: only the configuration tells which layers attend to all of it."""
    tensors = {"vision_encoder.pos_embed": table(1, 8, 8, 16)}
    for layer in range(2):
        tensors |= {f"vision_encoder.layers.{layer}.attn.rel_pos_{axis}": table(15, 4) for axis in "hw"}
    save_file(tensors, tmp_path / "s.safetensors")
    assert (
        cli.run(
            [
                "extend",
                str(tmp_path / "s.safetensors"),
                "--grid",
                "12x12",
                "-o",
                str(tmp_path / "o.safetensors"),
            ]
        )
        == 2
    )
    assert "--config" in capfd.readouterr().err
    vision = {"image_size": 64, "patch_size": 8, "window_size": 8, "global_attn_indexes": [1]}
    (tmp_path / "c.json").write_text(json.dumps({"model_type": "sam", "vision_config": vision}))
    config = ["--config", str(tmp_path / "c.json")]
    assert (
        cli.run(
            [
                "extend",
                str(tmp_path / "s.safetensors"),
                "--grid",
                "12x12",
                "-o",
                str(tmp_path / "o.safetensors"),
                "-q",
                *config,
            ]
        )
        == 0
    )
    new = load_file(tmp_path / "o.safetensors")
    assert [len(new[f"vision_encoder.layers.{layer}.attn.rel_pos_h"]) for layer in range(2)] == [15, 23]


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({"adapter_config.json": "{}", "adapter_model.safetensors": ""}, "base model"),
        ({"flax_model.msgpack": "x"}, "Flax"),
        ({"model.onnx": "x"}, "export"),
        ({"model.gguf": "x"}, "gguf"),
    ],
)
def test_folders_without_weights_say_what_to_do(
    tmp_path: Path, files: dict[str, str], words: str, capfd: pytest.CaptureFixture[str]
) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    assert cli.run(["extend", str(tmp_path), "--len", "9", "-o", str(tmp_path.with_name("o"))]) == 2
    assert words in capfd.readouterr().err


def test_random_rows_are_those_of_the_seed_and_the_row(tmp_path: Path) -> None:
    """Row p is the same, however many rows are asked for."""
    np.save(tmp_path / "t.npy", table(16, 8))
    for length in (24, 40):
        out = str(tmp_path / f"{length}.npy")
        assert (
            cli.run(
                [
                    "extend",
                    str(tmp_path / "t.npy"),
                    "--len",
                    str(length),
                    "--method",
                    "random",
                    "--seed",
                    "3",
                    "-o",
                    out,
                    "-q",
                ]
            )
            == 0
        )
    short, long = (np.load(tmp_path / f"{length}.npy") for length in (24, 40))
    assert np.array_equal(short, long[:24])
