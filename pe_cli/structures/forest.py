"""Trees as arrays of parents, one after the other."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pe_cli.errors import PeError, counted
from pe_cli.process import require_memory
from pe_cli.structures.graph import fingerprint

TRACE = "-NONE-"
BYTES_A_NODE = 200
CHECKED_EVERY = 1 << 16


@dataclass
class RawTree:
    """Parents (-1 for the root) and labels; `ranks` where children are not in the order of their numbers."""

    parents: list[int] = field(default_factory=list)
    labels: list[str] = field(default_factory=list)
    ranks: list[int] | None = None

    def add(self, parent: int, label: str) -> int:
        """A new node; its number."""
        self.parents.append(parent)
        self.labels.append(label)
        if len(self.parents) % CHECKED_EVERY == 0:
            require_memory(
                len(self.parents) * BYTES_A_NODE,
                f"a tree of {len(self.parents):,} nodes so far",
                "take a smaller one",
            )
        return len(self.parents) - 1

    def without_empty_top(self) -> RawTree:
        """The tree without roots that have neither a label nor more than one child."""
        children = np.bincount(np.array(self.parents[1:], dtype=np.int64), minlength=len(self.parents))
        top = 0
        while top + 1 < len(self.parents) and not self.labels[top] and children[top] == 1:
            top += 1
        if not top:
            return self
        return RawTree([max(parent - top, -1) for parent in self.parents[top:]], self.labels[top:])


def forest_of(
    trees: Iterable[RawTree | PeError], label: str, *, skip_bad: bool = False, drop_traces: bool = False
) -> Forest:
    """The trees one after the other; those that are none are an error, or left out and counted."""
    parents: list[np.ndarray[tuple[int], np.dtype[np.int64]]] = []
    ranks: list[list[int] | None] = []
    labels: list[str] = []
    starts = [0]
    bad: list[PeError] = []
    for number, found in enumerate(trees, 1):
        tree = (
            _without_traces(found, f"{label}, tree {number}")
            if drop_traces and isinstance(found, RawTree)
            else found
        )
        if isinstance(tree, PeError):
            if not skip_bad:
                raise tree
            bad.append(tree)
            continue
        own = np.array(tree.parents, dtype=np.int64)
        parents.append(np.where(own < 0, -1, own + starts[-1]))
        ranks.append(tree.ranks)
        labels.extend(tree.labels)
        starts.append(starts[-1] + len(own))
        require_memory(
            starts[-1] * BYTES_A_NODE, f"{label} with {starts[-1]:,} nodes so far", "take a part of it"
        )
    if not parents:
        raise bad[0] if bad else PeError(f"{label} holds no tree")
    notes: tuple[str, ...] = ()
    if bad:
        notes = (
            f"{len(bad)} of {len(bad) + len(parents)} are no trees and were left out; the first: {bad[0].args[0]}",
        )
    forest = Forest.of(
        np.concatenate(parents), np.array(starts, dtype=np.int64), tuple(labels), notes, len(bad)
    )
    for start, own_ranks in zip(starts, ranks, strict=False):
        if own_ranks is not None:
            forest.ranks[start : start + len(own_ranks)] = own_ranks
    return forest


def _without_traces(tree: RawTree, where: str) -> RawTree | PeError:
    """The tree without traces (`-NONE-`) and without constituents that then hold no word."""
    size = len(tree.parents)
    leaf = np.ones(size, dtype=bool)
    leaf[[parent for parent in tree.parents if parent >= 0]] = False
    keep = np.zeros(size, dtype=bool)
    trace = np.zeros(size, dtype=bool)
    for node, parent in enumerate(tree.parents):
        trace[node] = tree.labels[node] == TRACE or (parent >= 0 and trace[parent])
    for node in range(size - 1, -1, -1):
        keep[node] |= leaf[node] and not trace[node]
        if keep[node] and tree.parents[node] >= 0:
            keep[tree.parents[node]] = True
    if not keep.any():
        return PeError(f"{where} holds nothing but traces")
    number = np.cumsum(keep) - 1
    kept = np.flatnonzero(keep).tolist()
    parents = [int(number[tree.parents[node]]) if tree.parents[node] >= 0 else -1 for node in kept]
    return RawTree(parents, [tree.labels[node] for node in kept])


@dataclass(frozen=True, eq=False, repr=False)
class Forest:
    """Trees whose nodes are numbered one tree after the other, in the order of the file.

    `parents` (n,) are node numbers, -1 for a root. Tree t holds the nodes starts[t] to starts[t + 1] - 1.
    `ranks` (n,) count the children of a node from 0, left to right. `labels` are what the file calls the nodes.
    `skipped` is the number of trees of the file that are none and were left out; `notes` say so.
    """

    parents: NDArray[np.int64]
    starts: NDArray[np.int64]
    ranks: NDArray[np.int64]
    labels: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    skipped: int = 0

    @classmethod
    def of(
        cls,
        parents: NDArray[np.int64],
        starts: NDArray[np.int64],
        labels: tuple[str, ...] = (),
        notes: tuple[str, ...] = (),
        skipped: int = 0,
    ) -> Forest:
        """The forest in which the children of a node stand in the order of their numbers."""
        return cls(parents, starts, _ranks(parents), labels, notes, skipped)

    def __post_init__(self) -> None:
        stuck = self.cyclic
        if stuck.size:
            raise PeError(f"node {stuck[0]} is its own ancestor: this is not a tree")

    def __repr__(self) -> str:
        sizes = f"{counted(self.num_trees, 'tree', 'trees')}, {counted(self.num_nodes, 'node', 'nodes')}"
        return f"Forest({sizes}, {fingerprint(self.parents, self.ranks)})"

    @property
    def num_nodes(self) -> int:
        return len(self.parents)

    @property
    def num_trees(self) -> int:
        return len(self.starts) - 1

    @cached_property
    def tree_of(self) -> NDArray[np.int64]:
        """(n,) the number of each node's tree."""
        return np.repeat(np.arange(self.num_trees), np.diff(self.starts))

    @cached_property
    def cyclic(self) -> NDArray[np.int64]:
        """The nodes from which no root is reached."""
        return cyclic_nodes(self.parents)

    @cached_property
    def depths(self) -> NDArray[np.int64]:
        """(n,) the number of steps from the root of each node's tree."""
        return steps_to_root(self.parents)

    @cached_property
    def child_counts(self) -> NDArray[np.int64]:
        """(n,) the number of children of each node."""
        return np.bincount(self.parents[self.parents >= 0], minlength=self.num_nodes)


def steps_to_root(parents: NDArray[Any]) -> NDArray[np.int64]:
    """(n,) the number of steps from each node to its root, whose parent is negative, by doubling steps."""
    above = np.where(parents < 0, np.arange(len(parents)), parents)
    depth = (parents >= 0).astype(np.int64)
    while (further := depth[above]).any():
        depth += further
        above = above[above]
    return depth


def cyclic_nodes(parents: NDArray[np.int64]) -> NDArray[np.int64]:
    """The nodes of a parent vector from which no root is reached."""
    above = np.where(parents < 0, np.arange(len(parents)), parents)
    steps = 1
    while steps <= len(parents):
        above = above[above]
        steps *= 2
    return np.flatnonzero(parents[above] >= 0)


def _ranks(parents: NDArray[np.int64]) -> NDArray[np.int64]:
    order = np.argsort(parents, kind="stable")
    grouped = parents[order]
    first = np.searchsorted(grouped, grouped, side="left")
    ranks = np.empty(len(parents), dtype=np.int64)
    ranks[order] = np.arange(len(parents)) - first
    ranks[parents < 0] = 0
    return ranks
