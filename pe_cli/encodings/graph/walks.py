"""Encodings of the nodes of a graph by random walks."""

from __future__ import annotations

import math
from typing import Literal, TypeAlias

import numpy as np

from pe_cli.encodings.graph import traversal as walks
from pe_cli.encodings.graph.results import conductances, in_space, of_nodes, require_nodes, require_weights
from pe_cli.errors import PeError, parameter
from pe_cli.memory import require_memory
from pe_cli.signature import Floats, Tensors, require_named
from pe_cli.structures import Graph, GraphLike, as_graph
from pe_cli.structures.graph import SparseRows, components

Loops: TypeAlias = Literal["keep", "drop"]
Pairs: TypeAlias = Literal["sparse", "dense"]


def random_walk(graph: GraphLike, steps: int, *, loops: Loops = "keep", space_dim: int = 0) -> Tensors:
    """Probabilities that a random walk is back at its node after 1, 2, …, steps steps (RWSE, RWPE).

    Shape (n, steps): entry (i, t) is (P^t)_ii with P = D^-1 A, A_ij the weight of the edge from i to j (parallel
    edges summed) and D its row sums. A walk that meets a node without an edge onwards ends there. Added to the
    node features where nodes enter the network. A node's row depends on its surroundings alone, so it carries
    over to other graphs.

    Source: Dwivedi et al., "Graph Neural Networks with Learnable Structural and Positional Representations",
    2022 (arXiv:2110.07875), section 3.2.

    Parameters
    ----------
    graph : edge list, Matrix Market, scipy .npz, edge_index .npy or .npz, GraphML, node-link JSON; or - for stdin.
        Weights must not be negative.
    steps : number of steps, the columns.
    loops : whether an edge from a node to itself is taken.
    space_dim : multiply column t by t^(space_dim / 2), as for graphs drawn in a space of that dimension.

    Raises
    ------
    PeError
        For steps < 1, a graph without nodes, negative weights, or more memory than there is.
    """
    graph, adjacency = _walked(graph, steps, loops)
    found = walks.return_probabilities(adjacency, steps, symmetric=not graph.directed)
    if space_dim:
        found *= in_space(range(1, steps + 1), space_dim, "steps")
    warnings = graph.doubts
    if not found.any() and graph.num_edges:
        warnings += (
            "no walk returns within these steps (a directed graph without cycles?): the table is all zero",
        )
    ends = int(np.count_nonzero(np.diff(adjacency.starts) == 0))
    return of_nodes(graph, {"random_walk": found}, {"nodes_without_edge_onwards": ends}, warnings)


def rrwp(graph: GraphLike, steps: int, *, loops: Loops = "keep", form: Pairs = "sparse") -> Tensors:
    """Probabilities that a random walk leads from one node to another in 0, 1, …, steps - 1 steps (RRWP).

    With P = D^-1 A as in `random-walk`, a pair (i, j) has the vector of (P^t)_ij, t from 0 to steps - 1. Tensors as
    GRIT keeps them: rrwp (n, steps), the vectors of (i, i), which begin with 1; rrwp_index (2, m), the pairs with a
    walk between them, as column j above row i; rrwp_val (m, steps), their vectors. Or dense: rrwp (n, n, steps).
    Added, after a linear layer, to the features of nodes and of pairs, and to no attention logit itself. It depends
    on the surroundings of a pair alone, so it carries over to other graphs.

    Source: Ma et al., "Graph Inductive Biases in Transformers without Message Passing", 2023 (arXiv:2305.17589),
    and its code for the order of the index.

    Parameters
    ----------
    graph : edge list, Matrix Market, scipy .npz, edge_index .npy or .npz, GraphML, node-link JSON; or - for stdin.
        Weights must not be negative.
    steps : length of a vector; the first entry is for no step at all.
    loops : whether an edge from a node to itself is taken.
    form : the pairs with a walk between them, or all.

    Raises
    ------
    PeError
        For steps < 1, a graph without nodes, negative weights, or more memory than there is.
    """
    require_named(Pairs, form=form)
    graph, adjacency = _walked(graph, steps, loops)
    n, less = graph.num_nodes, f"use fewer {parameter('steps')}, or a part of the graph"
    joined = np.diff(adjacency.starts) > 0
    joined[adjacency.columns] = True  # from the others no walk goes anywhere
    nodes, place = np.flatnonzero(joined), np.cumsum(joined) - 1
    blocks = walks.from_each_node(adjacency.block(nodes, place), steps)
    alone = np.flatnonzero(~joined)
    if form == "dense":
        require_memory(8 * n * n * steps, f"{steps} probabilities for every two of {n:,} nodes", less)
        table = np.zeros((n, n, steps))
        table[alone, alone, 0] = 1
        for start, block in blocks:
            table[np.ix_(nodes[start : start + len(block)], nodes)] = block
        return of_nodes(graph, {"rrwp": table}, {}, graph.doubts)
    pairs, index = len(alone), [np.stack([alone, alone])]
    values = [np.eye(1, steps).repeat(len(alone), axis=0)]
    for start, block in blocks:
        row, column = np.nonzero(block.any(axis=2))
        pairs += len(row)
        require_memory(
            3 * pairs * (8 * steps + 16), f"{steps} probabilities for {pairs:,} pairs of nodes", less
        )
        index.append(np.stack([nodes[column], nodes[start + row]]))
        values.append(block[row, column])
    order = np.lexsort(np.concatenate(index, axis=1))
    tensors = {
        "rrwp_index": np.concatenate(index, axis=1)[:, order],
        "rrwp_val": np.concatenate(values)[order],
    }
    own = tensors["rrwp_index"][0] == tensors["rrwp_index"][1]
    return of_nodes(graph, {"rrwp": tensors["rrwp_val"][own], **tensors}, {"pairs": pairs}, graph.doubts)


def _walked(graph: GraphLike, steps: int, loops: Loops) -> tuple[Graph, SparseRows]:
    """The graph and the weights along which to walk, checked."""
    graph = as_graph(graph)
    require_nodes(graph, steps, "steps")
    require_named(Loops, loops=loops)
    adjacency = graph.adjacency if loops == "keep" else graph.adjacency.without_loops()
    require_weights(graph, adjacency)
    return graph, adjacency


HeatNorm: TypeAlias = Literal["none", "sym"]
Modes: TypeAlias = Literal["zeros", "none"]


def heat_kernel(
    graph: GraphLike, times: Floats, *, norm: HeatNorm = "none", drop: Modes = "zeros", space_dim: int = 0
) -> Tensors:
    """The heat that is left at a node after some time, of what was put there (diagonal of the heat kernel, HKdiagSE).

    Shape (n, times): entry (i, t) is the sum of exp(-t lambda) u_i^2 over the eigenvalues lambda and unit
    eigenvectors u of the Laplacian. The modes of eigenvalue 0 never decay and are left out, as in GraphGPS. Added to
    the node features where nodes enter the network. It carries over to other graphs.

    Source: Kreuzer et al., "Rethinking Graph Transformers with Spectral Attention", 2021 (arXiv:2106.03893);
    Rampášek et al., "Recipe for a General, Powerful, Scalable Graph Transformer", 2022 (arXiv:2205.12454), and its code.

    Parameters
    ----------
    graph : edge list, Matrix Market, scipy .npz, edge_index .npy or .npz, GraphML, node-link JSON; or - for stdin.
        One that is directed is made symmetric; loops are left out. Weights must not be negative.
    times : the times, each above 0, one column each.
    norm : the Laplacian: combinatorial, D - A, or symmetric normalised.
    drop : modes to leave out: those of eigenvalue 0, or none, which gives the diagonal of exp(-t L) itself.
    space_dim : multiply the column of time t by t^(space_dim / 2), as for graphs drawn in a space of that dimension.

    Raises
    ------
    PeError
        For a time that is not above 0, a graph without nodes, negative weights, or more memory than there is.
    """
    graph = as_graph(graph)
    require_nodes(graph, len(times), "times")
    require_named(HeatNorm, norm=norm)
    require_named(Modes, drop=drop)
    for time in times:
        if not 0 < time < math.inf:
            raise PeError(f"{parameter('times')} {time:g}: give times above 0")
    factors = in_space(times, space_dim, "times")
    adjacency = conductances(graph)
    n = graph.num_nodes
    require_memory(
        40 * n * n, f"all eigenvectors of {n:,} nodes", "use a part of the graph, or `random-walk`"
    )
    degree = adjacency.row_sums()
    matrix = np.diag(degree) - adjacency.dense()
    if norm == "sym":
        scale = np.sqrt(np.where(degree > 0, degree, 1))
        matrix = matrix / scale / scale[:, None]
    values, vectors = np.linalg.eigh(matrix)
    zeros = int(components(adjacency).max()) + 1
    values[:zeros] = 0
    kept = slice(zeros, None) if drop == "zeros" else slice(None)
    squares = vectors[:, kept] ** 2
    table = np.stack([squares @ np.exp(-time * values[kept]) for time in times], axis=1) * factors
    warnings = graph.doubts
    if graph.directed:
        warnings += ("the graph is directed: this is the diffusion of (A + A')/2",)
    return of_nodes(graph, {"heat_kernel": table}, {"zero_eigenvalues": zeros}, warnings)
