"""Encodings of the nodes of a graph by random walks."""

from __future__ import annotations

from typing import Literal, TypeAlias

import numpy as np

from pe_cli.encodings import walks
from pe_cli.encodings.graph_tables import in_space, of_nodes, require_nodes, require_weights
from pe_cli.memory import require_memory
from pe_cli.signature import Tensors, require_named
from pe_cli.structures import Graph, GraphLike, as_graph
from pe_cli.structures.graph import Rows

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
        found *= in_space(range(1, steps + 1), space_dim, "--steps")
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
    n, less = graph.num_nodes, "use fewer --steps, or a part of the graph"
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


def _walked(graph: GraphLike, steps: int, loops: Loops) -> tuple[Graph, Rows]:
    """The graph and the weights along which to walk, checked."""
    graph = as_graph(graph)
    require_nodes(graph, steps, "--steps")
    require_named(Loops, loops=loops)
    adjacency = graph.adjacency if loops == "keep" else graph.adjacency.without_loops()
    require_weights(graph, adjacency)
    return graph, adjacency
