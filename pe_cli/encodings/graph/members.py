"""The connected components of graphs, those of one size together: small matrices in stacks, which numpy solves at once.

Every encoding of a graph is the same whether its components lie in one graph or are graphs of their own, and whatever
else stands in the file: a stack gives each matrix the same bits as if it were alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pe_cli.encodings.graph.hermitian import Axes, axis_basis, canonical_basis, quiet
from pe_cli.errors import PeError, parameter
from pe_cli.process import require_memory, step
from pe_cli.structures import Graph
from pe_cli.structures.graph import SparseRows, components, spans
from pe_cli.tensors import Tensors

NUMBERS = 1 << 20  # in a stack of matrices
HEIGHT = 256  # matrices in a stack
LARGEST_EXPONENT = 85.0  # of e; float32 ends at 88
MOST_NAMES = 1 << 25  # characters of node names that a file's header takes
HALFWAY_BITS = 268435457.0  # 2^28 + 1: Veltkamp's splitting keeps 53 - 28 bits
LAST_BITS = 2.0**-45


class Stack(NamedTuple):
    """Components of one size s: their numbers (b,), and the nodes of each (b, s)."""

    components: NDArray[np.int64]
    nodes: NDArray[np.int64]

    @property
    def size(self) -> int:
        return int(self.nodes.shape[1])


class Members:
    """The components of a graph, or of several side by side, that its stored values join; or parts given by `labels`."""

    def __init__(self, links: SparseRows, labels: NDArray[np.int64] | None = None) -> None:
        self.labels = components(links) if labels is None else labels
        self.sizes = np.bincount(self.labels)
        self.starts = np.concatenate([[0], np.cumsum(self.sizes)])
        together = bool((np.diff(self.labels) >= 0).all())
        self.order = np.arange(len(self.labels)) if together else np.argsort(self.labels, kind="stable")
        self.place = np.empty(len(self.labels), dtype=np.int64)  # of each node within its component
        self.place[self.order] = np.arange(len(self.labels)) - self.starts[self.labels[self.order]]

    @property
    def count(self) -> int:
        return len(self.sizes)

    @property
    def first_nodes(self) -> NDArray[np.int64]:
        """(components,) the first node of each."""
        return np.asarray(self.order[self.starts[:-1]])

    def nodes(self, component: int) -> NDArray[np.int64]:
        """The nodes of one component."""
        return np.asarray(self.order[self.starts[component] : self.starts[component + 1]])

    def stacks(self, most: int, what: str, least: int = 1) -> Iterator[Stack]:
        """All components of `least` to `most` nodes; larger ones are left to the caller."""
        done = 0
        sizes = np.unique(self.sizes)
        for size in sizes[(sizes >= least) & (sizes <= most)].tolist():
            chosen = np.flatnonzero(self.sizes == size)
            at_once = int(np.clip(NUMBERS // (size * size), 1, HEIGHT if size > 1 else NUMBERS))
            for start in range(0, len(chosen), at_once):
                part = chosen[start : start + at_once]
                yield Stack(part, self.order[self.starts[part][:, None] + np.arange(size)])
                done += len(part)
                step(what, done, self.count)

    def larger(self, most: int) -> Iterator[Stack]:
        """The components of more than `most` nodes, each by itself."""
        for component in np.flatnonzero(self.sizes > most).tolist():
            yield Stack(np.array([component]), self.nodes(component)[None])

    def matrices(
        self, matrix: SparseRows, what: str, least: int = 1
    ) -> Iterator[tuple[NDArray[np.int64], NDArray[Any]]]:
        """Nodes (b, s) of all components of at least `least` nodes, and the values (b, s, s) of `matrix` between them."""
        largest = int(self.sizes.max(initial=0))
        require_memory(40 * largest**2, f"a dense matrix of {largest:,} nodes", "take a part of the graph")
        for stack in self.stacks(largest, what, least):
            yield stack.nodes, self.dense(matrix, stack.nodes)

    def dense(self, matrix: SparseRows, nodes: NDArray[np.int64]) -> NDArray[Any]:
        """(b, s, s) the values of `matrix` between the nodes (b, s) of each component."""
        count, size = nodes.shape
        inner = matrix.block(nodes.reshape(-1), self.place)
        stack = np.zeros((count, size, size), dtype=np.result_type(matrix.values.dtype, np.float64))
        stack.reshape(-1)[inner.row_numbers() * size + inner.columns] = inner.values
        return stack

    def block(self, matrix: SparseRows, nodes: NDArray[np.int64]) -> SparseRows:
        """The rows of one component, whose nodes (s,) are renumbered from 0."""
        return matrix if len(nodes) == matrix.size else matrix.block(nodes, self.place)


class Spaces:
    """Eigenspaces of graphs, put together from columns of their components; then a basis of each, those of one size together.

    `groups` are the graphs.
    """

    def __init__(self, groups: Members) -> None:
        self._groups = groups
        self._columns: list[NDArray[np.float64]] = []
        self._rows: list[tuple[NDArray[np.int64], NDArray[np.float64]]] = []

    def add(self, nodes: NDArray[np.int64], rows: NDArray[np.float64], *about: Any) -> None:
        """Columns `rows` (f, s) at the nodes (f, s) of a component.

        Of each, or of all, `about` are the number of its space, its turn in the space, the column of the table where the
        space begins, its eigenvalue, its noise, and whether it is sharp.
        """
        group = self._groups.labels[nodes[:, 0]]
        self._columns.append(np.stack(np.broadcast_arrays(group, *about)).astype(np.float64))
        self._rows.append((nodes, rows))

    def into(
        self,
        vectors: NDArray[np.float64],
        found: NDArray[np.int64],
        finish: Callable[..., NDArray[np.float64]],
        axes: Axes,
    ) -> NDArray[np.bool_]:
        """Write a basis of each space by its axes to the first `found` (graphs,) columns of `vectors` (n, K).

        (graphs, K) whether a column has it. The others are chosen by the numbering of the nodes.
        """
        canonical = np.zeros((len(found), vectors.shape[1]), dtype=bool)
        if not self._columns:
            return canonical
        group, space, turn, first, value, noise, sharp = np.concatenate(self._columns, axis=1)
        _, one, space, dimension = np.unique(
            space, return_index=True, return_inverse=True, return_counts=True
        )
        group, first, value = group[one].astype(np.int64), first[one].astype(np.int64), value[one]
        size = self._groups.sizes[group]
        starts = np.cumsum(size * dimension) - size * dimension
        numbers = np.zeros(int((size * dimension).sum()))
        begin = starts[space] + turn.astype(np.int64) * size[space]
        for nodes, rows in self._rows:
            numbers[begin[: len(rows), None] + self._groups.place[nodes]] = rows
            begin = begin[len(rows) :]
        limit, certain = np.zeros(len(one)), np.ones(len(one))
        np.maximum.at(limit, space, noise)
        np.minimum.at(certain, space, sharp)
        for nodes_each, columns in np.unique(np.stack([size, dimension], axis=1), axis=0).tolist():
            own = np.flatnonzero((size == nodes_each) & (dimension == columns))
            where = starts[own][:, None] + np.arange(nodes_each * columns)
            spaces = numbers[where].reshape(len(own), columns, nodes_each)
            basis, told = axis_basis(spaces, axes)
            told &= certain[own] > 0
            basis[~told] = canonical_basis(spaces[~told].transpose(0, 2, 1), columns).transpose(0, 2, 1)
            graphs = group[own]
            nodes = self._groups.order[self._groups.starts[graphs][:, None] + np.arange(nodes_each)]
            for number in range(columns):
                rows = basis[:, number] if columns == 1 else quiet(basis[:, number], limit[own])
                at = first[own] + number
                shown = (at >= 0) & (at < found[graphs])
                vectors[nodes[shown], at[shown, None]] = finish(rows, value[own], nodes)[shown]
                canonical[graphs[shown], at[shown]] = told[shown]
        return canonical


class PairValues:
    """Values of all ordered pairs of nodes of each graph, row-major, one graph after the other.

    With `extra` a node stands in front of each graph. Distances are cut at `clip`, then `offset` is added.
    """

    def __init__(
        self,
        graph: Graph,
        fill: Any,
        dtype: Any,
        width: tuple[int, ...] = (),
        *,
        extra: int = 0,
        clip: int | None = None,
        offset: int = 0,
    ) -> None:
        self.sides = graph.sizes + extra
        self.starts = pair_starts(self.sides)
        self.values = np.full((int(self.starts[-1]), *width), fill, dtype=dtype)
        self.filled = self.largest = 0  # pairs that were given a value, and the largest of these values
        self._clip, self._offset = clip, offset
        self._local = extra + np.arange(graph.num_nodes) - graph.starts[graph.graph_of]
        self._row = self.starts[graph.graph_of] + self._local * self.sides[graph.graph_of]

    def put_extra(self, value: Any) -> None:
        """The value between the node in front of each graph and all of its nodes, itself included."""
        first = np.repeat(self.starts[:-1], self.sides)
        turn = spans(np.zeros_like(self.sides), self.sides)
        self.values[first + turn] = value
        self.values[first + turn * np.repeat(self.sides, self.sides)] = value

    def _where(self, rows: NDArray[np.int64], columns: NDArray[np.int64]) -> NDArray[np.int64]:
        return np.asarray(self._row[rows][..., :, None] + self._local[columns][..., None, :])

    def put(self, rows: NDArray[np.int64], columns: NDArray[np.int64], block: NDArray[Any]) -> None:
        """The values (b, r, c, …) between the nodes (b, r) and (b, c) of components."""
        self.values[self._where(rows, columns)] = block
        self.filled += rows.size * columns.shape[-1]

    def put_where(
        self,
        rows: NDArray[np.int64],
        columns: NDArray[np.int64],
        block: NDArray[Any],
        there: NDArray[np.bool_] | None = None,
    ) -> None:
        """The values (…, r, c) between the nodes (…, r) and (…, c) that are there: of a distance, those not negative."""
        there = block >= 0 if there is None else there
        where = self._where(rows, columns)
        if self._clip is not None:
            block = np.minimum(block, self._clip)
        if self._offset:
            block = block.astype(np.int64) + self._offset
        if there.all():
            self.values[where] = block
        else:
            self.values[where[there]] = block[there]
        self.filled += int(np.count_nonzero(there))
        self.largest = max(self.largest, int(block.max(where=there, initial=0)))


def pair_starts(sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    """(graphs + 1,) where the pairs of each graph begin."""
    return np.concatenate([[0], np.cumsum(sizes * sizes)])


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
        return Tensors(tensors, facts, tuple(dict.fromkeys((*graph.remarks, *warnings))))
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
    return Tensors(tensors, facts, (*graph.remarks, *warnings))


def of_pairs(
    graph: Graph,
    name: str,
    table: PairValues,
    facts: dict[str, Any],
    warnings: tuple[str, ...],
    beside: dict[str, NDArray[Any]] | None = None,
) -> Tensors:
    """A table of all pairs: (n, n, …) of one graph, (pairs, …) of several, with pair_ptr (graphs + 1,).

    `beside` are tables of nodes or of graphs that go with it.
    """
    values = table.values
    if not graph.several:
        n = int(table.sides[0])
        return of_nodes(
            graph, {**(beside or {}), name: values.reshape(n, n, *values.shape[1:])}, facts, warnings
        )
    return of_nodes(graph, {**(beside or {}), name: values, "pair_ptr": table.starts}, facts, warnings)


def degrees(graph: Graph, clip: int | None = None, offset: int = 0) -> dict[str, NDArray[Any]]:
    """in_degree and out_degree (n,)"""
    links = graph.links()
    found = {
        "in_degree": np.bincount(links.columns, minlength=graph.num_nodes),
        "out_degree": np.diff(links.starts),
    }
    return {
        name: (values if clip is None else np.minimum(values, clip)).astype(np.int64) + offset
        for name, values in found.items()
    }


def rounded(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """The values, those next to a number of 25 bits made equal to it.

    Such numbers lie halfway between two of float32, where the last bit of a float64, which differs from processor to
    processor, would decide. Fractions with powers of 2, as probabilities of walks often are, are such numbers exactly.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        scaled = HALFWAY_BITS * values
        near = scaled - (scaled - values)
    return np.where(np.abs(values - near) <= LAST_BITS * np.abs(values), near, values)
