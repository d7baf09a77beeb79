"""An encoding of the nodes of a graph by the diffusion of heat."""

from __future__ import annotations

import math
from typing import Literal, TypeAlias

import numpy as np

from pe_cli.encodings.graph_tables import conductances, in_space, of_nodes, require_nodes
from pe_cli.errors import PeError
from pe_cli.memory import require_memory
from pe_cli.signature import Floats, Tensors, require_named
from pe_cli.structures import GraphLike, as_graph
from pe_cli.structures.graph import components

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
    require_nodes(graph, len(times), "--times")
    require_named(HeatNorm, norm=norm)
    require_named(Modes, drop=drop)
    for time in times:
        if not 0 < time < math.inf:
            raise PeError(f"--times {time:g}: give times above 0")
    factors = in_space(times, space_dim, "--times")
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
