"""Encodings of long sequences: factorised tables and patterns of attention."""

from __future__ import annotations

import math
import operator
from functools import lru_cache
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from pe_cli.encodings.distances import refuse, require_room
from pe_cli.errors import PeError, parameter
from pe_cli.numerics.dtypes import numpy_dtype, round_to
from pe_cli.numerics.kernels import geometric, rotations
from pe_cli.numerics.randomness import LARGEST_STD, in_turn, normal_rows
from pe_cli.positions import spell
from pe_cli.signature import DType, Ints, Positions, encoding
from pe_cli.tensors import Tensors

Combine: TypeAlias = Literal["concat", "sum"]
Init: TypeAlias = Literal["normal", "sinusoidal"]
Pattern: TypeAlias = Literal["strided", "fixed"]
Variant: TypeAlias = Literal["paper", "code"]

LONGEST_ROW = 1 << 31


@encoding
def axial(
    positions: Positions | None = None,
    *,
    shape: Ints,
    dims: Ints,
    combine: Combine = "concat",
    init: Init = "normal",
    std: float | None = None,
    seed: int | None = None,
    expand: bool = False,
    dtype: DType = "float32",
) -> Tensors:
    """Axial positions: the sequence is folded to a grid, with one small table per axis.

    >>> [factor.shape for factor in axial(shape=(64, 32), dims=(64, 192)).values()]
    [(64, 64), (32, 192)]

    Position p has the row-major indices (p // s_2, p % s_2) on a grid (s_1, s_2), or of more axes, and its code
    is the tables' rows side by side (concat) or their sum. Tensors: `factor_0`, `factor_1`, … (s_a, d_a), which
    is all that a model stores, and `indices` (positions, axes), int64, the rows of the factors that each position
    reads. The product of 512 x 1,024 positions is never made unless asked for: --expand gives `axial`
    (positions, width) instead.

    Extrapolates: no, the grid holds prod(shape) positions. Added to the embedding. Used by Reformer.

    Source: Kitaev et al. 2020, arXiv 2001.04451 (Reformer); Ho et al. 2019, arXiv 1912.12180.

    Parameters
    ----------
    positions : positions (n,), below prod(shape); with --expand all of them where none are given
    shape : length of each axis, for example 64,64
    dims : width of each axis's table, for example 64,192; all the same where they are summed
    combine : put the rows side by side, or add them; without expand it says only which dims fit
    init : initial values: normal (learned later), or the sinusoidal code of each index
    std : standard deviation of the normal initial values (1; axial_norm_std of Reformer)
    seed : of the normal initial values (0)
    expand : write the rows of the positions instead of factors and indices
    dtype : element type

    Returns
    -------
    Tensors
        factor_0, factor_1, … (length, width), and indices (n, axes), int64, where positions are given; or
        with expand axial (n, width).

    Raises
    ------
    PeError
        For sides and widths that do not fit each other, positions outside of the grid, options that `init`
        does not have, or more memory than there is.
    """
    if len(shape) != len(dims) or not shape or min(*shape, *dims, 1) < 1:
        raise PeError(
            f"{parameter('shape')} {spell(shape)} and {parameter('dims')} {spell(dims)}: one positive number per axis in each"
        )
    if combine == "sum" and len(set(dims)) > 1:
        raise PeError(f"{parameter('dims')} {spell(dims)}: tables that are summed have the same width")
    if init != "normal":
        refuse(f"only {parameter('init')} normal has it", std=std, seed=seed)
    if std is not None and not 0 <= std <= LARGEST_STD:
        raise PeError(f"{parameter('std')} {std:g} is not a standard deviation from 0 to {LARGEST_STD:g}")
    require_room((sum(map(operator.mul, shape, dims)),), np.float64)
    factors = _axial_factors(tuple(shape), tuple(dims), init, 1.0 if std is None else std, seed or 0)
    size = math.prod(shape)
    if expand and positions is None:
        require_room((size, sum(dims)), numpy_dtype(dtype))
    asked = np.arange(size if expand else 0) if positions is None else positions
    where = np.asarray(asked)
    if where.ndim != 1 or where.dtype.kind not in "iu":
        raise PeError(f"{parameter('positions')} are whole numbers on one axis")
    if len(where) and not (where.min() >= 0 and where.max() < size):
        raise PeError(
            f"{parameter('shape')} {spell(shape)} holds positions 0 to {size - 1}, not {_outside(where, size)}"
        )
    indices = np.unravel_index(where, tuple(shape))
    if not expand:
        tensors = {f"factor_{axis}": round_to(table, dtype) for axis, table in enumerate(factors)}
        return Tensors(tensors if positions is None else {**tensors, "indices": np.stack(indices, axis=1)})
    if combine == "sum":
        total = sum(table[index] for table, index in zip(factors, indices, strict=True))
        return Tensors({"axial": round_to(np.asarray(total), dtype)})
    rows = np.empty((len(where), sum(dims)), numpy_dtype(dtype))
    ends = np.cumsum(dims)
    for table, index, end in zip(factors, indices, ends, strict=True):
        rows[:, end - table.shape[1] : end] = round_to(table, dtype)[index]
    return Tensors({"axial": rows})


@lru_cache(maxsize=8)
def _axial_factors(
    shape: tuple[int, ...], dims: tuple[int, ...], init: str, std: float, seed: int
) -> tuple[NDArray[np.float64], ...]:
    if init == "normal":
        sides = list(zip(shape, dims, strict=True))
        return tuple(std * table for table in in_turn(normal_rows, sides, seed))
    if any(dim % 2 for dim in dims):
        raise PeError(f"{parameter('dims')} {spell(dims)}: pairs of sine and cosine need even widths")
    return tuple(
        rotations(np.arange(length), geometric(10000, dim), sin_first=True, relative=True).view(np.float64)
        for length, dim in zip(shape, dims, strict=True)
    )


@encoding
def sparse_transformer(
    length: int,
    *,
    stride: int,
    pattern: Pattern = "strided",
    summary: int | None = None,
    variant: Variant = "paper",
    dim: int | None = None,
    seed: int | None = None,
    dtype: DType | None = None,
) -> Tensors:
    """Sparse Transformer: which keys each head sees, and positions by row and column of the stride.

    >>> sparse_transformer(16, stride=4)["pattern"].shape
    (2, 16, 16)

    Tensors: `pattern` (2, n, n), True where query i sees key j; a full pass takes both steps. strided: the
    stride's last keys, and every stride-th key; fixed: the keys of the own block, and the last --summary
    keys of each block. `row_index` (n,) = i // stride and `column_index` (n,) = i % stride, and with --dim the
    initial `row_table` (rows, dim) and `column_table` (stride, dim), whose two rows are added to the embedding.

    Extrapolates: the pattern does, the row table ends.

    Source: Child et al. 2019, arXiv 1904.10509, sections 4.3 and 5.3.

    Parameters
    ----------
    length : number of positions n
    stride : length of a row
    pattern : strided for images and music, fixed for text
    summary : fixed: how many keys at the end of a block all later blocks see (8, or the stride if less)
    variant : strided: the paper's formula sees stride + 1 keys, its code stride keys
    dim : width of the two tables
    seed : of their initial values (0), normal with deviation 0.125 / sqrt(2 dim)
    dtype : element type of the tables (float32)

    Returns
    -------
    Tensors
        pattern (2, n, n), bool; row_index and column_index (n,), int64; with dim row_table and column_table.

    Raises
    ------
    PeError
        For sizes below 1, options of the other pattern, or more memory than there is.
    """
    if length < 1 or stride < 1:
        raise PeError(
            f"{parameter('length')} {length}, {parameter('stride')} {stride}: both must be at least 1"
        )
    if stride > LONGEST_ROW:
        raise PeError(f"{parameter('stride')} {stride}: a row is at most {LONGEST_ROW} long")
    if pattern == "strided" and summary is not None:
        raise PeError(f"{parameter('summary')} {summary}: only {parameter('pattern')} fixed has it")
    if pattern == "fixed" and variant == "code":
        raise PeError(
            f"{parameter('variant')} code: only {parameter('pattern')} strided has it; the code's fixed mode works in "
            "blocks"
        )
    if summary is not None and not 1 <= summary <= stride:
        raise PeError(
            f"{parameter('summary')} {summary}: it lies between 1 and {parameter('stride')} {stride}"
        )
    require_room((2, length, length), bool)
    index = np.arange(length)
    seen = (
        _strided(length, stride, window=stride + (variant == "paper"))
        if pattern == "strided"
        else _fixed(length, stride, min(8, stride) if summary is None else summary)
    )
    tensors: dict[str, NDArray[Any]] = {
        "pattern": seen,
        "row_index": index // stride,
        "column_index": index % stride,
    }
    if dim is None:
        refuse(f"only the tables of {parameter('dim')} have it", seed=seed, dtype=dtype)
    else:
        if dim < 1:
            raise PeError(f"{parameter('dim')} {dim}: a table has at least one column")
        sides = [(-(-length // stride), dim), (stride, dim)]
        for name, table in zip(
            ("row_table", "column_table"), in_turn(normal_rows, sides, seed or 0), strict=True
        ):
            tensors[name] = round_to(table * (0.125 / math.sqrt(2 * dim)), dtype or "float32")
    return Tensors(tensors)


def _strided(length: int, stride: int, window: int) -> NDArray[np.bool_]:
    seen = np.zeros((2, length, length), bool)
    past = np.tri(length, dtype=bool)
    np.logical_xor(past, np.tri(length, k=-window, dtype=bool), out=seen[0])
    for offset in range(min(stride, length)):
        seen[1, offset::stride, offset::stride] = True
    seen[1] &= past
    return seen


def _fixed(length: int, stride: int, summary: int) -> NDArray[np.bool_]:
    seen = np.zeros((2, length, length), bool)
    past = np.tri(length, dtype=bool)
    for start in range(0, length, stride):
        own = slice(start, start + stride)
        seen[0, own, own] = past[own, own]
        seen[1, :, start + stride - summary : start + stride] = True
    seen[1] &= past
    return seen


def _outside(where: NDArray[Any], size: int) -> int:
    return int(where[(where < 0) | (where >= size)][0])
