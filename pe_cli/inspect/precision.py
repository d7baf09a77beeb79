"""How precisely a table is stored, and the units in which its residual is judged.

A table is often kept in a wider type than it was rounded to (bfloat16 values in a float32 file), so the
precision is read from the values, not from the dtype.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pe_cli.numerics.dtypes import numpy_dtype

FLOAT32_STEP = 2.0**-24  # half an ulp of a float32 between 1 and 2, relative


@dataclass(frozen=True)
class Precision:
    """A floating type: `unit` is half an ulp relative to a power of two, `tiny` half the smallest step."""

    name: str
    unit: float
    tiny: float

    def half_ulp(self, values: NDArray[Any]) -> NDArray[np.float64]:
        """Half the distance between neighbours at each value: the error of one rounding."""
        _, exponent = np.frexp(np.abs(values))
        exponent = np.where(values == 0, -1074, exponent)
        return np.maximum(np.ldexp(self.unit, exponent), self.tiny)


PRECISIONS = {
    p.name: p
    for p in (
        Precision("float64", 2.0**-54, 2.0**-1075),
        Precision("float32", 2.0**-25, 2.0**-150),
        Precision("float16", 2.0**-12, 2.0**-25),
        Precision("bfloat16", 2.0**-9, 2.0**-134),
        Precision("float8_e4m3fn", 2.0**-5, 2.0**-10),
        Precision("float8_e5m2", 2.0**-4, 2.0**-17),
    )
}
NARROW_FIRST = ("float8_e5m2", "float8_e4m3fn", "bfloat16", "float16", "float32", "float64")
SAMPLE = 1 << 14
FEWEST_MANTISSAS, FEWEST_VALUES = 4, 40


def stored_precision(values: NDArray[Any]) -> Precision:
    """The narrowest floating type that holds every value of the table exactly.

    Values with few distinct mantissas, such as powers of two, would look narrow by chance: their dtype counts.
    """
    if values.dtype.kind == "c":
        values = values.view(values.real.dtype)
    sample = values.reshape(-1)
    if sample.size > SAMPLE:
        sample = sample[:: (sample.size // SAMPLE) | 1]
    if sample.dtype.name in PRECISIONS and sample.dtype.name not in ("float64", "float32"):
        return PRECISIONS[sample.dtype.name]
    exact = sample.astype(np.float64)
    exact = exact[np.isfinite(exact)]
    widest = "float32" if values.dtype.name == "float32" else "float64"
    if (
        np.unique(np.frexp(np.abs(exact))[0]).size < FEWEST_MANTISSAS
        or np.unique(np.abs(exact)).size < FEWEST_VALUES
    ):
        return PRECISIONS[widest]
    for name in NARROW_FIRST:
        with np.errstate(over="ignore", invalid="ignore"):
            if np.array_equal(exact.astype(numpy_dtype(name)).astype(np.float64), exact):
                return PRECISIONS[name]
    return PRECISIONS[widest]
