"""A rotary encoding with everything decided but the positions, for one axis, sections or several axes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from pe_cli.encodings.rope.axes import Grid, Plan, axial_plan, coordinates, turning_blocks
from pe_cli.encodings.rope.scaling import DEFAULT_BASE, Frequencies, frequencies
from pe_cli.errors import PeError, parameter
from pe_cli.numerics.dtypes import ElementType, numpy_dtype, round_into, round_to
from pe_cli.numerics.kernels import rotation_blocks
from pe_cli.positions import spell
from pe_cli.tensors import Tensors

if TYPE_CHECKING:
    from pe_cli.encodings.float32 import Float32

Block: TypeAlias = NDArray[np.complex64] | NDArray[np.complex128]
Blocks: TypeAlias = Iterable[tuple[slice, Block]]
Columns: TypeAlias = NDArray[np.intp]
Fill: TypeAlias = Callable[[Sequence[NDArray[Any]], slice, Block], None]


@dataclass(frozen=True)
class Layout:
    """One storage form: the names of its tensors, their width in numbers per pair, and how a block fills them."""

    tensors: tuple[str, ...]
    width: int
    fill: Fill
    complex: bool = False


@dataclass(frozen=True)
class Constant:
    """A layout without positions: one vector over the pairs."""

    tensor: Callable[[Frequencies], str]
    values: Callable[[Frequencies], Iterable[Any]]


def _interleaved(out: Sequence[NDArray[Any]], rows: slice, z: Block) -> None:
    _put(out[0], rows, slice(None), z.view(z.real.dtype))


def _half(out: Sequence[NDArray[Any]], rows: slice, z: Block) -> None:
    pairs = z.shape[1]
    for table, part in zip(out, (z.real, z.imag), strict=True):
        _put(table, rows, slice(pairs), part)
        table[rows, pairs:] = table[rows, :pairs]


def _adjacent(out: Sequence[NDArray[Any]], rows: slice, z: Block) -> None:
    for table, part in zip(out, (z.real, z.imag), strict=True):
        _put(table, rows, slice(0, None, 2), part)
        table[rows, 1::2] = table[rows, 0::2]


def _split(out: Sequence[NDArray[Any]], rows: slice, z: Block) -> None:
    for table, part in zip(out, (z.real, z.imag), strict=True):
        _put(table, rows, slice(None), part)


def _cos_sin(out: Sequence[NDArray[Any]], rows: slice, z: Block) -> None:
    pairs = z.shape[1]
    _split((out[0][:, :pairs], out[0][:, pairs:]), rows, z)


def _sin_cos(out: Sequence[NDArray[Any]], rows: slice, z: Block) -> None:
    pairs = z.shape[1]
    _split((out[0][:, pairs:], out[0][:, :pairs]), rows, z)


def _sin_cos_adjacent(out: Sequence[NDArray[Any]], rows: slice, z: Block) -> None:
    width = 2 * z.shape[1]
    _adjacent((out[0][:, width:], out[0][:, :width]), rows, z)


def _complex(out: Sequence[NDArray[Any]], rows: slice, z: Block) -> None:
    out[0][rows] = z


def _put(table: NDArray[Any], rows: slice, columns: slice, values: NDArray[Any]) -> None:
    round_into(table[rows, columns], values)


def _ggml_name(frequencies: Frequencies) -> str:
    chosen = frequencies.facts.get("factors")  # LongRoPE's short or long list
    return f"rope_factors_{chosen}.weight" if chosen else "rope_freqs.weight"


TABLES: dict[str, Layout] = {
    "interleaved": Layout(("rope",), 2, _interleaved),
    "half": Layout(("cos", "sin"), 2, _half),
    "adjacent": Layout(("cos", "sin"), 2, _adjacent),
    "split": Layout(("cos", "sin"), 1, _split),
    "cos-sin": Layout(("cos_sin_cache",), 2, _cos_sin),
    "sin-cos": Layout(("sin_cos_cache",), 2, _sin_cos),
    "sin-cos-adjacent": Layout(("sin_cos_cache",), 4, _sin_cos_adjacent),
    "complex": Layout(("freqs_cis",), 1, _complex, complex=True),
}
CONSTANTS: dict[str, Constant] = {
    "inv-freq": Constant(lambda f: "inv_freq", lambda f: f.inv_freq),
    "ggml-factors": Constant(_ggml_name, lambda f: f.divisors()),
    "mlx-freqs": Constant(lambda f: "freqs", lambda f: (1 / w if w else np.inf for w in f.inv_freq)),
}
NAMES = (*TABLES, *CONSTANTS)
ALIASES = {
    "neox": "half",
    "hf": "half",
    "huggingface": "half",
    "transformers": "half",
    "gpt-neox": "half",
    "gpt-j": "adjacent",
    "diffusers": "adjacent",
    "onnxruntime": "split",
    "flash-attention": "split",
    "flash-attn": "split",
    "sglang": "cos-sin",
    "flashinfer": "cos-sin",
    "tensorrt": "interleaved",
    "tensorrt-llm": "interleaved",
    "trt": "interleaved",
    "trt-llm": "interleaved",
    "llama": "complex",
    "llama.cpp": "ggml-factors",
    "gptj": "adjacent",
    "onnx": "split",
    "vllm": "cos-sin",
    "trt-pairs": "interleaved",
    "trt-sinusoidal": "sin-cos",
    "timm": "sin-cos-adjacent",
    "meta": "complex",
    "ggml": "ggml-factors",
    "mlx": "mlx-freqs",
}
COMPLEX = {"float32": "complex64", "float64": "complex128"}


def empty_tables(layout: str, rows: int, pairs: int, dtype: ElementType) -> dict[str, NDArray[Any]]:
    """The tensors of `layout` for `rows` positions, not yet filled."""
    form = TABLES[layout]
    if form.complex:
        if dtype not in COMPLEX:
            raise PeError(
                f"{parameter('dtype')} {dtype} has no complex form: use float32 or float64 with "
                f"{parameter('layout')} {layout}"
            )
        dtype = COMPLEX[str(dtype)]
    target = numpy_dtype(dtype)
    return {name: np.empty((rows, form.width * pairs), target) for name in form.tensors}


def empty_columns(rows: int, columns: int, dtype: ElementType) -> dict[str, NDArray[Any]]:
    """The tensors of `half` for `fill_columns`."""
    return {name: np.empty((rows, columns), numpy_dtype(dtype)) for name in TABLES["half"].tensors}


def fill(layout: str, tables: Mapping[str, NDArray[Any]], blocks: Blocks) -> None:
    """Write every block into the tensors of `layout`."""
    out, write = tuple(tables.values()), TABLES[layout].fill
    for rows, z in blocks:
        write(out, rows, z)


def fill_columns(tables: Mapping[str, NDArray[Any]], columns: Columns, blocks: Blocks) -> None:
    """`half` for the models whose two halves are not repeats: column j holds pair `columns[j]`."""
    cos, sin = tables.values()
    for rows, z in blocks:
        _put(cos, rows, slice(None), z.real[:, columns])
        _put(sin, rows, slice(None), z.imag[:, columns])


def constant(layout: str, frequencies: Frequencies, dtype: ElementType) -> dict[str, NDArray[Any]]:
    """The one vector of a layout without positions, rounded once from its decimals."""
    form = CONSTANTS[layout]
    exact = np.array([float(value) for value in form.values(frequencies)])
    return {form.tensor(frequencies): round_to(exact, dtype)}


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

    def blocks(self, where: NDArray[Any], *, relative: bool) -> Blocks:
        amplitude = self.spectrum.attention_factor
        if self.in_float32 is not None:
            return self._float32_blocks(where, self.in_float32, np.float32(amplitude))
        if self.axis_of is None:
            return rotation_blocks(where, self.spectrum.inv_freq, amplitude=amplitude, relative=relative)
        return turning_blocks(where, self.axis_of, self.spectrum.inv_freq, amplitude, relative=relative)

    def _float32_blocks(
        self, where: NDArray[Any], w: Float32, amplitude: np.float32
    ) -> Iterator[tuple[slice, NDArray[np.complex64]]]:
        from pe_cli.encodings.float32 import cos_sin

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
            tensors = constant(layout, self.spectrum, dtype)
        warnings = self.spectrum.warnings
        if self.spectrum.attention_factor != 1:
            missing = f"cos and sin are to be multiplied by {self.spectrum.attention_factor:.9g}"
            warnings = (*warnings, f"{missing}, which {layout} does not hold")
        if self.axis_of is not None:
            tensors["axis"] = np.array(self.axis_of, np.int64)
        return Tensors(tensors, {**self.facts, "baked_in": False}, warnings)


SECTION_ORDERS = {"ernie-vl": "ernie"}  # axis styles that divide one frequency vector


def section_axes(sections: Grid, pairs: int, order: str) -> tuple[int, ...]:
    """(pairs,) the axis of each pair of one shared frequency vector.

    chunked : the first sections[0] pairs turn with axis 0, the next sections[1] with axis 1, … (M-RoPE; with
        four sections XD-RoPE).
    interleaved : axis 0, but for i = a, a + k, a + 2 k, … < k sections[a] with axis a of k.
    ernie : rows and columns alternate in the first sections[0] + sections[1] pairs, time has the rest.
    """
    if any(size < 0 for size in sections):
        raise PeError(f"{parameter('sections')} {spell(sections)}: a section is a number of pairs")
    if sum(sections) != pairs:
        raise PeError(
            f"{parameter('sections')} {spell(sections)} add up to {sum(sections)} pairs, but the rotary width has {pairs}"
        )
    if order == "chunked":
        return tuple(axis for axis, size in enumerate(sections) for _ in range(size))
    if order == "interleaved":
        count = len(sections)
        return tuple(i % count if i < count * sections[i % count] else 0 for i in range(pairs))
    if len(sections) != 3 or sections[0] != sections[1]:
        raise PeError(
            f"{parameter('sections')} {spell(sections)}: ERNIE's are rows, columns (as many) and time, such as 22,22,20"
        )
    spatial = sections[0] + sections[1]
    return tuple(1 + i % 2 if i < spatial else 0 for i in range(pairs))


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
        order = SECTION_ORDERS[style] if style else "interleaved" if interleaved else "chunked"
        axis_of = section_axes(sections, pairs, order)
        facts |= {"sections": list(sections), "section_order": order}
    elif interleaved or style is not None:
        needs = f"{parameter('axis_style')} {style}" if style else parameter("interleave_sections")
        raise PeError(f"{needs} needs {parameter('sections')}")
    in_float32 = None
    if compute == "float32":
        from pe_cli.encodings.float32 import frequencies32

        in_float32 = frequencies32(dim, base=theta, scaling=scaling, **dict(given))
    return Form(spectrum, axis_of, len(sections or (0,)), None, in_float32, facts)


@lru_cache(maxsize=64)
def axial_form(
    dim: int,
    base: float | None,
    style: str | None,
    axes: tuple[int, ...] | None,
    grid: tuple[int, ...] | None,
    ref_grid: tuple[int, ...] | None,
    factors: tuple[float, ...] | None,
    compute: str,
) -> Form:
    """Frequencies of their own for each axis."""
    plan = axial_plan(dim, base, style, axes, grid, ref_grid, factors)
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
    in_float32 = None
    if compute == "float32":
        if not plan.float32_recipe:
            raise PeError(
                f"no float32 recipe is known for {parameter('axis_style')} {style}: leave {parameter('compute')} at exact"
            )
        from pe_cli.encodings.float32 import plan32

        in_float32 = plan32(plan)
    return Form(
        Frequencies(inv_freq, inv_freq, 1.0, dim),
        tuple(pair.axis for pair in plan.pairs),
        plan.axes,
        plan,
        in_float32,
        facts,
    )
