"""Eigenvectors to more digits than a solver gives: for those whose rounded values would depend on its noise.

The kernels of a BLAS differ from processor to processor in their last bits, and so do the eigenvectors that LAPACK makes
with them: by about eps / gap, gap being the distance to the nearest other eigenvalue. One step of correction, from a
residual that is computed without rounding errors, brings them within about eps of the exact ones.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Reals: TypeAlias = NDArray[np.float64]
SPLIT = 134217729.0  # 2^27 + 1: cuts a float64 into halves of 26 bits


def two_sum(a: Any, b: Any) -> tuple[Any, Any]:
    """a + b rounded, and what the rounding lost (Knuth)."""
    total = a + b
    part = total - a
    return total, (a - (total - part)) + (b - part)


def two_product(a: Any, b: Any) -> tuple[Any, Any]:
    """a x b rounded, and what the rounding lost (Dekker)."""
    scaled_a, scaled_b = SPLIT * a, SPLIT * b
    high_a, high_b = scaled_a - (scaled_a - a), scaled_b - (scaled_b - b)
    low_a, low_b = a - high_a, b - high_b
    product = a * b
    return product, ((high_a * high_b - product) + high_a * low_b + low_a * high_b) + low_a * low_b


class _Sums:
    """Sums (n,) of many products, as if in twice the precision."""

    def __init__(self, count: int) -> None:
        self.total, self.lost = np.zeros(count), np.zeros(count)

    def add(self, rows: NDArray[np.int64], a: Reals, b: Reals) -> None:
        """Add a x b to the sums `rows`, which ascend; the first terms of all sums together, then the second, …"""
        starts = np.flatnonzero(np.concatenate([[True], rows[1:] != rows[:-1]])) if rows.size else rows
        turn = np.arange(len(rows)) - np.repeat(starts, np.diff(np.append(starts, len(rows))))
        product, error = two_product(a, b)
        order = np.argsort(turn, kind="stable")
        bounds = np.searchsorted(turn[order], np.arange(int(turn.max(initial=-1)) + 2))
        for begin, end in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
            own = order[begin:end]
            row = rows[own]
            self.total[row], rest = two_sum(self.total[row], product[own])
            self.lost[row] += rest + error[own]

    def value(self) -> Reals:
        return self.total + self.lost


def residuals(matrices: NDArray[Any], vectors: NDArray[Any], values: Reals) -> NDArray[Any]:
    """(f, s) A x - λ x for A (f, s, s), x (f, s) and λ (f,), to the last bit."""
    count, size = vectors.shape
    item, row, column = np.nonzero(matrices)
    entries = matrices[item, row, column]
    rows, own = item * size + row, np.arange(count * size)
    shift = np.repeat(-values, size)

    def product(a: Reals, x: Reals, b: Reals | None = None, y: Reals | None = None) -> Reals:
        sums = _Sums(count * size)
        sums.add(rows, a, x[item, column])
        if b is not None and y is not None:
            sums.add(rows, b, y[item, column])
        sums.add(own, shift, x.reshape(-1))
        return sums.value().reshape(count, size)

    if not np.iscomplexobj(matrices) and not np.iscomplexobj(vectors):
        return product(entries, vectors)
    real, imaginary = np.ascontiguousarray(vectors.real), np.ascontiguousarray(vectors.imag)
    return product(entries.real, real, -entries.imag, imaginary) + 1j * product(
        entries.real, imaginary, entries.imag, real
    )


def refined(
    matrices: NDArray[Any],
    spaces: NDArray[Any],
    values: Reals,
    first: NDArray[np.int64],
    dimension: int,
    vectors: NDArray[Any],
) -> NDArray[Any]:
    """(f, s) the eigenvectors, corrected by all eigenvectors but those of their own eigenspace, at unit length.

    `spaces` (f, s, s) are all eigenvectors of the `matrices` (f, s, s), as columns, `values` (f, s) their eigenvalues. The
    eigenspace of each vector begins at column `first` (f,) and has `dimension` columns.
    """
    count, size = vectors.shape
    columns = np.arange(size)
    own = (columns >= first[:, None]) & (columns < first[:, None] + dimension)
    mean = np.where(own, values, 0).sum(axis=1) / dimension
    rest = residuals(matrices, vectors, mean)
    along = np.einsum("fij,fi->fj", spaces.conj(), rest)
    along = np.where(own, 0, along / np.where(own, 1, mean[:, None] - values))
    better = vectors + np.einsum("fij,fj->fi", spaces, along)
    parts = better.view(np.float64).reshape(count, -1)
    return np.asarray(better * (1 + (1 - _squared(parts)) / 2)[:, None])


def _squared(parts: Reals) -> Reals:
    """(f,) the sum of squares along the rows, as if in twice the precision."""
    high, low = two_product(parts, parts)
    while high.shape[1] > 1:
        half = (high.shape[1] + 1) // 2
        if high.shape[1] % 2:
            high, low = (np.concatenate([x, np.zeros((len(x), 1))], axis=1) for x in (high, low))
        total, lost = two_sum(high[:, :half], high[:, half:])
        high, low = total, low[:, :half] + low[:, half:] + lost
    return np.asarray(high[:, 0] + low[:, 0])
