"""What is measured of two blocks of rows: sizes of differences, steps of the type, directions, NaN."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pe_cli.diff.operands import fill
from pe_cli.files import TensorSpec
from pe_cli.files.sources import Source
from pe_cli.numerics.dtypes import narrower, numpy_dtype, working_type

BINS = 64
MOST_COLUMNS = 1 << 16
CLOSE = 2.0**-22  # float32 differences this near to each other are told apart in float64
FIRST_BYTES = 4096  # of a block, that are compared before the others: the last ones
NARROW = 8  # rows of fewer elements are not looked at as vectors

Pair = tuple[NDArray[Any], NDArray[Any]]


@dataclass(frozen=True)
class Tolerance:
    """Same means |a - b| <= atol + rtol |b|, or at most `ulp` steps of the narrower type apart."""

    atol: float = 0.0
    rtol: float = 0.0
    ulp: int = 0

    @property
    def rule(self) -> str:
        rule = f"|a-b| <= {self.atol:g} + {self.rtol:g}*|b|"
        if self.ulp:
            rule += f", or at most {self.ulp} ulp"
        return rule + "; NaN equals NaN, and nothing else"


@dataclass
class Metrics:
    """What was found. Places are (row, column) with all axes but the first taken together; b is the reference."""

    rows: int
    columns: int
    dtype: str
    equal_bytes: bool = True
    outside: int = 0
    differing: int = 0
    max_abs: float = 0.0
    max_abs_at: tuple[int, int] | None = None
    max_rel: float = 0.0
    max_rel_at: tuple[int, int] | None = None
    max_ulp: int = 0
    max_ulp_at: tuple[int, int] | None = None
    sum_abs: float = 0.0
    max_cosine_distance: float = 0.0
    max_cosine_at: int | None = None
    nan_a: int = 0
    nan_b: int = 0
    nan_unmatched: int = 0
    needed_atol: float = 0.0
    first_outside: tuple[int, int] | None = None
    by_position: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))
    by_column: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))

    @property
    def same(self) -> bool:
        return self.outside == 0

    @property
    def mean_abs(self) -> float:
        return self.sum_abs / max(1, self.rows * self.columns)

    def merge(self, other: Metrics) -> None:
        """Take in what was found in later rows."""
        self.equal_bytes &= other.equal_bytes
        for name in ("outside", "differing", "sum_abs", "nan_a", "nan_b", "nan_unmatched"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for name, place in PLACES.items():
            if getattr(other, name) > getattr(self, name):
                setattr(self, name, getattr(other, name))
                setattr(self, place, getattr(other, place))
        self.needed_atol = max(self.needed_atol, other.needed_atol)
        if self.first_outside is None:
            self.first_outside = other.first_outside
        np.maximum(self.by_position, other.by_position, out=self.by_position)
        np.maximum(self.by_column, other.by_column, out=self.by_column)


PLACES = {
    "max_abs": "max_abs_at",
    "max_rel": "max_rel_at",
    "max_ulp": "max_ulp_at",
    "max_cosine_distance": "max_cosine_at",
}


def squeezed(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Without the axes of length 1, which hold nothing."""
    return tuple(n for n in shape if n != 1)


class Comparison:
    """Two tensors of one shape, compared row block by row block."""

    def __init__(self, shape: tuple[int, ...], dtype_a: str, dtype_b: str, tolerance: Tolerance) -> None:
        self.rows = shape[0] if shape else 1
        self.columns = int(np.prod(shape[1:], dtype=np.int64)) if len(shape) > 1 else 1
        self.tolerance = tolerance
        self.same_type = dtype_a == dtype_b
        self.working = working_type(dtype_a, dtype_b)
        self.narrow = narrower(dtype_a, dtype_b)
        if "complex" in dtype_a or "complex" in dtype_b:
            self.columns *= 2

    def empty(self) -> Metrics:
        bins = np.zeros(min(BINS, max(1, self.rows)))
        columns = np.zeros(self.columns if self.columns <= MOST_COLUMNS else 0)
        return Metrics(self.rows, self.columns, self.narrow, by_position=bins, by_column=columns)

    def block(self, found: Metrics, first_row: int, a: NDArray[Any], b: NDArray[Any], spare: Spare) -> None:
        """Rows of both sides, in the types of their files."""
        if self.same_type and _equal_bytes(a, b):
            if a.dtype.kind in "fcV":
                self._count_nans(found, a)
            return
        found.equal_bytes = False
        if (a.dtype.kind == "c") != (b.dtype.kind == "c"):
            a, b = a.astype(np.complex128, copy=False), b.astype(np.complex128, copy=False)
        rows = len(a)
        x, y = _numbers(a, self.working).reshape(rows, -1), _numbers(b, self.working).reshape(rows, -1)
        difference, size = spare.two(x.shape, self.working)
        with np.errstate(all="ignore"):
            np.subtract(x, y, out=difference)
            np.abs(difference, out=size)
            if a.dtype.kind in "iu" and b.dtype.kind in "iu" and max(a.itemsize, b.itemsize) == 8:
                size[(a != b).reshape(size.shape) & (size == 0)] = 1  # beyond what float64 tells apart
            by_column = size.max(axis=0)
            if not np.isfinite(by_column.max()):
                x, y = self._without_nans(found, x, y, difference, size, first_row)
                by_column = size.max(axis=0)
            self._sizes(found, first_row, x, y, size, by_column, spare)
            longest = None
            if x.shape[1] >= NARROW:
                longest = self._directions(found, first_row, x, y, difference)
            if self.tolerance.ulp or self._may_be_farther(found, float(by_column.max()), longest):
                self._ulps(found, first_row, x, y, size, spare)
            # last, since it overwrites the difference
            self._relative(found, first_row, y, difference)

    def _count_nans(self, found: Metrics, a: NDArray[Any]) -> None:
        values = _numbers(a, self.working)
        if np.isnan(values.sum()):
            count = int(np.isnan(values).sum())
            found.nan_a += count
            found.nan_b += count

    def _without_nans(
        self,
        found: Metrics,
        x: NDArray[Any],
        y: NDArray[Any],
        difference: NDArray[Any],
        size: NDArray[Any],
        first_row: int,
    ) -> Pair:
        """NaN against NaN and infinity against the same infinity are no difference; NaN against a number is
        counted as outside of any tolerance and otherwise left out."""
        nan_x, nan_y = np.isnan(x), np.isnan(y)
        lone = nan_x != nan_y
        found.nan_a += int(nan_x.sum())
        found.nan_b += int(nan_y.sum())
        count = int(lone.sum())
        found.nan_unmatched += count
        found.differing += count
        self._outside(found, first_row, lone, count)
        alike = nan_x | nan_y | (x == y)
        difference[alike] = 0
        size[alike] = 0
        return np.where(alike, 0, x), np.where(alike, 0, y)

    def _outside(self, found: Metrics, first_row: int, wrong: NDArray[np.bool_], count: int) -> None:
        found.outside += count
        if count and found.first_outside is None:
            place = int(np.argmax(wrong))
            found.first_outside = first_row + place // wrong.shape[1], place % wrong.shape[1]

    def _sizes(
        self,
        found: Metrics,
        first_row: int,
        x: NDArray[Any],
        y: NDArray[Any],
        size: NDArray[Any],
        by_column: NDArray[Any],
        spare: Spare,
    ) -> None:
        tolerance, width = self.tolerance, size.shape[1]
        largest = float(by_column.max())
        if largest >= found.max_abs and largest > 0:
            exact, place = _largest(x, y, size, largest)
            if exact > found.max_abs:
                found.max_abs, found.max_abs_at = exact, (first_row + place // width, place % width)
        found.sum_abs += float(size.sum())
        differs = np.greater(size, 0, out=spare.get(3, size.shape, np.dtype(np.bool_)))
        different = int(np.count_nonzero(differs))
        found.differing += different
        if largest >= found.needed_atol * (1 - CLOSE):
            found.needed_atol = max(found.needed_atol, self._needed(x, y, size, largest))
        if not tolerance.ulp:
            wrong, count = differs, different
            if tolerance.atol or tolerance.rtol:
                wrong = self._beyond(x, y, size)
                count = int(np.count_nonzero(wrong))
            self._outside(found, first_row, wrong, count)
        if len(found.by_column):
            np.maximum(found.by_column, by_column, out=found.by_column)
        bins = len(found.by_position)
        row, last = first_row, first_row + len(size)
        while row < last:  # one bin is usually many blocks long
            place = row * bins // self.rows
            end = min(last, -(-(place + 1) * self.rows // bins))
            whole = end - row == len(size)
            top = largest if whole else float(size[row - first_row : end - first_row].max())
            found.by_position[place] = max(found.by_position[place], top)
            row = end

    def _beyond(self, x: NDArray[Any], y: NDArray[Any], size: NDArray[Any]) -> NDArray[np.bool_]:
        """Entries for which not |a - b| <= atol + rtol |b|, decided in float64; equal infinities have size 0."""
        tolerance = self.tolerance
        limit = tolerance.atol + self._allowed(y) if tolerance.rtol else tolerance.atol
        beyond = ~(size <= limit) | np.isinf(size)
        if size.dtype == np.float32:
            near = np.flatnonzero((np.abs(size - limit) <= CLOSE * size) & np.isfinite(size))
            if len(near):
                b = y.reshape(-1)[near].astype(np.float64)
                apart = np.abs(x.reshape(-1)[near].astype(np.float64) - b)
                beyond.reshape(-1)[near] = apart > tolerance.atol + tolerance.rtol * np.abs(b)
        return np.asarray(beyond & (size > 0))

    def _allowed(self, y: NDArray[Any]) -> NDArray[Any]:
        """rtol |b|, in the type of b unless rtol is none of its numbers: infinity times 0 would be NaN."""
        rtol = self.tolerance.rtol
        return np.asarray(rtol * np.abs(y if rtol < np.finfo(np.float32).max else y.astype(np.float64)))

    def _needed(self, x: NDArray[Any], y: NDArray[Any], size: NDArray[Any], largest: float) -> float:
        """The smallest atol that lets all entries pass, in float64."""
        rtol = self.tolerance.rtol
        if not rtol or np.isinf(largest):
            return _largest(x, y, size, largest)[0] if largest > 0 else 0.0
        allowed = self._allowed(y)
        beyond = size - allowed
        top = float(beyond.max())
        if size.dtype != np.float32:
            return top
        near = np.flatnonzero(beyond >= top - CLOSE * (size + allowed))
        b = y.reshape(-1)[near].astype(np.float64)
        return float(np.max(np.abs(x.reshape(-1)[near].astype(np.float64) - b) - rtol * np.abs(b)))

    def _relative(self, found: Metrics, first_row: int, y: NDArray[Any], difference: NDArray[Any]) -> None:
        """The largest |a - b| / |b| where b is not 0; the difference is overwritten."""
        relative = np.divide(difference, y, out=difference)
        low, high = float(relative.min()), float(relative.max())
        if not (np.isfinite(low) and np.isfinite(high)):
            relative[~np.isfinite(relative)] = 0
            low, high = float(relative.min()), float(relative.max())
        if max(high, -low) > found.max_rel:
            place = int(relative.argmax() if high >= -low else relative.argmin())
            found.max_rel = max(high, -low)
            found.max_rel_at = first_row + place // y.shape[1], place % y.shape[1]

    def _directions(
        self, found: Metrics, first_row: int, x: NDArray[Any], y: NDArray[Any], difference: NDArray[Any]
    ) -> float:
        """1 - cos = (|d|² - (|a| - |b|)²) / (2 |a| |b|): exact where 1 - a·b / (|a| |b|) is all rounding.

        Returns the length of the longest row, which is too large rather than too small.
        """
        dd = np.vecdot(difference, difference).astype(np.float64)
        a = np.sqrt(np.vecdot(x, x).astype(np.float64))
        b = np.sqrt(np.vecdot(y, y).astype(np.float64))
        distance = (dd - (a - b) ** 2) / (2 * a * b)
        distance[~np.isfinite(distance)] = 0
        row = int(distance.argmax())
        if distance[row] > found.max_cosine_distance:
            found.max_cosine_distance, found.max_cosine_at = float(distance[row]), first_row + row
        return float(max(a.max(), b.max()) * (1 + x.shape[1] * 2.0**-24))

    def _may_be_farther(self, found: Metrics, largest: float, longest: float | None) -> bool:
        """Whether some entry may be more steps apart than those known, so that steps are worth counting.

        The bits of a number count its steps from 0 and are concave in its size: of two numbers of different signs that
        are `largest` apart, the steps between are most where both are half of it. No entry is larger than its row.
        """
        target = numpy_dtype(self.narrow)
        if longest is None or target.kind in "iub" or not np.isfinite([largest, longest]).all():
            return True
        sizes = np.array([0.5 * largest, longest]).astype(target)
        apart, alike = sizes.view(f"i{target.itemsize}").astype(np.int64) + 1
        return found.max_ulp < max(2 * int(apart), int(alike))

    def _ulps(
        self,
        found: Metrics,
        first_row: int,
        x: NDArray[Any],
        y: NDArray[Any],
        size: NDArray[Any],
        spare: Spare,
    ) -> None:
        target = numpy_dtype(self.narrow)
        if target.kind in "iub":
            steps: NDArray[Any] = size
        else:
            steps = _steps(x.astype(target, copy=False), y.astype(target, copy=False), spare)
        top = int(steps.max())
        if top > found.max_ulp:
            place = int(steps.argmax())
            found.max_ulp = top
            found.max_ulp_at = first_row + place // x.shape[1], place % x.shape[1]
        if self.tolerance.ulp:
            allowed = self.tolerance.atol + self.tolerance.rtol * np.abs(y)
            wrong = ((steps > self.tolerance.ulp) & ~(size <= allowed)) | np.isinf(size)
            self._outside(found, first_row, wrong, int(np.count_nonzero(wrong)))


class Spare:
    """Buffers that are used again for each block: fresh memory costs more than the arithmetic."""

    def __init__(self) -> None:
        self._kept: dict[tuple[int, np.dtype[Any]], NDArray[Any]] = {}

    def get(self, number: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
        size = int(np.prod(shape))
        kept = self._kept.get((number, dtype))
        if kept is None or kept.size < size:
            kept = self._kept[number, dtype] = np.empty(size, dtype)
        return kept[:size].reshape(shape)

    def two(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Pair:
        return self.get(0, shape, dtype), self.get(1, shape, dtype)


def _largest(x: NDArray[Any], y: NDArray[Any], size: NDArray[Any], largest: float) -> tuple[float, int]:
    """The largest difference and its place: of float32 numbers the difference is a float64 number."""
    if size.dtype != np.float32 or not np.isfinite(largest):
        return largest, int(size.argmax())
    near = np.flatnonzero(size >= largest * (1 - CLOSE))
    apart = np.abs(x.reshape(-1)[near].astype(np.float64) - y.reshape(-1)[near].astype(np.float64))
    first = int(apart.argmax())
    return float(apart[first]), int(near[first])


def _equal_bytes(a: NDArray[Any], b: NDArray[Any]) -> bool:
    """Bit for bit, eight bytes at a time where the length allows."""
    raw_a, raw_b = a.reshape(-1).view(np.uint8), b.reshape(-1).view(np.uint8)
    if not np.array_equal(raw_a[-FIRST_BYTES:], raw_b[-FIRST_BYTES:]):
        return False
    whole = len(raw_a) // 8 * 8
    head = np.array_equal(raw_a[:whole].view(np.int64), raw_b[:whole].view(np.int64))
    return bool(head and np.array_equal(raw_a[whole:], raw_b[whole:]))


def _numbers(block: NDArray[Any], working: np.dtype[Any]) -> NDArray[Any]:
    """In the type that is computed in; complex numbers as pairs."""
    if block.dtype.kind == "c":
        block = block.reshape(len(block), -1).view(block.real.dtype)
    return block.astype(working, copy=False)


def _steps(x: NDArray[Any], y: NDArray[Any], spare: Spare) -> NDArray[Any]:
    """How many numbers of their type lie between x and y."""
    signed = np.dtype(f"i{x.itemsize}")
    first, second = (np.ascontiguousarray(side).view(signed) for side in (x, y))
    apart = spare.get(2, x.shape, signed)
    np.bitwise_xor(first, second, out=apart)
    if apart.min() >= 0:  # no signs differ: the bits are in the order of the numbers
        np.abs(np.subtract(first, second, out=apart), out=apart)
        return apart
    ordered = _in_order(first), _in_order(second)
    high: NDArray[Any] = np.maximum(*ordered)
    high -= np.minimum(*ordered)
    return high


def _in_order(raw: NDArray[Any]) -> NDArray[Any]:
    """Unsigned integers in the order of the floating-point numbers whose bits these are; +0 and -0 are one."""
    bits = 8 * raw.itemsize
    sign = raw >> (bits - 1)
    fold: NDArray[Any] = raw ^ (sign & raw.dtype.type(2 ** (bits - 1) - 1))
    fold -= sign
    fold ^= raw.dtype.type(-(2 ** (bits - 1)))
    unsigned: NDArray[Any] = fold.view(np.dtype(f"u{raw.itemsize}"))
    return unsigned


BLOCK_BYTES = 1 << 20
THREADS_FROM = 64 << 20

Blocks = Iterator[tuple[int, NDArray[Any], NDArray[Any]]]  # first row, rows of a, rows of b


def compare(
    a: Source,
    name_a: str,
    b: Source,
    name_b: str,
    tolerance: Tolerance,
    progress: Callable[[int], None] | None = None,
) -> Metrics:
    """Compare two tensors of the same shape, axes of length 1 aside; `progress` is told the bytes done of one side.

    Errors: a tensor of a type that is not read.
    """
    spec_a, spec_b = a.spec(name_a), b.spec(name_b)
    a.require_readable(spec_a)
    b.require_readable(spec_b)
    comparison = Comparison(squeezed(spec_a.shape), spec_a.dtype, spec_b.dtype, tolerance)
    whole = comparison.empty()
    if spec_a.size == 0:
        return whole
    spans = a.span(name_a), b.span(name_b)
    if spans[0] is None or spans[1] is None:
        spare = Spare()
        for first, x, y in _walk(a, spec_a, b, spec_b, comparison.rows):
            comparison.block(whole, first, x, y, spare)
            if progress:
                progress(x.nbytes)
        return whole
    reader = _Spans(spans[0], spans[1], spec_a, spec_b, comparison)
    parts = 2 if spec_a.nbytes >= THREADS_FROM else 1
    edges = [comparison.rows * k // parts for k in range(parts + 1)]
    if parts == 1:
        return reader.run(0, comparison.rows, progress)
    with ThreadPoolExecutor(parts) as pool:
        for found in pool.map(lambda k: reader.run(edges[k], edges[k + 1], progress), range(parts)):
            whole.merge(found)
    return whole


class _Spans:
    """Both tensors in regular files: read at any row into buffers of one's own."""

    def __init__(
        self,
        a: tuple[int, int, np.dtype[Any]],
        b: tuple[int, int, np.dtype[Any]],
        spec_a: TensorSpec,
        spec_b: TensorSpec,
        comparison: Comparison,
    ) -> None:
        self.sides = ((a, spec_a), (b, spec_b))
        self.comparison = comparison
        self.items = spec_a.size // comparison.rows
        widest = max(a[2].itemsize, b[2].itemsize) * self.items
        self.step = max(1, BLOCK_BYTES // widest)

    def run(self, start: int, stop: int, progress: Callable[[int], None] | None) -> Metrics:
        found = self.comparison.empty()
        spare = Spare()
        buffers = [np.empty(self.step * self.items, span[2]) for span, _ in self.sides]
        for row in range(start, stop, self.step):
            rows = min(self.step, stop - row)
            blocks = []
            for (span, spec), buffer in zip(self.sides, buffers, strict=True):
                part = buffer[: rows * self.items]
                fill(span[0], span[1] + row * self.items * span[2].itemsize, part, spec.name)
                native = part if span[2].isnative else part.astype(span[2].newbyteorder("="))
                blocks.append(native.reshape(rows, -1))
            self.comparison.block(found, row, blocks[0], blocks[1], spare)
            if progress:
                progress(blocks[0].nbytes)
        return found


def _walk(a: Source, spec_a: TensorSpec, b: Source, spec_b: TensorSpec, count: int) -> Blocks:
    """Blocks of the same of `count` rows from two sources that are read forward."""
    if not (spec_a.shape and spec_b.shape):
        yield 0, a.read(spec_a.name).reshape(1, 1), b.read(spec_b.name).reshape(1, 1)
        return
    items = spec_a.size // count
    rows = max(1, BLOCK_BYTES // (items * max(numpy_dtype(s.dtype).itemsize for s in (spec_a, spec_b))))
    pieces = a.flat(spec_a.name, items=rows * items), b.flat(spec_b.name, items=rows * items)
    first = 0
    for x, y in zip(*pieces, strict=True):
        yield first, x.reshape(-1, items), y.reshape(-1, items)
        first += x.size // items
