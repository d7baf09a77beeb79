"""Bucket rules of relative distance, exact: the edges are found once in integers, distances are then looked up.

The published code takes the logarithm of each distance in floating point and rounds it to an integer, so that
a distance that lies on an edge (16, 32 and 64 in T5's usual setting) falls on either side of it by chance of
the precision. Here an edge is an integer root of an integer, and there is no chance in it.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pe_cli.errors import PeError, parameter

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
