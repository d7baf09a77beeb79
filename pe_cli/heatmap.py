"""A table as a picture: which cells are shown, where the scale ends, and the colours."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

# Ends and middle of a blue-white-orange scale, told apart in all common forms of colour blindness.
NEGATIVE, MIDDLE, POSITIVE = (33, 102, 172), (247, 247, 247), (217, 95, 2)
UNKNOWN = (128, 128, 128)  # NaN and infinities
OUTLYING = 3


def as_plane(array: NDArray[Any]) -> NDArray[np.float64]:
    """Two dimensions to look at: the last two of a real array, the modulus of a complex one."""
    if not array.size:
        return np.zeros((0, 0))
    plane = array.reshape(1, -1) if array.ndim < 2 else array.reshape(-1, *array.shape[-2:])[0]
    real: NDArray[np.float64] = (np.abs(plane) if plane.dtype.kind == "c" else plane).astype(np.float64)
    return real


def shrink(plane: NDArray[np.float64], rows: int, columns: int) -> NDArray[np.float64]:
    """At most (rows, columns) of the cells, evenly spaced, the first and last among them.

    Cells are picked rather than averaged, since the average of a fast cosine is nothing.
    """
    picked = [
        np.unique(np.linspace(0, size - 1, min(size, limit)).round().astype(int))
        for size, limit in zip(plane.shape, (rows, columns), strict=True)
    ]
    shrunk: NDArray[np.float64] = plane[np.ix_(*picked)]
    return shrunk


def limits(plane: NDArray[np.float64]) -> tuple[float, float]:
    """The ends of the scale; symmetric about zero where both signs occur.

    A few outliers do not flatten the rest: beyond three times what 99 % stay within, the scale ends there.
    """
    finite = plane[np.isfinite(plane)]
    if not finite.size:
        return 0.0, 0.0
    low, high = float(finite.min()), float(finite.max())
    usual = float(np.quantile(np.abs(finite), 0.99))
    if usual and max(-low, high) > OUTLYING * usual:
        low, high = max(low, -usual), min(high, usual)
    if low < 0 < high:
        high = max(-low, high)
        low = -high
    return low, high


def colours(plane: NDArray[np.float64]) -> NDArray[np.uint8]:
    """(rows, columns, 3): red, green and blue of each cell on the scale of `limits`."""
    low, high = limits(plane)
    held = np.clip(np.nan_to_num(plane, nan=0.0), low, high)
    if low < 0 < high:
        share, positive = np.abs(held) / high, held > 0
    else:
        span = high - low
        share = (held - low) / span if span > 0 else np.zeros_like(held)
        positive = np.full(held.shape, high > 0)
        share = share if high > 0 else 1 - share
    ends = np.where(positive[..., None], POSITIVE, NEGATIVE)
    mixed = np.rint(MIDDLE + (ends - np.array(MIDDLE)) * share[..., None])
    return np.where(np.isfinite(plane)[..., None], mixed, UNKNOWN).astype(np.uint8)
