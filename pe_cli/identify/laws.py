"""From the steps of the pairs to the rule of the frequencies: base, shift and scaling.

Steps are u[i] = dp * w[i] for an unknown step of positions dp. All fits are in logarithms, weighted by the
error of each pair. What fits is a hypothesis only: the caller regenerates the table from it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pe_cli.identify.rotation import frequency_slack

Array = NDArray[np.float64]
USUAL_BASE = 10000.0
USUAL_RAMP = {"beta_fast": 32.0, "beta_slow": 1.0}
USUAL_BANDS = ((1.0, 4.0), (1.0, 1.0), (1.0, 2.0), (1.0, 8.0), (1.0, 16.0), (2.0, 4.0), (2.0, 8.0))
MOST_STRIDE = 33
LEAST_FACTOR = 0.02  # of ln s: less is no scaling
LENGTHS = tuple(2.0**k for k in range(8, 22))


@dataclass
class Law:
    """`parameters` carry the names of the options of `pe gen rope`."""

    scaling: str
    base: float
    unit: float  # step of positions, so that w = u / unit
    base_error: float = 0.0
    measured: float = 0.0  # the base before it was rounded within its error
    parameters: dict[str, Any] = field(default_factory=dict)
    ambiguous: tuple[str, ...] = ()


def variants(law: Law) -> Iterator[Law]:
    """The law with its base rounded within its error, less rounded, and as it was measured."""
    yield law
    seen = {law.base}
    for share in (0.25, 0.0):
        base = roundest(law.measured, law.base_error * share) if law.measured else law.base
        if base not in seen:
            seen.add(base)
            yield replace(law, base=base)


def roundest(value: float, error: float) -> float:
    """The number with the fewest digits within `error` of `value`."""
    for digits in range(1, 12):
        short = float(f"{value:.{digits - 1}e}")
        if abs(short - value) <= error:
            return short
    return value


def neat(value: float, error: float) -> float:
    """A short number within `error` of `value`, else `value` as it is: rounding must not cost precision."""
    short = roundest(value, error)
    return short if digits_of(short) <= 4 else value


def digits_of(value: float) -> int:
    """How many significant digits a number needs."""
    return len(f"{value:.11e}".partition("e")[0].replace(".", "").rstrip("0"))


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


TOLERATED = 8.0  # standard errors, for one pair
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


def rope_laws(step: Array, error: Array, pairs: int) -> list[Law]:
    """The rules of RoPE that the first steps of `pairs` (those that are clear of noise) may follow."""
    if len(step) < 1 or (step <= 0).any():
        return []
    line = geometric(step, error)
    if line is not None:
        plain = [_plain(line, pairs)]
        return plain + (_proportional(line, len(step), pairs) if len(step) < pairs else [])
    unit = whole_step(float(step[0]), float(error[0] / step[0]))
    if unit is None or len(step) < 3:
        return []
    y, sigma = log_errors(step / unit, error / unit)
    return _llama3(y, sigma, unit, pairs) + _yarn(y, sigma, unit, pairs)


def sinusoid_laws(step: Array, error: Array, width: int) -> list[tuple[Law, int, float]]:
    """(law, dim, shift) of a plain geometric row, roundest base first: the shift shows only in the base."""
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
    found.sort(key=lambda entry: _coincidence(entry[0]))
    chances = [_coincidence(law) for law, _, _ in found]
    if chances[0] > 0.1:  # a base that is round only since the error is large says nothing
        if min(chances[1:], default=0.0) < 5 * chances[0]:
            found.sort(key=lambda entry: (entry[2], entry[1]))
        others = [f"base {law.base:.6g} with a frequency shift of {shift:g}" for law, _, shift in found[1:]]
        found[0][0].ambiguous = tuple(others)
    return found


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


def _plain(line: Line, pairs: int) -> Law:
    base = _base(line, pairs)
    first = float(np.exp(line.level))
    relative = 6 * line.level_error + 3e-7
    unit = whole_step(first, line.level_error)
    if unit is not None:
        return Law("none", *_with_unit(base, unit))
    for stride in range(1, MOST_STRIDE):
        factor = stride / first
        short = roundest(factor, factor * relative)
        if factor > 1 and digits_of(short) <= 3:
            note = "a stride of k positions with k times the factor makes the same table"
            return Law("linear", *_with_unit(base, float(stride)), {"factor": short}, (note,))
    if first < 1:
        return Law("linear", *_with_unit(base, 1.0), {"factor": 1 / first})
    note = f"a step of {first:.6g} positions, or frequencies multiplied by it"
    return Law("none", *_with_unit(base, neat(first, first * relative)), ambiguous=(note,))


def _proportional(line: Line, live: int, pairs: int) -> list[Law]:
    """Live pairs, then pairs that never turn: the exponent runs over the whole head (proportional)."""
    base = _base(line, pairs)
    parameters: dict[str, Any] = {"partial": live / pairs}
    first = float(np.exp(line.level))
    unit = whole_step(first, line.level_error)
    if unit is None:
        parameters["factor"] = roundest(1 / first, (6 * line.level_error + 3e-7) / first)
    return [Law("proportional", *_with_unit(base, unit or 1.0), parameters)]


def _runs(y: Array, sigma: Array) -> tuple[int, int]:
    """How far a straight head reaches, and where a straight tail begins."""
    m = len(y)
    index = np.arange(m, dtype=np.float64)
    head, tail = 1, m - 2
    while head + 1 < m and _straight(fit_line(index[: head + 2], y[: head + 2], sigma[: head + 2])):
        head += 1
    while tail > 0 and _straight(fit_line(index[tail - 1 :], y[tail - 1 :], sigma[tail - 1 :])):
        tail -= 1
    return head, tail


def _straight(line: Line) -> bool:
    return line.worst < 4 or line.typical < 1.8


def _ramped(y: Array, sigma: Array, share: Array) -> tuple[Array, Array, Array]:
    """ln u = -i slope + ln(1 - share (1 - 1/s)) for many shares [k, m] at once: slope, ln s, worst residual."""
    m = len(y)
    index = np.arange(m, dtype=np.float64)
    weight = 1 / sigma**2
    slope = np.full(len(share), float(y[0] - y[min(1, m - 1)]))
    log_s = np.clip(-slope * (m - 1) - y[-1], 0.2, 6.0)
    for _ in range(12):
        rest_of_s = np.exp(-log_s)[:, None]
        kept = 1 - share * (1 - rest_of_s)
        model = -index * slope[:, None] + np.log(kept)
        by_s = -share * rest_of_s / kept
        by_slope = np.broadcast_to(-index, by_s.shape)
        rest = y - model
        aa, ab = (weight * by_slope**2).sum(1), (weight * by_slope * by_s).sum(1)
        bb = (weight * by_s**2).sum(1) + 1e-12
        ra, rb = (weight * by_slope * rest).sum(1), (weight * by_s * rest).sum(1)
        determinant = np.maximum(aa * bb - ab**2, 1e-300)
        slope = np.clip(slope + np.clip((bb * ra - ab * rb) / determinant, -0.5, 0.5), 1e-3, 5.0)
        log_s = np.clip(log_s + np.clip((aa * rb - ab * ra) / determinant, -1, 1), 1e-3, 9.0)
    kept = 1 - share * (1 - np.exp(-log_s))[:, None]
    rest = np.abs(y - (-index * slope[:, None] + np.log(kept))) / sigma
    return slope, log_s, np.sqrt(np.mean(rest**2, axis=1))


def _yarn(y: Array, sigma: Array, unit: float, pairs: int) -> list[Law]:
    """The ramp of YaRN is linear in i, from lo to hi."""
    m = len(y)
    head, tail = _runs(y, sigma)
    lows = np.arange(max(0, head - 14), head + 1)
    highs = np.arange(max(tail - 2, 1), min(tail + 15, 2 * m))
    if tail >= m - 4:
        highs = np.arange(max(tail - 2, 1), 2 * pairs)
    lo, hi = (grid.ravel() for grid in np.meshgrid(lows, highs, indexing="ij"))
    lo, hi = lo[lo < hi].astype(float), hi[lo < hi].astype(float)
    if not len(lo):
        return []
    share = np.clip((np.arange(m) - lo[:, None]) / (hi - lo)[:, None], 0, 1)
    slope, log_s, worst = _ramped(y, sigma, share)
    laws = []
    fitting = np.flatnonzero((worst < TYPICAL) & (log_s > LEAST_FACTOR))
    for k in fitting[np.argsort(worst[fitting])][:24]:
        law = _yarn_law(
            pairs, float(lo[k]), float(hi[k]), float(slope[k]), float(log_s[k]), sigma, unit, truncate=True
        )
        laws.append((_implausibility(law), worst[k], law))
    if not laws:
        best = int(np.argmin(worst))
        exact = _free_ramp(y, sigma, np.array([slope[best], log_s[best], lo[best], hi[best]]))
        if exact is None:
            return []
        law = _yarn_law(pairs, exact[2], exact[3], exact[0], exact[1], sigma, unit, truncate=False)
        return [law]
    laws.sort(key=lambda entry: entry[:2])
    return [law for _, _, law in laws[:6]]


def _implausibility(law: Law) -> float:
    """0 where the usual betas explain the ramp with a power of two, more where they do not."""
    parameters = law.parameters
    usual = all(parameters[name] == value for name, value in USUAL_RAMP.items())
    length = parameters["original_len"]
    return (0 if usual else 2) + (0 if float(np.log2(length)).is_integer() else 1)


def _free_ramp(y: Array, sigma: Array, start: Array) -> Array | None:
    """Gauss-Newton over slope, ln s, lo and hi, where the ends of the ramp are not whole numbers."""
    index = np.arange(len(y), dtype=np.float64)

    def model(p: Array) -> Array:
        share = np.clip((index - p[2]) / max(p[3] - p[2], 1e-3), 0, 1)
        return np.asarray(-index * p[0] + np.log(np.maximum(1 - share * (1 - np.exp(-p[1])), 1e-9)))

    return _gauss_newton(model, start, y, sigma, np.array([1e-6, 1e-6, 1e-4, 1e-4]))


def _gauss_newton(model: Any, start: Array, y: Array, sigma: Array, small: Array) -> Array | None:
    """Damped Gauss-Newton with differences; None where it does not come to fit."""
    p, damping = start.astype(np.float64), 1e-3
    rest = (y - model(p)) / sigma
    for _ in range(60):
        jacobian = np.stack(
            [
                (model(p + small * unit) - model(p - small * unit)) / (2 * small @ unit) / sigma
                for unit in np.eye(len(p))
            ],
            axis=1,
        )
        normal = jacobian.T @ jacobian
        change = np.linalg.lstsq(
            normal + damping * np.diag(np.diag(normal) + 1e-9), jacobian.T @ rest, rcond=None
        )[0]
        tried = (y - model(p + change)) / sigma
        if tried @ tried < rest @ rest:
            done = rest @ rest - tried @ tried < 1e-9 * (rest @ rest)
            p, rest, damping = p + change, tried, damping / 5
            if done:
                break
        else:
            damping *= 8
            if damping > 1e8:
                break
    return p if np.sqrt(np.mean(rest**2)) <= TYPICAL else None


def _yarn_law(
    m: int, lo: float, hi: float, slope: float, log_s: float, sigma: Array, unit: float, *, truncate: bool
) -> Law:
    """The original length and the betas that put the ramp there: the usual betas where they can."""
    error = 4 * float(np.median(sigma)) / np.sqrt(m)
    base = roundest(float(np.exp(slope * m)), float(np.exp(slope * m)) * max(error * 2, 4e-7))
    factor = roundest(float(np.exp(log_s)), float(np.exp(log_s)) * max(error * 4, 1e-6))

    def length(place: float, beta: float) -> float:
        return float(2 * np.pi * beta * base ** (place / m))

    def span(place: float, beta: float, after: bool) -> tuple[float, float]:
        if not truncate:
            middle = length(place, beta)
            return middle * 0.995, middle * 1.005
        low, high = (place, place + 1) if after else (place - 1, place)
        if after and place <= 0:
            low = -np.inf
        if not after and place >= 2 * m - 1:
            high = np.inf
        with np.errstate(over="ignore"):
            return length(low, beta), length(high, beta)

    for fast, slow in ((32.0, 1.0), (1.0, 1.0), (32.0, 4.0), (16.0, 1.0), (64.0, 1.0), (32.0, 2.0)):
        spans = span(lo, fast, True), span(hi, slow, False)
        low, high = max(s[0] for s in spans), min(s[1] for s in spans)
        if low <= high:
            original = _usual_length(low, high)
            note = f"original_len: anything from {low:.0f} to {high:.0f}" if truncate else ""
            parameters = {
                "factor": factor,
                "original_len": original,
                "beta_fast": fast,
                "beta_slow": slow,
                "truncate": truncate,
            }
            measured = float(np.exp(slope * m))
            return Law("yarn", base, unit, base * error, measured, parameters, (note,) if note else ())
    original = _usual_length(*span(hi, 1.0, False))
    fast = original / (2 * np.pi * base ** ((lo + 0.5 * truncate) / m))
    parameters = {
        "factor": factor,
        "original_len": original,
        "beta_fast": roundest(fast, 0.01 * fast),
        "beta_slow": 1.0,
    }
    note = "original_len, beta_fast and beta_slow: only the ends of the ramp are known"
    return Law("yarn", base, unit, base * error, 0.0, parameters | {"truncate": truncate}, (note,))


def _usual_length(low: float, high: float) -> float:
    """A power of two in the range, else the roundest number in it."""
    powers = [length for length in LENGTHS if low <= length <= high]
    if powers:
        return powers[len(powers) // 2]
    middle = 0.5 * (max(low, 1.0) + min(high, 1e12))
    for grid in (1024.0, 1000.0, 100.0, 64.0, 1.0):
        nearest = grid * round(middle / grid)
        if low <= nearest <= high and nearest > 0:
            return nearest
    return middle


def _llama3(y: Array, sigma: Array, unit: float, pairs: int) -> list[Law]:
    """Kept below the wavelength L0/high, divided above L0/low, between them a ramp linear in 1/wavelength."""
    m = len(y)
    index = np.arange(m, dtype=np.float64)
    head, tail = _runs(y, sigma)
    if tail > m - 2 or tail <= 1:
        return []
    slope = (
        fit_line(index[: head + 1], y[: head + 1], sigma[: head + 1]).slope
        if head > 1
        else float(y[0] - y[1])
    )
    if tail < m - 3:
        slope = (
            slope if head > m - tail else fit_line(index[tail + 1 :], y[tail + 1 :], sigma[tail + 1 :]).slope
        )
    log_s = float(np.clip(-slope * (m - 1) - y[-1], 0.01, 9.0))

    def model(p: Array) -> Array:
        logs = -index * p[0]
        low, high = (
            np.exp(p[2]),
            np.exp(p[2] + abs(p[3])),
        )  # frequencies 2 pi low_factor / L0, ... high_factor
        blend = np.clip((np.exp(logs) - low) / max(high - low, 1e-30), 0, 1)
        divisor = np.exp(-p[1])
        return np.asarray(logs + np.log((1 - blend) * divisor + blend))

    found: list[tuple[float, Law]] = []
    usual = [(length, low, high) for length in LENGTHS for low, high in USUAL_BANDS]
    starts = np.array(
        [[slope, log_s, np.log(2 * np.pi * low / n), np.log(high / low)] for n, low, high in usual]
    )
    costs = [float(np.sum(((y - model(p)) / sigma) ** 2)) for p in starts]
    small = np.array([1e-6, 1e-6])
    for k in np.argsort(costs)[:12]:
        fixed = starts[k][2:]
        fit = _gauss_newton(
            lambda p, fixed=fixed: model(np.concatenate([p, fixed])), starts[k][:2], y, sigma, small
        )
        if fit is not None and fit[1] > LEAST_FACTOR:
            length, low, high = usual[k]
            rest = float(np.sum(((y - model(np.concatenate([fit, fixed]))) / sigma) ** 2))
            found.append(
                (
                    rest + 2 * USUAL_BANDS.index((low, high)),
                    _llama3_law(fit, low, high, length, sigma, pairs, unit),
                )
            )
    if found:
        found.sort(key=lambda entry: entry[0])
        return [law for _, law in found[:4]]
    for k in np.argsort(costs)[:3]:
        fit = _gauss_newton(model, starts[k], y, sigma, np.array([1e-6, 1e-6, 1e-5, 1e-5]))
        if fit is not None and fit[1] > LEAST_FACTOR:
            length = float(2 * np.pi / np.exp(fit[2]))
            high = float(np.exp(abs(fit[3])))
            law = _llama3_law(
                fit, 1.0, roundest(high, 0.002 * high), roundest(length, 0.002 * length), sigma, pairs, unit
            )
            return [law]
    return []


def _llama3_law(fit: Array, low: float, high: float, length: float, sigma: Array, m: int, unit: float) -> Law:
    error = 4 * float(np.median(sigma)) / np.sqrt(m)
    base, factor = float(np.exp(fit[0] * m)), float(np.exp(fit[1]))
    parameters = {
        "factor": roundest(factor, factor * max(4 * error, 1e-6)),
        "original_len": length,
        "low_freq_factor": low,
        "high_freq_factor": high,
    }
    note = "original_len, low_freq_factor and high_freq_factor: only their ratios are known"
    short = roundest(base, base * max(2 * error, 4e-7))
    return Law("llama3", short, unit, base * error, base, parameters, (note,))
