"""Scalings that treat slow pairs otherwise than fast ones: the ramps of YaRN and of Llama 3.

The ends of a ramp, the factor and the base are fitted together; of several settings that give the same
frequencies, the usual one is reported and the rest is said to be ambiguous.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pe_cli.errors import PeError
from pe_cli.inspect.laws import (
    TYPICAL,
    Line,
    digits_of,
    fit_line,
    log_errors,
    roundest,
)
from pe_cli.inspect.result import Array, Identified, Law, stored_precision, tidy
from pe_cli.inspect.sinusoids import rope_frequencies

USUAL_RAMP = {"beta_fast": 32.0, "beta_slow": 1.0}
USUAL_BANDS = ((1.0, 4.0), (1.0, 1.0), (1.0, 2.0), (1.0, 8.0), (1.0, 16.0), (2.0, 4.0), (2.0, 8.0))
NEAREST = 4  # ramps between whole numbers from which one between others is looked for
LEAST_FACTOR = 0.02  # of ln s: less is no scaling
FIRST_STEPS, HOPELESS = 10, 1e4  # after which a fit is given up that is so many standard errors off
LENGTHS = tuple(2.0**k for k in range(8, 22))


def ramped_laws(
    step: Array, error: Array, unit: float, pairs: int, amplitude: tuple[float, float]
) -> list[Law]:
    """The laws of YaRN and of Llama 3 that the first steps of `pairs` may follow."""
    y, sigma = log_errors(step / unit, error / unit)
    factor = _factor_of(*amplitude)
    told = _yarn(y, sigma, unit, pairs, factor) if factor else []
    return told or _llama3(y, sigma, unit, pairs) + _yarn(y, sigma, unit, pairs)


def _factor_of(amplitude: float, error: float) -> float | None:
    """The factor of YaRN that a magnitude tells, where it is a short number."""
    if not 1.02 < amplitude < 1.8:
        return None
    factor = float(np.exp(10 * (amplitude - 1)))
    short = roundest(factor, 10 * error * factor + 1e-6)
    return short if digits_of(short) <= 3 else None


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


def _ramped(y: Array, sigma: Array, share: Array, factor: float | None = None) -> tuple[Array, Array, Array]:
    """ln u = -i slope + ln(1 - share (1 - 1/s)) for many shares [k, m] at once: slope, ln s, typical residual.

    With `factor`, s is known.
    """
    m = len(y)
    index = np.arange(m, dtype=np.float64)
    weight = 1 / sigma**2
    slope = np.full(len(share), float(y[0] - y[min(1, m - 1)]))
    log_s = np.clip(-slope * (m - 1) - y[-1], 0.2, 6.0)
    if factor is not None:
        log_s = np.full(len(share), np.log(factor))
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
        change = ra / aa if factor is not None else (bb * ra - ab * rb) / determinant
        slope = np.clip(slope + np.clip(change, -0.5, 0.5), 1e-3, 5.0)
        if factor is not None:
            continue
        log_s = np.clip(log_s + np.clip((aa * rb - ab * ra) / determinant, -1, 1), 1e-3, 9.0)
    kept = 1 - share * (1 - np.exp(-log_s))[:, None]
    rest = np.abs(y - (-index * slope[:, None] + np.log(kept))) / sigma
    return slope, log_s, np.sqrt(np.mean(rest**2, axis=1))


def _yarn(y: Array, sigma: Array, unit: float, pairs: int, factor: float | None = None) -> list[Law]:
    """The ramp of YaRN is linear in i, from lo to hi; `factor` where the magnitude tells it."""
    m = len(y)
    head, tail = _runs(y, sigma)
    lows = np.arange(max(0, head - 14), head + 1)
    highs = np.arange(max(tail - 2, 1), min(tail + 15, 2 * m))
    if tail >= m - 4:
        highs = np.arange(max(tail - 2, 1), 2 * pairs)
    lo, hi = (grid.ravel() for grid in np.meshgrid(lows, highs, indexing="ij"))
    # where the usual betas put the end of the ramp, also far behind the last pair
    reach = np.log(USUAL_RAMP["beta_fast"]) / max(_slope_of_head(y, sigma, head), 1e-3)
    usual = np.floor(lows[:, None] + reach + np.arange(-1, 3))
    lo = np.concatenate([lo, np.repeat(lows, usual.shape[1])])
    hi = np.concatenate([hi, usual.ravel().astype(int)])
    lo, hi = lo[lo < hi].astype(float), hi[lo < hi].astype(float)
    if not len(lo):
        return []
    share = np.clip((np.arange(m) - lo[:, None]) / (hi - lo)[:, None], 0, 1)
    slope, log_s, worst = _ramped(y, sigma, share, factor)
    laws = []
    fitting = np.flatnonzero((worst < TYPICAL) & (log_s > LEAST_FACTOR))
    for k in fitting[np.argsort(worst[fitting])][:24]:
        law = _yarn_law(
            pairs, float(lo[k]), float(hi[k]), float(slope[k]), float(log_s[k]), sigma, unit, truncate=True
        )
        laws.append((_implausibility(law), worst[k], law))
    laws.sort(key=lambda entry: entry[:2])
    found = [law for _, _, law in laws[:6]]
    near = np.argsort(worst)[:NEAREST]
    starts = [np.array([slope[k], log_s[k], lo[k], hi[k]]) for k in near]
    exact = _free_ramp(y, sigma, starts, factor)
    if exact is not None and exact[1] > LEAST_FACTOR:
        found.append(_yarn_law(pairs, exact[2], exact[3], exact[0], exact[1], sigma, unit, truncate=False))
    return found


def _slope_of_head(y: Array, sigma: Array, head: int) -> float:
    return fit_line(np.arange(head + 1, dtype=np.float64), y[: head + 1], sigma[: head + 1]).slope


def _implausibility(law: Law) -> float:
    """0 where the usual betas explain the ramp with a power of two, more where they do not."""
    parameters = law.parameters
    usual = all(parameters[name] == value for name, value in USUAL_RAMP.items())
    length = parameters["original_len"]
    return (0 if usual else 2) + (0 if float(np.log2(length)).is_integer() else 1)


def _free_ramp(y: Array, sigma: Array, starts: list[Array], factor: float | None) -> Array | None:
    """Slope, ln s, lo and hi of a ramp whose ends are not whole numbers: with the usual betas, which set hi by lo,
    and else with both ends free. With `factor`, s is known."""
    index = np.arange(len(y), dtype=np.float64)

    def whole(p: Array, usual: bool) -> Array:
        log_s = np.log(factor) if factor is not None else p[1]
        hi = p[2] + np.log(USUAL_RAMP["beta_fast"] / USUAL_RAMP["beta_slow"]) / p[0] if usual else p[3]
        return np.array([p[0], log_s, p[2], hi])

    for usual in (True, False):

        def model(p: Array, usual: bool = usual) -> Array:
            slope, log_s, lo, hi = whole(p, usual)
            share = np.clip((index - lo) / max(hi - lo, 1e-3), 0, 1)
            return np.asarray(-index * slope + np.log(np.maximum(1 - share * (1 - np.exp(-log_s)), 1e-9)))

        for start in starts:
            fit = _gauss_newton(model, start, y, sigma, np.array([1e-6, 1e-6, 1e-4, 1e-4]))
            if fit is not None:
                return whole(fit, usual)
    return None


def _gauss_newton(model: Any, start: Array, y: Array, sigma: Array, small: Array) -> Array | None:
    """Damped Gauss-Newton with differences; None where it does not come to fit."""
    p, damping = start.astype(np.float64), 1e-3
    rest = (y - model(p)) / sigma
    for turn in range(60):
        if turn == FIRST_STEPS and np.mean(rest**2) > HOPELESS**2:
            return None
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


# -- divisors ----------------------------------------------------------------------------------------------------


def identify_divisors(vector: NDArray[Any], name: str | None) -> Identified | None:
    """ggml's `rope_freqs` (m,): 1 where a pair is kept, the factor where it is divided; or what the name calls divisors."""
    return _ramped_divisors(vector) or (_named_divisors(vector, name) if name else None)


def _ramped_divisors(vector: NDArray[Any]) -> Identified | None:
    values = vector.astype(np.float64)
    if values.ndim != 1 or len(values) < 8 or not np.isfinite(values).all():
        return None
    if values[0] != 1 or values[-1] <= 1 or (np.diff(values) < 0).any() or values[1] != 1:
        return None
    factor = float(values[-1])
    if (values == factor).sum() < 2 or digits_of(factor) > 4:
        return None
    precision = stored_precision(vector)
    for base, scaling, options in _divisor_hypotheses(factor):
        try:
            frequencies, _ = rope_frequencies(2 * len(values), base, scaling, **options)
        except PeError:
            continue
        plain, _ = rope_frequencies(2 * len(values), base)
        made = np.array([float(p / f) for p, f in zip(plain, frequencies, strict=True)])
        if (np.abs(values - made) <= 2.1 * precision.half_ulp(made) + 1e-6 * made).all():
            facts = {
                "layout": "ggml-factors",
                "dim": 2 * len(values),
                "base": base,
                "scaling": scaling,
            } | options
            return Identified(
                "rope",
                facts,
                float(np.max(np.abs(values - made) / precision.half_ulp(made) / 2)),
                precision.name,
            )
    return None


def _divisor_hypotheses(factor: float) -> Iterator[tuple[float, str, dict[str, Any]]]:
    """Known bases and lengths: a vector of divisors shows the base only through where its ramp lies."""
    for base in (500000.0, 10000.0, 1000000.0, 12000000.0, 150000.0, 5000000.0):
        for length in (8192.0, 4096.0, 32768.0, 131072.0, 16384.0, 65536.0):
            bands = {"low_freq_factor": 1.0, "high_freq_factor": 4.0}
            yield base, "llama3", {"factor": factor, "original_len": length} | bands
            for truncate in (True, False):
                yield base, "yarn", {"factor": factor, "original_len": length, "truncate": truncate}


def _named_divisors(array: NDArray[Any], name: str) -> Identified | None:
    """The divisors (m,) of rotary frequencies that ggml keeps under a name of their own, whatever they are."""
    from pe_cli.position_names import named

    row = named(name, array.shape)
    values = array.astype(np.float64)
    if row is None or row.source != "ggml" or row.encoding != "rope":
        return None
    if not (np.isfinite(values) & (values > 0)).all():
        return None
    facts: dict[str, Any] = {"layout": "ggml-factors", "dim": 2 * len(values)}
    facts |= {"scaling": "longrope"} if "longrope" in row.role.lower() else {}
    facts["factors"] = [tidy(float(value)) for value in values]
    note = "any base: the divisors are told by the name, and do not say which frequencies they divide"
    return Identified("rope", facts, precision=stored_precision(array).name, ambiguous=[note])
