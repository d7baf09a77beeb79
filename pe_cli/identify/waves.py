"""Angles from cosines alone or sines alone: steps and first angles of waves that are evenly spaced."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pe_cli.identify.precision import FLOAT32_STEP, Precision
from pe_cli.identify.rotation import ROUNDING, TURN, Rotation, most_rows, unless_one

Array = NDArray[np.float64]


def even_wave(wave: Array, precision: Precision) -> Rotation | None:
    """Steps and first angles from cosines alone or sines alone [n, m], evenly spaced, of amplitude 1 or A.

    x[r+1] + x[r-1] = 2 cos(step) x[r] gives the step; the first angle is that of the best sum of cosine and
    sine, in the convention of the cosine.
    """
    wave = wave[: most_rows(4 * wave.shape[1])]
    n, m = wave.shape
    if n < 4:
        return None
    centre, sides = wave[1:-1], wave[2:] + wave[:-2]
    power = np.einsum("ri,ri->i", centre, centre)
    ratio = np.einsum("ri,ri->i", centre, sides) / np.maximum(power, 1e-300)
    if (
        np.abs(sides - ratio * centre) > 8 * np.abs(wave).max() * (2 * precision.unit + FLOAT32_STEP * n)
    ).any():
        return None
    place = np.arange(n, dtype=np.float64)
    step, even, odd, error = _best_waves(wave, place, np.arccos(np.clip(ratio / 2, -1, 1)))
    step[np.ptp(wave, axis=0) == 0] = 0
    model = even * np.cos(np.outer(place, step)) + odd * np.sin(np.outer(place, step))
    slack = 8 * precision.unit + 8 * FLOAT32_STEP * (1 + np.outer(place, step)) + 1e-3 * (step > 0.05)
    clear = step * n > 1.5
    off = np.abs(model - wave) > slack * np.maximum(1.0, np.abs(wave).max())
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
    if len(slow) and not np.any(wave[0]):
        step[slow], by_rounding = _slow_sines(wave[:, slow] / amplitude, precision)
        error[slow] = np.hypot(by_rounding, step[slow] * precision.unit / 8)  # of the amplitude
        first[slow] = -np.pi / 2
    elif len(slow) and np.ptp(wave[0]) == 0:
        step[slow], error[slow] = _slow_cosines(wave[:, slow] / amplitude, precision)
        first[slow] = 0.0
    return Rotation(amplitude, step, error, first, np.full(m, 4 * scale), place, True)


def _best_waves(wave: Array, place: Array, step: Array) -> tuple[Array, Array, Array, Array]:
    """The best of the fits that begin from the step of the first rows, from the strongest frequency, and, for
    waves that hardly turn, from parts of a turn."""
    n, m = wave.shape
    length = min(n, 8)
    while length < n:
        for _ in range(4):
            step, *_ = _wave_fit(wave[:length], place[:length], step)
        length = min(n, 2 * length)
    padded = 4 * n
    strength = np.abs(np.fft.rfft(wave, padded, axis=0))
    starts = [step, TURN * strength.argmax(axis=0) / padded]
    starts += [np.full(m, turned / n) for turned in (1.0, 2.5, 4.0, 6.0)]
    best: tuple[Array, Array, Array, Array] | None = None
    least = np.full(m, np.inf)
    for start in starts:
        todo = ~(least <= 1e-6) if best is None else np.sqrt(least) > FITTED * np.abs(wave).max()
        if best is not None and not todo.any():
            break
        fit = start[todo]
        for _ in range(5):
            fit, even_fit, odd_fit, error_fit = _wave_fit(wave[:, todo], place, fit)
        angle = np.outer(place, fit)
        rest = np.mean((wave[:, todo] - even_fit * np.cos(angle) - odd_fit * np.sin(angle)) ** 2, axis=0)
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


def _wave_fit(wave: Array, place: Array, step: Array) -> tuple[Array, Array, Array, Array]:
    """One Gauss-Newton step of x = even cos(r step) + odd sin(r step), all pairs at once."""
    angle = np.outer(place, step)
    c, s = np.cos(angle), np.sin(angle)
    basis = np.stack([c, s], axis=-1)  # (n, m, 2)
    normal = np.einsum("rik,ril->ikl", basis, basis) + 1e-12 * np.eye(2)
    level = np.linalg.solve(normal, np.einsum("rik,ri->ik", basis, wave)[..., None])[..., 0]
    even, odd = level[:, 0], level[:, 1]
    slope = place[:, None] * (odd * c - even * s)
    jacobian = np.stack([c, s, slope], axis=-1)
    rest = wave - even * c - odd * s
    normal = np.einsum("rik,ril->ikl", jacobian, jacobian)
    normal = normal + 1e-10 * np.einsum("ikk->i", normal)[:, None, None] * np.eye(3)
    inverse = np.linalg.inv(normal)
    change = np.einsum("ikl,il->ik", inverse, np.einsum("rik,ri->ik", jacobian, rest))
    limit = 1.0 / max(len(place), 1)
    step = np.abs(step + np.clip(change[:, 2], -limit, limit))
    return step, even, odd, np.sqrt(np.maximum(inverse[:, 2, 2], 0))
