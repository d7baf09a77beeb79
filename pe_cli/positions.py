"""Which rows are asked for: `--len`, `--positions`, `--grid` and `--shard` as sequences that are never expanded."""

from __future__ import annotations

import math
import os
import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pe_cli.errors import PeError, parameter
from pe_cli.process import require_memory

LIMIT = 2**63


@dataclass(frozen=True)
class Run:
    """`count` positions from `start` in steps of `step`."""

    start: int | float
    step: int | float
    count: int

    def __len__(self) -> int:
        return self.count

    def block(self, begin: int, end: int) -> NDArray[Any]:
        if isinstance(self.start, int) and isinstance(self.step, int):
            # The products may leave 64 bits and come back: the positions themselves are within.
            rows: NDArray[Any] = np.int64(self.start) + np.int64(self.step) * np.arange(begin, end)
            return rows
        return self.start + self.step * np.arange(begin, end, dtype=np.float64)


@dataclass(frozen=True)
class Rows:
    """Positions given one by one: (n,) or, for several axes, (n, k)."""

    values: NDArray[Any]

    def __len__(self) -> int:
        return len(self.values)

    def block(self, begin: int, end: int) -> NDArray[Any]:
        return self.values[begin:end]


class Positions:
    """Pieces one after another; `block(i, j)` gives the positions of rows i..j-1 as an array."""

    def __init__(self, pieces: Sequence[Run | Rows], text: str) -> None:
        self.pieces = tuple(pieces)
        self.text = text
        self._ends = list(accumulate(len(piece) for piece in self.pieces))
        self._dtype = np.result_type(*(piece.block(0, 0).dtype for piece in self.pieces))

    def __len__(self) -> int:
        return self._ends[-1]

    def block(self, begin: int, end: int) -> NDArray[Any]:
        """(end - begin,) or (end - begin, k): the positions of these rows."""
        parts = []
        index = bisect_right(self._ends, begin)
        while begin < end and index < len(self.pieces):
            offset = self._ends[index] - len(self.pieces[index])
            stop = min(end, self._ends[index])
            parts.append(self.pieces[index].block(begin - offset, stop - offset))
            begin, index = stop, index + 1
        if len(parts) == 1:
            return parts[0].astype(self._dtype, copy=False)
        return np.concatenate(parts or [self.pieces[0].block(0, 0)]).astype(self._dtype, copy=False)


def first(length: int, name: str = "len", asked: str | None = None) -> Positions:
    """The positions 0..length-1 of the parameter `name`, or of what `asked` quotes."""
    asked = asked or f"{parameter(name)} {length}"
    if length <= 0:
        raise PeError(f"{asked}: a table needs at least one row")
    if length >= LIMIT:
        raise PeError(f"{asked}: positions go up to 2^63, ask for fewer rows")
    return Positions([Run(0, 1, length)], f"0:{length}")


def parse(text: str, load_array: Callable[[str], NDArray[Any]], name: str = "positions") -> Positions:
    """Positions from `0,5,7`, `0:4096`, `0:1000000:64`, `15:-16:-1`, `0.5,1.25`, `@file.npy`; comma-joined.

    Raises PeError with the part that cannot be read.
    """
    asked = f"{parameter(name)} {text}"
    again = _as_python_or_words(text)
    if again is not None:
        raise PeError(
            f"{asked}: write {parameter(name)} {again} (numbers, START:STOP without STOP, @FILE, joined by commas)"
        )
    pieces: list[Run | Rows] = []
    numbers: list[int | float] = []
    for part in text.split(","):
        part = part.strip()
        if ":" in part or part.startswith("@"):
            _flush(numbers, pieces)
            pieces.append(
                _from_array(part[1:], load_array, parameter(name))
                if part.startswith("@")
                else _run(part, asked)
            )
        else:
            numbers.append(_number(part, asked))
    _flush(numbers, pieces)
    shapes = {piece.block(0, 0).shape[1:] for piece in pieces}
    if len(shapes) > 1:
        raise PeError(f"{asked}: arrays of several axes cannot be joined with single positions")
    count = sum(piece.count if isinstance(piece, Run) else len(piece) for piece in pieces)
    if not count:
        raise PeError(f"{asked}: there is no position in it")
    if count >= LIMIT:
        raise PeError(f"{asked}: these are more than 2^63 rows, ask for fewer")
    return Positions(pieces, text)


def chosen(
    length: int | None,
    spec: str | None,
    *,
    load: Callable[[str], NDArray[Any]],
    grid: tuple[int, ...] | None = None,
    has_grid: bool = False,
    rule: Callable[[int], NDArray[Any]] | None = None,
) -> Positions:
    """The positions of `positions`, `len` or `grid`; `rule` says which a length means where they are not 0..N-1."""
    if spec is not None:
        if length is not None:
            raise PeError(
                f"{parameter('len')} and {parameter('positions')} both say which rows: give one of them"
            )
        return parse(spec, load)
    if length is None and grid:
        return first(math.prod(grid), asked=f"{parameter('grid')} {spell(grid, 'x')}")
    if length is None:
        also = f" or {parameter('grid')} HxW" if has_grid else ""
        raise PeError(f"which rows? Give {parameter('len')} N or {parameter('positions')} SPEC{also}")
    counted = first(length)
    if rule is None:
        return counted
    asked = f"{parameter('len')} {length}"
    require_memory(16 * length, asked, f"ask for some of them by {parameter('positions')}")
    return Positions([Rows(rule(length))], asked)


def distances(spec: str, load: Callable[[str], NDArray[Any]]) -> NDArray[np.int64]:
    """The distances of `distances`, a list instead of pairs."""
    where = parse(spec, load, "distances")
    require_memory(16 * len(where), f"{parameter('distances')} {spec}", "ask for fewer")
    return _integers(where.block(0, len(where)), "distances")


def pairs(
    length: int | None,
    q_len: int | None,
    k_len: int | None,
    spec: str | None,
    *,
    load: Callable[[str], NDArray[Any]],
    by_distance: bool,
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The queries, which are the last of the keys unless `positions` says others, and the keys."""
    keys = k_len if k_len is not None else length
    queries = q_len if q_len is not None else length
    if keys is None or (queries is None and spec is None):
        also = f" or {parameter('distances')} A:B" if by_distance else ""
        raise PeError(
            f"which pairs? Give {parameter('len')} N, or {parameter('q_len')} and {parameter('k_len')}{also}"
        )
    all_keys = first(keys, "len" if k_len is None else "k_len")
    require_memory(16 * keys, f"a table of {keys} keys", f"ask for fewer by {parameter('k_len')}")
    if spec is not None:
        where = parse(spec, load)
        require_memory(16 * len(where), f"{parameter('positions')} {spec}", "ask for fewer")
        return _integers(where.block(0, len(where)), "positions"), all_keys.block(0, keys)
    assert queries is not None
    first(queries, "len" if q_len is None else "q_len")
    if queries > keys:
        raise PeError(
            f"{parameter('q_len')} {queries}: the queries are the last of the {keys} keys, so there cannot be more"
        )
    return np.arange(keys - queries, keys), all_keys.block(0, keys)


def part(values: Any, shard: str | None) -> Any:
    """The `I/N`-th block of the queries or distances."""
    if shard is None:
        return values
    index, count = parse_shard(shard)
    return values[len(values) * index // count : len(values) * (index + 1) // count]


def _integers(values: NDArray[Any], name: str) -> NDArray[np.int64]:
    if values.dtype.kind != "i" or values.ndim != 1:
        raise PeError(f"{parameter(name)}: these are whole numbers, one axis")
    return values


def parse_shard(text: str) -> tuple[int, int]:
    """`I/N` with I from 0 to N-1, as launchers number their processes."""
    left, slash, right = text.partition("/")
    index, count = _whole(left), _whole(right)
    if not slash or index is None or count is None or index >= count:
        raise PeError(f"{parameter('shard')} {text}: write I/N with I from 0 to N-1, for example 0/4")
    return index, count


def parse_grid(text: str, name: str = "grid") -> tuple[int, ...]:
    """`HxW` or `TxHxW` as a tuple."""
    sizes = tuple(_whole(size) for size in text.lower().replace("×", "x").replace(",", "x").split("x"))
    if not all(sizes):
        meant = "x".join(re.findall(r"\d+", text)[:4])
        raise PeError(f"{parameter(name)} {text}: write sizes joined by x, for example {meant or '16x16'}")
    return tuple(size for size in sizes if size is not None)


def _whole(text: str) -> int | None:
    """A number of at most 18 digits, which is below 2^63; None for anything else."""
    return int(text) if text.isdecimal() and len(text) <= 18 else None


def _as_python_or_words(text: str) -> str | None:
    """What positions are to be written as that were written `[0,1,2]`, `0 1 2`, `range(8)`, `0-7` or `0..7`."""
    counted = re.fullmatch(
        r"(?:(?:np|numpy|torch|jnp)\.)?a?range\((-?\d+)(?:,\s*(-?\d+))?(?:,\s*(-?\d+))?\)", text
    )
    if counted:
        ends = [number for number in counted.groups() if number is not None]
        return ":".join(ends if len(ends) > 1 else ["0", *ends])
    span = re.fullmatch(r"(\d+)(?:-|\.\.)(\d+)", text)
    if span:
        return f"{span[1]}:{int(span[2]) + 1}"
    listed = re.fullmatch(r"\s*[\[(]?\s*(-?\d+(?:[\s,]+-?\d+)+)\s*[\])]?\s*", text)
    if listed and re.search(r"[\[(\s]", text.strip()):
        again = ",".join(re.split(r"[\s,]+", listed[1]))
        return again if again != text.replace(" ", "") or "," not in text else None
    return None


def _flush(numbers: list[int | float], pieces: list[Run | Rows]) -> None:
    if numbers:
        pieces.append(
            Rows(
                np.array(
                    numbers, dtype=np.float64 if any(isinstance(n, float) for n in numbers) else np.int64
                )
            )
        )
        numbers.clear()


def _number(part: str, asked: str) -> int | float:
    try:
        value: int | float = int(part.replace("_", ""))
    except ValueError:
        try:
            value = float(part)
        except ValueError:
            if part.lower().endswith(
                (".npy", ".npz", ".h5", ".hdf5", ".safetensors", ".txt")
            ) or os.path.exists(part):
                raise PeError(f"{asked}: positions of a file are given with a @ in front: @{part}") from None
            raise PeError(f"{asked}: {part!r} is not a number, a range A:B[:STEP] or @FILE") from None
    if not -LIMIT < value < LIMIT:  # false for NaN too
        raise PeError(f"{asked}: {part} is not a number below 2^63 in size")
    return value


def _run(part: str, asked: str) -> Run:
    ends = part.split(":")
    if len(ends) not in (2, 3) or not ends[1].strip():
        raise PeError(f"{asked}: write a range as START:STOP or START:STOP:STEP, not {part!r}")
    start = _number(ends[0].strip() or "0", asked)
    stop = _number(ends[1].strip(), asked)
    step = _number(ends[2].strip(), asked) if len(ends) == 3 and ends[2].strip() else 1
    if step == 0:
        raise PeError(f"{asked}: the step of {part!r} is zero")
    if isinstance(start, int) and isinstance(stop, int) and isinstance(step, int):
        return Run(start, step, max(0, -((start - stop) // step)))
    count = max(0.0, (stop - start) / step)
    if count >= LIMIT:
        raise PeError(f"{asked}: {part!r} has more than 2^63 steps; write a larger one")
    return Run(float(start), float(step), math.ceil(count))


def _from_array(source: str, load_array: Callable[[str], NDArray[Any]], asked: str) -> Rows:
    if not source:
        raise PeError(f"{asked} @: the name of a file is missing")
    values = np.asarray(load_array(source))
    if values.dtype.kind not in "iuf" or values.ndim not in (1, 2):
        raise PeError(
            f"{asked} @{source}: positions are numbers of shape (n,) or (n, axes), not {values.dtype} {values.shape}"
        )
    if not values.size:
        raise PeError(f"{asked} @{source}: there is no position in it, its shape is {values.shape}")
    if values.dtype.kind == "f" and not np.isfinite(values).all():
        raise PeError(f"{asked} @{source}: there is a NaN or infinite position")
    if values.dtype == np.uint64 and values.max() >= LIMIT:
        raise PeError(f"{asked} @{source}: {values.max()} is not a number below 2^63 in size")
    return Rows(values.astype(np.float64 if values.dtype.kind == "f" else np.int64))


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
