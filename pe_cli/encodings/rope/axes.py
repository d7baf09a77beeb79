"""Rotary tables of several axes: which pair turns with which coordinate, and how fast.

Each form is a list of pairs (axis, exponent): the pair turns by coordinate[axis] * gain[axis] *
base^(-exponent). What a published model does beyond that is an affine change of its coordinates, so that
every angle is still an integer (or the user's own fraction) times an exactly known frequency.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from pe_cli.encodings.rope.scaling import DEFAULT_BASE, Decimals
from pe_cli.errors import PeError, parameter
from pe_cli.numerics.kernels import PRECISE, TWO_PI, as_decimal, rotations
from pe_cli.positions import spell

Grid: TypeAlias = tuple[int, ...]
ROWS_AT_ONCE = 512


def coordinates(
    positions: NDArray[Any],
    axes: int,
    grid: Grid | None,
    *,
    text: bool = False,
    class_row: bool = False,
    x_first: bool = False,
) -> NDArray[Any]:
    """(n, axes) coordinates: given as such, or the cell of each row number of `grid`.

    A grid of fewer axes leaves the first ones (time) at 0. `text`: a position alone is the same on all axes.
    `class_row`: there is one more row than cells. `x_first`: the coordinates are column and row.
    """
    where = np.asarray(positions)
    if where.ndim == 2:
        if where.shape[1] != axes:
            turned = f"; transpose them to ({where.shape[1]}, {axes})" if len(where) == axes else ""
            raise PeError(
                f"positions of shape {where.shape} have {where.shape[1]} coordinates each; this encoding has {axes} axes{turned}"
            )
        return where
    if where.ndim != 1:
        raise PeError(f"{parameter('positions')} have shape {where.shape}; give (n,) or (n, {axes})")
    if grid is None:
        if not text:
            raise PeError(
                f"this encoding has {axes} axes: give {parameter('grid')}, or positions with {axes} coordinates"
            )
        return np.repeat(where[:, None], axes, axis=1)
    shape = padded(grid, axes)
    cells = int(np.prod(shape))
    outside = (where < 0) | (where >= cells + class_row) | (where != np.floor(where))
    if outside.any():
        raise PeError(
            f"position {where[outside][0]} is not a row of {parameter('grid')} {spell(grid, 'x')}, which has {cells}"
        )
    found = np.unravel_index(np.minimum(where, cells - 1).astype(np.int64), shape)
    return np.stack(found[::-1] if x_first else found, axis=1)


def turning_blocks(
    where: NDArray[Any],
    axis_of: tuple[int, ...],
    inv_freq: Decimals,
    amplitude: float,
    *,
    relative: bool,
) -> Iterator[tuple[slice, NDArray[np.complex128]]]:
    """Like `kernels.rotation_blocks`, with coordinates (n, axes) and the axis of each pair."""
    chosen = {
        axis: np.array([i for i, a in enumerate(axis_of) if a == axis]) for axis in sorted(set(axis_of))
    }
    rates = {axis: tuple(inv_freq[i] for i in columns) for axis, columns in chosen.items()}
    buffer = np.empty((ROWS_AT_ONCE, len(axis_of)), np.complex128)
    for start in range(0, len(where), ROWS_AT_ONCE):
        part = where[start : start + ROWS_AT_ONCE]
        z = buffer[: len(part)]
        for axis, columns in chosen.items():
            distinct, index = np.unique(part[:, axis], return_inverse=True)
            turned = rotations(distinct, rates[axis], amplitude=amplitude, relative=relative)
            z[:, columns] = turned[index.reshape(-1)]
        yield slice(start, start + len(part)), z


def padded(grid: Grid, axes: int) -> Grid:
    if len(grid) > axes:
        raise PeError(
            f"{parameter('grid')} {spell(grid, 'x')} has {len(grid)} axes; this encoding has {axes}"
        )
    return (1,) * (axes - len(grid)) + tuple(grid)


class Pair(NamedTuple):
    """One pair of channels; `exponent` None is a pair that does not turn."""

    axis: int
    exponent: Fraction | None


class Change(NamedTuple):
    """A coordinate c becomes scale * c + offset, and its frequencies are multiplied by gain."""

    scale: int = 1
    offset: int = 0
    gain: Decimal = Decimal(1)


@dataclass(frozen=True)
class Plan:
    """A form for one width and grid.

    pairs : one entry a pair; `columns` has the pair of each column of layout `half` where the second half
        does not repeat the first, and `only_half` says that the model's own rotation has no other layout.
    measures_grid : the changes were made for one grid, which coordinates are measured against.
    text : a position alone is the same on all axes, as that of a token of text.
    x_first : the coordinates of a cell are its column and its row, as the position ids of the model are.
    stretch : s of each axis, whose base is multiplied by s^(d / (d - 2)), d its width.
    """

    pairs: tuple[Pair, ...]
    axes: int
    base: float
    native: str
    changes: tuple[Change, ...] = ()
    columns: tuple[int, ...] | None = None
    only_half: bool = False
    float32_recipe: bool = True
    class_row: bool = False
    measures_grid: bool = False
    x_first: bool = False
    text: bool = False
    stretch: tuple[Decimal, ...] = ()
    facts: dict[str, Any] = field(default_factory=dict, hash=False, compare=False)

    def change(self, axis: int) -> Change:
        return self.changes[axis] if self.changes else Change()

    def frequencies(self) -> Decimals:
        """(m,) radians per unit of the changed coordinate."""
        if not 0 < self.base < math.inf:
            raise PeError(f"{parameter('base')} {self.base:g} is not a positive number")
        logarithm = PRECISE.ln(as_decimal(self.base))
        by_axis = [PRECISE.add(logarithm, self._stretched(axis)) for axis in range(self.axes)]
        return tuple(self._frequency(pair, by_axis[pair.axis]) for pair in self.pairs)

    def _stretched(self, axis: int) -> Decimal:
        """The logarithm of what the base of this axis is multiplied by."""
        if not self.stretch:
            return Decimal(0)
        width = 2 * sum(pair.axis == axis for pair in self.pairs)
        return PRECISE.divide(
            PRECISE.multiply(PRECISE.ln(self.stretch[axis]), Decimal(width)), Decimal(width - 2)
        )

    def _frequency(self, pair: Pair, logarithm: Decimal) -> Decimal:
        if pair.exponent is None:
            return Decimal(0)
        top, bottom = pair.exponent.numerator, pair.exponent.denominator
        power = PRECISE.exp(PRECISE.divide(PRECISE.multiply(logarithm, Decimal(-top)), Decimal(bottom)))
        return PRECISE.multiply(power, self.change(pair.axis).gain)

    def coordinates(self, where: NDArray[Any]) -> NDArray[Any]:
        """(n, axes) of the changed coordinates."""
        if not self.changes:
            return where
        scale = np.array([self.change(axis).scale for axis in range(self.axes)])
        offset = np.array([self.change(axis).offset for axis in range(self.axes)])
        changed: NDArray[Any] = where * scale + offset
        return changed


def _series(axis: int, width: int) -> list[Pair]:
    """base^(-2 j / width), j from 0, all on one axis."""
    return [Pair(axis, Fraction(2 * j, width)) for j in range(width // 2)]


def _quarter(dim: int, style: str) -> int:
    if dim % 4:
        raise PeError(
            f"{parameter('axis_style')} {style} gives half of the width to each of two axes: {parameter('dim')} {dim} "
            "is no multiple of 4"
        )
    return dim // 2


def _two_axes(style: str, native: str, order: tuple[int, int] = (0, 1)) -> Callable[..., Plan]:
    """Half of the width for rows, half for columns, both with the same frequencies."""

    def build(dim: int, base: float, **_: Any) -> Plan:
        half = _quarter(dim, style)
        pairs = [pair for axis in order for pair in _series(axis, half)]
        return Plan(tuple(pairs), 2, base, native)

    return build


def _kimi(dim: int, base: float, **_: Any) -> Plan:
    half = _quarter(dim, "kimi-vision")
    rows, columns = _series(0, half), _series(1, half)
    return Plan(tuple(p for both in zip(columns, rows, strict=True) for p in both), 2, base, "half")


def _loftr(dim: int, base: float, **_: Any) -> Plan:
    half = _quarter(dim, "loftr")
    pairs = tuple(p for both in zip(_series(0, half), _series(1, half), strict=True) for p in both)
    return Plan(pairs, 2, base, "adjacent", changes=(Change(offset=1),) * 2)


def _pixtral(dim: int, base: float, **_: Any) -> Plan:
    _quarter(dim, "pixtral")
    every = [Fraction(2 * i, dim) for i in range(dim // 2)]
    pairs = [Pair(0, e) for e in every[0::2]] + [Pair(1, e) for e in every[1::2]]
    return Plan(tuple(pairs), 2, base, "half")


def _gemma4(dim: int, base: float, **_: Any) -> Plan:
    plan = _two_axes("gemma4-vision", "half")(dim, base)
    return replace(plan, columns=_repeated_by_block([dim // 4, dim // 4]), x_first=True)


def _sam(dim: int, base: float, *, grid: Grid | None, ref_grid: Grid | None, **_: Any) -> Plan:
    plan = replace(_two_axes("sam", "adjacent")(dim, base), x_first=True)
    return plan if ref_grid is None else _rescaled(plan, "sam", _sized("sam", grid, 2)[::-1], ref_grid[::-1])


def _from_one(style: str, native: str) -> Callable[..., Plan]:
    """Columns before rows, both counted from 1."""

    def build(dim: int, base: float, **_: Any) -> Plan:
        plan = _two_axes(style, native, order=(1, 0))(dim, base)
        return replace(plan, changes=(Change(offset=1),) * 2)

    return build


def _llama4(dim: int, base: float, **_: Any) -> Plan:
    return replace(_from_one("llama4-vision", "complex")(dim, base), class_row=True)


def _dinov3(dim: int, base: float, *, grid: Grid | None, **_: Any) -> Plan:
    plan = _two_axes("dinov3", "half")(dim, base)
    # The centre of cell k of N in [-1, 1] is (2 k + 1 - N) / N; a turn of 2 pi per period.
    changes = tuple(Change(2, 1 - n, PRECISE.divide(TWO_PI, Decimal(n))) for n in _sized("dinov3", grid, 2))
    return replace(plan, changes=changes, float32_recipe=False, measures_grid=True)


def _timm(style: str, order: tuple[int, int], offset: int) -> Callable[..., Plan]:
    """timm's `RotaryEmbeddingCat`: cell numbers from `offset`, rescaled to the grid of pretraining if given."""
    cells = _two_axes(style, "sin-cos-adjacent", order)

    def build(dim: int, base: float, *, grid: Grid | None, ref_grid: Grid | None, **_: Any) -> Plan:
        plan = cells(dim, base)
        if ref_grid is None:
            return replace(plan, changes=(Change(offset=offset),) * 2)
        return _rescaled(plan, style, _sized(style, grid, 2), ref_grid, offset)

    return build


def _rescaled(plan: Plan, style: str, grid: Grid, ref_grid: Grid, offset: int = 0) -> Plan:
    """The plan with the cells of `grid` measured in those of `ref_grid`; both in the order of the coordinates."""
    if len(ref_grid) != 2:
        raise PeError(
            f"{parameter('ref_grid')} {spell(ref_grid, 'x')} has {len(ref_grid)} axes; {style} has 2"
        )
    gains = (PRECISE.divide(Decimal(r), Decimal(n)) for n, r in zip(grid, ref_grid, strict=True))
    changes = tuple(Change(offset=offset, gain=gain) for gain in gains)
    return replace(plan, changes=changes, float32_recipe=False, measures_grid=True)


def _vjepa2(dim: int, base: float, **_: Any) -> Plan:
    block = dim // 3 // 2
    if not block:
        raise PeError(f"{parameter('axis_style')} vjepa2 needs {parameter('dim')} of at least 6, not {dim}")
    rest = dim // 2 - 3 * block
    pairs = [pair for axis in range(3) for pair in _series(axis, 2 * block)] + [Pair(0, None)] * rest
    columns = _repeated_by_block([block, block, block, rest])
    return Plan(tuple(pairs), 3, base, "half", columns=columns, only_half=True)


def _qwen_image(dim: int, base: float, *, grid: Grid | None, axes: Grid | None, **_: Any) -> Plan:
    plan = _concatenated(dim, base, axes or _default_axes("qwen-image", dim, (16, 56, 56), 128), "complex")
    if plan.axes != 3:
        raise PeError(
            f"{parameter('axes')} {spell(axes or ())} are {plan.axes}; {parameter('axis_style')} qwen-image has 3: "
            "frame, row, column"
        )
    if grid is None:
        return replace(plan, text=True)
    centred = (Change(offset=size // 2 - size) for size in padded(grid, 3)[1:])
    return replace(plan, changes=(Change(), *centred), measures_grid=True)


def _ltx(dim: int, base: float, **_: Any) -> Plan:
    steps = dim // 6
    if steps < 2:
        raise PeError(f"{parameter('axis_style')} ltx needs {parameter('dim')} of at least 12, not {dim}")
    dead = [Pair(0, None)] * ((dim - 6 * steps) // 2)
    rising = [Pair(axis, Fraction(-j, steps - 1)) for j in range(steps) for axis in range(3)]
    quarter = PRECISE.divide(TWO_PI, Decimal(4))
    changes = (Change(2, -1, quarter),) * 3
    return Plan((*dead, *rising), 3, base, "adjacent", changes=changes, float32_recipe=False)


def _fixed_axes(style: str, native: str, split: Callable[[int], Grid]) -> Callable[..., Plan]:
    def build(dim: int, base: float, *, axes: Grid | None, **_: Any) -> Plan:
        return _concatenated(dim, base, axes or split(dim), native)

    return build


def _concatenated(dim: int, base: float, axes: Grid, native: str = "adjacent") -> Plan:
    """A one-axis encoding of its own for each axis, side by side."""
    if any(width < 2 or width % 2 for width in axes):
        raise PeError(f"{parameter('axes')} {spell(axes)}: every axis needs an even width of at least 2")
    if sum(axes) != dim:
        raise PeError(
            f"{parameter('axes')} {spell(axes)} add up to {sum(axes)}, but {parameter('dim')} is {dim}"
        )
    pairs = [pair for axis, width in enumerate(axes) for pair in _series(axis, width)]
    return Plan(tuple(pairs), len(axes), base, native, facts={"axes": list(axes)})


def _default_axes(style: str, dim: int, axes: Grid, width: int) -> Grid:
    if dim != width:
        raise PeError(
            f"{parameter('axis_style')} {style} has axes {spell(axes)} at {parameter('dim')} {width}; for "
            f"{parameter('dim')} {dim} give {parameter('axes')}"
        )
    return axes


def _wan(dim: int) -> Grid:
    side = 2 * (dim // 6)
    return (dim - 2 * side, side, side)


def _cogvideox(dim: int) -> Grid:
    return (dim // 4, dim // 8 * 3, dim // 8 * 3)


def _repeated_by_block(blocks: Iterable[int]) -> tuple[int, ...]:
    """Columns of `half` where every block of pairs is repeated by itself: [h, h, w, w] instead of [h, w, h, w]."""
    columns: list[int] = []
    start = 0
    for size in blocks:
        columns += [*range(start, start + size)] * 2
        start += size
    return tuple(columns)


class Built(NamedTuple):
    """A published form: how it is built, its base where none is given, and where it comes from."""

    build: Callable[..., Plan]
    base: float
    source: str


STYLES: dict[str, Built] = {
    "qwen-vision": Built(
        _two_axes("qwen-vision", "half"), DEFAULT_BASE, "Qwen2-VL to Qwen3-VL, GLM-V, vision"
    ),
    "step3-vision": Built(
        _two_axes("step3-vision", "half", order=(1, 0)), DEFAULT_BASE, "Step 3 vision: columns before rows"
    ),
    "inkling-vision": Built(
        _from_one("inkling-vision", "adjacent"),
        DEFAULT_BASE,
        "Inkling 2 vision: columns before rows, from 1, adjacent pairs",
    ),
    "muse-vision": Built(
        _from_one("muse-vision", "half"), DEFAULT_BASE, "Muse vision: columns before rows, from 1"
    ),
    "kimi-vision": Built(_kimi, DEFAULT_BASE, "Kimi-K2.5 vision: column, row, column, row…"),
    "loftr": Built(_loftr, DEFAULT_BASE, "EfficientLoFTR: row, column, row, column…, from 1, adjacent pairs"),
    "pixtral": Built(_pixtral, DEFAULT_BASE, "Pixtral, Mistral-3 vision: alternate frequencies"),
    "gemma4-vision": Built(
        _gemma4, 100.0, "Gemma-4 vision: x, then y (its position ids are x, y), each a half by itself"
    ),
    "sam": Built(
        _sam, DEFAULT_BASE, "SAM 2, SAM 3, EdgeTAM: x, then y; ref_grid rescales (global layers of SAM 3)"
    ),
    "eva02": Built(_timm("eva02", (0, 1), 0), DEFAULT_BASE, "EVA-02 in timm; ref_grid rescales"),
    "pe-vision": Built(
        _timm("pe-vision", (1, 0), 1), DEFAULT_BASE, "Perception Encoder in timm: columns first, from 1"
    ),
    "dinov3": Built(_dinov3, 100.0, "DINOv3: cell centres in [-1, 1], base^(4 j / dim) is the period"),
    "llama4-vision": Built(
        _llama4, DEFAULT_BASE, "Llama 4 vision: x then y, from 1; row H*W is the class token"
    ),
    "vjepa2": Built(_vjepa2, DEFAULT_BASE, "V-JEPA 2 as it is: tiled by halves, rotated in adjacent pairs"),
    "flux": Built(
        _fixed_axes("flux", "adjacent", lambda d: _default_axes("flux", d, (16, 56, 56), 128)),
        DEFAULT_BASE,
        "FLUX.1: 16, 56, 56",
    ),
    "wan": Built(
        _fixed_axes("wan", "adjacent", _wan), DEFAULT_BASE, "Wan 2: rows and columns 2 (dim // 6) each"
    ),
    "cogvideox": Built(
        _fixed_axes("cogvideox", "adjacent", _cogvideox), DEFAULT_BASE, "CogVideoX: 1/4, 3/8, 3/8"
    ),
    "hunyuan-video": Built(
        _fixed_axes(
            "hunyuan-video", "adjacent", lambda d: _default_axes("hunyuan-video", d, (16, 56, 56), 128)
        ),
        256.0,
        "HunyuanVideo: 16, 56, 56",
    ),
    "qwen-image": Built(_qwen_image, DEFAULT_BASE, "Qwen-Image: rows and columns counted from the centre"),
    "ltx": Built(_ltx, DEFAULT_BASE, "LTX-Video: rising frequencies, axes interleaved, padding first"),
}
ALIASES = {
    "qwen2-vl": "qwen-vision",
    "qwen3-vl": "qwen-vision",
    "glm-v": "qwen-vision",
    "kimi": "kimi-vision",
    "mistral3": "pixtral",
    "gemma4": "gemma4-vision",
    "sam2": "sam",
    "sam3": "sam",
    "eva": "eva02",
    "llama4": "llama4-vision",
    "flux1": "flux",
    "ltx-video": "ltx",
}


@lru_cache(maxsize=64)
def axial_plan(
    dim: int,
    base: float | None,
    style: str | None,
    axes: Grid | None,
    grid: Grid | None,
    ref_grid: Grid | None = None,
    factors: tuple[float, ...] | None = None,
) -> Plan:
    """The plan of a published style, or of `axes` side by side."""
    if factors is not None:
        return _with_factors(axial_plan(dim, base, style, axes, grid, ref_grid), factors)
    if dim % 2 or dim < 2:
        raise PeError(f"{parameter('dim')} {dim}: a rotary width is an even number of channels")
    if ref_grid is not None and style not in WITH_REF_GRID:
        styles = " and ".join(sorted(WITH_REF_GRID))
        raise PeError(f"{parameter('ref_grid')} belongs to {parameter('axis_style')} {styles}")
    if style is None:
        if axes is None:
            raise PeError(f"give {parameter('axes')} or {parameter('axis_style')}")
        return _concatenated(dim, DEFAULT_BASE if base is None else base, axes)
    known = STYLES[style]
    if axes is not None and style not in WITH_AXES:
        raise PeError(
            f"{parameter('axis_style')} {style} has its own division of the width: leave {parameter('axes')} out"
        )
    plan = known.build(dim, known.base if base is None else base, grid=grid, axes=axes, ref_grid=ref_grid)
    return replace(plan, facts={**plan.facts, "axis_style": style, "model": known.source})


def _with_factors(plan: Plan, factors: tuple[float, ...]) -> Plan:
    """The plan of axes side by side with the context of each stretched by a change of its base."""
    widths = plan.facts.get("axes", ())
    fits = len(factors) == len(widths) and all(width > 2 for width in widths)
    if not fits or not all(0 < factor < math.inf for factor in factors):
        raise PeError(
            f"{parameter('axis_factors')} {','.join(f'{s:g}' for s in factors)}: a positive number is needed for each of the {parameter('axes')}, "
            "which are side by side and wider than 2"
        )
    stretch = tuple(as_decimal(factor) for factor in factors)
    facts = {**plan.facts, "axis_factors": list(factors)}
    return replace(plan, stretch=stretch, float32_recipe=False, facts=facts)


WITH_REF_GRID = frozenset({"eva02", "pe-vision", "sam"})
WITH_AXES = frozenset({"flux", "wan", "cogvideox", "hunyuan-video", "qwen-image"})


def _sized(style: str, grid: Grid | None, axes: int) -> Grid:
    if grid is None:
        raise PeError(
            f"{parameter('axis_style')} {style} measures positions against the grid: give {parameter('grid')}, such as "
            "16x16"
        )
    if len(grid) != axes:
        raise PeError(
            f"{parameter('grid')} {spell(grid, 'x')} has {len(grid)} axes; axis style {style} has {axes}"
        )
    return grid
