"""Sinusoidal tables that a checkpoint stores as weights: recognised by value, and computed anew instead of resampled."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pe_cli.dtypes import round_to
from pe_cli.errors import PeError
from pe_cli.surgery.layout import Layout

STYLES_1D = ("t2t", "paper", "paper-cat", "t2t-cossin")  # fairseq is t2t behind a row of padding
STYLES_2D = ("mae", "canonical", "moco", "timm", "tatp22", "detr", "cogvideox")
PROBES = 64
# Largest difference from the formula that tables of a type show: their rounding, and float32 angles.
TOLERANCE = {"float64": 1e-6, "float32": 2e-4, "float16": 1e-3, "bfloat16": 5e-3}


@dataclass(frozen=True)
class Recipe:
    """A formula that gives the body of a table: `name`, and how far the positions begin from 0."""

    name: str
    style: str
    width: int
    start: int = 0

    def make(self, sizes: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
        """Rows for a body of `sizes`: (rows, d) in `dtype`, rounded once."""
        positions = np.arange(prod(sizes)) + self.start
        return round_to(_table(self.style, positions, self.width, sizes), dtype)


def recognise(rows: NDArray[Any], layout: Layout) -> Recipe | None:
    """The formula that the body of `rows` (n, d) follows, or None."""
    body = rows[layout.prefix : layout.prefix + layout.usable]
    limit = TOLERANCE.get(body.dtype.name, 0.0) * max(
        1.0, len(body) / 2048
    )  # float32 angles err with distance
    if not limit or len(body) < 4 or body.shape[1] < 4 or body.shape[1] % 2:
        return None
    chosen = np.unique(np.linspace(0, len(body) - 1, PROBES).astype(int))
    values = body[chosen].astype(np.float64)
    pairs = np.square(values).sum(axis=1) / (body.shape[1] / 2)  # sin² + cos² of each pair
    if np.abs(pairs - 1).max() > 0.01:
        return None
    for recipe in _recipes(body.shape[1], layout):
        try:
            made = _table(recipe.style, chosen + recipe.start, recipe.width, layout.old)
        except PeError:
            continue
        if made.shape == values.shape and np.abs(made - values).max() < limit:
            return recipe
    return None


def _recipes(width: int, layout: Layout) -> Iterator[Recipe]:
    if len(layout.old) == 2:
        yield from (Recipe(style, style, width) for style in STYLES_2D)
        return
    for start in dict.fromkeys((layout.prefix, 0, 1, 2)):
        for style in STYLES_1D:
            yield Recipe(f"{style}, from position {start}" if start else style, style, width, start)


def _table(
    style: str, positions: NDArray[np.int64], width: int, sizes: tuple[int, ...]
) -> NDArray[np.float64]:
    from pe_cli.encodings.sinusoidal import sinusoidal

    more: dict[str, Any] = {"grid": sizes} if style in STYLES_2D else {}
    made = np.asarray(sinusoidal(positions, dim=width, style=style, dtype="float64", **more))
    values: NDArray[np.float64] = made.astype(np.float64)
    return values
