"""Cells of a grid: their numbers in row-major order, and how a size is written."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pe_cli.errors import PeError


def cells(rows: ArrayLike, sides: tuple[int, ...], *, by_columns: bool = False) -> tuple[NDArray[Any], ...]:
    """The coordinates of row numbers (n,) of a grid, an array (n,) for each axis; the last axis runs fastest.

    With `by_columns` the first axis does. Raises PeError for what is no row of the grid.
    """
    where = np.asarray(rows)
    if where.dtype.kind not in "iu" or where.ndim != 1:
        raise PeError("rows of a grid are numbered by integers")
    count = math.prod(sides)
    outside = (where < 0) | (where >= count)
    if outside.any():
        raise PeError(
            f"row {where[outside][0]} is outside a grid of {spell(sides, 'x')}, rows 0 to {count - 1}"
        )
    found: tuple[NDArray[Any], ...] = np.unravel_index(where, sides[::-1] if by_columns else sides)
    return found[::-1] if by_columns else found


def spell(numbers: Iterable[int], joint: str = ",") -> str:
    """`16,56,56`, or with another joint `16x16`."""
    return joint.join(map(str, numbers))
