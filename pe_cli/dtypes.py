"""Element types: their names, their codes in files, and rounding to them once."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from pe_cli.errors import no_such

SAFETENSORS_CODES = {
    "float64": "F64",
    "float32": "F32",
    "float16": "F16",
    "bfloat16": "BF16",
    "float8_e4m3fn": "F8_E4M3",
    "float8_e5m2": "F8_E5M2",
    "complex64": "C64",
    "int64": "I64",
    "int32": "I32",
    "int16": "I16",
    "int8": "I8",
    "uint64": "U64",
    "uint32": "U32",
    "uint16": "U16",
    "uint8": "U8",
    "bool": "BOOL",
}
NOT_IN_NUMPY = frozenset({"bfloat16", "float8_e4m3fn", "float8_e5m2"})
FLOATS = ("float64", "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2")


def numpy_dtype(name: str) -> np.dtype[Any]:
    """The numpy dtype called `name`; ml_dtypes is imported only for the types that numpy lacks."""
    if name in NOT_IN_NUMPY:
        import ml_dtypes

        return np.dtype(getattr(ml_dtypes, name))
    if name not in SAFETENSORS_CODES and name != "complex128":
        raise no_such("dtype", name, SAFETENSORS_CODES)
    return np.dtype(name)


def round_to(values: NDArray[Any], dtype: np.dtype[Any] | str) -> NDArray[Any]:
    """`values` in `dtype`, rounded once to the nearest, ties to even.

    ml_dtypes converts float64 by way of float32, which rounds twice; here the first step rounds to odd,
    so that the second one sees on which side of a tie the value lay (Boldo and Melquiond, 2008).
    """
    target = numpy_dtype(dtype) if isinstance(dtype, str) else dtype
    if target.name in NOT_IN_NUMPY and values.dtype == np.float64:
        return _to_odd_float32(values).astype(target)
    return values.astype(target, copy=False)


def _to_odd_float32(values: NDArray[np.float64]) -> NDArray[np.float32]:
    with np.errstate(over="ignore"):
        nearest = values.astype(np.float32)
    bits = nearest.view(np.uint32)
    away = np.abs(nearest) > np.abs(values)
    inexact = nearest != values
    inexact &= ~np.isnan(values)
    bits -= away.astype(np.uint32)
    bits |= inexact.astype(np.uint32)
    return nearest
