"""From the steps of the pairs to the rule of the frequencies: base, shift and scaling.

Steps are u[i] = dp * w[i] for an unknown step of positions dp. All fits are in logarithms, weighted by the
error of each pair. What fits is a hypothesis only: the caller regenerates the table from it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pe_cli.inspect.result import PRECISIONS, Array, Law, frequency_slack

USUAL_BASE = 10000.0
NEAR_USUAL = 0.005
MOST_STRIDE = 33


def variants(law: Law) -> Iterator[Law]:
    """The law with its factor and its base rounded within their errors, less rounded, and as measured.

    A factor or a step that lies beside a round number is tried as that one first: the table is believed only if it comes
    out.
    """
    factor = law.parameters.get("factor")
    simple = law.scaling in ("none", "linear") and not set(law.parameters) - {"factor"}
    step = law.unit / (factor or 1.0)
    short = roundest(step, BESIDE * step)
    if (
        simple
        and short != step
        and digits_of(short) <= ROUND_DIGITS
        and (short == 1 or law.scaling == "none")
    ):
        yield from _rounded_bases(replace(law, scaling="none", unit=short, parameters={}, ambiguous=()))
    if factor is None or law.scaling == "linear":
        yield from _rounded_bases(law)
        return
    tried = [roundest(factor, factor * share) for share in (BESIDE, 0.0, 0.01, 0.003)]
    for short in dict.fromkeys(
        short for short in tried if short == factor or digits_of(short) <= ROUND_DIGITS
    ):
        yield from _rounded_bases(replace(law, parameters=law.parameters | {"factor": short}))


BESIDE = 1e-4  # of a factor


def _rounded_bases(law: Law) -> Iterator[Law]:
    seen = {law.base}
    if law.base != USUAL_BASE and abs(law.base / USUAL_BASE - 1) < NEAR_USUAL:
        seen.add(USUAL_BASE)
        yield replace(law, base=USUAL_BASE)
    yield law
    for share in (0.25, 0.0):
        base = roundest(law.measured, law.base_error * share) if law.measured else law.base
        if base not in seen:
            seen.add(base)
            yield replace(law, base=base)


def roundest(value: float, error: float) -> float:
    """The number with the fewest digits within `error` of `value`."""
    for digits in range(1, 16):
        short = float(f"{value:.{digits - 1}e}")
        if abs(short - value) <= error:
            return short
    return value


def neat(value: float, error: float) -> float:
    """A short number or ratio within `error` of `value`, else `value` as it is: rounding must not cost precision."""
    short = roundest(value, error)
    if digits_of(short) <= 2:
        return short
    ratio = Fraction(value).limit_denominator(LARGEST_SIDE)
    if abs(float(ratio) - value) <= error:
        return float(ratio)
    return short if digits_of(short) <= 4 else value


LARGEST_SIDE = 32  # of a grid that is stretched to another


def digits_of(value: float) -> int:
    """How many significant digits a number needs."""
    return len(f"{value:.11e}".partition("e")[0].replace(".", "").rstrip("0"))


WRITTEN = 5


def written(place: float) -> bool:
    """Whether a position is a number that someone wrote down: whole, or of few digits."""
    return place.is_integer() or digits_of(place) <= WRITTEN


def log_errors(step: Array, error: Array) -> tuple[Array, Array]:
    """ln u and its standard error, that of frequencies computed in float32 included."""
    return np.log(step), np.hypot(error / step, frequency_slack(step) / 2)


@dataclass
class Line:
    """ln u = level - i * slope."""

    level: float
    slope: float
    level_error: float
    slope_error: float
    worst: float  # residuals in standard errors: the largest,
    typical: float  # and their root mean square

    @property
    def ratio(self) -> float:
        return float(np.exp(self.slope))


def fit_line(index: Array, y: Array, sigma: Array) -> Line:
    weight = 1 / sigma**2
    design = np.stack([np.ones_like(index), -index], axis=1)
    normal = design.T @ (weight[:, None] * design)
    inverse = np.linalg.pinv(normal, rcond=1e-30)
    level, slope = inverse @ (design.T @ (weight * y))
    rest = np.abs(y - (level - index * slope)) / sigma
    return Line(
        float(level),
        float(slope),
        float(inverse[0, 0] ** 0.5),
        float(inverse[1, 1] ** 0.5),
        float(rest.max()),
        float(np.sqrt(np.mean(rest**2))),
    )


TYPICAL = 3.0  # and for all together: whether the table follows is seen when it is made again


def geometric(step: Array, error: Array) -> Line | None:
    """The line through ln u where all pairs lie on it and it falls."""
    if len(step) < 2 or (step <= 0).any():
        return None
    y, sigma = log_errors(step, error)
    line = fit_line(np.arange(len(step), dtype=np.float64), y, sigma)
    return line if line.typical <= TYPICAL and line.slope > 1e-3 else None


def whole_step(first: float, relative_error: float) -> float | None:
    """The step of positions where the fastest pair of an unscaled table has w = 1."""
    nearest = round(first)
    tolerance = max(1e-6, 6 * relative_error) * max(first, 1.0)
    return float(nearest) if nearest >= 1 and abs(first - nearest) <= tolerance else None


def sinusoid_laws(step: Array, error: Array, width: int) -> list[tuple[Law, int, float]]:
    """(law, dim, shift) of a plain geometric row, likeliest first: the shift shows only in the base."""
    line = geometric(step, error)
    if line is None:
        return []
    first = float(np.exp(line.level))
    unit = whole_step(first, line.level_error) or neat(first, first * (6 * line.level_error + 3e-7))
    found = []
    for dim, shift in ((width, 0.0), (width, 1.0)) + (
        ((width + 1, 0.0), (width - 1, 1.0)) if width % 2 else ()
    ):
        if dim / 2 - shift <= 0:
            continue
        found.append((Law("none", *_with_unit(_base(line, dim / 2 - shift), unit)), dim, shift))
    # a shift of 1 with base b is a shift of 0 with base b^(n/(n-1)), exactly: only a round base speaks for it
    rounder = min(found, key=lambda entry: _coincidence(entry[0]))
    if _clearly_rounder(rounder[0], found[0][0]):
        found.remove(rounder)
        found.insert(0, rounder)
    if not any(_clearly_rounder(found[0][0], law) for law, _, _ in found[1:]):
        others = [f"base {law.base:.6g} with a frequency shift of {shift:g}" for law, _, shift in found[1:]]
        found[0][0].ambiguous = tuple(others)
    return found


ROUND_DIGITS = 3
BY_CHANCE = 0.03  # a base that is round only since the error is large says nothing


def _clearly_rounder(law: Law, other: Law) -> bool:
    return is_round(law) and 5 * _coincidence(law) < _coincidence(other)


def is_round(law: Law) -> bool:
    """A base of few digits that is not so by chance."""
    return digits_of(law.base) <= ROUND_DIGITS and _coincidence(law) < BY_CHANCE


def _coincidence(law: Law) -> float:
    """How many numbers as round as the base one expects within its error by chance."""
    if law.base == USUAL_BASE and law.base_error < 0.05 * law.base:
        return 0.0
    return float(
        2 * law.base_error / law.base * 10.0 ** digits_of(law.base) + 10.0 ** (digits_of(law.base) - 9)
    )


def _base(line: Line, pairs: float) -> tuple[float, float, float]:
    """The base, rounded within its error; the error; the base as measured."""
    value = float(np.exp(line.slope * pairs))
    # float32 recipes round ln(base) / pairs once, which tilts the whole line
    error = value * (pairs * 4 * line.slope_error + 1.5e-7 * line.slope * pairs)
    return roundest(value, error), error, value


def _with_unit(base: tuple[float, float, float], unit: float) -> tuple[float, float, float, float]:
    """In the order of Law's fields."""
    return base[0], unit, base[1], base[2]


def plain(line: Line, pairs: int) -> Law:
    base = _base(line, pairs)
    first = float(np.exp(line.level))
    relative = 6 * line.level_error + 3e-7
    unit = whole_step(first, line.level_error)
    if unit is not None:
        return Law("none", *_with_unit(base, unit))
    for stride in range(1, MOST_STRIDE):
        factor = stride / first
        short = roundest(factor, factor * relative)
        if factor > 1 and digits_of(short) <= (3 if stride == 1 else 2):
            note = "a stride of k positions with k times the factor makes the same table"
            return Law("linear", *_with_unit(base, float(stride)), {"factor": short}, (note,))
    if first < 1:
        return Law("linear", *_with_unit(base, 1.0), {"factor": 1 / first})
    note = f"a step of {first:.6g} positions, or frequencies multiplied by it"
    return Law("none", *_with_unit(base, neat(first, first * relative)), ambiguous=(note,))


def proportional(line: Line, live: int, pairs: int) -> list[Law]:
    """Live pairs, then pairs that never turn: proportional RoPE, whose exponents run over the whole head, or a
    narrower table that is padded. The rounder and more usual base comes first."""
    first = float(np.exp(line.level))
    unit = whole_step(first, line.level_error)
    parameters: dict[str, Any] = {"partial": live / pairs}
    if unit is None:
        parameters["factor"] = roundest(1 / first, (6 * line.level_error + 3e-7) / first)
    whole = Law("proportional", *_with_unit(_base(line, pairs), unit or 1.0), parameters)
    if unit is None:
        return [whole]
    base = _base(line, live)
    narrow = Law("none", *_with_unit(base, unit), {"padded_pairs": pairs - live})
    laws = sorted((whole, narrow), key=lambda law: (digits_of(law.base) > ROUND_DIGITS, law.base > 2e7))
    if digits_of(laws[1].base) <= ROUND_DIGITS:
        other = laws[1]
        what = "proportional scaling" if other is whole else "a narrower table, padded,"
        laws[0].ambiguous = (f"{what} of base {other.base:.6g}",)
    return laws


def rope_laws(
    step: Array, error: Array, pairs: int, amplitude: tuple[float, float] = (1.0, 0.0)
) -> list[Law]:
    """The rules of RoPE that the first steps of `pairs` (those that are clear of noise) may follow.

    `amplitude` is the magnitude of the table and its error: with YaRN it is 1 + 0.1 ln(factor).
    """
    if len(step) < 1 or (step <= 0).any():
        return []
    line = geometric(step, error)
    if line is not None:
        simple = [plain(line, pairs)]
        return simple + (proportional(line, len(step), pairs) if len(step) < pairs else [])
    unit = whole_step(float(step[0]), float(error[0] / step[0]))
    if unit is None or len(step) < 3 or pairs < FEWEST_RAMPED:
        return []
    from pe_cli.inspect.ramps import ramped_laws

    return ramped_laws(step, error, unit, pairs, amplitude)


FEWEST_RAMPED = 6  # pairs: a ramp has four parameters, which fit fewer whatever they are
STEPS = {"bfloat16": 2.0**-8, "float16": 2.0**-11}
SMALLEST_NORMAL = 2.0**-14  # of float16; below it the steps are coarse
MEASURED = 2e-5  # relative error of a measured frequency
LOWEST_BASE = 10.0
FEWEST = 8  # with fewer pairs other rules fit as well


def rounded_geometric(frequencies: NDArray[np.float64]) -> tuple[str, float] | None:
    """The type and the base whose rounded frequencies base^(-i/n) these (n,) are; None where there are none."""
    count = len(frequencies)
    if count < FEWEST or not (frequencies > 0).all():
        return None
    normal = frequencies >= SMALLEST_NORMAL
    places = -np.arange(count)[normal] / count
    fitted = float(np.exp(float(places @ np.log(frequencies[normal])) / max(float(places @ places), 1e-9)))
    if not LOWEST_BASE < fitted < np.inf:
        return None
    exact = fitted ** (-np.arange(count) / count)
    if (np.abs(exact - frequencies) <= MEASURED * frequencies).all():
        return None  # powers of two are in every type: nothing was rounded
    for name, step in STEPS.items():
        for base in dict.fromkeys(
            (USUAL_BASE, roundest(fitted, fitted * step), roundest(fitted, fitted * step / 8))
        ):
            rounded = as_rounded(base, count, name)
            if (np.abs(rounded - frequencies) <= MEASURED * frequencies).all():
                return name, base
    return None


def as_rounded(base: float, count: int, name: str) -> NDArray[np.float64]:
    """base^(-i/n) for n = `count`, rounded to the type called `name`."""
    exact = np.asarray(base ** (-np.arange(count) / count), dtype=np.float64)
    return PRECISIONS[name].nearest(exact)


MOST_DIGITS = 6
MOST_FACTOR = 256.0


def unknown_law(frequencies: NDArray[np.float64], unit: float) -> tuple[Law, str]:
    """What to call measured frequencies that no rule gives: LongRoPE where its factors show, else unknown.

    Its factors divide: none is below 1. They show by few digits each, or since they rise from 1. The second is what remains
    open.
    """
    plain = USUAL_BASE ** (-np.arange(len(frequencies)) / len(frequencies))
    factors = plain / frequencies
    short = np.array([roundest(f, 3e-7 * f) for f in factors])
    few = np.mean([digits_of(f) <= MOST_DIGITS for f in short]) > SHORT_SHARE
    rise = abs(factors[0] - 1) < 1e-3 and bool((np.diff(factors) >= -1e-6 * factors[1:]).all())
    divide = factors.min() > 1 - 1e-3 and factors.max() < MOST_FACTOR
    if (few or rise) and divide and len(factors) >= FEWEST:
        note = "base 10000 is assumed: only base and factors together are known"
        if not few:
            note += "; other scalings give such frequencies as well"
        told = [float(f"{f:.9g}") for f in (short if few else factors)]
        return Law("longrope", USUAL_BASE, unit, parameters={"factors": told}), note
    told = [float(f"{w:.9g}") for w in frequencies]
    note = "scaling longrope, whose factors can give any frequencies"
    return Law("unknown", 0.0, unit, parameters={"frequencies": told}), note


SHORT_SHARE = 0.9
