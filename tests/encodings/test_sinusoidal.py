from __future__ import annotations

from typing import Any

import mpmath
import numpy as np
import pytest

from pe_cli.encodings.sinusoidal import ALIASES, NAMES, STYLES, sinusoidal, timestep
from pe_cli.encodings.waves import GRID_STYLES
from pe_cli.errors import PeError
from pe_cli.numerics.dtypes import FLOATS, numpy_dtype, round_to
from pe_cli.tensors import Tensors

GRIDS = {name: (2, 3, 4) if name == "cogvideox" else (3, 5) for name in GRID_STYLES}


def table(positions: Any, dim: int, **options: Any) -> np.ndarray:
    return np.asarray(sinusoidal(np.asarray(positions), dim, **options))


def exact(p: float, i: float, steps: float, base: float = 10000) -> tuple[float, float]:
    """sin and cos of p base^(-i / steps) in high precision."""
    with mpmath.workdps(40):
        angle = mpmath.mpf(p) * mpmath.mpf(base) ** (-mpmath.mpf(i) / mpmath.mpf(steps))
        return float(mpmath.sin(angle)), float(mpmath.cos(angle))


def columns(row: np.ndarray, style: str) -> tuple[np.ndarray, np.ndarray]:
    """The sines and cosines of an even row, in the order of the frequencies."""
    half = len(row) // 2
    if STYLES[style].order == "interleaved":
        return row[0::2], row[1::2]
    first, second = row[:half], row[half:]
    return (first, second) if STYLES[style].order == "sin-cos" else (second, first)


@pytest.mark.parametrize("style", [s for s in STYLES if s != "fairseq"])
@pytest.mark.parametrize("position", [0, 1, 7, 2.5, -3, 10**7])
def test_every_entry_is_the_definition(style: str, position: float) -> None:
    sin, cos = columns(table([position], 12, style=style, dtype="float64")[0], style)
    for i in range(6):
        want = exact(position, i, 6 - STYLES[style].shift)
        np.testing.assert_allclose((sin[i], cos[i]), want, rtol=2.3e-16, atol=0)


def test_fairseq_is_t2t_with_a_zero_row_where_padding_is() -> None:
    plain = table(np.arange(6), 8, style="t2t")
    for padding, given in ((1, {}), (0, {"padding_idx": 0}), (3, {"padding_idx": 3})):
        want = plain.copy()
        want[padding] = 0
        np.testing.assert_array_equal(table(np.arange(6), 8, style="fairseq", **given), want)
    np.testing.assert_array_equal(table([3], 8, style="paper", padding_idx=3), np.zeros((1, 8)))


def test_odd_widths_are_those_of_the_users_of_a_style() -> None:
    for style, want in {
        "paper": [0.8415, 0.5403, 0.0251, 0.9997, 0.0006],
        "paper-cat": [0.8415, 0.0251, 0.0006, 0.5403, 0.9997],
        "t2t": [0.8415, 0.0001, 0.5403, 1.0, 0.0],
        "t2t-cossin": [0.5403, 1.0, 0.8415, 0.0001, 0.0],
        "diffusion": [0.5403, 0.99995, 0.8415, 0.01, 0.0],
    }.items():
        np.testing.assert_allclose(table([1], 5, style=style)[0], want, atol=6e-5)
    np.testing.assert_allclose(
        table([1], 5, style="tatp22", grid=(3,))[0], [0.8415, 0.5403, 0.0464, 0.9989, 0.0022], atol=5e-5
    )


def test_base_sets_the_longest_wavelength() -> None:
    row = table([1], 4, base=20, dtype="float64")[0]
    np.testing.assert_allclose(row, [*exact(1, 0, 2, 20), *exact(1, 1, 2, 20)], rtol=3e-16)


def test_a_shift_of_position_is_a_rotation_of_each_pair() -> None:
    rows = table([100, 105], 64, dtype="float64").view(np.complex128)
    five = table([5], 64, dtype="float64").view(np.complex128)
    # sin + i cos = i exp(-i angle)
    np.testing.assert_allclose(rows[1], rows[0] * five[0] / 1j, atol=1e-15)


@pytest.mark.parametrize("name", FLOATS)
def test_each_dtype_is_the_float64_table_rounded_once(name: Any) -> None:
    for style in ("paper", "t2t"):
        wide = table(np.arange(300), 48, style=style, dtype="float64")
        narrow = table(np.arange(300), 48, style=style, dtype=name)
        assert narrow.dtype == numpy_dtype(name)
        assert narrow.tobytes() == round_to(wide, name).tobytes()


@pytest.mark.parametrize("style", NAMES)
@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
def test_a_row_has_the_same_bits_in_any_company(style: str, dtype: Any) -> None:
    options = {"style": style, "dtype": dtype, **({"grid": GRIDS[style]} if style in GRIDS else {})}
    count = int(np.prod(GRIDS[style])) if style in GRIDS else 700
    whole = table(np.arange(count), 32, **options)
    some = np.random.default_rng(1).permutation(count)[:9]
    assert table(some, 32, **options).tobytes() == whole[some].tobytes()
    assert table(some[:1], 32, **options).tobytes() == whole[some[:1]].tobytes()
    assert table(np.arange(0), 32, **options).shape == (0, 32)


def cells(grid: tuple[int, ...]) -> list[tuple[int, ...]]:
    return list(np.ndindex(*grid))


def line(p: float, dim: int, style: str = "paper-cat") -> np.ndarray:
    return table([p], dim, style=style, dtype="float64")[0]


LAYOUTS = {
    "canonical": lambda y, x: [line(y, 8), line(x, 8)],
    "timm": lambda y, x: [line(y, 8)[:4], line(x, 8)[:4], line(y, 8)[4:], line(x, 8)[4:]],
    "detr": lambda y, x: [line(y + 1, 8, "paper"), line(x + 1, 8, "paper")],
    "tatp22": lambda y, x: [line(y, 8, "paper"), line(x, 8, "paper")],
    "dit": lambda y, x: [line(x * 16 / 5, 8), line(y * 16 / 3, 8)],
}


@pytest.mark.parametrize("style", LAYOUTS)
def test_a_grid_is_lines_put_together(style: str) -> None:
    got = table(np.arange(15), 16, style=style, grid=(3, 5), dtype="float64")
    want = [np.concatenate(LAYOUTS[style](y, x)) for y, x in cells((3, 5))]
    np.testing.assert_allclose(got, want, rtol=0, atol=2e-16)


def test_moco_runs_down_the_columns() -> None:
    got = table(np.arange(15), 16, style="moco", grid=(3, 5), dtype="float64")
    want = [np.concatenate([line(x, 8), line(y, 8)]) for x in range(5) for y in range(3)]
    np.testing.assert_array_equal(got, want)
    square = {"grid": (4, 4), "dtype": "float64"}
    np.testing.assert_array_equal(
        table(np.arange(16), 16, style="moco", **square),
        table(np.arange(16), 16, style="canonical", **square),
    )


def test_mae_counts_in_steps_of_one_on_its_square_grids() -> None:
    got = table(np.arange(9), 16, style="mae", grid=(3, 3), dtype="float64")
    want = [np.concatenate([line(x, 8), line(y, 8)]) for y, x in cells((3, 3))]
    np.testing.assert_array_equal(got, want)


def test_mae_says_what_it_does_with_other_grids() -> None:
    wide = sinusoidal(np.arange(15), 16, style="mae", grid=(3, 5))
    assert isinstance(wide, Tensors)
    assert "16 steps a side" in wide.warnings[0]
    np.testing.assert_array_equal(np.asarray(wide), table(np.arange(15), 16, style="dit", grid=(3, 5)))
    plain = sinusoidal(np.arange(15), 16, style="mae", grid=(3, 5), interpolation_scale=(1.0,))
    assert isinstance(plain, Tensors)
    assert not plain.warnings
    halves = table(np.arange(15), 16, style="canonical", grid=(3, 5))
    np.testing.assert_array_equal(np.asarray(plain), np.concatenate([halves[:, 8:], halves[:, :8]], axis=1))


@pytest.mark.parametrize(("style", "first"), [("detr", 1), ("deformable-detr", 0.5)])
def test_normalized_detr_runs_to_two_pi(style: str, first: float) -> None:
    got = table(np.arange(15), 8, style=style, grid=(3, 5), normalize=True, dtype="float64")
    want = [
        np.concatenate(
            [
                line((n + first) / (side + 1e-6) * 2 * np.pi, 4, "paper")
                for n, side in zip(cell, (3, 5), strict=True)
            ]
        )
        for cell in cells((3, 5))
    ]
    np.testing.assert_allclose(got, want, atol=1e-15)


def test_cogvideox_has_a_quarter_for_time() -> None:
    got = table(
        np.arange(24),
        32,
        style="cogvideox",
        grid=(2, 3, 4),
        interpolation_scale=(1.0, 2.0, 2.0),
        dtype="float64",
    )
    want = [np.concatenate([line(t, 8), line(x / 2, 12), line(y / 2, 12)]) for t, y, x in cells((2, 3, 4))]
    np.testing.assert_array_equal(got, want)


def test_tatp22_in_three_axes_is_rounded_up_and_cut() -> None:
    got = table(np.arange(24), 10, style="tatp22", grid=(2, 3, 4), dtype="float64")
    want = [np.concatenate([line(c, 4, "paper") for c in cell])[:10] for cell in cells((2, 3, 4))]
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("style", [s for s in NAMES if s not in GRID_STYLES or GRID_STYLES[s].recipe])
def test_float32_arithmetic_is_close_at_small_positions_and_off_at_large(style: str) -> None:
    grid = {"grid": (5, 5)} if style in GRID_STYLES else {}
    near = table(np.arange(25), 32, style=style, compute="float32", **grid)
    np.testing.assert_allclose(near, table(np.arange(25), 32, style=style, **grid), atol=4e-6)
    if not grid:
        far = table([10**6], 32, style=style, compute="float32")
        assert np.abs(far - table([10**6], 32, style=style)).max() > 1e-3


def test_float32_arithmetic_of_the_paper_by_hand() -> None:
    f = np.float32
    position, i = 4095, 3
    w = f(np.exp(np.float64(f(i) * f(-np.log(10000.0) / 16))))
    angle = f(position) * w
    row = table([position], 32, compute="float32")[0]
    # torch's functions are within a unit in the last place of these.
    assert abs(row[2 * i] - np.sin(np.float64(angle))) < 2.0**-24
    assert abs(row[2 * i + 1] - np.cos(np.float64(angle))) < 2.0**-24


def test_timestep_is_sines_then_cosines_of_scaled_steps() -> None:
    steps = np.array([0, 0.5, 999])
    got = timestep(steps, 8, scale=1000.0, downscale_freq_shift=0.5, max_period=500.0, dtype="float64")
    for t, row in zip(steps, got, strict=True):
        pairs = [exact(1000 * t, i, 3.5, 500) for i in range(4)]
        np.testing.assert_allclose(row, [*(s for s, _ in pairs), *(c for _, c in pairs)], rtol=2.3e-16)
    flipped = timestep(
        steps, 9, scale=1000.0, downscale_freq_shift=0.5, max_period=500.0, flip_sin_to_cos=True
    )
    np.testing.assert_array_equal(flipped[:, :8], np.roll(got, 4, axis=1).astype(np.float32))
    assert not flipped[:, 8].any()


def test_stable_diffusion_is_style_diffusion_and_ddpm_is_t2t() -> None:
    steps = np.arange(1000)
    np.testing.assert_array_equal(
        timestep(steps, 32, flip_sin_to_cos=True, downscale_freq_shift=0), table(steps, 32, style="diffusion")
    )
    np.testing.assert_array_equal(timestep(steps, 32), table(steps, 32, style="ddpm"))


def test_every_alias_leads_to_a_style_and_hides_none() -> None:
    assert set(ALIASES.values()) <= set(NAMES)
    assert not set(ALIASES) & set(NAMES)
    words = (sinusoidal.__doc__ or "").replace(",", " ").split()
    assert set(ALIASES) <= set(words)
    np.testing.assert_array_equal(table([3], 8, style="whisper"), table([3], 8, style="t2t"))


@pytest.mark.parametrize(
    ("dim", "options", "message"),
    [
        (0, {}, "dim 0"),
        (8, {"style": "whispr"}, "did you mean 'whisper'"),
        (8, {"base": -1.0}, "base -1"),
        (1, {"style": "t2t"}, "dim 1 leaves no room"),
        (8, {"grid": (2, 3)}, "grid is for the styles of a grid"),
        (8, {"normalize": True}, "normalize is for the styles of a grid"),
        (8, {"style": "mae"}, "style mae is for a grid"),
        (8, {"style": "cogvideox", "grid": (2, 3)}, "grid 2x3: style cogvideox is for 3 axes"),
        (6, {"style": "mae", "grid": (2, 3)}, "dim 6: style mae needs a multiple of 4"),
        (8, {"style": "mae", "grid": (2, 3), "normalize": True}, "normalize is for styles detr"),
        (8, {"style": "mae", "grid": (2, 3), "padding_idx": 1}, "no padding row"),
        (8, {"style": "mae", "grid": (2, 3), "compute": "float32"}, "computed in float64"),
        (8, {"style": "timm", "grid": (2, 3), "base_size": 4}, "not for timm"),
        (8, {"style": "dit", "grid": (2, 3), "base_size": 0}, "base_size 0"),
        (8, {"style": "dit", "grid": (2, 3), "interpolation_scale": (1.0, 2.0, 3.0)}, "3 numbers for 2 axes"),
        (8, {"style": "dit", "grid": (2, 3), "interpolation_scale": (0.0,)}, "not positive"),
        (8, {"style": "dit", "grid": (1, 3)}, "row 3 is outside a grid of 1x3, rows 0 to 2"),
    ],
)
def test_wrong_use_is_said(dim: int, options: dict[str, Any], message: str) -> None:
    with pytest.raises(PeError, match=message):
        sinusoidal(np.arange(6), dim, **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dim": 1}, "dim 1"),
        ({"dim": 8, "max_period": 0.0}, "max_period 0"),
        ({"dim": 8, "scale": float("inf")}, "scale inf"),
        ({"dim": 8, "downscale_freq_shift": 4.0}, "leaves no step"),
        ({"dim": 8, "downscale_freq_shift": 4.0, "compute": "float32"}, "leaves no step"),
    ],
)
def test_wrong_timesteps_are_said(options: dict[str, Any], message: str) -> None:
    with pytest.raises(PeError, match=message):
        timestep(np.arange(3), **options)


def transformers_tables() -> dict[str, Any]:
    """Tables of 2,000 rows made by transformers, with the options that give them."""
    torch = pytest.importorskip("torch")
    pytest.importorskip("transformers")
    from transformers.models.ctrl.modeling_ctrl import positional_encoding
    from transformers.models.gptj.modeling_gptj import create_sinusoidal_positions
    from transformers.models.m2m_100.modeling_m2m_100 import M2M100SinusoidalPositionalEmbedding
    from transformers.models.musicgen.modeling_musicgen import MusicgenSinusoidalPositionalEmbedding
    from transformers.models.whisper.modeling_whisper import sinusoids

    return {
        "whisper": (sinusoids(2000, 64), {}),
        "m2m100": (M2M100SinusoidalPositionalEmbedding.get_embedding(2000, 33, 1), {"padding_idx": 1}),
        "musicgen": (MusicgenSinusoidalPositionalEmbedding.get_embedding(2000, 65), {}),
        "ctrl": (positional_encoding(2000, 65, torch.float32), {}),
        "gptj": (create_sinusoidal_positions(2000, 64), {}),
    }


@pytest.mark.interop
def test_transformers_float32_tables_are_followed() -> None:
    for style, (tensor, options) in transformers_tables().items():
        want = tensor.numpy()
        got = table(np.arange(2000), want.shape[1], style=style, compute="float32", **options)
        # torch's exp is not always the nearest float32; then a whole column drifts.
        assert (got == want).mean() > (0.95 if style in ("whisper", "m2m100", "musicgen") else 0.999), style
        np.testing.assert_allclose(got, want, atol=1.3e-4, err_msg=style)


@pytest.mark.interop
def test_transformers_float64_tables_are_equal() -> None:
    torch = pytest.importorskip("torch")
    pytest.importorskip("transformers")
    from transformers.models.rt_detr.modeling_rt_detr import build_2d_sinusoidal_position_embedding
    from transformers.models.videomae.modeling_videomae import get_sinusoid_encoding_table
    from transformers.models.xlm.modeling_xlm import create_sinusoidal_embeddings

    np.testing.assert_array_equal(
        table(np.arange(500), 48, style="videomae"), get_sinusoid_encoding_table(500, 48)[0].numpy()
    )
    odd = torch.empty(500, 5)
    create_sinusoidal_embeddings(500, 5, out=odd)
    np.testing.assert_array_equal(table(np.arange(500), 5, style="xlm"), odd.numpy())
    np.testing.assert_array_equal(
        table(np.arange(35), 32, style="rt-detr", grid=(5, 7)),
        build_2d_sinusoidal_position_embedding(5, 7, 32).numpy(),
    )
