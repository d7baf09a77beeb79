"""One side of a comparison as rows that can be read at any place, and the ways in which it is looked at.

An operand is a table of two axes. What changes it (other columns, other rows, a factor, a model made anew) is an
operand around it, so that the same code measures a table before and after any change, block by block.
"""

from __future__ import annotations

import os
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from pe_cli.errors import PeError
from pe_cli.files import TensorSpec
from pe_cli.files.sources import Source
from pe_cli.inspect.result import PRECISIONS, Precision, stored_precision
from pe_cli.numerics.dtypes import numpy_dtype, round_to

Array = NDArray[np.float64]
Rows = NDArray[np.intp]
Part = TypeVar("Part")
KEPT = 1 << 21  # numbers of a table that is kept in memory
BLOCK = 1 << 16  # numbers that are looked at together
THREADS_FROM = 1 << 23  # numbers
MOST_COLUMNS = 1 << 16
PRECISION_ROWS = 64


class Operand(ABC):
    """Rows [rows, columns] in float64, read a block at a time."""

    rows: int
    columns: int
    precision: Precision

    @abstractmethod
    def take(self, start: int, stop: int) -> Array:
        """Rows start to stop - 1."""

    def at(self, index: Rows) -> Array:
        """Single rows, in any order."""
        whole = np.empty((len(index), self.columns))
        edges = np.flatnonzero(np.diff(index, prepend=index[:1] - 2) != 1)
        for first, last in zip(edges, [*edges[1:], len(index)], strict=True):
            whole[first:last] = self.take(int(index[first]), int(index[first]) + int(last - first))
        return whole

    @property
    def size(self) -> int:
        return self.rows * self.columns

    @property
    def step(self) -> int:
        """Rows of a block."""
        return max(1, BLOCK // max(1, self.columns))

    def whole(self) -> Array:
        return self.take(0, self.rows)


class StoredTable(Operand):
    """A tensor of a file or an array. `shape` is its own, without axes of length 1; complex numbers are pairs."""

    def __init__(
        self,
        shape: tuple[int, ...],
        dtype: str,
        read: Callable[[int, int], NDArray[Any]],
        sample: NDArray[Any],
    ) -> None:
        self.shape = tuple(n for n in shape if n != 1) or (1,)
        self.dtype = dtype
        self.complex = "complex" in dtype
        self.rows, self.columns = _two_axes(self.shape)
        self.items = self.columns
        if self.complex:
            self.columns *= 2
        self.integer = numpy_dtype(dtype).kind in "iub"
        self._read = read
        self.precision = PRECISIONS["float64"] if self.integer else stored_precision(sample)
        self._kept: Array | None = None
        if self.size <= KEPT:
            self._kept = self._numbers(0, self.rows)

    @classmethod
    def of(cls, array: NDArray[Any]) -> StoredTable:
        """An array in memory."""
        flat = np.ascontiguousarray(array).reshape(-1)
        items = _two_axes(tuple(n for n in array.shape if n != 1) or (1,))[1]
        return cls(array.shape, array.dtype.name, lambda i, j: flat[i * items : j * items], array)

    @classmethod
    def open(cls, source: Source, spec: TensorSpec) -> StoredTable | None:
        """A tensor of a file; None where it came through a pipe that has been read."""
        rows, items = _two_axes(tuple(n for n in spec.shape if n != 1) or (1,))
        span = source.span(spec.name)
        if span is None:
            try:
                return cls._unpacked(source, spec, items)
            except PeError:
                return None
        descriptor, offset, kind = span

        def read(start: int, stop: int) -> NDArray[Any]:
            part = np.empty((stop - start) * items, kind)
            fill(descriptor, offset + start * items * kind.itemsize, part, spec.name)
            return part if kind.isnative else part.astype(kind.newbyteorder("="))

        some = [read(r, r + 1) for r in spread(rows, PRECISION_ROWS)]
        return cls(spec.shape, spec.dtype, read, np.concatenate(some))

    @classmethod
    def _unpacked(cls, source: Source, spec: TensorSpec, items: int) -> StoredTable:
        """Compressed tensors: in memory where they are small, else in a temporary file."""
        if spec.size <= KEPT:
            return cls.of(source.read(spec.name))
        kind = numpy_dtype(spec.dtype)
        file = tempfile.TemporaryFile()  # noqa: SIM115 (lives as long as what reads it)
        for piece in source.flat(spec.name, items=BLOCK):
            file.write(piece.astype(kind, copy=False).tobytes())
        file.flush()

        def read(start: int, stop: int) -> NDArray[Any]:
            part = np.empty((stop - start) * items, kind)
            fill(file.fileno(), start * items * kind.itemsize, part, spec.name)
            return part

        some = [read(r, r + 1) for r in spread(spec.size // items, PRECISION_ROWS)]
        return cls(spec.shape, spec.dtype, read, np.concatenate(some))

    def _numbers(self, start: int, stop: int) -> Array:
        flat = self._read(start, stop)
        if self.complex:
            flat = flat.view(flat.real.dtype)
        return flat.astype(np.float64).reshape(stop - start, self.columns)

    def take(self, start: int, stop: int) -> Array:
        if self._kept is not None:
            return self._kept[start:stop]
        return self._numbers(start, stop)

    def raw(self, start: int, stop: int) -> NDArray[Any]:
        """Rows in the type of the file."""
        return self._read(start, stop).reshape(stop - start, self.items)

    def at(self, index: Rows) -> Array:
        return self._kept[index] if self._kept is not None else super().at(index)

    def place(self, row: int, column: int) -> list[int]:
        """The index in the tensor as it is stored, of an entry of this table."""
        flat = row * self.items + column // (2 if self.complex else 1)
        return [int(i) for i in np.unravel_index(flat, self.shape)]


def _two_axes(shape: tuple[int, ...]) -> tuple[int, int]:
    """Rows by the first axis, unless what follows it is too wide to be looked at as one row."""
    if len(shape) == 1:
        return shape[0], 1
    width = int(np.prod(shape[1:], dtype=np.int64))
    if len(shape) == 2 or width <= MOST_COLUMNS:
        return shape[0], width
    return int(np.prod(shape[:-1], dtype=np.int64)), shape[-1]


def fill(descriptor: int, offset: int, part: NDArray[Any], name: str) -> None:
    """Read a piece of tensor `name` from a place of an open file."""
    view = part.view(np.uint8).data
    done = 0
    while done < len(view):
        got = os.preadv(descriptor, [view[done:]], offset + done)
        if got == 0:
            raise PeError(f"tensor {name!r} ends before its {len(view)} bytes: the file has been cut")
        done += got


def spread(rows: int, count: int) -> Rows:
    """At most so many rows, evenly over all of them."""
    return np.unique(np.linspace(0, rows - 1, min(rows, count)).astype(np.intp))


class Viewed(Operand):
    """An operand seen in another way, rows and columns unless said otherwise."""

    def __init__(self, of: Operand) -> None:
        self.of = of
        self.rows, self.columns, self.precision = of.rows, of.columns, of.precision


class Transposed(Viewed):
    """Rows for columns."""

    def __init__(self, of: Operand) -> None:
        super().__init__(of)
        self.rows, self.columns = of.columns, of.rows
        self._kept = np.ascontiguousarray(of.whole().T) if of.size <= KEPT else None

    def take(self, start: int, stop: int) -> Array:
        return self.at(np.arange(start, stop))

    def at(self, index: Rows) -> Array:
        if self._kept is not None:
            return self._kept[index]
        made = np.empty((len(index), self.columns))
        for row in range(0, self.of.rows, self.of.step):
            last = min(self.of.rows, row + self.of.step)
            made[:, row:last] = self.of.take(row, last)[:, index].T
        return made


class Reshaped(Viewed):
    """The same numbers in the same order, in rows of another width."""

    def __init__(self, of: Operand, columns: int) -> None:
        super().__init__(of)
        self.rows, self.columns = of.size // columns, columns

    def take(self, start: int, stop: int) -> Array:
        first, last = start * self.columns, stop * self.columns
        top, end = first // self.of.columns, -(-last // self.of.columns)
        flat = self.of.take(top, end).reshape(-1)
        begin = first - top * self.of.columns
        return flat[begin : begin + last - first].reshape(-1, self.columns)


class Rearranged(Viewed):
    """Column c is column index[c] of the other, times sign[c]."""

    def __init__(self, of: Operand, index: Rows, sign: Array | None = None) -> None:
        super().__init__(of)
        self.index, self.sign, self.columns = index, sign, len(index)

    def _chosen(self, block: Array) -> Array:
        taken = block[:, self.index]
        return taken if self.sign is None else taken * self.sign

    def take(self, start: int, stop: int) -> Array:
        return self._chosen(self.of.take(start, stop))

    def at(self, index: Rows) -> Array:
        return self._chosen(self.of.at(index))


class Turned(Viewed):
    """The columns mixed by a matrix."""

    def __init__(self, of: Operand, matrix: Array) -> None:
        super().__init__(of)
        self.matrix = matrix

    def take(self, start: int, stop: int) -> Array:
        return self.of.take(start, stop) @ self.matrix


class Selected(Viewed):
    """Row r is row index[r] of the other; or consecutive rows from `index` on."""

    def __init__(self, of: Operand, index: Rows | int, rows: int | None = None) -> None:
        super().__init__(of)
        self.index = index
        if isinstance(index, int):
            assert rows is not None
            self.rows = rows
        else:
            self.rows = len(index)

    def take(self, start: int, stop: int) -> Array:
        if isinstance(self.index, int):
            return self.of.take(self.index + start, self.index + stop)
        return self.of.at(self.index[start:stop])

    def at(self, index: Rows) -> Array:
        return self.of.at(index + self.index if isinstance(self.index, int) else self.index[index])


class Multiplied(Viewed):
    """Every number times a ratio, which carries the rounding of the numbers along."""

    def __init__(self, of: Operand, ratio: float) -> None:
        super().__init__(of)
        self.ratio = ratio
        if abs(np.frexp(ratio)[0]) != 0.5:
            self.precision = replace(of.precision, unit=2 * of.precision.unit)

    def take(self, start: int, stop: int) -> Array:
        return self.of.take(start, stop) * self.ratio

    def at(self, index: Rows) -> Array:
        return self.of.at(index) * self.ratio


class Rounded(Viewed):
    """Every number rounded to a type, or the bits that the type has no room for `cut` off."""

    def __init__(self, of: Operand, precision: Precision, cut: bool = False) -> None:
        super().__init__(of)
        self.precision, self.cut = precision, cut

    def take(self, start: int, stop: int) -> Array:
        values = self.of.take(start, stop)
        rounded = np.asarray(round_to(values, self.precision.name)).astype(np.float64)
        if not self.cut:
            return rounded
        beyond = np.abs(rounded) > np.abs(values)
        lower = rounded[beyond] * (
            1 - self.precision.unit
        )  # between it and its neighbour, nearer to that or a tie
        below = np.abs(rounded[beyond]) - 2 * self.precision.half_ulp(lower)
        rounded[beyond] = np.copysign(below, rounded[beyond])
        return rounded


class Replacement(Viewed):
    """An array that stands in the place of a table."""

    def __init__(self, like: Operand, values: Array) -> None:
        super().__init__(like)
        self.values = values.astype(np.float64).reshape(like.rows, -1)
        self.columns = self.values.shape[1]

    def take(self, start: int, stop: int) -> Array:
        return self.values[start:stop]


class Patched(Viewed):
    """The rows or entries that are flagged are taken from the other table."""

    def __init__(
        self, of: Operand, other: Operand, flagged: Callable[[int, int, Array, Array], NDArray[np.bool_]]
    ) -> None:
        super().__init__(of)
        self.other, self.flagged = other, flagged

    def take(self, start: int, stop: int) -> Array:
        x, y = self.of.take(start, stop), self.other.take(start, stop)
        return np.where(self.flagged(start, stop, x, y), y, x)


def in_parts(a: Operand, b: Operand, work: Callable[[slice], Part]) -> list[Part]:
    """What `work` makes of the rows of both tables, which are given to two threads where they are many."""
    rows = min(a.rows, b.rows)
    count = 2 if rows * a.columns >= THREADS_FROM else 1
    edges = [rows * k // count for k in range(count + 1)]
    parts = [slice(*ends) for ends in pairwise(edges)]
    if count == 1:
        return [work(parts[0])]

    def quietly(part: slice) -> Part:
        with np.errstate(all="ignore"):  # which holds in one thread alone
            return work(part)

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(quietly, parts))


def blocks(
    a: Operand, b: Operand, sample: int | None = None, within: slice | None = None
) -> Iterator[tuple[int, Array, Array]]:
    """The same rows of both: all of them, those `within` a part, or short blocks spread over the whole of about
    `sample` numbers together."""
    rows = min(a.rows, b.rows)
    if within is not None or sample is None or rows * a.columns <= sample:
        step = min(a.step, b.step)
        first, rows, _ = (within or slice(None)).indices(rows)
        starts = list(range(first, rows, step))
    else:
        step = max(1, min(64, sample // (8 * a.columns)))
        starts_at = np.unique(np.linspace(0, rows - step, max(2, sample // (step * a.columns))).astype(int))
        starts = starts_at.tolist()
    for start in starts:
        stop = min(rows, start + step)
        yield start, a.take(start, stop), b.take(start, stop)


def same_rows(a: Operand, b: Operand) -> Rows:
    """The row of a that has the numbers of each row of b, by a hash of them; -1 where there is none."""
    odd = np.arange(1, 2 * a.columns, 2, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    hashed = [
        [((block + 0.0).view(np.uint64) * odd).sum(axis=1) for block in pair] for _, *pair in blocks(a, b)
    ]
    first, second = map(np.concatenate, zip(*hashed, strict=True))
    order = np.argsort(first, kind="stable")
    place = order[np.minimum(np.searchsorted(first[order], second), len(order) - 1)]
    return np.where(first[place] == second, place, -1)


# Cosines and sines in two tensors


def part_of(name: str) -> str | None:
    """Whether a name speaks of cosines or of sines."""
    lowered = name.lower()
    places = {part: lowered.rfind(part) for part in ("cos", "sin")}
    found = max(places, key=lambda part: places[part])
    return found if places[found] >= 0 else None


def renamed_part(name: str) -> str | None:
    """The name with `cos` for `sin`, or the other way."""
    part = part_of(name)
    if part is None:
        return None
    at = name.lower().rfind(part)
    return name[:at] + {"cos": "sin", "sin": "cos"}[part] + name[at + 3 :]


def other_half(source: Source, name: str) -> str | None:
    """The tensor with the sines of cosines, or the cosines of sines."""
    other = renamed_part(name)
    if (
        other is None
        or other not in source.tensors
        or source.tensors[other].shape != source.tensors[name].shape
    ):
        return None
    return other


def same_table(a: StoredTable, b: StoredTable) -> bool:
    """Whether two tables hold the same numbers."""
    if (a.rows, a.columns) != (b.rows, b.columns):
        return False
    starts = range(0, a.rows, a.step)
    return all(_equal(a.take(s, min(a.rows, s + a.step)), b.take(s, min(a.rows, s + a.step))) for s in starts)


def _equal(x: NDArray[Any], y: NDArray[Any]) -> bool:
    return bool(np.array_equal(x, y, equal_nan=True))
