"""The connected components of graphs, those of one size together: small matrices in stacks, which numpy solves at once.

Every encoding of a graph is the same whether its components lie in one graph or are graphs of their own, and whatever
else stands in the file: a stack gives each matrix the same bits as if it were alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pe_cli.process import step
from pe_cli.structures.graph import Graph, SparseRows, components

NUMBERS = 1 << 20  # in a stack of matrices
HEIGHT = 256  # matrices in a stack


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


class PairTable:
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
        turn = np.arange(len(first)) - np.repeat(np.cumsum(self.sides) - self.sides, self.sides)
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
