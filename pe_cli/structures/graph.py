"""A graph as arrays, and what every graph encoding needs of it: its adjacency and its components."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from operator import index
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from pe_cli.errors import PeError, counted, in_python, needs, parameter, spelled

Parallel: TypeAlias = Literal["sum", "first"]

THREADS = "OPENBLAS_NUM_THREADS"  # read by the library when it is loaded


class SparseRows(NamedTuple):
    """A sparse matrix by rows (CSR): row i holds columns[starts[i]:starts[i + 1]], ascending."""

    starts: NDArray[np.int64]
    columns: NDArray[np.int64]
    values: NDArray[Any]

    @property
    def size(self) -> int:
        return len(self.starts) - 1

    def row_numbers(self) -> NDArray[np.int64]:
        """The row of each stored value."""
        return np.repeat(np.arange(self.size), np.diff(self.starts))

    def between_nodes(self) -> NDArray[np.bool_]:
        """Whether each stored value is off the diagonal."""
        return np.asarray(self.row_numbers() != self.columns)

    def row_sums(self) -> NDArray[np.float64]:
        sums = np.bincount(self.row_numbers(), weights=self.values, minlength=self.size)
        return sums.astype(np.float64, copy=False)

    def dense(self) -> NDArray[np.float64]:
        matrix = np.zeros((self.size, self.size))
        matrix[self.row_numbers(), self.columns] = self.values
        return matrix

    def sparse(self) -> Any:
        """The same as a scipy csr_array; an error that says how to install scipy where it is missing."""
        sparse = need_scipy(f"a graph of {self.size} nodes").sparse
        index = np.int32 if len(self.columns) < 2**31 and self.size < 2**31 else np.int64
        parts = (self.values, self.columns.astype(index), self.starts.astype(index))
        return sparse.csr_array(parts, shape=(self.size, self.size))

    def without_loops(self) -> SparseRows:
        return self.only(self.between_nodes())

    def only(self, keep: NDArray[np.bool_]) -> SparseRows:
        """Those of the stored values that are to be kept."""
        if keep.all():
            return self
        return _rows(self.size, self.row_numbers()[keep], self.columns[keep], self.values[keep])

    def block(self, nodes: NDArray[np.int64], place: NDArray[np.int64]) -> SparseRows:
        """The rows of a component's nodes; `place` (n,) is the place of each node in its component."""
        lengths = self.starts[nodes + 1] - self.starts[nodes]
        starts = np.concatenate([[0], np.cumsum(lengths)])
        where = spans(self.starts[nodes], lengths)
        return SparseRows(starts, place[self.columns[where]], self.values[where])


def spans(starts: NDArray[np.int64], lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """The numbers from starts[i] to starts[i] + lengths[i] - 1, of one i after the other."""
    ends = np.cumsum(lengths)
    return np.asarray(np.repeat(starts - ends + lengths, lengths) + np.arange(lengths.sum()))


@dataclass(frozen=True, eq=False, repr=False)
class Graph:
    """One graph, or several side by side: nodes 0..num_nodes-1 and edges from the first row of `edges` to the second.

    >>> Graph(3, [[0, 1], [1, 2]])
    Graph(3 nodes, 2 edges, undirected, sha256 7acccfef7a7e85ef)

    `directed` says whether the direction counts, `parallel` what several edges between two nodes come to, and
    `mirrored` that each edge goes both ways, also for what looks at directions.
    `node_ids` are the names of the nodes in the file, where they are not 0..num_nodes-1: integers or text.
    `remarks` are sentences about how the file was understood, in which parameters are marked as in those of a `PeError`;
    `notes` are the same as Python spells them. `weighted_by` is the column or attribute of the file that the weights were
    taken from.

    `ptr` (graphs + 1,) says where each of several graphs begins, as in a batch of PyTorch Geometric: every encoding
    encodes each by itself. `first` is the number of the first of them in the dataset that they come from, and `largest`
    the number of nodes of the largest graph of that dataset, which integer types go by.
    """

    num_nodes: int
    edges: NDArray[np.int64]
    weights: NDArray[np.float64] | None = None
    directed: bool = False
    parallel: Parallel = "sum"
    node_ids: NDArray[np.int64] | tuple[str, ...] | None = None
    remarks: tuple[str, ...] = ()
    mirrored: bool = False
    ptr: NDArray[np.int64] | None = None
    first: int = 0
    largest: int = 0
    weighted_by: str | None = None

    def __post_init__(self) -> None:
        given = np.asarray(self.edges)
        edges = given.astype(np.int64, copy=False)
        if given.size and (given.ndim != 2 or len(given) != 2 or not np.array_equal(edges, given)):
            raise PeError(f"edges are {given.dtype} {list(given.shape)}: give whole numbers (2, m)")
        object.__setattr__(self, "edges", edges.reshape(2, -1))
        object.__setattr__(self, "num_nodes", index(self.num_nodes))
        if self.num_nodes < 0:
            raise PeError(f"a graph cannot have {self.num_nodes} nodes")
        if edges.size and not (edges.min() >= 0 and edges.max() < self.num_nodes):
            raise PeError(f"edges name nodes outside 0..{self.num_nodes - 1}")
        if self.weights is not None:
            weights = np.asarray(self.weights, dtype=np.float64).reshape(-1)
            object.__setattr__(self, "weights", weights)
            if len(weights) != edges.shape[1]:
                raise PeError(f"{len(weights)} weights for {edges.shape[1]} edges")
            if not np.isfinite(weights).all():
                raise PeError("a weight is not a finite number")
        if self.ptr is not None:
            ptr = np.asarray(self.ptr, dtype=np.int64).reshape(-1)
            object.__setattr__(self, "ptr", ptr)
            check_ptr(ptr, self.num_nodes)
            which = self.graph_of
            apart = np.flatnonzero(which[edges[0]] != which[edges[1]])
            if apart.size:
                i, j = edges[:, apart[0]]
                raise PeError(
                    f"edge {apart[0]} joins node {i} of graph {which[i]} and node {j} of graph {which[j]}"
                )
        if self.largest < (least := int(self.sizes.max(initial=0))):
            object.__setattr__(self, "largest", least)

    def __repr__(self) -> str:
        kind = "directed" if self.directed else "undirected"
        graphs = f"{self.num_graphs} graphs, " if self.several else ""
        nodes, edges = counted(self.num_nodes, "node", "nodes"), counted(self.num_edges, "edge", "edges")
        return f"Graph({graphs}{nodes}, {edges}, {kind}, {fingerprint(self.edges, self.weights)})"

    @property
    def num_edges(self) -> int:
        return int(self.edges.shape[1])

    @property
    def several(self) -> bool:
        """Whether these are the graphs of a dataset, be it one or none, rather than a graph."""
        return self.ptr is not None

    @cached_property
    def starts(self) -> NDArray[np.int64]:
        """(graphs + 1,) where the nodes of each graph begin."""
        return np.array([0, self.num_nodes]) if self.ptr is None else self.ptr

    @property
    def num_graphs(self) -> int:
        return len(self.starts) - 1

    @cached_property
    def sizes(self) -> NDArray[np.int64]:
        """(graphs,) the number of nodes of each graph."""
        return np.diff(self.starts)

    @cached_property
    def graph_of(self) -> NDArray[np.int64]:
        """(n,) the number of each node's graph."""
        return np.repeat(np.arange(self.num_graphs), self.sizes)

    @cached_property
    def arcs(self) -> SparseRows:
        """The weight of the edges from i to j as they are written, whether direction counts or not."""
        return self._undirected if self.mirrored else self._written

    @cached_property
    def _written(self) -> SparseRows:
        source, target = self.edges
        return self._joined(source, target, self._values())

    @cached_property
    def _twice(self) -> NDArray[np.bool_]:
        """(graphs,) whether there are edges between different nodes, each in both directions."""
        written = self._written
        rows, columns = written.row_numbers(), written.columns
        other = rows != columns
        there, back = rows * self.num_nodes + columns, columns * self.num_nodes + rows
        if np.array_equal(there, np.sort(back)):
            single = np.zeros(self.num_graphs, dtype=bool)
        else:
            place = np.minimum(np.searchsorted(there, back), len(there) - 1)
            single = self._graphs_with(rows[there[place] != back])
        return self._graphs_with(rows[other]) & ~single

    def _graphs_with(self, nodes: NDArray[np.int64]) -> NDArray[np.bool_]:
        return np.bincount(self.graph_of[nodes], minlength=self.num_graphs) > 0

    @cached_property
    def both_directions(self) -> bool:
        """Whether an undirected graph (of several: all that have edges) is written with each edge in both directions."""
        with_edges = self._graphs_with(self._written.row_numbers())
        return not self.directed and bool(self._twice.any() and self._twice[with_edges].all())

    @cached_property
    def adjacency(self) -> SparseRows:
        """A_ij, the weight between i and j, symmetric where the graph is undirected.

        A loop counts once, and so does an edge that is written in both directions, if all of its graph are; where its
        two weights differ, it has their mean.
        """
        return self.arcs if self.directed else self._undirected

    @cached_property
    def _undirected(self) -> SparseRows:
        if self.parallel == "sum":
            return self._both_ways(np.where(self._twice, 0.5, 1.0))
        source, target = self.edges.min(axis=0), self.edges.max(axis=0)
        half = self._joined(source, target, self._values())
        rows, other = half.row_numbers(), half.row_numbers() != half.columns
        both = np.concatenate([rows, half.columns[other]]), np.concatenate([half.columns, rows[other]])
        return coalesced(self.num_nodes, *both, np.concatenate([half.values, half.values[other]]))

    def _both_ways(self, share: NDArray[np.float64]) -> SparseRows:
        """share x (A + A') of the edges as they are written, loops once; `share` (graphs,)."""
        written = self._written
        if (
            self.weights is None
            and (share == 0.5).all()
            and self._twice.all()
            and (written.values == 1).all()
        ):
            return written
        rows, columns = written.row_numbers(), written.columns
        other = rows != columns
        values = np.where(other, share[self.graph_of[rows]], 1.0) * written.values
        return coalesced(
            self.num_nodes,
            np.concatenate([rows, columns[other]]),
            np.concatenate([columns, rows[other]]),
            np.concatenate([values, values[other]]),
        )

    @property
    def notes(self) -> tuple[str, ...]:
        """What there is to say about how the file was understood."""
        return tuple(spelled(remark, in_python) for remark in self.remarks)

    @cached_property
    def repeats(self) -> tuple[str, ...]:
        """What to say where edges stand there more than once, in one direction; marked as `remarks`."""
        if self.parallel != "sum" or len(self._written.values) >= np.count_nonzero(self._values()):
            return ()
        return (
            f"edges are there more than once: their weights are summed; {parameter('parallel')} first takes one of each",
        )

    @cached_property
    def doubts(self) -> tuple[str, ...]:
        """What to say where several edges, or two directions of one, leave weights in doubt; marked as `remarks`."""
        said = self.repeats
        if self.directed or self.parallel != "sum":
            return said
        written = self._written
        if self._twice.any() and not (self.weights is None and (written.values == 1).all()):
            back = coalesced(self.num_nodes, written.columns, written.row_numbers(), written.values)
            if not np.array_equal(back.values, written.values):
                said += (
                    "edges are there in both directions, with different weights: each pair has the mean of its two; "
                    f"{parameter('parallel')} first takes the first, {parameter('directed')} keeps both",
                )
        one_way = ~self._twice[self.graph_of[written.row_numbers()]]
        if not one_way.any():
            return said
        links = self._undirected
        pairs = (
            int(np.count_nonzero(links.between_nodes() & ~self._twice[self.graph_of[links.row_numbers()]]))
            // 2
        )
        twice = int(np.count_nonzero(written.between_nodes() & one_way)) - pairs
        if twice <= 0:
            return said
        which = f"{twice} of {pairs} edges {'is' if twice == 1 else 'are'}"
        if self.several:
            which = "some edges of graphs that are not written in both directions are"
        return (
            *said,
            f"{which} also there the other way round: their weights are summed; {parameter('parallel')} first takes one",
        )

    @cached_property
    def symmetric(self) -> SparseRows:
        """The adjacency of an undirected graph; of a directed one the mean of both directions, (A + A')/2."""
        if not self.directed:
            return self.adjacency
        return self.arcs if self.mirrored else self._both_ways(np.full(self.num_graphs, 0.5))

    def links(self) -> SparseRows:
        """1 where there is an edge, whatever its weight; both ways where the graph is undirected."""
        return self._least(np.ones(self.num_edges))

    def shortest_edges(self) -> SparseRows:
        """As `adjacency`, with the least of parallel weights in place of their sum."""
        return self._least(self._values())

    def _least(self, values: NDArray[np.float64]) -> SparseRows:
        source, target = self.edges
        if self.mirrored or not self.directed:
            source, target = np.concatenate([source, target]), np.concatenate([target, source])
            values = np.concatenate([values, values])
        return coalesced(self.num_nodes, source, target, values, np.minimum.reduceat)

    def part(self, number: int) -> Graph:
        """The graph of that number by itself."""
        begin, end = self.starts[number : number + 2].tolist()
        own = np.flatnonzero(self.graph_of[self.edges[0]] == number)
        weights = None if self.weights is None else self.weights[own]
        return Graph(
            end - begin,
            self.edges[:, own] - begin,
            weights,
            self.directed,
            self.parallel,
            mirrored=self.mirrored,
            first=self.first + number,
            largest=self.largest,
        )

    def _values(self) -> NDArray[np.float64]:
        return np.ones(self.num_edges) if self.weights is None else self.weights

    def _joined(
        self, source: NDArray[np.int64], target: NDArray[np.int64], values: NDArray[np.float64]
    ) -> SparseRows:
        return coalesced(self.num_nodes, source, target, values, JOINED[self.parallel])


def check_ptr(ptr: NDArray[np.int64], num_nodes: int) -> None:
    """An error for a `ptr` that does not divide the nodes into graphs."""
    if not ptr.size or ptr[0] != 0 or ptr[-1] != num_nodes or (np.diff(ptr) < 0).any():
        raise PeError(f"ptr must rise from 0 to the number of nodes, {num_nodes}")


Reduce: TypeAlias = Callable[[NDArray[Any], NDArray[np.int64]], NDArray[Any]]
JOINED: dict[str, Reduce] = {"sum": np.add.reduceat, "first": lambda values, first: values[first]}


def coalesced(
    size: int,
    rows: NDArray[np.int64],
    columns: NDArray[np.int64],
    values: NDArray[Any],
    reduce: Reduce = np.add.reduceat,
) -> SparseRows:
    """The matrix with these entries, those of one place joined by `reduce` in their order, and zeros dropped."""
    if not rows.size:
        return _rows(size, rows, columns, values)
    if size < 2**31:
        place, order = _sorted(rows * size + columns, size * size)
        rows, columns = np.divmod(place, size)
    else:
        order = np.lexsort((columns, rows))
        rows, columns = rows[order], columns[order]
    values = values[order]
    first = np.flatnonzero(np.concatenate([[True], (rows[1:] != rows[:-1]) | (columns[1:] != columns[:-1])]))
    joined = reduce(values, first)
    keep = joined != 0
    if len(first) == len(rows) and keep.all():
        return _rows(size, rows, columns, joined)
    return _rows(size, rows[first][keep], columns[first][keep], joined[keep])


def _sorted(keys: NDArray[np.int64], limit: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The keys, which are below `limit`, in order, and the stable order that sorts them.

    Where a key and its place fit into one number, sorting those is several times as fast as a stable argsort.
    """
    bits = len(keys).bit_length()
    if limit.bit_length() + bits < 63:
        both = np.sort(keys << bits | np.arange(len(keys)))
        return both >> bits, both & (1 << bits) - 1
    order = np.argsort(keys, kind="stable")
    return keys[order], order


def components(matrix: SparseRows) -> NDArray[np.int64]:
    """(n,) the number of each node's connected component, direction aside, numbered by their first node.

    Every node points at a node of its component, roots hook on to smaller roots, and pointers are halved
    until nothing moves (Shiloach and Vishkin, 1982).
    """
    source, target = matrix.row_numbers(), matrix.columns
    root = np.arange(matrix.size)
    while True:
        a, b = root[source], root[target]
        apart = a != b
        if not apart.any():
            break
        source, target, a, b = source[apart], target[apart], a[apart], b[apart]
        np.minimum.at(root, np.maximum(a, b), np.minimum(a, b))
        while True:
            above = root[root]
            if np.array_equal(above, root):
                break
            root = above
    return np.asarray(np.unique(root, return_inverse=True)[1], dtype=np.int64).reshape(-1)


def fingerprint(*arrays: NDArray[Any] | None) -> str:
    """`sha256 1f0c…`, by which a record says what an encoding was made from."""
    digest = hashlib.sha256()
    for array in arrays:
        if array is not None:
            digest.update(np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<")).tobytes())
    return f"sha256 {digest.hexdigest()[:16]}"


def need_scipy(what: str) -> Any:
    """The scipy package with its sparse solvers, or an error that says how to install it.

    ARPACK multiplies thin matrices thousands of times, where the threads of scipy's OpenBLAS wait for each other
    (ten times slower on a busy machine) and make sums depend on their number: it is loaded with one.
    """
    before = os.environ.get(THREADS)
    os.environ.setdefault(THREADS, "1")
    try:
        import scipy
        import scipy.sparse.linalg
    except ImportError:
        raise needs(what, "scipy", "graph") from None
    finally:
        if before is None:
            os.environ.pop(THREADS, None)
    return scipy


def _rows(size: int, rows: NDArray[np.int64], columns: NDArray[np.int64], values: NDArray[Any]) -> SparseRows:
    starts = np.zeros(size + 1, dtype=np.int64)
    np.cumsum(np.bincount(rows, minlength=size), out=starts[1:])
    return SparseRows(starts, columns, values)


Ids: TypeAlias = Literal["auto", "relabel", "text"]

BYTES_AN_EDGE = 120  # what an edge takes until its matrix stands


@dataclass
class RawGraph:
    """Edges (2, m) as they stand in a file: between ids, or between places in `names` where there are names.

    `num_nodes` is set where the format says it, `directed` where the format has a word for it; `weighted_by` names the
    column or attribute that the weights were taken from. `one_way` says of a matrix that some pairs stand in it in one
    direction only, though it is no triangle.
    """

    edges: NDArray[np.int64]
    weights: NDArray[np.float64] | None = None
    names: list[str] | None = None
    num_nodes: int | None = None
    directed: bool | None = None
    notes: list[str] = field(default_factory=list)
    weighted_by: str | None = None
    one_way: bool = False
