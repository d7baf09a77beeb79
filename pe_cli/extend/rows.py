"""The rows of a table: where its positions lie in a tensor, rows made by weights from old ones, and their measures."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import isqrt, prod
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from pe_cli.errors import PeError, counted, parameter
from pe_cli.extend.resample import FRESH, Taps, row_sources
from pe_cli.numerics.dtypes import round_into, round_to
from pe_cli.numerics.statistics import evenly, median
from pe_cli.position_names import GRID_PREFIXES, squares

MOST_PREFIX = 64
BEIT_CLASS_ROWS = 3  # token to class, class to token, class to class
LAGS = (1, 2, 4)
BLOCK = 1 << 16  # elements
RANK_ROWS = 256
LAG_ROWS = 1024  # rows that stand for all at lags over 1
NORM_BLOCK = 1 << 15  # elements: two blocks stay in cache
MOST_AT_AN_END = 4
BLOCK_BYTES = 1 << 18


@dataclass(frozen=True)
class PositionAxes:
    """The positions of a table: `old` sizes on tensor axes `axes`.

    One axis holds all sizes flattened, between `prefix` and `suffix` special rows; several axes hold one size each.
    Where `unfolded` is given, the last axis of the tensor is several in one, and `axes` count those of this shape.
    """

    axes: tuple[int, ...]
    old: tuple[int, ...]
    prefix: int = 0
    suffix: int = 0
    unfolded: tuple[int, ...] = ()

    @property
    def usable(self) -> int:
        return prod(self.old)

    @property
    def rows(self) -> int:
        return self.prefix + self.usable + self.suffix

    def shape(self, shape: Sequence[int], new: Sequence[int]) -> tuple[int, ...]:
        """The shape of a tensor of `shape` when its sizes have become `new`."""
        changed = self._resized(shape, new)
        fixed = len(shape) - 1
        return (*changed[:fixed], prod(changed[fixed:])) if self.unfolded else changed

    def _resized(self, shape: Sequence[int], new: Sequence[int]) -> tuple[int, ...]:
        changed = list(self.unfolded or shape)
        if len(self.axes) == 1:
            changed[self.axes[0]] = self.prefix + prod(new) + self.suffix
        else:
            for axis, size in zip(self.axes, new, strict=True):
                changed[axis] = size
        return tuple(changed)

    def rows_of(self, array: NDArray[Any]) -> NDArray[Any]:
        """All rows, special ones too: (rows, d), in memory of their own where they do not lie so."""
        array = array.reshape(self.unfolded or array.shape)
        moved = np.moveaxis(array, self.axes, range(len(self.axes)))
        sizes = [array.shape[axis] for axis in self.axes]
        return np.ascontiguousarray(moved).reshape(prod(sizes), -1)

    def restore(self, rows: NDArray[Any], shape: Sequence[int], new: Sequence[int]) -> NDArray[Any]:
        """The tensor of `shape` from its `rows`, of which the positions are now `new`: the inverse of `rows_of`."""
        resized = self._resized(shape, new)
        front = [resized[axis] for axis in self.axes]
        rest = [size for axis, size in enumerate(resized) if axis not in self.axes]
        moved = np.moveaxis(rows.reshape(*front, *rest), range(len(self.axes)), self.axes)
        return np.ascontiguousarray(moved).reshape(tuple(shape))


def sequence_axis(shape: Sequence[int]) -> int:
    """The axis of rows in a one-dimensional table: (N,), (N, D), (1, N, D), (2, P, D), (L, 1, N, D)."""
    if len(shape) <= 2:
        return 0
    if len(shape) == 3:
        return 1 if shape[0] < shape[1] else 0
    return len(shape) - 2


def sequence(shape: Sequence[int], prefix: int, suffix: int = 0) -> PositionAxes:
    """A table of rows one after the other, the first `prefix` and last `suffix` of them special."""
    axis = sequence_axis(shape)
    body = shape[axis] - prefix - suffix
    if body < 1:
        raise PeError(
            f"{shape[axis]} rows are not more than {prefix + suffix} special ones; check {parameter('offset')}"
        )
    return PositionAxes((axis,), (body,), prefix, suffix)


def grid(
    shape: Sequence[int],
    name: str,
    *,
    old: tuple[int, ...] | None,
    count: int,
    prefix: int | None,
    suffix: int | None,
    d: int | None = None,
    axis: int | None = None,
) -> PositionAxes:
    """A table of a grid of `count` axes; `old` is its present size where it is known, `d` the width of a row.

    `axis` is the one that holds all positions, where the shape would be read otherwise (blocks of Nest).

    Errors: rows that are not a square behind 0, 1 or 2 special ones and no `old`, or do not agree with it.
    """
    special = bool(prefix or suffix)
    if (
        axis is None
        and len(shape) == count + 2
        and shape[0] == 1
        and shape[2] > 1
        and not (special and shape[1] == 1)
    ):
        if special:
            raise PeError(
                f"{name} of shape {list(shape)} has an axis for each side, and no room for special rows; "
                f"leave out {parameter('prefix_rows')}, {parameter('offset')} and {parameter('suffix_rows')}"
            )
        axes = _spread_axes(shape, name, old, count, d)
        sizes = tuple(shape[axis] for axis in axes)
        if old is not None and sizes != old:
            raise PeError(f"{name} of shape {list(shape)} holds a grid of {times(sizes)}, not {times(old)}")
        return PositionAxes(axes, sizes)
    if (
        axis is None
        and len(shape) == count + 1
        and shape[0] > 1
        and not special
        and (shape[:count] == old or len(set(shape[:count])) == 1)
    ):
        return PositionAxes(tuple(range(count)), tuple(shape[:count]))
    axis = sequence_axis(shape) if axis is None else axis
    rows = shape[axis]
    if old is None:
        prefix, side = _square(rows - (suffix or 0), name, prefix, count)
        return PositionAxes((axis,), (side,) * count, prefix, suffix or 0)
    suffix = suffix or 0
    if prefix is None:
        prefix = rows - prod(old) - suffix
    if not 0 <= prefix <= MOST_PREFIX or prefix + prod(old) + suffix != rows:
        raise PeError(
            f"{name} has {rows} rows, which are not {prefix if prefix >= 0 else 0} special ones in front, "
            f"{times(old)} = {prod(old)} and {suffix} behind; check {parameter('from_grid')}, {parameter('prefix_rows')} and {parameter('suffix_rows')}"
        )
    return PositionAxes((axis,), old, prefix, suffix)


def window(shape: Sequence[int], name: str, old: tuple[int, ...] | None) -> PositionAxes:
    """Bias by offset: ((2h-1)(2w-1) [+ 3], heads), (heads, 2h-1, 2w-1), or one axis of 2w-1; `old` is (h, w)."""
    if len(shape) == 3:
        sizes: tuple[int, ...] = (shape[1], shape[2])
        if any(size % 2 == 0 for size in sizes) or (old is not None and sizes != spans(old)):
            raise PeError(
                f"{name} of shape {list(shape)} is no window of {times(old) if old else 'odd sides'}"
            )
        return PositionAxes((1, 2), sizes)
    rows = shape[0]
    if old is not None:
        for suffix in (0, BEIT_CLASS_ROWS):
            if rows == prod(spans(old)) + suffix:
                return PositionAxes((0,), spans(old), 0, suffix)
        raise PeError(f"{name} has {rows} rows; a window of {times(old)} has {prod(spans(old))} (or 3 more)")
    for suffix in (0, BEIT_CLASS_ROWS):
        side = isqrt(max(rows - suffix, 0))
        if side * side == rows - suffix and side % 2 == 1:
            return PositionAxes((0,), (side, side), 0, suffix)
    raise PeError(f"{name} has {rows} rows, no square window has so many; say {parameter('from_window')} HxW")


def distances(shape: Sequence[int], name: str, old: tuple[int, ...] | None) -> PositionAxes:
    """Bias by distance (heads, h w) of LeViT and kin: a value for each distance in rows and columns of a grid `old`."""
    side = isqrt(shape[1])
    sizes = (side, side) if old is None or prod(old) != shape[1] else old
    if prod(sizes) != shape[1]:
        raise PeError(
            f"{name} of shape {list(shape)} is not for a square grid; say {parameter('from_grid')} HxW"
        )
    return PositionAxes((1,), sizes)


def tiles(shape: Sequence[int], name: str, rows: int, width: int, where: PositionAxes) -> PositionAxes:
    """Rows of every tile in one axis (ratios, tiles x rows x width), as in Llama 3.2 Vision beside its grid at `where`."""
    count, left = divmod(shape[1], rows * width)
    if left or not count:
        raise PeError(
            f"{name} of shape {list(shape)} does not hold tiles of {rows} rows of {width}, as the table beside it has"
        )
    return PositionAxes((2,), where.old, where.prefix, where.suffix, (shape[0], count, rows, width))


def spans(sizes: Sequence[int]) -> tuple[int, ...]:
    """How many offsets a window of these sides has on each axis: 2 w - 1."""
    return tuple(2 * size - 1 for size in sizes)


def in_step(
    new: tuple[int, ...], old: tuple[int, ...], largest: tuple[int, ...], *, halving: bool
) -> tuple[int, ...]:
    """What grid `old` becomes where `largest`, of the first stage of the same pyramid, becomes `new`.

    Stages divide the image and round down (PVT); with `halving` they come of convolutions that round up (LeViT).
    """
    step = _halved if halving else _divided
    return tuple(step(n, o, most) for n, o, most in zip(new, old, largest, strict=True))


def _divided(new: int, old: int, largest: int) -> int:
    return max(1, new * old // largest)


def _halved(new: int, old: int, largest: int) -> int:
    while largest > old:
        largest, new = (largest + 1) // 2, (new + 1) // 2
    return new


def times(sizes: Sequence[int]) -> str:
    """`24x24`"""
    return "x".join(map(str, sizes))


def _square(rows: int, name: str, prefix: int | None, count: int) -> tuple[int, int]:
    """How many special rows stand before a square (cube), and its side."""
    tried = GRID_PREFIXES if prefix is None else (prefix,)
    found = next(squares(rows, count, tried), None)
    if found is not None:
        return found
    words = "0, 1, 2 or 5 special rows" if prefix is None else counted(prefix, "special row", "special rows")
    raise PeError(
        f"{name} has {rows} rows: not a square grid behind {words}; say {parameter('from_grid')} HxW (and {parameter('prefix_rows')})"
    )


def _spread_axes(
    shape: Sequence[int], name: str, old: tuple[int, ...] | None, count: int, d: int | None
) -> tuple[int, ...]:
    """Axes of (1, H, W, D) or (1, D, H, W): by the size given, by the width, by the equal pair, by the longest."""
    last, first = tuple(range(1, count + 1)), tuple(range(2, count + 2))
    options = {last: shape[count + 1], first: shape[1]}
    for known in (
        [axes for axes in options if old is not None and tuple(shape[axis] for axis in axes) == old],
        [axes for axes, width in options.items() if width == d],
        [axes for axes in options if len({shape[axis] for axis in axes}) == 1],
    ):
        if len(known) == 1:
            return known[0]
    if shape[1] != shape[count + 1]:
        return last if shape[count + 1] > shape[1] else first
    raise PeError(
        f"{name} of shape {list(shape)} can be read as H, W, D or D, H, W; say {parameter('from_grid')} HxW"
    )


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
    step = max(1, NORM_BLOCK // max(1, rows.shape[1]))
    for start in range(0, len(rows), step):
        block = rows[start : start + step].astype(wide)
        squares[start : start + step] = np.vecdot(block, block).real
    return np.sqrt(squares)


def largest_part(rows: NDArray[Any]) -> float:
    """The largest absolute value in (n, d), of complex ones of their real and imaginary parts."""
    parts = np.stack([rows.real, rows.imag], axis=2) if rows.dtype.kind == "c" else rows
    step = max(1, NORM_BLOCK // max(1, rows.shape[1]))
    blocks = (parts[start : start + step] for start in range(0, len(parts), step))
    return max((max(float(block.max()), -float(block.min())) for block in blocks if block.size), default=0.0)


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


@dataclass(frozen=True)
class Geometry:
    """Numbers of one table (rows, d), special rows left out.

    norm    median, least and greatest Euclidean norm of a row
    cosine  median cosine between rows 1, 2 and 4 positions apart (along the last axis of a grid); beyond 1 of a sample
    seam    the least cosine of neighbours, and the row number of the first of the two
    rank    effective rank: how many directions the rows spread over, of at most 256 evenly spaced rows
    """

    norm: tuple[float, float, float]
    cosine: dict[int, float]
    seam: tuple[float, int] | None
    rank: float


def geometry(body: NDArray[Any], size: NDArray[np.float64], line: int, first: int = 0) -> Geometry:
    """Measure rows `body` (n, d) of norms `size` (n,), of which `line` in a row are neighbours (all of them in a sequence).

    `first` is the number of the first row in its table, for the place of the seam.
    """
    middle = (median(size), float(size.min()), float(size.max()))
    cosine, seam = {}, None
    for lag in LAGS:
        if line <= lag:
            continue
        parts = list(_cosines(body, size, lag, line))
        values = np.concatenate([part for _, part in parts])
        values = values[np.isfinite(values)]
        if not len(values):
            continue
        cosine[lag] = median(values)
        if lag == 1:
            least = min(parts, key=lambda part: float(np.nanmin(part[1], initial=2)))
            place = int(np.nanargmin(np.where(np.isnan(least[1]), 2, least[1])))
            seam = (float(least[1][place]), first + int(least[0][place]))
    return Geometry(middle, cosine, seam, effective_rank(body))


def _cosines(
    body: NDArray[Any], size: NDArray[np.float64], lag: int, line: int
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.float64]]]:
    """Row numbers and cosine with the row `lag` further in the same line, in blocks; NaN beside zero rows."""
    wide = body.dtype if body.dtype.name in ("float32", "float64", "complex64") else np.dtype(np.float32)
    step = max(1, BLOCK // max(1, body.shape[1]))
    count = len(body) - lag
    stride = step if lag == 1 else step * max(1, count // LAG_ROWS)
    for start in range(0, count, stride):
        stop = min(start + step, count)
        block = body[start : stop + lag].astype(wide, copy=False)
        dot = np.vecdot(block[:-lag], block[lag:]).real.astype(np.float64)
        with np.errstate(divide="ignore", invalid="ignore"):
            cosine = dot / (size[start:stop] * size[start + lag : stop + lag])
        rows = np.arange(start, stop)
        together = rows % line < line - lag
        if together.any():
            yield rows[together], cosine[together]


def effective_rank(body: NDArray[Any]) -> float:
    """Participation ratio (sum l)^2 / sum l^2 of the eigenvalues l of the Gram matrix of rows (n, d).

    Both sums are traces, so that nothing is decomposed. Evenly spaced rows, at most `RANK_ROWS`, stand for all.
    """
    sample = body[evenly(len(body), RANK_ROWS)].astype(
        np.complex128 if body.dtype.kind == "c" else np.float64
    )
    gram = sample @ sample.conj().T if len(sample) <= sample.shape[1] else sample.conj().T @ sample
    squares = float(np.square(np.abs(gram)).sum())
    return float(np.trace(gram).real) ** 2 / squares if squares else 0.0


# Makes the rows with these numbers: (n, d).
Fill: TypeAlias = Callable[[NDArray[np.int64]], NDArray[np.float64]]


def filler(method: str, table: NDArray[Any], seed: int) -> Fill:
    """What makes rows that have no source: zeros, or normal values with each column's mean and spread.

    `table` (rows, d) is what mean and spread are taken from; row p depends on the seed and on p alone.
    """
    if method != "random":
        return lambda rows: np.zeros((len(rows), table.shape[1]))
    mean = table.mean(axis=0, dtype=np.float64)
    squares = np.zeros(table.shape[1])
    for rows in _blocks(np.arange(len(table)), table.shape[1]):
        squares += np.square(np.abs(table[rows] - mean)).sum(axis=0)
    spread = np.sqrt(squares / len(table))
    from pe_cli.numerics.randomness import normal_rows

    return lambda rows: mean + spread * normal_rows(rows, table.shape[1], seed)


def resample(
    table: NDArray[Any],
    taps: Sequence[Taps],
    fill: Fill | None = None,
    *,
    out: NDArray[Any] | None = None,
) -> NDArray[Any]:
    """`table` (*old sizes, …) resampled along its first axes, one `Taps` each: (*new sizes, …), same dtype.

    Computed in float64 and rounded once; rows that are copies are copied as they are. `out` (new rows, d) in C order
    receives the rows.
    """
    count = len(taps)
    old = tuple(axis.old for axis in taps)
    if table.shape[:count] != old:
        raise PeError(f"a table of shape {table.shape} cannot be resampled from {old}")
    flat = np.ascontiguousarray(table).reshape(prod(old), -1)
    sizes = tuple(axis.new for axis in taps)
    result = np.empty((prod(sizes), flat.shape[1]), dtype=table.dtype) if out is None else out
    source, fresh = row_sources(taps)
    mixed = np.flatnonzero((source == FRESH) & ~fresh)
    if len(mixed):
        blocks = _along_one(flat, taps[0], mixed) if count == 1 else _along_all(flat, taps, mixed)
        for rows, exact in blocks:
            if rows[-1] - rows[0] == len(rows) - 1:  # as mostly, and then no copy is made
                round_into(result[rows[0] : rows[-1] + 1], exact)
            else:
                result[rows] = round_to(exact, table.dtype)
    for rows in _blocks(np.flatnonzero(source != FRESH), flat.shape[1]):
        result[rows] = flat[source[rows]]
    if fresh.any():
        fill = fill or filler("zeros", flat, 0)
        for rows in _blocks(np.flatnonzero(fresh), flat.shape[1]):
            result[rows] = round_to(fill(rows), table.dtype)
    return result.reshape(*sizes, *table.shape[count:])


Mixed: TypeAlias = Iterator[tuple[NDArray[np.int64], NDArray[Any]]]


def _along_one(flat: NDArray[Any], axis: Taps, mixed: NDArray[np.int64]) -> Mixed:
    """Rows `mixed` a block at a time: temporaries stay small beside a table of any size."""
    wide = _wide(flat.dtype)
    blocks = _blocks(mixed, flat.shape[1])
    most = max(map(len, blocks))
    total = np.empty((most, flat.shape[1]), dtype=wide)
    part = np.empty_like(total)
    for rows in blocks:
        count = len(rows)
        for tap in range(axis.index.shape[1]):
            target = part[:count] if tap else total[:count]
            target[...] = flat[axis.index[rows, tap]]
            target *= axis.weight[rows, tap, None]
            if tap:
                total[:count] += target
        yield rows, total[:count]


def _along_all(flat: NDArray[Any], taps: Sequence[Taps], mixed: NDArray[np.int64]) -> Mixed:
    """One axis after the other; grids are small beside the checkpoints they are in."""
    old = tuple(axis.old for axis in taps)
    values = flat.reshape(*old, -1).astype(_wide(flat.dtype))
    for number, axis in enumerate(taps):
        moved = np.moveaxis(values, number, 0)
        made = np.tensordot(axis.matrix(), moved.reshape(axis.old, -1), axes=1)
        values = np.moveaxis(made.reshape(axis.new, *moved.shape[1:]), 0, number)
    yield mixed, np.ascontiguousarray(values).reshape(-1, flat.shape[1])[mixed]


def _wide(dtype: np.dtype[Any]) -> np.dtype[Any]:
    return np.dtype(np.complex128 if dtype.kind == "c" else np.float64)


def _blocks(rows: NDArray[np.int64], width: int) -> list[NDArray[np.int64]]:
    step = max(1, BLOCK_BYTES // (8 * max(width, 1)))
    edges = [*range(0, len(rows), step), len(rows)]
    return [rows[start:stop] for start, stop in pairwise(edges) if stop > start]


def require_axes(called: str, what: str, where: PositionAxes, new: Sequence[int]) -> None:
    """The size asked for has as many sides as the table."""
    if len(new) != len(where.old):
        raise PeError(f"{called} is {what}, not of {len(new)} axes as {times(new)}")
