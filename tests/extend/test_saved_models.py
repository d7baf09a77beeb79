"""Kinds of saved models, small and random: extended by the plain command, loaded by their library, run at the new size.

All other tensors keep their values to the bit.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pe_cli import cli
from pe_cli.extend.findings import findings

pytestmark = [pytest.mark.interop, pytest.mark.slow]
torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

SMALL = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
TEXT = {"vocab_size": 100, **SMALL}
STACKS = {
    "vocab_size": 100,
    "d_model": 32,
    "encoder_layers": 1,
    "decoder_layers": 1,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 64,
    "decoder_ffn_dim": 64,
    "pad_token_id": 1,
    "bos_token_id": 0,
    "eos_token_id": 2,
}
IMAGE = {"image_size": 56, "patch_size": 8}
GPT = {"vocab_size": 100, "n_positions": 64, "n_embd": 32, "n_layer": 2, "n_head": 2}


def tokens(count: int) -> dict[str, Any]:
    return {"input_ids": torch.arange(count)[None] % 90 + 5}


def image(h: int, w: int | None = None) -> dict[str, Any]:
    return {"pixel_values": torch.linspace(-1, 1, 3 * h * (w or h)).reshape(1, 3, h, -1)}


def both(count: int) -> dict[str, Any]:
    return {**tokens(count), "decoder_input_ids": tokens(count)["input_ids"]}


def video(frames: int, side: int) -> dict[str, Any]:
    return {"pixel_values": torch.linspace(-1, 1, frames * 3 * side * side).reshape(1, frames, 3, side, side)}


def pair(count: int, side: int) -> dict[str, Any]:
    return {**tokens(count), **image(side)}


BOTH = ["--tensor", "*embed_positions.weight"]
TWO = {
    "text_config": {**TEXT, "max_position_embeddings": 40},
    "vision_config": {**IMAGE, **SMALL},
    "projection_dim": 16,
}


def boxes(count: int) -> dict[str, Any]:
    return {**tokens(count), "bbox": torch.zeros(1, count, 4, dtype=torch.long) + 3}


LEN = ["--len", "150"]


def bertlike(**more: Any) -> dict[str, Any]:
    return {**TEXT, "max_position_embeddings": 64, **more}


def robertalike(**more: Any) -> dict[str, Any]:
    return {**TEXT, "max_position_embeddings": 66, "pad_token_id": 1, **more}


TRANSFORMERS: dict[str, tuple[str, dict[str, Any], list[str], dict[str, Any]]] = {
    "albert": ("Albert", bertlike(embedding_size=16), LEN, tokens(150)),
    "electra": ("Electra", bertlike(embedding_size=16), LEN, tokens(150)),
    "distilbert": (
        "DistilBert",
        {
            "vocab_size": 100,
            "dim": 32,
            "n_layers": 1,
            "n_heads": 2,
            "hidden_dim": 64,
            "max_position_embeddings": 64,
        },
        LEN,
        tokens(150),
    ),
    "mobilebert": (
        "MobileBert",
        bertlike(embedding_size=16, intra_bottleneck_size=16, true_hidden_size=16),
        LEN,
        tokens(150),
    ),
    "mpnet": ("MPNet", robertalike(), LEN, tokens(150)),
    "xlm-roberta": ("XLMRoberta", robertalike(), LEN, tokens(150)),
    "camembert": ("Camembert", robertalike(), LEN, tokens(150)),
    "ibert": ("IBert", robertalike(), LEN, tokens(150)),
    "esm": (
        "Esm",
        robertalike(position_embedding_type="absolute", mask_token_id=3, emb_layer_norm_before=True),
        LEN,
        tokens(150),
    ),
    "nystromformer": (
        "Nystromformer",
        bertlike(segment_means_seq_len=150, num_landmarks=150),
        LEN,
        tokens(150),
    ),
    "yoso": ("Yoso", bertlike(), LEN, tokens(150)),
    "big_bird": ("BigBird", bertlike(attention_type="original_full"), LEN, tokens(150)),
    "longformer": ("Longformer", robertalike(attention_window=8), LEN, tokens(144)),
    "deberta": (
        "Deberta",
        bertlike(
            relative_attention=True,
            position_biased_input=True,
            pos_att_type=["p2c", "c2p"],
            max_relative_positions=-1,
        ),
        LEN,
        tokens(150),
    ),
    "deberta-v2": (
        "DebertaV2",
        bertlike(
            relative_attention=True,
            position_biased_input=True,
            pos_att_type=["p2c", "c2p"],
            max_relative_positions=-1,
        ),
        LEN,
        tokens(150),
    ),
    "layoutlm": (
        "LayoutLM",
        bertlike(max_2d_position_embeddings=64),
        ["--len", "150", "--tensor", "embeddings.position_embeddings.weight"],
        boxes(150),
    ),
    "layoutlm-2d": (
        "LayoutLM",
        bertlike(max_2d_position_embeddings=64),
        ["--len", "128", "--tensor", "*[xyhw]_position_embeddings.weight"],
        {**tokens(60), "bbox": torch.tensor([[[2, 3, 100, 120]] * 60])},
    ),
    "lilt": (
        "Lilt",
        robertalike(max_2d_position_embeddings=64, channel_shrink_ratio=4, hidden_size=48),
        [
            "--len",
            "150",
            "--tensor",
            "*.position_embeddings.weight",
            "--tensor",
            "*box_position_embeddings.weight",
        ],
        boxes(150),
    ),
    "markuplm": ("MarkupLM", robertalike(max_depth=5, xpath_unit_hidden_size=8), LEN, tokens(150)),
    "gpt_neo": (
        "GPTNeo",
        {
            "vocab_size": 100,
            "max_position_embeddings": 64,
            "hidden_size": 32,
            "num_layers": 2,
            "num_heads": 2,
            "attention_types": [[["global", "local"], 1]],
            "window_size": 8,
        },
        LEN,
        tokens(150),
    ),
    "gpt_bigcode": ("GPTBigCode", GPT, LEN, tokens(150)),
    "openai-gpt": ("OpenAIGPT", GPT, LEN, tokens(150)),
    "imagegpt": ("ImageGPT", {**GPT, "vocab_size": 100}, LEN, tokens(150)),
    "biogpt": ("BioGpt", bertlike(), LEN, tokens(150)),
    "xlm": (
        "XLM",
        {"vocab_size": 100, "emb_dim": 32, "n_layers": 1, "n_heads": 2, "max_position_embeddings": 64},
        LEN,
        tokens(150),
    ),
    "mbart": ("MBart", {**STACKS, "max_position_embeddings": 64}, [*LEN, *BOTH], both(150)),
    "plbart": ("PLBart", {**STACKS, "max_position_embeddings": 64}, [*LEN, *BOTH], both(150)),
    "blenderbot": ("Blenderbot", {**STACKS, "max_position_embeddings": 64}, [*LEN, *BOTH], both(150)),
    "led": (
        "LED",
        {
            **STACKS,
            "max_encoder_position_embeddings": 64,
            "max_decoder_position_embeddings": 32,
            "attention_window": 8,
        },
        ["--len", "150", "--tensor", "encoder.embed_positions.weight"],
        {**tokens(144), "decoder_input_ids": tokens(30)["input_ids"]},
    ),
    "prophetnet": (
        "ProphetNet",
        {
            "vocab_size": 100,
            "hidden_size": 32,
            "num_encoder_layers": 1,
            "num_decoder_layers": 1,
            "num_encoder_attention_heads": 2,
            "num_decoder_attention_heads": 2,
            "encoder_ffn_dim": 32,
            "decoder_ffn_dim": 32,
            "max_position_embeddings": 64,
        },
        ["--len", "150", "--tensor", "*.position_embeddings.weight"],
        both(100),
    ),
    "pegasus": ("Pegasus", {**STACKS, "max_position_embeddings": 64}, [*LEN, *BOTH], both(150)),
    "reformer": (
        "Reformer",
        {
            "attention_head_size": 16,
            "attn_layers": ["local"],
            "axial_pos_embds": True,
            "axial_pos_shape": [8, 8],
            "axial_pos_embds_dim": [16, 16],
            "hidden_size": 32,
            "num_attention_heads": 2,
            "feed_forward_size": 32,
            "max_position_embeddings": 64,
            "vocab_size": 100,
            "local_attn_chunk_length": 8,
            "is_decoder": False,
            "num_buckets": None,
        },
        ["--grid", "16x16"],
        tokens(256),
    ),
    "siglip-vision": (
        "Siglip",
        {k: v for k, v in TWO.items() if k != "projection_dim"},
        ["--grid", "12x12"],
        pair(40, 96),
    ),
    "siglip-text": (
        "Siglip",
        {k: v for k, v in TWO.items() if k != "projection_dim"},
        ["--len", "90"],
        pair(90, 56),
    ),
    "altclip": (
        "AltCLIP",
        {**TWO, "text_config": {**TEXT, "max_position_embeddings": 66, "project_dim": 16, "pad_token_id": 1}},
        ["--len", "150"],
        pair(150, 56),
    ),
    "blip-vision": ("BlipVision", {**IMAGE, **SMALL}, ["--grid", "12x12"], image(96)),
    "clipseg": ("CLIPSeg", TWO, ["--grid", "12x12"], pair(40, 96)),
    "flava-image": ("FlavaImage", {**IMAGE, **SMALL}, ["--grid", "12x12"], image(96)),
    "vit_msn": ("ViTMSN", {**IMAGE, **SMALL}, ["--grid", "12x12"], image(96)),
    "vit_mae": ("ViTMAE", {**IMAGE, **SMALL}, ["--grid", "12x12"], image(96)),
    "data2vec-vision": (
        "Data2VecVision",
        {**IMAGE, **SMALL, "use_absolute_position_embeddings": True},
        ["--grid", "9x9"],
        image(72),
    ),
    "dinov2_with_registers": (
        "Dinov2WithRegisters",
        {**IMAGE, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2},
        ["--grid", "12x12"],
        image(96),
    ),
    "dpt": (
        "DPT",
        {**IMAGE, **SMALL, "backbone_out_indices": [0, 1, 1, 1], "neck_hidden_sizes": [8, 8, 8, 8]},
        ["--grid", "12x12"],
        image(96),
    ),
    "ijepa": ("IJepa", {**IMAGE, **SMALL}, ["--grid", "12x12"], image(96)),
    "vitdet": (
        "VitDet",
        {
            "image_size": 64,
            "pretrain_image_size": 64,
            "patch_size": 8,
            "hidden_size": 32,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "use_relative_position_embeddings": True,
            "window_block_indices": [0],
            "residual_block_indices": [],
            "window_size": 4,
        },
        ["--grid", "12x12"],
        image(96),
    ),
    "vivit": (
        "Vivit",
        {"image_size": 16, "num_frames": 4, "tubelet_size": [2, 8, 8], **SMALL},
        ["--grid", "3x4x4"],
        video(6, 32),
    ),
    "timesformer-grid": ("Timesformer", {**IMAGE, **SMALL, "num_frames": 4}, ["--grid", "9x9"], video(4, 72)),
    "timesformer-time": (
        "Timesformer",
        {**IMAGE, **SMALL, "num_frames": 4},
        ["--len", "6", "--tensor", "*time_embeddings"],
        video(6, 56),
    ),
    "xclip-frames": (
        "XCLIP",
        {
            "text_config": {**TEXT, "max_position_embeddings": 40},
            "vision_config": {
                **IMAGE,
                **SMALL,
                "num_frames": 4,
                "mit_hidden_size": 16,
                "mit_num_attention_heads": 2,
                "mit_intermediate_size": 16,
            },
            "projection_dim": 16,
            "prompt_num_attention_heads": 2,
        },
        ["--len", "6", "--tensor", "mit.position_embedding"],
        {**tokens(40), **video(6, 56)},
    ),
    "ast": (
        "AST",
        {
            **SMALL,
            "max_length": 64,
            "num_mel_bins": 32,
            "patch_size": 16,
            "frequency_stride": 8,
            "time_stride": 8,
        },
        ["--grid", "3x10"],
        {"input_values": torch.linspace(-1, 1, 88 * 32).reshape(1, 88, 32)},
    ),
    "layoutlmv3-vision": (
        "LayoutLMv3",
        {
            **robertalike(
                coordinate_size=4,
                shape_size=8,
                max_2d_position_embeddings=64,
                input_size=56,
                patch_size=8,
                max_rel_pos=16,
                rel_pos_bins=8,
                rel_2d_pos_bins=8,
                max_rel_2d_pos=16,
            )
        },
        ["--grid", "9x9"],
        {**boxes(30), **image(72)},
    ),
    "git": (
        "Git",
        {**TEXT, "max_position_embeddings": 64, "vision_config": {**IMAGE, **SMALL}, "hidden_size": 32},
        ["--len", "150"],
        {**tokens(150)},
    ),
    "vilt": (
        "Vilt",
        {**TEXT, **IMAGE, "max_position_embeddings": 40},
        ["--len", "90"],
        {**tokens(90), **image(56)},
    ),
    "vilt-grid": (
        "Vilt",
        {**TEXT, **IMAGE, "max_position_embeddings": 40},
        ["--grid", "9x9"],
        {**tokens(40), **image(72)},
    ),
    "llava": (
        "Llava",
        {
            "text_config": {
                "model_type": "llama",
                **TEXT,
                "num_key_value_heads": 2,
                "max_position_embeddings": 128,
            },
            "vision_config": {"model_type": "clip_vision_model", **IMAGE, **SMALL},
            "image_token_index": 99,
            "image_seq_length": 49,
            "vision_feature_layer": -1,
        },
        ["--grid", "9x9"],
        {"input_ids": torch.tensor([[99] * 81 + [5, 6]]), **image(72)},
    ),
    "paligemma": (
        "PaliGemma",
        {
            "text_config": {
                "model_type": "gemma",
                **TEXT,
                "num_key_value_heads": 2,
                "head_dim": 16,
                "max_position_embeddings": 128,
            },
            "vision_config": {
                "model_type": "siglip_vision_model",
                **IMAGE,
                **SMALL,
                "vision_use_head": False,
                "projection_dim": 32,
            },
            "projection_dim": 32,
            "image_token_index": 99,
        },
        ["--grid", "9x9"],
        {"input_ids": torch.tensor([[99] * 81 + [5, 6]]), **image(72)},
    ),
    "trocr": (
        "TrOCRForCausalLM",
        {
            "vocab_size": 100,
            "d_model": 32,
            "decoder_layers": 1,
            "decoder_attention_heads": 2,
            "decoder_ffn_dim": 64,
            "max_position_embeddings": 64,
        },
        LEN,
        tokens(150),
    ),
}


def run(folder: Path, options: list[str]) -> Path:
    target = folder.with_name("new")
    assert cli.run(["extend", str(folder), *options, "-o", str(target), "-q"]) == 0
    assert findings(str(folder)) == findings(str(target)) == []
    return target


def not_zero(model: Any) -> Any:
    """Zeros, as many tables begin, would prove nothing."""
    for parameter in model.parameters():
        if not parameter.any():
            torch.nn.init.normal_(parameter, std=0.05)
    return model.eval()


def only_tables_changed(before: dict[str, Any], after: dict[str, Any]) -> None:
    changed = {key for key in before if before[key].shape != after[key].shape}
    assert changed
    assert all(torch.equal(before[key], after[key]) for key in before if key not in changed)


@pytest.mark.parametrize("name", TRANSFORMERS)
def test_transformers(name: str, tmp_path: Path) -> None:
    kind, settings, options, inputs = TRANSFORMERS[name]
    model_class = getattr(transformers, kind if kind.endswith("ForCausalLM") else f"{kind}Model")
    torch.manual_seed(0)
    config = getattr(transformers, f"{kind.removesuffix('ForCausalLM')}Config")(**settings)
    old = not_zero(model_class(config))
    old.save_pretrained(tmp_path / "old")
    new, told = model_class.from_pretrained(run(tmp_path / "old", options), output_loading_info=True)
    assert not any(told[problem] for problem in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    with torch.no_grad():
        result = new.eval()(**inputs)
    assert all(torch.isfinite(value).all() for value in result.to_tuple() if torch.is_tensor(value))
    only_tables_changed(old.state_dict(), new.state_dict())


TIMM: dict[str, tuple[str, dict[str, Any], list[str], int]] = {
    "vit": ("vit_tiny_patch16_224", {"depth": 1, "embed_dim": 32, "num_heads": 2}, ["--grid", "8x8"], 128),
    "deit3": (
        "deit3_small_patch16_224",
        {"depth": 1, "embed_dim": 32, "num_heads": 2},
        ["--grid", "8x8"],
        128,
    ),
    "deit-dist": (
        "deit_tiny_distilled_patch16_224",
        {"depth": 1, "embed_dim": 32, "num_heads": 2},
        ["--grid", "8x8"],
        128,
    ),
    "vit_reg": (
        "vit_small_patch14_reg4_dinov2",
        {"depth": 1, "embed_dim": 32, "num_heads": 2, "img_size": 112},
        ["--grid", "12x12"],
        168,
    ),
    "vit-siglip": (
        "vit_base_patch16_siglip_224",
        {"depth": 1, "embed_dim": 32, "num_heads": 2},
        ["--grid", "8x8"],
        128,
    ),
    "cait": ("cait_xxs24_224", {"depth": 1, "embed_dim": 32, "num_heads": 2}, ["--grid", "8x8"], 128),
    "convit": (
        "convit_tiny",
        {"depth": 1, "embed_dim": 32, "num_heads": 2, "local_up_to_layer": 0, "use_pos_embed": True},
        ["--grid", "8x8"],
        128,
    ),
    "beit": ("beit_base_patch16_224", {"depth": 1, "embed_dim": 32, "num_heads": 2}, ["--grid", "8x8"], 128),
    "eva02": (
        "eva02_tiny_patch14_224",
        {"depth": 1, "embed_dim": 48, "num_heads": 3},
        ["--grid", "8x8"],
        112,
    ),
    "pit": ("pit_ti_224", {}, ["--grid", "31x31"], 256),
    "visformer": (
        "visformer_tiny",
        {"embed_dim": 32, "depth": (1, 1, 1), "num_heads": 2},
        ["--grid", "16x16"],
        128,
    ),
    "tnt": (
        "tnt_s_legacy_patch16_224",
        {"embed_dim": 32, "inner_dim": 16, "depth": 1, "num_heads_inner": 2, "num_heads_outer": 2},
        ["--grid", "8x8"],
        128,
    ),
    "volo": ("volo_d1_224", {}, ["--grid", "8x8"], 128),
    "nest": ("nest_tiny", {}, ["--grid", "10x10"], 160),
    "crossvit": (
        "crossvit_tiny_240",
        {"embed_dim": (16, 16), "depth": [[1, 1, 0]], "num_heads": [2, 2], "mlp_ratio": [2, 2, 1]},
        ["--grid", "40x40", "--tensor", "pos_embed_*"],
        480,
    ),
    "levit": (
        "levit_128s",
        {"embed_dim": (16, 16, 16), "depth": (1, 1, 1), "num_heads": (1, 1, 1), "key_dim": 16},
        ["--grid", "16x16"],
        256,
    ),
    "tinyvit": (
        "tiny_vit_5m_224",
        {"embed_dims": [16, 16, 16, 16], "depths": [1, 1, 1, 1], "num_heads": [1, 1, 1, 1]},
        ["--window", "16x16"],
        256,
    ),
    "efficientformerv2": ("efficientformerv2_s0", {}, ["--grid", "16x16"], 256),
    "swin": (
        "swin_tiny_patch4_window7_224",
        {"embed_dim": 16, "depths": (1, 1), "num_heads": (1, 1)},
        ["--window", "14x14"],
        224,
    ),
    "hiera": (
        "hiera_tiny_224",
        {"embed_dim": 16, "num_heads": 1, "stages": (1, 1, 1, 1)},
        ["--grid", "64x64"],
        256,
    ),
    "samvit": (
        "samvit_base_patch16",
        {
            "depth": 2,
            "embed_dim": 32,
            "num_heads": 2,
            "global_attn_indexes": (1,),
            "window_size": 7,
            "img_size": 224,
        },
        ["--grid", "16x16"],
        256,
    ),
    "naflex": (
        "naflexvit_base_patch16_gap",
        {"depth": 1, "embed_dim": 32, "num_heads": 2},
        ["--grid", "20x20"],
        320,
    ),
}

SAVED = (
    "input_size",
    "fixed_input_size",
    "mean",
    "std",
    "crop_pct",
    "interpolation",
    "first_conv",
    "classifier",
)


@pytest.mark.parametrize("name", TIMM)
def test_timm(name: str, tmp_path: Path) -> None:
    timm = pytest.importorskip("timm")
    from safetensors.torch import load_file, save_file

    architecture, args, options, side = TIMM[name]
    folder = tmp_path / "old"
    folder.mkdir()
    torch.manual_seed(0)
    old = not_zero(timm.create_model(architecture, pretrained=False, num_classes=3, **args))
    known = {key: value for key, value in old.pretrained_cfg.items() if key in SAVED}
    if "img_size" in args:
        known["input_size"] = (3, args["img_size"], args["img_size"])
    config = {"architecture": architecture, "num_classes": 3, "model_args": args, "pretrained_cfg": known}
    (folder / "config.json").write_text(json.dumps(config, indent=2))
    save_file(old.state_dict(), folder / "model.safetensors", metadata={"format": "pt"})
    target = run(folder, options)
    new = timm.create_model(f"local-dir:{target}", pretrained=False).eval()
    weights = load_file(target / "model.safetensors")
    new.load_state_dict(weights, strict=True)
    with torch.no_grad():
        assert torch.isfinite(new(torch.linspace(-1, 1, 3 * side * side).reshape(1, 3, side, side))).all()
    only_tables_changed(old.state_dict(), weights)


OPEN_CLIP = {
    "embed_dim": 16,
    "vision_cfg": {"image_size": 32, "layers": 1, "width": 32, "head_width": 16, "patch_size": 8},
    "text_cfg": {"context_length": 20, "vocab_size": 100, "width": 32, "heads": 2, "layers": 1},
}


@pytest.mark.parametrize(
    ("options", "side", "length"),
    [(["--grid", "9x9"], 72, 20), (["--len", "40", "--method", "tile"], 32, 40)],
)
def test_open_clip(options: list[str], side: int, length: int, tmp_path: Path) -> None:
    """open_clip resizes what does not fit its configuration at load: with the new one nothing is resized again."""
    open_clip = pytest.importorskip("open_clip")
    from safetensors.torch import load_file, save_file

    folder = tmp_path / "old"
    folder.mkdir()
    torch.manual_seed(0)
    old = not_zero(open_clip.CLIP(**OPEN_CLIP))
    save_file(old.state_dict(), folder / "open_clip_model.safetensors", metadata={"format": "pt"})
    (folder / "open_clip_config.json").write_text(json.dumps({"model_cfg": OPEN_CLIP, "preprocess_cfg": {}}))
    target = run(folder, options)
    config = json.loads((target / "open_clip_config.json").read_text())["model_cfg"]
    weights = load_file(target / "open_clip_model.safetensors")
    new = open_clip.CLIP(**config).eval()
    new.load_state_dict(weights, strict=True)
    with torch.no_grad():
        features = new(
            torch.linspace(-1, 1, 3 * side * side).reshape(1, 3, side, side), torch.ones(1, length).long()
        )
    assert all(torch.isfinite(feature).all() for feature in features)
    only_tables_changed(old.state_dict(), weights)


SD3 = {
    "sample_size": 16,
    "patch_size": 2,
    "in_channels": 4,
    "num_layers": 1,
    "attention_head_dim": 8,
    "num_attention_heads": 4,
    "joint_attention_dim": 32,
    "caption_projection_dim": 32,
    "pooled_projection_dim": 32,
    "out_channels": 4,
    "pos_embed_max_size": 12,
}


def test_sd3(tmp_path: Path) -> None:
    """Its table is a formula: the new one is what diffusers makes for the new configuration."""
    diffusers = pytest.importorskip("diffusers")
    old = diffusers.SD3Transformer2DModel(**SD3).eval()
    old.save_pretrained(tmp_path / "old")
    target = run(tmp_path / "old", ["--grid", "24x24"])
    new = diffusers.SD3Transformer2DModel.from_pretrained(target).eval()
    fresh = diffusers.SD3Transformer2DModel(**{**SD3, "pos_embed_max_size": 24})
    assert (new.pos_embed.pos_embed - fresh.pos_embed.pos_embed).abs().max() < 1e-6
    with torch.no_grad():
        sample = new(
            torch.ones(1, 4, 40, 40), torch.ones(1, 5, 32), torch.ones(1, 32), torch.tensor([3])
        ).sample
    assert torch.isfinite(sample).all()
    only_tables_changed(old.state_dict(), new.state_dict())


def test_auraflow(tmp_path: Path) -> None:
    """Its table is learned, and counted by all of its patches."""
    diffusers = pytest.importorskip("diffusers")
    settings = {
        "sample_size": 8,
        "patch_size": 2,
        "in_channels": 4,
        "num_mmdit_layers": 1,
        "num_single_dit_layers": 1,
        "attention_head_dim": 8,
        "num_attention_heads": 4,
        "joint_attention_dim": 32,
        "caption_projection_dim": 32,
        "out_channels": 4,
        "pos_embed_max_size": 64,
    }
    old = not_zero(diffusers.AuraFlowTransformer2DModel(**settings))
    old.save_pretrained(tmp_path / "old")
    new = diffusers.AuraFlowTransformer2DModel.from_pretrained(
        run(tmp_path / "old", ["--grid", "12x12"])
    ).eval()
    assert new.config.pos_embed_max_size == 144
    with torch.no_grad():
        assert torch.isfinite(
            new(torch.ones(1, 4, 24, 24), torch.ones(1, 5, 32), torch.tensor([3])).sample
        ).all()
    only_tables_changed(old.state_dict(), new.state_dict())
