"""A hypothesis is believed when the project's own functions make the same table from it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pe_cli.inspect.angles import frequency_slack
from pe_cli.inspect.precision import FLOAT32_STEP, Precision
from pe_cli.numerics.kernels import rotations

Array = NDArray[np.float64]
Frequencies = Sequence[Decimal] | Sequence[float] | NDArray[Any]
ROWS = 2048
GLANCE = 48


@dataclass
class Match:
    """`exact`: within one rounding; `float32_angles`: only within what float32 angles cost at each position.

    `ulps` is the largest error in ulps at the table's amplitude; where angles are of float32, in ulps plus
    float32 steps of the angle.
    """

    reproduced: bool
    exact: bool
    max_abs: float
    ulps: float

    @property
    def float32_angles(self) -> bool:
        return self.reproduced and not self.exact


def match_rotation(
    cos: Array, sin: Array, positions: Array, frequencies: Frequencies, amplitude: float, precision: Precision
) -> Match:
    """Compare cosines and sines [n, m] (NaN where a column is absent) with A exp(i p w)."""
    rows = len(positions)
    if rows > 8 * GLANCE:  # most hypotheses are wrong in a few rows
        few = np.unique(np.linspace(0, rows - 1, GLANCE).astype(int))
        glance = match_rotation(cos[few], sin[few], positions[few], frequencies, amplitude, precision)
        if not glance.reproduced:
            return glance
    angular = np.abs(np.array([float(w) for w in frequencies]))
    slack = 4 * frequency_slack(angular)
    worst, exact, reproduced = 0.0, True, True
    ulp = 2 * float(precision.half_ulp(np.array([amplitude * 0.99]))[0])
    stepped = 0.0
    for start in range(0, rows, ROWS):
        block = slice(start, start + ROWS)
        z = rotations(positions[block], frequencies, amplitude=amplitude)
        travelled = np.abs(np.outer(positions[block], angular)) * amplitude
        for part, model in ((cos[block], z.real), (sin[block], z.imag)):
            error = np.abs(part - model)
            error[np.isnan(part)] = 0
            half = precision.half_ulp(model)
            # the last float32 operations round once or twice more than the store
            exact &= bool((error <= 1.05 * half + 2.0**-51 * (amplitude + travelled)).all())
            room = 3.2 * half + 1.5 * FLOAT32_STEP * amplitude + slack * travelled
            reproduced &= bool((error <= room).all())
            if not reproduced:
                return Match(False, False, float(error.max()), float(error.max()) / ulp)
            worst = max(worst, float(error.max(initial=0.0)))
            stepped = max(stepped, float((error / (ulp + 2 * FLOAT32_STEP * travelled)).max(initial=0.0)))
    return Match(exact or reproduced, exact, worst, worst / ulp if exact else stepped)


def rope_frequencies(
    dim: int, base: float, scaling: str = "none", **options: Any
) -> tuple[Sequence[Decimal], float]:
    """The exact frequencies [dim / 2] of `pe gen rope` and the magnitude A that its scaling asks for."""
    from pe_cli.encodings.rope.scaling import frequencies

    if scaling == "yarn" and not options.get("truncate", True):
        options = options | {"truncate": False}
    made = frequencies(dim, base=base, scaling=scaling, **options)
    return made.inv_freq, made.attention_factor
