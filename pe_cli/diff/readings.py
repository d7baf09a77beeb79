"""A table read as pairs that turn with the position.

The reading needs no name of a layout: two columns are a pair where the sum of their squares is the same in every row.
Their angles give frequencies and positions; what is called cosine and what sine, and with which sign, follows from
the position that all pairs agree on. `identify` names the law of the frequencies.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pe_cli.diff.operands import Array, Operand, Rows, spread
from pe_cli.diff.turning import (
    AGREES,
    COS,
    PARAMETERS,
    SIN,
    WHOLE,
    ZERO,
    ColumnPlan,
    Complex,
    Places,
    Turning,
    arithmetic_of,
    computed,
    fitting_rows,
    frequencies_of,
    own_magnitude,
)
from pe_cli.errors import PeError
from pe_cli.inspect.laws import roundest
from pe_cli.inspect.regenerate import wrapped
from pe_cli.inspect.result import Precision
from pe_cli.inspect.tables import identify_component, identify_table
from pe_cli.numerics.kernels import geometric

READ = 1 << 18  # numbers of a table that its reading looks at
NAMED_BY = 512  # rows that tell the law of the frequencies
QUARTER = np.pi / 2
FEWEST_ROWS = 3
LEAST_ROWS = 0.4  # of the rows at least have to be those of pairs that turn
GLANCE = 64  # rows and pairs that refuse a pairing
TURNS = 400  # of the slowest pair, up to which the first position is looked for


def pairings(width: int) -> Iterator[tuple[str, Rows, Rows]]:
    """The columns that may be pairs: side by side, or a half of the width apart."""
    even = width - width % 2
    columns = np.arange(even)
    if even:
        yield "halves", columns[: even // 2], columns[even // 2 :]
        yield "interleaved", columns[::2], columns[1::2]
    if width % 4 == 0 and width > 4:
        quarters = columns.reshape(4, -1)
        yield "quarters", quarters[[0, 2]].reshape(-1), quarters[[1, 3]].reshape(-1)
        if width % 8 == 0:
            yield "halves, each twice", columns[: even // 2 : 2], columns[even // 2 :: 2]


def once(table: Array) -> tuple[str, Rows]:
    """How cosines alone, or sines alone, repeat each value, and the pair that each column holds."""
    width = table.shape[1]
    half = width // 2
    if width % 2 == 0 and width >= 2:
        if np.array_equal(table[:, :half], table[:, half:]):
            return "half", np.arange(width) % half
        if np.array_equal(table[:, 0::2], table[:, 1::2]):
            return "adjacent", np.arange(width) // 2
    return "split", np.arange(width)


def read(table: Operand, other: Operand | None = None, sines: bool = False) -> Turning | None:
    """What a table is as turning pairs, or None. `other` holds the sines of cosines alone, or their cosines."""
    rows = min(table.rows, max(NAMED_BY, READ // max(1, table.columns)))
    head = table.take(0, rows)
    if other is not None:
        return _read_two(table, head, other.take(0, rows), sines)
    width = table.columns
    zeros = np.flatnonzero(~np.any(head, axis=0)) if width % 2 else np.zeros(0, np.intp)
    for name, first, second in pairings(width):
        if width % 2 and not (len(zeros) == 1 and zeros[0] == width - 1):
            return None
        if name == "halves, each twice" and once(head[:, : width // 2])[0] != "adjacent":
            continue
        some, pairs = (spread(n, GLANCE) for n in (len(head), len(first)))
        x, y = (head[some[:, None], one[pairs]] for one in (first, second))
        if _on_circle(x + 1j * y, table.precision.unit).mean() < 0.5 * LEAST_ROWS:
            continue  # as a few rows and pairs tell
        found = _read_pairs(head[:, first] + 1j * head[:, second], table)
        if found is None:
            continue
        turning, quarter, sign = found
        cos_first = quarter % 2 == 0
        pair, part, signs = (np.zeros(width, dtype=np.intp) for _ in range(3))
        part[:] = ZERO
        x_sign = np.where((quarter == 1) | (quarter == 2), -1, 1)
        y_sign = np.where(cos_first, np.where(quarter == 0, sign, -sign), np.where(quarter == 1, sign, -sign))
        number = np.arange(len(first))
        for columns, is_cos, its_sign in ((first, cos_first, x_sign), (second, ~cos_first, y_sign)):
            pair[columns], part[columns], signs[columns] = number, np.where(is_cos, COS, SIN), its_sign
            if name == "halves, each twice":
                pair[columns + 1], part[columns + 1], signs[columns + 1] = (
                    number,
                    np.where(is_cos, COS, SIN),
                    its_sign,
                )
        plan = ColumnPlan(name, pair, part, signs.astype(np.float64))
        return _settled(replace(turning, plan=plan), head)
    return None


def _read_two(table: Operand, head: Array, other: Array, sines: bool) -> Turning | None:
    name, pair = once(head)
    _, pair_other = once(other)
    pairs = int(pair.max()) + 1
    if pairs != int(pair_other.max()) + 1:
        return None
    first = np.array([np.argmax(pair == i) for i in range(pairs)])
    second = np.array([np.argmax(pair_other == i) for i in range(pairs)])
    x, y = head[:, first], other[:, second]
    found = _read_pairs(y + 1j * x if sines else x + 1j * y, table)
    if found is None:
        return None
    turning, quarter, sign = found
    if sines:  # the imaginary part of what was read is this table
        part = np.where(quarter % 2 == 0, SIN, COS)
        signs = np.where(
            quarter % 2 == 0, np.where(quarter == 0, sign, -sign), np.where(quarter == 1, sign, -sign)
        )
    else:
        part = np.where(quarter % 2 == 0, COS, SIN)
        signs = np.where((quarter == 1) | (quarter == 2), -1, 1)
    plan = ColumnPlan(name, pair, part[pair], signs[pair].astype(np.float64))
    return _settled(replace(turning, plan=plan), head)


ORIGINAL_LENGTHS = (4096, 8192, 2048, 16384, 32768, 1024, 65536, 131072)
LLAMA3 = {"low_freq_factor": 1.0, "high_freq_factor": 4.0}


def named_like(turning: Turning, other: Mapping[str, Any], table: Operand) -> Turning | None:
    """Measured frequencies named by what the other table is: its base or a round one, its scaling or another. For
    tables too coarse to show a law by themselves; it must make their rows again."""
    pairs = len(turning.frequencies)
    w = np.array([float(f) for f in turning.frequencies])
    if (w <= 0).any() or w[0] > 1.01:
        return None
    rows = table.take(0, min(table.rows, NAMED_BY))
    best, most = None, 0.9
    for base in _bases(w, float(other["base"])):
        for law in _scalings(w, base, other):
            named = {"base": base} | law
            try:
                exact = frequencies_of(named, pairs)
            except PeError:
                continue
            if np.abs(np.array([float(f) for f in exact]) - w).max() > 0.05:
                continue
            amplitude = own_magnitude(named, pairs)
            if abs(amplitude - turning.amplitude) > 0.02 * amplitude:
                amplitude = turning.amplitude
            elif amplitude != 1:
                named["attention_factor"] = amplitude
            tried = replace(turning, frequencies=exact, law=named, amplitude=amplitude)
            share = float(fitting_rows(tried, rows, 0).mean())
            if share > most:
                best, most = tried, share
        if most == 1:
            break
    return best


def _bases(w: Array, known: float) -> list[float]:
    """The other table's base, and the round one that the faster pairs show."""
    fast = np.flatnonzero(w > 0.02)
    fast = fast[fast > 0]
    if not len(fast):
        return [known]
    shown = float(np.exp(np.median(-np.log(w[fast]) * len(w) / fast)))
    return list(dict.fromkeys([known, roundest(shown, 0.02 * shown), roundest(shown, 0.004 * shown)]))


def _scalings(w: Array, base: float, other: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    yield {"scaling": "none"}
    if other.get("scaling", "none") not in ("none", "unknown"):
        yield {
            name: other[name]
            for name in ("scaling", *PARAMETERS)
            if name in other and name != "attention_factor"
        }
    plain = np.array([float(f) for f in geometric(base, 2 * len(w), count=len(w))])
    ratio = plain / w
    factor = roundest(float(np.median(ratio[-max(1, len(w) // 8) :])), 0.02 * float(ratio[-1]))
    if not 1 < factor < 1000:
        return
    yield {"scaling": "linear", "factor": factor}
    for length in ORIGINAL_LENGTHS:
        yield {"scaling": "llama3", "factor": factor, "original_len": length, **LLAMA3}
        yield {"scaling": "yarn", "factor": factor, "original_len": length}


def read_alone(table: Operand) -> Turning | None:
    """Cosines alone or sines alone, without their other half: as `identify` reads them."""
    head = table.take(0, min(table.rows, NAMED_BY))
    kind = np.float64 if table.precision.name == "float64" else np.float32
    for rows in (len(head), len(head) // 4, 24):
        found = identify_component(head[:rows].astype(kind)) if 3 < rows <= len(head) else None
        if found is not None and found.facts.get("part") in ("cos", "sin") and "base" in found.facts:
            break
    else:
        return None
    facts = found.facts
    name, pair = once(head)
    law = law_of(facts)
    try:
        exact = frequencies_of(law, int(pair.max()) + 1)
    except (PeError, KeyError, ValueError, TypeError):
        return None
    part = np.full(len(pair), COS if facts["part"] == "cos" else SIN)
    amplitude = float(facts.get("attention_factor") or facts.get("amplitude") or 1.0)
    places = Places(float(facts.get("start") or 0.0), float(facts.get("stride") or 1.0))
    plan = ColumnPlan(name, pair, part, np.ones(len(pair)))
    return Turning(plan, exact, amplitude, places, table.rows, table.precision, "exact", law)


def law_of(facts: Mapping[str, Any]) -> dict[str, Any]:
    """What `identify` says of the frequencies."""
    names = ("base", "scaling", "shift", "frequency_dtype", *PARAMETERS)
    return {name: facts[name] for name in names if facts.get(name) is not None}


def _read_pairs(z: Complex, table: Operand) -> tuple[Turning, Rows, Rows] | None:
    """Frequencies and the first position of pairs; for each pair the quarter turns that it is ahead, and the sign of
    its direction."""
    with np.errstate(invalid="ignore"):
        power = z.real**2 + z.imag**2
    scale = float(np.nanmedian(power))
    unit = table.precision.unit
    good = _on_circle(z, unit)
    if good.sum() < max(FEWEST_ROWS, LEAST_ROWS * len(z)):
        return None
    run = _longest_run(z, good, scale, unit)
    if run is None:
        return None
    first, last = run
    amplitude = float(np.sqrt(power[first:last].mean()))
    turn = z[first:last] / np.sqrt(power[first:last])
    w = measured(turn)
    sign = np.where(w < 0, -1, 1)
    if (np.abs(w) * (last - first) < 4 * unit).any():
        slow = np.abs(w) * (last - first) < 4 * unit
        sign[slow] = 1 if sign[~slow].sum() >= 0 else -1
    w = np.abs(w)
    if w.max(initial=0) < 1e-7 or w.max() >= np.pi:
        return None
    theta = np.angle(np.where(sign < 0, turn[0].conj(), turn[0]))
    placed = _first_position(theta, w)
    if placed is None:
        return None
    start, quarter = placed
    rows = z[first:last]
    named = _law(_turned_back(np.where(sign < 0, rows.conj(), rows), quarter), table.precision)
    frequencies: Sequence[Any] = w.tolist()
    stride, law = 1.0, {"scaling": "unknown"}
    if named is not None:
        exact, start_named, stride_named, law = named
        measured_again = np.array([float(f) for f in exact]) * stride_named
        if np.allclose(measured_again, w, rtol=2e-3, atol=8 * unit / (last - first) + 1e-9):
            frequencies, start, stride = exact, start_named, stride_named
        else:
            law = {"scaling": "unknown"}
    if abs(start - round(start)) < WHOLE:
        start = float(round(start))
    amplitude = _round_amplitude(amplitude, unit, law)
    places = Places(start - stride * first, stride)
    plan = ColumnPlan("", np.zeros(0, np.intp), np.zeros(0, np.intp), np.zeros(0))
    turning = Turning(plan, frequencies, amplitude, places, table.rows, table.precision, "exact", law)
    return turning, quarter, sign


def _on_circle(z: Complex, unit: float) -> NDArray[np.bool_]:
    """The rows in which every pair has the size that most pairs have."""
    power = z.real**2 + z.imag**2
    scale = float(np.nanmedian(power))
    if not (np.isfinite(scale) and scale > 0):
        return np.zeros(len(z), np.bool_)
    return np.asarray((np.abs(power - scale) <= (10 * unit + 2e-6) * scale).all(axis=1))


def _longest_run(z: Complex, good: NDArray[np.bool_], scale: float, unit: float) -> tuple[int, int] | None:
    """The longest stretch of rows that turn by the same angle from one to the next."""
    step = z[1:] * z[:-1].conj() / scale
    moving = (np.abs(step - 1) > 12 * unit + 4e-6).any(axis=1)
    both = good[1:] & good[:-1] & moving
    candidates = np.flatnonzero(both)
    if not len(candidates):
        return None
    best: tuple[int, int] | None = None
    for reference in candidates[np.linspace(0, len(candidates) - 1, min(9, len(candidates))).astype(int)]:
        same = both & (np.abs(step - step[reference]) <= 12 * unit + 4e-6).all(axis=1)
        edges = np.flatnonzero(np.diff(np.concatenate([[False], same, [False]]).astype(np.int8))).reshape(
            -1, 2
        )
        first, last = edges[np.argmax(edges[:, 1] - edges[:, 0])]
        if best is None or last - first > best[1] - best[0] - 1:
            best = int(first), int(last) + 1
    return best if best is not None and best[1] - best[0] >= FEWEST_ROWS else None


def measured(turn: Complex) -> Array:
    """Radians a row of each pair, by ever longer steps."""
    w = np.angle((turn[1:] * turn[:-1].conj()).mean(axis=0))
    lag = 1
    while 2 * lag < len(turn):
        lag *= 2
        apart = (turn[lag:] * turn[:-lag].conj()).mean(axis=0) * np.exp(-1j * w * lag)
        w = w + np.angle(apart) / lag
    return np.asarray(w)


def _first_position(theta: Array, w: Array) -> tuple[float, Rows] | None:
    """The position at which all pairs agree, and by how many quarter turns each is ahead of its angle there."""
    live = np.flatnonzero(w > 1e-9)
    order = live[np.argsort(w[live])]
    quarter = np.zeros(len(w), dtype=np.intp)
    position = 0.0
    fits = True
    for i in order:
        ahead = theta[i] - position * w[i]
        q = round(ahead / QUARTER)
        rest = ahead - q * QUARTER
        if abs(rest) > 4 * AGREES:
            fits = False
            break
        quarter[i] = q % 4
        position += rest / w[i]
    rest = wrapped(theta - position * w - quarter * QUARTER)
    if fits and np.abs(rest[live]).max() < AGREES:
        slowest = quarter[order[0]]
        quarter[w <= 1e-9] = slowest
        return position, quarter
    best: tuple[float, float, int] | None = None
    for q in range(4):
        k = np.arange(-TURNS // 4, TURNS)
        place = (theta[order[0]] - q * QUARTER + 2 * np.pi * k) / w[order[0]]
        worst = np.zeros(len(k))
        for i in order:
            rests = wrapped(theta[i] - q * QUARTER - place * w[i])
            place = place + rests / w[i]
            if i != order[0]:
                worst = np.maximum(worst, np.abs(rests))
        near = np.flatnonzero(worst < 4 * AGREES)
        for n in near:
            rests = wrapped(theta - q * QUARTER - place[n] * w)
            worst_now = float(np.abs(rests[live]).max())
            if worst_now < AGREES / 4 and (best is None or abs(place[n]) < abs(best[1]) - 0.5):
                best = worst_now, float(place[n]), q
    return None if best is None else (best[1], np.full(len(w), best[2], dtype=np.intp))


def _turned_back(z: Complex, quarter: Rows) -> Complex:
    """Pairs turned back by quarters, which moves and negates numbers and rounds none."""
    back = np.empty_like(z)
    back.real = np.choose(quarter, [z.real, z.imag, -z.real, -z.imag])
    back.imag = np.choose(quarter, [z.imag, -z.real, -z.imag, z.real])
    return back


def _law(turned: Complex, precision: Precision) -> tuple[Sequence[Any], float, float, dict[str, Any]] | None:
    """Exact frequencies, first position, stride and the parameters, as `identify` names them."""
    few = turned[:NAMED_BY]
    kind = np.float64 if precision.name == "float64" else np.float32
    canonical = np.concatenate([few.real, few.imag], axis=1).astype(kind)
    found = identify_table(canonical, "rope")
    if found is None or found.encoding not in ("rope", "sinusoidal") or "base" not in found.facts:
        return None
    facts = found.facts
    start, stride = facts.get("start", 0.0), facts.get("stride") or 1.0
    if isinstance(start, list) or isinstance(stride, list) or isinstance(facts["base"], list):
        return None
    law = law_of(facts)
    try:
        exact = frequencies_of(law, turned.shape[1])
    except (PeError, KeyError, ValueError, TypeError):
        return None
    return exact, float(start), float(stride), law


def _round_amplitude(measured_amplitude: float, unit: float, law: Mapping[str, Any]) -> float:
    near = max(unit, 2e-7) * measured_amplitude
    named = law.get("attention_factor")
    if named is not None and abs(float(named) - measured_amplitude) < 4 * near:
        return float(named)
    return roundest(measured_amplitude, near)


def _settled(turning: Turning, head: Array) -> Turning:
    """The same with the positions of all rows and the arithmetic of the angles, as far as the rows tell."""
    fits = fitting_rows(turning, head, 0)
    if fits.all():
        return turning
    arithmetic = arithmetic_of(turning, head)
    return turning if arithmetic is None else computed(turning, arithmetic)
