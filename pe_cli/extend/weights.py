"""New rows as weighted sums of a few old rows: the weights of one axis, and their application to a table."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import prod
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from pe_cli.errors import PeError
from pe_cli.numerics.dtypes import round_to
from pe_cli.numerics.randomness import normal_rows

Anchor: TypeAlias = Literal["ends", "half", "left"]
ANCHORS: tuple[Anchor, ...] = ("ends", "half", "left")


def coordinates(old: int, new: int, anchor: Anchor) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Whole part (new,) and fraction (new,) in [0, 1) of each new row's place on the old axis."""
    j = np.arange(new, dtype=np.int64)
    if anchor == "ends":
        top, below = j * (old - 1), max(new - 1, 1)
    elif anchor == "half":
        top, below = (2 * j + 1) * old - new, 2 * new
    else:
        top, below = j * old, new
    whole = top // below
    return whole, (top - whole * below) / below


def keys_cubic(distance: NDArray[np.float64], a: float) -> NDArray[np.float64]:
    """Keys' cubic convolution kernel at `distance` (any shape), zero from 2 on."""
    d = np.abs(distance)
    near = ((a + 2) * d - (a + 3)) * d * d + 1
    far = ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
    kernel: NDArray[np.float64] = np.where(d <= 1, near, np.where(d < 2, far, 0.0))
    return kernel


def triangle(distance: NDArray[np.float64]) -> NDArray[np.float64]:
    """The kernel of linear interpolation at `distance` (any shape)."""
    kernel: NDArray[np.float64] = np.maximum(0.0, 1 - np.abs(distance))
    return kernel


def spline_matrix(knots: NDArray[np.float64], points: NDArray[np.float64]) -> NDArray[np.float64]:
    """(points, knots) weights of the cubic spline with not-a-knot ends through values at `knots`."""
    n, h = len(knots), np.diff(knots)
    system, right = np.zeros((n, n)), np.zeros((n, n))  # second derivatives: system @ m = right @ values
    for i in range(1, n - 1):
        system[i, i - 1 : i + 2] = h[i - 1], 2 * (h[i - 1] + h[i]), h[i]
        right[i, i - 1 : i + 2] = 6 / h[i - 1], -6 / h[i - 1] - 6 / h[i], 6 / h[i]
    system[0, :3] = h[1], -(h[0] + h[1]), h[0]
    system[-1, -3:] = h[-1], -(h[-1] + h[-2]), h[-2]
    curvature = np.linalg.solve(system, right)
    k = np.clip(np.searchsorted(knots, points, side="right") - 1, 0, n - 2)
    b = (points - knots[k]) / h[k]
    a = 1 - b
    identity = np.eye(n)
    bend = (h[k] ** 2 / 6)[:, None]
    spline: NDArray[np.float64] = a[:, None] * identity[k] + b[:, None] * identity[k + 1]
    spline += bend * ((a**3 - a)[:, None] * curvature[k] + (b**3 - b)[:, None] * curvature[k + 1])
    return spline


FRESH = -1  # the index of a row that is made from no old row
BLOCK_BYTES = 1 << 18


@dataclass(frozen=True)
class Taps:
    """new[j] = sum over t of weight[j, t] * old[index[j, t]].

    index (new, t) int64, FRESH in column 0 where a row has no source; weight (new, t) float64.
    """

    index: NDArray[np.int64]
    weight: NDArray[np.float64]
    old: int
    notes: tuple[str, ...] = field(default=())

    @property
    def new(self) -> int:
        return len(self.index)

    @property
    def copied_from(self) -> NDArray[np.int64]:
        """(new,) the old row that a new row equals, or FRESH where it is not a copy."""
        used = self.weight != 0
        column = np.argmax(used, axis=1)[:, None]
        first = np.take_along_axis(self.index, column, axis=1)
        whole = ((self.index == first) | ~used).all(axis=1)
        whole &= np.abs(self.weight.sum(axis=1) - 1) < 1e-15
        return np.where(whole, first[:, 0], FRESH)

    def matrix(self) -> NDArray[np.float64]:
        """The weights as a dense (new, old) matrix."""
        dense = np.zeros((self.new, self.old))
        rows = np.broadcast_to(np.arange(self.new)[:, None], self.index.shape)
        real = self.index >= 0
        np.add.at(dense, (rows[real], self.index[real]), self.weight[real])
        return dense


# Makes the rows with these numbers: (n, d).
Fill: TypeAlias = Callable[[NDArray[np.int64]], NDArray[np.float64]]


def filler(method: str, table: NDArray[Any], seed: int) -> Fill:
    """What makes rows that have no source: zeros, or normal values with each column's mean and spread.

    `table` (rows, d) is what mean and spread are taken from; row p depends on the seed and on p alone.
    """
    if method != "random":
        return lambda rows: np.zeros((len(rows), table.shape[1]))
    mean = table.mean(axis=0, dtype=np.float64)
    squares = np.zeros(table.shape[1])
    for rows in _blocks(np.arange(len(table)), table.shape[1]):
        squares += np.square(np.abs(table[rows] - mean)).sum(axis=0)
    spread = np.sqrt(squares / len(table))
    return lambda rows: mean + spread * normal_rows(rows, table.shape[1], seed)


def resample(
    table: NDArray[Any],
    taps: Sequence[Taps],
    fill: Fill | None = None,
    *,
    out: NDArray[Any] | None = None,
    worst_rounding: Callable[[float], None] | None = None,
) -> NDArray[Any]:
    """`table` (*old sizes, …) resampled along its first axes, one `Taps` each: (*new sizes, …), same dtype.

    Computed in float64 and rounded once; rows that are copies are copied as they are. `out` (new rows, d) in C order
    receives the rows. `worst_rounding` is called with the largest absolute error of rounding in a block of rows.
    """
    count = len(taps)
    old = tuple(axis.old for axis in taps)
    if table.shape[:count] != old:
        raise PeError(f"a table of shape {table.shape} cannot be resampled from {old}")
    flat = np.ascontiguousarray(table).reshape(prod(old), -1)
    sizes = tuple(axis.new for axis in taps)
    result = np.empty((prod(sizes), flat.shape[1]), dtype=table.dtype) if out is None else out
    source, fresh = row_sources(taps)
    mixed = np.flatnonzero((source == FRESH) & ~fresh)
    if len(mixed):
        blocks = _along_one(flat, taps[0], mixed) if count == 1 else _along_all(flat, taps, mixed)
        for rows, exact in blocks:
            rounded = round_to(exact, table.dtype)
            result[rows] = rounded
            if worst_rounding is not None:
                exact -= rounded
                worst_rounding(_largest(exact))
    for rows in _blocks(np.flatnonzero(source != FRESH), flat.shape[1]):
        result[rows] = flat[source[rows]]
    if fresh.any():
        fill = fill or filler("zeros", flat, 0)
        for rows in _blocks(np.flatnonzero(fresh), flat.shape[1]):
            result[rows] = round_to(fill(rows), table.dtype)
    return result.reshape(*sizes, *table.shape[count:])


def row_sources(taps: Sequence[Taps]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """For every new row, flattened: the old row it copies (or FRESH), and whether it has no source at all."""
    source, fresh = np.zeros(1, dtype=np.int64), np.zeros(1, dtype=np.bool_)
    for axis in taps:
        own = axis.copied_from
        known = (source[:, None] != FRESH) & (own[None, :] != FRESH)
        source = np.where(known, source[:, None] * axis.old + own[None, :], FRESH).reshape(-1)
        fresh = (fresh[:, None] | (axis.index[:, 0] == FRESH)[None, :]).reshape(-1)
    return source, fresh


Mixed: TypeAlias = Iterator[tuple[NDArray[np.int64], NDArray[Any]]]


def _along_one(flat: NDArray[Any], axis: Taps, mixed: NDArray[np.int64]) -> Mixed:
    """Rows `mixed` a block at a time: temporaries stay small beside a table of any size."""
    wide = _wide(flat.dtype)
    blocks = _blocks(mixed, flat.shape[1])
    most = max(map(len, blocks))
    total = np.empty((most, flat.shape[1]), dtype=wide)
    part = np.empty_like(total)
    for rows in blocks:
        count = len(rows)
        for tap in range(axis.index.shape[1]):
            weight = axis.weight[rows, tap]
            target = part[:count] if tap else total[:count]
            target[...] = flat[axis.index[rows, tap]]
            target *= weight[:, None]
            if tap:
                total[:count] += target
        yield rows, total[:count]


def _along_all(flat: NDArray[Any], taps: Sequence[Taps], mixed: NDArray[np.int64]) -> Mixed:
    """One axis after the other; grids are small beside the checkpoints they are in."""
    old = tuple(axis.old for axis in taps)
    values = flat.reshape(*old, -1).astype(_wide(flat.dtype))
    for number, axis in enumerate(taps):
        moved = np.moveaxis(values, number, 0)
        made = np.tensordot(axis.matrix(), moved.reshape(axis.old, -1), axes=1)
        values = np.moveaxis(made.reshape(axis.new, *moved.shape[1:]), 0, number)
    yield mixed, np.ascontiguousarray(values).reshape(-1, flat.shape[1])[mixed]


def _largest(values: NDArray[Any]) -> float:
    """The largest absolute value, without an array of absolute values where they are real."""
    return float(np.abs(values).max() if values.dtype.kind == "c" else max(values.max(), -values.min()))


def _wide(dtype: np.dtype[Any]) -> np.dtype[Any]:
    return np.dtype(np.complex128 if dtype.kind == "c" else np.float64)


def _blocks(rows: NDArray[np.int64], width: int) -> list[NDArray[np.int64]]:
    step = max(1, BLOCK_BYTES // (8 * max(width, 1)))
    edges = [*range(0, len(rows), step), len(rows)]
    return [rows[start:stop] for start, stop in pairwise(edges) if stop > start]
