"""What encodings of distance share: a rule evaluated once per distinct distance, heads, learned tables, exact buckets.

The published code takes the logarithm of each distance in floating point and rounds it to an integer, so that
a distance that lies on the edge of a bucket (16, 32 and 64 in T5's usual setting) falls on either side of it by
chance of the precision. Here an edge is an integer root of an integer, and there is no chance in it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from pe_cli.errors import PeError, parameter
from pe_cli.numerics.dtypes import ElementType, round_to
from pe_cli.process import require_memory
from pe_cli.signature import Array, Distances, Keys, Queries

WORKING = 2  # a table of pairs takes at most about twice its size while it is made


def over_distances(
    rule: Callable[[NDArray[np.int64]], NDArray[Any]],
    distances: NDArray[np.int64],
    dtype: ElementType | None = None,
) -> NDArray[Any]:
    """`rule`: (n,) distances -> (..., n), applied to `distances` of any shape -> (..., *shape).

    A (q, k) matrix holds at most q + k - 1 distinct distances: the rule sees each of them once, its
    values are rounded to `dtype`, and the matrix is gathered from them, so that nothing of the size of
    the output is built beside it.
    """
    if distances.size:
        low, high = int(distances.min()), int(distances.max())
        period = high - low + 1
        if period < distances.size:
            values = _rounded(rule(np.arange(low, high + 1)), dtype)
            require_room((*values.shape[:-1], *distances.shape), values.dtype)
            # Rolled so that distance d sits at d modulo the period, where "wrap" looks: no shifted copy is made.
            cycle = np.roll(values, low % period, axis=-1)
            gathered: NDArray[Any] = np.take(cycle, _near_zero(distances, period), axis=-1, mode="wrap")
            return gathered
    values = _rounded(rule(distances.reshape(-1)), dtype)
    return values.reshape((*values.shape[:-1], *distances.shape))


def differences(
    queries: Queries | None, keys: Keys | None, distances: Distances | None = None
) -> NDArray[np.int64]:
    """Key minus query, (q, k), or the distances given instead; without keys, those of the queries among themselves."""
    if distances is not None:
        if queries is not None or keys is not None:
            raise PeError(
                f"{parameter('distances')} say which pairs: leave {parameter('queries')} and {parameter('keys')} out"
            )
        return np.asarray(distances)
    where, others = queries_and_keys(queries, keys)
    require_room((len(where), len(others)), np.int64)
    pairs: NDArray[np.int64] = others[None, :] - where[:, None]
    return pairs


def queries_and_keys(
    queries: Queries | None, keys: Keys | None
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The positions of queries and keys; without keys they are those of the queries."""
    if queries is None:
        instead = f", or {parameter('distances')}" if keys is None else ""
        raise PeError(
            f"which pairs? Give {parameter('queries')}, with {parameter('keys')} if they differ{instead}"
        )
    where = np.asarray(queries)
    return where, where if keys is None else np.asarray(keys)


def require_room(shape: tuple[int, ...], dtype: DTypeLike) -> None:
    """Refuse a table that cannot fit into memory, with what it is made from, before it is begun."""
    kind = np.dtype(dtype)
    require_memory(
        WORKING * math.prod(shape) * kind.itemsize,
        f"a table of {' x '.join(map(str, shape))} {kind.name}",
        "ask for fewer positions",
    )


def check_heads(heads: int) -> int:
    if heads < 1:
        raise PeError(f"{parameter('heads')} {heads}: at least one head is needed")
    return heads


def refuse(why: str, **given: Any) -> None:
    """An error where an option was given that has nothing to act on: nothing is accepted and ignored."""
    named = [parameter(name) for name, value in given.items() if value is not None and value is not False]
    if named:
        raise PeError(f"{', '.join(named)}: {why}")


def head_table(
    table: Array, rows: int, *, rows_are: str, heads_first: bool = False, name: str = "table"
) -> NDArray[np.float64]:
    """A learned table as (heads, rows), whether it is stored as (rows, heads) or (heads, rows).

    Where both sides are equal it is read as (rows, heads), or as (heads, rows) with `heads_first`.
    """
    learned = checked(table, name, dims=2)
    if rows not in (learned.shape[1:] if heads_first else learned.shape):
        raise PeError(
            f"{parameter(name)} has shape {learned.shape}: one of its axes must be {rows}, {rows_are}"
        )
    return learned if heads_first or learned.shape[0] != rows else learned.T


def checked(array: Array, name: str, *, dims: int | None = None) -> NDArray[np.float64]:
    """The values of parameter `name` in float64, after a look at their number of axes and at infinities."""
    values = np.asarray(array).astype(np.float64)
    if dims is not None and values.ndim != dims:
        raise PeError(f"{parameter(name)} has shape {values.shape}; numbers on {dims} axes are needed")
    if not np.isfinite(values).all():
        where = tuple(int(i) for i in np.argwhere(~np.isfinite(values))[0])
        raise PeError(f"{parameter(name)}: the value at {where} is {values[where]}")
    return values


def sigmoid(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """1 / (1 + exp(-x)), without overflow where x is very negative."""
    small = np.exp(-np.abs(x))
    result: NDArray[np.float64] = np.where(x >= 0, 1.0, small) / (1 + small)
    return result


def _near_zero(distances: NDArray[Any], period: int) -> NDArray[Any]:
    """Distances within a few periods of 0: numpy's "wrap" counts the periods one by one."""
    far = max(abs(int(distances.min())), abs(int(distances.max()))) > 4 * period
    shifted: NDArray[Any] = distances % period if far else distances
    return shifted


def _rounded(values: NDArray[Any], dtype: ElementType | None) -> NDArray[Any]:
    return values if dtype is None else round_to(values, dtype)


_DOUBT = 2.0**-44  # how far a quotient of logarithms in float64 may be off, many times over
_NEAR = 40  # bits of a root up to which a logarithm in float64 is next to it


def t5_buckets(
    distances: NDArray[Any], *, num_buckets: int = 32, max_distance: int = 128, bidirectional: bool = True
) -> NDArray[np.int64]:
    """T5's bucket of each distance, same shape as `distances` (key minus query), from 0 to num_buckets - 1.

    Half of the buckets hold one distance each, the others grow geometrically up to `max_distance`;
    the last one holds all that is farther. With `bidirectional`, keys to the right of the query have
    the upper half of the buckets to themselves; otherwise they all fall into bucket 0.

    Raises PeError where there are too few buckets or `max_distance` lies among the exact ones.
    Source: Raffel et al. 2020, arXiv 1910.10683, section 2.1.
    """
    one_side = num_buckets // 2 if bidirectional else num_buckets
    edges = _t5_edges(num_buckets, max_distance, bidirectional)
    if not bidirectional:
        return _count_edges(edges, np.maximum(np.negative(distances), 0))
    buckets = _count_edges(edges, np.abs(distances))
    buckets += np.multiply(distances > 0, one_side, dtype=np.int64)
    return buckets


def deberta_buckets(
    distances: NDArray[Any], *, position_buckets: int = 256, max_position: int = 512
) -> NDArray[np.int64]:
    """DeBERTa's logarithmic bucket of each distance (query minus key), signed, same shape.

    With m = position_buckets / 2, distances up to m keep their value; beyond, the bucket is
    m + ceil(ln(|r| / m) / ln((max_position - 1) / m) * (m - 1)) with the sign of r. It is not capped.

    Raises PeError where `max_position` lies among the exact distances.
    Source: He et al. 2021, arXiv 2006.03654; `make_log_bucket_position` of its code.
    """
    middle = position_buckets // 2
    if middle < 2:
        raise PeError(
            f"{parameter('position_buckets')} {position_buckets}: logarithmic buckets need at least 4"
        )
    if max_position - 1 <= middle:
        raise PeError(
            f"{parameter('max_relative_positions')} {max_position} lies among the {middle} exact distances of "
            f"{parameter('position_buckets')} {position_buckets}: it must be above {middle + 1}"
        )
    sizes = np.abs(distances)
    found = distances.astype(np.int64)
    far = sizes > middle
    values, place = np.unique(sizes[far].astype(np.int64), return_inverse=True)
    beyond = middle + _deberta_steps(values, middle, max_position)
    found[far] = np.sign(found[far]) * beyond[place]
    return found


def integer_root(value: int, degree: int) -> int:
    """The largest integer whose `degree`-th power is at most `value`: by logarithm where that is next to it, else by
    Newton's iteration in integers.
    """
    if value < 2:
        return value
    logarithm = math.log2(value) / degree
    if logarithm < _NEAR:
        root = int(2**logarithm)
        while root**degree > value:
            root -= 1
        while (root + 1) ** degree <= value:
            root += 1
        return root
    root = 1 << -(-value.bit_length() // degree)
    while True:
        smaller = ((degree - 1) * root + value // root ** (degree - 1)) // degree
        if smaller >= root:
            return root
        root = smaller


def _count_edges(edges: NDArray[np.int64], sizes: NDArray[Any]) -> NDArray[np.int64]:
    return np.searchsorted(edges, sizes, side="right").astype(np.int64, copy=False)


@lru_cache(maxsize=64)
def _t5_edges(num_buckets: int, max_distance: int, bidirectional: bool) -> NDArray[np.int64]:
    """The smallest distance of each bucket but the first, on one side.

    Distance n >= E falls into bucket E + t with the largest t <= B - E for which
    n^(B-E) E^t >= M^t E^(B-E), which is the published floor(ln(n/E) / ln(M/E) (B-E)) without its logarithms.
    """
    one_side = num_buckets // 2 if bidirectional else num_buckets
    exact = one_side // 2
    if exact < 1:
        least = 4 if bidirectional else 2
        raise PeError(f"{parameter('num_buckets')} {num_buckets}: at least {least} are needed")
    if max_distance <= exact:
        raise PeError(
            f"{parameter('max_distance')} {max_distance} lies among the {exact} exact distances of "
            f"{parameter('num_buckets')} {num_buckets}: it must be above {exact}"
        )
    degree = one_side - exact
    logarithmic = (
        integer_root(max_distance**t * exact ** (degree - t) - 1, degree) + 1 for t in range(1, degree)
    )
    edges = np.array([*range(1, exact + 1), *logarithmic], dtype=np.int64)
    edges.flags.writeable = False
    return edges


def _deberta_steps(sizes: NDArray[np.int64], middle: int, max_position: int) -> NDArray[np.int64]:
    """ceil(ln(r / m) / ln((M - 1) / m) (m - 1)) of each r > m.

    In float64, but where that comes close to an integer t: r has at most t steps when r^(m-1) m^t <= m^(m-1) (M-1)^t.
    """
    degree, last = middle - 1, max_position - 1
    step = math.log1p((last - middle) / middle) / degree
    exact = np.log1p((sizes - middle) / middle) / step
    nearest = np.rint(exact)
    steps = np.ceil(exact).astype(np.int64)
    for at in np.flatnonzero(abs(exact - nearest) <= _DOUBT * np.maximum(exact, 1)):
        t, size = int(nearest[at]), int(sizes[at])
        within = size**degree * middle ** max(t - degree, 0) <= middle ** max(degree - t, 0) * last**t
        steps[at] = t if within else t + 1
    return steps
