from __future__ import annotations

from typing import Any

import mpmath
import numpy as np
import pytest

from pe_cli.encodings.fourier import fourier
from pe_cli.errors import PeError
from pe_cli.tensors import Tensors

with mpmath.workdps(60):
    PI = +mpmath.pi


def sin_cos(x: float, frequency: Any) -> tuple[float, float]:
    with mpmath.workdps(60):
        angle = mpmath.mpf(x) * frequency
        return float(mpmath.sin(angle)), float(mpmath.cos(angle))


POINTS = np.random.default_rng(3).uniform(-1, 1, size=(7, 2))


@pytest.mark.parametrize("pi", [False, True])
def test_nerf_goes_octave_by_octave_through_all_axes(pi: bool) -> None:
    got = np.asarray(fourier(POINTS, num_bands=10, pi=pi))
    assert got.shape == (7, 2 + 2 * 2 * 10)
    np.testing.assert_array_equal(got[:, :2], POINTS)
    blocks = got[:, 2:].reshape(7, 10, 2, 2)
    for n, point in enumerate(POINTS):
        for axis, x in enumerate(point):
            for band in range(10):
                with mpmath.workdps(60):
                    want = sin_cos(x, 2**band * (PI if pi else 1))
                np.testing.assert_allclose(blocks[n, band, :, axis], want, rtol=2.3e-16)


def test_nerf_evenly_spaced_ends_at_the_same_frequency() -> None:
    even = np.asarray(fourier(POINTS, num_bands=4, log_sampling=False, include_input=False))
    octaves = np.asarray(fourier(POINTS, num_bands=4, include_input=False))
    np.testing.assert_array_equal(even[:, -4:], octaves[:, -4:])
    np.testing.assert_allclose(even[0, 4], np.sin(POINTS[0, 0] * (1 + 7 / 3)), rtol=1e-14)


def test_perceiver_has_its_highest_frequency_at_half_the_resolution() -> None:
    got = np.asarray(fourier(POINTS, style="perceiver", num_bands=3, max_resolution=(8, 20)))
    assert got.shape == (7, 2 + 2 * 2 * 3)
    features = got[:, 2:].reshape(7, 2, 2, 3)
    with mpmath.workdps(60):
        bands = {0: (1, 2.5, 4), 1: (1, 5.5, 10)}
        for n, point in enumerate(POINTS):
            for axis, x in enumerate(point):
                want = [sin_cos(x, f * PI) for f in bands[axis]]
                np.testing.assert_allclose(features[n, :, axis], np.transpose(want), rtol=2.3e-16)


def test_a_grid_runs_from_minus_one_to_one() -> None:
    got = np.asarray(fourier(np.arange(12), style="perceiver", num_bands=2, grid=(3, 4)))
    want = [(y, x) for y in (-1, 0, 1) for x in (-1, -1 / 3, 1 / 3, 1)]
    np.testing.assert_allclose(got[:, :2], want, atol=1e-16)
    points = fourier(got[:, :2], style="perceiver", num_bands=2, max_resolution=(3, 4))
    np.testing.assert_array_equal(got, points)


def test_length_means_coordinates_from_minus_one_to_one() -> None:
    rule = fourier.default_positions  # type: ignore[attr-defined]
    np.testing.assert_array_equal(rule(5, num_bands=3), [-1, -0.5, 0, 0.5, 1])
    np.testing.assert_array_equal(rule(1), [0])


def test_gaussian_features_tell_their_matrix_and_can_be_made_from_it() -> None:
    made = fourier(POINTS, style="gaussian", num_bands=64, scale=3.0, seed=9)
    assert isinstance(made, Tensors)
    b = made["matrix"]
    assert b.shape == (2, 64)
    assert 2.4 < b.std() < 3.6
    angle = 2 * np.pi * POINTS @ b
    np.testing.assert_allclose(
        made["fourier"], np.concatenate([np.cos(angle), np.sin(angle)], axis=1), atol=1e-13
    )
    again = fourier(POINTS, style="gaussian", matrix=b, sin_first=True)
    assert isinstance(again, Tensors)
    np.testing.assert_array_equal(np.roll(again["fourier"], 64, axis=1), made["fourier"])
    other = fourier(POINTS, style="gaussian", num_bands=64, scale=3.0, seed=10)
    assert isinstance(other, Tensors)
    assert (other["matrix"] != b).all()


@pytest.mark.parametrize(
    "options",
    [
        {"num_bands": 5},
        {"style": "perceiver", "num_bands": 5, "max_resolution": (9, 9)},
        {"style": "gaussian", "num_bands": 5},
    ],
)
def test_a_row_has_the_same_bits_in_any_company(options: dict[str, Any]) -> None:
    def rows(points: np.ndarray) -> np.ndarray:
        made = fourier(points, **options)
        return made["fourier"] if isinstance(made, Tensors) else made

    points = np.random.default_rng(0).uniform(-1, 1, size=(400, 2))
    whole = rows(points)
    np.testing.assert_array_equal(rows(points[[333, 5]]), whole[[333, 5]])
    np.testing.assert_array_equal(rows(points[77:78]), whole[77:78])
    assert rows(points[:0]).shape == (0, whole.shape[1])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"style": "nerv"}, "did you mean 'nerf'"),
        ({}, "num_bands is missing"),
        ({"num_bands": 0}, "num_bands 0"),
        ({"num_bands": 3, "seed": 1}, "seed is for style gaussian, not for nerf"),
        ({"num_bands": 3, "style": "gaussian", "pi": True}, "pi is for style nerf, not for gaussian"),
        ({"num_bands": 3, "style": "perceiver"}, "max_resolution is missing"),
        ({"num_bands": 3, "style": "perceiver", "max_resolution": (3,)}, "1 numbers, the positions have 2"),
        ({"style": "gaussian", "matrix": np.ones((3, 4))}, r"\(3, 4\); \(2, bands\)"),
        ({"style": "gaussian", "matrix": np.full((2, 4), np.nan)}, "NaN"),
        ({"style": "gaussian", "matrix": np.ones((2, 4)), "num_bands": 4}, "leave num_bands out"),
        ({"style": "gaussian", "matrix": np.ones((2, 4)), "seed": 4}, "leave scale and seed out"),
        ({"style": "gaussian", "num_bands": 4, "scale": -1.0}, "scale -1"),
        ({"num_bands": 3, "grid": (2, 2)}, "numbered by integers"),
    ],
)
def test_wrong_use_is_said(options: dict[str, Any], message: str) -> None:
    with pytest.raises(PeError, match=message):
        fourier(POINTS, **options)


def test_rows_beyond_a_grid_are_said() -> None:
    with pytest.raises(PeError, match="row 4 is outside a grid of 2x2"):
        fourier(np.arange(5), num_bands=3, grid=(2, 2))


@pytest.mark.interop
def test_perceiver_of_transformers_is_equal() -> None:
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    from transformers.models.perceiver.modeling_perceiver import (
        build_linear_positions,
        generate_fourier_features,
    )

    positions = build_linear_positions((4, 6)).reshape(1, -1, 2).float()
    want = generate_fourier_features(positions, 5, (4, 6))[0].numpy()
    got = np.asarray(fourier(np.arange(24), style="perceiver", num_bands=5, grid=(4, 6)))
    np.testing.assert_allclose(got, want, atol=1e-6)
