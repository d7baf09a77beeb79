"""Element types: their names, their codes in files, and rounding to them once."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from pe_cli.errors import PeError, no_such

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
PARTS = {"complex64": "float32", "complex128": "float64"}
EXACT_IN_FLOAT32 = frozenset(
    "float32 float16 bfloat16 float8_e4m3fn float8_e5m2 complex64 int8 uint8 int16 uint16 bool".split()
)
ALIASES = {
    "double": "float64",
    "fp64": "float64",
    "single": "float32",
    "fp32": "float32",
    "half": "float16",
    "fp16": "float16",
    "fp8": "float8_e4m3fn",
    "float8": "float8_e4m3fn",
    **dict.fromkeys(("fp8_e4m3", "fp8_e4m3fn", "float8_e4m3", "e4m3", "e4m3fn"), "float8_e4m3fn"),
    **dict.fromkeys(("fp8_e5m2", "e5m2"), "float8_e5m2"),
    **{SAFETENSORS_CODES[name].lower(): name for name in FLOATS},
}
ElementType: TypeAlias = str | np.dtype[Any] | type[np.generic]


def dtype_name(given: Any) -> str:
    """The name, one of FLOATS, of a type that is given by name in any case, as a type of numpy, or of torch.

    >>> dtype_name("FP16"), dtype_name(np.float32), dtype_name("torch.bfloat16")
    ('float16', 'float32', 'bfloat16')
    """
    name = given if isinstance(given, str) else getattr(given, "name", None)
    if not isinstance(name, str):
        name = given.__name__ if isinstance(given, type) else str(given)
    folded = name.lower().replace("-", "_").rpartition(".")[2]  # torch.bfloat16, np.float32
    found = ALIASES.get(folded, folded)
    if folded == "float":
        raise PeError("no dtype 'float': torch means float32 by it, numpy float64; write one of these")
    if found not in FLOATS:
        raise no_such("dtype", name, FLOATS, ALIASES)
    return found


def numpy_dtype(name: ElementType) -> np.dtype[Any]:
    """The numpy dtype called `name`; ml_dtypes is imported only for the types that numpy lacks."""
    if not isinstance(name, str):
        return np.dtype(name)
    if name in NOT_IN_NUMPY:
        import ml_dtypes

        extended: np.dtype[Any] = np.dtype(getattr(ml_dtypes, name))
        return extended
    if name not in SAFETENSORS_CODES and name != "complex128":
        raise no_such("dtype", name, SAFETENSORS_CODES)
    return np.dtype(name)


def largest(name: ElementType) -> float:
    """The largest finite number of a float type."""
    if name in NOT_IN_NUMPY:
        import ml_dtypes

        return float(ml_dtypes.finfo(name).max)
    return float(np.finfo(numpy_dtype(name)).max)


def rounding_of(number: float, dtype: ElementType) -> float:
    """By how much rounding to `dtype` can change numbers up to `number`: half a unit in its last place.

    >>> rounding_of(1.5, "bfloat16")
    0.00390625
    """
    real = np.zeros((), numpy_dtype(dtype)).real
    with np.errstate(over="ignore"):
        return float(np.spacing(np.abs(number).astype(real.dtype))) / 2


def round_to(values: NDArray[Any], dtype: ElementType) -> NDArray[Any]:
    """`values` in `dtype`, rounded once to the nearest, ties to even; `values` themselves if nothing changes.

    What is too large becomes infinite, or NaN in float8_e4m3fn, which has no infinity. ml_dtypes before 0.7
    converts float64 by way of float32, which rounds twice; here the first step rounds to odd, so that the second
    one sees on which side of a tie the value lay (Boldo and Melquiond 2008, "Emulation of FMA and correctly
    rounded sums: proved algorithms using rounding to odd").
    """
    target = numpy_dtype(dtype)
    if values.dtype == target:
        return values
    rounded = np.empty(values.shape, target)
    round_into(rounded, values)
    return rounded


def round_into(out: NDArray[Any], values: NDArray[Any]) -> None:
    """`out[...] = values`, rounded as by `round_to`."""
    in_numpy = out.dtype.isbuiltin != 2  # asking for a dtype's name takes longer than many a block
    with np.errstate(over="ignore", invalid="ignore"):
        if in_numpy or np.can_cast(values.dtype, np.float32):
            np.copyto(out, values, casting="unsafe")
        elif values.ndim == 0:
            out[...] = _to_odd_float32(values.astype(np.float64))
        else:
            # In pieces: scratch arrays of a whole block would be given back to the system, and faulted in again.
            rows = max(1, _PIECE * len(values) // max(1, values.size))
            for first in range(0, len(values), rows):
                piece = values[first : first + rows].astype(np.float64, copy=False)
                out[first : first + rows] = _to_odd_float32(piece)


_PIECE = 16384

# A float64 has 29 bits more than a float32.
_EXTRA = np.uint64(2**29 - 1)
_SMALLEST_NORMAL_FLOAT32 = np.float32(2.0**-126)


def _to_odd_float32(values: NDArray[np.float64]) -> NDArray[np.float32]:
    """float32 with the last bit set where anything was cut off."""
    bits = values.view(np.uint64)
    odd = bits & _EXTRA
    odd += _EXTRA  # carries into the last bit of a float32 unless all that is cut off is zero
    odd |= bits
    odd &= ~_EXTRA
    cut: NDArray[np.float32] = odd.view(np.float64).astype(np.float32)
    tiny = np.abs(cut) < _SMALLEST_NORMAL_FLOAT32
    if tiny.any():
        cut[tiny] = _tiny_to_odd_float32(values[tiny])
    return cut


def _tiny_to_odd_float32(values: NDArray[np.float64]) -> NDArray[np.float32]:
    """The same below 2^-126, where a float32 has fewer bits than `_to_odd_float32` counts with."""
    steps = np.abs(values) * 2.0**149
    whole = np.floor(steps)
    whole += (whole != steps) & (whole % 2 == 0)
    return np.copysign(whole * 2.0**-149, values).astype(np.float32)


def smallest_integer(low: int, high: int) -> type[np.signedinteger[Any] | np.unsignedinteger[Any]]:
    """The smallest integer type that holds the numbers from `low` to `high`."""
    for kind in (np.int8, np.uint8, np.int16, np.int32, np.int64):
        if np.iinfo(kind).min <= low and high <= np.iinfo(kind).max:
            return kind
    raise PeError(f"{low} to {high} is beyond all integers of 64 bits")


def working_type(*names: str) -> np.dtype[Any]:
    """float32 where that holds every value of all types exactly, else float64."""
    return np.dtype(np.float32 if EXACT_IN_FLOAT32.issuperset(names) else np.float64)


def narrower(a: str, b: str) -> str:
    """The type in whose steps two tables are compared: of the floating-point types the one with fewer digits."""
    floats = [name for name in (PARTS.get(a, a), PARTS.get(b, b)) if name in FLOATS]
    return max(floats, key=FLOATS.index) if floats else "int64"
