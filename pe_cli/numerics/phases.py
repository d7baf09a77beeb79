"""Exact phases: a position times a frequency, modulo one turn, in 128-bit fixed point, and its cos and sin.

Only elementary numpy operations on integers and float64, so that every machine computes the same bits.
"""

from __future__ import annotations

from decimal import ROUND_HALF_EVEN, Context, Decimal

import numpy as np
from numpy.typing import NDArray

TWO_PI = Decimal(
    "6.283185307179586476925286766559005768394338798750211641949889184615632812572417997256069650684234135964296173"
)
PRECISE = Context(prec=100, rounding=ROUND_HALF_EVEN)

_U32 = np.uint64(32)
_MASK32 = np.uint64(0xFFFFFFFF)

# Interpolation at the Chebyshev nodes of 0 <= x^2 <= (pi/4)^2, relative error below 2^-55:
#     sin x = x + x^3 S(x^2),   cos x = 1 - x^2 / 2 + x^4 C(x^2)
_SIN = (
    -0.16666666666666666,
    0.008333333333330948,
    -0.0001984126983675854,
    2.7557316102534617e-06,
    -2.505113184128889e-08,
    1.5918129027234826e-10,
)
_COS = (
    0.041666666666666664,
    -0.0013888888888887398,
    2.4801587298765665e-05,
    -2.7557317271718644e-07,
    2.087614626607931e-09,
    -1.1382632258093615e-11,
)

# 2 pi as a head of 21 bits, whose product with a 32-bit integer is exact, and the rest.
_TURN_HEAD = float(int(2 * np.pi * 2**18)) * 2.0**-18
_TURN_TAIL = float(PRECISE.subtract(TWO_PI, Decimal(_TURN_HEAD)))


def phase(
    positions: NDArray[np.int64], high: NDArray[np.uint64], low: NDArray[np.uint64]
) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """positions (n,) times fractions of a turn (m,) or (n, m), modulo one turn: two limbs (n, m)."""
    p = positions[:, None].view(np.uint64)
    p0, p1 = p & _MASK32, p >> _U32
    low0, low1 = low & _MASK32, low >> _U32
    carry = (p0 * low0) >> _U32
    middle = p0 * low1
    above = p * high
    if p1.any():
        cross = p1 * low0 + carry
        carry = cross & _MASK32
        above += p1 * low1 + (cross >> _U32)
        # Two's complement stands for p + 2^64, and 2^64 times the fraction is not a whole turn.
        above -= np.where(positions[:, None] < 0, low, np.uint64(0))
    middle = middle + carry
    above += middle >> _U32
    return above, p * low


def reduced(
    high: NDArray[np.uint64], low: NDArray[np.uint64]
) -> tuple[NDArray[np.uint64], NDArray[np.float64], NDArray[np.float64]]:
    """A phase as a quadrant and the angle from its middle, x + y radians with |x| <= pi / 4."""
    quadrant = (high + np.uint64(1 << 61)) >> np.uint64(62)
    rest = (high - (quadrant << np.uint64(62))).view(np.int64)
    upper = (rest + np.int64(1 << 31)) >> np.int64(32)
    lower = (rest - (upper << np.int64(32))).astype(np.float64)
    lower *= 2.0**-64
    upper_turns = upper.astype(np.float64)
    upper_turns *= 2.0**-32
    lowest = low.astype(np.float64)
    lowest *= 2.0**-128
    # Head products are exact; what they leave is small.
    large, small = upper_turns * _TURN_HEAD, lower * _TURN_HEAD
    x = large + small
    tail = small - (x - large)
    upper_turns += lower
    upper_turns *= _TURN_TAIL
    lowest *= 2 * np.pi
    upper_turns += lowest
    tail += upper_turns
    total = x + tail
    return quadrant, total, tail - (total - x)


def halves(values: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Two numbers of 26 bits that add up to each value, so that products of them are exact (Dekker 1971)."""
    scaled = values * (2.0**27 + 1)
    head = scaled - (scaled - values)
    return head, values - head


def cos_sin(
    quadrant: NDArray[np.uint64], x: NDArray[np.float64], y: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """cos and sin of x + y plus a number of quarter turns; each within 0.8 units in the last place."""
    square = x * x
    half = square * 0.5
    rest = 1.0 - half
    sine = polynomial(_SIN, square)
    sine *= square
    sine *= x
    sine += y * rest
    sine += x
    cosine = polynomial(_COS, square)
    square *= square
    cosine *= square
    cosine -= x * y
    cosine += (1.0 - rest) - half
    cosine += rest
    odd = (quadrant & np.uint64(1)).astype(bool)
    real, imag = np.where(odd, sine, cosine), np.where(odd, cosine, sine)
    sign = np.uint64(62)
    real.view(np.uint64)[...] ^= ((quadrant + np.uint64(1)) & np.uint64(2)) << sign
    imag.view(np.uint64)[...] ^= (quadrant & np.uint64(2)) << sign
    return real, imag


def polynomial(coefficients: tuple[float, ...], x: NDArray[np.float64]) -> NDArray[np.float64]:
    """Coefficients, lowest power first, by Horner's rule."""
    value = x * coefficients[-1]
    for coefficient in coefficients[-2:0:-1]:
        value += coefficient
        value *= x
    value += coefficients[0]
    return value
