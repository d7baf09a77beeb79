"""Fourier features: sines and cosines of coordinates, at frequencies that rise instead of falling."""

from __future__ import annotations

import math
from collections.abc import Mapping
from decimal import Decimal
from functools import lru_cache
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from pe_cli.encodings.distances import checked
from pe_cli.errors import PeError, parameter
from pe_cli.numerics.kernels import PRECISE, TWO_PI, as_decimal, rotations
from pe_cli.numerics.randomness import normal_rows
from pe_cli.positions import cells
from pe_cli.signature import Array, Choice, Grid, Ints, Positions, default_positions, encoding
from pe_cli.tensors import Tensors

STYLES = ("nerf", "perceiver", "gaussian")
OWN_OPTIONS = {
    "pi": ("nerf",),
    "log_sampling": ("nerf",),
    "include_input": ("nerf", "perceiver"),
    "max_resolution": ("perceiver",),
    "scale": ("gaussian",),
    "seed": ("gaussian",),
    "matrix": ("gaussian",),
    "sin_first": ("gaussian",),
}


def _even_coordinates(length: int, **parameters: Any) -> NDArray[np.float64]:
    """What --len means: evenly spaced coordinates from -1 to 1."""
    return np.linspace(-1, 1, length) if length > 1 else np.zeros(length)


@encoding
@default_positions(_even_coordinates)
def fourier(
    positions: Positions,
    *,
    style: Annotated[str, Choice(STYLES)] = "nerf",
    num_bands: int | None = None,
    include_input: bool | None = None,
    pi: bool | None = None,
    log_sampling: bool | None = None,
    max_resolution: Ints | None = None,
    scale: float | None = None,
    seed: int | None = None,
    matrix: Array | None = None,
    sin_first: bool | None = None,
    grid: Grid | None = None,
) -> NDArray[np.float64] | Tensors:
    """Fourier features of coordinates: what networks on continuous input use in place of a table.

    >>> fourier([0.0, 0.25, 0.5], style="nerf", num_bands=10).shape
    (3, 21)

    Positions are coordinates, usually from -1 to 1: (n,) or (n, axes). --len N means N of them, evenly spaced
    from -1 to 1, and --grid HxW the cells of a grid, each axis from -1 to 1. They are the input of a network,
    and defined for every coordinate. K is --num-bands, a the number of axes.

    Style nerf: the coordinates, then sin(2^0 x), cos(2^0 x), sin(2^1 x), ... of all axes: (n, a + 2 a K).

    Style perceiver: the coordinates, then sin(pi f x) for all axes and f from 1 to half the resolution, then
    the cosines: (n, a + 2 a K).

    Style gaussian: cos(2 pi B x), then sin(2 pi B x), with B (a, K) random: (n, 2 K). B is the tensor `matrix`.

    Source: Mildenhall et al. 2020, "NeRF", eq. 4; Jaegle et al. 2021, "Perceiver", section 3.2; Tancik et al.
    2020, "Fourier Features Let Networks Learn High Frequency Functions", eq. 4 and section 6.1.

    Parameters
    ----------
    positions : coordinates (n,) or (n, axes); an int n stands for 0..n-1
    style : convention of the features
    num_bands : number of frequencies
    include_input : put the coordinates in front (nerf, perceiver; the default)
    pi : frequencies times pi, as in the paper of NeRF, but not in its code (nerf)
    log_sampling : frequencies 1, 2, 4, ...; else evenly spaced up to the same highest (nerf; the default)
    max_resolution : cells along each axis, twice its highest frequency (perceiver; default: the grid)
    scale : standard deviation of B (gaussian; default 1)
    seed : key of the random numbers of B (gaussian; default 0)
    matrix : B itself, (axes, bands), from a file (gaussian)
    sin_first : sines in front of cosines, as in SAM and diffusers (gaussian)
    grid : take the cells of a grid as positions

    Returns
    -------
    Tensors
        fourier (n, features), float64; with style gaussian also matrix (axes, bands).

    Raises
    ------
    PeError
        For options of another style, a number of bands that is missing or not positive, a matrix or
        resolution of another number of axes, and positions that are not finite numbers.
    """
    given: Mapping[str, Any] = {
        "include_input": include_input,
        "pi": pi,
        "log_sampling": log_sampling,
        "max_resolution": max_resolution,
        "scale": scale,
        "seed": seed,
        "matrix": matrix,
        "sin_first": sin_first,
    }
    for option, value in given.items():
        if value is not None and style not in OWN_OPTIONS[option]:
            raise PeError(
                f"{parameter(option)} is for {parameter('style')} {' and '.join(OWN_OPTIONS[option])}, not for {style}"
            )
    coordinates = _coordinates(positions, grid)
    if matrix is None:
        if num_bands is None:
            raise PeError(f"{parameter('num_bands')} is missing: say how many frequencies")
        if num_bands < 1:
            raise PeError(f"{parameter('num_bands')} {num_bands} is not positive")
    elif num_bands is not None:
        raise PeError(
            f"{parameter('matrix')} has its own number of bands: leave {parameter('num_bands')} out"
        )
    if style == "gaussian":
        axes = coordinates.shape[1]
        b = (
            _random_matrix(axes, num_bands or 0, scale, seed)
            if matrix is None
            else _given_matrix(matrix, axes)
        )
        if matrix is not None and (scale is not None or seed is not None):
            raise PeError(
                f"{parameter('matrix')} is given: leave {parameter('scale')} and {parameter('seed')} out"
            )
        return Tensors({"fourier": _gaussian(coordinates, b, bool(sin_first)), "matrix": b})
    assert num_bands is not None
    if style == "nerf":
        features = _nerf(coordinates, num_bands, bool(pi), log_sampling is not False)
    else:
        features = _perceiver(coordinates, num_bands, max_resolution or grid)
    return features if include_input is False else np.concatenate([coordinates, features], axis=1)


def _coordinates(positions: Positions, grid: Grid | None) -> NDArray[np.float64]:
    """(n, axes) coordinates."""
    if grid is None:
        coordinates = np.asarray(positions, np.float64)
        return coordinates if coordinates.ndim == 2 else coordinates[:, None]
    where = cells(positions, tuple(grid))
    return np.stack([_even_coordinates(side)[cell] for side, cell in zip(grid, where, strict=True)], axis=1)


def _nerf(x: NDArray[np.float64], bands: int, pi: bool, log_sampling: bool) -> NDArray[np.float64]:
    n, axes = x.shape
    features = np.empty((n, bands, 2, axes))
    for axis in range(axes):
        z = rotations(x[:, axis], _nerf_bands(bands, pi, log_sampling), relative=True)
        features[:, :, 0, axis], features[:, :, 1, axis] = z.imag, z.real
    return features.reshape(n, 2 * axes * bands)


def _perceiver(x: NDArray[np.float64], bands: int, resolution: Ints | None) -> NDArray[np.float64]:
    n, axes = x.shape
    if resolution is None:
        raise PeError(f"{parameter('max_resolution')} is missing: say how many cells an axis has")
    if len(resolution) != axes:
        raise PeError(
            f"{parameter('max_resolution')} has {len(resolution)} numbers, the positions have {axes} axes"
        )
    features = np.empty((n, 2, axes, bands))
    for axis, size in enumerate(resolution):
        z = rotations(x[:, axis], _even_bands(bands, Decimal(size) / 2, pi=True), relative=True)
        features[:, 0, axis], features[:, 1, axis] = z.imag, z.real
    return features.reshape(n, 2 * axes * bands)


def _gaussian(x: NDArray[np.float64], matrix: NDArray[np.float64], sin_first: bool) -> NDArray[np.float64]:
    z = np.ones((len(x), matrix.shape[1]), np.complex128)
    for axis, row in enumerate(matrix):
        turned = rotations(x[:, axis], _turns(tuple(row.tolist())), relative=True)
        z = turned if axis == 0 else z * turned
    return np.concatenate([z.imag, z.real] if sin_first else [z.real, z.imag], axis=1)


@lru_cache(maxsize=16)
def _nerf_bands(bands: int, pi: bool, log_sampling: bool) -> tuple[Decimal, ...]:
    if not log_sampling:
        return _even_bands(bands, Decimal(2) ** (bands - 1), pi=pi)
    return tuple(_times_pi(Decimal(2**band)) if pi else Decimal(2**band) for band in range(bands))


@lru_cache(maxsize=16)
def _even_bands(bands: int, highest: Decimal, *, pi: bool) -> tuple[Decimal, ...]:
    """Evenly spaced from 1 to `highest`, both included."""
    step = PRECISE.divide(highest - 1, Decimal(max(bands - 1, 1)))
    spaced = (PRECISE.fma(step, Decimal(band), Decimal(1)) for band in range(bands))
    return tuple(_times_pi(f) if pi else f for f in spaced)


@lru_cache(maxsize=64)
def _turns(cycles: tuple[float, ...]) -> tuple[Decimal, ...]:
    return tuple(PRECISE.multiply(as_decimal(c), TWO_PI) for c in cycles)


def _times_pi(frequency: Decimal) -> Decimal:
    return PRECISE.multiply(frequency, PRECISE.divide(TWO_PI, Decimal(2)))


def _random_matrix(axes: int, bands: int, scale: float | None, seed: int | None) -> NDArray[np.float64]:
    width = 1.0 if scale is None else scale
    if not (width > 0 and math.isfinite(width)):
        raise PeError(f"{parameter('scale')} {width:g} is not a positive number")
    return normal_rows(np.arange(axes), bands, seed or 0) * width


def _given_matrix(matrix: Array, axes: int) -> NDArray[np.float64]:
    b = checked(matrix, "matrix", dims=2)
    if b.shape[0] != axes or not b.shape[1]:
        raise PeError(
            f"{parameter('matrix')} has shape {b.shape}; ({axes}, bands) is needed for positions of {axes} axes"
        )
    return b
