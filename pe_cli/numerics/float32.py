"""torch's float32 power, cosine and sine on x86, in numpy: mostly the nearest float32, now and then its neighbour.

numpy's own float32 functions differ from them in a sixth of all values; correct rounding differs in a
twentieth. What differs is known: SLEEF's exponential and MKL's sine are short polynomials.
"""

from __future__ import annotations

import math
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Float32: TypeAlias = NDArray[np.float32]

f32 = np.float32

# e^s = 1 + s + s^2 P(s) for |s| <= ln 2 / 2, the coefficients of SLEEF's `expf` kernel, highest first.
_EXP = (
    0.00136324646882712841,
    0.00836596917361021041,
    0.0416710823774337769,
    0.166665524244308472,
    0.499999850988388062,
)
POWERS_AT_ONCE = 32  # torch takes whole groups of this many by SLEEF, and the rest by the C library

# sin r = r + r^3 S(r^2) for |r| <= pi / 2, to 4e-9: recovered from torch's own values, of which they give
# all but one in 100,000. Beyond 10000 radians MKL changes to a method that is nearly always correctly rounded.
_SINE = (-0.16666659550982146, 0.008333066258740302, -0.0001980960380842953, 2.6057826286839137e-06)
LARGE_ANGLE = 10000.0

# pi as a head of 33 bits, whose product with a 20-bit integer is exact in float64, and the rest.
_PI_HEAD = 3.1415926534682512
_PI_TAIL = 1.2154201256553420e-10


def power(base: float | np.float32, exponents: Float32) -> Float32:
    """base ** exponents as torch rounds it: mostly the nearest float32, now and then its neighbour."""
    exact = np.power(np.float64(base), exponents.astype(np.float64))
    result: Float32 = exact.astype(np.float32)
    whole = len(exponents) - len(exponents) % POWERS_AT_ONCE
    # SLEEF's logarithm is good to double precision; only its exponential shows in the result.
    logarithm = exponents[:whole].astype(np.float64) * np.log(np.float64(base))
    octave = np.rint(logarithm / math.log(2))
    s = logarithm - octave * math.log(2)
    s_rounded = s.astype(np.float32)
    series = np.full(whole, f32(_EXP[0]))
    for coefficient in _EXP[1:]:
        fused = series.astype(np.float64) * s_rounded + np.float64(f32(coefficient))
        series = fused.astype(np.float32)
    result[:whole] = np.ldexp(1 + s + s * s * series.astype(np.float64), octave.astype(np.int64)).astype(
        np.float32
    )
    return result


def cos_sin(angles: Float32) -> tuple[Float32, Float32]:
    """torch's cos and sin of float32 angles, of any shape."""
    exact = angles.astype(np.float64)
    cos, sin = _cosine(exact), _sine(exact)
    large = np.abs(exact) > LARGE_ANGLE
    if large.any():
        cos[large] = np.cos(exact[large]).astype(np.float32)
        sin[large] = np.sin(exact[large]).astype(np.float32)
    return cos, sin


def _sine(x: NDArray[np.float64]) -> Float32:
    turns = np.rint(x / math.pi)
    return _folded_sine(x, turns, turns)


def _cosine(x: NDArray[np.float64]) -> Float32:
    turns = np.rint(x / math.pi - 0.5)
    return _folded_sine(x, turns + 0.5, turns + 1)


def _folded_sine(
    x: NDArray[np.float64], half_turns: NDArray[np.float64], sign: NDArray[np.float64]
) -> Float32:
    """(-1)^sign sin(x - half_turns pi)."""
    r = (x - half_turns * _PI_HEAD) - half_turns * _PI_TAIL
    square = r * r
    series = _SINE[3] * square
    for coefficient in _SINE[2::-1]:
        series = (series + coefficient) * square
    r += r * series
    np.negative(r, where=(sign.astype(np.int64) & 1).astype(bool), out=r)
    return r.astype(np.float32)
