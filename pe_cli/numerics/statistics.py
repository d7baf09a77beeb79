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


def median(values: NDArray[Any]) -> float:
    """The median of finite `values` (n,), at least one. `np.median` loads numpy.ma, a tenth of what starting takes."""
    middle = len(values) // 2
    chosen = np.partition(values, (middle - 1 + len(values) % 2, middle))
    return float((chosen[middle - 1 + len(values) % 2] + chosen[middle]) / 2)


def evenly(count: int, most: int) -> NDArray[np.int64]:
    """At most `most` of the numbers 0 to `count` - 1, the first and the last among them, as far apart as can be.

    >>> evenly(9, 3).tolist(), evenly(2, 3).tolist()
    ([0, 4, 8], [0, 1])
    """
    chosen = min(count, most)
    return np.arange(chosen) * (count - 1) // max(chosen - 1, 1)


def describe(array: NDArray[Any]) -> Statistics:
    """Statistics of a real, integer or complex array, in blocks of rows; rows are those of its last two dimensions."""
    if array.size == 0:
        return Statistics()
    rows = array.reshape(-1, array.shape[-1]) if array.ndim >= 2 else array.reshape(1, -1)
    gathered = RowStatistics(_extreme_exponent(rows))
    for block in blocks_of(rows):
        gathered.add(block)
    found = gathered.found(norms=array.ndim >= 2)
    if "row_norm" in found:
        found["similarity"] = similarity(rows[: array.shape[-2]], gathered.exponent)
    return found


class RowStatistics:
    """Statistics that are gathered block by block, so that a table need not be in memory.

    `exponent`: values are seen divided by 2^exponent, where their squares would leave the range of float64.
    `single`: blocks of float32 are added up in float32, to six digits, four times as fast.
    """

    def __init__(self, exponent: int = 0, *, single: bool = False) -> None:
        self.exponent = exponent
        self.single = single
        self.moments = Moments()
        self.norms: list[NDArray[Any]] = []

    @np.errstate(invalid="ignore")  # of a signalling NaN, which is counted like any other
    def add(self, block: NDArray[Any]) -> None:
        """Take rows (k, d) into account."""
        if self.single and block.dtype == np.float32 and self._add_single(block):
            return
        values = (np.abs(block) if block.dtype.kind == "c" else block).astype(np.float64)
        if self.exponent:
            values = np.ldexp(values, -self.exponent)
        self.moments.add(values)
        self.norms.append(np.sqrt(np.einsum("ij,ij->i", values, values)))

    def _add_single(self, block: NDArray[np.float32]) -> bool:
        """In float32, at the speed of memory; not where numbers are not finite, or much larger than they spread."""
        with np.errstate(over="ignore", invalid="ignore", under="ignore"):
            squares = np.vecdot(block, block)
            power = float(squares.sum(dtype=np.float64))
            total = float((block @ np.ones(block.shape[1], np.float32)).sum(dtype=np.float64))
        count = block.size
        if not np.isfinite(power) or not power > count * LEAST_SQUARE or 2 * total**2 > count * power:
            return False
        low, high = float(block.min()), float(block.max())
        zeros = int(np.count_nonzero(block == 0)) if low <= 0 <= high else 0
        mean = total / count
        self.moments.join(count, mean, power - total * mean, low, high, zeros)
        self.norms.append(np.sqrt(squares))
        return True

    def found(self, *, norms: bool) -> Statistics:
        """The statistics of all blocks."""
        moments = self.moments
        found = Statistics(zeros=moments.zeros, nan=moments.nan, infinite=moments.infinite)
        if moments.count:
            std = (moments.squares / moments.count) ** 0.5
            numbers = np.ldexp([moments.low, moments.high, moments.mean, std], self.exponent)
            found["min"], found["max"], found["mean"], found["std"] = numbers.tolist()
        if norms and not moments.nan and not moments.infinite:
            with np.errstate(over="ignore", under="ignore"):
                sizes = np.ldexp(np.concatenate(self.norms), self.exponent)
            found["row_norm"] = {
                "min": float(sizes.min()),
                "median": median(sizes),
                "max": float(sizes.max()),
            }
        return found


LEAST_SQUARE = 1e-20  # below it squares lose digits in float32


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
        mean = float(good.mean())
        self.join(good.size, mean, float(((good - mean) ** 2).sum()), float(good.min()), float(good.max()), 0)

    def join(self, size: int, mean: float, squares: float, low: float, high: float, zeros: int) -> None:
        """Take a block of `size` finite numbers into account by its own numbers."""
        self.low, self.high = min(self.low, low), max(self.high, high)
        self.zeros += zeros
        count = self.count + size
        apart = mean - self.mean
        self.squares += squares + apart**2 * self.count * size / count
        self.mean += apart * size / count
        self.count = count


def similarity(rows: NDArray[Any], exponent: int = 0) -> dict[str, float]:
    """Mean cosine between rows that lie 1, 2, 4 … apart; zero rows are left out. They are seen divided by 2^exponent."""
    lags = [lag for lag in LAGS if lag < len(rows)]
    sums, counts = dict.fromkeys(lags, 0.0), dict.fromkeys(lags, 0)
    before = np.zeros((0, rows.shape[1]))
    for block in _scaled_blocks(rows, exponent):
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
    largest = max(
        float(np.abs(block).max(where=np.isfinite(block), initial=0)) for block in _scaled_blocks(rows, 0)
    )
    exponent = int(np.frexp(largest)[1])
    return exponent if abs(exponent) > EXTREME else 0


def blocks_of(rows: NDArray[Any]) -> Iterator[NDArray[Any]]:
    """Consecutive rows, a few MiB at a time."""
    step = max(1, BLOCK_ITEMS // max(1, rows.shape[1]))
    for start in range(0, len(rows), step):
        yield rows[start : start + step]


def _scaled_blocks(rows: NDArray[Any], exponent: int) -> Iterator[NDArray[np.float64]]:
    """Consecutive rows as float64, the modulus of complex ones, divided by 2^exponent."""
    for block in blocks_of(rows):
        values = (np.abs(block) if block.dtype.kind == "c" else block).astype(np.float64)
        yield np.ldexp(values, -exponent) if exponent else values
