"""Encodings of pairs of nodes of a graph by their distance."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from pe_cli.encodings.graph import traversal as walks
from pe_cli.encodings.graph.results import conductances, of_nodes, require_nodes
from pe_cli.errors import PeError, parameter
from pe_cli.memory import require_memory
from pe_cli.progress import step
from pe_cli.signature import Tensors
from pe_cli.structures import GraphLike, as_graph
from pe_cli.structures.graph import components

FOSTER = 1e-3  # how far a sum of shares, n - 1, may be off


def shortest_path(
    graph: GraphLike, *, weighted: bool = False, limit: int | None = None, unreachable: int = -1
) -> Tensors:
    """The number of edges on the shortest path between every two nodes (Graphormer's spatial encoding).

    Tensor distance (n, n), integers (int16 up to 32,767 nodes, else int32), row = from, column = to; -1 where there
    is no path. The index of a learned table, whose entries are added to the attention logits: clip it to the
    rows of your table. With weighted the sum of the weights, as floats.

    Source: Ying et al., "Do Transformers Really Perform Bad for Graph Representation?", 2021 (arXiv:2106.05234),
    section 3.1.2.

    Parameters
    ----------
    graph : edge list, Matrix Market, scipy .npz, edge_index .npy or .npz, GraphML, node-link JSON; or - for stdin.
        With --directed paths follow edges from first to second node only.
    weighted : weights are lengths, all positive; the least of parallel edges counts.
    limit : paths longer than this count as none.
    unreachable : what stands where there is no path (Graphormer: 510).

    Raises
    ------
    PeError
        For a graph without nodes, lengths that are not positive, or more memory than there is.
    """
    graph = as_graph(graph)
    require_nodes(graph, 1)
    if limit is not None and limit < 0:
        raise PeError(f"{parameter('limit')} {limit}: give at least 0")
    n = graph.num_nodes
    kind = np.int16 if n <= 32767 else np.int32
    if not np.iinfo(kind).min <= unreachable <= np.iinfo(kind).max:
        raise PeError(f"{parameter('unreachable')} {unreachable} does not fit into {np.dtype(kind).name}")
    nbytes = (16 if weighted else np.dtype(kind).itemsize) * n * n
    require_memory(nbytes, f"a distance between every two of {n:,} nodes", "ask for a part of the graph")
    if weighted:
        if graph.weights is not None and graph.num_edges and graph.weights.min() <= 0:
            raise PeError(
                f"lengths must be positive, there is one of {graph.weights.min():g}; leave out {parameter('weighted')}"
            )
        table: NDArray[Any] = walks.lengths(graph.shortest_edges())
        none = ~np.isfinite(table) if limit is None else table > limit
    else:
        table = walks.hops(graph.adjacency, limit, kind)
        none = table < 0
    table[none] = unreachable
    facts: dict[str, Any] = {"pairs_without_path": int(np.count_nonzero(none))}
    if not none.all():
        facts["largest"] = table[~none].max().item()
    return of_nodes(graph, {"distance": table}, facts, ())


def resistance_distance(graph: GraphLike, *, commute: bool = False) -> Tensors:
    """The electrical resistance between every two nodes, an edge of weight w being a resistor of 1 / w.

    Tensor resistance (n, n), symmetric, zeros on the diagonal, infinite between components. With L = D - A of one
    component and L+ its pseudoinverse, R_ij = L+_ii + L+_jj - 2 L+_ij. Many short ways between two nodes bring
    them close, which the shortest path does not see. Enters the attention logits after a small network. It carries
    over to other graphs.

    Source: Klein and Randić, "Resistance distance", Journal of Mathematical Chemistry 12, 1993; as an encoding of
    pairs: Zhang et al., "Rethinking the Expressive Power of GNNs via Graph Biconnectivity", 2023
    (arXiv:2301.09505).

    Parameters
    ----------
    graph : edge list, Matrix Market, scipy .npz, edge_index .npy or .npz, GraphML, node-link JSON; or - for stdin.
        One that is directed is made symmetric; loops carry no current. Weights must not be negative.
    commute : the mean number of steps of a random walk to the other node and back: the resistance times the sum of
        the degrees in the component.

    Raises
    ------
    PeError
        For a graph without nodes, negative weights, or more memory than there is.
    """
    graph = as_graph(graph)
    require_nodes(graph, 1)
    adjacency = conductances(graph)
    n = graph.num_nodes
    require_memory(40 * n * n, f"a distance between every two of {n:,} nodes", "ask for a part of the graph")
    labels = components(adjacency)
    count = int(labels.max()) + 1
    table = np.full((n, n), np.inf)
    matrix = adjacency.dense()
    for component in range(count):
        nodes = np.flatnonzero(labels == component)
        part = matrix[np.ix_(nodes, nodes)]
        table[np.ix_(nodes, nodes)] = _resistances(part) * (part.sum() if commute else 1)
        step("resistances", component + 1, count)
    facts = {"connected_components": count}
    warnings = graph.doubts
    if graph.directed:
        warnings += ("the graph is directed: these are the resistances of (A + A')/2",)
    return of_nodes(graph, {"resistance": table}, facts, warnings)


def _resistances(weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """(n, n) the resistances in a connected graph of these weights (n, n).

    That they are right is seen from Foster's theorem: over all edges, weight times resistance adds up to n - 1.
    """
    n, degree = len(weights), weights.sum(axis=1)
    if n == 1:
        return np.zeros((1, 1))
    unit = float(degree.mean())
    laplacian = (np.diag(degree) - weights) / unit
    try:
        inverse = np.linalg.inv(laplacian + 1 / n)  # for which the constant vector is no null vector
    except np.linalg.LinAlgError:
        inverse = np.full((n, n), np.nan)
    own = np.diagonal(inverse)
    distance: NDArray[np.float64] = own[:, None] + own - inverse - inverse.T
    np.fill_diagonal(distance, 0)
    shares = weights / unit * distance
    if not (abs(shares.sum() / 2 - (n - 1)) < FOSTER and shares.max() < 1 + FOSTER and distance.min() >= 0):
        raise PeError(
            f"the weights of one component range from {weights[weights > 0].min():g} to {weights.max():g}, too far for "
            f"resistances in float64: scale them, or {parameter('weights')} none"
        )
    return distance / unit
