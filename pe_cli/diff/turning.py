"""A model of a table whose pairs turn with the position: what each column holds, how fast, from where, how computed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pe_cli.diff.operands import Array, Operand, Rows
from pe_cli.diff.verify import LISTED, Extra
from pe_cli.errors import PeError
from pe_cli.inspect.regenerate import ROUNDED, wrapped
from pe_cli.inspect.result import FLOAT32_STEP, Precision
from pe_cli.numerics.dtypes import round_to
from pe_cli.numerics.kernels import geometric, rotation_blocks, rotations

Complex = NDArray[np.complex128]
COS, SIN, ZERO = 0, 1, 2
AGREES = 0.12  # radians between the angle of a pair and what the slower pairs make of it
WHOLE = 0.02  # positions: nearer to a whole number is that number
FOLLOWED = 0.75  # of the rows, that an arithmetic must make
GLANCE = 32  # rows that refuse an arithmetic
ANGLE_STEPS = 6  # float32 roundings of an angle that the ways of computing it differ by
PARAMETERS = (
    "factor original_len seq_len beta_fast beta_slow truncate mscale mscale_all_dim low_freq_factor "
    "high_freq_factor partial mixed_b short_factor long_factor factors attention_factor"
).split()


@dataclass(frozen=True, eq=False)
class ColumnPlan:
    """What each column of a table holds: the cosine or sine of which pair, with which sign."""

    name: str
    pair: Rows
    part: Rows
    sign: Array

    @cached_property
    def _parts(self) -> list[tuple[int, Rows | slice, Rows | slice, Array | None]]:
        """For cosines and sines their columns, their pairs, and their signs where some are negative."""
        chosen: list[tuple[int, Rows | slice, Rows | slice, Array | None]] = []
        for part in (COS, SIN):
            columns = np.flatnonzero(self.part == part)
            sign = self.sign[columns]
            signs = None if (sign > 0).all() else sign
            chosen.append((part, _even(columns), _even(self.pair[columns]), signs))
        return chosen

    def table(self, z: Complex, made: Array | None = None) -> Array:
        """The columns [n, w] of pairs z [n, m]; `made` is where they go, filled with zeros."""
        if made is None:
            made = np.zeros((len(z), len(self.pair)))
        for part, columns, pairs, sign in self._parts:
            values = (z.real if part == COS else z.imag)[:, pairs]
            made[:, columns] = values if sign is None else values * sign
        return made

    def parts_of(self, table: Array) -> Array:
        """The cosines and sines [2, n, m] of pairs that columns [n, w] hold; NaN where there are none."""
        parts = np.full((2, len(table), int(self.pair.max()) + 1), np.nan)
        for column, (i, k) in enumerate(zip(self.pair, self.part, strict=True)):
            if k != ZERO:
                parts[k, :, i] = table[:, column] * self.sign[column]
        return parts

    def leading_to(self, other: ColumnPlan) -> tuple[Rows, Array] | None:
        """For each column of the other plan the column of this one that holds the same, and the sign to give it."""
        held = {
            (int(i), int(k)): c
            for c, (i, k) in reversed([*enumerate(zip(self.pair, self.part, strict=True))])
        }
        wanted = [(int(i), int(k)) for i, k in zip(other.pair, other.part, strict=True)]
        if any(key not in held for key in wanted):
            return None
        index = np.array([held[key] for key in wanted], dtype=np.intp)
        return index, other.sign * self.sign[index]


def _even(index: Rows) -> Rows | slice:
    """The same columns as a slice where they are evenly spaced, which numpy copies faster."""
    steps = np.diff(index)
    if len(index) < 2 or steps[0] < 1 or (steps != steps[0]).any():
        return index
    return slice(int(index[0]), int(index[-1]) + 1, int(steps[0]))


@dataclass(frozen=True, eq=False)
class Places:
    """The position of each row: `start` plus `stride` a row, kept in a type, wrapped, clamped or begun again."""

    start: float = 0.0
    stride: float = 1.0
    rule: str | None = None
    last: int | None = None
    restarts: tuple[int, ...] = ()
    listed: Array | None = None

    def at(self, first: int, stop: int) -> Array:
        rows = np.arange(first, stop, dtype=np.float64)
        if self.listed is not None:
            return self.listed[first:stop]
        if self.rule == "clamp" and self.last is not None:
            rows = np.minimum(rows, self.last)
        if self.rule == "restart":
            begun = np.array([0, *self.restarts])
            rows = rows - begun[np.searchsorted(begun, rows, side="right") - 1]
        return in_type(self.start + self.stride * rows, self.rule)


def in_type(positions: Array, rule: str | None) -> Array:
    """Positions as a type keeps them: rounded, or wrapped around."""
    return ROUNDED[rule](positions) if rule in ROUNDED else positions


@dataclass(eq=False)
class Turning(Operand):
    """A table made from a reading, each part of which can be replaced."""

    plan: ColumnPlan
    frequencies: Sequence[Any]
    amplitude: float
    places: Places
    rows: int
    precision: Precision
    angles: str = "exact"
    law: dict[str, Any] = field(default_factory=dict)

    @property
    def columns(self) -> int:  # type: ignore[override]
        return len(self.plan.pair)

    def take(self, start: int, stop: int) -> Array:
        return self.made(self.places.at(start, stop))

    def made(self, positions: Array) -> Array:
        if self.angles == "exact":
            table = np.zeros((len(positions), self.columns))
            for rows, z in rotation_blocks(positions, self.frequencies, amplitude=self.amplitude):
                self.plan.table(z, table[rows])
        else:
            table = self.plan.table(self.turned(positions))
        if self.precision.name in ("float32", "float64"):
            return table
        return np.asarray(round_to(table, self.precision.name)).astype(np.float64)

    def turned(self, positions: Array) -> Complex:
        """Pairs [n, m] at these positions, in the arithmetic of the angles."""
        if self.angles == "exact":
            return rotations(positions, self.frequencies, amplitude=self.amplitude)
        w = np.array([float(f) for f in self.frequencies])
        name, kept, product = ARITHMETICS[self.angles]
        w = _as(w, name)
        p = _as(positions, name) if kept else positions
        angle = np.outer(p, w)
        return np.asarray(self.amplitude * np.exp(1j * (_as(angle, name) if product else angle)))

    def slack(self, start: int, stop: int) -> Array:
        """What two ways of computing float32 angles may differ by, entry by entry."""
        w = np.array([abs(float(f)) for f in self.frequencies])
        angle = np.outer(np.abs(self.places.at(start, stop)), w)[:, self.plan.pair]
        return np.asarray(ANGLE_STEPS * FLOAT32_STEP * self.amplitude * angle)

    @property
    def room(self) -> Extra:
        """The slack where angles are of float32."""
        return self.slack if self.angles == "float32" else 0.0


# How angles may have been computed: type, whether positions and whether the product are rounded to it.
ARITHMETICS = {
    "float32": ("float32", True, True),
    "bfloat16": ("bfloat16", True, True),
    "float16": ("float16", True, True),
    "bfloat16 product": ("bfloat16", False, True),
    "float16 product": ("float16", False, True),
    "bfloat16 frequencies": ("bfloat16", False, False),
    "float16 frequencies": ("float16", False, False),
    "bfloat16 positions and frequencies": ("bfloat16", True, False),
    "float16 positions and frequencies": ("float16", True, False),
}


def computed(turning: Turning, name: str) -> Turning:
    """The same with angles in this arithmetic, which rounds the frequencies too: they need not be rounded before."""
    if turning.law.get("frequency_dtype") != name.split()[0]:
        return replace(turning, angles=name)
    law = {key: value for key, value in turning.law.items() if key != "frequency_dtype"}
    return replace(turning, angles=name, law=law, frequencies=frequencies_of(law, len(turning.frequencies)))


def _as(values: Array, name: str) -> Array:
    return np.asarray(round_to(values, name)).astype(np.float64)


# -- frequencies --------------------------------------------------------------------------------------------------


def frequencies_of(law: Mapping[str, Any], pairs: int) -> Sequence[Any]:
    """The exact frequencies of a named law."""
    base, shift = float(law["base"]), law.get("shift") or 0
    if law.get("factors") is not None:
        plain = geometric(base, 2 * pairs)
        return [float(w) / float(f) for w, f in zip(plain, law["factors"], strict=True)]
    if law.get("scaling", "none") in ("none", "unknown"):
        exact = geometric(base, 2 * pairs, shift=float(shift), count=pairs)
        if law.get("frequency_dtype"):
            return list(_as(np.array([float(w) for w in exact]), law["frequency_dtype"]))
        return exact
    from pe_cli.encodings.rope.scaling import frequencies

    options = {name: law[name] for name in PARAMETERS if name in law and name != "attention_factor"}
    return frequencies(2 * pairs, base=base, scaling=law["scaling"], **options).inv_freq


def own_magnitude(law: Mapping[str, Any], pairs: int) -> float:
    """The amplitude that a scaling brings with it."""
    if law.get("scaling") == "longrope" or law.get("factors"):
        return float(law.get("attention_factor") or 1.0)
    if law.get("scaling", "none") in ("none", "unknown") or law.get("shift"):
        return 1.0
    from pe_cli.encodings.rope.scaling import frequencies

    options = {name: law[name] for name in PARAMETERS if name in law and name != "attention_factor"}
    try:
        return float(
            frequencies(
                2 * pairs, base=float(law["base"]), scaling=law["scaling"], **options
            ).attention_factor
        )
    except PeError:
        return 1.0


# -- rows ---------------------------------------------------------------------------------------------------------


def fitting_rows(turning: Turning, rows: Array, start: int) -> NDArray[np.bool_]:
    """Which of these rows the reading makes again, but for rounding."""
    made = turning.take(start, start + len(rows))
    extra = turning.slack(start, start + len(rows)) if turning.angles == "float32" else 0.0
    with np.errstate(invalid="ignore"):
        room = (
            2.4 * turning.precision.half_ulp(made)
            + 2e-7 * turning.amplitude * (turning.precision.unit > 1e-15)
            + extra
            + 1e-13
        )
        return np.asarray((np.abs(rows - made) <= room).all(axis=1))


def arithmetic_of(turning: Turning, rows: Array, start: int = 0) -> str | None:
    """The way of computing angles that makes most of these rows, where the exact one does not.

    A few rows refuse most ways before all of them are made.
    """
    best, most = None, FOLLOWED
    few = np.unique(np.linspace(0, len(rows) - 1, GLANCE).astype(np.intp))
    glanced = replace(turning, places=Places(listed=turning.places.at(start, start + len(rows))[few]))
    for name in ARITHMETICS:
        if name == "float32" and not float32_like(turning, rows, start):
            continue
        if fitting_rows(replace(glanced, angles=name), rows[few], 0).mean() < FOLLOWED / 2:
            continue
        share = float(fitting_rows(replace(turning, angles=name), rows, start).mean())
        if share > most:
            best, most = name, share
            if share > 0.999:
                break
    return best


def float32_like(turning: Turning, rows: Array, start: int) -> bool:
    """Whether the rows differ from exact ones as float32 angles do: by more the larger the angle, never by more than
    its roundings, and by more than the last bit somewhere."""
    if turning.precision.name != "float32":
        return False
    places = turning.places.at(start, start + len(rows))
    made = turning.made(places)
    w = np.array([abs(float(f)) for f in turning.frequencies])
    angle = np.abs(np.outer(places, w))[:, turning.plan.pair]
    apart = np.abs(rows - made)
    last_bit = 2.4 * turning.precision.half_ulp(made) + 1e-7 * turning.amplitude
    bound = last_bit + ANGLE_STEPS * FLOAT32_STEP * angle * turning.amplitude
    inside: NDArray[np.bool_] = np.asarray((apart <= bound).all(axis=1))
    beyond: NDArray[np.bool_] = np.asarray((apart > 2 * last_bit).any(axis=1))
    return bool(inside.mean() > 0.75 and beyond[inside].sum() >= 1)


def positions_of(turning: Turning, table: Array, start: int) -> tuple[Array, NDArray[np.bool_]]:
    """The position of each row by its angles, and which rows have one: all pairs agree."""
    expected = turning.places.at(start, start + len(table))
    w = np.array([float(f) for f in turning.frequencies])
    parts = turning.plan.parts_of(table)
    z = parts[0] + 1j * parts[1]
    with np.errstate(invalid="ignore"):
        near_one = 6 * turning.precision.unit + 1e-6
        right = np.asarray(np.abs(np.abs(z) - turning.amplitude) <= near_one * turning.amplitude)
        theta = np.angle(z * np.exp(-1j * np.outer(expected, w)))
    live = np.flatnonzero(w > 1e-9)
    order = live[np.argsort(w[live])]
    away = np.zeros(len(table))
    for i in order:
        away = away + wrapped(theta[:, i] - away * w[i]) / w[i]
    rest = wrapped(theta - away[:, None] * w)
    worst = np.max(np.abs(rest[:, live]), axis=1, where=~np.isnan(rest[:, live]), initial=0.0)
    agree = worst < max(AGREES / 4, 12 * turning.precision.unit)
    position = expected + away
    near = np.rint(position)
    whole = np.abs(position - near) < max(WHOLE, 6 * turning.precision.unit / float(w.max()))
    return np.where(whole, near, position), np.asarray(right.all(axis=1) & agree)


# -- positions ----------------------------------------------------------------------------------------------------


def place_changes(
    a: Places, b: Places, rows: int
) -> list[tuple[str, dict[str, Any], dict[str, Any], dict[str, Any], Places]]:
    """The first position, and what does not simply count up."""
    found: list[tuple[str, dict[str, Any], dict[str, Any], dict[str, Any], Places]] = []
    if (
        a.rule is None
        and b.rule is None
        and a.listed is b.listed
        and (a.start, a.stride) == (b.start, b.stride)
    ):
        return found
    p, q = a.at(0, rows), b.at(0, rows)
    if np.abs(p - q).max(initial=0.0) < 1e-6:
        return found
    state = a
    if "other" in (a.rule, b.rule):  # positions of which each is its own begin nowhere
        return [_rule_change(a, b, rows)]
    if (abs(a.start - b.start) > 1e-6 and a.rule in (None, b.rule)) or (
        (a.rule is None) != (b.rule is None) and abs(a.start - b.start) > 1e-6
    ):
        new = replace(state, start=b.start)
        found.append(("offset", {"start": a.start}, {"start": b.start}, {"rows": b.start - a.start}, new))
        state = new
    if abs(state.stride - b.stride) > 1e-9 and a.rule is None and b.rule is None:
        facts = {"rule": "stride"} | _where(state, b, rows)
        found.append(("positions", {"stride": state.stride}, {"stride": b.stride}, facts, b))
        return found
    if (state.rule, state.last, state.restarts) == (b.rule, b.last, b.restarts) and state.listed is b.listed:
        return found
    if state.rule is not None and b.rule is not None:
        plain = Places(state.start, state.stride)
        found.append(_rule_change(state, plain, rows))
        state = plain
    found.append(_rule_change(state, b, rows))
    return found


def _rule_change(
    a: Places, b: Places, rows: int
) -> tuple[str, dict[str, Any], dict[str, Any], dict[str, Any], Places]:
    one = a if a.rule is not None else b
    if one.rule == "permutation":
        order = one.at(0, rows)
        facts: dict[str, Any] = {
            "of": "rows",
            "moved": int(np.count_nonzero(order != Places(one.start, one.stride).at(0, rows))),
        }
        facts["order"] = [int(p) for p in order[:LISTED]]
        return "permutation", {}, {}, facts, b
    facts = {"rule": one.rule} | _where(a, b, rows)
    if one.rule == "restart":
        facts["restarts"] = list(one.restarts)
    if one.rule == "clamp":
        facts["last"] = one.last
    sides = [{"positions": place.rule or "count up"} for place in (a, b)]
    return "positions", sides[0], sides[1], facts, b


def _where(a: Places, b: Places, rows: int) -> dict[str, Any]:
    apart = np.flatnonzero(np.abs(a.at(0, rows) - b.at(0, rows)) > 1e-6)
    return {"first": int(apart[0]), "last": int(apart[-1]), "count": len(apart)} if len(apart) else {}


def named_rule(positions: Array, counted: Array) -> tuple[str | None, int | None, tuple[int, ...]]:
    """The rule that makes these positions of those that count up: rounded, wrapped, clamped, or begun again."""
    for rule in ROUNDED:
        if np.array_equal(in_type(counted, rule), positions) and not np.array_equal(positions, counted):
            return rule, None, ()
    step = np.diff(positions)
    stride = counted[1] - counted[0] if len(counted) > 1 else 1.0
    stopped = np.flatnonzero(step == 0)
    if len(stopped) and np.array_equal(stopped, np.arange(stopped[0], len(step))):
        head = positions[: stopped[0] + 1]
        if np.array_equal(head, counted[: len(head)]):
            return "clamp", int(stopped[0]), ()
    breaks = np.flatnonzero(np.abs(step - stride) > 1e-6) + 1
    if len(breaks) and (positions[breaks] == positions[0]).all() and len(breaks) <= len(positions) / 2:
        return "restart", None, tuple(int(r) for r in breaks)
    return None, None, ()
