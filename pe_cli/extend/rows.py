"""Rows that stand apart from the others by their values: a class token at the front, an end token at the back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

BLOCK = 1 << 15  # elements: two blocks stay in cache
MOST_AT_AN_END = 4


@dataclass(frozen=True)
class Outliers:
    """`flagged` row numbers with their norms, of which the first `head` and last `tail` rows of the body."""

    flagged: tuple[int, ...]
    norms: tuple[float, ...]
    median: float
    head: int
    tail: int


def norms(rows: NDArray[Any]) -> NDArray[np.float64]:
    """(n,) Euclidean norm of each row of (n, d), in float64 and in bounded memory."""
    wide = np.complex128 if rows.dtype.kind == "c" else np.float64
    squares = np.empty(len(rows))
    step = max(1, BLOCK // max(1, rows.shape[1]))
    for start in range(0, len(rows), step):
        block = rows[start : start + step].astype(wide)
        squares[start : start + step] = np.einsum("ij,ij->i", block, block.conj()).real
    return np.sqrt(squares)


def median(values: NDArray[np.float64]) -> float:
    """The median of finite `values` (n,), at least one. `np.median` loads numpy.ma, a tenth of what starting takes."""
    middle = len(values) // 2
    chosen = np.partition(values, (middle - 1 + len(values) % 2, middle))
    return float((chosen[middle - 1 + len(values) % 2] + chosen[middle]) / 2)


def outliers(size: NDArray[np.float64]) -> Outliers:
    """Of rows with norms `size` (n,), those whose norm is over 1.5 times the median and far outside the spread of the others.

    The spread is the median absolute deviation, and "far" is six of what would be standard deviations: narrow
    random tables have long rows by chance, and those are not meant. Only runs at an end, of at most
    `MOST_AT_AN_END` rows, count as head and tail.
    """
    if len(size) < 16:
        return Outliers((), (), median(size) if len(size) else 0.0, 0, 0)
    middle = median(size)
    spread = 1.4826 * median(np.abs(size - middle))
    apart = (size > 1.5 * middle) & (size - middle > 6 * spread)
    flagged = np.flatnonzero(apart)
    head = _run(apart[: MOST_AT_AN_END + 1])
    tail = _run(apart[::-1][: MOST_AT_AN_END + 1])
    return Outliers(tuple(map(int, flagged)), tuple(map(float, size[flagged])), middle, head, tail)


def _run(flags: NDArray[np.bool_]) -> int:
    """How many of the first flags are set; none where all are, since that is no end but the table."""
    length = int(np.argmin(flags))
    return 0 if flags.all() else length
