"""Columns of sines and cosines, written into a table once: what every sinusoidal style is made of."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from pe_cli.errors import PeError
from pe_cli.numerics.dtypes import round_into
from pe_cli.numerics.float32 import cos_sin, power
from pe_cli.numerics.kernels import Frequencies, geometric, rotation_blocks, scaled

Order: TypeAlias = Literal["interleaved", "sin-cos", "cos-sin"]
Recipe: TypeAlias = Literal["exp", "exp-divide", "power", "period"]


@dataclass(frozen=True)
class Columns:
    """Which columns of a table hold the sines and which the cosines, in the order of the frequencies."""

    sin: slice
    cos: slice

    @classmethod
    def within(cls, start: int, stop: int, order: Order) -> Columns:
        """Columns start..stop-1; where they are odd in number, the first kind has one more."""
        if order == "interleaved":
            return cls(slice(start, stop, 2), slice(start + 1, stop, 2))
        middle = start + (stop - start + 1) // 2
        first, second = slice(start, middle), slice(middle, stop)
        return cls(first, second) if order == "sin-cos" else cls(second, first)

    @property
    def together(self) -> slice | None:
        """The columns as one run, where sine and cosine alternate."""
        if self.sin.step == 2 and self.cos.start == self.sin.start + 1:
            return slice(self.sin.start, self.sin.stop)
        return None


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


Waves: TypeAlias = Frequencies | Float32Waves


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


def frequencies(base: float, dim: int, shift: float, recipe: Recipe | None, scale: float = 1.0) -> Waves:
    """Exact frequencies where `recipe` is None, else those of `float32_waves`."""
    if recipe is not None:
        return float32_waves(recipe, base, dim, shift, scale)
    exact = geometric(base, dim, shift=shift)
    return exact if scale == 1 else scaled(exact, scale)


def write_waves(table: NDArray[Any], columns: Columns, positions: NDArray[Any], waves: Waves) -> None:
    """table[:, columns] = sin and cos of positions (n,) times frequencies (m,), rounded once to its dtype.

    Columns beyond the width of the table are cut off.
    """
    run = columns.together
    relative = table.dtype == np.float64
    # Nothing overflows here, so that numpy's types need none of the care of `round_into`.
    store = _assign if table.dtype.isbuiltin == 1 else round_into
    if run is not None:
        run = slice(*run.indices(table.shape[1]))
        for rows, z in _blocks(positions, waves, sin_first=True, relative=relative):
            store(table[rows, run], z.view(np.float64)[:, : run.stop - run.start])
        return
    for rows, z in _blocks(positions, waves, sin_first=False, relative=relative):
        for part, chosen in ((z.imag, columns.sin), (z.real, columns.cos)):
            out = table[rows, chosen]
            store(out, part[:, : out.shape[1]])


def _assign(out: NDArray[Any], values: NDArray[np.float64]) -> None:
    out[...] = values


def _blocks(
    positions: NDArray[Any], waves: Waves, *, sin_first: bool, relative: bool
) -> Iterator[tuple[slice, NDArray[np.complex128]]]:
    if isinstance(waves, Float32Waves):
        return float32_rotation_blocks(positions, waves, sin_first=sin_first)
    return rotation_blocks(positions, waves, sin_first=sin_first, relative=relative)


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
