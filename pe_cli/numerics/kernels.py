"""The rotation kernel: cos and sin of position x frequency, exact to the last bits at any position.

Floating point fails at large positions because `p * w` is rounded before it is reduced to one turn: a
frequency with 53 bits is wrong by 1e-10 radians at position 1e6. Here a frequency is w / 2 pi, an integer of
192 fractional bits made from a high-precision decimal. Multiplying a position with its lowest 128 bits in
wrapping integer arithmetic *is* the reduction, and it is exact.

Speed comes from one identity: a position is the start of an aligned block plus an offset, so

    exp(i p w) = exp(i start w) * exp(i offset w)

needs cosines only for the starts and for one table of offsets; the rest is one complex multiplication per
pair, in a buffer that stays in cache. Blocks are aligned to absolute positions and their size depends on
the number of frequencies alone, so the bits of a row never depend on which other rows are asked for.

cos and sin themselves are two short polynomials in elementary numpy operations: no processor-specific
library is involved, so the bits are the same on every machine (numpy's own float64 cos and sin are not).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from decimal import ROUND_HALF_EVEN, Context, Decimal
from functools import lru_cache
from itertools import accumulate
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pe_cli.errors import PeError, parameter

TWO_PI = Decimal(
    "6.283185307179586476925286766559005768394338798750211641949889184615632812572417997256069650684234135964296173"
)
PRECISE = Context(prec=100, rounding=ROUND_HALF_EVEN)

_U32, _MASK32 = np.uint64(32), np.uint64(0xFFFFFFFF)

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


__all__ = [
    "PRECISE",
    "TWO_PI",
    "Frequencies",
    "Frequency",
    "as_decimal",
    "geometric",
    "rotation_blocks",
    "rotations",
    "scaled",
]

Frequency: TypeAlias = Decimal | float | int
Frequencies: TypeAlias = Sequence[Frequency] | NDArray[Any]

FRACTION_BITS = 192
HIGHEST_FREQUENCY = Decimal(2) ** 64
HIGHEST_POSITION = 2**63

PAIRS_PER_BLOCK = 32768  # complex128: half a MiB of buffer, and as much of offsets
FEWEST_ROWS, MOST_ROWS = 32, 4096
PAIRS_AT_ONCE = 4096  # what direct evaluation works on at a time, in some ten arrays

# Below this many radians an angle needs no reduction, and a phase of 128 bits may have too few left.
SMALL_ANGLE = 2.0**-10


@lru_cache(maxsize=64)
def geometric(
    base: Frequency, dim: int, *, shift: float = 0.0, count: int | None = None
) -> tuple[Decimal, ...]:
    """Frequencies w_i = base^(-2 i / (dim - 2 shift)), to 60 digits or more: a falling geometric series.

    Parameters
    ----------
    base : the wavelengths run from 2 pi to 2 pi base; taken as exact, also where it is a float such as 1e4/3.
    dim : width of the table, two columns a frequency; odd widths have (dim + 1) / 2 frequencies.
    shift : 0 as in the paper; 1 as in tensor2tensor, where the last frequency is exactly 1 / base.
    count : number of frequencies, if not (dim + 1) // 2.

    Returns
    -------
    (count,) radians per position, highest first. The same tuple for the same arguments (cached).

    Source: Vaswani et al. 2017, section 3.5; `shift` is `min_timescale` to `max_timescale` of tensor2tensor.
    """
    exact = as_decimal(base)
    if not exact.is_finite() or exact <= 0:
        raise PeError(f"{parameter('base')} {base} is not a positive number")
    if dim < 1:
        raise PeError(f"{parameter('dim')} {dim} is not a positive width")
    wanted = (dim + 1) // 2 if count is None else count
    steps = PRECISE.subtract(PRECISE.divide(Decimal(dim), Decimal(2)), as_decimal(shift))
    if wanted > 1 and steps == 0:
        raise PeError(
            f"{parameter('dim')} {dim} with a frequency shift of {shift:g} leaves no step between frequencies"
        )
    frequencies = [Decimal(1)]
    if wanted > 1:
        ratio = PRECISE.exp(PRECISE.minus(PRECISE.divide(PRECISE.ln(exact), steps)))
        frequencies += accumulate([ratio] * (wanted - 1), PRECISE.multiply)
    return tuple(frequencies[:wanted])


@lru_cache(maxsize=64)
def scaled(inv_freq: tuple[Frequency, ...], factor: Frequency) -> tuple[Decimal, ...]:
    """Frequencies (m,) times a factor, to 100 digits: a factor of positions that need not be rounded."""
    return tuple(PRECISE.multiply(as_decimal(w), as_decimal(factor)) for w in inv_freq)


def as_decimal(value: Frequency | np.generic) -> Decimal:
    """`value` without rounding: a float is what its bits say."""
    if isinstance(value, Decimal):
        return value
    return Decimal(int(value) if isinstance(value, (int, np.integer)) else float(value))


def rotations(
    positions: ArrayLike,
    inv_freq: Frequencies,
    *,
    amplitude: float = 1.0,
    sin_first: bool = False,
    relative: bool = False,
) -> NDArray[np.complex128]:
    """All of `rotation_blocks` in one array (n, m)."""
    where = np.asarray(positions)
    whole = np.empty((where.shape[0] if where.ndim else 0, len(inv_freq)), np.complex128)
    for rows, z in rotation_blocks(
        where, inv_freq, amplitude=amplitude, sin_first=sin_first, relative=relative
    ):
        whole[rows] = z
    return whole


def rotation_blocks(
    positions: ArrayLike,
    inv_freq: Frequencies,
    *,
    amplitude: float = 1.0,
    sin_first: bool = False,
    relative: bool = False,
) -> Iterator[tuple[slice, NDArray[np.complex128]]]:
    """Yield (rows, z), block after block: z[j, i] = A exp(i p_j w_i) for the positions of `rows`.

    Parameters
    ----------
    positions : (n,) integers or floats below 2^63 in magnitude, in any order; fractions are taken as exact.
    inv_freq : (m,) frequencies in radians per position. Give Decimal (see `geometric`) where the number is
        not exactly a float: floats are taken as exact, and their last bit is 1e-10 radians at position 1e6.
    amplitude : the factor A.
    sin_first : z = A (sin + i cos) instead of A (cos + i sin), so that a view as float64 is sin, cos, ...
    relative : evaluate each pair by itself, for float64 tables: error below one unit in the last place of
        each value (before A), also near the zeros of cos and sin, where positions beyond 2^52 add up to
        2^-64. Otherwise the absolute error is below 4e-16 A.

    Yields
    ------
    A slice of rows, and z (rows, m) in a buffer that the next step overwrites: copy or cast it at once.
    """
    plan = _plan(tuple(inv_freq.tolist() if isinstance(inv_freq, np.ndarray) else inv_freq))
    where = _checked(positions)
    if not plan.count or not len(where):
        return
    buffer = plan.take_buffer()
    try:
        if relative:
            yield from _direct_blocks(plan, where, buffer, amplitude, sin_first)
        elif where.dtype == np.int64 and _consecutive(where):
            yield from _consecutive_blocks(plan, int(where[0]), len(where), buffer, amplitude, sin_first)
        else:
            yield from _scattered_blocks(plan, where, buffer, amplitude, sin_first)
    finally:
        plan.spare_buffers.append(buffer)


class _Plan:
    """What a set of frequencies needs, whatever the positions: fixed-point forms, offsets, spare buffers."""

    def __init__(self, frequencies: tuple[Frequency, ...]) -> None:
        radians = [as_decimal(w) for w in frequencies]
        for w in radians:
            if not w.is_finite() or abs(w) >= HIGHEST_FREQUENCY:
                raise PeError(
                    f"a frequency of {w:.6g} is not below 2^64 in size: is the base right, and the scale?"
                )
        self.count = len(radians)
        if self.count == 1:
            # numpy multiplies complex columns of width 1 by another loop, which may round differently.
            radians *= 2
        one = Decimal(2**FRACTION_BITS)
        self.turns = [int(PRECISE.multiply(PRECISE.divide(w, TWO_PI), one)) for w in radians]
        self.radians = np.array([float(w) for w in radians])
        self.radians_tail = np.array([float(PRECISE.subtract(w, Decimal(float(w)))) for w in radians])
        self.lowest = float(np.abs(self.radians[self.radians != 0]).min(initial=np.inf))
        self.high, self.low = self.limbs(0)
        room = max(1, PAIRS_PER_BLOCK // max(1, len(radians)))
        self.rows = min(max(1 << (room.bit_length() - 1), FEWEST_ROWS), MOST_ROWS)
        self.shift = self.rows.bit_length() - 1
        self.group = max(1, PAIRS_AT_ONCE // max(1, len(radians)))
        self.spare_buffers: list[NDArray[np.complex128]] = []
        self._offsets: dict[bool, NDArray[np.complex128]] = {}

    def limbs(self, exponent: int) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
        """Turns per 2^exponent positions, modulo one turn, as 128-bit fractions: high and low (m,)."""
        drop = FRACTION_BITS - 128 - exponent
        fractions = [(turns + (1 << (drop - 1))) >> drop for turns in self.turns]
        high = [(fraction >> 64) & (2**64 - 1) for fraction in fractions]
        low = [fraction & (2**64 - 1) for fraction in fractions]
        return np.array(high, np.uint64), np.array(low, np.uint64)

    def offsets(self, conjugate: bool) -> NDArray[np.complex128]:
        """exp(i offset w), or its conjugate, for the offsets of a block: (rows, m)."""
        if conjugate not in self._offsets:
            table = self.exact(np.arange(self.rows, dtype=np.int64))
            self._offsets[conjugate] = table.conj() if conjugate else table
        return self._offsets[conjugate]

    def exact(self, positions: NDArray[Any]) -> NDArray[np.complex128]:
        """exp(i p w) by direct evaluation, (n, m)."""
        table = np.empty((len(positions), len(self.radians)), np.complex128)
        for rows, cos, sin in _direct(self, positions):
            table.real[rows], table.imag[rows] = cos, sin
        return table

    def take_buffer(self) -> NDArray[np.complex128]:
        try:
            return self.spare_buffers.pop()
        except IndexError:
            return np.empty((self.rows, len(self.radians)), np.complex128)


@lru_cache(maxsize=16)
def _plan(frequencies: tuple[Frequency, ...]) -> _Plan:
    return _Plan(frequencies)


@lru_cache(maxsize=16)
def _group_of_starts(plan: _Plan, group: int, sin_first: bool) -> NDArray[np.complex128]:
    """The factors of consecutive blocks, made together since each evaluation has a fixed cost."""
    blocks = np.arange(group * plan.group, (group + 1) * plan.group, dtype=np.int64)
    return _starts(plan, blocks, sin_first)


def _starts(plan: _Plan, blocks: NDArray[np.int64], sin_first: bool) -> NDArray[np.complex128]:
    starts = plan.exact(blocks << plan.shift)
    # sin + i cos of a sum of angles is (i conj(start)) conj(offset).
    return 1j * starts.conj() if sin_first else starts


def _checked(positions: ArrayLike) -> NDArray[np.int64] | NDArray[np.float64]:
    """Positions as int64 where all are whole numbers, else as float64."""
    where = np.asarray(positions)
    if where.ndim != 1:
        raise PeError(f"positions of {where.shape[-1] if where.ndim else 0} axes; one number each is needed")
    if where.dtype.kind in "bi":
        return np.ascontiguousarray(where, np.int64)
    if where.dtype.kind == "u":
        if len(where) and int(where.max()) >= HIGHEST_POSITION:
            raise PeError(f"position {int(where.max())} is not below 2^63")
        return where.astype(np.int64)
    if where.dtype.kind != "f":
        raise PeError(f"positions of type {where.dtype} are neither integers nor floats below 2^63")
    real = np.ascontiguousarray(where, np.float64)
    inside = np.abs(real) < HIGHEST_POSITION
    if not inside.all():
        raise PeError(f"position {real[~inside][0]} is not a number below 2^63 in magnitude")
    if (real == np.floor(real)).all():
        return real.astype(np.int64)
    return real


def _consecutive(where: NDArray[Any]) -> bool:
    ends_fit = int(where[-1]) - int(where[0]) == len(where) - 1
    return ends_fit and bool((where[1:] - where[:-1] == 1).all())


def _consecutive_blocks(
    plan: _Plan, first: int, count: int, buffer: NDArray[np.complex128], amplitude: float, sin_first: bool
) -> Iterator[tuple[slice, NDArray[np.complex128]]]:
    offsets = plan.offsets(sin_first)
    starts, made = buffer[:0], None
    done = 0
    while done < count:
        block, offset = (first + done) >> plan.shift, (first + done) & (plan.rows - 1)
        take = min(plan.rows - offset, count - done)
        group, index = divmod(block, plan.group)
        if group != made:
            starts, made = _group_of_starts(plan, group, sin_first) * amplitude, group
        z = np.multiply(offsets[offset : offset + take], starts[index], out=buffer[:take])
        yield slice(done, done + take), z[:, : plan.count]
        done += take


def _scattered_blocks(
    plan: _Plan, where: NDArray[Any], buffer: NDArray[np.complex128], amplitude: float, sin_first: bool
) -> Iterator[tuple[slice, NDArray[np.complex128]]]:
    for first in range(0, len(where), plan.rows):
        part = where[first : first + plan.rows]
        z = buffer[: len(part)]
        if part.dtype == np.int64:
            _gather(plan, part, z, amplitude, sin_first)
        else:
            # Whole numbers among fractions have the bits that they have alone.
            whole = part == np.floor(part)
            z[whole] = _gather(plan, part[whole].astype(np.int64), None, amplitude, sin_first)
            z[~whole] = _dressed(plan.exact(part[~whole]), amplitude, sin_first)
        yield slice(first, first + len(part)), z[:, : plan.count]


def _gather(
    plan: _Plan,
    where: NDArray[np.int64],
    out: NDArray[np.complex128] | None,
    amplitude: float,
    sin_first: bool,
) -> NDArray[np.complex128]:
    blocks, index = np.unique(where >> plan.shift, return_inverse=True)
    starts = _starts(plan, blocks, sin_first) * amplitude
    factors = starts if len(blocks) == 1 else starts[index]
    z: NDArray[np.complex128] = np.multiply(
        plan.offsets(sin_first)[where & (plan.rows - 1)], factors, out=out
    )
    return z


def _dressed(z: NDArray[np.complex128], amplitude: float, sin_first: bool) -> NDArray[np.complex128]:
    return np.multiply(1j * z.conj() if sin_first else z, amplitude)


def _direct_blocks(
    plan: _Plan, where: NDArray[Any], buffer: NDArray[np.complex128], amplitude: float, sin_first: bool
) -> Iterator[tuple[slice, NDArray[np.complex128]]]:
    for rows, cos, sin in _direct(plan, where):
        z = buffer[: len(cos)]
        np.multiply(sin if sin_first else cos, amplitude, out=z.real)
        np.multiply(cos if sin_first else sin, amplitude, out=z.imag)
        yield rows, z[:, : plan.count]


def _direct(
    plan: _Plan, where: NDArray[Any]
) -> Iterator[tuple[slice, NDArray[np.float64], NDArray[np.float64]]]:
    """Yield (rows, cos, sin), each pair from its own exact phase."""
    step = min(max(1, PAIRS_AT_ONCE // len(plan.radians)), plan.rows)
    for first in range(0, len(where), step):
        part = where[first : first + step]
        if part.dtype == np.int64:
            high, low = phase(part, plan.high, plan.low)
        else:
            high, low = _fractional_phase(plan, part)
        quadrant, x, y = reduced(high, low)
        _replace_small_angles(plan, part, x, y)
        cos, sin = cos_sin(quadrant, x, y)
        yield slice(first, first + len(part)), cos, sin


def _fractional_phase(
    plan: _Plan, positions: NDArray[np.float64]
) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """A float is a 53-bit integer times a power of two; the power goes into the frequency, so that
    nothing is rounded."""
    fraction, exponent = np.frexp(positions)
    digits, exponent = np.ldexp(fraction, 53).astype(np.int64), exponent.astype(np.int64) - 53
    whole = positions == np.floor(positions)
    digits[whole], exponent[whole] = positions[whole].astype(np.int64), 0
    distinct, index = np.unique(exponent, return_inverse=True)
    limbs = [plan.limbs(int(e)) for e in distinct]
    high, low = (np.stack(limb) for limb in zip(*limbs, strict=True))
    return phase(digits, high[index], low[index])


def _replace_small_angles(
    plan: _Plan, positions: NDArray[Any], x: NDArray[np.float64], y: NDArray[np.float64]
) -> None:
    """Angles for which too few of the 128 bits are left, but which need no reduction: x + y = p w."""
    p = positions.astype(np.float64)[:, None]
    sizes = np.abs(p)
    if not ((sizes * plan.lowest < SMALL_ANGLE) & (sizes > 0)).any():
        return
    product = p * plan.radians
    small = np.abs(product) < SMALL_ANGLE
    p_head, p_tail = halves(p)
    w_head, w_tail = halves(plan.radians)
    error = (p_head * w_head - product) + p_head * w_tail + p_tail * w_head + p_tail * w_tail
    np.copyto(x, product, where=small)
    np.copyto(y, error + p * plan.radians_tail, where=small)
