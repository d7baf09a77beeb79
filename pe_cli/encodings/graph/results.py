"""What every encoding of a graph checks, and what it says of the graph along with its tables."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pe_cli.encodings.graph.members import PairTable
from pe_cli.errors import PeError, parameter
from pe_cli.process import require_memory
from pe_cli.structures import Graph
from pe_cli.structures.graph import SparseRows
from pe_cli.tensors import Tensors

LARGEST_EXPONENT = 85.0  # of e; float32 ends at 88
MOST_NAMES = 1 << 25  # characters of node names that a file's header takes


def require_nodes(graph: Graph, number: int, name: str = "k") -> None:
    """An error for a graph without nodes, fewer than one column, or more of them than memory holds."""
    if not graph.num_nodes and not graph.several:
        raise PeError(f"the graph has no nodes; {parameter('num_nodes')} N gives it N isolated ones")
    if number < 1:
        raise PeError(f"{parameter(name)} {number}: give at least 1")
    held = 16 * graph.num_nodes * number
    require_memory(
        held, f"{parameter(name)} {number} for {graph.num_nodes:,} nodes", f"use a smaller {parameter(name)}"
    )


def require_pairs(graph: Graph, nbytes: int, remedy: str) -> None:
    """An error for a table of `nbytes` for each pair of nodes that is larger than memory."""
    pairs = int((graph.sizes**2).sum())
    require_memory(nbytes * pairs, f"a table of {pairs:,} pairs of nodes", remedy)


def require_weights(graph: Graph, matrix: SparseRows) -> None:
    """An error where a weight is negative, or their sum beyond all numbers."""
    if matrix.values.size and matrix.values.min() < 0:
        where = int(np.argmin(matrix.values))
        i, j = matrix.row_numbers()[where], matrix.columns[where]
        names = graph.node_ids if graph.node_ids is not None else range(graph.num_nodes)
        raise PeError(
            f"the edge {names[i]} - {names[j]} has weight {matrix.values[where]:g}: "
            f"weights must not be negative; {parameter('weights')} none ignores them"
        )
    with np.errstate(over="ignore"):
        if not np.isfinite(matrix.row_sums().sum()):
            raise PeError(
                f"the weights are so large that their sum overflows: scale them, or {parameter('weights')} none"
            )


def unweighted(graph: Graph) -> Graph:
    """The graph with weight 1 for every edge, parallel ones taken once."""
    return replace(graph, weights=None, parallel="first")


def conductances(graph: Graph) -> SparseRows:
    """The weights above zero between different nodes, the mean of both directions where the graph is directed; checked."""
    adjacency = graph.symmetric.without_loops()
    require_weights(graph, adjacency)
    return adjacency.only(adjacency.values > 0)


def in_space(times: Sequence[float], space_dim: int, name: str) -> NDArray[np.float64]:
    """t^(space_dim / 2) of each time t: what keeps columns of one size on graphs drawn in such a space."""
    for time in times:
        if abs(space_dim) / 2 * abs(math.log(time)) > LARGEST_EXPONENT:
            raise PeError(
                f"{parameter('space_dim')} {space_dim} and {parameter(name)} {time:g}: the factor would be beyond float32"
            )
    return np.array(times, dtype=np.float64) ** (space_dim / 2)


def of_nodes(
    graph: Graph, tensors: dict[str, NDArray[Any]], facts: dict[str, Any], warnings: tuple[str, ...]
) -> Tensors:
    """The tables with the names of the nodes, the size of the graph, and what there is to say.

    Of several graphs `facts` are numbers that add up from block to block of a dataset.
    """
    if graph.several:
        tensors["ptr"] = graph.starts
        facts = {"graphs": graph.num_graphs, "nodes": graph.num_nodes, "edges": graph.num_edges, **facts}
        return Tensors(tensors, facts, tuple(dict.fromkeys((*graph.notes, *warnings))))
    facts = {"nodes": graph.num_nodes, "edges": graph.num_edges, **facts}
    if graph.weighted_by is not None:
        facts["weight_column"] = graph.weighted_by
    if graph.both_directions:
        facts["both_directions_stored"] = True
    if isinstance(graph.node_ids, tuple) and sum(map(len, graph.node_ids)) > MOST_NAMES:
        warnings += (
            "the names of the nodes are too long to be kept with the table; rows are in order of appearance",
        )
    elif isinstance(graph.node_ids, tuple):
        facts["node_ids"] = list(graph.node_ids)
    elif graph.node_ids is not None:
        tensors["node_ids"] = graph.node_ids
    return Tensors(tensors, facts, (*graph.notes, *warnings))


def of_pairs(
    graph: Graph,
    name: str,
    table: PairTable,
    facts: dict[str, Any],
    warnings: tuple[str, ...],
) -> Tensors:
    """A table of all pairs: (n, n, …) of one graph, (pairs, …) of several, with pair_ptr (graphs + 1,)."""
    values = table.values
    if not graph.several:
        n = int(table.sides[0])
        return of_nodes(graph, {name: values.reshape(n, n, *values.shape[1:])}, facts, warnings)
    return of_nodes(graph, {name: values, "pair_ptr": table.starts}, facts, warnings)
