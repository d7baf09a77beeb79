"""Sinusoidal and rotary tables: from angles to a name, a base, a scaling and positions, then regenerated.

A hypothesis is believed when the project's own functions make the same table from it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pe_cli.errors import PeError
from pe_cli.inspect.laws import (
    ROUND_DIGITS,
    USUAL_BASE,
    digits_of,
    is_round,
    rope_laws,
    roundest,
    sinusoid_laws,
    variants,
    written,
)
from pe_cli.inspect.regenerate import (
    FARTHEST,
    NEARLY,
    WaveFit,
    comes_again,
    place_rows,
    places_of_first,
    resembles,
)
from pe_cli.inspect.result import FLOAT32_STEP, Array, Law, Match, Precision, Solution, tidy
from pe_cli.inspect.rotation import Rotation
from pe_cli.numerics.kernels import geometric, rotations


def rope_frequencies(
    dim: int, base: float, scaling: str = "none", **options: Any
) -> tuple[Sequence[Decimal], float]:
    """The exact frequencies [dim / 2] of `pe gen rope` and the magnitude A that its scaling asks for."""
    if scaling == "none" and not options:
        return geometric(base, dim), 1.0
    from pe_cli.encodings.rope.scaling import frequencies

    if scaling == "yarn" and not options.get("truncate", True):
        options = options | {"truncate": False}
    still = options.pop("padded_pairs", 0)
    made = frequencies(dim - 2 * still, base=base, scaling=scaling, **options)
    return (*made.inv_freq, *[Decimal(0)] * still), made.attention_factor


def usable_pairs(found: Rotation) -> int:
    """How many of the first pairs turn measurably; slower ones say nothing."""
    clear = np.abs(found.step) > 5 * found.error
    clear &= ~np.isnan(found.step)
    dead = np.flatnonzero(~clear)
    return int(dead[0]) if len(dead) else len(found.step)


MOST_ROWS = 2048  # of the run that hypotheses are tried on
MOST_TRIED = 6


def solve(
    cos: Array, sin: Array, found: Rotation, precision: Precision, width: int, *, sinusoid: bool, rope: bool
) -> Iterator[Solution]:
    """Hypotheses that reproduce all rows but a few, most likely first."""
    solved = _solved_run(cos, sin, found, precision, width, sinusoid=sinusoid, rope=rope)
    told: set[str] = set()
    for one in solved[:MOST_TRIED]:
        whole = None if one.law.scaling in told else over_all_rows(one, cos, sin, found, precision)
        if whole is not None:
            told.add(one.law.scaling)
            yield whole


def _chosen(found: Rotation) -> NDArray[np.intp]:
    """Rows over the whole length of the run, by their number in it."""
    return np.unique(np.linspace(0, len(found.place) - 1, MOST_ROWS).astype(np.intp))


def over_all_rows(
    one: Solution, cos: Array, sin: Array, found: Rotation, precision: Precision
) -> Solution | None:
    """The hypothesis with the positions of all rows, or None where it does not give more than half of them."""
    formula = WaveFit(cos, sin, one.frequencies, one.amplitude, precision)
    chosen = _chosen(found)
    if not formula.fit(found.rows.start + chosen, one.positions):
        return None
    numbers = np.arange(len(cos))
    counted = numbers if found.numbers is None else found.numbers
    if found.even:
        unit = (
            one.stride / max(1.0, float(found.place[chosen[1]] - found.place[chosen[0]]))
            if len(chosen) > 1
            else 1.0
        )
        line = one.positions[0] + unit * (counted - counted[found.rows.start])
    else:
        line = np.full(len(cos), one.positions[-1])
        line[found.rows.start + chosen] = one.positions
    both = not (np.isnan(cos).all() or np.isnan(sin).all())
    decodes = formula.decode if both else None
    table = np.concatenate([cos, sin], axis=1)
    placed = place_rows(line, formula.good, decodes, table)
    if placed is None:
        return None
    if not formula.exact and (placed.strangers or not found.even or placed.rule is not None):
        # rows far from 0 tell the last bits of the frequencies, which the run did not
        positions = placed.positions.copy()
        lost = np.array(placed.strangers, dtype=np.intp)
        positions[lost] = formula.decode(lost, line[lost]) if both and len(lost) else np.nan
        seen = np.flatnonzero(~np.isnan(positions))
        formula.fit(seen, positions[seen])
        again = place_rows(line, formula.good, decodes, table)
        if again is not None and len(again.strangers) <= len(placed.strangers):
            placed = again
        else:
            formula.fit(found.rows.start + chosen, one.positions)
    known = np.delete(numbers, placed.strangers)
    match = formula.match(known, placed.positions[known])
    steps = np.diff(placed.positions[known])
    even = len(steps) == 0 or bool(np.all(steps == steps[0])) or (found.even and placed.rule is None)
    return replace(
        one,
        positions=placed.positions,
        match=match,
        even=even,
        rule=placed.rule,
        strangers=placed.strangers,
        line=line if found.even else None,
    )


def _solved_run(
    cos: Array, sin: Array, found: Rotation, precision: Precision, width: int, *, sinusoid: bool, rope: bool
) -> list[Solution]:
    """Hypotheses that reproduce the run of rows from which the steps were taken, most likely first."""
    chosen = _chosen(found)
    cos, sin = cos[found.rows][chosen], sin[found.rows][chosen]
    found = replace(found, place=found.place[chosen])
    solved = list(_attempt(cos, sin, found, precision, width, sinusoid=sinusoid, rope=rope))
    if not solved or 0 < abs(solved[0].start - round(solved[0].start)) < NEARLY:
        for sharper in _by_distance_from_zero(found, precision, width, sinusoid=sinusoid, rope=rope):
            better = list(_attempt(cos, sin, sharper, precision, width, sinusoid=sinusoid, rope=rope))
            if better:
                solved = better
                break
    for one in solved:
        one.likelihood = next(k for k, other in enumerate(solved) if other.kind == one.kind)
    for kind in {one.kind: None for one in solved}:
        alike = [one for one in solved if one.kind == kind]
        law = alike[0].law
        if law.base == USUAL_BASE and not float(law.unit).is_integer():
            continue  # of the two, the step is not known to the last bit
        if not any(one.match.exact for one in alike):
            sharper_base = polished(alike[0], cos, sin, precision)
            if sharper_base is not None:
                solved.append(sharper_base)
    # two bases can both look round until every entry has been looked at
    plainly = any(
        not one.shift and one.match.exact and digits_of(one.law.base) <= ROUND_DIGITS for one in solved
    )
    for one in solved:
        if one.shift and one.match.exact and not plainly and is_round(one.law):
            one.likelihood = -1
    # a frequency shift is another way to say the same, so that the last bits do not choose it
    exact_in = {one.law.scaling for one in solved if one.match.exact}
    return sorted(
        solved, key=lambda one: (one.law.scaling not in exact_in, one.likelihood, not one.match.exact)
    )


ENTRIES = 1 << 19  # that a base is fitted to
SMALL = 1e-7


def polished(one: Solution, cos: Array, sin: Array, precision: Precision) -> Solution | None:
    """The same hypothesis with the base that puts every entry within half an ulp, or None where there is none.

    Each entry bounds the base from both sides; of what all of them allow, the roundest number is taken.
    """
    rows = slice(None, None, max(1, cos.size // ENTRIES))
    law, positions = one.law, one.positions[rows]
    for turn_of in range(3):
        try:
            w, v = (
                np.array([float(f) for f in _frequencies(by, one.shift, one.dim, len(one.frequencies))[0]])
                for by in (law, replace(law, base=law.base * (1 + SMALL)))
            )
        except PeError:
            return None
        turn = np.outer(positions, (v - w) / SMALL)
        z = rotations(positions, w, amplitude=one.amplitude)
        low, high = -1e-2, 1e-2
        if turn_of < 2:  # least squares first: the bounds hold for small changes only
            slopes, rests = [-z.imag * turn, z.real * turn], [cos[rows] - z.real, sin[rows] - z.imag]
            power = sum(
                float(np.sum(slope**2, where=~np.isnan(rest)))
                for slope, rest in zip(slopes, rests, strict=True)
            )
            change = sum(float(np.nansum(slope * rest)) for slope, rest in zip(slopes, rests, strict=True))
            if power > 0:
                law = replace(law, base=law.base * (1 + float(np.clip(change / power, low, high))))
            continue
        for part, model, slope in ((cos[rows], z.real, -z.imag * turn), (sin[rows], z.imag, z.real * turn)):
            telling = (np.abs(slope) > 1e-6) & ~np.isnan(part)
            if not telling.any():
                continue
            rest, by = (part - model)[telling], slope[telling]
            room = precision.half_ulp(part[telling]) / np.abs(by)
            middle = rest / by
            low, high = max(low, float((middle - room).max())), min(high, float((middle + room).min()))
        law = replace(law, base=law.base * (1 + 0.5 * (low + high)))
    spread = 0.5 * abs(high - low) * law.base
    law = replace(law, base=roundest(law.base, spread) if high > low else law.base)
    try:
        frequencies, _ = _frequencies(law, one.shift, one.dim, len(one.frequencies))
    except PeError:
        return None
    match = matched(cos, sin, one.positions, frequencies, one.amplitude, precision)
    exact = match is not None and match.exact
    return replace(one, law=law, frequencies=frequencies, match=match) if match and exact else None


def matched(
    cos: Array,
    sin: Array,
    positions: Array,
    frequencies: Sequence[Any],
    amplitude: float,
    precision: Precision,
) -> Match | None:
    """How well the rows are made again, where they are."""
    if not resembles(cos, sin, positions, frequencies, amplitude, precision):
        return None
    formula = WaveFit(cos, sin, frequencies, amplitude, precision)
    rows = np.arange(len(cos))
    reproduced = formula.fit(rows, positions)
    return replace(formula.match(rows, positions), reproduced=reproduced)


def _attempt(
    cos: Array, sin: Array, found: Rotation, precision: Precision, width: int, *, sinusoid: bool, rope: bool
) -> Iterator[Solution]:
    sign = float(np.sign(found.step[0]))
    done: dict[tuple[Any, ...], Solution] = {}
    for law, shift, dim in _hypotheses(found, width, precision.unit, sinusoid=sinusoid, rope=rope):
        kind = law.scaling, shift or 0.0, dim
        same = done.get(kind)
        if same is not None and same.match.exact and digits_of(same.law.base) <= ROUND_DIGITS:
            if same.shift != shift:
                yield replace(same, shift=shift)
            continue
        try:
            frequencies, own = _frequencies(law, shift, dim, len(found.step))
        except PeError:
            continue
        amplitude = magnitude(found.amplitude, own, precision)
        matches: list[tuple[Match, Array]] = []
        for positions in _positions(found, law.unit * sign, frequencies):
            match = matched(cos, sin, positions, frequencies, amplitude, precision)
            if match is None or not _believed(match, float(positions[0]), found, frequencies):
                continue
            matches.append((match, positions))
            if _sure(match) and written(float(positions[0])) and abs(positions[0]) < FRACTIONS_UP_TO:
                break  # float32 angles that are made less well may be those of other positions
        if matches:
            match, positions = min(matches, key=_doubt)
            first = float(positions[0])
            rivals = [p[0] for m, p in matches if abs(p[0] - first) > 1 and m.ulps < 2 * match.ulps]
            others = [f"start {tidy(rival)}" for rival in rivals if written(rival) or not written(first)]
            again = None if written(first) else _period(found, frequencies)
            if again is not None:
                others.append(
                    f"start {tidy(first)} or {tidy(again)} positions from it, where all angles come again"
                )
            one = Solution(law, width, shift, positions, amplitude, match, frequencies, found.even, dim)
            if others and not (written(first) and abs(first) < FRACTIONS_UP_TO):
                one.other_starts = tuple(others)
            done.setdefault(kind, one)
            yield one


SURE = 2.0  # ulps
FRACTIONS_UP_TO = 256.0
LEAST_CHANCE = 1e-6


def _sure(match: Match) -> bool:
    return match.exact or match.ulps < SURE


def _doubt(one: tuple[Match, Array]) -> tuple[bool, bool, bool, float]:
    """The simplest position that makes the rows comes first."""
    match, first = one[0], float(one[1][0])
    return not _sure(match), not first.is_integer(), not written(first), match.ulps


def _period(found: Rotation, frequencies: Sequence[Any], first: float = 0.0) -> float | None:
    """After how many positions all angles come again, to within their errors as float32 computes them at `first`."""
    _, angular, noise = _first_angles(found, frequencies)
    return comes_again(angular, noise + FLOAT32_STEP * abs(first) * angular) if len(angular) else None


def _believed(match: Match, first: float, found: Rotation, frequencies: Sequence[Any]) -> bool:
    """Whether rows are at these positions: far from 0, the rounding of float32 angles leaves room for some position that
    makes almost any rows."""
    if _sure(match) or abs(first) < FRACTIONS_UP_TO:
        return True
    if not first.is_integer() or _period(found, frequencies, first) is not None:
        return False
    # the base and the step were fitted to two of the pairs: the others say which whole number it is
    window = match.max_abs / (np.pi * found.amplitude)
    return 2 * abs(first) * window ** (usable_pairs(found) - 2) < LEAST_CHANCE


def _by_distance_from_zero(
    found: Rotation, precision: Precision, width: int, *, sinusoid: bool, rope: bool
) -> Iterator[Rotation]:
    """Sharper steps for rows far from position 0: the first angle is the step times a known position."""
    sign, begun = float(np.sign(found.step[0])), 0.0
    for law, shift, dim in _hypotheses(found, width, precision.unit, sinusoid=sinusoid, rope=rope):
        try:
            frequencies, _ = _frequencies(law, shift, dim, len(found.step))
        except PeError:
            continue
        for positions in _positions(found, law.unit * sign, frequencies):
            start = float(positions[0])
            if abs(start) < 8 * abs(law.unit):
                return None
            angular = np.array([float(w) for w in frequencies])
            rest = np.angle(np.exp(1j * (found.first - start * angular)))
            step = (angular + rest / start) * law.unit * sign
            if abs(start - begun) < 1e-3:
                continue
            begun = start
            yield replace(found, step=step, error=np.abs(found.first_error / start * law.unit))


def solve_with(
    cos: Array, sin: Array, found: Rotation, precision: Precision, law: Law, frequencies: Sequence[float]
) -> Iterator[Solution]:
    """The table with measured frequencies, whatever their rule."""
    amplitude = magnitude(found.amplitude, 1.0, precision)
    chosen = _chosen(found)
    run = replace(found, place=found.place[chosen])
    c, s = cos[found.rows][chosen], sin[found.rows][chosen]
    for positions in _positions(run, law.unit, frequencies):
        match = matched(c, s, positions, frequencies, amplitude, precision)
        if match is not None and _believed(match, float(positions[0]), found, frequencies):
            one = Solution(
                law, 2 * len(frequencies), None, positions, amplitude, match, frequencies, found.even
            )
            whole = over_all_rows(one, cos, sin, found, precision)
            if whole is not None:
                yield whole
                return


def _hypotheses(
    found: Rotation, width: int, unit: float, *, sinusoid: bool, rope: bool
) -> Iterator[tuple[Law, float | None, int]]:
    clear, pairs = usable_pairs(found), len(found.step)
    if clear < 1:
        return
    step, error = np.sign(found.step[0]) * found.step[:clear], found.error[:clear]
    plain = sinusoid_laws(step, error, width) if sinusoid else []
    # a fraction of a position from row to row is rather a linear scaling, where the layout allows it
    late = rope and bool(plain) and not plain[0][0].unit.is_integer()
    for law, dim, shift in [] if late else plain:
        for variant in variants(law):
            yield variant, shift, dim
    if rope:
        amplitude = found.amplitude, found.amplitude * unit / 8
        for law in rope_laws(step, error, pairs, amplitude):
            for variant in variants(law):
                yield variant, None, 2 * pairs
    for law, dim, shift in plain if late else []:
        yield law, shift, dim


def _frequencies(law: Law, shift: float | None, dim: int, pairs: int) -> tuple[Sequence[Any], float]:
    if shift is not None:
        return geometric(law.base, dim, shift=shift, count=pairs), 1.0
    return rope_frequencies(dim, law.base, law.scaling, **law.parameters)


def magnitude(measured: float, own: float, precision: Precision) -> float:
    """The magnitude that a scaling brings, where it is the one measured; else a round number near it."""
    error = max(precision.unit * 0.25, 2e-7) * measured
    for known in (own, 1.0):
        if abs(measured - known) <= 4 * error:
            return known
    return roundest(measured, error / 8)


def _positions(found: Rotation, unit: float, frequencies: Sequence[Any]) -> Iterator[Array]:
    """Positions of the rows of the run: the first one decoded from its angles, rounded where whole numbers fit."""
    if not abs(unit) < FARTHEST:
        return
    angles, angular, noise = _first_angles(found, frequencies)
    error = 6 * float((noise / angular).min()) if len(angular) else 0.0
    for first in places_of_first(angles, angular, noise) if len(angular) else ():
        if abs(first) > FARTHEST or _by_chance(first, angular, noise):
            continue
        told: list[float] = []
        for tried in (_rounded(first, unit), roundest(first, error), first):
            if all(abs(tried - one) > SAME_PLACE for one in told):
                told.append(tried)
                line = tried + found.place * unit
                whole = np.rint(line)
                if not found.even and np.abs(line - whole).max() < NEARLY and np.any(line != whole):
                    yield whole
                yield line


SAME_PLACE = 1e-9


def _first_angles(found: Rotation, frequencies: Sequence[Any]) -> tuple[Array, Array, Array]:
    """The angles of the first row, the frequencies and the errors, of the pairs that turn and are there."""
    angular = np.array([float(w) for w in frequencies])
    live = (angular > 0) & ~np.isnan(found.first)
    return found.first[live], angular[live], np.maximum(found.first_error[live], 1e-7)


MOST_CHANCE = 1e-3


def _by_chance(first: float, angular: Array, noise: Array) -> bool:
    """Whether some position up to this one is likely to give any angles at all to within their errors."""
    if abs(first) < 1:
        return False
    window = np.minimum(6 * noise, np.pi) / np.pi
    places = abs(first) * float((angular / (6 * noise)).max())
    return bool(np.log(places) + np.log(window).sum() > np.log(MOST_CHANCE))


def _rounded(first: float, unit: float) -> float:
    """A whole number, or a multiple of the step, near the first position."""
    if abs(first - round(first)) < NEARLY:
        return float(round(first))
    multiple = round(first / unit) * unit
    return multiple if abs(first - multiple) < 0.02 * abs(unit) else first


def layout_reading(
    solved: Solution, style: str | None, layout: str | None, hint: str | None
) -> tuple[str, list[str]]:
    """Whether a table that both families write is called sinusoidal or rope, and what else it may be."""
    if style and not layout:
        return "sinusoidal", []
    if layout and not style:
        return "rope", []
    rotary = solved.shift is None or solved.amplitude != 1 or hint == "rope"
    # caches of rotary embeddings begin with the cosines, position tables with the sines; 10000 is usual in both
    if hint is None and layout == "cos-sin":
        rotary |= solved.law.base != USUAL_BASE
    if rotary and hint != "sinusoidal":
        return "rope", [f"sinusoidal style {style}"] if solved.law.scaling == "none" else []
    return "sinusoidal", [f"rope layout {layout}"]
