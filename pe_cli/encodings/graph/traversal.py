"""Walks over a graph: probabilities of return, and distances by breadth-first search."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pe_cli.progress import step
from pe_cli.structures.graph import SparseRows, need_scipy

DENSE = 1000  # nodes up to which powers are plain matrices
BLOCK = 1 << 22  # numbers held for a block of rows of a power
PILOT = 64  # rows of the first block, which shows how far the powers fill up
FULL = 0.1  # share of non-zeros from which a block of rows is held as a plain matrix


def return_probabilities(adjacency: SparseRows, steps: int, *, symmetric: bool) -> NDArray[np.float64]:
    """(n, steps) the diagonals of P, P^2, …, P^steps for P = D^-1 A.

    Only half of the powers are formed: (P^(a+b))_ii = Σ_j (P^a)_ij (P^b)_ji, and where A is symmetric P may be
    replaced by D^-½ A D^-½, whose powers are their own transposes.
    """
    walk = _transitions(adjacency, symmetric)
    going = np.diff(walk.starts) > 0  # from the others no walk returns, nor does one that meets them
    nodes, place = np.flatnonzero(going), np.cumsum(going) - 1
    found = np.zeros((walk.size, steps))
    if nodes.size:
        walk = walk.only(going[walk.columns]).block(nodes, place)
        dense = walk.size <= DENSE
        found[nodes] = _dense(walk.dense(), steps) if dense else _by_blocks(walk.sparse(), steps, symmetric)
    return found


def from_each_node(adjacency: SparseRows, steps: int) -> Iterator[tuple[int, NDArray[np.float64]]]:
    """Blocks (b, n, steps) of P^0, P^1, …, P^(steps - 1) for P = D^-1 A: the rows of b nodes, and the first of these."""
    walk = _transitions(adjacency, symmetric=False)
    n = walk.size
    onwards = walk.dense().T if n <= DENSE else walk.sparse().T.tocsr()  # on the left, where scipy is fast
    at_once = max(1, BLOCK // max(n * steps, 1))
    for start in range(0, n, at_once):
        nodes = np.arange(start, min(start + at_once, n))
        block = np.zeros((len(nodes), n, steps))
        block[nodes - start, nodes, 0] = 1
        where = block[:, :, 0].T
        for taken in range(1, steps):
            where = onwards @ where
            block[:, :, taken] = where.T
        yield start, block
        step("random walk", int(nodes[-1]) + 1, n)


def hops(adjacency: SparseRows, limit: int | None, dtype: type) -> NDArray[Any]:
    """(n, n) the number of edges on a shortest path, -1 where there is none of at most `limit` edges.

    By breadth-first search from blocks of nodes at once.
    """
    n = adjacency.size
    distance: NDArray[Any] = np.empty((n, n), dtype=dtype)
    at_once = max(1, BLOCK // max(n, 1))
    for start in range(0, n, at_once):
        block = np.full((min(at_once, n - start), n), -1, dtype=np.int32)
        _search(adjacency, block, start, n if limit is None else limit)
        distance[start : start + at_once] = block
        step("breadth-first search", min(start + at_once, n), n)
    return distance


def lengths(edges: SparseRows) -> NDArray[np.float64]:
    """(n, n) the length of the shortest path; infinite where there is none."""
    n = edges.size
    if n > DENSE:
        need_scipy(f"weighted distances of {n} nodes")
        from scipy.sparse.csgraph import dijkstra

        return np.asarray(dijkstra(edges.sparse(), directed=True))
    distance = np.full((n, n), np.inf)
    distance[edges.row_numbers(), edges.columns] = edges.values
    np.fill_diagonal(distance, 0)
    for middle in range(n):
        np.minimum(distance, distance[:, middle, None] + distance[middle], out=distance)
    return distance


def _transitions(adjacency: SparseRows, symmetric: bool) -> SparseRows:
    """P = D^-1 A, or what is similar to it, D^-½ A D^-½; rows of nodes without an edge onwards are empty."""
    degree = adjacency.row_sums()
    inverse = np.divide(1, degree, out=np.zeros_like(degree), where=degree > 0)
    rows = adjacency.row_numbers()
    scale = np.sqrt(inverse[rows]) * np.sqrt(inverse[adjacency.columns]) if symmetric else inverse[rows]
    return adjacency._replace(values=adjacency.values * scale)


def _search(adjacency: SparseRows, distance: NDArray[np.int32], first: int, limit: int) -> None:
    """Fill `distance` (b, n), -1 so far, from the nodes first, first + 1, …"""
    n = adjacency.size
    flat, mark = distance.reshape(-1), np.empty(distance.size, dtype=np.int32)
    degree = np.diff(adjacency.starts)
    origin = np.arange(len(distance)) * n
    node = np.arange(first, first + len(distance))
    flat[origin + node] = 0
    for level in range(1, limit + 1):
        count = degree[node]
        edge = np.repeat(adjacency.starts[node] - np.cumsum(count) + count, count) + np.arange(count.sum())
        origin, node = np.repeat(origin, count), adjacency.columns[edge]
        place = origin + node
        new = np.flatnonzero(flat[place] < 0)
        if not new.size:
            return
        origin, node, place = origin[new], node[new], place[new]
        flat[place] = level
        # a node reached along several edges goes on once: the edge that wrote last
        mark[place] = np.arange(len(place))
        once = mark[place] == np.arange(len(place))
        origin, node = origin[once], node[once]


def _dense(walk: NDArray[np.float64], steps: int) -> NDArray[np.float64]:
    found = np.empty((len(walk), steps))
    found[:, 0] = np.diagonal(walk)
    power = walk
    for taken in range(2, steps + 1):
        if taken % 2:
            following = power @ walk
            found[:, taken - 1] = np.einsum("ij,ji->i", power, following)
            power = following
        else:
            found[:, taken - 1] = np.einsum("ij,ji->i", power, power)
    return found


def _by_blocks(walk: Any, steps: int, symmetric: bool) -> NDArray[np.float64]:
    n = walk.shape[0]
    found = np.empty((n, steps))
    back = walk if symmetric else walk.T.tocsr()
    start, size, plain = 0, PILOT, False
    while start < n:
        nodes = np.arange(start, min(start + size, n))
        filled = _block(walk, back, nodes, found, symmetric, plain)
        start = int(nodes[-1]) + 1
        plain = filled > FULL * n
        size = int(min(max(BLOCK / (n if plain else filled + 1), 16), 8192))
        step("random walk", start, n)
    return found


def _block(
    walk: Any, back: Any, nodes: NDArray[np.int64], found: NDArray[np.float64], symmetric: bool, plain: bool
) -> float:
    """Fill the rows `nodes` of `found`; returns the mean number of non-zeros in a row of the last power."""
    forth, home = walk[nodes], back[nodes]
    found[nodes, 0] = walk.diagonal()[nodes]
    if plain:
        # (walk' x)' keeps the sparse factor on the left, where scipy is fast
        forth, home = forth.toarray().T.copy(), home.toarray().T.copy()
        walk, back = walk.T.tocsr(), back.T.tocsr()
    for taken in range(2, found.shape[1] + 1):
        if taken % 2:
            following = walk @ forth if plain else forth @ walk
            found[nodes, taken - 1] = _row_products(following, home, plain)
            forth = following
            if taken < found.shape[1]:
                home = forth if symmetric else (back @ home if plain else home @ back)
        else:
            found[nodes, taken - 1] = _row_products(forth, home, plain)
    return float(np.count_nonzero(forth) if plain else forth.nnz) / len(nodes)


def _row_products(a: Any, b: Any, plain: bool) -> NDArray[np.float64]:
    if plain:
        return np.asarray(np.einsum("ij,ij->j", a, b))
    return np.asarray(a.multiply(b).sum(axis=1)).reshape(-1)
