"""Rotary tables of several axes, against closed forms and, marked interop, the models' own classes."""

from __future__ import annotations

from importlib import import_module
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from pe_cli import rope
from pe_cli.encodings.rope.axes import ALIASES, STYLES
from pe_cli.encodings.rope.forms import SECTION_ORDERS, section_axes
from pe_cli.errors import PeError

H, W, T = 5, 7, 3
X_FIRST = ("sam", "gemma4-vision")  # whose position ids are column and row
ROWS, COLUMNS = (axis.ravel() for axis in np.indices((H, W)))
CELLS = np.arange(H * W)
VOLUME = np.arange(T * H * W)
FRAME, ROW, COLUMN = (axis.ravel() for axis in np.indices((T, H, W)))
GEOMETRIC = 10000.0 ** (-np.arange(16) / 16)  # half of a head of 64 for each of two axes


def outer(coordinate: np.ndarray, w: np.ndarray) -> np.ndarray:
    return coordinate[:, None] * w


# The angle of each pair, written down independently for heads of 64 (two axes) and 128 (three).
TWO_AXES = {
    "qwen-vision": np.hstack([outer(ROWS, GEOMETRIC), outer(COLUMNS, GEOMETRIC)]),
    "step3-vision": np.hstack([outer(COLUMNS, GEOMETRIC), outer(ROWS, GEOMETRIC)]),
    "inkling-vision": np.hstack([outer(COLUMNS + 1, GEOMETRIC), outer(ROWS + 1, GEOMETRIC)]),
    "muse-vision": np.hstack([outer(COLUMNS + 1, GEOMETRIC), outer(ROWS + 1, GEOMETRIC)]),
    "sam": np.hstack([outer(COLUMNS, GEOMETRIC), outer(ROWS, GEOMETRIC)]),
    "pe-vision": np.hstack([outer(COLUMNS + 1, GEOMETRIC), outer(ROWS + 1, GEOMETRIC)]),
    "eva02": np.hstack([outer(ROWS, GEOMETRIC), outer(COLUMNS, GEOMETRIC)]),
    "gemma4-vision": np.hstack([outer(c, 100.0 ** (-np.arange(16) / 16)) for c in (COLUMNS, ROWS)]),
    "llama4-vision": np.hstack([outer(COLUMNS + 1, GEOMETRIC), outer(ROWS + 1, GEOMETRIC)]),
    "kimi-vision": np.stack([outer(COLUMNS, GEOMETRIC), outer(ROWS, GEOMETRIC)], axis=-1).reshape(H * W, 32),
    "loftr": np.stack([outer(ROWS + 1, GEOMETRIC), outer(COLUMNS + 1, GEOMETRIC)], axis=-1).reshape(
        H * W, 32
    ),
    "pixtral": np.hstack(
        [outer(c, 10000.0 ** (-np.arange(s, 32, 2) / 32)) for s, c in ((0, ROWS), (1, COLUMNS))]
    ),
    "dinov3": np.hstack(
        [
            outer(2 * np.pi * ((c + 0.5) / n * 2 - 1), 100.0 ** (-np.arange(16) / 16))
            for c, n in ((ROWS, H), (COLUMNS, W))
        ]
    ),
}


def axial(widths: tuple[int, ...], coordinates: tuple[np.ndarray, ...], base: float = 10000.0) -> np.ndarray:
    return np.hstack(
        [outer(c, base ** (-np.arange(0, d, 2) / d)) for d, c in zip(widths, coordinates, strict=True)]
    )


LTX = 10000.0 ** np.linspace(0, 1, 128 // 6) * np.pi / 2
THREE_AXES = {
    "flux": axial((16, 56, 56), (FRAME, ROW, COLUMN)),
    "wan": axial((44, 42, 42), (FRAME, ROW, COLUMN)),
    "cogvideox": axial((32, 48, 48), (FRAME, ROW, COLUMN)),
    "hunyuan-video": axial((16, 56, 56), (FRAME, ROW, COLUMN), 256.0),
    "qwen-image": axial((16, 56, 56), (FRAME, ROW - 3, COLUMN - 4)),
    "ltx": np.hstack(
        [
            np.zeros((T * H * W, 1)),
            np.stack([outer(2 * c - 1, LTX) for c in (FRAME, ROW, COLUMN)], axis=-1).reshape(T * H * W, 63),
        ]
    ),
}


@pytest.mark.parametrize("style", [*TWO_AXES, *THREE_AXES])
def test_closed_forms(style: str) -> None:
    flat = style in TWO_AXES
    want = TWO_AXES[style] if flat else THREE_AXES[style]
    positions, grid = (CELLS, (H, W)) if flat else (VOLUME, (T, H, W))
    options = {"layout": "complex", "dtype": "float64", "axis_style": style}
    found = rope(positions, 2 * want.shape[1], grid=grid, **options)["freqs_cis"]
    np.testing.assert_allclose(found, np.exp(1j * want), atol=1e-10)
    coordinates = np.stack([ROWS, COLUMNS] if flat else [FRAME, ROW, COLUMN], axis=1)
    if style in X_FIRST:
        coordinates = coordinates[:, ::-1]
    if style == "qwen-image":
        coordinates = coordinates - [0, 3, 4]  # coordinates are taken as they are
    given = rope(coordinates, 2 * want.shape[1], grid=(H, W) if style == "dinov3" else None, **options)[
        "freqs_cis"
    ]
    np.testing.assert_array_equal(given, found)


def test_every_style_is_tested() -> None:
    assert {*TWO_AXES, *THREE_AXES, "vjepa2"} == set(STYLES)
    assert set(ALIASES.values()) <= set(STYLES) | set(SECTION_ORDERS)


def test_gemma4_repeats_each_axis_by_itself() -> None:
    found = rope(CELLS, 64, axis_style="gemma4", layout="half", grid=(H, W))
    columns, rows = np.hsplit(np.cos(TWO_AXES["gemma4-vision"]), 2)
    np.testing.assert_allclose(found["cos"], np.hstack([columns, columns, rows, rows]), atol=1e-7)


def test_llama4_has_a_row_for_the_class_token() -> None:
    found = rope(np.array([34, 35]), 64, axis_style="llama4", layout="split", grid=(H, W))
    assert (found["cos"][1] == 1).all()
    assert (found["sin"][1] == 0).all()
    assert (found["sin"][0] != 0).any()


def test_eva02_rescales_to_its_reference_grid() -> None:
    found = rope(CELLS, 64, axis_style="eva02", layout="split", grid=(H, W), ref_grid=(16, 16))
    want = np.hstack([outer(ROWS / H * 16, GEOMETRIC), outer(COLUMNS / W * 16, GEOMETRIC)])
    np.testing.assert_allclose(found["cos"], np.cos(want), atol=1e-6)
    found = rope(CELLS, 64, axis_style="pe-vision", layout="split", grid=(H, W), ref_grid=(16, 20))
    want = np.hstack([outer((COLUMNS + 1) / W * 20, GEOMETRIC), outer((ROWS + 1) / H * 16, GEOMETRIC)])
    np.testing.assert_allclose(found["cos"], np.cos(want), atol=1e-6)


def test_sam_measures_the_cells_of_its_global_layers_in_those_of_a_window() -> None:
    found = rope(CELLS, 64, axis_style="sam", layout="split", grid=(H, W), ref_grid=(3, 2))
    want = np.hstack([outer(COLUMNS / W * 2, GEOMETRIC), outer(ROWS / H * 3, GEOMETRIC)])
    np.testing.assert_allclose(found["cos"], np.cos(want), atol=1e-6)
    cells = np.stack([COLUMNS, ROWS], axis=1)
    given = rope(cells, 64, axis_style="sam", layout="split", grid=(H, W), ref_grid=(3, 2))
    np.testing.assert_array_equal(given["cos"], found["cos"])


def test_axes_and_a_grid_without_time() -> None:
    found = rope(CELLS, 128, axes=(16, 56, 56), grid=(H, W), layout="split")
    want = axial((16, 56, 56), (np.zeros(H * W), ROWS, COLUMNS))
    np.testing.assert_allclose(found["sin"], np.sin(want), atol=1e-6)
    same = rope(CELLS, 128, axis_style="flux", grid=(H, W), layout="split")
    np.testing.assert_array_equal(found["sin"], same["sin"])


def test_a_cell_does_not_depend_on_the_others() -> None:
    whole = np.asarray(rope(VOLUME, 64, axes=(16, 24, 24), grid=(T, H, W)))
    for cells in (np.array([104, 3, 50]), np.arange(40, 90), np.array([7])):
        np.testing.assert_array_equal(
            np.asarray(rope(cells, 64, axes=(16, 24, 24), grid=(T, H, W))), whole[cells]
        )


def test_inverse_frequencies_name_their_axis() -> None:
    found = rope(np.arange(0), 12, axes=(4, 8), layout="inv-freq")
    assert found["axis"].tolist() == [0, 0, 1, 1, 1, 1]
    np.testing.assert_allclose(found["inv_freq"], [1, 0.01, 1, 0.1, 0.01, 0.001], rtol=1e-6)


def test_section_orders() -> None:
    assert section_axes((2, 3, 3), 8, "chunked") == (0, 0, 1, 1, 1, 2, 2, 2)
    assert section_axes((3, 3, 2), 8, "interleaved") == (0, 1, 2, 0, 1, 2, 0, 1)
    assert section_axes((4, 2, 2), 8, "interleaved") == (0, 1, 2, 0, 1, 2, 0, 0)
    assert section_axes((3, 3, 2), 8, "ernie") == (1, 2, 1, 2, 1, 2, 0, 0)
    assert section_axes((2, 2, 2, 2), 8, "chunked") == (0, 0, 1, 1, 2, 2, 3, 3)


@pytest.mark.parametrize("options", [{}, {"interleave_sections": True}, {"axis_style": "ernie-vl"}])
def test_sections_of_text_are_plain_rope(options: dict[str, Any]) -> None:
    yarn = {"scaling": "yarn", "factor": 4.0, "original_len": 1024, "base": 1e6}
    plain = rope(np.arange(50), 128, **yarn)
    found = rope(np.arange(50), 128, sections=(22, 22, 20), **options, **yarn)
    np.testing.assert_array_equal(found["rope"], plain["rope"])


def test_sections_of_an_image() -> None:
    coordinates = np.random.default_rng(0).integers(0, 500, (20, 3))
    w = 1e6 ** (-np.arange(64) / 64)
    found = rope(coordinates, 128, base=1e6, sections=(16, 24, 24), layout="split", dtype="float64")
    axis = np.repeat([0, 1, 2], [16, 24, 24])
    np.testing.assert_allclose(found["cos"], np.cos(coordinates[:, axis] * w), atol=1e-12)
    flat = rope(
        np.arange(6), 128, base=1e6, sections=(16, 24, 24), layout="split", grid=(2, 3), dtype="float64"
    )
    assert (flat["sin"][:, :16] == 0).all()  # no time in an image
    np.testing.assert_allclose(flat["sin"][5, 40:], np.sin(2 * w[40:]), atol=1e-15)


def test_float32_recipe_of_axes() -> None:
    found = rope(CELLS, 64, axis_style="sam", layout="split", grid=(H, W), compute="float32")
    np.testing.assert_allclose(found["cos"], np.cos(TWO_AXES["sam"]), atol=3e-6)


@pytest.mark.parametrize(
    ("dim", "options", "message"),
    [
        (64, {"axis_style": "dinov4"}, "did you mean 'dinov3'"),
        (62, {"axis_style": "sam", "grid": (2, 2)}, "dim 62 is no multiple of 4"),
        (64, {"axis_style": "sam"}, "give grid, or positions with 2 coordinates"),
        (64, {"axis_style": "sam", "grid": (2, 2)}, "position 4 is not a row of grid 2x2, which has 4"),
        (64, {"axis_style": "sam", "grid": (2, 3, 4)}, "grid 2x3x4 has 3 axes"),
        (64, {"axis_style": "dinov3"}, "give grid, such as 16x16"),
        (64, {"axis_style": "sam", "grid": (9, 9), "axes": (32, 32)}, "leave axes out"),
        (64, {"axis_style": "flux", "grid": (9, 9)}, "for dim 64 give axes"),
        (64, {"axis_style": "qwen-image", "axes": (32, 32), "grid": (9, 9)}, "has 3"),
        (64, {"axis_style": "vjepa2", "grid": (9, 9)}, "only layout half"),
        (64, {"axis_style": "dinov3", "grid": (9, 9), "compute": "float32"}, "no float32 recipe"),
        (64, {"axis_style": "sam", "grid": (9, 9), "layout": "ggml"}, "knows one axis"),
        (
            64,
            {"axis_style": "eva02", "grid": (9, 9), "ref_grid": (9,)},
            "ref_grid 9 has 1 axes; eva02 has 2",
        ),
        (64, {"axis_style": "sam", "grid": (9, 9), "base": -2.0}, "base -2 is not"),
        (4, {"axis_style": "vjepa2", "grid": (9, 9)}, "at least 6"),
        (6, {"axis_style": "ltx", "grid": (9, 9)}, "at least 12"),
        (64, {"axes": (30, 30), "grid": (9, 9)}, "add up to 60, but dim is 64"),
        (64, {"axes": (31, 33), "grid": (9, 9)}, "even width"),
        (63, {"axes": (31, 32), "grid": (9, 9)}, "dim 63"),
        (
            64,
            {"axes": (32, 32), "grid": (9, 9), "scaling": "linear", "factor": 2.0},
            "scaling linear does not",
        ),
        (64, {"axes": (32, 32), "grid": (9, 9), "partial": 0.5}, "partial does not apply to axes"),
        (64, {"axes": (32, 32), "sections": (16, 16)}, "give either"),
        (64, {"sections": (16, 15)}, "add up to 31 pairs, but the rotary width has 32"),
        (64, {"sections": (40, -8)}, "number of pairs"),
        (64, {"axis_style": "ernie-vl"}, "axis_style ernie-vl needs sections"),
        (64, {"axis_style": "ernie-vl", "sections": (16, 8, 8)}, "ERNIE's are"),
        (64, {"axis_style": "ernie-vl", "sections": (11, 11, 10), "interleave_sections": True}, "leave"),
    ],
)
def test_what_is_refused(dim: int, options: dict[str, Any], message: str) -> None:
    with pytest.raises(PeError, match=message):
        rope(np.arange(5), dim, **options)


def test_coordinates_of_the_wrong_number_are_refused() -> None:
    with pytest.raises(PeError, match="have 2 coordinates each; this encoding has 3 axes"):
        rope(np.zeros((4, 2), int), 128, sections=(16, 24, 24))
    with pytest.raises(PeError, match=r"transpose them to \(9, 3\)"):
        rope(np.zeros((3, 9), int), 128, sections=(16, 24, 24))


def test_a_grid_beside_coordinates_is_refused_where_it_says_nothing() -> None:
    for options in ({"sections": (16, 24, 24)}, {"axis_style": "flux"}):
        with pytest.raises(PeError, match="coordinates already"):
            rope(np.zeros((4, 3), int), 128, grid=(2, 2), **options)


def head(dim: int, theta: float, **parameters: Any) -> SimpleNamespace:
    return SimpleNamespace(
        rope_parameters={"rope_type": "axial", "rope_theta": theta, **parameters},
        head_dim=dim,
        hidden_size=dim,
        num_attention_heads=1,
        max_position_embeddings=4096,
    )


def model_class(module: str, name: str) -> Any:
    pytest.importorskip("transformers")
    return getattr(import_module(f"transformers.models.{module}.modeling_{module}"), name)


HUGGING_FACE = {
    "qwen-vision": ("qwen2_vl", "Qwen2VLVisionRotaryEmbedding", "half"),
    "pixtral": ("pixtral", "PixtralVisionRotaryEmbedding", "half"),
    "sam": ("sam3", "Sam3ViTRotaryEmbedding", "adjacent"),
    "gemma4-vision": ("gemma4", "Gemma4VisionRotaryEmbedding", "half"),
    "kimi-vision": ("kimi_k25", "Kimi_K25VisionRotaryEmbedding", "half"),
}


@pytest.mark.interop
@pytest.mark.parametrize("style", HUGGING_FACE)
def test_vision_classes_of_transformers(style: str) -> None:
    torch = pytest.importorskip("torch")
    module, name, layout = HUGGING_FACE[style]
    embedding = model_class(module, name)(head(64, STYLES[style].base))
    by_row = style in ("gemma4-vision", "kimi-vision")
    cells = [COLUMNS, ROWS] if style in X_FIRST else [ROWS, COLUMNS]
    ids = torch.tensor(np.stack(cells, axis=1 if by_row else 0))
    cos, sin = embedding(torch.zeros(1), ids if style == "kimi-vision" else ids[None])
    found = rope(CELLS, 64, axis_style=style, layout=layout, grid=(H, W))
    np.testing.assert_allclose(found["cos"], cos.numpy().reshape(H * W, 64), atol=2e-6)
    np.testing.assert_allclose(found["sin"], sin.numpy().reshape(H * W, 64), atol=2e-6)


@pytest.mark.interop
def test_llama4_and_dinov3_of_transformers() -> None:
    torch = pytest.importorskip("torch")
    pytest.importorskip("transformers")
    from transformers.models.dinov3_vit.modeling_dinov3_vit import DINOv3ViTRopePositionEmbedding
    from transformers.models.llama4.modeling_llama4 import Llama4VisionRotaryEmbedding

    shared = {"patch_size": 14, "hidden_size": 128, "num_attention_heads": 2}
    llama = SimpleNamespace(image_size=84, rope_parameters={"rope_theta": 10000.0}, **shared)
    theirs = Llama4VisionRotaryEmbedding(llama).freqs_ci[:, 0].numpy()
    found = rope(np.arange(37), 64, axis_style="llama4-vision", layout="complex", grid=(6, 6))
    np.testing.assert_allclose(found["freqs_cis"], theirs, atol=1e-6)

    dino = SimpleNamespace(image_size=(14 * H, 14 * W), rope_theta=100.0, **shared)
    cos, sin = DINOv3ViTRopePositionEmbedding(dino).eval()(torch.zeros(1, 3, 14 * H, 14 * W))
    table = rope(CELLS, 64, axis_style="dinov3", layout="half", grid=(H, W))
    np.testing.assert_allclose(table["cos"], cos.numpy(), atol=1e-6)
    np.testing.assert_allclose(table["sin"], sin.numpy(), atol=1e-6)


@pytest.mark.interop
def test_vjepa2_as_it_is() -> None:
    torch = pytest.importorskip("torch")
    pytest.importorskip("transformers")
    from transformers.models.vjepa2.modeling_vjepa2 import rotate_queries_or_keys

    x = torch.randn(1, 1, T * H * W, 64, generator=torch.Generator().manual_seed(0))
    turned = [
        rotate_queries_or_keys(x[..., 20 * i : 20 * i + 20], pos=torch.tensor(c).float()[None, None])
        for i, c in enumerate((FRAME, ROW, COLUMN))
    ]
    theirs = torch.cat([*turned, x[..., 60:]], dim=-1)[0, 0].numpy()
    table = rope(VOLUME, 64, axis_style="vjepa2", layout="half", grid=(T, H, W))
    ours = x[0, 0].numpy()
    crossed = np.stack([-ours[:, 1::2], ours[:, ::2]], axis=-1).reshape(ours.shape)
    np.testing.assert_allclose(ours * table["cos"] + crossed * table["sin"], theirs, atol=2e-6)


SECTIONS = {
    "Qwen2VLRotaryEmbedding": ("qwen2_vl", (16, 24, 24), {"layout": "half"}),
    "Qwen3VLTextRotaryEmbedding": (
        "qwen3_vl",
        (24, 20, 20),
        {"layout": "half", "interleave_sections": True},
    ),
    "Ernie4_5_VLMoeTextRotaryEmbedding": (
        "ernie4_5_vl_moe",
        (22, 22, 20),
        {"layout": "adjacent", "axis_style": "ernie-vl"},
    ),
}


@pytest.mark.interop
@pytest.mark.parametrize("name", SECTIONS)
def test_section_classes_of_transformers(name: str) -> None:
    torch = pytest.importorskip("torch")
    module, sections, options = SECTIONS[name]
    config = head(128, 1e6, mrope_section=list(sections), rope_type="default")
    embedding = model_class(module, name)(config)
    coordinates = np.random.default_rng(0).integers(0, 300, (3, 20))
    cos, sin = embedding(torch.zeros(1), torch.tensor(coordinates)[:, None])
    found = rope(coordinates.T, 128, base=1e6, sections=sections, compute="float32", **options)
    np.testing.assert_allclose(found["cos"], cos[0].numpy(), atol=1e-7)
    np.testing.assert_allclose(found["sin"], sin[0].numpy(), atol=1e-7)


@pytest.mark.interop
def test_video_models_of_diffusers() -> None:
    torch = pytest.importorskip("torch")
    pytest.importorskip("diffusers")
    from diffusers.models.embeddings import get_3d_rotary_pos_embed
    from diffusers.models.transformers.transformer_flux import FluxPosEmbed
    from diffusers.models.transformers.transformer_hunyuan_video import HunyuanVideoRotaryPosEmbed
    from diffusers.models.transformers.transformer_ltx import LTXVideoRotaryPosEmbed
    from diffusers.models.transformers.transformer_qwenimage import QwenEmbedRope
    from diffusers.models.transformers.transformer_wan import WanRotaryPosEmbed

    ids = torch.tensor(np.stack([FRAME, ROW, COLUMN], axis=1))
    latent = torch.zeros(1, 1, T, 2 * H, 2 * W)
    theirs = {
        "flux": FluxPosEmbed(theta=10000, axes_dim=[16, 56, 56])(ids),
        "wan": [part[0, :, 0] for part in WanRotaryPosEmbed(128, (1, 2, 2), 64)(latent)],
        "cogvideox": get_3d_rotary_pos_embed(128, ((0, 0), (H, W)), (H, W), T),
        "hunyuan-video": HunyuanVideoRotaryPosEmbed(2, 1, [16, 56, 56], 256.0)(latent),
        "ltx": [part[0] for part in LTXVideoRotaryPosEmbed(128)(torch.zeros(1, 1), T, H, W, None)],
    }
    for style, (cos, sin) in theirs.items():
        found = rope(VOLUME, 128, axis_style=style, layout="adjacent", grid=(T, H, W))
        tolerance = 0.02 if style == "ltx" else 2e-6  # LTX: float32 angles of up to 200,000 radians
        np.testing.assert_allclose(found["cos"], cos.numpy(), atol=tolerance, err_msg=style)
        np.testing.assert_allclose(found["sin"], sin.numpy(), atol=tolerance, err_msg=style)
    image, _ = QwenEmbedRope(10000, [16, 56, 56], scale_rope=True)(
        [(T, H, W)], torch.device("cpu"), max_txt_seq_len=4
    )
    found = rope(VOLUME, 128, axis_style="qwen-image", layout="complex", grid=(T, H, W))
    np.testing.assert_allclose(found["freqs_cis"], image.numpy(), atol=1e-6)


def test_each_axis_can_be_stretched_by_its_base() -> None:
    """10000 s^(d / (d - 2)) is the base of an axis of width d (bloc97's NTK, as Cosmos uses it)."""
    places = np.array([[0, 0], [3, 5], [40, 7]])
    found = rope(places, axes=(8, 6), axis_factors=(2.0, 0.5), layout="split", dtype="float64")
    for axis, (width, factor) in enumerate(((8, 2.0), (6, 0.5))):
        base = 1e4 * factor ** (width / (width - 2))
        turns = places[:, axis, None] * base ** (-np.arange(0, width, 2) / width)
        part = found["cos"][:, :4] if axis == 0 else found["cos"][:, 4:]
        np.testing.assert_allclose(part, np.cos(turns), atol=1e-12)
    plain = rope(places, axes=(8, 6), axis_factors=(1.0, 1.0), layout="split")
    np.testing.assert_array_equal(plain["sin"], rope(places, axes=(8, 6), layout="split")["sin"])
