"""Encodings that depend on the text or the image itself: CoPE, forgetting gates, PEG; and global tokens.

They are computed from activations read from files, accumulated in float64, one head at a time.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from pe_cli.encodings.distances import checked, head_table, refuse, require_room, sigmoid, t5_buckets
from pe_cli.errors import PeError, parameter
from pe_cli.numerics.dtypes import numpy_dtype, round_to
from pe_cli.positions import spell
from pe_cli.signature import Array, DType, Grid, encoding
from pe_cli.tensors import Tensors

SideScheme: TypeAlias = Literal["longt5", "etc"]

BLOCK_VALUES = 1 << 18


@encoding
def cope(
    query: Array,
    *,
    key: Array | None = None,
    logits: Array | None = None,
    table: Array | None = None,
    max_position: int | None = None,
    dtype: DType = "float32",
) -> Tensors:
    """CoPE: positions counted by gates, so that they can count words or sentences instead of tokens.

    >>> cope([[[1.0, 2.0], [3.0, 4.0]]], key=[[[1.0, 2.0], [3.0, 4.0]]], max_position=4)["positions"].shape
    (1, 2, 2)

    Each key opens a gate g_ij = sigmoid(q_i . k_j / sqrt(head_dim)), and the contextual position of key j for
    query i is the sum of the gates from j to i, at most P - 1; where all gates are open it is i - j + 1.
    Between whole positions the bias q_i . e_p is interpolated. Tensors: `positions` (heads, queries, keys),
    fractional, to look at; with --table `bias` (heads, queries, keys), which is added to the attention logits
    (q . e is not scaled). Entries above the diagonal are 0: the causal mask is the caller's.

    Extrapolates: yes, since positions are counts of what the gates select.

    Source: Golovneva et al. 2024, arXiv 2405.18719 (CoPE).

    Parameters
    ----------
    query : queries (heads, length, head_dim), or (length, head_dim) for one head
    key : keys of the same shape
    logits : the scaled attention logits (heads, length, length), instead of keys
    table : learned position vectors (P, head_dim), shared by the heads; or (1, head_dim, P) as in the
        paper's code
    max_position : largest position, where there is no table; the table's last row where there is
    dtype : element type

    Returns
    -------
    Tensors
        positions (heads, queries, keys), and with a table bias of the same shape.

    Raises
    ------
    PeError
        For queries, keys, logits or a table whose shapes do not fit or that hold NaN, both keys and logits or
        neither, or more memory than there is.
    """
    queries = _by_head(query, "query")
    heads, length, head_dim = queries.shape
    if (key is None) == (logits is None):
        raise PeError(f"the gates need {parameter('key')} or {parameter('logits')}, one of them")
    keys = _by_head(key, "key") if key is not None else None
    scores = _by_head(logits, "logits") if logits is not None else None
    other, wanted = (keys, queries.shape) if keys is not None else (scores, (heads, length, length))
    if other is not None and other.shape != wanted:
        beside = parameter("logits" if keys is None else "key")
        raise PeError(
            f"{parameter('query')} has shape {queries.shape}: {beside} must be {wanted}, not {other.shape}"
        )
    rows = _position_rows(table, head_dim)
    if rows is not None and max_position is not None:
        raise PeError(
            f"{parameter('max_position')} {max_position}: the {len(rows)} rows of {parameter('table')} say it already"
        )
    farthest = len(rows) - 1 if rows is not None else max_position
    if farthest is not None and farthest < 0:
        raise PeError(f"{parameter('max_position')} {max_position}: it must be at least 0")
    shape, stored = (heads, length, length), numpy_dtype(dtype)
    require_room(shape, stored)
    tensors = {"positions": np.zeros(shape, stored)}
    if rows is not None:
        tensors["bias"] = np.zeros(shape, stored)
    for head in range(heads):
        for block, seen, below in _causal_blocks(length):
            if scores is not None:
                logit = scores[head, block, seen]
            elif keys is not None:
                logit = queries[head, block] @ keys[head, seen].T / np.sqrt(head_dim)
            gates = np.where(below, sigmoid(logit), 0.0)
            counted = np.cumsum(gates[:, ::-1], axis=1)[:, ::-1]
            counted = np.where(below, counted if farthest is None else np.minimum(counted, farthest), 0.0)
            tensors["positions"][head, block, seen] = round_to(counted, dtype)
            if rows is not None:
                bias = _interpolated(queries[head, block] @ rows.T, counted)
                tensors["bias"][head, block, seen] = round_to(np.where(below, bias, 0.0), dtype)
    return Tensors(tensors)


@encoding
def fox(*, log_gates: Array, gate_logits: bool = False, dtype: DType = "float32") -> Tensors:
    """Forgetting gates (FoX): what lies between a key and a query lets the query forget the key.

    >>> fox(log_gates=[[-0.5, -0.5, -0.5]]).tolist()
    [[[0.0, 0.0, 0.0], [-0.5, 0.0, 0.0], [-1.0, -0.5, 0.0]]]

    bias_ij = sum of the logarithms of the forget gates f_t from t = j + 1 to i: (heads, length, length), 0 on
    the diagonal, added to the attention logits after scaling by 1/sqrt(head_dim). A gate that is the same
    everywhere gives ALiBi with the slope -log f. Entries above the diagonal are 0: the causal mask is the caller's.

    Extrapolates: yes, as far as the gates have learned to forget. CABLE's bias is this one, with negated gate logits.

    Source: Lin et al. 2025, arXiv 2503.02130 (Forgetting Transformer).

    Parameters
    ----------
    log_gates : log f (heads, length), at most 0, -inf where everything before is forgotten; or (length,)
    gate_logits : the file holds x W + b instead, of which log f is the log-sigmoid
    dtype : element type

    Returns
    -------
    Tensors
        bias (heads, length, length).

    Raises
    ------
    PeError
        For logarithms above 0, gates that are not (heads, length) or not numbers, or more memory than there
        is.
    """
    gates = np.atleast_2d(np.asarray(log_gates).astype(np.float64))
    if gates.ndim != 2:
        raise PeError(f"{parameter('log_gates')} has shape {gates.shape}; (heads, length) is needed")
    if gate_logits:
        gates = np.minimum(gates, 0) - np.log1p(np.exp(-np.abs(gates)))
    elif (gates > 0).any():
        raise PeError(
            f"{parameter('log_gates')}: {gates.max():g} is above 0, a gate is at most 1; {parameter('gate_logits')} "
            "takes logits"
        )
    heads, length = gates.shape
    shape, stored = (heads, length, length), numpy_dtype(dtype)
    require_room(shape, stored)
    closed = np.isneginf(gates)
    high, low = _running_sums(np.where(closed, 0.0, gates))
    resets = np.cumsum(closed, axis=1)
    bias = np.zeros(shape, stored)
    for head in range(heads):
        for block, seen, below in _causal_blocks(length):
            sums, error = _two_sum(high[head, block, None], -high[head, seen])
            error += low[head, block, None] - low[head, seen]
            sums += error
            if resets[head, -1]:
                sums[resets[head, block, None] != resets[head, seen]] = -np.inf
            bias[head, block, seen] = round_to(np.where(below, sums, 0.0), dtype)
    return Tensors({"bias": bias})


@encoding
def peg(
    *,
    hidden: Array,
    grid: Grid,
    weight: Array,
    bias: Array | None = None,
    prefix_tokens: int = 0,
    add: bool = False,
    dtype: DType = "float32",
) -> NDArray[Any]:
    """PEG, conditional positions: a depthwise convolution of the tokens laid out on their grid.

    >>> to_the_right = [[[[0, 0, 0], [1.0, 0, 0], [0, 0, 0]]]]
    >>> peg(hidden=[[1.0], [2.0]], grid=(1, 2), weight=to_the_right).tolist()
    [[0.0], [1.0]]

    conv(x) + b with zero padding, (H W, channels), is added to the tokens after the first block of the
    model. The zero padding is what tells a token where the border is, and so where it is.

    Extrapolates: yes, to any grid. Used by CPVT and Twins.

    Source: Chu et al. 2023, arXiv 2102.10882 (CPVT).

    Parameters
    ----------
    hidden : tokens (H W, channels), row after row, as the table that is made; or as a hook gives them for one image:
        (1, H W, channels), (channels, H, W) or (1, channels, H, W)
    grid : height and width of the token grid
    weight : kernel (channels, 1, k, k), k odd
    bias : bias (channels,)
    prefix_tokens : tokens before the grid, such as the class token: their rows are 0
    add : give x + conv(x) + b, the tokens after the encoding
    dtype : element type

    Returns
    -------
    Tensors
        peg (H W, channels), with prefix_tokens as many rows more.

    Raises
    ------
    PeError
        For tokens that are not the grid, a kernel or bias of another number of channels, and NaN in any of
        them.
    """
    kernel = checked(weight, "weight", dims=4)
    tokens = checked(_token_rows(np.asarray(hidden), tuple(grid), len(kernel)), "hidden", dims=2)
    channels = tokens.shape[1]
    if len(grid) != 2 or grid[0] * grid[1] + prefix_tokens != len(tokens) or prefix_tokens < 0:
        raise PeError(
            f"{parameter('grid')} {spell(grid, 'x')} with {prefix_tokens} tokens before it does not make the "
            f"{len(tokens)} rows of {parameter('hidden')}"
        )
    side = kernel.shape[-1]
    if kernel.shape != (channels, 1, side, side) or side % 2 == 0:
        raise PeError(
            f"{parameter('weight')} has shape {kernel.shape}; ({channels}, 1, k, k) with k odd is needed"
        )
    shift = np.zeros(channels) if bias is None else checked(bias, "bias", dims=1)
    if len(shift) != channels:
        raise PeError(f"{parameter('bias')} holds {len(shift)} numbers for {channels} channels")
    height, width = grid
    field = tokens[prefix_tokens:].reshape(height, width, channels)
    out = np.zeros_like(tokens)
    code = out[prefix_tokens:].reshape(height, width, channels)
    code += shift
    for i in range(side):
        for j in range(side):
            rows, from_rows = _overlap(i - side // 2, height)
            columns, from_columns = _overlap(j - side // 2, width)
            code[rows, columns] += field[from_rows, from_columns] * kernel[:, 0, i, j]
    if add:
        out += tokens
    return round_to(out, dtype)


def _token_rows(hidden: NDArray[Any], grid: tuple[int, ...], channels: int) -> NDArray[Any]:
    """Tokens (rows, channels) of one image, whichever way a model has them."""
    if hidden.ndim == 2:
        return hidden
    image = hidden[0] if hidden.ndim > 2 and len(hidden) == 1 else hidden
    if image.ndim == 2 and image.shape[1] == channels:
        return image
    for field in (hidden, image):
        if field.ndim == 3 and field.shape == (channels, *grid):
            rows: NDArray[Any] = field.reshape(channels, -1).T
            return rows
    count, sides = prod(grid), spell(grid, ", ")
    remedy = f"; give one image, x[0], of the {len(hidden)}" if hidden.ndim > 2 and len(hidden) > 1 else ""
    if hidden.shape[-3:] == (*grid, channels):
        remedy = f"; channels come last here: x.reshape(-1, {channels})"
    raise PeError(
        f"{parameter('hidden')} has shape {hidden.shape}; ({count}, {channels}), (1, {count}, {channels}), "
        f"({channels}, {sides}) or (1, {channels}, {sides}) are needed for {parameter('weight')} and "
        f"{parameter('grid')}{remedy}"
    )


@encoding
def global_tokens(
    length: int,
    *,
    scheme: SideScheme = "longt5",
    block: int = 16,
    num_buckets: int | None = None,
    max_distance: int = 128,
    bidirectional: bool = True,
    table: Array | None = None,
    heads_first: bool = False,
    dtype: DType | None = None,
) -> Tensors:
    """Side positions of global tokens: which relative position a token and each block summary have.

    >>> list(global_tokens(32, block=16).keys())
    ['block_ids', 'side_positions', 'side_buckets']

    Every block of tokens has one global token. longt5 (transient global attention): `block_ids` (length,);
    `side_positions` (length, globals), the global token minus the block of the token; `side_buckets`, T5's
    buckets of them; with --table the `bias` (heads, length, globals) that is added to the logits; tokens after
    the last full block belong to it. etc: `block_ids` and the relative ids `long_to_global` (length, globals)
    and `global_to_long`, which only say whether a token belongs to a block, and `global_to_global`
    (globals, globals), 0 for itself, 1..M to the right, M+1..2M to the left; the last block may be short.

    Extrapolates: by its buckets; it makes long inputs cheap, since every token sees all global ones.

    Source: Guo et al. 2022, arXiv 2112.07916, section 3.1.2 (LongT5); Ainslie et al. 2020, arXiv 2004.08483 (ETC).

    Parameters
    ----------
    length : number of tokens
    scheme : which model's rule
    block : tokens per global token
    num_buckets : longt5: number of buckets (32)
    max_distance : longt5: distance, in blocks, from which all share the last bucket; etc: M, the clipping distance
    bidirectional : longt5: buckets for both directions (the encoder), or only to the left
    table : longt5: global_relative_attention_bias.weight (num_buckets, heads) or transposed
    heads_first : the table is (heads, num_buckets); needed only where both are the same number
    dtype : element type of the bias (float32)

    Returns
    -------
    Tensors
        The ids that the scheme names, int64, and with a table bias (heads, length, globals).

    Raises
    ------
    PeError
        For sizes below 1, fewer tokens than a block, options of the other scheme, a table that does not fit,
        or more memory than there is.
    """
    if length < 1 or block < 1:
        raise PeError(
            f"{parameter('length')} {length}, {parameter('block')} {block}: both must be at least 1"
        )
    require_room((length,), np.int64)
    blocks = np.arange(length) // block
    if scheme == "etc":
        longt5 = f"only {parameter('scheme')} longt5 has it"
        refuse(longt5, num_buckets=num_buckets, bidirectional=not bidirectional)
        refuse(longt5, table=table is not None, heads_first=heads_first, dtype=dtype)
        return _etc_side_ids(blocks, max_distance)
    if table is None:
        refuse(f"without {parameter('table')} these are whole numbers", dtype=dtype, heads_first=heads_first)
    buckets_in_all = 32 if num_buckets is None else num_buckets
    globals_ = length // block
    if not globals_:
        raise PeError(
            f"{parameter('length')} {length} is shorter than one {parameter('block')} {block}: there is no global token"
        )
    blocks = np.minimum(blocks, globals_ - 1)
    require_room((2, length, globals_), np.int64)
    side = np.arange(globals_) - blocks[:, None]
    buckets = t5_buckets(
        side, num_buckets=buckets_in_all, max_distance=max_distance, bidirectional=bidirectional
    )
    tensors = {"block_ids": blocks, "side_positions": side, "side_buckets": buckets}
    if table is not None:
        learned = head_table(table, buckets_in_all, rows_are="the number of buckets", heads_first=heads_first)
        tensors["bias"] = np.take(round_to(learned, dtype or "float32"), buckets, axis=1)
    return Tensors(tensors)


def _etc_side_ids(blocks: NDArray[np.int64], max_distance: int) -> Tensors:
    if max_distance < 1:
        raise PeError(f"{parameter('max_distance')} {max_distance}: it must be at least 1")
    globals_ = np.arange(blocks[-1] + 1)
    require_room((2, len(blocks), len(globals_)), np.int64)
    between = globals_ - globals_[:, None]
    right, left = np.minimum(between, max_distance), np.minimum(-between, max_distance)
    # The two membership ids come after the 2 M + 1 ids of relative distance.
    membership = 2 * max_distance + 1 + (blocks[:, None] == globals_)
    return Tensors(
        {
            "block_ids": blocks,
            "long_to_global": membership,
            "global_to_long": np.ascontiguousarray(membership.T),
            "global_to_global": np.where(between >= 0, right, max_distance + left),
        }
    )


def _causal_blocks(length: int) -> Iterator[tuple[slice, slice, NDArray[np.bool_]]]:
    """Blocks of queries, the keys that any of them sees, and which of these pairs are on or below the diagonal.

    So that what is computed in float64 stays small beside the output.
    """
    step = max(1, BLOCK_VALUES // max(1, length))
    for start in range(0, length, step):
        stop = min(start + step, length)
        yield slice(start, stop), slice(0, stop), np.tri(stop - start, stop, start, dtype=bool)


def _by_head(array: Array, name: str) -> NDArray[np.float64]:
    by_head = np.asarray(array)
    return checked(by_head[None] if by_head.ndim == 2 else by_head, name, dims=3)


def _position_rows(table: Array | None, head_dim: int) -> NDArray[np.float64] | None:
    """(P, head_dim)."""
    if table is None:
        return None
    rows = checked(table, "table")
    if rows.ndim == 3 and len(rows) == 1:
        rows = rows[0].T
    if rows.ndim != 2 or rows.shape[1] != head_dim or not len(rows):
        raise PeError(
            f"{parameter('table')} has shape {np.shape(table)}; (P, {head_dim}) or (1, {head_dim}, P) is needed for "
            f"queries of width {head_dim}"
        )
    return rows


def _interpolated(products: NDArray[np.float64], positions: NDArray[np.float64]) -> NDArray[np.float64]:
    """q_i . e_p between the whole positions around p; `products` (queries, P), `positions` (queries, keys)."""
    whole = np.floor(positions).astype(np.intp)
    part = positions - whole
    bias = np.take_along_axis(products, whole, axis=1)
    np.minimum(whole + 1, products.shape[1] - 1, out=whole)
    bias += part * (np.take_along_axis(products, whole, axis=1) - bias)
    return bias


def _running_sums(values: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Cumulative sums along the last axis as high + low with twice the digits.

    With one float64 the sums of a constant gate drift, and their differences are not the multiples that ALiBi has.
    """
    high, low = np.empty_like(values), np.empty_like(values)
    sums, rest = np.zeros(len(values)), np.zeros(len(values))
    for step in range(values.shape[1]):
        sums, error = _two_sum(sums, values[:, step])
        rest = rest + error
        high[:, step], low[:, step] = sums, rest
    return high, low


def _two_sum(
    a: NDArray[np.float64], b: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """a + b and what its rounding lost (Knuth)."""
    total = a + b
    b_part = total - a
    return total, (a - (total - b_part)) + (b - b_part)


def _overlap(offset: int, size: int) -> tuple[slice, slice]:
    """Where a field shifted by `offset` overlaps itself, if it does: the target's slice and the source's."""
    back, forth = min(max(0, -offset), size), min(max(0, offset), size)
    return slice(back, size - forth), slice(forth, size - back)
