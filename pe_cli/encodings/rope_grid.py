"""From row numbers of a grid to coordinates, and from coordinates to rotations."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from pe_cli.encodings.grids import spell
from pe_cli.encodings.rope_rules import Decimals
from pe_cli.errors import PeError
from pe_cli.kernels import rotations

Grid: TypeAlias = tuple[int, ...]
ROWS_AT_ONCE = 512


def coordinates(
    positions: NDArray[Any], axes: int, grid: Grid | None, *, text: bool = False, class_row: bool = False
) -> NDArray[Any]:
    """(n, axes) coordinates: given as such, or the cell of each row number of `grid`.

    A grid of fewer axes leaves the first ones (time) at 0. `text`: a position alone is the same on all axes.
    `class_row`: there is one more row than cells.
    """
    where = np.asarray(positions)
    if where.ndim == 2:
        if where.shape[1] != axes:
            raise PeError(f"positions have {where.shape[1]} coordinates; this encoding has {axes} axes")
        return where
    if where.ndim != 1:
        raise PeError(f"positions have shape {where.shape}; give (n,) or (n, {axes})")
    if grid is None:
        if not text:
            raise PeError(f"this encoding has {axes} axes: give --grid, or positions with {axes} coordinates")
        return np.repeat(where[:, None], axes, axis=1)
    shape = padded(grid, axes)
    cells = int(np.prod(shape))
    outside = (where < 0) | (where >= cells + class_row) | (where != np.floor(where))
    if outside.any():
        raise PeError(
            f"position {where[outside][0]} is not a row of --grid {spell(grid, 'x')}, which has {cells}"
        )
    return np.stack(np.unravel_index(np.minimum(where, cells - 1).astype(np.int64), shape), axis=1)


def turning_blocks(
    where: NDArray[Any],
    axis_of: tuple[int, ...],
    inv_freq: Decimals,
    amplitude: float,
    *,
    relative: bool,
) -> Iterator[tuple[slice, NDArray[np.complex128]]]:
    """Like `kernels.rotation_blocks`, with coordinates (n, axes) and the axis of each pair."""
    chosen = {
        axis: np.array([i for i, a in enumerate(axis_of) if a == axis]) for axis in sorted(set(axis_of))
    }
    rates = {axis: tuple(inv_freq[i] for i in columns) for axis, columns in chosen.items()}
    buffer = np.empty((ROWS_AT_ONCE, len(axis_of)), np.complex128)
    for start in range(0, len(where), ROWS_AT_ONCE):
        part = where[start : start + ROWS_AT_ONCE]
        z = buffer[: len(part)]
        for axis, columns in chosen.items():
            distinct, index = np.unique(part[:, axis], return_inverse=True)
            turned = rotations(distinct, rates[axis], amplitude=amplitude, relative=relative)
            z[:, columns] = turned[index.reshape(-1)]
        yield slice(start, start + len(part)), z


def padded(grid: Grid, axes: int) -> Grid:
    if len(grid) > axes:
        raise PeError(f"--grid {spell(grid, 'x')} has {len(grid)} axes; this encoding has {axes}")
    return (1,) * (axes - len(grid)) + tuple(grid)
