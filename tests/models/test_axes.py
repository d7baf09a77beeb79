"""Diffusion transformers by the class that their configuration names."""

from __future__ import annotations

import importlib
import inspect
import re
from typing import Any

import numpy as np
import pytest

from pe_cli.encodings.rope.rotary import rope
from pe_cli.errors import PeError
from pe_cli.models.configuration import Configuration, data
from pe_cli.models.resolve import from_config, resolve_configuration
from pe_cli.models.resolved import Resolved


def resolved(name: str, **values: Any) -> Resolved:
    return resolve_configuration(Configuration("config.json", {"_class_name": name, **values}))


@pytest.mark.parametrize("name", [name for form in data("denoisers")["rotary"] for name in form["classes"]])
def test_every_class_makes_a_table(name: str) -> None:
    found = resolved(name, use_rotary_positional_embeddings=True)
    place = np.arange(found.axes)[None]
    tensors = rope(place, **found.parameters)
    assert all(len(table) == 1 for table in tensors.values())
    assert found.parameters.keys() == found.origins.keys()


def test_flux_has_its_axes_side_by_side() -> None:
    found = resolved("FluxTransformer2DModel", axes_dims_rope=[16, 56, 56])
    expected = {"dim": 128, "base": 10000.0, "axes": (16, 56, 56), "layout": "adjacent"}
    assert (found.parameters, found.warnings) == (expected, ())


@pytest.mark.parametrize(
    ("name", "values", "said"),
    [
        ("FluxTransformer2DModel", {"axes_dims_rope": 5}, "axes_dims_rope is 5, a list of numbers"),
        ("FluxTransformer2DModel", {"axes_dims_rope": [4.5, 6, 6]}, "a list of whole numbers"),
        ("CogView4Transformer2DModel", {"rope_axes_dim": [256]}, "a list of 2 whole numbers"),
        ("LTX2VideoTransformer3DModel", {"rope_type": ["split"]}, "one of interleaved, split"),
        ("Transformer2DModel", {"norm_type": ["ada_norm_zero"]}, "a part of a U-Net"),
    ],
)
def test_a_value_of_another_kind_is_named(name: str, values: dict[str, Any], said: str) -> None:
    with pytest.raises(PeError, match=said):
        resolved(name, **values)


def test_what_the_file_leaves_out_is_loud() -> None:
    found = resolved("Flux2Transformer2DModel")
    assert (found.parameters["base"], found.parameters["dim"]) == (2000.0, 128)
    assert {warning.split()[0] for warning in found.warnings} == {"rope_theta", "axes_dims_rope"}


def test_a_class_that_does_not_rotate_or_is_not_known() -> None:
    with pytest.raises(PeError, match="sinusoidal --style cogvideox"):
        resolved("CogVideoXTransformer3DModel")
    with pytest.raises(
        PeError, match=r"'MyTransformer' is not known here; its code .*in the file: rope_axes\)"
    ):
        resolved("MyTransformer", rope_axes=[8, 8])
    with pytest.raises(PeError, match="did you mean 'FluxTransformer2DModel'"):
        resolved("FluxTransformr2DModel")


def test_a_position_setting_that_nothing_reads_is_named() -> None:
    found = resolved("FluxTransformer2DModel", axes_dims_rope=[16, 56, 56], rope_twist=2)
    assert found.unread == ("rope_twist",)
    assert "rope_twist had no part" in found.warnings[0]


@pytest.mark.interop
def test_flux_and_wan_against_diffusers() -> None:
    torch = pytest.importorskip("torch")
    pytest.importorskip("diffusers")
    from diffusers.models.transformers.transformer_flux import FluxPosEmbed
    from diffusers.models.transformers.transformer_wan import WanRotaryPosEmbed

    places = np.stack(np.meshgrid(np.arange(1), np.arange(4), np.arange(6), indexing="ij"), -1).reshape(-1, 3)
    flux = rope(places, **resolved("FluxTransformer2DModel", axes_dims_rope=[16, 56, 56]).parameters)
    cos, sin = FluxPosEmbed(10000, [16, 56, 56])(torch.tensor(places))
    np.testing.assert_allclose(flux["cos"], cos.numpy(), atol=1e-6)
    np.testing.assert_allclose(flux["sin"], sin.numpy(), atol=1e-6)
    wan = rope(places, **resolved("WanTransformer3DModel").parameters)
    cos, sin = WanRotaryPosEmbed(128, (1, 1, 1), 64)(torch.zeros(1, 1, 1, 4, 6))
    np.testing.assert_allclose(wan["cos"], cos.numpy().reshape(24, 128), atol=1e-6)
    np.testing.assert_allclose(wan["sin"], sin.numpy().reshape(24, 128), atol=1e-6)


def made(name: str, positions: Any = None, grid: Any = None, **values: Any) -> Any:
    options = {"grid": grid} if grid else {}
    return from_config({"_class_name": name, **values}, positions, **options)


def agree(ours: Any, theirs: Any, atol: float = 5e-6) -> None:
    want = theirs.detach().numpy()
    np.testing.assert_allclose(np.asarray(ours), want.reshape(-1, want.shape[-1]), atol=atol)


PLACES = np.stack(np.meshgrid(np.arange(2), np.arange(3), np.arange(4), indexing="ij"), -1).reshape(-1, 3)


@pytest.mark.interop
@pytest.mark.parametrize(
    ("name", "module", "rotary"),
    [
        ("BriaTransformer2DModel", "transformer_bria", "BriaEmbedND"),
        ("BriaFiboTransformer2DModel", "transformer_bria_fibo", "BriaFiboEmbedND"),
        ("OvisImageTransformer2DModel", "transformer_ovis_image", "OvisImagePosEmbed"),
        ("LongCatImageTransformer2DModel", "transformer_longcat_image", "LongCatImagePosEmbed"),
        ("ChromaTransformer2DModel", "transformer_chroma", "FluxPosEmbed"),
    ],
)
def test_axes_side_by_side_against_diffusers(name: str, module: str, rotary: str) -> None:
    torch = pytest.importorskip("torch")
    code = importlib.import_module(f"diffusers.models.transformers.{module}")
    cos, sin = getattr(code, rotary)(10000, [16, 56, 56])(torch.tensor(PLACES))[:2]
    agree(made(name, grid=(2, 3, 4))["cos"], cos)
    agree(made(name, grid=(2, 3, 4))["sin"], sin)


@pytest.mark.interop
def test_video_transformers_against_diffusers() -> None:
    torch = pytest.importorskip("torch")
    pytest.importorskip("diffusers")
    from diffusers.models.transformers import transformer_hunyuan_video15 as hunyuan
    from diffusers.models.transformers import transformer_hunyuan_video_framepack as framepack
    from diffusers.models.transformers import transformer_skyreels_v2 as skyreels
    from diffusers.models.transformers import transformer_wan_animate as animate
    from diffusers.models.transformers import transformer_wan_vace as vace

    latents = torch.zeros(1, 1, 2, 3, 4)
    cos, _ = hunyuan.HunyuanVideo15RotaryPosEmbed(1, 1, [16, 56, 56], 256.0)(latents)
    agree(made("HunyuanVideo15Transformer3DModel", grid=(2, 3, 4))["cos"], cos)
    rotary = framepack.HunyuanVideoFramepackRotaryPosEmbed(1, 1, [16, 56, 56], 256.0)
    cos, _ = rotary(torch.arange(2), 3, 4, torch.device("cpu"))
    agree(made("HunyuanVideoTransformer3DModelPacked", grid=(2, 3, 4))["cos"], cos)
    for name, rotary in (
        ("SkyReelsV2Transformer3DModel", skyreels.SkyReelsV2RotaryPosEmbed),
        ("WanAnimateTransformer3DModel", animate.WanRotaryPosEmbed),
        ("WanVACETransformer3DModel", vace.WanRotaryPosEmbed),
    ):
        agree(made(name, grid=(2, 3, 4))["cos"], rotary(128, (1, 1, 1), 64)(latents)[0])


def turned(matrices: Any) -> Any:
    """The cosines of (…, d/2, 2, 2) turning matrices, each twice in a row."""
    return matrices[..., 0, 0].repeat_interleave(2, -1)


@pytest.mark.interop
def test_other_image_and_video_transformers_against_diffusers() -> None:
    torch = pytest.importorskip("torch")
    pytest.importorskip("diffusers")
    from diffusers.models.transformers import transformer_anyflow as anyflow
    from diffusers.models.transformers import transformer_bria_fibo2 as fibo2
    from diffusers.models.transformers import transformer_ernie_image as ernie
    from diffusers.models.transformers import transformer_glm_image as glm
    from diffusers.models.transformers import transformer_helios as helios
    from diffusers.models.transformers import transformer_hidream_image as hidream
    from diffusers.models.transformers import transformer_hunyuanimage as hunyuan
    from diffusers.models.transformers import transformer_kandinsky as kandinsky
    from diffusers.models.transformers import transformer_krea2 as krea2
    from diffusers.models.transformers import transformer_motif_video as motif
    from diffusers.models.transformers import transformer_nucleusmoe_image as nucleus
    from diffusers.models.transformers import transformer_prx as prx
    from diffusers.models.transformers import transformer_sana_video as sana

    image, video = torch.zeros(1, 1, 3, 4), torch.zeros(1, 1, 2, 3, 4)
    places, cells = torch.tensor(PLACES), torch.tensor(PLACES)[:12, 1:]

    def table(name: str, *grid: int) -> Any:
        return made(name, grid=grid or (2, 3, 4))

    agree(table("HiDreamImageTransformer2DModel", 3, 4)["cos"],
          turned(hidream.HiDreamImageEmbedND(10000, [32, 32])(cells[None].double())))  # fmt: skip
    agree(
        table("PRXTransformer2DModel", 3, 4)["cos"],
        turned(prx.PRXEmbedND(64, 10000, [32, 32])(cells[None].double())),
    )
    sides = [torch.arange(n) for n in (2, 3, 4)]
    rotary = kandinsky.Kandinsky5RoPE3D((16, 24, 24))((1, 2, 3, 4), sides)
    agree(table("Kandinsky5Transformer3DModel")["cos"], turned(rotary))
    agree(table("Krea2Transformer2DModel")["sin"], krea2.Krea2RotaryPosEmbed(1000, [32, 48, 48])(places)[1])
    flat = helios.HeliosRotaryPosEmbed((44, 42, 42), 10000.0)(torch.arange(2)[None], 3, 4, "cpu")[0]
    agree(table("HeliosTransformer3DModel")["cos"], flat[:128].permute(1, 2, 3, 0))
    rotary = hunyuan.HunyuanImageRotaryPosEmbed((1, 1), (64, 64), 256.0)(image)
    agree(table("HunyuanImageTransformer2DModel", 3, 4)["cos"], rotary[0])
    rotary = motif.MotifVideoRotaryPosEmbed(1, 1, [16, 56, 56], 256.0)(video)
    agree(table("MotifVideoTransformer3DModel")["cos"], rotary[0])
    agree(table("BriaFibo2Transformer2DModel")["freqs_cis"].imag,
          fibo2.RopeEmbedder(256.0, [32, 48, 48])(places).imag)  # fmt: skip
    angles = ernie.ErnieImageEmbedND3(128, 256, (32, 48, 48))(places[None].float())
    agree(table("ErnieImageTransformer2DModel")["cos"], angles.cos())
    assert resolved("ErnieImageTransformer2DModel").pairing == "half"
    agree(table("GlmImageTransformer2DModel", 3, 4)["sin"], glm.GlmImageRotaryPosEmbed(40, 1)(image)[1])
    agree(table("SanaVideoTransformer3DModel")["cos"], sana.WanRotaryPosEmbed(112, (1, 1, 1), 64)(video)[0])
    rotary = anyflow.AnyFlowRotaryPosEmbed(128, (1, 1, 1), 64)
    agree(
        table("AnyFlowTransformer3DModel")["freqs_cis"].imag,
        rotary._forward_full_frame(2, 3, 4, torch.device("cpu")).imag,
    )
    shape, cpu = [(2, 3, 4)], torch.device("cpu")
    rotary = nucleus.NucleusMoEEmbedRope(10000, [16, 56, 56], True)(shape, cpu, 1)
    agree(table("NucleusMoEImageTransformer2DModel")["freqs_cis"].imag, rotary[0].imag)


@pytest.mark.interop
def test_cosmos_stretches_each_axis() -> None:
    torch = pytest.importorskip("torch")
    pytest.importorskip("diffusers")
    from diffusers.models.transformers.transformer_cosmos import CosmosRotaryPosEmbed

    rotary, latents = (
        CosmosRotaryPosEmbed(96, patch_size=(1, 1, 1), rope_scale=(20 / 24, 2.0, 3.0)),
        torch.zeros(1, 1, 2, 3, 4),
    )
    sizes = {"attention_head_dim": 96, "rope_scale": [20 / 24, 2.0, 3.0]}
    agree(made("CosmosTransformer3DModel", grid=(2, 3, 4), **sizes)["cos"], rotary(latents)[0])
    places = PLACES * [24 / 30, 1, 1]
    agree(made("CosmosTransformer3DModel", places, **sizes)["sin"], rotary(latents, fps=30)[1])
    with pytest.raises(PeError, match="a positive number is needed for each of the axes"):
        made("CosmosTransformer3DModel", grid=(2, 3, 4), rope_scale=[1.0, 2.0])


@pytest.mark.interop
def test_cogview4_reads_the_rows_of_its_table() -> None:
    torch = pytest.importorskip("torch")
    pytest.importorskip("diffusers")
    from diffusers.models.transformers.transformer_cogview4 import CogView4RotaryPosEmbed

    cos, sin = CogView4RotaryPosEmbed(40, 2, (256, 256))(torch.zeros(1, 1, 12, 20))
    found = made("CogView4Transformer2DModel", grid=(6, 10))
    agree(found["cos"], cos)
    agree(found["sin"], sin)


@pytest.mark.interop
@pytest.mark.parametrize("kind", ["interleaved", "split"])
def test_ltx2_takes_fractions_of_the_longest_video(kind: str) -> None:
    torch = pytest.importorskip("torch")
    pytest.importorskip("diffusers")
    from diffusers.models.transformers.transformer_ltx2 import LTX2AudioVideoRotaryPosEmbed

    rotary = LTX2AudioVideoRotaryPosEmbed(512, rope_type=kind, num_attention_heads=4)
    bounds = rotary.prepare_video_coords(1, 2, 3, 4, torch.device("cpu"))
    cos, _ = rotary(bounds)
    places = bounds.mean(-1)[0].T.double().numpy() / [20, 2048, 2048]
    found = made("LTX2VideoTransformer3DModel", places, num_attention_heads=4, rope_type=kind)["cos"]
    agree(found, cos if kind == "interleaved" else cos[0].transpose(0, 1).reshape(24, -1), atol=4e-3)


@pytest.mark.slow
@pytest.mark.interop
def test_sines_and_cosines_of_patches_against_diffusers() -> None:
    torch = pytest.importorskip("torch")
    pytest.importorskip("diffusers")
    from diffusers.models.embeddings import PatchEmbed

    def added(rows: int, columns: int, **options: Any) -> Any:
        embed = PatchEmbed(patch_size=2, in_channels=4, **options)
        for weight in embed.proj.parameters():
            weight.data.zero_()
        return embed(torch.zeros(1, 4, rows, columns))

    sides = {"height": 32, "width": 32}
    agree(made("DiTTransformer2DModel")["sinusoidal"], added(32, 32, embed_dim=1152, **sides))
    sides = {"height": 128, "width": 128}
    pixart = added(20, 28, embed_dim=1152, interpolation_scale=2, **sides)
    agree(made("PixArtTransformer2DModel", grid=(10, 14))["sinusoidal"], pixart)
    for height, width in ((20, 28), (128, 128)):
        sd3 = added(height, width, embed_dim=1152, pos_embed_max_size=96, **sides)
        agree(made("SD3Transformer2DModel", grid=(height // 2, width // 2))["sinusoidal"], sd3)


@pytest.mark.interop
def test_the_text_of_qwen_image_counts_on_behind_the_image() -> None:
    torch = pytest.importorskip("torch")
    pytest.importorskip("diffusers")
    from diffusers.models.transformers.transformer_qwenimage import QwenEmbedRope

    _, text = QwenEmbedRope(10000, [16, 56, 56], True)(
        [(1, 6, 8)], device=torch.device("cpu"), max_txt_seq_len=5
    )
    agree(made("QwenImageTransformer2DModel", np.arange(4, 9))["freqs_cis"].real, text.real)


def test_other_classes_are_answered_with_what_they_do() -> None:
    for name, words in (
        ("MochiTransformer3DModel", "learned"),
        ("StableAudioDiTModel", "half of attention_head_dim"),
        ("AutoencoderKLWan", "convolutions"),
        ("UNet2DConditionModel", "step in time"),
    ):
        with pytest.raises(PeError, match=words):
            resolved(name)
    with pytest.raises(PeError, match="at most 96x96"):
        made("SD3Transformer2DModel", grid=(97, 4))


def test_towers_whose_code_lies_beside_their_checkpoints() -> None:
    """modeling_kimi_vl.py: columns before rows, in pairs; modeling_dots_vision.py: as Qwen2-VL, in blocks of 2 x 2."""
    moon = {"model_type": "moonvit", "hidden_size": 48, "num_attention_heads": 4, "init_pos_emb_height": 64}
    found = from_config(moon, None, grid=(2, 3))
    assert found.facts["parameters"]["layout"] == "complex"
    turns = 1e4 ** -np.array([0, 0, 1 / 3, 1 / 3, 2 / 3, 2 / 3])
    expected = np.exp(1j * np.array([2, 1] * 3) * turns)  # of row 1, column 2
    np.testing.assert_allclose(np.asarray(found["freqs_cis"])[5], expected, atol=1e-6)
    sizes = {"embed_dim": 48, "hidden_size": 96, "num_attention_heads": 4, "spatial_merge_size": 2}
    whole = {"model_type": "dots_ocr", "hidden_size": 96, "num_attention_heads": 4, "vision_config": sizes}
    dots = from_config(whole, None, component="vision_config", grid=(4, 4))
    qwen = {"model_type": "qwen2_vl_vision", "embed_dim": 48, "num_heads": 4, "spatial_merge_size": 2}
    like = from_config(qwen, None, grid=(4, 4))
    assert dots["cos"].shape == (16, 12)
    np.testing.assert_array_equal(dots["cos"], like["cos"])


@pytest.mark.interop
def test_what_is_said_to_have_no_positions_has_none() -> None:
    """The code of every class that is called convolutions alone names neither a rotation nor a table of positions."""
    diffusers = pytest.importorskip("diffusers")
    (classes,) = (part["classes"] for part in data("denoisers")["parts"] if "convolutions" in part["said"])
    for name in classes:
        if hasattr(diffusers, name):
            code = inspect.getsource(inspect.getmodule(getattr(diffusers, name)))
            assert not re.search(
                r"rotary|rope_|pos_embed|position_embed|positional_emb|sincos_pos", code, re.I
            ), name
    for name in ("AutoencoderRAE", "AutoencoderSAME"):
        with pytest.raises(PeError, match="not known here"):
            resolved(name)


@pytest.mark.interop
@pytest.mark.parametrize("grid", [(13, 30, 45), (13, 24, 40), (4, 40, 60), (2, 45, 30), (1, 1, 7)])
def test_cogvideox_fits_any_picture_into_the_middle_of_its_own(grid: tuple[int, int, int]) -> None:
    pytest.importorskip("diffusers")
    from diffusers.models.embeddings import get_3d_rotary_pos_embed
    from diffusers.pipelines.cogvideo.pipeline_cogvideox import get_resize_crop_region_for_grid

    config = {
        "_class_name": "CogVideoXTransformer3DModel",
        "attention_head_dim": 64,
        "sample_height": 60,
        "sample_width": 90,
        "patch_size": 2,
        "use_rotary_positional_embeddings": True,
    }
    frames, height, width = grid
    crop = get_resize_crop_region_for_grid((height, width), 45, 30)
    wanted = get_3d_rotary_pos_embed(
        embed_dim=64, crops_coords=crop, grid_size=(height, width), temporal_size=frames
    )
    table = from_config(config, None, grid=grid)
    assert np.abs(table["cos"] - wanted[0].numpy()).max() < 4e-6
    assert np.abs(table["sin"] - wanted[1].numpy()).max() < 4e-6
    assert not table.warnings


@pytest.mark.parametrize(("kind", "always"), [("qwen3_vl_text", True), ("qwen2_5_vl_text", False)])
@pytest.mark.parametrize("said", [True, False, None])
def test_an_interleaving_that_the_class_does_not_read_is_told(
    kind: str, always: bool, said: bool | None
) -> None:
    block = {"rope_type": "default", "mrope_section": [12, 10, 10]} | (
        {} if said is None else {"mrope_interleaved": said}
    )
    sizes = {"hidden_size": 512, "num_attention_heads": 8, "head_dim": 64, "rope_theta": 10000.0}
    config = Configuration(
        "config.json", {"model_type": kind, **sizes, "rope_scaling": block}, model_type=kind
    )
    found = resolve_configuration(config)
    assert found.parameters.get("interleave_sections", False) == (always if said is None else said)
    assert any("does not read it" in warning for warning in found.warnings) == (said not in (None, always))
