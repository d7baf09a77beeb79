"""A rotary encoding with everything decided but the positions, for one axis, sections or several axes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pe_cli.encodings.rope import axes as rope_axes
from pe_cli.encodings.rope import layouts as rope_layouts
from pe_cli.encodings.rope.axes import Plan, axial_plan, coordinates, section_axes, turning_blocks
from pe_cli.encodings.rope.float32 import frequencies32, inverse
from pe_cli.encodings.rope.scaling import DEFAULT_BASE, Frequencies, frequencies
from pe_cli.errors import PeError, parameter
from pe_cli.numerics.dtypes import ElementType, round_to
from pe_cli.numerics.float32 import Float32, cos_sin, power
from pe_cli.numerics.kernels import rotation_blocks
from pe_cli.tensors import Tensors

PAIRS_AT_ONCE = 16384
_SEVERAL_AXES = f"{parameter('sections')}, {parameter('axes')} or {parameter('axis_style')}"


@dataclass(frozen=True)
class Form:
    """A rotary encoding with everything decided but the positions."""

    spectrum: Frequencies
    axis_of: tuple[int, ...] | None
    axes: int
    plan: Plan | None
    in_float32: Float32 | None
    facts: dict[str, Any]

    @property
    def pairs(self) -> int:
        return len(self.spectrum.inv_freq)

    @property
    def columns(self) -> NDArray[np.intp] | None:
        return None if self.plan is None or self.plan.columns is None else np.array(self.plan.columns)

    def check_layout(self, layout: str) -> None:
        if self.plan is not None and self.plan.only_half and layout != "half":
            raise PeError(
                f"{parameter('axis_style')} {self.facts['axis_style']} is not a rotation of pairs: only "
                f"{parameter('layout')} half holds it"
            )

    def coordinates(self, positions: NDArray[Any], grid: tuple[int, ...] | None) -> NDArray[Any]:
        """(n,) positions, or (n, axes) coordinates as the frequencies want them."""
        if self.axis_of is None:
            if positions.ndim != 1:
                raise PeError(f"{parameter('positions')} of {positions.shape[-1]} axes need {_SEVERAL_AXES}")
            if grid is not None:
                raise PeError(f"{parameter('grid')} needs {_SEVERAL_AXES}")
            return positions
        if positions.ndim == 2 and grid is not None and not (self.plan and self.plan.measures_grid):
            raise PeError(f"{parameter('grid')} is for row numbers; these positions are coordinates already")
        if self.plan is None:
            return coordinates(positions, self.axes, grid, text=True)
        where = coordinates(
            positions,
            self.axes,
            grid,
            text=self.plan.text,
            class_row=self.plan.class_row,
            x_first=self.plan.x_first,
        )
        changed = self.plan.coordinates(where)
        if self.plan.class_row and grid is not None and positions.ndim == 1:
            changed[positions == math.prod(grid)] = 0
        return changed

    def blocks(self, where: NDArray[Any], *, relative: bool) -> rope_layouts.Blocks:
        amplitude = self.spectrum.attention_factor
        if self.in_float32 is not None:
            return self._float32_blocks(where, self.in_float32, np.float32(amplitude))
        if self.axis_of is None:
            return rotation_blocks(where, self.spectrum.inv_freq, amplitude=amplitude, relative=relative)
        return turning_blocks(where, self.axis_of, self.spectrum.inv_freq, amplitude, relative=relative)

    def _float32_blocks(
        self, where: NDArray[Any], w: Float32, amplitude: np.float32
    ) -> Iterator[tuple[slice, NDArray[np.complex64]]]:
        step = max(1, PAIRS_AT_ONCE // max(1, len(w)))
        buffer = np.empty((step, len(w)), np.complex64)
        for start in range(0, len(where), step):
            part = where[start : start + step].astype(np.float32)
            angles = part[:, None] * w if self.axis_of is None else part[:, list(self.axis_of)] * w
            z = buffer[: len(part)]
            z.real, z.imag = cos_sin(angles)
            z *= amplitude
            yield slice(start, start + len(part)), z

    def constants(self, layout: str, dtype: ElementType) -> Tensors:
        if self.plan is not None and layout != "inv-freq":
            raise PeError(f"{parameter('layout')} {layout} knows one axis: use inv-freq, or a table")
        if self.in_float32 is not None:
            if layout != "inv-freq":
                raise PeError(
                    f"{parameter('layout')} {layout} has no float32 recipe: leave {parameter('compute')} at exact"
                )
            tensors = {"inv_freq": round_to(self.in_float32, dtype)}
        else:
            tensors = rope_layouts.constant(layout, self.spectrum, dtype)
        warnings = self.spectrum.warnings
        if self.spectrum.attention_factor != 1:
            missing = f"cos and sin are to be multiplied by {self.spectrum.attention_factor:.9g}"
            warnings = (*warnings, f"{missing}, which {layout} does not hold")
        if self.axis_of is not None:
            tensors["axis"] = np.array(self.axis_of, np.int64)
        return Tensors(tensors, {**self.facts, "baked_in": False}, warnings)


@lru_cache(maxsize=64)
def shared_form(
    dim: int,
    base: float | None,
    scaling: str,
    given: tuple[tuple[str, Any], ...],
    sections: tuple[int, ...] | None,
    interleaved: bool,
    style: str | None,
    compute: str,
) -> Form:
    """One frequency vector, for one axis or divided into sections."""
    theta = DEFAULT_BASE if base is None else base
    if dim % 2 or dim < 2:
        raise PeError(f"{parameter('dim')} {dim}: a rotary width is an even number of channels")
    spectrum = frequencies(dim, base=theta, scaling=scaling, **dict(given))
    pairs = len(spectrum.inv_freq)
    facts = {
        "base": float(theta),
        "rotary_width": spectrum.width,
        "attention_factor": spectrum.attention_factor,
        **spectrum.facts,
    }
    axis_of = None
    if sections is not None:
        if style is not None and interleaved:
            raise PeError(
                f"{parameter('axis_style')} {style} orders its sections itself: leave "
                f"{parameter('interleave_sections')} out"
            )
        order = rope_axes.SECTION_ORDERS[style] if style else "interleaved" if interleaved else "chunked"
        axis_of = section_axes(sections, pairs, order)
        facts |= {"sections": list(sections), "section_order": order}
    elif interleaved or style is not None:
        needs = f"{parameter('axis_style')} {style}" if style else parameter("interleave_sections")
        raise PeError(f"{needs} needs {parameter('sections')}")
    in_float32 = _recipe32(compute, lambda: frequencies32(dim, base=theta, scaling=scaling, **dict(given)))
    return Form(spectrum, axis_of, len(sections or (0,)), None, in_float32, facts)


@lru_cache(maxsize=64)
def axial_form(
    dim: int,
    base: float | None,
    style: str | None,
    axes: tuple[int, ...] | None,
    grid: tuple[int, ...] | None,
    ref_grid: tuple[int, ...] | None,
    compute: str,
) -> Form:
    """Frequencies of their own for each axis."""
    plan = axial_plan(dim, base, style, axes, grid, ref_grid)
    inv_freq = plan.frequencies()
    facts = {
        "base": float(plan.base),
        "rotary_width": dim,
        "attention_factor": 1.0,
        "model_layout": plan.native,
        **plan.facts,
    }
    if plan.changes:
        facts["coordinates"] = [[change.scale, change.offset] for change in plan.changes]
    if compute == "float32" and not plan.float32_recipe:
        raise PeError(
            f"no float32 recipe is known for {parameter('axis_style')} {style}: leave {parameter('compute')} at exact"
        )
    in_float32 = _recipe32(compute, lambda: _plan32(plan))
    return Form(
        Frequencies(inv_freq, inv_freq, 1.0, dim),
        tuple(pair.axis for pair in plan.pairs),
        plan.axes,
        plan,
        in_float32,
        facts,
    )


def _recipe32(compute: str, recipe: Callable[[], Float32]) -> Float32 | None:
    return recipe() if compute == "float32" else None


def _plan32(plan: Plan) -> Float32:
    """The frequencies of a plan as torch finds them, a call for each axis."""
    w = np.zeros(len(plan.pairs), np.float32)
    for axis in range(plan.axes):
        mine = [i for i, pair in enumerate(plan.pairs) if pair.axis == axis and pair.exponent is not None]
        quotients = [plan.pairs[i].exponent for i in mine]
        exponents = np.array([float(q) for q in quotients if q is not None], np.float32)
        w[mine] = inverse(power(plan.base, exponents))
    return w
