"""What one looks at first in a table: its numbers, its norms, and how alike rows are by distance."""

from __future__ import annotations

from typing import Any, TypedDict

import numpy as np
from numpy.typing import NDArray

LAGS = (1, 2, 4, 8, 16, 32, 64, 128, 256)


class Statistics(TypedDict, total=False):
    """Numbers about one table; those that make no sense for it are left out."""

    min: float
    max: float
    mean: float
    std: float
    zeros: int
    nan: int
    infinite: int
    row_norm: dict[str, float]
    similarity: dict[str, float]


def describe(array: NDArray[Any]) -> Statistics:
    """Statistics of a real, integer or complex array; rows are those of its last two dimensions."""
    if array.size == 0:
        return Statistics()
    values = (np.abs(array) if array.dtype.kind == "c" else array).astype(np.float64)
    finite = np.isfinite(values)
    good = values[finite]
    found = Statistics(
        zeros=int((values == 0).sum()), nan=int(np.isnan(values).sum()), infinite=int(np.isinf(values).sum())
    )
    if good.size:
        found["min"], found["max"] = float(good.min()), float(good.max())
        found["mean"], found["std"] = float(good.mean()), float(good.std())
    if values.ndim >= 2 and finite.all():
        rows = values.reshape(-1, values.shape[-1])
        norms = np.sqrt((rows * rows).sum(axis=1))
        found["row_norm"] = {
            "min": float(norms.min()),
            "median": float(np.median(norms)),
            "max": float(norms.max()),
        }
        found["similarity"] = similarity(values.reshape(-1, *values.shape[-2:])[0])
    return found


def similarity(rows: NDArray[np.float64]) -> dict[str, float]:
    """Mean cosine between rows that lie 1, 2, 4 … apart; zero rows are left out."""
    norms = np.sqrt((rows * rows).sum(axis=1, keepdims=True))
    unit = np.divide(rows, norms, out=np.zeros_like(rows), where=norms > 0)
    used = norms[:, 0] > 0
    found = {}
    for lag in LAGS:
        both = used[lag:] & used[:-lag]
        if lag < len(rows) and both.any():
            found[str(lag)] = float((unit[lag:] * unit[:-lag]).sum(axis=1)[both].mean())
    return found
