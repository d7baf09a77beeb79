"""Fields of configurations that size a table, in the spellings that models have."""

from __future__ import annotations

from typing import Any

import pytest

from pe_cli.errors import PeError
from pe_cli.extend.config import (
    ModelConfig,
    edited,
    grid_edits,
    grid_of,
    length_edits,
    suffix_of,
    window_edits,
)
from pe_cli.extend.find import recognise
from pe_cli.extend.rows import in_step
from pe_cli.files import TensorSpec

VISION = "vision_model.embeddings.position_embedding.weight"
# configuration, tensor, present grid, new grid, what the configuration becomes
GRIDS: dict[str, tuple[dict[str, Any], str, tuple[int, ...] | None, tuple[int, ...], dict[str, Any]]] = {
    "vit": (
        {"image_size": 224, "patch_size": 16},
        "x",
        (14, 14),
        (24, 24),
        {"image_size": 384, "patch_size": 16},
    ),
    "pair": (
        {"image_size": [224, 320], "patch_size": 16},
        "x",
        (14, 20),
        (8, 8),
        {"image_size": [128, 128], "patch_size": 16},
    ),
    "not square": (
        {"image_size": 224, "patch_size": 16},
        "x",
        (14, 14),
        (8, 9),
        {"image_size": [128, 144], "patch_size": 16},
    ),
    "nested": (
        {"vision_config": {"image_size": 224, "patch_size": 32}, "text_config": {"image_size": 3}},
        VISION,
        (7, 7),
        (12, 12),
        {"vision_config": {"image_size": 384, "patch_size": 32}, "text_config": {"image_size": 3}},
    ),
    "layoutlmv3": (
        {"input_size": 224, "patch_size": 16},
        "x",
        (14, 14),
        (28, 28),
        {"input_size": 448, "patch_size": 16},
    ),
    "hiera": (
        {"image_size": [224, 224], "patch_size": [7, 7], "patch_stride": [4, 4]},
        "x",
        (56, 56),
        (64, 64),
        {"image_size": [256, 256], "patch_size": [7, 7], "patch_stride": [4, 4]},
    ),
    "vivit": (
        {"image_size": 224, "num_frames": 32, "tubelet_size": [2, 16, 16]},
        "x",
        (16, 14, 14),
        (8, 20, 20),
        {"image_size": 320, "num_frames": 16, "tubelet_size": [2, 16, 16]},
    ),
    "siglip2": (
        {"num_patches": 256, "patch_size": 16},
        "x",
        None,
        (20, 20),
        {"num_patches": 400, "patch_size": 16},
    ),
    "ast": (
        {
            "model_type": "audio-spectrogram-transformer",
            "patch_size": 16,
            "frequency_stride": 10,
            "time_stride": 10,
            "num_mel_bins": 128,
            "max_length": 1024,
        },
        "x",
        (12, 101),
        (12, 51),
        {
            "model_type": "audio-spectrogram-transformer",
            "patch_size": 16,
            "frequency_stride": 10,
            "time_stride": 10,
            "num_mel_bins": 128,
            "max_length": 516,
        },
    ),
    "deep": (
        {"vlm_config": {"vision_config": {"image_size": 224, "patch_size": 14}}},
        "vlm.vision_tower.embeddings.position_embedding.weight",
        (16, 16),
        (24, 24),
        {"vlm_config": {"vision_config": {"image_size": 336, "patch_size": 14}}},
    ),
    "kimi": (
        {"pos_emb_height": 64, "pos_emb_width": 64, "patch_size": 14},
        "x",
        (64, 64),
        (32, 96),
        {"pos_emb_height": 32, "pos_emb_width": 96, "patch_size": 14},
    ),
    "sam2": (
        {"window_positional_embedding_background_size": [7, 7], "image_size": 1024, "patch_size": 4},
        "x",
        (7, 7),
        (14, 14),
        {"window_positional_embedding_background_size": [14, 14], "image_size": 1024, "patch_size": 4},
    ),
    "timm": (
        {"pretrained_cfg": {"input_size": [3, 224, 224]}, "model_args": {"img_size": 224}},
        "x",
        None,
        (20, 20),
        {"pretrained_cfg": {"input_size": [3, 320, 320]}, "model_args": {"img_size": [320, 320]}},
    ),
}


@pytest.mark.parametrize("name", GRIDS)
def test_grids(name: str) -> None:
    data, tensor, now, new, after = GRIDS[name]
    config = ModelConfig(data, "config.json")
    assert grid_of(config, tensor) == now
    guessed = {"siglip2": (16, 16), "timm": (14, 14)}  # by the table alone
    edits, _ = grid_edits(config, tensor, now or guessed[name], new)
    assert edited(data, edits) == after


def test_lengths_count_rows_or_usable_ones() -> None:
    rows = ModelConfig({"max_position_embeddings": 514}, "config.json")
    usable = ModelConfig({"max_position_embeddings": 512}, "config.json")
    assert [str(edit) for edit in length_edits(rows, "x", (514, 512), (1026, 1024))[0]] == [
        "max_position_embeddings: 514 -> 1026"
    ]
    assert [str(edit) for edit in length_edits(usable, "x", (514, 512), (1026, 1024))[0]] == [
        "max_position_embeddings: 512 -> 1024"
    ]


def test_of_two_stacks_only_the_own_field() -> None:
    config = ModelConfig({"max_source_positions": 1500, "max_target_positions": 448}, "config.json")
    (edit,) = length_edits(config, "model.decoder.embed_positions.weight", (448, 448), (600, 600))[0]
    assert edit.path == ("max_target_positions",)


def test_a_field_left_to_its_default_is_written() -> None:
    config = ModelConfig({"text_config": {"model_type": "clip_text_model"}}, "config.json")
    (edit,) = length_edits(config, "text_model.embeddings.position_embedding.weight", (77, 77), (248, 248))[0]
    assert (edit.path, edit.old, edit.new) == (("text_config", "max_position_embeddings"), None, 248)


def test_windows() -> None:
    swin = ModelConfig({"model_type": "swin", "window_size": 7}, "config.json")
    assert [str(edit) for edit in window_edits(swin, "x", (7, 7), (12, 12))[0]] == ["window_size: 7 -> 12"]
    beit = ModelConfig({"model_type": "beit", "image_size": 224, "patch_size": 16}, "config.json")
    assert [str(edit) for edit in window_edits(beit, "x", (14, 14), (24, 24))[0]] == [
        "image_size: 224 -> 384"
    ]
    with pytest.raises(PeError, match="says window_size 7, but x is for 8x8"):
        window_edits(swin, "x", (8, 8), (12, 12))


def test_a_bare_vision_model_is_known_by_its_sizes() -> None:
    vision = ModelConfig({"image_size": 224, "patch_size": 16, "hidden_size": 8}, "c")
    text = ModelConfig({"max_position_embeddings": 77, "hidden_size": 8}, "c")
    name = "embeddings.position_embedding.weight"
    assert vision.sizes_image(name)
    assert not text.sizes_image(name)
    spec = TensorSpec(name, "float32", (197, 8))
    kinds = [found.kind for found in (recognise(spec), recognise(spec, vision.sizes_image)) if found]
    assert kinds == ["sequence", "grid"]


def test_detection_tokens() -> None:
    assert suffix_of(ModelConfig({"num_detection_tokens": 5}, "c"), "x") == 5
    assert suffix_of(ModelConfig({"model_type": "yolos"}, "c"), "x") == 100
    assert suffix_of(ModelConfig({"model_type": "vit"}, "c"), "x") is None


def test_stages_of_a_pyramid_go_in_step() -> None:
    """PVT: patches of 4, then 2 of the stage before; at 112 pixels the last stage has 7 // 2 cells."""
    pvt = ModelConfig({"model_type": "pvt", "image_size": 64, "patch_sizes": [4, 2, 2, 2]}, "config.json")
    names = [f"encoder.patch_embeddings.{stage}.position_embeddings" for stage in range(4)]
    old = [grid_of(pvt, name) for name in names]
    assert old == [(16, 16), (8, 8), (4, 4), (2, 2)]
    new = [in_step((28, 28), grid, old[0], halving=False) for grid in old if grid and old[0]]
    assert new == [(28, 28), (14, 14), (7, 7), (3, 3)]
    edits = [grid_edits(pvt, name, was or (), now)[0] for name, was, now in zip(names, old, new, strict=True)]
    assert [[str(edit) for edit in stage] for stage in edits] == [["image_size: 64 -> 112"], [], [], []]
