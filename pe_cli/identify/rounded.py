"""Geometric frequencies that were rounded to a narrow type: what a model cast to half precision turns by."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pe_cli.dtypes import round_to
from pe_cli.identify.laws import USUAL_BASE, roundest

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
    return np.asarray(round_to(exact, name), dtype=np.float64)
