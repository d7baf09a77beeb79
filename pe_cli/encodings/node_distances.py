"""Encodings of pairs of nodes of a graph by their distance."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from pe_cli.encodings import walks
from pe_cli.encodings.graph_tables import of_nodes, require_nodes
from pe_cli.errors import PeError
from pe_cli.memory import require_memory
from pe_cli.signature import Tensors
from pe_cli.structures import GraphLike, as_graph


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
        raise PeError(f"--limit {limit}: give at least 0")
    n = graph.num_nodes
    kind = np.int16 if n <= 32767 else np.int32
    if not np.iinfo(kind).min <= unreachable <= np.iinfo(kind).max:
        raise PeError(f"--unreachable {unreachable} does not fit into {np.dtype(kind).name}")
    nbytes = (16 if weighted else np.dtype(kind).itemsize) * n * n
    require_memory(nbytes, f"a distance between every two of {n:,} nodes", "ask for a part of the graph")
    if weighted:
        if graph.weights is not None and graph.num_edges and graph.weights.min() <= 0:
            raise PeError(
                f"lengths must be positive, there is one of {graph.weights.min():g}; leave out --weighted"
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
