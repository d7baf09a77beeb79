"""The float32 arithmetic of the frameworks, step by step, so that their tables are matched value for value.

A framework computes float32(position) * float32(w), rounds, and takes the cosine of that; at position 131071
its angle is off by up to 0.009 radians. Those errors are part of what a model has seen, and of what another
engine is compared with. The order of operations is that of transformers' `modeling_rope_utils`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np

from pe_cli.encodings.rope.axes import Plan
from pe_cli.encodings.rope.scaling import Frequencies, canonical, frequencies, given_options
from pe_cli.errors import PeError, parameter
from pe_cli.numerics.float32 import Float32, f32, power

Powers: TypeAlias = Callable[[float | np.float32], Float32]


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
