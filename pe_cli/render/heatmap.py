"""A heat map in a terminal: two rows of cells in a line of half blocks, or shades of text without colour."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from rich.text import Text

# Ends and middle of a blue-white-orange scale, told apart in all common forms of colour blindness.
NEGATIVE, MIDDLE, POSITIVE = (33, 102, 172), (247, 247, 247), (217, 95, 2)
OUTLYING = 3
BLOCKS = " ░▒▓█"


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


def colour_lines(plane: NDArray[np.float64]) -> list[Text]:
    """Lines of half blocks, two rows of cells in each."""
    from rich.style import Style
    from rich.text import Text

    low, high = limits(plane)
    lines = []
    for top in range(0, len(plane), 2):
        line = Text()
        lower = plane[top + 1] if top + 1 < len(plane) else None
        for column in range(plane.shape[1]):
            upper_colour = _rgb(plane[top, column], low, high)
            lower_colour = _rgb(lower[column], low, high) if lower is not None else None
            line.append("▀", Style(color=upper_colour, bgcolor=lower_colour))
        lines.append(line)
    return lines


def text_lines(plane: NDArray[np.float64], *, unicode: bool) -> list[str]:
    """Lines of shades: from blank at zero to full; where both signs occur, minus has letters of its own."""
    low, high = limits(plane)
    span = max(-low, high) or 1.0
    shades = BLOCKS if unicode else " .+#@"
    minus = "·-=≡≣" if unicode else "_-=%&"
    lines = []
    for row in plane:
        cells = []
        for value in row:
            if not np.isfinite(value):
                cells.append("?" if np.isnan(value) else "!")
                continue
            value = min(max(value, low), high)
            scaled = (value - low) / (high - low) if low >= 0 and high > low else abs(value) / span
            level = min(4, int(scaled * 4.999))
            cells.append(minus[level] if value < 0 < high and level else shades[level])
        lines.append("".join(cells))
    return lines


def _rgb(value: float, low: float, high: float) -> str:
    if not np.isfinite(value):
        return "rgb(128,128,128)"
    value = min(max(value, low), high)
    if low < 0 < high:
        share = value / high
        end = POSITIVE if share > 0 else NEGATIVE
        share = abs(share)
    else:
        share = (value - low) / (high - low) if high > low else 0.0
        end = POSITIVE if high > 0 else NEGATIVE
        share = share if high > 0 else 1 - share
    mixed = (round(m + (e - m) * share) for m, e in zip(MIDDLE, end, strict=True))
    return "rgb({},{},{})".format(*mixed)
