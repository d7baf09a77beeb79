"""Vectors of frequencies: `inv_freq`, their inverses, the divisors of ggml."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pe_cli.errors import PeError
from pe_cli.inspect.laws import digits_of, rounded_geometric, roundest, variants
from pe_cli.inspect.ramps import rope_laws
from pe_cli.inspect.result import FLOAT32_STEP, Identified, Law, Precision, stored_precision, tidy
from pe_cli.inspect.sinusoids import rope_frequencies
from pe_cli.numerics.dtypes import round_to

Array = NDArray[np.float64]
FEWEST = 4


def identify_frequencies(vector: NDArray[Any], named_so: bool = False) -> Identified | None:
    """`inv_freq` (m,) falling, or its inverse (m,) rising as mlx stores it.

    Frequencies of no known rule are believed only where the tensor is `named_so`.
    """
    values = vector.astype(np.float64)
    if values.ndim != 1 or len(values) < FEWEST or np.isnan(values).any() or np.isinf(values[:2]).any():
        return None
    precision = stored_precision(vector)
    rising = values[-1] > values[0] >= 0.99 and not np.isinf(values[0])
    with np.errstate(divide="ignore"):
        w = 1 / values if rising else values
    if w[0] > 1.01 or w[0] <= 0 or (w < 0).any() or (np.diff(w) > 0).any():
        return None
    live = int((w > 0).sum())
    if live < FEWEST:
        return None
    with np.errstate(divide="ignore"):
        error = w[:live] * np.maximum(precision.half_ulp(values[:live]) / values[:live], FLOAT32_STEP)
    for law in rope_laws(w[:live], error, len(w)):
        for variant in variants(law):
            named = _matched(variant, w, values, rising, precision)
            if named is None:
                continue
            if named.residual is not None and named.residual > EXACT:
                sharper = _matched(_sharper(variant, values, rising, precision), w, values, rising, precision)
                if sharper is not None and (sharper.residual or 0) < named.residual:
                    return sharper
            return named
    cast = None if rising or live < len(w) else rounded_geometric(w)
    if cast is not None:
        facts = {
            "layout": "inv-freq",
            "dim": 2 * live,
            "base": cast[1],
            "scaling": "none",
            "frequency_dtype": cast[0],
        }
        return Identified("rope", facts, 0.0, precision.name)
    if not named_so or live < len(w):
        return None
    divisors = 10000.0 ** (-np.arange(live) / live) / w
    facts = {
        "layout": "mlx-freqs" if rising else "inv-freq",
        "dim": 2 * live,
        "base": 10000.0,
    }
    facts |= {"scaling": "longrope", "factors": [tidy(float(f)) for f in divisors]}
    note = "base 10000 is assumed: only base and factors together are known"
    return Identified("rope", facts, None, precision.name, [note])


EXACT = 0.51  # ulps
SMALL = 1e-7


def _sharper(law: Law, values: Array, rising: bool, precision: Precision) -> Law:
    """The law with the roundest base that all entries allow within half an ulp, if there is one."""
    stored = []
    for base in (law.base, law.base * (1 + SMALL)):
        try:
            frequencies, _ = rope_frequencies(2 * len(values), base, law.scaling, **law.parameters)
        except PeError:
            return law
        made = np.array([float(f) for f in frequencies])
        stored.append(1 / made if rising else made)
    slope = (stored[1] - stored[0]) / (SMALL * law.base)
    telling = np.isfinite(slope) & (np.abs(slope) * law.base > 1e-3 * np.abs(stored[0]))
    if not telling.any():
        return law
    middle = law.base + (values - stored[0])[telling] / slope[telling]
    room = precision.half_ulp(values[telling]) / np.abs(slope[telling])
    low, high = float((middle - room).max()), float((middle + room).min())
    if not 10 < low < high:
        return law
    return replace(law, base=roundest(0.5 * (low + high), 0.5 * (high - low)))


def _matched(law: Law, w: Array, values: Array, rising: bool, precision: Precision) -> Identified | None:
    if law.unit != 1 or not 10 <= law.base <= 1e12:
        return None
    try:
        frequencies, magnitude = rope_frequencies(2 * len(w), law.base, law.scaling, **law.parameters)
    except PeError:
        return None
    made = np.array([float(f) for f in frequencies])
    with np.errstate(divide="ignore", invalid="ignore"):
        stored = 1 / made if rising else made
        half = precision.half_ulp(np.where(np.isfinite(stored), stored, 0))
        error = np.abs(values - stored)
        error[values == round_to(stored, precision.name).astype(np.float64)] = 0
    room = 2.1 * half + 1.5e-6 * np.where(np.isfinite(stored), stored, 0)
    if not (error <= room).all():
        return None
    worst = float(np.max(error / (2 * half)))
    facts = {
        "layout": "mlx-freqs" if rising else "inv-freq",
        "dim": 2 * len(w),
        "base": law.base,
    }
    facts |= {"scaling": law.scaling} | law.parameters
    if magnitude != 1:
        facts["attention_factor"] = tidy(magnitude)
    ambiguous = list(law.ambiguous)
    if law.scaling == "none" and law.base != 10000:
        ambiguous.append(f"a base of {law.base:.10g}, or NTK scaling of a smaller base")
    return Identified("rope", facts, worst, precision.name, ambiguous)


def identify_divisors(vector: NDArray[Any]) -> Identified | None:
    """ggml's `rope_freqs` (m,): 1 where a pair is kept, the factor where it is divided."""
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
