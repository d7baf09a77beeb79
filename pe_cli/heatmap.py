"""A table as a picture: which cells are shown, where the scale ends, the colours, and what a notebook shows of it."""

from __future__ import annotations

import struct
import zlib
from base64 import b64encode
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pe_cli.errors import counted, ordinal

# Ends and middle of a blue-white-orange scale, told apart in all common forms of colour blindness.
NEGATIVE, MIDDLE, POSITIVE = (33, 102, 172), (247, 247, 247), (217, 95, 2)
UNKNOWN = (128, 128, 128)  # NaN and infinities
OUTLYING = 3
ROUGH = 0.2  # of the range, from one shown row to the next


def as_plane(array: NDArray[Any]) -> NDArray[np.float64]:
    """Two dimensions to look at: the last two of a real array, the modulus of a complex one."""
    if not array.size:
        return np.zeros((0, 0))
    plane = array.reshape(1, -1) if array.ndim < 2 else array.reshape(-1, *array.shape[-2:])[0]
    real: NDArray[np.float64] = (np.abs(plane) if plane.dtype.kind == "c" else plane).astype(np.float64)
    return real


@dataclass(frozen=True)
class Excerpt:
    """The cells of a table that a picture shows.

    cells : (rows, columns) what is shown; row_step, column_step : every how many-th row and column that is, from the
    first on; rows, columns : how many there are; parted : even columns come first, then odd ones
    """

    cells: NDArray[np.float64]
    row_step: int
    column_step: int
    rows: int
    columns: int
    parted: bool = False

    def caption(self) -> str:
        """Which cells they are: `every 85th of 4096 rows down, 64 columns across`."""
        shown = len(self.cells)
        down = counted(self.rows, "row", "rows")
        if self.row_step > 1:
            down = f"every {ordinal(self.row_step)} of {self.rows} rows"
        elif shown < self.rows:
            down = f"the first {shown} of {self.rows} rows"
        across = counted(self.columns, "column", "columns")
        if self.column_step > 1:
            across = f"every {ordinal(self.column_step)} of {self.columns} columns"
        if self.parted:
            across += " (even ones, then odd ones)"
        return f"{down} down, {across} across"


def excerpt(plane: NDArray[np.float64], rows: int, columns: int) -> Excerpt:
    """At most (rows, columns) of the cells, in equal steps; see `choose_rows` for which rows."""
    step = stride(len(plane), rows)
    return choose_rows(plane[::step], plane[:rows], columns, row_step=step, rows=len(plane))


def choose_rows(
    spaced: NDArray[np.float64], first: NDArray[np.float64], columns: int, *, row_step: int, rows: int
) -> Excerpt:
    """Rows `row_step` apart, or the first rows one by one where rows that far apart say nothing of those between.

    Cells are picked rather than averaged, since the average of a fast cosine is nothing; and a fast cosine in large
    steps is noise. So the first rows are taken where many columns jump about in steps and do not row by row. Where
    columns alternate, such as sines and cosines in turn, they are shown apart.
    """
    count = spaced.shape[1]
    step = stride(count, columns)
    spaced, first = spaced[:, ::step], first[:, ::step]
    if row_step > 1 and count and aliased(spaced, first):
        spaced, row_step = first, 1
    parted = step == 1 and _alternates(spaced)
    if parted:
        spaced = np.concatenate([spaced[:, ::2], spaced[:, 1::2]], axis=1)
    return Excerpt(spaced, row_step, step, rows, count, parted)


def aliased(spaced: NDArray[np.float64], first: NDArray[np.float64]) -> bool:
    """Whether rows far apart say nothing of those between: many columns jump about in them, and not from row to row."""
    jumps, moves = _roughness(spaced), _roughness(first)
    return bool(((jumps > ROUGH) & (moves < 0.6 * jumps)).mean() > 0.25)


def stride(size: int, most: int) -> int:
    """The step in which at most `most` of `size` entries are taken."""
    return max(1, -(-size // most))


def _alternates(plane: NDArray[np.float64]) -> bool:
    """Whether neighbouring columns differ and those two apart go on from each other."""
    if plane.shape[1] < 8:
        return False
    across = np.ascontiguousarray(plane.T)
    near, apart = (
        _roughness(across).mean(),
        (_roughness(across[::2]).mean() + _roughness(across[1::2]).mean()) / 2,
    )
    return bool(near > ROUGH and apart < 0.6 * near)


def _roughness(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """(columns,) how far a column moves from row to row on average, in shares of the range of its values."""
    if len(rows) < 3:
        return np.zeros(rows.shape[1])
    known = np.nan_to_num(rows, nan=0.0, posinf=0.0, neginf=0.0)
    span = np.ptp(known, axis=0)
    moved = np.abs(np.diff(known, axis=0)).mean(axis=0)
    rough: NDArray[np.float64] = np.divide(moved, span, out=np.zeros_like(span), where=span > 0)
    return rough


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


MOST_ROWS, MOST_COLUMNS = 256, 512
LEAST_SIDE = 160  # a cell of a small table is drawn as a square of several pixels
LARGEST_CELL = 16


def tables_as_html(
    tables: Mapping[str, NDArray[Any]], facts: Mapping[str, Any], warnings: Iterable[str]
) -> str:
    """Each table with its name, type, shape and heat map, then what there is to say about them."""
    parts = [_table(name, array) for name, array in tables.items()]
    return f"<div>{''.join(parts)}{facts_as_html(facts)}{_warnings(warnings)}</div>"


def facts_as_html(facts: Mapping[str, Any]) -> str:
    """Two columns: what, and its value."""
    rows = "".join(
        f"<tr><td style='text-align:left'>{escape(name.replace('_', ' '))}</td>"
        f"<td style='text-align:left'>{escape(_shown(value))}</td></tr>"
        for name, value in facts.items()
    )
    return f"<table>{rows}</table>" if rows else ""


def _table(name: str, array: NDArray[Any]) -> str:
    shape = " × ".join(map(str, array.shape)) or "one number"
    head = f"<div><b>{escape(name)}</b> &nbsp;{array.dtype.name} &nbsp;{shape}</div>"
    plane = as_plane(array)
    if not plane.size:
        return head
    seen = excerpt(plane, MOST_ROWS, MOST_COLUMNS)
    shrunk = seen.cells
    low, high = limits(plane)
    side = min(LARGEST_CELL, max(1, LEAST_SIDE // max(shrunk.shape)))
    width, height = shrunk.shape[1] * side, shrunk.shape[0] * side
    picture = b64encode(png(colours(shrunk))).decode("ascii")
    which = f", the first of {array.size // plane.size}" if array.ndim > 2 and array.size > plane.size else ""
    return (
        f"{head}<img alt='heat map of {escape(name)}' width='{width}' height='{height}' "
        f"style='image-rendering:pixelated' src='data:image/png;base64,{picture}'>"
        f"<div><small>{seen.caption()}{which}; {low:.3g} (blue) to {high:.3g} (orange)</small></div>"
    )


def _warnings(warnings: Iterable[str]) -> str:
    return "".join(f"<div><b>warning:</b> {escape(warning)}</div>" for warning in warnings)


def _shown(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 200 else f"{text[:197]}…"


def png(pixels: NDArray[np.uint8]) -> bytes:
    """A PNG of (height, width, 3) pixels."""
    height, width, _ = pixels.shape
    lines = np.zeros((height, 1 + 3 * width), np.uint8)  # each begins with the number of its filter, none
    lines[:, 1:] = pixels.reshape(height, -1)
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunks = [(b"IHDR", header), (b"IDAT", zlib.compress(lines.tobytes())), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in chunks
    )
