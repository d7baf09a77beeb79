"""Where positions lie in a tensor: which axes, behind how many special rows, on what grid."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isqrt, prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pe_cli.errors import PeError, counted

MOST_PREFIX = 64
BEIT_CLASS_ROWS = 3  # token to class, class to token, class to class


@dataclass(frozen=True)
class Layout:
    """The positions of a table: `old` sizes on tensor axes `axes`.

    One axis holds all sizes flattened, between `prefix` and `suffix` special rows; several axes hold one size each.
    """

    axes: tuple[int, ...]
    old: tuple[int, ...]
    prefix: int = 0
    suffix: int = 0

    @property
    def usable(self) -> int:
        return prod(self.old)

    @property
    def rows(self) -> int:
        return self.prefix + self.usable + self.suffix

    def shape(self, shape: Sequence[int], new: Sequence[int]) -> tuple[int, ...]:
        """The shape of a tensor of `shape` when its sizes have become `new`."""
        changed = list(shape)
        if len(self.axes) == 1:
            changed[self.axes[0]] = self.prefix + prod(new) + self.suffix
        else:
            for axis, size in zip(self.axes, new, strict=True):
                changed[axis] = size
        return tuple(changed)

    def rows_of(self, array: NDArray[Any]) -> NDArray[Any]:
        """All rows, special ones too: (rows, d), in memory of their own where they do not lie so."""
        moved = np.moveaxis(array, self.axes, range(len(self.axes)))
        sizes = [array.shape[axis] for axis in self.axes]
        return np.ascontiguousarray(moved).reshape(prod(sizes), -1)

    def restore(self, rows: NDArray[Any], shape: Sequence[int]) -> NDArray[Any]:
        """The tensor of `shape` from its `rows`: the inverse of `rows_of`."""
        front = [shape[axis] for axis in self.axes]
        rest = [size for axis, size in enumerate(shape) if axis not in self.axes]
        moved = np.moveaxis(rows.reshape(*front, *rest), range(len(self.axes)), self.axes)
        return np.ascontiguousarray(moved)


def sequence_axis(shape: Sequence[int]) -> int:
    """The axis of rows in a one-dimensional table: (N,), (N, D), (1, N, D), (2, P, D), (L, 1, N, D)."""
    if len(shape) <= 2:
        return 0
    if len(shape) == 3:
        return 1 if shape[0] < shape[1] else 0
    return len(shape) - 2


def sequence(shape: Sequence[int], prefix: int, suffix: int = 0) -> Layout:
    """A table of rows one after the other, the first `prefix` and last `suffix` of them special."""
    axis = sequence_axis(shape)
    body = shape[axis] - prefix - suffix
    if body < 1:
        raise PeError(f"{shape[axis]} rows are not more than {prefix + suffix} special ones; check --offset")
    return Layout((axis,), (body,), prefix, suffix)


def grid(
    shape: Sequence[int],
    name: str,
    *,
    old: tuple[int, ...] | None,
    count: int,
    prefix: int | None,
    suffix: int | None,
    d: int | None = None,
) -> Layout:
    """A table of a grid of `count` axes; `old` is its present size where it is known, `d` the width of a row.

    Errors: rows that are not a square behind 0, 1 or 2 special ones and no `old`, or do not agree with it.
    """
    special = bool(prefix or suffix)
    if len(shape) == count + 2 and shape[0] == 1 and shape[2] > 1 and not (special and shape[1] == 1):
        if special:
            raise PeError(
                f"{name} of shape {list(shape)} has an axis for each side, and no room for special rows; "
                "leave out --prefix-rows, --offset and --suffix-rows"
            )
        axes = _spread_axes(shape, name, old, count, d)
        sizes = tuple(shape[axis] for axis in axes)
        if old is not None and sizes != old:
            raise PeError(f"{name} of shape {list(shape)} holds a grid of {times(sizes)}, not {times(old)}")
        return Layout(axes, sizes)
    if len(shape) == count + 1 and shape[0] > 1 and (shape[:count] == old or len(set(shape[:count])) == 1):
        return Layout(tuple(range(count)), tuple(shape[:count]))
    axis = sequence_axis(shape)
    rows = shape[axis]
    if old is None:
        prefix, side = _square(rows - (suffix or 0), name, prefix, count)
        return Layout((axis,), (side,) * count, prefix, suffix or 0)
    suffix = suffix or 0
    if prefix is None:
        prefix = rows - prod(old) - suffix
    if not 0 <= prefix <= MOST_PREFIX or prefix + prod(old) + suffix != rows:
        raise PeError(
            f"{name} has {rows} rows, which are not {prefix if prefix >= 0 else 0} special ones in front, "
            f"{times(old)} = {prod(old)} and {suffix} behind; check --from-grid, --prefix-rows and --suffix-rows"
        )
    return Layout((axis,), old, prefix, suffix)


def window(shape: Sequence[int], name: str, old: tuple[int, ...] | None) -> Layout:
    """Bias by offset: ((2h-1)(2w-1) [+ 3], heads), (heads, 2h-1, 2w-1), or one axis of 2w-1; `old` is (h, w)."""
    if len(shape) == 3:
        sizes: tuple[int, ...] = (shape[1], shape[2])
        if any(size % 2 == 0 for size in sizes) or (old is not None and sizes != spans(old)):
            raise PeError(
                f"{name} of shape {list(shape)} is no window of {times(old) if old else 'odd sides'}"
            )
        return Layout((1, 2), sizes)
    rows = shape[0]
    if old is not None:
        for suffix in (0, BEIT_CLASS_ROWS):
            if rows == prod(spans(old)) + suffix:
                return Layout((0,), spans(old), 0, suffix)
        raise PeError(f"{name} has {rows} rows; a window of {times(old)} has {prod(spans(old))} (or 3 more)")
    for suffix in (0, BEIT_CLASS_ROWS):
        side = isqrt(max(rows - suffix, 0))
        if side * side == rows - suffix and side % 2 == 1:
            return Layout((0,), (side, side), 0, suffix)
    raise PeError(f"{name} has {rows} rows, no square window has so many; say --from-window HxW")


def spans(sizes: Sequence[int]) -> tuple[int, ...]:
    """How many offsets a window of these sides has on each axis: 2 w - 1."""
    return tuple(2 * size - 1 for size in sizes)


def in_step(new: tuple[int, ...], old: tuple[int, ...], largest: tuple[int, ...]) -> tuple[int, ...]:
    """What grid `old` becomes where `largest`, of the first stage of the same pyramid (PVT), becomes `new`."""
    return tuple(max(1, n * o // most) for n, o, most in zip(new, old, largest, strict=True))


def times(sizes: Sequence[int]) -> str:
    """`24x24`"""
    return "x".join(map(str, sizes))


def _square(rows: int, name: str, prefix: int | None, count: int) -> tuple[int, int]:
    """How many special rows stand before a square (cube), and its side; never a rounded root."""
    for special in (0, 1, 2) if prefix is None else (prefix,):
        side = round(max(rows - special, 0) ** (1 / count))
        if side > 1 and side**count == rows - special:
            return special, side
    tried = "0, 1 or 2 special rows" if prefix is None else counted(prefix, "special row", "special rows")
    raise PeError(
        f"{name} has {rows} rows: not a square grid behind {tried}; say --from-grid HxW (and --prefix-rows)"
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
    raise PeError(f"{name} of shape {list(shape)} can be read as H, W, D or D, H, W; say --from-grid HxW")
