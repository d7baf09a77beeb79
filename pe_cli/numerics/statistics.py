"""What one looks at first in a table: its numbers, its norms, and how alike rows are by distance."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypedDict

import numpy as np
from numpy.typing import NDArray

BLOCK_ITEMS = 1 << 19
EXTREME = 400  # beyond 2^400 and below 2^-400 squares leave the range of float64, or come close
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
    """Statistics of a real, integer or complex array, in blocks of rows; rows are those of its last two dimensions."""
    if array.size == 0:
        return Statistics()
    rows = array.reshape(-1, array.shape[-1]) if array.ndim >= 2 else array.reshape(1, -1)
    exponent = _extreme_exponent(rows)
    moments, norms = Moments(), []
    for block in _blocks(rows, exponent):
        moments.add(block)
        norms.append(np.sqrt(np.einsum("ij,ij->i", block, block)))
    found = Statistics(zeros=moments.zeros, nan=moments.nan, infinite=moments.infinite)
    if moments.count:
        std = (moments.squares / moments.count) ** 0.5
        numbers = np.ldexp([moments.low, moments.high, moments.mean, std], exponent)
        found["min"], found["max"], found["mean"], found["std"] = numbers.tolist()
    if array.ndim >= 2 and not moments.nan and not moments.infinite:
        with np.errstate(over="ignore", under="ignore"):
            sizes = np.ldexp(np.concatenate(norms), exponent)
        found["row_norm"] = {
            "min": float(sizes.min()),
            "median": float(np.median(sizes)),
            "max": float(sizes.max()),
        }
        found["similarity"] = similarity(rows[: array.shape[-2]], exponent)
    return found


@dataclass
class Moments:
    """Numbers of all elements, gathered block by block (Chan, Golub and LeVeque, 1979)."""

    count: int = 0
    mean: float = 0.0
    squares: float = 0.0
    low: float = np.inf
    high: float = -np.inf
    zeros: int = 0
    nan: int = 0
    infinite: int = 0

    def add(self, block: NDArray[np.float64]) -> None:
        """Take a block into account."""
        self.zeros += int((block == 0).sum())
        self.nan += int(np.isnan(block).sum())
        self.infinite += int(np.isinf(block).sum())
        good = block[np.isfinite(block)]
        if not good.size:
            return
        self.low, self.high = min(self.low, float(good.min())), max(self.high, float(good.max()))
        mean, count = float(good.mean()), self.count + good.size
        apart = mean - self.mean
        self.squares += float(((good - mean) ** 2).sum()) + apart**2 * self.count * good.size / count
        self.mean += apart * good.size / count
        self.count = count


def similarity(rows: NDArray[Any], exponent: int = 0) -> dict[str, float]:
    """Mean cosine between rows that lie 1, 2, 4 … apart; zero rows are left out. They are seen divided by 2^exponent."""
    lags = [lag for lag in LAGS if lag < len(rows)]
    sums, counts = dict.fromkeys(lags, 0.0), dict.fromkeys(lags, 0)
    before = np.zeros((0, rows.shape[1]))
    for block in _blocks(rows, exponent):
        norms = np.sqrt(np.einsum("ij,ij->i", block, block))[:, None]
        unit = np.divide(block, norms, out=np.zeros_like(block), where=norms > 0)
        joined = np.concatenate([before, unit])
        for lag in lags:
            first = max(lag, len(before))
            new, old = joined[first:], joined[first - lag : max(len(joined), first) - lag]
            sums[lag] += float(np.einsum("ij,ij->", new, old))
            counts[lag] += int((new.any(axis=1) & old.any(axis=1)).sum())
        before = joined[-LAGS[-1] :]
    return {str(lag): sums[lag] / counts[lag] for lag in lags if counts[lag]}


def _extreme_exponent(rows: NDArray[Any]) -> int:
    """The binary exponent of the largest finite value where its square is out of reach, else 0."""
    if rows.dtype.kind not in "fc" or np.finfo(rows.dtype).maxexp <= EXTREME:
        return 0
    largest = max(float(np.abs(block).max(where=np.isfinite(block), initial=0)) for block in _blocks(rows, 0))
    exponent = int(np.frexp(largest)[1])
    return exponent if abs(exponent) > EXTREME else 0


def _blocks(rows: NDArray[Any], exponent: int) -> Iterator[NDArray[np.float64]]:
    """Consecutive rows as float64, the modulus of complex ones, divided by 2^exponent, a few MiB at a time."""
    step = max(1, BLOCK_ITEMS // max(1, rows.shape[1]))
    for start in range(0, len(rows), step):
        block = rows[start : start + step]
        values = (np.abs(block) if block.dtype.kind == "c" else block).astype(np.float64)
        yield np.ldexp(values, -exponent) if exponent else values
