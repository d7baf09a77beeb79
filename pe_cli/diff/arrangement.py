"""Tables of the same numbers: rows or columns elsewhere, signs, rows of zeros, positions that begin again.

All is read off the numbers: each row, and each column, of one table is looked for in the other.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from pe_cli.diff.operands import Array, Operand, Rearranged, Rows, Selected, Turned, same_rows
from pe_cli.diff.readings import once, pairings
from pe_cli.diff.turning import named_rule
from pe_cli.diff.verify import LISTED, Flags, Pair, Reason, Step

LOOKED_AT = 1 << 20  # numbers in which rows are looked for
SORTED = 1 << 23  # numbers in which equal rows are looked for
NEIGHBOURS = 3
TOGETHER = 1024  # rows
MATCHED = 3 / 4  # of the rows, that an order must find
SHARED = (
    1 / 2
)  # of the rows of the shorter table, that an offset must leave: fewer are no explanation of the whole
WIDEST = 1024  # columns that are compared each with each
COLUMN_ROWS = 256
SOLVER = 1e-4  # of the largest entry: what two solvers of an eigenproblem may differ by


def rows_elsewhere(a: Operand, b: Operand, inserted: bool = True) -> Iterator[list[Step]]:
    """Ways in which the rows of one are rows of the other; `inserted` where rows of zeros may have been put between."""
    if a.columns != b.columns or min(a.rows, b.rows) < 1:
        return
    x, y = _head(a), _head(b)
    if inserted:
        yield from zero_rows(a, b)
    if a.rows != b.rows:
        yield [length(a, b)]
    tolerance = 8 * max(a.precision.unit, b.precision.unit) + 2e-7
    in_a = matching(x, y, tolerance)  # row of a for each row of b
    yield from _offsets(a, b, in_a)
    if a.rows != b.rows and len(x) == a.rows and len(y) == b.rows:
        yield from _left_out(a, b, x, y, in_a, tolerance)
    if len(x) < a.rows or len(y) < b.rows:
        if a.rows == b.rows and a.size <= SORTED:
            yield from _permuted(same_rows(a, b))
        return
    if a.rows == b.rows:
        yield from _permuted(in_a)
        in_b = matching(y, x, tolerance)
        for found, broken in ((in_a, "b"), (in_b, "a")):
            step = _as_rule(found, broken)
            if step is not None:
                yield [step]


def _left_out(
    a: Operand, b: Operand, x: Array, y: Array, in_a: Rows, tolerance: float
) -> Iterator[list[Step]]:
    """The shorter table is the longer one without some of its rows, or with positions by a rule."""
    few, in_b = min(a.rows, b.rows), matching(y, x, tolerance)
    for found, broken in ((in_a[:few], "b"), (in_b[:few], "a")):
        step = _as_rule(found, broken) if (found < few).all() else None
        if step is not None:
            yield [length(a, b), step]
    kept = in_a if a.rows > b.rows else in_b
    if len(kept) < 2 or (kept < 0).any() or (np.diff(kept) < 1).any():
        return
    missing = np.setdiff1d(np.arange(max(a.rows, b.rows)), kept)
    every = np.unique(np.diff(kept))
    facts: dict[str, Any] = {"first": int(missing[0]), "last": int(missing[-1]), "count": len(missing)}
    if len(every) == 1 and every[0] > 1:
        facts |= {"every": int(every[0])}
    elif len(every) == 1 or len(missing) > few:
        return  # an offset; or rows picked at will, which explain much
    cause, longer_a = Reason("rows", {"rows": a.rows}, {"rows": b.rows}, facts), a.rows > b.rows
    yield [Step(cause, lambda p, q: (Selected(p, kept), q) if longer_a else (p, Selected(q, kept)))]


def _permuted(in_a: Rows) -> Iterator[list[Step]]:
    """The order of rows that takes most of them to their places, if there is one."""
    known = in_a[in_a >= 0]
    if len(known) <= MATCHED * len(in_a) or _identity(in_a) or len(np.unique(known)) < len(known):
        return
    order = in_a.copy()
    order[in_a < 0] = np.setdiff1d(np.arange(len(in_a)), known)  # rows that differ too, in any order
    moved = np.count_nonzero(order != np.arange(len(order)))
    facts: dict[str, Any] = {"of": "rows", "moved": int(moved), "order": order[:LISTED].tolist()}
    if len(order) > 2 and (np.diff(order) == -1).all():
        facts["reversed"] = True
    yield [Step(Reason("permutation", {}, {}, facts), lambda p, q: (Selected(p, order), q))]


def length(a: Operand, b: Operand) -> Step:
    """Rows at the end that only one of them has."""
    few, many = sorted((a.rows, b.rows))
    facts = {"first": few, "last": many - 1, "count": many - few}
    return Step(
        Reason("rows", {"rows": a.rows}, {"rows": b.rows}, facts),
        lambda p, q: (Selected(p, 0, few), Selected(q, 0, few)),
        exception=True,
    )


def _head(table: Operand) -> Array:
    return table.take(0, min(table.rows, max(2, LOOKED_AT // table.columns)))


def _identity(order: Rows) -> bool:
    return bool(np.array_equal(order, np.arange(len(order))))


def zero_rows(a: Operand, b: Operand) -> Iterator[list[Step]]:
    """Rows of zeros that were put between the rows of one of them."""
    if a.columns != b.columns or max(a.size, b.size) > LOOKED_AT:
        return
    x, y = _head(a), _head(b)
    zero = ~np.any(x, axis=1), ~np.any(y, axis=1)
    at = np.flatnonzero(zero[0]), np.flatnonzero(zero[1])
    if (
        np.array_equal(*at)
        or max(len(one) for one in at) > 0.5 * len(x)
        or a.rows > len(x)
        or b.rows > len(y)
    ):
        return
    kept = np.flatnonzero(~zero[0]), np.flatnonzero(~zero[1])
    count = min(len(kept[0]), len(kept[1]))
    if count < 2 or len(kept[0]) != a.rows - len(at[0]):
        return
    if a.rows != b.rows and len(kept[0]) != len(kept[1]):
        return
    rows = at[0] if len(at[0]) > len(at[1]) else at[1]
    facts = {
        "first": int(rows[0]),
        "last": int(rows[-1]),
        "count": abs(len(at[0]) - len(at[1])),
        "inserted": True,
    }
    sides = [{"zero_rows": one[:LISTED].tolist()} for one in at]
    first, second = kept[0][:count], kept[1][:count]
    yield [
        Step(
            Reason("padding-row", sides[0], sides[1], facts),
            lambda p, q: (Selected(p, first), Selected(q, second)),
        )
    ]


def matching(x: Array, y: Array, tolerance: float) -> Rows:
    """For each row of y the row of x that points the same way, or -1: by the order of a random sum of each row."""
    found = np.full(len(y), -1, dtype=np.intp)
    (usable_x, u), (usable_y, v) = _directions(x), _directions(y)
    if not (len(usable_x) and len(usable_y)) or x.shape[1] < 2:
        return found
    if len(u) > 1 and (np.abs(u - u[0]).max(axis=1) <= tolerance).mean() > 0.5:
        # rows that all point one way, as those of heads with one slope each do: their sizes tell them apart
        size = max(np.abs(x[usable_x]).max(), np.abs(y[usable_y]).max())
        u, v = x[usable_x] / size, y[usable_y] / size
    weights = np.random.default_rng(0).standard_normal(x.shape[1])
    key = u @ weights
    order = np.argsort(key, kind="stable")
    place = np.searchsorted(key[order], v @ weights)
    best = np.full(len(v), np.inf)
    for first in range(0, len(v), TOGETHER):
        part = slice(first, first + TOGETHER)
        for away in sorted(range(-NEIGHBOURS, NEIGHBOURS), key=abs):
            near = order[np.clip(place[part] + away, 0, len(order) - 1)]
            apart = np.abs(u[near] - v[part]).max(axis=1)
            closer = (apart < best[part]) & (apart <= tolerance)
            best[part] = np.where(closer, apart, best[part])
            found[usable_y[part][closer]] = usable_x[near[closer]]
    # where several rows are equal, the one in the same place counts
    both = min(len(x), len(y))
    alike = np.flatnonzero((x[:both] == y[:both]).all(axis=1))
    found[alike] = alike
    return found


def _directions(x: Array) -> tuple[Rows, Array]:
    """The rows that have a direction, and each of them divided by its length."""
    size = np.sqrt(np.einsum("rc,rc->r", x, x))
    usable = np.flatnonzero(np.isfinite(size) & (size > 0))
    rows = x[usable]
    rows /= size[usable, None]
    return usable, rows


def _offsets(a: Operand, b: Operand, in_a: Rows) -> Iterator[list[Step]]:
    """Row r of b is row r + k of a."""
    matched = np.flatnonzero(in_a >= 0)
    if not len(matched):
        return
    shifts, counts = np.unique(in_a[matched] - matched, return_counts=True)
    for k in shifts[np.argsort(-counts)][:3]:
        begin_a, begin_b = max(0, int(k)), max(0, -int(k))
        rows = min(a.rows - begin_a, b.rows - begin_b)
        if k == 0 or rows < 2 or rows <= SHARED * min(a.rows, b.rows):
            continue
        facts = {"rows": int(k), "shared_rows": {"first_a": begin_a, "first_b": begin_b, "rows": rows}}
        yield [offset_step({"first_row": begin_a}, {"first_row": begin_b}, facts, begin_a, begin_b, rows)]


def offset_step(
    side_a: dict[str, Any],
    side_b: dict[str, Any],
    facts: dict[str, Any],
    begin_a: int,
    begin_b: int,
    rows: int,
) -> Step:
    def undo(p: Operand, q: Operand) -> Pair:
        return Selected(p, begin_a, rows), Selected(q, begin_b, rows)

    return Step(Reason("offset", side_a, side_b, facts), undo)


def _as_rule(found: Rows, broken: str) -> Step | None:
    """The rows of the broken side are rows of the other at positions that follow a rule."""
    rows = np.arange(len(found))
    if (found < 0).mean() > 0.01 or _identity(found) or found[0] > 0:
        return None
    found = np.where(found < 0, rows, found)
    rule, last, restarts = named_rule(found.astype(np.float64), rows.astype(np.float64))
    if rule is None:
        return None
    away = np.flatnonzero(found != rows)
    facts = {"rule": rule, "first": int(away[0]), "last": int(away[-1]), "count": len(away)}
    if rule == "clamp":
        facts["last"] = last
    if rule == "restart":
        facts["restarts"] = list(restarts)
    words = [{"positions": rule}, {"positions": "count up"}]
    sides = words if broken == "a" else words[::-1]

    def undo(p: Operand, q: Operand) -> Pair:
        return (p, Selected(q, found)) if broken == "a" else (Selected(p, found), q)

    return Step(Reason("positions", sides[0], sides[1], facts), undo)


# -- columns ------------------------------------------------------------------------------------------------------


def columns_elsewhere(a: Operand, b: Operand) -> Iterator[list[Step]]:
    """Columns in another order, with other signs, or repeated."""
    if a.rows != b.rows or a.rows < 2 or max(a.columns, b.columns) > WIDEST:
        return
    picked = np.unique(np.linspace(0, a.rows - 1, min(a.rows, COLUMN_ROWS)).astype(np.intp))
    x, y = a.at(picked), b.at(picked)
    keep = np.isfinite(x).all(axis=1) & np.isfinite(y).all(axis=1)
    x, y = x[keep], y[keep]
    if len(x) < 2 or not (np.any(x) and np.any(y)):
        return
    if a.columns != b.columns:
        yield from _repeated(x, y)
        return
    if a.columns < 2:
        return
    unit = max(a.precision.unit, b.precision.unit)
    ratio = float(np.sqrt(np.mean(y**2) / np.mean(x**2)))
    found = _signed_order(x * ratio, y, 4 * unit + 1e-6)
    if found is not None:
        index, sign = found
        if not (_identity(index) and (sign > 0).all()):
            yield _named_columns(x, y, index, sign, unit)
    yield from _eigenvectors(a, b)


def _repeated(x: Array, y: Array) -> Iterator[list[Step]]:
    """Each value once in one table, and twice in the other."""
    wide, narrow, flipped = (y, x, False) if y.shape[1] > x.shape[1] else (x, y, True)
    if wide.shape[1] != 2 * narrow.shape[1]:
        return
    name, pair = once(wide)
    if name == "split":
        return
    first = np.array([int(np.argmax(pair == i)) for i in range(narrow.shape[1])], dtype=np.intp)
    if flipped:
        cause = Reason("layout", {"layout": name}, {"layout": "split"})
        yield [Step(cause, lambda p, q: (Rearranged(p, first), q))]
    else:
        cause = Reason("layout", {"layout": "split"}, {"layout": name})
        yield [Step(cause, lambda p, q: (Rearranged(p, pair), q))]


def _signed_order(x: Array, y: Array, tolerance: float) -> tuple[Rows, Array] | None:
    """For each column of y the column of x that equals it up to its sign; each is used once."""
    width = x.shape[1]
    room = tolerance * max(np.abs(x).max(), np.abs(y).max())
    free = np.ones(width, bool)
    index, sign = np.empty(width, np.intp), np.ones(width)
    power_x, power_y = (x**2).sum(axis=0), (y**2).sum(axis=0)
    product = x.T @ y
    for c in range(width):
        apart = power_x + power_y[c] - 2 * np.abs(product[:, c])
        near = np.flatnonzero(apart <= len(x) * (4 * room) ** 2 + 1e-12 * power_y[c])
        chosen = None
        follows = {
            index[c - 1] + 1 if c else 0,
            index[c - 2] + 1 if c > 1 else 0,
            index[c - 1] + 2 if c else 0,
        }
        for i in sorted(near, key=lambda i: (not free[i], i not in follows, i != c, apart[i])):
            for s in (1.0, -1.0) if product[i, c] >= 0 else (-1.0, 1.0):
                if np.abs(s * x[:, i] - y[:, c]).max() <= room:
                    chosen = int(i), s
                    break
            if chosen is not None:
                break
        if chosen is None or not free[chosen[0]]:
            return None
        index[c], sign[c] = chosen
        free[chosen[0]] = False
    return index, sign


def _pairing_of(x: Array, unit: float) -> tuple[str, Rows, Rows] | None:
    """Which columns are cosine and sine of one angle: the sum of their squares is always the same."""
    for name, first, second in pairings(x.shape[1]):
        if name == "halves, each twice" or 2 * len(first) != x.shape[1]:
            continue
        power = x[:, first] ** 2 + x[:, second] ** 2
        scale = float(np.median(power))
        moving = float(np.ptp(x, axis=0).max())
        if (
            scale > 0
            and moving > 1e-3 * np.sqrt(scale)
            and (np.abs(power - scale) <= (10 * unit + 4e-6) * scale).mean() > 0.9
        ):
            return name, first, second
    return None


def _named_columns(x: Array, y: Array, index: Rows, sign: Array, unit: float) -> list[Step]:
    """An order of columns and signs, told as layout, axes, exchange of sines and cosines, signs, if it is that."""
    width = len(index)
    steps: list[Step] = []
    in_a, in_b = _pairing_of(x, unit), _pairing_of(y, unit)
    if in_a is None or in_b is None:
        if not _identity(index):
            facts = {
                "of": "columns",
                "moved": int(np.count_nonzero(index != np.arange(width))),
                "order": index[:LISTED].tolist(),
            }
            steps.append(_columns_step("permutation", {}, {}, facts, index))
        if (sign < 0).any():
            steps.append(_sign_step(y, sign))
        return steps
    (name_a, *slots_a), (name_b, *slots_b) = in_a, in_b
    at_a = {int(c): (i, k) for k in (0, 1) for i, c in enumerate(slots_a[k])}
    at_b = {int(c): (i, k) for k in (0, 1) for i, c in enumerate(slots_b[k])}
    pair_of = np.full(len(slots_b[0]), -1)
    flipped = np.zeros(len(slots_b[0]), bool)
    for c in range(width):
        (i, k), (j, m) = at_b[c], at_a[int(index[c])]
        if k == 0:
            pair_of[i], flipped[i] = j, m == 1
        elif pair_of[i] != j or flipped[i] != (m == 0):
            facts = {"of": "columns", "order": index[:LISTED].tolist()}
            return [
                _columns_step("permutation", {}, {}, facts, index),
                *([_sign_step(y, sign)] if (sign < 0).any() else []),
            ]
    current = np.arange(width)  # which column of a stands in each column now

    def columns(pairs: Rows, flips: Flags) -> Rows:
        made = np.empty(width, np.intp)
        for c, (i, k) in at_b.items():
            made[c] = slots_a[k ^ int(flips[i])][pairs[i]]
        return made

    def move(
        cause: str, side_a: dict[str, Any], side_b: dict[str, Any], facts: dict[str, Any], wanted: Rows
    ) -> None:
        nonlocal current
        place = np.empty(width, np.intp)
        place[current] = np.arange(width)
        steps.append(_columns_step(cause, side_a, side_b, facts, place[wanted]))
        current = wanted

    same, still = np.arange(len(pair_of)), np.zeros(len(pair_of), bool)
    if name_a != name_b:
        words = [
            {"layout": _layout_name(n, one, *slots)}
            for n, one, slots in ((name_a, x, slots_a), (name_b, y, slots_b))
        ]
        move("layout", words[0], words[1], {}, columns(same, still))
    if not _identity(pair_of):
        half = len(pair_of) // 2
        if np.array_equal(pair_of, np.roll(same, half)) or np.array_equal(pair_of, np.roll(same, -half)):
            halves = {"first_half": "one axis"}, {"first_half": "the other axis"}
            move("axes", *halves, {}, columns(pair_of, still))
        else:
            move(
                "permutation",
                {},
                {},
                {"of": "pairs of columns", "order": pair_of[:LISTED].tolist()},
                columns(pair_of, still),
            )
    if flipped.any():
        facts = {} if flipped.all() else {"pairs": np.flatnonzero(flipped)[:LISTED].tolist()}
        move("swap-sin-cos", {}, {}, facts, columns(pair_of, flipped))
    if (sign < 0).any():
        steps.append(_sign_step(y, sign))
    return steps


def _layout_name(pairing: str, x: Array, first: Rows, second: Rows) -> str:
    """What `pe gen` calls the layout: the slowest pair has the larger cosine."""
    if pairing != "halves":
        return pairing
    return "cos-sin" if np.abs(x[:, first[-1]]).mean() >= np.abs(x[:, second[-1]]).mean() else "sin-cos"


def _columns_step(
    cause: str, a: dict[str, Any], b: dict[str, Any], facts: dict[str, Any], index: Rows
) -> Step:
    return Step(Reason(cause, a, b, facts), lambda p, q: (Rearranged(p, index), q))


def _sign_step(y: Array, sign: Array) -> Step:
    flipped = np.flatnonzero(sign < 0)
    index = np.arange(len(sign))
    if len(flipped) == len(sign):
        cause = Reason("sign", {}, {}, {"of": "all"})
    else:
        orthogonal = _orthogonal(y)
        named = {"columns": flipped[:LISTED].tolist(), "count": len(flipped)}
        cause = (
            Reason("eigenvector-sign", {}, {}, named)
            if orthogonal
            else Reason("sign", {}, {}, {"of": "columns"} | named)
        )
    return Step(cause, lambda p, q: (Rearranged(p, index, sign), q))


def _orthogonal(x: Array) -> bool:
    """Whether columns are at right angles, as eigenvectors are (rows that are a sample only nearly so)."""
    size = np.linalg.norm(x, axis=0)
    if not size.all() or x.shape[1] > len(x):
        return False
    gram = (x / size).T @ (x / size)
    return float(np.abs(gram - np.eye(len(gram))).max()) < (1e-2 if len(x) < COLUMN_ROWS else 0.35)


def _eigenvectors(a: Operand, b: Operand) -> Iterator[list[Step]]:
    """Columns of two eigensolvers: signs, and columns turned within spaces of equal eigenvalue."""
    if a.size > LOOKED_AT or a.columns > a.rows:
        return
    x, y = a.whole(), b.whole()
    if not (np.isfinite(x).all() and np.isfinite(y).all()):
        return
    size_x, size_y = np.linalg.norm(x, axis=0), np.linalg.norm(y, axis=0)
    if not (size_x.all() and size_y.all()):
        return
    gram = (x / size_x).T @ (x / size_x)
    if float(np.abs(gram - np.eye(len(gram))).max()) > 1e-2:
        return
    room = SOLVER * float(np.abs(y).max())
    direction = np.sign(np.einsum("rc,rc->c", x, y))
    flipped = np.flatnonzero(direction < 0)
    if len(flipped) and np.all(direction != 0):
        facts: dict[str, Any] = {"columns": flipped[:LISTED].tolist(), "count": len(flipped)}
        index = np.arange(len(direction))
        yield [
            Step(
                Reason("eigenvector-sign", {}, {}, facts),
                lambda p, q: (Rearranged(p, index, direction), q),
                room,
            )
        ]
    if a.columns == a.rows:
        return
    turn = (x / size_x).T @ (y / size_y)
    spaces = _blocks(np.abs(turn) > 1e-2)
    if any(last - first > 1 for first, last in spaces) and spaces != [(0, a.columns)]:
        clean = np.zeros_like(turn)
        for first, last in spaces:
            clean[first:last, first:last] = turn[first:last, first:last]
        matrix = clean / size_x[:, None] * size_y
        named = [list(range(first, last)) for first, last in spaces if last - first > 1]
        facts = {"columns": flipped[:LISTED].tolist(), "eigenspaces": named}
        yield [Step(Reason("eigenvector-sign", {}, {}, facts), lambda p, q: (Turned(p, matrix), q), room)]


def _blocks(joined: Flags) -> list[tuple[int, int]]:
    """Runs of columns that only mix among themselves."""
    spaces, first, reach = [], 0, 0
    for column in range(len(joined)):
        both = np.flatnonzero(joined[column] | joined[:, column])
        reach = max(reach, column, int(both[-1]) if len(both) else column)
        if reach == column:
            spaces.append((first, column + 1))
            first = column + 1
    return spaces
