"""Encodings of pairs of nodes of a graph by their distance."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from pe_cli.encodings.graph.hermitian import by_incidence, laplacians, spread_weights
from pe_cli.encodings.graph.members import (
    Members,
    PairValues,
    conductances,
    of_pairs,
    require_nodes,
    require_pairs,
    rounded,
)
from pe_cli.encodings.graph.members import (
    degrees as node_degrees,
)
from pe_cli.errors import PeError, parameter
from pe_cli.numerics.dtypes import smallest_integer
from pe_cli.process import step
from pe_cli.signature import encoding
from pe_cli.structures import Graph, GraphLike, as_graph
from pe_cli.structures.graph import SparseRows, coalesced, need_scipy, spans
from pe_cli.tensors import Tensors

FOSTER = 1e-7  # how far a sum of shares, n - 1, may be off
DENSE = 1000  # nodes of a component up to which lengths are found without scipy
DistancePreset: TypeAlias = Literal["graphormer", "dgl"]
WORD = 64
WORDS = 16  # of a component whose nodes are all searched from at once
WORDS_AT_ONCE = 4  # of larger ones: blocks of 256 nodes
DEEP = 250  # levels from which lists of the nodes just reached are faster than bits
BLOCK = 1 << 20  # pairs in a block of the search by lists


@encoding
def shortest_path(
    graph: GraphLike,
    *,
    weighted: bool = False,
    limit: int | None = None,
    clip: int | None = None,
    offset: int = 0,
    unreachable: int = -1,
    virtual_node: int | None = None,
    degrees: bool = False,
    paths: int | None = None,
    preset: DistancePreset | None = None,
) -> Tensors:
    """The number of edges on the shortest path between every two nodes (Graphormer's spatial encoding).

    >>> shortest_path([[0, 1], [1, 2]])["distance"].tolist()
    [[0, 1, 2], [1, 0, 1], [2, 1, 0]]

    Tensor distance (n, n), row = from, column = to, in the smallest integers that hold the distances of a graph of so
    many nodes; -1 where there is no path. Of several graphs (pairs,), the pairs of each graph row by row, with pair_ptr.
    The index of a learned table, whose entries are added to the attention logits: clip it to the rows of your table.
    With weighted the sum of the weights, as floats.

    Source: Ying et al., "Do Transformers Really Perform Bad for Graph Representation?", 2021 (arXiv:2106.05234),
    section 3.1.2.

    Parameters
    ----------
    graph : a graph, or a dataset of graphs (edge list, Matrix Market, GraphML, edge_index with ptr, …); or - for stdin.
        Of a directed one paths follow edges from first to second node only.
    weighted : weights are lengths, all positive; the least of parallel edges counts.
    limit : paths longer than this count as none.
    clip : longer paths count as this many edges.
    offset : what is added to each distance (1 where row 0 of the table stands for padding).
    unreachable : what stands where there is no path.
    virtual_node : put a node in front of each graph, with this number between it and every node: (n + 1, n + 1).
    degrees : give in_degree and out_degree (n,) too, with the same offset.
    paths : give path_edges (n, n, paths) too: the numbers, in the order of the file and from 0 in each graph, of the first
        edges on a shortest path from node to node, -1 behind its end; of several paths the one that Graphormer takes.
        Their features are averaged in its edge encoding (section 3.1.3).
    preset : graphormer: offset 1, unreachable 511 and degrees, as its batches hold them (for virtual_node its bias has an
        entry of its own, say 512); dgl: offset 1 and unreachable 0, as SpatialEncoder indexes its table; give its clip.

    Returns
    -------
    Tensors
        distance, and in_degree, out_degree and path_edges where they are asked for; of several graphs with ptr and
        pair_ptr (graphs + 1,).

    Raises
    ------
    PeError
        For a graph without nodes, lengths that are not positive, or more memory than there is.
    """
    graph = as_graph(graph)
    require_nodes(graph, 1)
    for name, number, least in (("limit", limit, 0), ("clip", clip, 0), ("paths", paths, 1)):
        if number is not None and number < least:
            raise PeError(f"{parameter(name)} {number}: give at least {least}")
    if paths is not None and weighted:
        raise PeError(
            f"{parameter('paths')} {paths}: paths are those of fewest edges; leave out {parameter('weighted')}"
        )
    if preset is not None:
        if weighted:
            raise PeError(f"{parameter('preset')} {preset} counts edges: leave out {parameter('weighted')}")
        if offset or unreachable != -1:
            raise PeError(
                f"{parameter('preset')} {preset} says {parameter('offset')} and {parameter('unreachable')}: leave them out"
            )
        offset, unreachable, degrees = (1, 511, True) if preset == "graphormer" else (1, 0, degrees)
    extra = int(virtual_node is not None)
    if weighted:
        if graph.weights is not None and graph.num_edges and graph.weights.min() <= 0:
            raise PeError(
                f"lengths must be positive, there is one of {graph.weights.min():g}; leave out {parameter('weighted')}"
            )
        require_pairs(graph, 16, "ask for a part of the graph")
        table = _lengths(graph.shortest_edges(), PairValues(graph, np.inf, np.float64, extra=extra))
        none = ~np.isfinite(table.values) if limit is None else table.values > limit
        if clip is not None:
            table.values[:] = np.minimum(table.values, clip)
        table.values += offset
        table.values[none] = unreachable
        largest = table.values.max(where=~none, initial=0).item()
        without = int(np.count_nonzero(none)) - len(table.values) + int((graph.sizes**2).sum())
    else:
        longest = min(graph.largest - 1, *(n for n in (limit, clip, graph.largest) if n is not None)) + offset
        numbers = [unreachable, offset, longest, *([virtual_node] if virtual_node is not None else [])]
        kind = smallest_integer(min(numbers), max(numbers))
        require_pairs(graph, np.dtype(kind).itemsize, "ask for a part of the graph")
        table = PairValues(graph, unreachable, kind, extra=extra, clip=clip, offset=offset)
        links = graph.links()
        hops(Members(links), links, limit, table)
        largest = table.largest
        without = int((graph.sizes**2).sum()) - table.filled
    if virtual_node is not None:
        table.put_extra(virtual_node)
    facts: dict[str, Any] = {"pairs_without_path": without}
    if not graph.several and table.filled:
        facts["largest"] = largest
    beside = node_degrees(graph, None, offset) if degrees else {}
    if paths is not None:
        found = _path_edges(graph, paths, limit, extra)
        sides = (-1,) if graph.several else (int(found.sides[0]),) * 2
        beside["path_edges"] = found.values.reshape(*sides, paths)
    return of_pairs(graph, "distance", table, facts, (), beside)


@encoding
def resistance_distance(graph: GraphLike, *, commute: bool = False) -> Tensors:
    """The electrical resistance between every two nodes, an edge of weight w being a resistor of 1 / w.

    >>> resistance_distance([[0, 1], [1, 2]])["resistance"].tolist()
    [[0.0, 1.0, 2.0], [1.0, 0.0, 1.0], [2.0, 1.0, 0.0]]

    Tensor resistance (n, n), symmetric, zeros on the diagonal, infinite between components; of several graphs (pairs,),
    the pairs of each graph row by row, with pair_ptr. With L = D - A of one
    component and L+ its pseudoinverse, R_ij = L+_ii + L+_jj - 2 L+_ij. Many short ways between two nodes bring
    them close, which the shortest path does not see. Enters the attention logits after a small network. It carries
    over to other graphs.

    Source: Klein and Randić, "Resistance distance", Journal of Mathematical Chemistry 12, 1993; as an encoding of
    pairs: Zhang et al., "Rethinking the Expressive Power of GNNs via Graph Biconnectivity", 2023
    (arXiv:2301.09505).

    Parameters
    ----------
    graph : a graph, or a dataset of graphs (edge list, Matrix Market, GraphML, edge_index with ptr, …); or - for stdin.
        One that is directed is made symmetric; loops carry no current. Weights must not be negative.
    commute : the mean number of steps of a random walk to the other node and back: the resistance times the sum of
        the degrees in the component.

    Returns
    -------
    Tensors
        resistance, of several graphs with ptr and pair_ptr (graphs + 1,).

    Raises
    ------
    PeError
        For a graph without nodes, negative weights, or more memory than there is.
    """
    graph = as_graph(graph)
    require_nodes(graph, 1)
    adjacency = conductances(graph)
    members = Members(adjacency)
    require_pairs(graph, 40, "ask for a part of the graph")
    table = PairValues(graph, np.inf, np.float64)
    for nodes, weights in members.matrices(adjacency, "resistances"):
        found = _resistances(weights)
        if commute:
            found *= weights.sum(axis=(1, 2))[:, None, None]
        table.put(nodes, nodes, rounded(found))
    warnings = graph.doubts
    if graph.directed:
        warnings += ("the graph is directed: these are the resistances of (A + A')/2",)
    return of_pairs(graph, "resistance", table, {"connected_components": members.count}, warnings)


def _path_edges(graph: Graph, longest: int, limit: int | None, extra: int) -> PairValues:
    """The first `longest` edges on a shortest path from node to node, by Floyd and Warshall's algorithm.

    Node after node is tried between every two nodes, and taken where it makes the path shorter, as Graphormer's
    algos.pyx does: that decides which of several shortest paths is followed.
    """
    edges, count = graph.edges, max(graph.num_edges, 1)
    own = graph.graph_of[edges[0]]
    order = np.argsort(own, kind="stable")
    number = np.empty(len(own), dtype=np.int64)  # of each edge in its graph
    number[order] = np.arange(len(own)) - np.searchsorted(own[order], own[order])
    ends = [edges] if graph.directed and not graph.mirrored else [edges, edges[::-1]]
    # An edge that is written from i to j comes before one from j to i.
    codes = np.concatenate([number + 1 + turn * count for turn in range(len(ends))]).astype(np.float64)
    source, target = np.concatenate(ends, axis=1)
    first = coalesced(graph.num_nodes, source, target, codes, np.minimum.reduceat)
    members = Members(first)
    largest = int(members.sizes.max(initial=0))
    if largest > DENSE:
        raise PeError(
            f"{parameter('paths')} {longest}: a component has {largest:,} nodes; paths are found up to {DENSE:,}"
        )
    require_pairs(graph, 4 * longest, f"use fewer {parameter('paths')}")
    table = PairValues(graph, -1, np.int32, (longest,), extra=extra)
    for stack in members.stacks(DENSE, "paths"):
        code = members.dense(first, stack.nodes)
        nodes = np.arange(stack.size)
        distance = np.where(code > 0, 1.0, np.inf)
        distance[:, nodes, nodes] = 0
        following = np.where(code > 0, nodes, -1)  # the next node on the way from i to j
        for middle in nodes:
            through = distance[:, :, middle, None] + distance[:, middle, None, :]
            better = through < distance
            distance = np.where(better, through, distance)
            following = np.where(better, following[:, :, middle, None], following)
        there = np.isfinite(distance) if limit is None else distance <= limit
        item, goal = np.arange(len(code))[:, None, None], nodes[None, None, :]
        at = np.broadcast_to(nodes[None, :, None], code.shape)
        found = np.full((*code.shape, longest), -1, dtype=np.int32)
        for place in range(longest):
            going = there & (at != goal)
            after = np.where(going, following[item, at, goal], at)
            taken = (code[item, at, after].astype(np.int64) - 1) % count
            found[..., place] = np.where(going, taken, -1)
            at = after
        table.put(stack.nodes, stack.nodes, found)
    return table


def _lengths(edges: Any, table: PairValues) -> PairValues:
    """The length of the shortest path; infinite where there is none."""
    members = Members(edges)
    for stack in members.stacks(DENSE, "shortest paths"):
        distance = members.dense(edges, stack.nodes)
        distance[distance == 0] = np.inf
        distance[:, np.arange(stack.size), np.arange(stack.size)] = 0
        for middle in range(stack.size):
            through = distance[:, :, middle, None] + distance[:, middle, None, :]
            np.minimum(distance, through, out=distance)
        table.put(stack.nodes, stack.nodes, distance)
    for stack in members.larger(DENSE):
        need_scipy(f"weighted distances of a component of {stack.size} nodes")
        from scipy.sparse.csgraph import dijkstra

        nodes = stack.nodes[0]
        found = dijkstra(members.block(edges, nodes).sparse(), directed=True)
        table.put(stack.nodes, stack.nodes, np.asarray(found)[None])
    return table


def _resistances(weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """(b, n, n) the resistances in connected graphs of these weights (b, n, n)."""
    distance = np.empty_like(weights)
    matrices = laplacians(weights)
    far = spread_weights(matrices)
    if not far.all():
        near = weights[~far]
        distance[~far] = _differences(pseudoinverses(near, np.ones(near.shape, dtype=bool)))
    for item in np.flatnonzero(far):
        found = by_incidence(matrices[item])
        if found is None:
            distance[item] = _differences(
                pseudoinverses(weights[item, None], np.ones((1, *weights.shape[1:]), bool))
            )[0]
            continue
        # sums of squares, of which small ones keep their digits beside large ones
        modes = found[1][:, 1:] / np.sqrt(found[0][1:])
        for node, own in enumerate(modes):
            distance[item, node] = ((own - modes) ** 2).sum(axis=1)
    n = weights.shape[1]
    with np.errstate(over="ignore", invalid="ignore"):
        shares = weights * distance
    _require_foster(weights, shares, np.full(len(weights), n - 1.0))
    distance[:, np.arange(n), np.arange(n)] = 0
    return distance


def _differences(inverse: NDArray[np.float64]) -> NDArray[np.float64]:
    own = np.diagonal(inverse, axis1=1, axis2=2)
    return np.asarray(own[:, :, None] + own[:, None, :] - inverse - inverse.transpose(0, 2, 1))


def pseudoinverses(weights: NDArray[np.float64], joined: NDArray[np.bool_]) -> NDArray[np.float64]:
    """(b, n, n) the pseudoinverses of D - A for weights A (b, n, n); `joined` says which nodes a path joins."""
    degree, size = weights.sum(axis=2), joined.sum(axis=2)
    total = np.where(joined, degree[:, None, :], 0).sum(axis=2)
    unit = np.where(total > 0, total / size, 1.0)[:, :, None]  # the mean degree of each node's component
    constant = joined / size[:, :, None]
    try:
        # the constant vectors are no null vectors of what is inverted
        inverse = np.linalg.inv(laplacians(weights) / unit + constant)
    except np.linalg.LinAlgError:
        inverse = np.full_like(weights, np.nan)
    _require_foster(
        weights, weights / unit * _differences(inverse), weights.shape[1] - (1 / size).sum(axis=1)
    )
    return np.asarray((inverse - constant) / unit)


def _require_foster(
    weights: NDArray[np.float64], shares: NDArray[np.float64], wanted: NDArray[np.float64]
) -> None:
    """An error where weight times resistance does not add up to n - 1 over the edges of a component of n nodes.

    Foster's theorem; each share is at most 1.
    """
    right = (
        (np.abs(shares.sum(axis=(1, 2)) / 2 - wanted) < FOSTER)
        & (shares.max(axis=(1, 2)) < 1 + FOSTER)
        & (shares.min(axis=(1, 2)) > -FOSTER)
    )
    if not right.all():
        wrong = weights[np.argmin(right)]
        raise PeError(
            f"the weights of one graph range from {wrong[wrong > 0].min():g} to {wrong.max():g}, too far for "
            f"resistances in float64: scale them, or {parameter('weights')} none"
        )


def hops(members: Members, links: SparseRows, limit: int | None, table: PairValues) -> None:
    """Write the number of edges on a shortest path into `table` where there is one of at most `limit` edges.

    Each node has the set of those that it reaches, a bit for each: it grows by the sets of its neighbours, all in one
    sweep over the edges. How often a bit was not there yet is the distance, counted bit by bit as well.
    """
    single = members.order[members.starts[:-1][members.sizes == 1]]
    table.put_where(single[:, None], single[:, None], np.zeros((len(single), 1, 1), dtype=np.int64))
    classes = -(-members.sizes // WORD)
    done = len(single)
    for words in np.unique(classes[(members.sizes > 1) & (classes <= WORDS)]).tolist():
        own = np.flatnonzero((classes == words) & (members.sizes > 1))
        at_once = max(1, BLOCK // (words * WORD) ** 2)
        for start in range(0, len(own), at_once):
            part = own[start : start + at_once]
            _small(members, links, part, words, limit, table)
            done += int(members.sizes[part].sum())
            step("breadth-first search", done, len(members.labels))
    for component in np.flatnonzero(classes > WORDS).tolist():
        nodes = members.nodes(component)
        inner = members.block(links, nodes)
        search = _by_lists if _depth(inner) > DEEP else _by_bits
        for rows, columns, distance in search(inner, limit):
            table.put_where(nodes[rows], nodes[columns], distance)
            done += distance.size // len(nodes)
            step("breadth-first search", done, len(members.labels))


def _small(
    members: Members,
    links: SparseRows,
    components: NDArray[np.int64],
    words: int,
    limit: int | None,
    table: PairValues,
) -> None:
    """All pairs of components of at most `words` x 64 nodes."""
    lengths = members.sizes[components]
    begin = np.cumsum(lengths) - lengths
    nodes = members.order[spans(members.starts[components], lengths)]
    inner = links.block(nodes, members.place)
    columns = inner.columns + np.repeat(np.repeat(begin, lengths), np.diff(inner.starts))
    targets = members.place[nodes]
    counts, reached = _counts(
        SparseRows(inner.starts, columns, inner.values), np.arange(len(nodes)), targets, words, limit
    )
    for size in np.unique(lengths).tolist():
        which = np.flatnonzero(lengths == size)
        rows = begin[which][:, None] + np.arange(size)
        table.put_where(nodes[rows], nodes[rows], counts[rows][:, :, :size], reached[rows][:, :, :size])


def _by_bits(
    links: SparseRows, limit: int | None
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64], NDArray[Any]]]:
    """Blocks of distances from all nodes to 256 of them; -1 where there is no path."""
    everyone = np.arange(links.size)
    at_once = WORDS_AT_ONCE * WORD
    for start in range(0, links.size, at_once):
        targets = np.arange(start, min(start + at_once, links.size))
        counts, reached = _counts(links, targets, targets - start, WORDS_AT_ONCE, limit)
        distance = np.where(reached, counts, -1)[:, : len(targets)]
        yield everyone, targets, distance


def _counts(
    links: SparseRows,
    targets: NDArray[np.int64],
    bits: NDArray[np.int64],
    words: int,
    limit: int | None,
) -> tuple[NDArray[np.int16], NDArray[np.bool_]]:
    """(n, words x 64) the distance of each node to the target of each bit, and whether there is a path.

    `bits` are the numbers of the `targets`; several may share a bit if no path joins them.
    """
    reach = np.zeros((links.size, words), dtype=np.uint64)
    reach[targets, bits // WORD] = np.uint64(1) << (bits % WORD).astype(np.uint64)
    going = np.flatnonzero(np.diff(links.starts) > 0)
    starts = links.starts[going]
    planes: list[NDArray[np.uint64]] = []
    level = 0
    while limit is None or level < limit:
        if not going.size:
            break
        onwards = reach.copy()
        onwards[going] |= np.bitwise_or.reduceat(reach[links.columns], starts, axis=0)
        if np.array_equal(onwards, reach):
            break
        carry = ~reach
        for plane in planes:
            carry, plane[...] = plane & carry, plane ^ carry
        if carry.any():
            planes.append(carry)
        reach = onwards
        level += 1
    counts = np.zeros((links.size, words * WORD), dtype=np.int16)
    for power, plane in enumerate(planes):
        counts += _unpacked(plane).astype(np.int16) << power
    return counts, _unpacked(reach).astype(bool)


def _unpacked(words: NDArray[np.uint64]) -> NDArray[np.uint8]:
    return np.unpackbits(words.astype("<u8", copy=False).view(np.uint8), axis=1, bitorder="little")


def _depth(links: SparseRows) -> int:
    """The largest distance from the first node, a lower bound of that between any two."""
    distance = np.full((1, links.size), -1, dtype=np.int32)
    _search(links, distance, 0, links.size)
    return int(distance.max())


def _by_lists(
    links: SparseRows, limit: int | None
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64], NDArray[Any]]]:
    """Blocks of distances from some nodes to all, by lists of the nodes just reached; -1 where there is no path."""
    n = links.size
    at_once = max(1, BLOCK // n)
    for start in range(0, n, at_once):
        rows = np.arange(start, min(start + at_once, n))
        distance = np.full((len(rows), n), -1, dtype=np.int32)
        _search(links, distance, start, n if limit is None else limit)
        yield rows, np.arange(n), distance


def _search(links: SparseRows, distance: NDArray[np.int32], first: int, limit: int) -> None:
    """Fill `distance` (b, n), -1 so far, from the nodes first, first + 1, …"""
    n = links.size
    flat, mark = distance.reshape(-1), np.empty(distance.size, dtype=np.int32)
    degree = np.diff(links.starts)
    origin = np.arange(len(distance)) * n
    node = np.arange(first, first + len(distance))
    flat[origin + node] = 0
    for level in range(1, limit + 1):
        count = degree[node]
        edge = spans(links.starts[node], count)
        origin, node = np.repeat(origin, count), links.columns[edge]
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
