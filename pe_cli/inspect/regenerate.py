"""Rows made again by a formula: how well they match, and at which positions they lie.

A position is that of a line, or follows a rule by which the line is rounded, wrapped or cut off, or is read from its row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pe_cli.inspect.result import FLOAT32_STEP, Array, Match, Precision, frequency_slack
from pe_cli.numerics.dtypes import round_to
from pe_cli.numerics.kernels import rotations

Frequencies = Sequence[Decimal] | Sequence[float] | NDArray[Any]
Numbers = NDArray[np.intp]
ROWS = 2048
GLANCE = 48
ALIKE = 0.1  # of the amplitude: what differs by more is no match, however coarse the arithmetic


def resembles(
    cos: Array, sin: Array, positions: Array, frequencies: Frequencies, amplitude: float, precision: Precision
) -> bool:
    """Whether rows [n, m] (NaN where a column is absent) are near A exp(i p w), so that a closer look pays."""
    rows = len(positions)
    few = np.unique(np.linspace(0, rows - 1, GLANCE).astype(int))
    angular = np.abs(np.array([float(w) for w in frequencies]))
    z = rotations(positions[few], frequencies, amplitude=amplitude)
    travelled = np.abs(np.outer(positions[few], angular)) * amplitude
    coarse = np.minimum(4 * frequency_slack(angular) * travelled, ALIKE * amplitude)
    for part, model in ((cos[few], z.real), (sin[few], z.imag)):
        room = 3.2 * precision.half_ulp(model) + 1.5 * FLOAT32_STEP * amplitude + coarse
        if (np.abs(part - model) > room).any():
            return False
    return True


class WaveFit:
    """A exp(i p w) beside the cosines and sines [n, m] that it should make; NaN where a column is absent.

    `exact` where it makes the rows that it was fitted to within one rounding; else its frequencies are taken as float32
    numbers, and its angles as float32 products, unless the products themselves were not rounded (`only_frequencies`).
    """

    LAST_BITS = 12  # float32 code gives a frequency to within so many steps
    TELLING = 64  # rows at least tell these steps,
    ENTRIES = 1 << 13  # or rows with so many pairs
    ANGLE_ROUNDINGS = 1.6  # of a float32 angle: divisions and factors round once more than the product
    UNSEEN = 3.0  # more in tables too coarse to tell the last bits of the frequencies
    COARSEST = 0.008  # of the amplitude: beyond it only the product itself is believed

    def __init__(
        self, cos: Array, sin: Array, frequencies: Frequencies, amplitude: float, precision: Precision
    ) -> None:
        self.cos, self.sin = cos, sin
        self.frequencies, self.amplitude, self.precision = frequencies, amplitude, precision
        self.single: NDArray[np.float32] | None = None
        self.only_frequencies = False
        self.ulp = 2 * float(precision.half_ulp(np.array([amplitude * 0.99]))[0])

    def fit(self, rows: Numbers, positions: Array) -> bool:
        """Choose the arithmetic in which `rows` at `positions` are made; False where neither does it."""
        self.single, self.only_frequencies = None, False
        if self.good(rows, positions).all():
            return True
        if self.precision.unit <= COARSE:
            self.single, self.only_frequencies = self._single(rows, positions, np.float64), True
            if self.good(rows, positions).all():
                return True
            self.only_frequencies = False
        self.single = self._single(rows, positions, np.float32)
        return bool(self.good(rows, positions).all())

    def _single(self, rows: Numbers, positions: Array, product: type) -> NDArray[np.float32]:
        """The float32 frequencies whose products with the positions make these rows best."""
        most = max(self.TELLING, self.ENTRIES // len(self.frequencies))
        few = np.unique(np.linspace(0, len(rows) - 1, most).astype(int))
        c, s = self.cos[rows[few]], self.sin[rows[few]]
        p = positions[few].astype(product)[:, None]
        nearest = np.array([float(w) for w in self.frequencies]).astype(np.float32)
        best: NDArray[np.float32] = nearest.copy()
        least = np.full(len(nearest), np.inf)
        by_rounding = self.ulp**2  # of one entry: a smaller gain is chance
        for step in sorted(range(-self.LAST_BITS, self.LAST_BITS + 1), key=abs):
            tried = (nearest.view(np.int32) + np.int32(step)).view(np.float32)
            angle = (p * tried).astype(np.float64)
            rest = np.nansum((self.amplitude * np.cos(angle) - c) ** 2, axis=0)
            rest += np.nansum((self.amplitude * np.sin(angle) - s) ** 2, axis=0)
            better = (rest < least - by_rounding) & np.isfinite(tried)
            best[better], least[better] = tried[better], rest[better]
        return best

    @property
    def exact(self) -> bool:
        return self.single is None

    def good(self, rows: Numbers, positions: Array) -> NDArray[np.bool_]:
        """Which rows are made again at these positions."""
        return self._compare(rows, positions)[0]

    def match(self, rows: Numbers, positions: Array) -> Match:
        """How well rows that are made again are made."""
        good, own = self._compare(rows, positions)
        worst = own
        if not self.exact:
            exactly = WaveFit(self.cos, self.sin, self.frequencies, self.amplitude, self.precision)
            worst = exactly._compare(rows, positions)[1]
        return Match(
            bool(good.all()),
            self.exact,
            worst,
            min(own, worst) / self.ulp,
            only_frequencies=self.only_frequencies,
            measured=worst < own,
        )

    def _compare(self, rows: Numbers, positions: Array) -> tuple[NDArray[np.bool_], float]:
        """Which rows are made, and the largest error of all."""
        good, worst = np.empty(len(rows), dtype=np.bool_), 0.0
        for start in range(0, len(rows), ROWS):
            block = slice(start, start + ROWS)
            made, room = self._made(positions[block])
            right = np.ones(len(made), dtype=np.bool_)
            for part, model in ((self.cos, made.real), (self.sin, made.imag)):
                error = np.abs(part[rows[block]] - model)
                error[np.isnan(part[rows[block]])] = 0
                right &= (error <= room + 1.05 * self.precision.half_ulp(model)).all(axis=1)
                worst = max(worst, float(error.max(initial=0.0)))
            good[block] = right
        return good, worst

    def _made(self, positions: Array) -> tuple[NDArray[np.complex128], Array]:
        """The rows, and by how much arithmetic may change them before they are stored."""
        if self.single is None or self.only_frequencies:
            used = self.frequencies if self.single is None else self.single.astype(np.float64)
            travelled = np.abs(np.outer(positions, np.array([float(w) for w in used])))
            z = rotations(positions, used, amplitude=self.amplitude)
            return z, 2.0**-49 * self.amplitude * (1 + travelled)
        with np.errstate(over="ignore"):
            angle = np.outer(positions.astype(np.float32), self.single).astype(np.float64)
        # the last float32 operations round once or twice more than the store
        step = np.ldexp(2.0**-24, np.frexp(angle)[1])
        roundings = self.ANGLE_ROUNDINGS + self.UNSEEN * (self.precision.unit > COARSE)
        room = 2.0**-23 + np.minimum(roundings * step, self.COARSEST)
        return self.amplitude * np.exp(1j * angle), self.amplitude * room

    def decode(self, rows: Numbers, near: Array) -> Array:
        """The positions that the angles of rows tell, whole where they are nearly; NaN where the pairs do not agree.

        `near` are places at which they may lie: the slowest pair may have turned several times.
        """
        angular = np.array([float(w) for w in self.frequencies])
        live = (angular > 0) & ~np.isnan(self.cos[0]) & ~np.isnan(self.sin[0])
        c, s = self.cos[np.ix_(rows, live)], self.sin[np.ix_(rows, live)]
        noise = phase_error(c, s, self.amplitude, self.precision)
        found, agree = decode(np.arctan2(s, c), angular[live], noise, near)
        whole = np.rint(found)
        found = np.where(np.abs(found - whole) < NEARLY, whole, found)
        return np.where(agree & (np.abs(found) < FARTHEST), found, np.nan)


NEARLY = 0.05
COARSE = 2.0**-20  # of the amplitude: more than float32 rounds
FARTHEST = 2.0**24  # beyond it float32 does not count

# Says of rows and the positions they are thought to have which of them the formula makes again.
Agrees = Callable[[Numbers, Array], NDArray[np.bool_]]
# The positions that the angles of rows tell, near whole numbers where they are, and near others where they may be.
Decodes = Callable[[Numbers, Array], Array]


@dataclass
class Placement:
    """`positions` of all rows; those of `strangers`, rows that no position gives, are the line's."""

    positions: Array
    rule: str | None
    strangers: tuple[int, ...]


def _wrapped(line: Array, bits: int) -> Array:
    half = 2.0 ** (bits - 1)
    return np.asarray((line + half) % (2 * half) - half)


# What a type makes of whole positions that it cannot hold.
ROUNDED: dict[str, Callable[[Array], Array]] = {
    "bfloat16": lambda line: round_to(line, "bfloat16").astype(np.float64),
    # of what float16 makes infinite there is no angle: its largest number stands for it
    "float16": lambda line: round_to(np.clip(line, -65504, 65504), "float16").astype(np.float64),
    "int8": lambda line: _wrapped(line, 8),
    "int16": lambda line: _wrapped(line, 16),
}
MOST_STRANGERS = 0.5  # of the rows: beyond it the formula is another one


def place_rows(line: Array, agrees: Agrees, decodes: Decodes | None, table: NDArray[Any]) -> Placement | None:
    """Where the rows of `table` (n, d) lie; None where more than half of them have no position.

    `line` (n,) are the positions if they count on from the rows that were solved. A rule is believed only if it gives
    every row.
    """
    everywhere = np.arange(len(line))
    good = agrees(everywhere, line)
    if good.all():
        return Placement(line, None, ())
    by_rule = _by_rule(line, good, agrees)
    if by_rule is not None:
        return by_rule
    positions = line.copy()
    off = np.flatnonzero(~good)
    repeated = _same_rows(table, np.flatnonzero(good), off)
    positions[off] = np.where(repeated >= 0, line[repeated], np.nan)
    left = off[repeated < 0]
    if len(left) and decodes is not None:
        found = decodes(left, line[left])
        left, found = left[~np.isnan(found)], found[~np.isnan(found)]
        if len(left):
            positions[left] = np.where(agrees(left, found), found, np.nan)
    strangers = np.flatnonzero(np.isnan(positions))
    if len(strangers) > MOST_STRANGERS * len(line):
        return None
    positions[strangers] = line[strangers]
    known = np.delete(positions, strangers)
    return Placement(positions, _rule_of(known), tuple(int(row) for row in strangers))


def _by_rule(line: Array, good: NDArray[np.bool_], agrees: Agrees) -> Placement | None:
    everywhere = np.arange(len(line))
    wrong = np.flatnonzero(~good)
    whole = bool(np.all(line == np.rint(line)))
    for name, rule in ROUNDED.items() if whole else ():
        guess = rule(line)
        if np.any(guess != line) and agrees(wrong, guess[wrong]).all() and agrees(everywhere, guess).all():
            return Placement(guess, name, ())
    first = int(wrong[0])
    if first > 1 and len(wrong) == len(line) - first:
        guess = line.copy()
        guess[first:] = line[first - 1]
        if agrees(wrong, guess[wrong]).all():
            return Placement(guess, "clamp", ())
    return None


def _same_rows(table: NDArray[Any], known: Numbers, rows: Numbers) -> Numbers:
    """For each of `rows` the known row with the same numbers, or -1."""
    contiguous = np.ascontiguousarray(table)
    by_bytes = {contiguous[row].tobytes(): int(row) for row in known[::-1]}
    return np.array([by_bytes.get(contiguous[row].tobytes(), -1) for row in rows], dtype=np.intp)


def _rule_of(positions: Array) -> str | None:
    """restart where every run counts up from one and the same first position, else other; None on a line."""
    steps = np.diff(positions)
    if len(steps) == 0 or np.all(steps == steps[0]):
        return None
    stride = steps[0]
    breaks = np.flatnonzero(steps != stride)
    if np.all(positions[breaks + 1] == positions[0]):
        return "restart"
    line = positions[0] + stride * np.arange(len(positions))
    for name, rule in ROUNDED.items():
        if np.array_equal(rule(line), positions):
            return name
    if np.array_equal(np.minimum(line, positions.max()), positions):
        return "clamp"
    return "other"


# -- positions by angles ------------------------------------------------------------------------------------------

TURN = 2 * np.pi
ROUNDING = 0.6  # standard error of a rounding, in half ulps


def phase_error(c: Array, s: Array, amplitude: float, precision: Precision) -> Array:
    """Standard error of the angle that fits a rounded cosine and sine best."""
    by_cos, by_sin = weights(c, s, amplitude, precision)
    return ROUNDING / np.sqrt(by_cos + by_sin) + 1e-14


def weights(c: Array, s: Array, amplitude: float, precision: Precision) -> tuple[Array, Array]:
    """What cosine and sine say of the angle: (d cos / d angle / half an ulp)², and the same of the sine."""
    least = 1e-14 * amplitude
    return (s / (precision.half_ulp(c) + least)) ** 2, (c / (precision.half_ulp(s) + least)) ** 2


def decode(
    angles: Array, step: Array, noise: Array, near: Array | None = None
) -> tuple[Array, NDArray[np.bool_]]:
    """The place t [n] at which angles [n, m] = t * step, modulo turns, and whether all pairs agree.

    A vernier: from the slowest pair, taken to be within half a turn, to the fastest. Rows that do not agree
    are tried again with the slowest pair turned as it has `near` a place, or any number of times.
    """
    order = np.argsort(np.abs(step))
    order = order[np.abs(step[order]) > 1e-12]
    if not len(order):
        return np.zeros(len(angles)), np.zeros(len(angles), dtype=bool)
    angles, noise, step = angles[:, order], noise[:, order] + 1e-12, step[order]
    place, rest = _vernier(angles, step, noise, np.zeros(len(angles)))
    for more in (0, -1, 1):
        if near is None:
            break
        off = np.flatnonzero(rest >= AGREE)
        turns = np.rint((near[off] * step[0] - angles[off, 0]) / TURN) + more
        again, left = _vernier(angles[off], step, noise[off], turns)
        better = left < rest[off]
        place[off[better]], rest[off[better]] = again[better], left[better]
    # one angle for all pairs, not 0, is no position: sines taken for cosines
    far = np.flatnonzero((rest >= AGREE) & (np.ptp(angles, axis=1) > 1e-3))
    if len(far) <= MOST_FAR:
        for row in far:
            places, rests = _far(angles[row], step, noise[row])
            place[row], rest[row] = places[0], rests[0]
            if rest[row] >= AGREE:
                break
    return place, rest < AGREE


AGREE = 0.3  # radians
MOST_FAR = 16
FAR_TURNS = np.array(sorted(range(-2048, 2049), key=abs), dtype=np.float64)


def _vernier(angles: Array, step: Array, noise: Array, turns: Array) -> tuple[Array, Array]:
    place = (angles[:, 0] + TURN * turns) / step[0]
    weight = (step[0] / noise[:, 0]) ** 2
    for i in range(1, len(step)):
        missing = wrapped(angles[:, i] - place * step[i])
        gain = (step[i] / noise[:, i]) ** 2
        weight = weight + gain
        place = place + missing / step[i] * gain / weight
    return place, np.abs(wrapped(angles - place[:, None] * step)).max(axis=1)


def wrapped(angles: Array) -> Array:
    """The same angles from -pi to pi."""
    return np.asarray((angles + np.pi) % TURN - np.pi)


def _far(angles: Array, step: Array, noise: Array) -> tuple[Array, Array]:
    """The places where all pairs agree equally well, or else best, nearest first, and how well they agree in each.

    There are several where the frequencies are multiples of one another.
    """
    few = np.unique(np.linspace(0, len(step) - 1, min(len(step), 24)).astype(int))
    turns = FAR_TURNS
    for count in range(PRUNED_BY, len(few), PRUNED_BY):  # what the slow pairs rule out is not carried on
        places, rest = _with_turns(angles, step, noise, few[:count], turns)
        if rest.min() >= HOPELESS:
            return places, rest
        turns = turns[rest < max(HOPELESS, 2 * float(rest.min()))]
    _, rest = _with_turns(angles, step, noise, few, turns)
    turns = turns[rest < max(2 * float(rest.min()), 1e-4)]
    return _with_turns(angles, step, noise, np.arange(len(step)), turns)


PRUNED_BY = 4  # pairs
HOPELESS = 0.5  # radians by which a few pairs do not agree, so that all together will not


def _with_turns(
    angles: Array, step: Array, noise: Array, pairs: NDArray[np.intp], turns: Array
) -> tuple[Array, Array]:
    """The place that these pairs tell, and how far they are from agreeing, for each number of turns of the slowest."""
    many = (len(turns), len(pairs))
    return _vernier(
        np.broadcast_to(angles[pairs], many), step[pairs], np.broadcast_to(noise[pairs], many), turns
    )


def places_of_first(angles: Array, step: Array, noise: Array) -> Iterator[float]:
    """Where a row with these angles (m,) may lie: the nearest place at which all pairs agree, and the best ones, of
    which whole numbers come first."""
    order = np.argsort(np.abs(step))
    angles, step, noise = angles[order], step[order], noise[order] + 1e-12
    turning = np.abs(step) > 1e-12
    if not turning.any():
        return
    near, near_rest = _vernier(angles[None, turning], step[turning], noise[None, turning], np.zeros(1))
    if near_rest[0] < AGREE:
        yield float(near[0])
    places, rest = _far(angles, step, noise)
    room = WHOLE + FLOAT32_PLACE * np.abs(places)
    off = np.abs(places - np.rint(places))
    sharp = 6 * float((noise / np.maximum(np.abs(step), 1e-12)).min())
    whole = places[off < np.minimum(room, NEARLY)][:MOST_WHOLE]
    sharply = places[off < np.minimum(room, sharp)][:MOST_WHOLE]
    for place in (
        dict.fromkeys([*sharply.tolist(), *whole.tolist(), float(places[0])]) if rest[0] < AGREE else ()
    ):
        if not (near_rest[0] < AGREE and abs(place - float(near[0])) < 1):
            yield place


def comes_again(step: Array, noise: Array) -> float | None:
    """After how many positions all angles are the same to within their errors, since the steps (m,) are multiples of one
    another; None where they are not within all the turns that are looked at."""
    step, noise = step[np.argsort(np.abs(step))], noise[np.argsort(np.abs(step))]
    period = TURN * FAR_TURNS[FAR_TURNS > 0] / abs(float(step[0]))
    off = np.abs(wrapped(np.outer(period, step)))
    alike = (off <= 3 * noise + 1e-12 * np.outer(period, np.abs(step))).all(axis=1)
    return float(period[alike.argmax()]) if alike.any() else None


MOST_WHOLE = 3
WHOLE = 1e-3  # of a whole place the angles tell at most so much else,
FLOAT32_PLACE = 2.0**-22  # and where they are of float32, so much of the place itself
