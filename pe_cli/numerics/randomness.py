"""Random tables that are the same everywhere: row p depends on the seed and on p alone.

The bits come from the counter-based generator Philox4x64-10 (Salmon et al. 2011, "Parallel random numbers: as
easy as 1, 2, 3"), keyed by the seed itself: word k of the stream is word k of a row-major table. numpy promises
the bits of a generator, but not what it makes of them, so the distributions are made here, in elementary
operations that have the same bits on every machine.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from pe_cli.errors import PeError
from pe_cli.numerics.kernels import polynomial

WORDS_PER_COUNT = 4
LARGEST_SEED = 2**128 - 1
LARGEST_STD = 1e30  # of a table: above it not even float32 would hold the values
VALUES_AT_ONCE = 16384

# Wichura 1988, "Algorithm AS 241: the percentage points of the normal distribution", PPND16: numerators and
# denominators of three rational functions, lowest power first.
_CENTRE = (
    (
        3.3871328727963666080,
        133.14166789178437745,
        1971.5909503065514427,
        13731.693765509461125,
        45921.953931549871457,
        67265.770927008700853,
        33430.575583588128105,
        2509.0809287301226727,
    ),
    (
        1.0,
        42.313330701600911252,
        687.18700749205790830,
        5394.1960214247511077,
        21213.794301586595867,
        39307.895800092710610,
        28729.085735721942674,
        5226.4952788528545610,
    ),
)
_SHOULDER = (
    (
        1.42343711074968357734,
        4.63033784615654529590,
        5.76949722146069140550,
        3.64784832476320460504,
        1.27045825245236838258,
        0.241780725177450611770,
        0.0227238449892691845833,
        7.74545014278341407640e-4,
    ),
    (
        1.0,
        2.05319162663775882187,
        1.67638483018380384940,
        0.689767334985100004550,
        0.148103976427480074590,
        0.0151986665636164571966,
        5.47593808499534494600e-4,
        1.05075007164441684324e-9,
    ),
)
_TAIL = (
    (
        6.65790464350110377720,
        5.46378491116411436990,
        1.78482653991729133580,
        0.296560571828504891230,
        0.0265321895265761230930,
        1.24266094738807843860e-3,
        2.71155556874348757815e-5,
        2.01033439929228813265e-7,
    ),
    (
        1.0,
        0.599832206555887937690,
        0.136929880922735805310,
        0.0148753612908506148525,
        7.86869131145613259100e-4,
        1.84631831751005468180e-5,
        1.42151175831644588870e-7,
        2.04426310338993978564e-15,
    ),
)
_LOG_TERMS = 12  # of the series of artanh; the last adds less than 2^-60
_LN2_HEAD, _LN2_TAIL = 0.693147180369123816490, 1.90821492927058770002e-10


def uniform_rows(rows: NDArray[np.int64], width: int, seed: int) -> NDArray[np.float64]:
    """(n, width) numbers strictly between 0 and 1, for any row numbers >= 0."""
    words = np.empty((len(rows), width), np.uint64)
    breaks = (np.flatnonzero(rows[1:] - rows[:-1] != 1) + 1).tolist()
    for start, end in pairwise([0, *breaks, len(rows)]):
        run = _words(int(rows[start]) * width, (end - start) * width, seed) if end > start else words[:0]
        words[start:end] = run.reshape(end - start, width)
    # 52 bits and a half: the numbers and their distances from 1 are exact.
    uniform: NDArray[np.float64] = (words >> np.uint64(12)).astype(np.float64)
    uniform += 0.5
    uniform *= 2.0**-52
    return uniform


def normal_rows(rows: NDArray[np.int64], width: int, seed: int) -> NDArray[np.float64]:
    """(n, width) numbers of the standard normal distribution."""
    return normal_quantile(uniform_rows(rows, width, seed))


def truncated_normal_rows(rows: NDArray[np.int64], width: int, seed: int, cut: float) -> NDArray[np.float64]:
    """(n, width) numbers of the standard normal distribution between -cut and cut."""
    inside = math.erf(cut / math.sqrt(2))
    return normal_quantile(0.5 + (uniform_rows(rows, width, seed) - 0.5) * inside)


def normal_quantile(probability: NDArray[np.float64]) -> NDArray[np.float64]:
    """The standard normal quantile of numbers strictly between 0 and 1, to about 1e-15."""
    flat = np.ascontiguousarray(probability).reshape(-1)
    quantile = np.empty_like(flat)
    for first in range(0, len(flat), VALUES_AT_ONCE):
        p = flat[first : first + VALUES_AT_ONCE]
        quantile[first : first + len(p)] = _quantile(p)
    return quantile.reshape(probability.shape)


def _quantile(p: NDArray[np.float64]) -> NDArray[np.float64]:
    q = p - 0.5
    quantile = q * _rational(_CENTRE, 0.180625 - q * q)
    outer = np.flatnonzero(np.abs(q) > 0.425)
    depth = np.sqrt(-natural_log(np.minimum(p[outer], 1 - p[outer])))
    size = np.where(depth <= 5, _rational(_SHOULDER, depth - 1.6), _rational(_TAIL, depth - 5))
    quantile[outer] = np.copysign(size, q[outer])
    return quantile


def natural_log(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """ln of positive numbers, to about 1 unit in the last place, with the same bits on every machine."""
    mantissa, exponent = np.frexp(values)
    low = mantissa < math.sqrt(0.5)
    mantissa = np.where(low, 2 * mantissa, mantissa)
    exponent = (exponent - low).astype(np.float64)
    s = (mantissa - 1) / (mantissa + 1)
    square = s * s
    series = np.zeros_like(s)
    for term in range(_LOG_TERMS - 1, 0, -1):
        series = (series + 2.0 / (2 * term + 1)) * square
    logarithm: NDArray[np.float64] = exponent * _LN2_HEAD + (2 * s + (s * series + exponent * _LN2_TAIL))
    return logarithm


def _rational(
    coefficients: tuple[tuple[float, ...], tuple[float, ...]], x: NDArray[np.float64]
) -> NDArray[np.float64]:
    above, below = (polynomial(c, x) for c in coefficients)
    above /= below
    return above


def _words(first: int, count: int, seed: int) -> NDArray[np.uint64]:
    """`count` words of the stream from word `first`."""
    if not 0 <= seed <= LARGEST_SEED:
        raise PeError(f"seed {seed} is not between 0 and 2^128 - 1")
    from numpy.random import Philox

    counter, skipped = divmod(first, WORDS_PER_COUNT)
    words: NDArray[np.uint64] = Philox(key=seed, counter=counter).random_raw(skipped + count)[skipped:]
    return words


Draw = Callable[[NDArray[np.int64], int, int], NDArray[np.float64]]


def in_turn(draw: Draw, shapes: Sequence[tuple[int, ...]], seed: int) -> Iterator[NDArray[np.float64]]:
    """An array of each shape, by `uniform_rows` or `normal_rows` of `pe_cli.numerics.randomness`."""
    start = 0
    for shape in shapes:
        count = math.prod(shape)
        yield draw(np.arange(start, start + count), 1, seed).reshape(shape)
        start += count


def distinct_integers(count: int, below: int, seed: int) -> NDArray[np.int64]:
    """(count,) different integers from 0 to below - 1, sorted; every set of them is as likely."""
    if 2 * count > below:
        left_out = distinct_integers(below - count, below, seed)
        kept = np.ones(below, bool)
        kept[left_out] = False
        return np.flatnonzero(kept)
    draws = 2 * count + 64
    while True:
        drawn = (uniform_rows(np.arange(draws), 1, seed)[:, 0] * below).astype(np.int64)
        values, first = np.unique(drawn, return_index=True)
        if len(values) >= count:
            return np.sort(drawn[np.sort(first)[:count]])
        draws *= 2
