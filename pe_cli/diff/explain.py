"""Why two tables differ: the fewest changes that turn the one into the other, each of them verified on every row.

The search makes candidates from what the tables hold (the same rows or columns elsewhere), from what they are (pairs
that turn, a family of pairs of positions, a grid), and from ways to resample. It believes none of them: a candidate
is told only if undoing it brings the whole of `a` closer to `b`, and only with the changes that it cannot do without.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pe_cli.diff.arrangement import columns_elsewhere, length, rows_elsewhere, zero_rows
from pe_cli.diff.operands import (
    KEPT,
    Multiplied,
    Operand,
    Replacement,
    Reshaped,
    Rounded,
    StoredTable,
    Transposed,
    blocks,
)
from pe_cli.diff.parameters import turning_steps
from pe_cli.diff.places import MOST_ROWS, borrowed, completed, section_steps
from pe_cli.diff.readings import named_like, read, read_alone
from pe_cli.diff.turning import Turning, fitting_rows
from pe_cli.diff.verify import (
    LOW,
    SAMPLE,
    Extra,
    Reason,
    Step,
    distance,
    exceptions,
    extra_room,
    inverted,
    largest,
    minority,
    needed,
    one_layout,
    remainder,
    rows_alike,
    same_axes,
    sampled,
    undone,
    with_residuals,
)
from pe_cli.inspect.laws import roundest

FEWEST = 6  # numbers: fewer agree by chance
PARTING = 0.1  # radians
MANY_ENTRIES = 8
NOISE = 24  # half steps of the type: a difference this small is no wrong entry
HOPELESS = 0.9  # of the entries outside: no exception from a rule
COSTS = {"permutation": 2.2, "rows": 2.2}


@dataclass
class Explanation:
    """`causes` in the order in which they are undone; `explained` where only rounding is then left; `notes` are
    sentences; `parting` the first row where the angles differ by 0.1 radians."""

    causes: list[Reason] = field(default_factory=list)
    explained: bool = False
    notes: list[str] = field(default_factory=list)
    parting: dict[str, float] | None = None
    cost: float = 99.0

    @property
    def shared_rows(self) -> dict[str, int] | None:
        """The rows that both have, where an offset leaves only a part."""
        return next(
            (cause.facts["shared_rows"] for cause in self.causes if "shared_rows" in cause.facts), None
        )


@dataclass
class Side:
    """A table and what belongs to it: its array (for `identify`), and its cosines where it holds sines, or the other way."""

    table: StoredTable
    array: Callable[[], NDArray[Any]]
    other: StoredTable | None = None
    sines: bool = False


def explain(a: Side, b: Side) -> Explanation:
    """The changes that turn `a` into `b`, as far as they are found.

    The number of candidates is bounded, and each is refused by a few rows before more are looked at: how long a search
    takes does not grow with the tables, but for the reading of all rows that verifies what is told.
    """
    with np.errstate(all="ignore"):
        return Search(a, b).run()


@dataclass
class Explained:
    steps: list[Step]
    cost: float
    left: float  # the largest difference before rows and entries are told as exceptions
    explained: bool = True


class Search:
    """Candidates in the order of what is simplest to say, and the best of those that are verified."""

    def __init__(self, a: Side, b: Side) -> None:
        self.a, self.b = a, b
        self.best: Explained | None = None
        self.alike = cache(partial(rows_alike, a.table, b.table))
        self.readings = False  # whether both tables are pairs that turn with one position
        self.parting: dict[str, float] | None = None

    def run(self) -> Explanation:
        a, b = self.a.table, self.b.table
        pairs = (a.integer and b.integer) or (
            len(a.shape) == 3 and a.shape == b.shape and a.shape[1] == a.shape[2]
        )
        ways = [
            self.as_it_is,
            self.elsewhere,
            self.turning,
            self.family,
            self.both_elsewhere,
            self.another_length,
        ]
        if pairs:  # tables of queries and keys: what they are is cheaper to see than where their rows are
            ways = [self.as_it_is, self.family, self.elsewhere, self.both_elsewhere]
        orientations = list(self.orientations())
        for way in ways:
            for before in orientations:
                way(before)
                if self.best is not None and self.best.cost <= 1.0 + len(before):
                    return self.told()
        return self.told()

    def told(self) -> Explanation:
        explanation = Explanation(parting=self.parting)
        if self.best is not None:
            causes = with_residuals(self.best.steps, self.a.table, self.b.table, self.best.left)
            explanation.causes = one_layout(causes)
            explanation.explained, explanation.cost = self.best.explained, self.best.cost
        return explanation

    # -- ways -----------------------------------------------------------------------------------------------------

    def orientations(self) -> Iterator[list[Step]]:
        """The steps that give both tables the same axes: none, another shape, transposed."""
        a, b = self.a.table, self.b.table
        rows_split = a.columns == b.columns and a.shape[1:] != b.shape[1:]
        if a.complex != b.complex and a.size == b.size:
            names = [{"layout": "complex" if one.complex else "interleaved"} for one in (a, b)]
            yield [Step(Reason("layout", names[0], names[1]), _reshape, exception=True)]
        elif a.shape != b.shape and (a.size == b.size or rows_split):
            sides = [{"shape": list(one.shape)} for one in (a, b)]
            yield [Step(Reason("shape", sides[0], sides[1]), _reshape, exception=True)]
        exchanged = a.rows == b.columns and a.columns == b.rows and not same_axes(a, b)
        if exchanged:
            yield from self.transposed()
        if (a.shape == b.shape or not (same_axes(a, b) or rows_split)) and a.complex == b.complex:
            yield []
        if not exchanged:
            yield from self.transposed()

    def transposed(self) -> Iterator[list[Step]]:
        a, b = self.a.table, self.b.table
        if (
            len(a.shape) == 3
            and a.shape[0] == b.shape[0]
            and a.shape[:0:-1] == b.shape[1:]
            and a.size <= KEPT
        ):
            turned = a.whole().reshape(a.shape).transpose(0, 2, 1).reshape(b.rows, b.columns)
            yield [
                Step(
                    Reason("transpose", {}, {}, {"axes": [0, 2, 1]}), lambda x, y: (Replacement(y, turned), y)
                )
            ]
        if len(a.shape) > 2 or len(b.shape) > 2 or min(a.rows, a.columns) < 2 or a.complex or b.complex:
            return
        if not (a.rows == b.columns or a.columns == b.rows):
            return
        # which of them is transposed shows only where the columns of one are pairs that turn
        for turn in (_turn_a, _turn_b):
            if max(a.size, b.size) <= KEPT or turn is (_turn_a if a.rows < a.columns else _turn_b):
                yield [Step(Reason("transpose", {}, {}), turn)]

    def as_it_is(self, before: list[Step]) -> None:
        self.consider(before)

    def elsewhere(self, before: list[Step]) -> None:
        """The same rows, or the same columns, in other places."""
        x, y = undone(before, self.a.table, self.b.table)
        if y.size < FEWEST:
            return
        sines = self.a.sines or self.b.sines  # whose row at position 0 is zeros by itself
        for steps in rows_elsewhere(x, y, inserted=not sines):
            self.consider(before + steps)
        if x.columns >= 1:
            for steps in columns_elsewhere(x, y):
                self.consider(before + steps)

    def turning(self, before: list[Step]) -> None:
        """Both tables as pairs that turn with the position."""
        x, y = undone(before, self.a.table, self.b.table)
        if y.size < FEWEST:
            return
        self.try_turning(before, x, y)
        if (self.best is None or self.best.cost > 2) and not (self.a.sines or self.b.sines):
            for steps in zero_rows(x, y):
                self.try_turning(before + steps, *undone(steps, x, y))

    def try_turning(self, before: list[Step], x: Operand, y: Operand) -> None:
        first, second = self.reading(x, self.a, before), self.reading(y, self.b, before)
        if first is None and second is None:
            return
        if first is not None:
            first = completed(first, x)
        if second is not None:
            second = completed(second, y)
        first, second = _named_alike(first, second, x), _named_alike(second, first, y)
        for one, other in _with_borrowed(first, second, x, y):
            if self.parting is None:
                self.parting = _parting(one, other)
            self.consider(before + turning_steps(one, other))
        self.readings = all(_makes(one, table) for one, table in ((first, x), (second, y)))
        told = self.best is not None and not any(step.exception for step in self.best.steps)
        if first is not None and second is not None and not before and not told:
            self.sections(first, second, x, y)

    def sections(self, first: Turning, second: Turning, x: Operand, y: Operand) -> None:
        """Pairs that turn with positions of several axes."""
        if max(x.rows, y.rows) > MOST_ROWS:
            return
        others = [side.other.whole() if side.other is not None else None for side in (self.a, self.b)]
        steps = section_steps(first, second, (x.whole(), y.whole()), (others[0], others[1]))
        if steps:
            self.consider(steps)

    def reading(self, table: Operand, side: Side, before: list[Step]) -> Turning | None:
        plain = not before
        other = side.other if plain else None
        if other is not None and same_axes(other, table):
            return read(table, other, side.sines)
        return read(table) or read_alone(table)

    def family(self, before: list[Step]) -> None:
        if before or self.readings or self.a.table.size > KEPT or self.b.table.size > KEPT:
            return
        from pe_cli.diff.families import family_steps

        steps = family_steps(self.a.table, self.b.table, (self.a.array(), self.b.array()))
        if steps:
            self.consider(steps)

    def both_elsewhere(self, before: list[Step]) -> None:
        """Rows and columns in other places: rows are found by the sizes of their numbers, whatever the columns."""
        x, y = undone(before, self.a.table, self.b.table)
        if max(x.size, y.size) > SAMPLE * 4 or x.columns != y.columns or x.columns < 3 or y.size < FEWEST:
            return
        u, v = (Replacement(one, np.sort(np.abs(one.whole()), axis=1)) for one in (x, y))
        for steps in rows_elsewhere(u, v):
            p, q = undone(steps, x, y)
            for more in columns_elsewhere(p, q):
                self.consider(before + steps + more)

    def another_length(self, before: list[Step]) -> None:
        if before:
            return
        from pe_cli.diff.families import resampled

        for steps in resampled(self.a.table, self.b.table):
            self.consider(steps)

    # -- verification ---------------------------------------------------------------------------------------------

    def consider(self, steps: Sequence[Step]) -> None:
        """Keep the candidate if it is verified, and cheaper to say than what is known."""
        a, b = self.a.table, self.b.table
        steps = list(steps)
        x, y = undone(steps, a, b)
        if x.columns != y.columns:
            return
        if x.rows != y.rows:
            steps.append(length(x, y))
        steps += self.scaled(steps)
        found = sampled(steps, a, b)
        if found is None or found.share > HOPELESS:
            return
        steps += self.rounded(steps)
        steps = needed(steps, a, b)
        x, y = undone(steps, a, b)
        if not same_axes(x, y):
            return
        extra = extra_room(steps)
        left = remainder(x, y, extra, _square(a, b))
        if left.outside:
            if steps and left.largest <= NOISE * max(x.precision.unit, y.precision.unit) * _size(y):
                return  # what is left is how the candidate computes, and no entry that is wrong
            more = exceptions(left, a, b, bool(steps), extra)
            if more is None:
                return
            steps += more
        if minority(steps, min(a.rows, b.rows)) or inverted(steps, self.alike):
            return
        cost = _cost(steps, left.outside / max(1, left.rows * left.columns), min(a.rows, b.rows))
        if self.best is None or cost < self.best.cost:
            self.best = Explained(steps, cost, left.largest)

    def scaled(self, steps: Sequence[Step]) -> list[Step]:
        """The factor, and the sign, by which the steps are still wrong."""
        a, b = self.a.table, self.b.table
        x, y = undone(steps, a, b)
        extra = extra_room(steps)
        before = distance(x, y, extra, SAMPLE)
        if before.share < 0.02 or any(step.cause.cause == "amplitude" for step in steps):
            return []
        ratio = _ratio(x, y)
        if ratio is None:
            return []
        unit = max(x.precision.unit, y.precision.unit)
        made = []
        if ratio < 0:
            made.append(
                Step(Reason("sign", {}, {}, {"of": "all"}), lambda p, q: (Multiplied(p, -1.0), q), extra)
            )
        size = abs(ratio)
        if abs(size - 1) > 4 * unit + 1e-7:
            made.append(_amplitude(x, y, ratio, unit, extra))
        if not made:
            return []
        after = distance(*undone(made, x, y), extra, SAMPLE)
        return made if after.share < 0.75 * before.share else []

    def rounded(self, steps: Sequence[Step]) -> list[Step]:
        """Two types, where rounding to the narrower makes the tables equal."""
        x, y = undone(steps, self.a.table, self.b.table)
        if x.precision.name == y.precision.name or any(
            step.cause.cause == "dtype-rounding" for step in steps
        ):
            return []
        coarse = max(x.precision, y.precision, key=lambda p: p.unit)
        # numbers that were rounded before they were multiplied are so still
        ratio = prod(step.cause.facts["ratio"] for step in steps if step.cause.cause == "amplitude")
        before_ratio = x.precision.name == coarse.name and ratio != 1
        names = {"dtype": self.a.table.precision.name}, {"dtype": self.b.table.precision.name}

        def undo(p: Operand, q: Operand) -> tuple[Operand, Operand]:
            if before_ratio:
                return p, Multiplied(Rounded(Multiplied(q, 1 / ratio), coarse), ratio)
            return Rounded(p, coarse), Rounded(q, coarse)

        def cut(p: Operand, q: Operand) -> tuple[Operand, Operand]:
            return Rounded(p, coarse, cut=True), Rounded(q, coarse, cut=True)

        before, after = distance(x, y, 0.0, SAMPLE), distance(*undo(x, y), 0.0, SAMPLE)
        if (
            coarse.name != "float64"
            and not before_ratio
            and distance(*cut(x, y), 0.0, SAMPLE).sum < 0.1 * after.sum
        ):
            return [Step(Reason("dtype-rounding", *names, {"of": "numbers cut off"}), cut, extra_room(steps))]
        step = Step(Reason("dtype-rounding", *names), undo, extra_room(steps))
        return [step] if after.sum < 0.5 * before.sum else []


def _size(table: Operand) -> float:
    """The largest number, in a sample."""
    return max(largest(x) for _, x, _ in blocks(table, table, SAMPLE))


def _reshape(x: Operand, y: Operand) -> tuple[Operand, Operand]:
    return (x, y) if same_axes(x, y) else (Reshaped(x, y.columns), y)


def _turn_a(x: Operand, y: Operand) -> tuple[Operand, Operand]:
    return Transposed(x), y


def _turn_b(x: Operand, y: Operand) -> tuple[Operand, Operand]:
    return x, Transposed(y)


def _cost(steps: Sequence[Step], share: float, rows: int) -> float:
    """How much has to be said; exceptions cost more the more they cover."""
    cost = 0.0
    for step in steps:
        # every other row is as simple to say as another method of making a table shorter
        cost += 1.0 if {"every", "reversed"} & {*step.cause.facts} else COSTS.get(step.cause.cause, 1.0)
        if step.cause.cause == "rows" and "rows" not in step.cause.a:
            facts = step.cause.facts
            cost += 3 * share + (
                facts["count"] <= facts["last"] - facts["first"]
            )  # scattered: by no one event
        if step.cause.facts.get("rule") == "other":
            cost += 1.2  # positions of any rows at all explain much
        if step.cause.cause == "entries" and step.cause.facts["count"] > MANY_ENTRIES:
            cost += 0.3
        shared = step.cause.facts.get("shared_rows")
        if shared and step.cause.cause == "offset":
            cost += 0.1 + 8 * (1 - shared["rows"] / max(1, rows))
    return cost


def _amplitude(x: Operand, y: Operand, ratio: float, unit: float, extra: Extra) -> Step:
    """The factor of the fewest digits that leaves no more than the one that was measured."""
    size, sign = abs(ratio), -1.0 if ratio < 0 else 1.0
    best, least = size, np.inf
    for digits in (0.0, max(unit, 1e-7) / 16, max(unit, 1e-7)):
        short = roundest(size, digits * size)
        outside = distance(Multiplied(x, sign * short), y, extra, SAMPLE).share
        if outside <= least + 1e-3:
            best, least = short, min(least, outside)
    return Step(Reason("amplitude", {}, {}, {"ratio": best}), lambda p, q: (Multiplied(p, best), q), extra)


def _ratio(x: Operand, y: Operand) -> float | None:
    """The median of b / a over the larger numbers."""
    parts = []
    for _, p, q in blocks(x, y, SAMPLE):
        usable = np.isfinite(p) & np.isfinite(q) & (p > LOW) & (q > LOW)
        parts.append(np.stack([p[usable], q[usable]]))
    p, q = np.concatenate(parts, axis=1)
    if p.size < FEWEST or not np.any(p) or not np.any(q):
        return None
    large = np.abs(p) > 0.5 * np.median(np.abs(p))
    if not large.any():
        return None
    p, q = p[large], q[large]
    middle = float(np.median(q / p))
    near = np.abs(q - middle * p) <= 1e-2 * np.abs(middle * p)
    if not np.isfinite(middle) or middle == 0 or near.sum() < 0.2 * len(p):
        return None
    middle = float(np.median(q[near] / p[near]))
    near = np.abs(q - middle * p) <= 16 * max(x.precision.unit, y.precision.unit) * np.abs(middle * p)
    if not near.any():
        return middle
    return float(q[near] @ p[near] / (p[near] @ p[near]))


def _square(a: StoredTable, b: StoredTable) -> tuple[int, int] | None:
    """Queries and keys, where the last two axes are alike."""
    shape = b.shape
    if len(shape) < 2 or a.shape != shape or shape[-1] != shape[-2]:
        return None
    return shape[-2], shape[-1]


def _makes(one: Turning | None, table: Operand) -> bool:
    """Whether a reading is of the table, and not only of some rows of a grid."""
    return one is not None and bool(fitting_rows(one, table.take(0, min(table.rows, 256)), 0).mean() > 0.5)


def _named_alike(one: Turning | None, other: Turning | None, table: Operand) -> Turning | None:
    """A table whose frequencies have no name, named as a scaling of the other table's base."""
    if one is None or other is None or one.law.get("scaling") != "unknown" or "base" not in other.law:
        return one
    return named_like(one, other.law, table) or one


def _with_borrowed(
    first: Turning | None, second: Turning | None, x: Operand, y: Operand
) -> Iterator[tuple[Turning, Turning]]:
    """Both readings; a table that cannot be read by itself is tried as the other, computed otherwise."""
    if first is not None and second is not None:
        yield first, second
        if not any(one.law.get("scaling") == "unknown" or one.law.get("factors") for one in (first, second)):
            return
    for reading, table, is_first in ((second, x, True), (first, y, False)):
        if reading is None or reading.law.get("scaling") == "unknown":
            continue
        other = borrowed(reading, table)
        if other is not None:
            yield (other, reading) if is_first else (reading, other)


def _parting(a: Turning, b: Turning) -> dict[str, float] | None:
    """The first row in which the angle of a pair differs by more than 0.1 radians."""
    if len(a.frequencies) != len(b.frequencies):
        return None
    w, v = (np.array([float(f) for f in one.frequencies]) * one.places.stride for one in (a, b))
    start = np.abs(a.places.start * w - b.places.start * v)
    with np.errstate(divide="ignore"):
        rows = np.where(start > PARTING, 0, np.floor((PARTING - start) / np.abs(w - v)) + 1)
    pair = int(np.argmin(rows))
    if not rows[pair] < min(a.rows, b.rows):
        return None
    row = int(rows[pair])
    return {"row": row, "position": float(a.places.at(row, row + 1)[0]), "pair": pair}
