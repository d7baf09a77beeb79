"""Changes that turn one table into another without new numbers: transposing, moving columns and rows, signs.

Each move looks at both tables and yields the first one changed so that it may be the second; whether it is,
is for the caller to see.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pe_cli.inspect import identify
from pe_cli.inspect.columns import repeated
from pe_cli.inspect.result import Reading

Array = NDArray[np.float64]


@dataclass
class Rearranged:
    """A named change and what both tables are once it is undone."""

    cause: str
    facts: dict[str, Any]
    a: Array
    b: Array
    rows: tuple[int, int] = field(default=(0, 0))  # first row of a and of b that are compared
    solved: bool = False  # numbers of two solvers, which agree only to what the solvers reached


MOST_PAIRED = 4096  # rows that are compared each with each

Move = Callable[[Array, Array], Iterator[Rearranged]]


def transpose(a: Array, b: Array) -> Iterator[Rearranged]:
    if a.ndim != 2 or b.ndim != 2 or min(a.shape) < 2:
        return
    turned = a.shape[::-1]
    if turned == b.shape or (a.shape != b.shape and (turned[0] == b.shape[0] or turned[1] == b.shape[1])):
        yield Rearranged("transpose", {}, np.ascontiguousarray(a.T), b)
        if 1 not in b.shape:
            yield Rearranged("transpose", {}, a, np.ascontiguousarray(b.T))


def _alternate(width: int) -> NDArray[np.intp]:
    """Columns of two halves, dealt out in turn."""
    columns: NDArray[np.intp] = np.arange(width).reshape(2, -1).T.reshape(-1)
    return columns


def _gather(width: int) -> NDArray[np.intp]:
    """Even columns, then odd columns."""
    columns: NDArray[np.intp] = np.arange(width).reshape(-1, 2).T.reshape(-1)
    return columns


def layout(a: Array, b: Array) -> Iterator[Rearranged]:
    """Columns in two halves or in turn; values repeated by halves, side by side, or not at all."""
    if a.ndim != 2 or b.ndim != 2:
        return
    width = a.shape[1]
    if a.shape[1] == b.shape[1] and width % 2 == 0 and width > 2:
        yield Rearranged("layout", {"a": "halves", "b": "interleaved"}, a[:, _alternate(width)], b)
        yield Rearranged("layout", {"a": "interleaved", "b": "halves"}, a[:, _gather(width)], b)
        if width % 4 == 0:
            quarter = width // 4
            blocks = np.arange(width).reshape(4, quarter)
            yield Rearranged(
                "layout",
                {"a": "sin|sin|cos|cos", "b": "sin|cos|sin|cos"},
                a[:, blocks[[0, 2, 1, 3]].reshape(-1)],
                b,
            )
    if b.shape[1] == 2 * width:
        yield Rearranged("layout", {"a": "split", "b": "half"}, np.concatenate([a, a], axis=1), b)
        yield Rearranged("layout", {"a": "split", "b": "adjacent"}, np.repeat(a, 2, axis=1), b)
    if width == 2 * b.shape[1]:
        yield Rearranged("layout", {"a": "half", "b": "split"}, a[:, : width // 2], b)
        yield Rearranged("layout", {"a": "adjacent", "b": "split"}, a[:, ::2], b)


def swap(a: Array, b: Array) -> Iterator[Rearranged]:
    if a.ndim != 2 or a.shape[1] != b.shape[1] or a.shape[1] % 2:
        return
    width = a.shape[1]
    columns = np.arange(width)
    yield Rearranged("swap-sin-cos", {"columns": "halves"}, a[:, np.roll(columns, width // 2)], b)
    yield Rearranged("swap-sin-cos", {"columns": "interleaved"}, a[:, columns ^ 1], b)
    if width % 4 == 0:
        blocks = columns.reshape(4, width // 4)[[1, 0, 3, 2]].reshape(-1)
        yield Rearranged("swap-sin-cos", {"columns": "quarters"}, a[:, blocks], b)


def sign(a: Array, b: Array) -> Iterator[Rearranged]:
    if a.ndim == 0 or a.shape[-1] != b.shape[-1]:
        return
    yield Rearranged("sign", {"of": "all"}, -a, b)
    width = a.shape[-1]
    if a.ndim != 2 or width < 2:
        return
    column = np.arange(width)
    groups = {
        "even columns": column % 2 == 0,
        "odd columns": column % 2 == 1,
        "first half of the columns": column < width // 2,
        "second half of the columns": column >= width // 2,
    }
    if width % 4 == 0:
        groups["first and third quarter of the columns"] = column * 4 // width % 2 == 0
        groups["second and fourth quarter of the columns"] = column * 4 // width % 2 == 1
    for name, chosen in groups.items():
        yield Rearranged("sign", {"of": name}, np.where(chosen, -a, a), b)


def offset(a: Array, b: Array) -> Iterator[Rearranged]:
    """Row r of one is row r + k of the other."""
    if a.ndim != 2 or a.shape[1] != b.shape[1] or min(len(a), len(b)) < 2:
        return
    if _same_rows(a) or _same_rows(b):
        return  # rows that are all alike lie nowhere
    more = len(a) - len(b)
    if more:
        parts = (a[more:], b, (more, 0)) if more > 0 else (a, b[-more:], (0, -more))
        yield Rearranged("offset", {"rows": more}, *parts)
    for rows, other, direction in ((a, b, 1), (b, a, -1)):
        target = other[0]
        if not np.any(target):
            continue
        near = np.argsort(_distance(rows, target))[:3]
        for k in near:
            shared = min(len(rows) - int(k), len(other))
            if k == 0 or shared < 2:
                continue
            here, there = rows[k : k + shared], other[:shared]
            first, second = (here, there) if direction == 1 else (there, here)
            begin = (int(k), 0) if direction == 1 else (0, int(k))
            yield Rearranged("offset", {"rows": direction * int(k)}, first, second, begin)


def _same_rows(table: Array) -> bool:
    return bool((table[1:] == table[:-1]).all())


def _distance(rows: Array, target: Array) -> Array:
    """How far each row points away from the target's direction."""
    length = np.linalg.norm(rows, axis=1) * np.linalg.norm(target)
    with np.errstate(divide="ignore", invalid="ignore"):
        cosine = rows @ target / length
    return np.asarray(np.nan_to_num(1 - cosine, nan=2.0))


def shorter(a: Array, b: Array) -> Iterator[Rearranged]:
    """One is the beginning of the other."""
    if a.ndim == 2 and b.ndim == 2 and a.shape[1] == b.shape[1] and len(a) != len(b):
        rows = min(len(a), len(b))
        if rows >= 1:
            yield Rearranged("offset", {"rows": 0, "rows_a": len(a), "rows_b": len(b)}, a[:rows], b[:rows])


def padding_row(a: Array, b: Array) -> Iterator[Rearranged]:
    """Rows of zeros in one table only, put between its rows or written over them; or special rows in front."""
    if a.ndim != 2 or b.ndim != 2 or a.shape[1] != b.shape[1]:
        return
    zero_a, zero_b = ~np.any(a, axis=1), ~np.any(b, axis=1)
    at_a, at_b = np.flatnonzero(zero_a), np.flatnonzero(zero_b)
    if np.array_equal(at_a, at_b) or max(len(at_a), len(at_b)) > len(a) // 2:
        return
    facts = {"rows_a": [int(r) for r in at_a[:16]], "rows_b": [int(r) for r in at_b[:16]]}
    if len(a) == len(b):
        kept = ~(zero_a | zero_b)
        if kept.sum() >= 2:
            yield Rearranged("padding-row", facts | {"written_over": True}, a[kept], b[kept])
    left, right = a[~zero_a], b[~zero_b]
    shared = min(len(left), len(right))
    if shared >= 2:
        yield Rearranged("padding-row", facts | {"written_over": False}, left[:shared], right[:shared])


def permutation(a: Array, b: Array) -> Iterator[Rearranged]:
    """The same rows or the same columns in another order."""
    if a.shape != b.shape or a.ndim != 2:
        return
    for axis, name in ((0, "rows"), (1, "columns")):
        if a.shape[axis] < 2:
            continue
        order = _matching(a if axis == 0 else a.T, b if axis == 0 else b.T)
        if order is not None and not np.array_equal(order, np.arange(len(order))):
            moved = int((order != np.arange(len(order))).sum())
            facts = {"of": name, "moved": moved, "order": [int(i) for i in order[:64]]}
            yield Rearranged("permutation", facts, a[order] if axis == 0 else a[:, order], b)


def _matching(a: Array, b: Array) -> NDArray[np.intp] | None:
    """For each row of b its row of a: by the order of a random sum of each row, or, where rounding has blurred
    that, the row in the nearest direction."""
    if not (np.isfinite(a).all() and np.isfinite(b).all()):
        return None
    size_a, size_b = np.linalg.norm(a), np.linalg.norm(b)
    if not (size_a > 0 and size_b > 0):
        return None
    if abs(size_b / size_a - 1) > 0.01:  # an amplitude, too
        a = a * (size_b / size_a)
    weights = np.random.default_rng(0).standard_normal(a.shape[1])
    sums_a, sums_b = a @ weights, b @ weights
    order_a, order_b = np.argsort(sums_a, kind="stable"), np.argsort(sums_b, kind="stable")
    scale = np.abs(a).sum(axis=1).max() + 1e-300
    if np.abs(sums_a[order_a] - sums_b[order_b]).max() > 0.003 * scale:
        return None
    order = np.empty(len(a), dtype=np.intp)
    order[order_b] = order_a
    if np.abs(a[order] - b).max() > 0.02 * np.abs(b).max() and len(a) <= MOST_PAIRED:
        length = np.linalg.norm(a, axis=1)
        near = np.argmax((b @ a.T) / np.maximum(length, 1e-300), axis=1)
        order = near if len(np.unique(near)) == len(near) else order
    return order


def eigenvectors(a: Array, b: Array) -> Iterator[Rearranged]:
    """Columns of opposite sign, and columns turned within spaces of equal eigenvalue."""
    if a.shape != b.shape or a.ndim != 2 or a.shape[1] < 1 or len(a) < 2:
        return
    scale_a, scale_b = np.linalg.norm(a, axis=0), np.linalg.norm(b, axis=0)
    if not (scale_a.all() and scale_b.all()):
        return
    gram = (a / scale_a).T @ (a / scale_a)
    orthogonal = a.shape[1] <= len(a) and float(np.abs(gram - np.eye(len(gram))).max()) < 1e-2
    direction = np.sign(np.einsum("rc,rc->c", a, b))
    flipped = np.flatnonzero(direction < 0)
    if len(flipped) and np.all(direction != 0):
        facts: dict[str, Any] = {"columns": [int(c) for c in flipped]}
        yield Rearranged("eigenvector-sign", facts, a * direction, b, solved=orthogonal)
    if not orthogonal or a.shape[1] == len(a):
        return
    turn = (a / scale_a).T @ (b / scale_b)
    spaces = _blocks(np.abs(turn) > 1e-2)
    if any(last - first > 1 for first, last in spaces) and spaces != [(0, a.shape[1])]:
        clean = np.zeros_like(turn)
        for first, last in spaces:
            clean[first:last, first:last] = turn[first:last, first:last]
        named = [[int(c) for c in range(first, last)] for first, last in spaces if last - first > 1]
        facts = {"columns": [int(c) for c in flipped], "eigenspaces": named}
        yield Rearranged("eigenvector-sign", facts, (a / scale_a) @ clean * scale_b, b, solved=True)


def _blocks(joined: NDArray[np.bool_]) -> list[tuple[int, int]]:
    """Runs of columns that only mix among themselves."""
    spaces, first, reach = [], 0, 0
    for column in range(len(joined)):
        both = np.flatnonzero(joined[column] | joined[:, column])
        reach = max(reach, column, int(both[-1]) if len(both) else column)
        if reach == column:
            spaces.append((first, column + 1))
            first = column + 1
    return spaces


# In the order in which they are tried: what is simplest to say comes first.
MOVES: dict[Move, str] = {
    padding_row: "padding-row",
    offset: "offset",
    transpose: "transpose",
    swap: "swap-sin-cos",
    layout: "layout",
    sign: "sign",
    shorter: "offset",
    permutation: "permutation",
    eigenvectors: "eigenvector-sign",
}

Complex = NDArray[np.complex128]
FEWEST_ROWS = 4
ROWS_TRIED = 8
FARTHEST = 8192
MOST_AXES = 4
TOLERANCE = 2e-3


def other_sections(
    a: NDArray[Any],
    b: NDArray[Any],
    names: tuple[str | None, str | None],
    companions: tuple[Mapping[str, NDArray[Any]] | None, Mapping[str, NDArray[Any]] | None],
) -> dict[str, Any] | None:
    """The pairs that each axis has in either table, where the first rows are one plain table in both and the
    others show the same positions in other pairs; None where this is not so."""
    if a.ndim != 2 or a.shape != b.shape:
        return None
    different = np.flatnonzero((a != b).any(axis=1))
    if not len(different) or different[0] < FEWEST_ROWS:
        return None
    head = int(different[0])
    sides = []
    for table, name, others in zip((a, b), names, companions, strict=True):
        plain = _plain_rows(table, name, others, head)
        if plain is None:
            return None
        sides.append(plain)
    rows = different[:: max(1, len(different) // ROWS_TRIED)][:ROWS_TRIED]
    for row in rows[::-1]:
        found = [_pairs_by_position(z[row], reading) for z, reading in sides]
        if found[0] is None or found[1] is None or len(found[0]) < 2 or set(found[0]) != set(found[1]):
            continue
        return {"row": int(row), "equal_rows": head} | {
            f"sections_{side}": {str(position): pairs for position, pairs in sorted(one.items())}
            for side, one in zip("ab", found, strict=True)
            if one is not None
        }
    return None


def _plain_rows(
    table: NDArray[Any], name: str | None, others: Mapping[str, NDArray[Any]] | None, head: int
) -> tuple[Complex, Reading] | None:
    """The whole table as rotations, and what its first rows are: as many of them as one axis explains."""
    for rows in (head, head // 2):
        if rows < FEWEST_ROWS:
            return None
        cut = {key: value[:rows] for key, value in others.items()} if others else None
        known = identify(table[:rows], name, cut)
        if known is not None and known.reading is not None:
            z = _rotations(table, name, others, known.reading)
            return None if z is None else (z, known.reading)
    return None


def _rotations(
    table: NDArray[Any], name: str | None, others: Mapping[str, NDArray[Any]] | None, reading: Reading
) -> Complex | None:
    values = table.astype(np.float64)
    if reading.columns == "interleaved":
        first, second = values[:, ::2], values[:, 1::2]
    elif reading.columns == "halves":
        first, second = np.split(values, 2, axis=1)
    elif others and name and any(key != name for key in others):
        other = next(value for key, value in others.items() if key != name).astype(np.float64)
        first, second = repeated(values)[1], repeated(other)[1]
        if "sin" in name.lower():
            first, second = second, first
        return np.asarray(first + 1j * second)
    else:
        return None
    return np.asarray(second + 1j * first if reading.order == "sin-first" else first + 1j * second)


def _pairs_by_position(row: Complex, reading: Reading) -> dict[int, list[int]] | None:
    """Which pairs of a row are at which position: the fewest positions that explain all."""
    w = np.array([float(f) for f in reading.solved.frequencies])
    positions = np.arange(FARTHEST)
    expected = reading.solved.amplitude * np.exp(1j * positions[:, None] * w)
    fits = np.abs(expected - row) < TOLERANCE * reading.solved.amplitude
    left = np.ones(len(w), dtype=bool)
    found: dict[int, list[int]] = {}
    while left.any() and len(found) < MOST_AXES:
        best = int(fits[:, left].sum(axis=1).argmax())
        taken = np.flatnonzero(fits[best] & left)
        if not len(taken):
            return None
        found[best] = [int(i) for i in taken]
        left[taken] = False
    return None if left.any() else found
