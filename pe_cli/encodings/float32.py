"""The float32 arithmetic of the frameworks, step by step, so that their tables are matched value for value.

A framework computes float32(position) * float32(w), rounds, and takes the cosine of that; at position 131071
its angle is off by up to 0.009 radians. Those errors are part of what a model has seen, and of what another
engine is compared with. Power, cosine and sine are torch's on x86: mostly the nearest float32, now and then its
neighbour. numpy's own float32 functions differ from them in a sixth of all values; correct rounding differs in a
twentieth. What differs is known: SLEEF's exponential and MKL's sine are short polynomials. The order of operations is
that of transformers' `modeling_rope_utils`, and of the code named at each recipe.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from pe_cli.errors import PeError, parameter

if TYPE_CHECKING:
    from pe_cli.encodings.rope.axes import Plan
    from pe_cli.encodings.rope.scaling import Frequencies

Float32: TypeAlias = NDArray[np.float32]
Powers: TypeAlias = Callable[[float | np.float32], Float32]
Recipe: TypeAlias = Literal["exp", "exp-divide", "power", "period"]

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


@dataclass(frozen=True, eq=False)
class Float32Waves:
    """Frequencies as a framework has them in float32, or the periods by which it divides positions."""

    numbers: NDArray[np.float32]
    divides: bool = False
    scale: float = 1.0

    def angles(self, positions: NDArray[Any]) -> NDArray[np.float32]:
        """(n, m) radians, rounded to float32 as positions, products and scale are there."""
        if positions.ndim != 1:
            raise PeError(f"positions of {positions.shape[-1]} axes; one number each is needed")
        p = positions.astype(np.float32)[:, None]
        angles: NDArray[np.float32] = p / self.numbers if self.divides else p * self.numbers
        return angles if self.scale == 1 else np.float32(self.scale) * angles


@lru_cache(maxsize=64)
def float32_waves(
    recipe: Recipe, base: float, dim: int, shift: float = 0.0, scale: float = 1.0
) -> Float32Waves:
    """The frequencies base^(-2i / (dim - 2 shift)), (ceil(dim / 2),), by the float32 steps of `recipe`.

    exp         exp(i * c), c = -ln base / (dim / 2 - shift) rounded once     tensor2tensor, fairseq, OpenNMT
    exp-divide  exp((i * -ln base) / (dim / 2 - shift))                        diffusers
    power       1 / base ** (2i / (dim - 2 shift))                             CTRL, GPT-J, timm, MoCo v3
    period      positions are divided by base ** (2i / (dim - 2 shift))        DETR

    exp is rounded correctly, as torch's is but for one value in a hundred; power is torch's.
    """
    i = np.arange((dim + 1) // 2, dtype=np.float32)
    steps = dim / 2 - shift
    if steps == 0 and len(i) > 1:
        raise PeError(f"dim {dim} with a frequency shift of {shift:g} leaves no step between frequencies")
    if len(i) <= 1:
        return Float32Waves(np.ones_like(i), scale=scale)
    if recipe == "exp":
        return Float32Waves(_exp(i * np.float32(-math.log(base) / steps)), scale=scale)
    if recipe == "exp-divide":
        exponents = (i * np.float32(-math.log(base))) / np.float32(steps)
        return Float32Waves(_exp(exponents), scale=scale)
    periods = power(base, i / np.float32(steps))
    if recipe == "period":
        return Float32Waves(periods, divides=True, scale=scale)
    return Float32Waves(np.float32(1) / periods, scale=scale)


def float32_rotation_blocks(
    positions: NDArray[Any], waves: Float32Waves, *, sin_first: bool = False
) -> Iterator[tuple[slice, NDArray[np.complex128]]]:
    """As `rotation_blocks`, with the angles, cosines and sines of float32 arithmetic."""
    step = max(1, 16384 // max(1, len(waves.numbers)))
    for first in range(0, len(positions), step):
        angles = waves.angles(positions[first : first + step])
        z = np.empty(angles.shape, np.complex128)
        real, imag = (z.imag, z.real) if sin_first else (z.real, z.imag)
        real[...], imag[...] = cos_sin(angles)
        yield slice(first, first + len(angles)), z


def _exp(values: NDArray[np.float32]) -> NDArray[np.float32]:
    return np.exp(values.astype(np.float64)).astype(np.float32)


def plain_powers(base: float | np.float32, dim: int, count: int | None = None) -> Float32:
    """base ** (arange(0, dim, 2) / dim): (count,), the denominators of the frequencies."""
    channels = np.arange(0, dim, 2, dtype=np.float32)[:count]
    return power(base, channels / f32(dim))


def inverse(values: Float32) -> Float32:
    result: Float32 = f32(1) / values
    return result


def over(values: Float32, factor: float) -> Float32:
    result: Float32 = values / f32(factor)
    return result


def _none(powers: Powers, base: float, exact: Frequencies, options: Mapping[str, Any]) -> Float32:
    return inverse(powers(base))


def _linear(powers: Powers, base: float, exact: Frequencies, options: Mapping[str, Any]) -> Float32:
    return over(inverse(powers(base)), options["factor"])


def _changed_base(powers: Powers, base: float, exact: Frequencies, options: Mapping[str, Any]) -> Float32:
    return inverse(powers(exact.facts["effective_base"]))


def _ntk_fixed(powers: Powers, base: float, exact: Frequencies, options: Mapping[str, Any]) -> Float32:
    factor = float(options["factor"])
    return over(inverse(powers(base * factor)), factor ** (2 / exact.width))


def _dynamic_ntk(powers: Powers, base: float, exact: Frequencies, options: Mapping[str, Any]) -> Float32:
    original, length = options["original_len"], options["seq_len"]
    if length <= original:
        return inverse(powers(base))
    # The length of the forward pass is a tensor there, so that the base is found in float32.
    factor = float(options["factor"])
    stretch = f32(f32(factor) * f32(length)) / f32(original) - f32(factor - 1)
    width = exact.width
    return inverse(powers(f32(base) * f32(np.power(np.float64(stretch), width / (width - 2)))))


def _yarn(powers: Powers, base: float, exact: Frequencies, options: Mapping[str, Any]) -> Float32:
    low, high = exact.facts["correction_range"]
    denominators = powers(base)
    kept, interpolated = inverse(denominators), inverse(f32(options["factor"]) * denominators)
    pairs = np.arange(len(denominators), dtype=np.float32)
    ramp = np.clip((pairs - f32(low)) / f32(high - low), f32(0), f32(1))
    share = f32(1) - ramp
    blended: Float32 = interpolated * (f32(1) - share) + kept * share
    return blended


def _longrope(powers: Powers, base: float, exact: Frequencies, options: Mapping[str, Any]) -> Float32:
    divisors = np.asarray(options[f"{exact.facts['factors']}_factor"], dtype=np.float64).astype(np.float32)
    return inverse(divisors * powers(base))


def _llama3(powers: Powers, base: float, exact: Frequencies, options: Mapping[str, Any]) -> Float32:
    factor, original = float(options["factor"]), options["original_len"]
    low, high = options["low_freq_factor"], options["high_freq_factor"]
    w = inverse(powers(base))
    # A number divided by a tensor is its reciprocal times the number, in torch.
    wavelength = inverse(w) * f32(2 * math.pi)
    long, short = wavelength > f32(original / low), wavelength < f32(original / high)
    scaled = np.where(long, over(w, factor), w)
    if high > low:
        share = (inverse(wavelength) * f32(original) - f32(low)) / f32(high - low)
        blended = (f32(1) - share) * scaled / f32(factor) + share * scaled
        scaled = np.where(~long & ~short, blended, scaled)
    result: Float32 = scaled.astype(np.float32)
    return result


def _proportional(powers: Powers, base: float, exact: Frequencies, options: Mapping[str, Any]) -> Float32:
    live = exact.facts["live_pairs"]
    w = np.zeros(len(exact.inv_freq), np.float32)
    w[:live] = inverse(plain_powers(base, exact.width, live))
    return over(w, options.get("factor", 1.0))


_RECIPES: dict[str, Callable[[Powers, float, Frequencies, Mapping[str, Any]], Float32]] = {
    "none": _none,
    "linear": _linear,
    "ntk": _changed_base,
    "ntk-fixed": _ntk_fixed,
    "dynamic-ntk": _dynamic_ntk,
    "yarn": _yarn,
    "longrope": _longrope,
    "llama3": _llama3,
    "proportional": _proportional,
}


@lru_cache(maxsize=64)
def _frequencies32(dim: int, base: float, scaling: str, given: tuple[tuple[str, Any], ...]) -> Float32:
    from pe_cli.encodings.rope.scaling import frequencies

    options = dict(given)
    exact = frequencies(dim, base=base, scaling=scaling, **options)
    if scaling not in _RECIPES:
        raise PeError(
            f"no framework's float32 recipe is known for {parameter('scaling')} {scaling}: leave "
            f"{parameter('compute')} at exact"
        )
    w = _RECIPES[scaling](lambda theta: plain_powers(theta, exact.width), base, exact, options)
    w.flags.writeable = False
    return w


def frequencies32(dim: int, *, base: float, scaling: str = "none", **options: Any) -> Float32:
    """(m,) the frequencies as transformers has them in float32; arguments as for `scaling.frequencies`."""
    from pe_cli.encodings.rope.scaling import canonical, given_options

    return _frequencies32(dim, float(base), canonical(scaling), given_options(options))


def plan32(plan: Plan) -> Float32:
    """The frequencies of a plan as torch finds them, a call for each axis."""
    w = np.zeros(len(plan.pairs), np.float32)
    for axis in range(plan.axes):
        mine = [i for i, pair in enumerate(plan.pairs) if pair.axis == axis and pair.exponent is not None]
        quotients = [plan.pairs[i].exponent for i in mine]
        exponents = np.array([float(q) for q in quotients if q is not None], np.float32)
        w[mine] = inverse(power(plan.base, exponents))
    return w
