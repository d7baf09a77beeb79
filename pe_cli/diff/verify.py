"""A cause is told only where undoing it, over every row, leaves less: what is measured to know that.

A step is a cause and what undoes it. Steps are applied one after the other; what is left over both whole tables is
measured after each of them. What is left in a few rows or entries is told as such.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pe_cli.diff.operands import Array, Operand, Patched, StoredTable, blocks, in_parts
from pe_cli.inspect.result import Precision, plain

Flags = NDArray[np.bool_]
SAMPLE = 1 << 17  # numbers by which candidates are judged before they are verified on the whole
FLOAT64_ROOM = 1e-12  # of the largest number: what the order of float64 operations makes of it
LOW = -1e4  # attention scores below it are a mask
SLIVER = 1 / 64  # of the entries: a change of the whole table that touches less is none
MOST_ROWS, MOST_ENTRIES = 7 / 8, 1 / 4  # of the table, that can be an exception from it
FEW_ENTRIES = 16  # that are told beside rows
LISTED = 64


@dataclass
class Reason:
    """One change that makes the two tables agree.

    `a` and `b` say what holds of each side, `facts` what holds of the change itself; `residual_after` is the largest
    difference that is left over the whole tables once this cause and all before it are undone.
    """

    cause: str
    a: dict[str, Any] = field(default_factory=dict)
    b: dict[str, Any] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)
    residual_after: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        left = self.residual_after
        sides = (
            {name: plain(value) for name, value in side.items() if value is not None}
            for side in (self.a, self.b)
        )
        facts = {name: plain(value) for name, value in self.facts.items() if value is not None}
        found = {"cause": self.cause, **dict(zip("ab", sides, strict=True)), **facts}
        return found | {"residual_after": None if left is None else float(f"{left:.6g}")}


Pair = tuple[Operand, Operand]
Extra = float | Callable[[int, int], Array]  # for all entries, or for those of the rows from one to another


@dataclass
class Step:
    """A cause and what undoes it; `room` is what two ways of computing the same may differ by afterwards."""

    cause: Reason
    undo: Callable[[Operand, Operand], Pair]
    room: Extra = 0.0
    exception: bool = False  # concerns some rows or entries and not the whole table


@dataclass
class Distance:
    """How far apart two tables are: entries that differ by more than rounding, and the largest difference."""

    outside: int = 0
    total: int = 0
    largest: float = 0.0
    sum: float = 0.0

    @property
    def share(self) -> float:
        return self.outside / max(1, self.total)


class Room:
    """What rounding to the narrower type of two tables may put between equal numbers."""

    def __init__(self, precisions: tuple[Precision, Precision], extra: Extra = 0.0) -> None:
        fine, self.coarse = sorted(precisions, key=lambda p: p.unit)
        self.half_steps = 1.01 * (
            1 + fine.unit / self.coarse.unit
        )  # of the coarse type: each side is rounded once
        self.extra = extra

    def outside(self, x: Array, y: Array, start: int = 0) -> tuple[Flags, Array]:
        """The entries that differ by more, and all differences: infinite where one side alone is no number."""
        with np.errstate(invalid="ignore", over="ignore"):
            apart = _apart(x, y)
            if not callable(self.extra) and float(apart.max(initial=0.0)) <= self.extra:
                return np.zeros(apart.shape, np.bool_), apart
            extra = self.extra(start, start + len(x)) if callable(self.extra) else self.extra
            size = np.maximum(np.abs(x), np.abs(y))
            flags = (apart > self.half_steps * self.coarse.unit * size + extra) | (apart == np.inf)
            if flags.any():
                v = np.where(np.isfinite(size[flags]), size[flags], 0)
                room = self.half_steps * self.coarse.half_ulp(v) + (
                    extra[flags] if isinstance(extra, np.ndarray) else extra
                )
                if self.coarse.unit < 1e-15:
                    room += FLOAT64_ROOM * largest(y)
                flags[flags] = apart[flags] > room
        return flags, apart


def _apart(x: Array, y: Array) -> Array:
    """|x - y|: 0 where both are NaN or the same infinity, infinite where one side alone is no number."""
    with np.errstate(invalid="ignore"):
        apart: Array = np.subtract(x, y)
        np.abs(apart, out=apart)
        if not np.isfinite(apart.max(initial=0.0)):
            apart[(x == y) | (np.isnan(x) & np.isnan(y))] = 0
            apart[np.isnan(apart)] = np.inf
    return apart


def distance(a: Operand, b: Operand, extra: Extra = 0.0, sample: int | None = None) -> Distance:
    """How far apart two tables of one shape are, over all rows or a sample of about so many numbers."""
    found = Distance()
    room = Room((a.precision, b.precision), extra)
    for start, x, y in blocks(a, b, sample):
        flags, apart = room.outside(x, y, start)
        found.outside += int(np.count_nonzero(flags))
        found.total += flags.size
        found.largest = max(found.largest, float(apart.max(initial=0.0)))
        found.sum += float(np.sum(apart, where=np.isfinite(apart)))
    return found


def largest(values: Array) -> float:
    """The size of the largest number that is finite."""
    top = float(max(values.max(initial=0.0), -values.min(initial=0.0)))
    if np.isfinite(top):
        return top
    return float(np.max(np.abs(values), where=np.isfinite(values), initial=0.0))


def same_axes(a: Operand, b: Operand) -> bool:
    return (a.rows, a.columns) == (b.rows, b.columns)


def undone(steps: Sequence[Step], a: Operand, b: Operand) -> Pair:
    for step in steps:
        a, b = step.undo(a, b)
    return a, b


def extra_room(steps: Sequence[Step]) -> Extra:
    """The room of the last step that has one."""
    rooms = [step.room for step in steps if callable(step.room) or step.room > 0]
    return rooms[-1] if rooms else 0.0


def sampled(steps: Sequence[Step], a: Operand, b: Operand) -> Distance | None:
    """What the steps leave in a sample of rows; None where they leave tables of two shapes."""
    x, y = undone(steps, a, b)
    return distance(x, y, extra_room(steps), SAMPLE) if same_axes(x, y) else None


def needed(steps: Sequence[Step], a: Operand, b: Operand) -> list[Step]:
    """The steps without those that can be left out: without each that is kept, more is left."""
    kept = list(steps)
    for step in list(kept):
        if len(kept) == 1 or step.exception:
            continue
        rest = [other for other in kept if other is not step]
        with_it = sampled(kept, a, b)
        try:
            without = sampled(rest, a, b)
        except (IndexError, ValueError):
            continue  # the others cannot do without it
        if with_it is None or without is None:
            continue
        if (
            without.share <= with_it.share + SLIVER
            and without.largest <= 1.01 * with_it.largest
            and without.sum <= 1.05 * with_it.sum
        ):
            kept = rest
    return kept


def rows_alike(a: Operand, b: Operand) -> Flags:
    """The rows that are the same in both as they are."""
    if a.columns != b.columns:
        return np.zeros(0, np.bool_)
    room = Room((a.precision, b.precision))
    return np.concatenate([~room.outside(x, y, start)[0].any(axis=1) for start, x, y in blocks(a, b)])


def inverted(steps: Sequence[Step], alike: Callable[[], Flags]) -> bool:
    """Whether rows are told to differ that are the same in both: then what was changed are the others."""
    begin = 0
    for step in steps:
        facts = step.cause.facts
        begin += facts.get("shared_rows", {}).get("first_b", 0)
        if step.cause.cause not in ("positions", "rows") or "first" not in facts or "rows" in step.cause.a:
            continue
        last = len(alike()) if facts.get("rule") == "clamp" else facts["last"] + 1
        told = alike()[begin + facts["first"] : begin + last]
        if facts["count"] > 1.1 * (last - facts["first"] - np.count_nonzero(told)) + 2:
            return True
    return False


def minority(steps: Sequence[Step], rows: int) -> bool:
    """Whether an offset, without the rows that differ even so, says nothing of most rows."""
    shared = [step.cause.facts["shared_rows"]["rows"] for step in steps if "shared_rows" in step.cause.facts]
    wrong = sum(step.cause.facts["count"] for step in steps if step.exception and step.cause.cause == "rows")
    return bool(shared) and 2 * (min(shared) - wrong) <= rows


@dataclass
class Remainder:
    """What is left after the steps in some rows: which rows and entries, and of what kind."""

    by_row: NDArray[np.int32]
    by_column: NDArray[np.int64]
    blank: tuple[Flags, Flags]  # rows that differ and are zeros in one table
    outside: int = 0
    largest: float = 0.0
    masked: int = 0
    fills: tuple[set[float], set[float]] = field(default_factory=lambda: (set(), set()))
    entries: list[tuple[int, int]] = field(default_factory=list)  # the first of all,
    lone: list[tuple[int, int]] = field(default_factory=list)  # and the first of those in rows that have few
    above: int = 0  # masked entries after the diagonal
    upper: int = 0  # entries after the diagonal

    @property
    def rows(self) -> int:
        return len(self.by_row)

    @property
    def columns(self) -> int:
        return len(self.by_column)

    def followed_by(self, other: Remainder) -> Remainder:
        """The same for the rows of both."""
        return Remainder(
            np.concatenate([self.by_row, other.by_row]),
            self.by_column + other.by_column,
            (
                np.concatenate([self.blank[0], other.blank[0]]),
                np.concatenate([self.blank[1], other.blank[1]]),
            ),
            self.outside + other.outside,
            max(self.largest, other.largest),
            self.masked + other.masked,
            (self.fills[0] | other.fills[0], self.fills[1] | other.fills[1]),
            (self.entries + other.entries)[:LISTED],
            (self.lone + other.lone)[:LISTED],
            self.above + other.above,
            self.upper + other.upper,
        )


def remainder(a: Operand, b: Operand, extra: Extra, square: tuple[int, int] | None) -> Remainder:
    """One pass over both; `square` are the last two axes where they are queries and keys."""
    room = Room((a.precision, b.precision), extra)
    return reduce(Remainder.followed_by, in_parts(a, b, lambda part: _remainder_of(a, b, part, room, square)))


def few_of(columns: int) -> int:
    """How many entries of a row may be wrong by themselves."""
    return max(1, columns // 16)


def _remainder_of(
    a: Operand, b: Operand, part: slice, room: Room, square: tuple[int, int] | None
) -> Remainder:
    rows = part.stop - part.start
    blank = np.zeros(rows, bool), np.zeros(rows, bool)
    found = Remainder(np.zeros(rows, np.int32), np.zeros(a.columns, np.int64), blank)
    for start, x, y in blocks(a, b, within=part):
        flags, apart = room.outside(x, y, start)
        stop = start + len(x)
        here = slice(start - part.start, stop - part.start)
        count = int(np.count_nonzero(flags))
        after = _after_diagonal(start, stop, a.columns, square)
        found.upper += 0 if after is None else int(np.count_nonzero(after))
        found.largest = max(found.largest, float(apart.max(initial=0.0)))
        if not count:
            continue
        per_row = flags.sum(axis=1)
        found.by_row[here] = per_row
        found.by_column += flags.sum(axis=0)
        found.outside += count
        hidden = flags & ((x <= LOW) | (y <= LOW))
        lone = int(np.count_nonzero(hidden))
        found.masked += lone
        if lone:
            for fills, side in zip(found.fills, (x, y), strict=True):
                values = side[hidden & (side <= LOW)]
                fills.update(float(v) for v in np.unique(values)[:3])
            if after is not None:
                found.above += int(np.count_nonzero(hidden & after))
        for listed, some in (
            (found.entries, flags),
            (found.lone, flags & (per_row <= few_of(a.columns))[:, None]),
        ):
            if len(listed) < LISTED:
                listed += [(int(r) + start, int(c)) for r, c in np.argwhere(some)[: LISTED - len(listed)]]
        for one, side in zip(found.blank, (x, y), strict=True):
            one[here] = (per_row > 0) & ~np.any(side, axis=1)
    return found


def _after_diagonal(start: int, stop: int, columns: int, square: tuple[int, int] | None) -> Flags | None:
    """Which entries are keys after their query."""
    if square is None:
        return None
    queries, keys = square
    flat = np.arange(start * columns, stop * columns).reshape(-1, columns)
    return np.asarray(flat % keys > flat // keys % queries)


def exceptions(
    left: Remainder, a: StoredTable, b: StoredTable, moved: bool, extra: Extra
) -> list[Step] | None:
    """What is left told as a mask, rows of zeros, rows or entries; None where it is too much to be an exception.

    `moved` says that steps have been applied: then an exception must be the smaller part, as are rows here and there.
    """
    steps: list[Step] = []
    total = left.rows * left.columns
    if left.masked and left.masked >= 0.5 * left.outside:
        causal = left.above == left.masked == left.upper
        facts = [{"masked": _fill(fills), "pattern": "causal" if causal else None} for fills in left.fills]
        for side in facts:
            if side["masked"] is None:
                side["masked"], side["pattern"] = "none", None
        steps.append(_patch("mask", facts[0], facts[1], {"count": left.masked}, _masked_flags))
        if left.masked == left.outside:
            return steps if left.masked < MOST_ROWS * total else None
        return None
    bad = left.by_row > 0
    rows = np.flatnonzero(bad)
    more = len(rows) > left.rows / 2
    if len(rows) > MOST_ROWS * left.rows or (more and (moved or not _contiguous(rows))):
        return _as_entries(left, rows, a, b, total, extra)
    zeros = np.flatnonzero((left.blank[0] | left.blank[1]) & bad)
    rest = np.setdiff1d(rows, zeros)
    if len(zeros):
        sides = [{"rows": "zeros" if one[zeros].any() else "numbers"} for one in left.blank]
        steps.append(_patch("padding-row", sides[0], sides[1], _span(zeros), _row_flags(zeros, left.rows)))
    if not len(rest):
        return steps
    lone = rest[left.by_row[rest] <= few_of(left.columns)]
    if 0 < left.by_row[lone].sum() <= FEW_ENTRIES and len(lone) < len(rest):
        rest = np.setdiff1d(rest, lone)  # rows that are wrong, and a few entries elsewhere
    else:
        lone = lone[:0]
    inside = int(left.by_row[rest].sum())
    dense = inside >= 0.25 * len(rest) * left.columns or (_contiguous(rest) and len(rest) > 2)
    if inside <= 4 and (inside < len(rest) * left.columns or left.columns == 1):
        dense = False
    if dense:
        steps.append(_patch("rows", {}, {}, _span(rest), _row_flags(rest, left.rows)))
        rest = lone
        if not len(rest):
            return steps
    scattered = _as_entries(left, np.union1d(rest, lone), a, b, total, extra)
    return None if scattered is None else steps + scattered


def _as_entries(
    left: Remainder, rows: NDArray[np.intp], a: StoredTable, b: StoredTable, total: int, extra: Extra
) -> list[Step] | None:
    """The entries in these rows; None where they are too many to be told as such."""
    count = int(left.by_row[rows].sum())
    columns = np.flatnonzero(left.by_column)
    few = 0 < len(columns) <= max(2, left.columns / 16)
    if count > MOST_ENTRIES * total:
        return None
    facts: dict[str, Any] = {"count": count, "first": int(rows[0]), "last": int(rows[-1])}
    place = b.place if b.rows == left.rows else (lambda row, column: [row, column])
    listed = left.entries if count == left.outside else left.lone
    facts["at"] = [place(row, column) for row, column in listed]
    if few and count > LISTED:
        facts["columns"] = [int(c) for c in columns[:LISTED]]
    elif count > LISTED:
        return None
    room = Room((a.precision, b.precision), extra)
    return [_patch("entries", {}, {}, facts, lambda i, j, x, y: room.outside(x, y, i)[0])]


def _fill(values: set[float]) -> Any:
    if not values:
        return None
    lowest = min(values)
    return "-inf" if np.isinf(lowest) else lowest


def _masked_flags(start: int, stop: int, x: Array, y: Array) -> Flags:
    return np.asarray((x <= LOW) | (y <= LOW))


def _row_flags(rows: NDArray[np.intp], count: int) -> Callable[[int, int, Array, Array], Flags]:
    chosen = np.zeros(count, bool)
    chosen[rows] = True
    return lambda start, stop, x, y: np.broadcast_to(chosen[start:stop, None], x.shape)


def _patch(
    name: str,
    a: dict[str, Any],
    b: dict[str, Any],
    facts: dict[str, Any],
    flagged: Callable[[int, int, Array, Array], Flags],
) -> Step:
    return Step(Reason(name, a, b, facts), lambda x, y: (Patched(x, y, flagged), y), exception=True)


def _span(rows: NDArray[np.intp]) -> dict[str, Any]:
    return {"first": int(rows[0]), "last": int(rows[-1]), "count": len(rows)}


def _contiguous(rows: NDArray[np.intp]) -> bool:
    return int(rows[-1] - rows[0]) + 1 == len(rows)


def _farthest(a: Operand, b: Operand) -> float:
    """The largest difference over all rows: infinite where one side alone is no number."""

    def within(part: slice) -> float:
        return max(
            (float(_apart(x, y).max(initial=0.0)) for _, x, y in blocks(a, b, within=part)), default=0.0
        )

    return max(in_parts(a, b, within))


def with_residuals(steps: Sequence[Step], a: Operand, b: Operand, left: float) -> list[Reason]:
    """The causes, each with what is left after it over all rows; `left` is that after the last change of the whole."""
    causes = []
    whole = [step for step in steps if not step.exception]
    for step in steps:
        a, b = step.undo(a, b)
        if whole and step is whole[-1] and steps[: len(whole)] == whole:
            step.cause.residual_after = left
        else:
            step.cause.residual_after = _farthest(a, b) if same_axes(a, b) else None
        causes.append(step.cause)
    return causes


def one_layout(causes: list[Reason]) -> list[Reason]:
    """Two changes of layout by way of a third one, which neither table has, told as one."""
    layouts = [cause for cause in causes if cause.cause == "layout"]
    if len(layouts) != 2 or "complex" not in (layouts[0].a.get("layout"), layouts[0].b.get("layout")):
        return causes
    first, second = layouts
    if first.b.get("layout") == "complex":
        second.b = first.b
    else:
        second.a = first.a
    return [cause for cause in causes if cause is not first]
