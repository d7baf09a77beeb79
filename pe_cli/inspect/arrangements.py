"""Where the cosines and sines sit in a table's columns: each arrangement is two lists of columns."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

ABSENT = -1
Columns = NDArray[np.intp]


@dataclass(frozen=True)
class Arrangement:
    """`cos` and `sin` give for each pair its column, or ABSENT where an odd width has dropped it."""

    name: str
    cos: Columns
    sin: Columns

    @property
    def pairs(self) -> int:
        return len(self.cos)


def _interleaved(first: Columns, second: Columns) -> Columns:
    return np.concatenate([second, [ABSENT]]) if len(second) < len(first) else second


def _alternating(width: int) -> tuple[Columns, Columns]:
    first = np.arange(0, width, 2)
    return first, _interleaved(first, np.arange(1, width, 2))


def _blocks(width: int) -> tuple[Columns, Columns]:
    long = -(-width // 2)
    first = np.arange(long)
    return first, _interleaved(first, np.arange(long, width))


def _padded_blocks(width: int) -> tuple[Columns, Columns]:
    """Odd width, last column zero."""
    return np.arange(width // 2), np.arange(width // 2, width // 2 * 2)


SplitRule = Callable[[int], tuple[Columns, Columns]]
RULES: dict[str, tuple[SplitRule, bool]] = {
    "sin,cos alternating": (_alternating, True),
    "cos,sin alternating": (_alternating, False),
    "sin|cos": (_blocks, True),
    "cos|sin": (_blocks, False),
    "sin|cos|0": (_padded_blocks, True),
    "cos|sin|0": (_padded_blocks, False),
}


def arrangements(width: int) -> Iterator[Arrangement]:
    """Every way in which `width` columns hold pairs of cosine and sine."""
    for name, (rule, sin_first) in RULES.items():
        if name.endswith("0") and (width % 2 == 0 or width < 3):
            continue
        first, second = rule(width)
        yield Arrangement(name, second, first) if sin_first else Arrangement(name, first, second)


def pick(table: NDArray[Any], columns: Columns) -> NDArray[np.float64]:
    """The chosen columns [n, m] in float64, NaN where there is none."""
    taken = table[:, np.maximum(columns, 0)].astype(np.float64)
    taken[:, columns == ABSENT] = np.nan
    return taken


def repeated(table: NDArray[Any]) -> tuple[str, NDArray[Any]]:
    """How a table of cosines (or sines) repeats its values, and each value once.

    `half` [f, f], `adjacent` [f0, f0, f1, f1, ...], `split` without repetition.
    """
    width = table.shape[1]
    if width % 2 == 0 and width >= 4:
        half = width // 2
        if np.array_equal(table[:, :half], table[:, half:]):
            return "half", table[:, :half]
        if np.array_equal(table[:, 0::2], table[:, 1::2]):
            return "adjacent", table[:, 0::2]
    if width == 2 and np.array_equal(table[:, 0], table[:, 1]):
        return "half", table[:, :1]
    return "split", table
