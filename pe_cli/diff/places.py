"""The positions of all rows of a table that turns: where they leave the line, and by what rule."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pe_cli.diff.operands import KEPT, Array, Operand, Rows
from pe_cli.diff.parameters import column_steps, frequency_changes, replacing
from pe_cli.diff.turning import (
    ZERO,
    Complex,
    Places,
    Turning,
    arithmetic_of,
    computed,
    fitting_rows,
    frequencies_of,
    in_type,
    positions_of,
)
from pe_cli.diff.verify import Flags, Reason, Step
from pe_cli.errors import PeError
from pe_cli.inspect.laws import roundest
from pe_cli.inspect.regenerate import ROUNDED
from pe_cli.numerics.kernels import geometric

SAMPLES, SAMPLE_ROWS = 24, 16
MOST_TRIED = 8
INTEGERS = ("int8", "int16")
MOST_WRONG = 0.5  # of the rows, that need not follow the rule


def completed(turning: Turning, table: Operand) -> Turning:
    """The reading of a part of the table, told for all of its rows: positions, arithmetic, frequencies."""
    if turning.law.get("scaling") == "unknown":
        turning = _refined(turning, table)
        w = np.array([float(f) for f in turning.frequencies])
        plain = _geometric_law(w, 8 * turning.precision.unit / table.rows + 1e-11)
        if plain is not None:
            turning = replace(turning, frequencies=plain[0], law=plain[1])
    turning = _sharper(_placed(turning, table), table)
    if turning.angles == "exact":
        rows = _spread_rows(table)
        listed, values = _at_rows(turning, rows), table.at(rows)
        if not fitting_rows(listed, values, 0).all():
            found = arithmetic_of(listed, values)
            if found is not None:
                turning = computed(turning, found)
    return turning


def _spread_rows(table: Operand) -> Rows:
    """Short runs of rows over the whole length."""
    starts = np.unique(np.linspace(0, max(0, table.rows - SAMPLE_ROWS), SAMPLES).astype(np.intp))
    return np.concatenate([np.arange(s, min(table.rows, s + SAMPLE_ROWS)) for s in starts])


def _at_rows(turning: Turning, rows: Rows) -> Turning:
    """The reading of these rows alone."""
    at = np.concatenate([turning.places.at(int(row), int(row) + 1) for row in rows])
    return replace(turning, places=Places(listed=at), rows=len(at))


def _geometric_law(w: Array, error: float) -> tuple[Sequence[Any], dict[str, Any]] | None:
    """Plain frequencies base^(-i/m) of a base with few digits."""
    pairs = len(w)
    if pairs < 2 or (w <= 0).any():
        return None
    clear = np.flatnonzero(w[1:] > 8 * error) + 1
    if not len(clear) or abs(w[0] - 1) > 1e-5:
        return None
    bases = w[clear] ** (-pairs / clear)
    spread = bases * pairs / clear * error / w[clear]
    best = int(np.argmin(spread / bases))
    base = roundest(float(bases[best]), float(2 * spread[best] + 1e-9 * bases[best]))
    exact = geometric(base, 2 * pairs, count=pairs)
    made = np.array([float(x) for x in exact])
    if base <= 1 or not np.allclose(made, w, rtol=1e-5, atol=4 * error):
        return None
    return exact, {"base": base, "scaling": "none"}


def _refined(turning: Turning, table: Operand) -> Turning:
    """Measured frequencies made sharper by ever later rows, as long as these agree."""
    w = np.array([float(f) for f in turning.frequencies])
    row = 64
    while row + 8 < table.rows:
        tried = replace(turning, frequencies=w.tolist())
        block = table.take(row, row + 8)
        parts = np.nan_to_num(turning.plan.parts_of(block))
        if not parts.any(axis=(1, 2)).all():
            return tried
        at = turning.places.at(row, row + 8)
        rest = np.angle(((parts[0] + 1j * parts[1]) * tried.turned(at).conj()).mean(axis=0))
        if np.abs(rest).max() > 0.5:
            break
        w = w + rest / float(at.mean() - turning.places.start if at.mean() != turning.places.start else 1)
        row *= 2
    return replace(turning, frequencies=w.tolist())


def _sharper(turning: Turning, table: Operand) -> Turning:
    """The base made sharper by late rows, where the first ones left it open in its last digits."""
    base, pairs = turning.law.get("base"), len(turning.frequencies)
    row = table.rows - min(SAMPLE_ROWS, table.rows)
    if base is None or turning.places.rule is not None or turning.law.get("factors") or pairs < 2:
        return turning
    if fitting_rows(turning, table.take(row, table.rows), row).all() or {*turning.plan.part.tolist()} < {
        0,
        1,
    }:
        return turning
    w = np.array([float(f) for f in turning.frequencies])
    sharp = np.array([float(f) for f in _refined(turning, table).frequencies])
    number = np.arange(1, pairs)
    with np.errstate(all="ignore"):
        change = -np.log(sharp[1:] / w[1:]) * pairs / number
    weight = w[1:] * number
    usable = np.isfinite(change) & (w[1:] * table.rows > 1)
    if not usable.any() or np.abs(change[usable]).max() > 1e-3:
        return turning
    law = turning.law | {
        "base": float(base) * float(np.exp(np.average(change[usable], weights=weight[usable])))
    }
    try:
        tried = replace(turning, law=law, frequencies=frequencies_of(law, pairs))
    except PeError:
        return turning
    before, after = (fitting_rows(one, table.take(row, table.rows), row).mean() for one in (turning, tried))
    return tried if after > before else turning


def _placed(turning: Turning, table: Operand) -> Turning:
    starts = np.unique(np.linspace(0, max(0, table.rows - SAMPLE_ROWS), 2 * SAMPLES).astype(int))
    wrong = [start for start in starts if _fitting_share(turning, table, start) < 1]
    for rule in ROUNDED if len(wrong) > 1 or wrong[-1:] == [starts[-1]] else ():
        first = turning.places.start
        if rule in INTEGERS:
            first = float(in_type(np.array([first]), rule)[0])
        tried = replace(turning, places=Places(first, turning.places.stride, rule))
        if np.mean([_fitting_share(tried, table, start) for start in wrong]) > 0.98:
            return tried
    begun_again = _restarted(turning, table, wrong)
    if begun_again is not None:
        return begun_again
    if table.size > KEPT:
        return _placed_by_sample(turning, table)
    if set(turning.plan.part.tolist()) == {0} or set(turning.plan.part.tolist()) == {1}:
        return _placed_by_trying(turning, table.whole())
    positions: list[Array] = []
    right: list[Flags] = []
    step = table.step
    for start in range(0, table.rows, step):
        place, good = positions_of(turning, table.take(start, min(table.rows, start + step)), start)
        positions.append(place)
        right.append(good)
    p, good = np.concatenate(positions), np.concatenate(right)
    counted = turning.places.at(0, table.rows)
    if good.mean() < 1 - MOST_WRONG or not (np.abs(p - counted)[good] > 0.02).any():
        return turning
    away = good & (np.abs(p - counted) > 0.02)
    if away.sum() < 2:
        return turning
    p = np.where(good, p, counted)
    for first in dict.fromkeys((float(p[0]), turning.places.start)):
        for places in _by_rule(p, good, first, turning.places.stride):
            if (np.abs(places.at(0, table.rows) - p)[good] < 0.02).mean() > 0.98:
                return replace(turning, places=places)
    line = np.sort(p)
    if np.ptp(np.diff(line)) < 1e-6 and good.all():
        shuffled = Places(float(line[0]), float(line[1] - line[0]), "permutation", listed=p)
        return replace(turning, places=shuffled)
    whole = np.abs(p - np.rint(p)) < 1e-9
    if whole[good].all() and good.mean() > 0.9:
        return replace(turning, places=Places(turning.places.start, turning.places.stride, "other", listed=p))
    return turning


def _restarted(turning: Turning, table: Operand, wrong: Sequence[int]) -> Turning | None:
    """Positions that begin again wherever the first row comes again, which tells it however far the positions had come."""
    if not wrong:
        return None
    first = table.take(0, 1)
    same = [
        start + np.flatnonzero((table.take(start, min(table.rows, start + table.step)) == first).all(axis=1))
        for start in range(0, table.rows, table.step)
    ]
    restarts = tuple(int(row) for rows in same for row in rows)[1:]
    # Rows of zeros at the end of a table of sines are no documents of one token.
    if not 0 < len(restarts) <= table.rows / 2 or np.mean(np.diff([0, *restarts]) == 1) > 0.5:
        return None
    start, stride = turning.places.start, turning.places.stride
    # The run that was read may be any of them.
    for begin in dict.fromkeys([start, *(start + stride * row for row in restarts[:MOST_TRIED])]):
        tried = replace(turning, places=Places(begin, stride, "restart", restarts=restarts))
        if np.mean([_fitting_share(tried, table, place) for place in wrong]) > 0.98:
            return tried
        rows = _spread_rows(table)
        found = arithmetic_of(_at_rows(tried, rows), table.at(rows))
        if found is not None:
            return computed(tried, found)
    return None


def _by_rule(p: Array, good: Flags, first: float, stride: float) -> Iterator[Places]:
    """Positions rounded, wrapped or stopped, as those `good` rows say that have one."""
    for rule in ROUNDED:
        yield Places(first, stride, rule)
    rows = np.flatnonzero(good)
    counted = (p[rows] - first) / stride
    if not len(rows) or (np.abs(counted - np.rint(counted)) > 0.02).any():
        return
    yield Places(first, stride, "clamp", int(np.rint(np.median(counted[-max(1, len(counted) // 8) :]))))


def _fitting_share(turning: Turning, table: Operand, start: int) -> float:
    block = table.take(start, min(table.rows, start + SAMPLE_ROWS))
    return float(fitting_rows(turning, block, start).mean())


def _placed_by_sample(turning: Turning, table: Operand) -> Turning:
    """Rules of rounding and wrapping, and the row where positions stop, tried on rows over the whole length."""
    starts = np.unique(np.linspace(0, table.rows - SAMPLE_ROWS, 2 * SAMPLES).astype(int))
    wrong = []
    for start in starts:
        place, good = positions_of(turning, table.take(int(start), int(start) + SAMPLE_ROWS), int(start))
        away = good & (np.abs(place - turning.places.at(int(start), int(start) + SAMPLE_ROWS)) > 0.02)
        wrong.append(bool(away.any()))
    if not any(wrong):
        return turning
    for rule in ROUNDED:
        tried = replace(turning, places=Places(turning.places.start, turning.places.stride, rule))
        if _follows(tried, table, starts):
            return tried
    low, high = 0, table.rows - 1
    end = table.take(table.rows - 1, table.rows)
    while high - low > 1:  # rows after the last position are all alike
        middle = (low + high) // 2
        low, high = (low, middle) if np.array_equal(table.take(middle, middle + 1), end) else (middle, high)
    tried = replace(turning, places=Places(turning.places.start, turning.places.stride, "clamp", high))
    return tried if high < table.rows - 1 and _follows(tried, table, starts) else turning


def _follows(tried: Turning, table: Operand, starts: Array) -> bool:
    share = []
    for start in starts:
        place, good = positions_of(tried, table.take(int(start), int(start) + SAMPLE_ROWS), int(start))
        expected = tried.places.at(int(start), int(start) + SAMPLE_ROWS)
        share.append(float((np.abs(place - expected) < 0.02)[good].mean()) if good.any() else 1.0)
    return float(np.mean(share)) > 0.98


def _placed_by_trying(turning: Turning, table: Array) -> Turning:
    """Cosines alone or sines alone do not tell a position: each rule is tried on all rows."""
    fits = fitting_rows(turning, table, 0)
    if fits.all():
        return turning
    start, stride = turning.places.start, turning.places.stride
    tried = [Places(start, stride, rule) for rule in ROUNDED]
    alike = np.flatnonzero((table[1:] != table[:-1]).any(axis=1))
    if len(alike) and alike[-1] + 1 < len(table) - 1:
        tried.append(Places(start, stride, "clamp", int(alike[-1]) + 1))
    for places in tried:
        other = replace(turning, places=places)
        if fitting_rows(other, table, 0).mean() > 0.98:
            return other
    return turning


def borrowed(reading: Turning, table: Operand) -> Turning | None:
    """The table as the other one's reading, in another arithmetic or at other positions; None where it is not."""
    if table.columns != reading.columns:
        return None
    counted = replace(reading, rows=table.rows, precision=table.precision)
    rows = _spread_rows(table)
    values = table.at(rows)
    for places in (reading.places, *(replace(reading.places, rule=rule) for rule in ROUNDED)):
        listed = _at_rows(replace(counted, places=places), rows)
        if places.rule is not None and fitting_rows(listed, values, 0).mean() > 0.9:
            return replace(counted, places=places)
        if places.rule is None:
            found = arithmetic_of(listed, values)
            if found is not None:
                return computed(counted, found)
    return None


# -- several axes -------------------------------------------------------------------------------------------------

MOST_AXES = 4
MOST_ROWS = 512


@dataclass
class Sections:
    """The pairs of each axis, in the order of their first pairs, and the position of each row on each axis."""

    axis: Rows
    positions: Array

    @property
    def counts(self) -> list[int]:
        return [int((self.axis == k).sum()) for k in range(self.positions.shape[1])]

    @property
    def alternate(self) -> bool:
        """Whether the axes take turns instead of following one another."""
        return bool(np.count_nonzero(np.diff(self.axis)) >= self.positions.shape[1])

    def facts(self) -> dict[str, Any]:
        return {"sections": self.counts} | ({"interleave_sections": True} if self.alternate else {})


def pairs_of(turning: Turning, table: Array, other: Array | None) -> Complex | None:
    """The pairs z of a table; `other` is the other half of cosines or sines alone."""
    parts = turning.plan.parts_of(table)
    if other is not None and other.shape == table.shape:
        for column, (i, k) in enumerate(zip(turning.plan.pair, turning.plan.part, strict=True)):
            if k != ZERO:
                parts[1 - k, :, i] = other[:, column]
    return None if np.isnan(parts).all(axis=1).any() else np.asarray(parts[0] + 1j * parts[1])


def sections_of(turning: Turning, z: Complex) -> Sections | None:
    """Which pairs turn with which axis, where the pairs of a row do not agree on one position."""
    w = np.array([float(f) for f in turning.frequencies])
    room = (12 * turning.precision.unit + 4e-7) * turning.amplitude
    candidates = np.exp(1j * np.outer(np.arange(max(64, 2 * len(z))), w)) * turning.amplitude
    place = np.zeros((len(z), len(w)))
    for row in range(len(z)):
        fits = np.abs(candidates - z[row]) < room
        left = np.ones(len(w), dtype=bool)
        for _ in range(MOST_AXES):
            best = int(fits[:, left].sum(axis=1).argmax())
            taken = left & fits[best]
            if not taken.any():
                return None
            place[row, taken] = best
            left &= ~taken
            if not left.any():
                break
        if left.any():
            return None
    profiles, axis = np.unique(place, axis=1, return_inverse=True)
    first = [int(np.argmax(axis == k)) for k in range(profiles.shape[1])]
    order = np.argsort(first)
    if not 2 <= len(order) <= MOST_AXES:
        return None
    rank = np.argsort(order)
    return Sections(np.asarray(rank[axis], dtype=np.intp), profiles[:, order])


def section_steps(
    a: Turning, b: Turning, tables: tuple[Array, Array], others: tuple[Array | None, Array | None]
) -> list[Step] | None:
    """The same positions on several axes: which pairs turn with which, and how fast."""
    if len(a.frequencies) != len(b.frequencies) or max(len(t) for t in tables) > MOST_ROWS:
        return None
    found = []
    for turning, table, other in zip((a, b), tables, others, strict=True):
        z = pairs_of(turning, table, other)
        if z is not None and _on_one_axis(turning, z):
            return None
        sections = sections_of(turning, z) if z is not None else None
        if sections is None:
            return None
        found.append(sections)
    first, second = found
    if not np.array_equal(first.positions, second.positions):
        return None
    steps: list[Step] = []
    a, b = replace(a, places=Places()), replace(b, places=Places())
    old = OnAxes(a, first.positions[:, first.axis])

    def change(cause: Reason, turning: Turning, axis: Rows) -> None:
        nonlocal old
        new = OnAxes(turning, first.positions[:, axis])
        steps.append(Step(cause, replacing(old, new)))
        old = new

    if not np.array_equal(first.axis, second.axis):
        change(Reason("sections", first.facts(), second.facts()), a, second.axis)
    steps += column_steps(a, b)
    a = replace(a, plan=b.plan)
    old = OnAxes(a, first.positions[:, second.axis])
    for name, side_a, side_b, facts, parts in frequency_changes(a, b):
        a = replace(a, **parts)
        change(Reason(name, side_a, side_b, facts), a, second.axis)
    if abs(b.amplitude / a.amplitude - 1) > max(4 * max(a.precision.unit, b.precision.unit), 1e-6):
        sides = {"amplitude": a.amplitude}, {"amplitude": b.amplitude}
        ratio = {"ratio": roundest(b.amplitude / a.amplitude, 1e-6)}
        a = replace(a, amplitude=b.amplitude)
        change(Reason("amplitude", *sides, ratio), a, second.axis)
    return steps or None


def _on_one_axis(turning: Turning, z: Complex) -> bool:
    """Whether most rows are at one position, so that there is nothing to be told of several axes."""
    w = np.array([float(f) for f in turning.frequencies])
    first = np.exp(1j * np.outer(np.arange(len(z)), w)) * turning.amplitude
    room = (12 * turning.precision.unit + 4e-7) * turning.amplitude
    fast = np.argmax(w)
    hits = [
        bool((np.abs(first[np.abs(first[:, fast] - row[fast]) < room] - row) < room).all(axis=1).any())
        for row in z
    ]
    return float(np.mean(hits)) > 0.9


@dataclass(eq=False)
class OnAxes(Operand):
    """A table whose pairs turn with positions of their own."""

    turning: Turning
    positions: Array  # (rows, pairs)

    def __post_init__(self) -> None:
        self.rows, self.columns, self.precision = (
            len(self.positions),
            self.turning.columns,
            self.turning.precision,
        )

    def take(self, start: int, stop: int) -> Array:
        w = np.array([float(f) for f in self.turning.frequencies])
        z = self.turning.amplitude * np.exp(1j * self.positions[start:stop] * w)
        return self.turning.plan.table(z)
