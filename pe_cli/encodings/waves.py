"""Columns of sines and cosines, written into a table once: what every sinusoidal style is made of, on a line or a grid.

On a grid each axis has a share of the columns, and styles differ in which and how.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from pe_cli.encodings.float32 import Float32Waves, Recipe, float32_rotation_blocks, float32_waves
from pe_cli.errors import PeError, parameter
from pe_cli.numerics.dtypes import ElementType, numpy_dtype, round_into
from pe_cli.numerics.kernels import Frequencies, geometric, rotation_blocks, scaled
from pe_cli.positions import cells, spell
from pe_cli.tensors import Tensors

Order: TypeAlias = Literal["interleaved", "sin-cos", "cos-sin"]


@dataclass(frozen=True)
class Columns:
    """Which columns of a table hold the sines and which the cosines, in the order of the frequencies."""

    sin: slice
    cos: slice

    @classmethod
    def within(cls, start: int, stop: int, order: Order) -> Columns:
        """Columns start..stop-1; where they are odd in number, the first kind has one more."""
        if order == "interleaved":
            return cls(slice(start, stop, 2), slice(start + 1, stop, 2))
        middle = start + (stop - start + 1) // 2
        first, second = slice(start, middle), slice(middle, stop)
        return cls(first, second) if order == "sin-cos" else cls(second, first)

    @property
    def together(self) -> slice | None:
        """The columns as one run, where sine and cosine alternate."""
        if self.sin.step == 2 and self.cos.start == self.sin.start + 1:
            return slice(self.sin.start, self.sin.stop)
        return None


Waves: TypeAlias = Frequencies | Float32Waves


def frequencies(base: float, dim: int, shift: float, recipe: Recipe | None, scale: float = 1.0) -> Waves:
    """Exact frequencies where `recipe` is None, else those of `float32_waves`."""
    if recipe is not None:
        return float32_waves(recipe, base, dim, shift, scale)
    exact = geometric(base, dim, shift=shift)
    return exact if scale == 1 else scaled(exact, scale)


def write_waves(table: NDArray[Any], columns: Columns, positions: NDArray[Any], waves: Waves) -> None:
    """table[:, columns] = sin and cos of positions (n,) times frequencies (m,), rounded once to its dtype.

    Columns beyond the width of the table are cut off.
    """
    run = columns.together
    relative = table.dtype == np.float64
    # Nothing overflows here, so that numpy's types need none of the care of `round_into`.
    store = _assign if table.dtype.isbuiltin == 1 else round_into
    if run is not None:
        run = slice(*run.indices(table.shape[1]))
        for rows, z in _blocks(positions, waves, sin_first=True, relative=relative):
            store(table[rows, run], z.view(np.float64)[:, : run.stop - run.start])
        return
    for rows, z in _blocks(positions, waves, sin_first=False, relative=relative):
        for part, chosen in ((z.imag, columns.sin), (z.real, columns.cos)):
            out = table[rows, chosen]
            store(out, part[:, : out.shape[1]])


def _assign(out: NDArray[Any], values: NDArray[np.float64]) -> None:
    out[...] = values


def _blocks(
    positions: NDArray[Any], waves: Waves, *, sin_first: bool, relative: bool
) -> Iterator[tuple[slice, NDArray[np.complex128]]]:
    if isinstance(waves, Float32Waves):
        return float32_rotation_blocks(positions, waves, sin_first=sin_first)
    return rotation_blocks(positions, waves, sin_first=sin_first, relative=relative)


T, Y, X = -3, -2, -1  # axes of a grid, from the last


@dataclass(frozen=True)
class GridStyle:
    """One convention for a grid.

    `shares` gives (axis, eighths of the width) in the order of the columns; where it is empty, all axes have
    equal shares, rounded up to pairs, and the row is cut to the width. `recipe` is None where the authors
    compute in float64. `from_centres` takes half a cell off before coordinates are normalized.
    """

    order: Order
    shares: tuple[tuple[int, int], ...]
    multiple: int
    recipe: Recipe | None = None
    by_columns: bool = False
    sines_first: bool = False
    from_one: bool = False
    from_centres: bool = False
    scalable: bool = False
    base_size: int | None = None


ROW_COLUMN, COLUMN_ROW = ((Y, 4), (X, 4)), ((X, 4), (Y, 4))

GRID_STYLES = {
    "mae": GridStyle("sin-cos", COLUMN_ROW, 4, scalable=True),
    "dit": GridStyle("sin-cos", COLUMN_ROW, 4, scalable=True, base_size=16),
    "canonical": GridStyle("sin-cos", ROW_COLUMN, 4, scalable=True),
    "moco": GridStyle("sin-cos", COLUMN_ROW, 4, "power", by_columns=True),
    "timm": GridStyle("sin-cos", ROW_COLUMN, 4, "power", sines_first=True),
    "detr": GridStyle("interleaved", ROW_COLUMN, 4, "period", from_one=True),
    "deformable-detr": GridStyle("interleaved", ROW_COLUMN, 4, "period", from_one=True, from_centres=True),
    "tatp22": GridStyle("interleaved", (), 1, "power"),
    "cogvideox": GridStyle("sin-cos", ((T, 2), (X, 3), (Y, 3)), 16, scalable=True),
}

GRID_IMPLEMENTATIONS = {
    "dit": "sd3 pixart",
    "canonical": "rt-detr d-fine deim",
    "moco": "moco-v3 omdet-turbo",
    "detr": "conditional-detr maskformer mask2former table-transformer",
    "tatp22": "positional-encodings",
}

DIFFUSERS_SIDE = 16  # steps a side, where diffusers' extension of the MAE code says nothing else


def grid_table(
    rows: NDArray[Any],
    dim: int,
    name: str,
    base: float,
    grid: Sequence[int] | None,
    *,
    normalize: bool,
    base_size: int | None,
    interpolation_scale: Sequence[float] | None,
    float32: bool,
    dtype: ElementType,
) -> Tensors:
    """The rows (n, dim) of a grid's cells, numbered in the order of the style."""
    style = GRID_STYLES[name]
    sides = _sides(name, style, grid)
    _refuse(name, style, dim, normalize, base_size is not None or interpolation_scale is not None, float32)
    warnings: tuple[str, ...] = ()
    if base_size is None:
        base_size = style.base_size
        if name == "mae" and len(set(sides)) > 1 and interpolation_scale is None:
            base_size = DIFFUSERS_SIDE
            warnings = (
                f"MAE's own code has square grids only; a grid of {spell(sides, 'x')} is made as diffusers "
                f"does, {DIFFUSERS_SIDE} steps a side ({parameter('interpolation_scale')} 1 for steps of 1)",
            )
    where_of = cells(rows, sides, by_columns=style.by_columns)
    per_cell = _steps(sides, base_size, interpolation_scale)
    out = np.empty((len(rows), dim), numpy_dtype(dtype))
    for axis, columns, width in _parts(style, dim, len(sides)):
        index, back = np.unique(where_of[axis], return_inverse=True)
        where = _coordinates(index, style, sides[axis], per_cell[axis], normalize)
        lines = np.empty((len(index), dim), out.dtype)
        write_waves(lines, columns, where, frequencies(base, width, 0, style.recipe if float32 else None))
        for chosen in (columns.sin, columns.cos):
            out[:, chosen] = lines[back, chosen]
    return Tensors({"sinusoidal": out}, warnings=warnings)


def _refuse(name: str, style: GridStyle, dim: int, normalize: bool, scaled: bool, float32: bool) -> None:
    """Errors for options that the style has no use for."""
    if dim % style.multiple:
        raise PeError(
            f"{parameter('dim')} {dim}: {parameter('style')} {name} needs a multiple of {style.multiple}"
        )
    if float32 and style.recipe is None:
        raise PeError(
            f"{parameter('style')} {name} is computed in float64 by its authors: leave {parameter('compute')} at exact"
        )
    if normalize and not style.from_one:
        raise PeError(f"{parameter('normalize')} is for styles detr and deformable-detr, not for {name}")
    if scaled and not style.scalable:
        known = ", ".join(n for n, s in GRID_STYLES.items() if s.scalable)
        both = f"{parameter('base_size')} and {parameter('interpolation_scale')}"
        raise PeError(f"{both} are for styles {known}, not for {name}")


def _coordinates(
    index: NDArray[np.int64], style: GridStyle, side: int, step: tuple[int, float], normalize: bool
) -> NDArray[Any]:
    """Where the cells `index` of an axis lie."""
    if normalize:
        first = 0.5 if style.from_centres else 1
        return (index + first) / (side + 1e-6) * (2 * math.pi)
    if style.from_one:
        return index + 1
    steps, cells = step
    return index if steps == cells else index * steps / cells


def _sides(name: str, style: GridStyle, grid: Sequence[int] | None) -> tuple[int, ...]:
    axes = len(style.shares)
    if grid is None:
        raise PeError(
            f"{parameter('style')} {name} is for a grid: give its sides with {parameter('grid')}, "
            f"{'time, height and width' if axes == 3 else 'height and width'}"
        )
    if axes and len(grid) != axes:
        raise PeError(f"{parameter('grid')} {spell(grid, 'x')}: style {name} is for {axes} axes")
    if any(side < 1 for side in grid):
        raise PeError(f"{parameter('grid')} {spell(grid, 'x')}: a side is not positive")
    return tuple(grid)


def _steps(
    sides: tuple[int, ...], base_size: int | None, scale: Sequence[float] | None
) -> list[tuple[int, float]]:
    """Distance between neighbouring cells as a fraction, for each axis."""
    if base_size is not None and base_size < 1:
        raise PeError(f"{parameter('base_size')} {base_size} is not positive")
    scales = tuple(scale or (1.0,))
    if len(scales) == 1:
        scales *= len(sides)
    if len(scales) != len(sides):
        raise PeError(f"{parameter('interpolation_scale')} has {len(scales)} numbers for {len(sides)} axes")
    if not all(s > 0 for s in scales):
        shown = ", ".join(f"{s:g}" for s in scales)
        raise PeError(f"{parameter('interpolation_scale')} {shown} is not positive")
    return [(base_size, n * s) if base_size else (1, s) for n, s in zip(sides, scales, strict=True)]


def _parts(style: GridStyle, dim: int, axes: int) -> Iterator[tuple[int, Columns, int]]:
    """The axes with their columns and the number of columns by which their frequencies are spaced."""
    if not style.shares:
        width = 2 * -(-dim // (2 * axes))
        for axis in range(axes):
            start = min(axis * width, dim)
            yield axis, Columns.within(start, min(start + width, dim), style.order), width
        return
    start = 0
    for axis, eighths in style.shares:
        width = dim * eighths // 8
        if style.sines_first:
            half = width // 2
            sin = start // 2
            yield axis, Columns(slice(sin, sin + half), slice(dim // 2 + sin, dim // 2 + sin + half)), width
        else:
            yield axis, Columns.within(start, start + width, style.order), width
        start += width
