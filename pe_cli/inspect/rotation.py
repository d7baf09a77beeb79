"""From cosines and sines to angles: the amplitude, the step of each pair from row to row, the first angle.

A table of a fixed encoding is z[r, i] = A exp(i p[r] w[i]). Nothing is assumed of w but that neighbours are
ordered by size; positions are found from the rows: evenly spaced, or, where they are not, decoded row by
row from the slow pairs to the fast ones.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from pe_cli.inspect.laws import as_rounded, rounded_geometric
from pe_cli.inspect.regenerate import ROUNDING, TURN, decode, phase_error, weights
from pe_cli.inspect.result import FLOAT32_STEP, Array, Law, Match, Precision, Solution, frequency_slack
from pe_cli.numerics.dtypes import round_to
from pe_cli.numerics.kernels import geometric, rotations

ROWS = 4096
ENTRIES = 1 << 18  # rows are read for as many numbers
GLANCE = 32
AVERAGING = 0.1


@dataclass
class Rotation:
    """What the rows say, in units of the first step: angle[r, i] = first[i] + place[r] * step[i]."""

    amplitude: float
    step: Array  # (m,) radians from the first row to the second, may exceed half a turn
    error: Array  # (m,) its standard error
    first: Array  # (m,) angle of the first row, in (-pi, pi]
    first_error: Array
    place: Array  # (n,) 0, 1, 2, ... where rows are evenly spaced
    even: bool
    rows: slice = field(default_factory=lambda: slice(None))  # the rows that were looked at
    numbers: NDArray[np.intp] | None = None  # of all rows in the whole table, where they are a choice


def constant_amplitude(cos: Array, sin: Array, precision: Precision) -> float | None:
    """A where c² + s² = A² in every pair that has both, within the stored precision; a quarter of the rows may be others."""
    step = len(cos) // GLANCE
    if step > 8 and constant_amplitude(cos[::step], sin[::step], precision) is None:
        return None
    both = ~np.isnan(cos[0]) & ~np.isnan(sin[0])
    if not both.any():
        return None
    if not both.all():
        cos, sin = cos[:, both], sin[:, both]
    rows = most_rows(cos.shape[1])
    c, s = cos[:rows], sin[:rows]
    square = c * c + s * s
    mean = float(np.median(square))
    if not mean > 0 or not np.isfinite(mean):
        return None
    amplitude = mean**0.5
    slack = 2 * (np.abs(c) * precision.half_ulp(c) + np.abs(s) * precision.half_ulp(s))
    slack = 3 * slack + 1e-6 * mean * (precision.unit < 1e-4) + 1e-15 * mean
    good = (np.abs(square - mean) <= slack + 4 * amplitude * precision.tiny).all(axis=1)
    if good.sum() < max(2, OTHERS * len(c)):
        return None
    c, square = c[good], square[good]
    # rounding errors cancel where a pair turns; a slow one repeats the same error in every row
    turning = c.std(axis=0) > 0.5 * amplitude
    return unless_one(float(np.sqrt(np.mean(square[:, turning] if turning.any() else square))), precision)


OTHERS = 0.75  # of the rows at least have to be rows of the table


def most_rows(pairs: int) -> int:
    return int(np.clip(ENTRIES // pairs, 256, ROWS))


def unless_one(value: float, precision: Precision) -> float:
    """1 where it is as near as the stored precision tells."""
    return 1.0 if abs(value - 1) < max(2e-4, precision.unit / 2) else value


def rotation(cos: Array, sin: Array, precision: Precision) -> Rotation | None:
    """The angles of a table [n, m] of cosines and sines, or None where it is no rotation by position.

    Columns that are absent (NaN) are left out: their step is NaN. At least two rows are needed.
    """
    if len(cos) < 2:
        return None
    amplitude = constant_amplitude(cos, sin, precision)
    if amplitude is None:
        return None
    whole = ~np.isnan(cos[0]) & ~np.isnan(sin[0])
    c, s = cos[:, whole], sin[:, whole]
    every = c.shape[1] // FEW_PAIRS
    if every >= 4 and rotation(c[:, ::every], s[:, ::every], precision) is None:
        return None  # what is no table is refused by some of its pairs
    if len(c) < 2 * ENOUGH and (found := _even(c, s, amplitude, precision, 0.0)) is not None:
        return _spread(replace(found, rows=slice(0, len(c))), np.asarray(whole))
    runs = _regular_rows(c, s, amplitude, precision)
    scattered = max((run.stop - run.start for run in runs), default=0) < min(ENOUGH, len(c))
    found = _uneven(c[:ROWS], s[:ROWS], amplitude, precision) if scattered else None
    if found is not None:
        return _spread(replace(found, rows=slice(0, len(found.place))), np.asarray(whole))
    for rows in runs:
        most = slice(rows.start, min(rows.stop, rows.start + most_rows(cos.shape[1])))
        for distance in DISTANCES:
            found = _even(c[most], s[most], amplitude, precision, distance)
            if found is not None:
                place = np.arange(rows.stop - rows.start, dtype=np.float64)
                return _spread(replace(found, rows=rows, place=place), np.asarray(whole))
    return None


DISTANCES = (0.0, 2.0**13, 2.0**16, 2.0**19)  # from position 0, which makes float32 angles coarse
FEW_PAIRS = 128
ENOUGH = 24  # rows in a regular run from which everything can be told
OTHER_POWER = 1e-4  # of a row's sum of squares, by which it is none of the table's
SEEN_BY = 8  # pairs by which a break in the positions is seen


def _regular_rows(c: Array, s: Array, amplitude: float, precision: Precision) -> list[slice]:
    """Runs of rows in which every pair turns on by one step: the first that is long enough, and the longest."""
    pairs = np.unique(np.linspace(0, c.shape[1] - 1, SEEN_BY).astype(int))
    z = (c[:, pairs] + 1j * s[:, pairs]) / amplitude
    if len(z) < 3:
        return [slice(0, len(z))]
    turned = z[1:] * z[:-1].conj()
    change = np.abs(np.angle(turned[1:] * turned[:-1].conj()))
    steps = np.abs(np.angle(turned))  # of a table whose positions stop, most are 0
    fastest = max(float(np.median(part, axis=0).max()) for part in (steps, steps[:ENOUGH]))
    noise = phase_error(c[:, pairs], s[:, pairs], amplitude, precision)
    room = 8 * (noise[:-2] + 2 * noise[1:-1] + noise[2:]) + min(0.05, 0.2 * fastest)
    power = np.einsum("rm,rm->r", c, c) + np.einsum("rm,rm->r", s, s)
    usual = np.abs(power - np.median(power)) <= (OTHER_POWER + 8 * precision.unit) * np.median(power)
    good = (change <= room).all(axis=1) & usual[:-2] & usual[1:-1] & usual[2:]
    regular = np.concatenate([[False], good, [False]])
    edges = np.flatnonzero(np.diff(regular.astype(np.int8))).reshape(-1, 2)
    if not len(edges):
        return []
    runs = [slice(int(first), int(last) + 2) for first, last in edges]
    longest = max(runs, key=lambda run: run.stop - run.start)
    early = next((run for run in runs if run.stop - run.start >= ENOUGH), longest)
    return [early] if early == longest else [early, longest]


def _spread(found: Rotation, whole: NDArray[np.bool_]) -> Rotation:
    def wide(values: Array) -> Array:
        out = np.full(len(whole), np.nan)
        out[whole] = values
        return out

    return replace(
        found,
        step=wide(found.step),
        error=wide(found.error),
        first=wide(found.first),
        first_error=wide(found.first_error),
    )


def _even(c: Array, s: Array, amplitude: float, precision: Precision, distance: float) -> Rotation | None:
    """Rows evenly spaced: one step per pair, refined over lags of 1, 2, 4, ... rows."""
    z = (c + 1j * s) / amplitude
    n = len(z)
    step = np.angle(np.einsum("ri,ri->i", z[1:], z[:-1].conj()))
    lag = 2
    while lag < n:
        turned = np.einsum("ri,ri->i", z[lag:], z[:-lag].conj()) * np.exp(-1j * lag * step)
        correction = np.angle(turned)
        if (np.abs(correction) > 1.2).any():
            return None
        step = step + correction / lag
        lag *= 2
    place = np.arange(n, dtype=np.float64)
    first = np.angle(z[0])
    travelled = np.outer(place + distance, np.abs(step))
    for _ in range(2):  # the second time with the angle error that the start brings
        first, step, first_error, error, noise = _line(
            c, s, amplitude, precision, place, first, step, travelled
        )
        step = unwrap_by_order(step)
        start, agree = decode(first[None], step, first_error[None])
        far = max(distance, abs(float(start[0])) if agree[0] else 0.0)
        travelled = np.abs(first) + np.outer(place + far, np.abs(step))
    rest = np.angle(z * np.exp(-1j * (first + np.outer(place, step))))
    slack = 8 * noise + 4 * frequency_slack(step) * travelled + 8 * FLOAT32_STEP
    slack = slack + 2 * FLOAT32_STEP * n + 1e-3 * (np.abs(step) > 0.05)
    if (np.abs(rest) > np.minimum(slack, 1.0)).any():
        return None
    return Rotation(amplitude, step, error, first, first_error, place, True)


def _line(
    c: Array,
    s: Array,
    amplitude: float,
    precision: Precision,
    place: Array,
    first: Array,
    step: Array,
    travelled: Array,
) -> tuple[Array, Array, Array, Array, Array]:
    """Weighted least squares of angle = first + place * step, for every pair at once.

    Returns first, step, their errors, and the error of single angles. Rows in which a pair shows the same
    numbers again bring no new rounding error, so they do not count as new observations.
    """
    changes = 1 + ((np.diff(s, axis=0) != 0) | (np.diff(c, axis=0) != 0)).sum(axis=0)
    repeats = np.sqrt(len(place) / changes)
    for _ in range(2):
        angle = first + np.outer(place, step)
        model_c, model_s = amplitude * np.cos(angle), amplitude * np.sin(angle)
        by_cos, by_sin = weights(model_c, model_s, amplitude, precision)
        told = by_cos + by_sin
        # along the circle, each part counts by how precisely it is stored
        least = 1e-12 * amplitude
        across = by_cos * (model_c - c) / np.where(np.abs(model_s) > least, model_s, np.inf)
        across += by_sin * (s - model_s) / np.where(np.abs(model_c) > least, model_c, np.inf)
        rest = np.clip(across / told, -1, 1)
        noise = ROUNDING / np.sqrt(told) + 1e-14
        weight = 1 / (noise**2 + (FLOAT32_STEP * travelled) ** 2 + 1e-24)
        w0, w1, w2 = weight.sum(0), place @ weight, (place**2) @ weight
        e0, e1 = (weight * rest).sum(0), place @ (weight * rest)
        determinant = np.maximum(w0 * w2 - w1**2, 1e-300)
        step = step + (w0 * e1 - w1 * e0) / determinant
        first = first + (w2 * e0 - w1 * e1) / determinant
    error = np.sqrt(w0 / determinant) * repeats
    # the rounding of a pair that hardly turns is no chance: it can lead from one end to the other
    slow = np.abs(step) * len(place) < 1.0
    error = np.where(slow, np.maximum(error, noise.mean(axis=0) / len(place)), error)
    first_error = np.sqrt(w2 / determinant) * repeats
    return np.angle(np.exp(1j * first)), step, first_error, error, noise


def unwrap_by_order(step: Array) -> Array:
    """Steps known only up to whole turns, put back in order: from the slowest pair up, each next one is
    where the ratio of the last few leads."""
    size = np.abs(step)
    same_sign = (step > -1e-12).all() or (step < 1e-12).all()
    if same_sign and (np.diff(size) <= 1e-3 * size[:-1] + 1e-9).all():
        return step
    out: Array = step.copy()
    m = len(step)
    live = np.flatnonzero(size > 1e-9)
    if len(live) < 3:
        return step
    sign = np.sign(np.median(step[live[-max(3, len(live) // 4) :]]))
    logs = np.full(m, np.nan)
    for i in live[::-1]:
        known = np.flatnonzero(~np.isnan(logs))[:6]
        if len(known) >= 2:
            _, level = np.polyfit(known - i, logs[known], 1)
            out[i] = step[i] + TURN * np.round((sign * np.exp(level) - step[i]) / TURN)
        if out[i] * sign <= 0:
            return step
        logs[i] = np.log(out[i] * sign)
    return out


def _uneven(c: Array, s: Array, amplitude: float, precision: Precision) -> Rotation | None:
    """Rows at any positions: the first two give the steps, each further row is decoded with them and
    then makes them more exact."""
    z = (c + 1j * s) / amplitude
    moved = np.flatnonzero(np.abs(z - z[0]).max(axis=1) > 1e-3)
    if not len(moved):
        return None
    if len(moved) > 2 * GLANCE:  # a few rows refuse what is no table of positions
        few = np.r_[0, moved[:GLANCE]]
        if _uneven(c[few], s[few], amplitude, precision) is None:
            return None
    noise = phase_error(c, s, amplitude, precision)
    turned = z * z[0].conj()
    second = moved[0]
    step = unwrap_by_order(np.angle(turned[second]))
    error = np.hypot(noise[0], noise[second])
    place = np.zeros(len(z))
    place[second] = 1.0
    known = [second]
    angles = np.angle(turned)
    todo = moved[1:]
    while len(todo):
        rows, todo = todo[: len(known)], todo[len(known) :]
        doubt = np.abs(error) * max(1.0, float(np.abs(place).max())) + noise[rows]
        found, agree = decode(angles[rows], step, doubt)
        if not agree.all():
            return None
        whole = np.round(found)
        place[rows] = np.where(np.abs(found - whole) < 0.02, whole, found)
        known.extend(rows)
        step, error = _refined(angles, place, step, noise, np.array(known))
    rest = np.angle(turned * np.exp(-1j * np.outer(place, step)))
    slack = 8 * noise + 8 * frequency_slack(step) * np.outer(np.abs(place), np.abs(step)) + 1e-4
    if (np.abs(rest) > np.minimum(slack + 0.02, 0.5)).any():
        return None
    return Rotation(amplitude, step, error, np.angle(z[0]), noise[0], place, False)


def _refined(
    angles: Array, place: Array, step: Array, noise: Array, known: NDArray[np.intp]
) -> tuple[Array, Array]:
    p = place[known][:, None]
    rest = np.angle(np.exp(1j * (angles[known] - p * step)))
    weight = 1 / (noise[known] ** 2 + noise[0] ** 2 + (FLOAT32_STEP * np.abs(p * step)) ** 2 + 1e-24)
    precision = (weight * p**2).sum(0)
    best = (noise[known] / np.maximum(np.abs(p), 1e-9)).min(axis=0)
    return step + (weight * p * rest).sum(0) / precision, np.maximum(1 / np.sqrt(precision), AVERAGING * best)


def rotation_of_component(component: Array, precision: Precision) -> Rotation | None:
    """Steps and first angles from cosines alone or sines alone [n, m], evenly spaced, of amplitude 1 or A.

    x[r+1] + x[r-1] = 2 cos(step) x[r] gives the step; the first angle is that of the best sum of cosine and
    sine, in the convention of the cosine.
    """
    if component.shape[1] > 2 * SEEN_BY:  # a few columns refuse what is no table of cosines
        few = component[:, np.linspace(0, component.shape[1] - 1, SEEN_BY).astype(int)]
        if rotation_of_component(few, precision) is None:
            return None
    component = component[: most_rows(4 * component.shape[1])]
    n, m = component.shape
    if n < 4:
        return None
    centre, sides = component[1:-1], component[2:] + component[:-2]
    power = np.einsum("ri,ri->i", centre, centre)
    ratio = np.einsum("ri,ri->i", centre, sides) / np.maximum(power, 1e-300)
    room = 8 * np.abs(component).max() * (2 * precision.unit + FLOAT32_STEP * n)
    breaks = np.flatnonzero((np.abs(sides - ratio * centre) > room).any(axis=1))
    if len(breaks):  # where positions leave the line, all rows after it spoil the fit
        return rotation_of_component(component[: n // 2], precision) if n >= 2 * ENOUGH else None
    place = np.arange(n, dtype=np.float64)
    step, even, odd, error = _best_fit(component, place, np.arccos(np.clip(ratio / 2, -1, 1)))
    step[np.ptp(component, axis=0) == 0] = 0
    model = even * np.cos(np.outer(place, step)) + odd * np.sin(np.outer(place, step))
    slack = 8 * precision.unit + 8 * FLOAT32_STEP * (1 + np.outer(place, step)) + 1e-3 * (step > 0.05)
    clear = step * n > 1.5
    off = np.abs(model - component) > slack * np.maximum(1.0, np.abs(component).max())
    if clear.sum() < 2 or off[:, clear].any():
        return None
    size = np.hypot(even, odd)
    amplitude = unless_one(float(np.median(size[clear])), precision)
    if (np.abs(size[clear] - amplitude) > 0.05 * amplitude).any():
        return None
    # x = A cos(first + r step): even = A cos(first), odd = -A sin(first)
    first = np.arctan2(-odd, even)
    scale = max(precision.unit, 1e-9)
    error = np.where(clear, np.maximum(error * scale, 1e-12), np.inf)
    slow = np.flatnonzero(~clear)
    if len(slow) and not np.any(component[0]):
        step[slow], by_rounding = _slow_sines(component[:, slow] / amplitude, precision)
        error[slow] = np.hypot(by_rounding, step[slow] * precision.unit / 8)  # of the amplitude
        first[slow] = -np.pi / 2
    elif len(slow) and np.ptp(component[0]) == 0:
        step[slow], error[slow] = _slow_cosines(component[:, slow] / amplitude, precision)
        first[slow] = 0.0
    return Rotation(amplitude, step, error, first, np.full(m, 4 * scale), place, True, slice(0, n))


def _best_fit(component: Array, place: Array, step: Array) -> tuple[Array, Array, Array, Array]:
    """The best of the fits that begin from the step of the first rows, from the strongest frequency, and, for
    components that hardly turn, from parts of a turn."""
    n, m = component.shape
    length = min(n, 8)
    while length < n:
        for _ in range(4):
            step, *_ = _component_fit(component[:length], place[:length], step)
        length = min(n, 2 * length)
    padded = 4 * n
    strength = np.abs(np.fft.rfft(component, padded, axis=0))
    starts = [step, TURN * strength.argmax(axis=0) / padded]
    starts += [np.full(m, turned / n) for turned in (1.0, 2.5, 4.0, 6.0)]
    best: tuple[Array, Array, Array, Array] | None = None
    least = np.full(m, np.inf)
    for start in starts:
        todo = ~(least <= 1e-6) if best is None else np.sqrt(least) > FITTED * np.abs(component).max()
        if best is not None and not todo.any():
            break
        fit = start[todo]
        for _ in range(5):
            fit, even_fit, odd_fit, error_fit = _component_fit(component[:, todo], place, fit)
        angle = np.outer(place, fit)
        rest = np.mean((component[:, todo] - even_fit * np.cos(angle) - odd_fit * np.sin(angle)) ** 2, axis=0)
        if best is None:
            best, least = (fit, even_fit, odd_fit, error_fit), rest
            continue
        better = rest < least[todo]
        where = np.flatnonzero(todo)[better]
        for kept, new in zip(best, (fit, even_fit, odd_fit, error_fit), strict=True):
            kept[where] = new[better]
        least[where] = rest[better]
    assert best is not None
    return best


FITTED = 1e-4  # root mean square of what a fit leaves, of the largest entry, that needs no second try
SEEN = 6.0  # half ulps by which a cosine has left 1


def _slow_cosines(cosines: Array, precision: Precision) -> tuple[Array, Array]:
    """Steps of pairs that do not turn far, from x[r] = cos(r step)."""
    place = np.arange(1, len(cosines), dtype=np.float64)[:, None]
    x = np.clip(cosines[1:], -1, 1)
    half = precision.half_ulp(x)
    angle = np.arccos(x)
    noise = ROUNDING * half / np.maximum(np.sin(angle), 1e-12)
    weight = np.where(1 - x > SEEN * half, (place / noise) ** 2, 0.0)
    total = weight.sum(0)
    with np.errstate(divide="ignore", invalid="ignore"):
        step = np.where(total > 0, (weight * angle / place).sum(0) / total, 0.0)
        error = np.where(total > 0, np.maximum(total**-0.5 * 3, 1e-7 * step), np.inf)
    return step, error


def _slow_sines(sines: Array, precision: Precision) -> tuple[Array, Array]:
    """Steps of pairs that do not turn far, from x[r] = sin(r step): their size alone says nothing of A."""
    place = np.arange(1, len(sines), dtype=np.float64)[:, None]
    angle = np.arcsin(np.clip(sines[1:], -1, 1))
    noise = ROUNDING * precision.half_ulp(sines[1:]) / np.maximum(np.cos(angle), 0.1) + 1e-14
    weight = (place / noise) ** 2
    return (weight * angle / place).sum(0) / weight.sum(0), np.maximum(
        weight.sum(0) ** -0.5, 1e-7 * (angle / place).max(0)
    )


def _component_fit(component: Array, place: Array, step: Array) -> tuple[Array, Array, Array, Array]:
    """One Gauss-Newton step of x = even cos(r step) + odd sin(r step), all pairs at once."""
    angle = np.outer(place, step)
    c, s = np.cos(angle), np.sin(angle)
    basis = np.stack([c, s], axis=-1)  # (n, m, 2)
    normal = np.einsum("rik,ril->ikl", basis, basis) + 1e-12 * np.eye(2)
    level = np.linalg.solve(normal, np.einsum("rik,ri->ik", basis, component)[..., None])[..., 0]
    even, odd = level[:, 0], level[:, 1]
    slope = place[:, None] * (odd * c - even * s)
    jacobian = np.stack([c, s, slope], axis=-1)
    rest = component - even * c - odd * s
    normal = np.einsum("rik,ril->ikl", jacobian, jacobian)
    normal = normal + 1e-10 * np.einsum("ikk->i", normal)[:, None, None] * np.eye(3)
    inverse = np.linalg.inv(normal)
    change = np.einsum("ikl,il->ik", inverse, np.einsum("rik,ri->ik", jacobian, rest))
    limit = 1.0 / max(len(place), 1)
    step = np.abs(step + np.clip(change[:, 2], -limit, limit))
    return step, even, odd, np.sqrt(np.maximum(inverse[:, 2, 2], 0))


FEWEST_ROWS = 16
FINE = 1e-6  # of the amplitude: tables rounded to more do not show how their angles were computed


def rounded_angles(cos: Array, sin: Array, precision: Precision) -> Solution | None:
    """Rows 0, 1, 2, ... whose angles were computed in bfloat16 or float16: row 1 holds the frequencies as they were
    rounded, and every product is rounded again."""
    rows, pairs = cos.shape
    whole = not (np.isnan(cos[0]).any() or np.isnan(sin[0]).any())
    if rows < FEWEST_ROWS or precision.unit > FINE or not whole or np.any(sin[0]) or np.ptp(cos[0]) > 0:
        return None
    amplitude = unless_one(float(cos[0, 0]), precision)
    cast = rounded_geometric(np.arctan2(sin[1], cos[1])) if amplitude > 0 else None
    if cast is None:
        return None
    name, base = cast
    w, positions = as_rounded(base, pairs, name), np.arange(rows, dtype=np.float64)
    exact = geometric(base, 2 * pairs, count=pairs)
    for counted in (round_to(positions, name).astype(np.float64), positions):
        worst = apart = 0.0
        for start in range(0, rows, ROWS):
            block = slice(start, start + ROWS)
            angle = round_to(np.outer(counted[block], w), name).astype(np.float64)
            z = rotations(positions[block], exact, amplitude=amplitude)
            for part, model, ideal in (
                (cos[block], amplitude * np.cos(angle), z.real),
                (sin[block], amplitude * np.sin(angle), z.imag),
            ):
                worst = max(worst, float((np.abs(part - model) - 2.1 * precision.half_ulp(model)).max()))
                apart = max(apart, float(np.abs(part - ideal).max()))
        if worst <= 2.0**-23 * amplitude:
            match = Match(True, False, apart, 0.5, name)
            return Solution(
                Law("none", base, 1.0), 2 * pairs, 0.0, positions, amplitude, match, exact, True, 2 * pairs
            )
    return None
