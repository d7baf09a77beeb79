"""Encodings of the nodes of a graph by what surrounds them: degrees, cycles, order, potentials, singular vectors."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from pe_cli.encodings.graph.distances import hops, pseudoinverses
from pe_cli.encodings.graph.hermitian import (
    SPACE_NOISE,
    canonical_basis,
    noise_limit,
    normalised_laplacians,
    refined,
)
from pe_cli.encodings.graph.members import (
    Members,
    PairValues,
    conductances,
    degrees,
    of_nodes,
    of_pairs,
    require_nodes,
    require_pairs,
    rounded,
)
from pe_cli.encodings.graph.solvers import TIE
from pe_cli.encodings.graph.walks import transitions
from pe_cli.errors import PeError, parameter
from pe_cli.signature import encoding
from pe_cli.structures import Graph, GraphLike, as_graph
from pe_cli.structures.graph import SparseRows, components, spans
from pe_cli.tensors import Tensors

ProjectorForm: TypeAlias = Literal["diagonal", "pairs"]
LONGEST_CYCLE = 5
RARE = 1e-10  # noise of all pairs of nodes together, below which hardly one is rounded to another float32


@encoding
def degree(graph: GraphLike, *, clip: int | None = None, offset: int = 0) -> Tensors:
    """The number of edges into and out of each node (Graphormer's centrality encoding).

    >>> degree([[0, 1], [1, 2]])["in_degree"].tolist()
    [1, 2, 1]

    Tensors in_degree and out_degree (n,), the indices of two learned tables whose rows are added to the node features.
    Parallel edges count once, weights do not; of an undirected graph both are the same. It carries over to other graphs
    as far as the tables reach.

    Source: Ying et al., "Do Transformers Really Perform Bad for Graph Representation?", 2021 (arXiv:2106.05234),
    section 3.1.1.

    Parameters
    ----------
    graph : a graph, or a dataset of graphs (edge list, Matrix Market, GraphML, edge_index with ptr, …); or - for stdin.
    clip : larger degrees count as this one.
    offset : what is added to each (1 where row 0 of the table stands for padding).

    Returns
    -------
    Tensors
        in_degree and out_degree, of several graphs with ptr (graphs + 1,).

    Raises
    ------
    PeError
        For a graph without nodes, or a clip below 0.
    """
    graph = as_graph(graph)
    require_nodes(graph, 1)
    if clip is not None and clip < 0:
        raise PeError(f"{parameter('clip')} {clip}: give at least 0")
    return of_nodes(graph, degrees(graph, clip, offset), {}, ())


@encoding
def cycles(graph: GraphLike, *, longest: int = LONGEST_CYCLE) -> Tensors:
    """The number of simple cycles of 3, 4 and 5 edges through each node.

    >>> cycles([[0, 1, 2], [1, 2, 0]])["cycles"].tolist()
    [[1, 0, 0], [1, 0, 0], [1, 0, 0]]

    Tensor cycles (n, longest - 2), from closed walks less those that turn back: with d the degrees and A 0 or 1,
    2 c3 = A^3_ii, 2 c4 = A^4_ii - d_i^2 - sum_j A_ij (d_j - 1), and
    2 c5 = A^5_ii - (2 d_i - 5) A^3_ii - 2 sum_j A_ij A^2_ij d_j - sum_j A_ij A^3_jj. Added to the node features. Rings
    that a network of messages between neighbours cannot tell apart. It carries over to other graphs.

    Source: Harary and Manvel, "On the number of cycles in a graph", 1971; node by node as features: Vignac et al.,
    "DiGress", 2023 (arXiv:2209.14734), appendix.

    Parameters
    ----------
    graph : a graph, or a dataset of graphs (edge list, Matrix Market, GraphML, edge_index with ptr, …); or - for stdin.
        Directions, weights, loops and parallel edges do not count.
    longest : the length of the longest cycles, 3 to 5.

    Returns
    -------
    Tensors
        cycles, of several graphs with ptr (graphs + 1,).

    Raises
    ------
    PeError
        For another longest, a graph without nodes, or more memory than there is.
    """
    graph = as_graph(graph)
    require_nodes(graph, 1)
    if not 3 <= longest <= LONGEST_CYCLE:
        raise PeError(f"{parameter('longest')} {longest}: cycles of 3 to {LONGEST_CYCLE} edges are counted")
    links = _undirected(graph)
    found = np.zeros((graph.num_nodes, longest - 2), dtype=np.int64)
    for nodes, a in Members(links).matrices(links, "cycles", least=3):
        d = a.sum(axis=2)
        square = a @ a
        third = np.einsum("bij,bij->bi", square, a)
        counts = [third]
        if longest >= 4:
            fourth = np.einsum("bij,bij->bi", square, square)
            counts.append(fourth - d * d - np.einsum("bij,bj->bi", a, d - 1))
        if longest >= 5:
            fifth = np.einsum("bij,bij->bi", square @ a, square)
            beside = 2 * np.einsum("bij,bj->bi", a * square, d) + np.einsum("bij,bj->bi", a, third)
            counts.append(fifth - (2 * d - 5) * third - beside)
        found[nodes] = np.rint(np.stack(counts, axis=2) / 2).astype(np.int64)
    return of_nodes(graph, {"cycles": found}, {}, ())


@encoding
def dag(graph: GraphLike, *, reachable: bool = False) -> Tensors:
    """The depth of each node of a directed graph without cycles, and which nodes can be reached from it.

    >>> dag([[0, 0, 1], [1, 2, 2]])["depth"].tolist()
    [0, 1, 2]

    Tensor depth (n,): edges on the longest path from a node that no edge leads to; encoded as a position is. With
    reachable also reachable (n, n), 1 where a path leads from i to j, of several graphs (pairs,): attention is kept to
    such pairs, in both directions. Edges are taken as they are written, from first to second node; weights do not count.

    Source: Luo et al., "Transformers over Directed Acyclic Graphs", 2023 (arXiv:2210.13148), sections 3.1 and 3.2.

    Parameters
    ----------
    graph : a graph, or a dataset of graphs (edge list, Matrix Market, GraphML, edge_index with ptr, …); or - for stdin.
    reachable : whether to give the table of pairs.

    Returns
    -------
    Tensors
        depth, and reachable where it is asked for; of several graphs with ptr and pair_ptr.

    Raises
    ------
    PeError
        For a graph with a cycle or without nodes, or more memory than there is.
    """
    graph = as_graph(graph)
    require_nodes(graph, 1)
    links = replace(graph, directed=True).links()
    waiting = np.bincount(links.columns, minlength=graph.num_nodes)
    depth = np.zeros(graph.num_nodes, dtype=np.int64)
    ready, done, level = np.flatnonzero(waiting == 0), 0, 0
    while ready.size:
        depth[ready] = level
        done += len(ready)
        counts = np.diff(links.starts)[ready]
        after, times = np.unique(links.columns[spans(links.starts[ready], counts)], return_counts=True)
        waiting[after] -= times
        ready, level = after[waiting[after] == 0], level + 1
    if done < graph.num_nodes:
        node = int(np.flatnonzero(waiting > 0)[0])
        raise PeError(f"node {node} lies on or behind a cycle: depth needs a directed graph without cycles")
    tensors: dict[str, NDArray[Any]] = {"depth": depth}
    if not reachable:
        return of_nodes(graph, tensors, {}, ())
    require_pairs(graph, 2, "ask for a part of the graph")
    table = PairValues(graph, -1, np.int64 if graph.largest > 1 << 15 else np.int16)
    hops(Members(links), links, None, table)
    table.values = (table.values >= 0).astype(np.uint8)
    return of_pairs(graph, "reachable", table, {}, (), tensors)


@encoding
def electrostatic(graph: GraphLike) -> Tensors:
    """Statistics of the potentials that unit charges at the nodes of a graph make at each other (ElstaticSE).

    >>> electrostatic([[0], [1]])["electrostatic"][0, :3].tolist()
    [-0.5, 0.0, -0.25]

    Tensor electrostatic (n, 10): with L+ the pseudoinverse of L = D - A and E_ij = L+_ij - L+_jj the least, largest,
    mean and standard deviation of column j, the same of row j, and the means over neighbours, the sums of column j and
    of row j of D^-1 A ∘ E. No potential is above that at its own charge, E_jj = 0, so both largest are 0: it is all the same
    that the code of GraphGPS takes that of column j twice. Added to the node features. It carries over to other graphs.

    Source: Rampášek et al., "Recipe for a General, Powerful, Scalable Graph Transformer", 2022 (arXiv:2205.12454),
    table 1, and its code; after Kreuzer et al., 2021 (arXiv:2106.03893).

    Parameters
    ----------
    graph : a graph, or a dataset of graphs (edge list, Matrix Market, GraphML, edge_index with ptr, …); or - for stdin.
        One that is directed is made symmetric; loops are left out. Weights must not be negative.

    Returns
    -------
    Tensors
        electrostatic, of several graphs with ptr (graphs + 1,).

    Raises
    ------
    PeError
        For a graph without nodes, negative weights, or more memory than there is.
    """
    graph = as_graph(graph)
    require_nodes(graph, 10)
    adjacency = conductances(graph)
    found, labels = np.zeros((graph.num_nodes, 10)), components(adjacency)
    for nodes, weights in _whole_graphs(graph, adjacency):
        size = weights.shape[1]
        potential = pseudoinverses(weights, labels[nodes][:, :, None] == labels[nodes][:, None, :])
        potential -= np.diagonal(potential, axis1=1, axis2=2)[:, None, :]
        share = transitions(weights, symmetric=False)
        spread = [potential.std(axis=axis, ddof=1) if size > 1 else np.zeros(nodes.shape) for axis in (1, 2)]
        statistics = [
            potential.min(axis=1),
            potential.max(axis=1),
            potential.mean(axis=1),
            spread[0],
            potential.min(axis=2),
            potential.max(axis=2),
            potential.mean(axis=2),
            spread[1],
            (share * potential).sum(axis=1),
            (share * potential).sum(axis=2),
        ]
        found[nodes] = np.stack(statistics, axis=2)
    return of_nodes(graph, {"electrostatic": rounded(found)}, {}, graph.doubts)


@encoding
def svd(graph: GraphLike, k: int) -> Tensors:
    """The k largest singular vectors of the adjacency of a directed graph.

    >>> svd([[0, 1], [1, 2]], 1)["svd"].shape
    (3, 2)

    Tensor svd (n, 2k): with A = U S V' the columns of U S^½, then those of V S^½: a node as where edges begin and as
    where they end. Their product gives the best approximation of A of rank k. Edges are taken as they are written. Each
    pair of columns is free up to one sign: the largest entry of the first is positive. Where singular values are equal,
    the first columns are the projections of the nodes nearest to their space, one after the other. Added to the node features after
    a layer; it belongs to one graph. Columns that a graph of fewer than k nodes does not have are 0.

    Source: Hussain et al., "Global Self-Attention as a Replacement for Graph Convolution", 2022 (arXiv:2108.03348),
    section 3.4.

    Parameters
    ----------
    graph : a graph, or a dataset of graphs (edge list, Matrix Market, GraphML, edge_index with ptr, …); or - for stdin.
    k : number of singular values.

    Returns
    -------
    Tensors
        svd and singular_values (k,), of several graphs (graphs, k) with ptr (graphs + 1,).

    Raises
    ------
    PeError
        For k < 1, a graph without nodes, or more memory than there is.
    """
    graph = as_graph(graph)
    require_nodes(graph, 2 * k)
    arcs = graph.arcs
    found, singular = np.zeros((graph.num_nodes, 2 * k)), np.zeros((graph.num_graphs, k))
    for nodes, weights in _whole_graphs(graph, arcs):
        width = min(k, weights.shape[1])
        left, values, right = _singular(weights, width)
        root = np.sqrt(values)[:, None, :]
        found[nodes, :width], found[nodes, k : k + width] = rounded(left * root), rounded(right * root)
        singular[graph.graph_of[nodes[:, 0]], :width] = rounded(values)
    tensors = {"svd": found, "singular_values": singular if graph.several else singular[0]}
    return of_nodes(graph, tensors, {}, graph.repeats)


def _singular(matrices: NDArray[np.float64], width: int) -> tuple[NDArray[np.float64], ...]:
    """U (b, s, width), the singular values (b, width) and V (b, s, width) of matrices (b, s, s), without the noise of the
    solver: what is 0 but for it is 0, and equal singular values have a basis that depends on their space alone.
    """
    left, values, _ = np.linalg.svd(matrices)
    tie = TIE * values[:, :1]
    space = np.cumsum(np.diff(values, prepend=values[:, :1]) < -tie, axis=1)
    limits = np.zeros((len(matrices), 1, width))
    chosen = canonical_basis(left[:, :, :width].transpose(0, 2, 1).reshape(-1, left.shape[1], 1), 1)
    basis = chosen.reshape(len(matrices), width, -1).transpose(0, 2, 1).copy()
    for item in range(len(matrices)):
        own, ends = space[item], values[item]
        for first in np.flatnonzero(np.diff(own[:width], prepend=-1)).tolist():
            stop = int(np.searchsorted(own, own[first], side="right"))
            last = min(stop, width)
            above = ends[first - 1] - ends[first] if first else np.inf
            below = ends[stop - 1] - ends[stop] if stop < len(ends) else np.inf
            limits[item, 0, first:last] = noise_limit(ends[0], min(above, below))
            if stop - first > 1:
                basis[item, :, first:last] = canonical_basis(
                    left[item : item + 1, :, first:stop], last - first
                )[0]
    values = np.where(values > tie, values, 0)[:, :width]
    basis[(np.abs(basis) <= limits) | (values[:, None, :] == 0)] = 0
    other = matrices.transpose(0, 2, 1) @ basis
    other = np.divide(other, values[:, None, :], out=np.zeros_like(other), where=values[:, None, :] > 0)
    other[np.abs(other) <= limits] = 0
    return basis, values, other


@encoding
def eigenspaces(graph: GraphLike, k: int, *, form: ProjectorForm = "diagonal") -> Tensors:
    """Projectors on the eigenspaces of the normalised Laplacian: what of eigenvectors does not depend on sign or basis.

    >>> eigenspaces([[0, 1, 2], [1, 2, 0]], 1)["projectors"].round(4).tolist()
    [[0.6667], [0.6667], [0.6667]]

    For each of the k smallest distinct eigenvalues but 0, with P = U U' the projector on its space: projectors (n, k), the
    diagonals P_ii, or with form pairs (n, n, k), of several graphs (pairs, k). eigenvalues (k,) and dimensions (k,), of
    several graphs (graphs, k). What a graph does not have is 0, its eigenvalue NaN.

    Source: Lim et al., "Sign and Basis Invariant Networks for Spectral Graph Representation Learning", 2022
    (arXiv:2202.13013), section 2.2 (BasisNet).

    Parameters
    ----------
    graph : a graph, or a dataset of graphs (edge list, Matrix Market, GraphML, edge_index with ptr, …); or - for stdin.
        One that is directed is made symmetric; loops are left out. Weights must not be negative.
    k : number of eigenspaces.
    form : the diagonals of the projectors, or all pairs.

    Returns
    -------
    Tensors
        projectors, eigenvalues and dimensions; of several graphs with ptr, and pair_ptr where there are pairs.

    Raises
    ------
    PeError
        For k < 1, a graph without nodes, negative weights, or more memory than there is.
    """
    graph = as_graph(graph)
    require_nodes(graph, k)
    adjacency = conductances(graph)
    if form == "pairs":
        require_pairs(graph, 8 * k, f"use a smaller {parameter('k')}")
    table = PairValues(graph, 0.0, np.float64, (k,)) if form == "pairs" else None
    diagonals = np.zeros((graph.num_nodes, k))
    found = np.full((graph.num_graphs, k), np.nan)
    dimensions = np.zeros((graph.num_graphs, k), dtype=np.int64)
    for nodes, weights in _whole_graphs(graph, adjacency):
        size = weights.shape[1]
        laplacian = normalised_laplacians(weights)
        values, vectors = np.linalg.eigh(laplacian)
        for own, matrix, item, columns in zip(nodes, laplacian, values, vectors, strict=True):
            space = np.cumsum(np.diff(item, prepend=item[0]) > 2 * TIE)
            first = int(np.count_nonzero(item[space == 0] <= 2 * TIE) > 0)  # the space of 0 is left out
            projectors = np.zeros((size, size, k))
            for place in range(min(k, int(space[-1]) + 1 - first)):
                inside = np.flatnonzero(space == place + first)
                gaps = np.diff(item)[[n for n in (inside[0] - 1, inside[-1]) if 0 <= n < size - 1]]
                limit = noise_limit(2, gaps.min(initial=2))
                basis = columns[:, inside]
                if size * size * limit > SPACE_NOISE * RARE:
                    count = len(inside)
                    matrices, spaces = (
                        np.broadcast_to(one, (count, size, size)) for one in (matrix, columns)
                    )
                    first_column = np.full(count, inside[0])
                    better = refined(matrices, spaces, item[None], first_column, count, basis.T)
                    basis = better.T.copy()
                basis[np.linalg.norm(basis, axis=1) <= limit] = 0
                products = basis @ basis.T
                between = ~np.eye(size, dtype=bool) & (np.abs(products) <= limit)
                projectors[:, :, place] = np.where(between, 0, products)
                group = int(graph.graph_of[own[0]])
                found[group, place] = item[inside].mean()
                dimensions[group, place] = basis.shape[1]
            diagonals[own] = rounded(np.diagonal(projectors).T)
            if table is not None:
                table.put(own[None], own[None], rounded(projectors)[None])
    tensors: dict[str, NDArray[Any]] = {"projectors": diagonals}
    tensors |= {"eigenvalues": found if graph.several else found[0]}
    tensors |= {"dimensions": dimensions if graph.several else dimensions[0]}
    if table is None:
        return of_nodes(graph, tensors, {}, graph.doubts)
    del tensors["projectors"]
    return of_pairs(graph, "projectors", table, {}, graph.doubts, tensors)


def _undirected(graph: Graph) -> SparseRows:
    """1 between different nodes with an edge in any direction."""
    return Graph(graph.num_nodes, graph.edges, ptr=graph.ptr).links().without_loops()


def _whole_graphs(graph: Graph, matrix: SparseRows) -> Iterator[tuple[NDArray[np.int64], NDArray[Any]]]:
    """Nodes (b, s) of the graphs of each size, connected or not, and the matrices (b, s, s) between them."""
    return Members(matrix, graph.graph_of).matrices(matrix, "graphs")
