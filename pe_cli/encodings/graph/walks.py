"""Encodings of graphs by random walks, and by heat that spreads over them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from pe_cli.encodings.graph.hermitian import (
    Reals,
    by_incidence,
    laplacians,
    normalised_laplacians,
    spread_weights,
)
from pe_cli.encodings.graph.members import (
    Members,
    PairValues,
    conductances,
    in_space,
    of_nodes,
    of_pairs,
    require_nodes,
    require_pairs,
    require_weights,
    rounded,
    unweighted,
)
from pe_cli.errors import PeError, parameter
from pe_cli.process import require_memory, step
from pe_cli.signature import Floats, Ints, encoding
from pe_cli.structures import Graph, GraphLike, as_graph
from pe_cli.structures.graph import SparseRows, need_scipy
from pe_cli.tensors import Tensors

Loops: TypeAlias = Literal["keep", "drop"]
Pairs: TypeAlias = Literal["sparse", "dense"]
WalkPreset: TypeAlias = Literal["pyg", "dgl", "gps"]
PairPreset: TypeAlias = Literal["grit"]
HeatNorm: TypeAlias = Literal["none", "sym"]
Modes: TypeAlias = Literal["zeros", "none"]

DENSE = 1000  # nodes of a component up to which powers are plain matrices
BLOCK = 1 << 22  # numbers held for a block of rows of a power
PILOT = 64  # rows of the first block, which shows how far the powers fill up
FULL = 0.1  # share of non-zeros from which a block of rows is held as a plain matrix


@encoding
def random_walk(
    graph: GraphLike,
    steps: int | None = None,
    *,
    times: Ints | None = None,
    ppr: Floats | None = None,
    loops: Loops = "keep",
    space_dim: int = 0,
    preset: WalkPreset | None = None,
) -> Tensors:
    """Probabilities that a random walk is back at its node after 1, 2, …, steps steps (RWSE, RWPE).

    >>> random_walk([[0, 1], [1, 2]], 2)["random_walk"].tolist()
    [[0.0, 0.5], [0.0, 1.0], [0.0, 0.5]]

    Shape (n, steps): entry (i, t) is (P^t)_ii with P = D^-1 A, A_ij the weight of the edge from i to j (parallel
    edges summed) and D its row sums. A walk that meets a node without an edge onwards ends there. Added to the
    node features where nodes enter the network. A node's row depends on its surroundings alone, so it carries
    over to other graphs. With ppr further columns hold the diagonal of a (I - (1 - a) P)^-1, personalised PageRank
    with the restart probability a.

    Source: Dwivedi et al., "Graph Neural Networks with Learnable Structural and Positional Representations",
    2022 (arXiv:2110.07875), section 3.2; PageRank: Page et al., 1999, as in Zhang et al., "Graph-Bert", 2020
    (arXiv:2001.05140), section 3.1.

    Parameters
    ----------
    graph : a graph, or a dataset of graphs (edge list, Matrix Market, GraphML, edge_index with ptr, …); or - for stdin.
        Weights must not be negative.
    steps : number of steps, the columns.
    times : the numbers of steps that have a column, instead of all up to steps.
    ppr : restart probabilities, between 0 and 1.
    loops : whether an edge from a node to itself is taken.
    space_dim : multiply column t by t^(space_dim / 2), as for graphs drawn in a space of that dimension.
    preset : as PyTorch Geometric (pyg) or GraphGPS (gps) compute it, which ignore weights; or as DGL (dgl), which is what
        is computed without a preset.

    Returns
    -------
    Tensors
        random_walk (n, columns), of several graphs with ptr (graphs + 1,).

    Raises
    ------
    PeError
        For steps < 1, a graph without nodes, negative weights, or more memory than there is.
    """
    if preset is not None:
        graph = as_graph(graph) if preset == "dgl" else unweighted(as_graph(graph))
    asked = _taken(steps, times, ppr)
    graph, adjacency = _walked(graph, len(asked) + len(ppr or ()), loops)
    taken = tuple(asked)
    if space_dim and not taken:
        raise PeError(
            f"{parameter('space_dim')} {space_dim} is about steps, which personalised PageRank does not have: leave it out"
        )
    last = max(taken, default=0)
    found = np.zeros((graph.num_nodes, len(taken) + len(ppr or ())))
    columns = np.array(taken, dtype=np.int64) - 1
    members = Members(adjacency)
    for stack in members.stacks(DENSE, "random walk", least=1 if loops == "keep" else 2):
        walk = transitions(members.dense(adjacency, stack.nodes), symmetric=not graph.directed)
        if last:
            found[stack.nodes, : len(taken)] = _returns(walk, last, not graph.directed)[:, :, columns]
        for place, restart in enumerate(ppr or (), len(taken)):
            found[stack.nodes, place] = np.diagonal(_page_rank(walk, restart), axis1=1, axis2=2)
    for stack in members.larger(DENSE):
        nodes = stack.nodes[0]
        part = members.block(adjacency, nodes)
        if last:
            found[nodes, : len(taken)] = _sparse_returns(part, last, not graph.directed)[:, columns]
        for place, restart in enumerate(ppr or (), len(taken)):
            own = transitions(_whole(part)[None], symmetric=False)
            found[nodes, place] = np.diagonal(_page_rank(own, restart)[0])
    found = rounded(found)
    if space_dim:
        found[:, : len(taken)] *= in_space(taken, space_dim, "steps" if times is None else "times")
    warnings = graph.doubts
    if not found.any() and graph.num_edges and not graph.several:
        warnings += (
            "no walk returns within these steps (a directed graph without cycles?): the table is all zero",
        )
    ends = int(np.count_nonzero(np.diff(adjacency.starts) == 0))
    return of_nodes(graph, {"random_walk": found}, {"nodes_without_edge_onwards": ends}, warnings)


@encoding
def rrwp(
    graph: GraphLike,
    steps: int,
    *,
    ppr: Floats | None = None,
    loops: Loops = "keep",
    form: Pairs = "sparse",
    preset: PairPreset | None = None,
) -> Tensors:
    """Probabilities that a random walk leads from one node to another in 0, 1, …, steps - 1 steps (RRWP).

    >>> rrwp([[0, 1], [1, 2]], 2, form="dense")["rrwp"][0].tolist()
    [[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]]

    With P = D^-1 A as in `random-walk`, a pair (i, j) has the vector of (P^t)_ij, t from 0 to steps - 1. Tensors as
    GRIT keeps them: rrwp (n, steps), the vectors of (i, i), which begin with 1; rrwp_index (2, m), the pairs with a
    walk between them, as column j above row i; rrwp_val (m, steps), their vectors. Or dense: rrwp (n, n, steps), and of
    several graphs (pairs, steps), the pairs of each graph row by row, with pair_ptr.
    Added, after a linear layer, to the features of nodes and of pairs, and to no attention logit itself. It depends
    on the surroundings of a pair alone, so it carries over to other graphs.

    Source: Ma et al., "Graph Inductive Biases in Transformers without Message Passing", 2023 (arXiv:2305.17589),
    and its code for the order of the index.

    Parameters
    ----------
    graph : a graph, or a dataset of graphs (edge list, Matrix Market, GraphML, edge_index with ptr, …); or - for stdin.
        Weights must not be negative.
    steps : length of a vector; the first entry is for no step at all.
    ppr : restart probabilities a, each a further entry: personalised PageRank a (I - (1 - a) P)^-1.
    loops : whether an edge from a node to itself is taken.
    form : the pairs with a walk between them, or all.
    preset : as the code of GRIT computes it, which ignores weights.

    Returns
    -------
    Tensors
        rrwp, and in the sparse form rrwp_index and rrwp_val; of several graphs with ptr and pair_ptr.

    Raises
    ------
    PeError
        For steps < 1, a graph without nodes, negative weights, or more memory than there is.
    """
    if preset is not None:
        graph = unweighted(as_graph(graph))
    _taken(steps, None, ppr)
    width = steps + len(ppr or ())
    graph, adjacency = _walked(graph, width, loops)
    members = Members(adjacency)
    blocks = _pairs_of_walks(members, adjacency, steps, ppr or ())
    if form == "dense":
        require_pairs(graph, 8 * width, f"use fewer {parameter('steps')}")
        table = PairValues(graph, 0.0, np.float64, (width,))
        for rows, columns, block in blocks:
            table.put(rows, columns, block)
        return of_pairs(graph, "rrwp", table, {}, graph.doubts)
    pairs, index, values = 0, [np.zeros((2, 0), dtype=np.int64)], [np.zeros((0, width))]
    for rows, columns, block in blocks:
        item, row, column = np.nonzero(block.any(axis=3))
        pairs += len(row)
        require_memory(
            3 * pairs * (8 * width + 16),
            f"{width} probabilities for {pairs:,} pairs of nodes",
            f"use fewer {parameter('steps')}, or a part of the graph",
        )
        index.append(np.stack([columns[item, column], rows[item, row]]))
        values.append(block[item, row, column])
    order = np.lexsort(np.concatenate(index, axis=1))
    tensors = {
        "rrwp_index": np.concatenate(index, axis=1)[:, order],
        "rrwp_val": np.concatenate(values)[order],
    }
    own = tensors["rrwp_index"][0] == tensors["rrwp_index"][1]
    return of_nodes(graph, {"rrwp": tensors["rrwp_val"][own], **tensors}, {"pairs": pairs}, graph.doubts)


rrwp.only_whole = ("form", "sparse")  # type: ignore[attr-defined]  # the number of pairs is not known beforehand


@encoding
def heat_kernel(
    graph: GraphLike, times: Floats, *, norm: HeatNorm = "none", drop: Modes = "zeros", space_dim: int = 0
) -> Tensors:
    """The heat that is left at a node after some time, of what was put there (diagonal of the heat kernel, HKdiagSE).

    >>> heat_kernel([[0], [1]], (1.0,))["heat_kernel"].round(6).tolist()
    [[0.067668], [0.067668]]

    Shape (n, times): entry (i, t) is the sum of exp(-t lambda) u_i^2 over the eigenvalues lambda and unit
    eigenvectors u of the Laplacian. The modes of eigenvalue 0 never decay and are left out, as in GraphGPS. Added to
    the node features where nodes enter the network. It carries over to other graphs.

    Source: Rampášek et al., "Recipe for a General, Powerful, Scalable Graph Transformer", 2022 (arXiv:2205.12454),
    and its code; after Kreuzer et al., 2021 (arXiv:2106.03893), section 3.

    Parameters
    ----------
    graph : a graph, or a dataset of graphs (edge list, Matrix Market, GraphML, edge_index with ptr, …); or - for stdin.
        One that is directed is made symmetric; loops are left out. Weights must not be negative.
    times : the times t, the columns.
    norm : the Laplacian: combinatorial, or symmetric normalised.
    drop : leave out the modes of eigenvalue 0 (zeros), or keep them (none).
    space_dim : multiply column t by t^(space_dim / 2), as for graphs drawn in a space of that dimension.

    Returns
    -------
    Tensors
        heat_kernel (n, times), of several graphs with ptr (graphs + 1,).

    Raises
    ------
    PeError
        For times that are not positive, a graph without nodes, negative weights, or more memory than there is.
    """
    graph = as_graph(graph)
    require_nodes(graph, len(times), "times")
    for time in times:
        if not time > 0:
            raise PeError(f"{parameter('times')} {time:g}: give times above 0")
    factors = in_space(times, space_dim, "times")
    adjacency = conductances(graph)
    members = Members(adjacency)
    table = np.zeros((graph.num_nodes, len(times)))
    skipped = int(drop == "zeros")
    for nodes, weights in members.matrices(adjacency, "heat kernel", least=1 + skipped):
        matrix = normalised_laplacians(weights) if norm == "sym" else laplacians(weights)
        values, vectors = np.linalg.eigh(matrix)
        values[:, 0] = 0
        if norm == "none":
            for item in np.flatnonzero(spread_weights(matrix)):
                exact = by_incidence(matrix[item])
                if exact is not None:
                    values[item], vectors[item] = exact[:2]
        squares = vectors[:, :, skipped:] ** 2
        for place, time in enumerate(times):
            left = np.exp(-time * values[:, skipped:])
            table[nodes, place] = np.einsum("bij,bj->bi", squares, left)
    warnings = graph.doubts
    if graph.directed:
        warnings += ("the graph is directed: this is the diffusion of (A + A')/2",)
    table = rounded(table) * factors
    return of_nodes(graph, {"heat_kernel": table}, {"zero_eigenvalues": members.count}, warnings)


def _taken(steps: int | None, times: Ints | None, ppr: Floats | None) -> Sequence[int]:
    """The numbers of steps that have a column."""
    if times is not None and steps is not None:
        raise PeError(
            f"{parameter('steps')} and {parameter('times')} both say how many steps: give one of them"
        )
    for restart in ppr or ():
        if not 0 < restart < 1:
            raise PeError(f"{parameter('ppr')} {restart:g}: a restart probability lies between 0 and 1")
    if times is not None:
        if not times or min(times) < 1:
            raise PeError(
                f"{parameter('times')} {','.join(map(str, times))}: give numbers of steps from 1 on"
            )
        return tuple(times)
    if steps is None:
        if ppr:
            return ()
        raise PeError(f"how many steps? Give {parameter('steps')} N or {parameter('times')} 1,2,4")
    if steps < 1:
        raise PeError(f"{parameter('steps')} {steps}: give at least 1")
    return range(1, steps + 1)


def _walked(given: GraphLike, columns: int, loops: Loops) -> tuple[Graph, SparseRows]:
    """The graph and the weights along which to walk, checked."""
    graph = as_graph(given)
    require_nodes(graph, columns, "steps")
    adjacency = graph.adjacency if loops == "keep" else graph.adjacency.without_loops()
    require_weights(graph, adjacency)
    return graph, adjacency


def _inverse_degrees(degree: Reals) -> Reals:
    return np.divide(1, degree, out=np.zeros_like(degree), where=degree > 0)


def transitions(weights: Reals, symmetric: bool) -> Reals:
    """(b, s, s) P = D^-1 A, or what is similar to it, D^-½ A D^-½; rows of nodes without an edge onwards are 0."""
    inverse = _inverse_degrees(weights.sum(axis=2))
    if symmetric:
        root = np.sqrt(inverse)
        return np.asarray(weights * (root[:, :, None] * root[:, None, :]))
    return np.asarray(weights * inverse[:, :, None])


def _sparse_transitions(adjacency: SparseRows, symmetric: bool) -> SparseRows:
    inverse = _inverse_degrees(adjacency.row_sums())
    rows = adjacency.row_numbers()
    scale = np.sqrt(inverse[rows]) * np.sqrt(inverse[adjacency.columns]) if symmetric else inverse[rows]
    return adjacency._replace(values=adjacency.values * scale)


def _returns(walk: Reals, steps: int, symmetric: bool) -> Reals:
    """(b, s, steps) the diagonals of the powers 1 to `steps` of the matrices (b, s, s).

    Only half of the powers are formed: (P^(a+b))_ii = Σ_j (P^a)_ij (P^b)_ji, and where A is symmetric P may be
    replaced by D^-½ A D^-½, whose powers are their own transposes.
    """
    rule = "bij,bij->bi" if symmetric else "bij,bji->bi"
    found = np.empty((*walk.shape[:2], steps))
    found[:, :, 0] = np.diagonal(walk, axis1=1, axis2=2)
    power = walk
    for taken in range(2, steps + 1):
        if taken % 2:
            following = power @ walk
            found[:, :, taken - 1] = np.einsum(rule, power, following)
            power = following
        else:
            found[:, :, taken - 1] = np.einsum(rule, power, power)
    return found


def _page_rank(walk: Reals, restart: float) -> Reals:
    """(b, s, s) restart (I - (1 - restart) P)^-1, whose diagonal is the same for a matrix similar to P."""
    return np.asarray(restart * np.linalg.inv(np.eye(walk.shape[1]) - (1 - restart) * walk))


def _whole(part: SparseRows) -> Reals:
    require_memory(
        40 * part.size**2, f"a dense matrix of a component of {part.size:,} nodes", "take a part of the graph"
    )
    return part.dense()


Walks: TypeAlias = Iterator[tuple[NDArray[np.int64], NDArray[np.int64], Reals]]


def _pairs_of_walks(members: Members, adjacency: SparseRows, steps: int, ppr: Floats) -> Walks:
    """Blocks (b, r, c, steps + restarts) of P^0, P^1, … between nodes (b, r) and (b, c) of components."""
    for stack in members.stacks(DENSE, "random walk"):
        walk = transitions(members.dense(adjacency, stack.nodes), symmetric=False)
        block = np.zeros((*walk.shape, steps + len(ppr)))
        power = np.broadcast_to(np.eye(stack.size), walk.shape)
        for taken in range(steps):
            if taken:
                power = power @ walk if taken > 1 else walk
            block[..., taken] = power
        for place, restart in enumerate(ppr, steps):
            block[..., place] = _page_rank(walk, restart)
        yield stack.nodes, stack.nodes, rounded(block)
    for stack in members.larger(DENSE):
        nodes = stack.nodes[0]
        part = members.block(adjacency, nodes)
        ranks = [_page_rank(transitions(_whole(part)[None], symmetric=False), a)[0] for a in ppr]
        for start, block in _from_each_node(part, steps, len(ppr)):
            for place, rank in enumerate(ranks, steps):
                block[:, :, place] = rank[start : start + len(block)]
            yield nodes[None, start : start + len(block)], stack.nodes, rounded(block)[None]


def _from_each_node(adjacency: SparseRows, steps: int, more: int) -> Iterator[tuple[int, Reals]]:
    """Blocks (b, n, steps + more) of P^0, P^1, …, P^(steps - 1): the rows of b nodes, and the first of these."""
    n = adjacency.size
    onwards = (
        _sparse_transitions(adjacency, symmetric=False).sparse().T.tocsr()
    )  # on the left, where scipy is fast
    at_once = max(1, BLOCK // max(n * (steps + more), 1))
    for start in range(0, n, at_once):
        nodes = np.arange(start, min(start + at_once, n))
        block = np.zeros((len(nodes), n, steps + more))
        block[nodes - start, nodes, 0] = 1
        where = block[:, :, 0].T
        for taken in range(1, steps):
            where = onwards @ where
            block[:, :, taken] = where.T
        yield start, block
        step("random walk", int(nodes[-1]) + 1, n)


def _sparse_returns(adjacency: SparseRows, steps: int, symmetric: bool) -> Reals:
    """(n, steps) as `_returns`, of one large component."""
    walk = _sparse_transitions(adjacency, symmetric)
    going = np.diff(walk.starts) > 0  # from the others no walk returns, nor does one that meets them
    nodes, place = np.flatnonzero(going), np.cumsum(going) - 1
    found = np.zeros((walk.size, steps))
    if nodes.size:
        need_scipy(f"random walks in a component of {walk.size} nodes")
        found[nodes] = _by_blocks(
            walk.only(going[walk.columns]).block(nodes, place).sparse(), steps, symmetric
        )
    return found


def _by_blocks(walk: Any, steps: int, symmetric: bool) -> Reals:
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
    walk: Any, back: Any, nodes: NDArray[np.int64], found: Reals, symmetric: bool, plain: bool
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


def _row_products(a: Any, b: Any, plain: bool) -> Reals:
    if plain:
        return np.asarray(np.einsum("ij,ij->j", a, b), dtype=np.float64)
    return np.asarray(a.multiply(b).sum(axis=1)).reshape(-1)
