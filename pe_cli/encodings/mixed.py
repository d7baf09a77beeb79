"""Absolute and relative position side by side: DeBERTa and TUPE."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from pe_cli.encodings.distances import (
    check_heads,
    checked,
    deberta_buckets,
    differences,
    head_table,
    over_distances,
    queries_and_keys,
    refuse,
    require_room,
    t5_buckets,
)
from pe_cli.errors import PeError, parameter
from pe_cli.numerics.dtypes import ElementType, numpy_dtype, round_to
from pe_cli.signature import Array, Distances, DType, Keys, Queries, encoding
from pe_cli.tensors import Tensors

Convention: TypeAlias = Literal["transformers", "original"]


@encoding
def deberta(
    queries: Queries | None = None,
    keys: Keys | None = None,
    *,
    distances: Distances | None = None,
    position_buckets: int = 256,
    max_relative_positions: int = 512,
    convention: Convention = "transformers",
    table: Array | None = None,
    dtype: DType | None = None,
) -> Tensors:
    """DeBERTa's logarithmic buckets, the index of its relative table, and the absolute part of its decoder.

    >>> deberta(4, position_buckets=256, max_relative_positions=512)["relative_index"].shape
    (4, 4)

    Distances here are query minus key, as in the paper: with --distances too. Tensors:
    `relative_bucket` (queries, keys), int64, signed; `relative_index` (queries, keys), int64, which row of
    rel_embeddings (2 S rows) the pair reads, for content-to-position (Q_i . K^r[index]) and
    position-to-content (K_j . Q^r[index]) alike: the paper writes the latter with the opposite distance, both
    codes read this one. Logits are divided by sqrt(head_dim (1 + number of terms)). With --table, the
    learned absolute positions: `absolute` (queries, dim), which are not added to the input but to the
    hidden states that become the queries of the enhanced mask decoder (position_biased_input = false).

    Extrapolates: every distance has a bucket, those beyond S share the last row; the absolute part does not.

    Source: He et al. 2021, arXiv 2006.03654, section 3; arXiv 2111.09543 (v3).

    Parameters
    ----------
    queries : positions of the queries (q,)
    keys : positions of the keys (k,); those of the queries if not given
    distances : query minus key, any shape, instead of queries and keys
    position_buckets : S, rows to each side; 0 or less: no buckets, one row per distance (v1)
    max_relative_positions : distance at which the last bucket is reached; S where there are no buckets
    convention : beyond that distance, original clips it first, so that index 0 is never read; transformers
        does not, and reads row 0 to the right of it
    table : learned absolute positions (positions, dim)
    dtype : element type of the absolute part (float32)

    Returns
    -------
    Tensors
        relative_bucket and relative_index (queries, keys), int64, and with a table absolute (queries, dim).

    Raises
    ------
    PeError
        For a distance below 1, a table without positions to read it at, positions or distances that are not
        whole numbers, pairs given twice, or more memory than there is.
    """
    if max_relative_positions < 1:
        raise PeError(
            f"{parameter('max_relative_positions')} {max_relative_positions}: it must be at least 1; where a model says -1, "
            "it is the model's max_position_embeddings"
        )
    minus_key = differences(queries, keys, distances)
    if distances is None:
        np.negative(minus_key, out=minus_key)
    span = position_buckets if position_buckets > 0 else max_relative_positions
    farthest = max_relative_positions - 1

    def bucket(r: NDArray[np.int64]) -> NDArray[np.int64]:
        clipped: NDArray[np.int64] = np.clip(r, -farthest, farthest) if convention == "original" else r
        if position_buckets <= 0:
            return clipped
        return deberta_buckets(
            clipped, position_buckets=position_buckets, max_position=max_relative_positions
        )

    tensors = {
        "relative_bucket": over_distances(bucket, minus_key),
        "relative_index": over_distances(lambda r: np.clip(bucket(r) + span, 0, 2 * span - 1), minus_key),
    }
    if table is None:
        refuse(f"without {parameter('table')} these are whole numbers", dtype=dtype)
    else:
        if queries is None:
            raise PeError(f"{parameter('table')} needs positions, which {parameter('distances')} have not")
        rows = _rows(checked(table, "table", dims=2), np.asarray(queries))
        tensors["absolute"] = round_to(rows, dtype or "float32")
    return Tensors(tensors)


@encoding
def tupe(
    queries: Queries,
    keys: Keys | None = None,
    *,
    heads: int | None = None,
    table: Array | None = None,
    query_weight: Array | None = None,
    key_weight: Array | None = None,
    query_bias: Array | None = None,
    key_bias: Array | None = None,
    norm_weight: Array | None = None,
    norm_bias: Array | None = None,
    relative_table: Array | None = None,
    num_buckets: int = 32,
    max_distance: int = 128,
    untie_cls: bool = True,
    heads_first: bool = False,
    dtype: DType | None = None,
) -> Tensors:
    """TUPE: position-to-position correlation, kept apart from the words, beside T5's relative buckets.

    >>> tupe(4, num_buckets=32)["relative_index"].shape
    (4, 4)

    Tensors: `relative_index` (queries, keys), int64: T5 buckets, where pairs with the class token (position
    0) have rows of their own: num_buckets for others looking at it, num_buckets / 2, which T5 never uses, for
    it looking at others. `relative_bias` (heads, queries, keys) with --relative-table. `absolute_bias` (heads,
    queries, keys) with --table, --query-weight and --key-weight: LN(p_i) U_Q . LN(p_j) U_K / sqrt(2
    head_dim). Both biases are added to the logits, whose content term is divided by sqrt(2 head_dim) too; they
    are computed once and shared by all layers. In the untied form row 0 of the table stands for the class
    token looking at others, row 1 for others looking at it, and position p is row p + 1.

    Extrapolates: the relative part clips, the absolute part ends with the table.

    Source: Ke et al. 2021, arXiv 2006.15595 (TUPE-R).

    Parameters
    ----------
    queries : positions of the queries (q,), the class token is at 0
    keys : positions of the keys (k,); those of the queries if not given
    heads : number of attention heads, for the absolute part
    table : learned positions (rows, dim), one row more than positions where the class token is untied
    query_weight : U_Q (dim, dim) as torch stores it, (out, in)
    key_weight : U_K (dim, dim)
    query_bias : bias of U_Q (dim,)
    key_bias : bias of U_K (dim,)
    norm_weight : scale of the layer norm on the table (dim,)
    norm_bias : shift of the layer norm on the table (dim,)
    relative_table : learned relative numbers (num_buckets + 1, heads)
    num_buckets : buckets of the relative part, without the class token's
    max_distance : distance from which all share the last bucket
    untie_cls : treat the class token apart
    heads_first : the relative table is (heads, rows); needed only where both are the same number
    dtype : element type of the biases (float32)

    Returns
    -------
    Tensors
        relative_index (queries, keys), int64; relative_bias and absolute_bias (heads, queries, keys) where
        their tables are given.

    Raises
    ------
    PeError
        For an odd number of buckets, parts that are missing or do not fit, positions or distances that are
        not whole numbers, pairs given twice, or more memory than there is.
    """
    where, others = queries_and_keys(queries, keys)
    if num_buckets % 2:
        raise PeError(f"{parameter('num_buckets')} {num_buckets}: both directions need an even number")
    index = over_distances(
        lambda d: t5_buckets(d, num_buckets=num_buckets, max_distance=max_distance),
        differences(where, others),
    )
    if untie_cls:
        index[:, others == 0] = num_buckets
        index[where == 0, :] = num_buckets // 2
    tensors = {"relative_index": index}
    stored = dtype or "float32"
    absolute = {"table": table, "query_weight": query_weight, "key_weight": key_weight}
    extras = (query_bias, key_bias, norm_weight, norm_bias)
    has_absolute = any(part is not None for part in (*absolute.values(), *extras))
    if not has_absolute:
        refuse(f"only the absolute part has heads to split: give its {parameter('table')}", heads=heads)
    if relative_table is None:
        refuse(f"there is no {parameter('relative_table')}", heads_first=heads_first)
        if not has_absolute:
            refuse("without a table these are whole numbers", dtype=dtype)
    else:
        rows = num_buckets + untie_cls
        learned = head_table(
            relative_table,
            rows,
            rows_are="the relative rows",
            heads_first=heads_first,
            name="relative_table",
        )
        tensors["relative_bias"] = np.take(round_to(learned, stored), index, axis=1)
    if has_absolute:
        missing = [parameter(name) for name, part in absolute.items() if part is None]
        if missing or heads is None:
            raise PeError(f"the absolute part needs {', '.join(missing or [parameter('heads')])} too")
        assert table is not None
        assert query_weight is not None
        assert key_weight is not None
        normed = _layer_norm(checked(table, "table", dims=2), norm_weight, norm_bias)
        tensors["absolute_bias"] = _correlation(
            _projected(normed, query_weight, query_bias, heads, "query"),
            _projected(normed, key_weight, key_bias, heads, "key"),
            where,
            others,
            untie_cls,
            stored,
        )
    return Tensors(tensors)


def _correlation(
    query_rows: NDArray[np.float64],
    key_rows: NDArray[np.float64],
    queries: NDArray[Any],
    keys: NDArray[Any],
    untie_cls: bool,
    dtype: ElementType,
) -> NDArray[Any]:
    """(heads, q, k) products of (heads, rows, head_dim), with the class token's two numbers put in."""
    heads, rows, head_dim = query_rows.shape
    scale = (2 * head_dim) ** -0.5
    first = int(untie_cls)
    for positions in (queries, keys):
        if len(positions) and (positions.min() < 0 or positions.max() + first >= rows):
            raise PeError(
                f"{parameter('table')} has rows for positions 0 to {rows - 1 - first}, not {int(positions.max())}"
            )
    shape, stored = (heads, len(queries), len(keys)), numpy_dtype(dtype)
    require_room(shape, stored)
    bias = np.empty(shape, stored)
    for head, (q, k) in enumerate(zip(query_rows, key_rows, strict=True)):
        products = (q[queries + first] * scale) @ k[keys + first].T
        if untie_cls:
            products[:, keys == 0] = scale * (q[1] @ k[1])
            products[queries == 0, :] = scale * (q[0] @ k[0])
        bias[head] = round_to(products, dtype)
    return bias


def _projected(
    rows: NDArray[np.float64], weight: Array, bias: Array | None, heads: int, side: str
) -> NDArray[np.float64]:
    """(heads, rows, head_dim)."""
    matrix = checked(weight, f"{side}_weight", dims=2)
    if matrix.shape[1] != rows.shape[1]:
        raise PeError(
            f"{parameter(f'{side}_weight')} of shape {matrix.shape} does not fit a table of width {rows.shape[1]}"
        )
    width = len(matrix)
    if width % check_heads(heads):
        raise PeError(f"{parameter('heads')} {heads} does not divide the width {width}")
    shift = _vector(bias, width, f"{side}_bias")
    projected = rows @ matrix.T + (0.0 if shift is None else shift)
    by_head: NDArray[np.float64] = projected.reshape(len(rows), heads, -1).transpose(1, 0, 2)
    return by_head


def _layer_norm(rows: NDArray[np.float64], weight: Array | None, bias: Array | None) -> NDArray[np.float64]:
    width = rows.shape[1]
    scale, shift = _vector(weight, width, "norm_weight"), _vector(bias, width, "norm_bias")
    centred = rows - rows.mean(axis=1, keepdims=True)
    normed: NDArray[np.float64] = centred / np.sqrt(np.mean(centred**2, axis=1, keepdims=True) + 1e-5)
    return normed * (1.0 if scale is None else scale) + (0.0 if shift is None else shift)


def _vector(values: Array | None, width: int, name: str) -> NDArray[np.float64] | None:
    if values is None:
        return None
    vector = checked(values, name, dims=1)
    if len(vector) != width:
        raise PeError(f"{parameter(name)} holds {len(vector)} numbers for a width of {width}")
    return vector


def _rows(table: NDArray[np.float64], positions: NDArray[Any]) -> NDArray[np.float64]:
    outside = (positions < 0) | (positions >= len(table))
    if outside.any():
        raise PeError(
            f"{parameter('table')} has rows 0 to {len(table) - 1}, there is none for {positions[outside][0]}"
        )
    rows: NDArray[np.float64] = table[positions]
    return rows
