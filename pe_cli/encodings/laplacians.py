"""The Hermitian matrices of a graph: Laplacian and magnetic Laplacian."""

from __future__ import annotations

from typing import Literal, TypeAlias

import numpy as np

from pe_cli.encodings.operators import Hermitian
from pe_cli.structures.graph import Rows, coalesced

Isolated: TypeAlias = Literal["zero", "one"]


def laplacian_matrix(adjacency: Rows, combinatorial: bool, isolated: Isolated) -> Hermitian:
    """D - A, or I - D^-½ A D^-½, of a symmetric A without loops, with its null vector on every component."""
    degree = adjacency.row_sums()
    alone = degree == 0
    rows = adjacency.row_numbers()
    if combinatorial:
        bound = float((degree[rows] + degree[adjacency.columns]).max(initial=0.0))
        null = np.ones(adjacency.size)
        return Hermitian(degree, adjacency._replace(values=-adjacency.values), bound, null)
    root = np.sqrt(degree)
    off = adjacency._replace(values=-adjacency.values / root[rows] / root[adjacency.columns])
    own = 1.0 if isolated == "one" else 0.0
    return Hermitian(np.where(alone, own, 1.0), off, 2.0, np.where(alone, 1 - own, root))


def magnetic_matrix(
    arcs: Rows, turn: float, combinatorial: bool, unit: bool, isolated: Isolated
) -> Hermitian:
    """D - A_s ∘ exp(2 pi i turn (A - A')), or I less the normalised second term, for the arcs A without loops."""
    rows, columns = arcs.row_numbers(), arcs.columns
    values = np.ones(len(columns)) if unit else arcs.values
    # real part: the undirected weight; imaginary part: the flow from i to j less that from j to i
    pair = coalesced(
        arcs.size,
        np.concatenate([rows, columns]),
        np.concatenate([columns, rows]),
        np.concatenate([values * (0.5 + 1j), values * (0.5 - 1j)]),
    )
    weight, flow = pair.values.real, pair.values.imag
    if unit:
        weight = np.ones(len(weight))
    hermitian = pair._replace(values=-weight * np.exp(2j * np.pi * turn * flow))
    between = pair.row_numbers()
    degree = pair._replace(values=weight).row_sums()
    if combinatorial:
        bound = float((degree[between] + degree[pair.columns]).max(initial=0.0))
        return Hermitian(degree, hermitian, bound)
    root = np.sqrt(degree)
    scaled = hermitian._replace(values=hermitian.values / root[between] / root[pair.columns])
    own = 1.0 if isolated == "one" else 0.0
    return Hermitian(np.where(degree == 0, own, 1.0), scaled, 2.0)


def one_way_pairs(arcs: Rows) -> int:
    """The number of pairs with an edge in one direction only."""
    rows = arcs.row_numbers()
    low, high = np.minimum(rows, arcs.columns), np.maximum(rows, arcs.columns)
    pairs = len(coalesced(arcs.size, low, high, np.ones(len(low))).columns)
    return 2 * pairs - len(rows)
