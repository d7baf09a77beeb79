"""Biases that are functions of distance: ALiBi, KERPLE, Sandwich and FIRE.

They have shape (heads, queries, keys) and are added to the attention logits. A distance is the position of
the key minus the position of the query. Where only keys to the left are penalised, entries above the
diagonal are 0: the causal mask itself is the caller's.
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from pe_cli.encodings.distances import (
    check_heads,
    checked,
    differences,
    over_distances,
    queries_and_keys,
    refuse,
    require_room,
)
from pe_cli.errors import PeError, parameter
from pe_cli.numerics.dtypes import numpy_dtype, round_to
from pe_cli.numerics.kernels import geometric, rotation_blocks
from pe_cli.numerics.randomness import in_turn, uniform_rows
from pe_cli.signature import Array, Distances, DType, Keys, Queries, encoding
from pe_cli.tensors import Tensors

Form: TypeAlias = Literal["matrix", "key", "mpt", "slopes"]
Kernel: TypeAlias = Literal["log", "power"]

KERPLE_LEAST = 0.01
FIRE_WIDTH = 32
BLOCK_VALUES = 1 << 20


def alibi_slopes(heads: int, *, bias_max: float = 8.0) -> NDArray[np.float64]:
    """(heads,) slopes of ALiBi: 2^(-bias_max h / n) for h = 1..n where n = heads is a power of two.

    Otherwise the slopes of the next smaller power of two, followed by every other slope of the next
    larger one, as in the authors' code, BLOOM, MPT and Falcon.
    """
    if bias_max <= 0:
        raise PeError(f"{parameter('bias_max')} {bias_max:g}: the slopes fall from 1, so it is more than 0")

    def of_power(n: int) -> list[float]:
        return [2.0 ** (-bias_max * h / n) for h in range(1, n + 1)]

    smaller = 1 << (check_heads(heads).bit_length() - 1)
    return np.array(of_power(smaller) + of_power(2 * smaller)[::2][: heads - smaller])


@encoding
def alibi(
    queries: Queries | None = None,
    keys: Keys | None = None,
    *,
    distances: Distances | None = None,
    heads: int,
    form: Form = "matrix",
    bidirectional: bool = True,
    bias_max: float = 8.0,
    dtype: DType = "float32",
) -> NDArray[Any]:
    """ALiBi: a penalty that grows linearly with distance, steeper for some heads than for others.

    >>> alibi(4, heads=8).shape
    (8, 4, 4)

    Added to the attention logits; nothing is learned. Forms: matrix: -slope |distance| (heads, queries, keys),
    with --causal only for keys to the left; key: slope * key position (heads, keys), as BLOOM and fairseq
    store it; mpt: slope * (key - last key) (heads, keys); slopes: (heads,). The forms give the same
    attention under a causal softmax in exact arithmetic, but key loses it in float16 and bfloat16
    (errors of 0.3 and 0.9 in a probability at 2,048 tokens): matrix is the safe one.

    Extrapolates: yes, this is what it was made for. BLOOM and MPT add the bias after dividing by
    sqrt(head_dim); Falcon adds it before.

    Source: Press et al. 2022, arXiv 2108.12409, section 3.

    Parameters
    ----------
    queries : positions of the queries (q,); only form matrix can have others than keys
    keys : positions of the keys (k,); those of the queries if not given
    distances : key minus query, any shape, instead of queries and keys
    heads : number of attention heads, any number
    form : how the bias is stored
    bidirectional : penalise both directions (encoders), or only keys to the left of the query
    bias_max : exponent of the flattest slope (alibi_bias_max of MPT)
    dtype : element type of the bias

    Returns
    -------
    Tensors
        alibi: (heads, queries, keys), of form key and mpt (heads, keys), of form slopes (heads,).

    Raises
    ------
    PeError
        For less than one head, positions or distances that are not whole numbers, pairs given twice,
        positions that the form does not go by, or more memory than there is.
    """
    slopes = alibi_slopes(heads, bias_max=bias_max)
    if form != "matrix" and not bidirectional:
        raise PeError(
            f"{parameter('bidirectional')} is for {parameter('form')} matrix: {form} is the same for every query, "
            "and the causal mask does the rest"
        )
    if form == "slopes":
        if queries is not None or keys is not None or distances is not None:
            raise PeError(f"{parameter('form')} slopes does not depend on positions: give none")
        return round_to(slopes, dtype)
    if form == "matrix":
        return over_distances(
            lambda d: slopes[:, None] * -_sizes(d, bidirectional),
            differences(queries, keys, distances),
            dtype,
        )
    if distances is not None:
        raise PeError(
            f"{parameter('form')} {form} goes by the positions of the keys: give these instead of "
            f"{parameter('distances')}"
        )
    others, where = queries_and_keys(queries, keys)
    if len(others) and not np.array_equal(others, where):
        raise PeError(
            f"{parameter('form')} {form} is the same for every query: the queries must be those of the keys"
        )
    shifted = where - where.max() if form == "mpt" else where
    return round_to(slopes[:, None] * shifted, dtype)


@encoding
def kerple(
    queries: Queries | None = None,
    keys: Keys | None = None,
    *,
    distances: Distances | None = None,
    heads: int,
    kernel: Kernel = "log",
    bias_p: Array | None = None,
    bias_a: Array | None = None,
    bidirectional: bool = True,
    seed: int | None = None,
    dtype: DType = "float32",
) -> Tensors:
    """KERPLE: a penalty by a kernel of the distance, with two learned numbers per head.

    >>> kerple(4, heads=8)["bias"].shape
    (8, 4, 4)

    log: -p ln(1 + a |d|); power: -a |d|^p. Added to the attention logits. Tensors: `bias` (heads, queries,
    keys) and the `bias_p`, `bias_a` (heads,) that were used: given, or drawn as the authors initialise
    them, p from U(0, 2) and a from U(0, 1). As in their code both are kept at or above 0.01 (p of power <= 2).

    Extrapolates: yes; the logarithm forgets slowly.

    Source: Chi et al. 2022, arXiv 2205.09921 (KERPLE, logarithmic and power variants).

    Parameters
    ----------
    queries : positions of the queries (q,)
    keys : positions of the keys (k,); those of the queries if not given
    distances : key minus query, any shape, instead of queries and keys
    heads : number of attention heads
    kernel : the kernel's form
    bias_p : learned p, one per head
    bias_a : learned a, one per head
    bidirectional : penalise both directions, or only keys to the left of the query
    seed : of the initial values, where they are not given (0)
    dtype : element type of the bias

    Returns
    -------
    Tensors
        bias (heads, queries, keys), bias_p and bias_a (heads,); `facts` say whether they were drawn.

    Raises
    ------
    PeError
        For one of the two without the other, numbers that are not one per head, positions or distances that
        are not whole numbers, pairs given twice, or more memory than there is.
    """
    names = f"{parameter('bias_p')} and {parameter('bias_a')}"
    if (bias_p is None) != (bias_a is None):
        raise PeError(f"{names} belong together: give both or neither")
    if bias_p is not None and bias_a is not None:
        refuse(f"nothing is drawn where {names} are given", seed=seed)
        p, a = _per_head(bias_p, heads, "bias_p"), _per_head(bias_a, heads, "bias_a")
    else:
        p, a = in_turn(uniform_rows, [(check_heads(heads),)] * 2, seed or 0)
        p = 2 * p
    used_p = np.clip(p, KERPLE_LEAST, 2 if kernel == "power" else None)[:, None]
    used_a = np.maximum(a, KERPLE_LEAST)[:, None]

    def rule(d: NDArray[np.int64]) -> NDArray[np.float64]:
        sizes = _sizes(d, bidirectional)
        return -used_p * np.log1p(used_a * sizes) if kernel == "log" else -used_a * sizes**used_p

    return Tensors(
        {
            "bias": over_distances(rule, differences(queries, keys, distances), dtype),
            "bias_p": used_p[:, 0],
            "bias_a": used_a[:, 0],
        },
        facts={"drawn": bias_p is None},
    )


@encoding
def sandwich(
    queries: Queries | None = None,
    keys: Keys | None = None,
    *,
    distances: Distances | None = None,
    heads: int,
    dim: int = 128,
    first_index: int = 1,
    center: bool = False,
    base: float = 10000.0,
    dtype: DType = "float32",
) -> NDArray[Any]:
    """Sandwich: the inner product of two sinusoidal codes, which depends on their distance only.

    >>> sandwich(4, heads=8, dim=128).shape
    (8, 4, 4)

    sum over i of cos(d base^(-2i/dim)), divided by 8h/heads for head h = 1..heads. Shape (heads, queries,
    keys), added to the attention logits; nothing is learned. It decays from dim/2 at distance 0.

    Extrapolates: yes, like ALiBi, of which it is a smooth relative.

    Source: Chi et al. 2023, arXiv 2212.10356 (Sandwich).

    Parameters
    ----------
    queries : positions of the queries (q,)
    keys : positions of the keys (k,); those of the queries if not given
    distances : key minus query, any shape, instead of queries and keys
    heads : number of attention heads
    dim : width of the codes, even: dim/2 terms are summed
    first_index : the sum runs over i = 1..dim/2 (the paper's equation) or, with 0, over 0..dim/2-1 (the
        frequencies of the sinusoidal code itself); values differ by up to 2
    center : subtract dim/2, so that the bias is 0 at distance 0 (attention is unchanged, rounding is better)
    base : base of the wavelengths
    dtype : element type of the bias

    Returns
    -------
    Tensors
        sandwich (heads, queries, keys).

    Raises
    ------
    PeError
        For an odd width, less than one head, positions or distances that are not whole numbers, pairs given
        twice, or more memory than there is.
    """
    if dim < 2 or dim % 2:
        raise PeError(f"{parameter('dim')} {dim}: the codes need an even width")
    if first_index not in (0, 1):
        raise PeError(f"{parameter('first_index')} {first_index}: the sum starts at 0 or 1")
    ratios = np.arange(1, check_heads(heads) + 1) * 8 / heads
    frequencies = geometric(base, dim, count=dim // 2 + 1)[first_index : first_index + dim // 2]

    def rule(d: NDArray[np.int64]) -> NDArray[np.float64]:
        sums = np.empty(len(d))
        for block, z in rotation_blocks(d, frequencies):
            sums[block] = z.real.sum(axis=1)
        return (sums - dim / 2 if center else sums) / ratios[:, None]

    return over_distances(rule, differences(queries, keys, distances), dtype)


@encoding
def fire(
    queries: Queries,
    keys: Keys | None = None,
    *,
    heads: int,
    hidden_weight: Array | None = None,
    hidden_bias: Array | None = None,
    output_weight: Array | None = None,
    output_bias: Array | None = None,
    c: float = 0.1,
    threshold: float = 512.0,
    eps: float = 1e-6,
    width: int | None = None,
    bidirectional: bool = True,
    seed: int | None = None,
    dtype: DType = "float32",
) -> Tensors:
    """FIRE: a small network of the distance, relative to how far the query could look back.

    >>> fire(4, heads=8, seed=1)["bias"].shape
    (8, 4, 4)

    bias = f(ln(1 + c |i - j|) / (ln(1 + c max(i, L)) + eps)) for query i and key j, where f is a network
    1 -> width, ReLU -> heads, and L the threshold below which the denominator stays put. Added to the
    attention logits. Tensors: `bias` (heads, queries, keys) and the network that was used: given, or drawn
    as torch initialises it.

    Extrapolates: yes; the argument of f stays between 0 and 1 at any length. It depends on the query's
    position, not on the distance only.

    Source: Li et al. 2024, arXiv 2310.04418 (FIRE).

    Parameters
    ----------
    queries : positions of the queries (q,)
    keys : positions of the keys (k,); those of the queries if not given
    heads : number of attention heads
    hidden_weight : weight of the first layer (width, 1)
    hidden_bias : bias of the first layer (width,)
    output_weight : weight of the second layer (heads, width)
    output_bias : bias of the second layer (heads,)
    c : learned scale in the logarithm
    threshold : L = |L_multiplier * init_L| of the models
    eps : added to the denominator
    width : hidden units, where the network is drawn (32)
    bidirectional : both directions, or 0 for keys to the right of the query
    seed : of the initial values, where they are not given (0)
    dtype : element type of the bias

    Returns
    -------
    Tensors
        bias (heads, queries, keys) and the four parts of the network; `facts` say whether they were drawn.

    Raises
    ------
    PeError
        For a network whose parts are missing or do not fit, threshold 0 with a query at position 0, positions
        or distances that are not whole numbers, pairs given twice, or more memory than there is.
    """
    network = _fire_network(
        check_heads(heads), width, seed, (hidden_weight, hidden_bias, output_weight, output_bias)
    )
    where, others = queries_and_keys(queries, keys)
    if threshold == 0 and (where == 0).any():
        raise PeError(f"{parameter('threshold')} 0: the query at position 0 has nothing to be relative to")
    w1, b1, w2, b2 = network.values()
    near = np.log1p(np.abs(c * np.maximum(np.abs(where), abs(threshold)))) + eps
    shape, stored = (heads, len(where), len(others)), numpy_dtype(dtype)
    require_room(shape, stored)
    bias = np.empty(shape, stored)
    step = max(1, BLOCK_VALUES // max(1, len(others) * len(b1)))
    for start in range(0, len(where), step):
        rows = slice(start, start + step)
        away = where[rows, None] - others[None, :]
        ratio = np.log1p(np.abs(c * away)) / near[rows, None]
        hidden = np.maximum(ratio[..., None] * w1[:, 0] + b1, 0)
        block = np.moveaxis(hidden @ w2.T + b2, -1, 0)
        bias[:, rows] = round_to(block if bidirectional else np.where(away >= 0, block, 0.0), dtype)
    return Tensors({"bias": bias, **network}, facts={"drawn": hidden_weight is None})


def _fire_network(
    heads: int, width: int | None, seed: int | None, given: tuple[Array | None, ...]
) -> dict[str, NDArray[np.float64]]:
    names = ("hidden_weight", "hidden_bias", "output_weight", "output_bias")
    if all(array is None for array in given):
        width = FIRE_WIDTH if width is None else width
        if width < 1:
            raise PeError(f"{parameter('width')} {width}: at least one hidden unit is needed")
        limits = (1.0, 1.0, width**-0.5, width**-0.5)
        shapes = ((width, 1), (width,), (heads, width), (heads,))
        drawn = in_turn(uniform_rows, shapes, seed or 0)
        return {n: x * (2 * u - 1) for n, x, u in zip(names, limits, drawn, strict=True)}
    refuse("nothing is drawn where the network is given", width=width, seed=seed)
    missing = [parameter(name) for name, array in zip(names, given, strict=True) if array is None]
    if missing:
        raise PeError(f"the network needs {', '.join(missing)} too")
    w1, b1, w2, b2 = (checked(a, n) for a, n in zip(given, names, strict=True) if a is not None)
    if w1.size != b1.size or w2.shape != (heads, b1.size) or b2.shape != (heads,):
        raise PeError(
            f"{', '.join(map(parameter, names))} have shapes {w1.shape}, {b1.shape}, {w2.shape}, {b2.shape}; for "
            f"{heads} heads (w, 1), (w,), ({heads}, w), ({heads},) are needed"
        )
    return dict(zip(names, (w1.reshape(-1, 1), b1.reshape(-1), w2, b2), strict=True))


def _sizes(distances: NDArray[Any], bidirectional: bool) -> NDArray[Any]:
    """|d|, or in the causal form 0 for keys to the right of the query."""
    sizes: NDArray[Any] = np.abs(distances) if bidirectional else np.maximum(-distances, 0)
    return sizes


def _per_head(values: Array, heads: int, name: str) -> NDArray[np.float64]:
    flat = checked(values, name).reshape(-1)
    if len(flat) != heads:
        raise PeError(f"{parameter(name)} holds {len(flat)} numbers for {heads} heads")
    return flat
