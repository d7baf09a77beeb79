"""How a rotary table is stored: which columns hold which cosine and sine.

A layout fills its tensors from blocks of z (rows, m), one complex number A exp(i angle) a pair, while they are
in cache. It says nothing about which channels of a query belong together; the names of the field do:
`half` and `split` are read by code that pairs channels (i, i + d/2), `adjacent`, `interleaved` and `complex` by
code that pairs (2 i, 2 i + 1).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from pe_cli.encodings.rope.scaling import Frequencies
from pe_cli.errors import PeError, parameter
from pe_cli.numerics.dtypes import ElementType, numpy_dtype, round_into, round_to

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
